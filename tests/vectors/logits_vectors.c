#include "tests/vectors/logits_vectors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/codec.h"

enum { MAX_COUNT = 1 << 20 };

/* n 32-bit values on the heap; NULL if the file or memory ends. */
static void *read_words(struct reader *in, uint32_t n)
{
    const uint8_t *bytes = read_view(in, (size_t)n * 4);
    void *copy = bytes ? malloc((size_t)n * 4 + 1) : NULL;
    if (copy)
        memcpy(copy, bytes, (size_t)n * 4);
    return copy;
}

static bool read_position(struct reader *in, uint32_t n_top, struct logits_position *out)
{
    out->norm = read_f32(in);
    read_bytes(in, out->sketch, sizeof out->sketch);
    out->top_ids = read_words(in, n_top);
    out->top_logits = read_words(in, n_top);
    return out->top_ids && out->top_logits;
}

static bool read_prompt(struct reader *in, uint32_t n_top, struct logits_prompt *out)
{
    uint32_t n_tokens = read_u32(in);
    out->n_greedy = read_u32(in);
    out->tokens = read_words(in, n_tokens);
    out->greedy = read_words(in, out->n_greedy);
    out->gaps = read_words(in, out->n_greedy);
    if (!out->tokens || !out->greedy || !out->gaps || !(out->positions = calloc(n_tokens, sizeof *out->positions)))
        return false;
    out->n_tokens = n_tokens;
    for (uint32_t i = 0; i < n_tokens; i++)
        if (!read_position(in, n_top, &out->positions[i]))
            return false;
    return true;
}

static int parse(struct reader *in, const char *path, struct logits_vectors *v, struct error *err)
{
    const uint8_t *magic = read_view(in, 4);
    uint32_t version = read_u32(in);
    if (!magic || memcmp(magic, "HSLV", 4) != 0 || version != 1)
        return error_set(err, HS_ERR_PARSE, "%s: is not a file of reference logits, version 1", path);
    v->n_vocab = read_u32(in);
    v->n_top = read_u32(in);
    uint32_t n_prompts = read_u32(in);
    v->model_bytes = read_u64(in);
    read_bytes(in, v->model_sha256, sizeof v->model_sha256);
    if (in->failed || n_prompts > MAX_COUNT || v->n_top > v->n_vocab)
        return error_set(err, HS_ERR_PARSE, "%s: has a broken head", path);
    v->prompts = calloc(n_prompts, sizeof *v->prompts);
    if (!v->prompts)
        return error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", path);
    v->n_prompts = n_prompts;
    for (uint32_t i = 0; i < n_prompts; i++)
        if (!read_prompt(in, v->n_top, &v->prompts[i]))
            return error_set(err, HS_ERR_PARSE, "%s: is cut off in prompt %u", path, i + 1);
    if (reader_left(in))
        return error_set(err, HS_ERR_PARSE, "%s: has %zu bytes too many", path, reader_left(in));
    return 0;
}

static int read_whole(const char *path, uint8_t **data, size_t *len, struct error *err)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return error_set(err, HS_ERR_IO, "%s: cannot open: %m", path);
    int rc = HS_ERR_IO;
    uint8_t *bytes = NULL;
    long size = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (size >= 0 && (bytes = malloc((size_t)size + 1)) && fseek(file, 0, SEEK_SET) == 0 &&
        fread(bytes, 1, (size_t)size, file) == (size_t)size)
        rc = 0;
    fclose(file);
    if (rc < 0) {
        free(bytes);
        return error_set(err, rc, "%s: cannot read it whole", path);
    }
    *data = bytes;
    *len = (size_t)size;
    return 0;
}

int logits_vectors_load(const char *path, struct logits_vectors *out, struct error *err)
{
    uint8_t *data = NULL;
    size_t len = 0;
    struct reader in;
    struct logits_vectors v = {0};
    int rc = read_whole(path, &data, &len, err);
    if (rc < 0)
        return rc;
    reader_init(&in, data, len);
    rc = parse(&in, path, &v, err);
    free(data);
    if (rc < 0) {
        logits_vectors_free(&v);
        return rc;
    }
    *out = v;
    return 0;
}

void logits_vectors_free(struct logits_vectors *vectors)
{
    for (uint32_t i = 0; i < vectors->n_prompts; i++) {
        struct logits_prompt *prompt = &vectors->prompts[i];
        for (uint32_t j = 0; j < prompt->n_tokens; j++) {
            free(prompt->positions[j].top_ids);
            free(prompt->positions[j].top_logits);
        }
        free(prompt->positions);
        free(prompt->tokens);
        free(prompt->greedy);
        free(prompt->gaps);
    }
    free(vectors->prompts);
    *vectors = (struct logits_vectors){0};
}

static uint64_t mix(uint64_t state)
{
    uint64_t z = (state + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double logits_cosine(const struct logits_position *reference, const float *row, uint32_t n_vocab)
{
    double sums[LOGITS_SKETCH] = {0}, squares = 0, distance = 0;
    for (uint32_t t = 0; t < n_vocab; t++) {
        uint64_t signs = mix(t);
        double value = row[t];
        squares += value * value;
        for (int j = 0; j < LOGITS_SKETCH; j++)
            sums[j] += signs >> j & 1 ? value : -value;
    }
    for (int j = 0; j < LOGITS_SKETCH; j++) {
        double difference = sums[j] - reference->sketch[j];
        distance += difference * difference / LOGITS_SKETCH;
    }
    double norm = reference->norm;
    return (squares + norm * norm - distance) / (2 * norm * sqrt(squares));
}

double logits_top_difference(const struct logits_position *reference, uint32_t n_top, const float *row)
{
    double largest = 0;
    for (uint32_t i = 0; i < n_top; i++) {
        double difference = fabs((double)row[reference->top_ids[i]] - reference->top_logits[i]);
        if (isnan(difference))
            return INFINITY;
        if (difference > largest)
            largest = difference;
    }
    return largest;
}
