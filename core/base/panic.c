#include "core/base/panic.h"

#include <stdio.h>
#include <stdlib.h>

void panic(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: invariant broken: %s\n", file, line, what);
    abort();
}
