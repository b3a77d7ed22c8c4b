#include "perf/perf_options.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/options.h"
#include "core/base/parse.h"

static int number(const char *text, uint64_t min, uint64_t max, uint32_t *out, struct error *err)
{
    uint64_t value;
    int rc = parse_u64(text, min, max, &value, err);
    if (rc == 0)
        *out = (uint32_t)value;
    return rc;
}

/* "128,512" or "none". */
static int number_list(const char *text, uint64_t max, struct number_list *out, struct error *err)
{
    struct number_list list = {0};
    const char *rest = strcmp(text, "none") == 0 ? "" : text;
    while (*rest) {
        char word[24];
        size_t len = strcspn(rest, ",");
        if (len == 0 || len >= sizeof word || list.n == PERF_MAX_LIST)
            return error_set(err, HS_ERR_PARSE, "\"%s\" is not a list of at most %d numbers such as 128,512", text, PERF_MAX_LIST);
        memcpy(word, rest, len);
        word[len] = '\0';
        int rc = number(word, 1, max, &list.values[list.n++], err);
        if (rc)
            return rc;
        rest += len + (rest[len] == ',');
    }
    *out = list;
    return 0;
}

#define SETTER(name) static int set_##name(void *config, const char *text, struct error *err)
#define CONFIG       ((struct perf_config *)config)

#define LIST_SETTER(field, max)                                                                                                    \
    SETTER(field)                                                                                                                  \
    {                                                                                                                              \
        return number_list(text, max, &CONFIG->field, err);                                                                        \
    }

LIST_SETTER(prefill, 1 << 20)
LIST_SETTER(decode, 1 << 20)
LIST_SETTER(extend, 1 << 20)
LIST_SETTER(batch, 256)

SETTER(path)
{
    if (cpu_path_parse(text, &CONFIG->path) != 0)
        return error_set(err, HS_ERR_PARSE, "\"%s\" is not a path of kernels; give auto, generic, avx2, avx512 or avx512bf16", text);
    return 0;
}

SETTER(cpus)
{
    return parse_cpu_list(text, CONFIG->cpus, PERF_MAX_CPUS, &CONFIG->n_cpus, err);
}

LIST_SETTER(sizes, 1 << 20)

/* "ping,stream" or "all". */
SETTER(patterns)
{
    static const char *const names[] = {"ping", "read", "stream", "gather", "answer"}; /* in the order of enum fabric_pattern */
    uint32_t mask = 0;
    for (const char *rest = text; *rest;) {
        size_t len = strcspn(rest, ",");
        uint32_t before = mask;
        for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++)
            if (strncmp(rest, names[i], len) == 0 && !names[i][len])
                mask |= 1u << i;
        if (len == 3 && strncmp(rest, "all", len) == 0)
            mask = (1u << sizeof names / sizeof names[0]) - 1;
        else if (mask == before)
            return error_set(err, HS_ERR_PARSE, "\"%s\" is not a list of patterns; give all or some of ping,read,stream,gather,answer",
                             text);
        rest += len + (rest[len] == ',');
    }
    CONFIG->patterns = mask;
    return 0;
}

SETTER(against)
{
    static const char program[] = "llama-bench=";
    const bool server = strncmp(text, "http://", 7) == 0 || strncmp(text, "https://", 8) == 0;
    CONFIG->against = NULL;
    if (strncmp(text, program, sizeof program - 1) == 0 && text[sizeof program - 1]) {
        CONFIG->peer = PERF_PEER_LLAMA_BENCH;
        CONFIG->against = text + sizeof program - 1;
    } else if (server) {
        CONFIG->peer = PERF_PEER_SERVER;
        CONFIG->against = text;
    } else if (strcmp(text, "engine") == 0) {
        CONFIG->peer = PERF_PEER_ENGINE;
    } else if (strcmp(text, "bare") == 0) {
        CONFIG->peer = PERF_PEER_BARE;
    } else if (strcmp(text, "perftest") == 0) {
        CONFIG->peer = PERF_PEER_PERFTEST;
    } else { /* check_peer refuses it for all other benchmarks */
        CONFIG->peer = PERF_PEER_MODEL;
        CONFIG->against = text;
    }
    return 0;
}

SETTER(tolerance)
{
    char *end;
    double percent = strtod(text, &end);
    end += *end == '%';
    if (end == text || *end || !(percent >= 0 && percent < 100))
        return error_set(err, HS_ERR_PARSE, "\"%s\" is not a share below 100%%; give for example 10%%", text);
    CONFIG->tolerance = percent / 100;
    return 0;
}

SETTER(url)
{
    if (CONFIG->n_urls == PERF_MAX_URLS)
        return error_set(err, HS_ERR_LIMIT, "more than %d servers", PERF_MAX_URLS);
    if (strncmp(text, "http://", 7) != 0 && strncmp(text, "https://", 8) != 0)
        return error_set(err, HS_ERR_PARSE, "\"%s\" is not a server; give http://ADDR:PORT", text);
    CONFIG->urls[CONFIG->n_urls++] = text;
    return 0;
}

SETTER(bench)
{
    if (CONFIG->compare && CONFIG->n_files < 2) {
        CONFIG->files[CONFIG->n_files++] = text;
        return 0;
    }
    if (CONFIG->bench || CONFIG->list || CONFIG->compare)
        return error_set(err, HS_ERR_PARSE, "\"%s\": one benchmark at a time", text);
    if (strcmp(text, "list") == 0) {
        CONFIG->list = true;
        return 0;
    }
    if (strcmp(text, "compare") == 0) {
        CONFIG->compare = true;
        return 0;
    }
    uint32_t n;
    const struct benchmark *all = benchmarks(&n);
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(text, all[i].name) == 0)
            CONFIG->bench = &all[i];
    return CONFIG->bench ? 0 : error_set(err, HS_ERR_PARSE, "\"%s\" is not a benchmark; hearsay-perf list names them", text);
}

static const struct option_choice backends[] = {{"cpu", PERF_BACKEND_CPU}, {"null", PERF_BACKEND_NULL}, {0}};
static const struct option_choice arithmetics[] = {{"f32", CPU_COMPUTE_F32}, {"bf16", CPU_COMPUTE_BF16}, {0}};
static const struct option_choice polls[] = {{"spin", PERF_POLL_SPIN}, {"adaptive", PERF_POLL_ADAPTIVE}, {0}};
static const struct option_choice yes_no[] = {{"yes", true}, {"no", false}, {0}};
static const struct option_choice weight_forms[] = {
    {"auto", WEIGHT_FORM_AUTO}, {"16bit", WEIGHT_FORM_16BIT}, {"native", WEIGHT_FORM_NATIVE}, {0}};
static const struct option_choice caches[] = {
    {"warm", PERF_CACHES_WARM}, {"flushed", PERF_CACHES_FLUSHED}, {"both", PERF_CACHES_BOTH}, {0}};

#define AT(field)                offsetof(struct perf_config, field)
#define TEXT(field)              .kind = OPTION_TEXT, .offset = AT(field)
#define NUMBER(field, low, high) .kind = OPTION_U32, .offset = AT(field), .min = low, .max = high
#define CHOICE(field, list)      .kind = OPTION_CHOICE, .offset = AT(field), .choices = list

static const struct option_spec specs[] = {
    {"json", "FILE", "Write the results as JSON; - for standard output", "Output", TEXT(json_path)},
    {"csv", "FILE", "Write them as CSV; - for standard output", NULL, TEXT(csv_path)},
    {"plot", "FILE.svg", "Draw the results with gnuplot", NULL, TEXT(plot_path)},
    {"runs", "N", "engine: timed runs of each case (5)", "Engine", NUMBER(runs, 1, 1000)},
    {"model", "FILE|DIR", "GGUF file or Hugging Face folder", NULL, TEXT(model)},
    {"backend", "cpu|null", "What computes (cpu)", NULL, CHOICE(backend, backends)},
    {"kernels", "PATH", "auto, generic, avx2, avx512 or avx512bf16 (auto)", NULL, .set = set_path},
    {"compute", "f32|bf16", "Arithmetic (f32)", NULL, CHOICE(compute, arithmetics)},
    {"weights", "FORM", "auto (4 bits of hearsay-quantize stay integers), 16bit, native (other quantised files too) (auto)", NULL,
     CHOICE(weights, weight_forms)},
    {"threads", "N", "Compute threads (one for each CPU)", NULL, NUMBER(threads, 1, CPU_MAX_THREADS)},
    {"cpus", "LIST", "Pin them to these, e.g. 0,2-5 (not pinned)", NULL, .set = set_cpus},
    {"prefill", "LIST|none", "Prompt lengths in tokens (128,512,2048)", NULL, .set = set_prefill},
    {"decode", "LIST|none", "Contexts to decode behind (64,1024)", NULL, .set = set_decode},
    {"extend", "LIST|none", "New tokens behind a warm prefix of 1,000 (24)", NULL, .set = set_extend},
    {"batch", "LIST|none", "Numbers of sequences decoded at once (4,16)", NULL, .set = set_batch},
    {"decode-tokens", "N", "Tokens decoded in a run (32)", NULL, NUMBER(decode_tokens, 1, 1 << 16)},
    {"against-model", "FILE", "GGUF file for llama-bench, the same weights in F16 (that of --model)", NULL, TEXT(against_model)},
    {"text", "FILE", "accuracy: the text to predict", "Accuracy", TEXT(text)},
    {"context", "N", "Tokens of each sequence that it is cut into (512)", NULL, NUMBER(context, 2, 1 << 20)},
    {"sequences", "N", "Sequences to take, from its beginning; 0: all (0)", NULL, NUMBER(sequences, 0, UINT32_MAX)},
    {"url", "URL", "serve: a server, e.g. http://127.0.0.1:8080; may be repeated, requests go round (that one)", "Serve",
     .set = set_url},
    {"served-model", "NAME", "Model to ask for (the first of /v1/models)", NULL, TEXT(served_model)},
    {"api-key", "KEY", "Sent as bearer token", NULL, TEXT(api_key)},
    {"clients", "N", "Clients, each with one request under way (4)", NULL, NUMBER(clients, 1, 4096)},
    {"requests", "N", "Requests of a round (64)", NULL, NUMBER(requests, 1, 100000000)},
    {"rounds", "N", "Rounds, each with prompts of its own (1)", NULL, NUMBER(rounds, 1, 100000)},
    {"prompt-tokens", "N", "Length of each prompt (256)", NULL, NUMBER(prompt_tokens, 1, 1 << 20)},
    {"output-tokens", "N", "Length of each answer (64)", NULL, NUMBER(output_tokens, 1, 1 << 20)},
    {"shared-prefix", "N", "Leading prompt tokens that all requests share (0)", NULL, NUMBER(shared_prefix, 0, 1 << 20)},
    {"overhead", NULL, "One client, one token: also show what each request took beyond the node's steps", NULL, .kind = OPTION_FLAG,
     .offset = AT(overhead)},
    {"timeout", "TIME", "How long a server may be silent before its request counts as failed (2m)", NULL, .kind = OPTION_DURATION,
     .offset = AT(timeout_ns), .min = 1000000, .max = UINT64_C(3600000000000)},
    {"vocab", "N", "Prompts are random token ids below this (32000)", NULL, NUMBER(vocab, 1024, 1 << 24)},
    {"tokens", "N", "route: length of the prompt (4096)", "Route", NUMBER(tokens, 128, 1 << 20)},
    {"peers", "N", "Peers that the node knows of (64)", NULL, NUMBER(peers, 1, 1024)},
    {"blocks", "N", "Blocks that each of them holds (65536)", NULL, NUMBER(blocks, 1, 1 << 20)},
    {"calls", "N", "Timed calls of each case (400)", NULL, NUMBER(calls, 1, 10000000)},
    {"caches", "warm|flushed|both", "Whether the caches are emptied before each call (both)", NULL, CHOICE(caches, caches)},
    {"gossip-interval", "TIME", "gossip: of both nodes, as hearsay's (1ms)", "Gossip", .kind = OPTION_DURATION,
     .offset = AT(gossip_interval_ns), .min = 10000, .max = UINT64_C(3600000000000)},
    {"insertions", "N", "Timed insertions (1000)", NULL, NUMBER(insertions, 1, 10000000)},
    {"run", "N", "Blocks in each insertion (4)", NULL, NUMBER(run, 1, 256)},
    {"fabric", "NAME", "fabric, gossip: sockets, verbs, verbs-ud or dpdk (sockets)", "Fabric", TEXT(fabric)},
    {"patterns", "LIST|all", "ping, read, stream, gather (many to one), answer (ping,read,stream)", NULL, .set = set_patterns},
    {"sizes", "LIST", "Bytes of a message (64,8192)", NULL, .set = set_sizes},
    {"duration", "TIME", "Of each measurement (300ms)", NULL, .kind = OPTION_DURATION, .offset = AT(duration_ns), .min = 1000000,
     .max = UINT64_C(3600000000000)},
    {"window", "N", "Messages of a stream under way (64)", NULL, NUMBER(window, 1, 4096)},
    {"senders", "N", "Callers of gather (3)", NULL, NUMBER(senders, 1, 64)},
    {"poll", "spin|adaptive", "How both ends wait (spin)", NULL, CHOICE(poll, polls)},
    {"sealed", "yes|no", "no: unsealed, to see what sealing costs (yes)", NULL, CHOICE(sealed, yes_no)},
    {"datagram-bytes", "N", "Longest datagram; 0: the fabric's own (0)", NULL, NUMBER(datagram_bytes, 0, 65000)},
    {"bind", "ADDR:PORT", "Where the serving side listens (127.0.0.1:0)", NULL, TEXT(bind)},
    {"bind-calls", "ADDR:PORT", "Where callers listen (127.0.0.1:0)", NULL, TEXT(bind_calls)},
    {"eal", "ARGS", "fabric dpdk: EAL arguments of the serving side (a memif link)", NULL, TEXT(eal)},
    {"eal-calls", "ARGS", "fabric dpdk: EAL arguments of callers (a memif link)", NULL, TEXT(eal_calls)},
    {"serve", NULL, "Serve at --bind for a run with --connect elsewhere", NULL, .kind = OPTION_FLAG, .offset = AT(serve)},
    {"connect", "ADDR:PORT", "Call a serving side that runs there", NULL, TEXT(connect)},
    {"tolerance", "SHARE", "compare: how far below the baseline is good (10%)", "Compare", .set = set_tolerance},
    {"against", "PEER", "Measure that, too, in turn; engine: llama-bench=PATH, serve: a server's URL or engine, fabric: bare, perftest; "
     "accuracy: hold against a reference FILE|DIR, in f32", "All",
     .set = set_against},
    {"seed", "N", "Of the random tokens; serve: another seed misses every cache (1)", NULL, .kind = OPTION_U64, .offset = AT(seed),
     .max = UINT64_MAX},
};

static const struct options options = {
    .program = "hearsay-perf",
    .usage = "list|compare|accuracy|engine|fabric|gossip|kernels|route|serve",
    .description = "Measures hearsay, and its peers beside it.",
    .epilog = "Examples:\n"
              "  hearsay-perf accuracy --model m-w4.gguf --text perf/texts/alice.txt\n"
              "  hearsay-perf accuracy --model m.gguf --compute bf16 --text perf/texts/alice.txt --against m-f16.gguf\n"
              "  hearsay-perf engine --model SmolLM2-135M-Instruct.Q4_1.gguf\n"
              "  hearsay-perf engine --model m.gguf \\\n"
              "      --against llama-bench=/opt/llama/llama-bench --against-model m-f16.gguf\n"
              "  hearsay-perf engine --backend null --json -\n"
              "  hearsay-perf kernels --compute bf16\n"
              "  hearsay-perf fabric --against bare --runs 9\n"
              "  hearsay-perf gossip --gossip-interval 1ms\n"
              "  hearsay-perf route --peers 64 --blocks 65536 --tokens 4096\n"
              "  hearsay-perf serve --url http://127.0.0.1:8080 --url http://127.0.0.1:8081 \\\n"
              "      --clients 8 --shared-prefix 512\n"
              "  hearsay-perf serve --clients 16 --rounds 7 --against http://127.0.0.1:8090\n"
              "  hearsay-perf compare perf/baselines/serve.csv serve.json --tolerance 10%\n"
              "Exit status: 0 good, 1 failed, 2 bad usage, 77 not possible on this machine.\n",
    .version = HEARSAY_VERSION,
    .specs = specs,
    .n_specs = sizeof specs / sizeof specs[0],
    .positional = set_bench,
};

static int check_peer(const struct perf_config *config, struct error *err)
{
    static const char *const needs[] = {[PERF_PEER_LLAMA_BENCH] = "engine", [PERF_PEER_ENGINE] = "serve",
                                        [PERF_PEER_SERVER] = "serve", [PERF_PEER_BARE] = "fabric",
                                        [PERF_PEER_PERFTEST] = "fabric", [PERF_PEER_MODEL] = "accuracy"};
    if (config->peer == PERF_PEER_NONE || !config->bench)
        return 0;
    if (config->peer == PERF_PEER_MODEL && config->bench->run != bench_accuracy)
        return error_set(err, HS_ERR_PARSE,
                         "--against: \"%s\" is not a peer; give llama-bench=PATH for engine, a server's URL or engine for serve, "
                         "bare or perftest for fabric, a model for accuracy",
                         config->against);
    if (strcmp(config->bench->name, needs[config->peer]) != 0)
        return error_set(err, HS_ERR_PARSE, "--against: that is a peer of %s", needs[config->peer]);
    if (config->peer == PERF_PEER_LLAMA_BENCH && config->backend != PERF_BACKEND_CPU)
        return error_set(err, HS_ERR_PARSE, "--against: needs --backend cpu");
    if (config->peer == PERF_PEER_ENGINE && (config->shared_prefix || (config->backend == PERF_BACKEND_CPU && !config->model)))
        return error_set(err, HS_ERR_PARSE, "--against engine: needs --model and takes no --shared-prefix");
    if (config->peer == PERF_PEER_PERFTEST && strcmp(config->fabric, "verbs") != 0)
        return error_set(err, HS_ERR_PARSE, "--against perftest: needs --fabric verbs");
    return 0;
}

static int check(const struct perf_config *config, struct error *err)
{
    if (config->compare && config->n_files != 2)
        return error_set(err, HS_ERR_PARSE, "compare: give two files, a baseline.csv and the results.json to hold against it");
    if (!config->bench && !config->list && !config->compare)
        return error_set(err, HS_ERR_PARSE, "name a benchmark; hearsay-perf list shows them");
    if (config->shared_prefix > config->prompt_tokens)
        return error_set(err, HS_ERR_PARSE, "--shared-prefix: %u is more than --prompt-tokens %u", config->shared_prefix,
                         config->prompt_tokens);
    if (config->overhead && (config->clients != 1 || config->output_tokens != 1))
        return error_set(err, HS_ERR_PARSE, "--overhead: needs --clients 1 and --output-tokens 1");
    if (config->bench && config->bench->run == bench_engine && config->backend == PERF_BACKEND_CPU && !config->model)
        return error_set(err, HS_ERR_PARSE, "--model: give a GGUF file or a Hugging Face folder (or --backend null)");
    if (config->bench && config->bench->run == bench_accuracy && (config->backend != PERF_BACKEND_CPU || !config->model || !config->text))
        return error_set(err, HS_ERR_PARSE, "accuracy: needs --backend cpu, a --model and a --text");
    return check_peer(config, err);
}

int perf_options_parse(int argc, char **argv, struct perf_config *config, struct error *err)
{
    *config = (struct perf_config){
        .tolerance = 0.1,
        .runs = 5,
        .seed = 1,
        .prefill = {{128, 512, 2048}, 3},
        .decode = {{64, 1024}, 2},
        .extend = {{24}, 1},
        .batch = {{4, 16}, 2},
        .decode_tokens = 32,
        .context = 512,
        .clients = 4,
        .requests = 64,
        .rounds = 1,
        .prompt_tokens = 256,
        .output_tokens = 64,
        .vocab = 32000,
        .timeout_ns = UINT64_C(120000000000),
        .tokens = 4096,
        .peers = 64,
        .blocks = 65536,
        .calls = 400,
        .caches = PERF_CACHES_BOTH,
        .gossip_interval_ns = 1000000,
        .insertions = 1000,
        .run = 4,
        .fabric = "sockets",
        .bind = "127.0.0.1:0",
        .bind_calls = "127.0.0.1:0",
        .sealed = true,
        .patterns = 7, /* ping, read, stream */
        .sizes = {{64, 8192}, 2},
        .duration_ns = 300000000,
        .window = 64,
        .senders = 3,
    };
    int rc = options_parse(&options, argc, argv, config, err);
    if (rc != 0)
        return rc;
    if (config->n_urls == 0)
        config->urls[config->n_urls++] = "http://127.0.0.1:8080";
    return check(config, err);
}
