/*
 * Rows as integers, for products with integer weights: once for a product, before its chunks, and once for each type of weights
 * that it has (a file may hold q and k in one format and v in another). Few rows are done sooner than handed over: each worker makes
 * its own.
 */
#include "core/cpu/forward.h"

static uint32_t row_words(const struct forward *f, enum weight_type type)
{
    return cpu_fixed_words(type, f->product.parts[0]->n_inputs, f->kernels->input_planes);
}

static const struct fixed_tiles *find_type(const struct product *p, enum weight_type type)
{
    for (uint32_t i = 0; i < p->n_fixed; i++)
        if (p->fixed[i].type == type)
            return &p->fixed[i];
    return NULL;
}

uint32_t forward_start_fixing(struct forward *f)
{
    struct product *p = &f->product;
    size_t next = 0;
    for (uint32_t i = 0; i < p->n_parts; i++) {
        const enum weight_type type = p->parts[i]->type;
        if (!weight_is_quantised(type) || find_type(p, type))
            continue;
        p->fixed[p->n_fixed++] = (struct fixed_tiles){type, next};
        next += (size_t)p->n_rows * row_words(f, type);
    }
    p->fixes_own = p->n_fixed > 0 && p->n_rows <= FEW_FIXED_ROWS;
    p->fixing = p->n_fixed > 0 && !p->fixes_own;
    const uint32_t rows = forward_rows_per_chunk(f, p->n_rows);
    return p->fixing ? (p->n_rows + rows - 1) / rows : 0;
}

void forward_fix_inputs(struct forward *f, uint32_t chunk)
{
    const struct product *p = &f->product;
    const uint32_t n_inputs = p->parts[0]->n_inputs, tile_rows = forward_tile_rows(f, p->n_rows);
    const uint32_t at_once = forward_rows_per_chunk(f, p->n_rows);
    const uint32_t first = chunk * at_once, last = first + at_once < p->n_rows ? first + at_once : p->n_rows;
    for (uint32_t row = first, n; row < last; row += n) { /* tile by tile */
        const uint32_t tile = row / tile_rows * tile_rows, height = p->n_rows - tile < tile_rows ? p->n_rows - tile : tile_rows;
        const float *x = p->tiles + (size_t)tile * (n_inputs / f->kernels->inputs_per_word);
        n = (tile + height < last ? tile + height : last) - row;
        for (uint32_t i = 0; i < p->n_fixed; i++)
            f->kernels->fix_inputs(p->fixed[i].type, n_inputs, x, height, row - tile, n,
                                   f->fixed + p->fixed[i].start + (size_t)tile * row_words(f, p->fixed[i].type));
    }
}

const int32_t *forward_fixed_rows(struct forward *f, uint32_t worker, const float *tiles)
{
    const struct product *p = &f->product;
    int32_t *own = f->scratch[worker].fixed;
    if (!p->fixes_own)
        return p->n_fixed > 0 ? f->fixed : NULL;
    for (uint32_t i = 0; i < p->n_fixed; i++)
        f->kernels->fix_inputs(p->fixed[i].type, p->parts[0]->n_inputs, tiles, p->n_rows, 0, p->n_rows, own + p->fixed[i].start);
    return own;
}

const int32_t *forward_fixed_tile(const struct forward *f, const int32_t *fixed, enum weight_type type, uint32_t row)
{
    const struct fixed_tiles *tiles = find_type(&f->product, type);
    return tiles ? fixed + tiles->start + (size_t)row * row_words(f, type) : NULL;
}
