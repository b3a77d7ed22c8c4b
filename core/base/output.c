#include "core/base/output.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int output_finish(const char *program)
{
    if (!fflush(stdout) && !ferror(stdout))
        return 0;
    fprintf(stderr, "%s: the output cannot be written: %s\n", program, strerror(errno));
    return 1;
}
