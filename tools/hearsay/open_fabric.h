/*
 * Opens the transport that the options ask for. Threading: at start only. Ownership: the transport is the caller's; env, metrics and the
 * options' strings outlive it. Errors: HS_ERR_* with one line that names the option; HS_ERR_UNSUPPORTED: not on this machine.
 */
#ifndef HEARSAY_TOOLS_OPEN_FABRIC_H
#define HEARSAY_TOOLS_OPEN_FABRIC_H

#include "core/base/metrics.h"
#include "core/port/env.h"
#include "core/port/transport.h"
#include "tools/hearsay/node_options.h"

/* group_key: NULL without one. */
int open_fabric(const struct node_options *options, const uint8_t *group_key, const struct env *env, struct metrics *metrics,
                struct transport **out, struct error *err);

#endif
