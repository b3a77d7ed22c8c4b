#include "net/unsupported.h"

#include "core/base/error.h"

int unsupported_register_memory(struct transport *transport, void *base, size_t len)
{
    (void)transport, (void)base, (void)len;
    return HS_ERR_UNSUPPORTED;
}

int unsupported_publish(struct transport *transport, uint32_t region, const void *base, size_t len)
{
    (void)transport, (void)region, (void)base, (void)len;
    return HS_ERR_UNSUPPORTED;
}

int unsupported_read(struct transport *transport, uint32_t peer, uint32_t region, uint64_t offset, void *dst, uint32_t len,
                     uint64_t cookie)
{
    (void)transport, (void)peer, (void)region, (void)offset, (void)dst, (void)len, (void)cookie;
    return HS_ERR_UNSUPPORTED;
}
