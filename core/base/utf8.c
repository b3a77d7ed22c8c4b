#include "core/base/utf8.h"

/* Bytes that a character with this lead byte has; 0 if no character begins so. */
static size_t length_by_lead(unsigned char lead)
{
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

static bool second_fits(unsigned char lead, unsigned char second)
{
    unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    return second >= low && second <= high;
}

/* How many of the first bytes can stand at the beginning of one character of length wanted. */
static size_t fitting_prefix(const unsigned char *p, size_t left, size_t wanted)
{
    size_t n = 1;
    while (n < wanted && n < left && (n == 1 ? second_fits(p[0], p[1]) : (p[n] & 0xc0) == 0x80))
        n++;
    return n;
}

size_t utf8_next(const char *text, size_t left, bool *valid)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t wanted = length_by_lead(p[0]);
    size_t n = wanted ? fitting_prefix(p, left, wanted) : 1;
    *valid = wanted && n == wanted;
    return n;
}

size_t utf8_incomplete_tail(const char *text, size_t len)
{
    const unsigned char *p = (const unsigned char *)text;
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        const unsigned char *lead = p + len - back;
        if ((*lead & 0xc0) == 0x80)
            continue;
        size_t wanted = length_by_lead(*lead);
        return wanted > back && fitting_prefix(lead, back, wanted) == back ? back : 0;
    }
    return 0;
}

bool utf8_is_clean(const char *text, size_t len)
{
    bool valid = true;
    for (size_t i = 0; i < len && valid;)
        i += utf8_next(text + i, len - i, &valid);
    return valid;
}
