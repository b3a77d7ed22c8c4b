/*
 * Attention over pages. A task is one KV head and a block of up to tile_rows
 * queries of one span: consecutive rows, and for each the heads that share the
 * KV head. Keys are taken in segments of CPU_KV_SEGMENT positions, counted from
 * position 0 of the sequence; each gives a softmax state of its own, and states
 * are merged in ascending order (online softmax, Milakov and Gimelshein, arXiv
 * 1805.02867). So the arithmetic of a row depends on its position alone,
 * whether one worker goes through the segments or many share them.
 */
#include <string.h>

#include "core/base/panic.h"
#include "core/cpu/forward.h"
#include "core/cpu/half.h"

enum {
    TILES_PER_SEGMENT = CPU_KV_SEGMENT / CPU_KEY_TILE,
    TILES_AHEAD = 4,  /* asked of memory while as many are worked on */
    LINE_SHORTS = 32, /* in a cache line */
};

struct task {
    const struct step_span *span;
    uint32_t first_row;      /* of the span, among the forward's rows */
    uint32_t first_position; /* of that row in the sequence */
    uint32_t kv_head;
    uint32_t first_query; /* query q: row q / group of the span, head q % group of
                             the KV head */
    uint32_t n_queries;
};

struct key_range {
    uint32_t first, last; /* first <= key < last */
};

static uint32_t group_size(const struct forward *f)
{
    return f->model->n_heads / f->model->n_kv_heads;
}

static struct key_range visible_keys(const struct forward *f, const struct task *task, uint32_t query)
{
    uint32_t last = task->first_position + (task->first_query + query) / group_size(f) + 1;
    uint32_t window = f->model->sliding_window;
    return (struct key_range){window && last > window ? last - window : 0, last};
}

static struct key_range range_within(struct key_range range, uint32_t first, uint32_t size)
{
    struct key_range part = {range.first > first ? range.first : first, range.last < first + size ? range.last : first + size};
    return part.first < part.last ? part : (struct key_range){first, first};
}

/* Segments that any query of the task sees: first <= segment < last. */
static struct key_range visible_segments(const struct forward *f, const struct task *task)
{
    struct key_range low = visible_keys(f, task, 0), high = visible_keys(f, task, task->n_queries - 1);
    return (struct key_range){low.first / CPU_KV_SEGMENT, (high.last + CPU_KV_SEGMENT - 1) / CPU_KV_SEGMENT};
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
    /* Too few tasks for the workers: share out the segments too, if their states
     * fit. */
    uint32_t segments = (longest + CPU_KV_SEGMENT - 1) / CPU_KV_SEGMENT;
    bool split = f->n_workers > 1 && n_tasks < 3 * f->n_workers && (uint64_t)n_tasks * segments <= f->n_partials;
    f->n_segments = split ? segments : 1;
}

static uint32_t n_tasks(const struct forward *f)
{
    return f->first_task[f->step->n_spans];
}

uint32_t attention_chunks(const struct forward *f)
{
    return n_tasks(f) * f->n_segments;
}

uint32_t attention_merge_chunks(const struct forward *f)
{
    return f->n_segments > 1 ? n_tasks(f) : 0;
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
    /* Later blocks see more keys: they go first, so that the last chunks of the
     * stage are short. */
    uint32_t block = (queries + block_size - 1) / block_size - 1 - within / f->model->n_kv_heads;
    uint32_t first = block * block_size;
    return (struct task){
        .span = span,
        .first_row = f->first_row[low],
        .first_position = span->position + f->first_index[low],
        .kv_head = within % f->model->n_kv_heads,
        .first_query = first,
        .n_queries = queries - first < block_size ? queries - first : block_size,
    };
}

/* ---- one segment ---- */

static const float *query_vector(const struct forward *f, const struct task *task, uint32_t query)
{
    const struct model_desc *m = f->model;
    uint32_t index = task->first_query + query, group = group_size(f);
    size_t row = task->first_row + index / group, head = (size_t)task->kv_head * group + index % group;
    return f->qkv + row * (m->n_heads + 2 * (size_t)m->n_kv_heads) * m->d_head + head * m->d_head;
}

static void pack_queries(const struct forward *f, const struct task *task, float *packed)
{
    for (uint32_t q = 0; q < task->n_queries; q++) {
        f->kernels->pack_inputs(query_vector(f, task, q), f->model->d_head, packed + q, task->n_queries);
    }
}

/* Where the tiles of one segment lie that hold keys `keys`, counted from its
 * first: keys and values of the task's head. */
struct segment_tiles {
    const uint16_t *keys[TILES_PER_SEGMENT], *values[TILES_PER_SEGMENT];
    uint32_t first, last; /* first <= tile < last of the segment are set */
};

static struct segment_tiles find_tiles(const struct forward *f, const struct task *task, uint32_t base, struct key_range keys)
{
    const struct kv_pool *kv = f->kv;
    struct segment_tiles tiles = {.first = (keys.first - base) / CPU_KEY_TILE,
                                  .last = (keys.last - base + CPU_KEY_TILE - 1) / CPU_KEY_TILE};
    for (uint32_t i = tiles.first; i < tiles.last; i++) {
        uint32_t position = base + i * CPU_KEY_TILE;
        uint32_t page = task->span->pages[position / kv->page_tokens], slot = position % kv->page_tokens;
        tiles.keys[i] = kv_pool_keys(kv, page, slot, f->layer, task->kv_head);
        tiles.values[i] = kv_pool_values(kv, page, slot, f->layer, task->kv_head);
    }
    return tiles;
}

/* Tiles lie far apart: the memory learns of the next ones early. */
static void prefetch_tiles(const uint16_t *const *tiles, uint32_t first, uint32_t last, uint32_t n_values)
{
    for (uint32_t i = first; i < last; i++)
        for (uint32_t at = 0; at < CPU_KEY_TILE * n_values; at += LINE_SHORTS)
            __builtin_prefetch(tiles[i] + at);
}

static uint32_t fewer(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static void score_segment(const struct forward *f, const struct task *task, const struct segment_tiles *tiles, bool once,
                          const struct worker_scratch *scratch)
{
    const struct kv_pool *kv = f->kv;
    uint32_t step = once ? TILES_AHEAD : TILES_PER_SEGMENT;
    for (uint32_t at = tiles->first, end; at < tiles->last; at = end) {
        end = fewer(at + step, tiles->last);
        if (once && end < tiles->last)
            prefetch_tiles(tiles->keys, end, fewer(end + step, tiles->last), kv->d_head);
        else if (once)
            prefetch_tiles(tiles->values, tiles->first, fewer(tiles->first + step, tiles->last), kv->d_padded);
        f->kernels->score_keys(scratch->queries, task->n_queries, kv->d_head, tiles->keys + at, end - at,
                               scratch->scores + (size_t)at * CPU_KEY_TILE, CPU_KV_SEGMENT);
    }
}

/* Keys first .. last-1 of the segment for all of the task's queries. */
static void add_common_values(const struct forward *f, const struct task *task, const struct segment_tiles *tiles, bool once,
                              struct key_range keys, const float *weights, float *out)
{
    uint32_t step = once ? TILES_AHEAD : TILES_PER_SEGMENT;
    for (uint32_t at = keys.first / CPU_KEY_TILE, end; at * CPU_KEY_TILE < keys.last; at = end) {
        struct key_range part = range_within(keys, at * CPU_KEY_TILE, step * CPU_KEY_TILE);
        end = at + step;
        if (once && end < tiles->last)
            prefetch_tiles(tiles->values, end, fewer(end + step, tiles->last), f->kv->d_padded);
        f->kernels->accumulate_values(weights + (size_t)at * (CPU_KEY_TILE / f->kernels->inputs_per_word), CPU_KV_SEGMENT,
                                      task->n_queries, tiles->values + at, f->kv->d_padded, part.first - at * CPU_KEY_TILE,
                                      part.last - at * CPU_KEY_TILE, out);
    }
}

/* The keys of one word, query by query over exactly those it sees; queries that
 * see the same go together. */
static void add_word_values(const struct forward *f, const struct task *task, const struct segment_tiles *tiles, uint32_t base,
                            uint32_t key, const float *weights, float *out)
{
    const uint32_t per_word = f->kernels->inputs_per_word, tile = key / CPU_KEY_TILE, tile_start = base + tile * CPU_KEY_TILE;
    weights += (size_t)tile * (CPU_KEY_TILE / per_word);
    for (uint32_t q = 0, end; q < task->n_queries; q = end) {
        struct key_range keys = range_within(visible_keys(f, task, q), base + key, per_word);
        for (end = q + 1; end < task->n_queries; end++) {
            struct key_range other = range_within(visible_keys(f, task, end), base + key, per_word);
            if (other.first != keys.first || other.last != keys.last)
                break;
        }
        if (keys.first < keys.last)
            f->kernels->accumulate_values(weights + (size_t)q * CPU_KV_SEGMENT, CPU_KV_SEGMENT, end - q, tiles->values + tile,
                                          f->kv->d_padded, keys.first - tile_start, keys.last - tile_start,
                                          out + (size_t)q * f->kv->d_padded);
    }
}

static uint32_t clamp(uint32_t value, uint32_t low, uint32_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* What of a range lies in the segment at base, counted from there; each end on
 * its own, so that empty ranges keep their side. */
static struct key_range range_in_segment(struct key_range range, uint32_t base)
{
    const uint32_t end = base + CPU_KV_SEGMENT;
    return (struct key_range){clamp(range.first, base, end) - base, clamp(range.last, base, end) - base};
}

/* The keys that every query sees go at once; the others, at the edges, word by
 * word. Keys stay in ascending order. */
static void add_values(const struct forward *f, const struct task *task, const struct segment_tiles *tiles, uint32_t base,
                       bool once, const float *weights, float *out)
{
    /* Both ends only move upward from query to query. */
    const struct key_range low = range_in_segment(visible_keys(f, task, 0), base);
    const struct key_range high = range_in_segment(visible_keys(f, task, task->n_queries - 1), base);
    const uint32_t per_word = f->kernels->inputs_per_word;
    struct key_range common = low;
    uint32_t key = low.first / per_word * per_word;
    if (low.first != high.first || low.last != high.last) /* whole words: a pair must not be cut for one row
                                                             and not for another */
        common = (struct key_range){(high.first + per_word - 1) / per_word * per_word, low.last / per_word * per_word};
    if (common.first < common.last) {
        for (; key < common.first && common.first > low.first; key += per_word)
            add_word_values(f, task, tiles, base, key, weights, out);
        add_common_values(f, task, tiles, once, common, weights, out);
        key = (common.last + per_word - 1) / per_word * per_word;
    }
    for (; key < high.last; key += per_word)
        add_word_values(f, task, tiles, base, key, weights, out);
}

static void attend_segment(const struct forward *f, const struct task *task, uint32_t segment, const struct worker_scratch *scratch,
                           struct attention_state *out)
{
    const uint32_t base = segment * CPU_KV_SEGMENT;
    const bool once = task->n_queries <= group_size(f); /* one row's queries: keys and values come from memory */
    struct key_range all = {visible_keys(f, task, 0).first, visible_keys(f, task, task->n_queries - 1).last};
    struct segment_tiles tiles = find_tiles(f, task, base, range_within(all, base, CPU_KV_SEGMENT));

    score_segment(f, task, &tiles, once, scratch);
    for (uint32_t q = 0; q < task->n_queries; q++) {
        struct key_range seen = range_within(visible_keys(f, task, q), base, CPU_KV_SEGMENT);
        out->sum[q] = 0;
        if (seen.first < seen.last)
            f->kernels->softmax_segment(scratch->scores + (size_t)q * CPU_KV_SEGMENT, seen.first - base, seen.last - base,
                                        &out->maximum[q], &out->sum[q]);
    }
    memset(out->values, 0, (size_t)task->n_queries * f->kv->d_padded * sizeof *out->values);
    add_values(f, task, &tiles, base, once, scratch->scores, out->values);
}

/* ---- merging ---- */

/* e^x for x <= 0, by the method of vec_exp (kernels_body.h), in plain C: the
 * same for every path; exactly 1 at 0. */
static float exp_of_negative(float x)
{
    if (!(x > -87.0f))
        return 0;
    float n = (x * 1.44269504088896341f + 0x1.8p23f) - 0x1.8p23f;
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float y = 1.9875691500e-4f;
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * (r * r) + r + 1.0f;
    return y * float_from_bits((uint32_t)((int32_t)n + 127) << 23);
}

static void merge_state(struct attention_state *total, const struct attention_state *part, uint32_t n_queries, uint32_t n_values)
{
    for (uint32_t q = 0; q < n_queries; q++) {
        float *to = total->values + (size_t)q * n_values;
        const float *from = part->values + (size_t)q * n_values;
        if (part->sum[q] == 0)
            continue;
        if (total->sum[q] == 0) {
            total->maximum[q] = part->maximum[q];
            total->sum[q] = part->sum[q];
            memcpy(to, from, n_values * sizeof *to);
            continue;
        }
        float maximum = part->maximum[q] > total->maximum[q] ? part->maximum[q] : total->maximum[q];
        float keep = exp_of_negative(total->maximum[q] - maximum), add = exp_of_negative(part->maximum[q] - maximum);
        total->maximum[q] = maximum;
        total->sum[q] = total->sum[q] * keep + part->sum[q] * add;
        for (uint32_t i = 0; i < n_values; i++)
            to[i] = to[i] * keep + from[i] * add;
    }
}

/* Divides by the sums, in place, and writes the rows into the tiles that feed
 * the output product. */
static void write_output(struct forward *f, const struct task *task, struct attention_state *state)
{
    const struct model_desc *m = f->model;
    const uint32_t n_inputs = m->n_heads * m->d_head, group = group_size(f);
    for (uint32_t q = 0; q < task->n_queries; q++) {
        uint32_t index = task->first_query + q, stride;
        uint32_t head = task->kv_head * group + index % group;
        float *out = f->tiles + forward_tile_offset(f, f->n_rows, n_inputs, task->first_row + index / group, &stride);
        float *values = state->values + (size_t)q * f->kv->d_padded;
        float scale = 1.0f / state->sum[q];
        for (uint32_t i = 0; i < m->d_head; i++)
            values[i] *= scale;
        out += (size_t)head * (m->d_head / f->kernels->inputs_per_word) * stride;
        f->kernels->pack_inputs(values, m->d_head, out, stride);
    }
}

/* ---- stages ---- */

void attention_run(struct forward *f, uint32_t worker, uint32_t chunk)
{
    struct worker_scratch *scratch = &f->scratch[worker];
    struct task task = find_task(f, chunk / f->n_segments);
    pack_queries(f, &task, scratch->queries);
    if (f->n_segments > 1) {
        attend_segment(f, &task, chunk % f->n_segments, scratch, &f->partials[chunk]);
        return;
    }
    struct key_range segments = visible_segments(f, &task);
    attend_segment(f, &task, segments.first, scratch, &scratch->total);
    for (uint32_t segment = segments.first + 1; segment < segments.last; segment++) {
        attend_segment(f, &task, segment, scratch, &scratch->part);
        merge_state(&scratch->total, &scratch->part, task.n_queries, f->kv->d_padded);
    }
    write_output(f, &task, &scratch->total);
}

void attention_merge(struct forward *f, uint32_t worker, uint32_t chunk)
{
    struct task task = find_task(f, chunk);
    struct key_range segments = visible_segments(f, &task);
    struct attention_state *states = &f->partials[(size_t)chunk * f->n_segments];
    hs_assert(segments.last <= f->n_segments);
    for (uint32_t segment = segments.first + 1; segment < segments.last; segment++)
        merge_state(&states[segments.first], &states[segment], task.n_queries, f->kv->d_padded);
    write_output(f, &task, &states[segments.first]);
}
