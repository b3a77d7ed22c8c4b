/*
 * log and exp for sampling, in plain double arithmetic (+ - * / in the order written, no contraction), so that every IEEE machine
 * gets the same bits; a C library's differ in the last place between versions and between its own code paths. Relative error below
 * 1e-15. Vectorisable: no branches, no table.
 */
#ifndef HEARSAY_CPU_SAMPLE_MATH_H
#define HEARSAY_CPU_SAMPLE_MATH_H

#include <stdint.h>
#include <string.h>

static inline double sample_from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint64_t sample_to_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

#define SAMPLE_LN2_HIGH 0x1.62e42fee00000p-1 /* 33 bits: exact when multiplied by a small whole number */
#define SAMPLE_LN2_LOW  0x1.a39ef35793c76p-33

/* e^x; below -708 (and for NaN) e^-708, which no sum notices; x at most 709. */
static inline double sample_exp(double x)
{
    const double to_whole = 0x1.8p52; /* adding it leaves the nearest whole number in the low bits */
    x = x > -708.0 ? x : -708.0;
    double shifted = x * 0x1.71547652b82fep0 + to_whole;
    double k = shifted - to_whole;
    double r = (x - k * SAMPLE_LN2_HIGH) - k * SAMPLE_LN2_LOW; /* |r| <= ln 2 / 2 */
    double p = 1.0 / 6227020800.0;                             /* Taylor's series to r^13 */
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    uint64_t power = (sample_to_bits(shifted) + 1023) << 52; /* 2^k */
    return p * sample_from_bits(power);
}

/* Natural logarithm of a positive, normal x. */
static inline double sample_log(double x)
{
    uint64_t bits = sample_to_bits(x);
    /* x = 2^k * m, m in [sqrt(1/2), sqrt(2)) */
    int64_t k = (int64_t)((bits - 0x3fe6a09e667f3bcdu) >> 52);
    k = k >= 2048 ? k - 4096 : k; /* the shift of a negative difference left 12 bits */
    double f = sample_from_bits(bits - ((uint64_t)k << 52)) - 1.0;
    double s = f / (2.0 + f), z = s * s; /* log(1 + f) = 2 atanh(s), |s| < 0.172 */
    double p = 1.0 / 23.0;
    p = p * z + 1.0 / 21.0;
    p = p * z + 1.0 / 19.0;
    p = p * z + 1.0 / 17.0;
    p = p * z + 1.0 / 15.0;
    p = p * z + 1.0 / 13.0;
    p = p * z + 1.0 / 11.0;
    p = p * z + 1.0 / 9.0;
    p = p * z + 1.0 / 7.0;
    p = p * z + 1.0 / 5.0;
    p = p * z + 1.0 / 3.0;
    double log_m = 2.0 * s + 2.0 * s * z * p;
    return (double)k * SAMPLE_LN2_HIGH + ((double)k * SAMPLE_LN2_LOW + log_m);
}

#endif
