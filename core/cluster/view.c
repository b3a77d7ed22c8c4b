#include <inttypes.h>
#include <string.h>

#include "core/cluster/internal.h"

uint32_t cluster_peers(const struct cluster *c)
{
    return c->n_members;
}

int cluster_peer(const struct cluster *c, uint32_t index, struct cluster_peer_info *out)
{
    if (index >= c->n_members)
        return HS_ERR_NOT_FOUND;
    const struct member *m = c->members[index];
    uint64_t now_ns = env_now_ns(c->env);
    *out = (struct cluster_peer_info){
        .peer = m->peer,
        .state = m->state,
        .routable = member_is_routable(c, m),
        .load = m->header.load,
        .load_age_ns = m->has_header ? now_ns - m->header_ns : 0,
        .rtt_ns = (uint64_t)(m->rtt_s * 1e9),
        .rtt_variance_ns = (uint64_t)(m->rtt_deviation_s * 1e9),
        .replica_blocks = replica_blocks(&m->replica),
        .replica_sequence = m->replica.sequence,
        .replica_age_ns = m->replica_ns ? now_ns - m->replica_ns : 0,
        .in_flight = m->in_flight,
    };
    memcpy(out->name, m->name, sizeof out->name);
    memcpy(out->address, m->address, sizeof out->address);
    memcpy(out->http_address, m->http_address, sizeof out->http_address);
    memcpy(out->arithmetic, m->header.arithmetic, sizeof out->arithmetic);
    return 0;
}

bool cluster_all_full(const struct cluster *c)
{
    for (uint32_t i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        if (member_is_routable(c, m) && !m->header.load.push_back && !m->header.load.draining)
            return false;
    }
    return true;
}

static void add_text(struct strbuf *out, const char *key, const char *text)
{
    strbuf_printf(out, "\"%s\":", key);
    strbuf_json_string(out, text, strlen(text));
    strbuf_puts(out, ",");
}

static void add_load(struct strbuf *out, const struct cluster_load *load)
{
    strbuf_printf(
        out,
        "\"load\":{\"waiting\":%u,\"running\":%u,\"prefill_tokens\":%" PRIu64 ",\"decode_tokens\":%" PRIu64
        ",\"prefill_tokens_per_s\":%.6g,\"decode_step_s\":%.6g,\"free_pages\":%u,\"total_pages\":%u,\"draft_capacity\":%u,"
        "\"push_back\":%s,\"draining\":%s}",
        load->waiting, load->running, load->prefill_tokens, load->decode_tokens, (double)load->prefill_tokens_per_s,
        (double)load->decode_step_s, load->free_pages, load->total_pages, load->draft_capacity, load->push_back ? "true" : "false",
        load->draining ? "true" : "false");
}

static void add_peer(struct strbuf *out, const struct cluster_peer_info *peer, const struct member *m)
{
    strbuf_printf(out, "{\"peer\":%u,", peer->peer);
    add_text(out, "name", peer->name);
    add_text(out, "address", peer->address);
    add_text(out, "http_address", peer->http_address);
    add_text(out, "state", cluster_state_name(peer->state));
    add_text(out, "arithmetic", peer->arithmetic);
    strbuf_printf(out,
                  "\"routable\":%s,\"connected\":%s,\"compatible\":%s,\"incarnation\":%u,\"epoch\":\"%016" PRIx64 ":%u\","
                  "\"rtt_us\":%.3f,\"rtt_deviation_us\":%.3f,\"load_age_ms\":%.3f,\"in_flight\":%u,"
                  "\"replica\":{\"blocks\":%u,\"sequence\":%" PRIu64 ",\"age_ms\":%.3f},",
                  peer->routable ? "true" : "false", m->up ? "true" : "false", m->compatible ? "true" : "false", m->incarnation,
                  m->replica.epoch.boot_id, m->replica.epoch.counter, (double)peer->rtt_ns / 1e3,
                  (double)peer->rtt_variance_ns / 1e3, (double)peer->load_age_ns / 1e6, peer->in_flight, peer->replica_blocks,
                  peer->replica_sequence, (double)peer->replica_age_ns / 1e6);
    add_load(out, &peer->load);
    strbuf_puts(out, "}");
}

static const char *mode_name(enum route_mode mode)
{
    return mode == ROUTE_COST ? "cost" : mode == ROUTE_LONGEST ? "longest" : "none";
}

static void add_self(const struct cluster *c, struct strbuf *out)
{
    struct cluster_load load = c->load;
    load.push_back = c->push_back;
    strbuf_puts(out, "\"self\":{");
    add_text(out, "name", c->config.name);
    add_text(out, "address", c->info.local);
    add_text(out, "http_address", c->config.http_address);
    add_text(out, "arithmetic", c->config.arithmetic);
    add_text(out, "fabric", c->info.name);
    add_text(out, "route", mode_name(c->config.mode));
    strbuf_printf(out, "\"page_tokens\":%u,\"epoch\":\"%016" PRIx64 ":%u\",\"sequence\":%" PRIu64 ",\"advertised_blocks\":%u,",
                  c->config.page_tokens, c->info.boot_id, c->epoch_counter, advert_sequence(c->advert),
                  block_set_len(advert_set(c->advert)));
    strbuf_printf(out, "\"incarnation\":%u,\"local_health\":%u,\"left\":%s,", c->incarnation, c->local_health,
                  c->left ? "true" : "false");
    add_load(out, &load);
    strbuf_puts(out, "}");
}

void cluster_json(const struct cluster *c, struct strbuf *out)
{
    strbuf_puts(out, "{");
    add_self(c, out);
    strbuf_puts(out, ",\"peers\":[");
    for (uint32_t i = 0; i < c->n_members; i++) {
        struct cluster_peer_info peer;
        cluster_peer(c, i, &peer);
        if (i)
            strbuf_puts(out, ",");
        add_peer(out, &peer, c->members[i]);
    }
    strbuf_puts(out, "]}");
}
