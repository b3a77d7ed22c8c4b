/*
 * SWIM's part of a struct cluster: who is probed, suspected, dead, and alive again, and how that is passed on. Like internal.h for
 * this folder only; one thread.
 */
#ifndef HEARSAY_CLUSTER_SWIM_H
#define HEARSAY_CLUSTER_SWIM_H

#include <stdint.h>

#include "core/base/codec.h"
#include "core/cluster/wire.h"

struct cluster;
struct member;

/* swim.c */

void swim_step(struct cluster *c, uint64_t now_ns);
/* When swim_step has something to do next. */
uint64_t swim_next(const struct cluster *c);
void swim_probe(struct cluster *c, struct member *m, uint64_t now_ns);
void swim_on_probe(struct cluster *c, struct member *from, const struct wire_message *message, uint64_t now_ns);
/* A message came from it: one that is held to be suspect or dead is told so, and refutes it. */
void swim_heard(struct cluster *c, struct member *from, uint64_t now_ns);
/* One that was dead is alive: those that went with it may be back, too, and are called at once. */
void swim_call_the_dead(struct cluster *c, uint64_t now_ns);
void swim_suspect(struct cluster *c, struct member *m, uint64_t accuser_boot_id, uint64_t now_ns);
/* The accuser says that it is dead, as of an incarnation that we know of no later one of. */
void swim_hear_of_death(struct cluster *c, struct member *m, uint64_t accuser_boot_id, uint32_t incarnation, uint64_t now_ns);

/* spread.c */
void spread_write_self(const struct cluster *c, struct wire_member *out);
/* Appends member states worth passing on, as room allows; what `to` should hear about itself comes first. */
void spread_append(struct cluster *c, const struct member *to, struct writer *w);
void spread_apply(struct cluster *c, struct member *from, struct wire_list members, uint64_t now_ns);
/* HELLO; a second one on the same connection asks for the members too. */
void spread_hello(struct cluster *c, struct member *to, uint64_t now_ns);
void spread_on_hello(struct cluster *c, struct member *from, const struct wire_hello *hello, uint64_t now_ns);
void spread_members(struct cluster *c, struct member *to);

#endif
