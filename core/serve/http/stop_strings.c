#include "core/serve/http/stop_strings.h"

#include <stdlib.h>

#include "core/base/error.h"
#include "core/base/panic.h"

/* The state after one more byte: the longest prefix of string i that the text now ends with. */
static uint32_t advance(const struct stop_set *set, size_t i, uint32_t matched, uint8_t byte)
{
    while (matched && (matched == set->strings[i].len || set->strings[i].text[matched] != byte))
        matched = set->strings[i].fallback[matched - 1];
    return matched + (set->strings[i].text[matched] == byte);
}

int stop_set_add(struct stop_set *set, const char *text, size_t len)
{
    hs_assert(set->n < STOP_STRINGS_MAX && len > 0 && len <= STOP_STRING_BYTES_MAX);
    size_t i = set->n;
    uint32_t *fallback = calloc(len, sizeof *fallback);
    if (!fallback)
        return HS_ERR_NO_MEMORY;
    set->strings[i].text = (const uint8_t *)text;
    set->strings[i].len = (uint32_t)len;
    set->strings[i].fallback = fallback;
    for (uint32_t k = 1; k < len; k++)
        fallback[k] = advance(set, i, fallback[k - 1], (uint8_t)text[k]);
    set->n++;
    return 0;
}

void stop_set_fini(struct stop_set *set)
{
    for (size_t i = 0; i < set->n; i++)
        free(set->strings[i].fallback);
    *set = (struct stop_set){0};
}

uint32_t stop_matcher_feed(struct stop_matcher *matcher, uint8_t byte)
{
    uint32_t complete = 0;
    for (size_t i = 0; i < matcher->set->n; i++) {
        matcher->matched[i] = advance(matcher->set, i, matcher->matched[i], byte);
        if (matcher->matched[i] == matcher->set->strings[i].len && matcher->matched[i] > complete)
            complete = matcher->matched[i];
    }
    return complete;
}

uint32_t stop_matcher_held(const struct stop_matcher *matcher)
{
    uint32_t held = 0;
    for (size_t i = 0; i < matcher->set->n; i++)
        if (matcher->matched[i] > held)
            held = matcher->matched[i];
    return held;
}
