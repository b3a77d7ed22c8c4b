/*
 * What tokenizer.json says about text before and after byte pair encoding: normalizer, pre-tokenizer, post-processor
 * (https://huggingface.co/docs/tokenizers, the file's fields named as there).
 *
 * Errors: HS_ERR_UNSUPPORTED names the part that is not understood. Threading: at load only.
 */
#ifndef HEARSAY_MODEL_TOKENIZER_JSON_H
#define HEARSAY_MODEL_TOKENIZER_JSON_H

#include <jansson.h>
#include <stdbool.h>

#include "core/model/tokenizer_internal.h"

bool json_type_is(const json_t *part, const char *type);
/* Is the part, or one of a sequence's members, of this type? members: "normalizers", "pretokenizers", "processors". */
const json_t *json_find_part(const json_t *part, const char *members, const char *type);

/* tokenizer->kind must be set. */
int tokenizer_json_normalizer(struct tokenizer *tokenizer, const json_t *normalizer, struct error *err);
int tokenizer_json_pre_tokenizer(struct tokenizer *tokenizer, const json_t *pre_tokenizer, struct error *err);
/* The text of the token that the post-processor puts in front, or NULL. */
const char *tokenizer_json_leading_token(const json_t *post_processor);

#endif
