#include <stdio.h>

#include "core/cluster/internal.h"

static const double seconds_bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60};
enum { N_BOUNDS = sizeof seconds_bounds / sizeof *seconds_bounds };

static const char *const reasons[] = {"local_only", "cached", "idle", "cold_hash", "hot_copy", "fallback"};
static const char *const outcomes[] = {"done", "refused", "failed", "canceled", "client_error"};
static const char *const states[] = {"joining", "alive", "suspect", "dead", "left"};

const char *cluster_reason_name(enum route_reason reason)
{
    return reasons[reason];
}

const char *cluster_state_name(enum cluster_peer_state state)
{
    return states[state];
}

/* Without advice: what is over it comes a little later, or is a little less well placed. */
static const struct limit_spec limit_specs[CLUSTER_LIMITS] = {
    [CLUSTER_LIMIT_MEMBERS] = {"members", "cluster", "further nodes are left out of the group as this node sees it", true},
    [CLUSTER_LIMIT_ADVERTISED] = {"advertised_blocks", "cluster",
                                  "peers are told of the beginnings of prompts only; raise --max-advertised-blocks", true},
    [CLUSTER_LIMIT_REPLICAS] = {"replica_blocks", "cluster",
                                "some of what peers have cached is not known here; raise --max-replica-blocks", true},
    [CLUSTER_LIMIT_REPLICA_OF_ONE] = {"replica_blocks_of_one_peer", "cluster",
                                      "some of what one peer has cached is not known here; raise --max-replica-blocks, of which one peer "
                                      "may have half",
                                      true},
    [CLUSTER_LIMIT_GOSSIP_BYTES] = {"gossip_bytes_per_second", "cluster", NULL, false},
    [CLUSTER_LIMIT_BOOKINGS] = {"route_bookings", "cluster", NULL, true},
    [CLUSTER_LIMIT_INTENTS] = {"route_intents", "cluster", NULL, true},
};

static bool register_limits(struct cluster *c)
{
    const uint64_t maxima[CLUSTER_LIMITS] = {
        [CLUSTER_LIMIT_MEMBERS] = MEMBERS_MAX,
        [CLUSTER_LIMIT_ADVERTISED] = c->config.max_advertised_blocks,
        [CLUSTER_LIMIT_REPLICAS] = c->budget.max_blocks,
        [CLUSTER_LIMIT_REPLICA_OF_ONE] = c->budget.max_of_one,
        [CLUSTER_LIMIT_GOSSIP_BYTES] = c->config.gossip_bytes_per_s,
        [CLUSTER_LIMIT_BOOKINGS] = BOOKINGS_MAX,
        [CLUSTER_LIMIT_INTENTS] = INTENTS_MAX,
    };
    for (int i = 0; i < CLUSTER_LIMITS; i++) {
        c->count.limits[i] = metrics_limit(c->metrics, &limit_specs[i], maxima[i]);
        if (!c->count.limits[i])
            return false;
    }
    return true;
}

static bool register_router(struct cluster *c)
{
    struct cluster_metrics *m = &c->count;
    bool ok = true;
    char labels[96];
    for (int remote = 0; remote < 2; remote++)
        for (int i = 0; i < 6; i++) {
            snprintf(labels, sizeof labels, "target=\"%s\",reason=\"%s\"", remote ? "peer" : "self", reasons[i]);
            m->reasons[remote][i] = metrics_counter(c->metrics, "hearsay_route_decisions_total", labels, "Routing decisions.");
            ok &= m->reasons[remote][i] != NULL;
        }
    for (int i = 0; i < 5; i++) {
        snprintf(labels, sizeof labels, "outcome=\"%s\"", outcomes[i]);
        m->outcomes[i] = metrics_counter(c->metrics, "hearsay_route_outcomes_total", labels, "How routed requests ended.");
        ok &= m->outcomes[i] != NULL;
    }
    m->predicted = metrics_histogram(c->metrics, "hearsay_route_predicted_seconds", "",
                                     "Predicted completion of requests that completed.", seconds_bounds, N_BOUNDS);
    m->actual =
        metrics_histogram(c->metrics, "hearsay_route_actual_seconds", "", "Their actual completion.", seconds_bounds, N_BOUNDS);
    m->miss = metrics_histogram(c->metrics, "hearsay_route_miss_seconds", "", "Distance of prediction and actual completion.",
                                seconds_bounds, N_BOUNDS);
    m->intents = metrics_counter(c->metrics, "hearsay_route_intents_total", "", "Placement announcements sent.");
    return ok && m->predicted && m->actual && m->miss && m->intents;
}

static bool register_members(struct cluster *c)
{
    struct cluster_metrics *m = &c->count;
    bool ok = true;
    char labels[96];
    for (int i = 0; i < 5; i++) {
        snprintf(labels, sizeof labels, "state=\"%s\"", states[i]);
        m->states[i] = metrics_gauge(c->metrics, "hearsay_members", labels, "Known peers by state.", 1);
        ok &= m->states[i] != NULL;
    }
    m->health = metrics_gauge(c->metrics, "hearsay_local_health", "", "Lifeguard's score: 0 is healthy, 8 very slow.", 1);
    m->suspicions = metrics_counter(c->metrics, "hearsay_suspicions_total", "", "Times that a peer came under suspicion.");
    m->deaths = metrics_counter(c->metrics, "hearsay_deaths_total", "", "Times that a peer was held to be dead.");
    return ok && m->health && m->suspicions && m->deaths;
}

bool cluster_metrics_register(struct cluster *c)
{
    struct cluster_metrics *m = &c->count;
    const struct {
        struct counter **counter;
        const char *name, *help;
    } counters[] = {
        {&m->sent_bytes, "hearsay_gossip_sent_bytes_total", "Bytes of cluster messages sent."},
        {&m->received_bytes, "hearsay_gossip_received_bytes_total", "Bytes of cluster messages received."},
        {&m->rounds, "hearsay_gossip_rounds_total", "Rounds of digests sent."},
        {&m->relays, "hearsay_gossip_relays_total", "Digests of others passed on."},
        {&m->pulls, "hearsay_gossip_pulls_total", "Deltas or manifests asked for."},
        {&m->manifests, "hearsay_gossip_manifests_total", "Tables of page checksums sent."},
        {&m->pages, "hearsay_gossip_pages_total", "Digest pages sent."},
        {&m->reads, "hearsay_digest_reads_total", "One-sided reads of peers' digests that have ended."},
        {&m->read_bytes, "hearsay_digest_read_bytes_total", "Bytes that they brought."},
        {&m->read_failures, "hearsay_digest_read_failures_total", "Times that such reads failed or did not help: messages take over for a while."},
        {&m->rejected, "hearsay_gossip_rejected_total", "Cluster messages that were malformed or of another version."},
    };
    bool ok = true;
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        *counters[i].counter = metrics_counter(c->metrics, counters[i].name, "", counters[i].help);
        ok &= *counters[i].counter != NULL;
    }
    m->advertised = metrics_gauge(c->metrics, "hearsay_advertised_blocks", "", "Blocks that this node advertises.", 1);
    m->replica_age =
        metrics_gauge(c->metrics, "hearsay_replica_age_seconds", "", "Age of the oldest replica of a live peer.", 1000000);
    m->unadvertised = metrics_gauge(c->metrics, "hearsay_unadvertised_blocks", "", "Cached blocks that peers are not told of.", 1);
    return ok && m->advertised && m->unadvertised && m->replica_age && register_members(c) && register_router(c) && register_limits(c);
}

void cluster_metrics_member(struct cluster *c, struct member *m)
{
    char labels[METRICS_LABEL_BYTES];
    metrics_label(labels, "peer", member_who(m));
    struct gauge *earlier = m->replica_gauge; /* of another name, or of the same: then it keeps its value */
    m->replica_gauge = metrics_gauge(c->metrics, "hearsay_replica_blocks", labels, "Blocks known of each peer.", 1);
    metrics_release_gauge(c->metrics, earlier);
}

static void update_limits(struct cluster *c, uint64_t now_ns)
{
    struct limit **limits = c->count.limits;
    uint32_t n_intents = 0, largest = 0;
    for (int i = 0; i < INTENTS_MAX; i++)
        n_intents += c->books.intents[i].id && c->books.intents[i].expires_ns > now_ns;
    for (uint32_t i = 0; i < c->n_members; i++) {
        uint32_t blocks = replica_blocks(&c->members[i]->replica);
        largest = blocks > largest ? blocks : largest;
    }
    limit_use(limits[CLUSTER_LIMIT_MEMBERS], c->n_members);
    limit_use(limits[CLUSTER_LIMIT_ADVERTISED], block_set_len(advert_set(c->advert)));
    limit_set_hits(limits[CLUSTER_LIMIT_ADVERTISED], advert_displaced(c->advert));
    limit_use(limits[CLUSTER_LIMIT_REPLICAS], c->budget.blocks);
    limit_set_hits(limits[CLUSTER_LIMIT_REPLICAS], c->budget.left_out);
    limit_use(limits[CLUSTER_LIMIT_REPLICA_OF_ONE], largest);
    limit_set_hits(limits[CLUSTER_LIMIT_REPLICA_OF_ONE], c->budget.left_out_of_one);
    limit_use(limits[CLUSTER_LIMIT_BOOKINGS], c->books.n_bookings);
    limit_use(limits[CLUSTER_LIMIT_INTENTS], n_intents);
}

void cluster_metrics_update(struct cluster *c, uint64_t now_ns)
{
    int64_t by_state[5] = {0};
    uint64_t oldest_ns = 0;
    for (uint32_t i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        by_state[m->state]++;
        if (m->state == CLUSTER_PEER_ALIVE && m->replica_ns && now_ns - m->replica_ns > oldest_ns)
            oldest_ns = now_ns - m->replica_ns;
    }
    for (int i = 0; i < 5; i++)
        gauge_set(c->count.states[i], by_state[i]);
    gauge_set(c->count.health, c->local_health);
    gauge_set(c->count.advertised, block_set_len(advert_set(c->advert)));
    gauge_set(c->count.replica_age, (int64_t)(oldest_ns / 1000));
    gauge_set(c->count.unadvertised, advert_waiting(c->advert));
    update_limits(c, now_ns);
}
