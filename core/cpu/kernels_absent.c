/* Stands in for the x86 paths where the compiler's target has none. */
#include "core/cpu/kernels.h"

const struct cpu_kernels *cpu_kernels_avx2(void)
{
    return NULL;
}

const struct cpu_kernels *cpu_kernels_avx512(void)
{
    return NULL;
}

const struct cpu_kernels *cpu_kernels_avx512vnni(void)
{
    return NULL;
}

const struct cpu_kernels *cpu_kernels_avx512bf16(void)
{
    return NULL;
}
