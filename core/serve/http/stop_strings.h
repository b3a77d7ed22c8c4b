/*
 * Finding stop strings in text that arrives byte by byte (Knuth, Morris, Pratt 1977): the automaton's state says how much of
 * each string the text ends with, which is just what must be held back.
 *
 * The string that is complete first ends the text, the longest if several end at one byte, so the outcome does not depend on
 * how the text was cut into tokens. Threading: a set is immutable after init and may be shared; a matcher belongs to one thread.
 */
#ifndef HEARSAY_SERVE_HTTP_STOP_STRINGS_H
#define HEARSAY_SERVE_HTTP_STOP_STRINGS_H

#include <stddef.h>
#include <stdint.h>

enum { STOP_STRINGS_MAX = 4, STOP_STRING_BYTES_MAX = 1024 };

struct stop_set {
    size_t n;
    struct {
        const uint8_t *text; /* borrowed */
        uint32_t len;
        uint32_t *fallback; /* [len] longest proper border of each prefix */
    } strings[STOP_STRINGS_MAX];
};

struct stop_matcher {
    const struct stop_set *set;
    uint32_t matched[STOP_STRINGS_MAX]; /* bytes of each string that the text ends with */
};

/* Zero-initialise the set, then add up to four strings of 1 to STOP_STRING_BYTES_MAX bytes, which the caller keeps alive. 0 or HS_ERR_NO_MEMORY. */
int stop_set_add(struct stop_set *set, const char *text, size_t len);
void stop_set_fini(struct stop_set *set);

/* Takes the text's next byte. Length of the stop string that it completes, or 0. */
uint32_t stop_matcher_feed(struct stop_matcher *matcher, uint8_t byte);
/* Bytes at the text's end that may be the beginning of a stop string. */
uint32_t stop_matcher_held(const struct stop_matcher *matcher);

#endif
