/*
 * sim_world: simulated worlds from the command line, to look for faults and to repeat them.
 *
 *     sim_world --seed 7 --crash 3 --loss 0.05      one world, as told
 *     sim_world --swarm --from 1 --count 10000      one random world for each seed; without --count for ever
 *     sim_world --regressions FILE                  the worlds of a file, one a line
 *
 * A swarm's world runs in a process of its own, so that a broken assertion or an endless loop is a failed seed like any other.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/parse.h"
#include "tests/sim/world_options.h"

enum { MAX_OPTIONS = 80, MAX_LINE = 2000, MAX_WORDS = 200, WORLD_SECONDS = 120, TRIAL_SECONDS = 10, MINIMISE_SECONDS = 90, TAIL_BYTES = 3000 };

struct settings {
    struct world_config world; /* first, so that the world's options find it */
    bool swarm, minimise;
    uint64_t from, count, worlds;
    const char *regressions;
};

static int set_swarm(void *config, const char *text, struct error *err)
{
    ((struct settings *)config)->swarm = true;
    return 0;
}

static int set_minimise(void *config, const char *text, struct error *err)
{
    ((struct settings *)config)->minimise = true;
    return 0;
}

static int set_from(void *config, const char *text, struct error *err)
{
    return parse_u64(text, 0, UINT64_MAX, &((struct settings *)config)->from, err);
}

static int set_count(void *config, const char *text, struct error *err)
{
    return parse_u64(text, 0, UINT64_MAX, &((struct settings *)config)->count, err);
}

static int set_worlds(void *config, const char *text, struct error *err)
{
    return parse_u64(text, 1, UINT64_MAX, &((struct settings *)config)->worlds, err);
}

static int set_regressions(void *config, const char *text, struct error *err)
{
    ((struct settings *)config)->regressions = text;
    return 0;
}

static const struct option_spec OWN_OPTIONS[] = {
    {.name = "swarm", .argument = NULL, .help = "A world of random sizes and troubles for each seed", .group = "Search", .set = set_swarm},
    {.name = "from", .argument = "SEED", .help = "First seed of the swarm (1)", .group = NULL, .set = set_from},
    {.name = "count", .argument = "N", .help = "Seeds of the swarm; 0: without end (0)", .group = NULL, .set = set_count},
    {.name = "worlds", .argument = "N", .help = "Worlds to run as told, with seed, seed + 1, ... (1)", .group = NULL, .set = set_worlds},
    {.name = "minimise", .argument = NULL, .help = "Take away from a failing world what it does not need to fail", .group = NULL, .set = set_minimise},
    {.name = "regressions", .argument = "FILE", .help = "Run the worlds of a file: options, then # and what went wrong there", .group = NULL, .set = set_regressions},
};
enum { N_OWN_OPTIONS = sizeof OWN_OPTIONS / sizeof *OWN_OPTIONS };

static void print_result(const struct world_config *config, const struct world_result *r)
{
    printf("seed %llu: %s, answered %u, canceled %u, timed out %u, too slow %u, too long %u, entry gone %u, refused %u, broke %u, "
           "forwarded %u, takeovers %llu, preemptions %llu, reads %llu (%llu failed), tokens %llu, cached %.0f %%, %.2f s, %llu steps, trace %016llx\n",
           (unsigned long long)config->seed, r->failures ? "BROKEN" : "good", r->answered, r->canceled, r->timed_out, r->too_slow,
           r->too_long, r->crashed, r->refused, r->broke, r->forwarded, (unsigned long long)r->takeovers,
           (unsigned long long)r->preemptions, (unsigned long long)r->reads, (unsigned long long)r->reads_failed, (unsigned long long)r->tokens,
           r->prompt_tokens ? 100.0 * (double)r->cached_tokens / (double)r->prompt_tokens : 0, (double)r->virtual_ns / 1e9,
           (unsigned long long)r->steps, (unsigned long long)r->trace);
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The end of what a world that failed had to say: the assertion, the sanitizer's report, the nodes' last errors. */
static void show_tail(FILE *said)
{
    static char tail[TAIL_BYTES];
    long end = fseek(said, 0, SEEK_END) == 0 ? ftell(said) : 0, from = end > TAIL_BYTES ? end - TAIL_BYTES : 0;
    size_t n = end > 0 && fseek(said, from, SEEK_SET) == 0 ? fread(tail, 1, TAIL_BYTES, said) : 0;
    fwrite(tail, 1, n, stderr);
}

/* Of the processor: a machine that is busy with other things breaks no world. */
static void limit_time(rlim_t seconds)
{
    setrlimit(RLIMIT_CPU, &(struct rlimit){.rlim_cur = seconds, .rlim_max = seconds + 1});
}

/* In a process of its own, which leaves its result in shared memory (NULL: nowhere); true if it kept all promises. */
static bool survives(const struct world_config *config, bool quiet, struct world_result *shared)
{
    fflush(stdout);
    fflush(stderr);
    FILE *said = tmpfile();
    pid_t child = said ? fork() : -1;
    if (child < 0) {
        fprintf(stderr, "sim_world: cannot start a world: %s\n", strerror(errno));
        if (said)
            fclose(said);
        return false;
    }
    if (child == 0) {
        struct world_result result;
        limit_time(quiet ? TRIAL_SECONDS : WORLD_SECONDS);
        dup2(fileno(said), STDERR_FILENO);
        int status = world_run(config, &result);
        if (shared)
            *shared = result;
        _exit(status < 0 || result.failures ? 1 : 0);
    }
    int status = 0;
    bool waited = waitpid(child, &status, 0) == child;
    bool good = waited && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!good && !quiet)
        show_tail(said);
    if (waited && WIFSIGNALED(status) && !quiet)
        fprintf(stderr, "seed %llu: ended by %s\n", (unsigned long long)config->seed,
                WTERMSIG(status) == SIGXCPU ? "its time limit" : strsignal(WTERMSIG(status)));
    fclose(said);
    return good;
}

/* Greedy: every simplification after which the world still fails is kept, until none is left or it has taken long enough. */
static void minimise(struct world_config *config)
{
    double until = seconds_now() + MINIMISE_SECONDS;
    bool again = true;
    while (again) {
        again = false;
        for (uint32_t step = 0; seconds_now() < until; step++) {
            struct world_config trial = *config;
            int changed = world_simplify(&trial, step);
            if (changed < 0)
                break;
            if (changed && !survives(&trial, true, NULL)) {
                *config = trial;
                again = true;
            }
        }
    }
    printf("least that fails: sim_world ");
    world_print_options(config, stdout);
    printf("\n");
}

static void report(const struct settings *settings, const struct world_config *config)
{
    printf("seed %llu is BROKEN; repeat with: sim_world ", (unsigned long long)config->seed);
    world_print_options(config, stdout);
    printf(" --verbose\n");
    struct world_config least = *config;
    if (settings->minimise)
        minimise(&least);
    fflush(stdout);
}

/* What the worlds of a swarm did, together: that troubles had an effect. */
static void add_result(struct world_result *total, const struct world_result *r)
{
    total->answered += r->answered;
    total->canceled += r->canceled;
    total->timed_out += r->timed_out;
    total->crashed += r->crashed;
    total->refused += r->refused;
    total->too_slow += r->too_slow;
    total->too_long += r->too_long;
    total->broke += r->broke;
    total->forwarded += r->forwarded;
    total->takeovers += r->takeovers;
    total->preemptions += r->preemptions;
    total->reads += r->reads;
    total->reads_failed += r->reads_failed;
    total->virtual_ns += r->virtual_ns;
}

static void print_progress(const struct settings *settings, uint64_t n, uint64_t broken, double seconds, const struct world_result *r)
{
    printf("%llu seeds from %llu, %llu broken, %.1f seeds/s; answered %u, canceled %u, timed out %u, too slow %u, too long %u, entry gone %u, "
           "refused %u, broke %u, forwarded %u, takeovers %llu, preemptions %llu, reads %llu (%llu failed), %.0f s of virtual time\n",
           (unsigned long long)n, (unsigned long long)settings->from, (unsigned long long)broken, (double)n / seconds, r->answered,
           r->canceled, r->timed_out, r->too_slow, r->too_long, r->crashed, r->refused, r->broke, r->forwarded,
           (unsigned long long)r->takeovers, (unsigned long long)r->preemptions, (unsigned long long)r->reads,
           (unsigned long long)r->reads_failed, (double)r->virtual_ns / 1e9);
    fflush(stdout);
}

static uint64_t run_swarm(const struct settings *settings)
{
    enum { PROGRESS_EVERY = 500 };
    struct world_result total = {0};
    struct world_result *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t broken = 0, n = 0;
    double start = seconds_now();
    if (shared == MAP_FAILED) {
        fprintf(stderr, "sim_world: mmap: %s\n", strerror(errno));
        return 1;
    }
    for (uint64_t seed = settings->from; !settings->count || n < settings->count; seed++) {
        struct world_config config;
        world_draw(&config, seed);
        *shared = (struct world_result){0};
        if (!survives(&config, false, shared)) {
            broken++;
            report(settings, &config);
        }
        add_result(&total, shared);
        n++;
        if (n % PROGRESS_EVERY == 0 || n == settings->count)
            print_progress(settings, n, broken, seconds_now() - start, &total);
    }
    munmap(shared, sizeof *shared);
    return broken;
}

static uint64_t run_worlds(const struct settings *settings)
{
    struct world_config config = settings->world;
    uint64_t broken = 0;
    for (uint64_t i = 0; i < settings->worlds; i++, config.seed++) {
        struct world_result result;
        int status = world_run(&config, &result);
        if (status < 0)
            fprintf(stderr, "sim_world: the world cannot be: %s\n", error_name(status));
        else
            print_result(&config, &result);
        if (status < 0 || result.failures) {
            broken++;
            report(settings, &config);
        }
    }
    return broken;
}

static int parse_options(int argc, char **argv, struct settings *settings, struct error *err)
{
    struct option_spec specs[MAX_OPTIONS];
    memcpy(specs, WORLD_OPTIONS, WORLD_N_OPTIONS * sizeof *specs);
    memcpy(specs + WORLD_N_OPTIONS, OWN_OPTIONS, sizeof OWN_OPTIONS);
    const struct options options = {.program = "sim_world",
                                    .description = "Runs simulated groups of nodes and checks every answer.",
                                    .version = HEARSAY_VERSION,
                                    .specs = specs,
                                    .n_specs = WORLD_N_OPTIONS + N_OWN_OPTIONS};
    *settings = (struct settings){.from = 1, .worlds = 1};
    world_defaults(&settings->world);
    return options_parse(&options, argc, argv, settings, err);
}

/* One line of a file of regressions; 1 if it is broken, 0 if it is good or empty, -1 if it is no command line. */
static int run_line(char *line)
{
    char *words[MAX_WORDS] = {"sim_world"};
    int n = 1;
    line[strcspn(line, "#\n")] = 0;
    for (char *rest = line, *word; n < MAX_WORDS - 1 && (word = strtok_r(rest, " \t", &rest));)
        words[n++] = word;
    if (n == 1)
        return 0;
    struct settings settings;
    struct error err = {0};
    if (parse_options(n, words, &settings, &err) != 0) {
        fprintf(stderr, "sim_world: %s\n", err.text);
        return -1;
    }
    bool good = survives(&settings.world, false, NULL);
    if (!good)
        report(&settings, &settings.world);
    return !good;
}

/* Number of broken lines, or -1. */
static int run_regressions(const char *path)
{
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "sim_world: %s: %s\n", path, strerror(errno));
        return -1;
    }
    char line[MAX_LINE];
    int broken = 0, n = 0;
    while (broken >= 0 && fgets(line, sizeof line, file)) {
        int status = run_line(line);
        broken = status < 0 ? -1 : broken + status;
        n++;
    }
    fclose(file);
    printf("%d lines of regressions, %d broken\n", n, broken);
    return broken;
}

int main(int argc, char **argv)
{
    struct settings settings;
    struct error err = {0};
    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    int status = parse_options(argc, argv, &settings, &err);
    if (status > 0)
        return 0;
    if (status < 0) {
        fprintf(stderr, "sim_world: %s\n", err.text);
        return 2;
    }
    if (settings.regressions) {
        int broken = run_regressions(settings.regressions);
        return broken < 0 ? 2 : broken > 0;
    }
    return (settings.swarm ? run_swarm(&settings) : run_worlds(&settings)) > 0;
}
