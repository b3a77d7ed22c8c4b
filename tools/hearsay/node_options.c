#include "tools/hearsay/node_options.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "core/base/options.h"
#include "core/base/parse.h"

#define OPTIONS(config) ((struct node_options *)(config))

/* A choice by name; the error lists what there is. */
struct named_value {
    const char *name;
    int value;
};

static int choose(const char *text, const struct named_value *names, size_t n, const char *known, int *out, struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(text, names[i].name) == 0) {
            *out = names[i].value;
            return 0;
        }
    }
    return error_set(err, HS_ERR_PARSE, "\"%s\" is not one of %s", text, known);
}

#define CHOOSE(text, names, known, out, err) choose(text, names, sizeof(names) / sizeof((names)[0]), known, out, err)

static int set_text(const char **slot, const char *text, const char *what, struct error *err)
{
    if (!*text)
        return error_set(err, HS_ERR_PARSE, "is empty; give %s", what);
    *slot = text;
    return 0;
}

static int set_u32(uint32_t *slot, const char *text, uint32_t min, uint32_t max, struct error *err)
{
    uint64_t value;
    int rc = parse_u64(text, min, max, &value, err);
    if (!rc)
        *slot = (uint32_t)value;
    return rc;
}

static int set_model(void *config, const char *text, struct error *err)
{
    if (strncmp(text, "hf:", 3) == 0)
        return error_set(err, HS_ERR_UNSUPPORTED, "\"%s\": downloading is not built in; give a .gguf file or a Hugging Face folder", text);
    return set_text(&OPTIONS(config)->model, text, "a .gguf file or a Hugging Face folder", err);
}

static int set_chat_template(void *config, const char *text, struct error *err)
{
    return set_text(&OPTIONS(config)->chat_template, text, "the name of a chat template", err);
}

static int set_name(void *config, const char *text, struct error *err)
{
    if (strlen(text) >= CLUSTER_NAME_BYTES)
        return error_set(err, HS_ERR_PARSE, "\"%s\" is longer than %d characters", text, CLUSTER_NAME_BYTES - 1);
    if (text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-")])
        return error_set(err, HS_ERR_PARSE, "\"%s\" may only have letters, digits and the characters . _ : -", text);
    return set_text(&OPTIONS(config)->name, text, "a node name", err);
}

static int set_http(void *config, const char *text, struct error *err)
{
    return set_text(&OPTIONS(config)->http, text, "ADDR:PORT", err);
}

static int set_bind(void *config, const char *text, struct error *err)
{
    return set_text(&OPTIONS(config)->bind, text, "ADDR:PORT", err);
}

static int set_join(void *config, const char *text, struct error *err)
{
    return set_text(&OPTIONS(config)->join, text, "a list of hosts such as node[01-04]:7070", err);
}

static int set_group_key_file(void *config, const char *text, struct error *err)
{
    return set_text(&OPTIONS(config)->group_key_file, text, "a file that holds 64 hexadecimal digits", err);
}

static int set_insecure_peers(void *config, const char *text, struct error *err)
{
    OPTIONS(config)->insecure_peers = true;
    return 0;
}

static int set_fabric(void *config, const char *text, struct error *err)
{
    static const struct named_value names[] = {{"sockets", 0}};
    int value = 0;
    return CHOOSE(text, names, "sockets", &value, err);
}

static int set_backend(void *config, const char *text, struct error *err)
{
    static const struct named_value names[] = {{"auto", BACKEND_CPU}, {"cpu", BACKEND_CPU}, {"null", BACKEND_NULL}};
    int value = 0;
    int rc = CHOOSE(text, names, "auto, cpu, null", &value, err);
    if (!rc)
        OPTIONS(config)->backend = (enum backend_choice)value;
    return rc;
}

static int set_compute(void *config, const char *text, struct error *err)
{
    static const struct named_value names[] = {{"f32", 0}};
    int value = 0;
    return CHOOSE(text, names, "f32", &value, err);
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

static int set_kv_pages(void *config, const char *text, struct error *err)
{
    return parse_u64(text, 2, 1u << 30, &OPTIONS(config)->kv_pages, err);
}

static int set_kv_memory(void *config, const char *text, struct error *err)
{
    return parse_size(text, &OPTIONS(config)->kv_memory_bytes, err);
}

static int set_page_tokens(void *config, const char *text, struct error *err)
{
    uint32_t value;
    int rc = set_u32(&value, text, 16, 256, err);
    if (rc)
        return rc;
    if (value % 16)
        return error_set(err, HS_ERR_PARSE, "%u is not a multiple of 16", value);
    OPTIONS(config)->page_tokens = value;
    return 0;
}

static int set_max_batch_tokens(void *config, const char *text, struct error *err)
{
    return set_u32(&OPTIONS(config)->max_batch_tokens, text, 1, 1u << 20, err);
}

static int set_max_sequences(void *config, const char *text, struct error *err)
{
    return set_u32(&OPTIONS(config)->max_sequences, text, 1, 4096, err);
}

static int set_push_back(void *config, const char *text, struct error *err)
{
    return set_u32(&OPTIONS(config)->push_back_depth, text, 1, 1000000, err);
}

static int set_gossip_interval(void *config, const char *text, struct error *err)
{
    uint64_t ns;
    int rc = parse_duration(text, &ns, err);
    if (rc)
        return rc;
    if (ns < 100000 || ns > 60000000000u)
        return error_set(err, HS_ERR_RANGE, "\"%s\" is not between 100us and 60s", text);
    OPTIONS(config)->gossip_interval_ns = ns;
    return 0;
}

static int set_route(void *config, const char *text, struct error *err)
{
    static const struct named_value names[] = {{"cost", ROUTE_COST}, {"longest", ROUTE_LONGEST}, {"none", ROUTE_NONE}};
    int value = 0;
    int rc = CHOOSE(text, names, "cost, longest, none", &value, err);
    if (!rc)
        OPTIONS(config)->route = (enum route_mode)value;
    return rc;
}

static int set_poll(void *config, const char *text, struct error *err)
{
    static const struct named_value names[] = {{"adaptive", NODE_POLL_ADAPTIVE}, {"busy", NODE_POLL_BUSY}};
    int value = 0;
    int rc = CHOOSE(text, names, "adaptive, busy", &value, err);
    if (!rc)
        OPTIONS(config)->poll = (enum node_poll)value;
    return rc;
}

static int set_same_bits(void *config, const char *text, struct error *err)
{
    OPTIONS(config)->same_bits = true;
    return 0;
}

static int set_isolate_tenants(void *config, const char *text, struct error *err)
{
    OPTIONS(config)->isolate_tenants = true;
    return 0;
}

static int set_log_level(void *config, const char *text, struct error *err)
{
    if (log_level_parse(text, &OPTIONS(config)->log_level))
        return error_set(err, HS_ERR_PARSE, "\"%s\" is not one of error, warn, info, debug", text);
    return 0;
}

static int set_log_format(void *config, const char *text, struct error *err)
{
    static const struct named_value names[] = {{"text", LOG_FORMAT_TEXT}, {"json", LOG_FORMAT_JSON}};
    int value = 0;
    int rc = CHOOSE(text, names, "text, json", &value, err);
    if (!rc)
        OPTIONS(config)->log_format = (enum log_format)value;
    return rc;
}

static int set_check(void *config, const char *text, struct error *err)
{
    OPTIONS(config)->check = true;
    return 0;
}

static const struct option_spec node_specs[] = {
    {"model", "PATH", "A .gguf file or a Hugging Face folder (required)", "Model", set_model},
    {"chat-template", "NAME", "Chat template family, instead of the one recognised in the model", NULL, set_chat_template},
    {"backend", "NAME", "auto, cpu or null (no model: answers after a modelled time); default auto", "Compute", set_backend},
    {"compute", "NAME", "Arithmetic: f32 (16-bit weights, float32 products and sums); default f32", NULL, set_compute},
    {"cpus", "LIST", "CPUs to compute on, e.g. 0-3,8; default all that the process may use", NULL, set_cpus},
    {"pin", "PARTS", "CPUs of each part, e.g. loop=2,http=3,compute=4-7", NULL, set_pin},
    {"kv-pages", "N", "Number of KV pages; default from --kv-memory", "Cache and batch", set_kv_pages},
    {"kv-memory", "SIZE", "Memory for KV pages, e.g. 2GiB; default a quarter of what is free, at most what all sequences can use", NULL,
     set_kv_memory},
    {"page-tokens", "N", "Tokens of one KV page, the same in the whole group; default 16", NULL, set_page_tokens},
    {"max-batch-tokens", "N", "Rows of one step; default from the measured speed", NULL, set_max_batch_tokens},
    {"max-sequences", "N", "Answers computed at the same time; default 64", NULL, set_max_sequences},
    {"http", "ADDR:PORT", "Where clients connect; default 127.0.0.1:8080", "Group and network", set_http},
    {"bind", "ADDR:PORT", "Where peers connect (UDP); default 127.0.0.1:7070", NULL, set_bind},
    {"join", "LIST", "Peers to find the group by, e.g. node[01-04]:7070", NULL, set_join},
    {"name", "NAME", "Name of this node; default HOST:HTTP-PORT", NULL, set_name},
    {"fabric", "NAME", "sockets; default sockets", NULL, set_fabric},
    {"group-key-file", "FILE", "64 hexadecimal digits shared by the group; without it peers must be on loopback", NULL, set_group_key_file},
    {"insecure-peers", NULL, "Allow peers on a network without a group key", NULL, set_insecure_peers},
    {"gossip-interval", "TIME", "Between rounds of anti-entropy, e.g. 10ms; default 100ms, less while the cache changes", NULL, set_gossip_interval},
    {"route", "MODE", "cost, longest or none; default cost", "Routing", set_route},
    {"push-back", "DEPTH", "Waiting requests at which peers leave this node alone; default 8", NULL, set_push_back},
    {"same-bits", NULL, "Forward only to peers whose arithmetic gives the same bits", NULL, set_same_bits},
    {"isolate-tenants", NULL, "Tenants share no cached prefixes", NULL, set_isolate_tenants},
    {"poll", "MODE", "adaptive (sleeps when idle) or busy; default adaptive", "Operation", set_poll},
    {"log-level", "LEVEL", "error, warn, info or debug; default info", NULL, set_log_level},
    {"log-format", "FORMAT", "text or json; default text", NULL, set_log_format},
    {"check", NULL, "Check options, model and addresses, say what would run, and end", NULL, set_check},
};

static const char epilog[] =
    "Examples:\n"
    "  hearsay --model SmolLM2-135M-Instruct.Q4_1.gguf\n"
    "  hearsay --model model.gguf --http 0.0.0.0:8080 --bind 10.0.0.1:7070 --join 'node[01-04]:7070' --group-key-file group.key\n"
    "  hearsay --model model.gguf --cpus 0-15 --kv-memory 16GiB --check\n"
    "\n"
    "Every option can be given in the environment: --kv-memory 2GiB is HEARSAY_KV_MEMORY=2GiB; the command line wins.\n"
    "Exit status: 0 good, 1 failed at run time, 2 bad usage, 77 not possible on this machine.\n";

static int check_combinations(const struct node_options *o, struct error *err)
{
    if (!o->model)
        return error_set(err, HS_ERR_INVALID, "--model is missing; give a .gguf file or a Hugging Face folder");
    if (o->kv_pages && o->kv_memory_bytes)
        return error_set(err, HS_ERR_INVALID, "--kv-pages and --kv-memory contradict each other; give one of them");
    if (o->group_key_file && o->insecure_peers)
        return error_set(err, HS_ERR_INVALID, "--group-key-file and --insecure-peers contradict each other; give one of them");
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
        .push_back_depth = 8,
        .gossip_interval_ns = 100000000,
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
