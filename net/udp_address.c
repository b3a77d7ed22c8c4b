#include "net/udp_address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/parse.h"

/*
 * Inside carrier_address: port (2 bytes, network order), then 4 bytes of IPv4, or 16 of IPv6 and a 4-byte scope.
 */
enum { V4_LEN = 2 + 4, V6_LEN = 2 + 16 + 4 };

static void from_v4(const struct sockaddr_in *v4, struct carrier_address *out)
{
    *out = (struct carrier_address){.len = V4_LEN};
    memcpy(out->bytes, &v4->sin_port, 2);
    memcpy(out->bytes + 2, &v4->sin_addr, 4);
}

void udp_address_from_sockaddr(const struct sockaddr_storage *from, struct carrier_address *out)
{
    if (from->ss_family == AF_INET) {
        from_v4((const struct sockaddr_in *)from, out);
        return;
    }
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;
    if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
        struct sockaddr_in v4 = {.sin_port = v6->sin6_port};
        memcpy(&v4.sin_addr, v6->sin6_addr.s6_addr + 12, 4);
        from_v4(&v4, out);
        return;
    }
    *out = (struct carrier_address){.len = V6_LEN};
    memcpy(out->bytes, &v6->sin6_port, 2);
    memcpy(out->bytes + 2, &v6->sin6_addr, 16);
    if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) /* elsewhere the scope says nothing about who is meant */
        memcpy(out->bytes + 18, &v6->sin6_scope_id, 4);
}

socklen_t udp_address_to_sockaddr(const struct carrier_address *address, int family, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    if (address->len == V4_LEN && family == AF_INET) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)out;
        v4->sin_family = AF_INET;
        memcpy(&v4->sin_port, address->bytes, 2);
        memcpy(&v4->sin_addr, address->bytes + 2, 4);
        return sizeof *v4;
    }
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    v6->sin6_family = AF_INET6;
    memcpy(&v6->sin6_port, address->bytes, 2);
    if (address->len == V4_LEN) {
        v6->sin6_addr.s6_addr[10] = v6->sin6_addr.s6_addr[11] = 0xff;
        memcpy(v6->sin6_addr.s6_addr + 12, address->bytes + 2, 4);
    } else {
        memcpy(&v6->sin6_addr, address->bytes + 2, 16);
        memcpy(&v6->sin6_scope_id, address->bytes + 18, 4);
    }
    return sizeof *v6;
}

void udp_address_format(const struct carrier_address *address, char *text, size_t size)
{
    char host[INET6_ADDRSTRLEN];
    uint16_t port;
    memcpy(&port, address->bytes, 2);
    if (address->len == V4_LEN) {
        inet_ntop(AF_INET, address->bytes + 2, host, sizeof host);
        snprintf(text, size, "%s:%u", host, ntohs(port));
        return;
    }
    uint32_t scope;
    char interface[IF_NAMESIZE];
    memcpy(&scope, address->bytes + 18, 4);
    inet_ntop(AF_INET6, address->bytes + 2, host, sizeof host);
    if (scope != 0 && if_indextoname(scope, interface) != NULL)
        snprintf(text, size, "[%s%%%s]:%u", host, interface, ntohs(port));
    else
        snprintf(text, size, "[%s]:%u", host, ntohs(port));
}

bool udp_address_is_wildcard(const struct carrier_address *address)
{
    static const uint8_t zeros[16];
    return memcmp(address->bytes + 2, zeros, address->len == V4_LEN ? 4 : 16) == 0;
}

bool udp_address_is_loopback_address(const struct carrier_address *address)
{
    if (address->len == V4_LEN)
        return address->bytes[2] == 127;
    return memcmp(address->bytes + 2, &in6addr_loopback, 16) == 0;
}

/* Cuts "host:port" or "[host]:port" in two. */
static int split(const char *text, char *host, size_t size, char **port)
{
    if (strlen(text) >= size)
        return HS_ERR_PARSE;
    memcpy(host, text, strlen(text) + 1);
    char *colon = strrchr(host, ':');
    if (colon == NULL)
        return HS_ERR_PARSE;
    *colon = '\0';
    *port = colon + 1;
    size_t len = strlen(host);
    if (host[0] == '[') {
        if (len < 3 || host[len - 1] != ']')
            return HS_ERR_PARSE;
        memmove(host, host + 1, len - 2);
        host[len - 2] = '\0';
    } else if (len == 0 || strchr(host, ':') != NULL) {
        return HS_ERR_PARSE;
    }
    uint64_t number;
    return parse_u64(*port, 0, 65535, &number, NULL);
}

int udp_address_lookup(const char *text, int family, struct carrier_address *out)
{
    char host[256], *port;
    if (split(text, host, sizeof host, &port) != 0)
        return HS_ERR_PARSE;
    struct addrinfo hints = {
        .ai_family = family == AF_INET6 ? AF_UNSPEC : family, .ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    if (getaddrinfo(host, port, &hints, &found) != 0 || found == NULL)
        return HS_ERR_NOT_FOUND;
    struct sockaddr_storage storage = {0};
    memcpy(&storage, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    udp_address_from_sockaddr(&storage, out);
    return 0;
}
