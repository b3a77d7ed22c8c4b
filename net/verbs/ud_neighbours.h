/*
 * Who is where among datagram queue pairs: the address on which a node is called (UDP, --bind) to its queue pairs, as it told us. Pure.
 *
 *     unknown --ask, tell--> known --a datagram from another queue pair--> stale (it restarted) --ask, tell--> known
 *                              `---- nothing comes back for a while ----> asked again; with several rails the next one is tried
 *
 * A bounded table: when it is full, the one not used for longest among a few goes, unless something waits for it.
 *
 * Threading: one thread. Ownership: paths are the owner's things (address handles), given to drop_path when they are no longer good.
 */
#ifndef HEARSAY_NET_VERBS_UD_NEIGHBOURS_H
#define HEARSAY_NET_VERBS_UD_NEIGHBOURS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/u64_map.h"
#include "net/verbs/path.h"
#include "net/verbs/ud_message.h"

#define UD_ASK_AGAIN_NS UINT64_C(100000000)
#define UD_SILENCE_NS UINT64_C(1000000000) /* sent to, and not heard since: it may be elsewhere */

struct ud_neighbour {
    struct carrier_address address;
    bool known, stale, asking;
    uint32_t n_ports, rail; /* rail: ours, and theirs, in use */
    struct ud_port ports[UD_MAX_PORTS];
    void *paths[UD_MAX_PORTS]; /* the owner's, by rail; NULL: not made yet */
    struct path_route routes[UD_MAX_PORTS]; /* that the subnet manager recorded */
    uint8_t nonce[UD_NONCE_BYTES];
    uint64_t asked_ns, unanswered_ns, used_ns; /* unanswered: since when something sent waits for any answer, 0: nothing does */
    uint32_t n_waiting;
};

struct ud_neighbours {
    struct ud_neighbour *all;
    uint32_t cap, n, hand;
    struct u64_map by_address;
    uint8_t hash_key[16];
    void (*drop_path)(void *path);
};

/* hash_key: random. 0 or HS_ERR_NO_MEMORY. */
int ud_neighbours_init(struct ud_neighbours *table, uint32_t cap, const uint8_t hash_key[16], void (*drop_path)(void *path));
void ud_neighbours_fini(struct ud_neighbours *table);
struct ud_neighbour *ud_neighbours_find(const struct ud_neighbours *table, const struct carrier_address *address);
/* Made when new. NULL: no room, something waits for all that could go; or no memory. */
struct ud_neighbour *ud_neighbours_get(struct ud_neighbours *table, const struct carrier_address *address, uint64_t now_ns);

/* Whether a datagram can go to it now. */
static inline bool ud_neighbour_reachable(const struct ud_neighbour *n)
{
    return n->known && !n->stale;
}

/* Something is to be sent to it: whether it is to be asked. The rail changes when silence is the reason. */
bool ud_neighbour_ask_due(struct ud_neighbour *n, uint64_t now_ns);
/* Something was sent to it. */
static inline void ud_neighbour_sent(struct ud_neighbour *n, uint64_t now_ns)
{
    n->used_ns = now_ns;
    if (n->unanswered_ns == 0)
        n->unanswered_ns = now_ns;
}
/* A datagram came from it by that rail, which is the one to answer on. True: from another queue pair than the known one there, so that it is to
 * be asked. */
bool ud_neighbour_heard(struct ud_neighbour *n, uint32_t rail, uint32_t queue_pair);
/* The ASK to send. random: where its nonce comes from when a new one is needed. */
void ud_neighbour_ask(struct ud_neighbours *table, struct ud_neighbour *n, uint64_t now_ns, const uint64_t random[2], struct ud_word *out);
/* A TELL: whose it is, now known, or NULL when nobody waits for it. Paths that have changed are dropped. */
struct ud_neighbour *ud_neighbours_told(struct ud_neighbours *table, const struct ud_word *tell);

/* The way to it by a rail is another now. */
void ud_neighbour_drop_path(struct ud_neighbours *table, struct ud_neighbour *n, uint32_t rail);

#endif
