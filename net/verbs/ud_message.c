#include "net/verbs/ud_message.h"

#include <sodium.h>
#include <string.h>

#include "core/base/codec.h"
#include "core/base/error.h"
#include "core/base/panic.h"

enum { V4_LEN = 6, V6_LEN = 22, LAST = 0x80 };
enum { CLEAR_BYTES = 8, SEALED_BYTES = 152, SEAL_NONCE = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES, TAG_BYTES = crypto_aead_xchacha20poly1305_ietf_ABYTES };
_Static_assert(CLEAR_BYTES + SEAL_NONCE + SEALED_BYTES + TAG_BYTES == UD_WORD_BYTES, "as docs/protocol-verbs.md says");
_Static_assert(crypto_aead_xchacha20poly1305_ietf_KEYBYTES == UD_KEY_BYTES, "");

static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

/* ---- headers ---- */

static void write_address(const struct carrier_address *address, uint8_t port[2], uint8_t ip[16])
{
    memcpy(port, address->bytes, 2);
    memset(ip, 0, 16);
    memcpy(ip, mapped, address->len == V4_LEN ? sizeof mapped : 0);
    memcpy(address->len == V4_LEN ? ip + 12 : ip, address->bytes + 2, address->len == V4_LEN ? 4 : 16);
}

static bool read_address(const uint8_t port[2], const uint8_t ip[16], struct carrier_address *out)
{
    bool v4 = memcmp(ip, mapped, sizeof mapped) == 0;
    *out = (struct carrier_address){.len = v4 ? V4_LEN : V6_LEN};
    memcpy(out->bytes, port, 2);
    memcpy(out->bytes + 2, v4 ? ip + 12 : ip, v4 ? 4 : 16);
    return (port[0] | port[1]) != 0;
}

void ud_header_write(const struct carrier_address *source, uint8_t out[UD_HEADER_BYTES])
{
    memset(out, 0, UD_HEADER_BYTES);
    out[0] = UD_VERSION;
    write_address(source, out + 2, out + 8);
}

void ud_header_cut(uint8_t header[UD_HEADER_BYTES], const struct ud_piece *piece)
{
    header[1] = piece->index | (piece->last ? LAST : 0);
    memcpy(header + 4, &piece->number, 2);
    memcpy(header + 6, &piece->size, 2);
}

int ud_header_read(const uint8_t *data, size_t len, struct carrier_address *source, struct ud_piece *piece)
{
    if (len < UD_HEADER_BYTES || data[0] != UD_VERSION || !read_address(data + 2, data + 8, source))
        return HS_ERR_PROTOCOL;
    *piece = (struct ud_piece){.index = data[1] & ~LAST, .last = (data[1] & LAST) != 0};
    memcpy(&piece->number, data + 4, 2);
    memcpy(&piece->size, data + 6, 2);
    len -= UD_HEADER_BYTES;
    if (piece->size == 0)
        return data[1] == 0 && piece->number == 0 ? 0 : HS_ERR_PROTOCOL;
    bool fits = piece->last ? piece->index > 0 && len > 0 && len <= piece->size : len == piece->size;
    return fits && piece->index < UD_MAX_PIECES ? 0 : HS_ERR_PROTOCOL;
}

/* ---- words ---- */

void ud_word_key(const uint8_t *group_key, uint8_t out[UD_KEY_BYTES])
{
    static const char label[] = "hearsay verbs datagrams 2";
    crypto_generichash_blake2b(out, UD_KEY_BYTES, (const uint8_t *)label, sizeof label - 1, group_key, group_key ? UD_KEY_BYTES : 0);
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

void ud_word_encode(const struct ud_word *word, const uint8_t key[UD_KEY_BYTES], const uint64_t random[3], uint8_t out[UD_WORD_BYTES])
{
    const uint8_t clear[CLEAR_BYTES] = {'H', 'U', UD_VERSION, (uint8_t)word->type};
    uint8_t content[SEALED_BYTES] = {0}, *nonce = out + CLEAR_BYTES;
    struct writer w;
    writer_init(&w, content, sizeof content);
    write_bytes(&w, word->nonce, sizeof word->nonce);
    write_u8(&w, (uint8_t)word->n_ports);
    write_bytes(&w, (const uint8_t[7]){0}, 7);
    if (word->type == UD_ASK) {
        uint8_t port[2], ip[16];
        write_address(&word->asker, port, ip);
        write_bytes(&w, ip, sizeof ip);
        write_bytes(&w, port, sizeof port);
    }
    for (uint32_t i = 0; i < word->n_ports; i++)
        write_port(&w, &word->ports[i]);
    hs_assert(!w.failed);
    memcpy(out, clear, sizeof clear);
    memcpy(nonce, random, SEAL_NONCE);
    crypto_aead_xchacha20poly1305_ietf_encrypt(nonce + SEAL_NONCE, NULL, content, sizeof content, out, CLEAR_BYTES, NULL, nonce, key);
}

/* What was sealed, which only a member can have made. */
static int read_content(const uint8_t content[SEALED_BYTES], struct ud_word *word)
{
    struct reader r;
    uint8_t reserved[7];
    reader_init(&r, content, SEALED_BYTES);
    read_bytes(&r, word->nonce, sizeof word->nonce);
    word->n_ports = read_u8(&r);
    read_bytes(&r, reserved, sizeof reserved);
    if (word->n_ports > UD_MAX_PORTS || (word->type == UD_TELL) != (word->n_ports > 0))
        return HS_ERR_PROTOCOL;
    if (word->type == UD_ASK) {
        uint8_t port[2], ip[16];
        read_bytes(&r, ip, sizeof ip);
        read_bytes(&r, port, sizeof port);
        return read_address(port, ip, &word->asker) ? 0 : HS_ERR_PROTOCOL;
    }
    for (uint32_t i = 0; i < word->n_ports; i++)
        read_port(&r, &word->ports[i]);
    return r.failed ? HS_ERR_PROTOCOL : 0;
}

int ud_word_decode(const uint8_t *data, size_t len, const uint8_t key[UD_KEY_BYTES], struct ud_word *out)
{
    const uint8_t *nonce = data + CLEAR_BYTES, *sealed = nonce + SEAL_NONCE;
    uint8_t content[SEALED_BYTES];
    if (len != UD_WORD_BYTES || memcmp(data, "HU", 2) != 0 || data[2] != UD_VERSION || (data[3] != UD_ASK && data[3] != UD_TELL))
        return HS_ERR_PROTOCOL;
    if (crypto_aead_xchacha20poly1305_ietf_decrypt(content, NULL, NULL, sealed, SEALED_BYTES + TAG_BYTES, data, CLEAR_BYTES, nonce, key) != 0)
        return HS_ERR_AUTH;
    struct ud_word word = {.type = (enum ud_word_type)data[3]};
    int status = read_content(content, &word);
    if (status == 0)
        *out = word;
    return status;
}
