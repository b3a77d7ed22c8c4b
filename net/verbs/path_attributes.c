#include <infiniband/verbs.h>
#include <string.h>

#include "net/verbs/path.h"

void path_attributes(const struct device_rail *rail, const struct path_end *peer, const struct path_route *route, struct ibv_ah_attr *out)
{
    *out = (struct ibv_ah_attr){.dlid = route->lid, .sl = route->service_level, .static_rate = route->rate, .port_num = (uint8_t)rail->port};
    if (!route->global)
        return;
    out->is_global = 1;
    memcpy(out->grh.dgid.raw, peer->gid, 16);
    out->grh.sgid_index = (uint8_t)rail->gid_index;
    out->grh.flow_label = route->flow_label;
    out->grh.hop_limit = route->hop_limit;
    out->grh.traffic_class = route->traffic_class;
}
