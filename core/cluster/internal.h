/*
 * The pieces of a struct cluster, shared by the .c files of this folder and nobody else.
 *
 *     cluster.c   create, events, step          member.c    the table of members and what changes in it
 *     swim.h      probes and suspicion          spread.c    piggy-backed dissemination of member states
 *     gossip.h    digests out, pulls in         (sync.c)    replicas: what to ask for, what came
 *     region.h    our digest as pages           reads.h     those of peers, read one-sidedly
 *     weights.c   tenants' weights, compared
 *     books.c, intent.c, cost.c, regret.c, route.c: books.h   view.c      what people and tools see
 *
 * A member is found by its transport peer or by its process's boot id. `up` is the transport's word, `state` is SWIM's, and both
 * must be good for a request to go there.
 */
#ifndef HEARSAY_CLUSTER_INTERNAL_H
#define HEARSAY_CLUSTER_INTERNAL_H

#include <stddef.h>

#include "core/base/rng.h"
#include "core/base/u64_map.h"
#include "core/cluster/advert.h"
#include "core/cluster/books.h"
#include "core/cluster/cluster.h"
#include "core/cluster/gossip.h"
#include "core/cluster/reads.h"
#include "core/cluster/region.h"
#include "core/cluster/replica.h"
#include "core/cluster/swim.h"
#include "core/cluster/wire.h"

#define MS     UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)

enum { PROBES_MAX = 64, DATAGRAM_MAX = 9000, MEMBERS_MAX = WIRE_MEMBERS_MAX };

/* A peer's rate of gossip: bytes may go out while level is positive. */
struct bucket {
    double level;
    uint64_t filled_ns;
};

/* What the router reads of every member at every request comes first and together: it is fetched ahead. */
struct member {
    uint64_t boot_id; /* 0: a seed that was never heard */
    uint32_t peer;
    enum cluster_peer_state state; /* SWIM's word */
    bool up;
    bool has_header, compatible;
    uint32_t in_flight;
    double rtt_s, rtt_deviation_s; /* 0: not measured */
    uint64_t joined_ns;
    double blame; /* failures, decayed to blame_ns */
    uint64_t blame_ns;
    uint64_t header_ns; /* of arrival */
    struct outlook outlook;
    struct wire_header header;
    struct replica replica;

    bool seed;
    bool announced; /* the listener was told peer_alive */
    bool mismatch_logged, weights_logged;
    bool has_alias;
    uint32_t alias; /* another peer number that leads to the same process */
    char name[CLUSTER_NAME_BYTES], address[TRANSPORT_ADDRESS_TEXT], http_address[TRANSPORT_ADDRESS_TEXT];

    /* SWIM */
    uint32_t incarnation, transmits; /* transmits: times that its state was passed on */
    uint64_t spread_number;          /* last message that named it */
    uint64_t state_since_ns, suspect_until_ns;
    uint64_t heard_ns, told_ns; /* its last message to us; when we told it last what it is held to be */
    uint32_t confirmations;
    uint64_t confirmed_by[3], accuser_boot_id;

    /* anti-entropy */
    uint64_t replica_ns;                       /* last known equal to the origin's */
    uint64_t pushed;                           /* our last change sent there */
    uint64_t gossiped_ns, ask_at_ns, hello_ns; /* hello_ns: of ours that went out on this connection, 0: not yet */
    uint64_t asked_ns; /* it asked by message last: 0: never */
    uint64_t asked_state_ns, asked_sequence; /* when we asked for changes or the manifest last, and where the replica stood */
    uint32_t asked_in_vain;                  /* times that we did while it stood there */
    struct bucket bucket;
    struct digest_reads reads;
    struct gauge *replica_gauge;
};

/* Bytes at the front of a member that a decision reads: down to the replica's set. */
enum { MEMBER_HOT_BYTES = offsetof(struct member, replica) + sizeof(struct block_set *) };

struct probe {
    bool open;
    uint64_t number, sent_ns, deadline_ns;
    uint64_t boot_id;        /* of the member probed */
    bool indirect;           /* helpers were asked */
    uint32_t nacks, helpers; /* of those asked */
    uint64_t for_number;     /* of a helper's probe: the asker's number, 0: our own probe */
    uint32_t for_peer;
};

enum cluster_limit {
    CLUSTER_LIMIT_MEMBERS,
    CLUSTER_LIMIT_ADVERTISED,
    CLUSTER_LIMIT_REPLICAS,
    CLUSTER_LIMIT_REPLICA_OF_ONE,
    CLUSTER_LIMIT_GOSSIP_BYTES,
    CLUSTER_LIMIT_BOOKINGS,
    CLUSTER_LIMIT_INTENTS,
    CLUSTER_LIMITS,
};

struct cluster_metrics {
    struct counter *sent_bytes, *received_bytes, *rounds, *relays, *pulls, *manifests, *pages, *rejected, *suspicions, *deaths,
        *intents, *reads, *read_bytes, *read_failures;
    struct counter *reasons[2][6], *outcomes[5];
    struct gauge *states[5], *health, *advertised, *unadvertised, *replica_age;
    struct limit *limits[CLUSTER_LIMITS];
    struct histogram *predicted, *actual, *miss;
};

struct cluster {
    struct cluster_config config;
    const struct env *env;
    struct transport *transport;
    struct transport_info info;
    struct metrics *own_metrics, *metrics;
    struct cluster_metrics count;
    struct cluster_listener listener;
    struct rng rng;
    uint64_t started_ns;

    struct member **members;
    uint32_t n_members, cap_members;
    struct u64_map by_peer, by_boot;

    uint32_t incarnation, self_transmits, local_health;
    uint64_t spread_number;
    bool left, retell_self; /* retell_self: somebody has missed our last refutation */
    struct probe probes[PROBES_MAX];
    uint32_t *probe_order, n_probe_order, probe_at, revive_at;
    uint64_t probe_number, next_probe_ns, next_revive_ns, next_sync_ns, next_metrics_ns;

    struct advert *advert;
    uint32_t epoch_counter;
    uint64_t stamp;
    struct replica_budget budget;
    struct cluster_load load;
    bool push_back, load_changed;
    uint64_t load_version, load_news; /* load_news: changes worth a round */
    uint64_t round_ns, round_sequence, spoke_ns; /* spoke: a round had somebody to tell */
    struct region region;
    uint64_t region_due_ns;
    uint32_t read_generations;
    struct bucket pump;
    uint32_t round_at;

    struct cluster_weight weights[CLUSTER_WEIGHTS_MAX];
    uint32_t n_weights;

    struct books books; /* route.h */
};

/* member.c */
struct member *member_by_peer(const struct cluster *c, uint32_t peer);
struct member *member_by_boot(const struct cluster *c, uint64_t boot_id);
const char *member_who(const struct member *m); /* for people: its name, before its hello its address */
/* A new entry, JOINING. NULL at the limit or out of memory. */
struct member *member_add(struct cluster *c, uint32_t peer);
void member_set_boot(struct cluster *c, struct member *m, uint64_t boot_id, uint64_t now_ns);
void member_set_state(struct cluster *c, struct member *m, enum cluster_peer_state state, uint32_t incarnation, uint64_t now_ns);
void member_free(struct cluster *c, struct member *m), member_forget(struct cluster *c, struct member *m); /* forget: closed, too */
void member_call(struct cluster *c, const struct member *m); /* it may answer again: the transport need not wait for its turn */
bool member_is_routable(const struct cluster *c, const struct member *m);
/* Tells the listener if routability has changed. gone: what it computed for us is lost. */
void member_announce(struct cluster *c, struct member *m, bool gone);
/* Members that SWIM counts: alive or suspect, without us. */
uint32_t members_live(const struct cluster *c);
/* Drops members that have been dead or gone for long. */
void members_reap(struct cluster *c, uint64_t now_ns);

/* weights.c */
void weights_tell(struct cluster *c, const struct member *to);
void weights_on_message(struct cluster *c, struct member *m, struct wire_list told);

/* cluster.c */
/* 0 or the transport's error; counts bytes. */
int cluster_send(struct cluster *c, const struct member *m, const struct writer *w, uint32_t flags);
size_t cluster_datagram_bytes(const struct cluster *c);

/* cluster_metrics.c */
bool cluster_metrics_register(struct cluster *c);
void cluster_metrics_member(struct cluster *c, struct member *m);
void cluster_metrics_update(struct cluster *c, uint64_t now_ns);
const char *cluster_reason_name(enum route_reason reason);
const char *cluster_state_name(enum cluster_peer_state state);

#endif
