#include "core/cluster/wire.h"

static void begin(struct writer *w, enum wire_kind kind)
{
    write_u8(w, (uint8_t)kind);
    write_u8(w, WIRE_VERSION);
}

static void write_epoch(struct writer *w, struct wire_epoch epoch)
{
    write_u64(w, epoch.boot_id);
    write_u32(w, epoch.counter);
}

static void write_names(struct writer *w, const uint64_t *names, uint32_t n)
{
    write_bytes(w, names, (size_t)n * sizeof *names);
}

static void write_text(struct writer *w, const char *text, size_t cap)
{
    write_string(w, text, strnlen(text, cap - 1));
}

void wire_write_member(struct writer *w, const struct wire_member *member)
{
    write_u64(w, member->boot_id);
    write_u32(w, member->incarnation);
    write_u8(w, (uint8_t)member->state);
    write_text(w, member->name, sizeof member->name);
    write_text(w, member->address, sizeof member->address);
    write_text(w, member->http_address, sizeof member->http_address);
}

void wire_write_hello(struct writer *w, const struct wire_hello *hello)
{
    begin(w, WIRE_HELLO);
    write_u8(w, hello->wants_members);
    wire_write_member(w, &hello->self);
}

void wire_begin_members(struct writer *w)
{
    begin(w, WIRE_MEMBERS);
}

void wire_begin_probe(struct writer *w, enum wire_kind kind, uint64_t number, uint64_t target_boot_id)
{
    begin(w, kind);
    write_u64(w, number);
    if (kind == WIRE_PING_REQUEST)
        write_u64(w, target_boot_id);
}

void wire_write_weights(struct writer *w, const struct cluster_weight *weights, uint32_t n)
{
    begin(w, WIRE_WEIGHTS);
    for (uint32_t i = 0; i < n; i++) {
        write_text(w, weights[i].tenant, sizeof weights[i].tenant);
        write_f32(w, weights[i].weight);
    }
}

void wire_write_leave(struct writer *w, uint32_t incarnation)
{
    begin(w, WIRE_LEAVE);
    write_u32(w, incarnation);
}

static void write_load(struct writer *w, const struct cluster_load *load)
{
    write_varint(w, load->waiting);
    write_varint(w, load->running);
    write_varint(w, load->prefill_tokens);
    write_varint(w, load->decode_tokens);
    write_f32(w, load->prefill_tokens_per_s);
    write_f32(w, load->decode_step_s);
    write_varint(w, load->free_pages);
    write_varint(w, load->total_pages);
    write_varint(w, load->draft_capacity);
    write_u8(w, (uint8_t)(load->push_back | load->draining << 1));
}

void wire_begin_digest(struct writer *w, const struct wire_header *header, uint8_t hops_left, uint64_t first)
{
    begin(w, WIRE_DIGEST);
    write_u8(w, hops_left); /* stays at WIRE_DIGEST_HOPS_AT */
    write_epoch(w, header->epoch);
    write_u64(w, header->stamp);
    write_u64(w, header->sequence);
    write_u64(w, header->checksum);
    write_u32(w, header->n_blocks);
    write_u32(w, header->page_tokens);
    write_load(w, &header->load);
    write_bytes(w, header->fingerprint, sizeof header->fingerprint);
    write_text(w, header->arithmetic, sizeof header->arithmetic);
    write_u64(w, first);
}

void wire_write_run(struct writer *w, bool removed, const uint64_t *names, uint32_t n)
{
    write_varint(w, (uint64_t)n << 1 | removed);
    write_names(w, names, n);
}

void wire_write_pull(struct writer *w, const struct wire_pull *pull)
{
    begin(w, WIRE_PULL);
    write_epoch(w, pull->epoch);
    write_u64(w, pull->have);
    write_u8(w, pull->manifest);
}

void wire_write_manifest(struct writer *w, struct wire_epoch epoch, uint64_t sequence, const uint64_t checksums[BLOCK_SET_PAGES])
{
    begin(w, WIRE_MANIFEST);
    write_epoch(w, epoch);
    write_u64(w, sequence);
    write_names(w, checksums, BLOCK_SET_PAGES);
}

void wire_write_page_request(struct writer *w, const struct wire_page_request *request)
{
    begin(w, WIRE_PAGE_REQUEST);
    write_epoch(w, request->epoch);
    write_bytes(w, request->pages, sizeof request->pages);
}

void wire_write_page(struct writer *w, struct wire_epoch epoch, uint64_t sequence, uint32_t page, const uint64_t *names, uint32_t n)
{
    begin(w, WIRE_PAGE);
    write_epoch(w, epoch);
    write_u64(w, sequence);
    write_u16(w, (uint16_t)page);
    write_names(w, names, n);
}

void wire_write_intent(struct writer *w, const struct wire_intent *intent, const uint64_t *blocks)
{
    begin(w, WIRE_INTENT);
    write_u64(w, intent->id);
    write_u64(w, intent->target_boot_id);
    write_u32(w, intent->ttl_ms);
    write_u32(w, intent->ready_ms);
    write_u32(w, intent->uncached_tokens);
    write_names(w, blocks, intent->n);
}
