/*
 * Defaults for what a transport does not have, so that every slot of its table can be filled. All return HS_ERR_UNSUPPORTED.
 */
#ifndef HEARSAY_NET_UNSUPPORTED_H
#define HEARSAY_NET_UNSUPPORTED_H

#include "core/port/transport.h"

int unsupported_publish(struct transport *transport, uint32_t region, uint32_t n_pages, uint32_t page_bytes);
int unsupported_write_page(struct transport *transport, uint32_t region, uint32_t page, const void *data, uint32_t len);
int unsupported_read_page(struct transport *transport, uint32_t peer, uint32_t region, uint32_t page, uint32_t expected, uint64_t cookie);

#endif
