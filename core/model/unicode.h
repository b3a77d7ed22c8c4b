/*
 * The little of Unicode that tokenizing needs: reading UTF-8, repairing it, composing it (NFC), and two character classes.
 *
 * Threading: pure functions. Errors: HS_ERR_NO_MEMORY only; any bytes are acceptable input.
 */
#ifndef HEARSAY_MODEL_UNICODE_H
#define HEARSAY_MODEL_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/strbuf.h"

#define UNICODE_REPLACEMENT 0xFFFDu

/*
 * Reads one character of text[len], len > 0, as utf8_next: *code receives it and the return value its bytes. Where the bytes are no
 * character, *code is UNICODE_REPLACEMENT and *broken set.
 */
size_t utf8_read(const char *text, size_t len, uint32_t *code, bool *broken);
/* Writes code (a scalar value) into out[4]; returns its bytes. */
size_t utf8_write(uint32_t code, char out[4]);

/* Appends text[len] with each maximal subpart of broken UTF-8 replaced by U+FFFD; out->failed tells of lack of memory. */
void utf8_repair(const char *text, size_t len, struct strbuf *out);

/* True when valid UTF-8 text[len] is surely composed already (nothing at or above U+0300 in it). */
bool unicode_is_plainly_composed(const char *text, size_t len);
/*
 * Appends valid UTF-8 text[len] in Normalization Form C (UAX #15). The work grows as n log n even for long runs of
 * combining marks. 0 or HS_ERR_NO_MEMORY.
 */
int unicode_compose(const char *text, size_t len, struct strbuf *out);

/* The property White_Space. */
bool unicode_is_space(uint32_t code);
/* What regular expressions call \w: letters, marks, numbers, connecting punctuation. */
bool unicode_is_word(uint32_t code);

/* White_Space for the inside of a PCRE2 bracket: PCRE2's own \s also takes U+180E, which left the property in Unicode 6.3. */
#define UNICODE_SPACE_REGEX_RANGES                                                                                                 \
    "\\x{09}-\\x{0d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

#endif
