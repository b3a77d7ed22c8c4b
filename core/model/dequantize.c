#include "core/model/dequantize.h"

#include <string.h>

#include "core/base/panic.h"
#include "core/model/w4.h"

enum { SUPER_BLOCK = 256 }; /* values in a block of the K formats */

float float_from_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

float float_from_f16(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t exponent = (bits >> 10) & 0x1fu;
    uint32_t mantissa = bits & 0x3ffu;
    uint32_t wide;
    float value;

    if (exponent == 0) { /* zero or subnormal: mantissa x 2^-24 is exact in float */
        value = (float)mantissa * 0x1p-24f;
        memcpy(&wide, &value, sizeof wide);
        wide |= sign;
    } else if (exponent == 0x1f) {
        wide = sign | 0x7f800000u | (mantissa << 13);
    } else {
        wide = sign | ((exponent + 112) << 23) | (mantissa << 13);
    }
    memcpy(&value, &wide, sizeof value);
    return value;
}

uint16_t f16_from_float(float value)
{
    uint32_t wide;
    memcpy(&wide, &value, sizeof wide);
    uint32_t sign = wide >> 16 & 0x8000u, magnitude = wide & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u); /* NaN */
    if (magnitude >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u); /* 65,520 and above round to infinity */
    if (magnitude < 0x38800000u) {
        /* Below 2^-14 spacing is 2^-24, which is that of floats from 0.5 to 1: adding 0.5 rounds there. */
        float shifted;
        memcpy(&shifted, &magnitude, sizeof shifted);
        shifted += 0.5f;
        memcpy(&wide, &shifted, sizeof wide);
        return (uint16_t)(sign | (wide - 0x3f000000u));
    }
    uint32_t odd = magnitude >> 13 & 1u;
    return (uint16_t)(sign | (magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

static uint32_t load_u32(const uint8_t *p)
{
    uint32_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

static float load_f16(const uint8_t *p)
{
    return float_from_f16(load_u16(p));
}

/* Each block_* turns one block into its values. Layouts are drawn as [bytes] in order. */

static void block_f32(const uint8_t *block, float *out)
{
    memcpy(out, block, sizeof *out);
}

static void block_f16(const uint8_t *block, float *out)
{
    *out = load_f16(block);
}

static void block_bf16(const uint8_t *block, float *out)
{
    *out = float_from_bf16(load_u16(block));
}

/* [2 scale][32 signed bytes] */
static void block_q8_0(const uint8_t *block, float *out)
{
    float scale = load_f16(block);
    for (int i = 0; i < 32; i++)
        out[i] = (float)(int8_t)block[2 + i] * scale;
}

/* [2 scale][16: low nibbles are values 0-15, high nibbles 16-31], offset 8 */
static void block_q4_0(const uint8_t *block, float *out)
{
    float scale = load_f16(block);
    for (int i = 0; i < 16; i++) {
        out[i] = (float)((block[2 + i] & 15) - 8) * scale;
        out[i + 16] = (float)((block[2 + i] >> 4) - 8) * scale;
    }
}

/* [2 scale][2 minimum][16 nibbles as above] */
static void block_q4_1(const uint8_t *block, float *out)
{
    float scale = load_f16(block), minimum = load_f16(block + 2);
    for (int i = 0; i < 16; i++) {
        out[i] = (float)(block[4 + i] & 15) * scale + minimum;
        out[i + 16] = (float)(block[4 + i] >> 4) * scale + minimum;
    }
}

/* [2 scale][4: bit i is the fifth bit of value i][16 nibbles], offset 16 */
static void block_q5_0(const uint8_t *block, float *out)
{
    float scale = load_f16(block);
    uint32_t high = load_u32(block + 2);
    for (int i = 0; i < 16; i++) {
        int low = (block[6 + i] & 15) | (int)((high >> i & 1) << 4);
        int top = (block[6 + i] >> 4) | (int)((high >> (i + 16) & 1) << 4);
        out[i] = (float)(low - 16) * scale;
        out[i + 16] = (float)(top - 16) * scale;
    }
}

/* [2 scale][2 minimum][4 fifth bits][16 nibbles] */
static void block_q5_1(const uint8_t *block, float *out)
{
    float scale = load_f16(block), minimum = load_f16(block + 2);
    uint32_t high = load_u32(block + 4);
    for (int i = 0; i < 16; i++) {
        int low = (block[8 + i] & 15) | (int)((high >> i & 1) << 4);
        int top = (block[8 + i] >> 4) | (int)((high >> (i + 16) & 1) << 4);
        out[i] = (float)low * scale + minimum;
        out[i + 16] = (float)top * scale + minimum;
    }
}

void tensor_unpack_scale_min(const uint8_t *packed, int j, int *scale, int *minimum)
{
    if (j < 4) {
        *scale = packed[j] & 63;
        *minimum = packed[j + 4] & 63;
    } else {
        *scale = (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
        *minimum = (packed[j + 4] >> 4) | (packed[j] >> 6) << 4;
    }
}

/* [2 scale][2 scale of minima][12 group scales and minima][128 nibbles: 32 bytes hold groups 2j (low) and 2j+1 (high)] */
static void block_q4_k(const uint8_t *block, float *out)
{
    float d = load_f16(block), d_min = load_f16(block + 2);
    for (int j = 0; j < 8; j++) {
        int scale, minimum;
        tensor_unpack_scale_min(block + 4, j, &scale, &minimum);
        float step = d * (float)scale, base = d_min * (float)minimum;
        const uint8_t *nibbles = block + 16 + 32 * (j / 2);
        for (int i = 0; i < 32; i++)
            out[32 * j + i] = step * (float)(nibbles[i] >> 4 * (j & 1) & 15) - base;
    }
}

/* [2][2][12 as Q4_K][32 fifth bits: bit j of byte i belongs to value i of group j][128 nibbles] */
static void block_q5_k(const uint8_t *block, float *out)
{
    float d = load_f16(block), d_min = load_f16(block + 2);
    const uint8_t *high = block + 16;
    for (int j = 0; j < 8; j++) {
        int scale, minimum;
        tensor_unpack_scale_min(block + 4, j, &scale, &minimum);
        float step = d * (float)scale, base = d_min * (float)minimum;
        const uint8_t *nibbles = block + 48 + 32 * (j / 2);
        for (int i = 0; i < 32; i++) {
            int q = (nibbles[i] >> 4 * (j & 1) & 15) | (high[i] >> j & 1) << 4;
            out[32 * j + i] = step * (float)q - base;
        }
    }
}

/* [128 low nibbles][64 upper bit pairs][16 signed group scales][2 scale]; two halves of 128 values, groups of 16, offset 32 */
static void block_q6_k(const uint8_t *block, float *out)
{
    float d = load_f16(block + 208);
    const uint8_t *scales = block + 192;
    for (int half = 0; half < 2; half++) {
        const uint8_t *low = block + 64 * half, *high = block + 128 + 32 * half;
        for (int i = 0; i < 128; i++) {
            int quarter = i / 32, lane = i % 32;
            int nibble = low[lane + 32 * (quarter & 1)] >> 4 * (quarter >> 1) & 15;
            int q = (nibble | (high[lane] >> 2 * quarter & 3) << 4) - 32;
            float step = d * (float)(int8_t)scales[8 * half + i / 16];
            out[128 * half + i] = step * (float)q;
        }
    }
}

static const struct {
    struct tensor_format format;
    void (*block)(const uint8_t *block, float *out);
} formats[] = {
    [TENSOR_F32] = {{"F32", 1, 4}, block_f32},
    [TENSOR_F16] = {{"F16", 1, 2}, block_f16},
    [TENSOR_BF16] = {{"BF16", 1, 2}, block_bf16},
    [TENSOR_Q8_0] = {{"Q8_0", 32, 34}, block_q8_0},
    [TENSOR_Q4_0] = {{"Q4_0", 32, 18}, block_q4_0},
    [TENSOR_Q4_1] = {{"Q4_1", 32, 20}, block_q4_1},
    [TENSOR_Q5_0] = {{"Q5_0", 32, 22}, block_q5_0},
    [TENSOR_Q5_1] = {{"Q5_1", 32, 24}, block_q5_1},
    [TENSOR_Q4_K] = {{"Q4_K", SUPER_BLOCK, 144}, block_q4_k},
    [TENSOR_Q5_K] = {{"Q5_K", SUPER_BLOCK, 176}, block_q5_k},
    [TENSOR_Q6_K] = {{"Q6_K", SUPER_BLOCK, 210}, block_q6_k},
};

const struct tensor_format *tensor_format(enum tensor_type type)
{
    if ((unsigned)type >= sizeof formats / sizeof formats[0] || !formats[type].format.name)
        return NULL;
    return &formats[type].format;
}

const char *tensor_format_names(void)
{
    return "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, W4";
}

bool tensor_row_bytes(enum tensor_type type, uint64_t cols, uint64_t *bytes)
{
    const struct tensor_format *format = tensor_format(type);
    struct w4_layout layout;
    if (w4_layout_of(type, &layout)) {
        if (cols % W4_ROW_UNIT)
            return false;
        *bytes = w4_row_bytes(layout, cols); /* less than cols */
        return true;
    }
    if (!format || cols % format->block_elements)
        return false;
    if (__builtin_mul_overflow(cols / format->block_elements, (uint64_t)format->block_bytes, bytes))
        *bytes = UINT64_MAX;
    return true;
}

static void dequantize_w4(const struct tensor_view *t, struct w4_layout layout, uint32_t first_row, uint32_t n_rows, float *out)
{
    const uint64_t row_bytes = w4_row_bytes(layout, t->cols);
    for (uint64_t row = first_row; row < (uint64_t)first_row + n_rows; row++, out += t->cols)
        w4_dequantize_row(layout, (const uint8_t *)t->data + row * row_bytes, t->cols, out);
}

void dequantize_rows(const struct tensor_view *t, uint32_t first_row, uint32_t n_rows, float *out)
{
    const struct tensor_format *format = tensor_format(t->type);
    struct w4_layout layout;
    hs_assert(first_row <= t->rows && n_rows <= t->rows - first_row);
    if (w4_layout_of(t->type, &layout)) {
        dequantize_w4(t, layout, first_row, n_rows, out);
        return;
    }
    hs_assert(format && t->cols % format->block_elements == 0);

    uint64_t blocks_per_row = t->cols / format->block_elements;
    const uint8_t *block = (const uint8_t *)t->data + first_row * blocks_per_row * format->block_bytes;
    if (t->type == TENSOR_F32) {
        memcpy(out, block, n_rows * blocks_per_row * format->block_bytes);
        return;
    }
    for (uint64_t n = n_rows * blocks_per_row; n; n--) {
        formats[t->type].block(block, out);
        block += format->block_bytes;
        out += format->block_elements;
    }
}
