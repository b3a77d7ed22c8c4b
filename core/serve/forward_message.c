#include "core/serve/forward_message.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "core/base/codec.h"
#include "core/base/error.h"

enum { FLAG_IGNORE_EOS = 1, FLAG_SCORE = 2, FLAG_LOGPROBS = 4, FLAGS_REQUEST = 7 };
enum { FLAG_SCORED = 1, FLAG_WITH_LOGPROB = 2, FLAGS_RESULTS = 3 };

bool forward_encodable(const struct sampling_params *sampling)
{
    return sampling->n_stop_ids <= FORWARD_MAX_STOP_IDS && sampling->n_bias <= FORWARD_MAX_BIAS;
}

/* Signed as unsigned with the sign in the lowest bit, so that small negatives stay short. */
static uint64_t zigzag(int32_t v)
{
    return ((uint64_t)(uint32_t)v << 1 ^ (v < 0 ? UINT32_MAX * 2ull + 1 : 0)) & 0x1ffffffffull;
}

static int32_t unzigzag(uint64_t v)
{
    uint32_t magnitude = (uint32_t)(v >> 1);
    return (int32_t)(v & 1 ? ~magnitude : magnitude);
}

/* A varint that must fit 32 bits and a bound. */
static uint32_t read_bounded(struct reader *r, uint64_t max)
{
    uint64_t v = read_varint(r);
    if (v > max || v > UINT32_MAX)
        r->failed = true;
    return r->failed ? 0 : (uint32_t)v;
}

static float read_ranged(struct reader *r, float min, float max)
{
    float v = read_f32(r);
    if (!(v >= min && v <= max)) /* NaN too */
        r->failed = true;
    return v;
}

static void write_sampling(struct writer *w, const struct sampling_params *s)
{
    write_f32(w, s->temperature);
    write_f32(w, s->top_p);
    write_f32(w, s->min_p);
    write_f32(w, s->repetition_penalty);
    write_f32(w, s->presence_penalty);
    write_f32(w, s->frequency_penalty);
    write_varint(w, s->top_k);
    write_varint(w, s->choice);
    write_u64(w, s->seed);
    write_varint(w, s->min_tokens);
    write_u8(w, s->n_top_logprobs);
    write_varint(w, s->n_stop_ids);
    for (uint32_t i = 0; i < s->n_stop_ids; i++)
        write_varint(w, s->stop_ids[i]);
    write_varint(w, s->n_bias);
    for (uint32_t i = 0; i < s->n_bias; i++) {
        write_varint(w, s->bias[i].token);
        write_f32(w, s->bias[i].bias);
    }
}

static void read_sampling(struct reader *r, struct forward_scratch *scratch, struct sampling_params *s)
{
    s->temperature = read_ranged(r, 0, 1e6f);
    s->top_p = read_ranged(r, 0, 1);
    s->min_p = read_ranged(r, 0, 1);
    s->repetition_penalty = read_ranged(r, 1e-6f, 1e6f);
    s->presence_penalty = read_ranged(r, -1e6f, 1e6f);
    s->frequency_penalty = read_ranged(r, -1e6f, 1e6f);
    s->top_k = read_bounded(r, UINT32_MAX);
    s->choice = read_bounded(r, UINT32_MAX);
    s->seed = read_u64(r);
    s->min_tokens = read_bounded(r, UINT32_MAX);
    s->n_top_logprobs = read_u8(r);
    if (s->n_top_logprobs > BACKEND_MAX_TOP_LOGPROBS)
        r->failed = true;
    s->n_stop_ids = read_bounded(r, FORWARD_MAX_STOP_IDS);
    for (uint32_t i = 0; i < s->n_stop_ids && !r->failed; i++)
        scratch->stop_ids[i] = read_bounded(r, UINT32_MAX);
    s->stop_ids = scratch->stop_ids;
    s->n_bias = read_bounded(r, FORWARD_MAX_BIAS);
    for (uint32_t i = 0; i < s->n_bias && !r->failed; i++) {
        scratch->bias[i].token = read_bounded(r, UINT32_MAX);
        scratch->bias[i].bias = read_ranged(r, -1e6f, 1e6f);
    }
    s->bias = scratch->bias;
}

static void write_request(struct writer *w, const struct forward_request *q)
{
    write_u8(w, q->hops);
    write_u8(w, (uint8_t)((q->ignore_eos ? FLAG_IGNORE_EOS : 0) | (q->score_prompt ? FLAG_SCORE : 0) |
                          (q->sampling.logprobs ? FLAG_LOGPROBS : 0)));
    write_varint(w, q->remaining_ns);
    write_varint(w, zigzag(q->priority));
    write_bytes(w, q->namespace_id, sizeof q->namespace_id);
    write_string(w, q->tenant, strnlen(q->tenant, sizeof q->tenant - 1));
    write_sampling(w, &q->sampling);
    write_varint(w, q->n_prompt);
    write_varint(w, q->limit);
    write_varint(w, q->n_scored);
    write_varint(w, q->n_tokens);
    for (uint32_t i = 0; i < q->n_tokens; i++)
        write_varint(w, q->tokens[i]);
}

static void read_request(struct reader *r, struct forward_scratch *scratch, struct forward_request *q)
{
    q->hops = read_u8(r);
    uint8_t flags = read_u8(r);
    if (flags & ~FLAGS_REQUEST)
        r->failed = true;
    q->ignore_eos = flags & FLAG_IGNORE_EOS;
    q->score_prompt = flags & FLAG_SCORE;
    q->remaining_ns = read_varint(r);
    uint64_t priority = read_varint(r);
    if (priority > UINT32_MAX)
        r->failed = true;
    q->priority = unzigzag(priority);
    read_bytes(r, q->namespace_id, sizeof q->namespace_id);
    read_string(r, q->tenant, sizeof q->tenant);
    read_sampling(r, scratch, &q->sampling);
    q->sampling.logprobs = flags & FLAG_LOGPROBS;
    q->n_prompt = read_bounded(r, UINT32_MAX);
    q->limit = read_bounded(r, UINT32_MAX);
    q->n_scored = read_bounded(r, UINT32_MAX);
    q->n_tokens = read_bounded(r, scratch->cap_tokens);
    if (q->n_prompt == 0 || q->n_prompt > q->n_tokens || q->n_tokens > q->limit || q->n_scored >= q->n_prompt)
        r->failed = true;
    for (uint32_t i = 0; i < q->n_tokens && !r->failed; i++)
        scratch->tokens[i] = read_bounded(r, UINT32_MAX);
    q->tokens = scratch->tokens;
}

/* Results carry logprobs only when one of them has any. */
static void write_results(struct writer *w, const struct forward_message *m)
{
    bool logprobs = false;
    for (uint32_t i = 0; i < m->results.n; i++)
        logprobs |= m->results.results[i].n_top || m->results.results[i].logprob != 0;
    write_u8(w, (uint8_t)((m->results.scored ? FLAG_SCORED : 0) | (logprobs ? FLAG_WITH_LOGPROB : 0)));
    write_varint(w, m->results.first);
    write_varint(w, m->results.n);
    for (uint32_t i = 0; i < m->results.n; i++) {
        const struct row_result *result = &m->results.results[i];
        write_varint(w, result->token);
        if (!logprobs)
            continue;
        write_f32(w, result->logprob);
        write_u8(w, (uint8_t)result->n_top);
        for (uint32_t k = 0; k < result->n_top; k++) {
            write_varint(w, result->top[k].token);
            write_f32(w, result->top[k].logprob);
        }
    }
}

static float read_logprob(struct reader *r)
{
    float v = read_f32(r);
    if (isnan(v) || v > 1e-3f) /* a logarithm of a share; rounding may end a hair above 0 */
        r->failed = true;
    return v;
}

static void read_results(struct reader *r, struct forward_scratch *scratch, struct forward_message *m)
{
    uint8_t flags = read_u8(r);
    if (flags & ~FLAGS_RESULTS)
        r->failed = true;
    m->results.scored = flags & FLAG_SCORED;
    m->results.first = read_bounded(r, UINT32_MAX);
    m->results.n = read_bounded(r, FORWARD_MAX_RESULTS);
    m->results.results = scratch->results;
    if (!m->results.n)
        r->failed = true;
    for (uint32_t i = 0; i < m->results.n && !r->failed; i++) {
        struct row_result *result = &scratch->results[i];
        result->token = read_bounded(r, UINT32_MAX);
        result->logprob = 0;
        result->n_top = 0;
        if (!(flags & FLAG_WITH_LOGPROB))
            continue;
        result->logprob = read_logprob(r);
        uint8_t n_top = read_u8(r);
        if (n_top > BACKEND_MAX_TOP_LOGPROBS)
            r->failed = true;
        for (uint32_t k = 0; k < n_top && !r->failed; k++) {
            result->top[k].token = read_bounded(r, UINT32_MAX);
            result->top[k].logprob = read_logprob(r);
        }
        result->n_top = n_top;
    }
}

int forward_encode(const struct forward_message *m, uint8_t *data, size_t cap)
{
    struct writer w;
    writer_init(&w, data, cap < INT_MAX ? cap : INT_MAX);
    write_u8(&w, (uint8_t)m->kind);
    write_u64(&w, m->id);
    write_u32(&w, m->attempt);
    switch (m->kind) {
    case FORWARD_REQUEST:
        write_request(&w, &m->request);
        break;
    case FORWARD_REFUSE:
        write_u8(&w, (uint8_t)m->refuse.reason);
        write_varint(&w, m->refuse.depth);
        break;
    case FORWARD_STARTED:
        write_varint(&w, m->started.cached_tokens);
        break;
    case FORWARD_RESULTS:
        write_results(&w, m);
        break;
    case FORWARD_FINISHED:
        write_u8(&w, (uint8_t)m->finished.reason);
        write_varint(&w, m->finished.n_answer);
        break;
    case FORWARD_FAILED:
        write_u8(&w, (uint8_t)-m->failed.status);
        write_string(&w, m->failed.text, strnlen(m->failed.text, FORWARD_MAX_TEXT));
        break;
    case FORWARD_ACCEPT:
    case FORWARD_ALIVE:
    case FORWARD_CANCEL:
        break;
    }
    return w.failed ? HS_ERR_LIMIT : (int)w.len;
}

int forward_decode(const uint8_t *data, size_t len, struct forward_scratch *scratch, struct forward_message *out)
{
    struct reader r;
    reader_init(&r, data, len);
    memset(out, 0, sizeof *out);
    uint8_t kind = read_u8(&r);
    if (r.failed || kind < FORWARD_REQUEST || kind > FORWARD_CANCEL)
        return HS_ERR_PROTOCOL;
    out->kind = kind;
    out->id = read_u64(&r);
    out->attempt = read_u32(&r);
    switch (out->kind) {
    case FORWARD_REQUEST:
        read_request(&r, scratch, &out->request);
        break;
    case FORWARD_REFUSE:
        out->refuse.reason = read_u8(&r);
        if (out->refuse.reason > FORWARD_REFUSED_INVALID)
            r.failed = true;
        out->refuse.depth = read_bounded(&r, UINT32_MAX);
        break;
    case FORWARD_STARTED:
        out->started.cached_tokens = read_bounded(&r, UINT32_MAX);
        break;
    case FORWARD_RESULTS:
        read_results(&r, scratch, out);
        break;
    case FORWARD_FINISHED:
        out->finished.reason = read_u8(&r);
        if (out->finished.reason > FINISH_LENGTH)
            r.failed = true;
        out->finished.n_answer = read_bounded(&r, UINT32_MAX);
        break;
    case FORWARD_FAILED:
        out->failed.status = -(int)read_u8(&r);
        if (out->failed.status == 0)
            r.failed = true;
        read_string(&r, out->failed.text, sizeof out->failed.text);
        break;
    case FORWARD_ACCEPT:
    case FORWARD_ALIVE:
    case FORWARD_CANCEL:
        break;
    }
    return r.failed || reader_left(&r) ? HS_ERR_PROTOCOL : 0;
}
