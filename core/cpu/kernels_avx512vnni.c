/* See kernels_avx512_floats.h. */
#define KERNELS_NAME "avx512vnni"
#include "core/cpu/kernels_avx512_floats.h"

const struct cpu_kernels *cpu_kernels_avx512vnni(void)
{
    const struct cpu_kernels *kernels = table_if_supported();
    return __builtin_cpu_supports("avx512vnni") ? kernels : NULL;
}
