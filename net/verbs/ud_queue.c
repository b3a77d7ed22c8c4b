/* The queue pair of a rail: made, made ready again when something broke it, and the address handles that go with it. */
#include <errno.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/panic.h"
#include "net/verbs/ud_internal.h"

enum { INLINE_BYTES = 256 };
#define RESTART_NS UINT64_C(100000000)

static struct ibv_qp *create_qp(struct verbs_rail *rail, struct ibv_cq *sent)
{
    for (uint32_t wanted = INLINE_BYTES;; wanted /= 2) { /* some devices refuse rather than cut down */
        struct ibv_qp_init_attr attr = {
            .send_cq = sent,
            .recv_cq = rail->cq,
            .srq = rail->srq,
            .cap = {.max_send_wr = UD_SENDS, .max_send_sge = 1, .max_inline_data = wanted},
            .qp_type = IBV_QPT_UD,
        };
        struct ibv_qp *qp = ibv_create_qp(rail->pd, &attr);
        if (qp != NULL)
            rail->max_inline = attr.cap.max_inline_data;
        if (qp != NULL || wanted < 32)
            return qp;
    }
}

/* From any state to ready to send. */
static int make_ready(struct ud_rail *rail)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    int failed = ibv_modify_qp(rail->qp, &attr, IBV_QP_STATE);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT,
                                .pkey_index = rail->rail.choice.pkey_index,
                                .port_num = (uint8_t)rail->rail.choice.port,
                                .qkey = rail->queue_key};
    if (!failed)
        failed = ibv_modify_qp(rail->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR};
    if (!failed)
        failed = ibv_modify_qp(rail->qp, &attr, IBV_QP_STATE);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = 0};
    if (!failed)
        failed = ibv_modify_qp(rail->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
    return failed;
}

static void destroy_handle(void *handle)
{
    ibv_destroy_ah(handle);
}

int ud_queue_open(struct ud *self, struct ud_rail *rail, struct error *err)
{
    const char *device = rail->rail.choice.device;
    rail->paths.destroy = destroy_handle;
    rail->queue_key = (uint32_t)env_random_u64(&self->env) & INT32_MAX; /* the highest bit stands for keys of the system's */
    int status = rail_reserve(&rail->rail, self->receives, self->receives, err);
    if (status != 0)
        return status;
    rail_watch_receives(&rail->rail);
    rail->sent = ibv_create_cq(rail->rail.context, UD_SENDS, NULL, NULL, 0);
    rail->qp = rail->sent ? create_qp(&rail->rail, rail->sent) : NULL;
    if (rail->qp == NULL || make_ready(rail) != 0)
        return error_set(err, HS_ERR_UNSUPPORTED, "RDMA device %s gives no queue pair for datagrams: %s", device, strerror(errno));
    return 0;
}

/* What was being sent is free: completed, or forgotten by the queue pair. */
static void take_back(struct ud_rail *rail, uint64_t until)
{
    for (; rail->done < until; rail->done++)
        if (rail->in_flight[rail->done % UD_SENDS] != NULL)
            rail_give(&rail->rail, rail->in_flight[rail->done % UD_SENDS]);
    ud_handles_done(&rail->paths, rail->done);
}

void ud_queue_close(struct ud_rail *rail)
{
    if (rail->qp != NULL)
        ibv_destroy_qp(rail->qp);
    if (rail->sent != NULL)
        ibv_destroy_cq(rail->sent);
    take_back(rail, rail->posted);
    ud_handles_done(&rail->paths, UINT64_MAX);
    rail->qp = NULL;
    rail->sent = NULL;
}

bool ud_queue_ready(struct ud *self, struct ud_rail *rail)
{
    if (rail->rail.failed || !rail->rail.active)
        return false;
    if (!rail->broken)
        return true;
    if (self->now_ns - rail->broken_ns < RESTART_NS)
        return false;
    rail->broken_ns = self->now_ns;
    rail->generation++;
    self->counts.restarts++;
    if (make_ready(rail) != 0)
        return false;
    take_back(rail, rail->posted);
    rail->broken = false;
    return true;
}

/* The end of a signalled one, and of those before it. */
static void on_sent(struct ud *self, struct ud_rail *rail, const struct ibv_wc *wc)
{
    if ((uint32_t)(wc->wr_id >> 32) != rail->generation)
        return;
    if (wc->status == IBV_WC_SUCCESS) {
        take_back(rail, rail->done + (uint32_t)((uint32_t)wc->wr_id - (uint32_t)rail->done));
        return;
    }
    if (!rail->broken) {
        log_debug("net", "verbs: the queue pair for datagrams on %s: %s", rail->rail.choice.device, ibv_wc_status_str(wc->status));
        rail->broken = true; /* such as when the port is down: what is sent meanwhile is as if lost */
        rail->broken_ns = self->now_ns;
    }
}

void ud_queue_collect(struct ud *self, struct ud_rail *rail)
{
    struct ibv_wc wc[UD_BURST];
    int n;
    do {
        n = ibv_poll_cq(rail->sent, UD_BURST, wc);
        for (int i = 0; i < n; i++)
            on_sent(self, rail, &wc[i]);
    } while (n == UD_BURST);
}

uint32_t ud_queue_room(struct ud *self, struct ud_rail *rail)
{
    if (rail->posted - rail->done > UD_SENDS / 2)
        ud_queue_collect(self, rail);
    return UD_SENDS - (uint32_t)(rail->posted - rail->done);
}

static struct ud_path *make_path(struct ud *self, struct ud_neighbour *neighbour, uint32_t at)
{
    struct ud_rail *rail = &self->rails[at];
    struct path_route route = ud_path_of(self, neighbour, at);
    struct path_end end = ud_path_end(&neighbour->ports[at]);
    struct ibv_ah_attr attr;
    path_attributes(&rail->rail.choice, &end, &route, &attr);
    struct ibv_ah *handle = ibv_create_ah(rail->rail.pd, &attr);
    return handle ? ud_path_make(&rail->paths, handle, route.mtu_bytes) : NULL; /* NULL: nobody there answers for the address just now */
}

struct ud_path *ud_queue_path(struct ud *self, struct ud_neighbour *neighbour, struct ud_rail **out, const struct ud_port **port)
{
    uint32_t n = neighbour->n_ports < self->n_rails ? neighbour->n_ports : self->n_rails;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = (neighbour->rail + i) % n;
        struct ud_rail *rail = &self->rails[at];
        const struct ud_port *there = &neighbour->ports[at];
        if (!ud_queue_ready(self, rail))
            continue;
        if (there->infiniband != (rail->rail.choice.link == DEVICE_LINK_INFINIBAND)) {
            if (!self->told_link)
                log_warn("net", "verbs: a peer's port is %s, port %u of %s is not: give --device the same networks in the same order everywhere",
                         there->infiniband ? "InfiniBand" : "Ethernet", rail->rail.choice.port, rail->rail.choice.device);
            self->told_link = true;
            continue;
        }
        if (neighbour->paths[at] == NULL)
            neighbour->paths[at] = make_path(self, neighbour, at);
        if (neighbour->paths[at] == NULL)
            continue;
        *out = rail;
        *port = there;
        return neighbour->paths[at];
    }
    return NULL;
}
