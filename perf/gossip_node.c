#include "perf/gossip_node.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/serve/node_loop.h"
#include "perf/bench_fabric.h"
#include "perf/progress.h"

enum { EVENTS = 64, PAGE_TOKENS = 16 };

/* ---- in the child ---- */

static int open_node(struct gossip_node *node, struct fabric_endpoint *endpoint, struct env *env)
{
    struct fabric_job job = {.config = node->config, .control = -1};
    struct cluster_config config = {.page_tokens = PAGE_TOKENS, .gossip_interval_ns = node->config->gossip_interval_ns};
    struct transport_info info;
    int rc = fabric_endpoint_open(endpoint, &job, node->serves, &node->err);
    if (rc)
        return rc;
    *env = node_env_kernel();
    node->transport = endpoint->transport;
    snprintf(config.name, sizeof config.name, "%s", node->name);
    rc = cluster_create(&config, env, node->transport, NULL, NULL, &node->cluster);
    if (rc)
        return error_set(&node->err, rc, "the cluster cannot be made: %s", error_name(rc));
    node->digest = cluster_radix_listener(node->cluster);
    node->transport->ops->info(node->transport, &info);
    memcpy(node->address, info.local, sizeof info.local);
    return node->joins ? cluster_join(node->cluster, node->joins->address, &node->err) : 0;
}

static uint64_t turn(struct gossip_node *node)
{
    struct transport_event events[EVENTS];
    uint64_t now_ns = perf_now_ns();
    int n;
    do {
        n = node->transport->ops->poll(node->transport, now_ns, events, EVENTS);
        for (int i = 0; i < n; i++)
            cluster_on_event(node->cluster, &events[i], now_ns);
    } while (n == EVENTS);
    uint64_t next_ns = node->on_turn(node->self, node, now_ns);
    uint64_t cluster_ns = cluster_step(node->cluster, now_ns);
    uint64_t transport_ns = node->transport->ops->next_deadline_ns(node->transport);
    next_ns = cluster_ns < next_ns ? cluster_ns : next_ns;
    return transport_ns < next_ns ? transport_ns : next_ns;
}

static void be_node(struct gossip_node *node)
{
    struct fabric_endpoint endpoint = {0};
    struct env env;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    if (open_node(node, &endpoint, &env) != 0)
        atomic_store_explicit(&node->has_failed, true, memory_order_release); /* pairs with gossip_node_check */
    else
        atomic_store_explicit(&node->is_up, true, memory_order_release); /* pairs with gossip_node_start of who joins it */
    while (atomic_load_explicit(&node->is_up, memory_order_relaxed) && !atomic_load_explicit(&node->is_stopping, memory_order_acquire)) {
        uint64_t long_ago_ns = 1; /* no spinning before it sleeps */
        fabric_wait(&long_ago_ns, node->transport->ops->wait_fd(node->transport), -1, turn(node));
    }
    cluster_destroy(node->cluster);
    fabric_endpoint_close(&endpoint);
}

/* ---- in the parent ---- */

static int wait_up(const struct gossip_node *node, struct error *err)
{
    while (!atomic_load_explicit(&node->is_up, memory_order_acquire)) {
        int rc = gossip_node_check(node, err);
        if (rc)
            return rc;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return 0;
}

int gossip_node_start(struct gossip_node *node, struct error *err)
{
    int rc = node->joins ? wait_up(node->joins, err) : 0;
    if (rc)
        return rc;
    fflush(NULL);
    node->pid = fork();
    if (node->pid < 0)
        return error_set(err, HS_ERR_IO, "fork: %s", strerror(errno));
    if (node->pid == 0) {
        be_node(node);
        _exit(0);
    }
    return 0;
}

int gossip_node_check(const struct gossip_node *node, struct error *err)
{
    if (atomic_load_explicit(&node->has_failed, memory_order_acquire))
        return error_set(err, node->err.code, "%s: %s", node->name, node->err.text);
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)node->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0)
        return error_set(err, HS_ERR_IO, "%s has ended", node->name);
    return 0;
}

void gossip_node_stop(struct gossip_node *node)
{
    if (node->pid <= 0)
        return;
    atomic_store_explicit(&node->is_stopping, true, memory_order_release); /* pairs with be_node */
    waitpid(node->pid, NULL, 0);
    node->pid = 0;
}
