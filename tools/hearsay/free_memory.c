#include "tools/hearsay/free_memory.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 4096 };

/* One version of control groups. */
struct hierarchy {
    const char *type; /* of file system */
    const char *limits[2];
    const char *usage;
    const char *cached[2]; /* in memory.stat, of the groups below, too */
};

static const struct hierarchy version_1 = {
    "cgroup", {"memory.limit_in_bytes"}, "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};
static const struct hierarchy version_2 = {
    "cgroup2", {"memory.max", "memory.high"}, "memory.current", {"inactive_file", "active_file"}};

/* The number behind name in a file of lines "name number"; name "": the number that begins the file. false: there is none ("max"). */
static bool read_number(const char *path, const char *name, uint64_t *out)
{
    char line[LINE_BYTES], *end;
    const size_t n = strlen(name);
    bool found = false;
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        const uint64_t number = strncmp(line, name, n) == 0 ? strtoull(line + n, &end, 10) : 0;
        found = strncmp(line, name, n) == 0 && end != line + n;
        if (found)
            *out = number;
    }
    if (file)
        fclose(file);
    return found;
}

static void lower(struct free_memory *memory, uint64_t bytes, const char *under, const char *path)
{
    if (memory->bytes && memory->bytes <= bytes)
        return;
    memory->bytes = bytes ? bytes : 1; /* nothing left is known, too */
    snprintf(memory->under, sizeof memory->under, "%s%s", under, path);
}

static void look_at_group(const struct hierarchy *h, const char *root, const char *group, struct free_memory *out)
{
    char path[PATH_MAX];
    uint64_t limit, used, cached;
    snprintf(path, sizeof path, "%s%s/%s", root, group, h->usage);
    if (!read_number(path, "", &used))
        return;
    snprintf(path, sizeof path, "%s%s/memory.stat", root, group);
    for (int c = 0; c < 2; c++) {
        if (read_number(path, h->cached[c], &cached))
            used = used > cached ? used - cached : 0;
    }
    for (int i = 0; i < 2 && h->limits[i]; i++) {
        snprintf(path, sizeof path, "%s%s/%s", root, group, h->limits[i]);
        if (read_number(path, "", &limit))
            lower(out, limit > used ? limit - used : 0, "under ", path + strlen(root));
    }
}

static bool lists(const char *words, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += n) {
        if ((at == words || at[-1] == ',') && (at[n] == '\0' || at[n] == ','))
            return true;
    }
    return false;
}

/*
 * Where the process sees the hierarchy, from a line of mountinfo (proc(5)):
 *     31 23 0:28 /docker/5f /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
 */
static bool is_mount(const struct hierarchy *h, const char *line, char top[LINE_BYTES], char point[LINE_BYTES])
{
    char type[64], options[LINE_BYTES];
    const char *rest = strstr(line, " - ");
    return rest && sscanf(line, "%*s %*s %*s %4095s %4095s", top, point) == 2 &&
           sscanf(rest, " - %63s %*s %4095s", type, options) == 2 && strcmp(type, h->type) == 0 &&
           (h == &version_2 || lists(options, "memory"));
}

/* Every group from the process's own up to the highest that it sees. */
static void look_at_groups(const struct hierarchy *h, const char *root, const char *own, struct free_memory *out)
{
    char path[PATH_MAX], line[LINE_BYTES], top[LINE_BYTES], point[LINE_BYTES], group[2 * LINE_BYTES];
    bool found = false;
    snprintf(path, sizeof path, "%s/proc/self/mountinfo", root);
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof line, file))
        found = is_mount(h, line, top, point);
    if (file)
        fclose(file);
    if (!found)
        return;
    const size_t n = strcmp(top, "/") == 0 ? 0 : strlen(top);
    const bool below = strncmp(own, top, n) == 0 && own[n] == '/' && own[n + 1] != '\0' && !strstr(own, "/..");
    snprintf(group, sizeof group, "%s%s", point, below ? own + n : ""); /* else it is the highest itself, or not to be seen from here */
    look_at_group(h, root, group, out);
    while (strlen(group) > strlen(point)) {
        *strrchr(group, '/') = '\0';
        look_at_group(h, root, group, out);
    }
}

void free_memory_read(const char *root, struct free_memory *out)
{
    char path[PATH_MAX], line[LINE_BYTES];
    uint64_t kib;
    *out = (struct free_memory){0};
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (read_number(path, "MemAvailable:", &kib))
        lower(out, kib * 1024, "on this machine", "");
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) { /* "4:memory:/docker/5f", "0::/" */
        char *controllers = strchr(line, ':'), *own = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!own)
            continue;
        *own++ = '\0';
        own[strcspn(own, "\n")] = '\0';
        if (lists(controllers + 1, "memory"))
            look_at_groups(&version_1, root, own, out);
        else if (strcmp(line, "0:") == 0)
            look_at_groups(&version_2, root, own, out);
    }
    if (file)
        fclose(file);
}
