/*
 * Ethernet frames as the DPDK carrier writes and reads them: ARP for IPv4 (RFC 826) and UDP in IPv4 (RFC 791, 768). Pure functions over
 * bytes; nothing here knows DPDK.
 *
 *     0         14                34         42
 *     | Ethernet | IPv4, no options | UDP     | payload ...
 *
 * What is written: "don't fragment", no UDP checksum (IPv4 allows 0; every payload is sealed, which is the stronger check), source port =
 * the address peers know, so that a device's RSS spreads peers over queues. What is read is anything at all: foreign frames are named as such,
 * never trusted.
 *
 * Addresses and ports are in host order, MACs as on the wire. Threading: pure.
 */
#ifndef HEARSAY_NET_DPDK_FRAME_H
#define HEARSAY_NET_DPDK_FRAME_H

#include <stddef.h>
#include <stdint.h>

enum {
    FRAME_MAC_BYTES = 6,
    FRAME_ETHERNET_BYTES = 14,
    FRAME_IP_UDP_BYTES = 28,
    FRAME_HEADER_BYTES = FRAME_ETHERNET_BYTES + FRAME_IP_UDP_BYTES,
    FRAME_ARP_BYTES = 42,
};

struct frame_end {
    uint8_t mac[FRAME_MAC_BYTES];
    uint16_t port;
    uint32_t ip;
};

enum frame_kind {
    FRAME_FOREIGN,     /* another protocol, a fragment, a VLAN */
    FRAME_BAD,         /* claims to be ours, but is cut off or has a wrong checksum */
    FRAME_ARP_REQUEST, /* from asks who has to.ip */
    FRAME_ARP_REPLY,   /* from says so, to to */
    FRAME_UDP,         /* from -> to, payload */
};

struct frame {
    enum frame_kind kind;
    struct frame_end from, to; /* of ARP: the addresses inside; MACs of UDP: the Ethernet header's */
    const uint8_t *payload;    /* within what was parsed; UDP only */
    uint32_t payload_bytes;
};

extern const uint8_t frame_broadcast_mac[FRAME_MAC_BYTES];

/* Writes FRAME_HEADER_BYTES in front of a payload. payload_bytes: at most 65,507. */
void frame_write_udp(uint8_t *out, const struct frame_end *from, const struct frame_end *to, uint32_t payload_bytes);
/* kind: FRAME_ARP_REQUEST (to.mac is where the frame goes: broadcast or the neighbour that is asked again) or FRAME_ARP_REPLY. Writes
 * FRAME_ARP_BYTES. */
void frame_write_arp(uint8_t *out, enum frame_kind kind, const struct frame_end *from, const struct frame_end *to);
/* Always fills out->kind and, unless FRAME_FOREIGN or FRAME_BAD, the rest. */
void frame_parse(const uint8_t *data, size_t len, struct frame *out);
/* The Internet checksum (RFC 1071) of bytes as 16-bit words, last one padded, added to an earlier sum; frame_checksum_end folds. */
uint64_t frame_checksum_add(uint64_t sum, const uint8_t *data, size_t len);
uint16_t frame_checksum_end(uint64_t sum);

#endif
