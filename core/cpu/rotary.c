#include "core/cpu/rotary.h"

/* Taylor to r^17 and r^16, each term the one before times -r^2 / divisor; what is left out is below 2^-56 for |r| <= pi/4. */
enum { TERMS = 8 };
static const double sine_divisors[TERMS] = {2 * 3, 4 * 5, 6 * 7, 8 * 9, 10 * 11, 12 * 13, 14 * 15, 16 * 17};
static const double cosine_divisors[TERMS] = {1 * 2, 3 * 4, 5 * 6, 7 * 8, 9 * 10, 11 * 12, 13 * 14, 15 * 16};

void rotary_sin_cos(double x, double *sine, double *cosine)
{
    /* x = n pi/2 + r, |r| <= pi/4. The first part of pi/2 has 33 bits, so that n times it is exact (Cody and Waite). */
    const double first = 0x1.921fb544p0, second = 0x1.0b4611a626331p-34;
    double n = (x * 0x1.45f306dc9c883p-1 + 0x1.8p52) - 0x1.8p52; /* nearest integer */
    double r = (x - n * first) - n * second;
    double r2 = r * r;
    double s = 1.0, c = 1.0;
    for (int i = TERMS - 1; i >= 0; i--) {
        s = 1.0 - r2 / sine_divisors[i] * s;
        c = 1.0 - r2 / cosine_divisors[i] * c;
    }
    s *= r;
    switch ((int64_t)n & 3) {
    case 0:
        *sine = s, *cosine = c;
        break;
    case 1:
        *sine = c, *cosine = -s;
        break;
    case 2:
        *sine = -s, *cosine = -c;
        break;
    default:
        *sine = -c, *cosine = s;
    }
}

void rotary_table(const struct model_desc *model, uint32_t position, float *table)
{
    const uint32_t pairs = model->d_head / 2;
    for (uint32_t i = 0; i < pairs; i++) {
        double sine, cosine;
        float angle = (float)position * model->rope_inv_freq[i];
        rotary_sin_cos(angle, &sine, &cosine);
        table[i] = (float)cosine * model->rope_magnitude;
        table[pairs + i] = (float)sine * model->rope_magnitude;
    }
}
