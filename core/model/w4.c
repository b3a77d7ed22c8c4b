#include "core/model/w4.h"

#include <string.h>

#include "core/base/panic.h"
#include "core/model/dequantize.h"

enum { FILE_BASE = 0x57340000, FILE_MINIMUM = 0x1000 };

static const struct {
    enum tensor_type type;
    struct w4_layout layout;
    const char *name;
} types[] = {
    {TENSOR_W4_G32, {32, false}, "W4_G32"},         {TENSOR_W4_G64, {64, false}, "W4_G64"},
    {TENSOR_W4_G128, {128, false}, "W4_G128"},      {TENSOR_W4_G32_MIN, {32, true}, "W4_G32_MIN"},
    {TENSOR_W4_G64_MIN, {64, true}, "W4_G64_MIN"}, {TENSOR_W4_G128_MIN, {128, true}, "W4_G128_MIN"},
};

enum { N_TYPES = sizeof types / sizeof types[0] };

bool w4_layout_of(enum tensor_type type, struct w4_layout *out)
{
    for (int i = 0; i < N_TYPES; i++) {
        if (types[i].type == type) {
            *out = types[i].layout;
            return true;
        }
    }
    return false;
}

enum tensor_type w4_type(struct w4_layout layout)
{
    for (int i = 0; i < N_TYPES; i++)
        if (types[i].layout.group == layout.group && types[i].layout.has_minimum == layout.has_minimum)
            return types[i].type;
    return TENSOR_NONE;
}

const char *w4_type_name(enum tensor_type type)
{
    for (int i = 0; i < N_TYPES; i++)
        if (types[i].type == type)
            return types[i].name;
    return NULL;
}

enum tensor_type w4_type_by_name(const char *name)
{
    for (int i = 0; i < N_TYPES; i++)
        if (strcmp(types[i].name, name) == 0)
            return types[i].type;
    return TENSOR_NONE;
}

uint32_t w4_file_number(enum tensor_type type)
{
    struct w4_layout layout;
    bool known = w4_layout_of(type, &layout);
    hs_assert(known);
    return FILE_BASE + layout.group + (layout.has_minimum ? FILE_MINIMUM : 0);
}

enum tensor_type w4_type_from_file(uint32_t number)
{
    for (int i = 0; i < N_TYPES; i++)
        if (w4_file_number(types[i].type) == number)
            return types[i].type;
    return TENSOR_NONE;
}

static uint32_t header_bytes(struct w4_layout layout)
{
    return layout.has_minimum ? 4 : 2;
}

uint64_t w4_row_bytes(struct w4_layout layout, uint64_t cols)
{
    hs_assert(cols % W4_ROW_UNIT == 0);
    uint64_t groups = cols / layout.group + (cols % layout.group != 0);
    return groups * header_bytes(layout) + cols / 2;
}

/* One group of a row taken apart. */
struct group {
    const uint8_t *nibbles;
    uint32_t n; /* values */
    uint16_t scale, minimum;
};

/* Takes the group in front of *row, with `left` values left in the row, and steps behind it. */
static struct group next_group(struct w4_layout layout, const uint8_t **row, uint32_t left)
{
    struct group g = {.n = left < layout.group ? left : layout.group};
    g.scale = load_u16(*row);
    g.minimum = layout.has_minimum ? load_u16(*row + 2) : 0;
    g.nibbles = *row + header_bytes(layout);
    *row = g.nibbles + g.n / 2;
    return g;
}

void w4_dequantize_row(struct w4_layout layout, const uint8_t *row, uint32_t cols, float *out)
{
    for (uint32_t at = 0; at < cols;) {
        struct group g = next_group(layout, &row, cols - at);
        const float scale = float_from_f16(g.scale), minimum = float_from_f16(g.minimum);
        for (uint32_t i = 0; i < g.n; i++) {
            int b = g.nibbles[i / 2] >> 4 * (i & 1) & 15;
            out[at + i] = layout.has_minimum ? (float)b * scale + minimum : (float)(b - 8) * scale;
        }
        at += g.n;
    }
}

void w4_read_row(struct w4_layout layout, const uint8_t *row, uint32_t cols, int8_t *integers, uint16_t *scales, uint16_t *minima)
{
    const int offset = layout.has_minimum ? 0 : 8;
    for (uint32_t at = 0; at < cols;) {
        struct group g = next_group(layout, &row, cols - at);
        for (uint32_t i = 0; i < g.n / 2; i++) {
            integers[at + 2 * i] = (int8_t)((g.nibbles[i] & 15) - offset);
            integers[at + 2 * i + 1] = (int8_t)((g.nibbles[i] >> 4) - offset);
        }
        *scales++ = g.scale;
        if (layout.has_minimum)
            *minima++ = g.minimum;
        at += g.n;
    }
}
