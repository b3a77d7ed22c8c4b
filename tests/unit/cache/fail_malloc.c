#include "tests/unit/cache/fail_malloc.h"

#include <stddef.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

static uint32_t countdown;
static bool failed, held;

void fail_malloc_after(uint32_t n)
{
    countdown = n;
    failed = false;
}

void fail_malloc_hold(bool hold)
{
    held = hold;
}

bool fail_malloc_done(void)
{
    countdown = 0;
    return failed;
}

static bool fails_now(void)
{
    if (held || countdown == 0 || --countdown > 0)
        return false;
    failed = true;
    return true;
}

void *__wrap_malloc(size_t bytes)
{
    return fails_now() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    return fails_now() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    return fails_now() ? NULL : __real_realloc(old, bytes);
}
