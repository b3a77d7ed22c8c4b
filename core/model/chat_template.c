#include "core/model/chat_template.h"

#include <stdlib.h>
#include <string.h>

#include "core/model/chat_internal.h"

static const struct chatml_style chatml = {0};
static const struct chatml_style smollm2 = {.default_system =
                                                "You are a helpful AI assistant named SmolLM, trained by Hugging Face"};
static const struct chatml_style qwen1 = {.default_system = "You are a helpful assistant"};
static const struct chatml_style qwen2 = {.default_system = "You are a helpful assistant."};
static const struct chatml_style qwen2_5 = {
    .default_system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.", .wraps_tools = true};
static const struct chatml_style qwen3_instruct = {.wraps_tools = true};
static const struct llama3_style llama3 = {0};
/*
 * The template takes today's date where its caller provides a clock, and this one otherwise: so the same prompt gives the
 * same tokens every day.
 */
static const struct llama3_style llama3_1 = {.preamble = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
                                             .names_ipython = true};
static const struct gemma_style gemma = {0};
static const struct gemma_style gemma3 = {.joins_system = true};

#define ALTERNATE  "onversation roles must alternate user/assistant/user/assistant/..."
#define AFTER      "After the optional system message, c" ALTERNATE
#define NO_OTHER   "Only user and assistant roles are supported!"
#define ONE_SYSTEM "Only user and assistant roles are supported, with the exception of an initial optional system message!"

static const struct inst_style llama2 = {
    .open = "[INST] ",
    .close = " [/INST]",
    .answer_open = " ",
    .answer_close = " </s>",
    .system = INST_SYSTEM_MARKED,
    .bos_each_turn = true,
    .trims_user = true,
    .trims_answer = true,
    .alternate = "C" ALTERNATE,
    .other_role = "C" ALTERNATE,
};
static const struct inst_style mistral_v0_1 = {
    .open = "[INST] ",
    .close = " [/INST]",
    .answer_open = "",
    .answer_close = "</s> ",
    .alternate = "C" ALTERNATE,
    .other_role = NO_OTHER,
};
static const struct inst_style mistral_v0_2 = {
    .open = "[INST] ",
    .close = " [/INST]",
    .answer_open = "",
    .answer_close = "</s>",
    .alternate = "C" ALTERNATE,
    .other_role = NO_OTHER,
};
static const struct inst_style mistral_v1 = {
    .open = " [INST] ",
    .close = " [/INST]",
    .answer_open = " ",
    .answer_close = "</s>",
    .system = INST_SYSTEM_FIRST,
    .alternate = AFTER,
    .other_role = ONE_SYSTEM,
};
static const struct inst_style mistral_v3 = {
    .open = "[INST] ",
    .close = "[/INST]",
    .answer_open = " ",
    .answer_close = "</s>",
    .system = INST_SYSTEM_LAST,
    .trims_answer = true,
    .alternate = AFTER,
    .other_role = ONE_SYSTEM,
};
static const struct inst_style mistral_nemo = {
    .open = "[INST]",
    .close = "[/INST]",
    .answer_open = "",
    .answer_close = "</s>",
    .system = INST_SYSTEM_LAST,
    .alternate = AFTER,
    .other_role = ONE_SYSTEM,
};

/* In the order of recognition: a family stands before those that its text would also fit. */
static const struct chat_template families[] = {
    {.name = "qwen3",
     .render = chat_render_qwen3,
     .holds = {"<|im_start|>", "last_query_index", "+ content.lstrip('", "enable_thinking is false"},
     .lacks = {"assistant\\n<think>", "enable_thinking is true"}},
    {.name = "qwen3-instruct",
     .render = chat_render_chatml,
     .style = &qwen3_instruct,
     .holds = {"<|im_start|>", "messages[0].content + '<|im_end|>", "<tool_response>"},
     .lacks = {"think", "trim", "strip"}},
    {.name = "qwen2.5",
     .render = chat_render_chatml,
     .style = &qwen2_5,
     .holds = {"<|im_start|>", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.", "<tool_response>"}},
    {.name = "qwen2",
     .render = chat_render_chatml,
     .style = &qwen2,
     .holds = {"<|im_start|>system", "You are a helpful assistant.<|im_end|>"},
     .lacks = {"tool", "think", "trim", "strip"}},
    {.name = "qwen1.5",
     .render = chat_render_chatml,
     .style = &qwen1,
     .holds = {"<|im_start|>system", "You are a helpful assistant<|im_end|>"},
     .lacks = {"tool", "think", "trim", "strip"}},
    {.name = "smollm2",
     .render = chat_render_chatml,
     .style = &smollm2,
     .holds = {"<|im_start|>system", "named SmolLM, trained by Hugging Face<|im_end|>"},
     .lacks = {"tool", "think", "trim", "strip"}},
    {.name = "chatml",
     .render = chat_render_chatml,
     .style = &chatml,
     .holds = {"<|im_start|>", "<|im_end|>"},
     .lacks = {"tool", "trim", "strip", "think", "You are", "<|im_sep|>"}},
    {.name = "llama3.1",
     .render = chat_render_llama3,
     .style = &llama3_1,
     .holds = {"<|start_header_id|>", "<|eot_id|>", "Cutting Knowledge Date: December 2023", "Today Date: "}},
    {.name = "llama3",
     .render = chat_render_llama3,
     .style = &llama3,
     .holds = {"<|start_header_id|>", "<|eot_id|>", "trim"},
     .lacks = {"tool", "You are"}},
    {.name = "gemma3", .render = chat_render_gemma, .style = &gemma3, .holds = {"<start_of_turn>", "first_user_prefix"}},
    {.name = "gemma", .render = chat_render_gemma, .style = &gemma, .holds = {"<start_of_turn>", "System role not supported"}},
    {.name = "llama2",
     .render = chat_render_inst,
     .style = &llama2,
     .holds = {"[INST]", "<<SYS>>", "bos_token + '[INST] '", "content.strip()"}},
    {.name = "mistral-nemo",
     .render = chat_render_inst,
     .style = &mistral_nemo,
     .holds = {"[INST]", "\"[INST]\" + system_message"}},
    {.name = "mistral-v3",
     .render = chat_render_inst,
     .style = &mistral_v3,
     .holds = {"[INST]", "\"[INST] \" + system_message", "\"[/INST]\""}},
    {.name = "mistral-v1",
     .render = chat_render_inst,
     .style = &mistral_v1,
     .holds = {"' [INST] ' + system_message", "' [/INST]'"}},
    {.name = "mistral-v0.1",
     .render = chat_render_inst,
     .style = &mistral_v0_1,
     .holds = {"'[INST] ' + message", "' [/INST]'", "eos_token + ' '"},
     .lacks = {"<<SYS>>", "system_message", "trim"}},
    {.name = "mistral-v0.2",
     .render = chat_render_inst,
     .style = &mistral_v0_2,
     .holds = {"'[INST] ' + message", "' [/INST]'"},
     .lacks = {"<<SYS>>", "system_message", "trim"}},
    {.name = "zephyr",
     .render = chat_render_zephyr,
     .holds = {"<|user|>", "<|system|>", "<|assistant|>", "eos_token"},
     .lacks = {"<|end|>", "trim", "strip", "tool"}},
};
static const char names[] = "qwen3, qwen3-instruct, qwen2.5, qwen2, qwen1.5, smollm2, chatml, llama3.1, llama3, gemma3, gemma, "
                            "llama2, mistral-nemo, mistral-v3, "
                            "mistral-v1, mistral-v0.1, mistral-v0.2, zephyr";

#define N_FAMILIES (sizeof families / sizeof families[0])
#define N_MARKERS  (sizeof families[0].holds / sizeof families[0].holds[0])

const char *chat_template_name(const struct chat_template *chat)
{
    return chat->name;
}

const char *chat_template_names(void)
{
    return names;
}

static bool fits(const struct chat_template *family, const char *jinja)
{
    for (size_t i = 0; i < N_MARKERS; i++) {
        if (family->holds[i] && !strstr(jinja, family->holds[i]))
            return false;
        if (family->lacks[i] && strstr(jinja, family->lacks[i]))
            return false;
    }
    return true;
}

int chat_template_detect(const char *jinja, const struct chat_template **out, struct error *err)
{
    if (!jinja || !*jinja)
        return error_set(err, HS_ERR_UNSUPPORTED, "the model brings no chat template; choose one with --chat-template: %s", names);
    for (size_t i = 0; i < N_FAMILIES; i++) {
        if (fits(&families[i], jinja)) {
            *out = &families[i];
            return 0;
        }
    }
    return error_set(err, HS_ERR_UNSUPPORTED,
                     "the model's chat template is of no known family; choose one with --chat-template: %s", names);
}

int chat_template_by_name(const char *name, const struct chat_template **out, struct error *err)
{
    for (size_t i = 0; i < N_FAMILIES; i++) {
        if (strcmp(families[i].name, name) == 0) {
            *out = &families[i];
            return 0;
        }
    }
    return error_set(err, HS_ERR_NOT_FOUND, "chat template \"%.60s\" is not known; known are %s", name, names);
}

static const char *known_role(const char *role)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        if (strcmp(role, roles[i]) == 0)
            return roles[i];
    }
    /* OpenAI's newer name for the system prompt; no family has it. */
    return strcmp(role, "developer") == 0 ? "system" : NULL;
}

int chat_template_render(const struct chat_template *chat, const struct chat_message *messages, size_t n_messages,
                         bool add_generation_prompt, struct chat_text *out, struct error *err)
{
    struct chat_text text = {0};
    struct chat_render render = {
        .style = chat->style, .n_messages = n_messages, .add_generation_prompt = add_generation_prompt, .out = &text, .err = err};
    int rc = 0;
    if (n_messages == 0)
        return error_set(err, HS_ERR_INVALID, "a conversation needs at least one message");
    struct chat_message *known = calloc(n_messages, sizeof *known);
    if (!known)
        return error_set(err, HS_ERR_NO_MEMORY, "out of memory for the conversation");
    for (size_t i = 0; i < n_messages && rc == 0; i++) {
        known[i] = messages[i];
        known[i].content = messages[i].len ? messages[i].content : "";
        known[i].role = known_role(messages[i].role);
        if (!known[i].role)
            rc = error_set(err, HS_ERR_INVALID,
                           "message %zu: role \"%.40s\" is not known; roles are system, developer, user, assistant, tool", i,
                           messages[i].role);
    }
    render.messages = known;
    if (rc == 0)
        rc = chat->render(&render);
    if (rc == 0 && (render.failed || text.text.failed))
        rc = error_set(err, HS_ERR_NO_MEMORY, "out of memory for the conversation");
    free(known);
    if (rc < 0) {
        chat_text_fini(&text);
        return rc;
    }
    chat_text_fini(out);
    *out = text;
    return 0;
}
