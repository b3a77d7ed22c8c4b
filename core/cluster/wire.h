/*
 * The cluster's messages as bytes (docs/protocol-cluster.md has the tables).
 *
 * Every message starts with its kind and WIRE_VERSION; integers are little-endian, counts are LEB128, strings carry their length. A
 * decoder accepts a message whole or not at all: every length is checked against the message and against the limits below before
 * anything is used, and nothing is allocated. Lists stay in the message and are walked through an iterator that decoding has
 * already walked once, so walking cannot fail.
 *
 * Threading: pure functions. Views point into the message and live as long as it does.
 */
#ifndef HEARSAY_CLUSTER_WIRE_H
#define HEARSAY_CLUSTER_WIRE_H

#include "core/base/codec.h"
#include "core/cache/block_set.h"
#include "core/cluster/cluster.h"

enum {
    WIRE_VERSION = 1,
    WIRE_MEMBERS_MAX = 4096,
    WIRE_INTENT_BLOCKS_MAX = 96,
    WIRE_PAGE_NAMES_MAX = 65536,
    WIRE_ARITHMETIC_BYTES = 48,
};

enum wire_kind {
    WIRE_HELLO = 1,
    WIRE_MEMBERS,
    WIRE_PING, WIRE_PING_REQUEST, WIRE_ACK, WIRE_NACK,
    WIRE_LEAVE,
    WIRE_DIGEST,
    WIRE_PULL,
    WIRE_MANIFEST,
    WIRE_PAGE_REQUEST,
    WIRE_PAGE,
    WIRE_INTENT,
    WIRE_WEIGHTS,
    WIRE_KINDS,
};

/* A lifetime of one origin's advertised set: the process's random boot id and a counter of flushes within it. */
struct wire_epoch {
    uint64_t boot_id;
    uint32_t counter;
};

enum wire_state { WIRE_ALIVE, WIRE_SUSPECT, WIRE_DEAD, WIRE_LEFT };

/* One member as somebody sees it. */
struct wire_member {
    char name[CLUSTER_NAME_BYTES];
    char address[TRANSPORT_ADDRESS_TEXT], http_address[TRANSPORT_ADDRESS_TEXT];
    uint64_t boot_id;
    uint32_t incarnation;
    enum wire_state state;
};

/* Records to the end of a message, walked by wire_next_member or wire_next_weight. */
struct wire_list {
    struct reader reader;
    uint32_t left;
};

struct wire_hello {
    struct wire_member self;
    bool wants_members;
};

/* PING, PING_REQUEST (target set), ACK and NACK; all but NACK carry members. */
struct wire_probe {
    uint64_t number;
    uint64_t target_boot_id;
    struct wire_list members;
};

/* What an origin says about itself, in front of every delta. */
struct wire_header {
    struct wire_epoch epoch;
    uint64_t stamp;    /* counts the headers of one boot: a lower one is older */
    uint64_t sequence; /* changes since the epoch began */
    uint64_t checksum; /* of the advertised set at that sequence */
    uint32_t n_blocks;
    uint32_t page_tokens;
    struct cluster_load load;
    uint8_t fingerprint[32];
    char arithmetic[WIRE_ARITHMETIC_BYTES];
};

/* Consecutive changes, the first with number `first`; as runs of names added or removed. */
struct wire_delta {
    uint64_t first;
    uint32_t n_changes;
    struct reader runs;
};

struct wire_run {
    bool removed;
    uint32_t n;
    const uint8_t *names; /* see wire_name */
};

struct wire_digest {
    struct wire_header header;
    uint8_t hops_left; /* how often it may still be relayed */
    struct wire_delta delta;
};

struct wire_pull {
    struct wire_epoch epoch;
    uint64_t have; /* last sequence applied */
    bool manifest; /* the page checksums are wanted instead of deltas */
};

struct wire_manifest {
    struct wire_epoch epoch;
    uint64_t sequence;
    const uint8_t *checksums; /* BLOCK_SET_PAGES of them, see wire_name */
};

struct wire_page_request {
    struct wire_epoch epoch;
    uint8_t pages[BLOCK_SET_PAGES / 8]; /* bit p % 8 of byte p / 8 */
};

struct wire_page {
    struct wire_epoch epoch;
    uint64_t sequence; /* the page is complete as of it */
    uint32_t page, n;
    const uint8_t *names;
};

/* "The member will soon hold these blocks", or with ttl 0 "that placement is void". */
struct wire_intent {
    uint64_t id;
    uint64_t target_boot_id;
    uint32_t ttl_ms, ready_ms; /* from now */
    uint32_t uncached_tokens;
    uint32_t n;
    const uint8_t *blocks;
};

struct wire_message {
    enum wire_kind kind;
    union {
        struct wire_hello hello;
        struct wire_list members;
        struct wire_probe probe;
        struct wire_digest digest;
        struct wire_pull pull;
        struct wire_manifest manifest;
        struct wire_page_request page_request;
        struct wire_page page;
        struct wire_intent intent;
        struct wire_list weights; /* of tenants to whom one was given; all others have 1 */
        uint32_t leave_incarnation;
    };
};

/* The i-th of a packed row of 64-bit names. */
static inline uint64_t wire_name(const uint8_t *names, uint32_t i)
{
    uint64_t name;
    memcpy(&name, names + (size_t)i * sizeof name, sizeof name);
    return name;
}

static inline bool wire_epoch_equal(struct wire_epoch a, struct wire_epoch b)
{
    return a.boot_id == b.boot_id && a.counter == b.counter;
}

/* 0, HS_ERR_PROTOCOL (malformed, or over a limit) or HS_ERR_UNSUPPORTED (another version, or a kind unknown to this one). */
int wire_decode(const void *data, size_t len, struct wire_message *out);
bool wire_next_member(struct wire_list *members, struct wire_member *out);
bool wire_next_run(struct reader *runs, struct wire_run *out);
bool wire_next_weight(struct wire_list *weights, struct cluster_weight *out);

void wire_write_hello(struct writer *w, const struct wire_hello *hello);
void wire_begin_members(struct writer *w);
/* Starts PING, PING_REQUEST, ACK or NACK; members follow by wire_write_member until the message ends (not behind NACK). */
void wire_begin_probe(struct writer *w, enum wire_kind kind, uint64_t number, uint64_t target_boot_id);
void wire_write_member(struct writer *w, const struct wire_member *member);
void wire_write_leave(struct writer *w, uint32_t incarnation);
/* Starts a DIGEST; runs follow by wire_write_run until the message ends. */
void wire_begin_digest(struct writer *w, const struct wire_header *header, uint8_t hops_left, uint64_t first);
void wire_write_run(struct writer *w, bool removed, const uint64_t *names, uint32_t n);
/* Where hops_left stands in an encoded DIGEST: a relay lowers it in a copy. */
enum { WIRE_DIGEST_HOPS_AT = 2 };
void wire_write_pull(struct writer *w, const struct wire_pull *pull);
void wire_write_manifest(struct writer *w, struct wire_epoch epoch, uint64_t sequence, const uint64_t checksums[BLOCK_SET_PAGES]);
void wire_write_page_request(struct writer *w, const struct wire_page_request *request);
void wire_write_page(struct writer *w, struct wire_epoch epoch, uint64_t sequence, uint32_t page, const uint64_t *names,
                     uint32_t n);
void wire_write_weights(struct writer *w, const struct cluster_weight *weights, uint32_t n);
void wire_write_intent(struct writer *w, const struct wire_intent *intent, const uint64_t *blocks);

#endif
