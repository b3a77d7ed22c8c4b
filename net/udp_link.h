/*
 * What the link behind an address of this machine passes in one piece.
 *
 * Threading: no state; asks the kernel (getifaddrs, SIOCGIFMTU) at the call.
 */
#ifndef HEARSAY_NET_UDP_LINK_H
#define HEARSAY_NET_UDP_LINK_H

#include <stdint.h>

#include "core/port/carrier.h"

enum { UDP_LINK_NAME_BYTES = 16 };

struct udp_link {
    char name[UDP_LINK_NAME_BYTES]; /* "eth0" */
    uint32_t mtu;
    uint32_t payload; /* of a UDP datagram that fits: less 28 bytes with IPv4, 48 with IPv6 */
};

/*
 * The interface that has the address. For one that means all addresses (0.0.0.0, [::]): of the interfaces that are up, loopback apart,
 * the one with the least MTU in `least` and the one with the most in `most`; else both are the same. 0, or HS_ERR_NOT_FOUND:
 * there is none, or the kernel does not say.
 */
int udp_link_find(const struct carrier_address *address, struct udp_link *least, struct udp_link *most);

#endif
