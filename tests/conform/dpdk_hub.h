/*
 * An Ethernet switch in this process for the endpoints of the DPDK fabric: each has one end of a pair of memif ports, the hub has the others.
 *
 *     endpoint i -- net_memif<i> ==shared memory== net_memif<50 + i> -- hub (learns MACs, floods the rest)
 *
 * It can lose, double and hold back frames, from a seed. Threading: one thread. Where the program was built without DPDK, dpdk_hub_start says so.
 */
#ifndef HEARSAY_CONFORM_DPDK_HUB_H
#define HEARSAY_CONFORM_DPDK_HUB_H

#include <stdint.h>

#include "core/base/error.h"

enum { DPDK_HUB_PORTS = 8 };

/* EAL arguments with all the ports; the same text at every call, as the carrier needs it. */
const char *dpdk_hub_eal(void);
/* Starts DPDK and the hub, once per process; later calls change only the trouble. trouble: share of frames that are lost, doubled, held back
 * each. HS_ERR_UNSUPPORTED: not possible here. */
int dpdk_hub_start(double trouble, uint64_t seed, struct error *err);
/* Moves what has arrived. */
void dpdk_hub_step(void);
/* Frames moved since the start. */
uint64_t dpdk_hub_frames(void);

#endif
