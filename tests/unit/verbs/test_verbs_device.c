/* The verbs transport on a device that is memory (fake_device.h): what the conformance suite does not see. Time is counted, not read. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/rng.h"
#include "net/verbs/verbs.h"
#include "tests/unit/verbs/fake_device.h"

#define MS UINT64_C(1000000)
enum { REGION = 3, MOST_READS = 16 };
static const uint64_t STEP_NS = 100000, KEPT_BYTES = 4 << 20;
static const uint8_t key[NET_GROUP_KEY_BYTES] = "a group's key";

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
static bool no_memory;

void *__wrap_malloc(size_t bytes)
{
    return no_memory ? NULL : __real_malloc(bytes);
}

struct end {
    struct transport *transport;
    uint32_t peer, reads, messages, message_bytes, ups, downs;
    bool up;
    int read_status;
    uint8_t first; /* byte of the page, or of the message */
    uint8_t firsts[64]; /* of the messages, in order */
    uint32_t len;
};

struct world {
    struct env env;
    struct rng rng;
    uint64_t now_ns;
    struct end end[2]; /* 0 reads what 1 publishes */
};

static uint64_t counted_now(void *self)
{
    return ((struct world *)self)->now_ns;
}

static uint64_t drawn(void *self)
{
    return rng_u64(&((struct world *)self)->rng);
}

static int poll_some(struct world *world, struct end *end, int most)
{
    struct transport_event events[8];
    int n = end->transport->ops->poll(end->transport, world->now_ns, events, most);
    for (int i = 0; i < n; i++) {
        const struct transport_event *event = &events[i];
        if (event->kind == TRANSPORT_PEER_UP || event->kind == TRANSPORT_PEER_DOWN) {
            end->up = event->kind == TRANSPORT_PEER_UP;
            end->ups += end->up;
            end->downs += !end->up;
            end->peer = event->peer;
            continue;
        }
        end->reads += event->kind == TRANSPORT_READ_DONE;
        end->messages += event->kind == TRANSPORT_MESSAGE;
        if (event->kind == TRANSPORT_READ_DONE)
            end->read_status = event->status;
        end->len = event->len;
        end->first = event->len > 0 ? event->data[0] : 0;
        if (event->kind == TRANSPORT_MESSAGE)
            end->firsts[end->messages % sizeof end->firsts] = end->first;
    }
    return n;
}

static int poll_end(struct world *world, struct end *end)
{
    return poll_some(world, end, 8);
}

static void step(struct world *world)
{
    world->now_ns += STEP_NS;
    for (int i = 0; i < 2; i++)
        poll_end(world, &world->end[i]);
}

/* Until so many reads have ended at end 0; false: not within that time. */
static bool run_until_read(struct world *world, uint32_t reads, uint64_t limit_ns)
{
    for (uint64_t end_ns = world->now_ns + limit_ns; world->end[0].reads < reads && world->now_ns < end_ns;)
        step(world);
    return world->end[0].reads >= reads;
}

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    struct transport_verbs_config config = {.bind = "127.0.0.1:0", .group_key = key};
    struct transport_info info;
    assert_non_null(world);
    fake_device = (struct fake_device){.registered_bytes = 0};
    world->env = (struct env){.now_ns = counted_now, .random_u64 = drawn, .self = world};
    world->now_ns = 1000 * MS;
    rng_seed(&world->rng, 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(transport_verbs_create(&config, &world->env, &world->end[i].transport, NULL), 0);
    world->end[1].transport->ops->info(world->end[1].transport, &info);
    assert_true(info.reads_pages);
    assert_int_equal(world->end[0].transport->ops->resolve(world->end[0].transport, info.local, &world->end[0].peer), 0);
    for (int i = 0; i < 100000 && !(world->end[0].up && world->end[1].up); i++)
        step(world);
    assert_true(world->end[0].up && world->end[1].up);
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    for (int i = 0; i < 2; i++)
        world->end[i].transport->ops->destroy(world->end[i].transport);
    assert_int_equal(fake_device.registered_bytes, 0);
    assert_int_equal(fake_device.n_queue_pairs, 0);
    free(world);
    return 0;
}

static void publish(struct world *world, uint32_t n_pages, uint32_t page_bytes, uint32_t written)
{
    struct transport *origin = world->end[1].transport;
    uint8_t *content = malloc(written);
    assert_non_null(content);
    assert_int_equal(origin->ops->publish(origin, REGION, n_pages, page_bytes), 0);
    for (uint32_t page = 0; page < n_pages; page++) {
        memset(content, (int)(0x10 + page), written);
        assert_int_equal(origin->ops->write_page(origin, REGION, page, content, written), 0);
    }
    free(content);
}

static int ask(struct world *world, uint32_t page, uint32_t expected)
{
    struct end *reader = &world->end[0];
    return reader->transport->ops->read_page(reader->transport, reader->peer, REGION, page, expected, page);
}

static void say(struct world *world, int from, const void *data, size_t len)
{
    struct end *end = &world->end[from];
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    assert_int_equal(end->transport->ops->send(end->transport, end->peer, &iov, 1, 0), 0);
}

/* ---- tests ---- */

static void test_a_message_leaves_and_arrives_within_one_look(void **state)
{
    struct world *world = *state;
    for (uint32_t i = 1; i <= 1000; i++) {
        uint64_t sends = fake_device.sends_posted;
        say(world, i % 2, &(uint8_t){(uint8_t)i}, 1);
        assert_int_equal(fake_device.sends_posted, sends + 1);
        world->now_ns += STEP_NS;
        struct end *other = &world->end[1 - i % 2];
        assert_int_equal(poll_end(world, other), 1);
        assert_int_equal(other->first, (uint8_t)i);
        assert_int_equal(other->len, 1);
        poll_end(world, &world->end[i % 2]);
    }
    assert_int_equal(fake_device.receiver_not_ready, 0);
}

/* Gathered where they leave from, posted with one call, and in order with short ones between them. */
static void test_long_messages_leave_together(void **state)
{
    enum { MESSAGES = 28 };
    struct world *world = *state;
    struct transport_verbs_stats before, after;
    uint8_t content[8000] = {0};
    for (uint32_t round = 0; round < 20; round++) {
        bool mixed = round % 2;
        uint32_t messages = world->end[1].messages;
        assert_int_equal(transport_verbs_stats(world->end[0].transport, &before), 0);
        for (uint32_t i = 0; i < MESSAGES; i++) {
            content[0] = (uint8_t)i;
            say(world, 0, content, mixed && i % 5 == 4 ? 10 : sizeof content);
        }
        for (int i = 0; i < 1000 && world->end[1].messages < messages + MESSAGES; i++)
            step(world);
        assert_int_equal(world->end[1].messages, messages + MESSAGES);
        for (uint32_t i = 0; i < MESSAGES; i++)
            assert_int_equal(world->end[1].firsts[(messages + i + 1) % sizeof world->end[1].firsts], i);
        assert_int_equal(transport_verbs_stats(world->end[0].transport, &after), 0);
        assert_true(after.doorbells - before.doorbells <= 5);
        for (int i = 0; i < 20; i++)
            step(world); /* credit comes back */
    }
    assert_int_equal(fake_device.receiver_not_ready, 0);
}

static void test_a_read_is_posted_at_once(void **state)
{
    struct world *world = *state;
    struct transport *reader = world->end[0].transport;
    publish(world, 4, 1000, 900);
    assert_int_equal(ask(world, 0, 900), 0);
    assert_true(run_until_read(world, 1, 10000 * MS)); /* the first one makes the pair and asks where the region is */
    for (uint32_t i = 1; i < 100; i++) {
        uint64_t posted = fake_device.reads_posted;
        assert_int_equal(ask(world, i % 4, 900), 0);
        assert_int_equal(fake_device.reads_posted, posted + 1);
        assert_int_equal(reader->ops->next_deadline_ns(reader), 0); /* nobody sleeps before the end can wake them */
        world->now_ns += STEP_NS;
        assert_int_equal(poll_end(world, &world->end[0]), 1);
        assert_int_equal(world->end[0].reads, i + 1);
        assert_int_equal(world->end[0].read_status, 0);
        assert_int_equal(world->end[0].len, 900);
        assert_int_equal(world->end[0].first, 0x10 + i % 4);
    }
}

static void test_the_end_of_a_read_wakes_its_reader(void **state)
{
    struct world *world = *state;
    struct transport *reader = world->end[0].transport;
    struct pollfd fd = {.fd = reader->ops->wait_fd(reader), .events = POLLIN};
    publish(world, 1, 1000, 900);
    assert_int_equal(ask(world, 0, 900), 0);
    assert_true(run_until_read(world, 1, 10000 * MS));
    fake_device.hold_reads = true;
    assert_int_equal(ask(world, 0, 900), 0);
    for (int i = 0; i < 100000 && reader->ops->next_deadline_ns(reader) <= world->now_ns; i++)
        step(world);
    assert_true(reader->ops->next_deadline_ns(reader) > world->now_ns);
    fake_device_release_reads();
    assert_int_equal(poll(&fd, 1, 0), 1);
    world->now_ns += STEP_NS;
    assert_int_equal(poll_end(world, &world->end[0]), 1);
    assert_int_equal(world->end[0].read_status, 0);
    for (int i = 0; i < 100000 && reader->ops->next_deadline_ns(reader) <= world->now_ns; i++)
        step(world);
    assert_int_equal(poll(&fd, 1, 0), 0); /* what woke it has been taken */
}

static void test_memory_for_large_pages_goes_again(void **state)
{
    struct world *world = *state;
    publish(world, MOST_READS, TRANSPORT_PAGE_BYTES, 100);
    size_t before = fake_device.registered_bytes;
    fake_device.hold_reads = true;
    for (uint32_t page = 0; page < MOST_READS; page++)
        assert_int_equal(ask(world, page, 0), 0);
    for (int i = 0; i < 100000 && fake_device.reads_posted < MOST_READS; i++)
        step(world);
    assert_int_equal(fake_device.reads_posted, MOST_READS);
    assert_true(fake_device.registered_bytes - before >= (size_t)MOST_READS * TRANSPORT_PAGE_BYTES);
    fake_device_release_reads();
    assert_true(run_until_read(world, MOST_READS, 1000 * MS));
    assert_int_equal(world->end[0].read_status, 0);
    assert_int_equal(world->end[0].len, 100);
    assert_true(fake_device.registered_bytes - before <= KEPT_BYTES);
}

/* Whoever asked is told soon enough to ask by message instead, messages are not touched, and reads work once there are pairs again. */
static void test_reads_without_a_pair_end(void **state)
{
    struct world *world = *state;
    publish(world, 1, 1000, 900);
    fake_device.refuse_read_pairs = true;
    for (int i = 0; i < 3; i++)
        assert_int_equal(ask(world, 0, 900), 0);
    assert_true(run_until_read(world, 3, 2000 * MS));
    assert_int_equal(world->end[0].read_status, HS_ERR_IO);
    assert_true(world->end[0].up && world->end[1].up);
    say(world, 0, "still here", 10);
    step(world);
    assert_int_equal(world->end[1].len, 10);
    fake_device.refuse_read_pairs = false;
    assert_int_equal(ask(world, 0, 900), 0);
    assert_true(run_until_read(world, 4, 5000 * MS));
    assert_int_equal(world->end[0].read_status, 0);
}

static void test_torn_reads(void **state)
{
    struct world *world = *state;
    struct transport_verbs_stats stats;
    publish(world, 1, 1000, 900);
    fake_device.tear_reads = 2;
    assert_int_equal(ask(world, 0, 900), 0);
    assert_true(run_until_read(world, 1, 10000 * MS));
    assert_int_equal(world->end[0].read_status, 0);
    assert_int_equal(transport_verbs_stats(world->end[0].transport, &stats), 0);
    assert_int_equal(stats.torn_reads, 2);
    fake_device.tear_reads = 5;
    assert_int_equal(ask(world, 0, 900), 0);
    assert_true(run_until_read(world, 2, 10000 * MS));
    assert_int_equal(world->end[0].read_status, HS_ERR_AUTH);
    assert_int_equal(ask(world, 0, 100), 0); /* less than there is: a second read brings it all */
    assert_true(run_until_read(world, 3, 10000 * MS));
    assert_int_equal(world->end[0].read_status, 0);
    assert_int_equal(world->end[0].len, 900);
}

/* Where there is no memory to tell of its end, a read is not taken. */
static void test_reads_without_memory_are_told(void **state)
{
    enum { ATTEMPTS = 2000, BEFORE = 100 };
    struct world *world = *state;
    publish(world, 1, 1000, 900);
    assert_int_equal(ask(world, 0, 900), 0);
    assert_true(run_until_read(world, 1, 10000 * MS));
    uint32_t taken = 1;
    for (int i = 0; i < ATTEMPTS; i++) {
        no_memory = taken > BEFORE;
        taken += ask(world, 0, 900) == 0;
        world->now_ns += STEP_NS;
        poll_some(world, &world->end[0], 0); /* nobody takes an event */
    }
    no_memory = false;
    assert_true(taken > BEFORE && taken < ATTEMPTS);
    assert_true(run_until_read(world, taken, 1000 * MS));
    for (int i = 0; i < 1000; i++)
        step(world);
    assert_int_equal(world->end[0].reads, taken);
    assert_true(world->end[0].up);
}

/* A message for which there is no memory ends the session, which is told, and so is the next one. */
static void test_the_end_without_memory_is_told(void **state)
{
    enum { MESSAGES = 2000 };
    struct world *world = *state;
    for (uint32_t i = 0; i < MESSAGES; i++)
        say(world, 1, &(uint8_t){1}, 1);
    no_memory = true;
    for (int i = 0; i < 100; i++) {
        world->now_ns += STEP_NS;
        poll_some(world, &world->end[0], 0);
        poll_end(world, &world->end[1]);
    }
    no_memory = false;
    for (int i = 0; i < 100000 && world->end[0].ups < 2; i++)
        step(world);
    assert_int_equal(world->end[0].ups, 2);
    assert_int_equal(world->end[0].downs, 1);
    assert_true(world->end[0].messages < MESSAGES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_message_leaves_and_arrives_within_one_look, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_long_messages_leave_together, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_read_is_posted_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_end_of_a_read_wakes_its_reader, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_memory_for_large_pages_goes_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_reads_without_a_pair_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_torn_reads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_reads_without_memory_are_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_end_without_memory_is_told, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
