/* Whole models written anew in 4 bits, from both kinds of source, and what is refused. */
#include "tests/unit/model/check.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/model/dequantize.h"
#include "core/model/loaded_model.h"
#include "core/model/gguf_internal.h"
#include "core/model/quantize_model.h"
#include "tests/unit/model/folder.h"
#include "tests/unit/model/open_model.h"

static struct folder place;

static const struct quantize_config plain = {.layout = {.group = 32}, .threads = 1};

static struct quantize_summary quantize(const struct quantize_config *config)
{
    struct quantize_summary summary;
    struct error err = {0};
    if (quantize_model(config, &summary, &err) < 0)
        fail_msg("%s", err.text);
    return summary;
}

/* Files of runs that did not come to their end. */
static uint32_t count_parts(void)
{
    uint32_t n = 0;
    DIR *folder = opendir(place.path);
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder));)
        n += strstr(entry->d_name, ".part.") != NULL;
    closedir(folder);
    return n;
}

static void refuse(const struct quantize_config *config, int code, const char *text)
{
    struct quantize_summary summary;
    struct error err = {0};
    assert_int_equal(quantize_model(config, &summary, &err), code);
    assert_text_contains(err.text, text);
}

/* quantised: what w4_quantize_row makes of a; else the same bytes. */
static void check_tensor(const struct tensor_view *a, const struct tensor_view *b, struct w4_layout layout, bool quantised)
{
    if (!tensor_present(a)) {
        assert_false(tensor_present(b));
        return;
    }
    assert_int_equal(a->rows, b->rows);
    assert_int_equal(a->cols, b->cols);
    if (!quantised) {
        assert_int_equal(a->type, b->type);
        assert_int_equal(a->bytes, b->bytes);
        assert_memory_equal(a->data, b->data, a->bytes);
        return;
    }
    assert_int_equal(b->type, w4_type(layout));
    const size_t row_bytes = w4_row_bytes(layout, a->cols);
    float *row = malloc(a->cols * sizeof *row);
    uint8_t *expected = malloc(row_bytes);
    assert_non_null(row);
    assert_non_null(expected);
    for (uint32_t r = 0; r < a->rows; r++) {
        dequantize_rows(a, r, 1, row);
        assert_true(w4_quantize_row(layout, row, a->cols, expected));
        assert_memory_equal((const uint8_t *)b->data + r * row_bytes, expected, row_bytes);
    }
    free(row);
    free(expected);
}

static void check_layers(const struct model_desc *a, const struct model_desc *b, struct w4_layout layout)
{
    assert_int_equal(a->n_layers, b->n_layers);
    for (uint32_t i = 0; i < a->n_layers; i++) {
        const struct model_layer *x = &a->layers[i], *y = &b->layers[i];
        const struct {
            const struct tensor_view *from, *to;
            bool matrix;
        } parts[] = {{&x->attn_norm, &y->attn_norm, false}, {&x->wq, &y->wq, true},         {&x->wk, &y->wk, true},
                     {&x->wv, &y->wv, true},                {&x->wo, &y->wo, true},         {&x->bq, &y->bq, false},
                     {&x->bk, &y->bk, false},               {&x->bv, &y->bv, false},        {&x->q_norm, &y->q_norm, false},
                     {&x->k_norm, &y->k_norm, false},       {&x->ffn_norm, &y->ffn_norm, false}, {&x->w_gate, &y->w_gate, true},
                     {&x->w_up, &y->w_up, true},            {&x->w_down, &y->w_down, true}};
        for (size_t k = 0; k < sizeof parts / sizeof parts[0]; k++)
            check_tensor(parts[k].from, parts[k].to, layout, parts[k].matrix);
    }
}

/* Quantises a model of tests/vectors/tiny and compares; embedding and output as the configuration says. */
static void check_model(const char *in, const char *name, struct quantize_config config)
{
    char out[2 * FOLDER_PATH];
    snprintf(out, sizeof out, "%s", folder_file(&place, name));
    config.in = in;
    config.out = out;
    struct quantize_summary summary = quantize(&config);
    struct model_weights *a = open_model(in), *b = open_model(out);
    const bool tied = a->desc.output.data == a->desc.token_embedding.data;
    bool embedding = !config.keep_embedding && !(tied && config.keep_output);
    assert_true(summary.bytes_out < summary.bytes_in && summary.relative_error > 0 && summary.relative_error < 0.2);
    check_layers(&a->desc, &b->desc, config.layout);
    check_tensor(&a->desc.output_norm, &b->desc.output_norm, config.layout, false);
    check_tensor(&a->desc.token_embedding, &b->desc.token_embedding, config.layout, embedding);
    check_tensor(&a->desc.output, &b->desc.output, config.layout, !config.keep_output);
    if (tied)
        assert_int_equal(b->desc.output.data == b->desc.token_embedding.data, embedding || config.keep_output);
    if (a->gguf) {
        assert_int_equal(gguf_count_values(a->gguf), gguf_count_values(b->gguf));
        for (uint64_t i = 0; i < gguf_count_values(a->gguf); i++) {
            const struct gguf_value *x = gguf_value_at(a->gguf, i), *y = gguf_value_at(b->gguf, i);
            assert_int_equal(x->bytes, y->bytes);
            assert_memory_equal(x->data, y->data, x->bytes);
        }
    }
    model_weights_close(a);
    model_weights_close(b);

    struct loaded_model *loaded; /* tokenizer and chat template came along */
    struct error err = {0};
    assert_ok(model_open(out, NULL, &loaded, &err));
    assert_non_null(loaded->chat);
    model_close(loaded);
}

static void test_files(void **state)
{
    check_model("tests/vectors/tiny/qwen3.gguf", "qwen3.gguf", plain);
    check_model("tests/vectors/tiny/llama3.gguf", "llama3.gguf",
                (struct quantize_config){.layout = {.group = 64, .has_minimum = true}, .threads = 3});
    check_model("tests/vectors/tiny/qwen2.gguf", "tied.gguf", plain);
    check_model("tests/vectors/tiny/qwen2.gguf", "split.gguf",
                (struct quantize_config){.layout = {.group = 128}, .keep_embedding = true, .threads = 2});
    check_model("tests/vectors/tiny/qwen2.gguf", "kept.gguf",
                (struct quantize_config){.layout = {.group = 128}, .keep_output = true, .threads = 2});
    check_model("tests/vectors/tiny/qwen3.gguf", "output.gguf",
                (struct quantize_config){.layout = {.group = 32}, .keep_output = true, .threads = 2});
}

static void test_folders(void **state)
{
    check_model("tests/vectors/tiny/qwen3", "qwen3", plain);
    check_model("tests/vectors/tiny/llama3", "sharded", (struct quantize_config){.layout = {.group = 64}, .threads = 2});
    check_model("tests/vectors/tiny/qwen2", "split",
                (struct quantize_config){.layout = {.group = 32, .has_minimum = true}, .keep_embedding = true, .threads = 1});
    assert_int_equal(access(folder_file(&place, "sharded/model.safetensors.index.json"), F_OK), -1);
}

static size_t read_file(const char *path, uint8_t **out)
{
    struct stat status;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &status), 0);
    *out = malloc((size_t)status.st_size);
    assert_non_null(*out);
    assert_int_equal(fread(*out, 1, (size_t)status.st_size, f), status.st_size);
    fclose(f);
    return (size_t)status.st_size;
}

/* Inserts text into the head of a folder's safetensors file, behind its beginning `start`. */
static void add_to_head(const struct folder *f, const char *start, const char *text)
{
    uint8_t *bytes;
    char path[2 * FOLDER_PATH];
    uint64_t length;
    const size_t at = sizeof length + strlen(start), more = strlen(text);
    snprintf(path, sizeof path, "%s", folder_file(f, "model.safetensors"));
    const size_t n = read_file(path, &bytes);
    assert_memory_equal(bytes + sizeof length, start, strlen(start));
    bytes = realloc(bytes, n + more);
    assert_non_null(bytes);
    memmove(bytes + at + more, bytes + at, n - at);
    memcpy(bytes + at, text, more);
    memcpy(&length, bytes, sizeof length);
    length += more;
    memcpy(bytes, &length, sizeof length);
    folder_write(f, "model.safetensors", bytes, n + more);
    free(bytes);
}

/* Tensors that the model ignores: an empty one where the embedding lies, and the output layer of a model that uses the embedding. */
static void test_spare_tensors(void **state)
{
    static const char *const extras[] = {
        "\"model.layers.0.self_attn.rotary_emb.inv_freq\":{\"dtype\":\"F32\",\"shape\":[0,32],\"data_offsets\":[0,0]},",
        "\"lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[0,32],\"data_offsets\":[0,0]},"};
    for (int i = 0; i < 4; i++) {
        struct folder source;
        char name[16];
        folder_copy(&source, "tests/vectors/tiny/qwen2");
        add_to_head(&source, "{", extras[i / 2]);
        snprintf(name, sizeof name, "spare%d", i);
        check_model(source.path, name, (struct quantize_config){.layout = {.group = 32}, .keep_embedding = i % 2, .threads = 1});
        folder_remove(&source);
    }
}

/* Rows of U8 tensors have the bytes of packed rows, not as many bytes as values. */
static void test_rows_of_a_wrong_length(void **state)
{
    char head[256], path[2 * FOLDER_PATH];
    uint8_t *bytes;
    uint64_t length;
    struct folder f;
    struct model_weights *w;
    struct error err = {0};
    folder_copy(&f, "tests/vectors/tiny/qwen2");
    snprintf(path, sizeof path, "%s", folder_file(&f, "model.safetensors"));
    size_t n = read_file(path, &bytes);
    memcpy(&length, bytes, sizeof length);
    const size_t data = n - sizeof length - length;
    bytes = realloc(bytes, n + 264 * 32);
    assert_non_null(bytes);
    memset(bytes + n, 0, 264 * 32);
    folder_write(&f, "model.safetensors", bytes, n + 264 * 32);
    free(bytes);
    snprintf(head, sizeof head,
             "\"lm_head.weight\":{\"dtype\":\"U8\",\"shape\":[264,32],\"data_offsets\":[%zu,%zu]},", data, data + 264 * 32);
    add_to_head(&f, "{\"__metadata__\":{", "\"hearsay.packing\":\"W4_G32\",");
    add_to_head(&f, "{", head);
    assert_int_equal(model_weights_open(f.path, &w, &err), HS_ERR_PARSE);
    assert_text_contains(err.text, "\"lm_head.weight\" is 264 x 32 where 264 x 18 belongs");
    folder_remove(&f);
}

/* What stands where a run before might have written on the way stays, be it the source itself; so does what a copy would overwrite. */
static void test_source_in_the_way(void **state)
{
    uint8_t *bytes, *after;
    char in[2 * FOLDER_PATH], out[2 * FOLDER_PATH];
    size_t n = read_file("tests/vectors/tiny/qwen3.gguf", &bytes);
    folder_write(&place, "way.gguf.part", bytes, n);
    snprintf(in, sizeof in, "%s", folder_file(&place, "way.gguf.part"));
    snprintf(out, sizeof out, "%s", folder_file(&place, "way.gguf"));
    struct quantize_config config = plain;
    config.in = in;
    config.out = out;
    quantize(&config);
    assert_int_equal(access(out, F_OK), 0);
    assert_int_equal(read_file(in, &after), n);
    assert_memory_equal(after, bytes, n);
    free(after);
    free(bytes);

    struct folder source, target;
    folder_copy(&source, "tests/vectors/tiny/qwen3");
    folder_create(&target);
    snprintf(in, sizeof in, "%s", folder_file(&source, "config.json"));
    assert_int_equal(symlink(in, folder_file(&target, "config.json")), 0);
    n = read_file(in, &bytes);
    config.in = source.path;
    config.out = target.path;
    quantize(&config);
    assert_int_equal(read_file(in, &after), n);
    assert_memory_equal(after, bytes, n);
    free(after);
    free(bytes);
    folder_remove(&source);
    folder_remove(&target);
}

static void report(void *arg, double share)
{
    double *last = arg;
    assert_true(share > 0 && share <= 1);
    *last = share;
}

static void test_threads_and_progress(void **state)
{
    uint8_t *bytes[2];
    size_t sizes[2];
    double last = 0;
    for (int i = 0; i < 2; i++) {
        char out[2 * FOLDER_PATH];
        snprintf(out, sizeof out, "%s", folder_file(&place, "threads.gguf"));
        struct quantize_config config = plain;
        config.in = "tests/vectors/tiny/mistral.gguf";
        config.out = out;
        config.threads = i ? 5 : 1;
        config.progress = i ? NULL : report;
        config.progress_arg = &last;
        quantize(&config); /* the second over the first */
        sizes[i] = read_file(out, &bytes[i]);
    }
    assert_true(last == 1);
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(bytes[0], bytes[1], sizes[0]);
    free(bytes[0]);
    free(bytes[1]);
}

static void test_refused(void **state)
{
    char out[2 * FOLDER_PATH], other[2 * FOLDER_PATH];
    struct quantize_config config = plain;
    snprintf(out, sizeof out, "%s", folder_file(&place, "once.gguf"));
    snprintf(other, sizeof other, "%s", folder_file(&place, "twice.gguf"));
    config.in = "tests/vectors/tiny/qwen3.gguf";
    config.out = out;
    quantize(&config);
    config.in = out;
    refuse(&config, HS_ERR_INVALID, "overwritten");
    config.out = other;
    refuse(&config, HS_ERR_UNSUPPORTED, "already");
    config.in = "tests/vectors/tiny/none.gguf";
    refuse(&config, HS_ERR_NOT_FOUND, "none.gguf");
    config.in = "tests/vectors/tiny/qwen3.gguf";
    config.out = place.path;
    refuse(&config, HS_ERR_INVALID, "is no file");
    char pipe[2 * FOLDER_PATH]; /* as any device: it would be a file afterwards */
    snprintf(pipe, sizeof pipe, "%s", folder_file(&place, "pipe"));
    assert_int_equal(mkfifo(pipe, 0600), 0);
    config.out = pipe;
    refuse(&config, HS_ERR_INVALID, "is no file");
    config.in = "tests/vectors/tiny/qwen3";
    config.out = out;
    refuse(&config, HS_ERR_INVALID, "is no folder");
    config.in = "tests/vectors/tiny/qwen3.gguf";
    config.out = "/nonexistent/folder/out.gguf";
    refuse(&config, HS_ERR_IO, "/nonexistent/folder");
    assert_int_equal(access(other, F_OK), -1);
}

/* A value that is not finite ends the run and leaves nothing behind. */
static void test_bad_weights(void **state)
{
    uint8_t *bytes;
    size_t n = read_file("tests/vectors/tiny/qwen3.gguf", &bytes);
    struct model_weights *w = open_model("tests/vectors/tiny/qwen3.gguf");
    size_t at = (size_t)((const uint8_t *)w->desc.layers[1].w_up.data - w->gguf->data);
    model_weights_close(w);
    bytes[at] = 0x00; /* an infinity in F16 */
    bytes[at + 1] = 0x7c;
    folder_write(&place, "infinite.gguf", bytes, n);
    free(bytes);
    char in[2 * FOLDER_PATH], out[2 * FOLDER_PATH];
    snprintf(in, sizeof in, "%s", folder_file(&place, "infinite.gguf"));
    snprintf(out, sizeof out, "%s", folder_file(&place, "never.gguf"));
    struct quantize_config config = plain;
    config.in = in;
    config.out = out;
    refuse(&config, HS_ERR_RANGE, "blk.1.ffn_up.weight");
    assert_int_equal(access(out, F_OK), -1);
    assert_int_equal(count_parts(), 0);
}

static void kill_halfway(void *arg, double share)
{
    if (share >= 0.5)
        raise(SIGKILL);
}

/* A run that is killed leaves the earlier file and, where files can be without a name, nothing else. */
static void test_killed(void **state)
{
    uint8_t *before, *after;
    char out[2 * FOLDER_PATH];
    struct quantize_config config = plain;
    snprintf(out, sizeof out, "%s", folder_file(&place, "killed.gguf"));
    config.in = "tests/vectors/tiny/qwen3.gguf";
    config.out = out;
    quantize(&config);
    const size_t n = read_file(out, &before);
    const pid_t child = fork();
    if (child == 0) {
        struct quantize_summary summary;
        config.progress = kill_halfway;
        quantize_model(&config, &summary, NULL);
        _exit(0);
    }
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL);
    assert_int_equal(read_file(out, &after), n);
    assert_memory_equal(after, before, n);
    free(before);
    free(after);
    const int nameless = open(place.path, O_TMPFILE | O_RDWR, 0600);
    if (nameless >= 0) {
        close(nameless);
        assert_int_equal(count_parts(), 0);
    }
    quantize(&config);
}

static int set_up(void **state)
{
    folder_create(&place);
    return 0;
}

static int tear_down(void **state)
{
    static const char *const folders[] = {"qwen3", "sharded", "split", "spare0", "spare1", "spare2", "spare3"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        struct folder f;
        snprintf(f.path, sizeof f.path, "%.200s/%s", place.path, folders[i]);
        folder_remove(&f);
    }
    folder_remove(&place);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_files), cmocka_unit_test(test_folders),
                                       cmocka_unit_test(test_spare_tensors), cmocka_unit_test(test_source_in_the_way), cmocka_unit_test(test_rows_of_a_wrong_length),
                                       cmocka_unit_test(test_threads_and_progress), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_bad_weights),
                                       cmocka_unit_test(test_killed)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
