/*
 * Pre-tokenizers: where text is cut before byte pair encoding, because no token reaches across.
 *
 *     "I'm 42!"  -->  [I]['m][ ][4][2][!]      smollm: digits one by one, then GPT-2's expression
 *
 * Expressions are compiled by PCRE2 with its just-in-time compiler.
 *
 * A pre-tokenizer is a list of steps; each cuts further what the steps before it left. Expressions are those of the families'
 * tokenizer.json files, with white space spelled out (unicode.h). PCRE2 10.42 knows the letters of Unicode 14: characters
 * younger than that count as neither letter nor digit here.
 *
 * Threading: a pretokenizer is immutable once its steps are added; a scratch belongs to one call.
 * Errors: HS_ERR_NO_MEMORY; HS_ERR_UNSUPPORTED for an expression that PCRE2 does not take; HS_ERR_LIMIT for text on which an
 * expression exceeds PCRE2's bounds on work.
 */
#ifndef HEARSAY_MODEL_PRETOKENIZE_H
#define HEARSAY_MODEL_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"

enum pretokenize_cut {
    CUT_BOTH,   /* around each match: Hugging Face's "Isolated" */
    CUT_BEFORE, /* "MergedWithNext" */
    CUT_AFTER,  /* "MergedWithPrevious" */
};

#define PRETOKENIZE_MAX_STEPS 8

struct pretokenize_step {
    void *code; /* pcre2_code */
    enum pretokenize_cut cut;
};

/* Zero-initialise: no steps, text stays whole. */
struct pretokenizer {
    struct pretokenize_step steps[PRETOKENIZE_MAX_STEPS];
    size_t n_steps;
    uint64_t digest; /* of the expressions: two pre-tokenizers with the same cut alike */
};

/* Compiles expression[len] as a further step. */
int pretokenizer_add(struct pretokenizer *pre, const char *expression, size_t len, enum pretokenize_cut cut, struct error *err);
/* The steps of a family by the name that GGUF files give in tokenizer.ggml.pre. HS_ERR_UNSUPPORTED with the list of names. */
int pretokenizer_add_family(struct pretokenizer *pre, const char *name, size_t len, struct error *err);
/* The expression of GPT-2, which the byte-level pre-tokenizer brings along. */
int pretokenizer_add_gpt2(struct pretokenizer *pre, struct error *err);
void pretokenizer_fini(struct pretokenizer *pre);

/* Working memory. Zero-initialise. */
struct pretokenize_scratch {
    size_t *ends, *next_ends; /* ends of the pieces, ascending */
    size_t n_ends, cap_ends, n_next, cap_next;
    void *match;   /* pcre2_match_data */
    void *context; /* pcre2_match_context, as the next only where an expression needs it */
    void *stack;   /* pcre2_jit_stack */
};

void pretokenize_scratch_fini(struct pretokenize_scratch *scratch);

/* Cuts valid UTF-8 text[len], len > 0: piece i ends at scratch->ends[i] and starts where the one before ends. */
int pretokenize(const struct pretokenizer *pre, const char *text, size_t len, struct pretokenize_scratch *scratch);

#endif
