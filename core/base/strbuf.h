/*
 * A growable byte string, always NUL-terminated once something was added.
 *
 * Allocation failure is sticky (`failed`), checked once at the end. Zero-initialise to start; strbuf_fini frees.
 * Threading: belongs to one thread.
 */
#ifndef HEARSAY_BASE_STRBUF_H
#define HEARSAY_BASE_STRBUF_H

#include <stdbool.h>
#include <stddef.h>

struct strbuf {
    char *data; /* NULL while empty */
    size_t len, cap;
    bool failed;
};

void strbuf_add(struct strbuf *s, const void *bytes, size_t n);
void strbuf_puts(struct strbuf *s, const char *text);
void strbuf_printf(struct strbuf *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* text[len] as a JSON string with quotes; each broken piece of UTF-8 (a maximal subpart) becomes U+FFFD. */
void strbuf_json_string(struct strbuf *s, const char *text, size_t len);
void strbuf_clear(struct strbuf *s); /* empties, keeps the memory */
void strbuf_fini(struct strbuf *s);
/* "" instead of NULL. */
const char *strbuf_text(const struct strbuf *s);

#endif
