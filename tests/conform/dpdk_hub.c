#include "tests/conform/dpdk_hub.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "core/base/rng.h"
#include "net/dpdk/eal.h"
#include "net/dpdk/interrupts.h"
#include "net/dpdk/port.h"

enum { FIRST_HUB_DEVICE = 50, BURST = 32, HELD = 16, BUFFERS = 4096 };

static struct {
    bool started;
    struct dpdk_poller poller;
    struct dpdk_port ports[DPDK_HUB_PORTS];
    uint8_t mac[DPDK_HUB_PORTS][FRAME_MAC_BYTES]; /* of who is behind the port */
    struct rte_mempool *pool;
    struct rng rng;
    double trouble;
    struct {
        struct rte_mbuf *mbuf;
        uint32_t port, steps; /* until it goes on */
    } held[HELD];
    uint64_t frames, steps;
} hub;

const char *dpdk_hub_eal(void)
{
    static char text[2048];
    if (text[0])
        return text;
    size_t len = (size_t)snprintf(text, sizeof text, "--no-huge --no-pci -m 256");
    for (int i = 0; i < DPDK_HUB_PORTS; i++) {
        len += (size_t)snprintf(text + len, sizeof text - len, " --vdev=net_memif%d,role=server,id=%d,socket=hearsay-hub-%d", FIRST_HUB_DEVICE + i, i,
                                (int)getpid());
        len += (size_t)snprintf(text + len, sizeof text - len, " --vdev=net_memif%d,role=client,id=%d,socket=hearsay-hub-%d", i, i, (int)getpid());
    }
    return text;
}

int dpdk_hub_start(double trouble, uint64_t seed, struct error *err)
{
    hub.trouble = trouble;
    rng_seed(&hub.rng, seed);
    if (hub.started)
        return 0;
    int status = dpdk_eal_start(dpdk_hub_eal(), err);
    if (status != 0)
        return status;
    uint64_t owner;
    rte_eth_dev_owner_new(&owner);
    hub.pool = rte_pktmbuf_pool_create("hub", BUFFERS, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, (int)rte_socket_id());
    if (hub.pool == NULL)
        return error_set(err, HS_ERR_NO_MEMORY, "no memory for the hub's buffers");
    status = dpdk_interrupts_hold(err);
    dpdk_poller_join(&hub.poller);
    dpdk_poller_begin_waiting(&hub.poller);
    for (int i = 0; status == 0 && i < DPDK_HUB_PORTS; i++) {
        char name[32];
        uint16_t id;
        snprintf(name, sizeof name, "net_memif%d", FIRST_HUB_DEVICE + i);
        status = rte_eth_dev_get_port_by_name(name, &id) == 0 ? dpdk_port_claim(&hub.ports[i], id, owner, 1, err) : HS_ERR_NOT_FOUND;
        if (status == 0)
            status = dpdk_port_start(&hub.ports[i], 1500, hub.pool, err);
    }
    dpdk_poller_end(&hub.poller);
    hub.started = status == 0;
    return status;
}

static void send_one(int port, struct rte_mbuf *mbuf)
{
    hub.frames++;
    if (rte_eth_tx_burst(hub.ports[port].id, 0, &mbuf, 1) == 0)
        rte_pktmbuf_free(mbuf);
}

static bool happens(void)
{
    return hub.trouble > 0 && rng_below(&hub.rng, 1000000) < (uint64_t)(hub.trouble * 1e6);
}

/* Holds the frame back for some steps. False: too many are. */
static bool hold(int port, struct rte_mbuf *mbuf)
{
    for (int i = 0; i < HELD; i++)
        if (hub.held[i].mbuf == NULL) {
            hub.held[i].mbuf = mbuf;
            hub.held[i].port = (uint32_t)port;
            hub.held[i].steps = 1 + (uint32_t)rng_below(&hub.rng, 20);
            return true;
        }
    return false;
}

/* Takes the buffer over. */
static void pass_on(int port, struct rte_mbuf *mbuf)
{
    if (happens()) {
        rte_pktmbuf_free(mbuf);
        return;
    }
    struct rte_mbuf *twin = happens() ? rte_pktmbuf_copy(mbuf, hub.pool, 0, UINT32_MAX) : NULL;
    if (twin != NULL)
        send_one(port, twin);
    if (!happens() || !hold(port, mbuf))
        send_one(port, mbuf);
}

static void take(int from, struct rte_mbuf *mbuf)
{
    const uint8_t *frame = rte_pktmbuf_mtod(mbuf, const uint8_t *);
    memcpy(hub.mac[from], frame + FRAME_MAC_BYTES, FRAME_MAC_BYTES);
    for (int p = 0; p < DPDK_HUB_PORTS; p++)
        if (p != from && memcmp(hub.mac[p], frame, FRAME_MAC_BYTES) == 0) {
            pass_on(p, mbuf);
            return;
        }
    for (int p = 0; p < DPDK_HUB_PORTS; p++) {
        struct rte_mbuf *copy = p != from ? rte_pktmbuf_copy(mbuf, hub.pool, 0, UINT32_MAX) : NULL;
        if (copy != NULL)
            pass_on(p, copy);
    }
    rte_pktmbuf_free(mbuf);
}

void dpdk_hub_step(void)
{
    struct rte_mbuf *burst[BURST];
    if (!dpdk_poller_begin(&hub.poller))
        return;
    for (int i = 0; i < HELD; i++)
        if (hub.held[i].mbuf != NULL && --hub.held[i].steps == 0) {
            send_one((int)hub.held[i].port, hub.held[i].mbuf);
            hub.held[i].mbuf = NULL;
        }
    for (int p = 0; p < DPDK_HUB_PORTS; p++) {
        uint16_t n = rte_eth_rx_burst(hub.ports[p].id, 0, burst, BURST);
        for (uint16_t i = 0; i < n; i++)
            take(p, burst[i]);
    }
    dpdk_poller_end(&hub.poller);
}

uint64_t dpdk_hub_frames(void)
{
    return hub.frames;
}
