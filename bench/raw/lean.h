/* SPDX-License-Identifier: Apache-2.0
 *
 * A lean client: as many acquires and releases as one core can drive, by the real protocol
 * (docs/protocol.md) over any port. Sessions are opened and kept alive; every request has its
 * number in its session's window, is repeated under the same number while nothing comes, and its
 * answer is judged as the wire format says and against what was asked: a grant's token must be
 * above all that were seen of that name, a release must have ended its lease. Whatever else is
 * answered ends the program.
 *
 * What makes it lean: names, shards and tags are worked out beforehand, and what is known of a
 * request lies at its number. Nobody is called back, nothing is renewed: locks live for seconds
 * and their TTL is a minute.
 */
#ifndef BELAY_BENCH_RAW_LEAN_H
#define BELAY_BENCH_RAW_LEAN_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/load/histogram.h"
#include "dataplane/wire/wire.h"
#include "hw/port.h"

enum {
    LEAN_NAME_BYTES = 16,
    LEAN_SESSIONS_MAX = 1024,
    LEAN_WINDOW_MAX = 64, /* numbers of a session under way at once; power of two */
    LEAN_SHARDS_MAX = 64,
    LEAN_TTL_MS = 60000, /* of locks and sessions */
    LEAN_IN_FLIGHT_MAX = 4096,
    /* So many times as many requests are under way when datagrams hold many: a server that takes a
     * burst of datagrams must not have taken all that there are, or it waits for the next. */
    LEAN_DEEPER = 8,
    LEAN_PAUSE_MS = 25, /* without an answer, before the first repetition; each time doubled */
};
#define LEAN_GIVE_UP_NS UINT64_C(5000000000)

struct lean_options {
    struct port *port;
    struct port_address node;
    uint32_t names;              /* in turn, in random order */
    uint32_t held;               /* so many are held before the oldest is released; < names */
    uint32_t in_flight;          /* requests under way, with one to a datagram */
    uint32_t sessions_per_shard; /* opened at each shard */
};

struct lean_name {
    uint8_t text[LEAN_NAME_BYTES];
    uint64_t token; /* the last that was granted */
    struct wire_lease_id lease;
    uint32_t key_tag;
    uint16_t shard, session; /* the session that it was last asked for by */
    bool taken;              /* from its acquire to its release's answer */
};

struct lean_request {
    uint64_t sent_ns;   /* first */
    uint64_t repeat_ns; /* if nothing has come by then */
    uint32_t name;
    uint32_t pause_ms; /* before the next repetition */
    uint8_t op;        /* 0: answered */
};

struct lean_session {
    uint64_t id, nonce;
    uint64_t next_number, acked_below;
    uint64_t beat_ns; /* when it is to be kept alive next */
    uint32_t window;
    uint16_t shard;
    struct lean_request requests[LEAN_WINDOW_MAX]; /* at number % LEAN_WINDOW_MAX */
};

/* What the node's worker has counted in busy turns that it timed (struct wire_worker_status). */
struct lean_account {
    uint64_t number; /* of the question */
    uint64_t cycles, requests;
};

/* Since the last lean_reset(). */
struct lean_counts {
    uint64_t answers;                  /* acquires and releases */
    uint64_t datagrams;                /* sent with them */
    uint64_t requests;                 /* in those */
    uint64_t repeats, again;           /* sent once more; answered once more */
    uint64_t unavailable;              /* answers of that status: asked again later */
    uint64_t polls, polls_idle;        /* an idle one finds nothing */
    uint64_t busy_cycles;              /* of the others, to the end of what they led to */
    uint64_t idle_cycles, away_cycles; /* away: this core did something else meanwhile */
    uint64_t sound_ns, sound_answers;  /* of slices of a millisecond that nothing disturbed */
    uint64_t measured_ns;
    struct histogram latency_ns;
};

struct lean {
    struct lean_options options;
    uint64_t cluster_id, cookie;
    uint32_t shards;
    uint32_t sessions_count;
    struct lean_session *sessions; /* shard by shard */
    uint16_t *by_id;               /* sessions by hash of their id */
    uint32_t turn_of[LEAN_SHARDS_MAX];
    struct lean_name *names;
    uint32_t next_name;
    uint32_t *granted; /* ring of names in the order of their grants */
    uint32_t granted_mask;
    uint64_t granted_first, granted_end;
    uint32_t under_way; /* acquires and releases */
    uint32_t closes;    /* of sessions, under way */
    bool closing;       /* nothing is acquired any more */
    bool asks_on;       /* what was answered lets the next be asked */
    uint64_t now_ns, looked_ns;
    double cycles_per_ns;
    /* the datagram that is being filled */
    uint8_t *buffer;
    uint32_t bytes, items;
    uint64_t accounts_asked;
    struct lean_account account;
    struct lean_counts counts;
};

/* Finds the node's shards and opens the sessions. `pack`: requests to a datagram, if that many
 * fit. lean_close() releases every lock and closes the sessions. */
void lean_open(struct lean *lean, const struct lean_options *options);
void lean_drive(struct lean *lean, uint32_t pack, uint64_t for_ns);
void lean_reset(struct lean *lean);
/* Asks the node for it; requests under way stay so. */
struct lean_account lean_account(struct lean *lean);
void lean_close(struct lean *lean);

/* ---- inside (lean*.c) ------------------------------------------------------------------------ */

/* An item of so many bytes in the datagram that is being filled; lean_send() ends it. */
void *lean_item(struct lean *lean, uint8_t op, uint16_t shard, uint32_t bytes);
void lean_send(struct lean *lean);
struct lean_session *lean_session_of(const struct lean *lean, uint64_t id);
void lean_index_sessions(struct lean *lean);
/* Takes the next number of the session, which has room. */
struct lean_request *lean_number(struct lean *lean, struct lean_session *session, uint8_t op,
                                 uint32_t name, uint64_t *number);
bool lean_has_room(const struct lean_session *session);

/* lean_answers.c: judges a datagram and does what follows from its answers. */
void lean_take(struct lean *lean, const struct port_packet *packet);
/* Repeats what is overdue, and keeps sessions alive: every millisecond. */
void lean_look(struct lean *lean);
/* Writes the request of that number, for the first time or again. */
void lean_write(struct lean *lean, const struct lean_session *session, uint64_t number,
                const struct lean_request *request);

#endif
