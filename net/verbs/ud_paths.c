/* Path records for datagrams. Nobody waits for them: what the neighbour told is good until there is something better. */
#include <string.h>

#include "core/base/log.h"
#include "net/verbs/ud_internal.h"

int ud_paths_open(struct ud *self, bool everywhere)
{
    bool wanted = everywhere;
    for (uint32_t i = 0; i < self->n_rails; i++)
        wanted = wanted || self->rails[i].rail.choice.link == DEVICE_LINK_INFINIBAND;
    int status = wanted ? path_records_open(&self->paths) : 0;
    if (status == HS_ERR_UNSUPPORTED)
        log_info("net", "verbs: the subnet manager cannot be asked for paths (build with librdmacm, load rdma_ucm): LIDs are those that peers tell");
    return status == HS_ERR_UNSUPPORTED ? 0 : status;
}

struct path_end ud_path_end(const struct ud_port *port)
{
    struct path_end end = {.lid = port->lid, .mtu_bytes = port->mtu_bytes, .infiniband = port->infiniband};
    memcpy(end.gid, port->gid, sizeof end.gid);
    return end;
}

struct path_route ud_path_of(struct ud *self, struct ud_neighbour *neighbour, uint32_t at)
{
    const struct device_rail *choice = &self->rails[at].rail.choice;
    struct path_end end = ud_path_end(&neighbour->ports[at]);
    if (neighbour->routes[at].recorded)
        return neighbour->routes[at];
    uint64_t question = (uint64_t)(neighbour - self->neighbours.all) << 8 | at;
    if (self->paths != NULL && path_records_ask(self->paths, choice, end.gid, question) == 0)
        self->counts.path_asks++;
    return path_choose(choice, &end, NULL, 0, self->traffic_class);
}

/* The handle made in the meantime is dropped, and the next datagram makes one along the record. */
static void on_answer(struct ud *self, const struct path_answer *answer)
{
    uint64_t place = answer->cookie >> 8;
    uint32_t at = (uint32_t)(answer->cookie & 0xff);
    struct ud_neighbour *neighbour = place < self->neighbours.n ? &self->neighbours.all[place] : NULL;
    if (neighbour == NULL || at >= neighbour->n_ports)
        return;
    struct path_end end = ud_path_end(&neighbour->ports[at]); /* another neighbour's by now, perhaps: no record leads to its GID */
    struct path_route route = path_choose(&self->rails[at].rail.choice, &end, answer->records, answer->n, self->traffic_class);
    if (!route.recorded)
        return;
    ud_neighbour_drop_path(&self->neighbours, neighbour, at);
    neighbour->routes[at] = route;
}

void ud_paths_poll(struct ud *self)
{
    struct path_answer answer;
    while (self->paths != NULL && path_records_take(self->paths, &answer))
        on_answer(self, &answer);
}
