/*
 * Defaults for what a transport does not have, so that every slot of its table can be filled. All return HS_ERR_UNSUPPORTED.
 */
#ifndef HEARSAY_NET_UNSUPPORTED_H
#define HEARSAY_NET_UNSUPPORTED_H

#include "core/port/transport.h"

int unsupported_register_memory(struct transport *transport, void *base, size_t len);
int unsupported_publish(struct transport *transport, uint32_t region, const void *base, size_t len);
int unsupported_read(struct transport *transport, uint32_t peer, uint32_t region, uint64_t offset, void *dst, uint32_t len,
                     uint64_t cookie);

#endif
