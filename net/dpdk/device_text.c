#include "net/dpdk/device_text.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "core/base/parse.h"

static int number(const char *text, uint64_t least, uint64_t most, uint32_t *out, struct error *err)
{
    uint64_t value;
    int rc = parse_u64(text, least, most, &value, err);
    if (rc == 0)
        *out = (uint32_t)value;
    return rc;
}

static int set(struct device_text *out, const char *key, const char *value, struct error *err)
{
    struct in_addr address;
    if (strcmp(key, "mtu") == 0)
        return number(value, DEVICE_TEXT_LEAST_MTU, DEVICE_TEXT_MOST_MTU, &out->mtu, err);
    if (strcmp(key, "queues") == 0)
        return number(value, 1, DEVICE_TEXT_QUEUES, &out->queues, err);
    if (strcmp(key, "prefix") == 0)
        return number(value, 1, 32, &out->prefix, err);
    if (strcmp(key, "gateway") != 0)
        return error_set(err, HS_ERR_PARSE, "\"%s\" is not one of mtu, queues, prefix, gateway", key);
    if (inet_pton(AF_INET, value, &address) != 1 || address.s_addr == 0)
        return error_set(err, HS_ERR_PARSE, "\"%s\" is not an IPv4 address", value);
    out->gateway = ntohl(address.s_addr);
    return 0;
}

static int add_port(struct device_text *out, const char *name, struct error *err)
{
    if (out->n_ports == DEVICE_TEXT_PORTS)
        return error_set(err, HS_ERR_PARSE, "more than %d ports", DEVICE_TEXT_PORTS);
    for (uint32_t i = 0; i < out->n_ports; i++)
        if (strcmp(out->ports[i], name) == 0)
            return error_set(err, HS_ERR_PARSE, "the port \"%s\" is named twice", name);
    snprintf(out->ports[out->n_ports++], DEVICE_TEXT_NAME, "%s", name);
    return 0;
}

int device_text_parse(const char *text, struct device_text *out, struct error *err)
{
    struct device_text device = {.queues = 1};
    for (const char *at = text; at != NULL && *at;) {
        char part[DEVICE_TEXT_NAME];
        size_t len = strcspn(at, ",");
        if (len == 0 || len >= sizeof part)
            return error_set(err, HS_ERR_PARSE, "\"%s\" is not a list of ports and settings, such as net_memif0,net_memif1,mtu=9000", text);
        snprintf(part, sizeof part, "%.*s", (int)len, at);
        char *equals = strchr(part, '=');
        if (equals != NULL)
            *equals = '\0';
        int rc = equals ? set(&device, part, equals + 1, err) : add_port(&device, part, err);
        if (rc != 0)
            return equals ? error_wrap(err, rc, "%s", part) : rc;
        at += len;
        if (*at == ',' && at[1] == '\0')
            return error_set(err, HS_ERR_PARSE, "\"%s\" ends in a comma", text);
        at += *at == ',';
    }
    if ((device.prefix != 0) != (device.gateway != 0))
        return error_set(err, HS_ERR_PARSE, "prefix and gateway go together: prefix=24,gateway=10.0.0.254");
    *out = device;
    return 0;
}
