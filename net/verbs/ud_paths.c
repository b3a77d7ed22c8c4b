/*
 * Path records for datagrams. Nobody waits for them: what the neighbour told is good until there is something better. Questions that come to
 * nothing are asked again, ever more rarely.
 */
#include "net/verbs/rails.h"
#include "net/verbs/ud_internal.h"

int ud_paths_open(struct ud *self, bool everywhere)
{
    bool wanted = everywhere;
    for (uint32_t i = 0; i < self->n_rails; i++)
        wanted = wanted || self->rails[i].rail.choice.link == DEVICE_LINK_INFINIBAND;
    return wanted ? rails_open_paths(&self->paths) : 0;
}

struct path_end ud_path_end(const struct ud_port *port)
{
    return path_end_of(port->gid, port->lid, port->mtu_bytes, port->infiniband);
}

/* Has ask_again run then, if that is not sooner already. */
static void note_due(struct ud *self, const struct path_retry *retry)
{
    if (!retry->open && !retry->settled && (self->paths_due_ns == 0 || retry->due_ns < self->paths_due_ns))
        self->paths_due_ns = retry->due_ns;
}

static void ask_later(struct ud *self, struct path_retry *retry)
{
    path_retry_failed(retry, self->now_ns, env_random_u64(&self->env));
    note_due(self, retry);
}

/* Asks for the record unless somebody does already, or did so lately. */
static void ask(struct ud *self, struct ud_neighbour *neighbour, uint32_t at)
{
    struct path_retry *retry = &neighbour->questions[at];
    uint64_t question = (uint64_t)(neighbour - self->neighbours.all) << 8 | at;
    if (self->paths == NULL || !path_retry_due(retry, self->now_ns))
        return;
    int status = path_records_ask(self->paths, &self->rails[at].rail.choice, neighbour->ports[at].gid, question);
    self->counts.path_asks += status == 0;
    if (status == 0)
        path_retry_asked(retry);
    else if (status != HS_ERR_UNSUPPORTED)
        ask_later(self, retry);
}

struct path_route ud_path_of(struct ud *self, struct ud_neighbour *neighbour, uint32_t at)
{
    struct path_end end = ud_path_end(&neighbour->ports[at]);
    if (neighbour->routes[at].recorded)
        return neighbour->routes[at];
    ask(self, neighbour, at);
    return path_choose(&self->rails[at].rail.choice, &end, NULL, 0, self->traffic_class);
}

/* The handle made in the meantime is dropped, and the next datagram makes one along the record. */
static void on_answer(struct ud *self, const struct path_answer *answer)
{
    uint64_t place = answer->cookie >> 8;
    uint32_t at = (uint32_t)(answer->cookie & 0xff);
    struct ud_neighbour *neighbour = place < self->neighbours.n ? &self->neighbours.all[place] : NULL;
    if (neighbour == NULL || at >= neighbour->n_ports || !neighbour->questions[at].open)
        return;
    const struct device_rail *choice = &self->rails[at].rail.choice;
    struct path_end end = ud_path_end(&neighbour->ports[at]); /* another neighbour's by now, perhaps: no record leads to its GID */
    struct path_route route = path_choose(choice, &end, answer->records, answer->n, self->traffic_class);
    if (route.recorded) {
        ud_neighbour_drop_path(neighbour, at);
        neighbour->routes[at] = route;
    }
    if (route.recorded || (choice->link == DEVICE_LINK_ETHERNET && answer->status == 0))
        path_retry_settled(&neighbour->questions[at]);
    else
        ask_later(self, &neighbour->questions[at]);
}

/* Those whose time has come; the rest says when to look again. */
static void ask_again(struct ud *self)
{
    self->paths_due_ns = 0;
    for (uint32_t i = 0; i < self->neighbours.n; i++) {
        struct ud_neighbour *neighbour = &self->neighbours.all[i];
        for (uint32_t at = 0; neighbour->known && at < neighbour->n_ports && at < self->n_rails; at++) {
            if (neighbour->questions[at].failures == 0)
                continue; /* asked for the first time when it is sent to */
            ask(self, neighbour, at);
            note_due(self, &neighbour->questions[at]);
        }
    }
}

void ud_paths_poll(struct ud *self)
{
    struct path_answer answer;
    while (self->paths != NULL && path_records_take(self->paths, &answer))
        on_answer(self, &answer);
    if (self->paths_due_ns != 0 && self->now_ns >= self->paths_due_ns)
        ask_again(self);
}
