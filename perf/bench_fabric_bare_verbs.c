/*
 * A ping-pong, a stream and a read over one reliable queue pair and nothing else: the port, path MTU, inline length, time-outs and one
 * signal in sixteen as in the fabric, completions polled without a pause; no seal, no order but the queue's, no credit but the
 * stream's window. Beside the fabric of datagrams the same, but for reads, over one unreliable queue pair, where a lost one ends it. Ends meet
 * over a socket of this machine.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "net/verbs/device_query.h"
#include "net/verbs/rails.h"
#include "perf/bench_fabric_verbs.h"
#include "perf/progress.h"

enum {
    MOST_BYTES = 64 << 10,
    RECEIVES = 128, /* posted: more than a window of messages */
    MOST_WINDOW = 96,
    SEND_DEPTH = 64,
    SIGNAL_EVERY = 16,
    BATCH = 16,
    ROUTE_BYTES = 40, /* in front of a received datagram */
    QUEUE_KEY = 0x11111111,
    INLINE_BYTES = 256,
    LOOKS_PER_CONTROL = 4096,
    PATIENCE_MS = 10000,
};

/* What the ends tell each other. */
struct end {
    uint32_t queue_pair, packet_number, key, mtu_bytes;
    uint64_t address; /* of memory that may be read */
    uint8_t gid[16];
    uint16_t lid;
};

struct bare {
    struct device_rail rail;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    bool datagrams;
    struct ibv_ah *path; /* of datagrams */
    uint8_t *memory; /* [1 + RECEIVES][room]: what is sent or read, what is received */
    size_t room;
    uint32_t bytes, max_inline;
    uint64_t posted, done; /* sends */
    uint32_t received, reads;
    int control;
    struct end there;
};

/* ---- making a queue pair ---- */

static int fail(struct bare *bare, const char *what, struct error *err)
{
    return error_set(err, HS_ERR_IO, "bare verbs on %s: %s: %s", bare->rail.device, what, strerror(errno));
}

static void close_bare(struct bare *bare)
{
    if (bare->qp)
        ibv_destroy_qp(bare->qp);
    if (bare->path)
        ibv_destroy_ah(bare->path);
    if (bare->mr)
        ibv_dereg_mr(bare->mr);
    if (bare->cq)
        ibv_destroy_cq(bare->cq);
    if (bare->pd)
        ibv_dealloc_pd(bare->pd);
    if (bare->context)
        ibv_close_device(bare->context);
    free(bare->memory);
}

static int make_queue_pair(struct bare *bare, struct error *err)
{
    struct ibv_qp_init_attr init = {
        .send_cq = bare->cq,
        .recv_cq = bare->cq,
        .cap = {.max_send_wr = SEND_DEPTH, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = INLINE_BYTES},
        .qp_type = bare->datagrams ? IBV_QPT_UD : IBV_QPT_RC,
    };
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .pkey_index = bare->rail.pkey_index,
                               .port_num = (uint8_t)bare->rail.port,
                               .qkey = QUEUE_KEY,
                               .qp_access_flags = IBV_ACCESS_REMOTE_READ};
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (bare->datagrams ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
    bare->qp = ibv_create_qp(bare->pd, &init);
    if (!bare->qp || ibv_modify_qp(bare->qp, &attr, mask) != 0)
        return fail(bare, "no queue pair", err);
    bare->max_inline = init.cap.max_inline_data;
    return 0;
}

static int open_bare(struct bare *bare, const struct fabric_job *job, bool serves, struct error *err)
{
    struct transport_verbs_config config = {.bind = serves ? job->config->bind : job->config->bind_calls};
    struct device_rail rails[DEVICE_MAX_RAILS];
    uint32_t n;
    bool datagrams = strcmp(job->config->fabric, "verbs-ud") == 0;
    *bare = (struct bare){.bytes = job->bytes, .control = job->control, .datagrams = datagrams};
    bare->room = (job->bytes + (datagrams ? ROUTE_BYTES : 0) + 63) & ~63u;
    if (job->bytes > MOST_BYTES || job->config->window > MOST_WINDOW)
        return error_set(err, HS_ERR_LIMIT, "bare verbs: at most %d bytes and a window of %d", MOST_BYTES, MOST_WINDOW);
    int rc = rails_choose(&config, rails, &n, err);
    if (rc)
        return rc;
    size_t len = (1 + RECEIVES) * bare->room;
    bare->rail = rails[0];
    if (datagrams && job->bytes > bare->rail.mtu_bytes)
        return error_set(err, HS_ERR_LIMIT, "bare verbs: datagrams of at most %u bytes, the path MTU", bare->rail.mtu_bytes);
    bare->memory = aligned_alloc(4096, (len + 4095) & ~(size_t)4095);
    if (!bare->memory)
        return error_set(err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
    memset(bare->memory, 0, len);
    bare->context = device_open(bare->rail.device);
    bare->pd = bare->context ? ibv_alloc_pd(bare->context) : NULL;
    bare->cq = bare->pd ? ibv_create_cq(bare->context, 2 * (RECEIVES + SEND_DEPTH), NULL, NULL, 0) : NULL;
    bare->mr = bare->cq ? ibv_reg_mr(bare->pd, bare->memory, len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ) : NULL;
    return bare->mr ? make_queue_pair(bare, err) : fail(bare, "cannot be opened", err);
}

static bool post_receives(struct bare *bare, const uint64_t *slots, uint32_t n)
{
    struct ibv_recv_wr requests[BATCH], *bad;
    struct ibv_sge pieces[BATCH];
    for (uint32_t i = 0; i < n; i++) {
        pieces[i] = (struct ibv_sge){
            .addr = (uintptr_t)(bare->memory + (1 + slots[i]) * bare->room), .length = (uint32_t)bare->room, .lkey = bare->mr->lkey};
        requests[i] = (struct ibv_recv_wr){
            .wr_id = slots[i], .next = i + 1 < n ? &requests[i + 1] : NULL, .sg_list = &pieces[i], .num_sge = 1};
    }
    return n == 0 || ibv_post_recv(bare->qp, requests, &bad) == 0;
}

static enum ibv_mtu mtu_code(uint32_t bytes)
{
    enum ibv_mtu code = IBV_MTU_256;
    while (code < IBV_MTU_4096 && 256u << code <= bytes)
        code++;
    return code;
}

static struct ibv_ah_attr path_to(const struct bare *bare, const struct end *there)
{
    struct ibv_ah_attr attr = {.dlid = there->lid,
                               .port_num = (uint8_t)bare->rail.port,
                               .sl = bare->rail.service_level,
                               .is_global = bare->rail.link == DEVICE_LINK_ETHERNET,
                               .grh = {.sgid_index = (uint8_t)bare->rail.gid_index, .hop_limit = 64}};
    memcpy(attr.grh.dgid.raw, there->gid, sizeof there->gid);
    return attr;
}

static int connect_datagrams(struct bare *bare, const struct end *there, struct error *err)
{
    struct ibv_ah_attr path = path_to(bare, there);
    struct ibv_qp_attr ready = {.qp_state = IBV_QPS_RTR};
    int failed = ibv_modify_qp(bare->qp, &ready, IBV_QP_STATE);
    ready.qp_state = IBV_QPS_RTS;
    failed = failed ? failed : ibv_modify_qp(bare->qp, &ready, IBV_QP_STATE | IBV_QP_SQ_PSN);
    bare->path = failed ? NULL : ibv_create_ah(bare->pd, &path);
    return bare->path ? 0 : fail(bare, "no path", err);
}

static int connect_to(struct bare *bare, uint32_t packet_number, const struct end *there, struct error *err)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .ah_attr = path_to(bare, there),
        .path_mtu = mtu_code(there->mtu_bytes < bare->rail.mtu_bytes ? there->mtu_bytes : bare->rail.mtu_bytes),
        .dest_qp_num = there->queue_pair,
        .rq_psn = there->packet_number,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
    };
    if (ibv_modify_qp(bare->qp, &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                          IBV_QP_MIN_RNR_TIMER) != 0)
        return fail(bare, "not ready to receive", err);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                                .timeout = bare->rail.software ? 19 : 18,
                                .retry_cnt = 7,
                                .rnr_retry = 6,
                                .sq_psn = packet_number,
                                .max_rd_atomic = 1};
    return ibv_modify_qp(bare->qp, &attr,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0
               ? 0
               : fail(bare, "not ready to send", err);
}

/* ---- meeting ---- */

static bool readable(int fd, int control)
{
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = control, .events = POLLIN}};
    return poll(fds, 2, PATIENCE_MS) > 0 && fds[1].revents == 0;
}

/* Tells the other end where we are, hears where it is, and has receives posted before anything can come. */
static int swap_ends(struct bare *bare, int fd, struct error *err)
{
    struct end there, here = {.queue_pair = bare->qp->qp_num,
                              .packet_number = bare->qp->qp_num & 0xffff,
                              .key = bare->mr->rkey,
                              .mtu_bytes = bare->rail.mtu_bytes,
                              .address = (uintptr_t)bare->memory,
                              .lid = bare->rail.lid};
    memcpy(here.gid, bare->rail.gid, sizeof here.gid);
    for (uint64_t slot = 0; slot < RECEIVES; slot++)
        if (!post_receives(bare, &slot, 1))
            return fail(bare, "no receive", err);
    if (send(fd, &here, sizeof here, MSG_NOSIGNAL) != sizeof here || !readable(fd, bare->control) ||
        recv(fd, &there, sizeof there, 0) != sizeof there)
        return fail(bare, "the other end went away", err);
    int rc = bare->datagrams ? connect_datagrams(bare, &there, err) : connect_to(bare, here.packet_number, &there, err);
    char ready = 1;
    if (rc == 0 && (send(fd, &ready, 1, MSG_NOSIGNAL) != 1 || !readable(fd, bare->control) || recv(fd, &ready, 1, 0) != 1))
        rc = fail(bare, "the other end did not connect", err);
    bare->there = there;
    return rc;
}

/* ---- sends, reads, completions ---- */

/* n messages of one length in one list. */
static bool post_sends(struct bare *bare, uint32_t n, uint32_t bytes)
{
    struct ibv_send_wr requests[BATCH], *bad;
    struct ibv_sge piece = {.addr = (uintptr_t)bare->memory, .length = bytes, .lkey = bare->mr->lkey};
    for (uint32_t i = 0; i < n; i++) {
        requests[i] = (struct ibv_send_wr){.next = i + 1 < n ? &requests[i + 1] : NULL,
                                           .sg_list = &piece,
                                           .num_sge = 1,
                                           .opcode = IBV_WR_SEND,
                                           .send_flags = (bytes <= bare->max_inline ? IBV_SEND_INLINE : 0) |
                                                         (++bare->posted % SIGNAL_EVERY == 0 ? IBV_SEND_SIGNALED : 0)};
        if (bare->datagrams) {
            requests[i].wr.ud.ah = bare->path;
            requests[i].wr.ud.remote_qpn = bare->there.queue_pair;
            requests[i].wr.ud.remote_qkey = QUEUE_KEY;
        }
    }
    return ibv_post_send(bare->qp, requests, &bad) == 0;
}

static bool post_read(struct bare *bare)
{
    struct ibv_sge piece = {.addr = (uintptr_t)(bare->memory + bare->room), .length = bare->bytes, .lkey = bare->mr->lkey};
    struct ibv_send_wr *bad, request = {.sg_list = &piece,
                                        .num_sge = 1,
                                        .opcode = IBV_WR_RDMA_READ,
                                        .send_flags = IBV_SEND_SIGNALED,
                                        .wr.rdma = {.remote_addr = bare->there.address, .rkey = bare->there.key}};
    return ibv_post_send(bare->qp, &request, &bad) == 0;
}

/* One look; the receives that were used are in slots. False: something failed. */
static bool look(struct bare *bare, uint64_t slots[BATCH], uint32_t *n_slots)
{
    struct ibv_wc completions[BATCH];
    int n = ibv_poll_cq(bare->cq, BATCH, completions);
    *n_slots = 0;
    for (int i = 0; i < n; i++) {
        if (completions[i].status != IBV_WC_SUCCESS)
            return false;
        if (completions[i].opcode == IBV_WC_RECV)
            slots[(*n_slots)++] = completions[i].wr_id;
        else if (completions[i].opcode == IBV_WC_RDMA_READ)
            bare->reads++;
        else
            bare->done += SIGNAL_EVERY;
    }
    bare->received += *n_slots;
    return n >= 0;
}

static bool look_and_post(struct bare *bare)
{
    uint64_t slots[BATCH];
    uint32_t n;
    return look(bare, slots, &n) && post_receives(bare, slots, n);
}

/* Spins until a count has changed. */
static int await(struct bare *bare, const uint32_t *count, uint32_t wanted)
{
    uint64_t end_ns = 0;
    for (uint32_t looks = 1; *count < wanted; looks++) {
        if (!look_and_post(bare))
            return HS_ERR_IO;
        if (looks % LOOKS_PER_CONTROL == 0) {
            uint64_t now_ns = perf_now_ns();
            end_ns = end_ns ? end_ns : now_ns + PATIENCE_MS * UINT64_C(1000000);
            if (now_ns > end_ns)
                return HS_ERR_TIMEOUT;
        }
    }
    return 0;
}

/* ---- the serving side ---- */

static void serve_until_over(struct bare *bare, const struct fabric_job *job)
{
    uint32_t each = fabric_acknowledged_each(job->config), acknowledged = 0;
    for (uint32_t looks = 1; looks % LOOKS_PER_CONTROL != 0 || !fabric_is_over(job->control); looks++) {
        uint64_t slots[BATCH];
        uint32_t n;
        if (!look(bare, slots, &n))
            return;
        bool good = job->pattern != FABRIC_PING || n == 0 || post_sends(bare, n, job->bytes);
        good = good && post_receives(bare, slots, n);
        for (; good && job->pattern == FABRIC_STREAM && bare->received - acknowledged >= each; acknowledged += each)
            good = post_sends(bare, 1, 1);
        if (!good)
            return;
    }
}

static int listen_here(char text[32], struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t len = sizeof address.sun_family; /* the kernel picks an abstract name */
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, len) == 0 && listen(fd, 1) == 0) {
        len = sizeof address;
        if (getsockname(fd, (struct sockaddr *)&address, &len) == 0) {
            snprintf(text, 32, "%.*s", (int)(len - sizeof address.sun_family - 1), address.sun_path + 1);
            return fd;
        }
    }
    int rc = error_set(err, HS_ERR_IO, "a socket to meet at: %s", strerror(errno));
    if (fd >= 0)
        close(fd);
    return rc;
}

int fabric_verbs_serve_bare(const struct fabric_job *job, int (*ready)(int control, const char *address), struct error *err)
{
    struct bare bare;
    char text[32];
    int listening = -1, fd = -1, rc = open_bare(&bare, job, true, err);
    if (rc == 0)
        rc = listening = listen_here(text, err);
    if (rc >= 0)
        rc = ready(job->control, text);
    if (rc == 0 && readable(listening, job->control))
        fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        rc = swap_ends(&bare, fd, err);
    if (fd >= 0 && rc == 0)
        serve_until_over(&bare, job);
    if (fd >= 0)
        close(fd);
    if (listening >= 0)
        close(listening);
    close_bare(&bare);
    return rc;
}

/* ---- the calling side ---- */

static int ping_once(void *arg, struct error *err)
{
    struct bare *bare = arg;
    return post_sends(bare, 1, bare->bytes) ? await(bare, &bare->received, bare->received + 1) : HS_ERR_IO;
}

static int read_once(void *arg, struct error *err)
{
    struct bare *bare = arg;
    return post_read(bare) ? await(bare, &bare->reads, bare->reads + 1) : HS_ERR_IO;
}

static int stream(struct bare *bare, const struct fabric_job *job, double *bytes_per_s)
{
    uint32_t each = fabric_acknowledged_each(job->config), sent = 0;
    struct stream_meter meter;
    stream_meter_begin(&meter, job->config->duration_ns);
    uint64_t heard_ns = meter.now_ns;
    uint32_t before = 0;
    do {
        uint32_t room = job->config->window - (sent - bare->received * each), depth = SEND_DEPTH - (uint32_t)(bare->posted - bare->done);
        uint32_t n = room < depth ? room : depth;
        n = n < BATCH ? n : BATCH;
        if ((n > 0 && !post_sends(bare, n, job->bytes)) || !look_and_post(bare))
            return HS_ERR_IO;
        sent += n;
        if (bare->received != before)
            heard_ns = meter.now_ns;
        else if (meter.now_ns - heard_ns > PATIENCE_MS * UINT64_C(1000000))
            return HS_ERR_TIMEOUT;
        before = bare->received;
    } while (stream_meter_goes_on(&meter, bare->received * each));
    *bytes_per_s = stream_meter_bytes_per_s(&meter, job->bytes);
    return 0;
}

static int call_there(const char *text, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = strnlen(text, 31);
    memcpy(address.sun_path + 1, text, len);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, (socklen_t)(sizeof address.sun_family + 1 + len)) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return error_set(err, HS_ERR_IO, "the other end is not there: %s", strerror(errno));
}

int fabric_verbs_call_bare(const struct fabric_job *job, const char *address, struct fabric_result *out, struct error *err)
{
    struct bare bare;
    int fd = -1, rc = open_bare(&bare, job, false, err);
    if (rc == 0)
        rc = fd = call_there(address, err);
    if (rc >= 0)
        rc = swap_ends(&bare, fd, err);
    if (rc == 0) {
        if (job->pattern == FABRIC_STREAM)
            rc = stream(&bare, job, &out->bytes_per_s);
        else
            rc = fabric_time_each(job->pattern == FABRIC_READ ? read_once : ping_once, &bare, job->config->duration_ns, &out->times_us, err);
        if (rc)
            error_set(err, rc, "bare verbs: nothing comes back");
    }
    if (fd >= 0)
        close(fd);
    close_bare(&bare);
    return rc;
}
