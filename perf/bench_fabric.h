/*
 * The parts of the fabric benchmark, shared by the bench_fabric*.c files only.
 *
 * Every measurement is one server process and one or more caller processes, all made for it; this process only starts them and
 * collects what the callers found. A side says how both are played: over one of hearsay's fabrics, or over a bare reference beside
 * it. A new fabric is a row in bench_fabric_endpoint.c, a new bare reference a row in bench_fabric_bare.c.
 *
 *     parent -- fork --> server:  opens, reports its address, serves until the control socket closes
 *            -- fork --> callers: call the address, one pattern, write their result into a pipe
 *
 * Threading: none. Errors: HS_ERR_* with one line in err.
 */
#ifndef HEARSAY_PERF_BENCH_FABRIC_H
#define HEARSAY_PERF_BENCH_FABRIC_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/port/transport.h"
#include "perf/bench.h"
#include "perf/samples.h"

enum { FABRIC_REGION = 1, FABRIC_REGION_BYTES = 1 << 20, FABRIC_MAX_SENDERS = 64 };

/* What a caller does. */
enum fabric_pattern {
    FABRIC_PING = 1,   /* a message, its answer, the next: round trips in us */
    FABRIC_READ = 2,   /* reads the server's memory: times in us */
    FABRIC_STREAM = 4, /* messages with at most a window of them unacknowledged: MB/s */
    FABRIC_GATHER = 8, /* PING and STREAM of several callers at once */
    FABRIC_ANSWER = 16 /* what a message and its answer cost the node itself, without a kernel: ns of CPU */
};

struct fabric_job {
    const struct perf_config *config;
    enum fabric_pattern pattern;
    uint32_t bytes, senders, caller; /* caller: which of the senders this process is, from 0 on */
    int control;  /* the server's: it ends when this can be read */
    uint32_t cpu; /* of this process; UINT32_MAX: any */
};

struct fabric_result {
    struct samples times_us;    /* PING, READ */
    double bytes_per_s;         /* STREAM */
    double cpu_share;           /* of one core, this process */
    bool one_sided;             /* READ: the server's CPU took no part */
    struct transport_stats sum; /* of hearsay's own fabrics */
};

struct fabric_side {
    const char *name;
    const char *fabric; /* beside which fabric this stands; NULL: any */
    bool perftest;      /* only with --against perftest */
    uint32_t patterns;  /* that it can play */
    /* Opens, tells its address through ready(), serves until job->control is readable. */
    int (*serve)(const struct fabric_job *job, int (*ready)(int control, const char *address), struct error *err);
    int (*call)(const struct fabric_job *job, const char *address, struct fabric_result *out, struct error *err);
};

/* ---- bench_fabric_process.c ---- */
/* Plays one measurement; times and bytes/s of all callers together. address: NULL starts a server, else one runs there. */
int fabric_measure(const struct fabric_side *side, const struct fabric_job *job, const char *address, struct fabric_result *out,
                   struct error *err);
void fabric_result_fini(struct fabric_result *result);
/* Whether the control socket says that it is over. */
bool fabric_is_over(int control);

/* ---- bench_fabric_timing.c: what a caller measures ---- */
/* In a stream each so many messages are acknowledged at once. */
uint32_t fabric_acknowledged_each(const struct perf_config *config);
/* once() again and again for that long, each call timed. */
int fabric_time_each(int (*once)(void *arg, struct error *err), void *arg, uint64_t duration_ns, struct samples *times_us,
                     struct error *err);
/* The rate of a stream: asked with the messages acknowledged so far whether to go on. */
struct stream_meter {
    uint64_t now_ns, from_ns, to_ns, started_ns;
    uint32_t acknowledged, acknowledged_before; /* before: the warm-up's */
};
void stream_meter_begin(struct stream_meter *meter, uint64_t duration_ns);
bool stream_meter_goes_on(struct stream_meter *meter, uint32_t acknowledged);
double stream_meter_bytes_per_s(const struct stream_meter *meter, uint32_t bytes);

/* Reads a message of a stream as its receiver would: once, as quickly as the C library reads. False: it has a byte that was never sent. */
bool fabric_read_message(const uint8_t *data, size_t len);

/* ---- bench_fabric_endpoint.c: hearsay's fabrics ---- */
struct fabric_endpoint {
    struct transport *transport;
    bool adaptive;
    int control; /* also waited for; -1: none */
    uint64_t idle_since_ns;
    struct transport_event events[64];
};

/* Names of the fabrics, for messages; "sockets, ...". */
const char *fabric_names(void);
bool fabric_is_known(const char *name);
int fabric_endpoint_open(struct fabric_endpoint *endpoint, const struct fabric_job *job, bool serves, struct error *err);
/* Polls once; returns the number of events. When there are none and --poll adaptive, waits as a node does. */
int fabric_endpoint_poll(struct fabric_endpoint *endpoint);
/* Resolves and waits for the peer to come up. */
int fabric_endpoint_connect(struct fabric_endpoint *endpoint, const char *address, uint32_t *peer, struct error *err);
void fabric_endpoint_close(struct fabric_endpoint *endpoint);
/* Lets time pass the way --poll adaptive does: spins first, then sleeps on fd (-1: naps) and control. */
void fabric_wait(uint64_t *idle_since_ns, int fd, int control, uint64_t deadline_ns);

/* ---- bench_fabric_calls.c ---- */
extern const struct fabric_side fabric_hearsay;
/* --serve: answers until interrupted. */
int fabric_serve_forever(const struct perf_config *config, struct error *err);

/* ---- bench_fabric_bare.c ---- */
const struct fabric_side *fabric_bare_sides(uint32_t *n);

/* ---- bench_fabric_answer.c ---- */
/* Two endpoints in this process, over memory or, of fabric verbs, over its devices: ns from a received message to its answer having been
 * sent. */
int fabric_answer(const struct perf_config *config, uint32_t bytes, struct samples *answer_ns, struct error *err);

/* ---- bench_fabric_cipher.c ---- */
/* Bytes a second of one core that seals messages of one length, one after the other, and nothing else. */
struct fabric_cipher_speed {
    double ours, libcrypto; /* what hearsay seals with; AES-256-GCM by libcrypto */
    const char *by;         /* the library of ours */
};
int fabric_cipher(uint32_t bytes, uint64_t duration_ns, struct fabric_cipher_speed *out, struct error *err);

#endif
