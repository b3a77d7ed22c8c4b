#include <stdlib.h>

#include "core/base/panic.h"
#include "net/event_ring.h"
#include "net/verbs/internal.h"

void verbs_buffer_unref(struct verbs *self, struct verbs_buffer *buffer)
{
    hs_assert(buffer->references > 0);
    if (--buffer->references > 0)
        return;
    struct verbs_link *link = buffer->link_id != 0 ? self->links[net_peer_place(buffer->peer)] : NULL;
    if (link != NULL && link->id == buffer->link_id)
        verbs_return_credit(link);
    rail_return(buffer->rail, buffer);
}

static void release(struct verbs *self, struct verbs_event *event)
{
    if (event->buffer != NULL)
        verbs_buffer_unref(self, event->buffer);
    if (event->message != NULL)
        buffer_pool_put_message(&self->pool, event->message);
    event->buffer = NULL;
    event->message = NULL;
}

/* For one more, beside those that have their place already. */
static bool has_room(struct verbs *self)
{
    if (self->events_tail - self->events_given + self->events_kept < self->events_cap)
        return true;
    struct verbs_event *events = event_ring_grow(self->events, &self->events_cap, sizeof *events, self->events_given, self->events_tail);
    if (events != NULL)
        self->events = events;
    return events != NULL;
}

bool verbs_events_keep(struct verbs *self)
{
    bool kept = has_room(self);
    self->events_kept += kept;
    return kept;
}

bool verbs_event(struct verbs *self, const struct transport_event *event, struct verbs_buffer *buffer, struct message_buffer *message)
{
    if (event->kind != TRANSPORT_MESSAGE) {
        hs_assert(self->events_kept > 0);
        self->events_kept--;
    } else if (!has_room(self)) {
        if (message != NULL)
            buffer_pool_put_message(&self->pool, message);
        return false;
    }
    if (buffer != NULL)
        buffer->references++;
    self->events[self->events_tail++ & (self->events_cap - 1)] = (struct verbs_event){.event = *event, .buffer = buffer, .message = message};
    return true;
}

void verbs_events_release(struct verbs *self)
{
    for (; self->events_given < self->events_head; self->events_given++)
        release(self, &self->events[self->events_given & (self->events_cap - 1)]);
}

int verbs_events_take(struct verbs *self, struct transport_event *events, int n)
{
    int count = 0;
    while (count < n && self->events_head < self->events_tail) {
        struct verbs_event *event = &self->events[self->events_head++ & (self->events_cap - 1)];
        if (!event->dropped)
            events[count++] = event->event;
    }
    return count;
}

void verbs_events_drop(struct verbs *self, uint32_t peer)
{
    for (uint64_t i = self->events_head; i < self->events_tail; i++) {
        struct verbs_event *event = &self->events[i & (self->events_cap - 1)];
        if (event->event.peer == peer && event->event.kind != TRANSPORT_READ_DONE) /* every read has its end told, by whomever it was asked for */
            event->dropped = true;
    }
}

void verbs_events_fini(struct verbs *self)
{
    self->events_head = self->events_tail;
    verbs_events_release(self);
    free(self->events);
    self->events = NULL;
}
