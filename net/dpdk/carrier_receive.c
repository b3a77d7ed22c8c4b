#include <string.h>

#include <rte_prefetch.h>

#include "core/base/log.h"
#include "net/dpdk/internal.h"

enum { WATCH_US = 10000, COUNT_US = 200000, LOOKS_PER_CLOCK = 16, AHEAD = 4, MOST_LOOKS = 16 };

static bool is_our_mac(const struct dpdk_port *port, const uint8_t *mac)
{
    return memcmp(port->mac, mac, FRAME_MAC_BYTES) == 0;
}

/* ---- ARP ---- */

static void tell_conflict(struct dpdk *self, const struct frame *frame)
{
    const uint8_t *m = frame->from.mac;
    if (!self->told_conflict)
        log_warn("dpdk", "%02x:%02x:%02x:%02x:%02x:%02x uses our address %u.%u.%u.%u, too: give each node its own in --bind", m[0], m[1], m[2],
                 m[3], m[4], m[5], self->ip >> 24, self->ip >> 16 & 255, self->ip >> 8 & 255, self->ip & 255);
    self->told_conflict = true;
}

static void on_arp(struct dpdk *self, uint16_t p, const struct frame *frame)
{
    struct dpdk_port *port = &self->ports[p];
    bool asks_us = frame->kind == FRAME_ARP_REQUEST && frame->to.ip == self->ip && frame->from.ip != self->ip;
    if (frame->from.ip == self->ip && !is_our_mac(port, frame->from.mac))
        tell_conflict(self, frame);
    if (frame->from.ip == 0 || frame->from.ip == self->ip)
        return;
    struct neighbour *neighbour = neighbours_find(&self->neighbours, frame->from.ip);
    if (neighbour == NULL && asks_us) /* it will talk to us: others are none of our business */
        neighbour = neighbours_get(&self->neighbours, frame->from.ip, self->now_us);
    if (neighbour != NULL) {
        neighbour_heard(neighbour, frame->from.mac, p, self->now_us);
        dpdk_send_waiting(self, neighbour);
    }
    if (asks_us)
        dpdk_send_arp(self, port, FRAME_ARP_REPLY, &frame->from);
}

/* ---- datagrams ---- */

/* Keeps its sender fresh. Another MAC than the one known is a reason to ask, not to believe. */
static void hear_sender(struct dpdk *self, uint16_t p, const struct frame *frame)
{
    uint32_t ip = frame->from.ip;
    if (((ip ^ self->ip) & self->mask) != 0)
        return; /* from behind the gateway */
    if (self->last_from == NULL || self->last_from->ip != ip)
        self->last_from = neighbours_get(&self->neighbours, ip, self->now_us);
    struct neighbour *neighbour = self->last_from;
    if (!neighbour->known) {
        neighbour_heard(neighbour, frame->from.mac, p, self->now_us);
        dpdk_send_waiting(self, neighbour);
    } else if (neighbour->port == p && memcmp(neighbour->mac, frame->from.mac, FRAME_MAC_BYTES) == 0) {
        neighbour->heard_us = self->now_us;
        neighbour->unanswered = 0;
    } else if (self->now_us - neighbour->asked_us >= NEIGHBOUR_ASK_US) {
        struct frame_end to = {.ip = ip};
        memcpy(to.mac, frame_broadcast_mac, FRAME_MAC_BYTES);
        neighbour->asked_us = self->now_us;
        dpdk_send_arp(self, &self->ports[p], FRAME_ARP_REQUEST, &to);
    }
}

static void fill_datagram(const struct frame *frame, struct carrier_datagram *out)
{
    rte_be16_t port = rte_cpu_to_be_16(frame->from.port);
    rte_be32_t ip = rte_cpu_to_be_32(frame->from.ip);
    out->address = (struct carrier_address){.len = 6};
    memcpy(out->address.bytes, &port, 2);
    memcpy(out->address.bytes + 2, &ip, 4);
    out->data = (uint8_t *)(uintptr_t)frame->payload;
    out->len = frame->payload_bytes;
}

/* True: a datagram for us, in out. */
static bool take_frame(struct dpdk *self, uint16_t p, struct rte_mbuf *mbuf, struct carrier_datagram *out)
{
    struct frame frame;
    if (mbuf->nb_segs > 1 && rte_pktmbuf_linearize(mbuf) != 0) {
        self->counts.bad_frames++;
        return false;
    }
    frame_parse(rte_pktmbuf_mtod(mbuf, const uint8_t *), mbuf->data_len, &frame);
    switch (frame.kind) {
    case FRAME_UDP:
        if (frame.to.ip != self->ip || frame.to.port != self->udp_port || !is_our_mac(&self->ports[p], frame.to.mac)) {
            self->counts.foreign_frames++;
            return false;
        }
        hear_sender(self, p, &frame);
        fill_datagram(&frame, out);
        return true;
    case FRAME_ARP_REQUEST:
    case FRAME_ARP_REPLY: on_arp(self, p, &frame); return false;
    case FRAME_BAD: self->counts.bad_frames++; return false;
    case FRAME_FOREIGN: self->counts.foreign_frames++; return false;
    }
    return false;
}

/* ---- what is due now and then ---- */

static void watch_ports(struct dpdk *self)
{
    for (uint32_t p = 0; p < self->n_ports; p++) {
        struct dpdk_port *port = &self->ports[p];
        if (!dpdk_port_watch(port, self->now_us))
            continue;
        self->counts.link_changes++;
        log_info("dpdk", "port %s: link %s", port->name, port->up ? "up" : "down");
        port->stuck_since_us = 0;
        if (port->up)
            dpdk_announce(self, port);
        else
            neighbours_forget_port(&self->neighbours, (uint16_t)p);
    }
}

/* Reading the clock costs as much as looking into a ring: it is done now and then, and nothing here needs to know better. */
static void do_what_is_due(struct dpdk *self)
{
    if (++self->looks % LOOKS_PER_CLOCK != 0)
        return;
    if (dpdk_now_us(self) - self->watch_us >= WATCH_US) {
        self->watch_us = self->now_us;
        watch_ports(self);
        dpdk_drop_waiting(self, false);
    }
    if (self->now_us - self->count_us >= COUNT_US) {
        self->count_us = self->now_us;
        dpdk_counts_take(self);
    }
}

/* ---- receiving ---- */

/* What was handed out is free now; what was not moves up. */
static void free_handed(struct dpdk *self)
{
    uint32_t left = self->in_n - self->in_handed;
    for (uint32_t i = 0; i < self->in_handed; i++)
        if (self->in[i] != NULL)
            rte_pktmbuf_free(self->in[i]);
    if (left > 0) {
        memmove(self->in, self->in + self->in_handed, left * sizeof self->in[0]);
        memmove(self->found, self->found + self->in_handed, left * sizeof self->found[0]);
    }
    self->in_n = left;
    self->in_handed = 0;
}

/* Takes one burst of a queue, always a whole one: many drivers work on several descriptors at once. Returns whether there may be more. */
static bool look(struct dpdk *self, uint16_t p, uint16_t queue)
{
    struct rte_mbuf *got[DPDK_BURST];
    uint16_t n = rte_eth_rx_burst(self->ports[p].id, queue, got, DPDK_BURST);
    for (uint16_t i = 0; i < n && i < AHEAD; i++)
        rte_prefetch0(rte_pktmbuf_mtod(got[i], void *));
    for (uint16_t i = 0; i < n; i++) {
        if (i + AHEAD < n)
            rte_prefetch0(rte_pktmbuf_mtod(got[i + AHEAD], void *));
        struct carrier_datagram *found = &self->found[self->in_n];
        if (take_frame(self, p, got[i], found)) {
            self->stats.received_datagrams++;
            self->stats.received_bytes += found->len;
            self->in[self->in_n++] = got[i];
        } else {
            rte_pktmbuf_free(got[i]);
        }
    }
    self->counts.received_frames += n;
    return n == DPDK_BURST;
}

static void look_around(struct dpdk *self, uint32_t most)
{
    for (uint32_t i = 0; i < self->n_ports && self->in_n < most; i++) {
        uint16_t p = (uint16_t)self->first_port;
        for (uint16_t queue = 0; self->ports[p].started && queue < self->ports[p].queues && self->in_n < most; queue++)
            while (look(self, p, queue) && self->in_n < most)
                ;
        if (self->in_n < most) /* else it goes on here */
            self->first_port = self->first_port + 1 == self->n_ports ? 0 : self->first_port + 1;
    }
}

/* Where nothing is, it looks again before it returns: whoever polls reads a clock each time, and that takes longer than several looks. */
int dpdk_receive(struct carrier *carrier, struct carrier_datagram *datagrams, uint32_t n)
{
    struct dpdk *self = dpdk_of(carrier);
    uint32_t most = n < DPDK_IN - DPDK_BURST ? n : DPDK_IN - DPDK_BURST;
    free_handed(self);
    do_what_is_due(self);
    for (uint32_t looks = 0; looks < MOST_LOOKS && self->in_n == 0; looks += self->n_ports)
        look_around(self, most);
    self->in_handed = self->in_n < n ? self->in_n : n;
    for (uint32_t i = 0; i < self->in_handed; i++) {
        datagrams[i] = self->found[i];
        datagrams[i].held = &self->in[i];
    }
    return (int)self->in_handed;
}

void *dpdk_keep(struct carrier *carrier, void *held)
{
    struct dpdk *self = dpdk_of(carrier);
    struct rte_mbuf **in = held, *mbuf = *in;
    if (self->n_kept == DPDK_KEPT)
        return NULL;
    self->n_kept++;
    *in = NULL;
    return mbuf;
}

void dpdk_release(struct carrier *carrier, void *kept)
{
    dpdk_of(carrier)->n_kept--;
    rte_pktmbuf_free(kept);
}
