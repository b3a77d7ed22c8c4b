/*
 * What the router remembers between decisions: bookings (open requests of ours), intents (placements of blocks, ours and heard of),
 * and the shape of one decision.
 *
 *     books.c   bookings, tickets' ends, blame        cost.c    predicted completion of one candidate
 *     intent.c  placements                            regret.c  when a further copy has become worth it
 *     route.c   the choice among candidates
 *
 * Both tables are fixed: when the bookings are full a request is routed without being booked, and a new intent replaces the one
 * that expires first. Threading: node loop only.
 */
#ifndef HEARSAY_CLUSTER_BOOKS_H
#define HEARSAY_CLUSTER_BOOKS_H

#include "core/cluster/wire.h"

enum { BOOKINGS_MAX = 1024, INTENTS_MAX = 256, HEADS_MAX = 1024 };

struct member;

struct booking {
    uint64_t id;      /* 0: free */
    uint64_t boot_id; /* of the computing process; our own too */
    uint64_t decided_ns, load_version;
    uint32_t uncached_tokens;
};

struct intent {
    uint64_t id; /* 0: free */
    uint64_t target_boot_id;
    bool ours;
    uint64_t heard_ns, ready_ns, expires_ns;
    uint32_t uncached_tokens, n;
    uint64_t first; /* of its blocks; all of them are in the row of intent_blocks beside */
};

/* A head that this node was an entry for, and the link delays that it has cost so far. */
struct head_seen {
    uint64_t head;
    double paid_s;
};

/* What requests that went to a holder of these blocks would have gained had one more node held them. */
struct regret {
    uint64_t name;    /* of the last of the blocks */
    uint64_t boot_id; /* of the node meant */
    double seconds;   /* decayed to at_ns */
    uint64_t at_ns;
};

/* What the tables say of one node with respect to the request being routed. */
struct outlook {
    uint32_t held_blocks;     /* of the request's prompt, by the replica (a peer's only) */
    uint32_t booked_requests; /* open requests of ours there, seen or not */
    uint64_t unseen_tokens;   /* prefill sent there that its last stated load cannot contain yet */
    uint32_t unseen_requests;
    uint32_t promised_blocks; /* of the request's prompt, by placements */
    uint64_t promised_ready_ns;
};

struct books {
    struct booking bookings[BOOKINGS_MAX]; /* the first n_bookings */
    uint32_t n_bookings;
    struct outlook self;
    double group_prefill_tokens_per_s, group_decode_step_s; /* means of what nodes measured, 0: nobody has */
    struct intent intents[INTENTS_MAX];
    uint64_t intent_blocks[INTENTS_MAX][WIRE_INTENT_BLOCKS_MAX];
    struct head_seen heads[HEADS_MAX]; /* by head % HEADS_MAX: a newer one overwrites */
    struct regret regrets[HEADS_MAX];  /* by name % HEADS_MAX: likewise */
    double repeat_share;               /* of requests whose head had been here before, moving average */
    double typical_tokens;             /* moving average of uncached tokens of a request */
    struct candidate *candidates;
    uint32_t cap_candidates;
};

/* One node that could compute the request, and when it would be done. Seconds from now. */
struct candidate {
    struct member *member; /* NULL: ourselves */
    uint32_t held_blocks;  /* there already */
    uint32_t match_blocks; /* there already or promised */
    bool in_progress;      /* the match is longer thanks to a promise that is not due yet */
    double delay_s;        /* both ways */
    double link_s;         /* the same with the link's uncertainty */
    double wait_s;         /* until it is our turn, and until promised blocks are there */
    double prefill_s, decode_s;
    double margin_s;       /* uncertainty: of the link and of load that we have not heard of */
    double total_s;        /* delay + wait + prefill + decode */
    double full_prefill_s; /* of the whole prompt there, nothing cached */
    bool idle;
    double score_s; /* what is compared in the end */
    uint32_t cached_tokens;
};

/* Fills *out for member m (NULL: ourselves), from its outlook. */
void cost_predict(struct cluster *c, struct member *m, const struct route_query *query, uint64_t now_ns, struct candidate *out);
/* Measured there, else the group's mean, else a prior. */
double cost_prefill_rate(const struct cluster *c, const struct member *m);

/* Sets every node's outlook: one pass over the tables, however large the group is. */
void books_look(struct cluster *c, const struct route_query *query, uint64_t now_ns);
/* Opens a booking for the ticket and gives it its id; without room the id alone. */
void books_open(struct cluster *c, struct route_ticket *ticket, uint64_t boot_id);
/* The member's failures, decayed to now. */
double books_blame(const struct member *m, uint64_t now_ns);

/*
 * The request goes to `best`, which holds its blocks down to the one of this name; `next` is the node whose turn a further copy
 * is, and making it takes copy_s. Adds what the request would have gained had `next` held them; true: this has come to more than
 * copy_s by now, and starts again from nothing. next_boot_id is next's.
 */
bool regret_is_due(struct cluster *c, uint64_t name, const struct candidate *best, const struct candidate *next,
                   uint64_t next_boot_id, double copy_s, uint32_t n_candidates, uint64_t now_ns);

/* Remembers and tells peers that boot_id will hold the query's blocks in ready_s. */
void intent_announce(struct cluster *c, const struct route_query *query, const struct route_ticket *ticket, uint64_t boot_id,
                     double ready_s, uint64_t now_ns);
void intent_revoke(struct cluster *c, uint64_t id);
/* The prefill has begun and will take so long. */
void intent_restart(struct cluster *c, uint64_t id, double ready_s, uint64_t now_ns);
void intent_on_message(struct cluster *c, const struct wire_intent *intent, uint64_t now_ns);
void intents_forget(struct cluster *c, uint64_t target_boot_id);
/* Enters the promises into the outlooks. */
void intents_look(struct cluster *c, const struct route_query *query, uint64_t now_ns);

#endif
