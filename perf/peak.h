/* The loops that find the machine's limits, in the widest instructions that it has. Pure; any thread. */
#ifndef HEARSAY_PERF_PEAK_H
#define HEARSAY_PERF_PEAK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads n floats (a multiple of 1024) once; returns something that hangs on all of them. */
float peak_read(const float *data, size_t n);
/* Whether the machine multiplies pairs of bfloat16. */
bool peak_has_bfloat(void);
/* Runs `iterations` rounds of independent multiply-adds of bfloat16 pairs; as peak_multiply_add. Only where peak_has_bfloat. */
uint64_t peak_multiply_add_bfloat(uint32_t iterations, float *out);
/* Runs `iterations` rounds of independent multiply-adds; returns the floating-point operations done. */
uint64_t peak_multiply_add(uint32_t iterations, float *out);

#endif
