#include "tests/unit/http/fake_node.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/error.h"
#include "core/base/panic.h"

enum { ACTIVE_MAX = 512, PROMPT_MAX = 4096 };

struct active {
    struct request *request;
    struct fake_script script;
    uint32_t sent;
    bool started, refused;
};

struct query {
    enum node_query query;
    void (*answer)(void *user, int status, const char *json);
    void *user;
    struct query *next;
};

struct node_inbox {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct fake_script script;
    struct active active[ACTIVE_MAX];
    uint32_t n_active;
    struct query *queries;
    struct fake_counts counts;
    struct request last;
    uint32_t last_prompt[PROMPT_MAX];
    bool paused, stopping, draining;
};

static bool emit(struct active *a, const struct request_event *event)
{
    return a->request->on_event(a->request->user, a->request, event);
}

static void fill_result(const struct request *request, struct row_result *result, uint32_t token, float logprob)
{
    *result = (struct row_result){.token = token, .logprob = request->sampling.logprobs ? logprob : 0};
    result->n_top = request->sampling.n_top_logprobs;
    for (uint32_t k = 0; k < result->n_top; k++)
        result->top[k] = (struct token_logprob){(token + k) % 256, logprob - (float)k};
}

static void start(struct active *a)
{
    a->started = true;
    if (a->script.no_start)
        return;
    emit(a, &(struct request_event){.kind = REQUEST_STARTED, .cached_tokens = a->script.cached_tokens, .computed_by = "peer-7"});
    for (uint32_t i = 1; a->request->score_prompt && i < a->request->n_tokens; i++) {
        struct row_result result;
        fill_result(a->request, &result, a->request->tokens[i], -(float)i);
        emit(a, &(struct request_event){.kind = REQUEST_SCORED, .results = &result, .n_results = 1});
    }
}

/* The final event, or false if the request goes on. */
static bool is_over(struct node_inbox *inbox, struct active *a, struct request_event *final)
{
    uint32_t total = a->script.n_tokens * (a->script.repeats ? a->script.repeats : 1);
    bool canceled = atomic_load(&a->request->cancel_wanted);
    if (canceled || a->refused)
        *final = (struct request_event){.kind = REQUEST_FAILED, .status = a->refused ? HS_ERR_LIMIT : HS_ERR_CANCELED};
    else if (a->script.fails && a->sent >= a->script.fail_after)
        *final = (struct request_event){.kind = REQUEST_FAILED, .status = a->script.fail_status, .text = a->script.fail_text,
                                        .retry_after_s = a->script.retry_after_s};
    else if (a->sent >= a->request->max_tokens)
        *final = (struct request_event){.kind = REQUEST_FINISHED, .reason = FINISH_LENGTH};
    else if (a->sent >= total)
        *final = (struct request_event){.kind = REQUEST_FINISHED, .reason = FINISH_STOP};
    else
        return false;
    if (canceled)
        inbox->counts.canceled++;
    else
        inbox->counts.finished++;
    return true;
}

static void send_tokens(struct node_inbox *inbox, struct active *a)
{
    struct row_result results[64];
    uint32_t n = a->script.per_event ? a->script.per_event : 1;
    uint32_t total = a->script.n_tokens * (a->script.repeats ? a->script.repeats : 1);
    uint32_t room = a->request->max_tokens < total ? a->request->max_tokens : total;
    if (n > room - a->sent)
        n = room - a->sent;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = a->sent + i;
        fill_result(a->request, &results[i], a->script.tokens[at % a->script.n_tokens], -0.25f * (float)(at + 1));
    }
    a->sent += n;
    if (!emit(a, &(struct request_event){.kind = REQUEST_TOKENS, .results = results, .n_results = n})) {
        a->refused = true;
        inbox->counts.refused_events++;
    }
}

/* One step of one request; true if it did something. */
static bool advance(struct node_inbox *inbox, struct active *a)
{
    struct request_event final;
    bool canceled = atomic_load(&a->request->cancel_wanted);
    if (inbox->paused && a->sent && !canceled)
        return false;
    if (!a->started)
        start(a);
    if (is_over(inbox, a, &final)) {
        emit(a, &final); /* the request may be gone now */
        *a = inbox->active[--inbox->n_active];
        inbox->counts.active = inbox->n_active;
    } else {
        send_tokens(inbox, a);
    }
    return true;
}

static void answer_queries(struct node_inbox *inbox)
{
    while (inbox->queries && !inbox->script.mute) {
        struct query *q = inbox->queries;
        inbox->queries = q->next;
        if (q->query == NODE_QUERY_DRAIN || q->query == NODE_QUERY_UNDRAIN)
            inbox->draining = q->query == NODE_QUERY_DRAIN;
        bool closed = q->query == NODE_QUERY_HEALTH && inbox->draining;
        static const char *const names[] = {"cluster", "tree", "drain", "undrain", "flush", "health"};
        char json[64] = "{\"query\":\"";
        strcat(json, names[q->query]);
        strcat(json, "\"}");
        q->answer(q->user, closed ? HS_ERR_CLOSED : 0, json);
        free(q);
    }
}

static void *run(void *arg)
{
    struct node_inbox *inbox = arg;
    pthread_mutex_lock(&inbox->lock);
    while (!inbox->stopping || inbox->n_active) {
        bool busy = false;
        answer_queries(inbox);
        for (uint32_t i = inbox->n_active; i-- > 0;)
            busy |= advance(inbox, &inbox->active[i]);
        pthread_cond_broadcast(&inbox->changed);
        if (!busy && (!inbox->stopping || inbox->n_active))
            pthread_cond_wait(&inbox->changed, &inbox->lock);
        pthread_mutex_unlock(&inbox->lock);
        pthread_mutex_lock(&inbox->lock);
    }
    pthread_mutex_unlock(&inbox->lock);
    return NULL;
}

struct node_inbox *fake_node_create(void)
{
    struct node_inbox *inbox = calloc(1, sizeof *inbox);
    hs_assert(inbox);
    pthread_mutex_init(&inbox->lock, NULL);
    pthread_cond_init(&inbox->changed, NULL);
    hs_assert(pthread_create(&inbox->thread, NULL, run, inbox) == 0);
    return inbox;
}

void fake_node_destroy(struct node_inbox *inbox)
{
    pthread_mutex_lock(&inbox->lock);
    inbox->stopping = true;
    pthread_cond_broadcast(&inbox->changed);
    pthread_mutex_unlock(&inbox->lock);
    pthread_join(inbox->thread, NULL);
    while (inbox->queries) {
        struct query *q = inbox->queries;
        inbox->queries = q->next;
        free(q);
    }
    pthread_mutex_destroy(&inbox->lock);
    pthread_cond_destroy(&inbox->changed);
    free(inbox);
}

void fake_node_script(struct node_inbox *inbox, const struct fake_script *script)
{
    pthread_mutex_lock(&inbox->lock);
    inbox->script = *script;
    pthread_cond_broadcast(&inbox->changed);
    pthread_mutex_unlock(&inbox->lock);
}

void fake_node_pause(struct node_inbox *inbox, bool paused)
{
    pthread_mutex_lock(&inbox->lock);
    inbox->paused = paused;
    pthread_cond_broadcast(&inbox->changed);
    pthread_mutex_unlock(&inbox->lock);
}

struct fake_counts fake_node_counts(struct node_inbox *inbox)
{
    pthread_mutex_lock(&inbox->lock);
    struct fake_counts counts = inbox->counts;
    pthread_mutex_unlock(&inbox->lock);
    return counts;
}

static bool wait_for(struct node_inbox *inbox, const uint32_t *value, uint32_t wanted)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    int rc = 0;
    pthread_mutex_lock(&inbox->lock);
    while (*value < wanted && !rc)
        rc = pthread_cond_timedwait(&inbox->changed, &inbox->lock, &until);
    bool reached = *value >= wanted;
    pthread_mutex_unlock(&inbox->lock);
    return reached;
}

bool fake_node_wait_canceled(struct node_inbox *inbox, uint32_t n)
{
    return wait_for(inbox, &inbox->counts.canceled, n);
}

bool fake_node_wait_submitted(struct node_inbox *inbox, uint32_t n)
{
    return wait_for(inbox, &inbox->counts.submitted, n);
}

bool fake_node_wait_active(struct node_inbox *inbox, uint32_t n)
{
    return wait_for(inbox, &inbox->counts.active, n);
}

struct request fake_node_last(struct node_inbox *inbox, uint32_t *prompt, uint32_t cap)
{
    pthread_mutex_lock(&inbox->lock);
    struct request last = inbox->last;
    memcpy(prompt, inbox->last_prompt, (last.n_tokens < cap ? last.n_tokens : cap) * sizeof *prompt);
    pthread_mutex_unlock(&inbox->lock);
    return last;
}

/* ---- core/serve/request.h ---- */

int node_inbox_submit(struct node_inbox *inbox, struct request *request)
{
    int rc = inbox->script.submit_status;
    pthread_mutex_lock(&inbox->lock);
    if (!rc && (inbox->n_active == ACTIVE_MAX || request->n_tokens > PROMPT_MAX))
        rc = HS_ERR_BUSY;
    if (!rc) {
        inbox->active[inbox->n_active++] = (struct active){.request = request, .script = inbox->script};
        inbox->counts.active = inbox->n_active;
        inbox->counts.submitted++;
        inbox->last = *request;
        memcpy(inbox->last_prompt, request->tokens, request->n_tokens * sizeof *request->tokens);
        pthread_cond_broadcast(&inbox->changed);
    }
    pthread_mutex_unlock(&inbox->lock);
    return rc;
}

void node_inbox_cancel(struct node_inbox *inbox, struct request *request)
{
    atomic_store(&request->cancel_wanted, true);
    pthread_mutex_lock(&inbox->lock);
    pthread_cond_broadcast(&inbox->changed);
    pthread_mutex_unlock(&inbox->lock);
}

int node_inbox_query(struct node_inbox *inbox, enum node_query query, void (*answer)(void *user, int status, const char *json), void *user)
{
    struct query *q = malloc(sizeof *q);
    if (!q)
        return HS_ERR_NO_MEMORY;
    pthread_mutex_lock(&inbox->lock);
    *q = (struct query){query, answer, user, inbox->queries};
    inbox->queries = q;
    pthread_cond_broadcast(&inbox->changed);
    pthread_mutex_unlock(&inbox->lock);
    return 0;
}
