/* Prompts and messages of a request. */
#include <stdlib.h>
#include <string.h>

#include "core/serve/http/api_request_internal.h"

static void out_of_memory(struct json_fields *fields, const char *name)
{
    json_fields_fail(fields, name, NULL, "Out of memory.");
    fields->error->status = 500;
}

uint32_t *api_request_read_ids(struct json_fields *fields, const char *name, const json_t *array, const struct api_limits *limits)
{
    size_t n = json_array_size(array);
    uint32_t *ids = malloc((n ? n : 1) * sizeof *ids);
    if (!ids) {
        out_of_memory(fields, name);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        json_t *value = json_array_get(array, i);
        if (!json_is_integer(value)) {
            json_fields_fail(fields, name, "invalid_type", "%s: a list of token ids must hold whole numbers only.", name);
            break;
        }
        json_int_t id = json_integer_value(value);
        if (id < 0 || id >= limits->n_vocab) {
            json_fields_fail(fields, name, "invalid_value", "%s: %lld is no token of this model; ids go from 0 to %u.", name,
                             (long long)id, limits->n_vocab - 1);
            break;
        }
        ids[i] = (uint32_t)id;
    }
    if (fields->failed) {
        free(ids);
        return NULL;
    }
    return ids;
}

static void read_prompt(struct api_prompt *prompt, struct json_fields *fields, const json_t *value, const struct api_limits *limits)
{
    if (json_is_string(value)) {
        prompt->text = json_string_value(value);
        prompt->len = json_string_length(value);
    } else if (json_is_array(value)) {
        if (!json_array_size(value)) {
            json_fields_fail(fields, "prompt", "invalid_value", "prompt: a list of token ids is empty.");
            return;
        }
        prompt->n_ids = json_array_size(value);
        prompt->ids = api_request_read_ids(fields, "prompt", value, limits);
    } else {
        json_fields_fail(fields, "prompt", "invalid_type", "prompt must be a string, a list of token ids, or a list of either.");
    }
}

void api_request_read_prompts(struct api_request *request, struct json_fields *fields, const struct api_limits *limits)
{
    json_t *prompt = json_fields_get(fields, "prompt");
    if (!prompt) {
        json_fields_fail(fields, "prompt", "missing_required_parameter", "prompt is missing.");
        return;
    }
    /* A list whose first member is a number is one prompt. */
    bool several = json_is_array(prompt) && !json_is_number(json_array_get(prompt, 0));
    size_t n = several ? json_array_size(prompt) : 1;
    if (n == 0 || n > API_CHOICES_MAX) {
        json_fields_fail(fields, "prompt", "invalid_value", "prompt holds %zu prompts; it must hold 1 to %d.", n, API_CHOICES_MAX);
        fields->error->limit = n ? API_LIMIT_CHOICES : API_LIMIT_NONE;
        return;
    }
    request->prompts = calloc(n, sizeof *request->prompts);
    if (!request->prompts) {
        out_of_memory(fields, "prompt");
        return;
    }
    request->n_prompts = n;
    for (size_t i = 0; i < n && !fields->failed; i++)
        read_prompt(&request->prompts[i], fields, several ? json_array_get(prompt, i) : prompt, limits);
}

/* Joins the text parts of a message, a line break between them, into a JSON string that the request keeps. */
static json_t *join_parts(struct api_request *request, struct json_fields *fields, const json_t *parts)
{
    struct strbuf text = {0};
    json_t *joined = NULL;
    for (size_t i = 0; i < json_array_size(parts); i++) {
        json_t *part = json_array_get(parts, i);
        const char *type = json_string_value(json_object_get(part, "type"));
        json_t *content = json_is_string(part) ? part : json_object_get(part, "text");
        if (type && strcmp(type, "text") != 0 && strcmp(type, "input_text") != 0 && strcmp(type, "output_text") != 0) {
            json_fields_fail(fields, "messages", "unsupported_value",
                             "messages: content parts of type \"%.40s\" are not supported here; only text is.", type);
            goto end;
        }
        if (!json_is_string(content)) {
            json_fields_fail(fields, "messages", "invalid_type", "messages: a content part must have a text.");
            goto end;
        }
        if (i)
            strbuf_puts(&text, "\n");
        strbuf_add(&text, json_string_value(content), json_string_length(content));
    }
    joined = text.failed ? NULL : json_stringn(strbuf_text(&text), text.len);
    if (!joined || json_array_append_new(request->kept, joined)) {
        joined = NULL;
        out_of_memory(fields, "messages");
    }
end:
    strbuf_fini(&text);
    return joined;
}

static void read_message(struct api_request *request, struct json_fields *fields, const json_t *value, struct chat_message *out)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    const char *role = json_string_value(json_object_get(value, "role"));
    if (!role) {
        json_fields_fail(fields, "messages", "invalid_type", "messages: each must be an object with a role and a content.");
        return;
    }
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(role, roles[i]) == 0)
            out->role = roles[i];
    if (!out->role) {
        json_fields_fail(fields, "messages", "invalid_value",
                         "messages: the role \"%.40s\" is not one of system, developer, user, assistant, tool.", role);
        return;
    }
    if (json_array_size(json_object_get(value, "tool_calls")) || json_is_object(json_object_get(value, "function_call"))) {
        json_fields_fail(fields, "messages", "unsupported_value", "messages: tool calls are not supported here.");
        return;
    }
    json_t *content = json_object_get(value, "content");
    if (json_is_array(content))
        content = join_parts(request, fields, content);
    if (fields->failed)
        return;
    if (json_is_string(content)) {
        out->content = json_string_value(content);
        out->len = json_string_length(content);
    } else if ((!content || json_is_null(content)) && strcmp(role, "assistant") == 0) {
        out->content = "";
    } else {
        json_fields_fail(fields, "messages", "invalid_type", "messages: content must be a string or a list of text parts.");
    }
}

void api_request_read_messages(struct api_request *request, struct json_fields *fields)
{
    json_t *messages = json_fields_get(fields, "messages");
    size_t n = json_array_size(messages);
    if (!messages)
        json_fields_fail(fields, "messages", "missing_required_parameter", "messages is missing.");
    else if (!json_is_array(messages))
        json_fields_fail(fields, "messages", "invalid_type", "messages must be a list.");
    else if (!n)
        json_fields_fail(fields, "messages", "invalid_value", "messages must not be empty.");
    if (fields->failed)
        return;
    request->messages = calloc(n, sizeof *request->messages);
    if (!request->messages) {
        out_of_memory(fields, "messages");
        return;
    }
    request->n_messages = n;
    for (size_t i = 0; i < n && !fields->failed; i++)
        read_message(request, fields, json_array_get(messages, i), &request->messages[i]);
}
