/* Every limit of a node that a test can reach: it shows what it is and how full it is, counts what it cost, and says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/log.h"
#include "core/serve/admission.h"
#include "core/serve/node_metrics.h"
#include "tests/unit/serve/rig.h"

enum { PLENTY = 1100 };
static struct reply replies[PLENTY];

static void finish_all(struct rig *rig, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        rig_finish(rig, &replies[i]);
    rig_run_ns(rig, 500000000);
    rig_step(rig); /* levels are brought up to date */
}

static void waiting_requests(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.config.max_sequences = 2;
    rig.config.max_waiting = 4;
    rig_start(&rig, 1, false);
    assert_int_equal(rig_limit(&rig, 0, "waiting_requests"), 4);
    assert_int_equal(rig_limit(&rig, 0, "running_sequences"), 2);
    uint32_t refused = 0;
    for (uint32_t i = 0; i < 12; i++) {
        reply_init(&rig, &replies[i], i * 100, 100, 50);
        reply_submit(&replies[i], 0);
    }
    rig_step(&rig);
    assert_int_equal(rig_limit_used(&rig, 0, "waiting_requests"), 2); /* four were queued, of which two run by now */
    assert_int_equal(rig_limit_used(&rig, 0, "running_sequences"), 2);
    assert_int_equal(rig_limit_used(&rig, 0, "requests_under_way"), 4);
    finish_all(&rig, 12);
    for (uint32_t i = 0; i < 12; i++) {
        if (replies[i].finished)
            continue;
        reply_assert_failed(&replies[i], HS_ERR_BUSY);
        assert_string_equal(replies[i].text, "all nodes are full; 4 requests wait here, which is the limit (--max-waiting)");
        refused++;
    }
    assert_int_equal(refused, 8);
    assert_int_equal(rig_limit_hits(&rig, 0, "waiting_requests"), 8);
    assert_int_equal(rig_limit_used(&rig, 0, "waiting_requests"), 0);
    assert_int_equal(rig_limit_used(&rig, 0, "running_sequences"), 0);
    rig_fini(&rig);
}

/* Between two steps of the node no request has a place in the queue yet, but each has a slot. */
static void requests_under_way(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.config.max_sequences = 1;
    rig.config.max_waiting = 1;
    rig_start(&rig, 1, false);
    uint32_t slots = (uint32_t)rig_limit(&rig, 0, "requests_under_way");
    assert_true(slots > 2 && slots < PLENTY);
    for (uint32_t i = 0; i < PLENTY; i++) {
        reply_init(&rig, &replies[i], i, 1, 1);
        reply_submit(&replies[i], 0);
    }
    assert_int_equal(rig_limit_hits(&rig, 0, "requests_under_way"), PLENTY - slots);
    reply_assert_failed(&replies[PLENTY - 1], HS_ERR_BUSY);
    assert_non_null(strstr(replies[PLENTY - 1].text, "are under way at this node, which is the limit (--max-waiting and"));
    assert_true(replies[PLENTY - 1].retry_after_s >= 1);
    finish_all(&rig, PLENTY);
    assert_int_equal(rig_limit_used(&rig, 0, "requests_under_way"), 0);
    rig_fini(&rig);
}

static void push_back_depth(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.config.max_sequences = 1;
    rig.config.push_back_depth = 4;
    rig_start(&rig, 1, false);
    for (uint32_t round = 1; round <= 2; round++) {
        for (uint32_t i = 0; i < 8; i++) {
            reply_init(&rig, &replies[i], i * 100, 100, 50);
            reply_submit(&replies[i], 0);
        }
        finish_all(&rig, 8);
        assert_int_equal(rig_limit_hits(&rig, 0, "push_back_depth"), round); /* set once, cleared at half */
    }
    assert_int_equal(rig_limit(&rig, 0, "push_back_depth"), 4);
    rig_fini(&rig);
}

static void kv_pages(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.backend.n_pages = 32;
    rig.config.n_context = 32 * RIG_PAGE_TOKENS;
    rig_start(&rig, 1, false);
    for (uint32_t i = 0; i < 4; i++) {
        reply_init(&rig, &replies[i], i * 100, 60, 400);
        reply_submit(&replies[i], 0);
    }
    finish_all(&rig, 4);
    for (uint32_t i = 0; i < 4; i++)
        reply_assert_right(&replies[i]);
    assert_int_equal(rig_limit(&rig, 0, "kv_pages"), 32);
    assert_true(rig_limit_hits(&rig, 0, "kv_pages") > 0);
    assert_int_equal(rig_limit_hits(&rig, 0, "kv_pages"), rig_counter(&rig, 0, "hearsay_preemptions_total"));
    assert_int_equal(rig_limit_used(&rig, 0, "kv_pages"), 32 - rig_counts(&rig, 0).pages_free);
    rig_fini(&rig);
}

static void tree_bytes(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.config.tree_bytes = 8192;
    rig_start(&rig, 1, false);
    for (uint32_t i = 0; i < 40; i++) {
        reply_init(&rig, &replies[i], i * 50, 100, 5);
        reply_submit(&replies[i], 0);
        rig_finish(&rig, &replies[i]);
        reply_assert_right(&replies[i]);
    }
    rig_run_ns(&rig, 500000000);
    assert_int_equal(rig_limit(&rig, 0, "tree_bytes"), 8192);
    assert_true(rig_limit_used(&rig, 0, "tree_bytes") > 4096);
    assert_true(rig_limit_used(&rig, 0, "tree_bytes") <= 8192);
    assert_true(rig_limit_hits(&rig, 0, "tree_bytes") > 100); /* six pages of each, and some ten stay */
    rig_assert_idle(&rig, 0);
    rig_fini(&rig);
}

static void tenants(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.backend.n_pages = 2048;
    rig_start(&rig, 1, false);
    for (uint32_t i = 0; i < ADMISSION_TENANTS + 44; i++) {
        reply_init(&rig, &replies[i], i, 20, 5);
        snprintf(replies[i].request.tenant, sizeof replies[i].request.tenant, "tenant-%u", i);
        reply_submit(&replies[i], 0);
    }
    finish_all(&rig, ADMISSION_TENANTS + 44);
    assert_int_equal(rig_limit(&rig, 0, "tenants"), ADMISSION_TENANTS);
    assert_int_equal(rig_limit_hits(&rig, 0, "tenants"), 44);
    assert_int_equal(rig_limit_used(&rig, 0, "tenants"), 0);
    rig_fini(&rig);
}

/* A weight belongs to a name, whether or not it has an account at the moment, and however many others came meanwhile. */
static void weights_stay(void **state)
{
    static struct admission a;
    admission_init(&a);
    assert_int_equal(admission_set_weight(&a, "heavy", 4), 0);
    for (uint32_t round = 0; round < 2; round++) {
        uint16_t heavy = admission_enter(&a, "heavy"), light = admission_enter(&a, "light");
        double before[] = {admission_served(&a, heavy), admission_served(&a, light)};
        admission_charge(&a, heavy, 100);
        admission_charge(&a, light, 100);
        assert_true(admission_served(&a, heavy) - before[0] == 25);
        assert_true(admission_served(&a, light) - before[1] == 100);
        admission_exit(&a, heavy);
        admission_exit(&a, light);
        for (uint32_t i = 0; i < 2 * ADMISSION_TENANTS; i++) {
            char name[16];
            snprintf(name, sizeof name, "t%u", i);
            admission_exit(&a, admission_enter(&a, name));
        }
    }
    uint16_t light = admission_enter(&a, "light");
    assert_int_equal(admission_set_weight(&a, "light", 2), 0); /* while it is here */
    double before = admission_served(&a, light);
    admission_charge(&a, light, 100);
    assert_true(admission_served(&a, light) - before == 50);
    assert_int_equal(admission_set_weight(&a, "light", 0), HS_ERR_RANGE);
    for (uint32_t i = 0; i < ADMISSION_WEIGHTS - 2; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%u", i);
        assert_int_equal(admission_set_weight(&a, name, 2), 0);
    }
    assert_int_equal(admission_set_weight(&a, "one more", 2), HS_ERR_LIMIT);
    assert_int_equal(admission_set_weight(&a, "heavy", 3), 0);
}

/* Peers beyond the first 64 share one counter, and the registry stays as it is. */
static void metric_peers(void **state)
{
    struct node_metrics metrics;
    struct metrics *registry = metrics_create();
    assert_int_equal(node_metrics_init(&metrics, registry, "m"), 0);
    for (uint32_t peer = 0; peer < 1000; peer++) {
        char name[16];
        snprintf(name, sizeof name, "peer%u", peer);
        node_metrics_forward(&metrics, peer, name);
        node_metrics_forward(&metrics, peer, name);
    }
    struct strbuf text = {0};
    metrics_write(registry, &text);
    assert_non_null(strstr(strbuf_text(&text), "hearsay_forwards_total{model_name=\"m\",peer=\"peer63\"} 2\n"));
    assert_null(strstr(strbuf_text(&text), "peer64"));
    assert_non_null(strstr(strbuf_text(&text), "hearsay_forwards_total{model_name=\"m\",peer=\"\"} 1872\n"));
    strbuf_fini(&text);
    node_metrics_fini(&metrics);
    metrics_destroy(registry);
}

/* The router's books: all requests are answered, whether or not there is room in them. */
static void route_bookings_and_intents(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.backend.row_ns = 1000;
    rig.config.max_waiting = 2000;
    rig.config.push_back_depth = 2000;
    rig_start(&rig, 2, true);
    for (uint32_t i = 0; i < PLENTY; i++) {
        reply_init(&rig, &replies[i], i * 3, 160, 2);
        reply_submit(&replies[i], 0);
    }
    for (int i = 0; i < 3; i++)
        rig_step(&rig);
    assert_int_equal(rig_limit(&rig, 0, "route_bookings"), 1024);
    assert_true(rig_limit_hits(&rig, 0, "route_bookings") >= PLENTY - 1024);
    assert_int_equal(rig_limit(&rig, 0, "route_intents"), 256);
    assert_true(rig_limit_hits(&rig, 0, "route_intents") > 0);
    finish_all(&rig, PLENTY);
    for (uint32_t i = 0; i < PLENTY; i++)
        reply_assert_right(&replies[i]);
    rig_run_ns(&rig, 2000000000);
    assert_int_equal(rig_limit_used(&rig, 0, "route_bookings"), 0);
    rig_fini(&rig);
}

static void gossip_bytes(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.config.cluster.gossip_bytes_per_s = 2000;
    rig.config.cluster.mode = ROUTE_NONE;
    rig_start(&rig, 2, true);
    for (uint32_t i = 0; i < 10; i++) {
        reply_init(&rig, &replies[i], i * 50, 800, 2);
        reply_submit(&replies[i], 0);
    }
    finish_all(&rig, 10);
    rig_run_ns(&rig, 5000000000);
    assert_int_equal(rig_limit(&rig, 0, "gossip_bytes_per_second"), 2000);
    assert_true(rig_limit_hits(&rig, 0, "gossip_bytes_per_second") + rig_limit_hits(&rig, 1, "gossip_bytes_per_second") > 0);
    rig_fini(&rig);
}

/* More stop ids than a message holds: computed at the entry, whoever has the head. */
static void forward_message_bytes(void **state)
{
    static uint32_t stop_ids[65];
    struct rig rig;
    rig_init(&rig);
    rig_start(&rig, 2, true);
    for (uint32_t i = 0; i < 65; i++)
        stop_ids[i] = 49000 + i;
    reply_init(&rig, &replies[0], 3, 480, 2);
    replies[0].request.sampling.stop_ids = stop_ids;
    replies[0].request.sampling.n_stop_ids = 65;
    reply_submit(&replies[0], 1);
    rig_finish(&rig, &replies[0]);
    assert_true(replies[0].finished);
    assert_string_equal(replies[0].computed_by, "node1");
    assert_int_equal(rig_limit_hits(&rig, 1, "forward_message_bytes"), 1);
    assert_true(rig_limit(&rig, 1, "forward_message_bytes") >= 1 << 20);
    rig_fini(&rig);
}

/* What a hit limit leaves in the log: one line a minute that names it, its value and what helps. */
static void the_log_says_so(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.config.max_sequences = 1;
    rig.config.max_waiting = 1;
    rig_start(&rig, 1, false);
    char text[8192];
    int ends[2], saved = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    log_setup(LOG_LEVEL_WARN, LOG_FORMAT_TEXT);
    dup2(ends[1], STDERR_FILENO);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 5; i++) {
            reply_init(&rig, &replies[i], i * 100, 100, 5);
            reply_submit(&replies[i], 0);
        }
        finish_all(&rig, 5);
    }
    dup2(saved, STDERR_FILENO);
    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    close(ends[1]);
    close(saved);
    ssize_t n = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    text[n > 0 ? n : 0] = '\0';
    const char *line = strstr(text, "limit waiting_requests (1) was hit, times: ");
    assert_non_null(line);
    assert_non_null(strstr(line, "further requests are answered 429; add nodes, or raise --max-waiting"));
    assert_null(strstr(line + 1, "limit waiting_requests"));
    rig_fini(&rig);
}

int main(void)
{
    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waiting_requests), cmocka_unit_test(requests_under_way), cmocka_unit_test(push_back_depth),
        cmocka_unit_test(kv_pages),         cmocka_unit_test(tree_bytes),         cmocka_unit_test(tenants),
        cmocka_unit_test(weights_stay),     cmocka_unit_test(metric_peers),       cmocka_unit_test(the_log_says_so),
        cmocka_unit_test(route_bookings_and_intents), cmocka_unit_test(gossip_bytes), cmocka_unit_test(forward_message_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
