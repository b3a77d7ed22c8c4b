#include "net/dpdk/eal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <dirent.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>

#include "core/base/log.h"
#include "net/dpdk/callers.h"
#include "net/dpdk/eal_arguments.h"

enum { LINE_BYTES = 240, COMPLAINTS_BYTES = 400 };

static struct {
    bool started;
    char text[EAL_ARGUMENT_BYTES]; /* the arguments it was started with */
    struct eal_arguments arguments; /* DPDK keeps pointers into it */
} eal;

/* ---- what DPDK prints ---- */

static struct {
    pthread_mutex_t lock;
    char line[LINE_BYTES], complaints[COMPLAINTS_BYTES]; /* while EAL starts, as many as there is room for */
    size_t len;
} printed = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* DPDK does not say how bad a line is. These open its good news, and what only says that something has been said. */
static bool says_nothing(const char *line)
{
    static const char *const openings[] = {"Detected", "Multi-process", "Physical addresses", "Selected IOVA", "Probe PCI", "No free ", "VFIO support",
                                           "No available", "TSC ", "Static", "WARNING", "Bus (",
                                           "rte_pmd_memif_probe(): Failed to register mp action" /* for processes that share devices */};
    const char *text = strncmp(line, "EAL: ", 5) == 0 ? line + 5 : line;
    for (size_t i = 0; i < sizeof openings / sizeof openings[0]; i++)
        if (strncmp(text, openings[i], strlen(openings[i])) == 0)
            return true;
    return false;
}

static void keep_complaint(void)
{
    size_t len = strlen(printed.complaints);
    if (len + 2 + printed.len < COMPLAINTS_BYTES)
        snprintf(printed.complaints + len, COMPLAINTS_BYTES - len, "%s%s", len > 0 ? "; " : "", printed.line);
}

static void end_line(void)
{
    printed.line[printed.len] = '\0';
    if (printed.len > 0) {
        log_debug("dpdk", "%s", printed.line);
        if (!eal.started && !says_nothing(printed.line))
            keep_complaint();
    }
    printed.len = 0;
}

/* From any of DPDK's threads. */
static ssize_t take_print(void *cookie, const char *data, size_t len)
{
    (void)cookie;
    pthread_mutex_lock(&printed.lock);
    for (size_t i = 0; i < len; i++)
        if (data[i] == '\n')
            end_line();
        else if (printed.len < LINE_BYTES - 1)
            printed.line[printed.len++] = data[i];
    pthread_mutex_unlock(&printed.lock);
    return (ssize_t)len;
}

static void take_over_log(void)
{
    FILE *stream = fopencookie(NULL, "w", (cookie_io_functions_t){.write = take_print});
    if (stream != NULL) {
        setvbuf(stream, NULL, _IOLBF, BUFSIZ);
        rte_openlog_stream(stream);
    }
}

/* ---- looking at the machine first ---- */

static uint64_t read_number(const char *path)
{
    unsigned long long value = 0;
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        if (fscanf(file, "%llu", &value) != 1)
            value = 0;
        fclose(file);
    }
    return value;
}

static uint64_t free_hugepages(void)
{
    uint64_t n = 0;
    char path[320];
    DIR *sizes = opendir("/sys/kernel/mm/hugepages");
    for (struct dirent *size; sizes != NULL && (size = readdir(sizes)) != NULL;) {
        snprintf(path, sizeof path, "/sys/kernel/mm/hugepages/%s/free_hugepages", size->d_name);
        n += size->d_name[0] == '.' ? 0 : read_number(path);
    }
    if (sizes != NULL)
        closedir(sizes);
    return n;
}

static int check_interface(const char *device, struct error *err)
{
    char name[IF_NAMESIZE];
    if (!eal_device_value(device, "iface", name, sizeof name) || eal_device_is(device, "net_tap") || eal_device_is(device, "net_vhost"))
        return 0; /* the first makes its interface, the other has a socket's path there */
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set(err, HS_ERR_UNSUPPORTED, "\"%s\" needs root, or the capabilities CAP_NET_RAW and CAP_NET_ADMIN: %s", device,
                         strerror(errno));
    close(fd);
    if (if_nametoindex(name) == 0)
        return error_set(err, HS_ERR_NOT_FOUND, "\"%s\": there is no interface \"%s\" (`ip link` lists them)", device, name);
    return 0;
}

/* A socket file whose server died stands in the way of the next one. */
static void remove_dead_socket(const char *device)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char abstract[8] = "yes";
    struct stat found;
    eal_device_value(device, "socket-abstract", abstract, sizeof abstract);
    bool memif = eal_device_is_memif_server(device) && strcmp(abstract, "no") == 0;
    const char *key = memif ? "socket" : eal_device_is(device, "net_vhost") ? "iface" : eal_device_is(device, "net_virtio_user") ? "path" : NULL;
    if (key == NULL || !eal_device_value(device, key, address.sun_path, sizeof address.sun_path) || stat(address.sun_path, &found) != 0 ||
        !S_ISSOCK(found.st_mode))
        return;
    int fd = socket(AF_UNIX, (memif ? SOCK_SEQPACKET : SOCK_STREAM) | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0 && errno == ECONNREFUSED)
        unlink(address.sun_path);
    if (fd >= 0)
        close(fd);
}

static int look_at_machine(const struct eal_arguments *arguments, struct error *err)
{
    if (!arguments->no_huge && free_hugepages() == 0)
        return error_set(err, HS_ERR_UNSUPPORTED,
                         "no free hugepages: `echo 256 > /proc/sys/vm/nr_hugepages` as root makes some, or add --no-huge to --eal (virtual devices "
                         "only)");
    const char *device;
    for (int i = 0; (device = eal_arguments_vdev(arguments, i)) != NULL; i++) {
        int rc = check_interface(device, err);
        if (rc != 0)
            return rc;
        remove_dead_socket(device);
    }
    return 0;
}

/* ---- starting ---- */

/* With standard output elsewhere, as a mistake has DPDK print its help there. */
static int init_quietly(struct eal_arguments *arguments)
{
    fflush(stdout);
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC), kept = nowhere >= 0 ? dup(STDOUT_FILENO) : -1;
    if (kept >= 0)
        dup2(nowhere, STDOUT_FILENO);
    char *argv[EAL_ARGUMENTS + 1]; /* DPDK changes their order */
    memcpy(argv, arguments->argv, sizeof argv);
    int rc = rte_eal_init(arguments->argc, argv);
    fflush(stdout);
    if (kept >= 0)
        dup2(kept, STDOUT_FILENO);
    if (kept >= 0)
        close(kept);
    if (nowhere >= 0)
        close(nowhere);
    return rc;
}

static int first_cpu(const cpu_set_t *set)
{
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, set))
            return i;
    return 0;
}

static const char *complaints(void)
{
    return printed.complaints[0] ? printed.complaints : "it does not say why";
}

static int failed(struct error *err)
{
    int code = rte_errno == ENOMEM || rte_errno == EACCES || rte_errno == ENOTSUP ? HS_ERR_UNSUPPORTED : HS_ERR_IO;
    return error_set(err, code, "DPDK does not start: %s (%s); --log-level debug shows all that it says", complaints(), rte_strerror(rte_errno));
}

/* In place of the driver of memif, which is told other names. */
static int take_sockets(struct error *err)
{
    const char *device;
    int rc = 0;
    for (int i = 0; rc == 0 && (device = eal_arguments_vdev(&eal.arguments, i)) != NULL; i++) {
        char more[128];
        rc = dpdk_callers_take(device, more, sizeof more, err);
        if (rc == 0 && *more)
            rc = eal_arguments_extend(&eal.arguments, i, more, err);
    }
    return rc;
}

/* A driver has taken it. That need not make a port: some only bring others along. */
static bool is_there(const char *device)
{
    struct rte_dev_iterator at;
    const struct rte_device *other;
    size_t len = strcspn(device, ",");
    bool found = false;
    RTE_DEV_FOREACH(other, "bus=vdev", &at)
        found |= rte_dev_is_probed(other) && strncmp(rte_dev_name(other), device, len) == 0 && rte_dev_name(other)[len] == '\0';
    return found;
}

/* DPDK starts without the devices that it cannot make. */
static int check_devices(struct error *err)
{
    const char *device;
    for (int i = 0; (device = eal_arguments_vdev(&eal.arguments, i)) != NULL; i++)
        if (!is_there(device))
            return error_set(err, HS_ERR_UNSUPPORTED, "DPDK cannot make %.*s: %s", (int)strcspn(device, ","), device, complaints());
    return 0;
}

int dpdk_eal_start(const char *text, struct error *err)
{
    cpu_set_t cpus;
    text = text ? text : "";
    if (eal.started && strcmp(eal.text, text) != 0)
        return error_set(err, HS_ERR_BUSY, "DPDK runs in this process with other arguments: \"%s\"", eal.text);
    if (eal.started)
        return check_devices(err);
    if (sched_getaffinity(0, sizeof cpus, &cpus) != 0)
        return error_set(err, HS_ERR_IO, "the CPUs of this process cannot be read: %s", strerror(errno));
    int rc = eal_arguments_parse(text, (uint32_t)first_cpu(&cpus), &eal.arguments, err);
    if (rc == 0)
        rc = look_at_machine(&eal.arguments, err);
    if (rc == 0)
        rc = take_sockets(err);
    if (rc != 0)
        return rc;
    take_over_log();
    rc = init_quietly(&eal.arguments);
    pthread_setaffinity_np(pthread_self(), sizeof cpus, &cpus);
    if (rc < 0)
        return failed(err);
    snprintf(eal.text, sizeof eal.text, "%s", text);
    eal.started = true;
    return check_devices(err);
}
