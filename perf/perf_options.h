/* The command line of hearsay-perf. */
#ifndef HEARSAY_PERF_PERF_OPTIONS_H
#define HEARSAY_PERF_PERF_OPTIONS_H

#include "perf/bench.h"

/* As options_parse, defaults filled in first and the whole checked afterwards. */
int perf_options_parse(int argc, char **argv, struct perf_config *config, struct error *err);

#endif
