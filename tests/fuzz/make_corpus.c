/* Writes the saved inputs that are messages and orders, with the real encoders: fuzz_corpus tests/fuzz/corpus. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/cluster/wire.h"
#include "core/serve/forward_message.h"
#include "tests/fuzz/fuzz.h"

enum { BYTES = 1 << 16 };

static const char *corpus;

static void save(const char *target, const char *name, const void *data, size_t len)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", corpus, target);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/%s/%s", corpus, target, name);
    FILE *file = fopen(path, "wb");
    hs_assert(file && fwrite(data, 1, len, file) == len);
    fclose(file);
}

/* ---- messages of the cluster ---- */

static const struct wire_member member = {
    .name = "peer1", .address = "peer1:1", .http_address = "10.0.0.1:8080", .boot_id = 2, .incarnation = 1, .state = WIRE_ALIVE};
static const uint64_t names[6] = {11, 22, 33, 44, 0x1000000000000001, UINT64_MAX};
static const struct wire_epoch epoch = {.boot_id = 2, .counter = 1};

static void digest(struct writer *w, uint64_t first)
{
    struct wire_header header = {.epoch = epoch, .stamp = first, .sequence = first + 3, .checksum = 5, .n_blocks = 4, .page_tokens = 16};
    header.load = (struct cluster_load){.prefill_tokens_per_s = 1e8f, .decode_step_s = 1e-6f, .free_pages = 60, .total_pages = 64};
    memset(header.fingerprint, 7, sizeof header.fingerprint);
    strcpy(header.arithmetic, "null");
    wire_begin_digest(w, &header, 2, first);
    wire_write_run(w, false, names, 3);
    wire_write_run(w, true, names, 1);
}

static void cluster_message(struct writer *w, enum wire_kind kind)
{
    uint64_t checksums[BLOCK_SET_PAGES] = {1, 2, 3};
    switch (kind) {
    case WIRE_HELLO: wire_write_hello(w, &(struct wire_hello){.self = member, .wants_members = true}); break;
    case WIRE_MEMBERS:
        wire_begin_members(w);
        wire_write_member(w, &member);
        break;
    case WIRE_PING:
    case WIRE_PING_REQUEST:
    case WIRE_ACK:
        wire_begin_probe(w, kind, 1, 78);
        wire_write_member(w, &member);
        break;
    case WIRE_NACK: wire_begin_probe(w, kind, 1, 78); break;
    case WIRE_LEAVE: wire_write_leave(w, 3); break;
    case WIRE_DIGEST: digest(w, 1); break;
    case WIRE_PULL: wire_write_pull(w, &(struct wire_pull){.epoch = epoch, .have = 1}); break;
    case WIRE_MANIFEST: wire_write_manifest(w, epoch, 4, checksums); break;
    case WIRE_PAGE_REQUEST: wire_write_page_request(w, &(struct wire_page_request){.epoch = epoch, .pages = {3}}); break;
    case WIRE_PAGE: wire_write_page(w, epoch, 4, 1, names, 6); break;
    case WIRE_INTENT:
        wire_write_intent(w, &(struct wire_intent){.id = 9, .target_boot_id = 2, .ttl_ms = 100, .ready_ms = 10, .uncached_tokens = 64, .n = 4}, names);
        break;
    case WIRE_WEIGHTS: wire_write_weights(w, (const struct cluster_weight[]){{"gold", 4}, {"silver", 0.5f}}, 2); break;
    case WIRE_KINDS: break;
    }
    hs_assert(!w->failed);
}

static void save_cluster(void)
{
    static const char *const kinds[WIRE_KINDS] = {NULL,   "hello",  "members", "ping",     "ping_request", "ack",  "nack",
                                                  "leave", "digest", "pull",    "manifest", "page_request", "page", "intent", "weights"};
    static uint8_t bytes[BYTES];
    for (int kind = WIRE_HELLO; kind < WIRE_KINDS; kind++) {
        struct writer w;
        writer_init(&w, bytes, sizeof bytes);
        cluster_message(&w, (enum wire_kind)kind);
        save("wire", kinds[kind], bytes, w.len);
    }
}

/* ---- messages of forwarding ---- */

static struct row_result results[2] = {{.token = 17, .logprob = -0.5f, .n_top = 1, .top = {{.token = 17, .logprob = -0.5f}}},
                                       {.token = 18, .logprob = -1, .n_top = 1, .top = {{.token = 3, .logprob = -0.25f}}}};

static struct forward_message forward_message(enum forward_kind kind)
{
    static uint32_t tokens[40];
    static const uint32_t stop_ids[1] = {2};
    static const struct logit_bias bias[1] = {{.token = 5, .bias = -3}};
    struct forward_message m = {.kind = kind, .id = 0, .attempt = 1};
    for (uint32_t i = 0; i < 40; i++)
        tokens[i] = i * 7 % 900 + 10;
    switch (kind) {
    case FORWARD_REQUEST:
        m.request = (struct forward_request){.hops = 1, .remaining_ns = 1000000000, .n_tokens = 40, .n_prompt = 38, .limit = 60, .tokens = tokens};
        m.request.sampling = (struct sampling_params){.temperature = 0.5f, .top_p = 0.9f, .repetition_penalty = 1.1f, .stop_ids = stop_ids,
                                                      .n_stop_ids = 1, .bias = bias, .n_bias = 1, .logprobs = true, .n_top_logprobs = 2};
        strcpy(m.request.tenant, "tenant");
        break;
    case FORWARD_REFUSE: m.refuse.depth = 9; break;
    case FORWARD_STARTED: m.started.cached_tokens = 16; break;
    case FORWARD_RESULTS:
        m.results.n = 2;
        m.results.results = results;
        break;
    case FORWARD_FINISHED: m.finished.n_answer = 2; break;
    case FORWARD_FAILED:
        m.failed.status = HS_ERR_NO_PAGES;
        strcpy(m.failed.text, "out of pages");
        break;
    default: break;
    }
    return m;
}

static const char *const forward_names[] = {"request", "accept", "refuse", "started", "results", "alive", "finished", "failed", "cancel"};

static void save_forward(void)
{
    static uint8_t bytes[BYTES];
    for (int kind = FORWARD_REQUEST; kind <= FORWARD_CANCEL; kind++) {
        struct forward_message m = forward_message((enum forward_kind)kind);
        int n = forward_encode(&m, bytes, sizeof bytes);
        hs_assert(n > 0);
        save("forward", forward_names[kind - FORWARD_REQUEST], bytes, (size_t)n);
    }
}

/* ---- a peer's pages (target_reads.c has the opcodes) ---- */

static void order_page(struct writer *w, const struct writer *page)
{
    write_u8(w, 0);
    write_u16(w, (uint16_t)page->len);
    write_bytes(w, page->data, page->len);
}

static void order_time(struct writer *w, uint8_t ms)
{
    write_u8(w, 3);
    write_u8(w, ms);
}

/* The header at a sequence; with changes, as the log has them. */
static void order_digest(struct writer *w, uint64_t sequence, bool has_changes)
{
    static uint8_t bytes[4096];
    struct writer page;
    struct wire_header header = {.epoch = epoch, .stamp = sequence * 2 + !has_changes, .sequence = sequence, .checksum = 5, .n_blocks = 6, .page_tokens = 16};
    memset(header.fingerprint, 7, sizeof header.fingerprint);
    strcpy(header.arithmetic, "null");
    writer_init(&page, bytes, sizeof bytes);
    wire_begin_digest(&page, &header, 0, has_changes ? 1 : sequence + 1);
    if (has_changes)
        wire_write_run(&page, false, names, 6);
    order_page(w, &page);
}

static void save_reads(void)
{
    static uint8_t bytes[BYTES], page_bytes[BYTES];
    struct writer w, page;
    uint64_t checksums[BLOCK_SET_PAGES] = {1, 2, 3};
    writer_init(&w, bytes, sizeof bytes);
    order_digest(&w, 6, false); /* the header, then the log */
    order_time(&w, 5);
    order_digest(&w, 6, true);
    order_time(&w, 20);
    save("reads", "log", bytes, w.len);
    writer_init(&w, bytes, sizeof bytes);
    order_digest(&w, 30000, false); /* too far behind for the log: the manifest, and pages */
    order_time(&w, 5);
    writer_init(&page, page_bytes, sizeof page_bytes);
    wire_write_manifest(&page, epoch, 29000, checksums);
    order_page(&w, &page);
    order_time(&w, 5);
    for (uint32_t i = 0; i < 3; i++) {
        writer_init(&page, page_bytes, sizeof page_bytes);
        wire_write_page(&page, epoch, 29000 + i, i, names, i == 0 ? 4 : 0);
        order_page(&w, &page);
    }
    order_time(&w, 20);
    write_u8(&w, 1); /* a read that fails, a restart, and again */
    write_u8(&w, 2);
    write_u8(&w, 4);
    write_u8(&w, 1);
    order_digest(&w, 6, false);
    order_time(&w, 200);
    save("reads", "snapshot", bytes, w.len);
}

static void save_pages(void)
{
    static const uint8_t whole[] = {0, 2, 2, 255, 0}, torn[] = {0, 3, 3, 255, 0, 40, 7, 100, 8}, cut[] = {0, 3, 3, 60, 0};
    static const uint8_t region[] = {1, 1, 6, 0, 1, 5, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
                                     0xaa, 0xbb, 0xcc, 0xdd, 64, 0, 0, 0, 0, 16, 0, 0, 3, 0, 0, 0}; /* as in tests/unit/verbs/test_control.c */
    save("pages", "whole", whole, sizeof whole);
    save("pages", "torn", torn, sizeof torn);
    save("pages", "cut", cut, sizeof cut);
    save("pages", "region", region, sizeof region);
}

/* ---- orders for the node (target_node.c has the opcodes) ---- */

static void order(struct writer *w, uint8_t op, uint8_t which, uint8_t argument)
{
    write_u8(w, op);
    write_u8(w, which);
    write_u8(w, argument);
}

static void order_message(struct writer *w, uint8_t peer, const uint8_t *bytes, size_t n)
{
    write_u8(w, 2);
    write_u8(w, peer);
    write_u16(w, (uint16_t)n);
    write_bytes(w, bytes, n);
}

static void order_cluster(struct writer *w, uint8_t peer, enum wire_kind kind)
{
    static uint8_t bytes[BYTES];
    struct writer inner;
    writer_init(&inner, bytes, sizeof bytes);
    cluster_message(&inner, kind);
    order_message(w, peer, bytes, inner.len);
}

static void order_forward(struct writer *w, uint8_t peer, enum forward_kind kind)
{
    static uint8_t bytes[BYTES];
    struct forward_message m = forward_message(kind);
    order_message(w, peer, bytes, (size_t)forward_encode(&m, bytes, sizeof bytes));
}

static void order_submit(struct writer *w, uint8_t first, uint8_t n, uint8_t answer, uint8_t flags)
{
    write_u8(w, 4);
    write_u8(w, first);
    write_u8(w, n);
    write_u8(w, answer);
    write_u8(w, flags);
}

static void save_node(void)
{
    static uint8_t bytes[BYTES];
    struct writer w;
    /* A peer comes up (its boot id is 2), is alive and advertises; requests go there or stay; it answers, gossips, goes. */
    writer_init(&w, bytes, sizeof bytes);
    order(&w, 0, 1, 1);
    order_cluster(&w, 1, WIRE_HELLO);
    order_cluster(&w, 1, WIRE_DIGEST);
    order(&w, 3, 20, 0);
    order_submit(&w, 5, 80, 10, 1); /* measures how slow it is itself */
    order(&w, 3, 100, 0);
    order_submit(&w, 7, 90, 200, 0);
    order_submit(&w, 9, 90, 200, 16);
    order(&w, 3, 1, 0);
    order_forward(&w, 1, FORWARD_ACCEPT);
    order_forward(&w, 1, FORWARD_STARTED);
    order_forward(&w, 1, FORWARD_RESULTS);
    order(&w, 3, 10, 0);
    order_forward(&w, 1, FORWARD_FINISHED);
    order(&w, 3, 10, 0);
    order(&w, 5, 2, 0);
    order(&w, 7, 3, 0);
    order(&w, 1, 1, 1);
    order(&w, 3, 100, 0);
    save("node", "forwarded", bytes, w.len);

    writer_init(&w, bytes, sizeof bytes);
    order(&w, 0, 1, 1);
    order_cluster(&w, 1, WIRE_HELLO);
    for (int kind = WIRE_HELLO; kind < WIRE_KINDS; kind++) {
        order_cluster(&w, 1, (enum wire_kind)kind);
        order(&w, 3, 5, 0);
    }
    order(&w, 3, 0, 4);
    save("node", "gossip", bytes, w.len);

    /* It computes for a peer. */
    writer_init(&w, bytes, sizeof bytes);
    order(&w, 0, 2, 1);
    order_forward(&w, 2, FORWARD_REQUEST);
    order(&w, 3, 30, 0);
    order_forward(&w, 2, FORWARD_CANCEL);
    order(&w, 7, 0, 0);
    order_forward(&w, 2, FORWARD_REQUEST);
    order(&w, 7, 2, 0);
    order(&w, 1, 2, 0);
    save("node", "service", bytes, w.len);
}

/* ---- packets (target_packet.c) and datagrams (target_datagram.c) ---- */

static void packet(struct writer *w, uint8_t wait, const void *frames, uint16_t n)
{
    write_u8(w, wait);
    write_u16(w, n);
    write_bytes(w, frames, n);
}

static void save_packets(void)
{
    static const uint8_t close_frame[] = {4};
    static const uint8_t whole[] = {2, 3, 5, 0, 0, 0, 0, 0, 'h', 'e', 'l', 'l', 'o', 3, 0, 2, 0, 'h', 'i'};
    static const uint8_t first[] = {2, 1, 2, 0, 1, 0, 0, 0, 4, 0, 0, 0, 'a', 'b'};
    static const uint8_t last[] = {2, 2, 2, 0, 2, 0, 0, 0, 'c', 'd'};
    static const uint8_t ack[] = {1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0};
    uint8_t bytes[512];
    struct writer w;
    writer_init(&w, bytes, sizeof bytes);
    packet(&w, 0, whole, sizeof whole);
    packet(&w, 0x81, last, sizeof last);
    packet(&w, 1, first, sizeof first);
    packet(&w, 20, ack, sizeof ack);
    packet(&w, 0x90, ack, sizeof ack);
    packet(&w, 1, close_frame, sizeof close_frame);
    hs_assert(!w.failed);
    save("packet", "session", bytes, w.len);

    static const uint8_t orders[] = {0, 3, 0, 3, 0, 3, 6, 40, 1, 6, 41, 1, 6, 9, 0, 0, 1, 7, 20, 0, 0, 30, 3, 0, 5, 0, 1,
                                     6, 250, 1, 6, 250, 1, 2, 0, 4, 1, 9, 0, 1, 2, 8, 0, 7, 255, 0, 0, 31};
    save("datagram", "talk", orders, sizeof orders);
    static const uint8_t attack[] = {2, 0, 3, 0, 20, 0, 1, 4, 0, 60, 0, 5, 1, 8, 0, 'H', 'S', 0x11, 0, 0, 0, 0, 0, 0, 8, 7, 0, 3,
                                     0, 8, 6, 80, 1, 2, 0, 2, 0, 0, 8, 9, 0, 7, 255, 10, 0, 31, 6, 30, 1, 0, 31, 9, 1, 0, 31};
    save("datagram", "attack", attack, sizeof attack);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: fuzz_corpus FOLDER\n");
        return 2;
    }
    corpus = argv[1];
    save_cluster();
    save_forward();
    save_node();
    save_reads();
    save_pages();
    save_packets();
    return 0;
}
