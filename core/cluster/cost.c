/*
 * Predicted completion of one candidate (design section 6):
 *     delay both ways + wait + uncached tokens / prefill rate + expected output x decode step at the batch it would join.
 * The margin grows with what we cannot know: the link's deviation, and load that others may have sent since the header was made.
 */
#include <math.h>

#include "core/cluster/internal.h"

/* Until somebody has measured: a small model on a few CPU cores. */
static const double prior_prefill_tokens_per_s = 500, prior_decode_step_s = 0.020;
static const double prior_rtt_s = 0.050;
/* A decode step costs as much as this many rows before its first row: reading the weights. From batched decode on CPUs (steps of
 * 12, 24 and 58 ms with 1, 4 and 16 rows), and too pessimistic, thus harmless, where rows are cheaper. */
static const double step_fixed_rows = 3;
static const double margin_floor_s = 0.002, load_half_known_s = 1;
static const double longest_s = 1e6;

static double first_positive(double a, double b, double c)
{
    return a > 0 ? a : b > 0 ? b : c;
}

/* What a peer states may be absurd; sums and casts stay sound. */
static double bounded(double seconds)
{
    return seconds < longest_s ? seconds : longest_s;
}

static double link_delay_s(const struct cluster *c, const struct member *m)
{
    if (m->rtt_s > 0)
        return m->rtt_s;
    struct transport_peer_stats stats;
    if (c->transport->ops->peer_stats(c->transport, m->peer, &stats) == 0 && stats.rtt_ns)
        return (double)stats.rtt_ns / 1e9;
    return prior_rtt_s;
}

/* Load that others may have sent there since the header was made. */
static double unheard_load_s(const struct cluster *c, const struct member *m, double rate, uint64_t now_ns)
{
    double age = (double)(now_ns - m->header_ns) / 1e9 + m->rtt_s / 2;
    double unknown_share = age / (age + load_half_known_s);
    return bounded(unknown_share * c->books.typical_tokens / rate);
}

static void predict_cached(struct cluster *c, struct member *m, const struct route_query *query, uint64_t now_ns,
                           struct candidate *out)
{
    uint32_t page = c->config.page_tokens;
    const struct outlook *outlook = m ? &m->outlook : &c->books.self;
    out->held_blocks = m ? outlook->held_blocks : query->local_cached_tokens / page;
    out->match_blocks = out->held_blocks;
    if (outlook->promised_blocks > out->held_blocks) {
        out->match_blocks = outlook->promised_blocks;
        out->in_progress = outlook->promised_ready_ns > now_ns;
        out->wait_s = out->in_progress ? (double)(outlook->promised_ready_ns - now_ns) / 1e9 : 0;
    }
    /* The last token is always computed: its logits are wanted. */
    uint64_t cached = (uint64_t)out->match_blocks * page;
    uint64_t most = query->n_tokens ? query->n_tokens - 1 : 0;
    out->cached_tokens = (uint32_t)(cached < most ? cached : most);
}

double cost_prefill_rate(const struct cluster *c, const struct member *m)
{
    const struct cluster_load *load = m ? &m->header.load : &c->load;
    return first_positive(load->prefill_tokens_per_s, c->books.group_prefill_tokens_per_s, prior_prefill_tokens_per_s);
}

void cost_predict(struct cluster *c, struct member *m, const struct route_query *query, uint64_t now_ns, struct candidate *out)
{
    *out = (struct candidate){.member = m};
    predict_cached(c, m, query, now_ns, out);
    const struct cluster_load *load = m ? &m->header.load : &c->load;
    const struct outlook *outlook = m ? &m->outlook : &c->books.self;
    double rate = cost_prefill_rate(c, m);
    double step = first_positive(load->decode_step_s, c->books.group_decode_step_s, prior_decode_step_s);

    double queue_s = ((double)load->prefill_tokens + (double)outlook->unseen_tokens) / rate;
    uint32_t uncached = query->n_tokens - out->cached_tokens;
    bool short_of_pages = load->total_pages && (uint64_t)load->free_pages * c->config.page_tokens < uncached;
    if (short_of_pages && load->running)
        queue_s += (double)load->decode_tokens / load->running * step; /* until one of them is done */
    if (queue_s > out->wait_s)
        out->wait_s = bounded(queue_s);

    double measured_rows = load->running ? load->running : 1;
    double rows = (double)load->running + load->waiting + outlook->unseen_requests + 1;
    double joined_step = step * (step_fixed_rows + rows) / (step_fixed_rows + measured_rows);
    out->prefill_s = bounded(uncached / rate);
    out->full_prefill_s = bounded(query->n_tokens / rate);
    out->decode_s = bounded(query->expected_output_tokens * joined_step);
    out->idle = !load->running && !load->waiting && !outlook->unseen_requests && !load->prefill_tokens;
    if (m) {
        out->delay_s = link_delay_s(c, m);
        out->link_s = out->delay_s + margin_floor_s + 4 * m->rtt_deviation_s;
        out->margin_s = out->link_s - out->delay_s + unheard_load_s(c, m, rate, now_ns);
    }
    out->total_s = out->delay_s + out->wait_s + out->prefill_s + out->decode_s;
}
