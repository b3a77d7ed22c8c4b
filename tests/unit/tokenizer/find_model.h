/* Model files that tests use where the cache has them: ${XDG_CACHE_HOME:-~/.cache}/hearsay, or tests/ below it. */
#ifndef HEARSAY_TESTS_FIND_MODEL_H
#define HEARSAY_TESTS_FIND_MODEL_H

#include <stdbool.h>
#include <stddef.h>

#include "core/model/tokenizer.h"

/* False: no such file in either folder; path is then the last one tried. */
bool find_model(const char *name, char *path, size_t cap);
/* The tokenizer of a GGUF file. */
int load_tokenizer(const char *path, struct tokenizer **out, struct error *err);

#endif
