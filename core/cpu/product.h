/*
 * What a product of a forward pass (forward.h) is made of, and the norm before it. Plain data: written by whoever begins the stage, read by
 * all workers.
 */
#ifndef HEARSAY_CPU_PRODUCT_H
#define HEARSAY_CPU_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/cpu/weights.h"

enum { FEW_FIXED_ROWS = 4 }; /* so few are made integers by each worker for itself; no path's tiles are lower */

struct output_row;

/* The last norm stage. */
struct norm {
    const float *weight;
    const struct output_row *outputs; /* its rows, or NULL: those of the step */
    uint32_t n_rows;
    bool in_product; /* not yet done, but left to the next product */
};

/* The rows as integers for weights of a type (kernels_fixed.h). */
struct fixed_tiles {
    enum weight_type type;
    size_t start; /* among those of all types */
};

/* A product under way: panels of up to three matrices over the same rows, numbered through. */
struct product {
    const struct packed_matrix *parts[3];
    uint32_t n_parts;
    uint32_t n_panels;
    uint32_t panels_at_once; /* that a worker takes */
    uint32_t n_rows;
    struct fixed_tiles fixed[3]; /* one for each quantised type among the parts */
    uint32_t n_fixed;
    bool fixing;        /* the rows are being made integers; the product itself comes next */
    bool fixes_own;     /* each worker makes them integers for itself */
    const float *tiles; /* words (kernels.h) */
    bool norms;         /* instead of tiles each worker takes the rows of the last norm stage, which it normalises for itself */
    bool ends_step;     /* nothing but sampling follows */
    uint64_t started_ns; /* then */
};

/* A product's rows as one worker reads them. */
struct product_rows {
    const float *tiles;
    const int32_t *fixed;
};

#endif
