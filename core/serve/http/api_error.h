/*
 * An error as clients of the API see it: a status and {"error": {"message", "type", "param", "code"}}.
 * Threading: belongs to its caller.
 */
#ifndef HEARSAY_SERVE_HTTP_API_ERROR_H
#define HEARSAY_SERVE_HTTP_API_ERROR_H

#include <stdint.h>

#include "core/base/strbuf.h"

struct api_error {
    int status;       /* HTTP status; 0: no error */
    const char *code; /* static text or NULL */
    char param[64];   /* the field at fault, "" for none */
    uint32_t retry_after_s;
    char message[480];
};

/* Fills error; param and code may be NULL. Returns -1, so that a failing branch is one line. */
int api_error_set(struct api_error *error, int status, const char *param, const char *code, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Appends the JSON object. */
void api_error_write(const struct api_error *error, struct strbuf *out);

#endif
