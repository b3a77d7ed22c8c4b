#include "perf/serve_get.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool on_text(void *arg, const char *data, size_t n)
{
    struct strbuf *out = arg;
    strbuf_add(out, data, n);
    return !out->failed;
}

static int get(struct http_client *client, const struct perf_config *config, const char *url, const char *path, struct strbuf *out,
               int *status, struct error *err)
{
    struct http_request request = {.url = url, .path = path, .api_key = config->api_key, .patience_ms = (uint32_t)(config->timeout_ns / 1000000),
                                   .on_body = on_text, .arg = out};
    strbuf_clear(out);
    return http_client_ask(client, &request, status, err);
}

double serve_step_seconds(struct http_client *client, const struct perf_config *config, const char *url, struct strbuf *scratch)
{
    static const char name[] = "\nhearsay_step_seconds_sum";
    struct error err;
    int status;
    if (get(client, config, url, "/metrics", scratch, &status, &err) != 0 || status != 200)
        return NAN;
    const char *line = strstr(strbuf_text(scratch), name);
    if (!line)
        return NAN;
    const char *value = line + 1 + strcspn(line + 1, "\n");
    while (*value != ' ' && value > line) /* labels may have spaces, too: the value is behind the last */
        value--;
    return strtod(value, NULL);
}

int serve_find_model(const struct perf_config *config, const char *url, char *out, size_t cap, struct error *err)
{
    struct http_client client = {0};
    struct strbuf body = {0};
    struct error reason;
    int status = 0, rc = get(&client, config, url, "/v1/models", &body, &status, &reason);
    json_t *document = rc == 0 && status == 200 ? json_loads(strbuf_text(&body), 0, NULL) : NULL;
    const char *id = json_string_value(json_object_get(json_array_get(json_object_get(document, "data"), 0), "id"));
    if (rc)
        error_set(err, rc, "%s/v1/models: %s; does a server run there?", url, reason.text);
    else if (!id || snprintf(out, cap, "%s", id) >= (int)cap)
        rc = error_set(err, HS_ERR_IO, "%s/v1/models names no model (status %d); give --served-model", url, status);
    json_decref(document);
    strbuf_fini(&body);
    http_client_fini(&client);
    return rc;
}
