#include "core/cluster/replica.h"

#include <string.h>

#include "core/base/panic.h"

void replica_init(struct replica *r, struct replica_budget *budget)
{
    *r = (struct replica){.budget = budget};
}

void replica_fini(struct replica *r)
{
    if (!r->set)
        return;
    r->budget->blocks -= block_set_len(r->set);
    block_set_destroy(r->set);
    r->set = NULL;
}

void replica_clear(struct replica *r)
{
    replica_fini(r);
    replica_init(r, r->budget);
}

int replica_enter_epoch(struct replica *r, struct wire_epoch epoch)
{
    if (r->set && wire_epoch_equal(r->epoch, epoch))
        return 0;
    if (r->set && epoch.boot_id == r->epoch.boot_id && epoch.counter < r->epoch.counter)
        return HS_ERR_INVALID;
    replica_clear(r);
    r->set = block_set_create(0);
    if (!r->set)
        return HS_ERR_NO_MEMORY;
    r->epoch = epoch;
    return 0;
}

/* Whether it is new. */
static bool add(struct replica *r, uint64_t name)
{
    struct replica_budget *budget = r->budget;
    bool is_full = budget->blocks >= budget->max_blocks, is_share = budget->max_of_one && block_set_len(r->set) >= budget->max_of_one;
    if ((is_full || is_share) && !block_set_has(r->set, name)) {
        r->capped = true;
        budget->left_out += is_full;
        budget->left_out_of_one += !is_full;
        return false;
    }
    int rc = block_set_add(r->set, name);
    r->budget->blocks += rc == 1;
    r->capped |= rc < 0;
    return rc == 1;
}

static void take_away(struct replica *r, uint64_t name)
{
    if (block_set_remove(r->set, name))
        r->budget->blocks--;
}

static void apply_change(struct replica *r, uint64_t name, bool removed)
{
    uint32_t page = block_set_page_of(name);
    r->sequence++;
    r->page_changed[page] = r->sequence;
    if (r->stale[page] || r->sequence <= r->page_as_of[page])
        return;
    if (removed)
        take_away(r, name);
    else
        add(r, name);
}

uint32_t replica_apply_delta(struct replica *r, const struct wire_delta *delta)
{
    hs_assert(r->set);
    if (!delta->n_changes || delta->first > r->sequence + 1 || delta->first + delta->n_changes - 1 <= r->sequence)
        return 0;
    uint64_t skip = r->sequence + 1 - delta->first;
    uint32_t applied = delta->n_changes - (uint32_t)skip;
    struct reader runs = delta->runs;
    struct wire_run run;
    while (wire_next_run(&runs, &run)) {
        uint32_t from = skip < run.n ? (uint32_t)skip : run.n;
        skip -= from;
        for (uint32_t i = from; i < run.n; i++)
            apply_change(r, wire_name(run.names, i), run.removed);
    }
    return applied;
}

void replica_set_target(struct replica *r, uint64_t sequence, uint64_t checksum)
{
    if (sequence < r->target)
        return;
    r->target = sequence;
    r->target_checksum = checksum;
}

static void set_stale(struct replica *r, uint32_t page, bool stale)
{
    r->n_stale += stale;
    r->n_stale -= r->stale[page];
    r->stale[page] = stale;
}

void replica_apply_manifest(struct replica *r, uint64_t sequence, const uint8_t *checksums)
{
    if (!r->set || sequence < r->sequence)
        return;
    r->sequence = r->manifest_sequence = sequence;
    memcpy(r->manifest, checksums, sizeof r->manifest);
    r->capped = false; /* what did not fit differs, and is fetched again if there is room now */
    r->corrected = false;
    for (uint32_t page = 0; page < BLOCK_SET_PAGES; page++) {
        if (r->page_as_of[page] > sequence)
            continue; /* it came as of later than the manifest: ahead, not wrong */
        bool same = block_set_page_checksum(r->set, page) == wire_name(checksums, page);
        set_stale(r, page, !same);
        r->page_changed[page] = sequence; /* changes that we jumped over may have named it */
        if (same)
            r->page_as_of[page] = sequence;
    }
}

/* Names must ascend and belong to the page. */
static bool page_is_sound(const struct wire_page *page)
{
    for (uint32_t i = 0; i < page->n; i++) {
        uint64_t name = wire_name(page->names, i);
        if (block_set_page_of(name) != page->page || (i && wire_name(page->names, i - 1) >= name))
            return false;
    }
    return true;
}

/* As of which sequence the page is complete: later than it states, if nothing had changed in it until the manifest. */
static uint64_t as_of(const struct replica *r, const struct wire_page *page)
{
    if (page->sequence >= r->manifest_sequence)
        return page->sequence;
    uint64_t checksum = 0;
    for (uint32_t i = 0; i < page->n; i++)
        checksum += block_set_name_checksum(wire_name(page->names, i));
    return checksum == r->manifest[page->page] ? r->manifest_sequence : page->sequence;
}

/* All of it, as many at a time as are listed at once. */
static void empty_page(struct replica *r, uint32_t page)
{
    uint64_t names[256];
    uint32_t n;
    do {
        n = block_set_page_names(r->set, page, names, 256);
        for (uint32_t i = 0; i < n && i < 256; i++)
            take_away(r, names[i]);
    } while (n > 256);
}

bool replica_apply_page(struct replica *r, const struct wire_page *page)
{
    if (!r->set || !wire_epoch_equal(r->epoch, page->epoch) || !r->stale[page->page] || !page_is_sound(page))
        return false;
    uint64_t sequence = as_of(r, page);
    if (sequence < r->page_changed[page->page])
        return false;
    empty_page(r, page->page);
    for (uint32_t i = 0; i < page->n; i++)
        add(r, wire_name(page->names, i));
    r->page_as_of[page->page] = sequence;
    set_stale(r, page->page, false);
    return true;
}

/* A tenth of a bound is free, so that asking for what was left out is worth it. */
static bool has_room_again(const struct replica *r)
{
    const struct replica_budget *budget = r->budget;
    bool of_all = budget->blocks < budget->max_blocks - budget->max_blocks / 10;
    bool of_one = !budget->max_of_one || block_set_len(r->set) < budget->max_of_one - budget->max_of_one / 10;
    return of_all && of_one;
}

unsigned replica_need(const struct replica *r)
{
    if (!r->set)
        return 0;
    unsigned need = (r->target > r->sequence ? REPLICA_DELTAS : 0) | (r->n_stale ? REPLICA_PAGES : 0);
    if (need)
        return need;
    if (r->capped && !has_room_again(r) && !r->corrected)
        return 0;
    if (r->target == r->sequence && block_set_checksum(r->set) != r->target_checksum)
        return REPLICA_MANIFEST;
    return 0;
}

uint32_t replica_match(const struct replica *r, const uint64_t *names, uint32_t n)
{
    return r->set ? block_set_match(r->set, names, n) : 0;
}

void replica_correct(struct replica *r, const uint64_t *names, uint32_t n, uint32_t n_held)
{
    if (!r->set)
        return;
    for (uint32_t i = 0; i < n; i++)
        if (i >= n_held)
            take_away(r, names[i]);
        else if (!r->capped) /* else no checksum would ever take it back */
            r->corrected |= add(r, names[i]);
}

uint32_t replica_blocks(const struct replica *r)
{
    return r->set ? block_set_len(r->set) : 0;
}
