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
        uint8_t header[UD_HEADER_BYTES];
        ud_header_write(&address, header);
        assert_int_equal(ud_header_read(header, sizeof header, &back), 0);
        assert_int_equal(back.len, address.len);
        assert_memory_equal(back.bytes, address.bytes, address.len);
        assert_int_equal(ud_header_read(header, sizeof header - 1, &back), HS_ERR_PROTOCOL);
        header[0]++;
        assert_int_equal(ud_header_read(header, sizeof header, &back), HS_ERR_PROTOCOL);
    }
}

/* As docs/protocol-verbs.md lays it out, written by hand. */
static void test_header_bytes(void **state)
{
    (void)state;
    static const uint8_t expected[UD_HEADER_BYTES] = {1, 0, 0x1b, 0x9e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1};
    struct carrier_address address = address_of("10.77.0.1:7070");
    uint8_t header[UD_HEADER_BYTES];
    ud_header_write(&address, header);
    assert_memory_equal(header, expected, sizeof expected);
}

static void test_words(void **state)
{
    (void)state;
    struct ud_word word = a_tell(0xabcdef), back;
    uint8_t data[UD_WORD_BYTES];
    memset(word.nonce, 0x5a, sizeof word.nonce);
    ud_word_encode(&word, key, data);
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
    struct ud_word ask = {.type = UD_ASK};
    ud_word_encode(&ask, key, data);
    assert_int_equal(ud_word_decode(data, sizeof data, key, &back), 0);
    assert_int_equal(back.type, UD_ASK);
    ask.type = UD_TELL; /* here, at no queue pair at all */
    ud_word_encode(&ask, key, data);
    assert_int_equal(ud_word_decode(data, sizeof data, key, &back), HS_ERR_PROTOCOL);
    word.ports[0].queue_pair = 0x1000000;
    ud_word_encode(&word, key, data);
    assert_int_equal(ud_word_decode(data, sizeof data, key, &back), HS_ERR_PROTOCOL);
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

static void drop(void *path)
{
    assert_non_null(path);
    n_dropped++;
}

static int make_table(void **state)
{
    static struct ud_neighbours table;
    n_dropped = 0;
    *state = &table;
    return ud_neighbours_init(&table, 4, (const uint8_t[16]){1}, drop);
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

static struct ud_neighbour *answer(struct ud_neighbours *table, const struct ud_word *asked, uint32_t queue_pair)
{
    struct ud_word word = a_tell(queue_pair);
    memcpy(word.nonce, asked->nonce, sizeof word.nonce);
    return ud_neighbours_told(table, &word);
}

static void test_asking(void **state)
{
    struct ud_neighbours *table = *state;
    struct carrier_address address = address_of("10.0.0.1:7070");
    assert_null(ud_neighbours_find(table, &address));
    struct ud_neighbour *n = ud_neighbours_get(table, &address, 1000 * MS);
    assert_ptr_equal(ud_neighbours_get(table, &address, 1000 * MS), n);
    assert_false(ud_neighbour_reachable(n));
    struct ud_word first = ask(table, n, 1000 * MS);
    assert_false(ud_neighbour_ask_due(n, 1099 * MS));
    struct ud_word second = ask(table, n, 1100 * MS);
    assert_memory_equal(first.nonce, second.nonce, sizeof first.nonce); /* a late answer to the first is as good */
    struct ud_word forged = second;
    forged.nonce[15] ^= 1;
    assert_null(answer(table, &forged, 5));
    assert_ptr_equal(answer(table, &first, 5), n);
    assert_true(ud_neighbour_reachable(n));
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
    struct ud_word asked = ask(table, n, 0);
    answer(table, &asked, 5);
    n->paths[0] = &n_dropped;
    assert_false(ud_neighbour_heard(n, 0, 5));
    assert_true(ud_neighbour_heard(n, 0, 8)); /* asked, not believed */
    assert_false(ud_neighbour_reachable(n));
    struct ud_word again = ask(table, n, 500 * MS);
    assert_memory_not_equal(again.nonce, asked.nonce, sizeof again.nonce);
    answer(table, &again, 8);
    assert_int_equal(n_dropped, 1); /* the way to the old queue pair */
    assert_null(n->paths[0]);
    assert_true(ud_neighbour_reachable(n));
    assert_false(ud_neighbour_heard(n, 0, 8));
}

static void test_silence(void **state)
{
    struct ud_neighbours *table = *state;
    struct carrier_address address = address_of("10.0.0.1:7070");
    struct ud_neighbour *n = ud_neighbours_get(table, &address, 0);
    struct ud_word asked = ask(table, n, 0);
    answer(table, &asked, 5);
    n->paths[0] = &n_dropped;
    ud_neighbour_sent(n, 2000 * MS); /* after a long rest: that is no silence */
    assert_false(ud_neighbour_ask_due(n, 2000 * MS));
    ud_neighbour_sent(n, 2900 * MS);
    assert_false(ud_neighbour_ask_due(n, 2999 * MS));
    uint32_t rail = n->rail;
    struct ud_word again = ask(table, n, 3000 * MS);
    assert_int_equal(n->rail, rail + 1);
    assert_true(ud_neighbour_reachable(n)); /* it is sent to meanwhile */
    answer(table, &again, 5);
    assert_int_equal(n_dropped, 0); /* nothing has changed */
    ud_neighbour_heard(n, 0, 5);
    assert_false(ud_neighbour_ask_due(n, 9000 * MS));
}

static void test_rails(void **state)
{
    struct ud_neighbours *table = *state;
    struct carrier_address address = address_of("10.0.0.1:7070");
    struct ud_neighbour *n = ud_neighbours_get(table, &address, 0);
    struct ud_word asked = ask(table, n, 0), tell = a_tell(5);
    tell.n_ports = 2;
    tell.ports[1] = tell.ports[0];
    memcpy(tell.nonce, asked.nonce, sizeof tell.nonce);
    assert_ptr_equal(ud_neighbours_told(table, &tell), n);
    assert_int_equal(n->rail, 0);
    assert_false(ud_neighbour_heard(n, 1, 5)); /* its first port is down, perhaps: it is answered on the second. Both have the same number */
    assert_int_equal(n->rail, 1);
    assert_false(ud_neighbour_heard(n, 0, 5));
    assert_int_equal(n->rail, 0);
    assert_true(ud_neighbour_heard(n, 1, 6));
    assert_int_equal(n->rail, 0);
    assert_true(ud_neighbour_heard(n, 2, 5)); /* it has no third one */
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
    second->paths[2] = &n_dropped;
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
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_keys),
        cmocka_unit_test_setup_teardown(test_asking, make_table, free_table),
        cmocka_unit_test_setup_teardown(test_restarted, make_table, free_table),
        cmocka_unit_test_setup_teardown(test_silence, make_table, free_table),
        cmocka_unit_test_setup_teardown(test_rails, make_table, free_table),
        cmocka_unit_test_setup_teardown(test_full_table, make_table, free_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
