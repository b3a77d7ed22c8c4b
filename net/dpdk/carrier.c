#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>

#include "core/base/log.h"
#include "net/dpdk/callers.h"
#include "net/dpdk/eal.h"
#include "net/dpdk/internal.h"
#include "net/dpdk/nic_scan.h"
#include "net/udp_address.h"

enum { FREE_PORT = 7070, V4_BYTES = 6, OTHER_BUFFERS = 1024 + DPDK_KEPT, POOL_CACHE = 128, ROOM_SLACK = 64 };

/* ---- addresses ---- */

static uint32_t ip_of(const struct carrier_address *address)
{
    rte_be32_t ip;
    memcpy(&ip, address->bytes + 2, 4);
    return rte_be_to_cpu_32(ip);
}

static uint16_t port_of(const struct carrier_address *address)
{
    rte_be16_t port;
    memcpy(&port, address->bytes, 2);
    return rte_be_to_cpu_16(port);
}

/* One host: not "any", loopback, a group or everybody. */
static bool is_host(uint32_t ip)
{
    return ip >> 24 != 0 && ip >> 24 != 127 && ip >> 28 < 14;
}

static int dpdk_resolve(struct carrier *carrier, const char *text, struct carrier_address *out)
{
    struct carrier_address address;
    (void)carrier;
    int status = udp_address_lookup(text, AF_INET, &address);
    if (status != 0)
        return status;
    if (address.len != V4_BYTES || !is_host(ip_of(&address)) || port_of(&address) == 0)
        return HS_ERR_PARSE;
    *out = address;
    return 0;
}

static void dpdk_format(const struct carrier *carrier, const struct carrier_address *address, char *text, size_t size)
{
    (void)carrier;
    udp_address_format(address, text, size);
}

static void dpdk_local(const struct carrier *carrier, char *text, size_t size)
{
    const struct dpdk *self = dpdk_of(carrier);
    snprintf(text, size, "%u.%u.%u.%u:%u", self->ip >> 24, self->ip >> 16 & 255, self->ip >> 8 & 255, self->ip & 255, self->udp_port);
}

static uint32_t dpdk_mtu(const struct carrier *carrier)
{
    return dpdk_of(carrier)->mtu;
}

static int dpdk_wait_fd(const struct carrier *carrier)
{
    (void)carrier;
    return -1;
}

static void dpdk_stats(const struct carrier *carrier, struct carrier_stats *out)
{
    *out = dpdk_of(carrier)->stats;
}

/* Whoever polls is not always who created: the pool's cache goes by DPDK's own numbers of threads. */
static int receive_in_turn(struct carrier *carrier, struct carrier_datagram *datagrams, uint32_t n)
{
    static _Thread_local bool asked;
    if (!asked && rte_lcore_id() == LCORE_ID_ANY && rte_thread_register() != 0)
        log_debug("dpdk", "this thread has no cache of buffers: %s", rte_strerror(rte_errno));
    asked = true;
    if (!dpdk_poller_begin(&dpdk_of(carrier)->poller))
        return 0;
    int got = dpdk_receive(carrier, datagrams, n);
    dpdk_poller_end(&dpdk_of(carrier)->poller);
    return got;
}

static int send_in_turn(struct carrier *carrier, const struct carrier_datagram *datagrams, uint32_t n)
{
    if (!dpdk_poller_begin(&dpdk_of(carrier)->poller))
        return 0;
    int taken = dpdk_send(carrier, datagrams, n);
    dpdk_poller_end(&dpdk_of(carrier)->poller);
    return taken;
}

static void release_ports(struct dpdk *self)
{
    for (uint32_t p = 0; p < self->n_ports; p++)
        dpdk_port_hang_up(&self->ports[p]);
    dpdk_poller_begin_waiting(&self->poller);
    for (uint32_t p = 0; p < self->n_ports; p++)
        dpdk_port_release(&self->ports[p], self->owner);
    dpdk_poller_end(&self->poller);
    dpdk_poller_leave(&self->poller);
}

static void dpdk_destroy(struct carrier *carrier)
{
    struct dpdk *self = dpdk_of(carrier);
    dpdk_drop_waiting(self, true);
    for (; self->lent_n > 0; self->lent_n--)
        rte_pktmbuf_free(self->lent[(self->lent_first + self->lent_n - 1) % DPDK_LENT]);
    if (self->in_n > 0)
        rte_pktmbuf_free_bulk(self->in, self->in_n);
    dpdk_counts_take(self);
    release_ports(self);
    free(self); /* the pool stays: rings of the ports may still hold buffers of it */
}

/* With memory that the other end shares: nothing is written or opened there but what is sealed. */
static const struct carrier_ops sharing_ops = {
    .mtu = dpdk_mtu,
    .resolve = dpdk_resolve,
    .format = dpdk_format,
    .send = send_in_turn,
    .receive = receive_in_turn,
    .local = dpdk_local,
    .wait_fd = dpdk_wait_fd,
    .stats = dpdk_stats,
    .destroy = dpdk_destroy,
};

static const struct carrier_ops dpdk_ops = {
    .mtu = dpdk_mtu,
    .resolve = dpdk_resolve,
    .format = dpdk_format,
    .send = send_in_turn,
    .lend = dpdk_lend,
    .receive = receive_in_turn,
    .keep = dpdk_keep,
    .release = dpdk_release,
    .local = dpdk_local,
    .wait_fd = dpdk_wait_fd,
    .stats = dpdk_stats,
    .destroy = dpdk_destroy,
};

/* ---- creation ---- */

static int set_addresses(struct dpdk *self, const char *bind, const struct device_text *device, struct error *err)
{
    struct carrier_address address;
    if (udp_address_lookup(bind, AF_INET, &address) != 0 || address.len != V4_BYTES || !is_host(ip_of(&address)))
        return error_set(err, HS_ERR_INVALID,
                         "\"%s\" cannot be a node's address on DPDK, which sees no address of the kernel: give --bind an IPv4 address of its own, "
                         "such as 10.0.0.1:7070",
                         bind);
    self->ip = ip_of(&address);
    self->udp_port = port_of(&address) ? port_of(&address) : FREE_PORT;
    self->mask = device->prefix ? ~UINT32_C(0) << (32 - device->prefix) : 0;
    self->gateway = device->gateway;
    if (self->gateway != 0 && (((self->gateway ^ self->ip) & self->mask) != 0 || self->gateway == self->ip))
        return error_set(err, HS_ERR_INVALID, "the gateway of --device is not a neighbour of \"%s\" within a prefix of %u bits", bind, device->prefix);
    return 0;
}

static int no_ports(struct error *err)
{
    char cards[320];
    nic_scan("/sys", cards, sizeof cards);
    if (*cards)
        return error_set(err, HS_ERR_UNSUPPORTED, "DPDK has no Ethernet port: %s", cards);
    return error_set(err, HS_ERR_UNSUPPORTED,
                     "DPDK has no Ethernet port and this machine no network card: give --eal a virtual device, such as "
                     "\"--vdev=net_af_packet0,iface=eth0\"");
}

static int no_such_port(const char *name, struct error *err)
{
    char list[200] = "none at all", port_name[RTE_ETH_NAME_MAX_LEN];
    size_t len = 0;
    uint16_t id;
    RTE_ETH_FOREACH_DEV(id)
        if (rte_eth_dev_get_name_by_port(id, port_name) == 0 && len + strlen(port_name) + 3 < sizeof list)
            len += (size_t)snprintf(list + len, sizeof list - len, "%s%s", len ? ", " : "", port_name);
    return error_set(err, HS_ERR_NOT_FOUND, "DPDK has no port \"%s\", but %s", name, list);
}

static int claim(struct dpdk *self, uint16_t id, const struct device_text *device, struct error *err)
{
    int rc = dpdk_port_claim(&self->ports[self->n_ports], id, self->owner, device->queues, err);
    if (rc == 0)
        self->shares_memory |= self->ports[self->n_ports++].shares_memory;
    return rc;
}

static int claim_ports(struct dpdk *self, const struct device_text *device, struct error *err)
{
    uint16_t id;
    int rc = rte_eth_dev_count_total() == 0 ? no_ports(err) : 0;
    rte_eth_dev_owner_new(&self->owner);
    for (uint32_t i = 0; rc == 0 && i < device->n_ports; i++)
        rc = rte_eth_dev_get_port_by_name(device->ports[i], &id) == 0 ? claim(self, id, device, err) : no_such_port(device->ports[i], err);
    if (rc == 0 && device->n_ports == 0) {
        RTE_ETH_FOREACH_DEV(id)
            if (rc == 0 && self->n_ports < DEVICE_TEXT_PORTS)
                rc = claim(self, id, device, err);
        if (rc == 0 && self->n_ports == 0) /* all have an owner: who it is */
            rc = claim(self, (uint16_t)rte_eth_find_next(0), device, err);
    }
    return rc;
}

/* What the narrowest port takes, or what was asked for. */
static uint32_t choose_mtu(const struct dpdk *self, const struct device_text *device)
{
    uint32_t mtu = DEVICE_TEXT_MOST_MTU;
    for (uint32_t p = 0; p < self->n_ports; p++)
        mtu = self->ports[p].mtu < mtu ? self->ports[p].mtu : mtu;
    return device->mtu ? device->mtu : mtu;
}

/* A pool is found again by the next carrier of the same ports: it cannot be given back while rings may hold buffers of it. */
static int open_pool(struct dpdk *self, uint32_t mtu, struct error *err)
{
    char name[RTE_MEMPOOL_NAMESIZE];
    uint32_t n = OTHER_BUFFERS, room = RTE_PKTMBUF_HEADROOM + FRAME_ETHERNET_BYTES + mtu + ROOM_SLACK;
    room = room < RTE_MBUF_DEFAULT_BUF_SIZE ? RTE_MBUF_DEFAULT_BUF_SIZE : room;
    for (uint32_t p = 0; p < self->n_ports; p++) {
        n += dpdk_port_buffers(&self->ports[p]);
        room = room < RTE_PKTMBUF_HEADROOM + self->ports[p].least_room ? RTE_PKTMBUF_HEADROOM + self->ports[p].least_room : room;
    }
    room = RTE_ALIGN(room, 64);
    snprintf(name, sizeof name, "hs%u_%u_%u", self->ports[0].id, n, room);
    self->pool = rte_mempool_lookup(name);
    if (self->pool == NULL)
        self->pool = rte_pktmbuf_pool_create(name, n, POOL_CACHE, 0, (uint16_t)room, (int)rte_socket_id());
    if (self->pool == NULL)
        return error_set(err, HS_ERR_UNSUPPORTED, "no memory for %u buffers of %u bytes (%u MiB): %s; give --eal more by -m, or more hugepages", n, room,
                         (uint32_t)((uint64_t)n * (room + 256) >> 20), rte_strerror(rte_errno));
    return 0;
}

static int start_ports(struct dpdk *self, uint32_t mtu, struct error *err)
{
    int rc = 0;
    for (uint32_t p = 0; rc == 0 && p < self->n_ports; p++)
        rc = self->ports[p].unruly ? dpdk_interrupts_hold(err) : 0;
    dpdk_poller_begin_waiting(&self->poller);
    for (uint32_t p = 0; rc == 0 && p < self->n_ports; p++)
        rc = dpdk_port_start(&self->ports[p], mtu, self->pool, err);
    dpdk_poller_end(&self->poller);
    return rc == 0 ? dpdk_callers_open(err) : rc;
}

int dpdk_carrier_create(const struct dpdk_carrier_config *config, struct carrier **out, struct error *err)
{
    struct device_text device;
    int status = device_text_parse(config->device, &device, err);
    if (status != 0)
        return error_wrap(err, status, "--device");
    struct dpdk *self = calloc(1, sizeof *self);
    if (self == NULL)
        return error_set(err, HS_ERR_NO_MEMORY, "fabric \"dpdk\": out of memory");
    self->metrics = config->metrics;
    dpdk_poller_join(&self->poller);
    status = set_addresses(self, config->bind, &device, err);
    if (status == 0 && (status = dpdk_eal_start(config->eal, err)) != 0)
        error_wrap(err, status, "--eal");
    if (status == 0)
        status = claim_ports(self, &device, err);
    uint32_t mtu = status == 0 ? choose_mtu(self, &device) : 0;
    if (status == 0 && mtu < DEVICE_TEXT_LEAST_MTU)
        status = error_set(err, HS_ERR_INVALID, "port %s passes packets of only %u bytes: at least %d are needed", self->ports[0].name, mtu,
                           DEVICE_TEXT_LEAST_MTU);
    if (status == 0)
        status = open_pool(self, mtu, err);
    if (status == 0)
        status = start_ports(self, mtu, err);
    if (status == 0)
        status = dpdk_counts_open(self, err);
    if (status != 0) {
        release_ports(self);
        free(self);
        return status;
    }
    self->ticks_per_us = rte_get_tsc_hz() / 1000000;
    self->mtu = mtu - FRAME_IP_UDP_BYTES;
    self->carrier.ops = self->shares_memory ? &sharing_ops : &dpdk_ops;
    log_info("dpdk", "%u ports, datagrams of %u bytes, %u buffers", self->n_ports, self->mtu, self->pool->size);
    *out = &self->carrier;
    return 0;
}

void dpdk_carrier_stats(const struct carrier *carrier, struct dpdk_carrier_stats *out)
{
    struct dpdk *self = dpdk_of(carrier);
    dpdk_counts_take(self);
    *out = self->counts;
}
