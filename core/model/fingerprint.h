/*
 * The model's fingerprint: nodes share cached work only when theirs are equal.
 *
 * BLAKE2b-256 over the description (names of files and of the model left out), the tokenizer's digest, and of every tensor its
 * place, type, shape and samples: all bytes of small ones, sixteen evenly spread pieces of large ones, so that a start reads a few
 * megabytes at most. Equal for copies of a file, different for other weights, types or settings; not a protection against
 * someone who alters weights on purpose.
 *
 * Threading: pure.
 */
#ifndef HEARSAY_MODEL_FINGERPRINT_H
#define HEARSAY_MODEL_FINGERPRINT_H

#include <stdint.h>

#include "core/port/model.h"

void fingerprint_compute(const struct model_desc *desc, const uint8_t tokenizer_digest[32], uint8_t out[32]);

#endif
