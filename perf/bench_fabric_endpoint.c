#include "perf/bench_fabric.h"

#include <poll.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "core/serve/node_loop.h"
#include "net/dpdk/dpdk.h"
#include "net/net.h"
#include "net/seal.h"
#include "net/verbs/ud.h"
#include "perf/bench_fabric_dpdk.h"
#include "perf/progress.h"

enum { PATIENCE_MS = 10000 };

/* As the node's loop: falling asleep and being woken cost more than this. Where there is nothing to sleep on, short naps. */
static const uint64_t SPIN_NS = 50000, NAP_NS = 50000, MAX_WAIT_NS = 100000000;

static struct env env;

static struct net_tuning tuning(const struct perf_config *config)
{
    struct net_tuning t = {0};
    if (!config->sealed)
        t.ciphers = 1u << SEAL_CIPHER_NONE;
    return t;
}

static const char *bind_of(const struct perf_config *config, bool serves)
{
    return serves ? config->bind : config->bind_calls;
}

static int create_sockets(const struct fabric_job *job, bool serves, struct transport **out, struct error *err)
{
    const struct perf_config *config = job->config;
    struct transport_sockets_config sockets = {.bind = bind_of(config, serves),
                                               .insecure_peers = true, /* nothing but measurements is said */
                                               .datagram_bytes = config->datagram_bytes,
                                               .tuning = tuning(config)};
    return transport_sockets_create(&sockets, &env, out, err);
}

/* The device is the one with the address of --bind, or the best. */
static int create_verbs(const struct fabric_job *job, bool serves, struct transport **out, struct error *err)
{
    const struct perf_config *config = job->config;
    struct transport_verbs_config verbs = {.bind = bind_of(config, serves), .insecure_peers = true, .tuning = tuning(config)};
    return strcmp(config->fabric, "verbs-ud") == 0 ? transport_verbs_ud_create(&verbs, &env, out, err) : transport_verbs_create(&verbs, &env, out, err);
}

static int create_dpdk(const struct fabric_job *job, bool serves, struct transport **out, struct error *err)
{
    const struct perf_config *config = job->config;
    struct transport_dpdk_config dpdk = {.carrier = {.bind = fabric_dpdk_bind(bind_of(config, serves), job, serves), .eal = fabric_dpdk_eal(job, serves)},
                                         .insecure_peers = true,
                                         .tuning = tuning(config)};
    return transport_dpdk_create(&dpdk, &env, out, err);
}

static const struct {
    const char *name;
    int (*create)(const struct fabric_job *job, bool serves, struct transport **out, struct error *err);
} fabrics[] = {
    {"sockets", create_sockets},
    {"verbs", create_verbs},
    {"verbs-ud", create_verbs},
    {"dpdk", create_dpdk},
};

enum { FABRICS = sizeof fabrics / sizeof fabrics[0] };

const char *fabric_names(void)
{
    static char text[64];
    if (!text[0])
        for (int i = 0; i < FABRICS; i++) {
            strncat(text, i ? ", " : "", sizeof text - strlen(text) - 1);
            strncat(text, fabrics[i].name, sizeof text - strlen(text) - 1);
        }
    return text;
}

bool fabric_is_known(const char *name)
{
    for (int i = 0; i < FABRICS; i++)
        if (strcmp(name, fabrics[i].name) == 0)
            return true;
    return false;
}

int fabric_endpoint_open(struct fabric_endpoint *endpoint, const struct fabric_job *job, bool serves, struct error *err)
{
    *endpoint = (struct fabric_endpoint){.adaptive = job->config->poll == PERF_POLL_ADAPTIVE, .control = -1};
    env = node_env_kernel();
    for (int i = 0; i < FABRICS; i++)
        if (strcmp(job->config->fabric, fabrics[i].name) == 0)
            return fabrics[i].create(job, serves, &endpoint->transport, err);
    return error_set(err, HS_ERR_INVALID, "\"%s\" is not a fabric; give one of %s", job->config->fabric, fabric_names());
}

void fabric_endpoint_close(struct fabric_endpoint *endpoint)
{
    if (endpoint->transport)
        endpoint->transport->ops->destroy(endpoint->transport);
    endpoint->transport = NULL;
}

void fabric_wait(uint64_t *idle_since_ns, int fd, int control, uint64_t deadline_ns)
{
    uint64_t now_ns = perf_now_ns();
    if (!*idle_since_ns)
        *idle_since_ns = now_ns;
    if (now_ns - *idle_since_ns < SPIN_NS) {
        sched_yield();
        return;
    }
    if (deadline_ns <= now_ns)
        return;
    uint64_t limit_ns = fd < 0 ? NAP_NS : MAX_WAIT_NS;
    uint64_t wait_ns = deadline_ns - now_ns < limit_ns ? deadline_ns - now_ns : limit_ns;
    struct timespec timeout = {.tv_nsec = (long)wait_ns};
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = control, .events = POLLIN}};
    ppoll(fds, 2, &timeout, NULL);
}

int fabric_endpoint_poll(struct fabric_endpoint *endpoint)
{
    struct transport *transport = endpoint->transport;
    int n = transport->ops->poll(transport, perf_now_ns(), endpoint->events, sizeof endpoint->events / sizeof endpoint->events[0]);
    if (n > 0)
        endpoint->idle_since_ns = 0;
    else if (endpoint->adaptive)
        fabric_wait(&endpoint->idle_since_ns, transport->ops->wait_fd(transport), endpoint->control,
                    transport->ops->next_deadline_ns(transport));
    return n;
}

int fabric_endpoint_connect(struct fabric_endpoint *endpoint, const char *address, uint32_t *peer, struct error *err)
{
    struct transport *transport = endpoint->transport;
    int rc = transport->ops->resolve(transport, address, peer);
    if (rc)
        return error_set(err, rc, "\"%s\" cannot be resolved: %s; give the address that the serving side printed", address,
                         error_name(rc));
    for (uint64_t end_ns = perf_now_ns() + PATIENCE_MS * UINT64_C(1000000); perf_now_ns() < end_ns;) {
        int n = fabric_endpoint_poll(endpoint);
        for (int i = 0; i < n; i++)
            if (endpoint->events[i].kind == TRANSPORT_PEER_UP && endpoint->events[i].peer == *peer)
                return 0;
    }
    return error_set(err, HS_ERR_TIMEOUT, "nobody answers at %s; does a benchmark serve there, with the same --fabric and --sealed?",
                     address);
}
