#include "net/dpdk/dpdk.h"

int transport_dpdk_create(const struct transport_dpdk_config *config, const struct env *env, struct transport **out, struct error *err)
{
    struct carrier *carrier;
    int status = dpdk_carrier_create(&config->carrier, &carrier, err);
    if (status != 0)
        return status;
    if (config->group_key == NULL && !config->insecure_peers)
        status = error_set(err, HS_ERR_AUTH,
                           "whoever is on the Ethernet segment of %s can be a peer: give --group-key-file (or --insecure-peers to let anyone in)",
                           config->carrier.bind);
    else
        status = transport_reliable_create(carrier, "dpdk", config->group_key, &config->tuning, env, out, err);
    if (status != 0)
        carrier->ops->destroy(carrier);
    return status;
}
