/*
 * The choice of RDMA ports on tables of what devices say. The tables have the form of `ibv_devinfo -v` and `show_gids`: the RoCE
 * ones as Mellanox OFED's manual prints them (GIDs 0 to 3: link-local v1 and v2, then the IPv4 address v1 and v2), soft-RoCE as
 * Linux 6.1 gives it (0: link-local, 1: IPv4, both v2), the InfiniBand ones as ibstat shows an HCA with both ports.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>

#include "net/verbs/device_choice.h"

static struct device_port *add_port(struct device_table *table, const char *name, enum device_link link, const char *state, uint64_t gbps)
{
    struct device_record *device = NULL;
    for (uint32_t i = 0; i < table->n; i++)
        if (strcmp(table->devices[i].name, name) == 0)
            device = &table->devices[i];
    if (device == NULL) {
        device = &table->devices[table->n++];
        snprintf(device->name, sizeof device->name, "%s", name);
    }
    struct device_port *port = &device->ports[device->n_ports++];
    *port = (struct device_port){.number = device->n_ports,
                                 .link = link,
                                 .active = strcmp(state, "ACTIVE") == 0,
                                 .state = state,
                                 .speed_mbps = gbps * 1000,
                                 .mtu_bytes = 1024};
    return port;
}

static void add_gid(struct device_port *port, uint32_t index, enum device_gid_type type, const char *text)
{
    struct device_gid *gid = &port->gids[port->n_gids++];
    *gid = (struct device_gid){.index = index, .type = type};
    assert_int_equal(inet_pton(AF_INET6, text, gid->bytes), 1);
}

static struct device_port *add_roce(struct device_table *table, const char *name, const char *state, uint64_t gbps, const char *v4)
{
    struct device_port *port = add_port(table, name, DEVICE_LINK_ETHERNET, state, gbps);
    port->pkeys[port->n_pkeys++] = 0xffff;
    add_gid(port, 0, DEVICE_GID_ROCE_V1, "fe80::268a:7ff:fe55:4660");
    add_gid(port, 1, DEVICE_GID_ROCE_V2, "fe80::268a:7ff:fe55:4660");
    if (v4 != NULL) {
        char mapped[64];
        snprintf(mapped, sizeof mapped, "::ffff:%s", v4);
        add_gid(port, 2, DEVICE_GID_ROCE_V1, mapped);
        add_gid(port, 3, DEVICE_GID_ROCE_V2, mapped);
    }
    return port;
}

static struct device_port *add_infiniband(struct device_table *table, const char *name, const char *state, uint64_t gbps, uint16_t lid)
{
    struct device_port *port = add_port(table, name, DEVICE_LINK_INFINIBAND, state, gbps);
    port->lid = lid;
    port->pkeys[port->n_pkeys++] = 0xffff;
    add_gid(port, 0, DEVICE_GID_INFINIBAND, "fe80::248a:703:55:4661");
    return port;
}

static struct device_wish wish_address(const char *v4)
{
    struct device_wish wish = {.has_address = true};
    char mapped[64];
    snprintf(mapped, sizeof mapped, "::ffff:%s", v4);
    assert_int_equal(inet_pton(AF_INET6, mapped, wish.address), 1);
    return wish;
}

static struct device_rail choose_first(const struct device_table *table, const struct device_wish *wish, uint32_t expected_n)
{
    struct device_rail rails[DEVICE_MAX_RAILS];
    uint32_t n = 0;
    struct error err = {0};
    if (device_choose(table, wish, rails, DEVICE_MAX_RAILS, &n, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(n, expected_n);
    return rails[0];
}

static void expect_error(const struct device_table *table, const char *device, int code, const char *text)
{
    struct device_wish wish = {.device = device};
    struct device_rail rails[DEVICE_MAX_RAILS];
    uint32_t n = 77;
    struct error err = {0};
    assert_int_equal(device_choose(table, &wish, rails, DEVICE_MAX_RAILS, &n, &err), code);
    assert_string_equal(err.text, text);
    assert_int_equal(n, 77);
}

static void test_no_device(void **state)
{
    static struct device_table table;
    const char *text = "no RDMA device on this machine: load its driver (`rdma link show` lists devices), or use --fabric sockets";
    expect_error(&table, NULL, HS_ERR_UNSUPPORTED, text);
    expect_error(&table, "mlx5_0", HS_ERR_UNSUPPORTED, text);
}

static void test_roce_takes_type_not_index(void **state)
{
    static struct device_table table;
    add_roce(&table, "mlx5_0", "ACTIVE", 100, "10.0.0.1");
    struct device_rail rail = choose_first(&table, &(struct device_wish){0}, 1);
    assert_string_equal(rail.device, "mlx5_0");
    assert_int_equal(rail.port, 1);
    assert_int_equal(rail.gid_index, 3); /* IPv4 and v2 */
    assert_int_equal(rail.pkey_index, 0);
    assert_int_equal(rail.mtu_bytes, 1024);

    static struct device_table soft; /* the same address at another index, v2 at a link-local one before it */
    struct device_port *port = add_port(&soft, "rxe0", DEVICE_LINK_ETHERNET, "ACTIVE", 2);
    add_gid(port, 0, DEVICE_GID_ROCE_V2, "fe80::ff:fe00:7701");
    add_gid(port, 1, DEVICE_GID_ROCE_V2, "::ffff:10.77.0.1");
    assert_int_equal(choose_first(&soft, &(struct device_wish){0}, 1).gid_index, 1);
}

static void test_roce_routability(void **state)
{
    static struct device_table table;
    struct device_port *port = add_roce(&table, "mlx5_0", "ACTIVE", 100, NULL);
    assert_int_equal(choose_first(&table, &(struct device_wish){0}, 1).gid_index, 1); /* link-local: the last resort */
    add_gid(port, 4, DEVICE_GID_ROCE_V2, "::ffff:169.254.7.7");
    assert_int_equal(choose_first(&table, &(struct device_wish){0}, 1).gid_index, 1); /* no better than the other link-local one */
    add_gid(port, 5, DEVICE_GID_ROCE_V2, "fd00::7");
    assert_int_equal(choose_first(&table, &(struct device_wish){0}, 1).gid_index, 5);
    add_gid(port, 6, DEVICE_GID_ROCE_V2, "2001:db8::7");
    assert_int_equal(choose_first(&table, &(struct device_wish){0}, 1).gid_index, 6);
    add_gid(port, 7, DEVICE_GID_ROCE_V1, "::ffff:10.0.0.7");
    assert_int_equal(choose_first(&table, &(struct device_wish){0}, 1).gid_index, 6); /* v1 does not cross routers */
    add_gid(port, 8, DEVICE_GID_ROCE_V2, "::ffff:10.0.0.7");
    assert_int_equal(choose_first(&table, &(struct device_wish){0}, 1).gid_index, 8);
}

static void test_address_of_bind(void **state)
{
    static struct device_table table;
    add_roce(&table, "mlx5_0", "ACTIVE", 400, "10.0.0.1");
    struct device_port *second = add_roce(&table, "mlx5_1", "ACTIVE", 100, "10.0.1.1");
    add_gid(second, 4, DEVICE_GID_ROCE_V1, "::ffff:10.0.2.1");
    add_gid(second, 5, DEVICE_GID_ROCE_V2, "::ffff:10.0.2.1");
    assert_string_equal(choose_first(&table, &(struct device_wish){0}, 2).device, "mlx5_0"); /* the faster */
    struct device_wish wish = wish_address("10.0.2.1");
    struct device_rail rail = choose_first(&table, &wish, 2);
    assert_string_equal(rail.device, "mlx5_1");
    assert_int_equal(rail.gid_index, 5);
    assert_true(rail.has_address);
    wish = wish_address("192.168.0.9"); /* another network's: no reason to refuse */
    rail = choose_first(&table, &wish, 2);
    assert_string_equal(rail.device, "mlx5_0");
    assert_false(rail.has_address);
}

static void test_down_and_mixed(void **state)
{
    static struct device_table table;
    add_roce(&table, "mlx5_0", "DOWN", 400, "10.0.0.1");
    struct device_port *first = add_infiniband(&table, "mlx5_1", "INIT", 200, 0);
    add_infiniband(&table, "mlx5_1", "ACTIVE", 200, 17);
    add_roce(&table, "mlx5_2", "ACTIVE", 100, "10.0.2.1");
    struct device_wish wish = {.service_level = 3};
    struct device_rail rail = choose_first(&table, &wish, 2);
    assert_string_equal(rail.device, "mlx5_1");
    assert_int_equal(rail.port, 2);
    assert_int_equal(rail.link, DEVICE_LINK_INFINIBAND);
    assert_int_equal(rail.lid, 17);
    assert_int_equal(rail.pkey, 0xffff);
    assert_int_equal(rail.service_level, 3);
    assert_int_equal(rail.gid_index, 0);
    wish.device = "mlx5_2";
    rail = choose_first(&table, &wish, 1);
    assert_string_equal(rail.device, "mlx5_2");
    assert_int_equal(rail.gid_index, 3);
    wish.device = "mlx5_1"; /* whichever of its ports can be used */
    assert_int_equal(choose_first(&table, &wish, 1).port, 2);
    expect_error(&table, "mlx5_1:1", HS_ERR_CLOSED, "RDMA device mlx5_1 port 1 is INIT: check the cable and the subnet manager");
    expect_error(&table, "mlx5_0", HS_ERR_CLOSED,
                 "RDMA device mlx5_0 port 1 is DOWN: check the cable and `ip link set ... up` its network interface");
    first->active = true;
    expect_error(&table, "mlx5_1:1", HS_ERR_CLOSED, "RDMA device mlx5_1 port 1 has no LID: start a subnet manager (opensm) in the fabric");
}

static void test_partition_keys(void **state)
{
    static struct device_table table;
    struct device_port *port = add_infiniband(&table, "mlx5_0", "ACTIVE", 200, 4);
    port->n_pkeys = 3;
    port->pkeys[0] = 0x7fff; /* limited member of the default partition */
    port->pkeys[1] = 0x0000;
    port->pkeys[2] = 0x8005; /* full member of another */
    struct device_rail rail = choose_first(&table, &(struct device_wish){0}, 1);
    assert_int_equal(rail.pkey, 0x8005);
    assert_int_equal(rail.pkey_index, 2);
    port->pkeys[1] = 0xffff;
    assert_int_equal(choose_first(&table, &(struct device_wish){0}, 1).pkey_index, 1);
    port->n_pkeys = 1; /* limited: better than nothing */
    assert_int_equal(choose_first(&table, &(struct device_wish){0}, 1).pkey_index, 0);
    port->pkeys[0] = 0;
    expect_error(&table, NULL, HS_ERR_UNSUPPORTED,
                 "no RDMA port can be used: mlx5_0 port 1 is in no partition: have the subnet manager give it a partition key");
}

static void test_unusable(void **state)
{
    static struct device_table table;
    add_roce(&table, "mlx5_0", "DOWN", 100, "10.0.0.1");
    struct device_port *v1_only = add_port(&table, "mlx5_1", DEVICE_LINK_ETHERNET, "ACTIVE", 100);
    add_gid(v1_only, 0, DEVICE_GID_ROCE_V1, "fe80::268a:7ff:fe55:4660");
    add_gid(v1_only, 1, DEVICE_GID_ROCE_V2, "::"); /* an empty slot */
    expect_error(&table, NULL, HS_ERR_UNSUPPORTED,
                 "no RDMA port can be used: mlx5_0 port 1 is DOWN: check the cable and `ip link set ... up` its network interface, "
                 "mlx5_1 port 1 has no RoCE v2 address: give its network interface an IP address (`ip address add`), or set its mode to "
                 "RoCE v2");
    static struct device_table other;
    add_port(&other, "usnic_0", DEVICE_LINK_OTHER, "ACTIVE", 10);
    expect_error(&other, "usnic_0", HS_ERR_CLOSED, "RDMA device usnic_0 port 1 has neither an InfiniBand nor an Ethernet link layer");
    static struct device_table portless;
    portless.n = 1;
    snprintf(portless.devices[0].name, DEVICE_NAME, "odd0");
    expect_error(&portless, NULL, HS_ERR_UNSUPPORTED, "no RDMA port can be used: the devices have none");
    expect_error(&portless, "odd0", HS_ERR_CLOSED, "RDMA device odd0 port 0 has no port");
}

static void test_names(void **state)
{
    static struct device_table table;
    add_roce(&table, "mlx5_0", "ACTIVE", 100, "10.0.0.1");
    add_roce(&table, "mlx5_1", "ACTIVE", 100, "10.0.1.1");
    expect_error(&table, "mlx4_0", HS_ERR_NOT_FOUND, "no RDMA device \"mlx4_0\" here: there is mlx5_0, mlx5_1");
    expect_error(&table, "mlx5_1:2", HS_ERR_NOT_FOUND, "RDMA device mlx5_1 has no port 2: its ports are 1 to 1");
    expect_error(&table, "mlx5_1:x", HS_ERR_PARSE,
                 "\"mlx5_1:x\" is no RDMA device: give DEV, DEV:PORT or DEV:PORT:GID-INDEX, such as mlx5_0:1");
    expect_error(&table, "mlx5_0,", HS_ERR_PARSE, "\"\" is no RDMA device: give DEV, DEV:PORT or DEV:PORT:GID-INDEX, such as mlx5_0:1");
    expect_error(&table, ":1", HS_ERR_PARSE, "\":1\" is no RDMA device: give DEV, DEV:PORT or DEV:PORT:GID-INDEX, such as mlx5_0:1");
    expect_error(&table, "mlx5_0,mlx5_0:1", HS_ERR_PARSE, "RDMA device mlx5_0 port 1 is named twice");
    expect_error(&table, "mlx5_0:1:2", HS_ERR_NOT_FOUND,
                 "RDMA device mlx5_0 port 1 has no RoCE v2 GID with index 2: usable are 1 (fe80::268a:7ff:fe55:4660), 3 (::ffff:10.0.0.1)");
    struct device_wish wish = {.device = "mlx5_0:1:1"};
    assert_int_equal(choose_first(&table, &wish, 1).gid_index, 1);
}

static void test_rails(void **state)
{
    static struct device_table table;
    add_roce(&table, "mlx5_3", "ACTIVE", 100, "10.0.3.1");
    add_roce(&table, "mlx5_0", "ACTIVE", 100, "10.0.0.1");
    add_roce(&table, "mlx5_2", "DOWN", 100, "10.0.2.1");
    add_roce(&table, "mlx5_1", "ACTIVE", 100, "10.0.1.1");
    add_roce(&table, "mlx5_4", "ACTIVE", 200, "10.0.4.1");
    struct device_rail rails[DEVICE_MAX_RAILS];
    uint32_t n;
    struct device_wish wish = {0};
    assert_int_equal(device_choose(&table, &wish, rails, DEVICE_MAX_RAILS, &n, NULL), 0);
    assert_int_equal(n, 4);
    const char *order[] = {"mlx5_4", "mlx5_0", "mlx5_1", "mlx5_3"};
    for (uint32_t i = 0; i < n; i++)
        assert_string_equal(rails[i].device, order[i]);
    assert_int_equal(device_choose(&table, &wish, rails, 2, &n, NULL), 0); /* the best of them where there is less room */
    assert_int_equal(n, 2);
    assert_string_equal(rails[1].device, "mlx5_0");
    wish.device = "mlx5_3,mlx5_1:1";
    assert_int_equal(device_choose(&table, &wish, rails, DEVICE_MAX_RAILS, &n, NULL), 0);
    assert_int_equal(n, 2);
    assert_string_equal(rails[0].device, "mlx5_3");
    assert_string_equal(rails[1].device, "mlx5_1");
    wish.device = "mlx5_3,mlx5_1,mlx5_0";
    struct error err;
    assert_int_equal(device_choose(&table, &wish, rails, 2, &n, &err), HS_ERR_LIMIT);
    assert_string_equal(err.text, "\"mlx5_3,mlx5_1,mlx5_0\" names more than 2 RDMA ports");
    expect_error(&table, "mlx5_0,mlx5_2", HS_ERR_CLOSED,
                 "RDMA device mlx5_2 port 1 is DOWN: check the cable and `ip link set ... up` its network interface");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_device),      cmocka_unit_test(test_roce_takes_type_not_index), cmocka_unit_test(test_roce_routability),
        cmocka_unit_test(test_address_of_bind), cmocka_unit_test(test_down_and_mixed),            cmocka_unit_test(test_partition_keys),
        cmocka_unit_test(test_unusable),       cmocka_unit_test(test_names),                     cmocka_unit_test(test_rails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
