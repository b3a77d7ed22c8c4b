/*
 * A null backend with a shadow: for every slot the chain value of what completed steps have written there. So a checker can tell
 * whether a page holds what somebody says it holds, and whether that was computed at all. Also makes steps fail.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "tests/sim/world_internal.h"

enum { MAX_UNDER_WAY = 8 };

struct shadow {
    struct backend backend;
    struct backend *inner;
    struct world_node *node;
    uint32_t page_tokens;
    uint64_t *slots;
    const struct step *under_way[MAX_UNDER_WAY];
    uint32_t n_under_way;
    uint64_t n_steps;
};

static struct shadow *shadow_of(const struct backend *backend)
{
    return (struct shadow *)backend;
}

/* splitmix64's finisher (Steele, Lea, Flood 2014): another function than the null model's. */
uint64_t shadow_chain(uint64_t before, uint32_t token)
{
    uint64_t x = before + token + UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t *slot_of(const struct shadow *shadow, const struct step_span *span, uint32_t position)
{
    return &shadow->slots[(size_t)span->pages[position / shadow->page_tokens] * shadow->page_tokens + position % shadow->page_tokens];
}

static void write_span(struct shadow *shadow, const struct step_span *span)
{
    uint64_t state = span->position ? *slot_of(shadow, span, span->position - 1) : 0;
    for (uint32_t i = 0; i < span->n_tokens; i++) {
        uint32_t position = span->position + i;
        state = shadow_chain(state, span->history[position]);
        *slot_of(shadow, span, position) = state;
        shadow->node->rows[position >= shadow->node->world->head_end]++;
    }
}

static void shadow_info(const struct backend *backend, struct backend_info *out)
{
    const struct shadow *shadow = shadow_of(backend);
    shadow->inner->ops->info(shadow->inner, out);
    out->arithmetic[0] = (char)('a' + shadow->node->class);
}

static int shadow_copy_page(struct backend *backend, uint32_t dst, uint32_t src)
{
    struct shadow *shadow = shadow_of(backend);
    int status = shadow->inner->ops->copy_page(shadow->inner, dst, src);
    if (status == 0)
        memmove(shadow->slots + (size_t)dst * shadow->page_tokens, shadow->slots + (size_t)src * shadow->page_tokens,
                shadow->page_tokens * sizeof *shadow->slots);
    return status;
}

static int shadow_submit(struct backend *backend, const struct step *step)
{
    struct shadow *shadow = shadow_of(backend);
    int status = shadow->n_under_way < MAX_UNDER_WAY ? shadow->inner->ops->submit(shadow->inner, step) : HS_ERR_BUSY;
    if (status == 0)
        shadow->under_way[shadow->n_under_way++] = step;
    return status;
}

static int shadow_poll(struct backend *backend, struct step_completion *out)
{
    struct shadow *shadow = shadow_of(backend);
    struct world *world = shadow->node->world;
    int taken = shadow->inner->ops->poll(shadow->inner, out);
    if (taken != 1)
        return taken;
    const struct step *step = shadow->under_way[0];
    memmove(shadow->under_way, shadow->under_way + 1, --shadow->n_under_way * sizeof *shadow->under_way);
    shadow->n_steps++;
    if (world->config.fail > 0 && rng_unit(&world->rng) < world->config.fail) {
        out->status = HS_ERR_IO;
        return 1;
    }
    for (uint32_t i = 0; i < step->n_spans; i++)
        write_span(shadow, &step->spans[i]);
    return 1;
}

static int shadow_event_fd(const struct backend *backend)
{
    return shadow_of(backend)->inner->ops->event_fd(shadow_of(backend)->inner);
}

static uint64_t shadow_next_deadline_ns(const struct backend *backend)
{
    return shadow_of(backend)->inner->ops->next_deadline_ns(shadow_of(backend)->inner);
}

static void shadow_destroy(struct backend *backend)
{
    struct shadow *shadow = shadow_of(backend);
    shadow->inner->ops->destroy(shadow->inner);
    free(shadow->slots);
    free(shadow);
}

static const struct backend_ops SHADOW_OPS = {.info = shadow_info,
                                              .copy_page = shadow_copy_page,
                                              .submit = shadow_submit,
                                              .poll = shadow_poll,
                                              .event_fd = shadow_event_fd,
                                              .next_deadline_ns = shadow_next_deadline_ns,
                                              .destroy = shadow_destroy};

struct backend *shadow_create(struct backend *inner, struct world_node *node)
{
    struct backend_info info;
    inner->ops->info(inner, &info);
    struct shadow *shadow = calloc(1, sizeof *shadow);
    if (!shadow)
        return NULL;
    shadow->backend.ops = &SHADOW_OPS;
    shadow->inner = inner;
    shadow->node = node;
    shadow->page_tokens = info.page_tokens;
    shadow->slots = calloc((size_t)info.n_pages * info.page_tokens, sizeof *shadow->slots);
    if (!shadow->slots) {
        free(shadow);
        return NULL;
    }
    return &shadow->backend;
}

uint64_t shadow_slot(const struct backend *backend, uint32_t page, uint32_t slot)
{
    const struct shadow *shadow = shadow_of(backend);
    return shadow->slots[(size_t)page * shadow->page_tokens + slot];
}

uint64_t shadow_steps(const struct backend *backend)
{
    return shadow_of(backend)->n_steps;
}
