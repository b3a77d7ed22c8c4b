#include "tools/hearsay/running_node.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/metrics.h"
#include "core/base/parse.h"
#include "core/cpu/cpu_backend.h"
#include "core/model/loaded_model.h"
#include "core/null/null_backend.h"
#include "core/serve/http/http.h"
#include "core/serve/inbox.h"
#include "core/serve/node.h"
#include "core/serve/node_loop.h"
#include "net/net.h"
#include "net/seal.h"
#include "tools/hearsay/joiner.h"
#include "tools/hearsay/kv_size.h"
#include "tools/hearsay/open_fabric.h"

enum { INBOX_CAPACITY = 4096 };

struct running_node {
    struct node_options options;
    struct env env;
    struct loaded_model *model;
    struct backend *backend;
    struct metrics *metrics;
    uint8_t group_key[NET_GROUP_KEY_BYTES];
    struct transport *transport;
    struct node_inbox *inbox;
    struct http_server *http;
    struct node *node;
    struct node_loop *loop;
    struct joiner *joiner;
    struct kv_size kv;
    char name[CLUSTER_NAME_BYTES];
    char http_address[TRANSPORT_ADDRESS_TEXT];
};

/* HOST:PORT, by the HTTP port, or the fabric's where the kernel chooses the HTTP port. */
static void choose_name(struct running_node *r)
{
    char host[48] = "node";
    if (r->options.name) {
        snprintf(r->name, sizeof r->name, "%s", r->options.name);
        return;
    }
    gethostname(host, sizeof host - 1);
    struct transport_info info;
    r->transport->ops->info(r->transport, &info);
    const char *port = strrchr(r->options.http, ':');
    if (!port || strcmp(port, ":0") == 0)
        port = strrchr(info.local, ':');
    snprintf(r->name, sizeof r->name, "%s%.10s", host, port ? port : "");
}

/* Progress of a long load, for people who watch a terminal. */
static void show_progress(void *arg, const char *what, double share)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, share < 1 ? "\r%s %3.0f %%" : "\r%s done \n", what, share * 100);
}

static int open_backend(struct running_node *r, struct error *err)
{
    const struct node_options *o = &r->options;
    const struct model_desc *model = r->model->desc;
    struct kv_size_request request = {
        .pages = o->kv_pages,
        .memory_bytes = o->kv_memory_bytes,
        .page_bytes = cpu_backend_page_bytes(model, o->page_tokens),
        .useful_pages = (uint64_t)o->max_sequences * ((model->n_context + o->page_tokens - 1) / o->page_tokens),
        .weight_bytes = o->backend == BACKEND_NULL ? 0 : kv_size_weight_bytes(model, o->weight_form),
    };
    free_memory_read("", &request.free);
    int rc = kv_size_choose(&request, &r->kv, err);
    if (rc)
        return rc;
    if (!o->kv_pages && !o->kv_memory_bytes)
        log_info("start", "%u KV pages: %s", r->kv.pages, r->kv.why);
    if (o->backend == BACKEND_NULL) {
        const struct null_backend_config config = {
            .n_pages = r->kv.pages, .page_tokens = o->page_tokens, .n_vocab = model->n_vocab, .fixed_ns = 20000, .row_ns = 200};
        r->backend = null_backend_create(&config, &r->env);
        return r->backend ? 0 : error_set(err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
    }
    const struct cpu_list *cpus = o->compute_cpus.n ? &o->compute_cpus : &o->cpus;
    const struct cpu_backend_config config = {
        .model = model,
        .page_tokens = o->page_tokens,
        .n_pages = r->kv.pages,
        .cpus = cpus->cpus,
        .n_cpus = cpus->n,
        .compute = o->compute,
        .weights = o->weight_form,
        .env = &r->env,
        .progress = show_progress,
    };
    return cpu_backend_create(&config, &r->backend, err);
}

/* In the folder of systemd's credentials (LoadCredential). What shows there as the group's right is that of an access list, which
 * names the service's user alone. */
static bool is_credential(const char *path)
{
    const char *folder = getenv("CREDENTIALS_DIRECTORY");
    const size_t n = folder ? strlen(folder) : 0;
    return n > 0 && strncmp(path, folder, n) == 0 && path[n] == '/';
}

/* A secret that others may read is worth a word, and no more: mounts of secrets are not always the user's to change. */
static void warn_of_readers(const char *option, const char *path)
{
    struct stat file;
    const mode_t others = is_credential(path) ? 007 : 077;
    if (stat(path, &file) == 0 && S_ISREG(file.st_mode) && file.st_mode & others)
        log_warn("start", "%s: others than its owner may use %s (mode %04o): chmod 600 %s", option, path, file.st_mode & 07777u, path);
}

static int open_transport(struct running_node *r, struct error *err)
{
    const struct node_options *o = &r->options;
    if (o->group_key_file) {
        int rc = net_group_key_load(o->group_key_file, r->group_key, err);
        if (rc)
            return error_wrap(err, rc, "--group-key-file");
        warn_of_readers("--group-key-file", o->group_key_file);
    }
    int rc = open_fabric(o, o->group_key_file ? r->group_key : NULL, &r->env, r->metrics, &r->transport, err);
    if (rc == 0)
        choose_name(r);
    return rc;
}

static int64_t unix_time_s(void *arg)
{
    return (int64_t)time(NULL);
}

static void run_on(const struct cpu_list *list)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (uint32_t i = 0; i < list->n; i++)
        CPU_SET(list->cpus[i], &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

/* The longest prompt and answer together: the model's, or what the pool can hold of one request. */
static uint32_t longest_sequence(const struct running_node *r)
{
    struct backend_info info;
    r->backend->ops->info(r->backend, &info);
    uint64_t pool_tokens = (uint64_t)info.n_pages * info.page_tokens;
    return pool_tokens < r->model->desc->n_context ? (uint32_t)pool_tokens : r->model->desc->n_context;
}

static const char *model_id(const struct running_node *r)
{
    return r->options.served_model_name ? r->options.served_model_name : r->model->desc->name;
}

static int open_http(struct running_node *r, struct error *err)
{
    const struct node_options *o = &r->options;
    const struct http_config config = {
        .address = o->http,
        .node_name = r->name,
        .model_id = model_id(r),
        .model = r->model,
        .n_context = longest_sequence(r),
        .isolate_tenants = o->isolate_tenants,
        .max_connections = o->max_connections,
        .max_body_bytes = o->max_body_bytes,
        .inbox_capacity = INBOX_CAPACITY,
        .inbox = r->inbox,
        .wake_by_step = true,
        .metrics = r->metrics,
        .env = &r->env,
        .unix_time_s = unix_time_s,
    };
    cpu_set_t before;
    pthread_getaffinity_np(pthread_self(), sizeof before, &before);
    if (o->http_cpus.n)
        run_on(&o->http_cpus); /* threads inherit the affinity of who creates them */
    int rc = http_server_create(&config, &r->http, err);
    pthread_setaffinity_np(pthread_self(), sizeof before, &before);
    if (rc)
        return error_wrap(err, rc, "--http");
    int host = (int)(strrchr(o->http, ':') - o->http);
    snprintf(r->http_address, sizeof r->http_address, "%.*s:%u", host, o->http, http_server_port(r->http));
    return 0;
}

static void wake_http(void *server)
{
    http_server_wake(server);
}

static void expect_http(void *server)
{
    http_server_expect(server);
}

static int open_node(struct running_node *r, struct error *err)
{
    const struct node_options *o = &r->options;
    struct node_config config = {
        .cluster = {.same_bits = o->same_bits,
                    .mode = o->route,
                    .gossip_interval_ns = o->gossip_interval_ns,
                    .push_back_depth = o->push_back_depth,
                    .max_replica_blocks = o->max_replica_blocks,
                    .max_advertised_blocks = o->max_advertised_blocks},
        .model_name = model_id(r),
        .n_context = r->model->desc->n_context,
        .max_sequences = o->max_sequences,
        .max_waiting = o->max_waiting,
        .max_batch_tokens = o->max_batch_tokens,
        .push_back_depth = o->push_back_depth,
        .tree_bytes = o->tree_memory_bytes,
        .after_events = wake_http,
        .after_events_arg = r->http,
    };
    memcpy(config.cluster.name, r->name, sizeof config.cluster.name);
    memcpy(config.cluster.http_address, r->http_address, sizeof config.cluster.http_address);
    memcpy(config.cluster.fingerprint, r->model->desc->fingerprint, sizeof config.cluster.fingerprint);
    memcpy(config.group_key, r->group_key, sizeof config.group_key);
    int rc = node_create(&config, &r->env, r->transport, r->backend, r->metrics, &r->node, err);
    for (uint32_t i = 0; rc == 0 && i < o->weights.n; i++)
        rc = node_set_tenant_weight(r->node, o->weights.of[i].name, o->weights.of[i].weight);
    return rc;
}

static int start_loop(struct running_node *r, struct error *err)
{
    const struct node_loop_config config = {
        .node = r->node,
        .inbox = r->inbox,
        .transport = r->transport,
        .backend = r->backend,
        .env = &r->env,
        .step_ends = expect_http,
        .step_ends_arg = r->http,
        .poll = r->options.poll,
        .cpu = r->options.loop_cpu,
    };
    int rc = node_loop_start(&config, &r->loop, err);
    if (rc == 0 && r->options.join)
        rc = joiner_start(r->options.join, r->options.bind, r->inbox, &r->joiner, err);
    return rc;
}

static int open_parts(struct running_node *r, struct error *err)
{
    int rc = model_open(r->options.model, r->options.chat_template, &r->model, err);
    if (rc) {
        rc = error_wrap(err, rc, "--model");
        return rc == HS_ERR_UNSUPPORTED ? HS_ERR_INVALID : rc; /* another model is wanted, not another machine */
    }
    if (!r->model->chat)
        log_warn("start", "chat requests will be refused: %s", r->model->chat_missing);
    rc = open_transport(r, err);
    if (!rc)
        rc = open_backend(r, err);
    if (rc)
        return rc;
    r->inbox = node_inbox_create(INBOX_CAPACITY);
    if (!r->inbox)
        return error_set(err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
    rc = open_http(r, err);
    return rc ? rc : open_node(r, err);
}

int running_node_open(const struct node_options *options, struct running_node **out, struct error *err)
{
    struct running_node *r = calloc(1, sizeof *r);
    if (!r)
        return error_set(err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
    r->options = *options;
    r->env = node_env_kernel();
    r->metrics = metrics_create();
    int rc = r->metrics ? open_parts(r, err) : error_set(err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
    if (rc) {
        running_node_close(r, 0);
        return rc;
    }
    *out = r;
    return 0;
}

int running_node_serve(struct running_node *r, struct error *err)
{
    struct backend_info backend;
    struct transport_info transport;
    r->backend->ops->info(r->backend, &backend);
    r->transport->ops->info(r->transport, &transport);
    int rc = start_loop(r, err);
    if (rc == 0)
        log_info("start", "%s serves %s on http://%s/v1, peers on %s (%s), %s, %u KV pages of %u tokens", r->name, model_id(r),
                 r->http_address, transport.local, transport.name, backend.arithmetic, backend.n_pages, backend.page_tokens);
    return rc;
}

/* What the drain's time did not suffice for. */
static void tell_cut(const struct running_node *r, uint64_t drain_ns)
{
    struct node_counts c;
    node_counts(r->node, &c);
    uint32_t left = c.waiting + c.running + c.forwarded;
    if (left)
        log_warn("start", "%u answers were cut: they had not finished in %.3g s (--drain-timeout)", left, (double)drain_ns / 1e9);
}

void running_node_close(struct running_node *r, uint64_t drain_ns)
{
    if (r->joiner)
        joiner_stop(r->joiner);
    if (r->loop)
        node_loop_stop(r->loop, drain_ns); /* answers in flight still leave through HTTP */
    if (r->loop && drain_ns)
        tell_cut(r, drain_ns);
    if (r->node)
        node_destroy(r->node);
    if (r->http)
        http_server_destroy(r->http);
    if (r->inbox)
        node_inbox_destroy(r->inbox);
    if (r->transport)
        r->transport->ops->destroy(r->transport);
    if (r->backend)
        r->backend->ops->destroy(r->backend);
    if (r->model)
        model_close(r->model);
    if (r->metrics)
        metrics_destroy(r->metrics);
    free(r);
}

void running_node_describe(const struct running_node *r)
{
    const struct model_desc *m = r->model->desc;
    struct backend_info backend;
    struct transport_info transport;
    r->backend->ops->info(r->backend, &backend);
    r->transport->ops->info(r->transport, &transport);
    printf("model      %s (%s): %u layers, %u wide, %u/%u heads of %u, vocabulary %u, context %u\n", m->name, m->architecture, m->n_layers,
           m->d_model, m->n_heads, m->n_kv_heads, m->d_head, m->n_vocab, m->n_context);
    printf("chat       %s\n", r->model->chat ? chat_template_name(r->model->chat) : r->model->chat_missing);
    printf("backend    %s (%s)\n", backend.name, backend.arithmetic);
    printf("KV cache   %u pages of %u tokens, %llu MiB: %s\n", backend.n_pages, backend.page_tokens,
           (unsigned long long)(backend.n_pages * backend.page_bytes >> 20), r->kv.why);
    printf("served as  %s\n", model_id(r));
    printf("node       %s\n", r->name);
    printf("HTTP       %s\n", r->http_address);
    printf("fabric     %s on %s%s\n", transport.name, transport.local, r->options.group_key_file ? "" : ", no group key");
    enum seal_cipher cipher = seal_cipher_choose(seal_ciphers_available(), seal_ciphers_available());
    printf("sealed by  %s (%s)\n", seal_cipher_name(cipher), seal_cipher_library(cipher));
}
