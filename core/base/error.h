/*
 * Error codes and error texts.
 *
 * Functions return 0 or one of these negative codes; outputs are set only on success. A function that reads input from
 * outside (a file, an option, a request) also takes a `struct error *` and leaves one line in it that names the thing,
 * the value and the remedy. The pointer may be NULL. The code is returned by error_set, so that a failing branch reads
 * `return error_set(err, HS_ERR_PARSE, "...")`.
 *
 * Threading: error_name is pure; a struct error belongs to its caller.
 */
#ifndef HEARSAY_BASE_ERROR_H
#define HEARSAY_BASE_ERROR_H

#define HS_ERRORS(X)                                              \
    X(HS_ERR_INVALID, -1, "invalid argument")                     \
    X(HS_ERR_NO_MEMORY, -2, "out of memory")                      \
    X(HS_ERR_BUSY, -3, "busy, try again later")                   \
    X(HS_ERR_NOT_FOUND, -4, "not found")                          \
    X(HS_ERR_IO, -5, "input/output failed")                       \
    X(HS_ERR_PROTOCOL, -6, "protocol violated")                   \
    X(HS_ERR_TIMEOUT, -7, "timed out")                            \
    X(HS_ERR_CLOSED, -8, "closed")                                \
    X(HS_ERR_UNSUPPORTED, -9, "not supported here")               \
    X(HS_ERR_LIMIT, -10, "limit reached")                         \
    X(HS_ERR_AUTH, -11, "not authenticated")                      \
    X(HS_ERR_PARSE, -12, "malformed input")                       \
    X(HS_ERR_CANCELED, -13, "canceled")                           \
    X(HS_ERR_NO_PAGES, -14, "out of KV pages")                    \
    X(HS_ERR_RANGE, -15, "out of range")

enum {
#define HS_ERROR_ENUM(name, value, text) name = (value),
    HS_ERRORS(HS_ERROR_ENUM)
#undef HS_ERROR_ENUM
};

struct error {
    int code;       /* 0: none */
    char text[480]; /* one line, no newline, NUL-terminated */
};

/* The standing text of a code ("out of KV pages"); "success" for 0, "unknown error" for others. */
const char *error_name(int code);

/* Stores code and the formatted text (cut if too long, control characters replaced) and returns code. err may be NULL. */
int error_set(struct error *err, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Puts "prefix: " in front of the text already there, as errors travel outward; returns err's code. err may be NULL (returns code). */
int error_wrap(struct error *err, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
