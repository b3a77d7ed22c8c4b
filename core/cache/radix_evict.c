#include <stddef.h>

#include "core/base/panic.h"
#include "core/cache/radix_internal.h"

/*
 * Worth of a page, as a point in time: when it was last used, moved into the future by what it would cost to compute again
 * (the dearer a page, the longer it may idle, as in GreedyDual, Cao and Irani 1997). Attention makes late positions dearer: at
 * CONTEXT_TOKENS a token costs twice the first. The last copy in the group is worth more than any page that a peer has too.
 */
#define IDLE_NS_PER_TOKEN UINT64_C(20000000)
#define LAST_COPY         (UINT64_C(1) << 63)
enum { CONTEXT_TOKENS = 2048 };

/* Leaves asked again, per page evicted, whether a peer has got a copy meanwhile. */
enum { PROBES_PER_PAGE = 32 };

static bool held_elsewhere(const struct radix_tree *tree, uint32_t page)
{
    const struct radix_listener *listener = &tree->config.listener;
    return listener->held_elsewhere && listener->held_elsewhere(listener->self, tree->pages[page].name);
}

static uint64_t key_of(const struct radix_tree *tree, const struct radix_node *node, uint32_t index)
{
    uint32_t page = radix_page_at(tree, node, index);
    uint64_t position = (uint64_t)(node->first_page + index) * tree->config.page_tokens;
    uint64_t idle_ns = tree->config.page_tokens * (IDLE_NS_PER_TOKEN + IDLE_NS_PER_TOKEN * position / CONTEXT_TOKENS);
    uint64_t worth = tree->pages[page].used_ns + idle_ns;
    hs_assert(worth < LAST_COPY);
    return held_elsewhere(tree, page) ? worth : worth | LAST_COPY;
}

/* Before: less worth, or (so that order never hangs on the heap's history) the lower tail page. */
static bool before(const struct radix_tree *tree, const struct radix_node *a, const struct radix_node *b)
{
    return a->heap_key != b->heap_key ? a->heap_key < b->heap_key : radix_tail(tree, a) < radix_tail(tree, b);
}

static void heap_place(struct radix_tree *tree, uint32_t at, struct radix_node *node)
{
    tree->heap[at] = node;
    node->heap_index = at;
}

/* Moves the node at `at` to where its key belongs. */
static void heap_fix(struct radix_tree *tree, uint32_t at)
{
    struct radix_node *node = tree->heap[at];
    while (at > 0 && before(tree, node, tree->heap[(at - 1) / 2])) {
        heap_place(tree, at, tree->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child + 1 < tree->n_heap && before(tree, tree->heap[child + 1], tree->heap[child]))
            child++;
        if (child >= tree->n_heap || !before(tree, tree->heap[child], node))
            break;
        heap_place(tree, at, tree->heap[child]);
        at = child;
    }
    heap_place(tree, at, node);
}

static void heap_remove(struct radix_tree *tree, struct radix_node *node)
{
    uint32_t at = node->heap_index;
    if (at == NOT_IN_HEAP)
        return;
    node->heap_index = NOT_IN_HEAP;
    struct radix_node *last = tree->heap[--tree->n_heap];
    if (last != node) {
        heap_place(tree, at, last);
        heap_fix(tree, at);
    }
}

void radix_leaf_update(struct radix_tree *tree, struct radix_node *node)
{
    if (!node->parent || node->first_child)
        return;
    uint32_t tail = radix_tail(tree, node);
    tree->pages[tail].leaf = node;
    if (page_pool_owners(tree->config.pool, tail) > 1) {
        heap_remove(tree, node);
        return;
    }
    if (node->heap_index == NOT_IN_HEAP)
        heap_place(tree, tree->n_heap++, node);
    node->heap_key = key_of(tree, node, node->n_pages - 1);
    heap_fix(tree, node->heap_index);
}

void radix_leaf_forget(struct radix_tree *tree, struct radix_node *node)
{
    heap_remove(tree, node);
    tree->pages[radix_tail(tree, node)].leaf = NULL;
}

/* Peers' caches change without a word to the heap: look at a few last copies whether they still are. */
static void probe_last_copies(struct radix_tree *tree)
{
    if (!tree->config.listener.held_elsewhere)
        return;
    for (uint32_t i = 0; i < PROBES_PER_PAGE && i < tree->n_heap; i++) {
        tree->probe = tree->probe + 1 < tree->n_heap ? tree->probe + 1 : 0;
        struct radix_node *node = tree->heap[tree->probe];
        if ((node->heap_key & LAST_COPY) && held_elsewhere(tree, radix_tail(tree, node)))
            radix_leaf_update(tree, node);
    }
}

/* The unpinned leaf of least worth as things stand now; NULL: none. */
static struct radix_node *least_worth(struct radix_tree *tree)
{
    while (tree->n_heap > 0) {
        if (tree->heap[0]->heap_key & LAST_COPY)
            probe_last_copies(tree);
        struct radix_node *leaf = tree->heap[0];
        if ((leaf->heap_key & LAST_COPY) || held_elsewhere(tree, radix_tail(tree, leaf)))
            return leaf;
        radix_leaf_update(tree, leaf); /* it has become the last copy: each turn of this loop makes one leaf dearer */
    }
    return NULL;
}

/*
 * Whether page `index` of a leaf just taken from the heap may go together with those behind it: nobody reads it, it is worth no
 * more than any other leaf, and it is not a last copy behind one that was not (the limit may not know yet of a peer's newer
 * copies).
 */
static bool may_follow(const struct radix_tree *tree, const struct radix_node *leaf, uint32_t index, uint64_t limit)
{
    if (page_pool_owners(tree->config.pool, radix_page_at(tree, leaf, index)) > 1)
        return false;
    uint64_t key = key_of(tree, leaf, index);
    return key <= limit && (key & LAST_COPY) <= (leaf->heap_key & LAST_COPY);
}

uint32_t radix_evict(struct radix_tree *tree, uint32_t n_pages, uint64_t now_ns)
{
    uint32_t freed = 0;
    while (freed < n_pages) {
        struct radix_node *leaf = least_worth(tree);
        if (!leaf)
            break;
        heap_remove(tree, leaf);
        uint64_t limit = tree->n_heap ? tree->heap[0]->heap_key : UINT64_MAX;
        uint32_t n = 1;
        while (freed + n < n_pages && n < leaf->n_pages && may_follow(tree, leaf, leaf->n_pages - 1 - n, limit))
            n++;
        radix_leaf_remove_tail(tree, leaf, n);
        freed += n;
    }
    tree->stats.evicted_pages += freed;
    return freed;
}

uint32_t radix_evictable_pages(const struct radix_tree *tree)
{
    return page_pool_unpinned_pages(tree->config.pool);
}
