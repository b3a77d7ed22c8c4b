/*
 * --device of the DPDK fabric: which ports, and what the IPv4 network looks like.
 *
 *     [PORT,...][,mtu=N][,queues=N][,prefix=N,gateway=A.B.C.D]
 *
 * PORT is a name as DPDK has it: that of a virtual device ("net_memif0") or a PCI address ("0000:01:00.0"). Pure; errors: HS_ERR_PARSE with one line.
 */
#ifndef HEARSAY_NET_DPDK_DEVICE_TEXT_H
#define HEARSAY_NET_DPDK_DEVICE_TEXT_H

#include <stdint.h>

#include "core/base/error.h"

enum { DEVICE_TEXT_PORTS = 32, DEVICE_TEXT_NAME = 64, DEVICE_TEXT_QUEUES = 16, DEVICE_TEXT_LEAST_MTU = 1228, DEVICE_TEXT_MOST_MTU = 60000 };

struct device_text {
    char ports[DEVICE_TEXT_PORTS][DEVICE_TEXT_NAME];
    uint32_t n_ports; /* 0: all there are */
    uint32_t mtu;     /* of IP packets; 0: the ports' own */
    uint32_t queues;  /* 1 when not given */
    uint32_t prefix;  /* 0: every peer is on the segment */
    uint32_t gateway; /* host order; 0: none */
};

/* text NULL: nothing given. */
int device_text_parse(const char *text, struct device_text *out, struct error *err);

#endif
