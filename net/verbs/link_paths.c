/*
 * Which way a link's packets go. On Ethernet, and where nobody can be asked, the peer's offer says it; on InfiniBand the subnet manager is asked
 * first, and the offer waits for its word.
 */
#include <sodium.h>
#include <string.h>

#include "core/base/log.h"
#include "net/verbs/internal.h"

static struct path_end end_of(const struct control *offer)
{
    struct path_end end = {.lid = offer->lid, .mtu_bytes = offer->mtu_bytes, .infiniband = offer->infiniband};
    memcpy(end.gid, offer->gid, sizeof end.gid);
    return end;
}

int verbs_paths_open(struct verbs *self)
{
    bool wanted = self->config.ask_paths;
    for (uint32_t i = 0; i < self->n_rails; i++)
        wanted = wanted || self->rails[i].choice.link == DEVICE_LINK_INFINIBAND;
    int status = wanted ? path_records_open(&self->paths) : 0;
    if (status == HS_ERR_UNSUPPORTED)
        log_info("net", "verbs: the subnet manager cannot be asked for paths (build with librdmacm, load rdma_ucm): LIDs are those that peers tell, "
                        "the service level is %u", self->config.service_level);
    return status == HS_ERR_UNSUPPORTED ? 0 : status;
}

bool verbs_path_awaited(struct verbs_link *link, const struct control *offer)
{
    struct verbs *self = link->owner;
    struct path_end end = end_of(offer);
    link->route = path_choose(&link->rail->choice, &end, NULL, 0, self->config.traffic_class);
    if (self->paths == NULL || offer->infiniband != (link->rail->choice.link == DEVICE_LINK_INFINIBAND))
        return false;
    uint64_t question = (uint64_t)link->peer << 32 | ++self->n_questions;
    if (path_records_ask(self->paths, &link->rail->choice, offer->gid, question) != 0)
        return false;
    link->question = question;
    link->awaited = *offer;
    self->counts.path_asks++;
    return true;
}

void verbs_path_forget(struct verbs_link *link)
{
    link->question = 0;
    sodium_memzero(&link->awaited, sizeof link->awaited);
    link->route = (struct path_route){.lid = 0};
}

static void on_answer(struct verbs *self, const struct path_answer *answer)
{
    uint32_t place = net_peer_place((uint32_t)(answer->cookie >> 32));
    struct verbs_link *link = place < self->n_peers ? self->links[place] : NULL;
    if (link == NULL || link->question != answer->cookie)
        return; /* of an attempt that is over */
    const struct device_rail *choice = &link->rail->choice;
    struct control offer = link->awaited;
    struct path_end end = end_of(&offer);
    link->question = 0;
    sodium_memzero(&link->awaited, sizeof link->awaited);
    link->route = path_choose(choice, &end, answer->records, answer->n, self->config.traffic_class);
    if (!link->route.recorded && choice->link == DEVICE_LINK_INFINIBAND)
        log_info("net", "verbs: the subnet manager knows no path from %s port %u to peer %u (%s): LID %u and service level %u are taken",
                 choice->device, choice->port, link->peer, answer->status ? error_name(answer->status) : "none fits", link->route.lid,
                 link->route.service_level);
    verbs_pair_connect(link, CONTROL_MESSAGES, &offer);
    sodium_memzero(&offer, sizeof offer);
}

void verbs_paths_poll(struct verbs *self)
{
    struct path_answer answer;
    while (self->paths != NULL && path_records_take(self->paths, &answer))
        on_answer(self, &answer);
}
