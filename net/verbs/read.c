/* Regions of pages and their one-sided reads. */
#include <stdlib.h>

#include "core/base/log.h"
#include "net/verbs/internal.h"

enum { MAX_TRIES = 3, MAX_TORN = 5, MIN_SLOT_BYTES = 4096 };
/* So much memory stays registered for reads. A peer whose pages are large, or says so, makes us register more while it is read. */
enum { KEPT_SLOTS_BYTES = 4 << 20 };

/* ---- our own pages ---- */

static void deregister(struct verbs *self, struct ibv_mr **mr)
{
    for (uint32_t i = 0; i < self->n_rails; i++) {
        if (mr[i] != NULL)
            ibv_dereg_mr(mr[i]);
        mr[i] = NULL;
    }
}

/* With every rail, as each is a device of its own. */
static int enlist(struct verbs *self, struct ibv_mr **mr, void *base, size_t len, int access)
{
    struct error err = {0};
    for (uint32_t i = 0; i < self->n_rails; i++) {
        mr[i] = rail_register(&self->rails[i], base, len, access, &err);
        if (mr[i] == NULL) {
            log_error("net", "verbs: %s", err.text);
            deregister(self, mr);
            return HS_ERR_LIMIT;
        }
    }
    return 0;
}

static void withdraw(struct verbs *self, struct verbs_region *region)
{
    deregister(self, region->mr);
    pages_destroy(region->pages);
    *region = (struct verbs_region){.pages = NULL};
}

/* Peers that know the region's earlier place are refused by the device there, and ask again. */
int verbs_publish(struct verbs *self, uint32_t number, uint32_t n_pages, uint32_t page_bytes)
{
    if (number >= TRANSPORT_REGIONS)
        return HS_ERR_LIMIT;
    struct verbs_region fresh = {.n_pages = n_pages, .page_bytes = page_bytes, .publication = ++self->publications};
    uint8_t key[SEAL_KEY_BYTES];
    size_t bytes;
    pages_key(self->pages_root, self->boot_id, number, fresh.publication, key);
    int status = pages_create(n_pages, page_bytes, key, &fresh.pages);
    if (status != 0)
        return status;
    void *memory = pages_memory(fresh.pages, &bytes);
    status = enlist(self, fresh.mr, memory, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    if (status != 0) {
        pages_destroy(fresh.pages);
        return status;
    }
    withdraw(self, &self->published[number]);
    self->published[number] = fresh;
    return 0;
}

int verbs_write_page(struct verbs *self, uint32_t number, uint32_t page, const void *data, uint32_t len)
{
    if (number >= TRANSPORT_REGIONS || self->published[number].pages == NULL)
        return HS_ERR_NOT_FOUND;
    return pages_write(self->published[number].pages, page, data, len);
}

/* The slot stays, without memory. */
static void free_slot(struct verbs *self, struct read_slot *slot)
{
    deregister(self, slot->mr);
    free(slot->memory);
    self->slot_bytes -= slot->bytes;
    *slot = (struct read_slot){.memory = NULL};
}

void verbs_regions_fini(struct verbs *self)
{
    for (uint32_t i = 0; i < TRANSPORT_REGIONS; i++)
        withdraw(self, &self->published[i]);
    for (uint32_t i = 0; i < VERBS_READ_SLOTS; i++)
        free_slot(self, &self->slots[i]);
}

/* ---- where a peer's regions are ---- */

void verbs_on_query(struct verbs_link *link, const struct control *query)
{
    struct verbs *self = link->owner;
    struct control answer = {.type = CONTROL_REGION, .region = query->region};
    if (query->region < TRANSPORT_REGIONS && self->published[query->region].pages != NULL && link->rail != NULL) {
        const struct verbs_region *region = &self->published[query->region];
        size_t bytes;
        answer.found = true;
        answer.address = (uintptr_t)pages_memory(region->pages, &bytes);
        answer.key = region->mr[verbs_rail_index(self, link->rail)]->rkey;
        answer.n_pages = region->n_pages;
        answer.page_bytes = region->page_bytes;
        answer.publication = region->publication;
    }
    verbs_tell(link, &answer);
}

static void forget_region(struct remote_region *region)
{
    pages_reader_key_fini(&region->seal);
    *region = (struct remote_region){.known = false};
}

void verbs_regions_forget(struct verbs_link *link)
{
    for (uint32_t i = 0; i < TRANSPORT_REGIONS; i++)
        forget_region(&link->regions[i]);
}

void verbs_on_region(struct verbs_link *link, const struct control *answer)
{
    struct verbs *self = link->owner;
    if (answer->region >= TRANSPORT_REGIONS || !link->regions[answer->region].asked) {
        self->stats.rejected++;
        return;
    }
    struct remote_region *region = &link->regions[answer->region];
    uint8_t key[SEAL_KEY_BYTES];
    forget_region(region);
    region->known = true;
    region->found = answer->found;
    region->address = answer->address;
    region->key = answer->key;
    region->n_pages = answer->n_pages;
    region->page_bytes = answer->page_bytes;
    pages_key(self->pages_root, link->boot_id, answer->region, answer->publication, key);
    pages_reader_key_init(&region->seal, key);
    verbs_activate(link);
}

/* ---- memory that reads go to ---- */

/* One of so many bytes, or NULL: all taken, or no memory for it (*status). A slot that is too small grows. */
static struct read_slot *take_slot(struct verbs *self, size_t bytes, int *status)
{
    struct read_slot *slot = NULL;
    *status = 0;
    for (uint32_t i = 0; i < VERBS_READ_SLOTS && (slot == NULL || slot->bytes < bytes); i++)
        if (!self->slots[i].taken && (slot == NULL || self->slots[i].bytes > slot->bytes))
            slot = &self->slots[i];
    if (slot == NULL)
        return NULL;
    if (slot->bytes < bytes) {
        size_t wanted = MIN_SLOT_BYTES;
        while (wanted < bytes)
            wanted *= 2;
        free_slot(self, slot);
        slot->memory = aligned_alloc(4096, wanted);
        *status = slot->memory != NULL ? enlist(self, slot->mr, slot->memory, wanted, IBV_ACCESS_LOCAL_WRITE) : HS_ERR_NO_MEMORY;
        if (*status != 0) {
            free_slot(self, slot);
            return NULL;
        }
        slot->bytes = wanted;
        self->slot_bytes += wanted;
    }
    slot->taken = true;
    self->slots_taken++;
    return slot;
}

static void give_slot(struct verbs *self, struct read_request *request)
{
    struct read_slot *slot = request->slot;
    if (slot == NULL)
        return;
    request->slot = NULL;
    slot->taken = false;
    self->slots_taken--;
    if (self->slot_bytes > KEPT_SLOTS_BYTES)
        free_slot(self, slot);
    for (uint32_t i = 0; self->slots_wanted && i < self->n_peers; i++)
        if (self->links[i] != NULL && verbs_reads_waiting(self->links[i]))
            verbs_activate(self->links[i]);
    self->slots_wanted = false;
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

static void report(struct verbs_link *link, struct read_request *request)
{
    struct verbs *self = link->owner;
    struct transport_event event = {.kind = TRANSPORT_READ_DONE,
                                    .peer = link->peer,
                                    .status = request->status,
                                    .boot_id = link->boot_id,
                                    .cookie = request->cookie,
                                    .version = request->version};
    if (request->status == 0) {
        event.data = request->content->data;
        event.len = request->len;
        self->stats.reads++;
    } else if (request->content != NULL) {
        buffer_pool_put_message(&self->pool, request->content);
        request->content = NULL;
    }
    self->counts.reads++;
    self->counts.read_failures += request->status != 0;
    verbs_event(self, &event, NULL, request->content);
    request->content = NULL;
}

static void finish(struct verbs_link *link, struct read_request *request, int status)
{
    struct read_queue *reads = link->reads;
    request->state = READ_FINISHED;
    request->status = status;
    give_slot(link->owner, request);
    while (reads->head != reads->next && request_at(reads, reads->head)->state == READ_FINISHED)
        report(link, request_at(reads, reads->head++));
}

static bool post(struct verbs_link *link, uint32_t number)
{
    struct verbs *self = link->owner;
    struct read_request *request = request_at(link->reads, number);
    const struct remote_region *region = &link->regions[request->region];
    struct ibv_sge piece = {.addr = (uintptr_t)request->slot->memory,
                            .length = request->image,
                            .lkey = request->slot->mr[verbs_rail_index(self, link->rail)]->lkey};
    struct ibv_send_wr wr, *bad; /* not filled with zeros: of the request only this is looked at for a read */
    wr.wr_id = UINT64_C(2) << 56 | number;
    wr.next = NULL;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_READ;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = region->address + request->page * pages_stride(region->page_bytes);
    wr.wr.rdma.rkey = region->key;
    if (ibv_post_send(link->pairs[CONTROL_READS].qp, &wr, &bad) != 0)
        return false;
    request->state = READ_POSTED;
    return true;
}

/* How much of the page to read: what is expected, if that is less than all. */
static uint32_t image_bytes(const struct read_request *request, const struct remote_region *region)
{
    uint32_t all = region->page_bytes + PAGES_OVERHEAD;
    return request->expected > 0 && request->expected < region->page_bytes ? request->expected + PAGES_OVERHEAD : all;
}

/* 0: it has a slot. HS_ERR_BUSY: later; else the status with which it ends. */
static int prepare(struct verbs_link *link, struct read_request *request, struct remote_region *region)
{
    int status = !region->found ? HS_ERR_NOT_FOUND : request->page >= region->n_pages ? HS_ERR_RANGE : 0;
    if (!region->found)
        forget_region(region); /* it may be published by the next time */
    if (status != 0)
        return status;
    struct read_queue *reads = link->reads;
    if (link->pairs[CONTROL_READS].state != PAIR_UP || reads->next - reads->head >= reads->peer_reads)
        return HS_ERR_BUSY;
    request->image = image_bytes(request, region);
    if (request->slot != NULL && request->slot->bytes < request->image)
        give_slot(link->owner, request); /* of a region that is larger now */
    if (request->slot == NULL)
        request->slot = take_slot(link->owner, request->image, &status);
    if (request->slot != NULL)
        return 0;
    link->owner->slots_wanted |= status == 0;
    return status == 0 ? HS_ERR_BUSY : status;
}

/* Whether the next request was dealt with: posted, or ended because it cannot be. */
static bool step(struct verbs_link *link)
{
    struct read_queue *reads = link->reads;
    struct read_request *request = request_at(reads, reads->next);
    struct remote_region *region = &link->regions[request->region];
    if (request->state == READ_FINISHED) { /* interrupted, or refused, once too often */
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
    int status = prepare(link, request, region);
    if (status == HS_ERR_BUSY)
        return false;
    if (status != 0) {
        reads->next++;
        finish(link, request, status);
        return true;
    }
    if (!post(link, reads->next)) {
        verbs_pair_fail(link, CONTROL_READS, HS_ERR_IO, true);
        return false;
    }
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

/* The request that was asked for last, if it waits for nothing. What goes wrong is for the next poll. */
static bool post_at_once(struct verbs_link *link)
{
    struct read_queue *reads = link->reads;
    struct read_request *request = request_at(reads, reads->next);
    struct remote_region *region = &link->regions[request->region];
    if (reads->next + 1 != reads->tail || !region->found || prepare(link, request, region) != 0 || !post(link, reads->next))
        return false;
    reads->next++;
    link->owner->may_sleep = false; /* first the queue is to be armed for its end, too */
    return true;
}

int verbs_read_page(struct verbs_link *link, uint32_t region, uint32_t page, uint32_t expected, uint64_t cookie)
{
    struct read_queue *reads = link->reads;
    if (region >= TRANSPORT_REGIONS)
        return HS_ERR_NOT_FOUND;
    if (reads->tail - reads->head == VERBS_READ_QUEUE || !verbs_events_keep(link->owner))
        return HS_ERR_BUSY;
    *request_at(reads, reads->tail++) =
        (struct read_request){.state = READ_WAITING, .region = region, .page = page, .expected = expected, .cookie = cookie};
    if (!post_at_once(link))
        verbs_activate(link);
    return 0;
}

/* The bytes are there. HS_ERR_BUSY: what was there was torn, or only its beginning; to be read again. */
static int take_page(struct verbs_link *link, struct read_request *request)
{
    struct verbs *self = link->owner;
    struct remote_region *region = &link->regions[request->region];
    if (!region->known || !region->found) /* told anew meanwhile */
        return HS_ERR_IO;
    if (request->content != NULL && request->content->capacity < request->image) { /* more is read than at the attempt before */
        buffer_pool_put_message(&self->pool, request->content);
        request->content = NULL;
    }
    if (request->content == NULL)
        request->content = buffer_pool_get_message(&self->pool, request->image);
    if (request->content == NULL)
        return HS_ERR_NO_MEMORY;
    int status = pages_open(&region->seal, request->page, region->page_bytes, request->slot->memory, request->image,
                            request->content->data, &request->len, &request->version);
    if (status == HS_ERR_RANGE) {
        request->expected = 0;
        return HS_ERR_BUSY;
    }
    if (status != HS_ERR_AUTH || ++request->torn == MAX_TORN)
        return status;
    self->stats.torn_reads++;
    self->counts.torn_reads++;
    return HS_ERR_BUSY;
}

/* With a larger slot, if more is to be read than fits. */
static int read_again(struct verbs_link *link, uint32_t number)
{
    struct read_request *request = request_at(link->reads, number);
    int status = 0;
    request->image = image_bytes(request, &link->regions[request->region]);
    if (request->slot->bytes < request->image) {
        struct read_slot *larger = take_slot(link->owner, request->image, &status);
        if (larger == NULL)
            return status != 0 ? status : HS_ERR_LIMIT;
        give_slot(link->owner, request);
        request->slot = larger;
    }
    return post(link, number) ? 0 : HS_ERR_IO;
}

void verbs_on_read(struct verbs_link *link, uint32_t number, enum ibv_wc_status wc_status)
{
    struct read_queue *reads = link->reads;
    struct read_request *request = request_at(reads, number);
    if (number - reads->head >= reads->next - reads->head || request->state != READ_POSTED)
        return; /* left behind by an earlier pair */
    if (wc_status != IBV_WC_SUCCESS) { /* the region may have moved, or the peer's end is gone: both are found anew */
        forget_region(&link->regions[request->region]);
        verbs_pair_fail(link, CONTROL_READS, HS_ERR_IO, true);
        return;
    }
    int status = take_page(link, request);
    if (status == HS_ERR_BUSY)
        status = read_again(link, number);
    else
        finish(link, request, status);
    if (request->state == READ_POSTED && status != 0)
        finish(link, request, status);
    if (verbs_reads_waiting(link))
        verbs_activate(link);
}

/* An attempt to make the pair has failed: reads do not wait for more than a few. at_once: not for another one. */
void verbs_reads_refused(struct verbs_link *link, bool at_once)
{
    struct read_queue *reads = link->reads;
    for (uint32_t number = reads->next; number != reads->tail; number++) {
        struct read_request *request = request_at(reads, number);
        if (request->state != READ_WAITING || (++request->tries < MAX_TRIES && !at_once))
            continue;
        request->state = READ_FINISHED;
        request->status = HS_ERR_IO;
    }
    if (verbs_reads_waiting(link))
        verbs_activate(link);
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
        give_slot(link->owner, request);
        report(link, request);
    }
    reads->next = reads->head;
}
