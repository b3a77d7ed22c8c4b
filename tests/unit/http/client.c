#include "tests/unit/http/client.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "core/base/panic.h"

int client_connect(uint16_t port, int receive_bytes)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = 20};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    hs_assert(fd >= 0);
    if (receive_bytes)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    hs_assert(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

static void send_all(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n <= 0)
            return; /* the server closed: the reply tells why */
        data += n;
        len -= (size_t)n;
    }
}

void client_send(int fd, const char *method, const char *path, const char *headers, const char *body, size_t len)
{
    struct strbuf head = {0};
    strbuf_printf(&head, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s", method, path, headers ? headers : "");
    if (body)
        strbuf_printf(&head, "Content-Type: application/json\r\nContent-Length: %zu\r\n", len);
    strbuf_puts(&head, "\r\n");
    send_all(fd, head.data, head.len);
    if (body)
        send_all(fd, body, len);
    strbuf_fini(&head);
}

void client_await(int fd, const char *text)
{
    char data[8192];
    ssize_t n, seen = 0;
    do {
        /* Blocks until there is more than was seen: the low-water mark counts for peeking too. */
        int wanted = (int)seen + 1;
        setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted);
        n = recv(fd, data, sizeof data - 1, MSG_PEEK);
        hs_assert(n > seen && (size_t)n < sizeof data - 1);
        seen = n;
        data[n] = '\0';
    } while (!strstr(data, text));
    int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one);
}

/* Takes the frames out of a chunked body; true if the last chunk is there. */
static bool unchunk(const char *data, size_t len, struct strbuf *out)
{
    size_t at = 0;
    while (at < len) {
        char *end;
        size_t size = strtoul(data + at, &end, 16);
        at = (size_t)(end - data) + 2;
        if (!size)
            return true;
        if (at + size > len)
            return false;
        strbuf_add(out, data + at, size);
        at += size + 2;
    }
    return false;
}

struct reply client_read(int fd)
{
    struct strbuf raw = {0};
    struct reply reply = {0};
    char piece[16384];
    ssize_t n;
    while ((n = recv(fd, piece, sizeof piece, 0)) > 0)
        strbuf_add(&raw, piece, (size_t)n);
    char *split = raw.data ? strstr(raw.data, "\r\n\r\n") : NULL;
    if (split) {
        char value[200];
        size_t head_len = (size_t)(split - raw.data) + 2;
        strbuf_add(&reply.head, raw.data, head_len);
        sscanf(raw.data, "HTTP/1.1 %d", &reply.status);
        const char *body = split + 4;
        size_t len = raw.len - head_len - 2;
        if (strcmp(reply_header(&reply, "Transfer-Encoding", value), "chunked") == 0) {
            reply.whole = unchunk(body, len, &reply.body);
        } else {
            strbuf_add(&reply.body, body, len);
            reply.whole = len == strtoul(reply_header(&reply, "Content-Length", value), NULL, 10);
        }
    }
    strbuf_fini(&raw);
    close(fd);
    return reply;
}

struct reply client_request(uint16_t port, const char *method, const char *path, const char *headers, const char *body)
{
    int fd = client_connect(port, 0);
    client_send(fd, method, path, headers, body, body ? strlen(body) : 0);
    return client_read(fd);
}

const char *reply_header(const struct reply *reply, const char *name, char buffer[200])
{
    buffer[0] = '\0';
    char start[80];
    snprintf(start, sizeof start, "\r\n%s: ", name);
    const char *found = strcasestr(strbuf_text(&reply->head), start);
    if (found) {
        found += strlen(start);
        snprintf(buffer, 200, "%.*s", (int)strcspn(found, "\r"), found);
    }
    return buffer;
}

void reply_fini(struct reply *reply)
{
    strbuf_fini(&reply->head);
    strbuf_fini(&reply->body);
}
