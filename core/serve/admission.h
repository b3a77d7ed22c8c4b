/*
 * Who waits, and who is next: a bounded queue for each tenant and the books of what each was given.
 *
 *     tenant a   served 812   [seq][seq][seq]     by priority, then by arrival
 *     tenant b   served 640   [seq]           <-- least served: its first is the next candidate
 *
 * Fair sharing is start-time fair queueing over computed rows (Goyal, Vin, Cheng, SIGCOMM 1996): a tenant's account grows by rows /
 * weight, the smallest account goes first, and a tenant that was idle starts at the smallest account in use, so that it cannot save
 * up. Priorities order a tenant's own requests only: nobody overtakes another tenant by asking for it.
 *
 * Threading: node loop only. No allocation after init. More tenants than ADMISSION_TENANTS at once share the last account.
 */
#ifndef HEARSAY_SERVE_ADMISSION_H
#define HEARSAY_SERVE_ADMISSION_H

#include <stdbool.h>
#include <stdint.h>

#include "core/serve/sequence.h"

enum { ADMISSION_TENANTS = 256, ADMISSION_WEIGHTS = 64 };

struct tenant {
    char name[REQUEST_TENANT_BYTES];
    double served; /* rows / weight */
    float weight;
    uint32_t users; /* its sequences, waiting or running; 0: the slot may be reused */
    struct sequence *head, *tail;
    struct sequence *cursor; /* of the candidate walk under way */
    double pending;          /* rows / weight promised to its running sequences, of the walk under way */
    uint32_t n_waiting;
};

struct tenant_weight {
    char name[REQUEST_TENANT_BYTES];
    float weight;
};

struct admission {
    struct tenant tenants[ADMISSION_TENANTS];
    uint32_t n_tenants, n_users; /* n_users: tenants with a sequence here */
    uint64_t lumped;             /* sequences that share the last account for want of one of their own */
    struct tenant_weight weights[ADMISSION_WEIGHTS];
    uint32_t n_weights;
    uint32_t n_waiting;
    uint32_t n_following;  /* of these, they wait only for a prefix that a running sequence is computing */
    uint64_t waiting_rows; /* that those who wait are expected to need before their first token */
};

void admission_init(struct admission *admission);
/* Takes the tenant's account for one more sequence, and gives it back. */
uint16_t admission_enter(struct admission *admission, const char *tenant);
void admission_exit(struct admission *admission, uint16_t tenant);
/* Of the tenant, now and whenever it gets an account; all others have 1. 0, HS_ERR_LIMIT (ADMISSION_WEIGHTS are set) or HS_ERR_RANGE. */
int admission_set_weight(struct admission *admission, const char *tenant, float weight);

void admission_enqueue(struct admission *admission, struct sequence *sequence);
void admission_remove(struct admission *admission, struct sequence *sequence);
/* A better estimate of the rows that a waiting sequence will need. */
void admission_expect(struct admission *admission, struct sequence *sequence, uint32_t rows);
/* Whether it waits for nothing but a prefix that is being computed. */
void admission_follow(struct admission *admission, struct sequence *sequence, bool follows);

/*
 * Walks candidates in fair order: begin, then promise() the rows of everything that runs, then next() until NULL. A candidate that
 * is let in is removed with admission_remove and its rows promised; the walk goes on behind it.
 */
void admission_walk_begin(struct admission *admission);
void admission_promise(struct admission *admission, uint16_t tenant, uint32_t rows);
struct sequence *admission_walk_next(struct admission *admission);

/* Rows were computed for the tenant. */
void admission_charge(struct admission *admission, uint16_t tenant, uint32_t rows);
double admission_served(const struct admission *admission, uint16_t tenant);

#endif
