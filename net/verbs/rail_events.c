/* What happens to a rail without being asked for: its port goes down and comes up, changes its address, its device fails. */
#include <string.h>

#include "core/base/log.h"
#include "net/verbs/device_query.h"
#include "net/verbs/rail.h"

/* What is under way is sent again by the device; if that takes too long, the peers go down one by one. */
static enum rail_event on_port(struct verbs_rail *rail, bool active)
{
    if (rail->active == active)
        return RAIL_SAME;
    rail->active = active;
    if (active)
        log_info("net", "RDMA device %s port %u is up again", rail->choice.device, rail->choice.port);
    else
        log_warn("net", "RDMA device %s port %u is down: its peers cannot be reached until it is up again", rail->choice.device,
                 rail->choice.port);
    return active ? RAIL_UP : RAIL_DOWN;
}

/* The port's addresses changed: what peers were told last is wrong. */
static enum rail_event on_address(struct verbs_rail *rail)
{
    struct device_port port;
    if (device_query_port(rail->context, rail->choice.port, &port) != 0)
        return RAIL_SAME;
    uint8_t gid[16] = {0};
    for (uint32_t i = 0; i < port.n_gids; i++)
        if (port.gids[i].index == rail->choice.gid_index)
            memcpy(gid, port.gids[i].bytes, 16);
    bool lost = memcmp(gid, rail->choice.gid, 16) != 0;
    if (rail->choice.link == DEVICE_LINK_INFINIBAND && port.lid != 0 && port.lid != rail->choice.lid) {
        rail->choice.lid = port.lid;
        return RAIL_MOVED;
    }
    if (lost && rail->choice.link == DEVICE_LINK_ETHERNET)
        log_warn("net", "RDMA device %s port %u has lost the address that peers know: restart the node if it does not come back",
                 rail->choice.device, rail->choice.port);
    return RAIL_SAME;
}

static enum rail_event on_async(struct verbs_rail *rail, const struct ibv_async_event *event)
{
    bool ours = event->element.port_num == (int)rail->choice.port; /* of events about a port */
    switch (event->event_type) {
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
        return ours ? on_port(rail, event->event_type == IBV_EVENT_PORT_ACTIVE) : RAIL_SAME;
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_GID_CHANGE:
        return ours ? on_address(rail) : RAIL_SAME;
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        return RAIL_EMPTY;
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR:
        log_error("net", "RDMA device %s has failed (%s): its peers are lost until the node is restarted", rail->choice.device,
                  ibv_event_type_str(event->event_type));
        rail->failed = true;
        return RAIL_FAILED;
    default: /* of single queue pairs: their completions tell the same */
        log_debug("net", "RDMA device %s: %s", rail->choice.device, ibv_event_type_str(event->event_type));
        return RAIL_SAME;
    }
}

bool rail_take_event(struct verbs_rail *rail, enum rail_event *out)
{
    struct ibv_async_event event;
    if (ibv_get_async_event(rail->context, &event) != 0)
        return false;
    ibv_ack_async_event(&event); /* first: destroying what it is about waits for that */
    *out = on_async(rail, &event);
    return true;
}

void rail_watch_receives(struct verbs_rail *rail)
{
    struct ibv_srq_attr attr = {.srq_limit = 1};
    ibv_modify_srq(rail->srq, &attr, IBV_SRQ_LIMIT);
}
