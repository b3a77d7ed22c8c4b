/*
 * The contract between the node and whatever computes: CPU, CUDA, or a table with a modelled duration.
 *
 * A backend owns a pool of KV pages, numbered 0 .. n_pages-1, each with room for page_tokens positions of all layers. It
 * knows nothing of sequences: a step is a list of spans, each a run of consecutive positions of one sequence together with
 * the page table that holds its past and will hold its new entries. One step serves prefill, decode and verification
 * alike.
 *
 *     span   history  t0 t1 t2 t3 | t4 t5 t6        position = 4, n_tokens = 3: rows are t4 t5 t6
 *            pages    [ 7 ][ 2 ][ 9 ]               position p lives in pages[p / page_tokens], slot p % page_tokens
 *            outputs               .  .  R          n_outputs = 1: the last row's logits choose the next token
 *
 * Same bits: a row's logits depend only on history[0 .. its position], never on the other rows or spans of a step, on how
 * a prompt was cut into steps, or on the number of threads.
 *
 * Threading: all calls come from one thread (the node loop). submit returns at once; the work completes later. Everything
 * a step points to stays valid and unchanged until its completion was polled. Spans of one step never write the same slot,
 * and a span of a step never reads what another span of that step writes.
 */
#ifndef HEARSAY_PORT_BACKEND_H
#define HEARSAY_PORT_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BACKEND_MAX_TOP_LOGPROBS = 20 };

struct logit_bias {
    uint32_t token;
    float bias;
};

/* How the next token is chosen: argmax over the filtered tokens of logit + temperature * gumbel(seed, choice, position, token). */
struct sampling_params {
    float temperature;        /* 0: greedy */
    float top_p;              /* 1: off */
    float min_p;              /* 0: off */
    float repetition_penalty; /* 1: off; over prompt and answer (CTRL, arXiv 1909.05858) */
    float presence_penalty;   /* 0: off; over the answer only, as the next */
    float frequency_penalty;  /* 0: off */
    uint32_t top_k;           /* 0: off */
    uint32_t choice;          /* index of the choice, for n > 1 */
    uint64_t seed;
    uint32_t min_tokens;       /* stop_ids are barred while the answer is shorter */
    const uint32_t *stop_ids;  /* [n_stop_ids] end-of-answer tokens */
    uint32_t n_stop_ids;
    const struct logit_bias *bias; /* [n_bias] */
    uint32_t n_bias;
    bool logprobs;          /* fill logprob */
    uint8_t n_top_logprobs; /* and so many alternatives, at most BACKEND_MAX_TOP_LOGPROBS */
};

struct token_logprob {
    uint32_t token;
    float logprob; /* natural log of the softmax over the raw logits */
};

struct row_result {
    uint32_t token; /* the chosen token, or the target (below) */
    float logprob;  /* of that token; 0 unless wanted */
    uint32_t n_top;
    struct token_logprob top[BACKEND_MAX_TOP_LOGPROBS]; /* best first, lowest id first among equals */
};

struct step_span {
    const uint32_t *history; /* [position + n_tokens]; row i's token is history[position + i] */
    uint32_t position;       /* of row 0 */
    uint32_t n_tokens;       /* rows, at least 1 */
    uint32_t n_prompt;       /* history[n_prompt ..] is the answer so far (penalties, min_tokens) */
    const uint32_t *pages;   /* [n_pages] covers positions 0 .. position + n_tokens - 1 */
    uint32_t n_pages;
    uint32_t n_outputs;                     /* the last n_outputs rows get a result; 0: none */
    const struct sampling_params *sampling; /* NULL only when n_outputs is 0 */
    const uint32_t *targets;                /* NULL, or [n_outputs]: do not choose, score this token (echo) */
    struct row_result *results;             /* [n_outputs], written by the backend */
    float *logits;                          /* NULL, or [n_outputs][n_vocab]: raw logits copied here */
};

struct step {
    uint64_t id; /* handed back in the completion */
    const struct step_span *spans;
    uint32_t n_spans;
};

struct step_completion {
    uint64_t id;
    int status;           /* 0, or HS_ERR_*: results are void */
    uint64_t duration_ns; /* compute time alone, queueing excluded */
};

struct backend_info {
    const char *name;             /* "cpu", "null", "cuda" */
    char arithmetic[48];          /* arithmetic class: nodes with equal text give equal bits, "cpu-avx512-f32.1" */
    uint32_t n_pages;
    uint32_t page_tokens;
    uint64_t page_bytes;
    uint32_t n_vocab;
    uint32_t max_rows;     /* rows in one step */
    uint32_t max_spans;    /* spans in one step */
    uint32_t max_inflight; /* steps submitted and not yet polled */
};

struct backend;

struct backend_ops {
    void (*info)(const struct backend *backend, struct backend_info *out);
    /* Copies whole page src to dst, before any step submitted later reads dst. 0 or HS_ERR_RANGE. */
    int (*copy_page)(struct backend *backend, uint32_t dst, uint32_t src);
    /* Starts one step. 0, HS_ERR_BUSY with max_inflight under way, HS_ERR_LIMIT beyond max_rows or max_spans, HS_ERR_RANGE. */
    int (*submit)(struct backend *backend, const struct step *step);
    /* Takes one completion, in order of submission: 1 taken, 0 none yet. */
    int (*poll)(struct backend *backend, struct step_completion *out);
    /* A descriptor that becomes readable when poll would return 1, or -1 if there is none. Poll drains it. It may also become so once
     * before a step ends, as shortly as the backend can tell: who is awake then hears of the end at once. */
    int (*event_fd)(const struct backend *backend);
    /* Earliest time at which poll may return 1 if that is known (modelled durations), UINT64_MAX otherwise. */
    uint64_t (*next_deadline_ns)(const struct backend *backend);
    void (*destroy)(struct backend *backend);
};

/* First member of every backend's own struct. */
struct backend {
    const struct backend_ops *ops;
};

#endif
