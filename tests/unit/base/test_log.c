#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/error.h"
#include "core/base/log.h"

/* Runs one log_write with standard error going into a pipe, and returns what was written. */
static const char *capture(enum log_level level, const char *message)
{
    static char text[8192];
    int ends[2], saved = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    log_write(level, "area", "%s", message);
    dup2(saved, STDERR_FILENO);
    close(ends[1]);
    close(saved);
    ssize_t n = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    assert_true(n >= 0);
    text[n] = '\0';
    return text;
}

static void test_text_lines(void **unused)
{
    log_setup(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    const char *line = capture(LOG_LEVEL_WARN, "two\nlines");
    assert_int_equal(strlen(line), strlen("2026-01-31T12:00:00.123Z warn  area two lines\n"));
    assert_string_equal(line + 24, " warn  area two lines\n");
    assert_int_equal(line[10], 'T');
    assert_string_equal(capture(LOG_LEVEL_DEBUG, "hidden"), "");
}

static void test_json_lines(void **unused)
{
    log_setup(LOG_LEVEL_DEBUG, LOG_FORMAT_JSON);
    const char *line = capture(LOG_LEVEL_DEBUG, "say \"x\"\n");
    assert_memory_equal(line, "{\"time\":\"2", 10);
    assert_non_null(strstr(line, "\",\"level\":\"debug\",\"area\":\"area\",\"message\":\"say \\\"x\\\"\\n\"}\n"));
    log_setup(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
}

static void test_level_names(void **unused)
{
    enum log_level level = LOG_LEVEL_INFO;
    assert_int_equal(log_level_parse("debug", &level), 0);
    assert_int_equal(level, LOG_LEVEL_DEBUG);
    assert_int_equal(log_level_parse("loud", &level), HS_ERR_INVALID);
    assert_int_equal(level, LOG_LEVEL_DEBUG);
}

/* A flood is cut, the cut is told, errors and a debugger's level get through. */
static void test_a_flood_is_cut(void **unused)
{
    uint64_t before = log_lines_left_out();
    uint32_t written = 0;
    for (int i = 0; i < 1000; i++)
        written += capture(LOG_LEVEL_WARN, "flood")[0] != '\0';
    assert_true(written <= 3 * LOG_LINES_PER_S); /* it may run over a second's end */
    assert_int_equal(log_lines_left_out() - before, 1000 - written);
    assert_non_null(strstr(capture(LOG_LEVEL_INFO, "calm"), "area calm\n")); /* infos are counted apart */
    for (int i = 0; i < 1000; i++)
        capture(LOG_LEVEL_WARN, "flood");
    const char *after = capture(LOG_LEVEL_ERROR, "broken");
    assert_non_null(strstr(after, " lines were left out: at most 100 are written in one second; --log-level debug shows all\n"));
    assert_non_null(strstr(after, "area broken\n"));
    for (int i = 0; i < 2 * LOG_LINES_PER_S; i++)
        assert_non_null(strstr(capture(LOG_LEVEL_ERROR, "broken"), "area broken\n"));
    log_setup(LOG_LEVEL_DEBUG, LOG_FORMAT_TEXT);
    for (int i = 0; i < 2 * LOG_LINES_PER_S; i++)
        assert_true(capture(LOG_LEVEL_WARN, "flood")[0] != '\0');
    log_setup(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_lines),
        cmocka_unit_test(test_json_lines),
        cmocka_unit_test(test_level_names),
        cmocka_unit_test(test_a_flood_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
