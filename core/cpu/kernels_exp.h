/* Part of kernels_body.h: exponentials, and what is made of them outside of attention. */
#ifndef HEARSAY_CPU_KERNELS_EXP_H
#define HEARSAY_CPU_KERNELS_EXP_H

/*
 * 2^x = 2^n p(x - n) with n the nearest integer and p a polynomial; exactly 1 at 0. Below 2^-126 paths without an instruction for
 * it give 2^-126. Coefficients: least largest relative error over [-1/2, 1/2] with the constant 1 given, 1.0e-4 for degree 3 (a
 * weight in bfloat16 has 2e-3), 1.6e-7 in float32 for degree 5; by iteratively reweighted least squares over 4,001 points.
 */
KERNEL_INLINE vec vec_exp2(vec x)
{
    static const float degree_3[] = {0x1.c2a22cp-5f, 0x1.f00c5ap-3f, 0x1.62f5fcp-1f};
    static const float degree_5[] = {0x1.5bba1ap-10f, 0x1.3cea8ap-7f, 0x1.c6b752p-5f, 0x1.ebf9bcp-3f, 0x1.62e42ap-1f};
    const float *coefficients = INPUTS_PER_WORD == 2 ? degree_3 : degree_5;
    const uint32_t degree = INPUTS_PER_WORD == 2 ? 3 : 5;
    x = vec_within_exponents(x);
    vec n = vec_round(x), f = vec_subtract(x, n);
    vec y = vec_broadcast(coefficients[0]);
    UNROLL for (uint32_t i = 1; i < degree; i++) y = vec_multiply_add(y, f, vec_broadcast(coefficients[i]));
    return vec_scale_pow2(vec_multiply_add(y, f, vec_broadcast(1.0f)), n);
}

/*
 * e^x for x clamped to [-87, 88]: x = n ln 2 + r with |r| <= ln 2 / 2, then a polynomial of degree 7 in r (coefficients:
 * Moshier, Cephes expf) times 2^n. Relative error below 2e-7; exactly 1 at 0. What becomes bfloat16 does with less.
 */
KERNEL_INLINE vec vec_exp(vec x)
{
    x = vec_min(vec_max(x, vec_broadcast(-87.0f)), vec_broadcast(88.0f));
    if (INPUTS_PER_WORD == 2)
        return vec_exp2(vec_multiply(x, vec_broadcast(1.44269504088896341f)));
    vec n = vec_round(vec_multiply(x, vec_broadcast(1.44269504088896341f)));
    vec r = vec_multiply_add(n, vec_broadcast(-0.693359375f), x);
    r = vec_multiply_add(n, vec_broadcast(2.12194440e-4f), r);
    vec y = vec_broadcast(1.9875691500e-4f);
    y = vec_multiply_add(y, r, vec_broadcast(1.3981999507e-3f));
    y = vec_multiply_add(y, r, vec_broadcast(8.3334519073e-3f));
    y = vec_multiply_add(y, r, vec_broadcast(4.1665795894e-2f));
    y = vec_multiply_add(y, r, vec_broadcast(1.6666665459e-1f));
    y = vec_multiply_add(y, r, vec_broadcast(5.0000001201e-1f));
    y = vec_multiply_add(y, vec_multiply(r, r), r);
    return vec_scale_pow2(vec_add(y, vec_broadcast(1.0f)), n);
}

static void silu_multiply(const float *gate, const float *up, float *out, uint32_t n)
{
    const vec one = vec_broadcast(1.0f);
    for (uint32_t i = 0; i < n; i += LANES) {
        vec g = vec_load(gate + i);
        vec divisor = vec_add(one, vec_exp(vec_multiply(g, vec_broadcast(-1.0f))));
        vec_store(out + i, vec_multiply(vec_divide(g, divisor), vec_load(up + i)));
    }
}

#endif
