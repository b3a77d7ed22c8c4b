#include "perf/http_client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { CONNECT_TIMEOUT_S = 10, LONGEST_LINE = 64 << 10 };

struct answer_head {
    int status;
    bool chunked, has_length, closes;
    unsigned long long length;
};

/* ---- connection ---- */

static void disconnect(struct http_client *client)
{
    curl_easy_cleanup(client->curl);
    client->curl = NULL;
    client->at = client->len = 0;
}

void http_client_fini(struct http_client *client)
{
    disconnect(client);
    strbuf_fini(&client->line);
    strbuf_fini(&client->request);
}

static int split_url(struct http_client *client, const char *url, struct error *err)
{
    CURLU *parts = curl_url();
    char *scheme = NULL, *host = NULL, *port = NULL, *path = NULL;
    bool good = parts && !curl_url_set(parts, CURLUPART_URL, url, 0) && !curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) &&
                !curl_url_get(parts, CURLUPART_HOST, &host, 0) && !curl_url_get(parts, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) &&
                !curl_url_get(parts, CURLUPART_PATH, &path, 0);
    if (good) {
        client->tls = strcmp(scheme, "https") == 0;
        size_t len = strlen(path);
        while (len && path[len - 1] == '/') /* the requests' paths begin with one */
            len--;
        good = snprintf(client->host, sizeof client->host, "%s:%s", host, port) < (int)sizeof client->host &&
               snprintf(client->prefix, sizeof client->prefix, "%.*s", (int)len, path) < (int)sizeof client->prefix;
    }
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    curl_free(path);
    curl_url_cleanup(parts);
    return good ? 0 : error_set(err, HS_ERR_PARSE, "\"%s\" is not an address", url);
}

static int connect_to(struct http_client *client, const char *url, struct error *err)
{
    int rc = split_url(client, url, err);
    if (rc)
        return rc;
    client->curl = curl_easy_init();
    if (!client->curl)
        return error_set(err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
    curl_easy_setopt(client->curl, CURLOPT_URL, url);
    curl_easy_setopt(client->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(client->curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(client->curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(client->curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_TIMEOUT_S);
    curl_easy_setopt(client->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(client->curl, CURLOPT_CONNECT_ONLY, 1L);
    CURLcode code = curl_easy_perform(client->curl);
    if (code == CURLE_OK)
        return 0;
    disconnect(client);
    return error_set(err, HS_ERR_IO, "%s", curl_easy_strerror(code));
}

static bool wait_for(struct http_client *client, short events)
{
    curl_socket_t fd;
    if (curl_easy_getinfo(client->curl, CURLINFO_ACTIVESOCKET, &fd) != CURLE_OK || fd == CURL_SOCKET_BAD)
        return false;
    int n;
    do
        n = poll(&(struct pollfd){.fd = fd, .events = events}, 1, (int)client->patience_ms);
    while (n < 0 && errno == EINTR);
    client->silent |= n == 0;
    return n > 0;
}

static bool send_all(struct http_client *client, const char *data, size_t n)
{
    while (n) {
        size_t sent = 0;
        CURLcode code = curl_easy_send(client->curl, data, n, &sent);
        if (code != CURLE_OK && (code != CURLE_AGAIN || !wait_for(client, POLLOUT)))
            return false;
        data += sent;
        n -= sent;
    }
    return true;
}

/* More into the empty buffer; false at the end of the connection. */
static bool fill(struct http_client *client)
{
    client->at = client->len = 0;
    /* What is not there yet is waited for first; only TLS may hold something that the socket no longer shows. */
    bool ready = client->tls || wait_for(client, POLLIN);
    while (ready) {
        CURLcode code = curl_easy_recv(client->curl, client->buffer, sizeof client->buffer, &client->len);
        if (code != CURLE_AGAIN)
            return code == CURLE_OK && client->len > 0;
        ready = wait_for(client, POLLIN);
    }
    return false;
}

/* ---- answers ---- */

/* The next line, without its end, in client->line; NULL when there is none. */
static const char *read_line(struct http_client *client)
{
    strbuf_clear(&client->line);
    for (;;) {
        if (client->at == client->len && !fill(client))
            return NULL;
        const char *from = client->buffer + client->at, *end = memchr(from, '\n', client->len - client->at);
        size_t n = end ? (size_t)(end - from) : client->len - client->at;
        strbuf_add(&client->line, from, n);
        client->at += n + (end != NULL);
        if (client->line.failed || client->line.len > LONGEST_LINE)
            return NULL;
        if (!end)
            continue;
        if (client->line.len && client->line.data[client->line.len - 1] == '\r')
            client->line.data[--client->line.len] = '\0';
        return strbuf_text(&client->line);
    }
}

/* The value of a header, or NULL. */
static const char *header(const char *line, const char *name)
{
    size_t n = strlen(name);
    if (strncasecmp(line, name, n) != 0 || line[n] != ':')
        return NULL;
    return line + n + 1 + strspn(line + n + 1, " \t");
}

static bool read_head(struct http_client *client, struct answer_head *head)
{
    const char *line, *value;
    do { /* answers of the kind "100 Continue" come before the real one */
        int minor;
        line = read_line(client);
        if (!line || sscanf(line, "HTTP/1.%d %d", &minor, &head->status) != 2)
            return false;
        head->closes = minor == 0;
        while ((line = read_line(client)) && *line) {
            if ((value = header(line, "transfer-encoding")))
                head->chunked = strcasecmp(value, "chunked") == 0;
            else if ((value = header(line, "connection")))
                head->closes = strcasecmp(value, "close") == 0;
            else if ((value = header(line, "content-length"))) {
                head->has_length = true;
                head->length = strtoull(value, NULL, 10);
            }
        }
    } while (line && head->status < 200);
    return line != NULL;
}

/* n bytes of the body (or all until the end of the connection), as they come. */
static bool read_body(struct http_client *client, const struct http_request *request, unsigned long long n, bool until_end)
{
    while (n || until_end) {
        if (client->at == client->len && !fill(client))
            return until_end;
        size_t piece = client->len - client->at;
        if (!until_end && piece > n)
            piece = (size_t)n;
        if (!request->on_body(request->arg, client->buffer + client->at, piece))
            return false;
        client->at += piece;
        n -= until_end ? 0 : piece;
    }
    return true;
}

static bool read_chunks(struct http_client *client, const struct http_request *request)
{
    for (;;) {
        const char *line = read_line(client);
        char *end;
        if (!line)
            return false;
        unsigned long long n = strtoull(line, &end, 16);
        if (end == line)
            return false;
        if (n == 0)
            break;
        if (!read_body(client, request, n, false) || !(line = read_line(client)) || *line)
            return false;
    }
    const char *trailer;
    while ((trailer = read_line(client)) && *trailer)
        ;
    return trailer != NULL;
}

/* ---- requests ---- */

static void write_request(struct http_client *client, const struct http_request *request)
{
    struct strbuf *out = &client->request;
    strbuf_clear(out);
    strbuf_printf(out, "%s %s%s HTTP/1.1\r\nHost: %s\r\n", request->body ? "POST" : "GET", client->prefix, request->path, client->host);
    if (request->api_key)
        strbuf_printf(out, "Authorization: Bearer %s\r\n", request->api_key);
    if (request->body)
        strbuf_printf(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n", request->body_len);
    strbuf_puts(out, "\r\n");
    if (request->body)
        strbuf_add(out, request->body, request->body_len);
}

/* Sends the request and reads how its answer begins. */
static bool exchange_heads(struct http_client *client, const struct http_request *request, struct answer_head *head)
{
    *head = (struct answer_head){0};
    write_request(client, request);
    return !client->request.failed && send_all(client, client->request.data, client->request.len) && read_head(client, head);
}

int http_client_ask(struct http_client *client, const struct http_request *request, int *status, struct error *err)
{
    struct answer_head head;
    client->silent = false;
    client->patience_ms = request->patience_ms;
    bool kept = client->curl != NULL, begun = kept && exchange_heads(client, request, &head);
    if (!begun && !client->silent) { /* the first request, or a connection that the server has closed since the last */
        disconnect(client);
        int rc = connect_to(client, request->url, err);
        if (rc)
            return rc;
        begun = exchange_heads(client, request, &head);
    }
    bool good = begun && (head.chunked ? read_chunks(client, request)
                                       : read_body(client, request, head.length, !head.has_length && head.status != 204));
    bool no_memory = client->request.failed || client->line.failed;
    if (!good || head.closes || (!head.chunked && !head.has_length))
        disconnect(client);
    if (good)
        *status = head.status;
    else if (no_memory)
        return error_set(err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
    if (client->silent)
        return error_set(err, HS_ERR_TIMEOUT, "nothing came for %g s (--timeout)", request->patience_ms / 1e3);
    return good ? 0 : error_set(err, HS_ERR_IO, begun ? "the answer broke off" : "no answer came");
}
