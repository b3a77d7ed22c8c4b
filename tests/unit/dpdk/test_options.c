/* --device, --eal and what is said about network cards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "net/dpdk/device_text.h"
#include "net/dpdk/eal_arguments.h"
#include "net/dpdk/nic_scan.h"

static void test_device(void **state)
{
    (void)state;
    struct device_text device;
    struct error err;
    assert_int_equal(device_text_parse(NULL, &device, &err), 0);
    assert_int_equal(device.n_ports, 0);
    assert_int_equal(device.queues, 1);
    assert_int_equal(device_text_parse("net_memif0,0000:01:00.0,mtu=9000,queues=4,prefix=24,gateway=10.0.0.254", &device, &err), 0);
    assert_int_equal(device.n_ports, 2);
    assert_string_equal(device.ports[1], "0000:01:00.0");
    assert_int_equal(device.mtu, 9000);
    assert_int_equal(device.queues, 4);
    assert_int_equal(device.prefix, 24);
    assert_int_equal(device.gateway, 0x0a0000fe);
}

static void test_device_refused(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"a,,b", "not a list"}, {",", "not a list"}, {"a,", "ends in a comma"}, {"a,a", "named twice"}, {"mtu=100", "mtu: "}, {"mtu=x", "mtu: "},
        {"queues=0", "queues: "}, {"speed=9", "\"speed\" is not one of"}, {"gateway=10.0.0.1", "go together"}, {"prefix=24", "go together"},
        {"prefix=33,gateway=1.2.3.4", "prefix: "}, {"gateway=host,prefix=8", "not an IPv4 address"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct device_text device;
        struct error err = {0};
        assert_int_equal(device_text_parse(wrong[i][0], &device, &err), HS_ERR_PARSE);
        if (strstr(err.text, wrong[i][1]) == NULL)
            fail_msg("%s: %s", wrong[i][0], err.text);
    }
}

static void check_words(const char *text, const char *const *expected)
{
    static struct eal_arguments arguments;
    struct error err = {0};
    if (eal_arguments_parse(text, 3, &arguments, &err) != 0)
        fail_msg("%s: %s", text, err.text);
    for (int i = 0; expected[i] != NULL || arguments.argv[i] != NULL; i++) {
        assert_non_null(expected[i]);
        assert_non_null(arguments.argv[i]);
        assert_string_equal(arguments.argv[i], expected[i]);
    }
}

static void test_eal_words(void **state)
{
    (void)state;
    check_words("", (const char *const[]){"hearsay", "-l", "3", "--no-telemetry", "--in-memory", NULL});
    check_words(" --no-huge\t-l1 ", (const char *const[]){"hearsay", "--no-huge", "-l1", "--no-telemetry", "--no-shconf", "-m", "256", NULL});
    check_words("--lcores '(0)@1' --file-prefix=\"a b\\\"c\" --vdev net_memif0,socket=/tmp/a\\ b --telemetry",
                (const char *const[]){"hearsay", "--lcores", "(0)@1", "--file-prefix=a b\"c", "--vdev", "net_memif0,socket=/tmp/a b",
                                      "--telemetry", NULL});
    check_words("-m 64 --no-huge --no-shconf -c 1 --no-telemetry",
                (const char *const[]){"hearsay", "-m", "64", "--no-huge", "--no-shconf", "-c", "1", "--no-telemetry", NULL});
}

static void test_eal_refused(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"--no-huge --in-memory", "contradict"}, {"--no-huge --huge-dir /x", "contradict"}, {"-l 0 -c 1", "contradict"}, {"-a 1 --block 2", "contradict"},
        {"--nohuge", "\"--nohuge\" is not an EAL argument"}, {"eth0", "needs quotes"}, {"--", "not an EAL argument"}, {"-", "not an EAL argument"},
        {"-h", "not an EAL argument"}, {"--vdev", "--vdev needs a value"}, {"--no-pci=1", "takes no value"}, {"--vdev 'x", "never closed"},
        {"--proc-type=secondary", "process of its own"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        static struct eal_arguments arguments;
        struct error err = {0};
        assert_true(eal_arguments_parse(wrong[i][0], 0, &arguments, &err) < 0);
        if (strstr(err.text, wrong[i][1]) == NULL)
            fail_msg("%s: %s", wrong[i][0], err.text);
    }
}

static void test_eal_bounds(void **state)
{
    (void)state;
    static struct eal_arguments arguments;
    static char text[20000];
    struct error err = {0};
    for (size_t i = 0; i + 10 < sizeof text; i += 9)
        memcpy(text + i, "--no-pci ", 10);
    assert_int_equal(eal_arguments_parse(text, 0, &arguments, &err), HS_ERR_LIMIT);
    memset(text, 'x', sizeof text - 1);
    assert_int_equal(eal_arguments_parse(text, 0, &arguments, &err), HS_ERR_LIMIT);
}

static void test_eal_lookup(void **state)
{
    (void)state;
    static struct eal_arguments arguments;
    char value[16];
    assert_int_equal(eal_arguments_parse("--vdev=net_a0,iface=eth0,x=1 -n 2 --vdev net_b0,role=server", 0, &arguments, NULL), 0);
    assert_string_equal(eal_arguments_vdev(&arguments, 0), "net_a0,iface=eth0,x=1");
    assert_string_equal(eal_arguments_vdev(&arguments, 1), "net_b0,role=server");
    assert_null(eal_arguments_vdev(&arguments, 2));
    assert_true(eal_device_value("net_a0,iface=eth0,x=1", "iface", value, sizeof value));
    assert_string_equal(value, "eth0");
    assert_true(eal_device_value("net_a0,iface=eth0,x=1", "x", value, sizeof value));
    assert_string_equal(value, "1");
    assert_false(eal_device_value("net_a0,iface=eth0", "face", value, sizeof value));
    assert_false(eal_device_value("net_a0,iface=eth0", "iface", value, 4));
    assert_true(eal_device_value("x=1,y=2,x=3", "x", value, sizeof value)); /* the last one counts, for DPDK, too */
    assert_string_equal(value, "3");
    assert_true(eal_device_is_memif_server("net_memif1,id=2,role=master"));
    assert_false(eal_device_is_memif_server("net_memif1,role=client"));
    assert_false(eal_device_is_memif_server("net_memif1,socket=server"));
}

static void test_eal_extended(void **state)
{
    (void)state;
    static struct eal_arguments arguments;
    static char text[EAL_ARGUMENT_BYTES];
    struct error err = {0};
    assert_int_equal(eal_arguments_parse("--vdev net_a0 -n 2 --vdev=net_b0,x=1", 0, &arguments, &err), 0);
    assert_int_equal(eal_arguments_extend(&arguments, 1, ",y=2", &err), 0);
    assert_int_equal(eal_arguments_extend(&arguments, 0, ",z=3", &err), 0);
    assert_string_equal(eal_arguments_vdev(&arguments, 0), "net_a0,z=3");
    assert_string_equal(arguments.argv[5], "--vdev=net_b0,x=1,y=2");
    memset(text, 'x', sizeof text - 1);
    assert_int_equal(eal_arguments_extend(&arguments, 0, text, &err), HS_ERR_LIMIT);
    assert_string_equal(eal_arguments_vdev(&arguments, 0), "net_a0,z=3");
}

/* ---- cards, on a tree like the kernel's ---- */

static void put_card(const char *root, const char *name, const char *class, const char *driver)
{
    char path[256], target[128];
    snprintf(path, sizeof path, "%s/bus/pci/devices/%s", root, name);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/bus/pci/devices/%s/class", root, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%s\n", class);
    fclose(file);
    snprintf(path, sizeof path, "%s/bus/pci/devices/%s/driver", root, name);
    snprintf(target, sizeof target, "../../drivers/%s", driver);
    if (*driver)
        assert_int_equal(symlink(target, path), 0);
}

static void check_card(const char *driver, const char *expected)
{
    char root[] = "/tmp/hearsay-cards-XXXXXX", path[256], text[320];
    assert_non_null(mkdtemp(root));
    for (const char *const *folder = (const char *const[]){"bus", "bus/pci", "bus/pci/devices", NULL}; *folder; folder++) {
        snprintf(path, sizeof path, "%s/%s", root, *folder);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    put_card(root, "0000:00:01.0", "0x030000", "i915"); /* a graphics card */
    if (driver != NULL)
        put_card(root, "0000:01:00.0", "0x020000", driver);
    nic_scan(root, text, sizeof text);
    if (*expected ? strstr(text, expected) == NULL : *text != '\0')
        fail_msg("%s: \"%s\"", driver ? driver : "none", text);
    snprintf(path, sizeof path, "rm -r %s", root);
    assert_int_equal(system(path), 0);
}

static void test_cards(void **state)
{
    (void)state;
    char text[320];
    check_card(NULL, "");
    check_card("ixgbe", "0000:01:00.0 is still bound to the kernel's ixgbe");
    check_card("mlx5_core", "0000:01:00.0 (mlx5_core) must stay with its kernel driver: do not unbind it");
    check_card("vfio-pci", "is bound to vfio-pci, but DPDK did not take it");
    check_card("", "has no driver");
    nic_scan("/nonexistent", text, sizeof text);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device), cmocka_unit_test(test_device_refused), cmocka_unit_test(test_eal_words), cmocka_unit_test(test_eal_refused),
        cmocka_unit_test(test_eal_bounds), cmocka_unit_test(test_eal_lookup), cmocka_unit_test(test_eal_extended),
        cmocka_unit_test(test_cards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
