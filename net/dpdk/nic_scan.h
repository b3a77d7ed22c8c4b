/*
 * Why DPDK sees no network card: looks at the PCI bus as the kernel shows it. Reads files under the given root ("/sys" in production), so
 * tests give it a tree of their own.
 */
#ifndef HEARSAY_NET_DPDK_NIC_SCAN_H
#define HEARSAY_NET_DPDK_NIC_SCAN_H

#include <stddef.h>

/* One sentence about the network cards that are there and what to do, or "" when there are none. */
void nic_scan(const char *sys_root, char *text, size_t size);

#endif
