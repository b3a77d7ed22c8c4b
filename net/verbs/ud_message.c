#include "net/verbs/ud_message.h"

#include <sodium.h>
#include <string.h>

#include "core/base/codec.h"
#include "core/base/error.h"
#include "core/base/panic.h"

enum { TAG_BYTES = 16, V4_LEN = 6, V6_LEN = 22 };

static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

void ud_header_write(const struct carrier_address *source, uint8_t out[UD_HEADER_BYTES])
{
    memset(out, 0, UD_HEADER_BYTES);
    out[0] = UD_VERSION;
    memcpy(out + 2, source->bytes, 2);
    if (source->len == V4_LEN) {
        memcpy(out + 8, mapped, sizeof mapped);
        memcpy(out + 20, source->bytes + 2, 4);
    } else {
        memcpy(out + 8, source->bytes + 2, 16);
    }
}

int ud_header_read(const uint8_t *data, size_t len, struct carrier_address *source)
{
    static const uint8_t reserved[4];
    if (len < UD_HEADER_BYTES || data[0] != UD_VERSION || data[1] != 0 || memcmp(data + 4, reserved, 4) != 0 || (data[2] | data[3]) == 0)
        return HS_ERR_PROTOCOL;
    bool v4 = memcmp(data + 8, mapped, sizeof mapped) == 0;
    *source = (struct carrier_address){.len = v4 ? V4_LEN : V6_LEN};
    memcpy(source->bytes, data + 2, 2);
    memcpy(source->bytes + 2, v4 ? data + 20 : data + 8, v4 ? 4 : 16);
    return 0;
}

void ud_word_key(const uint8_t *group_key, uint8_t out[UD_KEY_BYTES])
{
    static const char label[] = "hearsay verbs datagrams 1";
    crypto_generichash_blake2b(out, UD_KEY_BYTES, (const uint8_t *)label, sizeof label - 1, group_key, group_key ? UD_KEY_BYTES : 0);
}

static void tag_of(const uint8_t *data, const uint8_t key[UD_KEY_BYTES], uint8_t out[TAG_BYTES])
{
    crypto_generichash_blake2b(out, TAG_BYTES, data, UD_WORD_BYTES - TAG_BYTES, key, UD_KEY_BYTES);
}

static void write_port(struct writer *w, const struct ud_port *port)
{
    write_bytes(w, port->gid, sizeof port->gid);
    write_u32(w, port->queue_pair);
    write_u32(w, port->queue_key);
    write_u16(w, port->lid);
    write_u16(w, port->mtu_bytes);
    write_u8(w, port->infiniband);
    write_bytes(w, (const uint8_t[3]){0}, 3);
}

static void read_port(struct reader *r, struct ud_port *port)
{
    uint8_t reserved[3];
    read_bytes(r, port->gid, sizeof port->gid);
    port->queue_pair = read_u32(r);
    port->queue_key = read_u32(r);
    port->lid = read_u16(r);
    port->mtu_bytes = read_u16(r);
    uint8_t infiniband = read_u8(r);
    port->infiniband = infiniband == 1;
    read_bytes(r, reserved, sizeof reserved);
    if (infiniband > 1 || port->queue_pair > 0xffffff || port->mtu_bytes < 256)
        r->failed = true;
}

void ud_word_encode(const struct ud_word *word, const uint8_t key[UD_KEY_BYTES], uint8_t out[UD_WORD_BYTES])
{
    struct writer w;
    memset(out, 0, UD_WORD_BYTES);
    writer_init(&w, out, UD_WORD_BYTES - TAG_BYTES);
    write_bytes(&w, "HU", 2);
    write_u8(&w, UD_VERSION);
    write_u8(&w, (uint8_t)word->type);
    write_u8(&w, (uint8_t)word->n_ports);
    write_bytes(&w, (const uint8_t[3]){0}, 3);
    write_bytes(&w, word->nonce, sizeof word->nonce);
    for (uint32_t i = 0; i < word->n_ports; i++)
        write_port(&w, &word->ports[i]);
    hs_assert(!w.failed);
    tag_of(out, key, out + UD_WORD_BYTES - TAG_BYTES);
}

int ud_word_decode(const uint8_t *data, size_t len, const uint8_t key[UD_KEY_BYTES], struct ud_word *out)
{
    struct reader r;
    struct ud_word word = {.n_ports = 0};
    uint8_t magic[2], reserved[3], tag[TAG_BYTES];
    if (len != UD_WORD_BYTES)
        return HS_ERR_PROTOCOL;
    reader_init(&r, data, len - TAG_BYTES);
    read_bytes(&r, magic, sizeof magic);
    uint8_t version = read_u8(&r), type = read_u8(&r);
    word.n_ports = read_u8(&r);
    read_bytes(&r, reserved, sizeof reserved);
    read_bytes(&r, word.nonce, sizeof word.nonce);
    if (memcmp(magic, "HU", 2) != 0 || version != UD_VERSION || (type != UD_ASK && type != UD_TELL) || word.n_ports > UD_MAX_PORTS ||
        (type == UD_TELL) != (word.n_ports > 0))
        return HS_ERR_PROTOCOL;
    tag_of(data, key, tag);
    if (sodium_memcmp(tag, data + len - TAG_BYTES, TAG_BYTES) != 0)
        return HS_ERR_AUTH;
    word.type = (enum ud_word_type)type;
    for (uint32_t i = 0; i < word.n_ports; i++)
        read_port(&r, &word.ports[i]);
    if (r.failed)
        return HS_ERR_PROTOCOL;
    *out = word;
    return 0;
}
