/*
 * The fuzz targets: one function for each kind of bytes that reach hearsay from outside. Each takes any bytes, must come
 * back without a fault, and checks on the way what must hold for every input (a decoded message encodes to the same bytes,
 * a refused one leaves an error text).
 *
 *     corpus/NAME/ --> fuzz_NAME(data, len) <-- libFuzzer (clang, entry.c: one program per target)
 *                                           <-- replay.c  (any compiler: one program, a regression test under ctest)
 *
 * Each target file opens with how its input is read. Targets keep no state from one input to the next except immutable
 * models, so that a saved input shows its fault alone.
 *
 * Threading: one thread. Ownership: heap copies belong to the caller.
 */
#ifndef HEARSAY_TESTS_FUZZ_FUZZ_H
#define HEARSAY_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/codec.h"
#include "core/base/panic.h"
#include "core/model/loaded_model.h"

#define FUZZ_TARGETS(X) \
    X(api)              \
    X(chat)             \
    X(config)           \
    X(datagram)         \
    X(folder)           \
    X(forward)          \
    X(frame)            \
    X(gguf)             \
    X(node)             \
    X(options)          \
    X(packet)           \
    X(pages)            \
    X(pieces)           \
    X(reads)            \
    X(safetensors)      \
    X(show)             \
    X(stream)           \
    X(text)             \
    X(tokenizer)        \
    X(values)           \
    X(wire)

#define FUZZ_DECLARE(name) int fuzz_##name(const uint8_t *data, size_t len);
FUZZ_TARGETS(FUZZ_DECLARE)
#undef FUZZ_DECLARE

/* Once, before the first input. */
void fuzz_init(void);

/* Exactly as long as the bytes, so that the sanitizers see a read beyond them. Never NULL. */
void *fuzz_copy(const void *data, size_t len);
/* Likewise, with a NUL behind. */
char *fuzz_cstring(const void *data, size_t len);
/* The bytes up to the next NUL or the end, which are taken with it, as a text. */
char *fuzz_next_text(struct reader *in);

/* Room for the paths of a target's files. */
enum { FUZZ_PATH_BYTES = 128 };
/* "folder/target/name" in a folder that goes when the process ends; name "" for the target's own folder. Returns path. */
const char *fuzz_path(const char *target, const char *name, char path[FUZZ_PATH_BYTES]);
/* Writes that file; NULL data removes it. */
void fuzz_write_file(const char *target, const char *name, const void *data, size_t len);

/* Tiny models of tests/vectors, loaded once: whole ones with a chat template ... */
const struct loaded_model *fuzz_tiny_model(void);
/* ... and tokenizers alone, one of each kind. */
enum { FUZZ_TOKENIZERS = 6, FUZZ_TOKENIZER_BYTE_LEVEL = 0 };
const struct tokenizer *fuzz_tiny_tokenizer(unsigned index);

#endif
