/* sim_world: one simulated world from the command line, to look for and to repeat failures. */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/log.h"
#include "core/base/options.h"
#include "core/base/parse.h"
#include "tests/sim/world.h"

struct settings {
    struct world_config world;
    uint64_t worlds; /* run with seed, seed + 1, ... */
};

#define NUMBER_OPTION(name, target, min, max)                                                                                      \
    static int set_##name(void *config, const char *text, struct error *err)                                                       \
    {                                                                                                                              \
        uint64_t value;                                                                                                            \
        int status = parse_u64(text, min, max, &value, err);                                                                       \
        if (status == 0)                                                                                                           \
            ((struct settings *)config)->target = (typeof(((struct settings *)0)->target))value;                                   \
        return status;                                                                                                             \
    }

#define SHARE_OPTION(name)                                                                                                         \
    static int set_##name(void *config, const char *text, struct error *err)                                                       \
    {                                                                                                                              \
        return parse_double(text, 0, 1, &((struct settings *)config)->world.name, err);                                            \
    }

#define TIME_OPTION(name)                                                                                                          \
    static int set_##name(void *config, const char *text, struct error *err)                                                       \
    {                                                                                                                              \
        return parse_duration(text, &((struct settings *)config)->world.name##_ns, err);                                           \
    }

NUMBER_OPTION(seed, world.seed, 0, UINT64_MAX)
NUMBER_OPTION(worlds, worlds, 1, 1000000)
NUMBER_OPTION(nodes, world.n_nodes, 1, 16)
NUMBER_OPTION(requests, world.n_requests, 1, 1000000)
NUMBER_OPTION(crash, world.crashes, 0, 1000)
NUMBER_OPTION(drain, world.drains, 0, 1000)
NUMBER_OPTION(cut, world.cuts, 0, 1000)
NUMBER_OPTION(pages, world.n_pages, 64, 1000000)
NUMBER_OPTION(sequences, world.max_sequences, 1, 256)
SHARE_OPTION(loss)
SHARE_OPTION(duplicate)
SHARE_OPTION(reorder)
TIME_OPTION(delay)
TIME_OPTION(jitter)

static int set_rate(void *config, const char *text, struct error *err)
{
    return parse_double(text, 0.001, 1e6, &((struct settings *)config)->world.rate_per_s, err);
}

static int set_route(void *config, const char *text, struct error *err)
{
    ((struct settings *)config)->world.route = text;
    return 0;
}

static int set_verbose(void *config, const char *text, struct error *err)
{
    ((struct settings *)config)->world.verbose = true;
    log_setup(LOG_LEVEL_DEBUG, LOG_FORMAT_TEXT);
    return 0;
}

static const struct option_spec SPECS[] = {
    {"seed", "N", "First seed (1)", "World", set_seed},
    {"worlds", "N", "Worlds to run, one seed after the other (1)", NULL, set_worlds},
    {"nodes", "N", "Nodes (4)", NULL, set_nodes},
    {"requests", "N", "Requests (200); each is asked again at the end", NULL, set_requests},
    {"rate", "R", "Requests per second of virtual time (60)", NULL, set_rate},
    {"pages", "N", "KV pages of each node (192)", NULL, set_pages},
    {"sequences", "N", "Sequences in a batch (16)", NULL, set_sequences},
    {"route", "MODE", "cost, longest or none (cost)", NULL, set_route},
    {"crash", "N", "Crashes, each followed by a restart (0)", "Trouble", set_crash},
    {"drain", "N", "Drains, each followed by an opening (0)", NULL, set_drain},
    {"cut", "N", "Pairs of nodes that lose sight of each other for a while (0)", NULL, set_cut},
    {"loss", "P", "Share of datagrams lost (0.01)", NULL, set_loss},
    {"duplicate", "P", "Share of datagrams doubled (0.01)", NULL, set_duplicate},
    {"reorder", "P", "Share of datagrams held back (0.01)", NULL, set_reorder},
    {"delay", "TIME", "One way (200us)", NULL, set_delay},
    {"jitter", "TIME", "Added to it at random (100us)", NULL, set_jitter},
    {"verbose", NULL, "Show the nodes' logs and the crashes", "Output", set_verbose},
};

int main(int argc, char **argv)
{
    struct settings settings = {.worlds = 1};
    struct error err = {0};
    world_defaults(&settings.world);
    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    const struct options options = {.program = "sim_world",
                                    .description = "Runs simulated groups of nodes and checks every answer.",
                                    .version = HEARSAY_VERSION,
                                    .specs = SPECS,
                                    .n_specs = sizeof SPECS / sizeof *SPECS};
    int status = options_parse(&options, argc, argv, &settings, &err);
    if (status > 0)
        return 0;
    if (status < 0) {
        fprintf(stderr, "sim_world: %s\n", err.text);
        return 2;
    }
    uint32_t failures = 0;
    for (uint64_t i = 0; i < settings.worlds; i++, settings.world.seed++) {
        struct world_result r;
        status = world_run(&settings.world, &r);
        if (status < 0)
            fprintf(stderr, "sim_world: %s\n", error_name(status));
        failures += r.failures + (status < 0);
        printf("seed %llu: %s, answered %u, canceled %u, timed out %u, too slow %u, entry gone %u, refused %u, forwarded %u, "
               "takeovers %llu, preemptions %llu, "
               "tokens %llu, cached %.0f %%, %.2f s, %llu steps, trace %016llx\n",
               (unsigned long long)settings.world.seed, r.failures ? "BROKEN" : "good", r.answered, r.canceled, r.timed_out,
               r.too_slow, r.crashed, r.refused, r.forwarded, (unsigned long long)r.takeovers, (unsigned long long)r.preemptions,
               (unsigned long long)r.tokens, r.prompt_tokens ? 100.0 * (double)r.cached_tokens / (double)r.prompt_tokens : 0,
               (double)r.virtual_ns / 1e9, (unsigned long long)r.steps, (unsigned long long)r.trace);
    }
    return failures ? 1 : 0;
}
