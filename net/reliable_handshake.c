#include <sodium.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/log.h"
#include "net/reliable.h"

static const char prologue[] = "hearsay fabric 1";

enum {
    INIT_COOKIE_AT = WIRE_HEADER_BYTES + 4,
    INIT_NOISE_AT = INIT_COOKIE_AT + WIRE_COOKIE_BYTES,
    COOKIE_LIFE_S = 60,
};

static void write_hello(const struct reliable *self, const struct session *session, uint32_t ciphers, uint8_t out[WIRE_HELLO_BYTES])
{
    struct writer w;
    writer_init(&w, out, WIRE_HELLO_BYTES);
    write_u64(&w, self->boot_id);
    write_u32(&w, session->local_id);
    write_u32(&w, ciphers);
    write_u16(&w, (uint16_t)self->mtu);
    write_u16(&w, WIRE_WINDOW);
    write_u32(&w, 0); /* reserved */
}

/* A longer hello, of a later minor revision, is read as far as it is known. */
static bool read_hello(const uint8_t *data, size_t len, struct hello *out)
{
    struct reader r;
    reader_init(&r, data, len);
    out->boot_id = read_u64(&r);
    out->session = read_u32(&r);
    out->ciphers = read_u32(&r);
    out->datagram_bytes = read_u16(&r);
    out->window = read_u16(&r);
    read_u32(&r);
    return !r.failed && out->session != 0 && out->datagram_bytes >= WIRE_MIN_DATAGRAM && out->window >= 64;
}

static void format_address(const struct reliable *self, const struct carrier_address *address, char text[TRANSPORT_ADDRESS_TEXT])
{
    self->carrier->ops->format(self->carrier, address, text, TRANSPORT_ADDRESS_TEXT);
}

static void transmit(struct reliable *self, const struct carrier_address *address, const uint8_t *packet, size_t len)
{
    uint8_t *out = reliable_out_begin(self);
    if (out == NULL)
        return; /* the carrier is stuck; the repetition comes */
    memcpy(out, packet, len);
    reliable_out_commit(self, address, (uint32_t)len);
}

/* The handshake is done: keys, limits and the peer's name for the session. */
static int establish(struct session *session, const struct hello *hello, enum seal_cipher cipher)
{
    struct reliable *self = session->owner;
    uint8_t send_secret[SEAL_KEY_BYTES], receive_secret[SEAL_KEY_BYTES];
    seal_handshake_finish(&session->handshake->noise, send_secret, receive_secret);
    int status = seal_session_init(&session->seal, cipher, send_secret, receive_secret, self->tuning.rekey_packets,
                                   self->tuning.rekey_ns, self->now_ns);
    sodium_memzero(send_secret, sizeof send_secret);
    sodium_memzero(receive_secret, sizeof receive_secret);
    if (status != 0)
        return status;
    session->remote_id = hello->session;
    session->boot_id = hello->boot_id;
    session->datagram_bytes = hello->datagram_bytes < self->mtu ? hello->datagram_bytes : self->mtu;
    session->window = hello->window < WIRE_WINDOW ? hello->window : WIRE_WINDOW;
    session->piece_bytes = session->datagram_bytes - WIRE_PACKET_HEADER_BYTES - SEAL_TAG_BYTES - WIRE_FRAGMENT_OVERHEAD -
                           WIRE_ACK_BYTES - 8; /* so that it shares a datagram with an acknowledgement of the usual length */
    reliable_congestion_init(session);
    return 0;
}

static struct session *half_open_from(struct reliable *self, const struct carrier_address *address)
{
    for (uint32_t i = 0; i < self->n_half_open; i++) {
        struct session *session = self->half_open[i];
        if (session->address.len == address->len && memcmp(session->address.bytes, address->bytes, address->len) == 0)
            return session;
    }
    return NULL;
}

/* ---- initiator ---- */

void reliable_connect(struct reliable *self, struct peer *peer)
{
    struct session *session = reliable_session_create(self, &peer->address, SESSION_OUTGOING);
    if (session == NULL) {
        peer->next_attempt_ns = self->now_ns + self->tuning.connect_retry_max_ns;
        reliable_timer_at(self, peer->next_attempt_ns);
        return;
    }
    struct handshake *handshake = session->handshake;
    seal_handshake_init(&handshake->noise, true, self->group_key, prologue, sizeof prologue - 1);
    uint8_t hello[WIRE_HELLO_BYTES], cookie[WIRE_COOKIE_BYTES] = {0};
    write_hello(self, session, self->tuning.ciphers, hello);
    struct writer w;
    writer_init(&w, handshake->packet, sizeof handshake->packet);
    write_wire_header(&w, WIRE_INIT, 0, 0);
    write_u32(&w, session->local_id);
    write_bytes(&w, cookie, sizeof cookie);
    size_t len = 0;
    int status = seal_handshake_write(&handshake->noise, &self->env, hello, sizeof hello, handshake->packet + w.len,
                                      sizeof handshake->packet - w.len, &len);
    if (status != 0) {
        reliable_session_free(session);
        return;
    }
    handshake->len = w.len + len;
    handshake->started_ns = handshake->next_ns = self->now_ns;
    handshake->retry_ns = peer->retry_ns;
    session->peer = peer;
    peer->outgoing = session;
    reliable_timer_at(self, self->now_ns);
}

/* A quarter of jitter, so that nodes started together do not stay in step. */
static uint64_t with_jitter(struct reliable *self, uint64_t interval_ns)
{
    return interval_ns + env_random_u64(&self->env) % (interval_ns / 4 + 1);
}

static void repeat_init(struct session *session)
{
    struct reliable *self = session->owner;
    struct handshake *handshake = session->handshake;
    transmit(self, &session->address, handshake->packet, handshake->len);
    handshake->sent_ns = self->now_ns;
    handshake->n_sent++;
    uint64_t wait_ns = handshake->retry_ns;
    if (wait_ns < self->tuning.connect_retry_max_ns) {
        handshake->next_ns = self->now_ns + with_jitter(self, wait_ns);
        handshake->retry_ns = wait_ns * 2 < self->tuning.connect_retry_max_ns ? wait_ns * 2 : self->tuning.connect_retry_max_ns;
        reliable_timer_at(self, handshake->next_ns);
    } else {
        handshake->next_ns = UINT64_MAX; /* from now on in its turn, see try_in_turn */
    }
}

void reliable_on_cookie(struct reliable *self, const struct carrier_datagram *datagram)
{
    struct reader r;
    reader_init(&r, datagram->data + 4, datagram->len - 4);
    uint32_t receiver = read_u32(&r);
    const uint8_t *cookie = read_view(&r, WIRE_COOKIE_BYTES);
    struct session *session = reliable_session_find(self, receiver);
    if (cookie == NULL || session == NULL || session->state != SESSION_OUTGOING || session->address.len != datagram->address.len ||
        memcmp(session->address.bytes, datagram->address.bytes, session->address.len) != 0) {
        self->stats.rejected++;
        return;
    }
    uint8_t *stored = session->handshake->packet + INIT_COOKIE_AT;
    if (memcmp(stored, cookie, WIRE_COOKIE_BYTES) == 0)
        return; /* a copy: it has been answered */
    memcpy(stored, cookie, WIRE_COOKIE_BYTES);
    repeat_init(session);
}

/*
 * Ours is done while theirs, which we answered earlier, is under way as well: if ours counts they will take it, and theirs must not
 * come up after it and end it.
 */
static void drop_crossing(struct reliable *self, const struct session *ours)
{
    struct session *theirs = half_open_from(self, &ours->address);
    if (theirs == NULL || theirs->boot_id != ours->boot_id || self->boot_id < ours->boot_id)
        return;
    reliable_half_open_forget(theirs);
    reliable_session_free(theirs);
}

void reliable_on_response(struct reliable *self, const struct carrier_datagram *datagram)
{
    struct reader r;
    reader_init(&r, datagram->data + 4, datagram->len - 4);
    struct session *session = reliable_session_find(self, read_u32(&r));
    uint8_t payload[WIRE_HELLO_BYTES * 2];
    size_t len = 0;
    struct hello hello;
    if (r.failed || session == NULL || session->state != SESSION_OUTGOING || session->address.len != datagram->address.len ||
        memcmp(session->address.bytes, datagram->address.bytes, session->address.len) != 0 ||
        seal_handshake_read(&session->handshake->noise, datagram->data + WIRE_HEADER_BYTES, datagram->len - WIRE_HEADER_BYTES,
                            payload, sizeof payload, &len) != 0) {
        self->stats.rejected++;
        return;
    }
    struct peer *peer = session->peer;
    struct handshake *handshake = session->handshake;
    bool known = read_hello(payload, len, &hello);
    enum seal_cipher cipher = known ? seal_cipher_choose(self->tuning.ciphers, hello.ciphers) : (enum seal_cipher)0;
    known = known && cipher != 0 && hello.ciphers == 1u << cipher;
    if (!known || establish(session, &hello, cipher) != 0) {
        self->stats.rejected++;
        peer->outgoing = NULL;
        peer->next_attempt_ns = self->now_ns + self->tuning.connect_retry_max_ns;
        reliable_timer_at(self, peer->next_attempt_ns);
        reliable_session_free(session);
        return;
    }
    if (handshake->n_sent == 1) /* not ambiguous */
        reliable_rtt_sample(session, self->now_ns - handshake->sent_ns);
    drop_crossing(self, session);
    reliable_session_up(session, peer);
    reliable_queue_empty(session); /* proves to the responder that we hold the keys; repeated until acknowledged */
}

/* ---- responder ---- */

static void make_cookie(const uint8_t secret[32], const struct carrier_address *address, uint8_t out[WIRE_COOKIE_BYTES])
{
    crypto_generichash_blake2b(out, WIRE_COOKIE_BYTES, address->bytes, address->len, secret, 32);
}

static void rotate_cookie_secret(struct reliable *self)
{
    if (self->now_ns < self->cookie_until_ns)
        return;
    memcpy(self->cookie_secret[1], self->cookie_secret[0], 32);
    for (int i = 0; i < 4; i++) {
        uint64_t random = env_random_u64(&self->env);
        memcpy(self->cookie_secret[0] + 8 * i, &random, 8);
    }
    self->cookie_until_ns = self->now_ns + COOKIE_LIFE_S * UINT64_C(1000000000);
}

/* With many handshakes half open, only addresses that have answered us get to make one more. No state is kept for the others. */
static bool prove_address(struct reliable *self, const struct carrier_datagram *datagram)
{
    if (self->n_half_open < self->tuning.max_half_open / 4)
        return true;
    rotate_cookie_secret(self);
    uint8_t cookie[WIRE_COOKIE_BYTES];
    for (int i = 1; i >= 0; i--) {
        make_cookie(self->cookie_secret[i], &datagram->address, cookie);
        if (sodium_memcmp(cookie, datagram->data + INIT_COOKIE_AT, WIRE_COOKIE_BYTES) == 0)
            return true;
    }
    uint8_t packet[WIRE_HEADER_BYTES + WIRE_COOKIE_BYTES];
    uint32_t initiator;
    memcpy(&initiator, datagram->data + WIRE_HEADER_BYTES, sizeof initiator);
    struct writer w;
    writer_init(&w, packet, sizeof packet);
    write_wire_header(&w, WIRE_COOKIE, 0, initiator);
    write_bytes(&w, cookie, sizeof cookie);
    transmit(self, &datagram->address, packet, w.len);
    self->stats.half_open.hits++;
    return false;
}

void reliable_half_open_forget(struct session *session)
{
    struct reliable *self = session->owner;
    for (uint32_t i = 0; i < self->n_half_open; i++) {
        if (self->half_open[i] == session) {
            self->half_open[i] = self->half_open[--self->n_half_open];
            return;
        }
    }
}

/*
 * Both sides began at once: the greater boot id's attempt is the one that counts. True: theirs is to be ignored. An attempt
 * that crossed the answer to ours is ignored, too; were it more than that, our session would soon die unacknowledged.
 */
static bool ours_counts(struct reliable *self, struct peer *peer, const struct hello *hello)
{
    if (peer != NULL && peer->up != NULL)
        return peer->up->boot_id == hello->boot_id && !peer->up->heard;
    if (peer == NULL || peer->outgoing == NULL)
        return false;
    struct handshake *ours = peer->outgoing->handshake;
    if (self->boot_id > hello->boot_id) {
        if (self->now_ns - ours->sent_ns >= self->tuning.connect_retry_min_ns / 2)
            ours->next_ns = self->now_ns; /* they are there: no need to sit out the back-off */
        reliable_timer_at(self, ours->next_ns);
        return true;
    }
    ours->next_ns = self->now_ns + self->tuning.connect_retry_max_ns; /* stands by, in case theirs comes to nothing */
    return false;
}

/* Makes the half-open session and the answer to an authentic first message. */
static void answer_init(struct reliable *self, const struct carrier_datagram *datagram, const struct seal_handshake *noise,
                        const struct hello *hello)
{
    char text[TRANSPORT_ADDRESS_TEXT];
    enum seal_cipher cipher = seal_cipher_choose(self->tuning.ciphers, hello->ciphers);
    if (cipher == 0) {
        format_address(self, &datagram->address, text);
        if (reliable_report(self, &datagram->address, 'c', 1))
            log_warn("net", "peer %s shares no cipher with us (it offers mask %#x, we %#x): not connected", text, hello->ciphers,
                     self->tuning.ciphers);
        return;
    }
    struct session *earlier = half_open_from(self, &datagram->address);
    if (earlier != NULL) {
        reliable_half_open_forget(earlier);
        reliable_session_free(earlier);
    }
    if (self->n_half_open == self->tuning.max_half_open) {
        self->stats.half_open.hits++;
        return;
    }
    struct session *session = reliable_session_create(self, &datagram->address, SESSION_HALF_OPEN);
    if (session == NULL)
        return;
    struct handshake *handshake = session->handshake;
    handshake->noise = *noise;
    memcpy(session->initiator_key, noise->remote_public_key, 32);
    uint8_t ours[WIRE_HELLO_BYTES];
    write_hello(self, session, 1u << cipher, ours);
    struct writer w;
    writer_init(&w, handshake->packet, sizeof handshake->packet);
    write_wire_header(&w, WIRE_RESPONSE, 0, hello->session);
    size_t len = 0;
    if (seal_handshake_write(&handshake->noise, &self->env, ours, sizeof ours, handshake->packet + w.len,
                             sizeof handshake->packet - w.len, &len) != 0 ||
        establish(session, hello, cipher) != 0) {
        reliable_session_free(session);
        return;
    }
    handshake->len = w.len + len;
    handshake->started_ns = self->now_ns;
    self->half_open[self->n_half_open++] = session;
    reliable_timer_at(self, self->now_ns + self->tuning.handshake_timeout_ns);
    transmit(self, &session->address, handshake->packet, handshake->len);
}

void reliable_on_init(struct reliable *self, const struct carrier_datagram *datagram)
{
    if (datagram->len < INIT_NOISE_AT + SEAL_HANDSHAKE_OVERHEAD + WIRE_HELLO_BYTES) {
        self->stats.rejected++;
        return;
    }
    const uint8_t *message = datagram->data + INIT_NOISE_AT;
    struct session *half_open = half_open_from(self, &datagram->address);
    if (half_open != NULL &&
        memcmp(half_open->initiator_key, message, 32) == 0) { /* a repetition: our answer was lost, or is late */
        transmit(self, &half_open->address, half_open->handshake->packet, half_open->handshake->len);
        return;
    }
    struct peer *peer = reliable_peer_find(self, &datagram->address);
    if (peer != NULL && peer->up != NULL && memcmp(peer->up->initiator_key, message, 32) == 0) {
        self->stats.rejected++; /* a late copy of what this session came from */
        return;
    }
    if (!prove_address(self, datagram))
        return;
    struct seal_handshake noise;
    uint8_t payload[WIRE_HELLO_BYTES * 2];
    size_t len = 0;
    struct hello hello;
    uint32_t named;
    memcpy(&named, datagram->data + WIRE_HEADER_BYTES, sizeof named);
    seal_handshake_init(&noise, false, self->group_key, prologue, sizeof prologue - 1);
    int status = seal_handshake_read(&noise, message, datagram->len - INIT_NOISE_AT, payload, sizeof payload, &len);
    if (status != 0 || !read_hello(payload, len, &hello) || hello.session != named) {
        self->stats.rejected++;
        char text[TRANSPORT_ADDRESS_TEXT];
        format_address(self, &datagram->address, text);
        /* One failure can be a damaged datagram; a second one is another key. */
        if (status == HS_ERR_AUTH && reliable_report(self, &datagram->address, 'k', 2))
            log_warn("net",
                     "peer %s does not hold our group key, or uses another fabric: its attempts are dropped; give all nodes the same --group-key-file and "
                     "--fabric",
                     text);
    } else if (hello.boot_id == self->boot_id) {
        if (peer != NULL) /* our own address under a name: lists of all nodes hold it. Nothing to connect. */
            peer->wanted = false;
    } else if (!ours_counts(self, peer, &hello)) {
        answer_init(self, datagram, &noise, &hello);
    }
    seal_handshake_fini(&noise);
}

bool reliable_confirm_half_open(struct session *session)
{
    struct reliable *self = session->owner;
    struct peer *peer = reliable_peer_get(self, &session->address);
    if (peer == NULL) {
        char text[TRANSPORT_ADDRESS_TEXT];
        format_address(self, &session->address, text);
        if (reliable_report(self, &session->address, 'p', 1))
            log_warn("net", "peer %s refused: %u peers are in use, which is the limit", text, self->n_peers);
        return false;
    }
    reliable_half_open_forget(session);
    reliable_session_up(session, peer);
    return true;
}

/* ---- timers ---- */

static void call_again(struct reliable *self, struct peer *peer)
{
    struct handshake *handshake = peer->outgoing->handshake;
    if (self->now_ns - handshake->started_ns >= self->tuning.handshake_timeout_ns) { /* fresh keys, same pace */
        peer->retry_ns = handshake->retry_ns;
        reliable_session_free(peer->outgoing);
        peer->outgoing = NULL;
        reliable_connect(self, peer);
    }
    if (peer->outgoing != NULL)
        repeat_init(peer->outgoing);
}

static void outgoing_timer(struct reliable *self, struct peer *peer)
{
    struct handshake *handshake = peer->outgoing->handshake;
    if (!peer->wanted) {
        reliable_session_free(peer->outgoing);
        peer->outgoing = NULL;
    } else if (self->now_ns < handshake->next_ns) {
        reliable_timer_at(self, handshake->next_ns);
    } else {
        call_again(self, peer);
    }
}

/*
 * Of all peers that do not answer, one at a time is called: so somebody behind a mended cut is found within an interval, and a
 * peer that is gone for good costs a share of one small datagram per interval, however many of them there are.
 */
static void try_in_turn(struct reliable *self)
{
    bool any = false, is_due = self->now_ns >= self->turn_ns;
    for (uint32_t n = 1; n <= self->n_peers; n++) {
        uint32_t i = (self->turn + n) % self->n_peers;
        struct peer *peer = self->peers[i];
        if (peer->outgoing == NULL)
            continue;
        any = true;
        if (!is_due)
            break;
        if (self->now_ns - peer->outgoing->handshake->sent_ns < self->tuning.connect_retry_min_ns)
            continue; /* called just now by its own timer */
        self->turn = i;
        call_again(self, peer);
        break;
    }
    if (any && is_due)
        self->turn_ns = self->now_ns + with_jitter(self, self->tuning.connect_retry_min_ns);
    if (any)
        reliable_timer_at(self, self->turn_ns);
}

void reliable_hurry(struct reliable *self, struct peer *peer)
{
    if (peer->up != NULL || peer->outgoing == NULL)
        return;
    struct handshake *handshake = peer->outgoing->handshake;
    uint64_t soonest_ns = handshake->sent_ns + self->tuning.connect_retry_min_ns;
    handshake->retry_ns = self->tuning.connect_retry_min_ns;
    handshake->next_ns = soonest_ns < handshake->next_ns ? soonest_ns : handshake->next_ns;
    reliable_timer_at(self, handshake->next_ns);
}

static void begin_when_due(struct reliable *self, struct peer *peer)
{
    uint64_t due = peer->next_attempt_ns;
    struct session *half_open = half_open_from(self, &peer->address);
    if (half_open != NULL) { /* they have begun: a second attempt would only cross theirs */
        uint64_t patience = half_open->handshake->started_ns + self->tuning.connect_retry_max_ns;
        due = patience > due ? patience : due;
    }
    if (self->now_ns >= due)
        reliable_connect(self, peer);
    else
        reliable_timer_at(self, due);
}

void reliable_handshake_timers(struct reliable *self)
{
    for (uint32_t i = 0; i < self->n_half_open;) {
        struct session *session = self->half_open[i];
        uint64_t expiry = session->handshake->started_ns + self->tuning.handshake_timeout_ns;
        if (self->now_ns >= expiry) {
            reliable_half_open_forget(session); /* puts another at i */
            reliable_session_free(session);
            continue;
        }
        reliable_timer_at(self, expiry);
        i++;
    }
    for (uint32_t i = 0; i < self->n_peers; i++) {
        struct peer *peer = self->peers[i];
        if (peer->up == NULL && peer->outgoing == NULL && peer->wanted)
            begin_when_due(self, peer);
        if (peer->outgoing != NULL)
            outgoing_timer(self, peer);
    }
    try_in_turn(self);
}
