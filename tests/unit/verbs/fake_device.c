#include "tests/unit/verbs/fake_device.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/base/rng.h"

#undef ibv_reg_mr
#undef ibv_query_port

enum { NUMBERS = 1 << 16, INLINE_BYTES = 256, HELD = 256, ROUTE_BYTES = 40, LONGEST = 4096 };

struct fake_device fake_device;

struct queue {
    struct ibv_cq cq;
    struct ibv_wc *ring;
    uint32_t head, tail, room; /* room: a power of two */
    bool armed, armed_for_all;
};

struct receive {
    uint64_t wr_id, address;
    uint32_t len;
};

struct shared {
    struct ibv_srq srq;
    struct receive *ring;
    uint32_t head, tail, room;
};

struct pair {
    struct ibv_qp qp;
    uint32_t there; /* number of the other end */
    uint32_t queue_key;
    bool remote_read;
};

struct memory {
    struct ibv_mr mr;
    struct memory *next;
    int access;
};

struct handle {
    struct ibv_ah ah; /* its handle is the index in handles[] */
    bool alive;       /* a dead one's memory stays, so that its use is seen */
};

static struct pair *pairs[NUMBERS]; /* by number */
static struct handle *handles[NUMBERS];
static struct memory *memories;
static uint32_t last_number = 0x10, last_key = 0x1000, last_handle;
static struct ibv_device the_device = {.name = "fake0", .node_type = IBV_NODE_CA, .transport_type = IBV_TRANSPORT_IB};
static const uint8_t the_gid[16] = {[10] = 0xff, [11] = 0xff, [12] = 10, [13] = 9, [14] = 9, [15] = 1};

static uint32_t power_of_two(uint32_t least)
{
    uint32_t n = 16;
    while (n < least)
        n *= 2;
    return n;
}

/* ---- registered memory ---- */

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *base, size_t len, int access)
{
    struct memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL)
        return NULL;
    uint32_t key = ++last_key;
    *memory = (struct memory){.mr = {.context = pd->context, .pd = pd, .addr = base, .length = len, .lkey = key, .rkey = key}, .next = memories, .access = access};
    memories = memory;
    fake_device.registered_bytes += len;
    return &memory->mr;
}

/* What the header makes of it where the compiler does not know the access. */
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *base, size_t len, uint64_t address, unsigned int access)
{
    return address == (uintptr_t)base ? ibv_reg_mr(pd, base, len, (int)access) : NULL;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
    for (struct memory **at = &memories; *at != NULL; at = &(*at)->next) {
        struct memory *memory = *at;
        if (&memory->mr != mr)
            continue;
        *at = memory->next;
        fake_device.registered_bytes -= mr->length;
        free(memory);
        return 0;
    }
    return EINVAL;
}

static bool covered(uint32_t key, uint64_t address, uint64_t len, int access)
{
    for (const struct memory *memory = memories; memory != NULL; memory = memory->next)
        if (memory->mr.lkey == key)
            return (memory->access & access) == access && address >= (uintptr_t)memory->mr.addr &&
                   address + len <= (uintptr_t)memory->mr.addr + memory->mr.length;
    return false;
}

/* ---- completions ---- */

static void complete(struct ibv_cq *cq, const struct ibv_wc *wc, bool worth_waking)
{
    struct queue *queue = (struct queue *)cq;
    if (queue->tail - queue->head == queue->room)
        abort(); /* the transport has to see to it that this cannot happen */
    queue->ring[queue->tail++ % queue->room] = *wc;
    if (!queue->armed || !(queue->armed_for_all || worth_waking || wc->status != IBV_WC_SUCCESS))
        return;
    queue->armed = false;
    eventfd_write(cq->channel->fd, 1);
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *out)
{
    struct queue *queue = (struct queue *)cq;
    int count = 0;
    while (count < n && queue->head != queue->tail)
        out[count++] = queue->ring[queue->head++ % queue->room];
    return count;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
    struct queue *queue = (struct queue *)cq;
    queue->armed_for_all = !solicited_only || (queue->armed && queue->armed_for_all);
    queue->armed = true;
    return 0;
}

static struct ibv_wc *ring_of(uint32_t room)
{
    return calloc(room, sizeof(struct ibv_wc));
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *arg, struct ibv_comp_channel *channel, int vector)
{
    (void)vector;
    struct queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL)
        return NULL;
    queue->room = power_of_two((uint32_t)entries);
    queue->ring = ring_of(queue->room);
    queue->cq = (struct ibv_cq){.context = context, .channel = channel, .cq_context = arg, .cqe = entries};
    if (queue->ring != NULL)
        return &queue->cq;
    free(queue);
    return NULL;
}

int ibv_resize_cq(struct ibv_cq *cq, int entries)
{
    struct queue *queue = (struct queue *)cq;
    uint32_t room = power_of_two((uint32_t)entries), n = 0;
    struct ibv_wc *ring = ring_of(room);
    if (ring == NULL || queue->tail - queue->head > room) {
        free(ring);
        return ENOMEM;
    }
    while (queue->head != queue->tail)
        ring[n++] = queue->ring[queue->head++ % queue->room];
    free(queue->ring);
    *queue = (struct queue){.cq = queue->cq, .ring = ring, .tail = n, .room = room, .armed = queue->armed, .armed_for_all = queue->armed_for_all};
    cq->cqe = entries;
    return 0;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
    free(((struct queue *)cq)->ring);
    free(cq);
    return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    struct ibv_comp_channel *channel = calloc(1, sizeof *channel);
    if (channel == NULL)
        return NULL;
    *channel = (struct ibv_comp_channel){.context = context, .fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE)};
    return channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    close(channel->fd);
    free(channel);
    return 0;
}

/* There is one completion queue to a channel in this transport; which one is not asked for. */
int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **arg)
{
    eventfd_t value;
    *cq = NULL;
    *arg = NULL;
    return eventfd_read(channel->fd, &value);
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
    (void)cq;
    (void)n;
}

/* ---- receives ---- */

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct shared *shared = (struct shared *)srq;
    for (; wr != NULL; wr = wr->next) {
        const struct ibv_sge *piece = wr->sg_list;
        if (shared->tail - shared->head == shared->room || wr->num_sge != 1 || !covered(piece->lkey, piece->addr, piece->length, IBV_ACCESS_LOCAL_WRITE)) {
            *bad = wr;
            return ENOMEM;
        }
        shared->ring[shared->tail++ % shared->room] = (struct receive){.wr_id = wr->wr_id, .address = piece->addr, .len = piece->length};
        fake_device.receives_posted++;
    }
    return 0;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    struct shared *shared = calloc(1, sizeof *shared);
    if (shared == NULL)
        return NULL;
    shared->room = power_of_two(attr->attr.max_wr);
    shared->ring = calloc(shared->room, sizeof *shared->ring);
    shared->srq = (struct ibv_srq){.context = pd->context, .pd = pd};
    if (shared->ring != NULL)
        return &shared->srq;
    free(shared);
    return NULL;
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
    (void)srq;
    (void)attr;
    (void)mask;
    return 0;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
    free(((struct shared *)srq)->ring);
    free(srq);
    return 0;
}

/* ---- sends and reads ---- */

static struct pair *other_end(const struct pair *pair)
{
    struct pair *there = pair->there < NUMBERS ? pairs[pair->there] : NULL;
    return there != NULL && there->there == pair->qp.qp_num && (there->qp.state == IBV_QPS_RTR || there->qp.state == IBV_QPS_RTS) ? there : NULL;
}

static enum ibv_wc_status deliver(const struct pair *pair, const struct ibv_send_wr *wr)
{
    struct pair *there = other_end(pair);
    const struct ibv_sge *piece = wr->sg_list;
    if (!(wr->send_flags & IBV_SEND_INLINE) && !covered(piece->lkey, piece->addr, piece->length, 0))
        return IBV_WC_LOC_PROT_ERR;
    if (there == NULL)
        return IBV_WC_RETRY_EXC_ERR;
    struct shared *shared = (struct shared *)there->qp.srq;
    if (shared == NULL || shared->head == shared->tail) {
        fake_device.receiver_not_ready++;
        return IBV_WC_RNR_RETRY_EXC_ERR;
    }
    struct receive *receive = &shared->ring[shared->head++ % shared->room];
    if (piece->length > receive->len)
        return IBV_WC_REM_INV_REQ_ERR;
    memcpy((void *)(uintptr_t)receive->address, (const void *)(uintptr_t)piece->addr, piece->length);
    complete(there->qp.recv_cq,
             &(struct ibv_wc){.wr_id = receive->wr_id, .opcode = IBV_WC_RECV, .byte_len = piece->length, .qp_num = there->qp.qp_num, .src_qp = pair->qp.qp_num},
             wr->send_flags & IBV_SEND_SOLICITED);
    return IBV_WC_SUCCESS;
}

static enum ibv_wc_status read_there(const struct pair *pair, const struct ibv_send_wr *wr)
{
    const struct pair *there = other_end(pair);
    const struct ibv_sge *piece = wr->sg_list;
    if (!covered(piece->lkey, piece->addr, piece->length, IBV_ACCESS_LOCAL_WRITE))
        return IBV_WC_LOC_PROT_ERR;
    if (there == NULL)
        return IBV_WC_RETRY_EXC_ERR;
    if (!there->remote_read || !covered(wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, piece->length, IBV_ACCESS_REMOTE_READ))
        return IBV_WC_REM_ACCESS_ERR;
    uint8_t *to = (uint8_t *)(uintptr_t)piece->addr;
    memcpy(to, (const void *)(uintptr_t)wr->wr.rdma.remote_addr, piece->length);
    if (fake_device.tear_reads > 0) {
        fake_device.tear_reads--;
        to[piece->length / 2] ^= 1;
    }
    return IBV_WC_SUCCESS;
}

static void end_request(struct pair *pair, uint64_t wr_id, enum ibv_wc_opcode opcode, enum ibv_wc_status status, bool signaled)
{
    if (status != IBV_WC_SUCCESS)
        pair->qp.state = IBV_QPS_ERR;
    if (signaled || status != IBV_WC_SUCCESS)
        complete(pair->qp.send_cq, &(struct ibv_wc){.wr_id = wr_id, .opcode = opcode, .status = status, .qp_num = pair->qp.qp_num}, false);
}

struct held_read {
    uint32_t number;
    struct ibv_send_wr wr;
    struct ibv_sge piece;
};

static struct held_read held[HELD];
static uint32_t n_held;

void fake_device_release_reads(void)
{
    fake_device.hold_reads = false;
    for (uint32_t i = 0; i < n_held; i++) {
        struct pair *pair = pairs[held[i].number];
        held[i].wr.sg_list = &held[i].piece;
        if (pair != NULL && pair->qp.state == IBV_QPS_RTS)
            end_request(pair, held[i].wr.wr_id, IBV_WC_RDMA_READ, read_there(pair, &held[i].wr), true);
    }
    n_held = 0;
}

/* ---- datagrams ---- */

static bool chance(uint32_t percent)
{
    static struct rng rng;
    static bool seeded;
    if (!seeded)
        rng_seed(&rng, 20261130);
    seeded = true;
    return percent > 0 && rng_below(&rng, 100) < percent;
}

struct datagram {
    uint32_t to, from, queue_key, len;
    uint8_t data[LONGEST];
};

static void arrive(const struct datagram *datagram)
{
    struct pair *there = datagram->to < NUMBERS ? pairs[datagram->to] : NULL;
    if (there == NULL || there->qp.qp_type != IBV_QPT_UD || there->queue_key != datagram->queue_key ||
        (there->qp.state != IBV_QPS_RTR && there->qp.state != IBV_QPS_RTS))
        return;
    struct shared *shared = (struct shared *)there->qp.srq;
    if (shared->head == shared->tail)
        return;
    struct receive *receive = &shared->ring[shared->head++ % shared->room];
    if (receive->len < ROUTE_BYTES + datagram->len)
        abort(); /* the transport takes all that the port lets through */
    uint8_t *to = (uint8_t *)(uintptr_t)receive->address;
    memset(to, 0xa5, ROUTE_BYTES);
    memcpy(to + ROUTE_BYTES, datagram->data, datagram->len);
    complete(there->qp.recv_cq,
             &(struct ibv_wc){.wr_id = receive->wr_id, .opcode = IBV_WC_RECV, .byte_len = ROUTE_BYTES + datagram->len, .qp_num = datagram->to,
                              .src_qp = datagram->from, .wc_flags = IBV_WC_GRH},
             true);
}

static enum ibv_wc_status send_datagram(const struct pair *pair, const struct ibv_send_wr *wr)
{
    static struct datagram datagram, late;
    const struct ibv_sge *piece = wr->sg_list;
    const struct handle *handle = handles[wr->wr.ud.ah->handle];
    if (handle == NULL || &handle->ah != wr->wr.ud.ah || !handle->alive) {
        fake_device.dead_handles++;
        return IBV_WC_LOC_QP_OP_ERR;
    }
    if (piece->length > (fake_device.mtu_bytes ? fake_device.mtu_bytes : LONGEST))
        return IBV_WC_LOC_LEN_ERR;
    if (!(wr->send_flags & IBV_SEND_INLINE) && !covered(piece->lkey, piece->addr, piece->length, 0))
        return IBV_WC_LOC_PROT_ERR;
    fake_device.datagrams++;
    datagram.to = wr->wr.ud.remote_qpn;
    datagram.from = pair->qp.qp_num;
    datagram.queue_key = wr->wr.ud.remote_qkey;
    datagram.len = piece->length;
    memcpy(datagram.data, (const void *)(uintptr_t)piece->addr, piece->length);
    if (chance(fake_device.percent_lost))
        return IBV_WC_SUCCESS;
    if (late.len == 0 && chance(fake_device.percent_late)) {
        late = datagram;
        return IBV_WC_SUCCESS;
    }
    arrive(&datagram);
    if (chance(fake_device.percent_doubled))
        arrive(&datagram);
    if (late.len != 0)
        arrive(&late);
    late.len = 0;
    return IBV_WC_SUCCESS;
}

struct held_datagram {
    uint32_t number;
    struct ibv_send_wr wr;
    struct ibv_sge piece;
    uint8_t inlined[INLINE_BYTES];
};

static struct held_datagram held_datagrams[HELD];
static uint32_t n_held_datagrams;

static void hold_datagram(const struct pair *pair, const struct ibv_send_wr *wr)
{
    struct held_datagram *one = &held_datagrams[n_held_datagrams++];
    *one = (struct held_datagram){.number = pair->qp.qp_num, .wr = *wr, .piece = wr->sg_list[0]};
    if (wr->send_flags & IBV_SEND_INLINE) {
        memcpy(one->inlined, (const void *)(uintptr_t)wr->sg_list->addr, wr->sg_list->length);
        one->piece.addr = (uintptr_t)one->inlined;
    }
}

void fake_device_release_datagrams(void)
{
    fake_device.hold_datagrams = false;
    for (uint32_t i = 0; i < n_held_datagrams; i++) {
        struct held_datagram *one = &held_datagrams[i];
        struct pair *pair = pairs[one->number];
        one->wr.sg_list = &one->piece;
        if (pair != NULL && pair->qp.state == IBV_QPS_RTS)
            end_request(pair, one->wr.wr_id, IBV_WC_SEND, send_datagram(pair, &one->wr), one->wr.send_flags & IBV_SEND_SIGNALED);
    }
    n_held_datagrams = 0;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    (void)attr;
    struct handle *handle = calloc(1, sizeof *handle);
    if (handle == NULL)
        return NULL;
    do
        last_handle = (last_handle + 1) % NUMBERS;
    while (handles[last_handle] != NULL && handles[last_handle]->alive);
    free(handles[last_handle]);
    *handle = (struct handle){.ah = {.context = pd->context, .pd = pd, .handle = last_handle}, .alive = true};
    handles[last_handle] = handle;
    fake_device.n_handles++;
    return &handle->ah;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
    ((struct handle *)ah)->alive = false;
    fake_device.n_handles--;
    return 0;
}

/* ---- posting ---- */

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct pair *pair = (struct pair *)qp;
    for (; wr != NULL; wr = wr->next) {
        bool read = wr->opcode == IBV_WR_RDMA_READ;
        enum ibv_wc_status status = IBV_WC_WR_FLUSH_ERR;
        if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_ERR) {
            *bad = wr;
            return EINVAL;
        }
        fake_device.reads_posted += read;
        fake_device.sends_posted += !read;
        if (read && fake_device.hold_reads && n_held < HELD) {
            held[n_held++] = (struct held_read){.number = qp->qp_num, .wr = *wr, .piece = wr->sg_list[0]};
            continue;
        }
        bool datagram = qp->qp_type == IBV_QPT_UD;
        if (datagram && fake_device.hold_datagrams && n_held_datagrams < HELD) {
            hold_datagram(pair, wr);
            continue;
        }
        if (qp->state == IBV_QPS_RTS)
            status = read ? read_there(pair, wr) : datagram ? send_datagram(pair, wr) : deliver(pair, wr);
        end_request(pair, wr->wr_id, read ? IBV_WC_RDMA_READ : IBV_WC_SEND, status, wr->send_flags & IBV_SEND_SIGNALED);
    }
    return 0;
}

/* ---- queue pairs ---- */

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    if ((attr->qp_type != IBV_QPT_RC && attr->qp_type != IBV_QPT_UD) || (attr->srq == NULL && fake_device.refuse_read_pairs)) {
        errno = ENOMEM;
        return NULL;
    }
    struct pair *pair = calloc(1, sizeof *pair);
    if (pair == NULL)
        return NULL;
    do
        last_number = (last_number + 1) % NUMBERS;
    while (last_number == 0 || pairs[last_number] != NULL);
    if (attr->cap.max_inline_data > INLINE_BYTES)
        attr->cap.max_inline_data = INLINE_BYTES;
    pair->qp = (struct ibv_qp){.context = pd->context, .pd = pd, .send_cq = attr->send_cq, .recv_cq = attr->recv_cq, .srq = attr->srq,
                               .qp_num = last_number, .state = IBV_QPS_RESET, .qp_type = attr->qp_type};
    pairs[last_number] = pair;
    fake_device.n_queue_pairs++;
    return &pair->qp;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    struct pair *pair = (struct pair *)qp;
    if (mask & IBV_QP_ACCESS_FLAGS)
        pair->remote_read = attr->qp_access_flags & IBV_ACCESS_REMOTE_READ;
    if (mask & IBV_QP_DEST_QPN)
        pair->there = attr->dest_qp_num;
    if (mask & IBV_QP_QKEY)
        pair->queue_key = attr->qkey;
    if (mask & IBV_QP_STATE)
        qp->state = attr->qp_state;
    return 0;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
    pairs[qp->qp_num] = NULL;
    fake_device.n_queue_pairs--;
    free(qp);
    return 0;
}

/* ---- the device ---- */

struct ibv_device **ibv_get_device_list(int *n)
{
    struct ibv_device **list = calloc(2, sizeof *list);
    if (list != NULL)
        list[0] = &the_device;
    if (n != NULL)
        *n = list != NULL;
    return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

/* For programs that know nothing of fake_device, such as the conformance suite. */
static void read_environment(void)
{
    const char *mtu = getenv("FAKE_DEVICE_MTU"), *percent = getenv("FAKE_DEVICE_LOSSY");
    if (mtu != NULL)
        fake_device.mtu_bytes = (uint32_t)strtoul(mtu, NULL, 10);
    if (percent != NULL)
        fake_device.percent_lost = fake_device.percent_doubled = fake_device.percent_late = (uint32_t)strtoul(percent, NULL, 10);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    read_environment();
    struct ibv_context *context = calloc(1, sizeof *context);
    if (context == NULL)
        return NULL;
    *context = (struct ibv_context){.device = device, .cmd_fd = -1, .async_fd = eventfd(0, EFD_CLOEXEC), .num_comp_vectors = 1};
    context->ops.poll_cq = poll_cq;
    context->ops.req_notify_cq = req_notify_cq;
    context->ops.post_srq_recv = post_srq_recv;
    context->ops.post_send = post_send;
    return context;
}

int ibv_close_device(struct ibv_context *context)
{
    close(context->async_fd);
    free(context);
    return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *out)
{
    (void)context;
    *out = (struct ibv_device_attr){.max_cqe = 1 << 20, .max_srq_wr = 1 << 16, .max_qp_rd_atom = 16, .max_qp_init_rd_atom = 16, .phys_port_cnt = 1};
    return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *out)
{
    (void)context;
    struct ibv_port_attr *attr = (struct ibv_port_attr *)out; /* which begins alike */
    if (port != 1)
        return EINVAL;
    attr->state = IBV_PORT_ACTIVE;
    attr->max_mtu = attr->active_mtu = IBV_MTU_4096;
    while (fake_device.mtu_bytes != 0 && 128u << attr->active_mtu > fake_device.mtu_bytes)
        attr->active_mtu--;
    attr->gid_tbl_len = attr->pkey_tbl_len = 1;
    attr->active_width = 2;
    attr->active_speed = 32;
    attr->link_layer = IBV_LINK_LAYER_ETHERNET;
    return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max, uint32_t flags, size_t size)
{
    (void)context;
    (void)flags;
    if (max == 0 || size != sizeof *entries)
        return 0;
    entries[0] = (struct ibv_gid_entry){.gid_index = 0, .port_num = 1, .gid_type = IBV_GID_TYPE_ROCE_V2};
    memcpy(entries[0].gid.raw, the_gid, sizeof the_gid);
    return 1;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *out)
{
    (void)context;
    (void)port;
    *out = htobe16(0xffff);
    return index == 0 ? 0 : EINVAL;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct ibv_pd *pd = calloc(1, sizeof *pd);
    if (pd != NULL)
        pd->context = context;
    return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
    free(pd);
    return 0;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *out)
{
    (void)context;
    (void)out;
    errno = EAGAIN;
    return -1;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
    (void)event;
}

int ibv_fork_init(void)
{
    return 0;
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
    return status == IBV_WC_SUCCESS ? "success" : "failure";
}

const char *ibv_event_type_str(enum ibv_event_type type)
{
    (void)type;
    return "event";
}
