/*
 * What the DPDK carrier reads from strangers and from the command line. First byte 0: an Ethernet frame; 1: --device; 2: --eal; 3: a frame whose IP
 * checksum is made right first. A datagram's payload must lie within the frame, and one that is written again parse to the same.
 */
#include <stdlib.h>
#include <string.h>

#include "net/dpdk/device_text.h"
#include "net/dpdk/eal_arguments.h"
#include "net/dpdk/frame.h"
#include "tests/fuzz/fuzz.h"

static void mend_checksum(uint8_t *data, size_t len)
{
    if (len < FRAME_ETHERNET_BYTES + 20)
        return;
    uint8_t *ip = data + FRAME_ETHERNET_BYTES;
    size_t header = (ip[0] & 15u) * 4;
    if (header < 20 || header > len - FRAME_ETHERNET_BYTES)
        return;
    ip[10] = ip[11] = 0;
    uint16_t sum = frame_checksum_end(frame_checksum_add(0, ip, header));
    ip[10] = (uint8_t)(sum >> 8);
    ip[11] = (uint8_t)sum;
}

static void check_frame(uint8_t *data, size_t len)
{
    struct frame frame, again;
    uint8_t header[FRAME_HEADER_BYTES];
    frame_parse(data, len, &frame);
    if (frame.kind == FRAME_ARP_REQUEST || frame.kind == FRAME_ARP_REPLY) {
        frame_write_arp(header, frame.kind, &frame.from, &frame.to);
        frame_parse(header, FRAME_ARP_BYTES, &again);
        hs_assert(again.kind == frame.kind && again.from.ip == frame.from.ip && again.to.ip == frame.to.ip);
        hs_assert(memcmp(again.from.mac, frame.from.mac, FRAME_MAC_BYTES) == 0);
    }
    if (frame.kind != FRAME_UDP)
        return;
    hs_assert(frame.payload >= data + FRAME_HEADER_BYTES && frame.payload + frame.payload_bytes <= data + len);
    uint8_t *copy = malloc(FRAME_HEADER_BYTES + frame.payload_bytes + 1);
    hs_assert(copy != NULL);
    frame_write_udp(copy, &frame.from, &frame.to, frame.payload_bytes);
    memcpy(copy + FRAME_HEADER_BYTES, frame.payload, frame.payload_bytes);
    frame_parse(copy, FRAME_HEADER_BYTES + frame.payload_bytes, &again);
    hs_assert(again.kind == FRAME_UDP && again.from.ip == frame.from.ip && again.from.port == frame.from.port && again.to.ip == frame.to.ip &&
              again.to.port == frame.to.port && again.payload_bytes == frame.payload_bytes);
    free(copy);
}

static void check_device(const char *text)
{
    struct device_text device;
    struct error err = {0};
    if (device_text_parse(text, &device, &err) != 0)
        hs_assert(err.text[0] != '\0');
    else
        hs_assert(device.n_ports <= DEVICE_TEXT_PORTS && device.queues >= 1 && device.queues <= DEVICE_TEXT_QUEUES && device.prefix <= 32);
}

static void check_eal(const char *text)
{
    static struct eal_arguments arguments;
    struct error err = {0};
    char value[8];
    if (eal_arguments_parse(text, 0, &arguments, &err) != 0) {
        hs_assert(err.text[0] != '\0');
        return;
    }
    hs_assert(arguments.argc <= EAL_ARGUMENTS && arguments.argv[arguments.argc] == NULL);
    for (int i = 0; i < arguments.argc; i++)
        hs_assert(arguments.argv[i] + strlen(arguments.argv[i]) < arguments.bytes + arguments.used);
    const char *device;
    for (int i = 0; (device = eal_arguments_vdev(&arguments, i)) != NULL; i++)
        if (eal_device_value(device, "iface", value, sizeof value))
            hs_assert(strlen(value) < sizeof value);
}

int fuzz_frame(const uint8_t *data, size_t len)
{
    if (len == 0)
        return 0;
    if (data[0] == 1 || data[0] == 2) {
        char *text = fuzz_cstring(data + 1, len - 1);
        (data[0] == 1 ? check_device : check_eal)(text);
        free(text);
        return 0;
    }
    uint8_t *frame = fuzz_copy(data + 1, len - 1);
    if (data[0] == 3)
        mend_checksum(frame, len - 1);
    check_frame(frame, len - 1);
    free(frame);
    return 0;
}
