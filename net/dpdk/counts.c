/* The carrier's own counts and the devices' as metrics: carried over now and then, so that the hot path adds to plain numbers. */
#include <stddef.h>

#include "net/counts.h"
#include "net/dpdk/internal.h"

static const struct count_spec table[DPDK_COUNTS] = {
#define COUNT(field, text) {"hearsay_dpdk_" #field "_total", text, offsetof(struct dpdk_carrier_stats, field)}
    COUNT(received_frames, "Frames taken from ports"),
    COUNT(sent_frames, "Frames given to ports"),
    COUNT(foreign_frames, "Frames that were not for us"),
    COUNT(bad_frames, "Frames cut off or with a wrong checksum"),
    COUNT(arp_requests, "ARP requests sent"),
    COUNT(arp_replies, "ARP replies sent"),
    COUNT(unresolved, "Datagrams dropped because nobody answered for their address"),
    COUNT(stuck, "Datagrams dropped because a port took nothing"),
    COUNT(missed, "Frames that found no room in a receive ring"),
    COUNT(no_mbuf, "Times that no buffer was free"),
    COUNT(receive_errors, "Receive errors of ports"),
    COUNT(send_errors, "Send errors of ports"),
    COUNT(link_changes, "Links that went up or down"),
#undef COUNT
};

int dpdk_counts_open(struct dpdk *self, struct error *err)
{
    return counts_open(table, DPDK_COUNTS, "dpdk", self->metrics, self->counters, err);
}

/* A port counts from its own beginning: what is new is added. */
static void take_port(struct dpdk *self, struct dpdk_port *port)
{
    struct rte_eth_stats now;
    if (rte_eth_stats_get(port->id, &now) != 0)
        return;
    const struct dpdk_port_counts counts = {.missed = now.imissed, .no_mbuf = now.rx_nombuf, .receive_errors = now.ierrors, .send_errors = now.oerrors};
    self->counts.missed += counts.missed - port->counts.missed;
    self->counts.no_mbuf += counts.no_mbuf - port->counts.no_mbuf;
    self->counts.receive_errors += counts.receive_errors - port->counts.receive_errors;
    self->counts.send_errors += counts.send_errors - port->counts.send_errors;
    port->counts = counts;
}

void dpdk_counts_take(struct dpdk *self)
{
    for (uint32_t p = 0; p < self->n_ports; p++)
        take_port(self, &self->ports[p]);
    self->stats.missed_datagrams = self->counts.missed + self->counts.no_mbuf;
    counts_tell(table, DPDK_COUNTS, self->counters, &self->counts, &self->told);
    self->told = self->counts;
}
