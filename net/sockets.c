#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "core/base/log.h"
#include "net/net.h"
#include "net/udp.h"

int net_group_key_load(const char *path, uint8_t key[NET_GROUP_KEY_BYTES], struct error *err)
{
    uint8_t bytes[256];
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return error_set(err, HS_ERR_IO, "group key file \"%s\": %s", path, strerror(errno));
    size_t len = fread(bytes, 1, sizeof bytes, file);
    bool failed = ferror(file);
    fclose(file);
    int status = HS_ERR_PARSE;
    if (failed) {
        status = error_set(err, HS_ERR_IO, "group key file \"%s\": cannot be read", path);
    } else if (len == NET_GROUP_KEY_BYTES) { /* exactly 32: raw, whatever the bytes are */
        memcpy(key, bytes, NET_GROUP_KEY_BYTES);
        status = 0;
    } else {
        size_t key_len = 0, start = 0;
        while (start < len && strchr(" \t\r\n", bytes[start]) && bytes[start])
            start++;
        while (len > start && strchr(" \t\r\n", bytes[len - 1]) && bytes[len - 1])
            len--;
        uint8_t parsed[NET_GROUP_KEY_BYTES];
        if (len - start == 2 * NET_GROUP_KEY_BYTES &&
            sodium_hex2bin(parsed, sizeof parsed, (const char *)bytes + start, len - start, NULL, &key_len, NULL) == 0 &&
            key_len == sizeof parsed) {
            memcpy(key, parsed, sizeof parsed);
            status = 0;
        } else {
            error_set(
                err, status,
                "group key file \"%s\": holds neither 64 hexadecimal digits nor 32 raw bytes: `openssl rand -hex 32` makes a key",
                path);
        }
        sodium_memzero(parsed, sizeof parsed);
    }
    sodium_memzero(bytes, sizeof bytes);
    return status;
}

int transport_sockets_create(const struct transport_sockets_config *config, const struct env *env, struct transport **out,
                             struct error *err)
{
    struct carrier *carrier;
    int status = udp_carrier_create(config->bind, config->datagram_bytes, &carrier, err);
    if (status != 0)
        return status;
    status = udp_check_openness(config->bind, config->group_key != NULL, config->insecure_peers, err);
    if (status != 0)
        goto fail;
    const uint32_t datagram_bytes = carrier->ops->mtu(carrier);
    status = transport_reliable_create(carrier, "sockets", config->group_key, &config->tuning, env, out, err);
    if (status != 0)
        goto fail;
    if (config->datagram_bytes != 0)
        log_info("net", "datagrams of %u bytes", datagram_bytes);
    return 0;

fail:
    carrier->ops->destroy(carrier);
    return status;
}
