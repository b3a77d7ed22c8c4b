/*
 * What reaches the datagram fabric over verbs from outside. The first byte says which: even, packets at its queue pair, each a length (1 byte, in units of
 * 2) and as many bytes, header first; odd, what a member has sealed into a word over UDP (bit 1: a TELL).
 */
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "core/base/error.h"
#include "net/verbs/ud_pieces.h"
#include "tests/fuzz/fuzz.h"

enum { ROOM = 1024, PLACES = 4, SEALED_AT = 32, SEALED_BYTES = 152 };

static uint32_t n_held;

static void release(void *buffer)
{
    n_held--;
    free(buffer);
}

static void take_packets(struct reader *in)
{
    struct ud_assemblies table = {.cap = PLACES, .release = release};
    n_held = 0;
    for (uint64_t now_ns = 1; reader_left(in) > 0; now_ns++) {
        size_t len = (size_t)read_u8(in) * 2;
        len = len < reader_left(in) ? len : reader_left(in);
        uint8_t *packet = fuzz_copy(read_view(in, len), len), *buffer = NULL, *whole = NULL;
        struct carrier_address source;
        struct ud_piece piece;
        uint32_t whole_len = 0;
        if (ud_header_read(packet, len, &source, &piece) == 0 && piece.size != 0) {
            uint32_t content = (uint32_t)(len - UD_HEADER_BYTES);
            buffer = malloc(ROOM);
            hs_assert(buffer != NULL);
            memcpy(buffer, packet + UD_HEADER_BYTES, content);
            n_held++;
            buffer = ud_assemble(&table, &source, &piece, buffer, buffer, content, ROOM, now_ns, &whole, &whole_len);
        }
        free(packet);
        if (buffer != NULL) { /* two pieces at least, all of them here */
            hs_assert(whole == buffer && whole_len > piece.size && whole_len <= ROOM);
            release(buffer);
        }
        hs_assert(n_held == table.n && table.n <= PLACES);
        if (now_ns % 8 == 0)
            ud_assemblies_expire(&table, now_ns - 4);
    }
    ud_assemblies_expire(&table, UINT64_MAX);
    hs_assert(n_held == 0 && table.n == 0);
}

/* Seals the bytes as a member would, and what is understood of them comes out again the same. */
static void take_word(uint8_t kind, struct reader *in)
{
    static const uint64_t random[3] = {1, 2, 3};
    uint8_t key[UD_KEY_BYTES] = {7}, content[SEALED_BYTES] = {0}, data[UD_WORD_BYTES], again[UD_WORD_BYTES], twice[UD_WORD_BYTES];
    struct ud_word frame = {.type = UD_ASK, .asker = {.bytes = {1, 1}, .len = 6}}, word, back;
    size_t len = reader_left(in) < sizeof content ? reader_left(in) : sizeof content;
    read_bytes(in, content, len);
    ud_word_encode(&frame, key, random, data);
    data[3] = kind & 2 ? UD_TELL : UD_ASK;
    crypto_aead_xchacha20poly1305_ietf_encrypt(data + SEALED_AT, NULL, content, sizeof content, data, 8, NULL, data + 8, key);
    if (ud_word_decode(data, sizeof data, key, &word) != 0)
        return;
    ud_word_encode(&word, key, random, again);
    hs_assert(ud_word_decode(again, sizeof again, key, &back) == 0);
    ud_word_encode(&back, key, random, twice);
    hs_assert(memcmp(again, twice, sizeof again) == 0);
}

int fuzz_pieces(const uint8_t *data, size_t len)
{
    struct reader in;
    reader_init(&in, data, len);
    uint8_t kind = read_u8(&in);
    if (kind % 2 == 0)
        take_packets(&in);
    else
        take_word(kind, &in);
    return 0;
}
