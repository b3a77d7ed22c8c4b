/*
 * The transports: how to make one. Everything after creation goes through core/port/transport.h.
 *
 *     sockets   UDP carrier + net/reliable + net/seal                        transport_sockets_create
 *     simulated sim carrier (net/sim_carrier.h) + net/reliable + net/seal     transport_reliable_create
 *     inproc    a hub of plain queues in one process, for tests               transport_inproc_create
 *
 * Ownership: a transport made over a carrier owns it from success on; transport->ops->destroy frees both. Statuses of
 * TRANSPORT_PEER_DOWN: HS_ERR_TIMEOUT retransmissions exhausted, HS_ERR_CLOSED the peer left, HS_ERR_CANCELED the peer began
 * anew (it restarted or had lost us). close_peer drops what has arrived from the peer and is followed by no event but the ends of reads.
 *
 * Threading: one thread per transport. Errors: 0 or HS_ERR_*, with one line in err that names the thing and the remedy.
 */
#ifndef HEARSAY_NET_NET_H
#define HEARSAY_NET_NET_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/port/carrier.h"
#include "core/port/env.h"
#include "core/port/transport.h"

enum { NET_GROUP_KEY_BYTES = 32 };

/*
 * A peer's number is its place in the table, and above it how often the place has changed hands: so a number that somebody still
 * holds is known to be void. It comes again after 32,768 more owners of the place, and as the one closed longest ago goes first,
 * after as many times max_peers newcomers. Numbers stay below 2^31.
 */
enum { NET_PEER_PLACE_BITS = 16, NET_MAX_PEERS = 1 << NET_PEER_PLACE_BITS };

static inline uint32_t net_peer_place(uint32_t number)
{
    return number & (NET_MAX_PEERS - 1);
}

static inline uint32_t net_peer_next_number(uint32_t number)
{
    return (number + NET_MAX_PEERS) & INT32_MAX;
}

/* Zero in any field takes the default named beside it. */
struct net_tuning {
    uint64_t peer_timeout_ns;      /* 5 s without an acknowledgement of what was sent: the peer is down */
    uint64_t keep_alive_ns;        /* 10 s of silence from a peer: ask for a sign of life; UINT64_MAX: never */
    uint64_t connect_retry_min_ns; /* 100 ms: first repetition of a handshake, doubling, and from one such peer's turn to the next's */
    uint64_t connect_retry_max_ns; /* 2 s: not doubled beyond; from there on only in its turn, for ever */
    uint64_t handshake_timeout_ns; /* 10 s: a handshake under way starts over, a half-open one is forgotten */
    uint64_t min_rto_ns;           /* 20 ms: retransmission timer, lower bound */
    uint64_t ack_delay_ns;         /* 500 us: an acknowledgement waits so long for data going the same way */
    uint64_t rekey_ns;             /* 10 min: age at which a sending key is replaced ... */
    uint64_t rekey_packets;        /* ... or after 2^24 datagrams */
    uint32_t send_buffer_bytes;    /* 4 MiB per peer, at least 2 MiB: beyond it send says HS_ERR_BUSY */
    uint32_t max_peers;            /* 1024, at most NET_MAX_PEERS; closed ones make room for newcomers */
    uint32_t max_half_open;        /* 64 handshakes that others began; over a quarter of it they must prove their address */
    uint32_t ciphers;              /* mask of 1 << enum seal_cipher; all that this CPU does well, never SEAL_CIPHER_NONE */
};

/* Reads a key file: 64 hexadecimal digits or 32 raw bytes, surrounding blanks ignored. 0 or HS_ERR_IO, HS_ERR_PARSE. */
int net_group_key_load(const char *path, uint8_t key[NET_GROUP_KEY_BYTES], struct error *err);

/*
 * transport.h over any carrier. group_key: NULL takes a public constant (then whoever reaches us is a peer). name is what
 * info shows ("sockets", "simulated"). env is copied, what it points to must outlive the transport; its random_u64 makes
 * keys, so in production it has to be the kernel's generator.
 */
int transport_reliable_create(struct carrier *carrier, const char *name, const uint8_t *group_key, const struct net_tuning *tuning,
                              const struct env *env, struct transport **out, struct error *err);

struct transport_sockets_config {
    const char *bind;         /* "127.0.0.1:7070", "[::1]:0", "0.0.0.0:7070"; port 0: any free one */
    const uint8_t *group_key; /* [NET_GROUP_KEY_BYTES] or NULL: then bind must be loopback ... */
    bool insecure_peers;      /* ... unless this is set */
    uint32_t datagram_bytes;  /* as udp_carrier_create's (net/udp.h); 0: 1,452, or 8,448 when bind is loopback */
    struct net_tuning tuning;
};

int transport_sockets_create(const struct transport_sockets_config *config, const struct env *env, struct transport **out,
                             struct error *err);

/* In one process: endpoints joined by a hub, all on one thread, addressed by name. The hub outlives its transports. */
struct inproc_hub;
struct inproc_hub *inproc_hub_create(void); /* NULL only when out of memory */
void inproc_hub_destroy(struct inproc_hub *hub);
/* name: what peers resolve. HS_ERR_BUSY when a living endpoint has it, HS_ERR_LIMIT when the hub is full. */
int transport_inproc_create(struct inproc_hub *hub, const char *name, const struct env *env, struct transport **out,
                            struct error *err);
/* The next so many looks at one of its pages find the page half written; a reader looks up to five times. */
void transport_inproc_tear(struct transport *transport, uint32_t looks);

#endif
