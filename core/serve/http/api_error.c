#include "core/serve/http/api_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void fill(struct api_error *error, int status, const char *param, const char *code, const char *format, va_list args)
{
    *error = (struct api_error){.status = status, .code = code};
    if (param)
        snprintf(error->param, sizeof error->param, "%s", param);
    vsnprintf(error->message, sizeof error->message, format, args);
}

int api_error_set(struct api_error *error, int status, const char *param, const char *code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fill(error, status, param, code, format, args);
    va_end(args);
    return -1;
}

int api_error_set_limit(struct api_error *error, enum api_limit limit, int status, const char *param, const char *code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fill(error, status, param, code, format, args);
    va_end(args);
    error->limit = limit;
    return -1;
}

static const char *type_of(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 429:
        return "rate_limit_error";
    case 503:
        return "service_unavailable_error";
    default:
        return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

static void write_nullable(struct strbuf *out, const char *key, const char *text)
{
    strbuf_printf(out, ",\"%s\":", key);
    if (text && *text)
        strbuf_json_string(out, text, strlen(text));
    else
        strbuf_puts(out, "null");
}

void api_error_write(const struct api_error *error, struct strbuf *out)
{
    strbuf_puts(out, "{\"error\":{\"message\":");
    strbuf_json_string(out, error->message, strlen(error->message));
    write_nullable(out, "type", type_of(error->status));
    write_nullable(out, "param", error->param);
    write_nullable(out, "code", error->code);
    strbuf_puts(out, "}}");
}
