#include "net/dpdk/port.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_devargs.h>
#include <rte_ethdev.h>

#include "core/base/log.h"
#include "net/dpdk/device_text.h"
#include "net/dpdk/eal_arguments.h"

enum { RING = 1024, COPIED_BUFFERS = 256, RECONNECT_US = 200000, HANDSHAKE_US = 2000000, CALL_MS = 200 };
enum { MEMIF_BUFFER = 2048, PACKET_FRAME = 2048, PACKET_HEADER = 96 };

static bool is_driver(const struct rte_eth_dev_info *info, const char *name)
{
    return info->driver_name != NULL && strcmp(info->driver_name, name) == 0;
}

static bool copies_frames(const struct rte_eth_dev_info *info)
{
    static const char *const drivers[] = {"net_memif", "net_af_packet", "net_ring", "net_tap", "net_pcap", "net_null"};
    for (size_t i = 0; i < sizeof drivers / sizeof drivers[0]; i++)
        if (is_driver(info, drivers[i]))
            return true;
    return false;
}

static void arguments_of(const struct rte_eth_dev_info *info, char *text, size_t size)
{
    const struct rte_devargs *devargs = info->device ? rte_dev_devargs(info->device) : NULL;
    snprintf(text, size, "%s", devargs && devargs->args ? devargs->args : "");
}

static uint32_t number_of(const char *arguments, const char *key, uint32_t fallback)
{
    char text[16];
    return eal_device_value(arguments, key, text, sizeof text) ? (uint32_t)strtoul(text, NULL, 10) : fallback;
}

static uint32_t interface_mtu(const char *arguments)
{
    struct ifreq request = {0};
    uint32_t mtu = 1500;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && eal_device_value(arguments, "iface", request.ifr_name, sizeof request.ifr_name) && ioctl(fd, SIOCGIFMTU, &request) == 0)
        mtu = (uint32_t)request.ifr_mtu;
    if (fd >= 0)
        close(fd);
    return mtu;
}

static uint32_t without(uint32_t bytes, uint32_t headers)
{
    return bytes > headers ? bytes - headers : 0;
}

/* The devices without an MTU of their own have a size of buffers instead. */
static uint32_t own_mtu(const struct rte_eth_dev_info *info, uint16_t id)
{
    char arguments[512];
    uint16_t mtu;
    arguments_of(info, arguments, sizeof arguments);
    if (is_driver(info, "net_memif"))
        return without(number_of(arguments, "bsize", MEMIF_BUFFER), FRAME_ETHERNET_BYTES);
    if (is_driver(info, "net_af_packet")) {
        uint32_t frame = without(number_of(arguments, "framesz", PACKET_FRAME), PACKET_HEADER + FRAME_ETHERNET_BYTES);
        uint32_t wire = interface_mtu(arguments);
        return frame < wire ? frame : wire;
    }
    return rte_eth_dev_get_mtu(id, &mtu) == 0 ? mtu : 1500;
}

int dpdk_port_claim(struct dpdk_port *port, uint16_t id, uint64_t owner, uint32_t queues, struct error *err)
{
    struct rte_eth_dev_owner claim = {.id = owner, .name = "another carrier of this process"}, other; /* what others are told */
    struct rte_eth_dev_info info;
    struct rte_ether_addr mac;
    *port = (struct dpdk_port){.id = id};
    int rc = rte_eth_dev_info_get(id, &info);
    if (rc != 0)
        return error_set(err, HS_ERR_IO, "port %u tells nothing about itself: %s", id, rte_strerror(-rc));
    port->name = info.device ? rte_dev_name(info.device) : "?";
    if (rte_eth_macaddr_get(id, &mac) != 0)
        return error_set(err, HS_ERR_IO, "port %s has no MAC", port->name);
    if (rte_eth_dev_owner_set(id, &claim) != 0)
        return error_set(err, HS_ERR_BUSY, "port %s is in use by %s", port->name,
                         rte_eth_dev_owner_get(id, &other) == 0 ? other.name : "somebody else");
    memcpy(port->mac, mac.addr_bytes, FRAME_MAC_BYTES);
    char arguments[512], role[16] = "client", zero[8] = "no";
    arguments_of(&info, arguments, sizeof arguments);
    eal_device_value(arguments, "role", role, sizeof role);
    bool zero_copy = eal_device_value(arguments, "zero-copy", zero, sizeof zero) && strcmp(zero, "yes") == 0;
    port->reconnects = is_driver(&info, "net_memif") && strcmp(role, "server") != 0 && strcmp(role, "master") != 0;
    port->copies = copies_frames(&info);
    port->shares_memory = is_driver(&info, "net_virtio_user") || (is_driver(&info, "net_memif") && zero_copy);
    port->unruly = is_driver(&info, "net_memif") || is_driver(&info, "net_virtio_user");
    port->mtu = own_mtu(&info, id);
    port->least_room = is_driver(&info, "net_af_packet") ? number_of(arguments, "framesz", PACKET_FRAME) : 0;
    uint32_t most = info.max_rx_queues < info.max_tx_queues ? info.max_rx_queues : info.max_tx_queues;
    port->queues = (uint16_t)(queues < most ? queues : most);
    if (port->queues < queues)
        log_info("dpdk", "port %s has %u queues, not %u", port->name, port->queues, queues);
    uint16_t receive = RING, send = RING;
    rte_eth_dev_adjust_nb_rx_tx_desc(id, &receive, &send); /* before configuring: by what the device says of itself */
    port->ring = receive < send ? receive : send;
    return 0;
}

uint32_t dpdk_port_buffers(const struct dpdk_port *port)
{
    uint32_t in_rings = port->copies && !port->shares_memory ? COPIED_BUFFERS : 2u * port->ring;
    return 2 * in_rings * port->queues;
}

static int configure(const struct dpdk_port *port, uint32_t mtu, struct error *err)
{
    struct rte_eth_dev_info info;
    int rc = rte_eth_dev_info_get(port->id, &info);
    if (rc != 0)
        return error_set(err, HS_ERR_IO, "port %s tells nothing about itself: %s", port->name, rte_strerror(-rc));
    uint32_t overhead = info.max_mtu != UINT16_MAX && info.max_rx_pktlen > info.max_mtu ? info.max_rx_pktlen - info.max_mtu : 18;
    uint32_t most = info.max_rx_pktlen > overhead ? info.max_rx_pktlen - overhead : info.max_mtu;
    if (mtu > most && !port->copies)
        return error_set(err, HS_ERR_INVALID, "port %s takes packets of at most %u bytes: give mtu=%u or less in --device", port->name, most, most);
    struct rte_eth_conf config = {.rxmode.mtu = mtu < most ? mtu : most}; /* those that copy pass what fits their buffers, whatever they say */
    if (port->queues > 1 && info.flow_type_rss_offloads != 0) {
        config.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
        config.rx_adv_conf.rss_conf.rss_hf = info.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP);
    }
    if (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE)
        config.txmode.offloads |= RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE; /* one pool, no shared buffers */
    rc = rte_eth_dev_configure(port->id, port->queues, port->queues, &config);
    return rc == 0 ? 0 : error_set(err, HS_ERR_IO, "port %s cannot be configured with %u queues and packets of %u bytes: %s", port->name,
                                   port->queues, mtu, rte_strerror(-rc));
}

int dpdk_port_start(struct dpdk_port *port, uint32_t mtu, struct rte_mempool *pool, struct error *err)
{
    int status = configure(port, mtu, err), rc = 0;
    int socket = rte_eth_dev_socket_id(port->id);
    if (status != 0)
        return status;
    for (uint16_t queue = 0; rc == 0 && queue < port->queues; queue++) {
        rc = rte_eth_rx_queue_setup(port->id, queue, port->ring, (unsigned)socket, NULL, pool);
        if (rc == 0)
            rc = rte_eth_tx_queue_setup(port->id, queue, port->ring, (unsigned)socket, NULL);
    }
    if (rc == 0 && port->reconnects)
        port->call = dpdk_call_begin(port->id);
    else if (rc == 0)
        port->started = (rc = rte_eth_dev_start(port->id)) == 0;
    if (rc != 0)
        return error_set(err, HS_ERR_IO, "port %s cannot be started: %s", port->name, rte_strerror(-rc));
    rte_eth_stats_reset(port->id);
    return 0;
}

/* A memif client that has no link: its server was not there (yet), or went, or hangs. A handshake under way is given its time. */
static void reconnect(struct dpdk_port *port, bool was_up, uint64_t now_us)
{
    if (port->call != NULL) {
        if (dpdk_call_ask(port->call) == DPDK_CALL_UNDER_WAY)
            return;
        port->started = dpdk_call_end(port->call, 0) == DPDK_CALL_TAKEN;
        port->call = NULL;
        port->try_us = now_us + (port->started ? HANDSHAKE_US : RECONNECT_US);
    }
    if (was_up)
        port->try_us = now_us + RECONNECT_US;
    if (now_us < port->try_us)
        return;
    if (port->started)
        rte_eth_dev_stop(port->id);
    port->started = false;
    port->call = dpdk_call_begin(port->id);
}

bool dpdk_port_watch(struct dpdk_port *port, uint64_t now_us)
{
    struct rte_eth_link link = {0};
    bool was_up = port->up;
    port->up = port->started && rte_eth_link_get_nowait(port->id, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
    if (!port->up && port->reconnects)
        reconnect(port, was_up, now_us);
    return port->up != was_up;
}

void dpdk_port_hang_up(struct dpdk_port *port)
{
    enum dpdk_call_state state = port->call ? dpdk_call_end(port->call, CALL_MS) : DPDK_CALL_REFUSED;
    port->started |= state == DPDK_CALL_TAKEN;
    port->lost = state == DPDK_CALL_UNDER_WAY;
    port->call = NULL;
}

void dpdk_port_release(struct dpdk_port *port, uint64_t owner)
{
    const struct rte_eth_dev_owner nobody = {.id = owner, .name = "a call to its server that never ended: start the program anew"};
    if (port->started)
        rte_eth_dev_stop(port->id);
    rte_eth_dev_owner_unset(port->id, owner);
    if (port->lost)
        rte_eth_dev_owner_set(port->id, &nobody);
}
