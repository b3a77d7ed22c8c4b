#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/panic.h"
#include "net/udp.h"
#include "net/udp_address.h"
#include "net/verbs/rails.h"
#include "net/verbs/ud_internal.h"

enum { LEAST_DATAGRAM = 1200, V6_LEN = 22, LEAST_NEIGHBOURS = 64, DEFAULT_PEERS = 1024, SHARE_IN_PIECES = 4 };
_Static_assert(UD_ROUTE_BYTES + 4096 <= (int)RAIL_BUFFER_BYTES, "a receive holds a packet of the largest path MTU");

static uint32_t ud_mtu(const struct carrier *carrier)
{
    return ud_of(carrier)->mtu;
}

static int ud_resolve(struct carrier *carrier, const char *text, struct carrier_address *out)
{
    struct carrier *ground = ud_of(carrier)->ground;
    return ground->ops->resolve(ground, text, out);
}

static void ud_format(const struct carrier *carrier, const struct carrier_address *address, char *text, size_t size)
{
    const struct carrier *ground = ud_of(carrier)->ground;
    ground->ops->format(ground, address, text, size);
}

static void ud_local(const struct carrier *carrier, char *text, size_t size)
{
    const struct carrier *ground = ud_of(carrier)->ground;
    ground->ops->local(ground, text, size);
}

static int ud_wait_fd(const struct carrier *carrier)
{
    return ud_of(carrier)->epoll_fd;
}

static void ud_stats(const struct carrier *carrier, struct carrier_stats *out)
{
    *out = ud_of(carrier)->stats;
}

static void ud_destroy(struct carrier *carrier)
{
    struct ud *self = ud_of(carrier);
    ud_drop_waiting(self, true);
    for (; self->lent_n > 0; self->lent_n--) {
        struct verbs_buffer *buffer = self->lent[(self->lent_first + self->lent_n - 1) % UD_LENT];
        rail_give(buffer->rail, buffer);
    }
    for (uint32_t i = 0; i < self->n_rails; i++)
        ud_queue_close(&self->rails[i]);
    ud_neighbours_fini(&self->neighbours); /* after what may still be sent along its paths, before the domains that these belong to */
    path_records_close(self->paths);
    for (uint32_t i = 0; i < self->n_rails; i++)
        rail_close(&self->rails[i].rail);
    if (self->epoll_fd >= 0)
        close(self->epoll_fd);
    if (self->ground != NULL)
        self->ground->ops->destroy(self->ground);
    sodium_memzero(self->key, sizeof self->key);
    free(self);
}

static const struct carrier_ops ud_ops = {
    .mtu = ud_mtu,
    .resolve = ud_resolve,
    .format = ud_format,
    .send = ud_send,
    .lend = ud_lend,
    .receive = ud_receive,
    .authentic = ud_authentic,
    .local = ud_local,
    .wait_fd = ud_wait_fd,
    .stats = ud_stats,
    .destroy = ud_destroy,
};

/* ---- creation ---- */

/* In one packet if that is long enough, else in as few as make the least datagram: each may be lost, and with it the others. */
static uint32_t datagram_bytes(uint32_t path_mtu)
{
    uint32_t piece = path_mtu - UD_HEADER_BYTES;
    return (LEAST_DATAGRAM + piece - 1) / piece * piece;
}

static int open_rails(struct ud *self, const struct transport_verbs_config *config, struct error *err)
{
    struct device_rail chosen[DEVICE_MAX_RAILS];
    uint32_t n = 0;
    int status = rails_choose(config, chosen, &n, err);
    self->mtu = UINT32_MAX;
    for (uint32_t i = 0; status == 0 && i < n; i++) {
        struct ud_rail *rail = &self->rails[i];
        uint32_t mtu = datagram_bytes(chosen[i].mtu_bytes);
        self->mtu = mtu < self->mtu ? mtu : self->mtu;
        status = rail_open(&rail->rail, &chosen[i], 1, self->receives, err);
        if (status != 0)
            break;
        self->n_rails++;
        status = ud_queue_open(self, rail, err);
    }
    self->neighbours.n_rails = self->n_rails;
    return status;
}

/* What stands in our datagrams as their sender: the address that peers call. */
static int set_header(struct ud *self, const char *bind, struct error *err)
{
    struct carrier_address *address = &self->address;
    char text[TRANSPORT_ADDRESS_TEXT];
    static const uint8_t no_scope[4];
    self->ground->ops->local(self->ground, text, sizeof text);
    int status = self->ground->ops->resolve(self->ground, text, address);
    if (status != 0 || (address->len == V6_LEN && memcmp(address->bytes + 18, no_scope, 4) != 0))
        return error_set(err, HS_ERR_INVALID,
                         "\"%s\" cannot be the address of a node on datagram queue pairs: give --bind one that is the same for all peers, not a "
                         "link-local one",
                         bind);
    ud_header_write(address, self->header);
    return 0;
}

static int watch(struct ud *self, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(self->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static int open_descriptor(struct ud *self, struct error *err)
{
    self->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int failed = self->epoll_fd < 0 || watch(self, self->ground->ops->wait_fd(self->ground)) != 0 ||
                 (self->paths != NULL && watch(self, path_records_fd(self->paths)) != 0);
    for (uint32_t i = 0; !failed && i < self->n_rails; i++)
        failed = watch(self, self->rails[i].rail.channel->fd) != 0 || watch(self, self->rails[i].rail.context->async_fd) != 0;
    return failed ? error_set(err, HS_ERR_IO, "the RDMA device's descriptors cannot be watched: %s", strerror(errno)) : 0;
}

static void return_receive(void *buffer)
{
    struct verbs_buffer *receive = buffer;
    rail_return(receive->rail, receive);
}

static int open_neighbours(struct ud *self, const struct transport_verbs_config *config, struct error *err)
{
    uint64_t hash_key[2] = {env_random_u64(&self->env), env_random_u64(&self->env)};
    uint32_t peers = config->tuning.max_peers ? config->tuning.max_peers : DEFAULT_PEERS;
    ud_word_key(config->group_key, self->key);
    int status = ud_neighbours_init(&self->neighbours, 2 * peers + LEAST_NEIGHBOURS, (const uint8_t *)hash_key);
    return status == 0 ? 0 : error_set(err, status, "fabric \"verbs-ud\": out of memory");
}

int verbs_ud_carrier_create(const struct transport_verbs_config *config, const struct env *env, struct carrier **out, struct error *err)
{
    hs_assert(sodium_init() >= 0);
    struct error local = {0};
    err = err ? err : &local;
    rails_survive_forks();
    struct ud *self = calloc(1, sizeof *self);
    if (self == NULL)
        return error_set(err, HS_ERR_NO_MEMORY, "fabric \"verbs-ud\": out of memory");
    self->carrier.ops = &ud_ops;
    self->env = *env;
    self->now_ns = env_now_ns(env);
    self->traffic_class = config->traffic_class;
    self->receives = config->receive_datagrams ? config->receive_datagrams : UD_RECEIVES;
    self->receives = self->receives > UD_LEAST_RECEIVES ? self->receives : UD_LEAST_RECEIVES;
    self->next_number = (uint16_t)env_random_u64(env);
    self->pieces = (struct ud_assemblies){.cap = self->receives / SHARE_IN_PIECES < UD_ASSEMBLIES ? self->receives / SHARE_IN_PIECES : UD_ASSEMBLIES,
                                          .release = return_receive};
    self->epoll_fd = -1;
    int status = open_neighbours(self, config, err);
    if (status == 0)
        status = ud_counts_open(self, config->metrics, err);
    if (status == 0)
        status = open_rails(self, config, err);
    if (status == 0 && (status = ud_paths_open(self, config->ask_paths)) != 0)
        error_set(err, status, "out of memory for questions to the subnet manager");
    if (status == 0)
        status = udp_carrier_create(config->bind, LEAST_DATAGRAM, &self->ground, err);
    if (status == 0)
        status = set_header(self, config->bind, err);
    if (status == 0)
        status = open_descriptor(self, err);
    if (status != 0) {
        ud_destroy(&self->carrier);
        return status;
    }
    for (uint32_t i = 0; i < self->n_rails; i++)
        log_info("net", "RDMA device %s port %u, GID index %u, datagrams of %u bytes%s", self->rails[i].rail.choice.device,
                 self->rails[i].rail.choice.port, self->rails[i].rail.choice.gid_index, self->mtu,
                 self->rails[i].rail.choice.software ? ", in software" : "");
    *out = &self->carrier;
    return 0;
}

int transport_verbs_ud_create(const struct transport_verbs_config *config, const struct env *env, struct transport **out, struct error *err)
{
    struct carrier *carrier;
    int status = udp_check_openness(config->bind, config->group_key != NULL, config->insecure_peers, err);
    if (status != 0)
        return status;
    status = verbs_ud_carrier_create(config, env, &carrier, err);
    if (status != 0)
        return status;
    status = transport_reliable_create(carrier, "verbs-ud", config->group_key, &config->tuning, env, out, err);
    if (status != 0)
        carrier->ops->destroy(carrier);
    return status;
}
