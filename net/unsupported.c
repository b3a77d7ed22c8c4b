#include "net/unsupported.h"

#include "core/base/error.h"

int unsupported_publish(struct transport *transport, uint32_t region, uint32_t n_pages, uint32_t page_bytes)
{
    (void)transport, (void)region, (void)n_pages, (void)page_bytes;
    return HS_ERR_UNSUPPORTED;
}

int unsupported_write_page(struct transport *transport, uint32_t region, uint32_t page, const void *data, uint32_t len)
{
    (void)transport, (void)region, (void)page, (void)data, (void)len;
    return HS_ERR_UNSUPPORTED;
}

int unsupported_read_page(struct transport *transport, uint32_t peer, uint32_t region, uint32_t page, uint32_t expected, uint64_t cookie)
{
    (void)transport, (void)peer, (void)region, (void)page, (void)expected, (void)cookie;
    return HS_ERR_UNSUPPORTED;
}
