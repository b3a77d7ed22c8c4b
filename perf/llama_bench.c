#include "perf/llama_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/strbuf.h"
#include "perf/samples.h"

extern char **environ;

static void read_all(int fd, struct strbuf *out)
{
    char chunk[4096];
    for (;;) {
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        strbuf_add(out, chunk, (size_t)n);
    }
}

/* Runs a program with its standard output in `out` and its chatter thrown away. */
static int capture(char *const arguments[], struct strbuf *out, struct error *err)
{
    int ends[2], status = 0;
    pid_t child;
    posix_spawn_file_actions_t actions;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return error_set(err, HS_ERR_IO, "pipe: %s", strerror(errno));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int failure = posix_spawn(&child, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (failure == 0) {
        read_all(ends[0], out);
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
    }
    close(ends[0]);
    if (failure)
        return error_set(err, HS_ERR_UNSUPPORTED, "%s: %s; give the path of llama-bench", arguments[0], strerror(failure));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return error_set(err, HS_ERR_IO, "%s failed on %s; run it by hand to see why", arguments[0], arguments[2]);
    return 0;
}

/* [{..., "samples_ts": [tokens per second, ...]}]: the one test asked for. */
static double median_of(const json_t *document)
{
    struct samples samples = {0};
    size_t i;
    json_t *value;
    json_array_foreach(json_object_get(json_array_get(document, 0), "samples_ts"), i, value)
        samples_add(&samples, json_number_value(value));
    samples_sort(&samples);
    double median = samples_median(&samples);
    samples_fini(&samples);
    return median;
}

int llama_bench_run(const struct llama_bench_case *c, double *median, struct error *err)
{
    char threads[16], runs[16], prompt[16], generate[16], depth[16];
    snprintf(threads, sizeof threads, "%u", c->threads);
    snprintf(runs, sizeof runs, "%u", c->runs);
    snprintf(prompt, sizeof prompt, "%u", c->prompt);
    snprintf(generate, sizeof generate, "%u", c->generate);
    snprintf(depth, sizeof depth, "%u", c->depth);
    char *const arguments[] = {(char *)c->program,
                               "-m",
                               (char *)c->model,
                               "-t",
                               threads,
                               "-r",
                               runs,
                               "-p",
                               prompt,
                               "-n",
                               generate,
                               "-d",
                               depth,
                               "-o",
                               "json",
                               NULL};
    struct strbuf output = {0};
    int rc = capture(arguments, &output, err);
    if (rc == 0) {
        json_t *document = json_loadb(strbuf_text(&output), output.len, 0, NULL);
        double value = median_of(document);
        json_decref(document);
        if (isfinite(value) && value > 0)
            *median = value;
        else
            rc = error_set(err, HS_ERR_PARSE, "%s: its output has no samples_ts; is it llama-bench?", c->program);
    }
    strbuf_fini(&output);
    return rc;
}
