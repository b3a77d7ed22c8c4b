#include "net/dpdk/frame.h"

#include <stdbool.h>
#include <string.h>

enum {
    ETHER_TYPE_IPV4 = 0x0800,
    ETHER_TYPE_ARP = 0x0806,
    IP_BYTES = 20,
    UDP_BYTES = 8,
    ARP_BODY_BYTES = 28,
    IP_TTL = 64,
    IP_DONT_FRAGMENT = 0x4000,
    IP_FRAGMENT_MASK = 0x3fff, /* "more fragments" and the offset */
    PROTOCOL_UDP = 17,
};

const uint8_t frame_broadcast_mac[FRAME_MAC_BYTES] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

static uint16_t get16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static uint32_t get32(const uint8_t *at)
{
    return (uint32_t)get16(at) << 16 | get16(at + 2);
}

static void put16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static void put32(uint8_t *at, uint32_t value)
{
    put16(at, value >> 16);
    put16(at + 2, value & 0xffff);
}

/* In the order of bytes that the processor has, which only swaps the sum's, and four at a time, which only keeps the carries for later. */
uint64_t frame_checksum_add(uint64_t sum, const uint8_t *data, size_t len)
{
    uint64_t wide = 0;
    for (; len >= 4; data += 4, len -= 4) {
        uint32_t word;
        memcpy(&word, data, 4);
        wide += word;
    }
    uint8_t rest[4] = {0};
    uint32_t word;
    memcpy(rest, data, len);
    memcpy(&word, rest, 4);
    wide += word;
    while (wide >> 16)
        wide = (wide & 0xffff) + (wide >> 16);
    return sum + (uint16_t)(wide << 8 | wide >> 8);
}

uint16_t frame_checksum_end(uint64_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

/* ---- writing ---- */

static void write_ethernet(uint8_t *out, const uint8_t *from, const uint8_t *to, uint16_t type)
{
    memcpy(out, to, FRAME_MAC_BYTES);
    memcpy(out + FRAME_MAC_BYTES, from, FRAME_MAC_BYTES);
    put16(out + 2 * FRAME_MAC_BYTES, type);
}

/* The checksum is that of constant words and these fields, so it is summed from values, not read back from memory. */
static void write_ip(uint8_t *ip, uint32_t from, uint32_t to, uint32_t total)
{
    uint64_t sum = 0x4500 + total + IP_DONT_FRAGMENT + (IP_TTL << 8 | PROTOCOL_UDP);
    sum += (from >> 16) + (from & 0xffff) + (to >> 16) + (to & 0xffff);
    put16(ip, 0x4500); /* version 4, five words, ordinary service */
    put16(ip + 2, total);
    put16(ip + 4, 0); /* identification: of no use without fragments (RFC 6864) */
    put16(ip + 6, IP_DONT_FRAGMENT);
    put16(ip + 8, IP_TTL << 8 | PROTOCOL_UDP);
    put16(ip + 10, frame_checksum_end(sum));
    put32(ip + 12, from);
    put32(ip + 16, to);
}

void frame_write_udp(uint8_t *out, const struct frame_end *from, const struct frame_end *to, uint32_t payload_bytes)
{
    uint8_t *ip = out + FRAME_ETHERNET_BYTES, *udp = ip + IP_BYTES;
    write_ethernet(out, from->mac, to->mac, ETHER_TYPE_IPV4);
    write_ip(ip, from->ip, to->ip, FRAME_IP_UDP_BYTES + payload_bytes);
    put16(udp, from->port);
    put16(udp + 2, to->port);
    put16(udp + 4, UDP_BYTES + payload_bytes);
    put16(udp + 6, 0);
}

void frame_write_arp(uint8_t *out, enum frame_kind kind, const struct frame_end *from, const struct frame_end *to)
{
    static const uint8_t unknown[FRAME_MAC_BYTES];
    uint8_t *arp = out + FRAME_ETHERNET_BYTES;
    bool request = kind == FRAME_ARP_REQUEST;
    write_ethernet(out, from->mac, to->mac, ETHER_TYPE_ARP);
    put16(arp, 1); /* Ethernet */
    put16(arp + 2, ETHER_TYPE_IPV4);
    put16(arp + 4, FRAME_MAC_BYTES << 8 | 4);
    put16(arp + 6, request ? 1 : 2);
    memcpy(arp + 8, from->mac, FRAME_MAC_BYTES);
    put32(arp + 14, from->ip);
    memcpy(arp + 18, request ? unknown : to->mac, FRAME_MAC_BYTES);
    put32(arp + 24, to->ip);
}

/* ---- reading ---- */

static enum frame_kind parse_arp(const uint8_t *arp, size_t len, struct frame *out)
{
    if (len < ARP_BODY_BYTES)
        return FRAME_BAD;
    uint16_t operation = get16(arp + 6);
    if (get16(arp) != 1 || get16(arp + 2) != ETHER_TYPE_IPV4 || get16(arp + 4) != (FRAME_MAC_BYTES << 8 | 4) || operation < 1 || operation > 2)
        return FRAME_FOREIGN;
    memcpy(out->from.mac, arp + 8, FRAME_MAC_BYTES);
    out->from.ip = get32(arp + 14);
    memcpy(out->to.mac, arp + 18, FRAME_MAC_BYTES);
    out->to.ip = get32(arp + 24);
    return operation == 1 ? FRAME_ARP_REQUEST : FRAME_ARP_REPLY;
}

static bool udp_checksum_holds(const uint8_t *ip, const uint8_t *udp, uint32_t udp_bytes)
{
    if (get16(udp + 6) == 0) /* the sender made none */
        return true;
    uint64_t sum = frame_checksum_add(PROTOCOL_UDP + udp_bytes, ip + 12, 8);
    return frame_checksum_end(frame_checksum_add(sum, udp, udp_bytes)) == 0;
}

static enum frame_kind parse_ip(const uint8_t *ip, size_t len, struct frame *out)
{
    if (len < IP_BYTES)
        return FRAME_BAD;
    uint32_t header = (ip[0] & 15u) * 4, total = get16(ip + 2);
    if (ip[0] >> 4 != 4 || header < IP_BYTES || total < header || total > len || frame_checksum_end(frame_checksum_add(0, ip, header)) != 0)
        return FRAME_BAD;
    if ((get16(ip + 6) & IP_FRAGMENT_MASK) != 0 || ip[9] != PROTOCOL_UDP)
        return FRAME_FOREIGN;
    const uint8_t *udp = ip + header;
    if (total - header < UDP_BYTES)
        return FRAME_BAD;
    uint32_t udp_bytes = get16(udp + 4);
    if (udp_bytes < UDP_BYTES || udp_bytes > total - header || !udp_checksum_holds(ip, udp, udp_bytes))
        return FRAME_BAD;
    out->from.ip = get32(ip + 12);
    out->to.ip = get32(ip + 16);
    out->from.port = get16(udp);
    out->to.port = get16(udp + 2);
    out->payload = udp + UDP_BYTES;
    out->payload_bytes = udp_bytes - UDP_BYTES;
    return FRAME_UDP;
}

void frame_parse(const uint8_t *data, size_t len, struct frame *out)
{
    if (len < FRAME_ETHERNET_BYTES) {
        out->kind = FRAME_BAD;
        return;
    }
    uint16_t type = get16(data + 2 * FRAME_MAC_BYTES);
    memcpy(out->to.mac, data, FRAME_MAC_BYTES);
    memcpy(out->from.mac, data + FRAME_MAC_BYTES, FRAME_MAC_BYTES);
    const uint8_t *body = data + FRAME_ETHERNET_BYTES;
    len -= FRAME_ETHERNET_BYTES;
    out->kind = type == ETHER_TYPE_IPV4 ? parse_ip(body, len, out) : type == ETHER_TYPE_ARP ? parse_arp(body, len, out) : FRAME_FOREIGN;
}
