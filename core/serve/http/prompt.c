#include "core/serve/http/prompt.h"

#include <sodium.h>
#include <string.h>

size_t prompt_count(const struct api_request *request)
{
    return request->n_messages ? 1 : request->n_prompts;
}

/* Why the prompt did not become tokens. */
static int refuse_tokens(int rc, const char *param, const struct token_list *out, struct api_error *error)
{
    if (rc == HS_ERR_RANGE)
        return api_error_set_limit(error, API_LIMIT_CONTEXT, 400, param, "context_length_exceeded",
                             "The model's context has %zu tokens, and %s alone has more.", out->max - 1, param);
    if (rc == HS_ERR_LIMIT)
        return api_error_set(error, 413, param, NULL, "%s cannot be tokenized: too long.", param);
    return api_error_set(error, 500, NULL, NULL, "Tokenizing failed: %s.", error_name(rc));
}

static int tokenize_conversation(const struct api_request *request, const struct loaded_model *model, struct token_list *out,
                                 struct api_error *error)
{
    if (!model->chat)
        return api_error_set(error, 400, "messages", "unsupported_value", "This model has no chat template: %s", model->chat_missing);
    bool open_answer = request->endpoint == API_CHAT || request->add_generation_prompt;
    struct chat_text text = {0};
    struct error why = {0};
    int rc = chat_template_render(model->chat, request->messages, request->n_messages, open_answer, &text, &why);
    if (rc == HS_ERR_INVALID)
        api_error_set(error, 400, "messages", "invalid_value", "messages: %s", why.text);
    else if (rc)
        api_error_set(error, 500, NULL, NULL, "The chat template failed: %s", error_name(rc));
    if (!rc) {
        rc = chat_text_tokenize(&text, model->tokenizer, out);
        if (rc)
            refuse_tokens(rc, "messages", out, error);
    }
    chat_text_fini(&text);
    return rc ? -1 : 0;
}

static int tokenize_text(const struct api_request *request, const struct api_prompt *prompt, const struct loaded_model *model,
                         struct token_list *out, struct api_error *error)
{
    bool begin = request->endpoint == API_COMPLETIONS || request->add_special_tokens;
    unsigned flags = TOKENIZE_PARSE_SPECIAL | (begin ? TOKENIZE_ADD_BOS : 0);
    int rc = tokenizer_encode(model->tokenizer, prompt->text, prompt->len, flags, out);
    return rc ? refuse_tokens(rc, "prompt", out, error) : 0;
}

int prompt_tokenize(const struct api_request *request, size_t index, const struct loaded_model *model, uint32_t n_context,
                    struct token_list *out, struct api_error *error)
{
    out->max = n_context ? (size_t)n_context + 1 : 0; /* one more: a second begin token is taken back at the end */
    if (request->n_messages)
        return tokenize_conversation(request, model, out, error);
    const struct api_prompt *prompt = &request->prompts[index];
    if (prompt->text)
        return tokenize_text(request, prompt, model, out, error);
    int rc = 0;
    for (size_t i = 0; i < prompt->n_ids && !rc; i++)
        rc = token_list_add(out, prompt->ids[i]);
    return rc ? refuse_tokens(rc, "prompt", out, error) : 0;
}

void prompt_detokenize(const struct tokenizer *tokenizer, const uint32_t *ids, size_t n, bool show_special, struct strbuf *out)
{
    bool first = true; /* until a token that is text */
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *bytes = tokenizer_token_bytes(tokenizer, ids[i], show_special, first, &len);
        strbuf_add(out, bytes, len);
        first = first && tokenizer_is_special(tokenizer, ids[i]);
    }
}

static void hash_piece(crypto_generichash_state *state, const void *bytes, uint64_t len)
{
    crypto_generichash_update(state, (const uint8_t *)&len, sizeof len);
    if (len)
        crypto_generichash_update(state, bytes, len);
}

void prompt_namespace(const uint8_t fingerprint[32], const char *tenant, const char *salt, size_t salt_len, uint8_t out[32])
{
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, 32);
    hash_piece(&state, fingerprint, 32);
    hash_piece(&state, tenant, tenant ? strlen(tenant) : 0);
    hash_piece(&state, salt, salt_len);
    crypto_generichash_final(&state, out, 32);
}
