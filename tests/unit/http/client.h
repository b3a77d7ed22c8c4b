/* A small HTTP/1.1 client over a plain socket, which can also do what real ones do not: read slowly, hang up. */
#ifndef HEARSAY_TESTS_HTTP_CLIENT_H
#define HEARSAY_TESTS_HTTP_CLIENT_H

#include <stdint.h>

#include "core/base/strbuf.h"

struct reply {
    int status;
    struct strbuf head; /* status line and headers */
    struct strbuf body; /* without the chunks' frames */
    bool whole;         /* the body ended as its headers say */
};

/* Connected socket with a receive buffer of about the given size (0: the system's), 20 s of patience for reads. */
int client_connect(uint16_t port, int receive_bytes);
/* Sends a request with Connection: close; headers: further lines, each ended by \r\n. */
void client_send(int fd, const char *method, const char *path, const char *headers, const char *body, size_t len);
/* Waits until the reply so far contains text, without taking it. */
void client_await(int fd, const char *text);
/* Reads until the server closes. */
struct reply client_read(int fd);
struct reply client_request(uint16_t port, const char *method, const char *path, const char *headers, const char *body);
/* Value of a header in buffer[200], "" if absent. */
const char *reply_header(const struct reply *reply, const char *name, char buffer[200]);
void reply_fini(struct reply *reply);

#endif
