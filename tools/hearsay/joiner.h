/*
 * Finds the peers named by --join: looks their names up, again and again until each has an address, and hands the addresses to
 * the node. A name may come to life later than we do (containers), and may have several addresses: each is joined.
 *
 * A thread of its own, because looking a name up can block for many seconds. Threading: start and stop from one thread.
 * Ownership: the inbox is used until joiner_stop returns; a look-up still under way then ends by itself, unheard.
 */
#ifndef HEARSAY_TOOLS_JOINER_H
#define HEARSAY_TOOLS_JOINER_H

#include "core/base/error.h"
#include "core/serve/inbox.h"

struct joiner;

/* list: as Slurm writes hosts, default port NODE_FABRIC_PORT; bind: our own ADDR:PORT, whose family the addresses must have. */
int joiner_start(const char *list, const char *bind, struct node_inbox *inbox, struct joiner **out, struct error *err);
void joiner_stop(struct joiner *joiner);

#endif
