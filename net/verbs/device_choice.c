#include "net/verbs/device_choice.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "core/base/parse.h"

enum { LIST_TEXT = 280, REASON_TEXT = 160 };

/* ---- addresses ---- */

static bool is_zero(const uint8_t gid[16])
{
    static const uint8_t zeros[16];
    return memcmp(gid, zeros, 16) == 0;
}

static bool is_mapped_v4(const uint8_t gid[16])
{
    static const uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return memcmp(gid, prefix, 12) == 0;
}

/* How far an address is good: higher is better. */
static int routability(const uint8_t gid[16])
{
    if (is_mapped_v4(gid))
        return gid[12] == 169 && gid[13] == 254 ? 1 : 4; /* 169.254/16 is link-local, too */
    if (gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80)
        return 1;
    return (gid[0] & 0xfe) == 0xfc ? 2 : 3;
}

static bool matches_wish(const struct device_wish *wish, const uint8_t gid[16])
{
    return wish->has_address && memcmp(wish->address, gid, 16) == 0;
}

/* The best RoCE v2 address of a port, or NULL. */
static const struct device_gid *choose_gid(const struct device_port *port, const struct device_wish *wish)
{
    const struct device_gid *best = NULL;
    int best_rank = 0;
    for (uint32_t i = 0; i < port->n_gids; i++) {
        const struct device_gid *gid = &port->gids[i];
        if (gid->type != DEVICE_GID_ROCE_V2 || is_zero(gid->bytes))
            continue;
        int rank = matches_wish(wish, gid->bytes) ? 5 : routability(gid->bytes);
        if (rank > best_rank) {
            best = gid;
            best_rank = rank;
        }
    }
    return best;
}

/* Index of the partition key to use, or -1: the default partition before others, full members before limited ones. */
static int choose_pkey(const struct device_port *port)
{
    int best = -1, best_rank = 0;
    for (uint32_t i = 0; i < port->n_pkeys; i++) {
        uint16_t pkey = port->pkeys[i];
        if ((pkey & 0x7fff) == 0)
            continue;
        int rank = (pkey & 0x8000 ? 2 : 0) + ((pkey & 0x7fff) == 0x7fff ? 1 : 0) + 1;
        if (rank > best_rank) {
            best = (int)i;
            best_rank = rank;
        }
    }
    return best;
}

/* ---- one port ---- */

static int use_ethernet(const struct device_port *port, const struct device_wish *wish, struct device_rail *rail,
                        char reason[REASON_TEXT])
{
    const struct device_gid *gid = choose_gid(port, wish);
    if (gid == NULL) {
        snprintf(reason, REASON_TEXT,
                 "has no RoCE v2 address: give its network interface an IP address (`ip address add`), or set its mode to RoCE v2");
        return HS_ERR_CLOSED;
    }
    rail->gid_index = gid->index;
    memcpy(rail->gid, gid->bytes, 16);
    rail->has_address = matches_wish(wish, gid->bytes);
    return 0;
}

static int use_infiniband(const struct device_port *port, const struct device_wish *wish, struct device_rail *rail,
                          char reason[REASON_TEXT])
{
    int pkey = choose_pkey(port);
    if (port->lid == 0) {
        snprintf(reason, REASON_TEXT, "has no LID: start a subnet manager (opensm) in the fabric");
        return HS_ERR_CLOSED;
    }
    if (pkey < 0) {
        snprintf(reason, REASON_TEXT, "is in no partition: have the subnet manager give it a partition key");
        return HS_ERR_CLOSED;
    }
    rail->lid = port->lid;
    rail->pkey = port->pkeys[pkey];
    rail->pkey_index = (uint16_t)pkey;
    rail->service_level = wish->service_level;
    for (uint32_t i = 0; i < port->n_gids; i++) {
        if (!is_zero(port->gids[i].bytes)) {
            rail->gid_index = port->gids[i].index;
            memcpy(rail->gid, port->gids[i].bytes, 16);
            break;
        }
    }
    return 0;
}

/* Makes a rail of a port, or says why it cannot be one. */
static int use_port(const struct device_table *table, uint32_t device, const struct device_port *port, const struct device_wish *wish,
                    struct device_rail *rail, char reason[REASON_TEXT])
{
    *rail = (struct device_rail){.device_index = device,
                                 .port = port->number,
                                 .link = port->link,
                                 .software = table->devices[device].software,
                                 .mtu_bytes = port->mtu_bytes};
    memcpy(rail->device, table->devices[device].name, sizeof rail->device);
    if (port->link == DEVICE_LINK_OTHER) {
        snprintf(reason, REASON_TEXT, "has neither an InfiniBand nor an Ethernet link layer");
        return HS_ERR_CLOSED;
    }
    if (!port->active) {
        snprintf(reason, REASON_TEXT, "is %s: %s", port->state,
                 port->link == DEVICE_LINK_ETHERNET ? "check the cable and `ip link set ... up` its network interface"
                                                    : "check the cable and the subnet manager");
        return HS_ERR_CLOSED;
    }
    return port->link == DEVICE_LINK_ETHERNET ? use_ethernet(port, wish, rail, reason) : use_infiniband(port, wish, rail, reason);
}

/* ---- devices by name ---- */

static void append(char *list, size_t size, const char *text)
{
    size_t len = strlen(list);
    snprintf(list + len, size - len, "%s%s", len ? ", " : "", text);
}

static const struct device_port *find_port(const struct device_record *device, uint32_t number)
{
    for (uint32_t i = 0; i < device->n_ports; i++)
        if (device->ports[i].number == number)
            return &device->ports[i];
    return NULL;
}

static int find_device(const struct device_table *table, const char *name, uint32_t *out, struct error *err)
{
    char list[LIST_TEXT] = "";
    for (uint32_t i = 0; i < table->n; i++) {
        if (strcmp(table->devices[i].name, name) == 0) {
            *out = i;
            return 0;
        }
        append(list, sizeof list, table->devices[i].name);
    }
    return error_set(err, HS_ERR_NOT_FOUND, "no RDMA device \"%s\" here: there is %s", name, list);
}

struct spot { /* DEV[:PORT[:GID]] */
    char device[DEVICE_NAME];
    uint64_t port, gid;
    bool has_port, has_gid;
};

static int parse_spot(const char *text, size_t len, struct spot *out, struct error *err)
{
    char part[DEVICE_NAME + 32];
    *out = (struct spot){.has_port = false};
    if (len == 0 || len >= sizeof part)
        goto malformed;
    memcpy(part, text, len);
    part[len] = '\0';
    char *port = strchr(part, ':'), *gid = NULL;
    if (port != NULL) {
        *port++ = '\0';
        gid = strchr(port, ':');
        if (gid != NULL)
            *gid++ = '\0';
    }
    if (part[0] == '\0' || strlen(part) >= sizeof out->device)
        goto malformed;
    memcpy(out->device, part, strlen(part) + 1);
    out->has_port = port != NULL;
    out->has_gid = gid != NULL;
    if ((port != NULL && parse_u64(port, 1, 255, &out->port, NULL) != 0) || (gid != NULL && parse_u64(gid, 0, 65535, &out->gid, NULL) != 0))
        goto malformed;
    return 0;

malformed:
    return error_set(err, HS_ERR_PARSE, "\"%.*s\" is no RDMA device: give DEV, DEV:PORT or DEV:PORT:GID-INDEX, such as mlx5_0:1",
                     (int)(len < 100 ? len : 100), text);
}

/* The GID that was asked for by number instead of the one chosen. */
static int force_gid(const struct device_port *port, const struct spot *spot, struct device_rail *rail, struct error *err)
{
    char list[LIST_TEXT] = "";
    for (uint32_t i = 0; i < port->n_gids; i++) {
        const struct device_gid *gid = &port->gids[i];
        bool usable = !is_zero(gid->bytes) && (port->link == DEVICE_LINK_INFINIBAND || gid->type == DEVICE_GID_ROCE_V2);
        if (usable && gid->index == spot->gid) {
            rail->gid_index = gid->index;
            memcpy(rail->gid, gid->bytes, 16);
            return 0;
        }
        char text[INET6_ADDRSTRLEN], entry[INET6_ADDRSTRLEN + 16];
        if (usable && inet_ntop(AF_INET6, gid->bytes, text, sizeof text) != NULL) {
            snprintf(entry, sizeof entry, "%u (%s)", gid->index, text);
            append(list, sizeof list, entry);
        }
    }
    return error_set(err, HS_ERR_NOT_FOUND, "RDMA device %s port %u has no %sGID with index %llu: usable are %s", spot->device,
                     port->number, port->link == DEVICE_LINK_ETHERNET ? "RoCE v2 " : "", (unsigned long long)spot->gid,
                     list[0] ? list : "none");
}

/* The first usable port of the device, or the one that the spot names. */
static int use_spot(const struct device_table *table, const struct device_wish *wish, const struct spot *spot, struct device_rail *rail,
                    struct error *err)
{
    uint32_t index = 0;
    int status = find_device(table, spot->device, &index, err);
    if (status != 0)
        return status;
    const struct device_record *device = &table->devices[index];
    if (spot->has_port && find_port(device, (uint32_t)spot->port) == NULL)
        return error_set(err, HS_ERR_NOT_FOUND, "RDMA device %s has no port %llu: its ports are 1 to %u", spot->device,
                         (unsigned long long)spot->port, device->n_ports);
    char reason[REASON_TEXT] = "", first_reason[REASON_TEXT] = "has no port";
    uint32_t first_port = 0;
    for (uint32_t i = 0; i < device->n_ports; i++) {
        const struct device_port *port = &device->ports[i];
        if (spot->has_port && port->number != spot->port)
            continue;
        if (use_port(table, index, port, wish, rail, reason) == 0)
            return spot->has_gid ? force_gid(port, spot, rail, err) : 0;
        if (first_port == 0) {
            first_port = port->number;
            memcpy(first_reason, reason, sizeof reason);
        }
    }
    return error_set(err, HS_ERR_CLOSED, "RDMA device %s port %u %s", spot->device, first_port, first_reason);
}

static int choose_named(const struct device_table *table, const struct device_wish *wish, struct device_rail *rails, uint32_t max,
                        uint32_t *n, struct error *err)
{
    uint32_t count = 0;
    for (const char *at = wish->device;; at++) {
        size_t len = strcspn(at, ",");
        struct spot spot;
        struct device_rail rail;
        int status = parse_spot(at, len, &spot, err);
        if (status == 0)
            status = use_spot(table, wish, &spot, &rail, err);
        if (status != 0)
            return status;
        for (uint32_t i = 0; i < count; i++)
            if (rails[i].device_index == rail.device_index && rails[i].port == rail.port)
                return error_set(err, HS_ERR_PARSE, "RDMA device %s port %u is named twice", rail.device, rail.port);
        if (count == max)
            return error_set(err, HS_ERR_LIMIT, "\"%.100s\" names more than %u RDMA ports", wish->device, max);
        rails[count++] = rail;
        at += len;
        if (*at == '\0')
            break;
    }
    *n = count;
    return 0;
}

/* ---- every port ---- */

static bool better(const struct device_table *table, const struct device_rail *a, const struct device_rail *b)
{
    uint64_t speed_a = find_port(&table->devices[a->device_index], a->port)->speed_mbps;
    uint64_t speed_b = find_port(&table->devices[b->device_index], b->port)->speed_mbps;
    if (a->has_address != b->has_address)
        return a->has_address;
    if (speed_a != speed_b)
        return speed_a > speed_b;
    int order = strcmp(a->device, b->device);
    return order != 0 ? order < 0 : a->port < b->port;
}

static int choose_any(const struct device_table *table, const struct device_wish *wish, struct device_rail *rails, uint32_t max,
                      uint32_t *n, struct error *err)
{
    char reasons[LIST_TEXT] = "", reason[REASON_TEXT], entry[DEVICE_NAME + REASON_TEXT + 16];
    uint32_t count = 0;
    for (uint32_t d = 0; d < table->n; d++) {
        for (uint32_t p = 0; p < table->devices[d].n_ports; p++) {
            const struct device_port *port = &table->devices[d].ports[p];
            struct device_rail rail;
            if (use_port(table, d, port, wish, &rail, reason) != 0) {
                snprintf(entry, sizeof entry, "%s port %u %s", table->devices[d].name, port->number, reason);
                append(reasons, sizeof reasons, entry);
                continue;
            }
            uint32_t at = count < max ? count++ : max; /* insertion into the sorted list; the last falls off */
            while (at > 0 && better(table, &rail, &rails[at - 1])) {
                if (at < max)
                    rails[at] = rails[at - 1];
                at--;
            }
            if (at < max)
                rails[at] = rail;
        }
    }
    if (count == 0)
        return error_set(err, HS_ERR_UNSUPPORTED, "no RDMA port can be used: %s", reasons[0] ? reasons : "the devices have none");
    *n = count;
    return 0;
}

int device_choose(const struct device_table *table, const struct device_wish *wish, struct device_rail *rails, uint32_t max,
                  uint32_t *n, struct error *err)
{
    if (table->n == 0)
        return error_set(err, HS_ERR_UNSUPPORTED,
                         "no RDMA device on this machine: load its driver (`rdma link show` lists devices), or use --fabric sockets");
    return wish->device != NULL ? choose_named(table, wish, rails, max, n, err) : choose_any(table, wish, rails, max, n, err);
}
