#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/options.h"
#include "core/base/parse.h"

struct config {
    uint64_t push_back;
    char name[32];
    int checks;
    char positional[64];
};

static int set_push_back(void *config, const char *text, struct error *err)
{
    return parse_u64(text, 1, 1000000, &((struct config *)config)->push_back, err);
}

static int set_name(void *config, const char *text, struct error *err)
{
    strncpy(((struct config *)config)->name, text, 31);
    return 0;
}

static int set_check(void *config, const char *text, struct error *err)
{
    assert_null(text);
    ((struct config *)config)->checks++;
    return 0;
}

static int add_positional(void *config, const char *text, struct error *err)
{
    strncat(((struct config *)config)->positional, text, 30);
    return 0;
}

static const struct option_spec specs[] = {
    {"push-back", "DEPTH", "Waiting requests at which peers stop sending (default 8)", "Serving:", .set = set_push_back},
    {"name", "NAME", "Name of this node", NULL, .set = set_name},
    {"check", NULL, "Only check", "Other:", .set = set_check},
};

static const struct options table = {
    .program = "prog",
    .description = "Tests the options.",
    .epilog = "Example: prog --check",
    .version = "1.2.3",
    .specs = specs,
    .n_specs = 3,
};

static int run(const struct options *options, void *config, struct error *err, int argc, const char *const *words)
{
    char *argv[8] = {"prog"};
    for (int i = 0; i < argc; i++)
        argv[i + 1] = (char *)words[i];
    return options_parse(options, argc + 1, argv, config, err);
}

#define RUN(options, config, err, ...) \
    run(options, config, err, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)), (const char *[]){__VA_ARGS__})

static void test_values_and_flags(void **unused)
{
    struct config config = {0};
    assert_int_equal(RUN(&table, &config, NULL, "--push-back=12", "--name", "x", "--check"), 0);
    assert_int_equal(config.push_back, 12);
    assert_string_equal(config.name, "x");
    assert_int_equal(config.checks, 1);
}

static void test_error_texts(void **unused)
{
    static const struct {
        const char *word, *text;
    } cases[] = {
        {"--push-back=many", "--push-back: \"many\" is not a whole number from 1 to 1000000"},
        {"--push-back", "--push-back: a value is missing; write --push-back DEPTH"},
        {"--check=1", "--check: takes no value"},
        {"--pushback=3", "--pushback=3: no such option; --help lists them all"},
        {"--nothing", "--nothing: no such option; --help lists them all"},
        {"-x", "-x: no such option; --help lists them all"},
        {"-name", "-name: no such option; --help lists them all"},
        {"word", "\"word\": no argument is expected here; --help shows the usage"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config config = {0};
        struct error err = {0};
        assert_int_equal(RUN(&table, &config, &err, cases[i].word), HS_ERR_PARSE);
        assert_string_equal(err.text, cases[i].text);
    }
}

static void test_positional_arguments(void **unused)
{
    struct options with = table;
    with.usage = "ADDR COMMAND";
    with.positional = add_positional;
    struct config config = {0};
    assert_int_equal(RUN(&with, &config, NULL, "a", "--check", "b"), 0);
    assert_string_equal(config.positional, "ab");
}

static void test_environment_yields_to_the_command_line(void **unused)
{
    struct config config = {0};
    struct error err = {0};
    setenv("HEARSAY_PUSH_BACK", "5", 1);
    setenv("HEARSAY_CHECK", "yes", 1);
    setenv("HEARSAY_NAME", "", 1);
    assert_int_equal(RUN(&table, &config, NULL, "--name=n"), 0);
    assert_int_equal(config.push_back, 5);
    assert_int_equal(config.checks, 1);
    assert_int_equal(RUN(&table, &config, NULL, "--push-back=6"), 0);
    assert_int_equal(config.push_back, 6);

    setenv("HEARSAY_CHECK", "off", 1);
    config.checks = 0;
    assert_int_equal(RUN(&table, &config, NULL, "--name=n"), 0);
    assert_int_equal(config.checks, 0);
    setenv("HEARSAY_CHECK", "perhaps", 1);
    assert_int_equal(RUN(&table, &config, &err, "--name=n"), HS_ERR_PARSE);
    assert_string_equal(err.text, "HEARSAY_CHECK: \"perhaps\" is neither true nor false");
    setenv("HEARSAY_CHECK", "", 1);
    setenv("HEARSAY_PUSH_BACK", "0", 1);
    assert_int_equal(RUN(&table, &config, &err, "--name=n"), HS_ERR_PARSE);
    assert_string_equal(err.text, "HEARSAY_PUSH_BACK: \"0\" is not a whole number from 1 to 1000000");
    unsetenv("HEARSAY_PUSH_BACK");
    unsetenv("HEARSAY_CHECK");
    unsetenv("HEARSAY_NAME");
}

struct pools {
    uint64_t pages, bytes, count;
    bool open;
    const char *key;
};

#define AT(name) .offset = offsetof(struct pools, name)

static const struct option_spec pool_specs[] = {
    {"pages", "N", "", NULL, .kind = OPTION_U64, AT(pages), .max = 1000, .exclusive = "pool"},
    {"bytes", "N", "", NULL, .kind = OPTION_U64, AT(bytes), .max = 1000, .exclusive = "pool"},
    {"count", "N", "", NULL, .kind = OPTION_U64, AT(count), .max = 1000},
    {"key", "FILE", "", NULL, .kind = OPTION_TEXT, AT(key), .exclusive = "trust"},
    {"open", NULL, "", NULL, .kind = OPTION_FLAG, AT(open), .exclusive = "trust"},
};

static const struct options pool_options = {.program = "prog", .version = "1", .specs = pool_specs, .n_specs = 5};

/* The command line wins over the environment, for all of an exclusive group; within one place two of a group are an error. */
static void test_exclusive_groups(void **unused)
{
    struct pools config = {0};
    struct error err = {0};
    assert_int_equal(RUN(&pool_options, &config, &err, "--pages=1", "--bytes=2"), HS_ERR_INVALID);
    assert_string_equal(err.text, "--pages and --bytes contradict each other; give one of them");
    assert_int_equal(RUN(&pool_options, &config, &err, "--key=k", "--open"), HS_ERR_INVALID);
    assert_string_equal(err.text, "--key and --open contradict each other; give one of them");
    config = (struct pools){0};
    assert_int_equal(RUN(&pool_options, &config, &err, "--pages=1", "--key=k"), 0);

    setenv("HEARSAY_PAGES", "7", 1);
    setenv("HEARSAY_COUNT", "8", 1);
    setenv("HEARSAY_OPEN", "yes", 1);
    config = (struct pools){0};
    assert_int_equal(RUN(&pool_options, &config, &err, "--bytes=2", "--key=k"), 0);
    assert_true(config.pages == 0 && config.bytes == 2 && config.count == 8 && !config.open);
    assert_string_equal(config.key, "k");
    config = (struct pools){0};
    assert_int_equal(RUN(&pool_options, &config, &err, "--count=9"), 0);
    assert_true(config.pages == 7 && config.bytes == 0 && config.count == 9 && config.open);

    setenv("HEARSAY_BYTES", "6", 1);
    assert_int_equal(RUN(&pool_options, &config, &err, "--count=9"), HS_ERR_INVALID);
    assert_string_equal(err.text, "HEARSAY_PAGES and HEARSAY_BYTES contradict each other; give one of them");
    config = (struct pools){0};
    assert_int_equal(RUN(&pool_options, &config, &err, "--pages=1"), 0);
    assert_true(config.pages == 1 && config.bytes == 0);
    unsetenv("HEARSAY_BYTES");
    setenv("HEARSAY_OPEN", "no", 1); /* off is not given */
    setenv("HEARSAY_KEY", "file", 1);
    config = (struct pools){0};
    assert_int_equal(RUN(&pool_options, &config, &err, "--count=9"), 0);
    assert_true(config.key && !config.open);
    unsetenv("HEARSAY_PAGES");
    unsetenv("HEARSAY_COUNT");
    unsetenv("HEARSAY_OPEN");
    unsetenv("HEARSAY_KEY");
}

enum { ROAD, RAIL };

struct travel {
    int way;
    const char *wagon;
};

static bool fits_wagon(const void *config)
{
    return ((const struct travel *)config)->way == RAIL;
}

static const struct option_choice ways[] = {{"road", ROAD}, {"rail", RAIL}, {NULL, 0}};
static const struct option_spec travel_specs[] = {
    {"wagon", "NAME", "", NULL, .kind = OPTION_TEXT, .offset = offsetof(struct travel, wagon), .fits = fits_wagon, .fits_with = "--way rail",
     .chosen_by = "way"},
    {"way", "NAME", "", NULL, .kind = OPTION_CHOICE, .offset = offsetof(struct travel, way), .choices = ways},
};
static const struct options travel_options = {.program = "prog", .version = "1", .specs = travel_specs, .n_specs = 2};

/* An option without use is an error; but what the environment says of it is put aside when the command line chose otherwise. */
static void test_options_without_use(void **unused)
{
    struct travel config = {0};
    struct error err = {0};
    assert_int_equal(RUN(&travel_options, &config, &err, "--wagon=w", "--way=rail"), 0);
    assert_string_equal(config.wagon, "w");
    config = (struct travel){0};
    assert_int_equal(RUN(&travel_options, &config, &err, "--wagon=w"), HS_ERR_INVALID);
    assert_string_equal(err.text, "--wagon is for --way rail; give that too, or leave --wagon out");

    setenv("HEARSAY_WAGON", "v", 1);
    config = (struct travel){0};
    assert_int_equal(RUN(&travel_options, &config, &err, "--way=road"), 0);
    assert_null(config.wagon);
    assert_int_equal(RUN(&travel_options, &config, &err, "--way=rail"), 0);
    assert_string_equal(config.wagon, "v");
    config = (struct travel){0};
    assert_int_equal(run(&travel_options, &config, &err, 0, NULL), HS_ERR_INVALID); /* nobody chose otherwise: it is told */
    assert_string_equal(err.text, "HEARSAY_WAGON is for --way rail; give that too, or leave HEARSAY_WAGON out");
    setenv("HEARSAY_WAY", "rail", 1);
    config = (struct travel){0};
    assert_int_equal(run(&travel_options, &config, &err, 0, NULL), 0);
    assert_string_equal(config.wagon, "v");
    config = (struct travel){0};
    assert_int_equal(RUN(&travel_options, &config, &err, "--way=road"), 0);
    assert_null(config.wagon);
    unsetenv("HEARSAY_WAGON");
    unsetenv("HEARSAY_WAY");
}

static void test_help_and_version_are_served(void **unused)
{
    struct config config = {0};
    assert_true(RUN(&table, &config, NULL, "--version") > 0);
    assert_true(RUN(&table, &config, NULL, "--help", "--push-back=bad") > 0);
}

struct typed {
    uint32_t count;
    uint64_t large, bytes, ns;
    int route;
    const char *text;
    bool flag;
};

static const struct option_choice routes[] = {{"cost", 3}, {"none", 7}, {NULL, 0}};

#define FIELD(name) .offset = offsetof(struct typed, name)

static const struct option_spec typed_specs[] = {
    {"count", "N", "", NULL, .kind = OPTION_U32, FIELD(count), .min = 2, .max = 9},
    {"large", "N", "", NULL, .kind = OPTION_U64, FIELD(large), .min = 0, .max = UINT64_MAX},
    {"bytes", "SIZE", "", NULL, .kind = OPTION_SIZE, FIELD(bytes), .min = 1024},
    {"every", "TIME", "", NULL, .kind = OPTION_DURATION, FIELD(ns), .min = 1000000, .max = 2000000000},
    {"route", "MODE", "", NULL, .kind = OPTION_CHOICE, FIELD(route), .choices = routes},
    {"text", "TEXT", "", NULL, .kind = OPTION_TEXT, FIELD(text)},
    {"flag", NULL, "", NULL, .kind = OPTION_FLAG, FIELD(flag)},
};

static int run_typed(struct typed *config, struct error *err, const char *word)
{
    static const struct options options = {.program = "prog", .version = "1", .specs = typed_specs, .n_specs = 7};
    char *argv[] = {"prog", (char *)word};
    return options_parse(&options, 2, argv, config, err);
}

static void test_typed_values(void **unused)
{
    struct typed t = {0};
    struct error err;
    static const char *const good[] = {"--count=9", "--large=18446744073709551615", "--bytes=1K", "--every=2s", "--route=none", "--text=x", "--flag"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(run_typed(&t, &err, good[i]), 0);
    assert_int_equal(t.count, 9);
    assert_true(t.large == UINT64_MAX);
    assert_int_equal(t.bytes, 1024);
    assert_int_equal(t.ns, 2000000000);
    assert_int_equal(t.route, 7);
    assert_string_equal(t.text, "x");
    assert_true(t.flag);

    static const struct {
        const char *word, *text;
    } bad[] = {
        {"--count=1", "--count: \"1\" is not a whole number from 2 to 9"},
        {"--bytes=1023", "--bytes: \"1023\" is less than 1024 bytes"},
        {"--every=3s", "--every: \"3s\" is not between 0.001s and 2s"},
        {"--route=scenic", "--route: \"scenic\" is not one of cost, none"},
        {"--text=", "--text: is empty; write --text TEXT"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(run_typed(&t, &err, bad[i].word) < 0);
        assert_string_equal(err.text, bad[i].text);
    }
    assert_int_equal(t.count, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_and_flags),     cmocka_unit_test(test_error_texts),
        cmocka_unit_test(test_positional_arguments), cmocka_unit_test(test_environment_yields_to_the_command_line),
        cmocka_unit_test(test_help_and_version_are_served), cmocka_unit_test(test_typed_values),
        cmocka_unit_test(test_exclusive_groups),
        cmocka_unit_test(test_options_without_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
