/*
 * What a listener reads of a peer's digest (region.h has what stands where), instead of asking for it: the header in its turn, and then
 * what the replica lacks. Like internal.h for this folder only; node loop only.
 *
 * A batch of reads is under way at a time, and the next begins when the last one has ended. A batch that failed, or that brought nothing
 * that was missing, sends the listener to messages for a while (50 ms, doubling to 30 s as long as batches fail; 10 s where the peer
 * publishes nothing, and where a read has not ended after 2 s).
 */
#ifndef HEARSAY_CLUSTER_READS_H
#define HEARSAY_CLUSTER_READS_H

#include <stdbool.h>
#include <stdint.h>

struct cluster;
struct member;
struct transport_event;

struct digest_reads {
    uint32_t generation; /* reads of an earlier connection or process are not ours any more */
    uint32_t pending;
    bool head_pending, has_failed;
    bool round_went;    /* since the header was read last: else rounds would never have a turn where that takes long */
    uint32_t n_put_off; /* times in a row that there was no room for the header since then */
    unsigned need; /* and as of which state the batch began */
    uint64_t sequence, began_ns;
    uint64_t expected_bytes, brought_bytes; /* the first count against the peer's byte rate when they are asked for, what exceeds them at the end */
    uint32_t n_stale;
    uint32_t head_bytes; /* of the last one */
    uint32_t page_bytes; /* of the longest of the snapshot's so far, 0: none was read */
    uint64_t head_at_ns, head_began_ns, interval_ns; /* when to read the header, and how long after it the next time */
    uint64_t by_message_until_ns, back_off_ns;
};

/* The peer came up, perhaps as another process. */
void reads_reset(struct cluster *c, struct member *m);
/* Reads the header when it is due; returns when to be called again. */
uint64_t reads_step(struct cluster *c, struct member *m, uint64_t now_ns);
/* Whether what the peer has can be read at present. */
bool reads_work(const struct cluster *c, const struct member *m, uint64_t now_ns);
/* Rounds have taken all that was spare of the peer's byte rate, time after time, and are to leave it to the header's read once. */
bool reads_are_starved(const struct member *m);
/* Whether a batch is under way. */
bool reads_pending(const struct member *m);
/* Begins a batch for what is missing (flags of replica.h). False: no room within the byte rate, or it failed at once. None may be under way. */
bool reads_ask(struct cluster *c, struct member *m, unsigned need, uint64_t now_ns);
void reads_on_done(struct cluster *c, const struct transport_event *event, uint64_t now_ns);

#endif
