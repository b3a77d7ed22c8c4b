/*
 * Stands between memif servers and those who call them.
 *
 * The driver (DPDK 22.11) accepts a caller, enters its descriptor into EAL's list and greets it. When the caller is gone by then, the driver closes
 * the descriptor and leaves it in the list, and EAL ends the process over it. So nobody reaches the driver but ourselves:
 *
 *     caller --- listener's address, ours now     door in the place of the driver's listener --- driver
 *                      accepted here, not told to EAL ... called from here, greeted
 *
 * Whoever calls is accepted here, and the driver called through a socket of our own, which is there when it greets. The greeting is passed on; if the
 * caller takes it, its descriptor replaces the one that the driver has accepted (dup2), and we are out of the way. If not, ours is closed, and to
 * the driver that is a caller who hung up later, which it knows how to handle.
 *
 * Threading: all of it runs in EAL's interrupt thread. Errors: a caller that cannot be let in is hung up on, and calls again.
 */
#ifndef HEARSAY_NET_DPDK_CALLERS_H
#define HEARSAY_NET_DPDK_CALLERS_H

/* Takes the place of every memif listener of this process; once. */
void dpdk_callers_watch(void);

#endif
