#include "core/serve/http/api_request.h"

#include <stdlib.h>
#include <string.h>

#include "core/serve/http/api_request_internal.h"

/* The field that was just refused has more than a limit allows. */
static void blame_limit(struct json_fields *fields, enum api_limit limit)
{
    if (fields->failed)
        fields->error->limit = limit;
}

/* As json_fields_integer, whose upper end is a limit. */
static bool read_limited(struct json_fields *fields, const char *name, int64_t min, int64_t max, enum api_limit limit, int64_t *out)
{
    bool failed = fields->failed, is_above = json_integer_value(json_fields_get(fields, name)) > max;
    bool read = json_fields_integer(fields, name, min, max, out);
    if (!failed && is_above)
        blame_limit(fields, limit);
    return read;
}

static void read_model(struct json_fields *fields, const struct api_limits *limits)
{
    const char *model;
    size_t len;
    if (!json_fields_string(fields, "model", SIZE_MAX, &model, &len) || strcmp(model, limits->model_id) == 0)
        return;
    json_fields_fail(fields, "model", "model_not_found", "The model \"%.200s\" is not served here; this node serves \"%.100s\".",
                     model, limits->model_id);
    fields->error->status = 404;
}

static void read_max_tokens(struct api_request *request, struct json_fields *fields)
{
    bool chat = request->endpoint == API_CHAT;
    int64_t value = 16; /* as the completions API has it */
    const char *name = json_fields_get(fields, "max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
    request->has_max_tokens = json_fields_integer(fields, name, chat ? 1 : 0, INT32_MAX, &value) || !chat;
    request->max_tokens = (uint32_t)value;
}

static void read_stops(struct api_request *request, struct json_fields *fields)
{
    json_t *stop = json_fields_get(fields, "stop");
    if (!stop)
        return;
    bool list = json_is_array(stop);
    size_t n = list ? json_array_size(stop) : 1;
    if (n > STOP_STRINGS_MAX) {
        json_fields_fail(fields, "stop", "invalid_value", "stop has %zu strings; at most %d are possible.", n, STOP_STRINGS_MAX);
        blame_limit(fields, API_LIMIT_STOP_STRINGS);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        json_t *text = list ? json_array_get(stop, i) : stop;
        if (!json_is_string(text)) {
            json_fields_fail(fields, "stop", "invalid_type", "stop must be a string or a list of strings.");
            return;
        }
        size_t len = json_string_length(text);
        if (!len || len > STOP_STRING_BYTES_MAX) {
            json_fields_fail(fields, "stop", "invalid_value", "A stop string has %zu bytes; it must have 1 to %d.", len,
                             STOP_STRING_BYTES_MAX);
            blame_limit(fields, len ? API_LIMIT_STOP_BYTES : API_LIMIT_NONE);
            return;
        }
        if (stop_set_add(&request->stops, json_string_value(text), len)) {
            json_fields_fail(fields, "stop", NULL, "Out of memory.");
            fields->error->status = 500;
            return;
        }
    }
}

static void read_stream(struct api_request *request, struct json_fields *fields)
{
    json_fields_bool(fields, "stream", &request->stream);
    json_t *options = json_fields_get(fields, "stream_options");
    if (!options)
        return;
    if (!json_is_object(options)) {
        json_fields_fail(fields, "stream_options", "invalid_type", "stream_options must be an object.");
        return;
    }
    if (!request->stream) {
        json_fields_fail(fields, "stream_options", "invalid_value", "stream_options is only possible with stream true.");
        return;
    }
    struct json_fields inner = {.object = options, .error = fields->error};
    json_fields_bool(&inner, "include_usage", &request->include_usage);
    json_fields_bool(&inner, "continuous_usage_stats", &request->continuous_usage);
    request->continuous_usage &= request->include_usage;
    fields->failed = inner.failed;
}

static void read_logprobs(struct api_request *request, struct json_fields *fields)
{
    int64_t top = 0;
    if (request->endpoint == API_CHAT) {
        json_fields_bool(fields, "logprobs", &request->logprobs);
        bool wanted = read_limited(fields, "top_logprobs", 0, BACKEND_MAX_TOP_LOGPROBS, API_LIMIT_TOP_LOGPROBS, &top);
        if (wanted && top && !request->logprobs)
            json_fields_fail(fields, "top_logprobs", "invalid_value", "top_logprobs is only possible with logprobs true.");
    } else {
        request->logprobs = read_limited(fields, "logprobs", 0, BACKEND_MAX_TOP_LOGPROBS, API_LIMIT_TOP_LOGPROBS, &top);
    }
    request->sampling.logprobs = request->logprobs;
    request->sampling.n_top_logprobs = (uint8_t)top;
}

static void read_salt(struct api_request *request, struct json_fields *fields)
{
    bool failed = fields->failed, is_long = json_string_length(json_fields_get(fields, "cache_salt")) > API_SALT_BYTES_MAX;
    json_fields_string(fields, "cache_salt", API_SALT_BYTES_MAX, &request->cache_salt, &request->cache_salt_len);
    if (!failed && is_long)
        blame_limit(fields, API_LIMIT_SALT_BYTES);
}

static void read_generation(struct api_request *request, struct json_fields *fields, const struct api_limits *limits)
{
    int64_t n = 1, best_of = 1, priority = 0, min_tokens = 0;
    const char *user;
    size_t user_len;
    read_max_tokens(request, fields);
    read_limited(fields, "n", 1, API_CHOICES_MAX, API_LIMIT_CHOICES, &n);
    if (json_fields_integer(fields, "best_of", 1, INT32_MAX, &best_of) && best_of != 1 && best_of != n)
        json_fields_fail(fields, "best_of", "unsupported_value", "best_of is not supported here beyond 1.");
    read_stops(request, fields);
    read_stream(request, fields);
    read_logprobs(request, fields);
    if (request->endpoint == API_COMPLETIONS)
        json_fields_bool(fields, "echo", &request->echo);
    json_fields_bool(fields, "ignore_eos", &request->ignore_eos);
    int64_t most = request->has_max_tokens ? (int64_t)request->max_tokens : (int64_t)limits->n_context;
    json_fields_integer(fields, "min_tokens", 0, most, &min_tokens);
    json_fields_integer(fields, "priority", INT32_MIN, INT32_MAX, &priority);
    json_fields_string(fields, "user", SIZE_MAX, &user, &user_len);
    read_salt(request, fields);
    request->n = (uint32_t)n;
    request->priority = (int32_t)priority;
    request->sampling.min_tokens = (uint32_t)min_tokens;
    api_request_read_sampling(request, fields, limits);
    if (!fields->failed && request->n_prompts > API_CHOICES_MAX / request->n) {
        json_fields_fail(fields, "n", "invalid_value", "%zu prompts times n = %u is more than %d answers.", request->n_prompts,
                         request->n, API_CHOICES_MAX);
        blame_limit(fields, API_LIMIT_CHOICES);
    }
}

static void read_tokenize(struct api_request *request, struct json_fields *fields, const struct api_limits *limits)
{
    request->add_special_tokens = !json_fields_get(fields, "messages");
    request->add_generation_prompt = true;
    json_fields_bool(fields, "add_special_tokens", &request->add_special_tokens);
    json_fields_bool(fields, "add_generation_prompt", &request->add_generation_prompt);
    if (json_fields_get(fields, "messages")) {
        api_request_read_messages(request, fields);
        return;
    }
    api_request_read_prompts(request, fields, limits);
    if (!fields->failed && (request->n_prompts != 1 || !request->prompts[0].text))
        json_fields_fail(fields, "prompt", "invalid_type", "prompt must be one string.");
}

static void read_detokenize(struct api_request *request, struct json_fields *fields, const struct api_limits *limits)
{
    json_t *tokens = json_fields_get(fields, "tokens");
    if (!json_is_array(tokens)) {
        json_fields_fail(fields, "tokens", "invalid_type", "tokens must be a list of token ids.");
        return;
    }
    request->prompts = calloc(1, sizeof *request->prompts);
    if (!request->prompts) {
        json_fields_fail(fields, "tokens", NULL, "Out of memory.");
        return;
    }
    request->n_prompts = 1;
    request->prompts[0].n_ids = json_array_size(tokens);
    request->prompts[0].ids = api_request_read_ids(fields, "tokens", tokens, limits);
}

/* Only strings are borrowed from the body, and only these lists hold any: the rest, megabytes at worst, need not wait with the answer. */
static void drop_unused(json_t *root)
{
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(root, next, key, value) {
        bool borrowed = strcmp(key, "messages") == 0 || strcmp(key, "stop") == 0 ||
                        (strcmp(key, "prompt") == 0 && !json_is_number(json_array_get(value, 0)));
        if ((json_is_array(value) || json_is_object(value)) && !borrowed)
            json_object_del(root, key);
    }
}

int api_request_parse(struct api_request *out, enum api_endpoint endpoint, const char *body, size_t len,
                      const struct api_limits *limits, struct api_error *error)
{
    struct api_request request = {.endpoint = endpoint, .n = 1};
    request.root = json_fields_parse(body, len, API_DEPTH_MAX, error);
    if (!request.root)
        return -1;
    struct json_fields fields = {.object = request.root, .error = error};
    request.kept = json_array();
    if (!request.kept) {
        json_fields_fail(&fields, NULL, NULL, "Out of memory.");
        error->status = 500;
    }
    read_model(&fields, limits);
    switch (endpoint) {
    case API_CHAT:
        api_request_refuse_absent(&request, &fields);
        api_request_read_messages(&request, &fields);
        read_generation(&request, &fields, limits);
        break;
    case API_COMPLETIONS:
        api_request_refuse_absent(&request, &fields);
        api_request_read_prompts(&request, &fields, limits);
        read_generation(&request, &fields, limits);
        break;
    case API_TOKENIZE:
        read_tokenize(&request, &fields, limits);
        break;
    case API_DETOKENIZE:
        read_detokenize(&request, &fields, limits);
        break;
    }
    if (fields.failed) {
        api_request_fini(&request);
        return -1;
    }
    drop_unused(request.root);
    *out = request;
    return 0;
}

void api_request_fini(struct api_request *request)
{
    for (size_t i = 0; i < request->n_prompts; i++)
        free(request->prompts[i].ids);
    free(request->prompts);
    free(request->messages);
    free(request->bias);
    stop_set_fini(&request->stops);
    json_decref(request->kept);
    json_decref(request->root);
    *request = (struct api_request){0};
}
