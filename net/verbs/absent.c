/* Stands in for the verbs transport where the program was built without libibverbs. */
#include "net/verbs/ud.h"

static int absent(struct error *err)
{
    return error_set(err, HS_ERR_UNSUPPORTED,
                     "this program was built without libibverbs: install libibverbs-dev (rdma-core-devel) and build again, or use "
                     "--fabric sockets");
}

int transport_verbs_create(const struct transport_verbs_config *config, const struct env *env, struct transport **out,
                           struct error *err)
{
    (void)config, (void)env, (void)out;
    return absent(err);
}

int transport_verbs_ud_create(const struct transport_verbs_config *config, const struct env *env, struct transport **out, struct error *err)
{
    (void)config, (void)env, (void)out;
    return absent(err);
}

int verbs_ud_carrier_create(const struct transport_verbs_config *config, const struct env *env, struct carrier **out, struct error *err)
{
    (void)config, (void)env, (void)out;
    return absent(err);
}

void verbs_ud_stats(const struct carrier *carrier, struct verbs_ud_stats *out)
{
    (void)carrier;
    *out = (struct verbs_ud_stats){0};
}

int transport_verbs_stats(const struct transport *transport, struct transport_verbs_stats *out)
{
    (void)transport, (void)out;
    return HS_ERR_UNSUPPORTED;
}
