/*
 * Who is where among datagram queue pairs: the address on which a node is called (UDP, --bind) to its queue pairs, as it told us. Pure.
 *
 *     unknown --ask, tell--> known --a datagram from another queue pair--> doubted (has it restarted?) --ask, tell--> known
 *                              `---- nothing comes back for a while ----> asked again; with several rails the next one is tried
 *
 * Only a TELL changes what is known, and only a datagram that has opened under its key ends a silence: anybody on the network can make datagrams
 * that seem to come from a neighbour, and all that these bring about is a question, at most ten a second. One that is doubted is sent to as before, and gets a second copy if it turns out to have moved.
 *
 * A bounded table: when it is full, the one not used for longest among a few goes, unless something waits for it.
 *
 * Threading: one thread. Ownership: paths are dropped (ud_handles.h) when they are no longer good.
 */
#ifndef HEARSAY_NET_VERBS_UD_NEIGHBOURS_H
#define HEARSAY_NET_VERBS_UD_NEIGHBOURS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/u64_map.h"
#include "net/verbs/path.h"
#include "net/verbs/path_retry.h"
#include "net/verbs/ud_handles.h"
#include "net/verbs/ud_message.h"

#define UD_ASK_AGAIN_NS UINT64_C(100000000)
#define UD_SILENCE_NS UINT64_C(1000000000) /* sent to, and not heard since: it may be elsewhere */
#define UD_FOLLOW_NS UINT64_C(20000000)    /* sent to, and not heard there since: it is followed to the rail where it is heard */

struct ud_neighbour {
    struct carrier_address address;
    bool known, doubted, asking;
    uint32_t n_ports, rail; /* rail: ours, and theirs, in use */
    struct ud_port ports[UD_MAX_PORTS];
    struct ud_path *paths[UD_MAX_PORTS];    /* by rail; NULL: not made yet */
    struct path_route routes[UD_MAX_PORTS]; /* that the subnet manager recorded */
    struct path_retry questions[UD_MAX_PORTS];
    uint8_t nonce[UD_NONCE_BYTES];
    uint64_t asked_ns, unanswered_ns, used_ns; /* unanswered: since when something sent by `rail` waits for any answer there, 0: nothing does */
    uint32_t n_waiting;
};

struct ud_neighbours {
    struct ud_neighbour *all;
    uint32_t cap, n, hand, n_rails; /* n_rails: ours; 4 if the owner says nothing else */
    struct u64_map by_address;
    uint8_t hash_key[16];
};

/* hash_key: random. 0 or HS_ERR_NO_MEMORY. */
int ud_neighbours_init(struct ud_neighbours *table, uint32_t cap, const uint8_t hash_key[16]);
void ud_neighbours_fini(struct ud_neighbours *table);
struct ud_neighbour *ud_neighbours_find(const struct ud_neighbours *table, const struct carrier_address *address);
bool ud_neighbour_is_at(const struct ud_neighbour *n, const struct carrier_address *address);
/* Made when new. NULL: no room, something waits for all that could go; or no memory. */
struct ud_neighbour *ud_neighbours_get(struct ud_neighbours *table, const struct carrier_address *address, uint64_t now_ns);

/* Something is to be sent to it: whether it is to be asked. The rail changes when silence is the reason. */
bool ud_neighbour_ask_due(struct ud_neighbour *n, uint64_t now_ns);
/* Something was sent to it. */
static inline void ud_neighbour_sent(struct ud_neighbour *n, uint64_t now_ns)
{
    n->used_ns = now_ns;
    if (n->unanswered_ns == 0)
        n->unanswered_ns = now_ns;
}
/* A datagram seems to have come from it by that rail. True: from another queue pair than the known one there, and it is to be asked. */
bool ud_neighbour_heard(struct ud_neighbour *n, uint32_t rail, uint32_t queue_pair, uint64_t now_ns);
/* It has: its seal was good. */
void ud_neighbour_answered(struct ud_neighbour *n, uint32_t rail, uint32_t queue_pair, uint64_t now_ns);
/* What is sent to it now may be lost, as it seems to have moved: a copy is to be kept. */
static inline bool ud_neighbour_in_doubt(const struct ud_neighbour *n, uint64_t now_ns)
{
    return n->doubted && now_ns - n->asked_ns < UD_ASK_AGAIN_NS;
}
/* The ASK to send, but for who asks. random: where its nonce comes from when a new one is needed. */
void ud_neighbour_ask(struct ud_neighbours *table, struct ud_neighbour *n, uint64_t now_ns, const uint64_t random[2], struct ud_word *out);
/* A TELL: whose it is, now known, or NULL when nobody waits for it. *moved: it is not where it was, or was not known; its paths are dropped. */
struct ud_neighbour *ud_neighbours_told(struct ud_neighbours *table, const struct ud_word *tell, bool *moved);

/* The way to it by a rail is another now. */
void ud_neighbour_drop_path(struct ud_neighbour *n, uint32_t rail);

#endif
