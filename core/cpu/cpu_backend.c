#include "core/cpu/cpu_backend.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/panic.h"
#include "core/cpu/forward.h"
#include "core/cpu/worker_pool.h"

enum { PROGRESS_INTERVAL_MS = 50 };

/* The last part of a class's name, one more whenever its bits change: a group may hold nodes of two versions. test_cpu_classes notices. */
enum { WIDE_BITS = 1, NATIVE_BITS = 2 };

struct cpu_backend {
    struct backend backend;
    const struct model_desc *model;
    const struct cpu_kernels *kernels;
    struct env env;
    struct weights *weights;
    struct kv_pool kv;
    struct forward *forward;
    struct topology topology;
    struct placement placement;
    struct worker_pool *pool;
    float *fill_scratch; /* [n_workers][weights_fill_scratch] while weights are filled */
    int event_fd;
    uint32_t n_workers;

    struct page_copy *copies; /* [n_copies] asked for since the last submit */
    uint32_t n_copies;

    bool in_flight;
    uint64_t step_id;
    uint64_t started_ns;
    uint64_t duration_ns;  /* published by finished */
    _Atomic uint64_t told;  /* events written, or about to be */
    uint64_t heard;         /* of them read */
    _Atomic bool told_soon; /* that the step under way ends soon */
    _Atomic bool finished;  /* stored with release by the last worker, taken with acquire by poll */
};

static struct cpu_backend *self_of(struct backend *backend)
{
    return (struct cpu_backend *)backend;
}

static const struct cpu_backend *const_self_of(const struct backend *backend)
{
    return (const struct cpu_backend *)backend;
}

static uint64_t now_ns(const struct cpu_backend *b)
{
    return b->env.now_ns ? env_now_ns(&b->env) : 0;
}

/* ---- paths ---- */

const struct cpu_kernels *cpu_path_kernels(enum cpu_path path, enum cpu_compute compute)
{
    const struct cpu_kernels *best;
    if (compute == CPU_COMPUTE_BF16)
        return path == CPU_PATH_AUTO || path == CPU_PATH_AVX512_BF16 ? cpu_kernels_avx512bf16() : NULL;
    switch (path) {
    case CPU_PATH_GENERIC:
        return cpu_kernels_generic();
    case CPU_PATH_AVX2:
        return cpu_kernels_avx2();
    case CPU_PATH_AVX512:
        return cpu_kernels_avx512vnni() ? cpu_kernels_avx512vnni() : cpu_kernels_avx512();
    case CPU_PATH_AVX512_BF16:
        return cpu_kernels_avx512bf16();
    case CPU_PATH_AUTO:
        break;
    }
    best = cpu_path_kernels(CPU_PATH_AVX512, compute);
    if (!best)
        best = cpu_kernels_avx2();
    return best ? best : cpu_kernels_generic();
}

bool cpu_path_supported(enum cpu_path path)
{
    return cpu_path_kernels(path, CPU_COMPUTE_F32) != NULL;
}

bool cpu_compute_supported(enum cpu_compute compute)
{
    return cpu_path_kernels(CPU_PATH_AUTO, compute) != NULL;
}

static const char *const path_names[] = {[CPU_PATH_AUTO] = "auto",
                                         [CPU_PATH_GENERIC] = "generic",
                                         [CPU_PATH_AVX2] = "avx2",
                                         [CPU_PATH_AVX512] = "avx512",
                                         [CPU_PATH_AVX512_BF16] = "avx512bf16"};

int cpu_path_parse(const char *name, enum cpu_path *out)
{
    for (size_t i = 0; i < sizeof path_names / sizeof path_names[0]; i++) {
        if (strcmp(name, path_names[i]) == 0) {
            *out = (enum cpu_path)i;
            return 0;
        }
    }
    return HS_ERR_PARSE;
}

uint64_t cpu_backend_page_bytes(const struct model_desc *model, uint32_t page_tokens)
{
    return kv_page_bytes(model, page_tokens ? page_tokens : CPU_DEFAULT_PAGE_TOKENS);
}

uint64_t cpu_backend_weight_bytes(const struct backend *backend)
{
    return const_self_of(backend)->weights->panel_bytes;
}

/* ---- operations ---- */

static void backend_info(const struct backend *backend, struct backend_info *out)
{
    const struct cpu_backend *b = const_self_of(backend);
    *out = (struct backend_info){
        .name = "cpu",
        .n_pages = b->kv.n_pages,
        .page_tokens = b->kv.page_tokens,
        .page_bytes = b->kv.page_size * sizeof(uint16_t),
        .n_vocab = b->model->n_vocab,
        .max_rows = b->forward->max_rows,
        .max_spans = b->forward->max_spans,
        .max_inflight = 1,
    };
    /* Integers are multiplied in groups, which gives other bits than 16-bit weights of the same file. */
    const bool native = b->weights->n_quantised > 0;
    snprintf(out->arithmetic, sizeof out->arithmetic, "%s%s.%d", b->kernels->arithmetic, native ? "-native" : "",
             native ? NATIVE_BITS : WIDE_BITS);
}

static void wait_until_finished(struct cpu_backend *b)
{
    struct pollfd wait = {.fd = b->event_fd, .events = POLLIN};
    while (!atomic_load_explicit(&b->finished, memory_order_acquire))
        poll(&wait, 1, PROGRESS_INTERVAL_MS);
}

/* Copies are kept for the start of the next step: the one under way may still write to the source page. */
static int backend_copy_page(struct backend *backend, uint32_t dst, uint32_t src)
{
    struct cpu_backend *b = self_of(backend);
    if (dst >= b->kv.n_pages || src >= b->kv.n_pages)
        return HS_ERR_RANGE;
    if (b->n_copies == MAX_PENDING_COPIES) { /* rare: no step took them for a long time */
        if (b->in_flight)
            wait_until_finished(b);
        for (uint32_t i = 0; i < b->n_copies; i++)
            kv_pool_copy(&b->kv, b->copies[i].dst, b->copies[i].src, 0, 1);
        b->n_copies = 0;
    }
    b->copies[b->n_copies++] = (struct page_copy){.dst = dst, .src = src};
    return 0;
}

static int check_span(const struct cpu_backend *b, const struct step_span *span)
{
    uint64_t length = (uint64_t)span->position + span->n_tokens;
    if (span->n_tokens == 0 || span->n_outputs > span->n_tokens || length > b->model->n_context)
        return HS_ERR_RANGE;
    if (length > (uint64_t)span->n_pages * b->kv.page_tokens || (span->n_outputs > 0 && (!span->sampling || !span->results)))
        return HS_ERR_RANGE;
    for (uint64_t i = 0; i < (length + b->kv.page_tokens - 1) / b->kv.page_tokens; i++)
        if (span->pages[i] >= b->kv.n_pages)
            return HS_ERR_RANGE;
    for (uint32_t i = 0; i < span->n_tokens; i++)
        if (span->history[span->position + i] >= b->model->n_vocab)
            return HS_ERR_RANGE;
    for (uint32_t i = 0; span->targets && i < span->n_outputs; i++)
        if (span->targets[i] >= b->model->n_vocab)
            return HS_ERR_RANGE;
    return 0;
}

static int check_step(const struct cpu_backend *b, const struct step *step)
{
    uint64_t rows = 0;
    if (step->n_spans > b->forward->max_spans)
        return HS_ERR_LIMIT;
    for (uint32_t i = 0; i < step->n_spans; i++)
        rows += step->spans[i].n_tokens;
    if (rows > b->forward->max_rows)
        return HS_ERR_LIMIT;
    if (step->n_spans == 0)
        return HS_ERR_RANGE;
    for (uint32_t i = 0; i < step->n_spans; i++) {
        int status = check_span(b, &step->spans[i]);
        if (status)
            return status;
    }
    return 0;
}

static void tell(struct cpu_backend *b)
{
    atomic_fetch_add_explicit(&b->told, 1, memory_order_relaxed);
    int status = eventfd_write(b->event_fd, 1);
    hs_assert(status == 0);
}

/* Those who wait for the step are told a moment before it ends: to be woken takes them tens of microseconds. */
static void tell_soon(void *arg)
{
    struct cpu_backend *b = arg;
    if (!atomic_load_explicit(&b->told_soon, memory_order_relaxed) &&
        !atomic_exchange_explicit(&b->told_soon, true, memory_order_relaxed))
        tell(b);
}

static uint64_t watch_clock(void *arg)
{
    return now_ns(arg);
}

static void run_step_chunk(void *arg, uint32_t worker, uint32_t chunk)
{
    forward_run(((struct cpu_backend *)arg)->forward, worker, chunk);
}

static uint32_t advance_step(void *arg, uint32_t worker)
{
    return forward_advance(((struct cpu_backend *)arg)->forward, worker);
}

/* The event follows the flag: whoever wakes by the event finds the flag set. */
static void announce(struct cpu_backend *b)
{
    atomic_store_explicit(&b->finished, true, memory_order_release);
    tell(b);
}

static void finish_step(void *arg)
{
    struct cpu_backend *b = arg;
    b->duration_ns = now_ns(b) - b->started_ns;
    announce(b);
}

static int backend_submit(struct backend *backend, const struct step *step)
{
    struct cpu_backend *b = self_of(backend);
    struct forward *f = b->forward;
    if (b->in_flight)
        return HS_ERR_BUSY;
    int status = check_step(b, step);
    if (status)
        return status;
    memcpy(f->copies, b->copies, b->n_copies * sizeof *f->copies);
    f->n_copies = b->n_copies;
    b->n_copies = 0;
    b->in_flight = true;
    b->step_id = step->id;
    b->started_ns = now_ns(b);
    atomic_store_explicit(&b->finished, false, memory_order_relaxed);
    atomic_store_explicit(&b->told_soon, false, memory_order_relaxed);
    struct worker_job job = {.run = run_step_chunk, .advance = advance_step, .done = finish_step, .arg = b};
    worker_pool_start(b->pool, &job, forward_begin(f, step));
    return 0;
}

/* Also those that come after their completion was taken: a later poll finds them told and not heard. */
static void read_events(struct cpu_backend *b)
{
    eventfd_t n;
    if (atomic_load_explicit(&b->told, memory_order_relaxed) != b->heard && eventfd_read(b->event_fd, &n) == 0)
        b->heard += n;
}

static int backend_poll(struct backend *backend, struct step_completion *out)
{
    struct cpu_backend *b = self_of(backend);
    read_events(b); /* first: what is read before the step is looked at cannot have told of an end that the look misses */
    if (!b->in_flight || !atomic_load_explicit(&b->finished, memory_order_acquire))
        return 0;
    b->in_flight = false;
    *out = (struct step_completion){.id = b->step_id, .duration_ns = b->duration_ns};
    return 1;
}

static int backend_event_fd(const struct backend *backend)
{
    return const_self_of(backend)->event_fd;
}

static uint64_t backend_next_deadline_ns(const struct backend *backend)
{
    return UINT64_MAX;
}

static void backend_destroy(struct backend *backend)
{
    struct cpu_backend *b = self_of(backend);
    worker_pool_destroy(b->pool);
    forward_destroy(b->forward);
    weights_destroy(b->weights);
    kv_pool_fini(&b->kv);
    placement_fini(&b->placement);
    topology_fini(&b->topology);
    if (b->event_fd >= 0)
        close(b->event_fd);
    free(b->copies);
    free(b);
}

static const struct backend_ops operations = {
    .info = backend_info,
    .copy_page = backend_copy_page,
    .submit = backend_submit,
    .poll = backend_poll,
    .event_fd = backend_event_fd,
    .next_deadline_ns = backend_next_deadline_ns,
    .destroy = backend_destroy,
};

/* ---- creation ---- */

static int check_model(const struct model_desc *m, struct error *err)
{
    if (m->n_layers == 0 || m->d_model == 0 || m->d_ff == 0 || m->n_vocab == 0 || m->n_context == 0)
        return error_set(err, HS_ERR_UNSUPPORTED, "model %s has an empty dimension", m->name);
    if (m->n_kv_heads == 0 || m->n_heads == 0 || m->n_heads % m->n_kv_heads != 0)
        return error_set(err, HS_ERR_UNSUPPORTED, "model %s has %u heads over %u KV heads: not a multiple", m->name, m->n_heads,
                         m->n_kv_heads);
    if (m->d_head == 0 || m->d_head % 2 != 0)
        return error_set(err, HS_ERR_UNSUPPORTED, "model %s has heads of %u values: must be even", m->name, m->d_head);
    return 0;
}

static int check_config(const struct cpu_backend_config *c, struct error *err)
{
    if (c->page_tokens % CPU_KEY_TILE != 0)
        return error_set(err, HS_ERR_INVALID, "page size %u is not a multiple of %d tokens", c->page_tokens, CPU_KEY_TILE);
    if (c->n_pages == 0)
        return error_set(err, HS_ERR_INVALID, "the KV pool needs at least one page");
    if (c->threads > CPU_MAX_THREADS)
        return error_set(err, HS_ERR_INVALID, "%u compute threads: at most %d", c->threads, CPU_MAX_THREADS);
    if (c->compute == CPU_COMPUTE_BF16 && c->path != CPU_PATH_AUTO && c->path != CPU_PATH_AVX512_BF16)
        return error_set(err, HS_ERR_INVALID, "the path %s computes in float32, not in bf16", path_names[c->path]);
    if (c->compute == CPU_COMPUTE_BF16 && !cpu_path_kernels(c->path, c->compute))
        return error_set(err, HS_ERR_UNSUPPORTED, "this CPU does not multiply bf16 (AVX512_BF16): compute in f32");
    if (!cpu_path_kernels(c->path, c->compute))
        return error_set(err, HS_ERR_UNSUPPORTED, "this CPU has no %s instructions: use the path auto", path_names[c->path]);
    int status = check_model(c->model, err);
    if (!status && cpu_path_kernels(c->path, c->compute)->inputs_per_word == 2 && (c->model->d_model % 2 || c->model->d_ff % 2))
        return error_set(err, HS_ERR_UNSUPPORTED, "model %s has rows of an odd size, which bf16 pairs cannot hold: compute in f32",
                         c->model->name);
    return status;
}

static uint32_t choose_workers(const struct cpu_backend_config *c)
{
    cpu_set_t allowed;
    uint32_t n = c->threads ? c->threads : c->n_cpus;
    if (n == 0)
        n = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? (uint32_t)CPU_COUNT(&allowed) : 1;
    return n < CPU_MAX_THREADS ? n : CPU_MAX_THREADS;
}

static void fill_chunk(void *arg, uint32_t worker, uint32_t chunk)
{
    struct cpu_backend *b = arg;
    weights_fill(b->weights, chunk, b->fill_scratch + worker * weights_fill_scratch(b->weights));
}

static uint32_t end_fill(void *arg, uint32_t worker)
{
    return 0;
}

static void finish_fill(void *arg)
{
    announce(arg);
}

/* Converts the weights on the workers; the calling thread reports progress. */
static int fill_weights(struct cpu_backend *b, const struct cpu_backend_config *c, struct error *err)
{
    struct worker_job job = {.run = fill_chunk, .advance = end_fill, .done = finish_fill, .arg = b};
    struct pollfd wait = {.fd = b->event_fd, .events = POLLIN};
    b->fill_scratch = malloc(b->n_workers * weights_fill_scratch(b->weights) * sizeof(float));
    if (!b->fill_scratch)
        return error_set(err, HS_ERR_NO_MEMORY, "weights: out of memory");
    worker_pool_start(b->pool, &job, b->weights->n_chunks);
    while (poll(&wait, 1, PROGRESS_INTERVAL_MS) != 1) /* time-outs and signals come round again */
        if (c->progress)
            c->progress(c->progress_arg, "weights",
                        (double)atomic_load(&b->weights->filled_bytes) / (double)b->weights->panel_bytes);
    read_events(b);
    free(b->fill_scratch);
    b->fill_scratch = NULL;
    int status = weights_check(b->weights, err);
    if (!status && c->progress)
        c->progress(c->progress_arg, "weights", 1.0);
    return status;
}

/* Each node's workers and the weights that they read, then what stands on all nodes in turn. */
static void log_places(const struct cpu_backend *b, const uint64_t *node_bytes, uint64_t kv_bytes)
{
    char text[CPU_MAX_NODES * 96];
    int used = 0;
    for (uint32_t node = 0; node < b->topology.n_nodes; node++) {
        uint32_t n_workers = 0;
        for (uint32_t i = 0; i < b->n_workers; i++)
            n_workers += b->placement.workers[i].node == node;
        if (n_workers > 0)
            used += snprintf(text + used, sizeof text - (size_t)used, "node %u: %u threads, %" PRIu64 " MiB of weights; ",
                             b->topology.nodes[node].index, n_workers, node_bytes[node] >> 20);
    }
    log_info("cpu", "NUMA: %skeys and values on all of these in turn (%" PRIu64 " MiB)", text, kv_bytes >> 20);
}

/* On a machine of several NUMA nodes: weights to those who multiply them, keys and values spread. Before anything is written. */
static void place_memory(struct cpu_backend *b)
{
    uint64_t node_bytes[CPU_MAX_NODES];
    if (b->topology.n_nodes == 1)
        return;
    bool placed = weights_place(b->weights, &b->topology, &b->placement, node_bytes);
    if (kv_pool_place(&b->kv, &b->topology, b->placement.nodes) && placed)
        log_places(b, node_bytes, kv_pool_bytes(&b->kv));
    else
        log_warn("cpu", "NUMA: the kernel refuses to place memory on nodes (mbind; a container without CAP_SYS_NICE?): memory stands where "
                        "it is first written");
}

static int build(struct cpu_backend *b, const struct cpu_backend_config *c, struct error *err)
{
    uint32_t page_tokens = c->page_tokens ? c->page_tokens : CPU_DEFAULT_PAGE_TOKENS;
    uint32_t max_rows = c->max_rows ? c->max_rows : CPU_DEFAULT_MAX_ROWS;
    uint32_t max_spans = c->max_spans ? c->max_spans : CPU_DEFAULT_MAX_SPANS;
    topology_init(&b->topology);
    b->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (b->event_fd < 0)
        return error_set(err, HS_ERR_IO, "no event descriptor: %s", strerror(errno));
    b->copies = calloc(MAX_PENDING_COPIES, sizeof *b->copies);
    if (!b->copies)
        return error_set(err, HS_ERR_NO_MEMORY, "CPU backend: out of memory");
    int status = weights_create(c->model, b->kernels, c->weights, &b->weights, err);
    if (!status)
        status = kv_pool_init(&b->kv, c->model, c->n_pages, page_tokens, b->kernels->inputs_per_word, err);
    if (!status)
        status = placement_plan(&b->topology, b->n_workers, c->cpus, c->n_cpus, &b->placement, err);
    if (!status)
        place_memory(b);
    if (!status)
        status = forward_create(c->model, b->weights, &b->kv, b->kernels, b->n_workers, max_rows, max_spans, &b->forward, err);
    if (!status)
        status = worker_pool_create(b->n_workers, b->placement.workers, &b->pool, err);
    if (!status) {
        b->forward->watch = (struct end_watch){.now_ns = watch_clock, .soon = tell_soon, .arg = b};
        worker_pool_while_waiting(b->pool, forward_wait, b->forward);
    }
    return status ? status : fill_weights(b, c, err);
}

int cpu_backend_create(const struct cpu_backend_config *config, struct backend **out, struct error *err)
{
    int status = check_config(config, err);
    if (status)
        return status;
    struct cpu_backend *b = calloc(1, sizeof *b);
    if (!b)
        return error_set(err, HS_ERR_NO_MEMORY, "CPU backend: out of memory");
    b->backend.ops = &operations;
    b->model = config->model;
    b->kernels = cpu_path_kernels(config->path, config->compute);
    b->env = config->env ? *config->env : (struct env){0};
    b->n_workers = choose_workers(config);
    b->event_fd = -1;
    status = build(b, config, err);
    if (status) {
        backend_destroy(&b->backend);
        return status;
    }
    *out = &b->backend;
    return 0;
}
