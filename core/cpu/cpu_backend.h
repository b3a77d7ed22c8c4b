/*
 * The CPU backend: executes a model description behind core/port/backend.h on a pool of pinned threads.
 *
 * In f32, weights are held in 16 bits (FP16, or BF16 where the file has BF16) or as the integers of a quantised file, keys and values in FP16, and arithmetic is float32.
 * In bf16, weights, keys and values and whatever is multiplied with them are BF16; sums, norms, rotations and exponentials stay
 * float32. One path of kernels is chosen at creation and names the arithmetic class. A row's logits are the same bits whatever else
 * is in the step, however a prompt was cut, whichever pages it uses and however many threads there are (design: same bits, always).
 *
 * Threading: as backend.h says; max_inflight is 1. Creation converts the weights on the pool's threads and reports
 * progress from the calling thread. Ownership: the model must outlive the backend; the rest of the configuration is copied.
 */
#ifndef HEARSAY_CPU_BACKEND_H
#define HEARSAY_CPU_BACKEND_H

#include <stdint.h>

#include "core/base/error.h"
#include "core/cpu/weight_form.h"
#include "core/port/backend.h"
#include "core/port/env.h"
#include "core/port/model.h"

struct cpu_kernels;

enum cpu_path { CPU_PATH_AUTO, CPU_PATH_GENERIC, CPU_PATH_AVX2, CPU_PATH_AVX512, CPU_PATH_AVX512_BF16 };
enum cpu_compute { CPU_COMPUTE_F32, CPU_COMPUTE_BF16 };

enum { CPU_DEFAULT_PAGE_TOKENS = 16, CPU_DEFAULT_MAX_ROWS = 512, CPU_DEFAULT_MAX_SPANS = 256, CPU_MAX_THREADS = 1024 };

struct cpu_backend_config {
    const struct model_desc *model;
    uint32_t page_tokens; /* a multiple of 16; 0: CPU_DEFAULT_PAGE_TOKENS */
    uint32_t n_pages;     /* at least 1 */
    uint32_t threads;     /* 0: one for each of cpus, or for each CPU this process may use */
    const uint32_t *cpus; /* [n_cpus] to pin threads to, in turn; n_cpus 0: not pinned */
    uint32_t n_cpus;
    enum cpu_path path;
    enum weight_form weights; /* native: weights of quantised files stay integers, an arithmetic class of its own */
    enum cpu_compute compute; /* of the path auto; CPU_PATH_AVX512_BF16 is bf16 by itself */
    uint32_t max_rows;        /* 0: CPU_DEFAULT_MAX_ROWS */
    uint32_t max_spans;       /* 0: CPU_DEFAULT_MAX_SPANS */
    const struct env *env;    /* clock for durations, called from workers too; NULL: durations are 0 */
    /* Called now and then while weights are converted ("weights", share 0 to 1), at last with 1. May be NULL. */
    void (*progress)(void *arg, const char *what, double share);
    void *progress_arg;
};

/*
 * 0, or HS_ERR_INVALID (configuration), HS_ERR_UNSUPPORTED (a model or a path that this backend cannot run here),
 * HS_ERR_RANGE (weights beyond FP16), HS_ERR_NO_MEMORY, HS_ERR_IO.
 */
int cpu_backend_create(const struct cpu_backend_config *config, struct backend **out, struct error *err);

/* Bytes of one KV page, for choosing n_pages; page_tokens as in the configuration. */
uint64_t cpu_backend_page_bytes(const struct model_desc *model, uint32_t page_tokens);
/* Bytes of the matrices, all of which a decode step reads. */
uint64_t cpu_backend_weight_bytes(const struct backend *backend);
/* The kernels that a path and an arithmetic mean here; NULL: not on this machine, or not together. */
const struct cpu_kernels *cpu_path_kernels(enum cpu_path path, enum cpu_compute compute);
bool cpu_path_supported(enum cpu_path path);
/* Whether this machine can compute so; f32 always. */
bool cpu_compute_supported(enum cpu_compute compute);
/* "auto", "generic", "avx2", "avx512", "avx512bf16". 0 or HS_ERR_PARSE. */
int cpu_path_parse(const char *name, enum cpu_path *out);

#endif
