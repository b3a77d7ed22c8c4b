/*
 * Sealing: an authenticated key exchange and sealed packets, independent of what carries them.
 *
 * The exchange is Noise_NNpsk0_25519_ChaChaPoly_SHA256 (Noise Protocol Framework, revision 34): two messages, fresh X25519
 * keys on both sides, the group key mixed in first, every byte bound into the transcript. Whoever lacks the group key can
 * neither make nor read a message; whoever records traffic and learns the group key later still cannot read it.
 *
 *     initiator                      responder
 *     write  --- e, {payload} --->   read
 *     read   <-- e, {payload} ----   write
 *     finish                         finish         -> one chain secret per direction
 *
 * A seal_session then seals packets both ways: AEAD (AES-256-GCM, by what seal_gcm.h tells; or ChaCha20-Poly1305 through libsodium;
 * RFC 5116, RFC 8439) with the packet's 64-bit counter as nonce and a header as associated data. The sender moves to a new key by
 * count or time ("generation", a one-way ratchet over BLAKE2b); the receiver follows, keeps the key before for a short overlap, and
 * refuses every counter that it has seen or that has left its window.
 *
 * Threading: a handshake or session belongs to one thread. Ownership: caller-owned structs; fini wipes secrets. Errors:
 * HS_ERR_AUTH for anything that does not authenticate, HS_ERR_LIMIT for lengths, HS_ERR_NO_MEMORY.
 */
#ifndef HEARSAY_NET_SEAL_H
#define HEARSAY_NET_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/port/env.h"

enum { SEAL_KEY_BYTES = 32, SEAL_TAG_BYTES = 16 };
/* A handshake message is so much longer than its payload. */
enum { SEAL_HANDSHAKE_OVERHEAD = 48 };
/* Packets older than the newest by this many are refused. */
enum { SEAL_REPLAY_WINDOW = 8192 };

/* Numbers on the wire. NONE seals nothing and shows what sealing costs: for benchmarks whose both ends ask for it outright. */
enum seal_cipher { SEAL_CIPHER_AES_256_GCM = 1, SEAL_CIPHER_CHACHA20_POLY1305 = 2, SEAL_CIPHER_NONE = 3 };

const char *seal_cipher_name(enum seal_cipher cipher);
/* The library that seals with it in this build. */
const char *seal_cipher_library(enum seal_cipher cipher);
/* Mask of 1 << cipher of what this machine does well: both with AES instructions, else ChaCha20-Poly1305 alone; never NONE. */
uint32_t seal_ciphers_available(void);
/* The one to use among both sides' masks; 0 when they share none. */
enum seal_cipher seal_cipher_choose(uint32_t ours, uint32_t theirs);

struct seal_gcm;

struct seal_handshake {
    uint8_t chaining_key[32], hash[32], cipher_key[32], psk[SEAL_KEY_BYTES];
    uint8_t secret[32], public_key[32], remote_public_key[32];
    uint64_t nonce;
    bool initiator, has_key;
};

/* prologue: bytes both sides must agree on (protocol name and version). */
void seal_handshake_init(struct seal_handshake *handshake, bool initiator, const uint8_t psk[SEAL_KEY_BYTES], const void *prologue,
                         size_t prologue_len);
/* As write, with a given ephemeral secret: for test vectors. */
int seal_handshake_write_with(struct seal_handshake *handshake, const uint8_t secret[32], const void *payload, size_t len,
                              uint8_t *out, size_t cap, size_t *out_len);
/* Makes this side's message; the key comes from env's random numbers. 0, or HS_ERR_LIMIT when it does not fit, HS_ERR_AUTH for a
 * degenerate remote key. */
int seal_handshake_write(struct seal_handshake *handshake, const struct env *env, const void *payload, size_t len, uint8_t *out,
                         size_t cap, size_t *out_len);
/* Reads the other side's. After a failure of the initiator's read the handshake is as before and another message may be tried. */
int seal_handshake_read(struct seal_handshake *handshake, const uint8_t *message, size_t len, uint8_t *payload, size_t cap,
                        size_t *payload_len);
/* Secrets of the two directions, after both messages. */
void seal_handshake_finish(const struct seal_handshake *handshake, uint8_t send_secret[SEAL_KEY_BYTES],
                           uint8_t receive_secret[SEAL_KEY_BYTES]);
void seal_handshake_fini(struct seal_handshake *handshake);

/* One key of one direction. */
struct seal_key {
    enum seal_cipher cipher;
    struct seal_gcm *gcm; /* AES-256-GCM: key schedules, reused for every packet */
    uint8_t key[SEAL_KEY_BYTES];
};

int seal_key_init(struct seal_key *key, enum seal_cipher cipher, const uint8_t bytes[SEAL_KEY_BYTES], bool encrypts);
void seal_key_fini(struct seal_key *key);
/* out[len + SEAL_TAG_BYTES]; may be in place. */
int seal_encrypt(struct seal_key *key, uint64_t nonce, const void *aad, size_t aad_len, const uint8_t *plain, size_t len,
                 uint8_t *out);
/* len includes the tag; out[len - SEAL_TAG_BYTES]; may be in place; HS_ERR_AUTH leaves zeros in out. */
int seal_decrypt(struct seal_key *key, uint64_t nonce, const void *aad, size_t aad_len, const uint8_t *sealed, size_t len,
                 uint8_t *out);

/* Counters seen: the newest and a bitmap of those just below it (RFC 6479's scheme). Zero-initialise to start. */
struct replay_window {
    uint64_t next; /* newest + 1; 0: none yet */
    uint64_t bits[SEAL_REPLAY_WINDOW / 64];
};

/* Whether counter is new: to be asked before decrypting ... */
bool replay_window_fresh(const struct replay_window *window, uint64_t counter);
/* ... and to be told after it authenticated. */
void replay_window_accept(struct replay_window *window, uint64_t counter);

struct seal_session {
    enum seal_cipher cipher;
    struct seal_key send, receive, receive_previous, receive_next;
    uint8_t send_secret[SEAL_KEY_BYTES], receive_secret[SEAL_KEY_BYTES], receive_next_secret[SEAL_KEY_BYTES];
    uint8_t send_generation, receive_generation; /* modulo 256, on the wire */
    bool has_previous, has_next, send_confirmed;
    uint64_t send_key_first; /* counter of the first packet under the sending key */
    uint64_t send_counter, send_key_packets, send_key_since_ns, previous_until_ns;
    uint64_t rekey_packets, rekey_ns;
    struct replay_window window;
};

enum { SEAL_OVERLAP_MS = 10000 }; /* the receiving key before the current one is kept so long */

int seal_session_init(struct seal_session *session, enum seal_cipher cipher, const uint8_t send_secret[SEAL_KEY_BYTES],
                      const uint8_t receive_secret[SEAL_KEY_BYTES], uint64_t rekey_packets, uint64_t rekey_ns, uint64_t now_ns);
void seal_session_fini(struct seal_session *session);
/* The peer is known to have opened the packet with this counter. A sending key is only replaced once the peer has it. */
void seal_session_confirm(struct seal_session *session, uint64_t counter);
/* Whether the sending key ought to be replaced and only waits for such a confirmation. */
bool seal_session_wants_confirmation(const struct seal_session *session, uint64_t now_ns);
/* Counter and generation of the next packet to seal, which the caller puts into its header; moves to a new key when due. */
int seal_session_next(struct seal_session *session, uint64_t now_ns, uint64_t *counter, uint8_t *generation);
/* Seals with what seal_session_next gave last. out[len + SEAL_TAG_BYTES]. */
int seal_session_seal(struct seal_session *session, const void *header, size_t header_len, const uint8_t *plain, size_t len,
                      uint8_t *out);
/* Opens a packet with the counter and generation from its header. HS_ERR_AUTH: forged, HS_ERR_CANCELED: replayed or too old. */
int seal_session_open(struct seal_session *session, uint64_t now_ns, uint64_t counter, uint8_t generation, const void *header,
                      size_t header_len, const uint8_t *sealed, size_t len, uint8_t *out);

#endif
