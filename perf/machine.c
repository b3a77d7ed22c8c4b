#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "perf/report.h"

/* The first "model name" of /proc/cpuinfo, or the architecture where there is none. */
static void cpu_name(char *out, size_t cap, const struct utsname *system)
{
    char line[256];
    snprintf(out, cap, "%s", system->machine);
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (!file)
        return;
    while (fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(out, cap, "%s", colon + 1 + strspn(colon + 1, " "));
        break;
    }
    fclose(file);
}

json_t *machine_describe(void)
{
    struct utsname system;
    char cpu[256], kernel[sizeof system.sysname + sizeof system.release + 1];
    if (uname(&system) != 0)
        memset(&system, 0, sizeof system);
    cpu_name(cpu, sizeof cpu, &system);
    snprintf(kernel, sizeof kernel, "%s %s", system.sysname, system.release);
    json_int_t memory = (json_int_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    return json_pack("{s:s, s:I, s:I, s:s}", "cpu", cpu, "cores", (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "memory", memory,
                     "kernel", kernel);
}
