/*
 * The UDP carrier: one socket, batches through sendmmsg and recvmmsg, runs of equal datagrams to one address handed over as
 * one (UDP_SEGMENT) and taken so (UDP_GRO) where the kernel has it, one by one where not.
 *
 * Addresses are "10.0.0.1:7070", "[fe80::1%eth0]:7070" or "host:7070"; a name is looked up by the system's resolver at the
 * moment of resolve and only then. A socket bound to [::] also speaks IPv4. Threading: one thread; never blocks save for that
 * look-up.
 */
#ifndef HEARSAY_NET_UDP_H
#define HEARSAY_NET_UDP_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/port/carrier.h"

enum { UDP_LEAST_DATAGRAM = 1200, UDP_MOST_DATAGRAM = 65000 };

/* As datagram_bytes: what the link of bind passes in one piece (its MTU less headers; the least of several), at most 16,640. */
#define UDP_DATAGRAM_OF_LINK UINT32_MAX

/*
 * datagram_bytes: largest payload sent; 0: 1,452 (Ethernet, IPv6), or 8,448 when bind is loopback, less where the link has less; a number
 * is refused if the link would have to cut it up. 0, or HS_ERR_* with one line in err.
 */
int udp_carrier_create(const char *bind, uint32_t datagram_bytes, struct carrier **out, struct error *err);

/* A fabric without a key lets anyone in: only on loopback, or if that is wanted. Names are looked up. 0, or HS_ERR_AUTH with the remedy. */
int udp_check_openness(const char *bind, bool has_key, bool insecure_peers, struct error *err);

#endif
