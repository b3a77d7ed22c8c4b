#include "tools/hearsay/open_fabric.h"

#include "net/dpdk/dpdk.h"
#include "net/net.h"
#include "net/verbs/ud.h"

static int open_verbs(const struct node_options *o, const uint8_t *group_key, const struct env *env, struct metrics *metrics,
                      struct transport **out, struct error *err)
{
    const struct transport_verbs_config config = {
        .bind = o->bind, .device = o->device, .group_key = group_key, .insecure_peers = o->insecure_peers, .metrics = metrics};
    if (o->fabric == FABRIC_VERBS_UD) {
        int rc = transport_verbs_ud_create(&config, env, out, err);
        return rc ? error_wrap(err, rc, "--fabric verbs-ud") : 0;
    }
    int rc = transport_verbs_create(&config, env, out, err);
    return rc ? error_wrap(err, rc, "--fabric verbs") : 0;
}

static int open_dpdk(const struct node_options *o, const uint8_t *group_key, const struct env *env, struct metrics *metrics,
                     struct transport **out, struct error *err)
{
    const struct transport_dpdk_config config = {.carrier = {.bind = o->bind, .eal = o->eal, .device = o->device, .metrics = metrics},
                                                 .group_key = group_key,
                                                 .insecure_peers = o->insecure_peers};
    int rc = transport_dpdk_create(&config, env, out, err);
    return rc ? error_wrap(err, rc, "--fabric dpdk") : 0;
}

int open_fabric(const struct node_options *o, const uint8_t *group_key, const struct env *env, struct metrics *metrics,
                struct transport **out, struct error *err)
{
    if (o->fabric == FABRIC_VERBS || o->fabric == FABRIC_VERBS_UD)
        return open_verbs(o, group_key, env, metrics, out, err);
    if (o->fabric == FABRIC_DPDK)
        return open_dpdk(o, group_key, env, metrics, out, err);
    const struct transport_sockets_config config = {
        .bind = o->bind, .group_key = group_key, .insecure_peers = o->insecure_peers, .datagram_bytes = o->datagram_bytes};
    int rc = transport_sockets_create(&config, env, out, err);
    return rc ? error_wrap(err, rc, "--bind") : 0;
}
