/* Which path record of the subnet manager's is taken. Records as `saquery PR` prints them for a fat tree with LMC 1, and for a torus. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "net/verbs/path.h"
#include "net/verbs/path_retry.h"

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

/* What was taken for want of a record is kept where the record, when it comes, would lead the same way. */
static void test_as_recorded(void **state)
{
    (void)state;
    struct device_rail rail = a_rail();
    struct path_end end = an_end(there);
    struct path_record record = a_record(12, 2);
    struct path_route used = path_choose(&rail, &end, NULL, 0, 96), recorded = path_choose(&rail, &end, &record, 1, 96);
    assert_true(path_is_as_recorded(&used, &recorded)); /* the configured service level happens to be right */
    record.service_level = 9;
    recorded = path_choose(&rail, &end, &record, 1, 96);
    assert_false(path_is_as_recorded(&used, &recorded));
    record = a_record(13, 2);
    recorded = path_choose(&rail, &end, &record, 1, 96);
    assert_false(path_is_as_recorded(&used, &recorded));
    record = a_record(12, 2);
    record.mtu_bytes = 2048; /* a link on the way takes no more */
    recorded = path_choose(&rail, &end, &record, 1, 96);
    assert_false(path_is_as_recorded(&used, &recorded));
    end.mtu_bytes = 1024;
    used = path_choose(&rail, &end, NULL, 0, 96);
    assert_true(path_is_as_recorded(&used, &recorded));
    record.hop_limit = 64; /* with a routing header, and a traffic class of the subnet manager's */
    recorded = path_choose(&rail, &end, &record, 1, 96);
    assert_false(path_is_as_recorded(&used, &recorded));
    used = recorded;
    assert_true(path_is_as_recorded(&used, &recorded));
    used.traffic_class = 96;
    assert_false(path_is_as_recorded(&used, &recorded));
}

/*
 * What a subnet manager answered: OpenSM 3.3.23 with `-R lash` over a torus of 4 x 4 switches with a host each, simulated by ibsim 0.10; `saquery -p
 * --src-to-dst 1:N` for each host N. To three of the hosts packets must take service level 1, or the torus can stand still.
 */
static const struct {
    uint16_t lid;
    uint8_t port_guid, service_level;
} lash_torus[] = {{5, 0x03, 0},  {8, 0x05, 0},  {11, 0x07, 0}, {14, 0x09, 0}, {17, 0x0b, 1}, {20, 0x0d, 0}, {23, 0x0f, 1}, {25, 0x11, 0},
                  {26, 0x13, 1}, {27, 0x15, 0}, {28, 0x17, 0}, {29, 0x19, 0}, {30, 0x1b, 0}, {31, 0x1d, 0}, {32, 0x1f, 0}};
enum { HOSTS = sizeof lash_torus / sizeof lash_torus[0] };

static void make_gid(uint8_t port_guid, uint8_t gid[16])
{
    memset(gid, 0, 16);
    gid[0] = 0xfe;
    gid[1] = 0x80;
    gid[13] = 0x10;
    gid[15] = port_guid;
}

static void test_recorded_torus(void **state)
{
    (void)state;
    struct device_rail rail = {.link = DEVICE_LINK_INFINIBAND, .port = 1, .mtu_bytes = 2048, .lid = 1, .pkey = 0xffff};
    struct path_record records[HOSTS];
    make_gid(0x01, rail.gid);
    for (uint32_t i = 0; i < HOSTS; i++) {
        records[i] = (struct path_record){.dlid = lash_torus[i].lid, .pkey = 0xffff, .service_level = lash_torus[i].service_level, .rate = SDR_4X,
                                          .life_time = 18, .mtu_bytes = 2048, .reversible = true};
        make_gid(lash_torus[i].port_guid, records[i].dgid);
    }
    uint32_t anew = 0;
    for (uint32_t i = 0; i < HOSTS; i++) {
        struct path_end end = {.lid = lash_torus[i].lid, .mtu_bytes = 4096, .infiniband = true};
        memcpy(end.gid, records[i].dgid, 16);
        /* At first nobody answers, then the one record comes, or all do. */
        struct path_route told = path_choose(&rail, &end, NULL, 0, 0), one = path_choose(&rail, &end, &records[i], 1, 0),
                          all = path_choose(&rail, &end, records, HOSTS, 0);
        assert_int_equal(told.lid, lash_torus[i].lid);
        assert_true(one.recorded && all.recorded);
        assert_int_equal(one.lid, lash_torus[i].lid);
        assert_int_equal(one.service_level, lash_torus[i].service_level);
        assert_int_equal(one.mtu_bytes, 2048);
        assert_false(one.global);
        assert_true(path_is_as_recorded(&one, &all) && path_is_as_recorded(&all, &one));
        assert_int_equal(path_is_as_recorded(&told, &one), lash_torus[i].service_level == 0); /* only those are connected anew */
        anew += !path_is_as_recorded(&told, &one);
    }
    assert_int_equal(anew, 3);
}

/* ---- asking again ---- */

#define SECOND UINT64_C(1000000000)

static void test_retries(void **state)
{
    (void)state;
    static const uint64_t seconds[] = {1, 2, 4, 8, 16, 32, 64, 64, 64};
    struct path_retry retry = {.due_ns = 0};
    uint64_t now = 5 * SECOND;
    assert_true(path_retry_due(&retry, now));
    for (size_t i = 0; i < sizeof seconds / sizeof seconds[0]; i++) {
        path_retry_asked(&retry);
        assert_false(path_retry_due(&retry, now + 1000 * SECOND)); /* an answer is under way */
        uint64_t random = i % 2 ? 0 : seconds[i] * SECOND / 2, due = path_retry_failed(&retry, now, random);
        assert_int_equal(due - now, seconds[i] * SECOND + random);
        assert_false(path_retry_due(&retry, due - 1));
        assert_true(path_retry_due(&retry, due));
        now = due;
    }
    for (uint64_t i = 0; i < 100; i++) { /* at most a half more, whatever the random number */
        struct path_retry fresh = {.due_ns = 0};
        uint64_t due = path_retry_failed(&fresh, 0, UINT64_MAX / 99 * i);
        assert_true(due >= SECOND && due <= 3 * SECOND / 2);
    }
    path_retry_settled(&retry);
    assert_false(path_retry_due(&retry, UINT64_MAX));
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
        cmocka_unit_test(test_choice), cmocka_unit_test(test_rates),    cmocka_unit_test(test_as_recorded),
        cmocka_unit_test(test_recorded_torus), cmocka_unit_test(test_retries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
