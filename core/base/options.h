/*
 * Command lines from one table: long options by argp, each also as HEARSAY_<NAME> in the environment (--kv-pages is
 * HEARSAY_KV_PAGES; the command line wins). Used by all programs of the project, so that their errors read alike:
 *
 *     hearsay: --push-back: "many" is not a whole number from 1 to 1000000; give a queue depth such as 8
 *
 * Options of one `exclusive` group contradict each other: two of them in one place are an error, and one on the command line puts
 * all of its group in the environment aside.
 *
 * An option that the others' choice leaves no use for (`fits`) is an error, unless it comes from the environment and the choice from the command line: then
 * it is put aside, and a warning says so.
 *
 * Threading: at start only.
 */
#ifndef HEARSAY_BASE_OPTIONS_H
#define HEARSAY_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"

/* What an option's value is and how it is kept at `offset` of the configuration. */
enum option_kind {
    OPTION_CUSTOM,   /* set() does it */
    OPTION_FLAG,     /* bool: true when given */
    OPTION_TEXT,     /* const char *: must not be empty */
    OPTION_U32,      /* uint32_t within min .. max */
    OPTION_U64,      /* uint64_t within min .. max */
    OPTION_SIZE,     /* uint64_t bytes of at least min, as parse_size reads them */
    OPTION_DURATION, /* uint64_t nanoseconds within min .. max, as parse_duration reads them */
    OPTION_CHOICE,   /* int (or an enum): the value beside the name chosen */
};

struct option_choice {
    const char *name; /* NULL ends a list */
    int value;
};

struct option_spec {
    const char *name;     /* "kv-pages", without dashes */
    const char *argument; /* "N", "FILE", ...; NULL: a flag */
    const char *help;     /* one line, defaults included */
    const char *group;    /* heading under which --help shows it; NULL: as the one before */
    /* OPTION_CUSTOM: called with the text (NULL for a flag). 0, or HS_ERR_* with err filled (without the option's name). */
    int (*set)(void *config, const char *text, struct error *err);
    enum option_kind kind;
    size_t offset;                       /* all but OPTION_CUSTOM: offsetof the field */
    uint64_t min, max;                   /* numbers, durations, sizes (min) */
    const struct option_choice *choices; /* OPTION_CHOICE */
    const char *exclusive;               /* name of its group, NULL: none */
    bool (*fits)(const void *config);    /* whether what was chosen otherwise has a use for it; NULL: always */
    const char *fits_with;               /* for people: "--fabric verbs or dpdk" */
    const char *chosen_by;               /* the option that decides: "fabric" */
};

struct options {
    const char *program;     /* "hearsay" */
    const char *usage;       /* of positional arguments, e.g. "ADDR:PORT COMMAND"; NULL: none allowed */
    const char *description; /* for --help, above the options */
    const char *epilog;      /* for --help, below: examples */
    const char *version;
    const struct option_spec *specs; /* [n_specs] */
    size_t n_specs;
    int (*positional)(void *config, const char *text, struct error *err); /* NULL: none allowed */
};

/*
 * Reads the command line, then of the environment what that leaves open. 0: go on. Positive: --help or --version was served, exit 0 ought to follow.
 * Negative: one clear line was left in err (to be printed behind "program: "), exit 2 ought to follow. Never exits by itself.
 */
int options_parse(const struct options *options, int argc, char **argv, void *config, struct error *err);

#endif
