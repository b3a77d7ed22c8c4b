#include "net/verbs/device_query.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>

static const char *state_name(enum ibv_port_state state)
{
    switch (state) {
    case IBV_PORT_DOWN:
        return "DOWN";
    case IBV_PORT_INIT:
        return "INIT";
    case IBV_PORT_ARMED:
        return "ARMED";
    case IBV_PORT_ACTIVE:
        return "ACTIVE";
    default:
        return "not active";
    }
}

static enum device_link link_of(const struct ibv_context *context, const struct ibv_port_attr *attr)
{
    if (context->device->transport_type != IBV_TRANSPORT_IB)
        return DEVICE_LINK_OTHER; /* iWARP has no shared receive queue of our kind, usNIC no reliable queue pairs */
    return attr->link_layer == IBV_LINK_LAYER_ETHERNET ? DEVICE_LINK_ETHERNET : DEVICE_LINK_INFINIBAND;
}

/* Lanes times the rate of one; what the numbers stand for is fixed by the InfiniBand specification (PortInfo). */
static uint64_t speed_mbps(const struct ibv_port_attr *attr)
{
    static const struct {
        uint8_t code;
        uint32_t mbps;
    } rates[] = {{1, 2500}, {2, 5000}, {4, 10000}, {8, 10000}, {16, 14000}, {32, 25000}, {64, 50000}, {128, 100000}};
    uint64_t lanes = attr->active_width == 1 ? 1 : attr->active_width == 2 ? 4 : attr->active_width == 4 ? 8 : attr->active_width == 8 ? 12 : 2;
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++)
        if (rates[i].code == attr->active_speed)
            return lanes * rates[i].mbps;
    return 0;
}

static enum device_gid_type gid_type(uint32_t type)
{
    return type == IBV_GID_TYPE_ROCE_V2 ? DEVICE_GID_ROCE_V2 : type == IBV_GID_TYPE_ROCE_V1 ? DEVICE_GID_ROCE_V1 : DEVICE_GID_INFINIBAND;
}

static void query_gids(struct ibv_context *context, struct device_port *out)
{
    struct ibv_gid_entry entries[4 * DEVICE_MAX_GIDS]; /* of all ports */
    ssize_t n = ibv_query_gid_table(context, entries, sizeof entries / sizeof entries[0], 0);
    for (ssize_t i = 0; i < n && out->n_gids < DEVICE_MAX_GIDS; i++) {
        if (entries[i].port_num != out->number)
            continue;
        struct device_gid *gid = &out->gids[out->n_gids++];
        *gid = (struct device_gid){.index = entries[i].gid_index, .type = gid_type(entries[i].gid_type)};
        memcpy(gid->bytes, entries[i].gid.raw, 16);
    }
}

int device_query_port(struct ibv_context *context, uint32_t number, struct device_port *out)
{
    struct ibv_port_attr attr;
    if (ibv_query_port(context, (uint8_t)number, &attr) != 0)
        return HS_ERR_IO;
    *out = (struct device_port){.number = number,
                                .link = link_of(context, &attr),
                                .active = attr.state == IBV_PORT_ACTIVE,
                                .state = state_name(attr.state),
                                .speed_mbps = speed_mbps(&attr),
                                .mtu_bytes = 128u << attr.active_mtu,
                                .lid = attr.lid};
    while (out->n_pkeys < DEVICE_MAX_PKEYS && out->n_pkeys < attr.pkey_tbl_len) {
        __be16 pkey = 0;
        if (ibv_query_pkey(context, (uint8_t)number, (int)out->n_pkeys, &pkey) != 0)
            break;
        out->pkeys[out->n_pkeys++] = be16toh(pkey);
    }
    query_gids(context, out);
    return 0;
}

static int query_device(struct ibv_device *device, struct device_record *out)
{
    enum { SOFT_ROCE_VENDOR = 0xffffff };
    struct ibv_context *context = ibv_open_device(device);
    struct ibv_device_attr attr;
    if (context == NULL)
        return HS_ERR_IO;
    int status = ibv_query_device(context, &attr) == 0 ? 0 : HS_ERR_IO;
    const char *name = ibv_get_device_name(device);
    *out = (struct device_record){.software = attr.vendor_id == SOFT_ROCE_VENDOR || strncmp(name, "rxe", 3) == 0};
    strncpy(out->name, name, sizeof out->name - 1);
    for (uint32_t port = 1; status == 0 && port <= attr.phys_port_cnt && port <= DEVICE_MAX_PORTS; port++)
        status = device_query_port(context, port, &out->ports[out->n_ports++]);
    ibv_close_device(context);
    return status;
}

int device_query(struct device_table *out, struct error *err)
{
    int n = 0;
    struct ibv_device **list = ibv_get_device_list(&n);
    out->n = 0;
    if (list == NULL && errno != ENOSYS) /* ENOSYS: the kernel has no RDMA at all */
        return error_set(err, HS_ERR_IO, "RDMA devices cannot be listed: %s", strerror(errno));
    int refused = 0;
    for (int i = 0; i < n && out->n < DEVICE_MAX; i++) {
        if (query_device(list[i], &out->devices[out->n]) == 0)
            out->n++;
        else
            refused++;
    }
    if (list != NULL)
        ibv_free_device_list(list);
    if (out->n == 0 && refused > 0)
        return error_set(err, HS_ERR_UNSUPPORTED,
                         "%d RDMA device%s here, but none can be opened: install ibverbs-providers and allow this user /dev/infiniband/uverbs*",
                         refused, refused == 1 ? " is" : "s are");
    return 0;
}

struct ibv_context *device_open(const char *name)
{
    int n = 0;
    struct ibv_device **list = ibv_get_device_list(&n);
    struct ibv_context *context = NULL;
    for (int i = 0; i < n && context == NULL; i++)
        if (strcmp(ibv_get_device_name(list[i]), name) == 0)
            context = ibv_open_device(list[i]);
    if (list != NULL)
        ibv_free_device_list(list);
    return context;
}
