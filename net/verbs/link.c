#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/panic.h"
#include "net/verbs/internal.h"

#define STUCK_NS UINT64_C(10000000000) /* several retransmissions of a soft device */

void verbs_link_open(struct verbs *self, uint32_t peer, uint64_t boot_id)
{
    hs_assert(self->links[net_peer_place(peer)] == NULL);
    struct verbs_link *link = calloc(1, sizeof *link);
    struct read_queue *reads = calloc(1, sizeof *reads);
    if (link == NULL || reads == NULL) {
        free(link);
        free(reads);
        log_warn("net", "verbs: out of memory for peer %u", peer);
        return;
    }
    link->owner = self;
    link->peer = peer;
    link->boot_id = boot_id;
    link->reads = reads;
    for (int i = 0; i < CONTROL_PAIRS; i++)
        link->pairs[i] = (struct verbs_pair){.next_attempt_ns = UINT64_MAX, .retry_ns = self->tuning.connect_retry_min_ns};
    self->links[net_peer_place(peer)] = link;
    verbs_link_reset(link);
    link->pairs[CONTROL_MESSAGES].epoch = 1;
    verbs_pair_offer(link, CONTROL_MESSAGES);
}

static void deactivate(struct verbs_link *link)
{
    for (struct verbs_link **at = &link->owner->active; *at != NULL; at = &(*at)->active_next) {
        if (*at == link) {
            *at = link->active_next;
            break;
        }
    }
    link->active = false;
}

void verbs_link_end(struct verbs_link *link, int status)
{
    bool was_up = verbs_link_usable(link);
    verbs_pair_close(link, CONTROL_MESSAGES);
    verbs_pair_close(link, CONTROL_READS);
    verbs_reads_end(link, HS_ERR_CLOSED); /* whoever asked waits for an answer, and may have the memory back */
    if (was_up && status != 0)
        verbs_link_down(link, status);
    deactivate(link);
    link->owner->events_kept -= link->kept_events;
    link->owner->links[net_peer_place(link->peer)] = NULL;
    sodium_memzero(link->secret, sizeof link->secret);
    byte_ring_fini(&link->ring);
    free(link->unreliable);
    free(link->reads);
    free(link);
}

void verbs_link_reset(struct verbs_link *link)
{
    struct verbs *self = link->owner;
    link->id = ++self->last_link_id; /* what earlier packets left behind is not ours any more */
    if (link->id == 0)
        link->id = ++self->last_link_id;
    if (link->sealed)
        seal_session_fini(&link->seal);
    link->sealed = false;
    link->ring.head = link->ring.tail = 0;
    verbs_drop_prepared(link);
    link->unreliable_len = 0;
    link->sent_packets = link->allowed_packets = link->posted = link->done = 0;
    link->marks_head = link->marks_tail = 0;
    link->measure_from_ns = link->measure_mark = 0;
    link->broken = link->stalled = link->full = false;
    link->expected_counter = link->returned_packets = link->granted_packets = 0;
    if (link->assembly != NULL)
        buffer_pool_put_message(&self->pool, link->assembly);
    link->assembly = NULL;
    link->record_filled = 0;
    verbs_path_forget(link);
    verbs_regions_forget(link);
}

void verbs_link_up(struct verbs_link *link)
{
    struct verbs *self = link->owner;
    struct transport_peer_stats bootstrap, *stats = &self->peer_stats[net_peer_place(link->peer)];
    link->progress_ns = link->ping_ns = link->sent_ns = link->heard_ns = self->now_ns;
    if (self->bootstrap->ops->peer_stats(self->bootstrap, link->peer, &bootstrap) == 0) { /* until we have measured */
        stats->rtt_ns = bootstrap.rtt_ns;
        stats->rtt_variance_ns = bootstrap.rtt_variance_ns;
    }
    link->kept_events--;
    verbs_event(self, &(struct transport_event){.kind = TRANSPORT_PEER_UP, .peer = link->peer, .boot_id = link->boot_id}, NULL, NULL);
}

void verbs_link_down(struct verbs_link *link, int status)
{
    struct transport_event event = {.kind = TRANSPORT_PEER_DOWN, .peer = link->peer, .status = status, .boot_id = link->boot_id};
    verbs_reads_end(link, HS_ERR_CLOSED);
    link->kept_events--;
    verbs_event(link->owner, &event, NULL, NULL);
}

void verbs_link_control(struct verbs_link *link, const uint8_t *data, size_t len)
{
    struct control control;
    if (control_decode(data, len, &control) != 0) {
        link->owner->stats.rejected++;
        return;
    }
    switch (control.type) {
    case CONTROL_OFFER:
    case CONTROL_READY:
    case CONTROL_RESET:
        verbs_pair_on_control(link, &control);
        break;
    case CONTROL_QUERY:
        verbs_on_query(link, &control);
        break;
    case CONTROL_REGION:
        verbs_on_region(link, &control);
        break;
    case CONTROL_PING:
        break;
    }
}

/*
 * Something was sent and nothing heard since: perhaps the peer is gone without a word. The bootstrap finds out, once it has
 * something to say. If the bootstrap gets through and the queue pair does not, that ends, too.
 */
static void watch_progress(struct verbs_link *link)
{
    struct verbs *self = link->owner;
    uint64_t timeout = self->tuning.peer_timeout_ns, now = self->now_ns;
    uint64_t patience = 2 * timeout > STUCK_NS ? 2 * timeout : STUCK_NS;
    bool unanswered = link->sent_ns > link->heard_ns, unfinished = link->marks_head != link->marks_tail;
    if (unfinished && now - link->progress_ns >= patience) {
        verbs_pair_fail(link, CONTROL_MESSAGES, HS_ERR_TIMEOUT, true);
        return;
    }
    if (unanswered && now - link->sent_ns >= timeout / 2 && link->ping_ns <= link->sent_ns) {
        verbs_tell(link, &(struct control){.type = CONTROL_PING});
        link->ping_ns = now;
    }
    if ((unanswered && link->ping_ns <= link->sent_ns) || unfinished)
        verbs_timer_at(self, now + timeout / 4);
}

void verbs_link_timers(struct verbs_link *link)
{
    verbs_pair_timers(link, CONTROL_MESSAGES);
    verbs_pair_timers(link, CONTROL_READS);
    if (verbs_link_usable(link)) {
        verbs_path_timer(link);
        watch_progress(link);
    }
}
