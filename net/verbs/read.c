/* Regions and their one-sided reads. */
#include <stdlib.h>

#include "core/base/log.h"
#include "core/base/panic.h"
#include "net/verbs/internal.h"

enum { MAX_TRIES = 3 };

/* ---- our own memory ---- */

static void forget(struct verbs *self, struct verbs_region *region)
{
    for (uint32_t i = 0; i < self->n_rails; i++)
        if (region->mr[i] != NULL)
            ibv_dereg_mr(region->mr[i]);
    *region = (struct verbs_region){.base = NULL};
}

/* Registers with every rail, as each is a device of its own. */
static int enlist(struct verbs *self, struct verbs_region *region, void *base, size_t len, int access)
{
    struct error err = {0};
    *region = (struct verbs_region){.base = base, .len = len};
    for (uint32_t i = 0; i < self->n_rails; i++) {
        region->mr[i] = rail_register(&self->rails[i], base, len, access, &err);
        if (region->mr[i] == NULL) {
            log_error("net", "verbs: %s", err.text);
            forget(self, region);
            return HS_ERR_LIMIT;
        }
    }
    return 0;
}

int verbs_register_memory(struct verbs *self, void *base, size_t len)
{
    if (self->n_memory == VERBS_MAX_MEMORY)
        return HS_ERR_LIMIT;
    int status = enlist(self, &self->memory[self->n_memory], base, len, IBV_ACCESS_LOCAL_WRITE);
    if (status == 0)
        self->n_memory++;
    return status;
}

/* Peers that know the region's earlier place are refused by the device there, and ask again. */
int verbs_publish(struct verbs *self, uint32_t number, void *base, size_t len)
{
    if (number >= VERBS_REGIONS)
        return HS_ERR_LIMIT;
    struct verbs_region *region = &self->published[number], fresh;
    int status = enlist(self, &fresh, base, len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    if (status != 0)
        return status;
    forget(self, region);
    *region = fresh;
    return 0;
}

void verbs_regions_fini(struct verbs *self)
{
    for (uint32_t i = 0; i < VERBS_REGIONS; i++)
        forget(self, &self->published[i]);
    for (uint32_t i = 0; i < self->n_memory; i++)
        forget(self, &self->memory[i]);
}

static const struct verbs_region *memory_around(const struct verbs *self, const void *at, size_t len)
{
    for (uint32_t i = 0; i < self->n_memory; i++) {
        const struct verbs_region *memory = &self->memory[i];
        uintptr_t base = (uintptr_t)memory->base, here = (uintptr_t)at;
        if (here >= base && len <= memory->len && here - base <= memory->len - len)
            return memory;
    }
    return NULL;
}

/* ---- where a peer's regions are ---- */

void verbs_on_query(struct verbs_link *link, const struct control *query)
{
    struct verbs *self = link->owner;
    struct control answer = {.type = CONTROL_REGION, .region = query->region};
    if (query->region < VERBS_REGIONS && self->published[query->region].base != NULL && link->rail != NULL) {
        const struct verbs_region *region = &self->published[query->region];
        answer.found = true;
        answer.address = (uintptr_t)region->base;
        answer.length = region->len;
        answer.key = region->mr[verbs_rail_index(self, link->rail)]->rkey;
    }
    verbs_tell(link, &answer);
}

void verbs_on_region(struct verbs_link *link, const struct control *answer)
{
    if (answer->region >= VERBS_REGIONS || !link->regions[answer->region].asked) {
        link->owner->stats.rejected++;
        return;
    }
    link->regions[answer->region] = (struct remote_region){
        .known = true, .found = answer->found, .address = answer->address, .length = answer->length, .key = answer->key};
    verbs_activate(link);
}

/* ---- reading ---- */

static struct read_request *request_at(struct read_queue *reads, uint32_t number)
{
    return &reads->requests[number % VERBS_READ_QUEUE];
}

bool verbs_reads_waiting(const struct verbs_link *link)
{
    return link->reads->next != link->reads->tail;
}

int verbs_read(struct verbs_link *link, uint32_t region, uint64_t offset, void *dst, uint32_t len, uint64_t cookie)
{
    struct read_queue *reads = link->reads;
    if (region >= VERBS_REGIONS)
        return HS_ERR_NOT_FOUND;
    if (memory_around(link->owner, dst, len) == NULL)
        return HS_ERR_RANGE;
    if (reads->tail - reads->head == VERBS_READ_QUEUE)
        return HS_ERR_BUSY;
    *request_at(reads, reads->tail++) = (struct read_request){
        .state = READ_WAITING, .region = region, .len = len, .offset = offset, .cookie = cookie, .dst = dst};
    verbs_activate(link);
    return 0;
}

static void report(struct verbs_link *link, const struct read_request *request)
{
    struct verbs *self = link->owner;
    struct transport_event event = {.kind = TRANSPORT_READ_DONE,
                                    .peer = link->peer,
                                    .status = request->status,
                                    .boot_id = link->boot_id,
                                    .cookie = request->cookie,
                                    .len = request->len};
    self->counts.reads++;
    self->counts.read_failures += request->status != 0;
    verbs_event(self, &event, NULL, NULL);
}

static void finish(struct verbs_link *link, struct read_request *request, int status)
{
    struct read_queue *reads = link->reads;
    request->state = READ_FINISHED;
    request->status = status;
    while (reads->head != reads->next && request_at(reads, reads->head)->state == READ_FINISHED)
        report(link, request_at(reads, reads->head++));
}

static bool post(struct verbs_link *link, struct read_request *request, const struct remote_region *region)
{
    struct verbs *self = link->owner;
    const struct verbs_region *memory = memory_around(self, request->dst, request->len);
    struct ibv_sge piece = {.addr = (uintptr_t)request->dst,
                            .length = request->len,
                            .lkey = memory->mr[verbs_rail_index(self, link->rail)]->lkey};
    struct ibv_send_wr wr = {.wr_id = UINT64_C(2) << 56,
                             .sg_list = &piece,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_READ,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {.remote_addr = region->address + request->offset, .rkey = region->key}};
    struct ibv_send_wr *bad;
    return ibv_post_send(link->pairs[CONTROL_READS].qp, &wr, &bad) == 0;
}

/* Whether the next request was dealt with: posted, or ended because it cannot be. */
static bool step(struct verbs_link *link)
{
    struct read_queue *reads = link->reads;
    struct read_request *request = request_at(reads, reads->next);
    struct remote_region *region = &link->regions[request->region];
    if (request->state == READ_FINISHED) { /* interrupted once too often */
        reads->next++;
        finish(link, request, request->status);
        return true;
    }
    if (!region->known) {
        if (!region->asked)
            verbs_tell(link, &(struct control){.type = CONTROL_QUERY, .region = request->region});
        region->asked = true;
        return false;
    }
    int status = !region->found                                                                         ? HS_ERR_NOT_FOUND
                 : request->offset > region->length || request->len > region->length - request->offset ? HS_ERR_RANGE
                                                                                                       : 0;
    if (status != 0) {
        reads->next++;
        if (!region->found)
            *region = (struct remote_region){.known = false}; /* it may be published by the next time */
        finish(link, request, status);
        return true;
    }
    if (link->pairs[CONTROL_READS].state != PAIR_UP || reads->next - reads->head >= reads->peer_reads)
        return false;
    if (!post(link, request, region)) {
        verbs_pair_fail(link, CONTROL_READS, HS_ERR_IO, true);
        return false;
    }
    request->state = READ_POSTED;
    reads->next++;
    return true;
}

void verbs_reads_step(struct verbs_link *link)
{
    struct verbs_pair *pair = &link->pairs[CONTROL_READS];
    if (!verbs_reads_waiting(link))
        return;
    if (pair->state == PAIR_IDLE && pair->next_attempt_ns == UINT64_MAX) {
        pair->next_attempt_ns = 0;
        verbs_pair_timers(link, CONTROL_READS);
    } else if (pair->state == PAIR_IDLE) {
        verbs_timer_at(link->owner, pair->next_attempt_ns);
    }
    while (verbs_reads_waiting(link) && step(link))
        ;
}

void verbs_on_read(struct verbs_link *link, enum ibv_wc_status status)
{
    struct read_queue *reads = link->reads;
    uint32_t number = reads->head;
    while (number != reads->next && request_at(reads, number)->state != READ_POSTED)
        number++;
    hs_assert(number != reads->next); /* completions come in order, one for each */
    if (status == IBV_WC_SUCCESS) {
        finish(link, request_at(reads, number), 0);
        verbs_activate(link);
        return;
    }
    /* The region may have moved, or the peer's end is gone: both are found anew. */
    link->regions[request_at(reads, number)->region] = (struct remote_region){.known = false};
    verbs_pair_fail(link, CONTROL_READS, HS_ERR_IO, true);
}

void verbs_reads_interrupted(struct verbs_link *link)
{
    struct read_queue *reads = link->reads;
    uint32_t from = reads->head, until = reads->next;
    reads->next = from; /* all wait again, in their order, but for those that have waited often enough */
    for (uint32_t number = from; number != until; number++) {
        struct read_request *request = request_at(reads, number);
        if (request->state != READ_POSTED)
            continue;
        link->owner->counts.read_retries++;
        request->state = ++request->tries < MAX_TRIES ? READ_WAITING : READ_FINISHED;
        request->status = HS_ERR_IO;
    }
    if (from != until)
        verbs_activate(link);
}

void verbs_reads_end(struct verbs_link *link, int status)
{
    struct read_queue *reads = link->reads;
    for (; reads->head != reads->tail; reads->head++) {
        struct read_request *request = request_at(reads, reads->head);
        if (request->state != READ_FINISHED)
            request->status = status;
        report(link, request);
    }
    reads->next = reads->head;
}
