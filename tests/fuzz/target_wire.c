/* One message of the cluster. What decodes is walked to its end, and a hello encodes to the same bytes again. */
#include <stdlib.h>
#include <string.h>

#include "core/cluster/wire.h"
#include "tests/fuzz/fuzz.h"

static void walk_members(struct wire_list members)
{
    struct wire_member member;
    uint32_t n = 0;
    while (wire_next_member(&members, &member)) {
        hs_assert(strnlen(member.name, sizeof member.name) < sizeof member.name);
        hs_assert(strnlen(member.address, sizeof member.address) < sizeof member.address);
        hs_assert(member.state <= WIRE_LEFT);
        hs_assert(++n <= WIRE_MEMBERS_MAX);
    }
}

static void walk_weights(struct wire_list weights)
{
    struct cluster_weight weight;
    uint32_t n = 0;
    while (wire_next_weight(&weights, &weight)) {
        hs_assert(strnlen(weight.tenant, sizeof weight.tenant) < sizeof weight.tenant);
        hs_assert(weight.weight > 0);
        hs_assert(++n <= CLUSTER_WEIGHTS_MAX);
    }
}

static volatile uint64_t sink; /* so that reads of names are not optimised away */

static void walk_names(const uint8_t *names, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        sink = sink ^ wire_name(names, i);
}

static void walk_digest(const struct wire_digest *digest)
{
    struct reader runs = digest->delta.runs;
    struct wire_run run;
    uint64_t n = 0;
    while (wire_next_run(&runs, &run)) {
        walk_names(run.names, run.n);
        n += run.n;
    }
    hs_assert(n == digest->delta.n_changes);
}

static void check_hello(const struct wire_hello *hello, const uint8_t *data, size_t len)
{
    uint8_t again[1024];
    struct writer w;
    writer_init(&w, again, sizeof again);
    wire_write_hello(&w, hello);
    hs_assert(!w.failed && w.len == len && memcmp(again, data, len) == 0);
}

int fuzz_wire(const uint8_t *data, size_t len)
{
    struct wire_message message;
    uint8_t *bytes = fuzz_copy(data, len);
    if (wire_decode(bytes, len, &message) == 0) {
        switch (message.kind) {
        case WIRE_HELLO: check_hello(&message.hello, bytes, len); break;
        case WIRE_MEMBERS: walk_members(message.members); break;
        case WIRE_PING:
        case WIRE_PING_REQUEST:
        case WIRE_ACK: walk_members(message.probe.members); break;
        case WIRE_DIGEST: walk_digest(&message.digest); break;
        case WIRE_MANIFEST: walk_names(message.manifest.checksums, BLOCK_SET_PAGES); break;
        case WIRE_PAGE: walk_names(message.page.names, message.page.n); break;
        case WIRE_INTENT: walk_names(message.intent.blocks, message.intent.n); break;
        case WIRE_WEIGHTS: walk_weights(message.weights); break;
        default: break;
        }
    }
    free(bytes);
    return 0;
}
