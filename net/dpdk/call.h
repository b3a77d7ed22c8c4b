/*
 * Starts a port in a thread of its own: a memif client calls its server then, and the driver waits for as long as the server has too many callers,
 * for ever when it hangs. What waits is interrupted by a signal to that thread alone, upon which the driver gives the call up by itself.
 *
 * Threading: one thread begins, asks and ends; the port must not be used in between. Ownership: dpdk_call_end takes the call.
 */
#ifndef HEARSAY_NET_DPDK_CALL_H
#define HEARSAY_NET_DPDK_CALL_H

#include <stdbool.h>
#include <stdint.h>

struct dpdk_call;

enum dpdk_call_state { DPDK_CALL_UNDER_WAY, DPDK_CALL_TAKEN, DPDK_CALL_REFUSED };

/* NULL: no thread or no memory just now. */
struct dpdk_call *dpdk_call_begin(uint16_t port);
enum dpdk_call_state dpdk_call_ask(const struct dpdk_call *call);
/* One that is still under way after patience_ms is interrupted. Says what became of it; UNDER_WAY: it cannot even be interrupted, and is left to itself,
 * and its port with it. */
enum dpdk_call_state dpdk_call_end(struct dpdk_call *call, uint32_t patience_ms);

#endif
