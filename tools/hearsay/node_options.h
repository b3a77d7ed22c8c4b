/*
 * The command line of hearsay as a struct (the contract is in README.md; every option also as HEARSAY_<NAME>).
 *
 * Threading: at start only. Ownership: strings point into argv or the environment.
 */
#ifndef HEARSAY_TOOLS_NODE_OPTIONS_H
#define HEARSAY_TOOLS_NODE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/cluster/cluster.h"
#include "core/cpu/cpu_backend.h"
#include "core/serve/admission.h"
#include "core/serve/node_loop.h"

enum { NODE_MAX_CPUS = 512, NODE_MAX_JOIN = 4096, NODE_FABRIC_PORT = 7070 };

enum backend_choice { BACKEND_CPU, BACKEND_NULL };
enum fabric_choice { FABRIC_SOCKETS, FABRIC_VERBS, FABRIC_VERBS_UD, FABRIC_DPDK };

struct cpu_list {
    uint32_t cpus[NODE_MAX_CPUS];
    uint32_t n; /* 0: not given */
};

/* Shares of tenants; all others have 1. */
struct tenant_weights {
    struct {
        char name[REQUEST_TENANT_BYTES];
        float weight;
    } of[ADMISSION_WEIGHTS];
    uint32_t n;
};

struct node_options {
    const char *model;
    const char *served_model_name; /* NULL: the model's own */
    const char *chat_template; /* NULL: recognised from the model */
    const char *name;          /* NULL: host name and HTTP port */
    const char *http;
    const char *bind;
    const char *join; /* NULL: none */
    const char *group_key_file; /* NULL: none */
    bool insecure_peers;
    enum backend_choice backend;
    enum cpu_compute compute;
    enum weight_form weight_form;
    enum fabric_choice fabric;
    uint32_t datagram_bytes;      /* of the sockets fabric: as transport_sockets_config's */
    const char *device;           /* of the verbs or DPDK fabric; NULL: the best, or all */
    const char *eal;              /* DPDK's own arguments; NULL: none */
    struct cpu_list cpus;         /* all threads, unless pinned apart */
    struct cpu_list compute_cpus; /* --pin compute= */
    struct cpu_list http_cpus;    /* --pin http= */
    int loop_cpu;                 /* --pin loop=, -1 */
    uint64_t kv_pages;            /* 0: from kv_memory */
    uint64_t kv_memory_bytes;     /* 0: default */
    uint32_t page_tokens;
    uint32_t max_batch_tokens; /* 0: measured */
    uint32_t max_sequences, max_waiting;
    uint64_t tree_memory_bytes;                        /* 0: default */
    uint32_t max_replica_blocks, max_advertised_blocks; /* 0: default */
    uint32_t max_connections;                          /* 0: from the limit of open files */
    uint64_t max_body_bytes;                           /* 0: default */
    struct tenant_weights weights;
    uint64_t drain_timeout_ns;
    uint32_t push_back_depth;
    uint64_t gossip_interval_ns;
    enum route_mode route;
    enum node_poll poll;
    bool same_bits, isolate_tenants;
    enum log_level log_level;
    enum log_format log_format;
    bool check;
};

/* As options_parse: 0 go on, positive: help was shown, negative: err holds one line. Contradictions are errors here too. */
int node_options_parse(int argc, char **argv, struct node_options *out, struct error *err);

#endif
