/*
 * How packets get from a rail to a peer's port: on Ethernet by its GID, on InfiniBand by LID and service level, as the subnet manager's path
 * records say or, without those, as the peer and the configuration say. Pure.
 *
 *     path_choose      of the records for a pair of ports, the one to take
 *     path_attributes  in the device's words
 *
 * Threading: pure. Errors: none.
 */
#ifndef HEARSAY_NET_VERBS_PATH_H
#define HEARSAY_NET_VERBS_PATH_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "net/verbs/device_choice.h"

struct ibv_ah_attr;

struct path_end { /* the peer's port, as it told */
    uint8_t gid[16];
    uint16_t lid, mtu_bytes;
    bool infiniband;
};

static inline struct path_end path_end_of(const uint8_t gid[16], uint16_t lid, uint16_t mtu_bytes, bool infiniband)
{
    struct path_end end = {.lid = lid, .mtu_bytes = mtu_bytes, .infiniband = infiniband};
    memcpy(end.gid, gid, sizeof end.gid);
    return end;
}

struct path_record { /* what of the subnet manager's matters to us; the InfiniBand specification's PathRecord */
    uint8_t dgid[16];
    uint16_t dlid, pkey;
    uint8_t service_level, traffic_class, hop_limit, rate, life_time; /* rate, life_time: codes of the specification */
    uint32_t flow_label, mtu_bytes;
    bool reversible;
};

struct path_route {
    uint16_t lid; /* InfiniBand */
    uint8_t service_level, traffic_class, hop_limit, rate; /* rate 0: the port's own */
    uint32_t flow_label, mtu_bytes;
    bool global, recorded; /* with a routing header; from a path record */
};

/*
 * The route to take. A record counts if it goes both ways, leads to the peer's GID and is of the rail's partition; of those the one to
 * the LID that the peer told, then the one with the larger MTU, the higher rate, the shorter life time, the earlier one. Without any:
 * the peer's LID, the rail's service level. traffic_class: of the configuration, for routes without a record.
 */
struct path_route path_choose(const struct device_rail *rail, const struct path_end *peer, const struct path_record *records, uint32_t n,
                              uint8_t traffic_class);

/* Whether what goes along `used` goes as `recorded` would have it; a smaller MTU or the port's own rate does no harm. */
bool path_is_as_recorded(const struct path_route *used, const struct path_route *recorded);

/* Which of two rates (codes of the specification, not in order of speed) is the higher: < 0, 0, > 0. */
int path_compare_rates(uint8_t a, uint8_t b);

void path_attributes(const struct device_rail *rail, const struct path_end *peer, const struct path_route *route, struct ibv_ah_attr *out);

#endif
