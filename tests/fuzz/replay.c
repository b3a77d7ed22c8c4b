/*
 * Runs every saved input through its target: fuzz_replay [TARGET [FILE...]]. Without a file the target's whole corpus, without a
 * target all of them. A fault ends the process; the line before it on standard error names the input.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

struct target {
    const char *name;
    int (*run)(const uint8_t *data, size_t len);
};

#define FUZZ_ROW(name) {#name, fuzz_##name},
static const struct target targets[] = {FUZZ_TARGETS(FUZZ_ROW)};
#undef FUZZ_ROW

static bool run_file(const struct target *target, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return false;
    }
    char *data = NULL;
    size_t len = 0;
    FILE *memory = open_memstream(&data, &len);
    hs_assert(memory);
    for (int c; (c = getc(file)) != EOF;)
        putc(c, memory);
    fclose(memory);
    fclose(file);
    fprintf(stderr, "%s %s\n", target->name, path);
    uint8_t *exact = fuzz_copy(data, len);
    free(data);
    target->run(exact, len);
    free(exact);
    return true;
}

static int is_input(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* How many inputs, or -1. */
static int run_corpus(const struct target *target)
{
    char folder[512], path[1024];
    struct dirent **entries;
    snprintf(folder, sizeof folder, FUZZ_SOURCE_DIR "/tests/fuzz/corpus/%s", target->name);
    int n = scandir(folder, &entries, is_input, alphasort);
    if (n <= 0) {
        fprintf(stderr, "%s: no inputs\n", folder);
        return -1;
    }
    bool good = true;
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        good = run_file(target, path) && good;
        free(entries[i]);
    }
    free(entries);
    target->run((const uint8_t *)"", 0);
    return good ? n : -1;
}

int main(int argc, char **argv)
{
    int failed = 0, known = 0;
    fuzz_init();
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        if (argc > 1 && strcmp(argv[1], targets[i].name) != 0)
            continue;
        known++;
        if (argc > 2) {
            for (int k = 2; k < argc; k++)
                failed += !run_file(&targets[i], argv[k]);
            continue;
        }
        int n = run_corpus(&targets[i]);
        failed += n < 0;
        printf("%-12s %d inputs\n", targets[i].name, n);
    }
    if (!known)
        fprintf(stderr, "fuzz_replay: %s: no such target\n", argv[1]);
    return failed || !known;
}
