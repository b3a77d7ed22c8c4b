/*
 * How much memory is free under the control groups of containers, jobs and services, and how many KV pages that makes. The files are as
 * the kernel shows them there (proc(5), cgroups(7), Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst), in a folder in place of "/".
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/hearsay/free_memory.h"
#include "tools/hearsay/kv_size.h"

static const uint64_t GIB = 1ull << 30, MIB = 1ull << 20;

static char root[64];

/* One file below the root, with the folders above it. */
static void put(const char *name, const char *text)
{
    char path[512];
    const int n = snprintf(path, sizeof path, "%s%s", root, name);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    assert_in_range(n, 1, sizeof path - 1);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void expect(uint64_t bytes, const char *under)
{
    struct free_memory memory;
    free_memory_read(root, &memory);
    assert_int_equal(memory.bytes, bytes);
    assert_string_equal(memory.under, under);
}

/* A TiB, of which most is free. */
static void put_machine(void)
{
    put("/proc/meminfo", "MemTotal:       1056757172 kB\nMemFree:        810000000 kB\nMemAvailable:   1000000000 kB\n");
}

static void put_unified(const char *own)
{
    put("/proc/self/cgroup", own);
    put("/proc/self/mountinfo",
        "608 607 0:101 / / rw,relatime master:300 - overlay overlay rw,lowerdir=/var/lib/cgroup2\n"
        "612 610 0:28 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate,memory_recursiveprot\n");
}

static void put_group(const char *folder, const char *max, const char *high, const char *current, const char *stat)
{
    char name[256];
    const char *const files[][2] = {{"memory.max", max}, {"memory.high", high}, {"memory.current", current}, {"memory.stat", stat}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(name, sizeof name, "%s/%s", folder, files[i][0]);
        put(name, files[i][1]);
    }
}

static void test_machine(void **state)
{
    expect(0, "");
    put_machine();
    expect(1000000000ull * 1024, "on this machine");
    put_unified("0::/user.slice\n");
    expect(1000000000ull * 1024, "on this machine"); /* the highest group has no files of limits */
    put_group("/sys/fs/cgroup/user.slice", "max\n", "max\n", "734003200\n", "anon 1\nfile 2\n");
    expect(1000000000ull * 1024, "on this machine");
}

/* A container of its own namespace: what it sees as the highest group is its own. */
static void test_container(void **state)
{
    put_machine();
    put_unified("0::/\n");
    put_group("/sys/fs/cgroup", "8589934592\n", "max\n", "2147483648\n",
              "anon 1073741824\nfile 1073741824\nkernel 1\ninactive_anon 9\ninactive_file 805306368\nactive_file 268435456\n");
    expect(7 * GIB, "under /sys/fs/cgroup/memory.max"); /* the model's pages in the cache can be had back */
    put_group("/sys/fs/cgroup", "8589934592\n", "6442450944\n", "3221225472\n", "");
    expect(3 * GIB, "under /sys/fs/cgroup/memory.high");
    put_group("/sys/fs/cgroup", "1073741824\n", "max\n", "1073745920\n", "");
    expect(1, "under /sys/fs/cgroup/memory.max"); /* nothing left, which is not "not known" */
}

/* The limit of a job stands at a group above the process's own. */
static void test_groups_above(void **state)
{
    put_machine();
    put_unified("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n");
    put_group("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0/user/task_0", "max\n", "max\n", "4096\n", "");
    put_group("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0", "64424509440\n", "max\n", "1073741824\n", "");
    put_group("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7", "34359738368\n", "max\n", "2147483648\n", "");
    put_group("/sys/fs/cgroup/system.slice", "max\n", "max\n", "734003200\n", "");
    expect(30 * GIB, "under /sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/memory.max");
}

static void test_version_1(void **state)
{
    put_machine();
    put("/proc/self/cgroup", "4:cpu,cpuacct:/slurm\n3:memory:/slurm/uid_1/job_9/step_0\n1:name=systemd:/\n0::/\n");
    put("/proc/self/mountinfo",
        "33 31 0:30 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:11 - cgroup cgroup rw,memory\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:12 - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "99999997952\n");
    put("/sys/fs/cgroup/memory/slurm/uid_1/job_9/memory.limit_in_bytes", "17179869184\n");
    put("/sys/fs/cgroup/memory/slurm/uid_1/job_9/memory.usage_in_bytes", "3221225472\n");
    put("/sys/fs/cgroup/memory/slurm/uid_1/job_9/memory.stat", "inactive_file 5\ntotal_inactive_file 1073741824\ntotal_active_file 0\n");
    expect(14 * GIB, "under /sys/fs/cgroup/memory/slurm/uid_1/job_9/memory.limit_in_bytes");

    /* a container without a namespace of groups: its own is mounted as the highest */
    put("/proc/self/cgroup", "3:memory:/docker/5f\n");
    put("/proc/self/mountinfo", "35 31 0:32 /docker/5f /sys/fs/cgroup/memory ro,relatime master:11 - cgroup cgroup rw,memory\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n");
    expect(GIB, "under /sys/fs/cgroup/memory/memory.limit_in_bytes");

    /* a group that lies outside what is mounted here */
    put("/proc/self/cgroup", "3:memory:/../6a\n");
    expect(GIB, "under /sys/fs/cgroup/memory/memory.limit_in_bytes");
}

/* ---- pages ---- */

static struct kv_size_request typical(void)
{
    return (struct kv_size_request){
        .page_bytes = MIB, .useful_pages = 100000, .weight_bytes = 2 * GIB, .free = {.bytes = 10 * GIB, .under = "on this machine"}};
}

static void expect_pages(const struct kv_size_request *request, uint32_t pages, const char *why)
{
    struct kv_size size;
    struct error err = {0};
    if (kv_size_choose(request, &size, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(size.pages, pages);
    assert_string_equal(size.why, why);
}

static void expect_refused(const struct kv_size_request *request, const char *why)
{
    struct kv_size size;
    struct error err = {0};
    assert_int_equal(kv_size_choose(request, &size, &err), HS_ERR_LIMIT);
    assert_string_equal(err.text, why);
}

static void test_default(void **state)
{
    struct kv_size_request request = typical();
    expect_pages(&request, 2048, "a quarter of the 8192 MiB that the weights leave free on this machine");
    request.useful_pages = 700;
    expect_pages(&request, 700, "all that can be used at once, of the 8192 MiB that the weights leave free on this machine");
    request.weight_bytes = 11 * GIB;
    expect_refused(&request, "2 KV pages need 2 MiB, the weights about 11264 MiB, and 10240 MiB are free on this machine; give more "
                             "memory, or a smaller model");
    request.weight_bytes = 10 * GIB - 7 * MIB;
    expect_refused(&request, "--kv-memory: room for 1 KV pages of 1048576 bytes; at least 2 are needed");
    request.free = (struct free_memory){0};
    expect_refused(&request, "how much memory is free cannot be read here (/proc/meminfo); give --kv-memory");
}

static void test_asked_for(void **state)
{
    struct kv_size_request request = typical();
    request.memory_bytes = 8 * GIB;
    expect_pages(&request, 8192, "as asked for");
    request.memory_bytes += MIB;
    expect_refused(&request, "8193 KV pages need 8193 MiB, the weights about 2048 MiB, and 10240 MiB are free on this machine; give a "
                             "smaller --kv-memory or --kv-pages, or a smaller model");
    request.free = (struct free_memory){0};
    expect_pages(&request, 8193, "as asked for");
    request.memory_bytes = 0;
    request.pages = 5;
    expect_pages(&request, 5, "as asked for");
    request.pages = 0;
    request.memory_bytes = MIB - 1;
    expect_refused(&request, "--kv-memory: room for 0 KV pages of 1048576 bytes; at least 2 are needed");
}

static void test_weights(void **state)
{
    const struct tensor_view wide = {.type = TENSOR_F32, .rows = 10, .cols = 100, .bytes = 4000},
                             narrow = {.type = TENSOR_W4_G32, .rows = 10, .cols = 100, .bytes = 560};
    const struct model_layer layer = {.wq = wide, .wk = wide, .wv = wide, .wo = wide, .w_gate = narrow, .w_up = narrow, .w_down = narrow};
    const struct model_layer layers[] = {layer, layer};
    const struct model_desc model = {.n_layers = 2, .layers = layers, .output = wide};
    assert_int_equal(kv_size_weight_bytes(&model, WEIGHT_FORM_16BIT), 15 * 2000);
    assert_int_equal(kv_size_weight_bytes(&model, WEIGHT_FORM_AUTO), 9 * 2000 + 6 * 560);
    assert_int_equal(kv_size_weight_bytes(&model, WEIGHT_FORM_NATIVE), 9 * 2000 + 6 * 560);
}

static int set_up(void **state)
{
    strcpy(root, "/tmp/hearsay-kv-size-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *ftw)
{
    return remove(path);
}

static int tear_down(void **state)
{
    return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_machine, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_container, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_groups_above, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_version_1, set_up, tear_down),
        cmocka_unit_test(test_default),
        cmocka_unit_test(test_asked_for),
        cmocka_unit_test(test_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
