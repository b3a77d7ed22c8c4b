/*
 * Nothing unverified in the tree: every page holds the chain of the tokens that lead to it, written by steps that are complete; and
 * every block has the name that its tokens and namespace give it.
 */
#include "core/cache/radix_internal.h"
#include "core/serve/node_internal.h"
#include "tests/sim/check.h"

static uint64_t state_before(const struct world_node *wn, const struct radix_tree *tree, const struct radix_node *at)
{
    const struct radix_node *parent = at->parent;
    return parent && parent->n_pages ? shadow_slot(wn->backend, radix_tail(tree, parent), wn->page_tokens - 1) : 0;
}

static void check_edge(struct world_node *wn, const struct radix_tree *tree, const struct radix_node *at)
{
    uint64_t state = state_before(wn, tree, at);
    for (uint32_t i = 0; i < at->n_pages; i++) {
        const uint32_t *run = radix_run_at(tree, at, i);
        for (uint32_t slot = 0; slot < wn->page_tokens; slot++) {
            state = shadow_chain(state, run[1 + slot]);
            if (shadow_slot(wn->backend, run[0], slot) != state) {
                world_fail(wn->world, "%s: page %u in the tree does not hold what its path says", wn->name, run[0]);
                return;
            }
        }
    }
}

void check_tree(struct world_node *wn)
{
    uint64_t steps = shadow_steps(wn->backend);
    if (steps == wn->tree_seen)
        return;
    wn->tree_seen = steps;
    const struct radix_tree *tree = wn->node->tree;
    for (struct radix_node *at = tree->first_root; at; at = radix_next(at)) /* parents first */
        check_edge(wn, tree, at);
}

static void check_edge_names(struct world_node *wn, const struct radix_tree *tree, const struct radix_node *at)
{
    const struct block_hash_key *key = &wn->node->hash_key;
    const struct radix_node *parent = at->parent;
    if (!parent) {
        if (at->name != block_hash_root(key, at->namespace_id))
            world_fail(wn->world, "%s: a namespace in the tree has another's name", wn->name);
        return;
    }
    uint64_t name = parent->n_pages ? tree->pages[radix_tail(tree, parent)].name : parent->name;
    for (uint32_t i = 0; i < at->n_pages; i++) {
        const uint32_t *run = radix_run_at(tree, at, i);
        name = block_hash_next(key, name, run + 1, wn->page_tokens);
        if (tree->pages[run[0]].name != name)
            world_fail(wn->world, "%s: the block in page %u has another's name", wn->name, run[0]);
    }
}

void check_names(struct world_node *wn)
{
    const struct radix_tree *tree = wn->node->tree;
    for (struct radix_node *at = tree->first_root; at; at = radix_next(at))
        check_edge_names(wn, tree, at);
}
