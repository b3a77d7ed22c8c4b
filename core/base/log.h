/*
 * Logging: one line per event on standard error, as text or JSON.
 *
 * Text:  2026-01-31T12:00:00.123Z warn  cluster peer 10.0.0.2:7070 has another page size (32, ours 16): not routed to
 * JSON:  {"time":"...","level":"warn","area":"cluster","message":"..."}
 *
 * An error is logged once, where it is first understood. Never log prompt text. Threading: every function may be called
 * from any thread; a line is written whole.
 *
 * Warnings beyond LOG_LINES_PER_S in one second are left out, infos likewise and apart from them, and the next line says how many: a
 * peer that fails a thousand requests a second must not fill a disk. Errors always get through, and at level debug everything does.
 */
#ifndef HEARSAY_BASE_LOG_H
#define HEARSAY_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };
enum { LOG_LINES_PER_S = 100 };
enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };

void log_setup(enum log_level level, enum log_format format);
/* 0 or HS_ERR_INVALID for an unknown name. */
int log_level_parse(const char *name, enum log_level *out);
bool log_enabled(enum log_level level);
void log_write(enum log_level level, const char *area, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Lines left out since the process began. */
uint64_t log_lines_left_out(void);

#define log_error(area, ...) log_write(LOG_LEVEL_ERROR, area, __VA_ARGS__)
#define log_warn(area, ...) log_write(LOG_LEVEL_WARN, area, __VA_ARGS__)
#define log_info(area, ...) log_write(LOG_LEVEL_INFO, area, __VA_ARGS__)
#define log_debug(area, ...)                                \
    do {                                                    \
        if (log_enabled(LOG_LEVEL_DEBUG))                   \
            log_write(LOG_LEVEL_DEBUG, area, __VA_ARGS__);  \
    } while (0)

#endif
