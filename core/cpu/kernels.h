/*
 * The dispatch table of the CPU backend: one table per arithmetic path, chosen once at run time.
 *
 * Weights are packed in panels of panel_width outputs; inside a panel the outputs of one input stand together:
 *
 *     panel p   input 0   w[p*W+0][0] w[p*W+1][0] ... w[p*W+W-1][0]        W = panel_width, 16-bit values
 *               input 1   w[p*W+0][1] ...
 *               ...       input n_inputs-1
 *
 * so that an output is one lane, and its value one chain of multiply-adds over input 0, 1, 2 ...: the same operations in
 * the same order for one row and for many, for every place in a block and every number of threads. Nothing splits the
 * inputs. One row streams the panel once at memory speed; a block of tile_rows rows keeps tile_rows x W sums in registers.
 *
 * Rows come in tiles: tile t holds rows t*tile_rows ..., its values interleaved by row, so that a step along the inputs
 * walks through memory in order:
 *
 *     tile      input 0   x[r0][0] x[r1][0] ... x[rn][0]
 *               input 1   x[r0][1] ...
 *
 * A value of a tile is a word of 32 bits: a float, or on a path that multiplies pairs (inputs_per_word 2) two neighbouring inputs
 * in bfloat16, the lower one first. Such a path holds panels, keys and values in bfloat16 pairs as well: w[o][0] w[o][1] of an
 * output stand together, then the next output's; key i and i+1 of a slot; a value of slots s and s+1.
 *
 * Attention works on tiles of CPU_KEY_TILE keys and segments of CPU_KV_SEGMENT keys, both aligned to absolute positions.
 * A call takes up to a segment: tiles[t] is where tile t lies, key 0 is the first of tiles[0].
 *
 * Threading: tables are constant, functions pure. The last lanes of a vector are computed like all others (callers pad).
 */
#ifndef HEARSAY_CPU_KERNELS_H
#define HEARSAY_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/cpu/weight_type.h"
#include "core/port/model.h"

enum {
    CPU_MAX_PANEL_WIDTH = 32,
    CPU_MAX_TILE_ROWS = 12,
    CPU_STATE_QUERIES = 16,     /* CPU_MAX_TILE_ROWS in whole vectors */
    CPU_MAX_PANELS_AT_ONCE = 6, /* n_panels of one matmul call */
    CPU_KEY_TILE = 16,          /* keys scored together; page_tokens is a multiple */
    CPU_KV_SEGMENT = 256,       /* keys under one softmax maximum: the fixed split size */
    CPU_HEAD_ALIGN = 32,        /* values of a head are padded to a multiple of this */
};

/* One tile of rows with consecutive panels of a matrix. */
struct matmul {
    const void *panels; /* 16-bit values, floats if type is WEIGHT_F32, or integers in groups (kernels_quantised.h) */
    enum weight_type type;
    uint32_t n_inputs;
    uint32_t n_panels; /* at most CPU_MAX_PANELS_AT_ONCE */
    const float *x;    /* the tile, in words; not used with integers, whose inputs are */
    const int32_t *fixed; /* what fix_inputs made of the tile for weights of this type */
    uint32_t n_rows;   /* at most tile_rows */
    float *out;        /* row r's panel p: out[r * out_stride + p * panel_width ...] */
    size_t out_stride;
    bool add;           /* the products are added to what out holds */
    const void *ahead;  /* NULL, or what is multiplied next: it may be brought into the cache meanwhile */
    size_t ahead_bytes;
};

/* Below any score, and far enough from the ends of float that differences stay finite: the maximum over no keys. */
#define CPU_NO_SCORE -1e30f

struct key_range {
    uint32_t first, last; /* first <= key < last; equal: empty */
};

/* Softmax state of a block of queries over some keys. */
struct attention_state {
    float maximum[CPU_STATE_QUERIES]; /* of the scores, CPU_NO_SCORE without keys */
    float sum[CPU_STATE_QUERIES];     /* of 2^(score - maximum) */
    float *values;                    /* [queries][n_values], weighted sums */
};

struct cpu_kernels {
    const char *name;         /* "generic", "avx2", "avx512", "avx512bf16" */
    const char *arithmetic;   /* its class begins so (cpu_backend.c): equal text, equal bits */
    uint32_t panel_width;     /* outputs in a panel */
    uint32_t tile_rows;       /* most rows of a matmul, most queries of scores and accumulate_values */
    uint32_t inputs_per_word; /* 1, or 2 in bfloat16 */
    uint32_t input_planes;    /* bytes of an input of fix_inputs */

    /* Nearest even: to binary16 as half_from_float, or to bfloat16 where words are pairs. */
    void (*shorts_from_floats)(const float *in, uint16_t *out, size_t n);

    /* Packs n inputs of one row, a whole number of words: word i goes to words[i * stride]. */
    void (*pack_inputs)(const float *in, uint32_t n, float *words, size_t stride);

    /* The same for n_rows rows: word i of row r goes to words[i * stride + r]. */
    void (*pack_rows)(const float *const *rows, uint32_t n_rows, uint32_t n, float *words, size_t stride);

    void (*matmul)(const struct matmul *matmul);

    /*
     * Rows first .. first+n-1 of the tile x as integers for weights of a quantised type (kernels_fixed.h). The tile so made has
     * cpu_fixed_words() words a row.
     */
    void (*fix_inputs)(enum weight_type type, uint32_t n_inputs, const float *x, uint32_t n_tile_rows, uint32_t first, uint32_t n_rows,
                       int32_t *out);

    /*
     * Panels as floats, for many tiles of rows: out[n] = in[n], exactly; n is a multiple of panel_width. NULL where matmul
     * multiplies the 16 bits themselves.
     */
    void (*widen_panels)(const uint16_t *in, enum weight_type type, size_t n, float *out);

    /* out[i] = x[i] * weight[i] / root mean square of x[n]; out may be x. */
    void (*normalize)(const float *x, const float *weight, uint32_t n, float epsilon, float *out);

    /* Rotates the pairs of one head by a table of rotary_table and multiplies by scale. */
    void (*rotate)(enum rope_layout layout, const float *table, uint32_t n, float scale, float *head);

    /* out[i] = silu(gate[i]) * up[i]; n is a multiple of panel_width. */
    void (*silu_multiply)(const float *gate, const float *up, float *out, uint32_t n);

    /*
     * Scores of n_queries with the keys of n_tiles tiles: out[query * stride + key]. queries is [n_inputs /
     * inputs_per_word][n_queries] words, a tile of keys [n_inputs][CPU_KEY_TILE] in the path's 16 bits. While it works on a tile it
     * asks memory for ahead[that tile], as many values of anything; NULL: nothing.
     */
    void (*score_keys)(const float *queries, uint32_t n_queries, uint32_t n_inputs, const uint16_t *const *tiles, uint32_t n_tiles,
                       const uint16_t *const *ahead, float *out, size_t stride);

    /*
     * Turns each query's scores of its range into weights 2^(score - maximum) in place, and leaves maximum and sum of the
     * weights; CPU_NO_SCORE and 0 for an empty range. Ranges end within CPU_KV_SEGMENT. Weights are words: float `key`, or pair
     * `key / 2` of bfloat16, where a key outside the range has weight zero. Entries around the range, up to the next pair of tiles,
     * may be overwritten.
     */
    void (*softmax_segment)(float *scores, size_t stride, uint32_t n_queries, const struct key_range *ranges, float *maximum,
                            float *sum);

    /*
     * out[query * n_values + i] = sum over the keys of the query's range, in order, of weight[key] (of the row at weights + query *
     * stride) * values[key][i]. A tile of values is [CPU_KEY_TILE][n_values] in 16 bits; n_values is a multiple of CPU_HEAD_ALIGN.
     * Keys outside do not count, whatever they hold. ahead as above.
     */
    void (*accumulate_values)(const float *weights, size_t stride, uint32_t n_queries, const struct key_range *ranges,
                              const uint16_t *const *tiles, const uint16_t *const *ahead, uint32_t n_values, float *out);

    /* total becomes the state over the keys of both (online softmax); a state without keys changes nothing. */
    void (*merge_states)(uint32_t n_queries, uint32_t n_values, const struct attention_state *part, struct attention_state *total);
    /* values /= sum. */
    void (*finish_states)(uint32_t n_queries, uint32_t n_values, struct attention_state *state);
};

/* Words of a row for a group of n inputs: header and quads. */
static inline uint32_t cpu_fixed_group_words(uint32_t n, uint32_t planes)
{
    return 2 + planes + n / 4 * planes;
}

/* Words of a row of n_inputs. */
static inline uint32_t cpu_fixed_words(enum weight_type type, uint32_t n_inputs, uint32_t planes)
{
    const uint32_t n_groups = (n_inputs + weight_group(type) - 1) / weight_group(type);
    return n_groups * cpu_fixed_group_words(0, planes) + n_inputs / 4 * planes;
}

/* The tables. NULL where the machine or the build lacks the instructions. */
const struct cpu_kernels *cpu_kernels_generic(void);
const struct cpu_kernels *cpu_kernels_avx2(void);
const struct cpu_kernels *cpu_kernels_avx512(void);
const struct cpu_kernels *cpu_kernels_avx512vnni(void); /* the same arithmetic */
const struct cpu_kernels *cpu_kernels_avx512bf16(void);

#endif
