/*
 * A request body: byte 0 chooses the endpoint. A refused one leaves a 4xx whose error object is JSON; an accepted one is
 * tokenized, and its own tokens are taken for an answer, which must not show a stop string.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"
#include "core/serve/http/answer_text.h"
#include "core/serve/http/prompt.h"
#include "tests/fuzz/fuzz.h"

static void check_error(const struct api_error *error)
{
    struct strbuf text = {0};
    hs_assert(error->status >= 400 && error->status < 500 && error->message[0]);
    api_error_write(error, &text);
    json_t *parsed = json_loadb(strbuf_text(&text), text.len, 0, NULL);
    hs_assert(parsed);
    json_decref(parsed);
    strbuf_fini(&text);
}

static void check_answer(const struct api_request *request, const struct tokenizer *tokenizer, const struct token_list *tokens)
{
    struct answer_text answer;
    struct strbuf shown = {0};
    size_t released = 0;
    bool stopped = false;
    answer_text_init(&answer, tokenizer, &request->stops);
    for (size_t i = 0; i < tokens->n && !stopped; i++) {
        stopped = answer_text_push(&answer, tokens->ids[i]);
        if (i % 3 == 0)
            released += answer_text_take(&answer, &shown);
    }
    answer_text_finish(&answer);
    released += answer_text_take(&answer, &shown);
    hs_assert(!answer.failed && released <= tokens->n && utf8_incomplete_tail(strbuf_text(&shown), shown.len) == 0);
    for (size_t i = 0; i < request->stops.n; i++)
        hs_assert(!shown.len || !memmem(shown.data, shown.len, request->stops.strings[i].text, request->stops.strings[i].len));
    answer_text_fini(&answer);
    strbuf_fini(&shown);
}

static void use(const struct api_request *request, const struct loaded_model *model)
{
    struct api_error error = {0};
    struct strbuf text = {0};
    for (size_t i = 0; i < prompt_count(request); i++) {
        struct token_list tokens = {0};
        if (prompt_tokenize(request, i, model, 512, &tokens, &error)) {
            check_error(&error);
        } else {
            prompt_detokenize(model->tokenizer, tokens.ids, tokens.n, false, &text);
            check_answer(request, model->tokenizer, &tokens);
        }
        token_list_fini(&tokens);
    }
    strbuf_fini(&text);
}

int fuzz_api(const uint8_t *data, size_t len)
{
    const struct loaded_model *model = fuzz_tiny_model();
    struct api_limits limits = {.model_id = "tiny", .n_vocab = model->desc->n_vocab, .n_context = 512};
    struct api_request request;
    struct api_error error = {0};
    if (len == 0)
        return 0;
    char *body = fuzz_copy(data + 1, len - 1);
    if (api_request_parse(&request, (enum api_endpoint)(data[0] % 4), body, len - 1, &limits, &error)) {
        check_error(&error);
    } else {
        hs_assert(request.n >= 1 && request.n <= API_CHOICES_MAX);
        use(&request, model);
        api_request_fini(&request);
    }
    free(body);
    return 0;
}
