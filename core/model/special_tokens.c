#include "core/model/special_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/model/unicode.h"

int special_tokens_add(struct special_tokens *set, uint32_t id, const char *text, uint32_t len, unsigned flags)
{
    if (set->n == set->cap) {
        size_t cap = set->cap ? set->cap * 2 : 64;
        struct special_token *tokens = reallocarray(set->tokens, cap, sizeof *tokens);
        if (!tokens)
            return HS_ERR_NO_MEMORY;
        set->tokens = tokens;
        set->cap = cap;
    }
    char *copy = malloc(len);
    if (!copy)
        return HS_ERR_NO_MEMORY;
    memcpy(copy, text, len);
    set->tokens[set->n++] = (struct special_token){copy, len, id, flags};
    set->starts[(unsigned char)text[0]] = true;
    return 0;
}

static int compare_text(const struct special_token *a, const char *text, size_t len)
{
    int order = memcmp(a->text, text, a->len < len ? a->len : len);
    return order ? order : (a->len > len) - (a->len < len);
}

/* Of two with one text the lower id sorts first, and stays. */
static int compare_tokens(const void *left, const void *right)
{
    const struct special_token *a = left, *b = right;
    int order = compare_text(a, b->text, b->len);
    return order ? order : (a->id > b->id) - (a->id < b->id);
}

void special_tokens_sort(struct special_tokens *set)
{
    size_t kept = 0;
    if (set->n)
        qsort(set->tokens, set->n, sizeof *set->tokens, compare_tokens);
    for (size_t i = 0; i < set->n; i++) {
        if (kept && compare_text(&set->tokens[kept - 1], set->tokens[i].text, set->tokens[i].len) == 0)
            free(set->tokens[i].text);
        else
            set->tokens[kept++] = set->tokens[i];
    }
    set->n = kept;
}

void special_tokens_fini(struct special_tokens *set)
{
    for (size_t i = 0; i < set->n; i++)
        free(set->tokens[i].text);
    free(set->tokens);
    *set = (struct special_tokens){0};
}

const struct special_token *special_tokens_get(const struct special_tokens *set, const char *text, size_t len)
{
    size_t low = 0, high = set->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare_text(&set->tokens[middle], text, len);
        if (order == 0)
            return &set->tokens[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* The first of tokens[low, high), which agree in their first depth bytes and are longer, whose next byte is at least byte. */
static size_t lower_bound(const struct special_tokens *set, size_t low, size_t high, size_t depth, int byte)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((unsigned char)set->tokens[middle].text[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_word_at(const char *text, size_t len, size_t at)
{
    uint32_t code;
    bool broken;
    if (at >= len)
        return false;
    utf8_read(text + at, len - at, &code, &broken);
    return unicode_is_word(code);
}

/* Where the character that ends before at begins. */
static size_t character_before(const char *text, size_t at)
{
    do
        at--;
    while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80);
    return at;
}

static bool is_whole_word(const struct special_search *search, size_t start, size_t len)
{
    bool before = start > search->at && is_word_at(search->text, search->len, character_before(search->text, start));
    return !before && !is_word_at(search->text, search->len, start + len);
}

static bool token_counts(const struct special_search *search, const struct special_token *token, size_t start)
{
    if (token->flags & SPECIAL_CONTROL) {
        const struct special_range *range = search->control + search->range;
        if (search->range == search->n_control || start < range->start || start + token->len > range->end)
            return false;
    }
    return !(token->flags & SPECIAL_WHOLE_WORD) || is_whole_word(search, start, token->len);
}

/* The longest token that starts at start, or NULL. */
static const struct special_token *longest_at(const struct special_search *search, size_t start)
{
    const struct special_tokens *set = search->set;
    const struct special_token *longest = NULL;
    size_t low = 0, high = set->n;
    for (size_t depth = 0; start + depth < search->len && low < high; depth++) {
        unsigned char byte = (unsigned char)search->text[start + depth];
        low = lower_bound(set, low, high, depth, byte);
        high = lower_bound(set, low, high, depth, byte + 1);
        /* The shortest of those that agree sorts first; once looked at it leaves the range, so that the rest is longer. */
        if (low < high && set->tokens[low].len == depth + 1) {
            if (token_counts(search, &set->tokens[low], start))
                longest = &set->tokens[low];
            low++;
        }
    }
    return longest;
}

static void strip_spaces(const struct special_search *search, struct special_match *match)
{
    uint32_t code;
    bool broken;
    size_t end = match->start + match->len;
    while ((match->token->flags & SPECIAL_STRIP_RIGHT) && end < search->len) {
        size_t n = utf8_read(search->text + end, search->len - end, &code, &broken);
        if (!unicode_is_space(code))
            break;
        end += n;
    }
    while ((match->token->flags & SPECIAL_STRIP_LEFT) && match->start > search->at) {
        size_t before = character_before(search->text, match->start);
        utf8_read(search->text + before, search->len - before, &code, &broken);
        if (!unicode_is_space(code))
            break;
        match->start = before;
    }
    match->len = end - match->start;
}

bool special_search_next(struct special_search *search, struct special_match *out)
{
    for (size_t at = search->at; at < search->len; at++) {
        if (!search->set->starts[(unsigned char)search->text[at]])
            continue;
        while (search->range < search->n_control && search->control[search->range].end <= at)
            search->range++;
        const struct special_token *token = longest_at(search, at);
        if (!token)
            continue;
        *out = (struct special_match){token, at, token->len};
        strip_spaces(search, out);
        search->at = out->start + out->len;
        return true;
    }
    search->at = search->len;
    return false;
}
