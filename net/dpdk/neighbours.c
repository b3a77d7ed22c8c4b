#include "net/dpdk/neighbours.h"

#include <string.h>

static struct neighbour *set_of(struct neighbours *all, uint32_t ip)
{
    return all->of[(ip * UINT32_C(2654435761)) >> 23]; /* 9 bits: NEIGHBOUR_SETS */
}

struct neighbour *neighbours_find(struct neighbours *all, uint32_t ip)
{
    struct neighbour *set = set_of(all, ip);
    for (int i = 0; i < NEIGHBOUR_WAYS; i++)
        if (set[i].ip == ip && ip != 0)
            return &set[i];
    return NULL;
}

struct neighbour *neighbours_get(struct neighbours *all, uint32_t ip, uint64_t now_us)
{
    struct neighbour *found = neighbours_find(all, ip);
    if (found != NULL) {
        found->used_us = now_us;
        return found;
    }
    struct neighbour *set = set_of(all, ip), *oldest = &set[0];
    for (int i = 0; i < NEIGHBOUR_WAYS && oldest->ip != 0; i++)
        if (set[i].ip == 0 || set[i].used_us < oldest->used_us)
            oldest = &set[i];
    *oldest = (struct neighbour){.ip = ip, .used_us = now_us};
    return oldest;
}

bool neighbour_heard(struct neighbour *neighbour, const uint8_t *mac, uint16_t port, uint64_t now_us)
{
    bool news = !neighbour->known || neighbour->port != port || memcmp(neighbour->mac, mac, FRAME_MAC_BYTES) != 0;
    if (news) {
        memcpy(neighbour->mac, mac, FRAME_MAC_BYTES);
        neighbour->port = port;
        neighbour->known = true;
    }
    neighbour->heard_us = now_us;
    neighbour->unanswered = 0;
    return news;
}

bool neighbour_ask(struct neighbour *neighbour, uint64_t now_us)
{
    if (neighbour->known && now_us - neighbour->heard_us < NEIGHBOUR_STALE_US)
        return false;
    if (neighbour->asked_us != 0 && now_us - neighbour->asked_us < NEIGHBOUR_ASK_US)
        return false;
    neighbour->asked_us = now_us;
    if (++neighbour->unanswered > NEIGHBOUR_MOST_UNANSWERED)
        neighbour->known = false;
    return true;
}

void neighbours_forget_port(struct neighbours *all, uint16_t port)
{
    for (int s = 0; s < NEIGHBOUR_SETS; s++)
        for (int i = 0; i < NEIGHBOUR_WAYS; i++)
            if (all->of[s][i].known && all->of[s][i].port == port)
                all->of[s][i].known = false;
}
