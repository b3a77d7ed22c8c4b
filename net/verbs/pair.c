#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/panic.h"
#include "net/verbs/internal.h"

enum {
    DYING_NS = 200000000,
    HARDWARE_TIMEOUT = 18, /* 4.096 us * 2^18: 1.07 s */
    SOFTWARE_TIMEOUT = 19, /* soft devices on a busy machine are late by a second */
    RETRIES = 7,
    RNR_TIMER = 12, /* 0.64 ms; never needed, but 0 would stand for 655 ms */
    RNR_RETRIES = 6,
    INLINE_BYTES = 256,
    LINK_COMPLETIONS = VERBS_CREDITS + VERBS_SPARE + VERBS_SEND_DEPTH + VERBS_MAX_READS,
};

static const char *const pair_names[CONTROL_PAIRS] = {"messages", "reads"};

/* ---- numbers to links ---- */

static uint64_t qp_key(const struct verbs *self, const struct verbs_rail *rail, uint32_t number)
{
    return verbs_rail_index(self, rail) << 32 | number;
}

struct verbs_link *verbs_link_of(struct verbs *self, const struct verbs_rail *rail, uint32_t number, enum control_pair *which)
{
    uint64_t key = qp_key(self, rail, number);
    if (key != self->last_qp_key || !self->last_qp_known) {
        uint64_t *found = u64_map_get(&self->pair_of_qp, key);
        if (found == NULL)
            return NULL;
        self->last_qp_key = key;
        self->last_qp_pair = *found;
        self->last_qp_known = true;
    }
    *which = (enum control_pair)(self->last_qp_pair & 1);
    return self->links[net_peer_place((uint32_t)(self->last_qp_pair >> 1))];
}

/* ---- a queue pair's beginning ---- */

/* Which rail an attempt uses: both ends reckon the same, and the next attempt takes the next. */
static struct verbs_rail *rail_of_attempt(struct verbs_link *link, uint32_t epoch)
{
    struct verbs *self = link->owner;
    return &self->rails[((self->boot_id ^ link->boot_id) + epoch) % self->n_rails];
}

static void leave_rail(struct verbs_link *link)
{
    if (link->rail == NULL)
        return;
    link->rail->n_links--;
    link->rail->n_receives -= VERBS_CREDITS + VERBS_SPARE;
    link->rail = NULL;
}

static int join_rail(struct verbs_link *link, struct verbs_rail *rail, struct error *err)
{
    if (rail->failed || !rail->active)
        return error_set(err, HS_ERR_CLOSED, "RDMA device %s port %u %s", rail->choice.device, rail->choice.port,
                         rail->failed ? "has failed" : "is down");
    uint32_t n = rail->n_links + 1;
    int status = rail_reserve(rail, n * LINK_COMPLETIONS, n * (VERBS_CREDITS + VERBS_SPARE), err);
    if (status != 0)
        return status;
    rail->n_links = n;
    link->rail = rail;
    return 0;
}

static struct ibv_qp *create_qp(struct verbs_link *link, enum control_pair which)
{
    struct verbs_rail *rail = link->rail;
    bool messages = which == CONTROL_MESSAGES;
    for (uint32_t wanted = messages ? INLINE_BYTES : 0;; wanted /= 2) { /* some devices refuse rather than cut down */
        struct ibv_qp_init_attr attr = {
            .send_cq = rail->cq,
            .recv_cq = rail->cq,
            .srq = messages ? rail->srq : NULL,
            .cap = {.max_send_wr = messages ? VERBS_SEND_DEPTH : VERBS_MAX_READS,
                    .max_recv_wr = messages ? 0 : 1,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = wanted},
            .qp_type = IBV_QPT_RC,
        };
        struct ibv_qp *qp = ibv_create_qp(rail->pd, &attr);
        if (qp != NULL && messages)
            rail->max_inline = attr.cap.max_inline_data;
        if (qp != NULL || wanted < 32)
            return qp;
    }
}

static int to_init(struct verbs_link *link, enum control_pair which)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .pkey_index = link->rail->choice.pkey_index,
                               .port_num = (uint8_t)link->rail->choice.port,
                               .qp_access_flags = which == CONTROL_READS ? IBV_ACCESS_REMOTE_READ : 0};
    return ibv_modify_qp(link->pairs[which].qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static uint32_t smaller(uint32_t a, int b)
{
    return b >= 0 && (uint32_t)b < a ? (uint32_t)b : a;
}

static void tell_offer(struct verbs_link *link, enum control_pair which)
{
    const struct verbs_pair *pair = &link->pairs[which];
    const struct device_rail *choice = &link->rail->choice;
    struct control offer = {
        .type = CONTROL_OFFER,
        .pair = which,
        .epoch = pair->epoch,
        .queue_pair = pair->qp->qp_num,
        .packet_number = pair->packet_number,
        .lid = choice->lid,
        .mtu_bytes = (uint16_t)choice->mtu_bytes,
        .infiniband = choice->link == DEVICE_LINK_INFINIBAND,
        .credits = VERBS_CREDITS,
        .reads = (uint16_t)smaller(VERBS_MAX_READS, link->rail->limits.max_qp_rd_atom),
        .ciphers = link->owner->tuning.ciphers,
    };
    memcpy(offer.gid, choice->gid, sizeof offer.gid);
    if (which == CONTROL_MESSAGES) {
        for (int i = 0; i < 4; i++) {
            uint64_t word = env_random_u64(&link->owner->env);
            memcpy(link->secret + 8 * i, &word, 8);
        }
        memcpy(offer.secret, link->secret, sizeof offer.secret);
    }
    verbs_tell(link, &offer);
}

static void plan_next(struct verbs_link *link, struct verbs_pair *pair)
{
    struct verbs *self = link->owner;
    pair->next_attempt_ns = self->now_ns + pair->retry_ns + env_random_u64(&self->env) % (pair->retry_ns / 4 + 1);
    pair->retry_ns = pair->retry_ns * 2 < self->tuning.connect_retry_max_ns ? pair->retry_ns * 2 : self->tuning.connect_retry_max_ns;
    verbs_timer_at(self, pair->next_attempt_ns);
}

/* So that whatever becomes of the attempt can be told. */
static int keep_events(struct verbs_link *link)
{
    while (link->kept_events < 2 && verbs_events_keep(link->owner))
        link->kept_events++;
    return link->kept_events == 2 ? 0 : HS_ERR_NO_MEMORY;
}

/* A queue pair of this end for attempt pair->epoch, and the word to the other. */
int verbs_pair_offer(struct verbs_link *link, enum control_pair which)
{
    struct verbs *self = link->owner;
    struct verbs_pair *pair = &link->pairs[which];
    struct error err = {0};
    hs_assert(pair->qp == NULL);
    pair->next_attempt_ns = UINT64_MAX;
    int status = 0;
    if (which == CONTROL_MESSAGES) {
        leave_rail(link);
        status = keep_events(link);
        status = status == 0 ? join_rail(link, rail_of_attempt(link, pair->epoch), &err) : error_set(&err, status, "out of memory");
    }
    if (status == 0) {
        verbs_completions(self, link->rail, true); /* a new pair may have the number of an old one: nothing of that may be left */
        if (link->rail == NULL) /* among them was the end of its messages, and with them of what a pair for reads shares */
            status = error_set(&err, HS_ERR_CLOSED, "the queue pair for messages has just been lost");
    }
    if (status == 0) {
        pair->qp = create_qp(link, which);
        if (pair->qp == NULL || to_init(link, which) != 0)
            status = error_set(&err, HS_ERR_IO, "RDMA device %s gives no queue pair: %s", link->rail->choice.device, strerror(errno));
    }
    if (status == 0 && u64_map_put(&self->pair_of_qp, qp_key(self, link->rail, pair->qp->qp_num), (uint64_t)link->peer << 1 | which) != 0)
        status = error_set(&err, HS_ERR_NO_MEMORY, "out of memory");
    if (status != 0) {
        log_write(status == HS_ERR_CLOSED ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARN, "net", "verbs: peer %u gets no queue pair for %s: %s", link->peer,
                  pair_names[which], err.text); /* that a port is down was said when it went */
        if (pair->qp != NULL)
            ibv_destroy_qp(pair->qp);
        pair->qp = NULL;
        plan_next(link, pair);
        if (which == CONTROL_READS)
            verbs_reads_refused(link, false);
        verbs_tell(link, &(struct control){.type = CONTROL_RESET, .pair = which, .epoch = pair->epoch}); /* the next may take another rail */
        return status;
    }
    pair->state = PAIR_OFFERED;
    pair->ready_there = false;
    pair->since_ns = self->now_ns;
    pair->packet_number = (uint32_t)env_random_u64(&self->env) & 0xffffff;
    tell_offer(link, which);
    verbs_timer_at(self, self->now_ns + self->tuning.handshake_timeout_ns);
    return 0;
}

/* ---- connecting ---- */

static enum ibv_mtu mtu_code(uint32_t bytes)
{
    enum ibv_mtu code = IBV_MTU_256;
    while (code < IBV_MTU_4096 && 256u << code <= bytes) /* IBV_MTU_256 is 1 */
        code++;
    return code;
}

static int to_ready(struct verbs_link *link, enum control_pair which, const struct control *offer)
{
    struct verbs_pair *pair = &link->pairs[which];
    const struct verbs_rail *rail = link->rail;
    struct path_end end = {.lid = offer->lid};
    uint32_t answered = smaller(VERBS_MAX_READS, rail->limits.max_qp_rd_atom);
    uint32_t asked = smaller(offer->reads < VERBS_MAX_READS ? offer->reads : VERBS_MAX_READS, rail->limits.max_qp_init_rd_atom);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                               .path_mtu = mtu_code(link->route.mtu_bytes),
                               .dest_qp_num = offer->queue_pair,
                               .rq_psn = offer->packet_number,
                               .max_dest_rd_atomic = (uint8_t)(which == CONTROL_READS ? answered : 1),
                               .min_rnr_timer = RNR_TIMER};
    memcpy(end.gid, offer->gid, sizeof end.gid);
    path_attributes(&rail->choice, &end, &link->route, &attr.ah_attr);
    if (ibv_modify_qp(pair->qp, &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                          IBV_QP_MIN_RNR_TIMER) != 0)
        return HS_ERR_IO;
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                                .timeout = rail->choice.software ? SOFTWARE_TIMEOUT : HARDWARE_TIMEOUT,
                                .retry_cnt = RETRIES,
                                .rnr_retry = RNR_RETRIES,
                                .sq_psn = pair->packet_number,
                                .max_rd_atomic = (uint8_t)(which == CONTROL_READS ? asked : 1)};
    if (which == CONTROL_READS)
        link->reads->peer_reads = asked ? asked : 1;
    return ibv_modify_qp(pair->qp, &attr,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                             IBV_QP_MAX_QP_RD_ATOMIC) == 0
               ? 0
               : HS_ERR_IO;
}

static int make_keys(struct verbs_link *link, const struct control *offer)
{
    struct verbs *self = link->owner;
    enum seal_cipher cipher = seal_cipher_choose(self->tuning.ciphers, offer->ciphers);
    int status = cipher == 0 ? HS_ERR_UNSUPPORTED
                             : seal_session_init(&link->seal, cipher, link->secret, offer->secret, self->tuning.rekey_packets,
                                                 self->tuning.rekey_ns, self->now_ns);
    link->sealed = status == 0;
    link->allowed_packets = offer->credits;
    link->granted_packets = VERBS_CREDITS;
    explicit_bzero(link->secret, sizeof link->secret);
    return status;
}

void verbs_pair_connect(struct verbs_link *link, enum control_pair which, const struct control *offer)
{
    struct verbs_pair *pair = &link->pairs[which];
    int status = offer->infiniband == (link->rail->choice.link == DEVICE_LINK_INFINIBAND) ? 0 : HS_ERR_UNSUPPORTED;
    if (status == 0)
        status = to_ready(link, which, offer);
    if (status == 0 && which == CONTROL_MESSAGES)
        status = make_keys(link, offer);
    if (status != 0) {
        log_warn("net", "verbs: the queue pair for %s with peer %u cannot be connected (%s; port %u of %s): trying again", pair_names[which],
                 link->peer, offer->infiniband == (link->rail->choice.link == DEVICE_LINK_INFINIBAND) ? strerror(errno)
                                                                                                        : "InfiniBand here, Ethernet there",
                 link->rail->choice.port, link->rail->choice.device);
        verbs_pair_fail(link, which, status, true);
        return;
    }
    pair->state = PAIR_CONNECTED;
    verbs_tell(link, &(struct control){.type = CONTROL_READY, .pair = which, .epoch = pair->epoch});
    if (pair->ready_there)
        verbs_pair_ready(link, which);
}

void verbs_pair_ready(struct verbs_link *link, enum control_pair which)
{
    struct verbs_pair *pair = &link->pairs[which];
    pair->ready_there = true; /* while our end still asks for the way, too */
    if (pair->state != PAIR_CONNECTED)
        return;
    pair->state = PAIR_UP;
    pair->retry_ns = link->owner->tuning.connect_retry_min_ns;
    if (which == CONTROL_MESSAGES)
        verbs_link_up(link);
    verbs_activate(link);
}

static void on_offer(struct verbs_link *link, const struct control *offer)
{
    enum control_pair which = offer->pair;
    struct verbs_pair *pair = &link->pairs[which];
    if (which == CONTROL_READS && !verbs_link_usable(link) && link->pairs[CONTROL_MESSAGES].state != PAIR_CONNECTED)
        return; /* of an attempt that is over here; once messages are up again, they ask anew */
    if (offer->epoch > pair->epoch) {
        if (pair->state != PAIR_IDLE)
            verbs_pair_fail(link, which, HS_ERR_CANCELED, false);
        pair->epoch = offer->epoch;
        if (verbs_pair_offer(link, which) != 0)
            return;
    }
    if (offer->epoch != pair->epoch || pair->state != PAIR_OFFERED || (which == CONTROL_MESSAGES && verbs_path_awaited(link, offer)))
        return;
    verbs_pair_connect(link, which, offer); /* a pair for reads goes the way of that for messages */
}

void verbs_pair_on_control(struct verbs_link *link, const struct control *control)
{
    struct verbs_pair *pair = &link->pairs[control->pair];
    if (control->type == CONTROL_OFFER)
        on_offer(link, control);
    else if (control->type == CONTROL_READY && control->epoch == pair->epoch)
        verbs_pair_ready(link, control->pair);
    else if (control->type == CONTROL_RESET && control->epoch == pair->epoch)
        verbs_pair_fail(link, control->pair, HS_ERR_CANCELED, false);
}

/* ---- the end ---- */

/*
 * A pair that shares its receive queue may have taken a receive out of it: it is left in the error state until that has come back
 * as a completion, and its send buffers stay untouched until then. A pair for reads is destroyed at once, so that nothing is
 * written into the caller's memory once its reads have been reported.
 */
static void let_die(struct verbs_link *link, struct ibv_qp *qp, bool at_once)
{
    struct verbs *self = link->owner;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct dying_pair *dying = at_once ? NULL : malloc(sizeof *dying);
    ibv_modify_qp(qp, &attr, IBV_QP_STATE);
    if (dying != NULL) {
        *dying = (struct dying_pair){
            .next = self->dying, .rail = link->rail, .qp = qp, .buffers = verbs_take_in_flight(link), .until_ns = self->now_ns + DYING_NS};
        self->dying = dying;
        verbs_timer_at(self, dying->until_ns);
        return;
    }
    ibv_destroy_qp(qp);
    if (!at_once)
        for (struct verbs_buffer *buffer = verbs_take_in_flight(link), *next; buffer != NULL; buffer = next) {
            next = buffer->next;
            rail_give(link->rail, buffer);
        }
}

void verbs_bury(struct verbs *self, bool all)
{
    for (struct dying_pair **at = &self->dying; *at != NULL;) {
        struct dying_pair *dying = *at;
        if (!all && self->now_ns < dying->until_ns) {
            verbs_timer_at(self, dying->until_ns);
            at = &dying->next;
            continue;
        }
        *at = dying->next;
        ibv_destroy_qp(dying->qp);
        for (struct verbs_buffer *buffer = dying->buffers, *next; buffer != NULL; buffer = next) {
            next = buffer->next;
            rail_give(dying->rail, buffer);
        }
        free(dying);
    }
}

void verbs_pair_close(struct verbs_link *link, enum control_pair which)
{
    struct verbs_pair *pair = &link->pairs[which];
    struct ibv_qp *qp = pair->qp;
    pair->state = PAIR_IDLE;
    pair->next_attempt_ns = UINT64_MAX;
    pair->qp = NULL;
    if (qp != NULL) {
        u64_map_remove(&link->owner->pair_of_qp, qp_key(link->owner, link->rail, qp->qp_num));
        link->owner->last_qp_known = false;
        let_die(link, qp, which == CONTROL_READS);
    }
    if (which == CONTROL_READS) {
        verbs_reads_interrupted(link);
        return;
    }
    verbs_pair_close(link, CONTROL_READS); /* it shares the rail, which may be another next time */
    leave_rail(link);
    verbs_link_reset(link);
}

void verbs_pair_fail(struct verbs_link *link, enum control_pair which, int status, bool tell)
{
    struct verbs_pair *pair = &link->pairs[which];
    if (pair->state == PAIR_IDLE)
        return;
    bool was_up = pair->state == PAIR_UP;
    if (was_up)
        log_debug("net", "verbs: the queue pair for %s with peer %u is lost (%s)", pair_names[which], link->peer, error_name(status));
    verbs_pair_close(link, which);
    plan_next(link, pair);
    if (which == CONTROL_READS && !was_up)
        verbs_reads_refused(link, status == HS_ERR_TIMEOUT); /* the peer does not even say no */
    if (tell)
        verbs_tell(link, &(struct control){.type = CONTROL_RESET, .pair = which, .epoch = pair->epoch});
    if (which == CONTROL_MESSAGES && was_up)
        verbs_link_down(link, status);
}

void verbs_pair_timers(struct verbs_link *link, enum control_pair which)
{
    struct verbs *self = link->owner;
    struct verbs_pair *pair = &link->pairs[which];
    if (pair->state == PAIR_OFFERED || pair->state == PAIR_CONNECTED) {
        uint64_t expiry = pair->since_ns + self->tuning.handshake_timeout_ns;
        if (self->now_ns >= expiry)
            verbs_pair_fail(link, which, HS_ERR_TIMEOUT, true);
        else
            verbs_timer_at(self, expiry);
    }
    if (pair->state != PAIR_IDLE || (which == CONTROL_READS && (!verbs_link_usable(link) || !verbs_reads_waiting(link))))
        return;
    if (self->now_ns >= pair->next_attempt_ns) {
        pair->epoch++;
        verbs_pair_offer(link, which);
    } else if (pair->next_attempt_ns != UINT64_MAX) {
        verbs_timer_at(self, pair->next_attempt_ns);
    }
}
