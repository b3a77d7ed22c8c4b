/* The model of the HTTP tests: the tiny one of tests/vectors, whose vocabulary is the 256 bytes, five merges and ChatML's control tokens. */
#ifndef HEARSAY_TESTS_HTTP_FIXTURE_H
#define HEARSAY_TESTS_HTTP_FIXTURE_H

#include "core/model/loaded_model.h"

/* Opened once per program; fails the test if it cannot be. */
const struct loaded_model *fixture_model(void);
void fixture_close(void);
/* The tokens of a text, control tokens as text. Freed by token_list_fini. */
struct token_list fixture_tokens(const char *text, size_t len);

#endif
