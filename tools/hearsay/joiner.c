#include "tools/hearsay/joiner.h"

#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/parse.h"
#include "core/port/transport.h"
#include "tools/hearsay/node_options.h"

enum { FIRST_RETRY_MS = 500, LAST_RETRY_MS = 10000 };

struct joiner {
    pthread_mutex_t mutex;
    pthread_cond_t stopped;
    struct node_inbox *inbox; /* NULL once stopped; under mutex */
    atomic_int owners;        /* the thread and whoever started it */
    int family;
    char **hosts; /* [n_hosts] not found yet; the thread's own */
    uint32_t n_hosts;
};

static void release(struct joiner *j)
{
    if (atomic_fetch_sub(&j->owners, 1) > 1)
        return;
    for (uint32_t i = 0; i < j->n_hosts; i++)
        free(j->hosts[i]);
    free(j->hosts);
    pthread_cond_destroy(&j->stopped);
    pthread_mutex_destroy(&j->mutex);
    free(j);
}

static int add_host(void *arg, const char *host)
{
    struct joiner *j = arg;
    char **hosts = realloc(j->hosts, (j->n_hosts + 1) * sizeof *hosts);
    if (!hosts)
        return HS_ERR_NO_MEMORY;
    j->hosts = hosts;
    hosts[j->n_hosts] = strdup(host);
    return hosts[j->n_hosts] ? (j->n_hosts++, 0) : HS_ERR_NO_MEMORY;
}

/* Hands one address over. false: stopped, or the inbox is full. */
static bool hand_over(struct joiner *j, const struct addrinfo *address)
{
    char host[NI_MAXHOST], port[NI_MAXSERV], text[TRANSPORT_ADDRESS_TEXT];
    if (getnameinfo(address->ai_addr, address->ai_addrlen, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV))
        return false;
    const char *format = address->ai_family == AF_INET6 ? "[%s]:%s" : "%s:%s";
    if ((size_t)snprintf(text, sizeof text, format, host, port) >= sizeof text)
        return false;
    pthread_mutex_lock(&j->mutex);
    bool taken = j->inbox && node_inbox_join(j->inbox, text) == 0;
    pthread_mutex_unlock(&j->mutex);
    return taken;
}

/* Whether the host was found and handed over. */
static bool find(struct joiner *j, const char *host, bool first_try)
{
    char name[TRANSPORT_ADDRESS_TEXT];
    snprintf(name, sizeof name, "%s", host);
    char *port = strrchr(name, ':'), *node = name;
    if (!port)
        return false;
    *port++ = '\0';
    if (*node == '[') {
        node++;
        node[strcspn(node, "]")] = '\0';
    }
    const struct addrinfo hints = {.ai_family = j->family, .ai_socktype = SOCK_DGRAM};
    struct addrinfo *addresses;
    int rc = getaddrinfo(node, port, &hints, &addresses);
    if (rc) {
        if (first_try)
            log_warn("start", "--join: %s has no address of our --bind address's kind yet (%s); trying again", host, gai_strerror(rc));
        return false;
    }
    bool all = true;
    for (const struct addrinfo *a = addresses; a; a = a->ai_next)
        all = hand_over(j, a) && all;
    freeaddrinfo(addresses);
    return all;
}

/* false: stopped meanwhile. */
static bool wait_ms(struct joiner *j, uint32_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&j->mutex);
    while (j->inbox && pthread_cond_timedwait(&j->stopped, &j->mutex, &until) == 0)
        ;
    bool going_on = j->inbox != NULL;
    pthread_mutex_unlock(&j->mutex);
    return going_on;
}

/* Whether hosts are left. */
static bool find_all(struct joiner *j, bool first_try)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < j->n_hosts; i++) {
        if (find(j, j->hosts[i], first_try))
            free(j->hosts[i]);
        else
            j->hosts[left++] = j->hosts[i];
    }
    j->n_hosts = left;
    return left > 0;
}

static void *run(void *arg)
{
    struct joiner *j = arg;
    uint32_t retry_ms = FIRST_RETRY_MS;
    bool goes_on = find_all(j, true);
    while (goes_on && wait_ms(j, retry_ms)) {
        goes_on = find_all(j, false);
        retry_ms = retry_ms < LAST_RETRY_MS / 2 ? retry_ms * 2 : LAST_RETRY_MS;
    }
    release(j);
    return NULL;
}

int joiner_start(const char *list, const char *bind, struct node_inbox *inbox, struct joiner **out, struct error *err)
{
    struct joiner *j = calloc(1, sizeof *j);
    if (!j)
        return error_set(err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&j->mutex, NULL);
    pthread_cond_init(&j->stopped, &monotonic);
    pthread_condattr_destroy(&monotonic);
    j->inbox = inbox;
    j->family = bind[0] == '[' ? AF_INET6 : AF_INET;
    j->owners = 1;
    int rc = parse_host_list(list, NODE_FABRIC_PORT, NODE_MAX_JOIN, add_host, j, err);
    pthread_t thread;
    if (rc == 0) {
        j->owners = 2;
        if (pthread_create(&thread, NULL, run, j)) {
            j->owners = 1;
            rc = error_set(err, HS_ERR_IO, "the thread that looks peers up cannot be started");
        }
    }
    if (rc) {
        release(j);
        return rc;
    }
    pthread_setname_np(thread, "joiner");
    pthread_detach(thread);
    *out = j;
    return 0;
}

void joiner_stop(struct joiner *j)
{
    pthread_mutex_lock(&j->mutex);
    j->inbox = NULL;
    pthread_cond_signal(&j->stopped);
    pthread_mutex_unlock(&j->mutex);
    release(j);
}
