#include "perf/gossip_node.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/serve/node_loop.h"
#include "net/net.h"
#include "perf/progress.h"

enum { EVENTS = 64, PAGE_TOKENS = 16 };

int gossip_node_init(struct gossip_node *node, const char *name, uint64_t gossip_interval_ns, const char *join, struct error *err)
{
    *node = (struct gossip_node){.env = node_env_kernel(), .epoll_fd = -1};
    struct transport_sockets_config sockets = {.bind = "127.0.0.1:0"};
    int rc = transport_sockets_create(&sockets, &node->env, &node->transport, err);
    if (rc)
        return rc;
    node->transport->ops->info(node->transport, &node->info);
    struct cluster_config config = {.page_tokens = PAGE_TOKENS, .gossip_interval_ns = gossip_interval_ns};
    snprintf(config.name, sizeof config.name, "%s", name);
    rc = cluster_create(&config, &node->env, node->transport, NULL, NULL, &node->cluster);
    if (rc)
        return error_set(err, rc, "the cluster cannot be made: %s", error_name(rc));
    node->digest = cluster_radix_listener(node->cluster);
    struct epoll_event event = {.events = EPOLLIN};
    node->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int fd = node->transport->ops->wait_fd(node->transport);
    if (node->epoll_fd < 0 || epoll_ctl(node->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        return error_set(err, HS_ERR_IO, "epoll: %s", strerror(errno));
    return join ? cluster_join(node->cluster, join, err) : 0;
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

static void *run(void *arg)
{
    struct gossip_node *node = arg;
    while (!atomic_load_explicit(&node->stopping, memory_order_acquire)) {
        uint64_t next_ns = turn(node), now_ns = perf_now_ns();
        if (next_ns <= now_ns)
            continue;
        uint64_t wait_ns = next_ns - now_ns < 100000000 ? next_ns - now_ns : 100000000; /* so that a stop is seen */
        struct timespec timeout = {.tv_sec = 0, .tv_nsec = (long)wait_ns};
        struct epoll_event event;
        epoll_pwait2(node->epoll_fd, &event, 1, &timeout, NULL);
    }
    return NULL;
}

int gossip_node_start(struct gossip_node *node, struct error *err)
{
    int failed = pthread_create(&node->thread, NULL, run, node);
    if (failed)
        return error_set(err, HS_ERR_IO, "cannot start a thread: %s", strerror(failed));
    node->is_running = true;
    return 0;
}

void gossip_node_stop(struct gossip_node *node)
{
    if (!node->is_running)
        return;
    atomic_store_explicit(&node->stopping, true, memory_order_release); /* pairs with run */
    pthread_join(node->thread, NULL);
    node->is_running = false;
}

void gossip_node_fini(struct gossip_node *node)
{
    gossip_node_stop(node);
    cluster_destroy(node->cluster);
    if (node->transport)
        node->transport->ops->destroy(node->transport);
    if (node->epoll_fd >= 0)
        close(node->epoll_fd);
    *node = (struct gossip_node){.epoll_fd = -1};
}
