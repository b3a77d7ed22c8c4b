#include "core/base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/strbuf.h"

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static _Atomic int log_level = LOG_LEVEL_INFO;
static _Atomic int log_format = LOG_FORMAT_TEXT;

static _Atomic uint64_t log_windows[2]; /* of warnings, of infos: second << COUNT_BITS | lines in it */
static _Atomic uint64_t left_out, left_out_untold;
enum { COUNT_BITS = 16 };

void log_setup(enum log_level level, enum log_format format)
{
    atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
    atomic_store_explicit(&log_format, (int)format, memory_order_relaxed);
}

int log_level_parse(const char *name, enum log_level *out)
{
    for (int i = 0; i < 4; i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *out = (enum log_level)i;
            return 0;
        }
    }
    return HS_ERR_INVALID;
}

bool log_enabled(enum log_level level)
{
    return (int)level <= atomic_load_explicit(&log_level, memory_order_relaxed);
}

/* The time of a line is for its reader only, so it is the wall clock's even where the program runs in simulated time. */
static void format_time(char *out, size_t cap)
{
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t n = strftime(out, cap, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(out + n, cap - n, ".%03ldZ", now.tv_nsec / 1000000);
}

/* Whether this second still has room for a line of the level. */
static bool has_room(enum log_level level)
{
    _Atomic uint64_t *window = &log_windows[level == LOG_LEVEL_INFO];
    const uint64_t count_mask = (1u << COUNT_BITS) - 1;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    uint64_t second = (uint64_t)now.tv_sec, old = atomic_load_explicit(window, memory_order_relaxed), next;
    do {
        bool same = old >> COUNT_BITS == second;
        if (same && (old & count_mask) >= LOG_LINES_PER_S)
            return false;
        next = same ? old + 1 : second << COUNT_BITS | 1;
    } while (!atomic_compare_exchange_weak_explicit(window, &old, next, memory_order_relaxed, memory_order_relaxed));
    return true;
}

uint64_t log_lines_left_out(void)
{
    return atomic_load_explicit(&left_out, memory_order_relaxed);
}

static void write_line(enum log_level level, const char *area, char *message)
{
    char when[48];
    format_time(when, sizeof when);
    struct strbuf line = {0};
    if (atomic_load_explicit(&log_format, memory_order_relaxed) == LOG_FORMAT_JSON) {
        strbuf_printf(&line, "{\"time\":\"%s\",\"level\":\"%s\",\"area\":", when, level_names[level]);
        strbuf_json_string(&line, area, strlen(area));
        strbuf_puts(&line, ",\"message\":");
        strbuf_json_string(&line, message, strlen(message));
        strbuf_puts(&line, "}\n");
    } else {
        for (char *c = message; *c; c++)
            if ((unsigned char)*c < 0x20)
                *c = ' '; /* one line per event */
        strbuf_printf(&line, "%s %-5s %s %s\n", when, level_names[level], area, message);
    }
    /* One write call: lines of several threads do not mix. Nothing useful can be done if it fails. */
    if (!line.failed && write(STDERR_FILENO, line.data, line.len) < 0) {
    }
    strbuf_fini(&line);
}

void log_write(enum log_level level, const char *area, const char *format, ...)
{
    if (!log_enabled(level))
        return;
    if (level != LOG_LEVEL_ERROR && !log_enabled(LOG_LEVEL_DEBUG) && !has_room(level)) {
        atomic_fetch_add_explicit(&left_out, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&left_out_untold, 1, memory_order_relaxed);
        return;
    }
    char message[2048];
    uint64_t untold = atomic_load_explicit(&left_out_untold, memory_order_relaxed);
    if (untold && (untold = atomic_exchange_explicit(&left_out_untold, 0, memory_order_relaxed))) {
        snprintf(message, sizeof message, "%llu lines were left out: at most %d are written in one second; --log-level debug shows all",
                 (unsigned long long)untold, LOG_LINES_PER_S);
        write_line(LOG_LEVEL_WARN, "log", message);
    }
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    write_line(level, area, message);
}
