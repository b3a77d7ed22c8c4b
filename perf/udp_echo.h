/* A bare UDP round trip on loopback between two threads that sleep until a datagram comes: what the sockets alone cost. */
#ifndef HEARSAY_PERF_UDP_ECHO_H
#define HEARSAY_PERF_UDP_ECHO_H

#include <stdint.h>

#include "core/base/error.h"
#include "perf/samples.h"

/* n round trips of `bytes` each, with a pause before each, in microseconds. */
int udp_echo_measure(uint32_t n, uint32_t bytes, uint64_t pause_ns, struct samples *round_trips_us, struct error *err);

#endif
