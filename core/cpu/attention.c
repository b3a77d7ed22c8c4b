/*
 * Attention over pages. A task is one KV head and a block of up to tile_rows queries of one span: consecutive rows, and for each
 * the heads that share the KV head. Keys are taken in segments of CPU_KV_SEGMENT positions, counted from position 0 of the
 * sequence; each gives a softmax state of its own, and states are merged in ascending order (online softmax, Milakov and
 * Gimelshein, arXiv 1805.02867). So the arithmetic of a row depends on its position alone, whether one worker goes through the
 * segments or many share them. Weights are powers of two: rotation multiplies queries by log2(e) along with their scale.
 *
 * Tasks are shared out head by head (work_share.h): the blocks of a head find its keys in cache, rows that stand side by side in a
 * tile are mostly written by one worker, and while that is at one task it asks memory for what the next one reads first.
 */
#include "core/cpu/attention.h"

#include "core/base/panic.h"
#include "core/cpu/forward.h"

enum {
    TILES_PER_SEGMENT = CPU_KV_SEGMENT / CPU_KEY_TILE,
    KEY_PAIR = 2 * CPU_KEY_TILE, /* whatever else the block sees, a key has its place in softmax_segment's pairs */
    TILES_AHEAD = 8,             /* what is asked of memory lies so many tiles on */
    LINE_FLOATS = 16,            /* in a cache line */
    LINE_SHORTS = 32,
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

static uint32_t span_blocks(const struct forward *f, uint32_t span)
{
    return (span_queries(f, span) + f->kernels->tile_rows - 1) / f->kernels->tile_rows;
}

/* Of all spans, for each KV head. */
static uint32_t n_blocks(const struct forward *f)
{
    return f->first_block[f->step->n_spans];
}

static uint32_t n_tasks(const struct forward *f)
{
    return n_blocks(f) * f->model->n_kv_heads;
}

void attention_plan(struct forward *f)
{
    uint32_t longest = 0;
    f->first_block[0] = 0;
    for (uint32_t s = 0; s < f->step->n_spans; s++) {
        const struct step_span *span = &f->step->spans[s];
        uint32_t length = span->position + span->n_tokens;
        f->first_block[s + 1] = f->first_block[s] + span_blocks(f, s);
        longest = length > longest ? length : longest;
    }
    /* Too few tasks for the workers: share out the segments too, if their states fit. */
    uint32_t segments = (longest + CPU_KV_SEGMENT - 1) / CPU_KV_SEGMENT;
    bool split = f->n_workers > 1 && n_tasks(f) < 3 * f->n_workers && (uint64_t)n_tasks(f) * segments <= f->n_partials;
    f->n_segments = split ? segments : 1;
}

bool attention_may_rotate(const struct forward *f)
{
    return f->n_outputs == f->n_rows && n_blocks(f) == f->step->n_spans;
}

static struct work_run own_items(const struct forward *f, uint32_t worker)
{
    const uint64_t n = (uint64_t)n_tasks(f) * f->n_segments;
    return (struct work_run){(uint32_t)(n * worker / f->n_workers), (uint32_t)(n * (worker + 1) / f->n_workers)};
}

uint32_t attention_start(struct forward *f)
{
    for (uint32_t w = 0; w < f->n_workers; w++)
        work_share_set(&f->shares[w], own_items(f, w));
    for (uint32_t i = 0; f->n_segments > 1 && i < n_tasks(f); i++)
        atomic_store_explicit(&f->n_attended[i], 0, memory_order_relaxed);
    return fewer(f->n_workers, n_tasks(f) * f->n_segments);
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
    uint32_t low = 0, high = f->step->n_spans, within = index % n_blocks(f);
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (f->first_block[middle] <= within)
            low = middle;
        else
            high = middle;
    }
    const struct step_span *span = &f->step->spans[low];
    /* Later blocks see more keys: they go first, so that the last tasks are short. */
    uint32_t turn = within - f->first_block[low], first = (span_blocks(f, low) - 1 - turn) * f->kernels->tile_rows;
    struct task task = {
        .span = span,
        .first_row = f->first_row[low],
        .first_position = span->position + f->first_index[low],
        .kv_head = index / n_blocks(f),
        .first_query = first,
        .n_queries = fewer(span_queries(f, low) - first, f->kernels->tile_rows),
        .first = turn == 0,
    };
    find_seen(f, &task);
    return task;
}

/* ---- one segment ---- */

static void pack_queries(const struct forward *f, const struct task *task, const struct worker_scratch *scratch)
{
    const struct model_desc *m = f->model;
    const uint32_t group = group_size(f);
    const float *queries[CPU_MAX_TILE_ROWS];
    for (uint32_t q = 0; q < task->n_queries; q++) {
        uint32_t index = task->first_query + q, row = task->first_row + index / group, head = task->kv_head * group + index % group;
        queries[q] = f->qkv + (size_t)row * forward_qkv_size(f) + (size_t)head * m->d_head;
        if (f->rotates_late) { /* other workers may be at other segments for the same query */
            float *rotated = scratch->rows + (size_t)q * m->d_head;
            forward_rotate_query(f, row, head, rotated);
            queries[q] = rotated;
        }
    }
    f->kernels->pack_rows(queries, task->n_queries, m->d_head, scratch->queries, task->n_queries);
}

/* The new keys and values that fall into the segment, if that has been left to the task. */
static void store_keys(const struct forward *f, uint32_t worker, const struct task *task, uint32_t segment)
{
    for (uint32_t i = 0; f->rotates_late && i < task->n_queries / group_size(f); i++)
        if ((task->first_position + i) / CPU_KV_SEGMENT == segment)
            forward_store_key(f, worker, task->first_row + i, task->kv_head);
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
        values[i] = kv_pool_values(kv, task->span->pages[page], slot, f->layer, task->kv_head);
        slot += CPU_KEY_TILE;
        if (slot == kv->page_tokens) {
            slot = 0;
            page++;
        }
    }
    return i;
}

/* Writes what is read first of the task's keys from position `first` on, and then of its values: TILES_AHEAD tiles at most. Returns how
 * many. */
static uint32_t place_leading(const struct forward *f, const struct task *task, uint32_t first, const uint16_t **tiles)
{
    const uint32_t end = fewer(task->seen[task->n_queries - 1].last, (first / CPU_KV_SEGMENT + 1) * CPU_KV_SEGMENT);
    const uint16_t *values[TILES_AHEAD];
    const uint32_t n = place_tiles(f, task, first, end, TILES_AHEAD, tiles, values), most = fewer(2 * n, TILES_AHEAD);
    for (uint32_t i = n; i < most; i++)
        tiles[i] = values[i - n];
    return most;
}

static uint32_t first_key(const struct task *task)
{
    return task->seen[0].first / KEY_PAIR * KEY_PAIR;
}

/* next: the task that the worker probably does after this one, or NULL. */
static void find_tiles(const struct forward *f, const struct task *task, uint32_t segment, const struct task *next,
                       struct segment_tiles *out)
{
    const uint32_t base = segment * CPU_KV_SEGMENT, all_end = task->seen[task->n_queries - 1].last;
    const uint32_t end = clamp(all_end, base, base + CPU_KV_SEGMENT);
    const uint32_t first = clamp(task->seen[0].first, base, end) / KEY_PAIR * KEY_PAIR;
    const uint16_t *values[TILES_PER_SEGMENT];
    out->n = place_tiles(f, task, first, end, TILES_PER_SEGMENT, out->tiles, values);
    for (uint32_t i = 0; i < out->n; i++)
        out->tiles[out->n + i] = values[i];
    for (uint32_t q = 0; q < task->n_queries; q++)
        out->seen[q] = range_within(task->seen[q], first, base + CPU_KV_SEGMENT);
    if (!task->first || out->n == 0)
        return;
    /* Behind them what is read next. */
    const uint16_t **after = out->tiles + 2 * out->n;
    uint32_t n = place_leading(f, task, base + CPU_KV_SEGMENT, after);
    if (n == 0 && next && next->first)
        n = place_leading(f, next, first_key(next), after);
    for (; n < TILES_AHEAD; n++)
        after[n] = after[(int)n - 1];
}

static void attend_segment(const struct forward *f, uint32_t worker, const struct task *task, uint32_t segment,
                           const struct task *next, struct attention_state *out)
{
    const struct cpu_kernels *k = f->kernels;
    const struct worker_scratch *scratch = &f->scratch[worker];
    struct segment_tiles s;
    store_keys(f, worker, task, segment);
    find_tiles(f, task, segment, next, &s);
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

/* ---- whole tasks ---- */

static void attend(struct forward *f, uint32_t worker, const struct task *task, const struct task *next)
{
    struct worker_scratch *scratch = &f->scratch[worker];
    const struct key_range segments = visible_segments(task);
    pack_queries(f, task, scratch);
    attend_segment(f, worker, task, segments.first, next, &scratch->total);
    for (uint32_t segment = segments.first + 1; segment < segments.last; segment++) {
        attend_segment(f, worker, task, segment, next, &scratch->part);
        f->kernels->merge_states(task->n_queries, f->kv->d_padded, &scratch->part, &scratch->total);
    }
    write_output(f, task, &scratch->total);
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

static void merge_segments(struct forward *f, const struct task *task, struct attention_state *states)
{
    const struct key_range segments = visible_segments(task);
    hs_assert(segments.last <= f->n_segments);
    ask_for_states(f, states + segments.first, segments.last - segments.first, task->n_queries);
    for (uint32_t segment = segments.first + 1; segment < segments.last; segment++)
        f->kernels->merge_states(task->n_queries, f->kv->d_padded, &states[segment], &states[segments.first]);
    write_output(f, task, &states[segments.first]);
}

/* One segment of a task that is split. *packed: the task whose queries the worker has ready. Who ends the last one merges them all. */
static void attend_part(struct forward *f, uint32_t worker, uint32_t item, const struct task *task, const struct task *next,
                        uint32_t *packed)
{
    const uint32_t index = item / f->n_segments, segment = item % f->n_segments;
    const struct key_range segments = visible_segments(task);
    if (segment < segments.first || segment >= segments.last)
        return;
    if (*packed != index)
        pack_queries(f, task, &f->scratch[worker]);
    *packed = index;
    attend_segment(f, worker, task, segment, next, &f->partials[item]);
    /* Release: the state is there. Acquire: so are those of whoever counted before. */
    if (atomic_fetch_add_explicit(&f->n_attended[index], 1, memory_order_acq_rel) + 1 == segments.last - segments.first)
        merge_segments(f, task, &f->partials[(size_t)index * f->n_segments]);
}

void attention_run(struct forward *f, uint32_t worker)
{
    struct task task, next;
    uint32_t index = UINT32_MAX, next_index = UINT32_MAX, packed = UINT32_MAX;
    for (struct work_run taken; work_share_take(f->shares, f->n_workers, worker, 1, &taken);) {
        if (taken.first / f->n_segments != index) {
            const bool starts = index == UINT32_MAX;
            index = taken.first / f->n_segments;
            task = index == next_index ? next : find_task(f, index);
            task.first |= starts;
        }
        const struct work_run left = work_share_left(&f->shares[worker]);
        const bool goes_on = left.first < left.end;
        if (goes_on && left.first / f->n_segments != next_index) {
            next_index = left.first / f->n_segments;
            next = find_task(f, next_index);
        }
        if (f->n_segments == 1)
            attend(f, worker, &task, goes_on ? &next : NULL);
        else
            attend_part(f, worker, taken.first, &task, goes_on ? &next : NULL, &packed);
    }
}

void attention_ask(const struct forward *f, uint32_t worker)
{
    const struct work_run own = own_items(f, worker);
    const uint16_t *tiles[TILES_AHEAD];
    if (own.first == own.end)
        return;
    const struct task task = find_task(f, own.first / f->n_segments);
    const uint32_t segment = own.first % f->n_segments;
    const uint32_t n = place_leading(f, &task, segment > 0 ? segment * CPU_KV_SEGMENT : first_key(&task), tiles);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t at = 0; at < f->kv->d_head * CPU_KEY_TILE; at += LINE_SHORTS)
            __builtin_prefetch(tiles[i] + at, 0, 2);
}
