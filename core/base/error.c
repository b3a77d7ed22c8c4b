#include "core/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *error_name(int code)
{
    switch (code) {
    case 0:
        return "success";
#define HS_ERROR_TEXT(name, value, text) \
    case name:                           \
        return text;
        HS_ERRORS(HS_ERROR_TEXT)
#undef HS_ERROR_TEXT
    default:
        return "unknown error";
    }
}

/* Error texts often quote input; a control character in one must not break the log's lines. */
static void replace_controls(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

int error_set(struct error *err, int code, const char *format, ...)
{
    if (!err)
        return code;
    char text[sizeof err->text]; /* apart, since an argument may point into err->text */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    replace_controls(text);
    err->code = code;
    memcpy(err->text, text, sizeof text);
    return code;
}

int error_wrap(struct error *err, int code, const char *format, ...)
{
    if (!err)
        return code;
    char prefix[sizeof err->text], text[2 * sizeof err->text + 2];
    va_list args;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    snprintf(text, sizeof text, "%s: %s", prefix, err->code ? err->text : error_name(code));
    text[sizeof err->text - 1] = '\0';
    replace_controls(text);
    if (!err->code)
        err->code = code;
    memcpy(err->text, text, sizeof err->text);
    return err->code;
}
