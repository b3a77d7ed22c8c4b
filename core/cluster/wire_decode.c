#include <math.h>

#include "core/cluster/wire.h"

/* A flag byte other than 0 or 1, or a number past its type, makes the message malformed. */
static bool read_flag(struct reader *r)
{
    uint8_t value = read_u8(r);
    if (value > 1)
        r->failed = true;
    return value == 1;
}

static uint32_t read_varint32(struct reader *r)
{
    uint64_t value = read_varint(r);
    if (value > UINT32_MAX)
        r->failed = true;
    return (uint32_t)value;
}

/* Rates come from a peer's measurement: anything not finite and not negative is malformed. */
static float read_rate(struct reader *r)
{
    float value = read_f32(r);
    if (!isfinite(value) || value < 0)
        r->failed = true;
    return r->failed ? 0 : value;
}

static struct wire_epoch read_epoch(struct reader *r)
{
    struct wire_epoch epoch = {.boot_id = read_u64(r)};
    epoch.counter = read_u32(r);
    return epoch;
}

/* The rest of the message as whole 64-bit names, at most max of them. */
static const uint8_t *read_names_to_end(struct reader *r, uint32_t max, uint32_t *n)
{
    size_t bytes = reader_left(r);
    if (bytes % 8 || bytes / 8 > max) {
        r->failed = true;
        return NULL;
    }
    *n = (uint32_t)(bytes / 8);
    return read_view(r, bytes);
}

typedef void read_record(struct reader *r, void *to);

/* Records up to the end of the message, to be walked once all of them are known to be sound; scratch: room for one. */
static struct wire_list read_list_to_end(struct reader *r, read_record *read, void *scratch, uint32_t most)
{
    struct wire_list list = {.reader = *r};
    for (; reader_left(r) && list.left <= most; list.left++)
        read(r, scratch);
    if (list.left > most)
        r->failed = true;
    return list;
}

static bool next_record(struct wire_list *list, read_record *read, void *out)
{
    if (!list->left)
        return false;
    list->left--;
    read(&list->reader, out);
    return !list->reader.failed;
}

static void read_member(struct reader *r, void *to)
{
    struct wire_member *out = to;
    out->boot_id = read_u64(r);
    out->incarnation = read_u32(r);
    uint8_t state = read_u8(r);
    if (state > WIRE_LEFT || out->boot_id == 0)
        r->failed = true;
    out->state = (enum wire_state)state;
    read_string(r, out->name, sizeof out->name);
    read_string(r, out->address, sizeof out->address);
    read_string(r, out->http_address, sizeof out->http_address);
}

static struct wire_list read_members_to_end(struct reader *r)
{
    struct wire_member scratch;
    return read_list_to_end(r, read_member, &scratch, WIRE_MEMBERS_MAX);
}

bool wire_next_member(struct wire_list *members, struct wire_member *out)
{
    return next_record(members, read_member, out);
}

static void read_weight(struct reader *r, void *to)
{
    struct cluster_weight *out = to;
    read_string(r, out->tenant, sizeof out->tenant);
    out->weight = read_rate(r);
    r->failed |= out->weight <= 0;
}

static struct wire_list read_weights_to_end(struct reader *r)
{
    struct cluster_weight scratch;
    return read_list_to_end(r, read_weight, &scratch, CLUSTER_WEIGHTS_MAX);
}

bool wire_next_weight(struct wire_list *weights, struct cluster_weight *out)
{
    return next_record(weights, read_weight, out);
}

bool wire_next_run(struct reader *runs, struct wire_run *out)
{
    if (!reader_left(runs))
        return false;
    uint64_t head = read_varint(runs);
    uint64_t n = head >> 1;
    if (n == 0 || n > reader_left(runs) / 8)
        runs->failed = true;
    if (runs->failed)
        return false;
    *out = (struct wire_run){.removed = head & 1, .n = (uint32_t)n, .names = read_view(runs, (size_t)n * 8)};
    return true;
}

static void read_load(struct reader *r, struct cluster_load *load)
{
    load->waiting = read_varint32(r);
    load->running = read_varint32(r);
    load->prefill_tokens = read_varint(r);
    load->decode_tokens = read_varint(r);
    load->prefill_tokens_per_s = read_rate(r);
    load->decode_step_s = read_rate(r);
    load->free_pages = read_varint32(r);
    load->total_pages = read_varint32(r);
    load->draft_capacity = read_varint32(r);
    uint8_t flags = read_u8(r);
    if (flags > 3)
        r->failed = true;
    load->push_back = flags & 1;
    load->draining = flags & 2;
}

static void read_digest(struct reader *r, struct wire_digest *digest)
{
    struct wire_header *header = &digest->header;
    digest->hops_left = read_u8(r);
    header->epoch = read_epoch(r);
    header->stamp = read_u64(r);
    header->sequence = read_u64(r);
    header->checksum = read_u64(r);
    header->n_blocks = read_u32(r);
    header->page_tokens = read_u32(r);
    read_load(r, &header->load);
    read_bytes(r, header->fingerprint, sizeof header->fingerprint);
    read_string(r, header->arithmetic, sizeof header->arithmetic);
    struct wire_delta *delta = &digest->delta;
    delta->first = read_u64(r);
    delta->runs = *r;
    struct wire_run run;
    while (wire_next_run(r, &run))
        delta->n_changes += run.n;
    /* A delta lies within the sequence that its header states; number 0 is the empty set at the start. */
    if (delta->n_changes &&
        (delta->first == 0 || delta->first > header->sequence || header->sequence - delta->first + 1 < delta->n_changes))
        r->failed = true;
}

static void read_intent(struct reader *r, struct wire_intent *intent)
{
    intent->id = read_u64(r);
    intent->target_boot_id = read_u64(r);
    intent->ttl_ms = read_u32(r);
    intent->ready_ms = read_u32(r);
    intent->uncached_tokens = read_u32(r);
    intent->blocks = read_names_to_end(r, WIRE_INTENT_BLOCKS_MAX, &intent->n);
}

static void read_body(struct reader *r, struct wire_message *out)
{
    switch (out->kind) {
    case WIRE_HELLO:
        out->hello.wants_members = read_flag(r);
        read_member(r, &out->hello.self);
        break;
    case WIRE_MEMBERS:
        out->members = read_members_to_end(r);
        break;
    case WIRE_PING:
    case WIRE_PING_REQUEST:
    case WIRE_ACK:
    case WIRE_NACK:
        out->probe.number = read_u64(r);
        if (out->kind == WIRE_PING_REQUEST)
            out->probe.target_boot_id = read_u64(r);
        if (out->kind != WIRE_NACK)
            out->probe.members = read_members_to_end(r);
        break;
    case WIRE_LEAVE:
        out->leave_incarnation = read_u32(r);
        break;
    case WIRE_DIGEST:
        read_digest(r, &out->digest);
        break;
    case WIRE_PULL:
        out->pull.epoch = read_epoch(r);
        out->pull.have = read_u64(r);
        out->pull.manifest = read_flag(r);
        break;
    case WIRE_MANIFEST:
        out->manifest.epoch = read_epoch(r);
        out->manifest.sequence = read_u64(r);
        out->manifest.checksums = read_view(r, BLOCK_SET_PAGES * 8);
        break;
    case WIRE_PAGE_REQUEST:
        out->page_request.epoch = read_epoch(r);
        read_bytes(r, out->page_request.pages, sizeof out->page_request.pages);
        break;
    case WIRE_PAGE:
        out->page.epoch = read_epoch(r);
        out->page.sequence = read_u64(r);
        out->page.page = read_u16(r);
        if (out->page.page >= BLOCK_SET_PAGES)
            r->failed = true;
        out->page.names = read_names_to_end(r, WIRE_PAGE_NAMES_MAX, &out->page.n);
        break;
    case WIRE_INTENT:
        read_intent(r, &out->intent);
        break;
    case WIRE_WEIGHTS:
        out->weights = read_weights_to_end(r);
        break;
    case WIRE_KINDS:
        r->failed = true;
        break;
    }
}

int wire_decode(const void *data, size_t len, struct wire_message *out)
{
    struct reader r;
    reader_init(&r, data, len);
    uint8_t kind = read_u8(&r);
    uint8_t version = read_u8(&r);
    if (r.failed)
        return HS_ERR_PROTOCOL;
    if (version != WIRE_VERSION || kind < WIRE_HELLO || kind >= WIRE_KINDS)
        return HS_ERR_UNSUPPORTED;
    struct wire_message message = {.kind = (enum wire_kind)kind};
    read_body(&r, &message);
    if (r.failed || reader_left(&r))
        return HS_ERR_PROTOCOL;
    *out = message;
    return 0;
}
