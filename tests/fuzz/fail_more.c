/* The other functions that hand out memory, so that fail_malloc counts them too (link options in CMakeLists.txt). */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int __real_posix_memalign(void **out, size_t alignment, size_t bytes);
int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t max);
int __wrap_asprintf(char **out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Counts, and fails when it is this one's turn. */
static bool has_turn(void)
{
    void *turn = malloc(1);
    free(turn);
    return turn != NULL;
}

int __wrap_asprintf(char **out, const char *format, ...)
{
    va_list arguments;
    if (!has_turn())
        return -1;
    va_start(arguments, format);
    int n = vasprintf(out, format, arguments);
    va_end(arguments);
    return n;
}

int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes)
{
    if (!has_turn())
        return ENOMEM;
    return __real_posix_memalign(out, alignment, bytes);
}

char *__wrap_strndup(const char *text, size_t max)
{
    size_t len = strnlen(text, max);
    char *copy = malloc(len + 1);
    if (!copy)
        return NULL;
    memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

char *__wrap_strdup(const char *text)
{
    return __wrap_strndup(text, strlen(text));
}
