/*
 * Scalar conversions between float and the two 16-bit formats. Every vector path converts with the same rounding (to
 * nearest, ties to even), so a stored value does not depend on the path that stored it. Pure; any thread.
 */
#ifndef HEARSAY_CPU_HALF_H
#define HEARSAY_CPU_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* IEEE binary16 to float, exactly. */
static inline float half_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t magnitude = half & 0x7fffu;
    /* Placed 13 bits up, exponent and mantissa sit where float has them, biased by 15 instead of 127: multiplying by 2^112
     * corrects the bias, and makes normal numbers of binary16's subnormals on the way. */
    float scaled = float_from_bits(magnitude << 13) * 0x1p112f;
    uint32_t bits = float_bits(scaled);
    if (magnitude >= 0x7c00u) /* infinity and NaN keep an exponent of all ones */
        bits |= 0x7f800000u;
    return float_from_bits(bits | sign);
}

/* Float to IEEE binary16, nearest even; overflow gives infinity, NaN stays NaN. */
static inline uint16_t half_from_float(float value)
{
    uint32_t bits = float_bits(value);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u) /* 65,520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {
        /* Below 2^-14: adding 0.5 makes the hardware round at 2^-24, the spacing of binary16's subnormals. */
        float shifted = float_from_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (float_bits(shifted) - 0x3f000000u));
    }
    uint32_t odd = magnitude >> 13 & 1u;
    return (uint16_t)(sign | (magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

static inline float bfloat_to_float(uint16_t bfloat)
{
    return float_from_bits((uint32_t)bfloat << 16);
}

/* Float to bfloat16, nearest even; exact for values that came from bfloat16. NaN stays NaN. */
static inline uint16_t bfloat_from_float(float value)
{
    uint32_t bits = float_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

#endif
