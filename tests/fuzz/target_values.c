/* One value as people type it, or a small file they write: byte 0 chooses the parser. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "core/base/log.h"
#include "core/base/parse.h"
#include "core/base/strbuf.h"
#include "core/base/utf8.h"
#include "net/net.h"
#include "tests/fuzz/fuzz.h"

enum { HOST_LIMIT = 100 };

static int count_host(void *arg, const char *host)
{
    uint32_t *n = arg;
    hs_assert(*host && ++*n <= HOST_LIMIT);
    return 0;
}

static int cpu_list(const char *text, struct error *err)
{
    uint32_t cpus[64], n;
    int rc = parse_cpu_list(text, cpus, 64, &n, err);
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        hs_assert(n <= 64 && (i == 0 || cpus[i] > cpus[i - 1]));
    return rc;
}

static int group_key(const char *text, struct error *err)
{
    uint8_t key[NET_GROUP_KEY_BYTES];
    char path[FUZZ_PATH_BYTES];
    fuzz_write_file("values", "group.key", text, strlen(text));
    return net_group_key_load(fuzz_path("values", "group.key", path), key, err);
}

static void codec(const uint8_t *data, size_t len)
{
    struct reader r;
    uint8_t again[10];
    reader_init(&r, data, len);
    while (reader_left(&r)) {
        size_t at = r.pos;
        uint64_t value = read_varint(&r);
        struct writer w;
        writer_init(&w, again, sizeof again);
        write_varint(&w, value);
        hs_assert(r.failed || (w.len == r.pos - at && memcmp(again, data + at, w.len) == 0));
    }
}

/* Any bytes make a JSON string, which says the same if they were clean. */
static void write_json_string(const char *text, size_t len)
{
    struct strbuf out = {0};
    strbuf_json_string(&out, text, len);
    json_t *parsed = json_loadb(strbuf_text(&out), out.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    hs_assert(parsed && json_is_string(parsed));
    if (utf8_is_clean(text, len))
        hs_assert(json_string_length(parsed) == len && memcmp(json_string_value(parsed), text, len) == 0);
    json_decref(parsed);
    strbuf_fini(&out);
}

int fuzz_values(const uint8_t *data, size_t len)
{
    struct error err = {0};
    uint64_t number;
    double real = 0;
    uint32_t n = 0;
    bool yes;
    enum log_level level;
    int rc = 0;
    if (len == 0)
        return 0;
    uint8_t *bytes = fuzz_copy(data + 1, len - 1);
    char *text = fuzz_cstring(data + 1, len - 1);
    switch (data[0] % 11) {
    case 0: rc = parse_u64(text, 3, UINT64_MAX - 1, &number, &err); break;
    case 1: rc = parse_double(text, -1e300, 1e300, &real, &err); break;
    case 2: rc = parse_size(text, &number, &err); break;
    case 3: rc = parse_duration(text, &number, &err); break;
    case 4: rc = cpu_list(text, &err); break;
    case 5: rc = parse_host_list(text, data[0] > 10 ? 7070 : 0, HOST_LIMIT, count_host, &n, &err); break;
    case 6: rc = group_key(text, &err); break;
    case 7: parse_bool(text, &yes); break;
    case 8: log_level_parse(text, &level); break;
    case 9: codec(bytes, len - 1); break;
    case 10: write_json_string((const char *)bytes, len - 1); break;
    }
    hs_assert(isfinite(real));
    if (rc < 0)
        hs_assert(err.text[0] && !strchr(err.text, '\n'));
    free(text);
    free(bytes);
    return 0;
}
