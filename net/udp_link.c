#include "net/udp_link.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/base/error.h"
#include "net/udp_address.h"

enum { V4_HEADERS = 28, V6_HEADERS = 48, V4_ADDRESS_LEN = 6 };

static bool is_up(const struct ifaddrs *i)
{
    return (i->ifa_flags & IFF_UP) && (i->ifa_flags & IFF_RUNNING);
}

/* Whether the interface's address is the one meant, whatever its port; or, of all addresses, one of the family. */
static bool is_meant(const struct ifaddrs *i, const struct carrier_address *address)
{
    if (!i->ifa_addr || (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
        return false;
    if (udp_address_is_wildcard(address)) /* [::] takes IPv4 too */
        return is_up(i) && !(i->ifa_flags & IFF_LOOPBACK) && (address->len != V4_ADDRESS_LEN || i->ifa_addr->sa_family == AF_INET);
    struct sockaddr_storage storage = {0};
    struct carrier_address own;
    memcpy(&storage, i->ifa_addr, i->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
    udp_address_from_sockaddr(&storage, &own);
    /* All of 127.0.0.0/8 is on loopback, which has one address of it. */
    if (udp_address_is_loopback_address(address) && (i->ifa_flags & IFF_LOOPBACK))
        return own.len == address->len;
    return own.len == address->len && memcmp(own.bytes + 2, address->bytes + 2, own.len - 2u) == 0;
}

static bool read_link(int fd, const char *name, uint32_t headers, struct udp_link *out)
{
    struct ifreq request = {0};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    if (ioctl(fd, SIOCGIFMTU, &request) != 0 || request.ifr_mtu <= (int)headers)
        return false;
    *out = (struct udp_link){.mtu = (uint32_t)request.ifr_mtu, .payload = (uint32_t)request.ifr_mtu - headers};
    snprintf(out->name, sizeof out->name, "%s", name);
    return true;
}

int udp_link_find(const struct carrier_address *address, struct udp_link *least, struct udp_link *most)
{
    struct udp_link low = {0}, high = {0}, link;
    struct ifaddrs *all = NULL;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || getifaddrs(&all) != 0)
        all = NULL;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!is_meant(i, address) || !read_link(fd, i->ifa_name, address->len == V4_ADDRESS_LEN ? V4_HEADERS : V6_HEADERS, &link))
            continue;
        if (low.mtu == 0 || link.mtu < low.mtu)
            low = link;
        if (link.mtu > high.mtu)
            high = link;
    }
    if (all)
        freeifaddrs(all);
    if (fd >= 0)
        close(fd);
    if (low.mtu == 0)
        return HS_ERR_NOT_FOUND;
    *least = low;
    *most = high;
    return 0;
}
