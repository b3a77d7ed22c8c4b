/* Which path record of the subnet manager's is taken. Records as `saquery PR` prints them for a fat tree with LMC 1, and for a torus. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "net/verbs/path.h"

enum { SDR_4X = 3, FDR_4X = 12, EDR_4X = 16, HDR_4X = 17 }; /* rate codes: 10, 56, 100, 200 Gb/s */

static const uint8_t here[16] = {0xfe, 0x80, [8] = 0xec, 0x0d, 0x9a, 3, 0, 0x1c, 0x2b, 1};
static const uint8_t there[16] = {0xfe, 0x80, [8] = 0xec, 0x0d, 0x9a, 3, 0, 0x1c, 0x2b, 2};
static const uint8_t elsewhere[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 1, 0xec, 0x0d, 0x9a, 3, 0, 0x1c, 0x2b, 3};

static struct device_rail a_rail(void)
{
    struct device_rail rail = {.link = DEVICE_LINK_INFINIBAND, .port = 1, .mtu_bytes = 4096, .lid = 4, .pkey = 0xffff, .service_level = 2};
    memcpy(rail.gid, here, 16);
    return rail;
}

static struct path_end an_end(const uint8_t gid[16])
{
    struct path_end end = {.lid = 12, .mtu_bytes = 4096, .infiniband = true};
    memcpy(end.gid, gid, 16);
    return end;
}

static struct path_record a_record(uint16_t lid, uint8_t service_level)
{
    struct path_record record = {
        .dlid = lid, .pkey = 0xffff, .service_level = service_level, .rate = EDR_4X, .life_time = 18, .mtu_bytes = 4096, .reversible = true};
    memcpy(record.dgid, there, 16);
    return record;
}

static void test_none(void **state)
{
    (void)state;
    struct device_rail rail = a_rail();
    struct path_end end = an_end(there);
    end.mtu_bytes = 2048;
    struct path_route route = path_choose(&rail, &end, NULL, 0, 96);
    assert_false(route.recorded);
    assert_false(route.global);
    assert_int_equal(route.lid, 12);
    assert_int_equal(route.service_level, 2); /* the configured one */
    assert_int_equal(route.mtu_bytes, 2048);
    end = an_end(elsewhere);
    assert_true(path_choose(&rail, &end, NULL, 0, 96).global); /* another subnet: through a router */
}

static void test_ethernet(void **state)
{
    (void)state;
    struct device_rail rail = a_rail();
    struct path_end end = an_end(there);
    struct path_record record = a_record(12, 5);
    rail.link = DEVICE_LINK_ETHERNET;
    end.infiniband = false;
    struct path_route route = path_choose(&rail, &end, &record, 1, 96);
    assert_false(route.recorded);
    assert_true(route.global);
    assert_int_equal(route.lid, 0);
    assert_int_equal(route.service_level, 0);
    assert_int_equal(route.traffic_class, 96);
    assert_true(route.hop_limit > 1);
}

/* A torus: the service level keeps packets out of deadlocks, and the configured one would not. */
static void test_torus(void **state)
{
    (void)state;
    struct device_rail rail = a_rail();
    struct path_end end = an_end(there);
    struct path_record record = a_record(12, 9);
    record.mtu_bytes = 2048;
    struct path_route route = path_choose(&rail, &end, &record, 1, 0);
    assert_true(route.recorded);
    assert_int_equal(route.service_level, 9);
    assert_int_equal(route.mtu_bytes, 2048);
    assert_int_equal(route.rate, EDR_4X);
    assert_false(route.global);
}

static void test_choice(void **state)
{
    (void)state;
    struct device_rail rail = a_rail();
    struct path_end end = an_end(there);
    struct path_record records[4] = {a_record(13, 1), a_record(12, 3), a_record(13, 4), a_record(13, 5)}; /* LMC 1: LIDs 12 and 13 */
    assert_int_equal(path_choose(&rail, &end, records, 4, 0).service_level, 3); /* the LID that the peer told */
    records[1].pkey = 0x8001; /* another partition */
    records[0].rate = FDR_4X;
    records[2].rate = HDR_4X;
    records[3].rate = HDR_4X;
    records[3].life_time = 17;
    assert_int_equal(path_choose(&rail, &end, records, 4, 0).service_level, 5);
    records[0].mtu_bytes = 4096;
    records[2].mtu_bytes = records[3].mtu_bytes = 2048;
    assert_int_equal(path_choose(&rail, &end, records, 4, 0).service_level, 1);
    records[0].reversible = false;
    assert_int_equal(path_choose(&rail, &end, records, 4, 0).service_level, 5);
    memcpy(records[2].dgid, elsewhere, 16);
    memcpy(records[3].dgid, elsewhere, 16);
    assert_false(path_choose(&rail, &end, records, 4, 0).recorded);
    records[1].pkey = 0x7fff; /* limited membership of the same partition */
    assert_int_equal(path_choose(&rail, &end, records, 4, 0).service_level, 3);
}

/* Codes are not in order of speed: the InfiniBand specification, PathRecord, Rate. */
static void test_rates(void **state)
{
    (void)state;
    static const uint8_t in_order[] = {2, 5, 3, 11, 6, 15, 19, 4, 7, 20, 12, 8, 9, 16, 13, 10, 14, 17, 18, 21, 22};
    for (size_t i = 1; i < sizeof in_order; i++) {
        assert_true(path_compare_rates(in_order[i - 1], in_order[i]) < 0);
        assert_true(path_compare_rates(in_order[i], in_order[i - 1]) > 0);
    }
    assert_int_equal(path_compare_rates(SDR_4X, SDR_4X), 0);
    assert_true(path_compare_rates(200, 2) < 0); /* unknown ones last */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none),   cmocka_unit_test(test_ethernet), cmocka_unit_test(test_torus),
        cmocka_unit_test(test_choice), cmocka_unit_test(test_rates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
