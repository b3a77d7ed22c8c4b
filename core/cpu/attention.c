/*
 * Attention over pages. A task is one KV head and a block of up to tile_rows queries of one span: consecutive rows, and for each
 * the heads that share the KV head. Keys are taken in segments of CPU_KV_SEGMENT positions, counted from position 0 of the
 * sequence; each gives a softmax state of its own, and states are merged in ascending order (online softmax, Milakov and
 * Gimelshein, arXiv 1805.02867). So the arithmetic of a row depends on its position alone, whether one worker goes through the
 * segments or many share them. Weights are powers of two: rotation multiplies queries by log2(e) along with their scale.
 */
#include "core/base/panic.h"
#include "core/cpu/forward.h"

enum {
    TILES_PER_SEGMENT = CPU_KV_SEGMENT / CPU_KEY_TILE,
    TILES_AHEAD = 8,       /* what is asked of memory lies so many tiles on */
    CHUNKS_PER_WORKER = 4, /* of split tasks: enough to even out */
    LINE_FLOATS = 16,      /* in a cache line */
};

struct task {
    const struct step_span *span;
    uint32_t first_row;      /* of the span, among the forward's rows */
    uint32_t first_position; /* of that row in the sequence */
    uint32_t kv_head;
    uint32_t first_query; /* query q: row q / group of the span, head q % group of the KV head */
    uint32_t n_queries;
    bool first;                               /* of the tasks with these keys and values: they come from memory */
    struct key_range seen[CPU_MAX_TILE_ROWS]; /* by query; both ends only move upward */
};

static uint32_t group_size(const struct forward *f)
{
    return f->model->n_heads / f->model->n_kv_heads;
}

static uint32_t fewer(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t clamp(uint32_t value, uint32_t low, uint32_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* Segments that any query of the task sees: first <= segment < last. */
static struct key_range visible_segments(const struct task *task)
{
    return (struct key_range){task->seen[0].first / CPU_KV_SEGMENT,
                              (task->seen[task->n_queries - 1].last + CPU_KV_SEGMENT - 1) / CPU_KV_SEGMENT};
}

/* ---- plan ---- */

static uint32_t span_queries(const struct forward *f, uint32_t span)
{
    return (f->first_row[span + 1] - f->first_row[span]) * group_size(f);
}

static uint32_t span_tasks(const struct forward *f, uint32_t span)
{
    uint32_t queries = span_queries(f, span);
    return (queries + f->kernels->tile_rows - 1) / f->kernels->tile_rows * f->model->n_kv_heads;
}

void attention_plan(struct forward *f)
{
    uint32_t n_tasks = 0, longest = 0;
    for (uint32_t s = 0; s < f->step->n_spans; s++) {
        const struct step_span *span = &f->step->spans[s];
        uint32_t length = span->position + span->n_tokens;
        f->first_task[s] = n_tasks;
        n_tasks += span_tasks(f, s);
        longest = length > longest ? length : longest;
    }
    f->first_task[f->step->n_spans] = n_tasks;
    /* Too few tasks for the workers: share out the segments too, if their states fit. */
    uint32_t segments = (longest + CPU_KV_SEGMENT - 1) / CPU_KV_SEGMENT;
    bool split = f->n_workers > 1 && n_tasks < 3 * f->n_workers && (uint64_t)n_tasks * segments <= f->n_partials;
    f->n_segments = split ? segments : 1;
    f->n_split_chunks = 0;
    if (f->n_segments > 1)
        f->n_split_chunks = fewer(n_tasks * segments, CHUNKS_PER_WORKER * f->n_workers);
}

static uint32_t n_tasks(const struct forward *f)
{
    return f->first_task[f->step->n_spans];
}

uint32_t attention_chunks(const struct forward *f)
{
    return f->n_segments > 1 ? f->n_split_chunks : n_tasks(f);
}

uint32_t attention_merge_chunks(const struct forward *f)
{
    return f->n_segments > 1 ? n_tasks(f) : 0;
}

static void find_seen(const struct forward *f, struct task *task)
{
    const uint32_t group = group_size(f), window = f->model->sliding_window;
    uint32_t last = task->first_position + task->first_query / group + 1, head = task->first_query % group;
    for (uint32_t q = 0; q < task->n_queries; q++) {
        task->seen[q] = (struct key_range){window && last > window ? last - window : 0, last};
        if (++head == group) {
            head = 0;
            last++;
        }
    }
}

static struct task find_task(const struct forward *f, uint32_t index)
{
    uint32_t low = 0, high = f->step->n_spans;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (f->first_task[middle] <= index)
            low = middle;
        else
            high = middle;
    }
    const struct step_span *span = &f->step->spans[low];
    uint32_t queries = span_queries(f, low), block_size = f->kernels->tile_rows;
    uint32_t within = index - f->first_task[low];
    /* Later blocks see more keys: they go first, so that the last chunks of the stage are short. */
    uint32_t turn = within / f->model->n_kv_heads, block = (queries + block_size - 1) / block_size - 1 - turn;
    uint32_t first = block * block_size;
    struct task task = {
        .span = span,
        .first_row = f->first_row[low],
        .first_position = span->position + f->first_index[low],
        .kv_head = within % f->model->n_kv_heads,
        .first_query = first,
        .n_queries = fewer(queries - first, block_size),
        .first = turn == 0,
    };
    find_seen(f, &task);
    return task;
}

/* ---- one segment ---- */

static void pack_queries(const struct forward *f, const struct task *task, float *packed)
{
    const struct model_desc *m = f->model;
    const uint32_t group = group_size(f);
    const size_t row_size = (m->n_heads + 2 * (size_t)m->n_kv_heads) * m->d_head;
    const float *queries[CPU_MAX_TILE_ROWS];
    for (uint32_t q = 0; q < task->n_queries; q++) {
        uint32_t index = task->first_query + q;
        queries[q] = f->qkv + (task->first_row + index / group) * row_size + (task->kv_head * group + index % group) * m->d_head;
    }
    f->kernels->pack_rows(queries, task->n_queries, m->d_head, packed, task->n_queries);
}

/*
 * Where the tiles of one segment lie that hold keys any query sees. Keys, values and the tiles that are read next follow each
 * other, so that what to ask for is always a few places on.
 */
struct segment_tiles {
    const uint16_t *tiles[2 * TILES_PER_SEGMENT + TILES_AHEAD];
    uint32_t n;                               /* of keys, and as many of values */
    struct key_range seen[CPU_MAX_TILE_ROWS]; /* by query, counted from the first key of the first tile */
};

static struct key_range range_within(struct key_range range, uint32_t first, uint32_t end)
{
    return (struct key_range){clamp(range.first, first, end) - first, clamp(range.last, first, end) - first};
}

/* Writes the tiles from position `first` on, at most n; returns how many there are before position `end`. */
static uint32_t place_tiles(const struct forward *f, const struct task *task, uint32_t first, uint32_t end, uint32_t n,
                            const uint16_t **keys, const uint16_t **values)
{
    const struct kv_pool *kv = f->kv;
    uint32_t page = first / kv->page_tokens, slot = first % kv->page_tokens, i = 0;
    for (uint32_t position = first; position < end && i < n; position += CPU_KEY_TILE, i++) {
        keys[i] = kv_pool_keys(kv, task->span->pages[page], slot, f->layer, task->kv_head);
        if (values)
            values[i] = kv_pool_values(kv, task->span->pages[page], slot, f->layer, task->kv_head);
        slot += CPU_KEY_TILE;
        if (slot == kv->page_tokens) {
            slot = 0;
            page++;
        }
    }
    return i;
}

static void find_tiles(const struct forward *f, const struct task *task, uint32_t segment, struct segment_tiles *out)
{
    const uint32_t base = segment * CPU_KV_SEGMENT, all_end = task->seen[task->n_queries - 1].last;
    const uint32_t end = clamp(all_end, base, base + CPU_KV_SEGMENT);
    const uint32_t pair = 2 * CPU_KEY_TILE; /* whatever else the block sees, a key has its place in softmax_segment's pairs */
    const uint32_t first = clamp(task->seen[0].first, base, end) / pair * pair;
    const uint16_t *values[TILES_PER_SEGMENT];
    out->n = place_tiles(f, task, first, end, TILES_PER_SEGMENT, out->tiles, values);
    for (uint32_t i = 0; i < out->n; i++)
        out->tiles[out->n + i] = values[i];
    for (uint32_t q = 0; q < task->n_queries; q++)
        out->seen[q] = range_within(task->seen[q], first, base + CPU_KV_SEGMENT);
    if (!task->first || out->n == 0)
        return;
    /* Behind them the first keys of the next segment, if there is one. */
    const uint16_t **next = out->tiles + 2 * out->n;
    for (uint32_t i = place_tiles(f, task, base + CPU_KV_SEGMENT, all_end, TILES_AHEAD, next, NULL); i < TILES_AHEAD; i++)
        next[i] = next[-1];
}

static void attend_segment(const struct forward *f, const struct task *task, uint32_t segment, const struct worker_scratch *scratch,
                           struct attention_state *out)
{
    const struct cpu_kernels *k = f->kernels;
    struct segment_tiles s;
    find_tiles(f, task, segment, &s);
    const uint16_t *const *values = s.tiles + s.n;
    k->score_keys(scratch->queries, task->n_queries, f->kv->d_head, s.tiles, s.n, task->first ? s.tiles + TILES_AHEAD : NULL,
                  scratch->scores, CPU_KV_SEGMENT);
    k->softmax_segment(scratch->scores, CPU_KV_SEGMENT, task->n_queries, s.seen, out->maximum, out->sum);
    k->accumulate_values(scratch->scores, CPU_KV_SEGMENT, task->n_queries, s.seen, values,
                         task->first ? values + TILES_AHEAD : NULL, f->kv->d_padded, out->values);
}

/* Divides by the sums, in place, and writes the rows into the tiles that feed the output product. */
static void write_output(struct forward *f, const struct task *task, struct attention_state *state)
{
    const struct model_desc *m = f->model;
    const uint32_t n_inputs = m->n_heads * m->d_head, group = group_size(f), tile_rows = forward_tile_rows(f, f->n_rows);
    const size_t d_padded = f->kv->d_padded;
    const float *values[CPU_MAX_TILE_ROWS];
    f->kernels->finish_states(task->n_queries, f->kv->d_padded, state);
    for (uint32_t start = 0; start < group && start < task->n_queries; start++) { /* one head, row after row */
        const uint32_t head = task->kv_head * group + (task->first_query + start) % group;
        for (uint32_t q = start, n; q < task->n_queries; q += n * group) {
            uint32_t row = task->first_row + (task->first_query + q) / group, stride;
            float *out = f->tiles + forward_tile_offset(f, f->n_rows, n_inputs, row, &stride);
            n = fewer((task->n_queries - q + group - 1) / group, tile_rows - row % tile_rows);
            out += (size_t)head * (m->d_head / f->kernels->inputs_per_word) * stride;
            for (uint32_t i = 0; i < n; i++)
                values[i] = state->values + (q + i * group) * d_padded;
            f->kernels->pack_rows(values, n, m->d_head, out, stride);
        }
    }
}

/* ---- stages ---- */

/* A run of segments, of one task after the other; their states are merged when all are there. */
static void attend_split(struct forward *f, const struct worker_scratch *scratch, uint32_t first, uint32_t last)
{
    struct task task;
    for (uint32_t i = first, in_task = UINT32_MAX; i < last; i++) {
        if (i / f->n_segments != in_task) {
            in_task = i / f->n_segments;
            task = find_task(f, in_task);
            pack_queries(f, &task, scratch->queries);
        }
        uint32_t segment = i % f->n_segments;
        struct key_range segments = visible_segments(&task);
        if (segment >= segments.first && segment < segments.last)
            attend_segment(f, &task, segment, scratch, &f->partials[i]);
    }
}

void attention_run(struct forward *f, uint32_t worker, uint32_t chunk)
{
    struct worker_scratch *scratch = &f->scratch[worker];
    if (f->n_segments > 1) {
        const uint32_t n = n_tasks(f) * f->n_segments;
        attend_split(f, scratch, n * chunk / f->n_split_chunks, n * (chunk + 1) / f->n_split_chunks);
        return;
    }
    struct task task = find_task(f, chunk);
    pack_queries(f, &task, scratch->queries);
    struct key_range segments = visible_segments(&task);
    attend_segment(f, &task, segments.first, scratch, &scratch->total);
    for (uint32_t segment = segments.first + 1; segment < segments.last; segment++) {
        attend_segment(f, &task, segment, scratch, &scratch->part);
        f->kernels->merge_states(task.n_queries, f->kv->d_padded, &scratch->part, &scratch->total);
    }
    write_output(f, &task, &scratch->total);
}

/* Other workers wrote them: all lines are under way before the first is needed. */
static void ask_for_states(const struct forward *f, const struct attention_state *states, uint32_t n, uint32_t n_queries)
{
    for (uint32_t i = 0; i < n; i++) {
        __builtin_prefetch(states[i].maximum);
        __builtin_prefetch(states[i].sum);
        for (uint32_t at = 0; at < n_queries * f->kv->d_padded; at += LINE_FLOATS)
            __builtin_prefetch(states[i].values + at);
    }
}

void attention_merge(struct forward *f, uint32_t worker, uint32_t chunk)
{
    struct task task = find_task(f, chunk);
    struct key_range segments = visible_segments(&task);
    struct attention_state *states = &f->partials[(size_t)chunk * f->n_segments];
    hs_assert(segments.last <= f->n_segments);
    ask_for_states(f, states + segments.first, segments.last - segments.first, task.n_queries);
    for (uint32_t segment = segments.first + 1; segment < segments.last; segment++)
        f->kernels->merge_states(task.n_queries, f->kv->d_padded, &states[segment], &states[segments.first]);
    write_output(f, &task, &states[segments.first]);
}
