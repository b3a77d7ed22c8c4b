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

void log_write(enum log_level level, const char *area, const char *format, ...)
{
    if (!log_enabled(level))
        return;
    char message[2048], when[48];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
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
