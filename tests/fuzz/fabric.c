#include "tests/fuzz/fabric.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/panic.h"
#include "tests/fuzz/fuzz.h"

const uint8_t fabric_key[NET_GROUP_KEY_BYTES] = "the key of every fuzzed group...";

static struct fabric_port *port_of(const struct carrier *carrier)
{
    return (struct fabric_port *)(uintptr_t)carrier;
}

static void address_of(uint8_t port, struct carrier_address *out)
{
    *out = (struct carrier_address){.bytes = {'p', (uint8_t)('0' + port)}, .len = 2};
}

static uint32_t port_mtu(const struct carrier *carrier)
{
    return FABRIC_MTU;
}

static int port_resolve(struct carrier *carrier, const char *text, struct carrier_address *out)
{
    if (text[0] != 'p' || text[1] < '0' || text[1] >= '0' + FABRIC_PORTS || strcmp(text + 2, ":1") != 0)
        return HS_ERR_NOT_FOUND;
    address_of((uint8_t)(text[1] - '0'), out);
    return 0;
}

static void port_format(const struct carrier *carrier, const struct carrier_address *address, char *text, size_t size)
{
    snprintf(text, size, "p%c:1", address->bytes[1]);
}

static int port_send(struct carrier *carrier, const struct carrier_datagram *datagrams, uint32_t n)
{
    struct fabric_port *port = port_of(carrier);
    struct fabric *fabric = port->fabric;
    for (uint32_t i = 0; i < n && fabric->n_wire < FABRIC_WIRE; i++) {
        hs_assert(datagrams[i].len <= FABRIC_MTU);
        fabric->wire[fabric->n_wire++] = (struct fabric_datagram){.from = port->number,
                                                                  .to = (uint8_t)(datagrams[i].address.bytes[1] - '0'),
                                                                  .data = fuzz_copy(datagrams[i].data, datagrams[i].len),
                                                                  .len = datagrams[i].len};
    }
    return (int)n;
}

static void free_datagrams(struct fabric_datagram *datagrams, uint32_t *n)
{
    for (uint32_t i = 0; i < *n; i++)
        free(datagrams[i].data);
    *n = 0;
}

static int port_receive(struct carrier *carrier, struct carrier_datagram *datagrams, uint32_t n)
{
    struct fabric_port *port = port_of(carrier);
    uint32_t count = n < port->n_inbox ? n : port->n_inbox;
    free_datagrams(port->given, &port->n_given);
    for (uint32_t i = 0; i < count; i++) {
        port->given[i] = port->inbox[i];
        datagrams[i] = (struct carrier_datagram){.data = port->given[i].data, .len = port->given[i].len};
        address_of(port->given[i].from, &datagrams[i].address);
    }
    port->n_given = count;
    port->n_inbox -= count;
    memmove(port->inbox, port->inbox + count, port->n_inbox * sizeof *port->inbox);
    return (int)count;
}

static void port_local(const struct carrier *carrier, char *text, size_t size)
{
    snprintf(text, size, "p%u:1", port_of(carrier)->number);
}

static int port_wait_fd(const struct carrier *carrier)
{
    return -1;
}

static void port_stats(const struct carrier *carrier, struct carrier_stats *out)
{
    *out = (struct carrier_stats){0};
}

static void port_destroy(struct carrier *carrier)
{
    struct fabric_port *port = port_of(carrier);
    free_datagrams(port->inbox, &port->n_inbox);
    free_datagrams(port->given, &port->n_given);
}

static const struct carrier_ops port_ops = {
    .mtu = port_mtu,
    .resolve = port_resolve,
    .format = port_format,
    .send = port_send,
    .receive = port_receive,
    .local = port_local,
    .wait_fd = port_wait_fd,
    .stats = port_stats,
    .destroy = port_destroy,
};

void fabric_open(struct fabric *fabric)
{
    memset(fabric, 0, sizeof *fabric);
    fabric->now_ns = 1000000000;
    for (uint8_t i = 0; i < FABRIC_PORTS; i++)
        fabric->ports[i] = (struct fabric_port){.carrier = {.ops = &port_ops}, .fabric = fabric, .number = i, .source = {&fabric->now_ns, i + 1u}};
}

void fabric_close(struct fabric *fabric)
{
    free_datagrams(fabric->wire, &fabric->n_wire);
    for (uint8_t i = 0; i < FABRIC_PORTS; i++)
        port_destroy(&fabric->ports[i].carrier);
}

struct env fabric_env(struct fabric *fabric, uint8_t port)
{
    return fuzz_env_of(&fabric->ports[port].source);
}

struct transport *fabric_transport(struct fabric *fabric, uint8_t port, const struct net_tuning *tuning)
{
    static const struct net_tuning defaults;
    struct env env = fabric_env(fabric, port);
    struct transport *transport;
    int rc = transport_reliable_create(&fabric->ports[port].carrier, "fuzzed", fabric_key, tuning ? tuning : &defaults, &env,
                                       &transport, NULL);
    hs_assert(rc == 0);
    return transport;
}

void fabric_inject(struct fabric *fabric, uint8_t from, uint8_t to, const void *data, uint32_t len)
{
    struct fabric_port *port = &fabric->ports[to % FABRIC_PORTS];
    if (port->n_inbox == FABRIC_INBOX)
        return;
    port->inbox[port->n_inbox++] =
        (struct fabric_datagram){.from = (uint8_t)(from % FABRIC_PORTS), .to = to, .data = fuzz_copy(data, len), .len = len};
}

void fabric_drop(struct fabric *fabric, uint32_t index)
{
    free(fabric->wire[index].data);
    fabric->n_wire--;
    memmove(fabric->wire + index, fabric->wire + index + 1, (fabric->n_wire - index) * sizeof *fabric->wire);
}
