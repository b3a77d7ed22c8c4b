/*
 * A ping-pong and a stream over one port of DPDK and nothing else: the same port set-up as the fabric's, frames of the length asked for with
 * an Ethernet header in front, no addresses, no order, no repair. In a ping-pong the server sends the very buffer back.
 *
 * A stream is played twice. As a program would: the sender has its message in memory of its own and puts it into the frame, the receiver reads it
 * once; so does hearsay's end in the same run, and this is what it is compared with. And untouched: frames go as they were found in the pool, and
 * nobody looks at them, which is what the port alone can do.
 */
#include <string.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "net/dpdk/callers.h"
#include "net/dpdk/eal.h"
#include "net/dpdk/port.h"
#include "perf/bench_fabric_dpdk.h"
#include "perf/progress.h"

enum { BURST = 32, BUFFERS = 4096, SMALL_BYTES = 1500, LARGE_ROOM = 12288, MOST_BYTES = 8192, LOOKS_PER_CONTROL = 65536, LINK_MS = 10000 };

static struct dpdk_port port;
static struct rte_mempool *pool;
static uint8_t message[MOST_BYTES]; /* the sender's own */
static bool untouched;

static int open_port(const struct fabric_job *job, bool serves, struct error *err)
{
    uint64_t owner;
    uint16_t id = 0;
    if (job->bytes > MOST_BYTES)
        return error_set(err, HS_ERR_LIMIT, "a bare frame carries at most %d bytes", MOST_BYTES);
    int rc = dpdk_eal_start(fabric_dpdk_eal(job, serves), err);
    if (rc)
        return rc;
    if (rte_eth_dev_count_avail() == 0)
        return error_set(err, HS_ERR_NOT_FOUND, "DPDK has no port");
    rte_eth_dev_owner_new(&owner);
    rc = dpdk_port_claim(&port, id, owner, 1, err);
    if (rc)
        return rc;
    /* AF_XDP takes no buffers above a page, AF_PACKET none below its frames */
    bool large = job->bytes > SMALL_BYTES || port.least_room > RTE_MBUF_DEFAULT_DATAROOM;
    pool = rte_pktmbuf_pool_create("bare", BUFFERS, 128, 0, large ? LARGE_ROOM : RTE_MBUF_DEFAULT_BUF_SIZE, (int)rte_socket_id());
    if (pool == NULL)
        return error_set(err, HS_ERR_NO_MEMORY, "no memory for %d buffers", BUFFERS);
    rc = dpdk_port_start(&port, 1500, pool, err);
    return rc ? rc : dpdk_callers_open(err);
}

/* The next frame, spinning for it. NULL: over, or nothing came for long. */
static struct rte_mbuf *take(int control, uint64_t patience_ms)
{
    struct rte_mbuf *mbuf;
    uint64_t end_ns = perf_now_ns() + patience_ms * UINT64_C(1000000);
    for (uint32_t looks = 1; rte_eth_rx_burst(port.id, 0, &mbuf, 1) == 0; looks++)
        if (looks % LOOKS_PER_CONTROL == 0) {
            if (fabric_is_over(control) || perf_now_ns() > end_ns)
                return NULL;
            dpdk_port_watch(&port, perf_now_ns() / 1000);
        }
    return mbuf;
}

static bool give(struct rte_mbuf *mbuf)
{
    uint64_t end_ns = 0;
    while (rte_eth_tx_burst(port.id, 0, &mbuf, 1) == 0) {
        uint64_t now_ns = perf_now_ns();
        end_ns = end_ns ? end_ns : now_ns + LINK_MS * UINT64_C(1000000);
        if (now_ns > end_ns) {
            rte_pktmbuf_free(mbuf);
            return false;
        }
    }
    return true;
}

static bool give_new(uint32_t bytes)
{
    struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);
    if (mbuf == NULL)
        return false;
    uint8_t *frame = (uint8_t *)rte_pktmbuf_append(mbuf, (uint16_t)(FRAME_ETHERNET_BYTES + bytes));
    memset(frame, 2, FRAME_ETHERNET_BYTES);
    if (!untouched)
        memcpy(frame + FRAME_ETHERNET_BYTES, message, bytes);
    return give(mbuf);
}

/* False: not what was sent. */
static bool read_message(struct rte_mbuf *mbuf)
{
    return untouched || fabric_read_message(rte_pktmbuf_mtod_offset(mbuf, const uint8_t *, FRAME_ETHERNET_BYTES), mbuf->data_len - FRAME_ETHERNET_BYTES);
}

static int serve_bare(const struct fabric_job *job, int (*ready)(int control, const char *address), struct error *err)
{
    int rc = open_port(job, true, err);
    if (rc == 0)
        rc = ready(job->control, "memif");
    if (rc)
        return rc;
    struct rte_mbuf *mbuf;
    for (uint32_t count = 1; (mbuf = take(job->control, UINT32_MAX)) != NULL; count++) {
        if (job->pattern == FABRIC_PING) {
            if (!give(mbuf))
                break;
            continue;
        }
        bool good = read_message(mbuf);
        rte_pktmbuf_free(mbuf);
        if (!good)
            break;
        if (count % fabric_acknowledged_each(job->config) == 0 && !give_new(46))
            break;
    }
    return 0;
}

static bool wait_link(void)
{
    for (uint64_t end_ns = perf_now_ns() + LINK_MS * UINT64_C(1000000); perf_now_ns() < end_ns;) {
        dpdk_port_watch(&port, perf_now_ns() / 1000);
        if (port.up)
            return true;
    }
    return false;
}

static int ping_once(void *arg, struct error *err)
{
    const uint32_t *bytes = arg;
    struct rte_mbuf *answer = give_new(*bytes) ? take(-1, LINK_MS) : NULL;
    if (answer == NULL)
        return HS_ERR_IO;
    rte_pktmbuf_free(answer);
    return 0;
}

static int pings(const struct fabric_job *job, struct samples *times_us)
{
    uint32_t bytes = job->bytes;
    return fabric_time_each(ping_once, &bytes, job->config->duration_ns, times_us, NULL);
}

static int stream(const struct fabric_job *job, double *bytes_per_s)
{
    uint32_t each = fabric_acknowledged_each(job->config), sent = 0, credited = 0;
    struct stream_meter meter;
    stream_meter_begin(&meter, job->config->duration_ns);
    do {
        for (; sent - credited < job->config->window; sent++)
            if (!give_new(job->bytes))
                return HS_ERR_IO;
        struct rte_mbuf *credit = take(-1, LINK_MS);
        if (credit == NULL)
            return HS_ERR_IO;
        rte_pktmbuf_free(credit);
        credited += each;
    } while (stream_meter_goes_on(&meter, credited));
    *bytes_per_s = stream_meter_bytes_per_s(&meter, job->bytes);
    return 0;
}

static int call_bare(const struct fabric_job *job, struct fabric_result *out, struct error *err)
{
    int rc = open_port(job, false, err);
    if (rc)
        return rc;
    if (!wait_link())
        return error_set(err, HS_ERR_TIMEOUT, "the link of port %s does not come up", port.name);
    rc = job->pattern == FABRIC_PING ? pings(job, &out->times_us) : stream(job, &out->bytes_per_s);
    return rc ? error_set(err, rc, "bare DPDK: nothing comes back") : 0;
}

int fabric_dpdk_serve_bare(const struct fabric_job *job, int (*ready)(int control, const char *address), struct error *err)
{
    return serve_bare(job, ready, err);
}

int fabric_dpdk_call_bare(const struct fabric_job *job, const char *address, struct fabric_result *out, struct error *err)
{
    (void)address;
    return call_bare(job, out, err);
}

int fabric_dpdk_serve_untouched(const struct fabric_job *job, int (*ready)(int control, const char *address), struct error *err)
{
    untouched = true; /* each side of each run is a process of its own */
    return serve_bare(job, ready, err);
}

int fabric_dpdk_call_untouched(const struct fabric_job *job, const char *address, struct fabric_result *out, struct error *err)
{
    (void)address;
    untouched = true;
    return call_bare(job, out, err);
}
