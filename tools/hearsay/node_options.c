#include "tools/hearsay/node_options.h"

#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/base/options.h"
#include "core/base/parse.h"
#include "net/udp.h"

#define OPTIONS(config) ((struct node_options *)(config))

static int set_model(void *config, const char *text, struct error *err)
{
    if (strncmp(text, "hf:", 3) == 0)
        return error_set(err, HS_ERR_UNSUPPORTED, "\"%s\": downloading is not built in; give a .gguf file or a Hugging Face folder", text);
    if (!*text)
        return error_set(err, HS_ERR_PARSE, "is empty; give a .gguf file or a Hugging Face folder");
    OPTIONS(config)->model = text;
    return 0;
}

static int set_name(void *config, const char *text, struct error *err)
{
    if (strlen(text) >= CLUSTER_NAME_BYTES)
        return error_set(err, HS_ERR_PARSE, "\"%s\" is longer than %d characters", text, CLUSTER_NAME_BYTES - 1);
    if (text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-")])
        return error_set(err, HS_ERR_PARSE, "\"%s\" may only have letters, digits and the characters . _ : -", text);
    if (!*text)
        return error_set(err, HS_ERR_PARSE, "is empty; give a node name");
    OPTIONS(config)->name = text;
    return 0;
}

/* Parses a list of CPUs, each of which this process must be allowed to use. */
static int read_cpus(struct cpu_list *list, const char *text, struct error *err)
{
    struct cpu_list wanted;
    int rc = parse_cpu_list(text, wanted.cpus, NODE_MAX_CPUS, &wanted.n, err);
    if (rc)
        return rc;
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed))
        return error_set(err, HS_ERR_IO, "the CPUs of this process cannot be read: %s", strerror(errno));
    for (uint32_t i = 0; i < wanted.n; i++) {
        if (wanted.cpus[i] >= CPU_SETSIZE || !CPU_ISSET(wanted.cpus[i], &allowed))
            return error_set(err, HS_ERR_RANGE, "\"%s\": CPU %u is not one that this process may use (taskset -cp $$ shows them)", text,
                             wanted.cpus[i]);
    }
    *list = wanted;
    return 0;
}

static int set_cpus(void *config, const char *text, struct error *err)
{
    return read_cpus(&OPTIONS(config)->cpus, text, err);
}

static int set_pin_part(struct node_options *o, const char *part, const char *cpus, struct error *err)
{
    struct cpu_list one;
    if (strcmp(part, "compute") == 0)
        return read_cpus(&o->compute_cpus, cpus, err);
    if (strcmp(part, "http") == 0)
        return read_cpus(&o->http_cpus, cpus, err);
    if (strcmp(part, "loop") != 0)
        return error_set(err, HS_ERR_PARSE, "\"%s\" is not one of loop, http, compute", part);
    int rc = read_cpus(&one, cpus, err);
    if (rc)
        return rc;
    if (one.n != 1)
        return error_set(err, HS_ERR_PARSE, "loop=%s: the loop is one thread; give one CPU", cpus);
    o->loop_cpu = (int)one.cpus[0];
    return 0;
}

/* "loop=2,http=3,compute=4-7,9": a comma followed by NAME= starts the next part. */
static int set_pin(void *config, const char *text, struct error *err)
{
    char copy[1024], *at = copy;
    if (!*text)
        return error_set(err, HS_ERR_PARSE, "is empty; write for example loop=2,http=3,compute=4-7");
    if ((size_t)snprintf(copy, sizeof copy, "%s", text) >= sizeof copy)
        return error_set(err, HS_ERR_PARSE, "longer than %zu characters", sizeof copy - 1);
    while (*at) {
        char *equals = strchr(at, '=');
        if (!equals)
            return error_set(err, HS_ERR_PARSE, "\"%s\" is not PART=CPUS; write for example loop=2,http=3,compute=4-7", at);
        *equals = '\0';
        char *cpus = equals + 1, *next = strchr(cpus, '=');
        char *end = cpus + strlen(cpus);
        if (next) {
            *next = '\0';
            end = strrchr(cpus, ',');
            *next = '=';
            if (!end || end > next)
                return error_set(err, HS_ERR_PARSE, "\"%s\" is not PART=CPUS,PART=CPUS", text);
            *end++ = '\0';
        }
        int rc = set_pin_part(OPTIONS(config), at, cpus, err);
        if (rc)
            return rc;
        at = end;
    }
    return 0;
}

static int set_datagram_bytes(void *config, const char *text, struct error *err)
{
    if (strcmp(text, "link") == 0) {
        OPTIONS(config)->datagram_bytes = UDP_DATAGRAM_OF_LINK;
        return 0;
    }
    uint64_t value;
    if (parse_u64(text, UDP_LEAST_DATAGRAM, UDP_MOST_DATAGRAM, &value, NULL) != 0)
        return error_set(err, HS_ERR_PARSE, "\"%s\" is neither a whole number from %d to %d nor link", text, UDP_LEAST_DATAGRAM,
                         UDP_MOST_DATAGRAM);
    OPTIONS(config)->datagram_bytes = (uint32_t)value;
    return 0;
}

static int set_page_tokens(void *config, const char *text, struct error *err)
{
    uint64_t value;
    int rc = parse_u64(text, 16, 256, &value, err);
    if (rc)
        return rc;
    if (value % 16)
        return error_set(err, HS_ERR_PARSE, "\"%s\" is not a multiple of 16", text);
    OPTIONS(config)->page_tokens = (uint32_t)value;
    return 0;
}

/* NAME=W of text[len]. */
static int add_weight(struct tenant_weights *weights, const char *text, size_t len, struct error *err)
{
    char pair[REQUEST_TENANT_BYTES + 32];
    snprintf(pair, sizeof pair, "%.*s", (int)(len < sizeof pair ? len : sizeof pair - 1), text);
    char *equals = strrchr(pair, '=');
    size_t name_len = equals ? (size_t)(equals - pair) : 0;
    if (!name_len || name_len >= REQUEST_TENANT_BYTES || len >= sizeof pair)
        return error_set(err, HS_ERR_PARSE, "\"%.*s\" is not TENANT=WEIGHT, with a name of at most %d characters; write for example team-a=2",
                         (int)len, text, REQUEST_TENANT_BYTES - 1);
    double weight;
    int rc = parse_double(equals + 1, 0.001, 1000, &weight, err);
    if (rc)
        return rc;
    if (weights->n == ADMISSION_WEIGHTS)
        return error_set(err, HS_ERR_LIMIT, "more than %d tenants", ADMISSION_WEIGHTS);
    *equals = '\0';
    for (uint32_t i = 0; i < weights->n; i++)
        if (strcmp(weights->of[i].name, pair) == 0)
            return error_set(err, HS_ERR_INVALID, "the tenant \"%s\" is named twice", pair);
    memcpy(weights->of[weights->n].name, pair, name_len + 1);
    weights->of[weights->n++].weight = (float)weight;
    return 0;
}

/* One pair, or several with commas between them (the environment has one place for all). */
static int set_tenant_weight(void *config, const char *text, struct error *err)
{
    for (const char *at = text;; at++) {
        size_t len = strcspn(at, ",");
        int rc = add_weight(&OPTIONS(config)->weights, at, len, err);
        if (rc)
            return rc;
        at += len;
        if (!*at)
            return 0;
    }
}

static const struct option_choice backends[] = {{"auto", BACKEND_CPU}, {"cpu", BACKEND_CPU}, {"null", BACKEND_NULL}, {NULL, 0}};
static const struct option_choice arithmetics[] = {{"f32", CPU_COMPUTE_F32}, {"bf16", CPU_COMPUTE_BF16}, {NULL, 0}};
static const struct option_choice weight_forms[] = {
    {"auto", WEIGHT_FORM_AUTO}, {"16bit", WEIGHT_FORM_16BIT}, {"native", WEIGHT_FORM_NATIVE}, {NULL, 0}};
static const struct option_choice fabrics[] = {{"sockets", FABRIC_SOCKETS}, {"verbs", FABRIC_VERBS}, {"verbs-ud", FABRIC_VERBS_UD}, {"dpdk", FABRIC_DPDK}, {NULL, 0}};
static const struct option_choice routes[] = {{"cost", ROUTE_COST}, {"longest", ROUTE_LONGEST}, {"none", ROUTE_NONE}, {NULL, 0}};
static const struct option_choice polls[] = {{"adaptive", NODE_POLL_ADAPTIVE}, {"busy", NODE_POLL_BUSY}, {NULL, 0}};
static const struct option_choice formats[] = {{"text", LOG_FORMAT_TEXT}, {"json", LOG_FORMAT_JSON}, {NULL, 0}};
static const struct option_choice levels[] = {
    {"error", LOG_LEVEL_ERROR}, {"warn", LOG_LEVEL_WARN}, {"info", LOG_LEVEL_INFO}, {"debug", LOG_LEVEL_DEBUG}, {NULL, 0}};

#define FIELD(name) .offset = offsetof(struct node_options, name)
#define TEXT(name) .kind = OPTION_TEXT, FIELD(name)
#define FLAG(name) .kind = OPTION_FLAG, FIELD(name)
#define COUNT(name, least, most) .kind = OPTION_U32, FIELD(name), .min = (least), .max = (most)
#define CHOICE(name, list) .kind = OPTION_CHOICE, FIELD(name), .choices = (list)

static bool fits_datagram_bytes(const void *config)
{
    return ((const struct node_options *)config)->fabric == FABRIC_SOCKETS;
}

static bool fits_device(const void *config)
{
    return ((const struct node_options *)config)->fabric != FABRIC_SOCKETS;
}

static bool fits_eal(const void *config)
{
    return ((const struct node_options *)config)->fabric == FABRIC_DPDK;
}

static const struct option_spec node_specs[] = {
    {"model", "PATH", "A .gguf file or a Hugging Face folder (required)", "Model", .set = set_model},
    {"served-model-name", "NAME", "Model id that clients ask for; default the model's own name", NULL, TEXT(served_model_name)},
    {"chat-template", "NAME", "Chat template family, instead of the one recognised in the model", NULL, TEXT(chat_template)},
    {"backend", "NAME", "auto, cpu or null (no model: answers after a modelled time); default auto", "Compute", CHOICE(backend, backends)},
    {"compute", "NAME", "Arithmetic: f32 (float32 products of 16-bit weights) or bf16 (faster, where the CPU has it); default f32", NULL,
     CHOICE(compute, arithmetics)},
    {"weights", "FORM", "16bit, native (quantised weights stay integers: less memory and time, other bits) or auto (native only for those "
     "of hearsay-quantize); default auto", NULL, CHOICE(weight_form, weight_forms)},
    {"cpus", "LIST", "CPUs to compute on, e.g. 0-3,8; default all that the process may use", NULL, .set = set_cpus},
    {"pin", "PARTS", "CPUs of each part, e.g. loop=2,http=3,compute=4-7", NULL, .set = set_pin},
    {"kv-pages", "N", "Number of KV pages; default from --kv-memory", "Cache and batch", .kind = OPTION_U64, FIELD(kv_pages), .min = 2,
     .max = 1u << 30, .exclusive = "pool"},
    {"kv-memory", "SIZE", "Memory for KV pages, e.g. 2GiB; default a quarter of what the weights leave free, at most what is of use", NULL,
     .kind = OPTION_SIZE, FIELD(kv_memory_bytes), .min = 1, .exclusive = "pool"},
    {"page-tokens", "N", "Tokens of one KV page, the same in the whole group; default 16", NULL, .set = set_page_tokens},
    {"max-batch-tokens", "N", "Rows of one step; default from the measured speed", NULL, COUNT(max_batch_tokens, 1, 1u << 20)},
    {"max-sequences", "N", "Answers computed at the same time; default 64", NULL, COUNT(max_sequences, 1, NODE_MAX_SEQUENCES)},
    {"max-waiting", "N", "Requests that may wait for their turn, more are answered 429; default 1024", NULL,
     COUNT(max_waiting, 1, NODE_MAX_WAITING)},
    {"tree-memory", "SIZE", "Memory for the index of cached prefixes; default 256MiB", NULL, .kind = OPTION_SIZE, FIELD(tree_memory_bytes),
     .min = 4096},
    {"max-advertised-blocks", "N", "Cached blocks that peers are told of; default 262144", NULL,
     COUNT(max_advertised_blocks, 1, CLUSTER_MOST_ADVERTISED_BLOCKS)},
    {"max-replica-blocks", "N", "Blocks of all peers together that this node keeps in mind; default 1048576", NULL,
     COUNT(max_replica_blocks, 1, 1u << 30)},
    {"http", "ADDR:PORT", "Where clients connect; default 127.0.0.1:8080", "Group and network", TEXT(http)},
    {"max-connections", "N", "Connections of clients, more are answered 503; default 8192, or what the limit of open files allows", NULL,
     COUNT(max_connections, 1, 1000000)},
    {"max-body", "SIZE", "Body of a request, longer ones are answered 413; default 8MiB", NULL, .kind = OPTION_SIZE, FIELD(max_body_bytes),
     .min = 1024},
    {"bind", "ADDR:PORT", "Where peers connect (UDP); default 127.0.0.1:7070", NULL, TEXT(bind)},
    {"join", "LIST", "Peers to find the group by, e.g. node[01-04]:7070", NULL, TEXT(join)},
    {"name", "NAME", "Name of this node; default HOST:HTTP-PORT", NULL, .set = set_name},
    {"fabric", "NAME", "sockets (UDP), verbs (RDMA), verbs-ud (RDMA without a queue pair per peer) or dpdk (Ethernet from user space); "
     "default sockets", NULL, CHOICE(fabric, fabrics)},
    {"device", "DEV", "RDMA device as DEV[:PORT[:GID-INDEX]], several with commas; default the best one that is up. With dpdk: "
     "PORT,...,mtu=N,queues=N,prefix=N,gateway=IP; default every port", NULL, TEXT(device),
     .fits = fits_device, .fits_with = "--fabric verbs, verbs-ud or dpdk", .chosen_by = "fabric"},
    {"datagram-bytes", "N|link", "Longest datagram sent to peers, who agree on the smaller: for jumbo frames the MTU less 28 (IPv4) or 48 "
     "(IPv6), or link: what the link of --bind passes; default 1452, on loopback 8448", NULL, .set = set_datagram_bytes,
     .fits = fits_datagram_bytes, .fits_with = "--fabric sockets", .chosen_by = "fabric"},
    {"eal", "ARGS", "Arguments of DPDK's EAL, quoted as one, e.g. '--no-huge --vdev=net_af_packet0,iface=eth0'", NULL, TEXT(eal),
     .fits = fits_eal, .fits_with = "--fabric dpdk", .chosen_by = "fabric"},
    {"group-key-file", "FILE", "64 hexadecimal digits shared by the group; without it peers must be on loopback", NULL,
     TEXT(group_key_file), .exclusive = "trust"},
    {"insecure-peers", NULL, "Allow peers on a network without a group key", NULL, FLAG(insecure_peers), .exclusive = "trust"},
    {"gossip-interval", "TIME", "Between rounds of anti-entropy, e.g. 10ms; default 100ms, less while the cache changes", NULL,
     .kind = OPTION_DURATION, FIELD(gossip_interval_ns), .min = 100000, .max = 60000000000u},
    {"route", "MODE", "cost, longest or none; default cost", "Routing", CHOICE(route, routes)},
    {"push-back", "DEPTH", "Waiting requests at which peers leave this node alone; default 8", NULL, COUNT(push_back_depth, 1, 1000000)},
    {"same-bits", NULL, "Forward only to peers whose arithmetic gives the same bits", NULL, FLAG(same_bits)},
    {"isolate-tenants", NULL, "Tenants share no cached prefixes", NULL, FLAG(isolate_tenants)},
    {"tenant-weight", "NAME=W", "Share of a tenant, from 0.001 to 1000; default 1; may be repeated; the same in the whole group", NULL,
     .set = set_tenant_weight},
    {"poll", "MODE", "adaptive (sleeps when idle) or busy; default adaptive", "Operation", CHOICE(poll, polls)},
    {"drain-timeout", "TIME", "How long running answers may take to finish when the node ends; default 10s", NULL, .kind = OPTION_DURATION,
     FIELD(drain_timeout_ns), .min = 0, .max = 3600000000000u},
    {"log-level", "LEVEL", "error, warn, info or debug; default info", NULL, CHOICE(log_level, levels)},
    {"log-format", "FORMAT", "text or json; default text", NULL, CHOICE(log_format, formats)},
    {"check", NULL, "Check options, model and addresses, say what would run, and end", NULL, FLAG(check)},
};

static const char epilog[] =
    "Examples:\n"
    "  hearsay --model SmolLM2-135M-Instruct.Q4_1.gguf\n"
    "  hearsay --model model.gguf --http 0.0.0.0:8080 --bind 10.0.0.1:7070 \\\n"
    "          --join 'node[01-04]:7070' --group-key-file group.key\n"
    "  hearsay --model model.gguf --cpus 0-15 --kv-memory 16GiB --check\n"
    "\n"
    "Every option can be given in the environment: --kv-memory 2GiB is HEARSAY_KV_MEMORY=2GiB; the command line wins.\n"
    "Exit status: 0 good, 1 failed at run time, 2 bad usage, 77 not possible on this machine.\n";

static int accept_host(void *arg, const char *host)
{
    return 0;
}

static int check_combinations(const struct node_options *o, struct error *err)
{
    if (!o->model)
        return error_set(err, HS_ERR_INVALID, "--model is missing; give a .gguf file or a Hugging Face folder");
    if (o->join) {
        int rc = parse_host_list(o->join, NODE_FABRIC_PORT, NODE_MAX_JOIN, accept_host, NULL, err);
        if (rc)
            return error_wrap(err, rc, "--join");
    }
    return 0;
}

int node_options_parse(int argc, char **argv, struct node_options *out, struct error *err)
{
    static const struct options options = {
        .program = "hearsay",
        .description = "Serves a large language model from a group of equal peers: OpenAI-style HTTP, every request routed to where its "
                       "prefix is cached.",
        .epilog = epilog,
        .version = HEARSAY_VERSION,
        .specs = node_specs,
        .n_specs = sizeof node_specs / sizeof node_specs[0],
    };
    struct node_options o = {
        .http = "127.0.0.1:8080",
        .bind = "127.0.0.1:7070",
        .loop_cpu = -1,
        .page_tokens = 16,
        .max_sequences = 64,
        .max_waiting = 1024,
        .push_back_depth = 8,
        .gossip_interval_ns = 100000000,
        .drain_timeout_ns = 10000000000u,
        .route = ROUTE_COST,
        .poll = NODE_POLL_ADAPTIVE,
        .log_level = LOG_LEVEL_INFO,
    };
    int rc = options_parse(&options, argc, argv, &o, err);
    if (rc == 0)
        rc = check_combinations(&o, err);
    if (rc == 0)
        *out = o;
    return rc;
}
