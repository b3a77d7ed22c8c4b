/*
 * DPDK's environment, started once per process and never ended (its devices stay ours until the process ends).
 *
 * Before that the machine is looked at: hugepages, rights, interfaces that the arguments name. What DPDK prints goes to our log at level debug,
 * and its complaints into the error text. A virtual device that cannot be made is an error, while DPDK would start without it. The calling thread
 * keeps its CPUs, which DPDK would cut to one.
 *
 * Threading: one thread, at start. Errors: HS_ERR_UNSUPPORTED when the machine is not up to it, else HS_ERR_PARSE, HS_ERR_INVALID, HS_ERR_IO.
 */
#ifndef HEARSAY_NET_DPDK_EAL_H
#define HEARSAY_NET_DPDK_EAL_H

#include "core/base/error.h"

/* text NULL: no arguments. */
int dpdk_eal_start(const char *text, struct error *err);

#endif
