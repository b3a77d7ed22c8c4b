/* What the device reports: completions, wake-ups, and things that happen to ports. */
#include "core/base/log.h"
#include "net/verbs/internal.h"

enum { TAKE = 32, EVENTS_WAITING = 1024 };
enum { PAUSE_GAPS = 64 }; /* a pause counts as so many gaps: the dozen of completions in a round of gossip is not dense yet, twice as many are */
/* Being woken costs more than looking for a while where completions typically come that soon; where they do not, not a moment is worth it. */
#define DENSE_NS          UINT64_C(100000)
#define SOFTWARE_DENSE_NS UINT64_C(400000) /* a soft device's answer takes as long as that */

enum work { WORK_RECEIVE = 0, WORK_SEND = 1, WORK_READ = 2 }; /* top byte of a work request's number */

static int status_of(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_SUCCESS:
        return 0;
    case IBV_WC_RETRY_EXC_ERR:
        return HS_ERR_TIMEOUT;
    case IBV_WC_WR_FLUSH_ERR:
        return HS_ERR_CANCELED;
    default:
        return HS_ERR_IO;
    }
}

static void on_receive(struct verbs *self, struct verbs_rail *rail, struct verbs_link *link, const struct ibv_wc *wc)
{
    struct verbs_buffer *buffer = rail_buffer(rail, (uint32_t)wc->wr_id);
    buffer->references = 1;
    buffer->link_id = 0;
    if (link != NULL && wc->status == IBV_WC_SUCCESS)
        verbs_on_packet(link, buffer, wc->byte_len);
    else if (link != NULL)
        verbs_pair_fail(link, CONTROL_MESSAGES, status_of(wc->status), true);
    verbs_buffer_unref(self, buffer);
}

static void on_completion(struct verbs *self, struct verbs_rail *rail, const struct ibv_wc *wc)
{
    enum control_pair which = CONTROL_MESSAGES;
    struct verbs_link *link = verbs_link_of(self, rail, wc->qp_num, &which); /* NULL: of a pair that is gone */
    if (wc->status != IBV_WC_SUCCESS && wc->status != IBV_WC_WR_FLUSH_ERR)
        log_debug("net", "verbs: queue pair %#x on %s: %s (vendor %#x)", wc->qp_num, rail->choice.device, ibv_wc_status_str(wc->status),
                  wc->vendor_err);
    switch ((enum work)(wc->wr_id >> 56)) {
    case WORK_RECEIVE:
        on_receive(self, rail, link, wc);
        break;
    case WORK_SEND:
        if (link != NULL && wc->status == IBV_WC_SUCCESS)
            verbs_on_sent(link);
        else if (link != NULL)
            verbs_pair_fail(link, which, status_of(wc->status), true);
        break;
    case WORK_READ:
        if (link != NULL)
            verbs_on_read(link, (uint32_t)wc->wr_id, wc->status);
        break;
    }
}

uint64_t verbs_dense_ns(const struct verbs_rail *rail)
{
    return rail->choice.software ? SOFTWARE_DENSE_NS : DENSE_NS;
}

static void note_busy(struct verbs *self)
{
    uint64_t gap_ns = self->now_ns - self->busy_ns;
    if (gap_ns > PAUSE_GAPS * self->dense_ns)
        gap_ns = PAUSE_GAPS * self->dense_ns;
    self->typical_gap_ns = (7 * self->typical_gap_ns + gap_ns) / 8;
    self->busy_ns = self->now_ns;
}

void verbs_completions(struct verbs *self, struct verbs_rail *rail, bool all)
{
    struct ibv_wc wc[TAKE];
    int n = TAKE;
    while (n == TAKE && (all || self->events_tail - self->events_head < EVENTS_WAITING)) {
        n = ibv_poll_cq(rail->cq, TAKE, wc);
        if (n <= 0)
            return;
        self->counts.completions += (uint64_t)n;
        for (int i = 0; i < n; i++)
            on_completion(self, rail, &wc[i]);
        note_busy(self);
    }
}

/* ---- sleeping ---- */

void verbs_wakeups(struct verbs *self)
{
    for (uint32_t i = 0; i < self->n_rails; i++) {
        struct verbs_rail *rail = &self->rails[i];
        struct ibv_cq *cq;
        void *context;
        if (!rail->armed || ibv_get_cq_event(rail->channel, &cq, &context) != 0)
            continue;
        ibv_ack_cq_events(cq, 1);
        rail->armed = false;
        self->counts.wakeups++;
    }
}

/* Whether the end of something of ours is waited for, and not only what peers send: they mark that as worth a wake-up. */
static bool awaits_own(struct verbs *self)
{
    bool full = false;
    for (uint32_t i = 0; self->some_full && i < self->n_peers; i++)
        full |= self->links[i] != NULL && self->links[i]->full;
    self->some_full = full;
    return full || self->slots_taken > 0;
}

bool verbs_arm(struct verbs *self)
{
    if (self->busy_ns == self->now_ns || verbs_is_dense(self))
        return false; /* more may have come by now */
    bool for_own = awaits_own(self);
    for (uint32_t i = 0; i < self->n_rails; i++) {
        struct verbs_rail *rail = &self->rails[i];
        if ((rail->armed && (rail->armed_for_own || !for_own)) || rail->failed)
            continue;
        if (ibv_req_notify_cq(rail->cq, !for_own) != 0)
            return false;
        rail->armed = true;
        rail->armed_for_own = for_own;
        verbs_completions(self, rail, false); /* what came before the queue was armed makes no event */
    }
    return self->busy_ns != self->now_ns;
}

/* ---- asynchronous events ---- */

static void fail_links(struct verbs *self, const struct verbs_rail *rail, int status)
{
    for (uint32_t i = 0; i < self->n_peers; i++)
        if (self->links[i] != NULL && self->links[i]->rail == rail)
            verbs_pair_fail(self->links[i], CONTROL_MESSAGES, status, true);
}

void verbs_async_events(struct verbs *self)
{
    for (uint32_t i = 0; i < self->n_rails; i++) {
        enum rail_event event;
        while (rail_take_event(&self->rails[i], &event)) {
            if (event == RAIL_MOVED)
                fail_links(self, &self->rails[i], HS_ERR_CANCELED);
            else if (event == RAIL_FAILED)
                fail_links(self, &self->rails[i], HS_ERR_IO);
        }
    }
}
