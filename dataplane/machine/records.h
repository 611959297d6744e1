/* SPDX-License-Identifier: Apache-2.0
 *
 * The records of the lock machine: all replicated state is in these and in struct lock_state
 * (machine.h). They name each other by slot. Snapshots hold them as they are, so their layout is
 * part of the snapshot format: a change raises SNAPSHOT_LAYOUT (snapshot.h).
 *
 * Fields marked (peek) are read by other threads and therefore written with WORD_PUT.
 */
#ifndef BELAY_DATAPLANE_RECORDS_H
#define BELAY_DATAPLANE_RECORDS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "dataplane/machine/slab.h"
#include "dataplane/machine/timers.h"
#include "dataplane/wire/wire.h"

#define NONE SLAB_NONE /* no record */

/* ---- deadlines -------------------------------------------------------------------------------
 *
 * `until` packs a deadline tick (48 bits) and the record's flags (16 bits) into one word.
 */
#define TICK_NEVER ((UINT64_C(1) << 48) - 1)

static inline uint64_t until_tick(uint64_t until)
{
    return until >> 16;
}

static inline bool until_has(uint64_t until, uint16_t flag)
{
    return (until & flag) != 0;
}

static inline uint64_t until_make(uint64_t tick, uint64_t flags)
{
    return tick << 16 | flags;
}

static inline uint64_t until_with_tick(uint64_t until, uint64_t tick)
{
    return until_make(tick, until & 0xffff);
}

/* ---- leases ---------------------------------------------------------------------------------- */

enum lease_flags {
    LEASE_EXCLUSIVE = 1,
    LEASE_BOUND = 2,  /* no TTL of its own: ends with its session */
    LEASE_FORCED = 4, /* asked to let go: never renewed any more */
};

/* One holder of one resource. */
struct lease_record {
    uint64_t secret;  /* half of the lease id; the slot is the other */
    uint64_t token;   /* (peek) */
    uint64_t until;   /* (peek) TICK_NEVER: bound, no timer */
    uint64_t armed;   /* arming sequence of its timer */
    uint32_t ttl_ms;  /* 0: bound */
    uint32_t session; /* (peek) NONE: its session is over, it lives on until its own TTL */
    uint32_t resource;
    uint32_t extra;        /* (peek) NONE, or its value, lock_delay and grace */
    uint32_t holder_next;  /* (peek) NONE at the end */
    uint32_t holder_prev;  /* (peek) of the first holder: how many holders there are */
    uint32_t session_next; /* among its session's leases, newest first; NONE at the end */
    uint32_t session_prev; /* NONE at the head */
};
static_assert(sizeof(struct lease_record) == 64, "a lease is one cache line");

/* ---- resources ------------------------------------------------------------------------------- */

enum { RESOURCE_TEXT_BYTES = 24 };
enum resource_flags { RESOURCE_LONG = 1 /* text[0..3]: slot of its long name */ };

/* A name that is held, waited for, or closed for its lock_delay. */
struct resource_record {
    _Alignas(8) uint8_t text[RESOURCE_TEXT_BYTES]; /* (peek) namespace, name; rest zero */
    uint8_t namespace_bytes;                       /* (peek) these four as one word */
    uint8_t name_bytes;
    uint16_t flags;
    uint32_t key_tag; /* (peek) low 32 bits of the key's hash: its home in the index */
    uint32_t holder;  /* (peek) first holder; NONE = free */
    uint32_t queue;   /* (peek) NONE: nobody waits and it is not closed */
};
static_assert(sizeof(struct resource_record) == 40, "a resource is 40 bytes");

struct long_record {
    _Alignas(8) uint8_t text[320]; /* (peek) namespace, name; rest zero */
};
static_assert(sizeof(((struct long_record *)0)->text) >=
                  WIRE_NAMESPACE_BYTES_MAX + WIRE_NAME_BYTES_MAX,
              "a long name fits");

/* What few leases, waiters and answers have. */
struct extra_record {
    _Alignas(8) uint32_t lock_delay_ms;
    uint32_t grace_ms;
    uint32_t value_bytes; /* (peek) */
    uint32_t zero;
    uint8_t value[256]; /* (peek) rest zero */
};
static_assert(sizeof(struct extra_record) == 272, "an extra is 272 bytes");

/* ---- queues ---------------------------------------------------------------------------------- */

/* Exists while somebody waits for the resource or it is closed: so there are never more queues than
 * waiters and extras. */
struct queue_record {
    uint64_t closed_until; /* tick at which lock_delay is over; TICK_NEVER = not closed */
    uint64_t armed;
    uint32_t resource;
    uint32_t head;    /* first waiter; NONE */
    uint32_t waiters; /* (peek) */
    uint32_t extra;   /* of the lease whose lock_delay it is; NONE = not closed */
};
static_assert(sizeof(struct queue_record) == 32, "a queue is 32 bytes");

enum { RANK_UPGRADER = 256 }; /* above every priority (0..255) */

/* A queue is a list of classes, highest rank first; a class is a list of waiters in log order. The
 * first waiter of a class stands for it. So joining looks at classes (at most 257), never at
 * waiters. */
struct waiter_record {
    uint64_t until; /* its wait limit; TICK_NEVER = as long as the session lives */
    uint64_t armed;
    uint64_t secret; /* of the lease it will get */
    uint32_t session;
    uint32_t answer; /* the stored answer, WIRE_QUEUED until this wait ends */
    uint32_t queue;
    uint32_t lease;  /* upgrader: what it holds shared; else NONE */
    uint32_t ttl_ms; /* 0: bound to the session */
    uint32_t extra;
    uint32_t ordinal;     /* counts up within the class: estimates its position */
    uint32_t next;        /* in the class */
    uint32_t prev;        /* NONE: first of its class */
    uint32_t class_above; /* these four: only in the first of a class */
    uint32_t class_below;
    uint32_t class_last;
    uint32_t class_count;
    uint32_t session_next; /* among its session's waiters */
    uint32_t session_prev;
    uint16_t rank; /* priority, or RANK_UPGRADER */
    uint8_t mode;  /* enum wire_mode */
    uint8_t zero;
};
static_assert(sizeof(struct waiter_record) == 88, "a waiter is 88 bytes");

/* ---- sessions -------------------------------------------------------------------------------- */

enum session_flags {
    SESSION_OVER = 1,   /* its id is unknown from now on; what it holds is being released */
    SESSION_CLOSED = 2, /* by its client: everything is released, not only what is bound */
};

/* What every command of the session touches is in the first cache line. */
struct session_record {
    uint64_t id;          /* (peek) */
    uint64_t acked_below; /* answers below are forgotten: the window starts here */
    uint64_t until;
    uint64_t armed;
    uint32_t lease;   /* newest lease; NONE */
    uint32_t waiter;  /* newest waiter; NONE */
    uint32_t answers; /* stored */
    uint32_t ttl_ms;
    uint32_t over_next; /* among the sessions that are over, oldest first */
    uint16_t shard;     /* for what is pushed to it */
    uint16_t zero;
    uint64_t nonce;

    uint64_t keepalive_number;   /* latest applied; 0 = the open */
    uint64_t keepalive_stamp_ns; /* its stamp */
    uint64_t address_number;     /* of the keepalive that set the address; 0 = the open */
    struct wire_address address;
    uint64_t reserved[2]; /* zero: a session is two cache lines */
};
static_assert(sizeof(struct session_record) == 128, "a session is two cache lines");

/* ---- answers --------------------------------------------------------------------------------- */

enum answer_flags {
    ANSWER_WAITED = 1,    /* granted by a later entry than its own */
    ANSWER_REENTRANT = 2, /* names a lease that an earlier acquire got: cancel leaves it alone */
};

/* What was answered to a number, as long as it is not acknowledged. */
struct answer_record {
    uint64_t number;
    uint32_t session;
    uint8_t op;     /* enum wire_op */
    uint8_t status; /* enum wire_status */
    uint8_t mode;
    uint8_t flags;
    union {
        struct { /* acquire, convert: OK */
            uint64_t secret;
            uint64_t token;
            uint64_t keepalive_number; /* these two: waited */
            uint64_t since_keepalive_ns;
            uint32_t lease;
            uint32_t ttl_ms;
        } granted;
        struct { /* acquire, convert: QUEUED */
            uint32_t waiter;
        } queued;
        struct { /* acquire: BUSY; `mode` is the first holder's */
            uint64_t session;
            uint64_t token;
            uint64_t remaining_ms;
            uint32_t holders;
            uint32_t extra; /* NONE, or a copy of the first holder's value */
        } busy;
        struct { /* acquire: DELAYED */
            uint64_t remaining_ms;
        } delayed;
        struct {           /* keepalive, renew: OK */
            uint64_t lost; /* bit i: renewal i is LOST */
            uint32_t count;
        } renewed;
        struct { /* OVER_LIMIT, BAD_REQUEST */
            uint64_t limit;
            uint32_t what; /* enum wire_what */
        } problem;
        uint64_t words[6];
    };
};
static_assert(sizeof(struct answer_record) == 64, "an answer is one cache line");
static_assert(WIRE_RENEWALS_MAX <= 64, "one bit per renewal");

#endif
