/*
 * Path records through the kernel's connection manager, on a machine with RDMA devices (the virtual machine of tests/lab): there, on Ethernet,
 * the kernel makes up the records itself, so this shows that questions and answers work, not what a subnet manager says.
 */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/error.h"
#include "net/verbs/path_records.h"
#include "net/verbs/rails.h"

static struct device_rail rail;

static void wait_answer(struct path_records *records, struct path_answer *out)
{
    struct pollfd fd = {.fd = path_records_fd(records), .events = POLLIN};
    while (!path_records_take(records, out))
        assert_true(poll(&fd, 1, 20000) == 1);
}

static struct path_records *open_records(void)
{
    struct path_records *records = NULL;
    assert_int_equal(path_records_open(&records), 0);
    return records;
}

static void test_found(void **state)
{
    (void)state;
    struct path_records *records = open_records();
    struct path_answer answer;
    uint8_t there[16];
    memcpy(there, rail.gid, 16);
    there[15] = 2; /* 10.77.0.2, the second host */
    assert_false(path_records_take(records, &answer));
    for (uint64_t cookie = 5; cookie < 9; cookie++)
        assert_int_equal(path_records_ask(records, &rail, there, cookie), 0);
    uint64_t cookies = 0;
    for (int i = 0; i < 4; i++) {
        wait_answer(records, &answer);
        assert_int_equal(answer.status, 0);
        assert_int_equal(answer.n, 1);
        assert_memory_equal(answer.records[0].dgid, there, 16);
        assert_int_equal(answer.records[0].mtu_bytes, rail.mtu_bytes);
        assert_true(answer.records[0].reversible);
        assert_int_equal(answer.records[0].pkey, 0xffff);
        cookies += answer.cookie;
    }
    assert_int_equal(cookies, 5 + 6 + 7 + 8);
    path_records_close(records);
}

static void test_nobody_there(void **state)
{
    (void)state;
    struct path_records *records = open_records();
    struct path_answer answer;
    uint8_t there[16];
    memcpy(there, rail.gid, 16);
    there[15] = 200; /* of the same network, nobody has it */
    assert_int_equal(path_records_ask(records, &rail, there, 1), 0);
    wait_answer(records, &answer);
    assert_int_not_equal(answer.status, 0);
    assert_int_equal(answer.n, 0);
    there[0] = 0xfe; /* no IPv4 address */
    assert_int_equal(path_records_ask(records, &rail, there, 2), HS_ERR_UNSUPPORTED);
    path_records_close(records);
}

static void test_many(void **state)
{
    (void)state;
    struct path_records *records = open_records();
    uint8_t there[16];
    memcpy(there, rail.gid, 16);
    there[15] = 200;
    for (uint32_t i = 0; i < PATH_ASKS_MAX; i++)
        assert_int_equal(path_records_ask(records, &rail, there, i), 0);
    assert_int_equal(path_records_ask(records, &rail, there, 99), HS_ERR_BUSY);
    path_records_close(records); /* with all of them open */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_found), cmocka_unit_test(test_nobody_there), cmocka_unit_test(test_many)};
    struct transport_verbs_config config = {.bind = "10.77.0.1:0"};
    struct device_rail chosen[DEVICE_MAX_RAILS];
    struct error err = {0};
    uint32_t n = 0;
    if (rails_choose(&config, chosen, &n, &err) != 0 || !chosen[0].has_address) {
        printf("skipped: no RDMA device with the address 10.77.0.1, as in the virtual machine of tests/lab: %s\n", err.text);
        return 77;
    }
    rail = chosen[0];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
