/*
 * Tenants' weights are each node's own, as a node shares out what it computes itself. But a request may be computed by any node, so a group
 * whose nodes disagree treats a tenant now this way, now that: everyone tells its weights with its first hello, and who has others says so.
 */
#include <string.h>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/cluster/internal.h"

int cluster_set_weight(struct cluster *c, const char *tenant, float weight)
{
    struct cluster_weight *at = c->weights;
    while (at < c->weights + c->n_weights && strcmp(at->tenant, tenant) != 0)
        at++;
    if (at == c->weights + CLUSTER_WEIGHTS_MAX || strlen(tenant) >= sizeof at->tenant)
        return HS_ERR_LIMIT;
    c->n_weights += at == c->weights + c->n_weights;
    *at = (struct cluster_weight){.weight = weight};
    memcpy(at->tenant, tenant, strlen(tenant));
    return 0;
}

void weights_tell(struct cluster *c, const struct member *to)
{
    uint8_t buffer[16 + CLUSTER_WEIGHTS_MAX * (CLUSTER_TENANT_BYTES + 8)];
    struct writer w;
    writer_init(&w, buffer, sizeof buffer);
    wire_write_weights(&w, c->weights, c->n_weights);
    cluster_send(c, to, &w, 0); /* a transport too busy for it loses a warning, and no more */
}

static const struct cluster_weight *find(const struct cluster_weight *weights, uint32_t n, const char *tenant)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(weights[i].tenant, tenant) == 0)
            return &weights[i];
    return NULL;
}

static float weight_of(const struct cluster_weight *weights, uint32_t n, const char *tenant)
{
    const struct cluster_weight *at = find(weights, n, tenant);
    return at ? at->weight : 1;
}

void weights_on_message(struct cluster *c, struct member *m, struct wire_list told)
{
    struct cluster_weight theirs[CLUSTER_WEIGHTS_MAX];
    const struct cluster_weight *odd = NULL;
    uint32_t n = 0, n_odd = 0;
    while (n < CLUSTER_WEIGHTS_MAX && wire_next_weight(&told, &theirs[n]))
        n++;
    for (uint32_t i = 0; i < c->n_weights + n; i++) {
        bool is_ours = i < c->n_weights;
        const struct cluster_weight *at = is_ours ? &c->weights[i] : &theirs[i - c->n_weights];
        if (!is_ours && find(c->weights, c->n_weights, at->tenant))
            continue; /* seen already */
        bool differs = weight_of(c->weights, c->n_weights, at->tenant) != weight_of(theirs, n, at->tenant);
        odd = differs && !n_odd ? at : odd;
        n_odd += differs;
    }
    if (!n_odd || m->weights_logged)
        return;
    m->weights_logged = true;
    log_warn("cluster", "peer %s gives tenant \"%s\" the weight %g, we %g (%u such tenants): its share depends on who computes; start all with one --tenant-weight",
             member_who(m), odd->tenant, (double)weight_of(theirs, n, odd->tenant), (double)weight_of(c->weights, c->n_weights, odd->tenant), n_odd);
}
