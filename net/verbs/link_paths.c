/*
 * Which way a link's packets go. On Ethernet, and where nobody can be asked, the peer's offer says it; on InfiniBand the subnet manager is asked
 * first, and the offer waits for its word. If that does not come, the peer's word is taken for now, and the question asked again while the link is
 * up; an answer that says another way then has the link made anew.
 */
#include <sodium.h>
#include <string.h>

#include "core/base/log.h"
#include "net/verbs/internal.h"
#include "net/verbs/rails.h"

int verbs_paths_open(struct verbs *self)
{
    bool wanted = self->config.ask_paths;
    for (uint32_t i = 0; i < self->n_rails; i++)
        wanted = wanted || self->rails[i].choice.link == DEVICE_LINK_INFINIBAND;
    return wanted ? rails_open_paths(&self->paths) : 0;
}

/* A question about the peer's port. 0, or why nobody was asked. */
static int ask(struct verbs_link *link)
{
    struct verbs *self = link->owner;
    uint64_t question = (uint64_t)link->peer << 32 | ++self->n_questions;
    int status = path_records_ask(self->paths, &link->rail->choice, link->there.gid, question);
    if (status != 0)
        return status;
    path_retry_asked(&link->path_retry);
    link->question = question;
    self->counts.path_asks++;
    return 0;
}

static void ask_later(struct verbs_link *link)
{
    struct verbs *self = link->owner;
    verbs_timer_at(self, path_retry_failed(&link->path_retry, self->now_ns, env_random_u64(&self->env)));
}

static bool was_found(struct verbs_link *link, const struct path_end *there)
{
    struct verbs_rail *by = link->found_by;
    link->found_by = NULL; /* good once: the network may change */
    return by == link->rail && memcmp(link->there.gid, there->gid, sizeof there->gid) == 0;
}

bool verbs_path_awaited(struct verbs_link *link, const struct control *offer)
{
    struct verbs *self = link->owner;
    struct path_end end = path_end_of(offer->gid, offer->lid, offer->mtu_bytes, offer->infiniband);
    bool found = was_found(link, &end);
    link->there = end;
    link->path_retry = (struct path_retry){.due_ns = 0};
    link->route = found ? link->found : path_choose(&link->rail->choice, &end, NULL, 0, self->config.traffic_class);
    if (found || self->paths == NULL || offer->infiniband != (link->rail->choice.link == DEVICE_LINK_INFINIBAND))
        return false;
    int status = ask(link);
    if (status == 0)
        link->awaited = *offer;
    else if (status != HS_ERR_UNSUPPORTED)
        ask_later(link);
    return status == 0;
}

void verbs_path_forget(struct verbs_link *link)
{
    link->question = 0;
    sodium_memzero(&link->awaited, sizeof link->awaited);
    link->route = (struct path_route){.lid = 0};
    link->path_retry = (struct path_retry){.due_ns = 0};
}

void verbs_path_timer(struct verbs_link *link)
{
    struct path_retry *retry = &link->path_retry;
    if (retry->failures == 0 || retry->open || retry->settled)
        return;
    if (!path_retry_due(retry, link->owner->now_ns))
        verbs_timer_at(link->owner, retry->due_ns);
    else if (ask(link) != 0)
        ask_later(link);
}

/* An offer has waited for this. */
static void connect_along(struct verbs_link *link, const struct path_route *route, int status)
{
    const struct device_rail *choice = &link->rail->choice;
    struct control offer = link->awaited;
    sodium_memzero(&link->awaited, sizeof link->awaited);
    link->route = *route;
    if (!route->recorded && choice->link == DEVICE_LINK_INFINIBAND)
        log_info("net", "verbs: the subnet manager knows no path from %s port %u to peer %u (%s): LID %u and service level %u are taken, and it is "
                        "asked again",
                 choice->device, choice->port, link->peer, status ? error_name(status) : "none fits", route->lid, route->service_level);
    verbs_pair_connect(link, CONTROL_MESSAGES, &offer);
    sodium_memzero(&offer, sizeof offer);
}

/* The link is in use already. */
static void compare_with(struct verbs_link *link, const struct path_route *route)
{
    const struct device_rail *choice = &link->rail->choice;
    if (!route->recorded || path_is_as_recorded(&link->route, route))
        return;
    log_info("net", "verbs: the path from %s port %u to peer %u is to LID %u at service level %u, as the subnet manager says by now: connecting anew",
             choice->device, choice->port, link->peer, route->lid, route->service_level);
    link->found = *route;
    link->found_by = link->rail;
    verbs_pair_fail(link, CONTROL_MESSAGES, HS_ERR_CANCELED, true);
}

static void on_answer(struct verbs *self, const struct path_answer *answer)
{
    uint32_t place = net_peer_place((uint32_t)(answer->cookie >> 32));
    struct verbs_link *link = place < self->n_peers ? self->links[place] : NULL;
    if (link == NULL || link->question != answer->cookie)
        return; /* of an attempt that is over */
    const struct device_rail *choice = &link->rail->choice;
    struct path_route route = path_choose(choice, &link->there, answer->records, answer->n, self->config.traffic_class);
    link->question = 0;
    if (route.recorded || (choice->link == DEVICE_LINK_ETHERNET && answer->status == 0))
        path_retry_settled(&link->path_retry);
    else
        ask_later(link);
    if (link->awaited.type == CONTROL_OFFER)
        connect_along(link, &route, answer->status);
    else
        compare_with(link, &route);
}

void verbs_paths_poll(struct verbs *self)
{
    struct path_answer answer;
    while (self->paths != NULL && path_records_take(self->paths, &answer))
        on_answer(self, &answer);
}
