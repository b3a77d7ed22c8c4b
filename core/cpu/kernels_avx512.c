/* See kernels_avx512_floats.h. */
#define KERNELS_NAME "avx512"
#include "core/cpu/kernels_avx512_floats.h"

const struct cpu_kernels *cpu_kernels_avx512(void)
{
    return table_if_supported();
}
