/* What a node that lies says instead of the truth, by message and in the pages that peers read: of its load, and of its counts. */
#include "core/base/error.h"
#include "core/cluster/wire.h"
#include "tests/sim/world_internal.h"

enum { LONGEST_RUN = 1200, LOAD_LIES = 4, PROMISED_CHANGES = 1000 };

static void lie_about(struct cluster_load *load, uint32_t lie)
{
    switch (lie) {
    case 0: /* idle and very fast */
        *load = (struct cluster_load){.prefill_tokens_per_s = 1e9f, .decode_step_s = 1e-9f, .free_pages = UINT32_MAX, .total_pages = UINT32_MAX};
        break;
    case 1: /* buried in work */
        *load = (struct cluster_load){.waiting = UINT32_MAX,
                                      .running = UINT32_MAX,
                                      .prefill_tokens = UINT64_MAX,
                                      .decode_tokens = UINT64_MAX,
                                      .prefill_tokens_per_s = 1e-30f,
                                      .decode_step_s = 1e30f,
                                      .total_pages = 1};
        break;
    case 2: /* nobody should come */
        load->push_back = true;
        break;
    default: /* nothing is known */
        *load = (struct cluster_load){0};
        break;
    }
}

static void miscount(struct wire_header *header, enum miscount how)
{
    if (how == COUNTS_NO_BLOCKS)
        header->n_blocks = 0;
    else if (how == COUNTS_MOST_BLOCKS)
        header->n_blocks = UINT32_MAX;
    else if (how == COUNTS_PROMISES)
        header->sequence += PROMISED_CHANGES; /* that never come */
}

static bool copy_names(const uint8_t *names, uint32_t n, uint64_t out[LONGEST_RUN])
{
    for (uint32_t i = 0; i < n && i < LONGEST_RUN; i++)
        out[i] = wire_name(names, i);
    return n <= LONGEST_RUN;
}

static bool falsify_digest(const struct world_node *node, struct wire_digest *digest, struct writer *out)
{
    uint64_t names[LONGEST_RUN];
    if (node->liar)
        lie_about(&digest->header.load, node->index % LOAD_LIES);
    miscount(&digest->header, node->miscount);
    wire_begin_digest(out, &digest->header, digest->hops_left, digest->delta.first);
    struct reader runs = digest->delta.runs;
    struct wire_run run;
    while (wire_next_run(&runs, &run)) {
        if (!copy_names(run.names, run.n, names))
            return false;
        wire_write_run(out, run.removed, names, run.n);
    }
    return !out->failed;
}

/* One name too few. */
static bool falsify_page(const struct world_node *node, const struct wire_page *page, struct writer *out)
{
    uint64_t names[LONGEST_RUN];
    if (node->miscount != COUNTS_SHORT_PAGES || !page->n || !copy_names(page->names, page->n, names))
        return false;
    wire_write_page(out, page->epoch, page->sequence, page->page, names, page->n - 1);
    return !out->failed;
}

bool lies_falsify(const struct world_node *node, uint64_t boot_id, const uint8_t *data, size_t len, struct writer *out)
{
    struct wire_message message;
    if ((!node->liar && !node->miscount) || !len || (data[0] != WIRE_DIGEST && data[0] != WIRE_PAGE) || wire_decode(data, len, &message) < 0)
        return false;
    if (message.kind == WIRE_PAGE)
        return falsify_page(node, &message.page, out);
    return message.digest.header.epoch.boot_id == boot_id && falsify_digest(node, &message.digest, out);
}
