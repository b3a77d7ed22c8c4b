/*
 * Which RDMA ports a node uses, as a pure function over what the devices say about themselves (device_query.h reads that from
 * libibverbs; tests bring recorded tables).
 *
 *     InfiniBand link layer   active, with a LID and a partition key; full members of a partition before limited ones
 *     Ethernet link layer     active, with a RoCE v2 address; the type decides and never a fixed index. The address of --bind
 *                             first, then IPv4, global IPv6, local IPv6, link-local IPv6 (not routable, the last resort)
 *
 * A chosen port is a rail. --device names rails (DEV, DEV:PORT or DEV:PORT:GID-INDEX, several with commas); without it every
 * usable port is listed, best first: the one with the address of --bind, then the faster, then by name.
 *
 * Threading: pure. Errors: HS_ERR_* with one line that names the thing and the remedy.
 */
#ifndef HEARSAY_NET_VERBS_DEVICE_CHOICE_H
#define HEARSAY_NET_VERBS_DEVICE_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/error.h"

enum { DEVICE_MAX = 16, DEVICE_MAX_PORTS = 4, DEVICE_MAX_GIDS = 64, DEVICE_MAX_PKEYS = 16, DEVICE_NAME = 64, DEVICE_MAX_RAILS = 4 };

enum device_link { DEVICE_LINK_ETHERNET, DEVICE_LINK_INFINIBAND, DEVICE_LINK_OTHER };
enum device_gid_type { DEVICE_GID_INFINIBAND, DEVICE_GID_ROCE_V1, DEVICE_GID_ROCE_V2 };

struct device_gid {
    uint8_t bytes[16];
    uint32_t index;
    enum device_gid_type type;
};

struct device_port {
    uint32_t number; /* from 1 */
    enum device_link link;
    bool active;
    const char *state; /* as the kernel calls it: "DOWN", "INIT", "ARMED", "ACTIVE" */
    uint64_t speed_mbps;
    uint32_t mtu_bytes; /* active path MTU */
    uint16_t lid;       /* InfiniBand; 0: none assigned */
    uint32_t n_pkeys, n_gids;
    uint16_t pkeys[DEVICE_MAX_PKEYS]; /* 0: empty slot */
    struct device_gid gids[DEVICE_MAX_GIDS];
};

struct device_record {
    char name[DEVICE_NAME];
    bool software; /* soft-RoCE or soft-iWARP: slower, so it wants longer time-outs */
    uint32_t n_ports;
    struct device_port ports[DEVICE_MAX_PORTS];
};

struct device_table {
    uint32_t n;
    struct device_record devices[DEVICE_MAX];
};

struct device_wish {
    const char *device; /* what --device says, or NULL */
    bool has_address;   /* --bind names an address and not the wildcard */
    uint8_t address[16]; /* as a GID: IPv4 mapped into IPv6 */
    uint8_t service_level; /* InfiniBand, 0 to 15 */
};

struct device_rail {
    char device[DEVICE_NAME];
    uint32_t device_index; /* in the table */
    uint32_t port;
    enum device_link link;
    bool software;
    uint32_t mtu_bytes;
    uint32_t gid_index;
    uint8_t gid[16];
    uint16_t lid, pkey, pkey_index; /* InfiniBand; on Ethernet the default partition at its index */
    uint8_t service_level;
    bool has_address; /* its GID is the address of the wish */
};

/*
 * Fills up to max rails, at least one, and *n. HS_ERR_UNSUPPORTED: no device, or none that could be used. With a wish for a device:
 * HS_ERR_PARSE, HS_ERR_NOT_FOUND (no such device, port or GID), HS_ERR_CLOSED (its port is down, or lacks an address).
 */
int device_choose(const struct device_table *table, const struct device_wish *wish, struct device_rail *rails, uint32_t max,
                  uint32_t *n, struct error *err);

#endif
