#include "net/verbs/path_records.h"

#include <errno.h>
#include <fcntl.h>
#include <infiniband/ib.h>
#include <infiniband/sa.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

struct question {
    struct rdma_cm_id *id; /* NULL: free */
    uint64_t cookie;
};

struct path_records {
    struct rdma_event_channel *channel;
    struct question questions[PATH_ASKS_MAX];
};

int path_records_open(struct path_records **out)
{
    struct path_records *self = calloc(1, sizeof *self);
    if (self == NULL)
        return HS_ERR_NO_MEMORY;
    self->channel = rdma_create_event_channel();
    int flags = self->channel ? fcntl(self->channel->fd, F_GETFL) : -1;
    if (flags < 0 || fcntl(self->channel->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
        path_records_close(self);
        return HS_ERR_UNSUPPORTED;
    }
    *out = self;
    return 0;
}

static void forget(struct question *question)
{
    rdma_destroy_id(question->id);
    question->id = NULL;
}

void path_records_close(struct path_records *self)
{
    if (self == NULL)
        return;
    for (uint32_t i = 0; i < PATH_ASKS_MAX; i++)
        if (self->questions[i].id != NULL)
            forget(&self->questions[i]);
    if (self->channel != NULL)
        rdma_destroy_event_channel(self->channel);
    free(self);
}

int path_records_fd(const struct path_records *self)
{
    return self->channel->fd;
}

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_ib ib;
};

/* On InfiniBand the GID itself, which needs no IP over it; on Ethernet the IPv4 address that it stands for. */
static bool address_of(const struct device_rail *rail, const uint8_t gid[16], union address *out)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    memset(out, 0, sizeof *out);
    if (rail->link == DEVICE_LINK_INFINIBAND) {
        out->ib.sib_family = AF_IB;
        out->ib.sib_pkey = htobe16(rail->pkey);
        memcpy(&out->ib.sib_addr, gid, 16);
        return true;
    }
    out->v4.sin_family = AF_INET;
    memcpy(&out->v4.sin_addr, gid + 12, 4);
    return memcmp(gid, mapped, sizeof mapped) == 0;
}

int path_records_ask(struct path_records *self, const struct device_rail *from, const uint8_t gid[16], uint64_t cookie)
{
    struct question *question = self->questions;
    union address here, there;
    while (question < self->questions + PATH_ASKS_MAX && question->id != NULL)
        question++;
    if (question == self->questions + PATH_ASKS_MAX)
        return HS_ERR_BUSY;
    if (!address_of(from, from->gid, &here) || !address_of(from, gid, &there))
        return HS_ERR_UNSUPPORTED;
    enum rdma_port_space space = from->link == DEVICE_LINK_INFINIBAND ? RDMA_PS_IB : RDMA_PS_UDP;
    if (rdma_create_id(self->channel, &question->id, question, space) != 0) {
        question->id = NULL;
        return HS_ERR_IO;
    }
    question->cookie = cookie;
    if (rdma_resolve_addr(question->id, &here.any, &there.any, PATH_TIMEOUT_MS) != 0) {
        forget(question);
        return HS_ERR_IO;
    }
    return 0;
}

static void convert(const struct ibv_sa_path_rec *from, struct path_record *out)
{
    *out = (struct path_record){.dlid = be16toh(from->dlid),
                                .pkey = be16toh(from->pkey),
                                .service_level = from->sl,
                                .traffic_class = from->traffic_class,
                                .hop_limit = from->hop_limit,
                                .rate = from->rate,
                                .life_time = from->packet_life_time,
                                .flow_label = be32toh(from->flow_label),
                                .mtu_bytes = from->mtu >= IBV_MTU_256 && from->mtu <= IBV_MTU_4096 ? 128u << from->mtu : 256,
                                .reversible = from->reversible != 0};
    memcpy(out->dgid, from->dgid.raw, 16);
}

static int status_of(int error)
{
    return error == -ETIMEDOUT ? HS_ERR_TIMEOUT : error == -EHOSTUNREACH || error == -ENETUNREACH || error == -ENODEV ? HS_ERR_NOT_FOUND : HS_ERR_IO;
}

/* A step of a question is done. True: it was the last one, and *out is its answer. */
static bool advance(struct question *question, enum rdma_cm_event_type type, int error, struct path_answer *out)
{
    *out = (struct path_answer){.cookie = question->cookie};
    if (type == RDMA_CM_EVENT_ADDR_RESOLVED) {
        if (rdma_resolve_route(question->id, PATH_TIMEOUT_MS) == 0)
            return false;
        out->status = HS_ERR_IO;
    } else if (type == RDMA_CM_EVENT_ROUTE_RESOLVED) {
        const struct rdma_route *route = &question->id->route;
        for (int i = 0; i < route->num_paths && out->n < PATH_RECORDS_MAX; i++)
            convert(&route->path_rec[i], &out->records[out->n++]);
        out->status = out->n > 0 ? 0 : HS_ERR_NOT_FOUND;
    } else {
        out->status = status_of(error);
    }
    return true;
}

bool path_records_take(struct path_records *self, struct path_answer *out)
{
    struct rdma_cm_event *event;
    while (rdma_get_cm_event(self->channel, &event) == 0) {
        struct question *question = event->id->context;
        enum rdma_cm_event_type type = event->event;
        int error = event->status;
        rdma_ack_cm_event(event); /* first: destroying what it is about waits for that */
        if (question->id == NULL || !advance(question, type, error, out))
            continue;
        forget(question);
        return true;
    }
    return false;
}
