/* The safetensors reader: a file written here, files cut off, lying and damaged, and folders of shards. */
#include "tests/unit/model/check.h"

#include "core/base/codec.h"
#include "core/base/rng.h"
#include "core/model/safetensors.h"
#include "tests/unit/model/folder.h"

enum { FLIP_ROUNDS = 20000, TEXT_BYTES = 4096 };

struct sample {
    uint8_t bytes[TEXT_BYTES];
    size_t len;
};

/* A header, as given, and n bytes 0, 1, 2, ... of data. */
static void build(struct sample *s, const char *header, size_t n_data)
{
    struct writer out;
    writer_init(&out, s->bytes, sizeof s->bytes);
    write_u64(&out, strlen(header));
    write_bytes(&out, header, strlen(header));
    for (size_t i = 0; i < n_data; i++)
        write_u8(&out, (uint8_t)i);
    assert_false(out.failed);
    s->len = out.len;
}

static const char good_header[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                                  "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[8,20]},"
                                  "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                                  "\"ids\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[20,28]}}";

static int open_copy(const struct sample *s, size_t len, uint8_t **copy, struct safetensors **out, struct error *err)
{
    *copy = malloc(len ? len : 1);
    assert_non_null(*copy);
    memcpy(*copy, s->bytes, len);
    int rc = safetensors_open_memory(*copy, len, "small.safetensors", out, err);
    if (rc < 0)
        free(*copy);
    return rc;
}

static void test_good_file(void **state)
{
    struct sample s;
    struct safetensors *tensors;
    struct error err = {0};
    uint8_t *copy;
    build(&s, good_header, 28);
    if (open_copy(&s, s.len, &copy, &tensors, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(safetensors_count(tensors), 3);
    assert_string_equal(safetensors_at(tensors, 0)->name, "a");
    const struct safetensors_tensor *t = safetensors_find(tensors, "b");
    assert_int_equal(t->type, TENSOR_BF16);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->dims[0], 2);
    assert_int_equal(t->dims[1], 3);
    assert_int_equal(t->bytes, 12);
    assert_int_equal(((const uint8_t *)t->data)[0], 8);
    assert_int_equal(safetensors_find(tensors, "ids")->type, TENSOR_NONE);
    assert_string_equal(safetensors_find(tensors, "ids")->dtype, "I64");
    assert_null(safetensors_find(tensors, "c"));
    safetensors_close(tensors);
    free(copy);
}

static void test_truncations(void **state)
{
    struct sample s;
    build(&s, good_header, 28);
    for (size_t len = 0; len < s.len; len++) {
        struct safetensors *tensors;
        struct error err = {0};
        uint8_t *copy;
        if (open_copy(&s, len, &copy, &tensors, &err) == 0)
            fail_msg("a file cut to %zu of %zu bytes was taken", len, s.len);
        assert_text_contains(err.text, "small.safetensors: ");
        assert_text_contains(err.text, "get a whole copy");
        if (len < 8 + strlen(good_header))
            assert_text_contains(err.text, "claims a header of");
    }
}

static void test_bit_flips(void **state)
{
    struct sample clean, s;
    struct rng rng;
    unsigned taken = 0, refused = 0;
    uint64_t sum = 0;
    build(&clean, good_header, 28);
    rng_seed(&rng, 7);
    for (int round = 0; round < FLIP_ROUNDS; round++) {
        struct safetensors *tensors;
        struct error err = {0};
        uint8_t *copy;
        s = clean;
        for (uint64_t flips = 1 + rng_below(&rng, 3); flips; flips--)
            s.bytes[rng_below(&rng, s.len)] ^= (uint8_t)(1u << rng_below(&rng, 8));
        if (open_copy(&s, s.len, &copy, &tensors, &err) < 0) {
            assert_true(err.text[0]);
            refused++;
            continue;
        }
        for (size_t i = 0; i < safetensors_count(tensors); i++)
            for (size_t j = 0; j < safetensors_at(tensors, i)->bytes; j++)
                sum += ((const uint8_t *)safetensors_at(tensors, i)->data)[j];
        taken++;
        safetensors_close(tensors);
        free(copy);
    }
    assert_true(taken > 100 && refused > 100 && sum > 0);
}

/* U8 tensors mean nothing by themselves, and 4-bit rows where the file says so. */
static void test_packing(void **state)
{
    static const char *const headers[] = {
        "{\"t\":{\"dtype\":\"U8\",\"shape\":[2,18],\"data_offsets\":[0,36]}}",
        "{\"__metadata__\":{\"hearsay.packing\":\"W4_G32\"},\"t\":{\"dtype\":\"U8\",\"shape\":[2,18],\"data_offsets\":[0,36]}}",
        "{\"__metadata__\":{\"hearsay.packing\":\"W4_G64_MIN\"},\"t\":{\"dtype\":\"U8\",\"shape\":[36],\"data_offsets\":[0,36]}}"};
    static const enum tensor_type types[] = {TENSOR_NONE, TENSOR_W4_G32, TENSOR_W4_G64_MIN};
    for (int i = 0; i < 3; i++) {
        struct sample s;
        struct safetensors *tensors;
        struct error err = {0};
        uint8_t *copy;
        build(&s, headers[i], 36);
        if (open_copy(&s, s.len, &copy, &tensors, &err) < 0)
            fail_msg("%s", err.text);
        assert_int_equal(safetensors_find(tensors, "t")->type, types[i]);
        safetensors_close(tensors);
        free(copy);
    }
}

#define TENSOR(dtype, shape, offsets) "{\"t\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void test_lies(void **state)
{
    static const struct {
        const char *header;
        int code;
        const char *text;
    } lies[] = {
        {"[1]", HS_ERR_PARSE, "does not hold a JSON object"},
        {"{\"t\":", HS_ERR_PARSE, "not valid JSON"},
        {"{\"t\":{},\"t\":{}}", HS_ERR_PARSE, "duplicate"},
        {"{\"t\":3}", HS_ERR_PARSE, "\"t\" has no dtype"},
        {"{\"__metadata__\":{\"hearsay.packing\":\"W4_G16\"}}", HS_ERR_UNSUPPORTED, "names no packing"},
        {"{\"__metadata__\":{\"hearsay.packing\":4}}", HS_ERR_UNSUPPORTED, "names no packing"},
        {TENSOR("F8_E4M3", "[16]", "[0,15]"), HS_ERR_PARSE, "15 bytes where its shape and type need 16"},
        {TENSOR("NF4", "[16]", "[0,16]"), HS_ERR_UNSUPPORTED, "has type NF4; F32, F16 and BF16 are supported"},
        {TENSOR("F32", "4", "[0,16]"), HS_ERR_PARSE, "no shape"},
        {TENSOR("F32", "[1,1,1,1,1,1,1,1,4]", "[0,16]"), HS_ERR_PARSE, "at most 8 dimensions"},
        {TENSOR("F32", "[-4]", "[0,16]"), HS_ERR_PARSE, "impossible shape"},
        {TENSOR("F32", "[4294967296,4294967296]", "[0,16]"), HS_ERR_PARSE, "impossible shape"},
        {TENSOR("F32", "[4611686018427387904]", "[0,16]"), HS_ERR_PARSE, "impossible size"},
        {TENSOR("F32", "[99999999999999999999]", "[0,16]"), HS_ERR_PARSE, "not valid JSON"},
        {TENSOR("F32", "[4]", "[0]"), HS_ERR_PARSE, "beyond the end"},
        {TENSOR("F32", "[4]", "[0,17]"), HS_ERR_PARSE, "beyond the end"},
        {TENSOR("F32", "[4]", "[-16,0]"), HS_ERR_PARSE, "beyond the end"},
        {TENSOR("F32", "[4]", "[16,0]"), HS_ERR_PARSE, "beyond the end"},
        {TENSOR("F32", "[4]", "[0.0,16.0]"), HS_ERR_PARSE, "beyond the end"},
        {TENSOR("F32", "[3]", "[0,16]"), HS_ERR_PARSE, "16 bytes where its shape and type need 12"},
        {TENSOR("F32", "[3]", "[4,16]"), HS_ERR_PARSE, "overlaps another or leaves a hole"},
        {TENSOR("F32", "[3]", "[0,12]"), HS_ERR_PARSE, "4 bytes that belong to no tensor"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},\"u\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":"
         "[8,16]}}",
         HS_ERR_PARSE, "overlaps"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        struct sample s;
        struct safetensors *tensors;
        struct error err = {0};
        uint8_t *copy;
        build(&s, lies[i].header, 16);
        int rc = open_copy(&s, s.len, &copy, &tensors, &err);
        if (rc != lies[i].code)
            fail_msg("%s: returned %d (%s)", lies[i].header, rc, err.text);
        assert_text_contains(err.text, lies[i].text);
    }
}

static void test_header_length(void **state)
{
    struct sample s;
    struct safetensors *tensors;
    struct error err = {0};
    uint8_t *copy;
    build(&s, good_header, 28);
    memset(s.bytes, 0xff, 8);
    assert_int_equal(open_copy(&s, s.len, &copy, &tensors, &err), HS_ERR_PARSE);
    assert_text_contains(err.text, "claims a header of 18446744073709551615 bytes");
}

static void refuse_folder(const struct folder *f, int code, const char *text)
{
    struct safetensors *tensors;
    struct error err = {0};
    assert_int_equal(safetensors_open_folder(f->path, &tensors, &err), code);
    assert_text_contains(err.text, text);
}

static void test_shards(void **state)
{
    static const char index[] = "model.safetensors.index.json", second[] = "model-00002-of-00002.safetensors";
    struct safetensors *tensors;
    struct error err = {0};
    struct folder f;
    folder_copy(&f, "tests/vectors/tiny/llama3");
    if (safetensors_open_folder(f.path, &tensors, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(safetensors_count(tensors), 3 + 2 * 9);
    assert_non_null(safetensors_find(tensors, "lm_head.weight"));
    assert_non_null(safetensors_find(tensors, "model.layers.1.mlp.down_proj.weight"));
    safetensors_close(tensors);

    folder_delete(&f, second);
    refuse_folder(&f, HS_ERR_NOT_FOUND, second);
    folder_write_text(&f, index, "{\"weight_map\":{\"x\":\"../../etc/passwd\"}}");
    refuse_folder(&f, HS_ERR_PARSE, "tensor \"x\" is not in a file of this folder");
    folder_write_text(&f, index, "{\"weight_map\":{\"x\":\"sub/model.safetensors\"}}");
    refuse_folder(&f, HS_ERR_PARSE, "tensor \"x\" is not in a file of this folder");
    folder_write_text(&f, index, "{\"weight_map\":{\"x\":\"model-00001-of-00002.safetensors\"}}");
    refuse_folder(&f, HS_ERR_PARSE, "tensor \"x\" is in none of the files");
    folder_write_text(&f, index, "{}");
    refuse_folder(&f, HS_ERR_PARSE, "no \"weight_map\"");
    folder_delete(&f, index);
    refuse_folder(&f, HS_ERR_NOT_FOUND, "neither model.safetensors nor");
    folder_remove(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_file), cmocka_unit_test(test_truncations),   cmocka_unit_test(test_bit_flips),
        cmocka_unit_test(test_packing), cmocka_unit_test(test_lies),      cmocka_unit_test(test_header_length), cmocka_unit_test(test_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
