/*
 * Everything that makes up a running node, put together from options and taken apart in reverse order.
 *
 * Threading: open and close from the main thread. Errors: one line in err; nothing is left behind.
 */
#ifndef HEARSAY_TOOLS_RUNNING_NODE_H
#define HEARSAY_TOOLS_RUNNING_NODE_H

#include <stdint.h>

#include "core/base/error.h"
#include "tools/hearsay/node_options.h"

struct running_node;

/* Loads the model, allocates the KV pool, opens both ports, starts the loop and the HTTP server. */
int running_node_open(const struct node_options *options, struct running_node **out, struct error *err);
/* Logs the line that says where it serves and what; from then on users come. */
void running_node_announce(const struct running_node *running);
/* Lets running answers finish for at most drain_ns, tells the peers, frees everything. */
void running_node_close(struct running_node *running, uint64_t drain_ns);
/* Prints what would run, for --check. */
void running_node_describe(const struct running_node *running);

#endif
