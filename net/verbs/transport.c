#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/panic.h"
#include "net/udp.h"
#include "net/verbs/internal.h"
#include "net/verbs/rails.h"

enum { BOOTSTRAP_EVENTS = 32, FIRST_PEERS = 64 };
enum { SLEPT_PARTS = 32 }; /* 3 us beside a card: in such a pause something may have woken the caller; who spins is back sooner */
/* Between looks at what needs a system call; where completions come densely, that would take a part of their time. */
#define SLOW_NS       UINT64_C(100000)
#define SLOW_DENSE_NS UINT64_C(1000000)
#define ASYNC_NS      UINT64_C(1000000)

static struct verbs *self_of(const struct transport *transport)
{
    return (struct verbs *)(uintptr_t)transport;
}

void verbs_timer_at(struct verbs *self, uint64_t when_ns)
{
    if (when_ns < self->next_timer_ns)
        self->next_timer_ns = when_ns;
}

void verbs_activate(struct verbs_link *link)
{
    struct verbs *self = link->owner;
    if (link->active)
        return;
    link->active = true;
    link->active_next = self->active;
    self->active = link;
}

void verbs_tell(struct verbs_link *link, const struct control *control)
{
    struct transport *bootstrap = link->owner->bootstrap;
    uint8_t data[CONTROL_MAX_BYTES];
    struct iovec iov = {.iov_base = data, .iov_len = control_encode(control, data)};
    link->owner->slow_due_ns = 0;
    bootstrap->ops->send(bootstrap, link->peer, &iov, 1, 0); /* it fails only when the session is over, which we shall hear of */
    sodium_memzero(data, sizeof data);
}

/* ---- poll ---- */

/* Peers are numbered by the bootstrap. */
static bool room_for(struct verbs *self, uint32_t place)
{
    uint32_t n = self->n_peers ? self->n_peers : FIRST_PEERS;
    if (place < self->n_peers)
        return true;
    while (n <= place)
        n *= 2;
    struct verbs_link **links = realloc(self->links, n * sizeof(struct verbs_link *));
    if (links == NULL)
        return false;
    self->links = links;
    struct transport_peer_stats *stats = realloc(self->peer_stats, n * sizeof *stats);
    if (stats == NULL)
        return false;
    self->peer_stats = stats;
    uint32_t *numbers = realloc(self->numbers, n * sizeof *numbers);
    if (numbers == NULL)
        return false;
    self->numbers = numbers;
    for (uint32_t i = self->n_peers; i < n; i++) {
        self->links[i] = NULL;
        self->numbers[i] = i;
        self->peer_stats[i] = (struct transport_peer_stats){0};
    }
    self->n_peers = n;
    return true;
}

static struct verbs_link *link_to(const struct verbs *self, uint32_t peer)
{
    uint32_t place = net_peer_place(peer);
    struct verbs_link *link = place < self->n_peers ? self->links[place] : NULL;
    return link != NULL && link->peer == peer ? link : NULL;
}

static void on_bootstrap_event(struct verbs *self, const struct transport_event *event)
{
    uint32_t place = net_peer_place(event->peer);
    if (!room_for(self, place))
        return;
    if (event->kind == TRANSPORT_PEER_UP && self->numbers[place] != event->peer) { /* the place has another owner */
        self->numbers[place] = event->peer;
        self->peer_stats[place] = (struct transport_peer_stats){0};
    }
    struct verbs_link *link = link_to(self, event->peer);
    switch (event->kind) {
    case TRANSPORT_PEER_UP:
        if (link == NULL)
            verbs_link_open(self, event->peer, event->boot_id);
        break;
    case TRANSPORT_PEER_DOWN:
        if (link != NULL)
            verbs_link_end(link, event->status);
        break;
    case TRANSPORT_MESSAGE:
        if (link != NULL)
            verbs_link_control(link, event->data, event->len);
        break;
    case TRANSPORT_READ_DONE:
        break;
    }
}

static void poll_bootstrap(struct verbs *self)
{
    struct transport_event events[BOOTSTRAP_EVENTS];
    int n = self->bootstrap->ops->poll(self->bootstrap, self->now_ns, events, BOOTSTRAP_EVENTS);
    for (int i = 0; i < n; i++)
        on_bootstrap_event(self, &events[i]);
    if (n > 0)
        self->bootstrap->ops->poll(self->bootstrap, self->now_ns, events, 0); /* what we have said leaves now */
}

/* A system call each: not at every turn of a spinning loop, and behind what has come, for one turn. */
static void poll_slow(struct verbs *self)
{
    self->slow_waits = !self->slow_waits && self->events_head < self->events_tail;
    if (self->slow_waits) {
        self->slow_due_ns = 0;
        return;
    }
    verbs_wakeups(self);
    verbs_paths_poll(self);
    poll_bootstrap(self);
    uint64_t deadline_ns = self->bootstrap->ops->next_deadline_ns(self->bootstrap);
    uint64_t due_ns = self->now_ns + (verbs_is_dense(self) ? SLOW_DENSE_NS : SLOW_NS);
    self->slow_due_ns = due_ns < deadline_ns ? due_ns : deadline_ns;
    if (self->now_ns - self->async_ns < ASYNC_NS)
        return;
    self->async_ns = self->now_ns;
    verbs_async_events(self);
    verbs_counts_tell(self);
}

static void run_timers(struct verbs *self)
{
    self->next_timer_ns = UINT64_MAX; /* each timer that still runs names its time again */
    for (uint32_t i = 0; i < self->n_peers; i++)
        if (self->links[i] != NULL)
            verbs_link_timers(self->links[i]);
    verbs_bury(self, false);
}

static void run_active(struct verbs *self)
{
    struct verbs_link *link = self->active, *next;
    self->active = NULL;
    for (; link != NULL; link = next) {
        next = link->active_next;
        link->active = false;
        if (!verbs_link_usable(link))
            continue;
        verbs_reads_step(link);
        verbs_flush(link);
    }
}

/* Before their credits are told. */
static void post_receives(struct verbs *self)
{
    for (uint32_t i = 0; i < self->n_rails; i++)
        if (self->rails[i].repost != NULL)
            rail_post(&self->rails[i]);
}

static int verbs_poll(struct transport *transport, uint64_t now_ns, struct transport_event *events, int n)
{
    struct verbs *self = self_of(transport);
    bool has_slept = self->may_sleep && now_ns > self->now_ns + self->dense_ns / SLEPT_PARTS; /* then it is not known what woke it */
    if (now_ns > self->now_ns)
        self->now_ns = now_ns;
    verbs_events_release(self);
    post_receives(self);
    if (self->active != NULL)
        run_active(self); /* what was said since the last look leaves before anything is looked for */
    for (uint32_t i = 0; i < self->n_rails; i++)
        verbs_completions(self, &self->rails[i], false);
    if (has_slept || self->now_ns >= self->slow_due_ns)
        poll_slow(self);
    post_receives(self);
    if (self->now_ns >= self->next_timer_ns)
        run_timers(self);
    if (self->active != NULL)
        run_active(self);
    self->may_sleep = verbs_arm(self);
    return verbs_events_take(self, events, n);
}

static uint64_t verbs_next_deadline(const struct transport *transport)
{
    const struct verbs *self = self_of(transport);
    if (self->events_head < self->events_tail || self->active != NULL || !self->may_sleep)
        return 0;
    uint64_t deadline = self->bootstrap->ops->next_deadline_ns(self->bootstrap);
    return deadline < self->next_timer_ns ? deadline : self->next_timer_ns;
}

static int verbs_wait_fd(const struct transport *transport)
{
    return self_of(transport)->epoll_fd;
}

/* ---- peers and messages ---- */

static void verbs_info(const struct transport *transport, struct transport_info *out)
{
    const struct verbs *self = self_of(transport);
    self->bootstrap->ops->info(self->bootstrap, out);
    out->name = "verbs";
    out->max_message_bytes = VERBS_MAX_MESSAGE;
    out->max_unreliable_bytes = VERBS_MAX_UNRELIABLE;
    out->reads_pages = true;
}

static int verbs_resolve(struct transport *transport, const char *address, uint32_t *peer)
{
    struct verbs *self = self_of(transport);
    self->slow_due_ns = 0;
    return self->bootstrap->ops->resolve(self->bootstrap, address, peer);
}

static int verbs_address(const struct transport *transport, uint32_t peer, char *text, size_t size)
{
    const struct verbs *self = self_of(transport);
    return self->bootstrap->ops->address(self->bootstrap, peer, text, size);
}

/* The link of a peer that is up, or NULL. */
static struct verbs_link *link_up(const struct verbs *self, uint32_t peer)
{
    struct verbs_link *link = link_to(self, peer);
    return link != NULL && verbs_link_usable(link) ? link : NULL;
}

static int verbs_send(struct transport *transport, uint32_t peer, const struct iovec *iov, int n, uint32_t flags)
{
    struct verbs *self = self_of(transport);
    struct verbs_link *link = link_up(self, peer);
    bool unreliable = flags & TRANSPORT_UNRELIABLE;
    size_t len = 0, limit = unreliable ? VERBS_MAX_UNRELIABLE : VERBS_MAX_MESSAGE;
    if (link == NULL)
        return HS_ERR_CLOSED;
    for (int i = 0; i < n; i++) {
        if (iov[i].iov_len > limit - len)
            return HS_ERR_LIMIT;
        len += iov[i].iov_len;
    }
    if (!verbs_send_at_once(link, unreliable ? PACKET_UNRELIABLE : PACKET_STREAM, iov, n, len)) {
        int status = unreliable ? verbs_queue_unreliable(link, iov, n, len) : verbs_queue(link, iov, n, len);
        if (status != 0)
            return status;
    }
    self->peer_stats[net_peer_place(peer)].sent_messages++;
    self->stats.sent_messages++;
    self->stats.sent_bytes += len;
    return 0;
}

static int verbs_op_publish(struct transport *transport, uint32_t region, uint32_t n_pages, uint32_t page_bytes)
{
    return verbs_publish(self_of(transport), region, n_pages, page_bytes);
}

static int verbs_op_write_page(struct transport *transport, uint32_t region, uint32_t page, const void *data, uint32_t len)
{
    return verbs_write_page(self_of(transport), region, page, data, len);
}

static int verbs_op_read_page(struct transport *transport, uint32_t peer, uint32_t region, uint32_t page, uint32_t expected, uint64_t cookie)
{
    struct verbs_link *link = link_up(self_of(transport), peer);
    return link == NULL ? HS_ERR_CLOSED : verbs_read_page(link, region, page, expected, cookie);
}

static void verbs_close_peer(struct transport *transport, uint32_t peer)
{
    struct verbs *self = self_of(transport);
    self->slow_due_ns = 0;
    self->bootstrap->ops->close_peer(self->bootstrap, peer);
    verbs_events_drop(self, peer);
    struct verbs_link *link = link_to(self, peer);
    if (link != NULL)
        verbs_link_end(link, 0);
}

static int verbs_peer_stats(const struct transport *transport, uint32_t peer, struct transport_peer_stats *out)
{
    const struct verbs *self = self_of(transport);
    struct transport_peer_stats bootstrap;
    if (self->bootstrap->ops->peer_stats(self->bootstrap, peer, &bootstrap) != 0)
        return HS_ERR_NOT_FOUND;
    uint32_t place = net_peer_place(peer);
    bool has_any = place < self->n_peers && self->numbers[place] == peer;
    *out = has_any ? self->peer_stats[place] : (struct transport_peer_stats){0};
    return 0;
}

/* Who may be a peer is the bootstrap's to bound, what waits to be sent ours. Received packets lie in the receives that credits allow for. */
static void verbs_stats(const struct transport *transport, struct transport_stats *out)
{
    const struct verbs *self = self_of(transport);
    struct transport_stats bootstrap;
    uint64_t fullest = 0, fullest_unreliable = 0;
    self->bootstrap->ops->stats(self->bootstrap, &bootstrap);
    for (uint32_t i = 0; i < self->n_peers; i++) {
        const struct verbs_link *link = self->links[i];
        if (link == NULL)
            continue;
        uint64_t queued = byte_ring_used(&link->ring);
        fullest = queued > fullest ? queued : fullest;
        fullest_unreliable = link->unreliable_len > fullest_unreliable ? link->unreliable_len : fullest_unreliable;
    }
    *out = self->stats;
    out->rejected += bootstrap.rejected;
    out->peers = bootstrap.peers;
    out->half_open = bootstrap.half_open;
    out->strangers = bootstrap.strangers;
    out->send_bytes = (struct transport_bound){fullest, self->tuning.send_buffer_bytes, self->stats.send_bytes.hits};
    out->unreliable_bytes = (struct transport_bound){fullest_unreliable, VERBS_UNRELIABLE_BYTES, self->stats.unreliable_bytes.hits};
}

/* ---- creation and end ---- */

static void verbs_destroy(struct transport *transport)
{
    struct verbs *self = self_of(transport);
    for (uint32_t i = 0; i < self->n_peers; i++)
        if (self->links[i] != NULL)
            verbs_link_end(self->links[i], 0);
    verbs_bury(self, true);
    path_records_close(self->paths);
    if (self->bootstrap != NULL)
        self->bootstrap->ops->destroy(self->bootstrap);
    verbs_events_fini(self);
    verbs_regions_fini(self);
    for (uint32_t i = 0; i < self->n_rails; i++)
        rail_close(&self->rails[i]);
    buffer_pool_fini(&self->pool);
    u64_map_fini(&self->pair_of_qp);
    sodium_memzero(self->pages_root, sizeof self->pages_root);
    if (self->epoll_fd >= 0)
        close(self->epoll_fd);
    free(self->links);
    free(self->peer_stats);
    free(self->numbers);
    free(self);
}

static const struct transport_ops verbs_ops = {
    .info = verbs_info,
    .resolve = verbs_resolve,
    .address = verbs_address,
    .send = verbs_send,
    .poll = verbs_poll,
    .next_deadline_ns = verbs_next_deadline,
    .wait_fd = verbs_wait_fd,
    .publish = verbs_op_publish,
    .write_page = verbs_op_write_page,
    .read_page = verbs_op_read_page,
    .close_peer = verbs_close_peer,
    .peer_stats = verbs_peer_stats,
    .stats = verbs_stats,
    .destroy = verbs_destroy,
};

static struct net_tuning with_defaults(const struct net_tuning *given)
{
    const uint64_t ms = 1000000;
    struct net_tuning t = *given;
    t.peer_timeout_ns = t.peer_timeout_ns ? t.peer_timeout_ns : 5000 * ms;
    t.connect_retry_min_ns = t.connect_retry_min_ns ? t.connect_retry_min_ns : 100 * ms;
    t.connect_retry_max_ns = t.connect_retry_max_ns ? t.connect_retry_max_ns : 2000 * ms;
    t.handshake_timeout_ns = t.handshake_timeout_ns ? t.handshake_timeout_ns : 10000 * ms;
    t.rekey_ns = t.rekey_ns ? t.rekey_ns : 600 * 1000 * ms;
    t.rekey_packets = t.rekey_packets ? t.rekey_packets : 1 << 24;
    t.send_buffer_bytes = t.send_buffer_bytes ? t.send_buffer_bytes : 4 << 20;
    t.max_peers = t.max_peers ? t.max_peers : 1024;
    t.ciphers = t.ciphers ? t.ciphers : seal_ciphers_available();
    return t;
}

/* The bootstrap's key is made from the group's, so that nodes of another fabric at the same address are told from ours. */
static void bootstrap_key(const uint8_t *group_key, uint8_t out[NET_GROUP_KEY_BYTES])
{
    static const char label[] = "hearsay verbs bootstrap 1";
    crypto_generichash_blake2b(out, NET_GROUP_KEY_BYTES, (const uint8_t *)label, sizeof label - 1, group_key,
                               group_key ? NET_GROUP_KEY_BYTES : 0);
}

static int open_bootstrap(struct verbs *self, struct error *err)
{
    const struct transport_verbs_config *config = &self->config;
    int status = udp_check_openness(config->bind, config->group_key != NULL, config->insecure_peers, err);
    if (status != 0)
        return status;
    uint8_t key[NET_GROUP_KEY_BYTES];
    bootstrap_key(config->group_key, key);
    struct transport_sockets_config sockets = {.bind = config->bind, .group_key = key, .tuning = config->tuning};
    status = transport_sockets_create(&sockets, &self->env, &self->bootstrap, err);
    sodium_memzero(key, sizeof key);
    struct transport_info info;
    if (status == 0) {
        self->bootstrap->ops->info(self->bootstrap, &info);
        self->boot_id = info.boot_id;
    }
    return status;
}

static int open_rails(struct verbs *self, struct error *err)
{
    struct device_rail chosen[DEVICE_MAX_RAILS];
    uint32_t n = 0;
    int status = rails_choose(&self->config, chosen, &n, err);
    for (uint32_t i = 0; status == 0 && i < n; i++) {
        status = rail_open(&self->rails[i], &chosen[i], self->tuning.max_peers, VERBS_CREDITS + VERBS_SPARE, err);
        self->n_rails += status == 0;
    }
    self->dense_ns = verbs_dense_ns(&self->rails[0]);
    if (status == 0 && (status = verbs_paths_open(self)) != 0)
        error_set(err, status, "out of memory for questions to the subnet manager");
    return status;
}

static int watch(struct verbs *self, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    return fd < 0 ? 0 : epoll_ctl(self->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static int open_descriptor(struct verbs *self, struct error *err)
{
    self->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int failed = self->epoll_fd < 0 || watch(self, self->bootstrap->ops->wait_fd(self->bootstrap)) != 0 ||
                 (self->paths != NULL && watch(self, path_records_fd(self->paths)) != 0);
    for (uint32_t i = 0; !failed && i < self->n_rails; i++)
        failed = watch(self, self->rails[i].channel->fd) != 0 || watch(self, self->rails[i].context->async_fd) != 0;
    return failed ? error_set(err, HS_ERR_IO, "the RDMA device's descriptors cannot be watched: %s", strerror(errno)) : 0;
}

int transport_verbs_create(const struct transport_verbs_config *config, const struct env *env, struct transport **out,
                           struct error *err)
{
    hs_assert(sodium_init() >= 0);
    struct error local = {0};
    err = err ? err : &local;
    rails_survive_forks();
    struct verbs *self = calloc(1, sizeof *self);
    if (self == NULL)
        return error_set(err, HS_ERR_NO_MEMORY, "fabric \"verbs\": out of memory");
    self->transport.ops = &verbs_ops;
    self->config = *config;
    pages_root(config->group_key, self->pages_root);
    self->tuning = with_defaults(&config->tuning);
    self->env = *env;
    self->now_ns = env_now_ns(env);
    self->next_timer_ns = UINT64_MAX;
    self->epoll_fd = -1;
    buffer_pool_init(&self->pool, 0, 0); /* messages only */
    int status = verbs_counts_open(self, err);
    if (status == 0)
        status = open_rails(self, err);
    if (status == 0)
        status = open_bootstrap(self, err);
    if (status == 0)
        status = open_descriptor(self, err);
    if (status != 0) {
        verbs_destroy(&self->transport);
        return status;
    }
    self->config.group_key = NULL; /* the caller's */
    for (uint32_t i = 0; i < self->n_rails; i++)
        log_info("net", "RDMA device %s port %u, GID index %u, path MTU %u%s", self->rails[i].choice.device, self->rails[i].choice.port,
                 self->rails[i].choice.gid_index, self->rails[i].choice.mtu_bytes, self->rails[i].choice.software ? ", in software" : "");
    *out = &self->transport;
    return 0;
}

int transport_verbs_stats(const struct transport *transport, struct transport_verbs_stats *out)
{
    if (transport->ops != &verbs_ops)
        return HS_ERR_UNSUPPORTED;
    *out = self_of(transport)->counts;
    return 0;
}
