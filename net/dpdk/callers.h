/*
 * Stands between memif servers and those who call them.
 *
 * The driver (DPDK 22.11) accepts a caller, enters its descriptor into EAL's list and greets it. When the caller is gone by then, the driver closes
 * the descriptor and leaves it in the list, and EAL ends the process over it. So nobody reaches the driver but ourselves:
 *
 *     caller --- the socket of --eal, ours: accepted here ... called from here, greeted --- another name, where the driver listens
 *
 * Whoever calls is accepted here, and the driver called through a socket of our own, which is there when it greets. The greeting is passed on; if the
 * caller takes it, its descriptor replaces the one that the driver has accepted (dup2), and we are out of the way. If not, ours is closed, and to
 * the driver that is a caller who hung up later, which it knows how to handle. Callers are let in one by one, and as long as an eighth of the
 * process's descriptors stays free for others.
 *
 * Threading: doors are made and opened by one thread, at start; all else runs in EAL's interrupt thread. Errors: one line; a caller that cannot be
 * let in is hung up on, and calls again.
 */
#ifndef HEARSAY_NET_DPDK_CALLERS_H
#define HEARSAY_NET_DPDK_CALLERS_H

#include <stddef.h>

#include "core/base/error.h"

/* device: the text of a --vdev. Takes the socket's name of a memif server; more: what is to be added to the text, so that the driver listens elsewhere.
 * "": for all other devices. Before EAL is started; nobody is heard before dpdk_callers_open. */
int dpdk_callers_take(const char *device, char *more, size_t size, struct error *err);
/* Lets callers in, as soon as ports are started. Again: nothing. */
int dpdk_callers_open(struct error *err);

#endif
