/* hearsay-quantize: writes a model anew with 4-bit weights. */
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include "core/base/options.h"
#include "core/base/output.h"
#include "core/model/quantize_model.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, MAX_THREADS = 256 };
enum method { METHOD_RTN };

struct quantize_options {
    const char *model, *out;
    int bits, group, method;
    bool asymmetric, keep_output, keep_embedding, quiet;
    uint32_t threads;
};

static const struct option_choice bit_counts[] = {{"4", 4}, {NULL, 0}};
static const struct option_choice groups[] = {{"32", 32}, {"64", 64}, {"128", 128}, {NULL, 0}};
static const struct option_choice methods[] = {{"rtn", METHOD_RTN}, {NULL, 0}};

#define FIELD(name) .offset = offsetof(struct quantize_options, name)

static const struct option_spec specs[] = {
    {"model", "IN", "A .gguf file or a Hugging Face folder, best in 16 bits (required)", "Files", .kind = OPTION_TEXT, FIELD(model)},
    {"out", "OUT", "File, or folder if IN is one, to write (required)", NULL, .kind = OPTION_TEXT, FIELD(out)},
    {"bits", "N", "Bits of a weight: 4", "Format", .kind = OPTION_CHOICE, FIELD(bits), .choices = bit_counts},
    {"group", "N", "Weights that share a scale: 32, 64 or 128; default 128", NULL, .kind = OPTION_CHOICE, FIELD(group),
     .choices = groups},
    {"method", "NAME", "rtn: round to nearest, with a search for each group's scale; default rtn", NULL, .kind = OPTION_CHOICE,
     FIELD(method), .choices = methods},
    {"asym", NULL, "Groups have a minimum beside their scale", NULL, .kind = OPTION_FLAG, FIELD(asymmetric)},
    {"keep-output", NULL, "The output layer keeps its type", NULL, .kind = OPTION_FLAG, FIELD(keep_output)},
    {"keep-embedding", NULL, "The embedding keeps its type; the output layer is then a tensor of its own", NULL, .kind = OPTION_FLAG,
     FIELD(keep_embedding)},
    {"threads", "N", "Threads; default one for each CPU", "Operation", .kind = OPTION_U32, FIELD(threads), .min = 1,
     .max = MAX_THREADS},
    {"quiet", NULL, "Say nothing but errors", NULL, .kind = OPTION_FLAG, FIELD(quiet)},
};

static const struct options options = {
    .program = "hearsay-quantize",
    .description = "Writes a model with its matrices in 4 bits, which hearsay serves at a quarter of the memory traffic.",
    .epilog = "Examples:\n"
              "  hearsay-quantize --model SmolLM2-135M-Instruct-f16.gguf --out SmolLM2-135M-Instruct-w4.gguf\n"
              "  hearsay-quantize --model Qwen2.5-0.5B-Instruct/ --out Qwen2.5-0.5B-Instruct-w4/ \\\n"
              "      --group 64 --asym\n"
              "  hearsay --model SmolLM2-135M-Instruct-w4.gguf\n"
              "\n"
              "Metadata, tokenizer, norms and biases are copied as they are.\n"
              "Exit status: 0 good, 1 failed at run time, 2 bad usage.\n",
    .version = HEARSAY_VERSION,
    .specs = specs,
    .n_specs = sizeof specs / sizeof specs[0],
};

static uint32_t allowed_cpus(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return (uint32_t)(n < MAX_THREADS ? n : MAX_THREADS);
}

/* On a terminal, whenever another percent is done. */
static void show_progress(void *arg, double share)
{
    int *shown = arg, percent = (int)(100 * share);
    if (percent == *shown)
        return;
    *shown = percent;
    fprintf(stderr, "\rquantising: %d %%", percent);
}

static int parse(int argc, char **argv, struct quantize_options *o, struct error *err)
{
    *o = (struct quantize_options){.bits = 4, .group = 128, .threads = allowed_cpus()};
    int rc = options_parse(&options, argc, argv, o, err);
    if (rc == 0 && (!o->model || !o->out))
        rc = error_set(err, HS_ERR_INVALID, "%s is missing; write for example hearsay-quantize --model in.gguf --out out.gguf",
                       o->model ? "--out" : "--model");
    return rc;
}

static void show_summary(const struct quantize_options *o, const struct quantize_summary *s)
{
    printf("%s: %u tensors in 4 bits, %u kept, %.1f MB from %.1f MB, relative error %.4f\n", o->out, s->n_quantized, s->n_kept,
           (double)s->bytes_out / 1e6, (double)s->bytes_in / 1e6, s->relative_error);
}

int main(int argc, char **argv)
{
    struct quantize_options o;
    struct quantize_summary summary;
    struct error err = {0};
    int shown = -1;
    int rc = parse(argc, argv, &o, &err);
    if (rc > 0)
        return output_finish("hearsay-quantize");
    if (rc < 0) {
        fprintf(stderr, "hearsay-quantize: %s\n", err.text);
        return EXIT_USAGE;
    }
    const bool shows = !o.quiet && isatty(STDERR_FILENO);
    const struct quantize_config config = {
        .in = o.model,
        .out = o.out,
        .layout = {.group = (uint32_t)o.group, .has_minimum = o.asymmetric},
        .keep_output = o.keep_output,
        .keep_embedding = o.keep_embedding,
        .threads = o.threads,
        .progress = shows ? show_progress : NULL,
        .progress_arg = &shown,
    };
    rc = quantize_model(&config, &summary, &err);
    if (shows)
        fputs("\r                   \r", stderr);
    if (rc < 0) {
        fprintf(stderr, "hearsay-quantize: %s\n", err.text);
        return rc == HS_ERR_INVALID || rc == HS_ERR_UNSUPPORTED ? EXIT_USAGE : EXIT_FAILED;
    }
    if (!o.quiet)
        show_summary(&o, &summary);
    return output_finish("hearsay-quantize");
}
