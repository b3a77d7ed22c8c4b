# Sampling is a library of its own: pure functions that any backend may use. The row kernels need the vectoriser, which keeps away from
# comparisons that might trap unless told that nobody looks at traps; values stay the same.
hearsay_library(sample
    sample.c
    sample_filter.c
    sample_kernels.c
    LIBS hearsay_base m)
set_source_files_properties(sample_kernels.c PROPERTIES COMPILE_OPTIONS "-O3;-fno-trapping-math")
