/*
 * The radix tree's own parts, shared by its four files: radix_node.c (edges: find, split, merge, grow, trim), radix_order.c (siblings in
 * the order of their tokens), radix_evict.c (worth and the heap of leaves), radix_tree.c (the public functions). See radix_tree.h.
 *
 * A node is an edge together with the fork below it. Its run holds, page after page, the page number and that page's tokens:
 *
 *     run   | page 7 | t0 .. t15 | page 2 | t16 .. t31 |          stride = 1 + page_tokens words
 *
 * Nodes other than roots hold at least one page and have no child or at least two (a chain merges; short of memory it may not).
 * All nodes stand in one hash table, under their first block's name; a hit there is only a candidate until parent and tokens agree.
 * The children of a node stand in a treap, too, ordered by their first page's tokens, so that of thousands the one that shares the most
 * leading tokens with others is found on one way down.
 */
#ifndef HEARSAY_CACHE_RADIX_INTERNAL_H
#define HEARSAY_CACHE_RADIX_INTERNAL_H

#include "core/cache/radix_tree.h"

enum { NOT_IN_HEAP = UINT32_MAX };

struct radix_node {
    struct radix_node *parent; /* NULL: a namespace's root */
    struct radix_node *first_child, *next_sibling, *previous_sibling;
    struct radix_node *bucket_next;
    struct radix_node *children;       /* root of the treap of its children ... */
    struct radix_node *lower, *higher; /* ... and its own place in its parent's */
    uint64_t name; /* of the first block; a root's own hash */
    uint32_t *run; /* [n_pages * stride], NULL in a root */
    uint32_t n_pages;
    uint32_t first_page; /* pages before this edge */
    uint32_t heap_index; /* NOT_IN_HEAP unless an unpinned leaf */
    uint64_t heap_key;
    uint8_t *namespace_id; /* roots only: [NAMESPACE_BYTES] */
};

/* What the tree knows about a page in it, by page number. */
struct radix_page {
    uint64_t name;
    uint64_t used_ns;
    struct radix_node *leaf; /* the leaf whose tail this page is, else NULL */
};

struct radix_tree {
    struct radix_config config;
    uint32_t stride;
    struct radix_page *pages;    /* [total pages of the pool] */
    struct radix_node **buckets; /* [n_buckets], a power of two */
    uint64_t n_buckets;
    struct radix_node *first_root; /* roots are siblings */
    struct radix_node **heap;      /* [n_heap] least worth on top; as many places as pages */
    uint32_t n_heap;
    uint32_t probe; /* where the search for duplicates goes on */
    struct radix_stats stats;
};

/* A point in the tree: after `used` pages of node's edge (used == n_pages: at its fork), `depth` pages below the root. */
struct radix_place {
    struct radix_node *node; /* NULL: the namespace is unknown */
    uint32_t used;
    uint32_t depth;
};

static inline uint32_t *radix_run_at(const struct radix_tree *tree, const struct radix_node *node, uint32_t index)
{
    return node->run + (uint64_t)index * tree->stride;
}

static inline uint32_t radix_page_at(const struct radix_tree *tree, const struct radix_node *node, uint32_t index)
{
    return *radix_run_at(tree, node, index);
}

static inline uint32_t radix_tail(const struct radix_tree *tree, const struct radix_node *node)
{
    return radix_page_at(tree, node, node->n_pages - 1);
}

static inline uint64_t radix_run_bytes(const struct radix_tree *tree, uint64_t n_pages)
{
    return n_pages * tree->stride * sizeof(uint32_t);
}

/* radix_node.c */
struct radix_place radix_walk(const struct radix_tree *tree, const uint8_t namespace_id[NAMESPACE_BYTES], const uint32_t *tokens,
                              uint32_t n_pages);
struct radix_node *radix_root_create(struct radix_tree *tree, const uint8_t namespace_id[NAMESPACE_BYTES]); /* NULL: no memory */
struct radix_node *radix_node_create(struct radix_tree *tree, uint32_t n_pages); /* not linked; NULL: no memory */
void radix_node_attach(struct radix_tree *tree, struct radix_node *node, struct radix_node *parent);
void radix_node_detach(struct radix_tree *tree, struct radix_node *node);
void radix_node_free(struct radix_tree *tree, struct radix_node *node);
int radix_node_grow(struct radix_tree *tree, struct radix_node *node, uint32_t n_more); /* the new places are not filled */
void radix_node_trim(struct radix_tree *tree, struct radix_node *node, uint32_t n_pages);
/* Cuts node's edge after `at` pages; returns the new upper node, NULL when out of memory (tree unchanged). */
struct radix_node *radix_node_split(struct radix_tree *tree, struct radix_node *node, uint32_t at);
/* Makes node and its only child one edge, where memory allows. */
void radix_node_merge(struct radix_tree *tree, struct radix_node *node);
/* Takes the last n pages off a leaf and tells the listener; what is left empty goes, what can merge merges. */
void radix_leaf_remove_tail(struct radix_tree *tree, struct radix_node *leaf, uint32_t n);
/* Lets go of the tree's reference on pages index .. index+n-1 of node and tells the listener. */
void radix_release_pages(struct radix_tree *tree, const struct radix_node *node, uint32_t index, uint32_t n);
/* Next node in preorder, roots and their trees one after the other; NULL at the end. */
struct radix_node *radix_next(struct radix_node *node);

/* radix_order.c */
void radix_order_add(const struct radix_tree *tree, struct radix_node *node); /* among node->parent's */
void radix_order_remove(const struct radix_tree *tree, struct radix_node *node);
/* The child whose first page shares the most leading tokens with tokens[n], n at most a page, and how many; NULL: none shares any. */
struct radix_node *radix_order_nearest(const struct radix_tree *tree, const struct radix_node *parent, const uint32_t *tokens, uint32_t n,
                                       uint32_t *n_common);
/* Leading tokens that a page of a node's run shares with tokens[n]. */
uint32_t radix_common(const struct radix_tree *tree, const struct radix_node *node, uint32_t index, const uint32_t *tokens, uint32_t n);

/* radix_evict.c */
/* Puts a leaf into the heap, moves it there, or takes it out, as its tail page demands; other nodes are left alone. */
void radix_leaf_update(struct radix_tree *tree, struct radix_node *node);
/* Takes a leaf out: it stops being one, or its tail is about to change. */
void radix_leaf_forget(struct radix_tree *tree, struct radix_node *node);

#endif
