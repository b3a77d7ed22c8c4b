#include "core/base/parse.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads decimal digits at *text and moves it behind them. False: no digit, or more than 64 bits. */
static bool scan_u64(const char **text, uint64_t *out)
{
    const char *p = *text;
    uint64_t value = 0;
    if (!is_digit(*p))
        return false;
    for (; is_digit(*p); p++) {
        if (__builtin_mul_overflow(value, 10u, &value) || __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            return false;
    }
    *text = p;
    *out = value;
    return true;
}

int parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out, struct error *err)
{
    const char *p = text;
    uint64_t value;
    if (!scan_u64(&p, &value) || *p || value < min || value > max)
        return error_set(err, HS_ERR_PARSE, "\"%s\" is not a whole number from %llu to %llu", text,
                         (unsigned long long)min, (unsigned long long)max);
    *out = value;
    return 0;
}

int parse_double(const char *text, double min, double max, double *out, struct error *err)
{
    char *end;
    double value = strtod(text, &end);
    bool starts_well = is_digit(*text) || *text == '-' || *text == '+' || *text == '.';
    if (!starts_well || *end || !isfinite(value) || value < min || value > max)
        return error_set(err, HS_ERR_PARSE, "\"%s\" is not a number from %g to %g", text, min, max);
    *out = value;
    return 0;
}

/* Reads "12" or "1.5" (at most nine digits behind the point) as a count of 1e-9; moves *text behind it. */
static bool scan_fixed(const char **text, unsigned __int128 *nano)
{
    uint64_t whole;
    if (!scan_u64(text, &whole))
        return false;
    *nano = (unsigned __int128)whole * 1000000000u;
    if (**text != '.')
        return true;
    const char *p = *text + 1;
    uint64_t weight = 100000000u;
    if (!is_digit(*p))
        return false;
    for (; is_digit(*p); p++, weight /= 10) {
        if (!weight)
            return false;
        *nano += (uint64_t)(*p - '0') * weight;
    }
    *text = p;
    return true;
}

struct unit {
    const char *name;
    uint64_t factor;
};

/* Number and unit in one text. False: malformed or above 64 bits. */
static bool scan_quantity(const char *text, const struct unit *units, size_t n_units, uint64_t *out)
{
    unsigned __int128 nano;
    if (!scan_fixed(&text, &nano))
        return false;
    for (size_t i = 0; i < n_units; i++) {
        if (strcasecmp(text, units[i].name) != 0)
            continue;
        unsigned __int128 product;
        if (__builtin_mul_overflow(nano, (unsigned __int128)units[i].factor, &product))
            return false;
        product /= 1000000000u;
        if (product > UINT64_MAX)
            return false;
        *out = (uint64_t)product;
        return true;
    }
    return false;
}

int parse_size(const char *text, uint64_t *bytes, struct error *err)
{
    static const struct unit units[] = {
        {"", 1},           {"B", 1},
        {"K", 1ull << 10}, {"KiB", 1ull << 10}, {"KB", 1000ull},
        {"M", 1ull << 20}, {"MiB", 1ull << 20}, {"MB", 1000000ull},
        {"G", 1ull << 30}, {"GiB", 1ull << 30}, {"GB", 1000000000ull},
        {"T", 1ull << 40}, {"TiB", 1ull << 40}, {"TB", 1000000000000ull},
    };
    uint64_t value;
    if (!scan_quantity(text, units, sizeof units / sizeof *units, &value))
        return error_set(err, HS_ERR_PARSE, "\"%s\" is not a size; write bytes or a unit, such as 4096, 512K, 1.5G, 2GiB", text);
    *bytes = value;
    return 0;
}

int parse_duration(const char *text, uint64_t *ns, struct error *err)
{
    static const struct unit units[] = {
        {"ns", 1},           {"us", 1000},          {"ms", 1000000},
        {"s", 1000000000ull}, {"m", 60000000000ull}, {"h", 3600000000000ull},
    };
    uint64_t value = 0;
    if (strcmp(text, "0") != 0 && !scan_quantity(text, units, sizeof units / sizeof *units, &value))
        return error_set(err, HS_ERR_PARSE, "\"%s\" is not a duration; write a number and a unit, such as 200us, 10ms, 1.5s, 2m, 1h",
                         text);
    *ns = value;
    return 0;
}

bool parse_bool(const char *text, bool *out)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *out = i % 2 == 1;
            return true;
        }
    }
    return false;
}

enum { CPU_NUMBER_MAX = 65535 };

/* Reads one "N" or "N-M" at *text. */
static bool scan_cpu_range(const char **text, uint64_t *first, uint64_t *last)
{
    if (!scan_u64(text, first))
        return false;
    *last = *first;
    if (**text == '-') {
        ++*text;
        if (!scan_u64(text, last))
            return false;
    }
    return *first <= *last && *last <= CPU_NUMBER_MAX;
}

int parse_cpu_list(const char *text, uint32_t *cpus, uint32_t cap, uint32_t *n, struct error *err)
{
    uint8_t seen[CPU_NUMBER_MAX / 8 + 1] = {0};
    uint32_t count = 0;
    const char *p = text;
    for (;;) {
        uint64_t first, last;
        if (!scan_cpu_range(&p, &first, &last) || (*p && *p != ','))
            return error_set(err, HS_ERR_PARSE, "\"%s\" is not a list of CPU numbers; write for example 0,2-5,8", text);
        for (uint64_t cpu = first; cpu <= last; cpu++) {
            count += !(seen[cpu / 8] >> cpu % 8 & 1);
            seen[cpu / 8] |= (uint8_t)(1u << cpu % 8);
        }
        if (!*p)
            break;
        p++;
    }
    if (count > cap)
        return error_set(err, HS_ERR_LIMIT, "\"%s\" names %u CPUs; at most %u are possible here", text, count, cap);
    count = 0;
    for (uint32_t cpu = 0; cpu <= CPU_NUMBER_MAX; cpu++)
        if (seen[cpu / 8] >> cpu % 8 & 1)
            cpus[count++] = cpu;
    *n = count;
    return 0;
}
