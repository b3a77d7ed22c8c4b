#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/panic.h"
#include "core/cache/radix_internal.h"

enum { NAMES_PER_CALL = 64 };

static struct radix_node **bucket_of(const struct radix_tree *tree, uint64_t name)
{
    return &tree->buckets[name & (tree->n_buckets - 1)];
}

/* Twice the buckets once there is a node for each. Without memory for it the chains just grow. */
static void table_grow(struct radix_tree *tree)
{
    uint64_t n_old = tree->n_buckets;
    struct radix_node **buckets = calloc(n_old * 2, sizeof *buckets);
    if (!buckets)
        return;
    struct radix_node **old = tree->buckets;
    tree->buckets = buckets;
    tree->n_buckets = n_old * 2;
    for (uint64_t i = 0; i < n_old; i++) {
        while (old[i]) {
            struct radix_node *node = old[i];
            old[i] = node->bucket_next;
            node->bucket_next = *bucket_of(tree, node->name);
            *bucket_of(tree, node->name) = node;
        }
    }
    free(old);
}

static void table_add(struct radix_tree *tree, struct radix_node *node)
{
    if (tree->stats.nodes + tree->stats.namespaces >= tree->n_buckets)
        table_grow(tree);
    node->bucket_next = *bucket_of(tree, node->name);
    *bucket_of(tree, node->name) = node;
}

static void table_remove(struct radix_tree *tree, struct radix_node *node)
{
    struct radix_node **link = bucket_of(tree, node->name);
    while (*link != node) {
        hs_assert(*link);
        link = &(*link)->bucket_next;
    }
    *link = node->bucket_next;
}

static struct radix_node *find_root(const struct radix_tree *tree, const uint8_t namespace_id[NAMESPACE_BYTES])
{
    struct radix_node *node = *bucket_of(tree, block_hash_root(&tree->config.hash_key, namespace_id));
    while (node && (node->parent || memcmp(node->namespace_id, namespace_id, NAMESPACE_BYTES) != 0))
        node = node->bucket_next;
    return node;
}

static struct radix_node *find_child(const struct radix_tree *tree, const struct radix_node *parent, const uint32_t *tokens)
{
    if (!parent->first_child)
        return NULL;
    uint32_t page_tokens = tree->config.page_tokens;
    uint64_t parent_name = parent->parent ? tree->pages[radix_tail(tree, parent)].name : parent->name;
    struct radix_node *node = *bucket_of(tree, block_hash_next(&tree->config.hash_key, parent_name, tokens, page_tokens));
    while (node && (node->parent != parent || memcmp(node->run + 1, tokens, page_tokens * sizeof *tokens) != 0))
        node = node->bucket_next;
    return node;
}

struct radix_place radix_walk(const struct radix_tree *tree, const uint8_t namespace_id[NAMESPACE_BYTES], const uint32_t *tokens,
                              uint32_t n_pages)
{
    uint32_t page_tokens = tree->config.page_tokens;
    struct radix_place place = {.node = find_root(tree, namespace_id)};
    while (place.node && place.depth < n_pages) {
        struct radix_node *child = find_child(tree, place.node, tokens + (size_t)place.depth * page_tokens);
        if (!child)
            break;
        place.node = child;
        place.used = 0;
        do {
            place.used++;
            place.depth++;
        } while (place.used < child->n_pages && place.depth < n_pages &&
                 memcmp(radix_run_at(tree, child, place.used) + 1, tokens + (size_t)place.depth * page_tokens,
                        page_tokens * sizeof *tokens) == 0);
        if (place.used < child->n_pages)
            break;
    }
    return place;
}

struct radix_node *radix_node_create(struct radix_tree *tree, uint32_t n_pages)
{
    struct radix_node *node = calloc(1, sizeof *node);
    if (!node)
        return NULL;
    node->heap_index = NOT_IN_HEAP;
    if (n_pages && radix_node_grow(tree, node, n_pages) != 0) {
        free(node);
        return NULL;
    }
    tree->stats.bytes += sizeof *node;
    return node;
}

struct radix_node *radix_root_create(struct radix_tree *tree, const uint8_t namespace_id[NAMESPACE_BYTES])
{
    struct radix_node *root = radix_node_create(tree, 0);
    if (!root)
        return NULL;
    root->namespace_id = malloc(NAMESPACE_BYTES);
    if (!root->namespace_id) {
        radix_node_free(tree, root);
        return NULL;
    }
    memcpy(root->namespace_id, namespace_id, NAMESPACE_BYTES);
    root->name = block_hash_root(&tree->config.hash_key, namespace_id);
    tree->stats.bytes += NAMESPACE_BYTES;
    radix_node_attach(tree, root, NULL);
    return root;
}

static void siblings_add(struct radix_node **head, struct radix_node *node)
{
    node->previous_sibling = NULL;
    node->next_sibling = *head;
    if (*head)
        (*head)->previous_sibling = node;
    *head = node;
}

static void siblings_remove(struct radix_node **head, struct radix_node *node)
{
    if (node->previous_sibling)
        node->previous_sibling->next_sibling = node->next_sibling;
    else
        *head = node->next_sibling;
    if (node->next_sibling)
        node->next_sibling->previous_sibling = node->previous_sibling;
}

static struct radix_node **siblings_of(struct radix_tree *tree, struct radix_node *parent)
{
    return parent ? &parent->first_child : &tree->first_root;
}

void radix_node_attach(struct radix_tree *tree, struct radix_node *node, struct radix_node *parent)
{
    node->parent = parent;
    siblings_add(siblings_of(tree, parent), node);
    table_add(tree, node);
    if (parent) {
        radix_order_add(tree, node);
        tree->stats.nodes++;
    } else {
        tree->stats.namespaces++;
    }
}

void radix_node_detach(struct radix_tree *tree, struct radix_node *node)
{
    siblings_remove(siblings_of(tree, node->parent), node);
    table_remove(tree, node);
    if (node->parent) {
        radix_order_remove(tree, node);
        tree->stats.nodes--;
    } else {
        tree->stats.namespaces--;
    }
}

void radix_node_free(struct radix_tree *tree, struct radix_node *node)
{
    tree->stats.bytes -= sizeof *node + radix_run_bytes(tree, node->n_pages) + (node->namespace_id ? NAMESPACE_BYTES : 0);
    free(node->namespace_id);
    free(node->run);
    free(node);
}

int radix_node_grow(struct radix_tree *tree, struct radix_node *node, uint32_t n_more)
{
    uint32_t *run = realloc(node->run, radix_run_bytes(tree, (uint64_t)node->n_pages + n_more));
    if (!run)
        return HS_ERR_NO_MEMORY;
    node->run = run;
    node->n_pages += n_more;
    tree->stats.bytes += radix_run_bytes(tree, n_more);
    return 0;
}

void radix_node_trim(struct radix_tree *tree, struct radix_node *node, uint32_t n_pages)
{
    hs_assert(n_pages > 0 && n_pages <= node->n_pages);
    tree->stats.bytes -= radix_run_bytes(tree, node->n_pages - n_pages);
    node->n_pages = n_pages;
    uint32_t *run = realloc(node->run, radix_run_bytes(tree, n_pages));
    if (run) /* a run that could not shrink serves as well */
        node->run = run;
}

struct radix_node *radix_node_split(struct radix_tree *tree, struct radix_node *node, uint32_t at)
{
    hs_assert(at > 0 && at < node->n_pages);
    struct radix_node *upper = radix_node_create(tree, at);
    if (!upper)
        return NULL;
    struct radix_node *parent = node->parent;
    radix_node_detach(tree, node);
    memcpy(upper->run, node->run, radix_run_bytes(tree, at));
    upper->name = node->name;
    upper->first_page = node->first_page;
    memmove(node->run, radix_run_at(tree, node, at), radix_run_bytes(tree, node->n_pages - at));
    radix_node_trim(tree, node, node->n_pages - at);
    node->name = tree->pages[radix_page_at(tree, node, 0)].name;
    node->first_page += at;
    radix_node_attach(tree, upper, parent);
    radix_node_attach(tree, node, upper);
    return upper;
}

void radix_node_merge(struct radix_tree *tree, struct radix_node *node)
{
    struct radix_node *child = node->first_child;
    uint32_t n_lower = child->n_pages;
    hs_assert(node->parent && !child->next_sibling);
    if (radix_node_grow(tree, child, node->n_pages) != 0)
        return;
    struct radix_node *parent = node->parent;
    radix_node_detach(tree, child);
    radix_node_detach(tree, node);
    memmove(radix_run_at(tree, child, node->n_pages), child->run, radix_run_bytes(tree, n_lower));
    memcpy(child->run, node->run, radix_run_bytes(tree, node->n_pages));
    child->name = node->name;
    child->first_page = node->first_page;
    radix_node_free(tree, node);
    radix_node_attach(tree, child, parent);
}

void radix_release_pages(struct radix_tree *tree, const struct radix_node *node, uint32_t index, uint32_t n)
{
    const struct radix_listener *listener = &tree->config.listener;
    uint64_t names[NAMES_PER_CALL];
    uint32_t n_names = 0;
    for (uint32_t i = index; i < index + n; i++) {
        uint32_t page = radix_page_at(tree, node, i);
        names[n_names++] = tree->pages[page].name;
        tree->pages[page].leaf = NULL;
        page_pool_set_cached(tree->config.pool, page, false);
        page_pool_unref(tree->config.pool, page);
        if (n_names == NAMES_PER_CALL || i + 1 == index + n) {
            if (listener->removed)
                listener->removed(listener->self, names, n_names);
            n_names = 0;
        }
    }
    tree->stats.pages -= n;
}

void radix_leaf_remove_tail(struct radix_tree *tree, struct radix_node *leaf, uint32_t n)
{
    hs_assert(!leaf->first_child && n > 0 && n <= leaf->n_pages);
    radix_leaf_forget(tree, leaf);
    radix_release_pages(tree, leaf, leaf->n_pages - n, n);
    if (n < leaf->n_pages) {
        radix_node_trim(tree, leaf, leaf->n_pages - n);
        radix_leaf_update(tree, leaf);
        return;
    }
    struct radix_node *parent = leaf->parent;
    radix_node_detach(tree, leaf);
    radix_node_free(tree, leaf);
    if (!parent->parent) {
        if (!parent->first_child) {
            radix_node_detach(tree, parent);
            radix_node_free(tree, parent);
        }
    } else if (!parent->first_child) {
        radix_leaf_update(tree, parent);
    } else if (!parent->first_child->next_sibling) {
        radix_node_merge(tree, parent);
    }
}

struct radix_node *radix_next(struct radix_node *node)
{
    if (node->first_child)
        return node->first_child;
    while (node && !node->next_sibling)
        node = node->parent;
    return node ? node->next_sibling : NULL;
}
