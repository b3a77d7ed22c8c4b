#include "net/verbs/control.h"

#include <string.h>

#include "core/base/codec.h"
#include "core/base/error.h"
#include "core/base/panic.h"
#include "core/port/transport.h"

static void write_offer(struct writer *w, const struct control *c)
{
    write_u32(w, c->queue_pair);
    write_u32(w, c->packet_number);
    write_u16(w, c->lid);
    write_u16(w, c->mtu_bytes);
    write_bytes(w, c->gid, sizeof c->gid);
    write_u8(w, c->infiniband);
    write_u8(w, 0); /* reserved */
    write_u16(w, c->credits);
    write_u16(w, c->reads);
    write_u16(w, 0); /* reserved */
    write_u32(w, c->ciphers);
    write_bytes(w, c->secret, sizeof c->secret);
}

static void read_offer(struct reader *r, struct control *c)
{
    c->queue_pair = read_u32(r);
    c->packet_number = read_u32(r);
    c->lid = read_u16(r);
    c->mtu_bytes = read_u16(r);
    read_bytes(r, c->gid, sizeof c->gid);
    uint8_t infiniband = read_u8(r);
    read_u8(r);
    c->infiniband = infiniband == 1;
    c->credits = read_u16(r);
    c->reads = read_u16(r);
    read_u16(r);
    c->ciphers = read_u32(r);
    read_bytes(r, c->secret, sizeof c->secret);
    if (c->queue_pair > 0xffffff || c->packet_number > 0xffffff || infiniband > 1 || c->credits == 0 || c->mtu_bytes < 256)
        r->failed = true;
}

size_t control_encode(const struct control *c, uint8_t out[CONTROL_MAX_BYTES])
{
    struct writer w;
    writer_init(&w, out, CONTROL_MAX_BYTES);
    write_u8(&w, CONTROL_VERSION);
    write_u8(&w, (uint8_t)c->type);
    write_u8(&w, (uint8_t)c->pair);
    write_u8(&w, c->found);
    write_u32(&w, c->type == CONTROL_QUERY || c->type == CONTROL_REGION ? c->region : c->epoch);
    if (c->type == CONTROL_OFFER) {
        write_offer(&w, c);
    } else if (c->type == CONTROL_REGION) {
        write_u64(&w, c->address);
        write_u32(&w, c->key);
        write_u32(&w, c->n_pages);
        write_u32(&w, c->page_bytes);
        write_u32(&w, c->publication);
    }
    hs_assert(!w.failed);
    return w.len;
}

int control_decode(const uint8_t *data, size_t len, struct control *out)
{
    struct reader r;
    struct control c = {0};
    reader_init(&r, data, len);
    uint8_t version = read_u8(&r), type = read_u8(&r), pair = read_u8(&r), found = read_u8(&r);
    uint32_t number = read_u32(&r);
    if (version != CONTROL_VERSION || type < CONTROL_OFFER || type > CONTROL_REGION || pair >= CONTROL_PAIRS || found > 1)
        return HS_ERR_PROTOCOL;
    c.type = (enum control_type)type;
    c.pair = (enum control_pair)pair;
    c.found = found;
    if (c.type == CONTROL_QUERY || c.type == CONTROL_REGION)
        c.region = number;
    else
        c.epoch = number;
    if (c.type == CONTROL_OFFER) {
        read_offer(&r, &c);
    } else if (c.type == CONTROL_REGION) {
        c.address = read_u64(&r);
        c.key = read_u32(&r);
        c.n_pages = read_u32(&r);
        c.page_bytes = read_u32(&r);
        c.publication = read_u32(&r);
        if (c.n_pages > TRANSPORT_REGION_PAGES || c.page_bytes > TRANSPORT_PAGE_BYTES || (c.found && (c.n_pages == 0 || c.page_bytes == 0)))
            r.failed = true;
    }
    if (r.failed || reader_left(&r) > 0)
        return HS_ERR_PROTOCOL;
    *out = c;
    return 0;
}
