#include "core/serve/http/api_logprobs.h"

#include <math.h>
#include <string.h>

#include "core/base/utf8.h"

/* JSON has no infinity; clients know -9999 for "never" from other servers. */
static void write_logprob(struct strbuf *out, float logprob)
{
    strbuf_printf(out, "%.9g", isfinite(logprob) ? (double)logprob : -9999.0);
}

static void write_bytes_member(struct strbuf *out, const char *bytes, size_t len)
{
    strbuf_puts(out, ",\"bytes\":[");
    for (size_t i = 0; i < len; i++)
        strbuf_printf(out, "%s%u", i ? "," : "", (unsigned char)bytes[i]);
    strbuf_puts(out, "]");
}

static void write_chat_token(struct strbuf *out, const struct tokenizer *tokenizer, uint32_t token, float logprob)
{
    size_t len;
    const char *bytes = tokenizer_token_bytes(tokenizer, token, true, false, &len);
    strbuf_puts(out, "{\"token\":");
    strbuf_json_string(out, bytes, len);
    strbuf_puts(out, ",\"logprob\":");
    write_logprob(out, logprob);
    write_bytes_member(out, bytes, len);
}

void api_logprobs_write_chat(struct strbuf *out, const struct tokenizer *tokenizer, const struct api_token *tokens, size_t n)
{
    strbuf_puts(out, "{\"content\":[");
    for (size_t i = 0; i < n; i++) {
        strbuf_puts(out, i ? "," : "");
        write_chat_token(out, tokenizer, tokens[i].token, tokens[i].logprob);
        strbuf_puts(out, ",\"top_logprobs\":[");
        for (uint32_t k = 0; k < tokens[i].n_top; k++) {
            strbuf_puts(out, k ? "," : "");
            write_chat_token(out, tokenizer, tokens[i].top[k].token, tokens[i].top[k].logprob);
            strbuf_puts(out, "}");
        }
        strbuf_puts(out, "]}");
    }
    strbuf_puts(out, "],\"refusal\":null}");
}

/* A token's text as a JSON string; a piece of a character as "bytes:\xe2\x82", so that different tokens stay apart. */
static void write_token_name(struct strbuf *out, const struct tokenizer *tokenizer, uint32_t token)
{
    size_t len;
    const char *bytes = tokenizer_token_bytes(tokenizer, token, true, false, &len);
    if (utf8_is_clean(bytes, len)) {
        strbuf_json_string(out, bytes, len);
        return;
    }
    strbuf_puts(out, "\"bytes:");
    for (size_t i = 0; i < len; i++)
        strbuf_printf(out, "\\\\x%02x", (unsigned char)bytes[i]);
    strbuf_puts(out, "\"");
}

/* One member of a top_logprobs object that began at from, unless the name is there already. */
static void write_top_member(struct strbuf *out, size_t from, const struct tokenizer *tokenizer, uint32_t token, float logprob)
{
    struct strbuf name = {0};
    strbuf_puts(&name, "{"); /* a quote behind "{" or "," is never inside a name: there it would be escaped */
    write_token_name(&name, tokenizer, token);
    strbuf_puts(&name, ":");
    if (name.failed || out->failed) {
        out->failed = true;
        goto end;
    }
    bool present = strstr(out->data + from, name.data) != NULL;
    name.data[0] = ',';
    if (present || strstr(out->data + from, name.data))
        goto end;
    bool first = out->len == from + 1;
    strbuf_add(out, name.data + first, name.len - first);
    write_logprob(out, logprob);
end:
    strbuf_fini(&name);
}

static void write_top_object(struct strbuf *out, const struct tokenizer *tokenizer, const struct api_token *token)
{
    if (!token->scored) {
        strbuf_puts(out, "null");
        return;
    }
    size_t from = out->len;
    strbuf_puts(out, "{");
    for (uint32_t k = 0; k < token->n_top; k++)
        write_top_member(out, from, tokenizer, token->top[k].token, token->top[k].logprob);
    write_top_member(out, from, tokenizer, token->token, token->logprob); /* the chosen one is always there */
    strbuf_puts(out, "}");
}

static uint64_t count_characters(const char *bytes, size_t len)
{
    uint64_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)bytes[i] & 0xc0) != 0x80;
    return n;
}

void api_logprobs_write_completion(struct strbuf *out, const struct tokenizer *tokenizer, const struct api_token *tokens, size_t n,
                                   uint64_t *offset)
{
    strbuf_puts(out, "{\"tokens\":[");
    for (size_t i = 0; i < n; i++) {
        strbuf_puts(out, i ? "," : "");
        write_token_name(out, tokenizer, tokens[i].token);
    }
    strbuf_puts(out, "],\"token_logprobs\":[");
    for (size_t i = 0; i < n; i++) {
        strbuf_puts(out, i ? "," : "");
        if (tokens[i].scored)
            write_logprob(out, tokens[i].logprob);
        else
            strbuf_puts(out, "null");
    }
    strbuf_puts(out, "],\"top_logprobs\":[");
    for (size_t i = 0; i < n; i++) {
        strbuf_puts(out, i ? "," : "");
        write_top_object(out, tokenizer, &tokens[i]);
    }
    strbuf_puts(out, "],\"text_offset\":[");
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *bytes = tokenizer_token_bytes(tokenizer, tokens[i].token, false, false, &len);
        strbuf_printf(out, "%s%llu", i ? "," : "", (unsigned long long)*offset);
        *offset += count_characters(bytes, len);
    }
    strbuf_puts(out, "]}");
}
