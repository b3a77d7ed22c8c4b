/*
 * Assertions that stay on in release builds: they state invariants, cost little and have no side effects. Bad input is
 * never an assertion.
 */
#ifndef HEARSAY_BASE_PANIC_H
#define HEARSAY_BASE_PANIC_H

_Noreturn void panic(const char *file, int line, const char *what);

#define hs_assert(condition)                                 \
    do {                                                     \
        if (__builtin_expect(!(condition), 0))               \
            panic(__FILE__, __LINE__, #condition);           \
    } while (0)

#endif
