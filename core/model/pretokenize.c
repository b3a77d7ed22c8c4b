#include "core/model/pretokenize.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/strbuf.h"
#include "core/model/unicode.h"

/* Compiled expressions have 32 KiB of the thread's own stack; one that needs more gets this. */
#define JIT_STACK_START (64u << 10)
#define JIT_STACK_MAX   (8u << 20)

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL         "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const char gpt2_expression[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
static const char llama3_expression[] = CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" TAIL;
static const char qwen2_expression[] = CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" TAIL;
static const char digit_expression[] = "\\p{N}";

/* Expressions in the order of their steps. */
static const struct {
    const char *name;
    const char *expressions[2];
} families[] = {
    {"smollm", {digit_expression, gpt2_expression}},
    {"starcoder", {digit_expression, gpt2_expression}},
    {"refact", {digit_expression, gpt2_expression}},
    {"qwen2", {qwen2_expression}},
    {"deepseek-r1-qwen", {qwen2_expression}},
    {"llama-bpe", {llama3_expression}},
    {"llama3", {llama3_expression}},
    {"llama-v3", {llama3_expression}},
    {"gpt-2", {gpt2_expression}},
    {"default", {gpt2_expression}},
};

/* Copies expression with \s and \S written out; inside a bracket only \s can be, and \S stays PCRE2's. */
static void spell_out_spaces(const char *expression, size_t len, struct strbuf *out)
{
    bool in_bracket = false;
    for (size_t i = 0; i < len; i++) {
        char c = expression[i];
        if (c == '\\' && i + 1 < len) {
            char escaped = expression[++i];
            if (escaped == 's')
                strbuf_puts(out, in_bracket ? UNICODE_SPACE_REGEX_RANGES : "[" UNICODE_SPACE_REGEX_RANGES "]");
            else if (escaped == 'S' && !in_bracket)
                strbuf_puts(out, "[^" UNICODE_SPACE_REGEX_RANGES "]");
            else
                strbuf_add(out, expression + i - 1, 2);
            continue;
        }
        if (c == '[')
            in_bracket = true;
        else if (c == ']')
            in_bracket = false;
        strbuf_add(out, &c, 1);
    }
}

static uint64_t extend_digest(uint64_t digest, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        digest = (digest ^ (unsigned char)bytes[i]) * 0x100000001b3ULL; /* FNV-1a */
    return digest;
}

int pretokenizer_add(struct pretokenizer *pre, const char *expression, size_t len, enum pretokenize_cut cut, struct error *err)
{
    struct strbuf spelled = {0};
    int number, rc = 0;
    PCRE2_SIZE offset;
    pcre2_code *code = NULL;

    if (pre->n_steps == PRETOKENIZE_MAX_STEPS)
        return error_set(err, HS_ERR_UNSUPPORTED, "more than %d steps in the pre-tokenizer", PRETOKENIZE_MAX_STEPS);
    spell_out_spaces(expression, len, &spelled);
    if (spelled.failed) {
        rc = error_set(err, HS_ERR_NO_MEMORY, "out of memory for a pre-tokenizer");
        goto done;
    }
    code = pcre2_compile((PCRE2_SPTR)strbuf_text(&spelled), spelled.len, PCRE2_UTF | PCRE2_UCP, &number, &offset, NULL);
    if (!code) {
        PCRE2_UCHAR why[160] = "";
        pcre2_get_error_message(number, why, sizeof why);
        rc = error_set(err, HS_ERR_UNSUPPORTED, "the pre-tokenizer's expression \"%.*s\" is not understood: %s",
                       (int)(len < 200 ? len : 200), expression, (const char *)why);
        goto done;
    }
    /* Where the just-in-time compiler is missing, pcre2_match interprets. */
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    pre->steps[pre->n_steps++] = (struct pretokenize_step){code, cut};
    pre->digest = extend_digest(pre->digest + 1 + cut, spelled.data, spelled.len);
done:
    strbuf_fini(&spelled);
    return rc;
}

int pretokenizer_add_gpt2(struct pretokenizer *pre, struct error *err)
{
    return pretokenizer_add(pre, gpt2_expression, strlen(gpt2_expression), CUT_BOTH, err);
}

int pretokenizer_add_family(struct pretokenizer *pre, const char *name, size_t len, struct error *err)
{
    struct strbuf names = {0};
    size_t n = sizeof families / sizeof families[0];
    for (size_t i = 0; i < n; i++) {
        if (strlen(families[i].name) != len || memcmp(families[i].name, name, len) != 0)
            continue;
        int rc = 0;
        for (size_t k = 0; k < 2 && families[i].expressions[k] && rc == 0; k++)
            rc = pretokenizer_add(pre, families[i].expressions[k], strlen(families[i].expressions[k]), CUT_BOTH, err);
        return rc;
    }
    for (size_t i = 0; i < n; i++)
        strbuf_printf(&names, "%s%s", i ? ", " : "", families[i].name);
    error_set(err, HS_ERR_UNSUPPORTED, "pre-tokenizer \"%.*s\" (tokenizer.ggml.pre) is not known; known are %s",
              (int)(len < 64 ? len : 64), name, strbuf_text(&names));
    strbuf_fini(&names);
    return HS_ERR_UNSUPPORTED;
}

void pretokenizer_fini(struct pretokenizer *pre)
{
    for (size_t i = 0; i < pre->n_steps; i++)
        pcre2_code_free(pre->steps[i].code);
    *pre = (struct pretokenizer){0};
}

void pretokenize_scratch_fini(struct pretokenize_scratch *scratch)
{
    free(scratch->ends);
    free(scratch->next_ends);
    pcre2_match_data_free(scratch->match);
    pcre2_match_context_free(scratch->context);
    pcre2_jit_stack_free(scratch->stack);
    *scratch = (struct pretokenize_scratch){0};
}

static int prepare(struct pretokenize_scratch *scratch)
{
    if (!scratch->match)
        scratch->match = pcre2_match_data_create(1, NULL);
    return scratch->match ? 0 : HS_ERR_NO_MEMORY;
}

static bool enlarge_stack(struct pretokenize_scratch *scratch)
{
    if (scratch->stack)
        return false;
    scratch->context = pcre2_match_context_create(NULL);
    scratch->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MAX, NULL);
    if (!scratch->context || !scratch->stack)
        return false;
    pcre2_jit_stack_assign(scratch->context, NULL, scratch->stack);
    return true;
}

/* The next match at or after at: 1, 0 for none, or an error. */
static int find_match(const struct pretokenize_step *step, const char *piece, size_t len, size_t at,
                      struct pretokenize_scratch *scratch)
{
    int matched;
    do
        matched = pcre2_match(step->code, (PCRE2_SPTR)piece, len, at, PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, scratch->match,
                              scratch->context);
    while (matched == PCRE2_ERROR_JIT_STACKLIMIT && enlarge_stack(scratch));
    if (matched >= 0)
        return 1;
    if (matched == PCRE2_ERROR_NOMATCH)
        return 0;
    return matched == PCRE2_ERROR_NOMEMORY ? HS_ERR_NO_MEMORY : HS_ERR_LIMIT;
}

static int add_end(struct pretokenize_scratch *scratch, size_t end)
{
    if (scratch->n_next && scratch->next_ends[scratch->n_next - 1] == end)
        return 0;
    if (scratch->n_next == scratch->cap_next) {
        size_t cap = scratch->cap_next ? scratch->cap_next * 2 : 256;
        size_t *ends = reallocarray(scratch->next_ends, cap, sizeof *ends);
        if (!ends)
            return HS_ERR_NO_MEMORY;
        scratch->next_ends = ends;
        scratch->cap_next = cap;
    }
    scratch->next_ends[scratch->n_next++] = end;
    return 0;
}

/* Cuts text[start, end) by one step. Expressions see this piece alone: look-ahead ends with it. */
static int cut_piece(const struct pretokenize_step *step, const char *text, size_t start, size_t end,
                     struct pretokenize_scratch *scratch)
{
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(scratch->match);
    size_t len = end - start;
    int rc = 0;
    for (size_t at = 0; at < len && rc == 0;) {
        int matched = find_match(step, text + start, len, at, scratch);
        if (matched < 0)
            return matched;
        if (matched == 0)
            break;
        if (found[0] > 0 && step->cut != CUT_AFTER)
            rc = add_end(scratch, start + found[0]);
        if (rc == 0 && step->cut != CUT_BEFORE)
            rc = add_end(scratch, start + found[1]);
        at = found[1];
    }
    return rc < 0 ? rc : add_end(scratch, end);
}

int pretokenize(const struct pretokenizer *pre, const char *text, size_t len, struct pretokenize_scratch *scratch)
{
    int rc = prepare(scratch);
    scratch->n_next = 0;
    if (rc == 0)
        rc = add_end(scratch, len);
    for (size_t s = 0;; s++) {
        size_t *ends = scratch->ends, cap = scratch->cap_ends, n = scratch->n_next;
        scratch->ends = scratch->next_ends;
        scratch->cap_ends = scratch->cap_next;
        scratch->n_ends = n;
        scratch->next_ends = ends;
        scratch->cap_next = cap;
        scratch->n_next = 0;
        if (s == pre->n_steps || rc < 0)
            return rc;
        size_t start = 0;
        for (size_t i = 0; i < n && rc == 0; i++) {
            rc = cut_piece(&pre->steps[s], text, start, scratch->ends[i], scratch);
            start = scratch->ends[i];
        }
    }
}
