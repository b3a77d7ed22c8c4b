/*
 * The accuracy benchmark: how well a model file, computed as the node computes it, predicts a text, and how far its next-token
 * distributions are from those of a reference file.
 *
 *     text      t0 t1 t2 t3 | t4 t5 t6 t7 | t8 ...     sequences of --context tokens, each for itself (the begin token in front where
 *     scored       t1 t2 t3 |    t5 t6 t7 |    ...     the model has one: then t0 and t4, too)
 *
 * Sequences are computed in steps of many rows whose logits are all read, as a prompt is; which steps does not change them (same
 * bits). The reference is computed in f32 from 16-bit weights, whatever the model is computed in.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/strbuf.h"
#include "core/model/tokenizer.h"
#include "perf/accuracy_figures.h"
#include "perf/bench.h"
#include "perf/engine_session.h"
#include "perf/progress.h"

enum { LOGIT_BYTES = 64 << 20 }; /* at most so many of one step, for each side */

/* The model, or the reference. */
struct side {
    const char *name; /* the last part of its path */
    struct engine engine;
    struct tokenizer *tokenizer;
    struct row_result *results; /* [chunk] */
    float *logits;              /* [chunk][n_vocab] */
};

/* Sums over the tokens scored so far: of one sequence, or of all. */
struct totals {
    double loss, divergence;
    uint32_t n, n_same;
};

struct accuracy_run {
    const struct perf_config *config;
    struct report *report;
    struct side model, reference; /* reference: all zero without --against */
    struct token_list text;
    uint32_t chunk; /* rows of a step */
    struct totals all, reference_all;
    struct samples loss, divergence, cosine;                                  /* of each token */
    struct samples sequence_perplexity, sequence_divergence, sequence_same; /* of each sequence */
};

static int out_of_memory(struct error *err)
{
    return error_set(err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
}

static bool compares(const struct accuracy_run *run)
{
    return run->reference.engine.backend != NULL;
}

/* ---- both sides and the text ---- */

static int open_side(struct side *side, const struct perf_config *config, struct error *err)
{
    const char *slash = strrchr(config->model, '/');
    side->name = slash && slash[1] ? slash + 1 : config->model;
    int rc = engine_open(config, 1, config->context + 1, &side->engine, err);
    if (rc)
        return rc;
    const struct model_weights *weights = side->engine.weights;
    if (config->context > weights->desc.n_context)
        return error_set(err, HS_ERR_INVALID, "--context: %u is more than the %u tokens that %s was made for", config->context,
                         weights->desc.n_context, config->model);
    return weights->gguf ? tokenizer_from_gguf(weights->gguf, &side->tokenizer, err)
                         : tokenizer_from_folder(weights->folder, &side->tokenizer, err);
}

static int open_sides(struct accuracy_run *run, struct error *err)
{
    int rc = open_side(&run->model, run->config, err);
    if (rc || !run->config->against)
        return rc;
    struct perf_config reference = *run->config;
    reference.model = run->config->against;
    reference.path = CPU_PATH_AUTO;
    reference.compute = CPU_COMPUTE_F32;
    reference.weights = WEIGHT_FORM_16BIT;
    rc = open_side(&run->reference, &reference, err);
    return rc ? error_wrap(err, rc, "--against") : 0;
}

static int make_room(struct accuracy_run *run, struct side *side, struct error *err)
{
    side->results = calloc(run->chunk, sizeof *side->results);
    side->logits = malloc((size_t)run->chunk * side->engine.info.n_vocab * sizeof *side->logits);
    return side->results && side->logits ? 0 : out_of_memory(err);
}

static int read_file(const char *path, struct strbuf *out, struct error *err)
{
    char part[1 << 14];
    FILE *file = fopen(path, "rb");
    if (!file)
        return error_set(err, HS_ERR_IO, "--text: %s: %s", path, strerror(errno));
    for (size_t n; !out->failed && out->len <= TOKENIZER_MAX_BYTES && (n = fread(part, 1, sizeof part, file)) > 0;)
        strbuf_add(out, part, n);
    int rc = ferror(file) ? error_set(err, HS_ERR_IO, "--text: %s: %s", path, strerror(errno)) : 0;
    fclose(file);
    return rc == 0 && out->failed ? out_of_memory(err) : rc;
}

static int tokenize(const struct side *side, const struct strbuf *text, const char *path, struct token_list *out, struct error *err)
{
    int rc = tokenizer_encode(side->tokenizer, strbuf_text(text), text->len, 0, out);
    return rc ? error_set(err, rc, "%s: cannot be made into tokens: %s", path, error_name(rc)) : 0;
}

static bool is_same_token(const struct tokenizer *a, const struct tokenizer *b, uint32_t id)
{
    size_t n_a, n_b;
    const char *text_a = tokenizer_token_bytes(a, id, true, false, &n_a), *text_b = tokenizer_token_bytes(b, id, true, false, &n_b);
    return n_a == n_b && memcmp(text_a, text_b, n_a) == 0;
}

/* The token in front of every text; UINT32_MAX: none. */
static uint32_t begin_token(const struct tokenizer *tokenizer)
{
    return tokenizer_adds_bos(tokenizer) ? tokenizer_bos(tokenizer) : UINT32_MAX;
}

/* In which way the tokens of the reference are others; "" if in none. */
static void compare_tokens(const struct accuracy_run *run, const struct token_list *text, char *out, size_t size)
{
    const struct tokenizer *model = run->model.tokenizer, *reference = run->reference.tokenizer;
    const uint32_t n = run->model.engine.info.n_vocab, n_reference = run->reference.engine.info.n_vocab;
    uint32_t id = 0;
    *out = '\0';
    if (n != n_reference) {
        snprintf(out, size, "%u of them, not %u", n_reference, n);
        return;
    }
    while (id < n && is_same_token(model, reference, id))
        id++;
    if (id < n)
        snprintf(out, size, "token %u is another one", id);
    else if (begin_token(model) != begin_token(reference))
        snprintf(out, size, "another begin token, or one where the other has none");
    else if (text->n != run->text.n || memcmp(text->ids, run->text.ids, text->n * sizeof *text->ids) != 0)
        snprintf(out, size, "the text is made into others");
}

/* Distributions compare only over the same tokens behind the same tokens. */
static int check_reference(struct accuracy_run *run, const struct strbuf *text, struct error *err)
{
    char difference[80];
    struct token_list other = {0};
    int rc = tokenize(&run->reference, text, run->config->text, &other, err);
    if (rc == 0) {
        compare_tokens(run, &other, difference, sizeof difference);
        if (*difference)
            rc = error_set(err, HS_ERR_INVALID, "--against: %s has other tokens than %s (%s); give a file of the same model",
                           run->config->against, run->config->model, difference);
    }
    token_list_fini(&other);
    return rc;
}

static int read_text(struct accuracy_run *run, struct error *err)
{
    struct strbuf text = {0};
    int rc = read_file(run->config->text, &text, err); /* the tokenizer refuses what is longer than it takes */
    if (rc == 0)
        rc = tokenize(&run->model, &text, run->config->text, &run->text, err);
    if (rc == 0 && run->text.n < 2)
        rc = error_set(err, HS_ERR_INVALID, "--text: %s has %zu tokens, too few to predict one", run->config->text, run->text.n);
    if (rc == 0 && compares(run))
        rc = check_reference(run, &text, err);
    strbuf_fini(&text);
    return rc;
}

/* ---- one sequence ---- */

static void add_totals(struct totals *to, const struct totals *more)
{
    to->loss += more->loss;
    to->divergence += more->divergence;
    to->n += more->n;
    to->n_same += more->n_same;
}

static int score_row(struct accuracy_run *run, uint32_t row, uint32_t target, struct totals *sequence, struct error *err)
{
    const uint32_t n_vocab = run->model.engine.info.n_vocab;
    const struct distribution d = distribution_of(run->model.logits + (size_t)row * n_vocab, n_vocab);
    const double loss = distribution_loss(&d, target);
    if (!isfinite(loss))
        return error_set(err, HS_ERR_RANGE, "%s: its logits are not finite; its weights may be damaged", run->config->model);
    sequence->n++;
    sequence->loss += loss;
    samples_add(&run->loss, loss);
    if (!compares(run))
        return 0;
    const struct distribution other = distribution_of(run->reference.logits + (size_t)row * n_vocab, n_vocab);
    const double divergence = distribution_divergence(&d, &other);
    sequence->divergence += divergence;
    sequence->n_same += d.top == other.top;
    samples_add(&run->divergence, divergence);
    samples_add(&run->cosine, distribution_cosine(&d, &other));
    run->reference_all.loss += distribution_loss(&other, target);
    run->reference_all.n++;
    return 0;
}

/* The tokens text[n] for themselves. */
static int score_sequence(struct accuracy_run *run, const uint32_t *text, uint32_t n, struct totals *sequence, struct error *err)
{
    uint32_t *history = run->model.engine.history, n_history = 0;
    if (tokenizer_adds_bos(run->model.tokenizer))
        history[n_history++] = tokenizer_bos(run->model.tokenizer);
    memcpy(history + n_history, text, n * sizeof *text);
    n_history += n;
    if (compares(run))
        memcpy(run->reference.engine.history, history, n_history * sizeof *history);
    for (uint32_t at = 0; at + 1 < n_history; at += run->chunk) {
        const uint32_t n_rows = n_history - 1 - at < run->chunk ? n_history - 1 - at : run->chunk;
        int rc = engine_read_logits(&run->model.engine, at, n_rows, run->model.results, run->model.logits, err);
        if (rc == 0 && compares(run))
            rc = engine_read_logits(&run->reference.engine, at, n_rows, run->reference.results, run->reference.logits, err);
        for (uint32_t row = 0; rc == 0 && row < n_rows; row++)
            rc = score_row(run, row, history[at + row + 1], sequence, err);
        if (rc)
            return rc;
        progress_show("%s: %zu of %zu tokens, perplexity %.3f", run->model.name, run->loss.n, run->text.n,
                      exp((run->all.loss + sequence->loss) / (run->all.n + sequence->n)));
    }
    return 0;
}

static int score_text(struct accuracy_run *run, struct error *err)
{
    const uint32_t context = run->config->context, most = run->config->sequences;
    uint32_t n_sequences = 0;
    int rc = 0;
    for (size_t at = 0; rc == 0 && at + 1 < run->text.n && (most == 0 || n_sequences < most); at += context, n_sequences++) {
        struct totals sequence = {0};
        uint32_t n = run->text.n - at < context ? (uint32_t)(run->text.n - at) : context;
        rc = score_sequence(run, run->text.ids + at, n, &sequence, err);
        if (rc)
            return rc;
        add_totals(&run->all, &sequence);
        samples_add(&run->sequence_perplexity, exp(sequence.loss / sequence.n));
        samples_add(&run->sequence_divergence, sequence.divergence / sequence.n);
        samples_add(&run->sequence_same, 100.0 * sequence.n_same / sequence.n);
    }
    report_option(run->report, "sequences", json_integer(n_sequences));
    return rc;
}

/* ---- results ---- */

/* A figure over all tokens; least and most are those of a sequence. */
static struct report_row *add_overall(struct accuracy_run *run, const char *metric, const char *unit, double value,
                                      struct samples *sequences)
{
    struct report_row *row = report_add(run->report, run->model.name, metric, unit, sequences, false);
    if (row) {
        row->n = run->all.n;
        row->median = value;
    }
    return row;
}

static void print(const struct accuracy_run *run, const struct report_row *row)
{
    if (row)
        report_print_row(run->report, row);
}

static void report_all(struct accuracy_run *run)
{
    const struct totals *all = &run->all;
    progress_clear();
    struct report_row *row = add_overall(run, "perplexity", "-", exp(all->loss / all->n), &run->sequence_perplexity);
    if (row && compares(run))
        report_compare(row, run->reference.name, exp(run->reference_all.loss / run->reference_all.n), false);
    print(run, row);
    print(run, report_add(run->report, run->model.name, "loss of a token", "nats", &run->loss, true));
    if (!compares(run))
        return;
    print(run, add_overall(run, "mean KL divergence", "nats", all->divergence / all->n, &run->sequence_divergence));
    print(run, report_add(run->report, run->model.name, "KL divergence", "nats", &run->divergence, true));
    print(run, add_overall(run, "same top token", "%", 100.0 * all->n_same / all->n, &run->sequence_same));
    print(run, report_add(run->report, run->model.name, "cosine of logits", "-", &run->cosine, false));
}

static void note_options(struct accuracy_run *run)
{
    const struct side *model = &run->model, *reference = &run->reference;
    struct report *report = run->report;
    report_option(report, "model", json_string(run->config->model));
    report_option(report, "arithmetic", json_string(model->engine.info.arithmetic));
    report_option(report, "weight_bytes", json_integer((json_int_t)cpu_backend_weight_bytes(model->engine.backend)));
    report_option(report, "against", compares(run) ? json_string(run->config->against) : json_null());
    report_option(report, "against_arithmetic", compares(run) ? json_string(reference->engine.info.arithmetic) : json_null());
    report_option(report, "text", json_string(run->config->text));
    report_option(report, "context", json_integer(run->config->context));
    report_option(report, "begin_token", json_boolean(tokenizer_adds_bos(model->tokenizer)));
    report_option(report, "threads", json_integer(model->engine.threads));
}

static void close_side(struct side *side)
{
    engine_close(&side->engine);
    tokenizer_destroy(side->tokenizer);
    free(side->results);
    free(side->logits);
}

static void release(struct accuracy_run *run)
{
    struct samples *const samples[] = {&run->loss, &run->divergence, &run->cosine, &run->sequence_perplexity,
                                       &run->sequence_divergence, &run->sequence_same};
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++)
        samples_fini(samples[i]);
    token_list_fini(&run->text);
    close_side(&run->model);
    close_side(&run->reference);
    free(run);
}

int bench_accuracy(const struct perf_config *config, struct report *report, struct error *err)
{
    struct accuracy_run *run = calloc(1, sizeof *run); /* its engines must not move */
    if (!run)
        return out_of_memory(err);
    run->config = config;
    run->report = report;
    int rc = open_sides(run, err);
    if (rc == 0)
        rc = read_text(run, err);
    if (rc == 0) {
        const struct backend_info *info = &run->model.engine.info;
        const uint32_t fits = LOGIT_BYTES / (info->n_vocab * (uint32_t)sizeof(float));
        run->chunk = fits == 0 ? 1 : fits < info->max_rows ? fits : info->max_rows;
        note_options(run);
        rc = make_room(run, &run->model, err);
    }
    if (rc == 0 && compares(run))
        rc = make_room(run, &run->reference, err);
    if (rc == 0)
        rc = score_text(run, err);
    if (rc == 0)
        report_all(run);
    release(run);
    return rc;
}
