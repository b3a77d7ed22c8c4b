#include "core/serve/admission.h"

#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/panic.h"

void admission_init(struct admission *admission)
{
    memset(admission, 0, sizeof *admission);
}

static double least_served(const struct admission *admission)
{
    double least = -1;
    for (uint32_t i = 0; i < admission->n_tenants; i++) {
        const struct tenant *t = &admission->tenants[i];
        if (t->users && (least < 0 || t->served < least))
            least = t->served;
    }
    return least < 0 ? 0 : least;
}

static float weight_of(const struct admission *admission, const char *name)
{
    for (uint32_t i = 0; i < admission->n_weights; i++)
        if (strncmp(admission->weights[i].name, name, REQUEST_TENANT_BYTES) == 0)
            return admission->weights[i].weight;
    return 1;
}

/* Slot of the name, a fresh or idle slot otherwise, the last one when all are in use. */
static uint16_t find_slot(struct admission *admission, const char *name)
{
    uint32_t idle = ADMISSION_TENANTS;
    for (uint32_t i = 0; i < admission->n_tenants; i++) {
        if (strncmp(admission->tenants[i].name, name, REQUEST_TENANT_BYTES) == 0)
            return (uint16_t)i;
        if (!admission->tenants[i].users && idle == ADMISSION_TENANTS)
            idle = i;
    }
    if (admission->n_tenants < ADMISSION_TENANTS)
        idle = admission->n_tenants++;
    if (idle == ADMISSION_TENANTS) {
        admission->lumped++;
        return ADMISSION_TENANTS - 1;
    }
    struct tenant *t = &admission->tenants[idle];
    *t = (struct tenant){.weight = weight_of(admission, name)};
    size_t length = strnlen(name, REQUEST_TENANT_BYTES - 1);
    memcpy(t->name, name, length);
    return (uint16_t)idle;
}

uint16_t admission_enter(struct admission *admission, const char *tenant)
{
    uint16_t slot = find_slot(admission, tenant);
    struct tenant *t = &admission->tenants[slot];
    if (!t->users) {
        double least = least_served(admission);
        if (t->served < least)
            t->served = least;
    }
    admission->n_users += !t->users;
    t->users++;
    return slot;
}

void admission_exit(struct admission *admission, uint16_t tenant)
{
    hs_assert(admission->tenants[tenant].users > 0);
    admission->n_users -= !--admission->tenants[tenant].users;
}

int admission_set_weight(struct admission *admission, const char *tenant, float weight)
{
    if (!(weight > 0))
        return HS_ERR_RANGE;
    uint32_t at = 0;
    while (at < admission->n_weights && strncmp(admission->weights[at].name, tenant, REQUEST_TENANT_BYTES) != 0)
        at++;
    if (at == ADMISSION_WEIGHTS)
        return HS_ERR_LIMIT;
    if (at == admission->n_weights)
        snprintf(admission->weights[admission->n_weights++].name, REQUEST_TENANT_BYTES, "%s", tenant);
    admission->weights[at].weight = weight;
    for (uint32_t i = 0; i < admission->n_tenants; i++)
        if (strncmp(admission->tenants[i].name, tenant, REQUEST_TENANT_BYTES) == 0)
            admission->tenants[i].weight = weight;
    return 0;
}

static bool goes_before(const struct sequence *a, const struct sequence *b)
{
    return a->priority != b->priority ? a->priority < b->priority : a->arrival < b->arrival;
}

void admission_enqueue(struct admission *admission, struct sequence *sequence)
{
    struct tenant *t = &admission->tenants[sequence->tenant];
    struct sequence *after = t->tail; /* newcomers usually belong at the end */
    while (after && goes_before(sequence, after))
        after = after->previous;
    sequence->previous = after;
    sequence->next = after ? after->next : t->head;
    if (sequence->next)
        sequence->next->previous = sequence;
    else
        t->tail = sequence;
    if (after)
        after->next = sequence;
    else
        t->head = sequence;
    t->n_waiting++;
    admission->n_waiting++;
    admission->waiting_rows += sequence->expected_rows;
    sequence->state = SEQUENCE_WAITING;
}

void admission_remove(struct admission *admission, struct sequence *sequence)
{
    struct tenant *t = &admission->tenants[sequence->tenant];
    hs_assert(sequence->state == SEQUENCE_WAITING && t->n_waiting > 0);
    admission_follow(admission, sequence, false);
    if (t->cursor == sequence)
        t->cursor = sequence->next;
    if (sequence->previous)
        sequence->previous->next = sequence->next;
    else
        t->head = sequence->next;
    if (sequence->next)
        sequence->next->previous = sequence->previous;
    else
        t->tail = sequence->previous;
    sequence->next = sequence->previous = NULL;
    t->n_waiting--;
    admission->n_waiting--;
    admission->waiting_rows -= sequence->expected_rows;
    sequence->state = SEQUENCE_IDLE;
}

void admission_expect(struct admission *admission, struct sequence *sequence, uint32_t rows)
{
    admission->waiting_rows += rows;
    admission->waiting_rows -= sequence->expected_rows;
    sequence->expected_rows = rows;
}

void admission_follow(struct admission *admission, struct sequence *sequence, bool follows)
{
    admission->n_following += follows;
    admission->n_following -= sequence->follows;
    sequence->follows = follows;
}

void admission_walk_begin(struct admission *admission)
{
    for (uint32_t i = 0; i < admission->n_tenants; i++) {
        admission->tenants[i].cursor = admission->tenants[i].head;
        admission->tenants[i].pending = 0;
    }
}

void admission_promise(struct admission *admission, uint16_t tenant, uint32_t rows)
{
    admission->tenants[tenant].pending += rows / (double)admission->tenants[tenant].weight;
}

struct sequence *admission_walk_next(struct admission *admission)
{
    struct tenant *best = NULL;
    for (uint32_t i = 0; i < admission->n_tenants; i++) {
        struct tenant *t = &admission->tenants[i];
        if (t->cursor && (!best || t->served + t->pending < best->served + best->pending))
            best = t;
    }
    if (!best)
        return NULL;
    struct sequence *candidate = best->cursor;
    best->cursor = candidate->next;
    return candidate;
}

void admission_charge(struct admission *admission, uint16_t tenant, uint32_t rows)
{
    admission->tenants[tenant].served += rows / (double)admission->tenants[tenant].weight;
}

double admission_served(const struct admission *admission, uint16_t tenant)
{
    return admission->tenants[tenant].served;
}
