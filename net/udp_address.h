/*
 * Socket addresses, their text and their form inside struct carrier_address (IPv4-mapped IPv6 becomes IPv4, so that one
 * host is one address). Pure, apart from udp_address_lookup, which may ask the system's resolver.
 */
#ifndef HEARSAY_NET_UDP_ADDRESS_H
#define HEARSAY_NET_UDP_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "core/port/carrier.h"

/* "host:port" or "[v6]:port". family: AF_INET, AF_INET6 (takes both) or AF_UNSPEC. 0 or HS_ERR_PARSE, HS_ERR_NOT_FOUND. */
int udp_address_lookup(const char *text, int family, struct carrier_address *out);
void udp_address_format(const struct carrier_address *address, char *text, size_t size);
/* For a socket of the given family; returns the length. */
socklen_t udp_address_to_sockaddr(const struct carrier_address *address, int family, struct sockaddr_storage *out);
void udp_address_from_sockaddr(const struct sockaddr_storage *from, struct carrier_address *out);
bool udp_address_is_wildcard(const struct carrier_address *address);
bool udp_address_is_loopback_address(const struct carrier_address *address);

#endif
