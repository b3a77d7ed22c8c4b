/*
 * UTF-8 as Unicode 15 defines it (table 3-7): no over-long forms, no surrogates, nothing above U+10FFFF. Pure.
 */
#ifndef HEARSAY_BASE_UTF8_H
#define HEARSAY_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the character at text[0], or of the broken piece there (a maximal subpart, section 3.9), with *valid false. left > 0. */
size_t utf8_next(const char *text, size_t left, bool *valid);

/* How many bytes at the end begin a character that is not yet whole (0 to 3): bytes still to come may complete it. */
size_t utf8_incomplete_tail(const char *text, size_t len);

bool utf8_is_clean(const char *text, size_t len);

#endif
