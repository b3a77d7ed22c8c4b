/*
 * An error as clients of the API see it: a status and {"error": {"message", "type", "param", "code"}}.
 * Threading: belongs to its caller.
 */
#ifndef HEARSAY_SERVE_HTTP_API_ERROR_H
#define HEARSAY_SERVE_HTTP_API_ERROR_H

#include <stdint.h>

#include "core/base/strbuf.h"

/* Bounds on what clients ask for; http_metrics.c names and explains them, docs/limits.md lists them. */
enum api_limit {
    API_LIMIT_NONE,
    API_LIMIT_CONNECTIONS,
    API_LIMIT_HEADER_BYTES,
    API_LIMIT_BODY_BYTES,
    API_LIMIT_IDLE,
    API_LIMIT_UNREAD_TOKENS,
    API_LIMIT_INBOX,
    API_LIMIT_CONTEXT,
    API_LIMIT_DEPTH,
    API_LIMIT_CHOICES,
    API_LIMIT_STOP_STRINGS,
    API_LIMIT_STOP_BYTES,
    API_LIMIT_TOP_LOGPROBS,
    API_LIMIT_BIAS_ENTRIES,
    API_LIMIT_SALT_BYTES,
    API_LIMIT_TENANT_BYTES,
    API_LIMITS,
};

struct api_error {
    int status;       /* HTTP status; 0: no error */
    enum api_limit limit; /* that was hit, and is counted when the error goes out */
    const char *code; /* static text or NULL */
    char param[64];   /* the field at fault, "" for none */
    uint32_t retry_after_s;
    char message[480];
};

/* Fills error; param and code may be NULL. Returns -1, so that a failing branch is one line. */
int api_error_set(struct api_error *error, int status, const char *param, const char *code, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* As api_error_set, for something over a limit. */
int api_error_set_limit(struct api_error *error, enum api_limit limit, int status, const char *param, const char *code, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

/* Appends the JSON object. */
void api_error_write(const struct api_error *error, struct strbuf *out);

#endif
