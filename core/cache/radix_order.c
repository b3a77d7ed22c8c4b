/*
 * The children of a node as a treap (Seidel and Aragon, 1996): ordered by the tokens of their first pages, which differ, with the highest
 * name on top. Names are keyed hashes, so whoever chooses tokens cannot make it deep; expected are 1.4 log2(n) nodes on a way down.
 *
 * Whatever shares the most leading tokens with some others stands next to them in this order, and both neighbours of a place lie on the
 * way down to it. So the nearest child is the best of those met.
 */
#include <stddef.h>

#include "core/base/panic.h"
#include "core/cache/radix_internal.h"

uint32_t radix_common(const struct radix_tree *tree, const struct radix_node *node, uint32_t index, const uint32_t *tokens, uint32_t n)
{
    const uint32_t *run = radix_run_at(tree, node, index) + 1;
    uint32_t common = 0;
    while (common < n && run[common] == tokens[common])
        common++;
    return common;
}

/* Whether a stands before b: the first page's tokens decide. */
static bool is_lower(const struct radix_tree *tree, const struct radix_node *a, const struct radix_node *b)
{
    uint32_t common = radix_common(tree, b, 0, a->run + 1, tree->config.page_tokens);
    return common < tree->config.page_tokens && a->run[1 + common] < b->run[1 + common];
}

void radix_order_add(const struct radix_tree *tree, struct radix_node *node)
{
    struct radix_node **at = &node->parent->children;
    while (*at && (*at)->name >= node->name)
        at = is_lower(tree, node, *at) ? &(*at)->lower : &(*at)->higher;
    struct radix_node *rest = *at, **lower = &node->lower, **higher = &node->higher;
    *at = node;
    while (rest)
        if (is_lower(tree, rest, node)) {
            *lower = rest;
            lower = &rest->higher;
            rest = rest->higher;
        } else {
            *higher = rest;
            higher = &rest->lower;
            rest = rest->lower;
        }
    *lower = *higher = NULL;
}

void radix_order_remove(const struct radix_tree *tree, struct radix_node *node)
{
    struct radix_node **at = &node->parent->children, *lower = node->lower, *higher = node->higher;
    while (*at != node) {
        hs_assert(*at);
        at = is_lower(tree, node, *at) ? &(*at)->lower : &(*at)->higher;
    }
    while (lower && higher)
        if (lower->name >= higher->name) {
            *at = lower;
            at = &lower->higher;
            lower = lower->higher;
        } else {
            *at = higher;
            at = &higher->lower;
            higher = higher->lower;
        }
    *at = lower ? lower : higher;
}

struct radix_node *radix_order_nearest(const struct radix_tree *tree, const struct radix_node *parent, const uint32_t *tokens, uint32_t n,
                                       uint32_t *n_common)
{
    struct radix_node *nearest = NULL, *at = parent->children;
    *n_common = 0;
    while (at) {
        uint32_t common = radix_common(tree, at, 0, tokens, n);
        if (common > *n_common) {
            nearest = at;
            *n_common = common;
        }
        if (common == n)
            break; /* no other can share more */
        at = tokens[common] < at->run[1 + common] ? at->lower : at->higher;
    }
    return nearest;
}
