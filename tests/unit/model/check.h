/* What every test of this folder includes: cmocka and two checks on errors. */
#ifndef HEARSAY_TESTS_MODEL_CHECK_H
#define HEARSAY_TESTS_MODEL_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/error.h"

#define assert_ok(call)                                                                                                            \
    do {                                                                                                                           \
        int returned = (call);                                                                                                     \
        if (returned != 0)                                                                                                         \
            fail_msg("%s returned %d (%s)", #call, returned, error_name(returned));                                                \
    } while (0)

#define assert_text_contains(text, part)                                                                                           \
    do {                                                                                                                           \
        if (!strstr((text), (part)))                                                                                               \
            fail_msg("\"%s\" does not contain \"%s\"", (text), (part));                                                            \
    } while (0)

#endif
