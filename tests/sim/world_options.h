/*
 * The world's settings as one list, from which come the command line, the command that repeats a world, and what can be
 * taken away from a failing world one by one.
 *
 *     F(kind, field, name, argument, group, least, most, help)
 */
#ifndef HEARSAY_TESTS_SIM_WORLD_OPTIONS_H
#define HEARSAY_TESTS_SIM_WORLD_OPTIONS_H

#include <stddef.h>
#include <stdio.h>

#include "core/base/options.h"
#include "tests/sim/world.h"

/* clang-format off */
#define WORLD_FIELDS(F)                                                                                          \
    F(NUMBER, nodes, "nodes", "Group", 1, WORLD_MAX_NODES, "Nodes (4)")                                          \
    F(NUMBER, requests, "requests", NULL, 1, 1000000, "Requests (200); each is asked again at the end")          \
    F(SHARE, rate, "rate", NULL, 0.001, 1e6, "Requests per second of virtual time (60)")                         \
    F(NUMBER, pages, "pages", NULL, 4, 1000000, "KV pages of 16 tokens of each node (192)")                      \
    F(NUMBER, small_pools, "small-pools", NULL, 0, WORLD_MAX_NODES, "Nodes with a quarter of that (0)")          \
    F(NUMBER, sequences, "sequences", NULL, 1, 256, "Sequences in a batch (16)")                                 \
    F(NUMBER, queue, "queue", NULL, 0, 10000, "Requests that may wait at a node; 0: as many as come (0)")        \
    F(NUMBER, push_back, "push-back", NULL, 0, 10000, "Depth of the queue at which peers keep away; 0: 8 (0)")   \
    F(NUMBER, context, "context", NULL, 16, 65536, "Tokens of the longest sequence (1024)")                      \
    F(NUMBER, head_tokens, "head", NULL, 1, 32768, "Tokens of the longest shared head (400)")                    \
    F(NUMBER, tree_bytes, "tree-bytes", NULL, 0, 1000000000, "Most memory of a prefix cache's tree; 0: 256 MiB (0)") \
    F(NUMBER, advertised, "advertised", NULL, 0, 1000000, "Most blocks that a node advertises; 0: 262144 (0)")   \
    F(NUMBER, replicas, "replicas", NULL, 0, 1000000000, "Most blocks of peers that it remembers; 0: 1048576 (0)") \
    F(TIME, gossip_ns, "gossip", NULL, 0, 0, "Interval of gossip (50ms)")                                        \
    F(NUMBER, gossip_bytes, "gossip-bytes", NULL, 1000, 1000000000, "Bytes of gossip a second to a peer (1048576)") \
    F(SHARE, cancel, "cancel", NULL, 0, 1, "Share of requests that are canceled midway (0.1)")                   \
    F(SHARE, score, "score", NULL, 0, 1, "Share of requests that want their prompt scored (0.08)")               \
    F(TIME, delay_ns, "delay", "Wire", 0, 0, "Delay one way (200us)")                                            \
    F(TIME, jitter_ns, "jitter", NULL, 0, 0, "Added to it at random (100us)")                                    \
    F(SHARE, loss, "loss", NULL, 0, 1, "Share of datagrams lost (0.01)")                                         \
    F(SHARE, duplicate, "duplicate", NULL, 0, 1, "Share of datagrams doubled (0.01)")                            \
    F(SHARE, reorder, "reorder", NULL, 0, 1, "Share of datagrams held back (0.01)")                              \
    F(SHARE, corrupt, "corrupt", NULL, 0, 1, "Share of datagrams with a flipped bit (0)")                        \
    F(NUMBER, crash, "crash", "Troubles", 0, 1000, "Crashes, each followed by a restart (0)")                    \
    F(NUMBER, leave, "leave", NULL, 0, 1000, "Orderly stops, each followed by a start (0)")                      \
    F(NUMBER, drain, "drain", NULL, 0, 1000, "Drains, each followed by an opening (0)")                          \
    F(NUMBER, flush, "flush", NULL, 0, 1000, "Flushes of a prefix cache (0)")                                    \
    F(NUMBER, stop, "stop", NULL, 0, 1000, "Nodes that stand still for a while and go on (0)")                   \
    F(NUMBER, jump, "jump", NULL, 0, 1000, "Clocks that jump ahead (0)")                                         \
    F(NUMBER, cut, "cut", NULL, 0, 1000, "Pairs of nodes that lose sight of each other (0)")                     \
    F(NUMBER, one_way, "one-way", NULL, 0, 1000, "Pairs of which one does not hear the other (0)")               \
    F(NUMBER, split, "split", NULL, 0, 1000, "Partitions of the group in two (0)")                               \
    F(NUMBER, blind, "blind", NULL, 0, 1000, "Nodes whose memory cannot be read one-sidedly for a while (0)")    \
    F(TIME, trouble_ns, "trouble", NULL, 0, 0, "The longest that a trouble lasts (8s)")                          \
    F(NUMBER, slow, "slow", "Nodes", 0, WORLD_MAX_NODES, "Nodes with a slow backend (0)")                        \
    F(NUMBER, slowness, "slowness", NULL, 1, 1000, "How many times slower (20)")                                 \
    F(TIME, step_ns, "step", NULL, 0, 0, "What a backend's step takes (2ms) ...")                                \
    F(TIME, row_ns, "row", NULL, 0, 0, "... and each row of it (20us)")                                          \
    F(NUMBER, liars, "liars", NULL, 0, WORLD_MAX_NODES, "Nodes that lie about their load (0)")                   \
    F(NUMBER, models, "models", NULL, 1, 4, "Models in the group (1)")                                           \
    F(NUMBER, page_sizes, "page-sizes", NULL, 1, 3, "Page sizes in the group (1)")                               \
    F(NUMBER, classes, "classes", NULL, 1, 4, "Arithmetic classes; over 1: forward only within one (1)")         \
    F(SHARE, drift, "drift", NULL, 0, 0.5, "Clocks run by up to this share fast or slow (0)")                    \
    F(SHARE, fail, "fail", NULL, 0, 1, "Share of backend steps that fail (0)")                                   \
    F(NUMBER, miscounts, "miscounts", NULL, 0, WORLD_MAX_NODES, "Nodes whose digests state wrong counts (0)")    \
    F(NUMBER, one_sided, "one-sided", "Reads", 0, WORLD_MAX_NODES, "Nodes with one-sided reads (0)")             \
    F(NUMBER, unpublished, "unpublished", NULL, 0, WORLD_MAX_NODES, "Of these, nodes without memory to publish (0)") \
    F(TIME, read_ns, "read", NULL, 0, 0, "Delay of a read one way (5us)")                                        \
    F(TIME, read_jitter_ns, "read-jitter", NULL, 0, 0, "Added to it at random (5us)")                            \
    F(SHARE, torn, "torn", NULL, 0, 1, "Share of reads that are torn and repeated (0)")                          \
    F(SHARE, read_fail, "read-fail", NULL, 0, 1, "Share of reads that fail (0)")                                 \
    F(SHARE, read_lost, "read-lost", NULL, 0, 1, "Share of reads that end only when they are given up, after up to 20 s (0)")
/* clang-format on */

/* Seed, route, verbose and every field above. */
extern const struct option_spec WORLD_OPTIONS[];
extern const size_t WORLD_N_OPTIONS;

/* Writes the options that differ from the defaults, seed first. */
void world_print_options(const struct world_config *config, FILE *out);
/* Takes something away from a world: makes its step-th simplification. 1 done, 0 it changes nothing, -1 there are no more. */
int world_simplify(struct world_config *config, uint32_t step);

#endif
