#include "core/serve/http/api_response.h"

#include <string.h>

static void write_head(struct strbuf *out, const struct api_answer_head *head, const char *object)
{
    strbuf_puts(out, "{\"id\":");
    strbuf_json_string(out, head->id, strlen(head->id));
    strbuf_printf(out, ",\"object\":\"%s\",\"created\":%lld,\"model\":", object, (long long)head->created);
    strbuf_json_string(out, head->model, strlen(head->model));
    strbuf_puts(out, ",\"system_fingerprint\":");
    strbuf_json_string(out, head->fingerprint, strlen(head->fingerprint));
}

static void write_usage(struct strbuf *out, const struct api_usage *usage)
{
    strbuf_printf(out,
                  "{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,\"total_tokens\":%llu,"
                  "\"prompt_tokens_details\":{\"cached_tokens\":%llu}}",
                  (unsigned long long)usage->prompt_tokens, (unsigned long long)usage->completion_tokens,
                  (unsigned long long)(usage->prompt_tokens + usage->completion_tokens), (unsigned long long)usage->cached_tokens);
}

static void write_logprobs(struct strbuf *out, const struct api_answer_head *head, const struct api_part *part)
{
    strbuf_puts(out, ",\"logprobs\":");
    if (!part->logprobs || !part->n_tokens)
        strbuf_puts(out, "null");
    else if (head->chat)
        api_logprobs_write_chat(out, head->tokenizer, part->tokens, part->n_tokens);
    else
        api_logprobs_write_completion(out, head->tokenizer, part->tokens, part->n_tokens, part->offset);
}

static void write_finish_reason(struct strbuf *out, const struct api_part *part)
{
    if (part->finish_reason)
        strbuf_printf(out, ",\"finish_reason\":\"%s\"", part->finish_reason);
    else
        strbuf_puts(out, ",\"finish_reason\":null");
}

static const char *chunk_object(const struct api_answer_head *head)
{
    return head->chat ? "chat.completion.chunk" : "text_completion";
}

void api_write_chunk(struct strbuf *out, const struct api_answer_head *head, const struct api_part *part, bool show_usage,
                     const struct api_usage *usage)
{
    write_head(out, head, chunk_object(head));
    strbuf_printf(out, ",\"choices\":[{\"index\":%u", part->index);
    if (head->chat) {
        strbuf_puts(out, ",\"delta\":{");
        if (part->first)
            strbuf_puts(out, "\"role\":\"assistant\",");
        if (part->len || part->first) {
            strbuf_puts(out, "\"content\":");
            strbuf_json_string(out, part->text, part->len);
        }
        strbuf_puts(out, "}");
    } else {
        strbuf_puts(out, ",\"text\":");
        strbuf_json_string(out, part->text, part->len);
    }
    write_logprobs(out, head, part);
    write_finish_reason(out, part);
    strbuf_puts(out, "}]");
    if (show_usage) {
        strbuf_puts(out, ",\"usage\":");
        if (usage)
            write_usage(out, usage);
        else
            strbuf_puts(out, "null");
    }
    strbuf_puts(out, "}");
}

void api_write_usage_chunk(struct strbuf *out, const struct api_answer_head *head, const struct api_usage *usage)
{
    write_head(out, head, chunk_object(head));
    strbuf_puts(out, ",\"choices\":[],\"usage\":");
    write_usage(out, usage);
    strbuf_puts(out, "}");
}

void api_write_begin(struct strbuf *out, const struct api_answer_head *head)
{
    write_head(out, head, head->chat ? "chat.completion" : "text_completion");
    strbuf_puts(out, ",\"choices\":[");
}

void api_write_choice(struct strbuf *out, const struct api_answer_head *head, const struct api_part *part)
{
    strbuf_printf(out, "%s{\"index\":%u", part->index ? "," : "", part->index);
    strbuf_puts(out, head->chat ? ",\"message\":{\"role\":\"assistant\",\"content\":" : ",\"text\":");
    strbuf_json_string(out, part->text, part->len);
    if (head->chat)
        strbuf_puts(out, ",\"refusal\":null}");
    write_logprobs(out, head, part);
    write_finish_reason(out, part);
    strbuf_puts(out, "}");
}

void api_write_end(struct strbuf *out, const struct api_usage *usage)
{
    strbuf_puts(out, "],\"usage\":");
    write_usage(out, usage);
    strbuf_puts(out, "}");
}

void sse_begin(struct strbuf *out)
{
    strbuf_puts(out, "data: ");
}

void sse_end(struct strbuf *out)
{
    strbuf_puts(out, "\n\n");
}

void sse_write_done(struct strbuf *out)
{
    strbuf_puts(out, "data: [DONE]\n\n");
}
