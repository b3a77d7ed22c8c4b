/*
 * Anti-entropy's part of a struct cluster: what is told, what is asked for by message, and what comes. Like internal.h for this folder
 * only; one thread. What is read instead of asked for: reads.h.
 */
#ifndef HEARSAY_CLUSTER_GOSSIP_H
#define HEARSAY_CLUSTER_GOSSIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/cluster/wire.h"

struct cluster;
struct member;

enum { SYNC_SNAPSHOT_SLACK = 512 }; /* a replica that is behind by so many changes more than there are blocks takes the snapshot */

/* gossip.c */
void gossip_step(struct cluster *c, uint64_t now_ns);
uint64_t gossip_next(const struct cluster *c);
/* The time, or that of our next round if it is no farther from it: a node at rest then wakes once for both. */
uint64_t gossip_near_round(const struct cluster *c, uint64_t at_ns, uint64_t slack_ns);
struct wire_epoch gossip_epoch(const struct cluster *c);
/* Our header as of now, with the next stamp. */
void gossip_fill_header(struct cluster *c, struct wire_header *out);
/* Whether the upper half of the peer's byte rate has room: the lower one is for questions and answers. */
bool gossip_has_spare(struct cluster *c, struct member *m, uint64_t now_ns);
/* Sends changes from `first` on to m; returns the number behind the last one sent. */
uint64_t gossip_push(struct cluster *c, struct member *m, uint64_t first, uint8_t hops, uint32_t max_datagrams, uint64_t now_ns);
/* Whether the peer's byte rate has room now; takes the bytes if so. */
bool gossip_take(struct cluster *c, struct member *m, size_t bytes, uint64_t now_ns);
/* Takes bytes that have come already, into debt if need be. */
void gossip_charge(struct cluster *c, struct member *m, size_t bytes, uint64_t now_ns);
void gossip_relay(struct cluster *c, const struct member *from, const struct wire_digest *digest, const uint8_t *data, size_t len,
                  uint64_t now_ns);

/* sync.c */
/* It became alive: what we hold is told and what it holds is asked, without waiting for a round. */
void sync_begin(struct cluster *c, struct member *m, uint64_t now_ns);
void sync_on_digest(struct cluster *c, struct member *from, const struct wire_digest *digest, const uint8_t *data, size_t len,
                    uint64_t now_ns);
void sync_on_pull(struct cluster *c, struct member *from, const struct wire_pull *pull, uint64_t now_ns);
void sync_on_page_request(struct cluster *c, struct member *from, const struct wire_page_request *request, uint64_t now_ns);
void sync_on_manifest(struct cluster *c, struct member *from, const struct wire_manifest *manifest, uint64_t now_ns);
void sync_on_page(struct cluster *c, struct member *from, const struct wire_page *page, uint64_t now_ns);
/* Asks for what is missing, if it is time; returns when to ask next. */
uint64_t sync_ask(struct cluster *c, struct member *m, uint64_t now_ns);

#endif
