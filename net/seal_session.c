#include "net/seal.h"

#include <sodium.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/panic.h"

bool replay_window_fresh(const struct replay_window *window, uint64_t counter)
{
    if (counter >= window->next)
        return counter != UINT64_MAX;
    if (window->next - counter > SEAL_REPLAY_WINDOW)
        return false;
    uint64_t bit = counter % SEAL_REPLAY_WINDOW;
    return !(window->bits[bit / 64] >> bit % 64 & 1);
}

void replay_window_accept(struct replay_window *window, uint64_t counter)
{
    if (counter >= window->next) {
        uint64_t gap = counter - window->next;
        if (gap >= SEAL_REPLAY_WINDOW) {
            memset(window->bits, 0, sizeof window->bits);
        } else {
            for (uint64_t skipped = window->next; skipped < counter; skipped++) {
                uint64_t bit = skipped % SEAL_REPLAY_WINDOW;
                window->bits[bit / 64] &= ~(UINT64_C(1) << bit % 64);
            }
        }
        window->next = counter + 1;
    }
    uint64_t bit = counter % SEAL_REPLAY_WINDOW;
    window->bits[bit / 64] |= UINT64_C(1) << bit % 64;
}

static void derive(uint8_t out[SEAL_KEY_BYTES], const uint8_t secret[SEAL_KEY_BYTES], const char *label)
{
    crypto_generichash_blake2b(out, SEAL_KEY_BYTES, (const uint8_t *)label, strlen(label), secret, SEAL_KEY_BYTES);
}

/* The key that a chain secret stands for; the secret itself only makes keys and the next secret. */
static int key_from_secret(struct seal_key *key, enum seal_cipher cipher, const uint8_t secret[SEAL_KEY_BYTES], bool encrypts)
{
    uint8_t bytes[SEAL_KEY_BYTES];
    derive(bytes, secret, "hearsay packet key");
    int status = seal_key_init(key, cipher, bytes, encrypts);
    sodium_memzero(bytes, sizeof bytes);
    return status;
}

int seal_session_init(struct seal_session *session, enum seal_cipher cipher, const uint8_t send_secret[SEAL_KEY_BYTES],
                      const uint8_t receive_secret[SEAL_KEY_BYTES], uint64_t rekey_packets, uint64_t rekey_ns, uint64_t now_ns)
{
    *session =
        (struct seal_session){.cipher = cipher, .rekey_packets = rekey_packets, .rekey_ns = rekey_ns, .send_key_since_ns = now_ns};
    memcpy(session->send_secret, send_secret, SEAL_KEY_BYTES);
    memcpy(session->receive_secret, receive_secret, SEAL_KEY_BYTES);
    int status = key_from_secret(&session->send, cipher, send_secret, true);
    if (status == 0)
        status = key_from_secret(&session->receive, cipher, receive_secret, false);
    if (status != 0)
        seal_session_fini(session);
    return status;
}

void seal_session_fini(struct seal_session *session)
{
    seal_key_fini(&session->send);
    seal_key_fini(&session->receive);
    seal_key_fini(&session->receive_previous);
    seal_key_fini(&session->receive_next);
    sodium_memzero(session, sizeof *session);
}

static int rotate_send_key(struct seal_session *session, uint64_t now_ns)
{
    uint8_t secret[SEAL_KEY_BYTES];
    derive(secret, session->send_secret, "hearsay next secret");
    struct seal_key key;
    int status = key_from_secret(&key, session->cipher, secret, true);
    if (status == 0) {
        seal_key_fini(&session->send);
        session->send = key;
        memcpy(session->send_secret, secret, SEAL_KEY_BYTES);
        session->send_generation++;
        session->send_confirmed = false;
        session->send_key_first = session->send_counter;
        session->send_key_packets = 0;
        session->send_key_since_ns = now_ns;
    }
    sodium_memzero(secret, sizeof secret);
    return status;
}

void seal_session_confirm(struct seal_session *session, uint64_t counter)
{
    if (counter >= session->send_key_first)
        session->send_confirmed = true;
}

static bool rekey_due(const struct seal_session *session, uint64_t now_ns)
{
    return session->send_key_packets >= session->rekey_packets ||
           (now_ns - session->send_key_since_ns >= session->rekey_ns && session->send_key_packets > 0);
}

bool seal_session_wants_confirmation(const struct seal_session *session, uint64_t now_ns)
{
    return !session->send_confirmed && rekey_due(session, now_ns);
}

int seal_session_next(struct seal_session *session, uint64_t now_ns, uint64_t *counter, uint8_t *generation)
{
    if (session->send_confirmed && rekey_due(session, now_ns)) {
        int status = rotate_send_key(session, now_ns);
        if (status != 0)
            return status;
    }
    session->send_key_packets++;
    *counter = session->send_counter++;
    *generation = session->send_generation;
    return 0;
}

int seal_session_seal(struct seal_session *session, const void *header, size_t header_len, const uint8_t *plain, size_t len,
                      uint8_t *out)
{
    hs_assert(session->send_counter > 0);
    return seal_encrypt(&session->send, session->send_counter - 1, header, header_len, plain, len, out);
}

/* Makes the key of the generation to come, once, so that forged packets cannot make us derive it again and again. */
static struct seal_key *next_receive_key(struct seal_session *session)
{
    if (!session->has_next) {
        derive(session->receive_next_secret, session->receive_secret, "hearsay next secret");
        if (key_from_secret(&session->receive_next, session->cipher, session->receive_next_secret, false) != 0)
            return NULL;
        session->has_next = true;
    }
    return &session->receive_next;
}

static void advance_receive_key(struct seal_session *session, uint64_t now_ns)
{
    seal_key_fini(&session->receive_previous);
    session->receive_previous = session->receive;
    session->has_previous = true;
    session->previous_until_ns = now_ns + SEAL_OVERLAP_MS * UINT64_C(1000000);
    session->receive = session->receive_next;
    session->receive_next = (struct seal_key){0};
    session->has_next = false;
    memcpy(session->receive_secret, session->receive_next_secret, SEAL_KEY_BYTES);
    sodium_memzero(session->receive_next_secret, SEAL_KEY_BYTES);
    session->receive_generation++;
}

int seal_session_open(struct seal_session *session, uint64_t now_ns, uint64_t counter, uint8_t generation, const void *header,
                      size_t header_len, const uint8_t *sealed, size_t len, uint8_t *out)
{
    if (!replay_window_fresh(&session->window, counter))
        return HS_ERR_CANCELED;
    if (session->has_previous && now_ns >= session->previous_until_ns) {
        seal_key_fini(&session->receive_previous);
        session->has_previous = false;
    }
    uint8_t ahead = (uint8_t)(generation - session->receive_generation);
    struct seal_key *key = NULL;
    if (ahead == 0)
        key = &session->receive;
    else if (ahead == 1)
        key = next_receive_key(session);
    else if (ahead == 255 && session->has_previous)
        key = &session->receive_previous;
    if (key == NULL || seal_decrypt(key, counter, header, header_len, sealed, len, out) != 0)
        return HS_ERR_AUTH;
    if (ahead == 1)
        advance_receive_key(session, now_ns);
    replay_window_accept(&session->window, counter);
    return 0;
}
