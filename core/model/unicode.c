#include "core/model/unicode.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "core/base/error.h"
#include "core/base/utf8.h"

size_t utf8_read(const char *text, size_t len, uint32_t *code, bool *broken)
{
    static const unsigned char lead_bits[] = {0, 0x7F, 0x1F, 0x0F, 0x07}; /* by length */
    const unsigned char *bytes = (const unsigned char *)text;
    bool valid;
    size_t n = utf8_next(text, len, &valid);
    *broken = !valid;
    *code = valid ? bytes[0] & lead_bits[n] : UNICODE_REPLACEMENT;
    for (size_t i = 1; valid && i < n; i++)
        *code = *code << 6 | (bytes[i] & 0x3F);
    return n;
}

size_t utf8_write(uint32_t code, char out[4])
{
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)code, (utf8proc_uint8_t *)out);
}

void utf8_repair(const char *text, size_t len, struct strbuf *out)
{
    size_t from = 0; /* start of the valid run not yet copied */
    for (size_t at = 0; at < len;) {
        bool valid;
        size_t n = utf8_next(text + at, len - at, &valid);
        if (!valid) {
            strbuf_add(out, text + from, at - from);
            strbuf_add(out, "\xEF\xBF\xBD", 3);
            from = at + n;
        }
        at += n;
    }
    strbuf_add(out, text + from, len - from);
}

bool unicode_is_plainly_composed(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)text[i] >= 0xCC) /* 0xCC leads U+0300 */
            return false;
    }
    return true;
}

static int combining_class(utf8proc_int32_t code)
{
    return utf8proc_get_property(code)->combining_class;
}

/*
 * Sorts a run of combining marks by class, stable: one counting pass over the 256 classes. utf8proc's own ordering swaps
 * neighbours, which is quadratic in the length of the run.
 */
static int sort_marks(utf8proc_int32_t *marks, size_t n)
{
    size_t start[257] = {0};
    utf8proc_int32_t *sorted = malloc(n * sizeof *sorted);
    if (!sorted)
        return HS_ERR_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        start[combining_class(marks[i]) + 1]++;
    for (int c = 1; c <= 256; c++)
        start[c] += start[c - 1];
    for (size_t i = 0; i < n; i++)
        sorted[start[combining_class(marks[i])]++] = marks[i];
    memcpy(marks, sorted, n * sizeof *sorted);
    free(sorted);
    return 0;
}

static int order_canonically(utf8proc_int32_t *codes, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t end = i;
        bool ordered = true;
        for (int last = 0; end < n && combining_class(codes[end]) != 0; end++) {
            int class = combining_class(codes[end]);
            ordered &= class >= last;
            last = class;
        }
        if (!ordered) {
            int rc = sort_marks(codes + i, end - i);
            if (rc < 0)
                return rc;
        }
        i = end + 1;
    }
    return 0;
}

/* Canonical decomposition into codes, which has room for 4 per character (no character has more); returns their number. */
static size_t decompose(const char *text, size_t len, utf8proc_int32_t *codes)
{
    size_t n = 0;
    for (size_t at = 0; at < len;) {
        uint32_t code;
        bool broken;
        int last_boundary = 0;
        at += utf8_read(text + at, len - at, &code, &broken);
        n += (size_t)utf8proc_decompose_char((utf8proc_int32_t)code, codes + n, 4, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
                                             &last_boundary);
    }
    return n;
}

int unicode_compose(const char *text, size_t len, struct strbuf *out)
{
    if (len > SIZE_MAX / (4 * sizeof(utf8proc_int32_t)))
        return HS_ERR_NO_MEMORY;
    utf8proc_int32_t *codes = malloc((len ? len : 1) * 4 * sizeof *codes);
    if (!codes)
        return HS_ERR_NO_MEMORY;
    size_t n = decompose(text, len, codes);
    int rc = order_canonically(codes, n);
    if (rc == 0) {
        utf8proc_ssize_t composed = utf8proc_normalize_utf32(codes, (utf8proc_ssize_t)n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        for (utf8proc_ssize_t i = 0; i < composed; i++) {
            char bytes[4];
            strbuf_add(out, bytes, utf8_write((uint32_t)codes[i], bytes));
        }
        rc = out->failed ? HS_ERR_NO_MEMORY : 0;
    }
    free(codes);
    return rc;
}

bool unicode_is_space(uint32_t code)
{
    return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
           (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
           code == 0x3000;
}

bool unicode_is_word(uint32_t code)
{
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return false;
    }
}
