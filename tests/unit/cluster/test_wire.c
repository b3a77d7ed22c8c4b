#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/rng.h"
#include "core/cluster/wire.h"

enum { N_SAMPLES = 14 };

struct sample {
    uint8_t data[4096];
    struct writer w;
};

static struct sample samples[N_SAMPLES];

static const struct wire_member member = {"alpha", "10.0.0.1:7070", "10.0.0.1:8080", 0x1122334455667788, 9, WIRE_SUSPECT};
static const struct wire_epoch epoch = {0xabcdef, 3};

static struct writer *start(int i)
{
    writer_init(&samples[i].w, samples[i].data, sizeof samples[i].data);
    return &samples[i].w;
}

static void write_digest(struct writer *w)
{
    struct wire_header header = {.epoch = epoch,
                                 .stamp = 5,
                                 .sequence = 13,
                                 .checksum = 77,
                                 .n_blocks = 4,
                                 .page_tokens = 16,
                                 .load = {.waiting = 1,
                                          .running = 300,
                                          .prefill_tokens = 1u << 20,
                                          .decode_tokens = 64,
                                          .prefill_tokens_per_s = 512.5f,
                                          .decode_step_s = 0.0125f,
                                          .free_pages = 10,
                                          .total_pages = 20,
                                          .push_back = true},
                                 .fingerprint = {1, 2, 3},
                                 .arithmetic = "f32-avx512"};
    uint64_t added[] = {1, 2, 3}, removed[] = {2};
    wire_begin_digest(w, &header, 4, 10);
    wire_write_run(w, false, added, 3);
    wire_write_run(w, true, removed, 1);
}

static int make_samples(void **state)
{
    uint64_t names[BLOCK_SET_PAGES];
    for (uint32_t i = 0; i < BLOCK_SET_PAGES; i++)
        names[i] = i * 3 + 1;
    struct wire_hello hello = {member, true};
    wire_write_hello(start(0), &hello);
    wire_begin_members(start(1));
    wire_write_member(&samples[1].w, &member);
    wire_write_member(&samples[1].w, &member);
    for (int kind = WIRE_PING; kind <= WIRE_NACK; kind++) {
        struct writer *w = start(2 + kind - WIRE_PING);
        wire_begin_probe(w, kind, 42, 43);
        if (kind != WIRE_NACK)
            wire_write_member(w, &member);
    }
    wire_write_leave(start(6), 8);
    write_digest(start(7));
    struct wire_pull pull = {epoch, 12, true};
    wire_write_pull(start(8), &pull);
    wire_write_manifest(start(9), epoch, 99, names);
    struct wire_page_request request = {.epoch = epoch, .pages = {0x81}};
    wire_write_page_request(start(10), &request);
    wire_write_page(start(11), epoch, 99, 255, names, 20);
    struct wire_intent intent = {.id = 5, .target_boot_id = 6, .ttl_ms = 7, .ready_ms = 8, .uncached_tokens = 9, .n = 4};
    wire_write_intent(start(12), &intent, names);
    const struct cluster_weight weights[] = {{"gold", 4}, {"", 0.5f}};
    wire_write_weights(start(13), weights, 2);
    return 0;
}

static void test_round_trip(void **state)
{
    struct wire_message m;
    for (int i = 0; i < N_SAMPLES; i++) {
        assert_false(samples[i].w.failed);
        assert_int_equal(wire_decode(samples[i].data, samples[i].w.len, &m), 0);
        assert_int_equal(m.kind, i + 1);
    }
    wire_decode(samples[0].data, samples[0].w.len, &m);
    assert_true(m.hello.wants_members);
    assert_memory_equal(m.hello.self.name, "alpha", 6);
    assert_string_equal(m.hello.self.http_address, "10.0.0.1:8080");
    wire_decode(samples[3].data, samples[3].w.len, &m);
    struct wire_member out;
    assert_int_equal(m.probe.number, 42);
    assert_int_equal(m.probe.target_boot_id, 43);
    assert_true(wire_next_member(&m.probe.members, &out));
    assert_true(out.boot_id == member.boot_id && out.incarnation == 9 && out.state == WIRE_SUSPECT);
    assert_false(wire_next_member(&m.probe.members, &out));
}

static void test_digest_fields(void **state)
{
    struct wire_message m;
    assert_int_equal(wire_decode(samples[7].data, samples[7].w.len, &m), 0);
    const struct cluster_load *load = &m.digest.header.load;
    assert_int_equal(m.digest.hops_left, 4);
    assert_int_equal(samples[7].data[WIRE_DIGEST_HOPS_AT], 4);
    assert_true(load->running == 300 && load->prefill_tokens == 1u << 20 && load->push_back && !load->draining);
    assert_true(load->prefill_tokens_per_s == 512.5f && load->decode_step_s == 0.0125f);
    assert_string_equal(m.digest.header.arithmetic, "f32-avx512");
    assert_int_equal(m.digest.delta.n_changes, 4);
    struct wire_run run;
    assert_true(wire_next_run(&m.digest.delta.runs, &run) && !run.removed && run.n == 3 && wire_name(run.names, 2) == 3);
    assert_true(wire_next_run(&m.digest.delta.runs, &run) && run.removed && run.n == 1 && wire_name(run.names, 0) == 2);
    assert_false(wire_next_run(&m.digest.delta.runs, &run));
}

static void test_weights(void **state)
{
    struct wire_message m;
    struct cluster_weight weight, many[CLUSTER_WEIGHTS_MAX + 1];
    uint8_t buffer[8192];
    struct writer w;
    assert_int_equal(wire_decode(samples[13].data, samples[13].w.len, &m), 0);
    assert_true(wire_next_weight(&m.weights, &weight) && weight.weight == 4);
    assert_string_equal(weight.tenant, "gold");
    assert_true(wire_next_weight(&m.weights, &weight) && weight.weight == 0.5f);
    assert_string_equal(weight.tenant, "");
    assert_false(wire_next_weight(&m.weights, &weight));
    for (uint32_t n = CLUSTER_WEIGHTS_MAX; n <= CLUSTER_WEIGHTS_MAX + 1; n++) {
        for (uint32_t i = 0; i < n; i++)
            many[i] = (struct cluster_weight){"t", 2};
        writer_init(&w, buffer, sizeof buffer);
        wire_write_weights(&w, many, n);
        assert_int_equal(wire_decode(buffer, w.len, &m), n > CLUSTER_WEIGHTS_MAX ? HS_ERR_PROTOCOL : 0);
    }
    many[0].weight = 0;
    writer_init(&w, buffer, sizeof buffer);
    wire_write_weights(&w, many, 1);
    assert_int_equal(wire_decode(buffer, w.len, &m), HS_ERR_PROTOCOL);
}

static void test_rejects(void **state)
{
    struct wire_message m;
    uint8_t copy[4096];
    assert_int_equal(wire_decode("", 0, &m), HS_ERR_PROTOCOL);
    for (int i = 0; i < N_SAMPLES; i++) {
        size_t len = samples[i].w.len;
        memcpy(copy, samples[i].data, len);
        copy[1] = WIRE_VERSION + 1;
        assert_int_equal(wire_decode(copy, len, &m), HS_ERR_UNSUPPORTED);
    }
    copy[0] = WIRE_KINDS;
    copy[1] = WIRE_VERSION;
    assert_int_equal(wire_decode(copy, 20, &m), HS_ERR_UNSUPPORTED);
    /* A rate that is no number, and a delta beyond its header's sequence. */
    struct wire_header header = {.epoch = epoch, .sequence = 3};
    struct writer w;
    uint64_t names[] = {1, 2};
    writer_init(&w, copy, sizeof copy);
    wire_begin_digest(&w, &header, 0, 3);
    wire_write_run(&w, false, names, 2);
    assert_int_equal(wire_decode(copy, w.len, &m), HS_ERR_PROTOCOL);
    header.load.decode_step_s = __builtin_nanf("");
    writer_init(&w, copy, sizeof copy);
    wire_begin_digest(&w, &header, 0, 3);
    assert_int_equal(wire_decode(copy, w.len, &m), HS_ERR_PROTOCOL);
}

/* Reads everything that a decoded message points to, so that a sanitizer sees a view that is too long. */
static uint64_t consume(struct wire_message *m)
{
    uint64_t sum = 0;
    struct wire_member at;
    struct wire_run run;
    struct cluster_weight weight;
    struct wire_list members = m->kind == WIRE_MEMBERS ? m->members : m->probe.members;
    switch (m->kind) {
    case WIRE_MEMBERS:
    case WIRE_PING:
    case WIRE_PING_REQUEST:
    case WIRE_ACK:
        while (wire_next_member(&members, &at))
            sum += at.boot_id + strlen(at.name) + strlen(at.address) + strlen(at.http_address);
        assert_int_equal(members.left, 0);
        break;
    case WIRE_DIGEST:
        while (wire_next_run(&m->digest.delta.runs, &run))
            for (uint32_t i = 0; i < run.n; i++)
                sum += wire_name(run.names, i);
        break;
    case WIRE_MANIFEST:
        for (uint32_t i = 0; i < BLOCK_SET_PAGES; i++)
            sum += wire_name(m->manifest.checksums, i);
        break;
    case WIRE_PAGE:
        for (uint32_t i = 0; i < m->page.n; i++)
            sum += wire_name(m->page.names, i);
        break;
    case WIRE_INTENT:
        for (uint32_t i = 0; i < m->intent.n; i++)
            sum += wire_name(m->intent.blocks, i);
        break;
    case WIRE_WEIGHTS:
        while (wire_next_weight(&m->weights, &weight))
            sum += strlen(weight.tenant);
        assert_int_equal(m->weights.left, 0);
        break;
    default:
        break;
    }
    return sum;
}

/* Seeded mutations, each in a block of exactly its size: flips, cuts, joins. Whole or not at all, and never past the end. */
static void test_mutations(void **state)
{
    struct rng rng;
    rng_seed(&rng, 20240601);
    uint64_t sum = 0;
    uint32_t accepted = 0;
    for (int round = 0; round < 60000; round++) {
        const struct sample *sample = &samples[rng_below(&rng, N_SAMPLES)];
        size_t len = sample->w.len;
        if (rng_below(&rng, 2))
            len = rng_below(&rng, len + 1);
        size_t extra = rng_below(&rng, 4) ? 0 : rng_below(&rng, 40);
        uint8_t *data = malloc(len + extra + 1);
        memcpy(data, sample->data, len);
        for (size_t i = 0; i < extra; i++)
            data[len + i] = (uint8_t)rng_u64(&rng);
        len += extra;
        for (uint64_t flips = rng_below(&rng, 6); flips && len > 2; flips--)
            data[2 + rng_below(&rng, len - 2)] = (uint8_t)rng_u64(&rng);
        uint8_t *exact = malloc(len ? len : 1);
        memcpy(exact, data, len);
        struct wire_message m;
        if (wire_decode(exact, len, &m) == 0) {
            accepted++;
            sum += consume(&m);
        }
        free(exact);
        free(data);
    }
    assert_true(accepted > 1000);
    assert_true(sum != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_digest_fields),
        cmocka_unit_test(test_weights), cmocka_unit_test(test_rejects),
        cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests(tests, make_samples, NULL);
}
