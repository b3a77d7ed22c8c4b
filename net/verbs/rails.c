#include "net/verbs/rails.h"

#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "net/udp_address.h"
#include "net/verbs/device_query.h"

void rails_survive_forks(void)
{
    int failed = ibv_fork_init();
    if (failed != 0)
        log_warn("net", "verbs: ibv_fork_init: %s: a program that this one starts could corrupt messages", strerror(failed));
}

/* The address of --bind as a port would have it: the one to prefer. */
static void wish_for_address(const char *bind, struct device_wish *wish)
{
    struct carrier_address address;
    if (udp_address_lookup(bind, AF_UNSPEC, &address) != 0 || udp_address_is_wildcard(&address) ||
        udp_address_is_loopback_address(&address))
        return;
    wish->has_address = true;
    if (address.len == 6) {
        wish->address[10] = wish->address[11] = 0xff;
        memcpy(wish->address + 12, address.bytes + 2, 4);
    } else {
        memcpy(wish->address, address.bytes + 2, 16);
    }
}

int rails_choose(const struct transport_verbs_config *config, struct device_rail chosen[DEVICE_MAX_RAILS], uint32_t *n, struct error *err)
{
    struct device_wish wish = {.device = config->device, .service_level = config->service_level};
    struct device_table *table = calloc(1, sizeof *table);
    if (table == NULL)
        return error_set(err, HS_ERR_NO_MEMORY, "out of memory for the list of RDMA devices");
    wish_for_address(config->bind, &wish);
    int status = device_query(table, err);
    if (status == 0)
        status = device_choose(table, &wish, chosen, DEVICE_MAX_RAILS, n, err);
    free(table);
    if (status == 0 && config->device == NULL)
        *n = 1; /* several only when they are named */
    return status;
}

int rails_open_paths(struct path_records **out)
{
    int status = path_records_open(out);
    if (status == HS_ERR_UNSUPPORTED)
        log_info("net", "verbs: the subnet manager cannot be asked for paths (build with librdmacm, load rdma_ucm): LIDs are those that peers tell, the "
                        "service level the configured one");
    return status == HS_ERR_UNSUPPORTED ? 0 : status;
}
