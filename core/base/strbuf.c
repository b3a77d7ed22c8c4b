#include "core/base/strbuf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"

/* Makes room for n more bytes and the NUL. */
static bool reserve(struct strbuf *s, size_t n)
{
    if (s->failed)
        return false;
    if (n >= SIZE_MAX / 2 - s->len) {
        s->failed = true;
        return false;
    }
    size_t need = s->len + n + 1;
    if (need <= s->cap)
        return true;
    size_t cap = s->cap ? s->cap * 2 : 64;
    if (cap < need)
        cap = need;
    char *data = realloc(s->data, cap);
    if (!data) {
        s->failed = true;
        return false;
    }
    s->data = data;
    s->cap = cap;
    return true;
}

void strbuf_add(struct strbuf *s, const void *bytes, size_t n)
{
    if (!reserve(s, n))
        return;
    if (n)
        memcpy(s->data + s->len, bytes, n);
    s->len += n;
    s->data[s->len] = '\0';
}

void strbuf_puts(struct strbuf *s, const char *text)
{
    strbuf_add(s, text, strlen(text));
}

void strbuf_printf(struct strbuf *s, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    size_t room = s->cap - s->len;
    int n = vsnprintf(room ? s->data + s->len : NULL, room, format, args);
    va_end(args);
    if (n < 0) {
        s->failed = true;
    } else if (reserve(s, (size_t)n)) {
        if ((size_t)n >= room)
            vsnprintf(s->data + s->len, (size_t)n + 1, format, again);
        s->len += (size_t)n;
    }
    va_end(again);
    if (s->data)
        s->data[s->len] = '\0';
}

static void add_escaped(struct strbuf *s, unsigned char c)
{
    static const char short_form[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    for (size_t i = 0; i + 1 < sizeof short_form; i += 2) {
        if ((unsigned char)short_form[i] == c) {
            strbuf_add(s, (char[]){'\\', short_form[i + 1]}, 2);
            return;
        }
    }
    strbuf_printf(s, "\\u%04x", c);
}

void strbuf_json_string(struct strbuf *s, const char *text, size_t len)
{
    strbuf_puts(s, "\"");
    size_t plain = 0; /* start of the stretch not yet added */
    for (size_t i = 0; i < len;) {
        bool valid;
        size_t n = utf8_next(text + i, len - i, &valid);
        unsigned char c = (unsigned char)text[i];
        if (valid && c >= 0x20 && c != '"' && c != '\\') {
            i += n;
            continue;
        }
        strbuf_add(s, text + plain, i - plain);
        if (valid)
            add_escaped(s, c);
        else
            strbuf_puts(s, "\xef\xbf\xbd");
        i += n;
        plain = i;
    }
    strbuf_add(s, text + plain, len - plain);
    strbuf_puts(s, "\"");
}

void strbuf_clear(struct strbuf *s)
{
    s->len = 0;
    s->failed = false;
    if (s->data)
        s->data[0] = '\0';
}

void strbuf_fini(struct strbuf *s)
{
    free(s->data);
    *s = (struct strbuf){0};
}

const char *strbuf_text(const struct strbuf *s)
{
    return s->data ? s->data : "";
}
