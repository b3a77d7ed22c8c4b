/*
 * A transport carries sealed, authenticated messages between the nodes of one group: sockets, verbs, DPDK, in-process,
 * simulated. One conformance suite (tests/conform) holds for all.
 *
 * Peers are integers below 2^31, given out at resolve (we call) or at TRANSPORT_PEER_UP (they call); one per remote address, until
 * it is closed. What a closed peer holds goes to another address when room is needed (it keeps its number if it comes up or is
 * resolved before that, and else gets a new one); its number then names nobody: send says HS_ERR_CLOSED, close_peer does nothing.
 * So whoever has no use for a peer any more, also for one that called and is down, must close it, or newcomers find no room in the
 * end. A peer is usable from PEER_UP to PEER_DOWN; resolving is enough to make
 * a transport keep trying to bring the peer up, with back-off, until close_peer; resolving again begins the back-off anew, for
 * those who have reason to think that the peer is back. A restarted process is seen as PEER_DOWN followed by PEER_UP with
 * another boot id.
 *
 * Messages to one peer arrive exactly once and in order while it stays up; on PEER_DOWN what was not delivered is lost and
 * the layer above decides. With TRANSPORT_UNRELIABLE a message may be lost or overtake others, and is at most
 * max_unreliable_bytes long: for probes and gossip that is worth nothing later.
 *
 * Where info says reads_pages, a node may publish regions of pages, which peers read without its CPU taking part (one-sided reads). A
 * page is read as its origin wrote it at some time, or not at all: versions, seals and the repetition of torn reads are the
 * transport's, and so is the key, which differs by boot and by publication. Pages are readable by every member of the group.
 *
 *     origin   publish(region) ... write_page(region, page, data)            an earlier region of that number is gone
 *     reader   read_page(peer, region, page) ... TRANSPORT_READ_DONE          data, version; or a status
 *
 * Threading: all calls come from one thread and never block. Data in an event is valid until the next poll.
 */
#ifndef HEARSAY_PORT_TRANSPORT_H
#define HEARSAY_PORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum { TRANSPORT_UNRELIABLE = 1u }; /* flag of send */
enum { TRANSPORT_ADDRESS_TEXT = 128 };
enum { TRANSPORT_REGIONS = 16, TRANSPORT_REGION_PAGES = 1 << 16, TRANSPORT_PAGE_BYTES = 1 << 20 }; /* regions of a node, pages of a region, content of a page: at most */

enum transport_event_kind {
    TRANSPORT_PEER_UP,   /* handshake done; boot_id set */
    TRANSPORT_PEER_DOWN, /* retransmissions exhausted, restarted, or closed by the peer; status says why */
    TRANSPORT_MESSAGE,   /* data, len */
    /* cookie of read_page; status 0, then data, len and version; or HS_ERR_NOT_FOUND: the peer publishes no such region, HS_ERR_RANGE: it
     * has no such page, HS_ERR_AUTH: torn each time, or forged, HS_ERR_CLOSED: the peer went down, HS_ERR_IO, HS_ERR_LIMIT: no memory for it */
    TRANSPORT_READ_DONE,
};

struct transport_event {
    enum transport_event_kind kind;
    uint32_t peer;
    int status;
    uint64_t boot_id; /* random per start of the peer's process */
    uint64_t cookie;
    uint64_t version; /* of a page: grows by one with every write, from 1 for an empty one */
    const uint8_t *data;
    uint32_t len;
};

struct transport_info {
    const char *name;              /* "sockets", "verbs", ... */
    uint64_t boot_id;              /* our own */
    uint32_t max_message_bytes;    /* reliable, fragmented inside: at least 1 MiB */
    uint32_t max_unreliable_bytes; /* one datagram: at least 1,000 */
    char local[TRANSPORT_ADDRESS_TEXT]; /* own address as peers would resolve it */
    bool reads_pages;                   /* publish, write_page and read_page work */
};

struct transport_peer_stats {
    uint64_t rtt_ns;          /* smoothed; 0: not measured yet */
    uint64_t rtt_variance_ns; /* mean deviation (RFC 6298) */
    uint64_t sent_messages, received_messages, retransmits;
};

/* A bound that the transport enforces. max 0: it has none. */
struct transport_bound {
    uint64_t used, max, hits;
};

struct transport_stats {
    uint64_t sent_messages, received_messages, sent_bytes, received_bytes;
    uint64_t retransmits, duplicates, rejected; /* rejected: failed to authenticate, replayed or malformed */
    uint64_t missed;                            /* datagrams that arrived and found no room in a buffer of the kernel's or the device's */
    uint64_t reads, torn_reads;                 /* pages read; repetitions because one was torn */
    struct transport_bound peers;               /* addresses, without closed ones; hits: newcomers refused */
    struct transport_bound half_open;           /* handshakes that others began; hits: put off by a proof of address, or dropped */
    struct transport_bound send_bytes;          /* queued to one peer, used: to the fullest; hits: HS_ERR_BUSY, for the window too */
    struct transport_bound unreliable_bytes;    /* the same of unreliable messages */
    struct transport_bound receive_bytes;       /* memory of received datagrams; hits: dropped for want of it */
    struct transport_bound strangers;           /* addresses remembered so that trouble with them is said once; hits: not said */
};

struct transport;

struct transport_ops {
    void (*info)(const struct transport *transport, struct transport_info *out);
    /* Address text to peer; the same text gives the same peer. 0 or HS_ERR_PARSE, HS_ERR_NOT_FOUND, HS_ERR_LIMIT. */
    int (*resolve)(struct transport *transport, const char *address, uint32_t *peer);
    /* The peer's address in a form that resolve takes. 0 or HS_ERR_NOT_FOUND, HS_ERR_LIMIT. */
    int (*address)(const struct transport *transport, uint32_t peer, char *text, size_t size);
    /* Queues one message of n pieces, copied before return. 0, HS_ERR_BUSY (queue or window full), HS_ERR_CLOSED (not up), HS_ERR_LIMIT (too long). */
    int (*send)(struct transport *transport, uint32_t peer, const struct iovec *iov, int n, uint32_t flags);
    /* Moves I/O and timers forward and fills up to n events; returns how many. */
    int (*poll)(struct transport *transport, uint64_t now_ns, struct transport_event *events, int n);
    /* When poll must be called even if nothing arrives; UINT64_MAX: never. */
    uint64_t (*next_deadline_ns)(const struct transport *transport);
    /* Readable when poll would find something arrived, or -1: must be polled. */
    int (*wait_fd)(const struct transport *transport);
    /* Makes n_pages empty pages of at most page_bytes each readable by peers, under a number below TRANSPORT_REGIONS. 0 or
     * HS_ERR_UNSUPPORTED, HS_ERR_LIMIT (too many, too large, or the device may hold no more memory), HS_ERR_NO_MEMORY. */
    int (*publish)(struct transport *transport, uint32_t region, uint32_t n_pages, uint32_t page_bytes);
    /* Replaces the content of a page of ours. 0 or HS_ERR_UNSUPPORTED, HS_ERR_NOT_FOUND (not published), HS_ERR_RANGE. */
    int (*write_page)(struct transport *transport, uint32_t region, uint32_t page, const void *data, uint32_t len);
    /* Reads a page of a peer; completes as READ_DONE. Of two reads of one page under way at once either may bring the older content.
     * expected: the length that it will hardly exceed (a longer one takes a second read), 0: unknown. 0 or HS_ERR_UNSUPPORTED,
     * HS_ERR_BUSY (at least 16 of one peer may be under way), HS_ERR_CLOSED, HS_ERR_NOT_FOUND. */
    int (*read_page)(struct transport *transport, uint32_t peer, uint32_t region, uint32_t page, uint32_t expected, uint64_t cookie);
    /* Lets a peer go, and in time its number: nothing more is sent to it or tried; it may still call us. Reads under way still end
     * with READ_DONE. */
    void (*close_peer)(struct transport *transport, uint32_t peer);
    int (*peer_stats)(const struct transport *transport, uint32_t peer, struct transport_peer_stats *out);
    void (*stats)(const struct transport *transport, struct transport_stats *out);
    /* Tells peers that we leave (best effort) and frees everything. */
    void (*destroy)(struct transport *transport);
};

/* First member of every transport's own struct. */
struct transport {
    const struct transport_ops *ops;
};

#endif
