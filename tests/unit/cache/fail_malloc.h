/*
 * Makes an allocation fail: programs that link fail_malloc.c with -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc (see this
 * folder's CMakeLists.txt) count down to it.
 */
#ifndef HEARSAY_TESTS_UNIT_CACHE_FAIL_MALLOC_H
#define HEARSAY_TESTS_UNIT_CACHE_FAIL_MALLOC_H

#include <stdbool.h>
#include <stdint.h>

/* The n-th allocation from now on fails (1: the next), once; 0: none. */
void fail_malloc_after(uint32_t n);
/* While held, allocations neither fail nor count: around what a callback allocates for itself. */
void fail_malloc_hold(bool hold);
/* Whether it has failed; disarms. */
bool fail_malloc_done(void);

#endif
