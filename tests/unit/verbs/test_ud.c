/* What datagram queue pairs tell each other, and the table of who is where. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/error.h"
#include "net/udp_address.h"
#include "net/verbs/ud_neighbours.h"

#define MS UINT64_C(1000000)

static const uint8_t key[UD_KEY_BYTES] = "a key", other_key[UD_KEY_BYTES] = "another";

static struct carrier_address address_of(const char *text)
{
    struct carrier_address address;
    assert_int_equal(udp_address_lookup(text, AF_UNSPEC, &address), 0);
    return address;
}

static struct ud_word a_tell(uint32_t queue_pair)
{
    struct ud_word word = {.type = UD_TELL, .n_ports = 1};
    word.ports[0] = (struct ud_port){.gid = {0xfe, 0x80, [15] = 7}, .queue_pair = queue_pair, .queue_key = 0x1234, .lid = 9, .mtu_bytes = 4096, .infiniband = true};
    return word;
}

/* ---- messages ---- */

static void test_headers(void **state)
{
    (void)state;
    static const char *const texts[] = {"10.77.0.1:7070", "[2001:db8::5]:1", "127.0.0.1:65535"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct carrier_address address = address_of(texts[i]), back;
        struct ud_piece piece;
        uint8_t header[UD_HEADER_BYTES];
        ud_header_write(&address, header);
        assert_int_equal(ud_header_read(header, sizeof header, &back, &piece), 0);
        assert_int_equal(piece.size, 0);
        assert_int_equal(back.len, address.len);
        assert_memory_equal(back.bytes, address.bytes, address.len);
        assert_int_equal(ud_header_read(header, sizeof header - 1, &back, &piece), HS_ERR_PROTOCOL);
        header[0]++;
        assert_int_equal(ud_header_read(header, sizeof header, &back, &piece), HS_ERR_PROTOCOL);
    }
}

/* Which pieces there can be, and of what length: the last is the only one that may be shorter, and is never alone. */
static void test_pieces_of_headers(void **state)
{
    (void)state;
    static const struct {
        struct ud_piece piece;
        uint32_t len;
        int status;
    } cases[] = {
        {{.number = 7, .size = 1000, .index = 0}, 1000, 0},
        {{.number = 7, .size = 1000, .index = 0}, 999, HS_ERR_PROTOCOL},
        {{.number = 7, .size = 1000, .index = 1, .last = true}, 1, 0},
        {{.number = 7, .size = 1000, .index = 1, .last = true}, 1000, 0},
        {{.number = 7, .size = 1000, .index = 1, .last = true}, 0, HS_ERR_PROTOCOL},
        {{.number = 7, .size = 1000, .index = 1, .last = true}, 1001, HS_ERR_PROTOCOL},
        {{.number = 7, .size = 1000, .index = 0, .last = true}, 1000, HS_ERR_PROTOCOL},
        {{.number = 0xffff, .size = 232, .index = UD_MAX_PIECES - 1}, 232, 0},
        {{.number = 0xffff, .size = 232, .index = UD_MAX_PIECES}, 232, HS_ERR_PROTOCOL},
        {{.number = 7, .size = 0, .index = 0}, 1000, HS_ERR_PROTOCOL},
        {{.number = 0, .size = 0, .index = 1}, 1000, HS_ERR_PROTOCOL},
    };
    struct carrier_address address = address_of("10.77.0.1:7070"), back;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ud_piece piece;
        uint8_t header[UD_HEADER_BYTES];
        ud_header_write(&address, header);
        ud_header_cut(header, &cases[i].piece);
        assert_int_equal(ud_header_read(header, sizeof header + cases[i].len, &back, &piece), cases[i].status);
        if (cases[i].status == 0)
            assert_true(piece.number == cases[i].piece.number && piece.size == cases[i].piece.size && piece.index == cases[i].piece.index &&
                        piece.last == cases[i].piece.last);
    }
}

/* As docs/protocol-verbs.md lays it out, written by hand. */
static void test_header_bytes(void **state)
{
    (void)state;
    static const uint8_t expected[UD_HEADER_BYTES] = {2, 0, 0x1b, 0x9e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1};
    struct carrier_address address = address_of("10.77.0.1:7070");
    uint8_t header[UD_HEADER_BYTES];
    static const uint8_t of_piece[8] = {2, 0x81, 0x1b, 0x9e, 0x34, 0x12, 0xe8, 0x03};
    ud_header_write(&address, header);
    assert_memory_equal(header, expected, sizeof expected);
    ud_header_cut(header, &(struct ud_piece){.number = 0x1234, .size = 1000, .index = 1, .last = true});
    assert_memory_equal(header, of_piece, sizeof of_piece);
    assert_memory_equal(header + 8, expected + 8, 16);
}

static const uint64_t random_words[3] = {1, 2, 3};

static void test_words(void **state)
{
    (void)state;
    struct ud_word word = a_tell(0xabcdef), back;
    uint8_t data[UD_WORD_BYTES];
    memset(word.nonce, 0x5a, sizeof word.nonce);
    ud_word_encode(&word, key, random_words, data);
    assert_int_equal(ud_word_decode(data, sizeof data, key, &back), 0);
    assert_int_equal(back.type, UD_TELL);
    assert_int_equal(back.n_ports, 1);
    assert_memory_equal(back.nonce, word.nonce, sizeof word.nonce);
    assert_memory_equal(back.ports[0].gid, word.ports[0].gid, 16);
    assert_int_equal(back.ports[0].queue_pair, 0xabcdef);
    assert_int_equal(back.ports[0].queue_key, 0x1234);
    assert_int_equal(back.ports[0].lid, 9);
    assert_int_equal(back.ports[0].mtu_bytes, 4096);
    assert_true(back.ports[0].infiniband);
    assert_int_equal(ud_word_decode(data, sizeof data, other_key, &back), HS_ERR_AUTH);
    assert_int_equal(ud_word_decode(data, sizeof data - 1, key, &back), HS_ERR_PROTOCOL);
    for (size_t i = 0; i < sizeof data; i++) { /* nothing of it can be changed */
        data[i] ^= 0x10;
        assert_int_not_equal(ud_word_decode(data, sizeof data, key, &back), 0);
        data[i] ^= 0x10;
    }
    word.type = UD_TELL; /* here, at no queue pair at all */
    word.n_ports = 0;
    ud_word_encode(&word, key, random_words, data);
    assert_int_equal(ud_word_decode(data, sizeof data, key, &back), HS_ERR_PROTOCOL);
    word.n_ports = 1;
    word.ports[0].queue_pair = 0x1000000;
    ud_word_encode(&word, key, random_words, data);
    assert_int_equal(ud_word_decode(data, sizeof data, key, &back), HS_ERR_PROTOCOL);
}

static void test_questions(void **state)
{
    (void)state;
    static const char *const texts[] = {"10.77.0.1:7070", "[2001:db8::5]:1"};
    uint8_t data[UD_WORD_BYTES];
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct ud_word ask = {.type = UD_ASK, .asker = address_of(texts[i])}, back;
        ud_word_encode(&ask, key, random_words, data);
        assert_int_equal(ud_word_decode(data, sizeof data, key, &back), 0);
        assert_int_equal(back.type, UD_ASK);
        assert_int_equal(back.asker.len, ask.asker.len);
        assert_memory_equal(back.asker.bytes, ask.asker.bytes, ask.asker.len);
    }
    struct ud_word nobody = {.type = UD_ASK, .asker = address_of("10.77.0.1:0")}, back;
    ud_word_encode(&nobody, key, random_words, data);
    assert_int_equal(ud_word_decode(data, sizeof data, key, &back), HS_ERR_PROTOCOL);
}

static bool contains(const uint8_t *data, size_t len, const void *what, size_t what_len)
{
    for (size_t i = 0; i + what_len <= len; i++)
        if (memcmp(data + i, what, what_len) == 0)
            return true;
    return false;
}

/* Who reads along, or has a question answered that is not its own, does not learn the queue key, and cannot tell two answers apart. */
static void test_nothing_in_clear(void **state)
{
    (void)state;
    static const uint64_t others[3] = {4, 5, 6};
    struct ud_word word = a_tell(0xabcdef);
    uint8_t data[UD_WORD_BYTES], again[UD_WORD_BYTES];
    memset(word.nonce, 0x5a, sizeof word.nonce);
    word.ports[0].queue_key = 0x600dbeef;
    ud_word_encode(&word, key, random_words, data);
    ud_word_encode(&word, key, others, again);
    assert_false(contains(data, sizeof data, &word.ports[0].queue_key, 4));
    assert_false(contains(data, sizeof data, word.ports[0].gid, 16));
    assert_false(contains(data, sizeof data, word.nonce, 4));
    for (size_t i = 32; i + 8 <= sizeof data; i += 8)
        assert_memory_not_equal(data + i, again + i, 8);
}

/* What docs/protocol-verbs.md says, made without our code and without libsodium by ud_word.py beside this file. */
static void test_word_bytes(void **state)
{
    (void)state;
    static const uint8_t expected[UD_WORD_BYTES] = {
        0x48, 0x55, 0x02, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x82, 0xdb, 0x31, 0x97, 0xe1, 0x07, 0x1f, 0xde,
        0xa9, 0x8a, 0x05, 0xdc, 0x77, 0x27, 0x17, 0x54, 0x5e, 0xdd, 0x6f, 0x7e, 0x18, 0x62, 0xe5, 0xeb, 0xdc, 0xfc, 0x4c, 0x1b,
        0xbe, 0x6f, 0x11, 0x14, 0x9c, 0x5d, 0xb5, 0x54, 0x54, 0xba, 0x87, 0x4d, 0x24, 0x62, 0x5c, 0x38, 0xac, 0xa7, 0x19, 0xbd,
        0x38, 0xaf, 0x2f, 0xdd, 0xa2, 0x09, 0x6e, 0xc3, 0x31, 0xfa, 0xb4, 0xa9, 0x8a, 0x4a, 0x2f, 0x16, 0xf2, 0x2c, 0xc7, 0x81,
        0xb8, 0x80, 0x49, 0x26, 0x53, 0xf2, 0xec, 0x3c, 0x72, 0x77, 0xee, 0xf1, 0xf8, 0x89, 0xd2, 0xfa, 0xe1, 0x6c, 0x3f, 0x1e,
        0x55, 0x2c, 0x09, 0xcb, 0xb6, 0xb7, 0xc3, 0x25, 0x1d, 0x4b, 0xb2, 0xfa, 0xad, 0x1b, 0x29, 0xfe, 0x15, 0xc4, 0xd0, 0x78,
        0xbc, 0xe9, 0x72, 0x80, 0xf8, 0x2d, 0x9c, 0x64, 0xf0, 0xa0, 0xd0, 0xdd, 0xd7, 0x04, 0x17, 0x7c, 0x86, 0x32, 0x6b, 0x69,
        0x98, 0xab, 0xe6, 0x05, 0xf3, 0x92, 0xcb, 0xb8, 0x9b, 0xb2, 0xf0, 0x85, 0x96, 0x1e, 0x6b, 0xbd, 0x7e, 0x36, 0xfb, 0x7b,
        0x07, 0xe6, 0xfa, 0x1f, 0x63, 0x04, 0x60, 0xfe, 0x52, 0xa6, 0x64, 0xc1, 0xf7, 0xd1, 0x90, 0xfe, 0xc8, 0xcc, 0x8c, 0x18,
    };
    struct ud_word word = a_tell(0xabcdef);
    uint8_t group_key[UD_KEY_BYTES], derived[UD_KEY_BYTES], data[UD_WORD_BYTES];
    for (uint8_t i = 0; i < sizeof group_key; i++)
        group_key[i] = i;
    memset(word.nonce, 0x5a, sizeof word.nonce);
    ud_word_key(group_key, derived);
    ud_word_encode(&word, derived, random_words, data);
    assert_memory_equal(data, expected, sizeof expected);
}

static void test_keys(void **state)
{
    (void)state;
    uint8_t of_none[UD_KEY_BYTES], of_key[UD_KEY_BYTES], of_other[UD_KEY_BYTES];
    ud_word_key(NULL, of_none);
    ud_word_key(key, of_key);
    ud_word_key(other_key, of_other);
    assert_memory_not_equal(of_none, of_key, UD_KEY_BYTES);
    assert_memory_not_equal(of_key, of_other, UD_KEY_BYTES);
    assert_memory_not_equal(of_key, key, UD_KEY_BYTES);
}

/* ---- neighbours ---- */

static uint32_t n_dropped;

static void drop(void *handle)
{
    assert_non_null(handle);
    n_dropped++;
}

static struct ud_handles handles = {.destroy = drop};

static struct ud_path *a_path(void)
{
    struct ud_path *path = ud_path_make(&handles, &handles, 4096);
    assert_non_null(path);
    return path;
}

static int make_table(void **state)
{
    static struct ud_neighbours table;
    n_dropped = 0;
    *state = &table;
    return ud_neighbours_init(&table, 4, (const uint8_t[16]){1});
}

static int free_table(void **state)
{
    ud_neighbours_fini(*state);
    return 0;
}

static struct ud_word ask(struct ud_neighbours *table, struct ud_neighbour *n, uint64_t now_ns)
{
    static uint64_t random;
    struct ud_word word;
    assert_true(ud_neighbour_ask_due(n, now_ns));
    random++;
    ud_neighbour_ask(table, n, now_ns, (const uint64_t[2]){random << 40, random}, &word);
    assert_int_equal(word.type, UD_ASK);
    return word;
}

static bool moved; /* as the last answer said */

static struct ud_neighbour *answer(struct ud_neighbours *table, const struct ud_word *asked, uint32_t queue_pair)
{
    struct ud_word word = a_tell(queue_pair);
    memcpy(word.nonce, asked->nonce, sizeof word.nonce);
    return ud_neighbours_told(table, &word, &moved);
}

static void test_asking(void **state)
{
    struct ud_neighbours *table = *state;
    struct carrier_address address = address_of("10.0.0.1:7070");
    assert_null(ud_neighbours_find(table, &address));
    struct ud_neighbour *n = ud_neighbours_get(table, &address, 1000 * MS);
    assert_ptr_equal(ud_neighbours_get(table, &address, 1000 * MS), n);
    assert_false(n->known);
    struct ud_word first = ask(table, n, 1000 * MS);
    assert_false(ud_neighbour_ask_due(n, 1099 * MS));
    struct ud_word second = ask(table, n, 1100 * MS);
    assert_memory_equal(first.nonce, second.nonce, sizeof first.nonce); /* a late answer to the first is as good */
    struct ud_word forged = second;
    forged.nonce[15] ^= 1;
    assert_null(answer(table, &forged, 5));
    assert_ptr_equal(answer(table, &first, 5), n);
    assert_true(moved && n->known);
    assert_int_equal(n->ports[0].queue_pair, 5);
    assert_null(answer(table, &second, 6)); /* nobody waits for it any more */
    assert_false(ud_neighbour_ask_due(n, 5000 * MS));
    memset(forged.nonce, 0xff, sizeof forged.nonce); /* of a place that does not exist */
    assert_null(answer(table, &forged, 5));
}

static void test_restarted(void **state)
{
    struct ud_neighbours *table = *state;
    struct carrier_address address = address_of("10.0.0.1:7070");
    struct ud_neighbour *n = ud_neighbours_get(table, &address, 0);
    struct ud_word asked = ask(table, n, 1 * MS);
    answer(table, &asked, 5);
    n->paths[0] = a_path();
    assert_false(ud_neighbour_heard(n, 0, 5, 500 * MS));
    assert_false(ud_neighbour_in_doubt(n, 500 * MS));
    assert_true(ud_neighbour_heard(n, 0, 8, 500 * MS)); /* asked, not believed */
    struct ud_word again;
    ud_neighbour_ask(table, n, 500 * MS, (const uint64_t[2]){77, 78}, &again);
    assert_true(n->known);
    assert_true(ud_neighbour_in_doubt(n, 501 * MS)); /* and sent to twice until it answers, or does not */
    assert_false(ud_neighbour_in_doubt(n, 600 * MS));
    assert_memory_not_equal(again.nonce, asked.nonce, sizeof again.nonce);
    answer(table, &again, 8);
    assert_true(moved);
    assert_int_equal(n_dropped, 1); /* the way to the old queue pair */
    assert_null(n->paths[0]);
    assert_false(ud_neighbour_in_doubt(n, 501 * MS));
    assert_false(ud_neighbour_heard(n, 0, 8, 700 * MS));
}

/* Somebody makes datagrams that seem to come from a neighbour, as fast as it can: it stays where it is, and is asked ten times a second. */
static void test_stranger(void **state)
{
    struct ud_neighbours *table = *state;
    struct carrier_address address = address_of("10.0.0.1:7070");
    struct ud_neighbour *n = ud_neighbours_get(table, &address, 0);
    struct ud_word asked = ask(table, n, 1 * MS);
    uint32_t n_asked = 0;
    answer(table, &asked, 5);
    n->paths[0] = a_path();
    for (uint64_t t = 1000; t < 2000; t++) {
        ud_neighbour_sent(n, t * MS);
        assert_false(ud_neighbour_heard(n, 0, 5, t * MS)); /* of the right queue pair, and does not open */
        if (ud_neighbour_heard(n, 0, 6, t * MS)) {
            n_asked++;
            ud_neighbour_ask(table, n, t * MS, (const uint64_t[2]){t, t}, &asked);
            assert_ptr_equal(answer(table, &asked, 5), n); /* it is where it was */
            assert_false(moved);
        }
        assert_true(n->known && n->ports[0].queue_pair == 5 && n->rail == 0 && n->paths[0] != NULL);
    }
    assert_int_equal(n_asked, 10);
    assert_int_equal(n_dropped, 0);
    ud_neighbour_answered(n, 0, 6, 2001 * MS);
    assert_int_equal(n->unanswered_ns, 1000 * MS); /* none of that was an answer */
    assert_true(ud_neighbour_ask_due(n, 2100 * MS));
    ud_neighbour_drop_path(n, 0);
}

static void test_silence(void **state)
{
    struct ud_neighbours *table = *state;
    struct carrier_address address = address_of("10.0.0.1:7070");
    struct ud_neighbour *n = ud_neighbours_get(table, &address, 0);
    struct ud_word asked = ask(table, n, 1 * MS);
    answer(table, &asked, 5);
    n->paths[0] = a_path();
    ud_neighbour_sent(n, 2000 * MS); /* after a long rest: that is no silence */
    assert_false(ud_neighbour_ask_due(n, 2000 * MS));
    ud_neighbour_sent(n, 2900 * MS);
    assert_false(ud_neighbour_ask_due(n, 2999 * MS));
    uint32_t rail = n->rail;
    struct ud_word again = ask(table, n, 3000 * MS);
    assert_int_equal(n->rail, rail + 1);
    assert_true(n->known); /* it is sent to meanwhile */
    answer(table, &again, 5);
    assert_int_equal(n_dropped, 0); /* nothing has changed */
    assert_false(moved);
    ud_neighbour_answered(n, 0, 5, 3001 * MS);
    assert_false(ud_neighbour_ask_due(n, 9000 * MS));
}

static void test_rails(void **state)
{
    struct ud_neighbours *table = *state;
    struct carrier_address address = address_of("10.0.0.1:7070");
    struct ud_neighbour *n = ud_neighbours_get(table, &address, 0);
    struct ud_word asked = ask(table, n, 1 * MS), tell = a_tell(5);
    table->n_rails = 2;
    tell.n_ports = 3; /* one more than we have */
    tell.ports[1] = tell.ports[2] = tell.ports[0];
    memcpy(tell.nonce, asked.nonce, sizeof tell.nonce);
    assert_ptr_equal(ud_neighbours_told(table, &tell, &moved), n);
    assert_int_equal(n->n_ports, 2);
    assert_int_equal(n->rail, 0);
    ud_neighbour_sent(n, 200 * MS);
    ud_neighbour_answered(n, 1, 5, 205 * MS); /* both have the same number; the other one may answer yet */
    assert_int_equal(n->rail, 0);
    ud_neighbour_answered(n, 1, 5, 220 * MS); /* its first port is down, perhaps: it is answered on the second */
    assert_int_equal(n->rail, 1);
    assert_int_equal(n->unanswered_ns, 0);
    ud_neighbour_answered(n, 0, 5, 300 * MS); /* nothing was sent to the second since */
    assert_int_equal(n->rail, 1);
    assert_true(ud_neighbour_heard(n, 1, 6, 400 * MS));
    assert_int_equal(n->rail, 1);
    assert_true(ud_neighbour_heard(n, 2, 5, 600 * MS)); /* it has no third one of use to us */
    struct ud_word again;
    ud_neighbour_ask(table, n, 600 * MS, (const uint64_t[2]){5, 5}, &again);
    memcpy(tell.nonce, again.nonce, sizeof tell.nonce);
    assert_ptr_equal(ud_neighbours_told(table, &tell, &moved), n);
    assert_false(moved);
    tell.ports[1].mtu_bytes = 1024; /* as much a change as any */
    ud_neighbour_ask(table, n, 800 * MS, (const uint64_t[2]){6, 6}, &again);
    memcpy(tell.nonce, again.nonce, sizeof tell.nonce);
    assert_ptr_equal(ud_neighbours_told(table, &tell, &moved), n);
    assert_true(moved);
}

static void test_full_table(void **state)
{
    struct ud_neighbours *table = *state;
    struct carrier_address addresses[6];
    for (uint32_t i = 0; i < 6; i++) {
        char text[32];
        snprintf(text, sizeof text, "10.0.0.%u:7070", i + 1);
        addresses[i] = address_of(text);
    }
    for (uint32_t i = 0; i < 4; i++)
        ud_neighbours_get(table, &addresses[i], (10 + i) * MS)->n_waiting = i == 0;
    struct ud_neighbour *second = ud_neighbours_find(table, &addresses[1]);
    second->paths[2] = a_path();
    assert_ptr_equal(ud_neighbours_get(table, &addresses[4], 20 * MS), second); /* the first is older, but something waits for it */
    assert_int_equal(n_dropped, 1);
    assert_null(ud_neighbours_find(table, &addresses[1]));
    assert_non_null(ud_neighbours_find(table, &addresses[0]));
    for (uint32_t i = 0; i < table->n; i++)
        table->all[i].n_waiting = 1;
    assert_null(ud_neighbours_get(table, &addresses[5], 30 * MS));
    assert_int_equal(n_dropped, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_header_bytes),
        cmocka_unit_test(test_pieces_of_headers),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_questions),
        cmocka_unit_test(test_nothing_in_clear),
        cmocka_unit_test(test_word_bytes),
        cmocka_unit_test(test_keys),
        cmocka_unit_test_setup_teardown(test_asking, make_table, free_table),
        cmocka_unit_test_setup_teardown(test_restarted, make_table, free_table),
        cmocka_unit_test_setup_teardown(test_stranger, make_table, free_table),
        cmocka_unit_test_setup_teardown(test_silence, make_table, free_table),
        cmocka_unit_test_setup_teardown(test_rails, make_table, free_table),
        cmocka_unit_test_setup_teardown(test_full_table, make_table, free_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
