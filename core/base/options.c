#include "core/base/options.h"

#include <argp.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/option_value.h"
#include "core/base/parse.h"
#include "core/base/strbuf.h"

enum { KEY_HELP = 0x1000, KEY_VERSION, KEY_FIRST_SPEC }; /* no printable characters: no short options */

struct parse_run {
    const struct options *options;
    const struct argp *argp;
    void *config;
    struct error *err;
    bool *given; /* [n_specs] on the command line */
    int code;    /* HS_ERR_* of the first failure */
    bool served; /* --help or --version */
};

static int fail_unknown(struct parse_run *run, const char *word)
{
    return run->code = error_set(run->err, HS_ERR_PARSE, "%s: no such option; --help lists them all", word);
}

/* argp was told to be silent, so this finds out what it disliked about a word of the command line. 0: nothing. */
static int explain(struct parse_run *run, const char *word)
{
    if (strncmp(word, "--", 2) != 0)
        return word[0] == '-' && word[1] ? fail_unknown(run, word) : 0;
    const char *name = word + 2;
    size_t len = strcspn(name, "=");
    size_t alike = 0;
    const struct option_spec *match = NULL;
    for (size_t i = 0; i < run->options->n_specs; i++) {
        const struct option_spec *spec = &run->options->specs[i];
        if (strncmp(spec->name, name, len) != 0)
            continue;
        alike++;
        match = spec;
        if (strlen(spec->name) == len) {
            alike = 1;
            break;
        }
    }
    if (alike > 1)
        return run->code = error_set(run->err, HS_ERR_PARSE, "%s: several options begin like this; --help lists them all", word);
    if (!match)
        return fail_unknown(run, word);
    if (match->argument && !name[len])
        return run->code = error_set(run->err, HS_ERR_PARSE, "--%s: a value is missing; write --%s %s", match->name, match->name,
                                     match->argument);
    if (!match->argument && name[len])
        return run->code = error_set(run->err, HS_ERR_PARSE, "--%s: takes no value", match->name);
    return 0;
}

static int set_positional(struct parse_run *run, const char *text)
{
    if (!run->options->positional)
        return error_set(run->err, HS_ERR_PARSE, "\"%s\": no argument is expected here; --help shows the usage", text);
    return run->options->positional(run->config, text, run->err);
}

static error_t parse_key(int key, char *text, struct argp_state *state)
{
    struct parse_run *run = state->input;
    switch (key) {
    case KEY_HELP:
        argp_help(run->argp, stdout, ARGP_HELP_USAGE | ARGP_HELP_LONG | ARGP_HELP_DOC, (char *)run->options->program);
        run->served = true;
        return ECANCELED;
    case KEY_VERSION:
        printf("%s %s\n", run->options->program, run->options->version);
        run->served = true;
        return ECANCELED;
    case ARGP_KEY_ARG:
        run->code = set_positional(run, text);
        return run->code ? ECANCELED : 0;
    case ARGP_KEY_ERROR:
        if (run->code || run->served)
            return 0;
        /* It stopped behind the word, but before one that begins with a single dash: -model. */
        if ((state->next < 2 || !explain(run, state->argv[state->next - 1])) && state->next < state->argc)
            fail_unknown(run, state->argv[state->next]);
        return 0;
    default:
        break;
    }
    if (key < KEY_FIRST_SPEC || (size_t)(key - KEY_FIRST_SPEC) >= run->options->n_specs)
        return ARGP_ERR_UNKNOWN;
    const struct option_spec *spec = &run->options->specs[key - KEY_FIRST_SPEC];
    int rc = option_value_store(spec, run->config, text, run->err);
    if (rc)
        run->code = error_wrap(run->err, rc, "--%s", spec->name);
    run->given[spec - run->options->specs] = true;
    return rc ? ECANCELED : 0;
}

enum { ENVIRONMENT_NAME_BYTES = 96 };

static void environment_name(const char *option, char *out, size_t cap)
{
    int n = snprintf(out, cap, "HEARSAY_%s", option);
    for (int i = 0; i < n && (size_t)i < cap; i++) {
        if (out[i] == '-')
            out[i] = '_';
        else if (out[i] >= 'a' && out[i] <= 'z')
            out[i] = (char)(out[i] - 'a' + 'A');
    }
}

/* The option's text in the environment, or NULL. Empty is how container files unset a variable. */
static const char *environment_text(const struct option_spec *spec, char name[ENVIRONMENT_NAME_BYTES])
{
    environment_name(spec->name, name, ENVIRONMENT_NAME_BYTES);
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

/* *set: whether the environment had a word on it. */
static int set_from_environment(const struct option_spec *spec, void *config, bool *set, struct error *err)
{
    char name[ENVIRONMENT_NAME_BYTES];
    const char *text = environment_text(spec, name);
    *set = text != NULL;
    if (!text)
        return 0;
    if (!spec->argument) {
        bool on;
        if (!parse_bool(text, &on))
            return error_set(err, HS_ERR_PARSE, "%s: \"%s\" is neither true nor false", name, text);
        *set = on;
        if (!on)
            return 0;
        text = NULL;
    }
    int rc = option_value_store(spec, config, text, err);
    return rc ? error_wrap(err, rc, "%s", name) : 0;
}

/* Another option of the spec's exclusive group that is set, or NULL. */
static const struct option_spec *rival(const struct options *options, const struct option_spec *spec, const bool *set)
{
    for (size_t i = 0; spec->exclusive && i < options->n_specs; i++) {
        const struct option_spec *other = &options->specs[i];
        if (other != spec && set[i] && other->exclusive && strcmp(other->exclusive, spec->exclusive) == 0)
            return other;
    }
    return NULL;
}

static int contradiction(struct error *err, const char *prefix, const char *a, const char *b)
{
    return error_set(err, HS_ERR_INVALID, "%s%s and %s%s contradict each other; give one of them", prefix, a, prefix, b);
}

static bool is_given(const struct options *options, const char *name, const bool *given)
{
    size_t i = 0;
    while (strcmp(options->specs[i].name, name) != 0)
        i++; /* a spec names one of its own table */
    return given[i];
}

/* Whether the environment's word on this option has no use beside what the command line chose; told then. */
static bool put_aside(const struct options *options, const struct option_spec *spec, const bool *given, const void *config)
{
    char name[ENVIRONMENT_NAME_BYTES];
    if (!spec->fits || spec->fits(config) || !is_given(options, spec->chosen_by, given) || !environment_text(spec, name))
        return false;
    log_warn("options", "%s is for %s and is put aside: --%s says otherwise", name, spec->fits_with, spec->chosen_by);
    return true;
}

/* What the command line did not settle: of the options that others have no use for (dependent), or of all the rest. */
static int read_environment(const struct options *options, bool dependent, const bool *given, bool *set, void *config,
                            struct error *err)
{
    for (size_t i = 0; i < options->n_specs; i++) {
        const struct option_spec *spec = &options->specs[i];
        if ((spec->fits != NULL) != dependent || given[i] || rival(options, spec, given) || put_aside(options, spec, given, config))
            continue;
        int rc = set_from_environment(spec, config, &set[i], err);
        const struct option_spec *other = rc == 0 && set[i] ? rival(options, spec, set) : NULL;
        if (other) {
            char name[ENVIRONMENT_NAME_BYTES], other_name[ENVIRONMENT_NAME_BYTES];
            environment_name(spec->name, name, sizeof name);
            environment_name(other->name, other_name, sizeof other_name);
            rc = contradiction(err, "", other_name, name);
        }
        if (rc)
            return rc;
    }
    return 0;
}

/* After all else was read. */
static int check_fits(const struct options *options, const bool *given, const bool *set, const void *config, struct error *err)
{
    for (size_t i = 0; i < options->n_specs; i++) {
        const struct option_spec *spec = &options->specs[i];
        char name[ENVIRONMENT_NAME_BYTES];
        if (!spec->fits || (!given[i] && !set[i]) || spec->fits(config))
            continue;
        if (given[i])
            snprintf(name, sizeof name, "--%s", spec->name);
        else
            environment_name(spec->name, name, sizeof name);
        return error_set(err, HS_ERR_INVALID, "%s is for %s; give that too, or leave %s out", name, spec->fits_with, name);
    }
    return 0;
}

static int check_given(const struct options *options, const bool *given, struct error *err)
{
    for (size_t i = 0; i < options->n_specs; i++) {
        const struct option_spec *other = given[i] ? rival(options, &options->specs[i], given) : NULL;
        if (other)
            return contradiction(err, "--", options->specs[i].name, other->name);
    }
    return 0;
}

/* Room for the specs, a heading before each, help, version and the end mark. */
static struct argp_option *build_table(const struct options *options)
{
    struct argp_option *table = calloc(2 * options->n_specs + 4, sizeof *table);
    if (!table)
        return NULL;
    size_t n = 0;
    int group = 1;
    for (size_t i = 0; i < options->n_specs; i++) {
        const struct option_spec *spec = &options->specs[i];
        if (spec->group)
            table[n++] = (struct argp_option){.doc = spec->group, .group = ++group};
        table[n++] = (struct argp_option){spec->name, KEY_FIRST_SPEC + (int)i, spec->argument, 0, spec->help, group};
    }
    table[n++] = (struct argp_option){"help", KEY_HELP, NULL, 0, "Show this text and end", -1};
    table[n++] = (struct argp_option){"version", KEY_VERSION, NULL, 0, "Show the version and end", -1};
    return table;
}

static int parse_command_line(struct parse_run *run, int argc, char **argv, const char *doc)
{
    struct argp_option *table = build_table(run->options);
    if (!table)
        return error_set(run->err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
    struct argp argp = {.options = table, .parser = parse_key, .args_doc = run->options->usage, .doc = doc};
    run->argp = &argp;
    error_t rc = argp_parse(&argp, argc, argv, ARGP_NO_EXIT | ARGP_NO_ERRS | ARGP_NO_HELP, NULL, run);
    free(table);
    if (run->served)
        return 1;
    if (run->code)
        return run->code;
    return rc ? error_set(run->err, HS_ERR_PARSE, "the command line cannot be read: %s", strerror(rc)) : 0;
}

static int parse_all(struct parse_run *run, int argc, char **argv)
{
    const struct options *options = run->options;
    struct strbuf doc = {0};
    strbuf_puts(&doc, options->description ? options->description : "");
    if (options->epilog)
        strbuf_printf(&doc, "\v%s", options->epilog); /* argp shows what follows \v below the options */
    int rc = doc.failed ? error_set(run->err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY))
                        : parse_command_line(run, argc, argv, strbuf_text(&doc));
    strbuf_fini(&doc);
    return rc ? rc : check_given(options, run->given, run->err);
}

int options_parse(const struct options *options, int argc, char **argv, void *config, struct error *err)
{
    struct error local = {0};
    if (!err)
        err = &local;
    *err = (struct error){0};
    bool *flags = calloc(2 * options->n_specs + 1, sizeof *flags); /* given on the command line, set in the environment */
    if (!flags)
        return error_set(err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
    struct parse_run run = {.options = options, .config = config, .err = err, .given = flags};
    int rc = parse_all(&run, argc, argv);
    if (rc == 0)
        rc = read_environment(options, false, flags, flags + options->n_specs, config, err);
    if (rc == 0)
        rc = read_environment(options, true, flags, flags + options->n_specs, config, err);
    if (rc == 0)
        rc = check_fits(options, flags, flags + options->n_specs, config, err);
    free(flags);
    return rc;
}
