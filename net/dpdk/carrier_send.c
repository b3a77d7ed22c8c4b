#include <string.h>

#include <rte_prefetch.h>

#include "net/dpdk/internal.h"

enum {
    STUCK_US = 2000,        /* a port that takes nothing so long holds up the others no more */
    WAITING_US = 1000000,   /* for the answer to an ARP request */
    LEAST_FRAME_BYTES = 60, /* Ethernet's, without the check sequence */
};

/* ---- buffers ---- */

static uint8_t *payload_of(const struct rte_mbuf *mbuf)
{
    return (uint8_t *)mbuf->buf_addr + RTE_PKTMBUF_HEADROOM + FRAME_HEADER_BYTES;
}

/* Sent buffers come back when a device is next given something; one that is idle has to be asked. */
static struct rte_mbuf *get_buffer(struct dpdk *self)
{
    struct rte_mbuf *mbuf = rte_pktmbuf_alloc(self->pool);
    for (uint32_t p = 0; mbuf == NULL && p < self->n_ports; p++) {
        for (uint16_t queue = 0; queue < self->ports[p].queues && !self->ports[p].unruly; queue++)
            rte_eth_tx_done_cleanup(self->ports[p].id, queue, 0);
        mbuf = rte_pktmbuf_alloc(self->pool);
    }
    if (mbuf == NULL)
        self->counts.no_mbuf++;
    return mbuf;
}

uint8_t *dpdk_lend(struct carrier *carrier)
{
    struct dpdk *self = dpdk_of(carrier);
    struct rte_mbuf *mbuf = self->lent_n < DPDK_LENT ? get_buffer(self) : NULL;
    if (mbuf == NULL)
        return NULL;
    self->lent[(self->lent_first + self->lent_n++) % DPDK_LENT] = mbuf;
    return payload_of(mbuf);
}

/* The buffer with the datagram's payload: the lent one that it was sealed in (nth of them, *lent is set), else a copy. NULL: none is free. */
static struct rte_mbuf *buffer_of(struct dpdk *self, const struct carrier_datagram *datagram, uint32_t nth, bool *lent)
{
    struct rte_mbuf *mbuf = nth < self->lent_n ? self->lent[(self->lent_first + nth) % DPDK_LENT] : NULL;
    *lent = mbuf != NULL && payload_of(mbuf) == datagram->data;
    if (*lent)
        return mbuf;
    mbuf = get_buffer(self);
    if (mbuf != NULL)
        memcpy(payload_of(mbuf), datagram->data, datagram->len);
    return mbuf;
}

static void forget_lent(struct dpdk *self, uint32_t n)
{
    self->lent_first = (self->lent_first + n) % DPDK_LENT;
    self->lent_n -= n;
}

/* ---- frames ---- */

static void write_headers(const struct dpdk *self, struct rte_mbuf *mbuf, const struct carrier_datagram *datagram)
{
    struct frame_end from = {.ip = self->ip, .port = self->udp_port}, to = {0};
    uint16_t port;
    memcpy(&port, datagram->address.bytes, 2);
    memcpy(&to.ip, datagram->address.bytes + 2, 4);
    to.port = rte_be_to_cpu_16(port);
    to.ip = rte_be_to_cpu_32(to.ip);
    mbuf->data_off = RTE_PKTMBUF_HEADROOM;
    mbuf->data_len = (uint16_t)(FRAME_HEADER_BYTES + datagram->len);
    frame_write_udp(rte_pktmbuf_mtod(mbuf, uint8_t *), &from, &to, datagram->len);
    if (mbuf->data_len < LEAST_FRAME_BYTES) {
        memset(rte_pktmbuf_mtod(mbuf, uint8_t *) + mbuf->data_len, 0, LEAST_FRAME_BYTES - mbuf->data_len);
        mbuf->data_len = LEAST_FRAME_BYTES;
    }
    mbuf->pkt_len = mbuf->data_len;
}

static void write_macs(struct rte_mbuf *mbuf, const struct dpdk_port *port, const struct neighbour *neighbour)
{
    uint8_t *ethernet = rte_pktmbuf_mtod(mbuf, uint8_t *);
    memcpy(ethernet, neighbour->mac, FRAME_MAC_BYTES);
    memcpy(ethernet + FRAME_MAC_BYTES, port->mac, FRAME_MAC_BYTES);
}

/* ---- ARP ---- */

void dpdk_send_arp(struct dpdk *self, struct dpdk_port *port, enum frame_kind kind, const struct frame_end *to)
{
    struct frame_end from = {.ip = self->ip};
    struct rte_mbuf *mbuf = port->up ? get_buffer(self) : NULL;
    if (mbuf == NULL)
        return;
    memcpy(from.mac, port->mac, FRAME_MAC_BYTES);
    uint8_t *frame = (uint8_t *)rte_pktmbuf_append(mbuf, LEAST_FRAME_BYTES);
    memset(frame, 0, LEAST_FRAME_BYTES);
    frame_write_arp(frame, kind, &from, to);
    if (rte_eth_tx_burst(port->id, 0, &mbuf, 1) == 1) {
        self->counts.sent_frames++;
        *(kind == FRAME_ARP_REQUEST ? &self->counts.arp_requests : &self->counts.arp_replies) += 1;
    } else {
        rte_pktmbuf_free(mbuf);
    }
}

void dpdk_announce(struct dpdk *self, struct dpdk_port *port)
{
    struct frame_end to = {.ip = self->ip};
    memcpy(to.mac, frame_broadcast_mac, FRAME_MAC_BYTES);
    dpdk_send_arp(self, port, FRAME_ARP_REQUEST, &to);
}

static void ask(struct dpdk *self, struct neighbour *neighbour)
{
    if (neighbour->known && self->now_us - neighbour->heard_us < NEIGHBOUR_STALE_US) /* as nearly always */
        return;
    struct frame_end to = {.ip = neighbour->ip};
    memcpy(to.mac, frame_broadcast_mac, FRAME_MAC_BYTES);
    if (neighbour_ask(neighbour, dpdk_now_us(self))) /* what waits for the answer goes by this time, and before the first look there was none */
        for (uint32_t p = 0; p < self->n_ports; p++)
            dpdk_send_arp(self, &self->ports[p], FRAME_ARP_REQUEST, &to);
}

/* Who takes what goes to that address; asked for when not known or not heard for long. */
static struct neighbour *next_hop(struct dpdk *self, const struct carrier_address *address)
{
    uint32_t ip;
    memcpy(&ip, address->bytes + 2, 4);
    ip = rte_be_to_cpu_32(ip);
    if (((ip ^ self->ip) & self->mask) != 0)
        ip = self->gateway;
    if (self->last_to == NULL || self->last_to->ip != ip)
        self->last_to = neighbours_get(&self->neighbours, ip, self->now_us);
    self->last_to->used_us = self->now_us;
    ask(self, self->last_to);
    return self->last_to;
}

/* ---- what waits for an answer ---- */

/* Keeps the datagram until its neighbour is known; drops it when too many do. False: no buffer. */
static bool hold(struct dpdk *self, const struct carrier_datagram *datagram, const struct neighbour *neighbour)
{
    bool lent;
    struct rte_mbuf *mbuf = buffer_of(self, datagram, 0, &lent);
    if (mbuf == NULL)
        return false;
    forget_lent(self, lent);
    if (self->n_waiting == DPDK_WAITING) {
        rte_pktmbuf_free(mbuf);
        self->counts.unresolved++;
        self->stats.dropped_datagrams++;
        return true;
    }
    write_headers(self, mbuf, datagram);
    self->waiting[self->n_waiting++] = (struct dpdk_waiting){.mbuf = mbuf, .ip = neighbour->ip, .since_us = self->now_us};
    return true;
}

void dpdk_send_waiting(struct dpdk *self, const struct neighbour *neighbour)
{
    struct dpdk_port *port = &self->ports[neighbour->port];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < self->n_waiting; i++) {
        struct dpdk_waiting *waiting = &self->waiting[i];
        if (waiting->ip != neighbour->ip) {
            self->waiting[kept++] = *waiting;
            continue;
        }
        write_macs(waiting->mbuf, port, neighbour);
        uint32_t bytes = waiting->mbuf->pkt_len - FRAME_HEADER_BYTES;
        if (rte_eth_tx_burst(port->id, 0, &waiting->mbuf, 1) == 1) {
            self->stats.sent_datagrams++;
            self->stats.sent_bytes += bytes;
            self->counts.sent_frames++;
        } else {
            rte_pktmbuf_free(waiting->mbuf);
            self->stats.dropped_datagrams++;
            self->counts.stuck++;
        }
    }
    self->n_waiting = kept;
}

void dpdk_drop_waiting(struct dpdk *self, bool all)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < self->n_waiting; i++) {
        if (!all && self->now_us - self->waiting[i].since_us < WAITING_US) {
            self->waiting[kept++] = self->waiting[i];
            continue;
        }
        rte_pktmbuf_free(self->waiting[i].mbuf);
        self->stats.dropped_datagrams++;
        self->counts.unresolved++;
    }
    self->n_waiting = kept;
}

/* ---- sending ---- */

struct burst {
    struct dpdk_port *port;
    uint16_t queue, n;
    uint32_t n_lent;
    struct rte_mbuf *mbufs[DPDK_BURST];
    bool lent[DPDK_BURST];
};

/* The port took fewer than it was given. Whether it is beyond waiting for. */
static bool is_stuck(struct dpdk *self, struct dpdk_port *port, bool took_some)
{
    dpdk_now_us(self);
    if (took_some)
        port->stuck_since_us = 0;
    else if (port->stuck_since_us == 0)
        port->stuck_since_us = self->now_us;
    return !port->up || (!took_some && self->now_us - port->stuck_since_us >= STUCK_US);
}

/* Hands the burst over; returns how many datagrams it is done with. */
static uint16_t flush(struct dpdk *self, struct burst *burst, const struct carrier_datagram *datagrams)
{
    uint16_t sent = burst->port->started ? rte_eth_tx_burst(burst->port->id, burst->queue, burst->mbufs, burst->n) : 0, done = sent;
    for (uint16_t i = 0; i < sent; i++)
        self->stats.sent_bytes += datagrams[i].len;
    self->stats.sent_datagrams += sent;
    self->counts.sent_frames += sent;
    if (sent == burst->n)
        burst->port->stuck_since_us = 0;
    else if (is_stuck(self, burst->port, sent > 0))
        done = burst->n;
    uint32_t n_lent = 0;
    for (uint16_t i = 0; i < burst->n; i++) {
        n_lent += i < done && burst->lent[i];
        if (i >= sent && (i < done || !burst->lent[i])) /* given up, or a copy that will be made again */
            rte_pktmbuf_free(burst->mbufs[i]);
    }
    forget_lent(self, n_lent);
    self->counts.stuck += done - sent;
    self->stats.dropped_datagrams += done - sent;
    return done;
}

static uint16_t queue_for(const struct dpdk_port *port, const struct neighbour *neighbour)
{
    return port->queues == 1 ? 0 : (uint16_t)((neighbour->ip * UINT32_C(2654435761) >> 16) % port->queues);
}

/* Sends the first datagrams, as many as go to one queue of one port; returns how many it is done with, 0: no room for now. */
static uint32_t send_some(struct dpdk *self, const struct carrier_datagram *datagrams, uint32_t n)
{
    struct burst burst = {0};
    for (; burst.n < n && burst.n < DPDK_BURST; burst.n++) {
        const struct carrier_datagram *datagram = &datagrams[burst.n];
        struct neighbour *neighbour = next_hop(self, &datagram->address);
        if (!neighbour->known) {
            if (burst.n == 0)
                return hold(self, datagram, neighbour);
            break;
        }
        struct dpdk_port *port = &self->ports[neighbour->port];
        uint16_t queue = queue_for(port, neighbour);
        if (burst.n > 0 && (port != burst.port || queue != burst.queue))
            break;
        bool lent;
        struct rte_mbuf *mbuf = buffer_of(self, datagram, burst.n_lent, &lent);
        if (mbuf == NULL)
            break;
        write_headers(self, mbuf, datagram);
        write_macs(mbuf, port, neighbour);
        burst.port = port;
        burst.queue = queue;
        burst.mbufs[burst.n] = mbuf;
        burst.lent[burst.n] = lent;
        burst.n_lent += lent;
    }
    return burst.n == 0 ? 0 : flush(self, &burst, datagrams);
}

int dpdk_send(struct carrier *carrier, const struct carrier_datagram *datagrams, uint32_t n)
{
    struct dpdk *self = dpdk_of(carrier);
    uint32_t done = 0;
    while (done < n) {
        uint32_t some = send_some(self, datagrams + done, n - done);
        if (some == 0)
            break;
        done += some;
    }
    return (int)done;
}
