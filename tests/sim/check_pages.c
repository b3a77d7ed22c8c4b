/* Pages are conserved: each has exactly the owners that can be found, and the free ones are the rest. */
#include <stdlib.h>

#include "core/cache/radix_internal.h"
#include "core/serve/node_internal.h"
#include "core/serve/scheduler_internal.h"
#include "tests/sim/check.h"

enum { MOST_PAGES = 4096 };

static void count_sequence(const struct sequence *sequence, uint16_t *owners)
{
    for (uint32_t i = 0; i < sequence->n_pages; i++)
        owners[sequence->pages[i]]++;
}

static void count_owners(const struct node *node, uint16_t *owners)
{
    const struct scheduler *scheduler = node->scheduler;
    for (struct radix_node *at = node->tree->first_root; at; at = radix_next(at))
        for (uint32_t i = 0; i < at->n_pages; i++)
            owners[radix_page_at(node->tree, at, i)]++;
    for (uint32_t i = 0; i < scheduler->n_running; i++)
        count_sequence(scheduler->running[i], owners);
    for (uint32_t i = 0; i < scheduler->n_spans; i++)
        if (scheduler->span_sequence[i]->orphan)
            count_sequence(scheduler->span_sequence[i], owners);
}

void check_pages(struct world_node *wn)
{
    struct world *world = wn->world;
    const struct page_pool *pool = wn->node->pool;
    uint32_t n = page_pool_total_pages(pool), n_free = 0;
    uint16_t owners[MOST_PAGES] = {0};
    if (n > MOST_PAGES)
        return; /* a scenario's large pool: check_idle still counts */
    count_owners(wn->node, owners);
    for (uint32_t page = 0; page < n; page++) {
        n_free += owners[page] == 0;
        if (page_pool_owners(pool, page) != owners[page])
            world_fail(world, "%s: page %u counts %u owners and has %u", wn->name, page, page_pool_owners(pool, page), owners[page]);
    }
    if (page_pool_free_pages(pool) != n_free)
        world_fail(world, "%s: %u pages count as free, %u are", wn->name, page_pool_free_pages(pool), n_free);
}
