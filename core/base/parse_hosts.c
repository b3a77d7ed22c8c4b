/* parse_host_list: Slurm's short form of host names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/parse.h"

enum { HOST_TEXT_MAX = 280 }; /* a DNS name of 253, brackets, port */

struct host_list {
    const char *whole; /* for error texts */
    uint16_t default_port;
    uint32_t limit, count;
    int (*each)(void *arg, const char *host);
    void *arg;
    struct error *err;
};

static int malformed(struct host_list *l, const char *why)
{
    return error_set(l->err, HS_ERR_PARSE, "\"%s\": %s; write for example node[01-04,7]:7070,gpu3,[::1]:7070", l->whole, why);
}

/* Digits only, 1 to 65535. */
static bool port_ok(const char *text)
{
    uint64_t port;
    return parse_u64(text, 1, 65535, &port, NULL) == 0 && strlen(text) <= 5;
}

static bool all_of(const char *text, size_t len, const char *extra)
{
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!word && !strchr(extra, c))
            return false;
    }
    return len > 0;
}

/* One host without ranges, e.g. "node01", "node01:7070" or "[::1]:7070". */
static int emit(struct host_list *l, const char *host)
{
    const char *port = NULL;
    size_t name_len;
    if (host[0] == '[') {
        const char *close = strchr(host, ']');
        if (!close || !all_of(host + 1, (size_t)(close - host) - 1, ":.%"))
            return malformed(l, "an IPv6 address needs the form [::1]");
        name_len = (size_t)(close - host) + 1;
        if (close[1] && close[1] != ':')
            return malformed(l, "after \"]\" only a port can follow");
        port = close[1] ? close + 2 : NULL;
    } else {
        const char *colon = strchr(host, ':');
        if (colon && strchr(colon + 1, ':'))
            return malformed(l, "an IPv6 address needs brackets");
        name_len = colon ? (size_t)(colon - host) : strlen(host);
        port = colon ? colon + 1 : NULL;
        if (!all_of(host, name_len, ".-_"))
            return malformed(l, "a host name is empty or has a character that host names cannot have");
    }
    if (port && !port_ok(port))
        return malformed(l, "a port is a number from 1 to 65535");
    if (l->count == l->limit)
        return error_set(l->err, HS_ERR_LIMIT, "\"%s\" names more than %u hosts", l->whole, l->limit);
    l->count++;
    char full[HOST_TEXT_MAX];
    int n = port || !l->default_port ? snprintf(full, sizeof full, "%s", host)
                                     : snprintf(full, sizeof full, "%s:%u", host, l->default_port);
    if (n < 0 || (size_t)n >= sizeof full)
        return malformed(l, "a host name is too long");
    return l->each(l->arg, full);
}

static int expand(struct host_list *l, const char *item);

/* Replaces the range [open, close] of item by number, written with at least width digits, and goes on with the rest. */
static int expand_number(struct host_list *l, const char *item, const char *open, const char *close, uint64_t number, int width)
{
    char text[HOST_TEXT_MAX];
    int n = snprintf(text, sizeof text, "%.*s%0*llu%s", (int)(open - item), item, width, (unsigned long long)number, close + 1);
    if (n < 0 || (size_t)n >= sizeof text)
        return malformed(l, "a host name is too long");
    return expand(l, text);
}

/* One "N" or "N-M" of length len. */
static int expand_range(struct host_list *l, const char *item, const char *open, const char *close, const char *range, size_t len)
{
    char low[20] = "", high[20] = "";
    const char *dash = memchr(range, '-', len);
    size_t low_len = dash ? (size_t)(dash - range) : len;
    size_t high_len = dash ? len - low_len - 1 : low_len;
    uint64_t first, last;
    if (low_len >= sizeof low || high_len >= sizeof high)
        return malformed(l, "a number in brackets is too long");
    memcpy(low, range, low_len);
    memcpy(high, dash ? dash + 1 : range, high_len);
    if (parse_u64(low, 0, UINT32_MAX, &first, NULL) || parse_u64(high, 0, UINT32_MAX, &last, NULL) || first > last)
        return malformed(l, "brackets hold numbers and ascending ranges");
    for (uint64_t number = first; number <= last; number++) {
        int rc = expand_number(l, item, open, close, number, (int)low_len);
        if (rc)
            return rc;
    }
    return 0;
}

/* Expands the first range in item, and by recursion the others (each level removes a pair of brackets). */
static int expand(struct host_list *l, const char *item)
{
    const char *open = strchr(item, '[');
    const char *close = open ? strchr(open, ']') : NULL;
    if (!open || open == item)
        if (!open || (close && memchr(open, ':', (size_t)(close - open))))
            return emit(l, item);
    if (!close)
        return malformed(l, "\"[\" without \"]\"");
    for (const char *range = open + 1; range <= close;) {
        const char *end = range + strcspn(range, ",]");
        int rc = expand_range(l, item, open, close, range, (size_t)(end - range));
        if (rc)
            return rc;
        range = end + 1;
    }
    return 0;
}

int parse_host_list(const char *text, uint16_t default_port, uint32_t limit, int (*each)(void *arg, const char *host), void *arg,
                    struct error *err)
{
    struct host_list list = {text, default_port, limit, 0, each, arg, err};
    for (const char *p = text;;) {
        const char *end = p;
        for (bool inside = false; *end && (inside || *end != ','); end++)
            inside = *end == '[' || (inside && *end != ']');
        char item[HOST_TEXT_MAX];
        if ((size_t)(end - p) >= sizeof item)
            return malformed(&list, "a host name is too long");
        memcpy(item, p, (size_t)(end - p));
        item[end - p] = '\0';
        int rc = expand(&list, item);
        if (rc)
            return rc;
        if (!*end)
            return 0;
        p = end + 1;
    }
}
