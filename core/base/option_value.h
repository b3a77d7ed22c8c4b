/*
 * Storing one option's text as its kind says (options.h). Used by options.c alone.
 *
 * Threading: at start only. Errors: as option_spec's set.
 */
#ifndef HEARSAY_BASE_OPTION_VALUE_H
#define HEARSAY_BASE_OPTION_VALUE_H

#include "core/base/options.h"

int option_value_store(const struct option_spec *spec, void *config, const char *text, struct error *err);

#endif
