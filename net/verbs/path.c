#include "net/verbs/path.h"

enum { HOP_LIMIT = 64 };

/* Megabits per second of the specification's codes: 2.5, 10, 30, 5, 20, 40, 60, 80, 120 Gb/s, then those of FDR, EDR, HDR and NDR. */
static uint32_t rate_mbps(uint8_t code)
{
    static const uint32_t mbps[] = {[2] = 2500,    [3] = 10000,   [4] = 30000,   [5] = 5000,    [6] = 20000,   [7] = 40000,  [8] = 60000,
                                    [9] = 80000,   [10] = 120000, [11] = 14000,  [12] = 56000,  [13] = 112000, [14] = 168000, [15] = 25000,
                                    [16] = 100000, [17] = 200000, [18] = 300000, [19] = 28000,  [20] = 50000,  [21] = 400000, [22] = 600000};
    return code < sizeof mbps / sizeof mbps[0] ? mbps[code] : 0;
}

int path_compare_rates(uint8_t a, uint8_t b)
{
    uint32_t x = rate_mbps(a), y = rate_mbps(b);
    return (x > y) - (x < y);
}

static bool counts(const struct device_rail *rail, const struct path_end *peer, const struct path_record *record)
{
    return record->reversible && record->dlid != 0 && memcmp(record->dgid, peer->gid, 16) == 0 &&
           ((record->pkey ^ rail->pkey) & 0x7fff) == 0; /* the highest bit says who may talk to whom within the partition */
}

static bool better(const struct path_end *peer, const struct path_record *a, const struct path_record *b)
{
    bool a_told = a->dlid == peer->lid, b_told = b->dlid == peer->lid;
    if (a_told != b_told)
        return a_told;
    if (a->mtu_bytes != b->mtu_bytes)
        return a->mtu_bytes > b->mtu_bytes;
    int rates = path_compare_rates(a->rate, b->rate);
    return rates != 0 ? rates > 0 : a->life_time < b->life_time;
}

struct path_route path_choose(const struct device_rail *rail, const struct path_end *peer, const struct path_record *records, uint32_t n,
                              uint8_t traffic_class)
{
    const struct path_record *best = NULL;
    bool ethernet = rail->link == DEVICE_LINK_ETHERNET, other_subnet = memcmp(rail->gid, peer->gid, 8) != 0;
    uint32_t mtu = peer->mtu_bytes < rail->mtu_bytes ? peer->mtu_bytes : rail->mtu_bytes;
    for (uint32_t i = 0; i < n && !ethernet; i++)
        if (counts(rail, peer, &records[i]) && (best == NULL || better(peer, &records[i], best)))
            best = &records[i];
    if (best == NULL)
        return (struct path_route){.lid = ethernet ? 0 : peer->lid,
                                   .service_level = ethernet ? 0 : rail->service_level,
                                   .traffic_class = traffic_class,
                                   .hop_limit = HOP_LIMIT,
                                   .mtu_bytes = mtu,
                                   .global = ethernet || other_subnet};
    return (struct path_route){.lid = best->dlid,
                               .service_level = best->service_level,
                               .traffic_class = best->traffic_class,
                               .hop_limit = best->hop_limit,
                               .rate = best->rate,
                               .flow_label = best->flow_label,
                               .mtu_bytes = best->mtu_bytes < mtu ? best->mtu_bytes : mtu,
                               .global = other_subnet || best->hop_limit > 1,
                               .recorded = true};
}

bool path_is_as_recorded(const struct path_route *used, const struct path_route *recorded)
{
    bool same_header = used->traffic_class == recorded->traffic_class && used->flow_label == recorded->flow_label;
    return used->lid == recorded->lid && used->service_level == recorded->service_level && used->global == recorded->global &&
           (!used->global || same_header) && used->mtu_bytes <= recorded->mtu_bytes;
}
