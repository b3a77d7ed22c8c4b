/* hearsay-ctl: asks a running node over HTTP and shows the answer. */
#include <curl/curl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/options.h"
#include "core/base/output.h"
#include "core/base/strbuf.h"
#include "tools/ctl/show.h"

enum { EXIT_FAILED = 1, EXIT_USAGE };

enum view { VIEW_ALL, VIEW_PEERS };

struct command {
    const char *name;
    const char *path;
    bool post;
    enum view view;
};

static const struct command commands[] = {
    {"status", "/cluster", false, VIEW_ALL},   {"peers", "/cluster", false, VIEW_PEERS}, {"tree", "/admin/tree", false, VIEW_ALL},
    {"drain", "/admin/drain", true, VIEW_ALL}, {"flush", "/admin/flush", true, VIEW_ALL}, {"undrain", "/admin/undrain", true, VIEW_ALL},
};

static const struct show_column peer_columns[] = {
    {"name", "name"},           {"state", "state"},        {"routable", "routable"}, {"http", "http_address"}, {"waiting", "load.waiting"},
    {"running", "load.running"}, {"in flight", "in_flight"}, {"blocks", "replica.blocks"}, {"rtt us", "rtt_us"}, {"arithmetic", "arithmetic"},
};

struct ctl_options {
    const char *address;
    const struct command *command;
    bool json;
};

static int set_json(void *config, const char *text, struct error *err)
{
    ((struct ctl_options *)config)->json = true;
    return 0;
}

static int set_positional(void *config, const char *text, struct error *err)
{
    struct ctl_options *o = config;
    if (!o->address) {
        if (!strchr(text, ':'))
            return error_set(err, HS_ERR_PARSE, "\"%s\" is not ADDR:PORT; give the node's HTTP address, e.g. 127.0.0.1:8080", text);
        o->address = text;
        return 0;
    }
    if (o->command)
        return error_set(err, HS_ERR_PARSE, "\"%s\": one command at a time", text);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(text, commands[i].name) == 0)
            o->command = &commands[i];
    }
    if (!o->command)
        return error_set(err, HS_ERR_PARSE, "\"%s\" is not one of status, peers, tree, drain, undrain, flush", text);
    return 0;
}

static const struct option_spec ctl_specs[] = {
    {"json", NULL, "Print JSON", "Output", .set = set_json},
};

static const struct options ctl_options = {
    .program = "hearsay-ctl",
    .usage = "ADDR:PORT status|peers|tree|drain|undrain|flush",
    .description = "Asks a running hearsay node about itself and its group, or tells it to drain or to flush its prefix cache.",
    .epilog = "Examples:\n"
              "  hearsay-ctl 127.0.0.1:8080 status\n"
              "  hearsay-ctl 127.0.0.1:8080 peers --json | jq '.[].name'\n"
              "  hearsay-ctl 127.0.0.1:8080 drain      finish what runs, take nothing new\n"
              "  hearsay-ctl 127.0.0.1:8080 flush      empty the prefix cache\n",
    .version = HEARSAY_VERSION,
    .specs = ctl_specs,
    .n_specs = sizeof ctl_specs / sizeof ctl_specs[0],
    .positional = set_positional,
};

enum { ANSWER_BYTES_MAX = 64 << 20 };

/* A false count makes curl end the transfer. */
static size_t collect(char *data, size_t size, size_t n, void *arg)
{
    struct strbuf *body = arg;
    if (size * n > ANSWER_BYTES_MAX - body->len)
        return 0;
    strbuf_add(body, data, size * n);
    return body->failed ? 0 : size * n;
}

/* The answer's body; 0 or HS_ERR_* with one line in err. */
static int exchange(const struct ctl_options *o, struct strbuf *body, struct error *err)
{
    char url[512];
    if ((size_t)snprintf(url, sizeof url, "http://%s%s", o->address, o->command->path) >= sizeof url)
        return error_set(err, HS_ERR_LIMIT, "the address is too long");
    CURL *curl = curl_easy_init();
    if (!curl)
        return error_set(err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http");
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 5L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, 30L);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, collect);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, body);
    if (o->command->post)
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, "");
    CURLcode code = curl_easy_perform(curl);
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(curl);
    if (code == CURLE_WRITE_ERROR)
        return error_set(err, HS_ERR_LIMIT, "%s: the answer has more than %d bytes, or memory is out", o->address, ANSWER_BYTES_MAX);
    if (code != CURLE_OK)
        return error_set(err, HS_ERR_IO, "%s: %s; is a node running there (--http)?", o->address, curl_easy_strerror(code));
    if (status != 200)
        return error_set(err, HS_ERR_IO, "%s answered %ld: %s", o->address, status, strbuf_text(body));
    return 0;
}

static void show_peers(json_t *peers)
{
    if (json_array_size(peers) > 0)
        show_table(stdout, peers, peer_columns, sizeof peer_columns / sizeof peer_columns[0]);
    else
        printf("no peers\n");
}

static void show(const struct ctl_options *o, json_t *answer)
{
    json_t *peers = json_object_get(json_object_get(answer, "cluster"), "peers");
    bool only_peers = o->command->view == VIEW_PEERS;
    if (o->json) {
        json_dumpf(only_peers ? peers : answer, stdout, JSON_INDENT(2));
        printf("\n");
        return;
    }
    if (!only_peers)
        show_object(stdout, answer);
    if (!only_peers && peers)
        printf("\npeers:\n");
    if (only_peers || peers)
        show_peers(peers);
}

static int show_answer(const struct ctl_options *o, const struct strbuf *body, struct error *err)
{
    json_error_t problem;
    json_t *answer = json_loadb(strbuf_text(body), body->len, 0, &problem);
    if (!json_is_object(answer)) {
        json_decref(answer);
        return error_set(err, HS_ERR_PROTOCOL, "%s did not answer as a hearsay node would: %s", o->address, problem.text);
    }
    show(o, answer);
    json_decref(answer);
    return 0;
}

int main(int argc, char **argv)
{
    struct ctl_options o = {0};
    struct error err = {0};
    int rc = options_parse(&ctl_options, argc, argv, &o, &err);
    if (rc > 0)
        return output_finish("hearsay-ctl");
    if (rc == 0 && !o.command)
        rc = error_set(&err, HS_ERR_INVALID, "give the node's address and a command, e.g. hearsay-ctl 127.0.0.1:8080 status");
    if (rc < 0) {
        fprintf(stderr, "hearsay-ctl: %s\n", err.text);
        return EXIT_USAGE;
    }
    curl_global_init(CURL_GLOBAL_DEFAULT);
    struct strbuf body = {0};
    rc = exchange(&o, &body, &err);
    if (rc == 0)
        rc = show_answer(&o, &body, &err);
    if (rc)
        fprintf(stderr, "hearsay-ctl: %s\n", err.text);
    strbuf_fini(&body);
    curl_global_cleanup();
    return rc ? EXIT_FAILED : output_finish("hearsay-ctl");
}
