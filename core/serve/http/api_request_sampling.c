/* Sampling parameters of a request, and the features that are refused. */
#include <stdlib.h>
#include <string.h>

#include "core/base/parse.h"
#include "core/serve/http/api_request_internal.h"

static int compare_bias(const void *a, const void *b)
{
    uint32_t left = ((const struct logit_bias *)a)->token, right = ((const struct logit_bias *)b)->token;
    return (left > right) - (left < right);
}

static void read_logit_bias(struct api_request *request, struct json_fields *fields, const struct api_limits *limits)
{
    json_t *map = json_fields_get(fields, "logit_bias");
    if (!map)
        return;
    size_t n = json_object_size(map);
    if (!json_is_object(map)) {
        json_fields_fail(fields, "logit_bias", "invalid_type", "logit_bias must be an object of token ids and numbers.");
        return;
    }
    if (n > API_LOGIT_BIAS_MAX) {
        json_fields_fail(fields, "logit_bias", "invalid_value", "logit_bias has %zu entries; at most %d are possible.", n,
                         API_LOGIT_BIAS_MAX);
        fields->error->limit = API_LIMIT_BIAS_ENTRIES;
        return;
    }
    request->bias = calloc(n ? n : 1, sizeof *request->bias);
    if (!request->bias) {
        json_fields_fail(fields, "logit_bias", NULL, "Out of memory.");
        fields->error->status = 500;
        return;
    }
    const char *key;
    json_t *value;
    uint32_t count = 0;
    json_object_foreach(map, key, value) {
        uint64_t token;
        double bias = json_number_value(value);
        if (parse_u64(key, 0, limits->n_vocab - 1, &token, NULL)) {
            json_fields_fail(fields, "logit_bias", "invalid_value", "logit_bias: \"%.40s\" is no token of this model; ids go from 0 to %u.",
                             key, limits->n_vocab - 1);
            return;
        }
        if (!json_is_number(value) || !(bias >= -100 && bias <= 100)) {
            json_fields_fail(fields, "logit_bias", "invalid_value", "logit_bias: a bias must be a number from -100 to 100.");
            return;
        }
        request->bias[count++] = (struct logit_bias){(uint32_t)token, (float)bias};
    }
    qsort(request->bias, count, sizeof *request->bias, compare_bias);
    request->sampling.bias = count ? request->bias : NULL;
    request->sampling.n_bias = count;
}

void api_request_read_sampling(struct api_request *request, struct json_fields *fields, const struct api_limits *limits)
{
    double temperature = 1, top_p = 1, min_p = 0, repetition = 1, presence = 0, frequency = 0;
    int64_t top_k = 0, seed = 0;
    json_fields_number(fields, "temperature", 0, 2, &temperature);
    json_fields_number(fields, "top_p", 0, 1, &top_p);
    json_fields_number(fields, "min_p", 0, 1, &min_p);
    json_fields_integer(fields, "top_k", -1, INT32_MAX, &top_k); /* -1 is how some clients say "off" */
    json_fields_number(fields, "repetition_penalty", 0.01, 10, &repetition);
    json_fields_number(fields, "presence_penalty", -2, 2, &presence);
    json_fields_number(fields, "frequency_penalty", -2, 2, &frequency);
    request->has_seed = json_fields_integer(fields, "seed", INT64_MIN, INT64_MAX, &seed);
    read_logit_bias(request, fields, limits);
    struct sampling_params *sampling = &request->sampling;
    sampling->temperature = (float)temperature;
    sampling->top_p = top_p > 0 ? (float)top_p : 1e-9f; /* 0 keeps the most likely token, as a tiny share does */
    sampling->min_p = (float)min_p;
    sampling->top_k = top_k > 0 ? (uint32_t)top_k : 0;
    sampling->repetition_penalty = (float)repetition;
    sampling->presence_penalty = (float)presence;
    sampling->frequency_penalty = (float)frequency;
    sampling->seed = (uint64_t)seed;
}

/* False, 0, "", [], {} and null ask for nothing. */
static bool asks_for_something(const json_t *value)
{
    if (!value || json_is_null(value) || json_is_false(value))
        return false;
    if (json_is_array(value))
        return json_array_size(value) > 0;
    if (json_is_object(value))
        return json_object_size(value) > 0;
    if (json_is_string(value))
        return json_string_length(value) > 0;
    return !json_is_number(value) || json_number_value(value) != 0;
}

static void refuse_response_format(struct json_fields *fields)
{
    json_t *format = json_fields_get(fields, "response_format");
    if (!format)
        return;
    const char *type = json_string_value(json_object_get(format, "type"));
    if (!type)
        json_fields_fail(fields, "response_format", "invalid_type", "response_format must be an object with a type.");
    else if (strcmp(type, "text") != 0)
        json_fields_fail(fields, "response_format", "unsupported_value",
                         "response_format \"%.40s\" is not supported here; only \"text\" is.", type);
}

static void refuse_tool_choice(struct json_fields *fields)
{
    json_t *choice = json_fields_get(fields, "tool_choice");
    const char *text = json_string_value(choice);
    if (choice && !(text && (strcmp(text, "none") == 0 || strcmp(text, "auto") == 0)))
        json_fields_fail(fields, "tool_choice", "unsupported_parameter", "tool_choice: tools are not supported here.");
}

static void refuse_modalities(struct json_fields *fields)
{
    json_t *modalities = json_fields_get(fields, "modalities");
    for (size_t i = 0; i < json_array_size(modalities); i++) {
        const char *text = json_string_value(json_array_get(modalities, i));
        if (!text || strcmp(text, "text") != 0)
            json_fields_fail(fields, "modalities", "unsupported_value", "modalities: only \"text\" is supported here.");
    }
}

void api_request_refuse_absent(const struct api_request *request, struct json_fields *fields)
{
    static const char *const absent[] = {
        "tools", "functions", "function_call", "suffix", "audio", "prediction", "web_search_options", "reasoning_effort",
        "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "json_schema", "grammar",
        "prompt_embeds", "use_beam_search", "stop_token_ids", "bad_words", "allowed_token_ids", "logits_processors",
        "prompt_logprobs", "truncate_prompt_tokens", "chat_template", "chat_template_kwargs", "documents",
        "continue_final_message", "include_stop_str_in_output", "length_penalty", "lora", "adapter",
    };
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
        const char *name = absent[i];
        bool neutral = strcmp(name, "length_penalty") == 0 && json_number_value(json_fields_get(fields, name)) == 1.0;
        if (!neutral && asks_for_something(json_fields_get(fields, name)))
            json_fields_fail(fields, name, "unsupported_parameter", "%s is not supported here.", name);
    }
    if (request->endpoint == API_CHAT && json_is_true(json_fields_get(fields, "echo")))
        json_fields_fail(fields, "echo", "unsupported_parameter", "echo is only possible with /v1/completions.");
    refuse_response_format(fields);
    refuse_tool_choice(fields);
    refuse_modalities(fields);
}
