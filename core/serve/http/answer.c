/* An answer and the node: handing over, canceling, events. */
#include "core/serve/http/answer.h"

#include <stdio.h>

void answer_submit(struct answer *answer)
{
    struct exchange *ex = answer->exchange;
    for (uint32_t i = 0; i < answer->n_choices; i++) {
        struct answer_choice *choice = &answer->choices[i];
        exchange_ref(ex); /* the request's, until its last event */
        pthread_mutex_lock(&ex->lock);
        choice->submitted = true;
        pthread_mutex_unlock(&ex->lock);
        int rc = node_inbox_submit(ex->server->config.inbox, &choice->request);
        if (!rc)
            continue;
        if (rc == HS_ERR_BUSY)
            limit_hit(ex->server->metrics.limits[API_LIMIT_INBOX], 1);
        pthread_mutex_lock(&ex->lock);
        choice->submitted = false;
        choice->ended = true;
        choice->status = rc;
        choice->retry_after_s = 1;
        snprintf(choice->failure, sizeof choice->failure, "%s",
                 rc == HS_ERR_BUSY ? "Too many requests wait to be taken in by this node; try again." : "This node is draining; use another one.");
        ex->news = true;
        pthread_mutex_unlock(&ex->lock);
        exchange_unref(ex);
        break;
    }
}

void answer_choice_cancel(struct answer_choice *choice)
{
    struct exchange *ex = choice->answer->exchange;
    pthread_mutex_lock(&ex->lock);
    bool under_way = choice->submitted && !choice->ended && !choice->canceled;
    choice->canceled |= under_way;
    pthread_mutex_unlock(&ex->lock);
    if (under_way)
        node_inbox_cancel(ex->server->config.inbox, &choice->request);
}

void answer_cancel(struct answer *answer)
{
    for (uint32_t i = 0; answer && i < answer->n_choices; i++)
        answer_choice_cancel(&answer->choices[i]);
}

bool answer_ended_locked(const struct answer *answer)
{
    for (uint32_t i = 0; i < answer->n_choices; i++)
        if (answer->choices[i].submitted && !answer->choices[i].ended)
            return false;
    return true;
}

static void count_failure(struct answer_choice *choice, bool canceled, bool stopped)
{
    const struct http_metrics *metrics = &choice->answer->exchange->server->metrics;
    counter_add(!canceled ? metrics->finished_error : stopped ? metrics->finished_stop : metrics->finished_abort, 1);
}

/* Takes an event in under the lock. False: no room. */
static bool take_event(struct answer_choice *choice, const struct request_event *event)
{
    struct answer *answer = choice->answer;
    bool room = true;
    switch (event->kind) {
    case REQUEST_STARTED:
        if (!choice->started)
            choice->cached_tokens = event->cached_tokens;
        choice->started = true;
        if (!answer->computed_by[0] && event->computed_by)
            snprintf(answer->computed_by, sizeof answer->computed_by, "%s", event->computed_by);
        break;
    case REQUEST_SCORED:
        for (uint32_t i = 0; i < event->n_results && !choice->canceled; i++)
            room &= token_ring_push(&choice->scored, &event->results[i]);
        break;
    case REQUEST_TOKENS:
        for (uint32_t i = 0; i < event->n_results && !choice->canceled && room; i++)
            room = token_ring_push(&choice->ring, &event->results[i]);
        break;
    case REQUEST_FINISHED:
        choice->ended = true;
        choice->reason = event->reason;
        break;
    case REQUEST_FAILED:
        choice->ended = true;
        choice->status = event->status ? event->status : HS_ERR_IO;
        choice->retry_after_s = event->retry_after_s;
        snprintf(choice->failure, sizeof choice->failure, "%s", event->text ? event->text : "");
        break;
    }
    if (!room && !choice->overflowed)
        limit_hit(answer->exchange->server->metrics.limits[API_LIMIT_UNREAD_TOKENS], 1);
    choice->overflowed |= !room;
    return room;
}

bool answer_on_event(void *user, struct request *request, const struct request_event *event)
{
    struct answer_choice *choice = user;
    struct exchange *ex = choice->answer->exchange;
    bool final = event->kind == REQUEST_FINISHED || event->kind == REQUEST_FAILED;
    pthread_mutex_lock(&ex->lock);
    bool room = take_event(choice, event);
    bool canceled = choice->canceled, stopped = choice->stop_found;
    bool wake = final || (event->kind == REQUEST_TOKENS && choice->answer->wake_each);
    ex->news |= wake;
    pthread_mutex_unlock(&ex->lock);
    if (wake)
        exchange_wake_by_node(ex);
    if (event->kind == REQUEST_FAILED)
        count_failure(choice, canceled, stopped);
    if (final)
        exchange_unref(ex);
    return room;
}
