/*
 * Everything that makes up a running node, put together from options and taken apart in reverse order.
 *
 * Threading: all from the main thread. Errors: one line in err; a failed open leaves nothing behind.
 */
#ifndef HEARSAY_TOOLS_RUNNING_NODE_H
#define HEARSAY_TOOLS_RUNNING_NODE_H

#include <stdint.h>

#include "core/base/error.h"
#include "tools/hearsay/node_options.h"

struct running_node;

/* Loads the model, allocates the KV pool, opens both ports. Nobody is answered yet. */
int running_node_open(const struct node_options *options, struct running_node **out, struct error *err);
/* Starts the loop and logs the line that says where it serves and what. A failure leaves the node to be closed. */
int running_node_serve(struct running_node *running, struct error *err);
/* Lets running answers finish for at most drain_ns, tells the peers, frees everything. */
void running_node_close(struct running_node *running, uint64_t drain_ns);
/* Prints what would run, for --check. */
void running_node_describe(const struct running_node *running);

#endif
