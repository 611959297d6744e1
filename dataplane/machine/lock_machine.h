/* SPDX-License-Identifier: Apache-2.0
 *
 * The lock machine: the replicated state of one shard (sessions with their answers, resources,
 * leases, wait queues, timers) and the deterministic function that applies a log entry to it.
 *
 * Pure: no clock, no I/O, no allocation after init, no randomness; a result depends on the log and
 * the state alone. Two machines fed the same entries, or one of them restored from a snapshot of
 * the other at any index and fed the rest, hold equal state (equal digests) and emit equal outputs.
 *
 * One owner thread changes it. Other threads may call the functions marked "any thread": they read
 * without locks, against the writer, and are clean under ThreadSanitizer.
 */
#ifndef BELAY_DATAPLANE_LOCK_MACHINE_H
#define BELAY_DATAPLANE_LOCK_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dataplane/wire/wire.h"

/* Every bound that can change a result. Replicated: set by a LOG_LIMITS entry (the first of a
 * shard), in the snapshot, equal on every replica. Memory is sized from it at init. */
struct lock_limits {
    uint32_t leases_max;    /* holders: one per exclusive lock, one per shared holder */
    uint32_t resources_max; /* names that are held, waited for, or delayed */
    uint32_t sessions_max;
    uint32_t waiters_max;
    uint32_t answers_max;    /* stored answers, all sessions together */
    uint32_t long_names_max; /* resources whose namespace + name exceed 24 bytes */
    uint32_t extras_max;     /* leases or waiters with a value, lock_delay or grace */
    uint32_t window;         /* unacknowledged numbers per session */
    uint32_t queue_max;      /* waiters of one resource */
    uint32_t ttl_ms_min, ttl_ms_max;
    uint32_t session_ttl_ms_min, session_ttl_ms_max;
    uint32_t wait_ms_max; /* beside WIRE_WAIT_FOREVER */
    uint32_t lock_delay_ms_max;
    uint32_t grace_ms_max;
    uint16_t token_epoch; /* of this shard's beginning; tokens are {epoch 16, count 48} */
    uint16_t zero;
};

enum { LOCK_LIMITS_BYTES = 72 };
/* Payload of a LOG_LIMITS entry. The decoder is total. */
void lock_limits_encode(const struct lock_limits *limits, uint8_t bytes[LOCK_LIMITS_BYTES]);
bool lock_limits_decode(struct lock_limits *limits, const uint8_t *bytes, size_t length);
/* Defaults for `leases` held locks per shard. */
struct lock_limits lock_limits_for(uint32_t leases);
/* NULL if sound, else what is wrong (a sentence naming the field and its range). */
const char *lock_limits_check(const struct lock_limits *limits);
/* Whether a machine made for `capacity` can hold a shard with these limits. */
bool lock_limits_fit(const struct lock_limits *limits, const struct lock_limits *capacity);

/* Payload of a LOG_COMMANDS entry: this, then `count` request items (dataplane/wire/wire.h) with
 * the leader's fields filled. */
struct lock_batch {
    uint32_t count;
    uint32_t endings_max; /* at most so many due endings are settled by this entry */
};
enum { LOCK_ENDINGS_DEFAULT = 256 };

/* One tick: deadlines are rounded up to it. About a millisecond. */
#define LOCK_TICK_NS (UINT64_C(1) << 20)

struct lock_machine;

/* Memory that lock_machine_init needs for these limits. The parts, for `--check-config`. */
struct lock_memory {
    size_t total;
    size_t leases, resources, sessions, waiters, answers, long_names, extras, timers, other;
};
struct lock_memory lock_machine_memory(const struct lock_limits *limits);

/* `memory`: 64-byte aligned, zero-filled, lock_machine_memory().total long, owned by the caller.
 * The limits are the capacity; the state starts blank, without limits of its own, until LOG_LIMITS.
 */
struct lock_machine *lock_machine_init(void *memory, const struct lock_limits *limits);

/* ---- outputs --------------------------------------------------------------------------------- */

enum lock_output_kind {
    LOCK_OUT_REPLY,      /* answer to a command of this entry */
    LOCK_OUT_PUSH_GRANT, /* a waiter was granted: tell its session */
    LOCK_OUT_PUSH_LOST,  /* a lease ended, or its holder is asked to let go */
};

/* `item` is a complete reply item (struct wire_granted, wire_busy, ...), valid during the call. */
struct lock_output {
    enum lock_output_kind kind;
    const struct wire_address
        *address; /* the session's; NULL: unknown session, answer the sender */
    const struct wire_item *item;
    uint32_t command; /* REPLY: ordinal of the command in its batch */
};

struct lock_sink {
    void (*emit)(void *context, const struct lock_output *output);
    void *context;
};

/* ---- applying -------------------------------------------------------------------------------- */

enum lock_entry_kind { LOCK_ENTRY_COMMANDS, LOCK_ENTRY_LIMITS, LOCK_ENTRY_EMPTY };

struct lock_entry {
    uint64_t index;
    uint64_t stamp_ns;
    enum lock_entry_kind kind;
    const uint8_t *payload; /* 8-byte aligned */
    size_t payload_bytes;
};

/* Settles time to the stamp (at most endings_max endings), then applies the commands in order. sink
 * may be NULL (followers). 0, or a negative errno: -EBADMSG payload malformed (nothing applied; a
 * correct leader never writes one), -ENOSPC LOG_LIMITS beyond this machine's capacity. */
int lock_machine_apply(struct lock_machine *machine, const struct lock_entry *entry,
                       struct lock_sink *sink);

/* The same, for who knows already which entry will be applied next (NULL: nobody does): what that
 * one will touch is fetched meanwhile. Its payload must stay as it is until then. If another one is
 * applied instead, no harm is done. */
int lock_machine_apply_ahead(struct lock_machine *machine, const struct lock_entry *entry,
                             const struct lock_entry *next, struct lock_sink *sink);

/* Earliest deadline in shard time; UINT64_MAX = none. Something is due at shard time `now` if it is
 * <= now: the leader then proposes an empty entry. Exact within about four seconds ahead; beyond, a
 * lower bound (by less than 4.3 s, for deadlines over an hour ahead by less than 74 min): an entry
 * proposed at it ends nothing and makes it exact. */
uint64_t lock_machine_next_deadline(const struct lock_machine *machine);

/* ---- admission (owner thread; only saves work, apply decides) -------------------------------- */

enum lock_admission {
    LOCK_ADMIT,    /* new: propose it */
    LOCK_ANSWERED, /* `item` out-buffer holds the stored answer: resend it */
    LOCK_REFUSED,  /* out-buffer holds SESSION_LOST, STALE_REQUEST or WINDOW_FULL */
};
/* out: at least 512 bytes, 8-byte aligned. */
enum lock_admission lock_machine_admit(const struct lock_machine *machine,
                                       const struct wire_request *request, void *out);

/* Session's address, for leader-filled fields and pushes; NULL = no such session. */
const struct wire_address *lock_machine_session_address(const struct lock_machine *machine,
                                                        uint64_t session);

/* Pushes that a new leader must repeat: walks sessions from *cursor (start with 0), at most
 * `sessions_max` of them, emits a PUSH_GRANT for every grant after a wait whose answer is not yet
 * acknowledged; false when the walk is over. */
bool lock_machine_unconfirmed(const struct lock_machine *machine, uint64_t *cursor,
                              uint32_t sessions_max, struct lock_sink *sink);

/* ---- reads ----------------------------------------------------------------------------------- */

/* QUERY or LIST: builds one reply item of at most `capacity` bytes (<= 1,280) into out (8-byte
 * aligned). Returns its length. Owner thread. Looks at a bounded number of records; LIST may return
 * an empty page with a cursor. `age_ns` goes into the answer. */
size_t lock_machine_read(const struct lock_machine *machine, const struct wire_named *request,
                         uint64_t age_ns, void *out, size_t capacity);

/* QUERY with WIRE_STALE from any thread, lock-free: holders and counts of one resource as of some
 * recent moment. Same answer item; waiters are counted, not listed. */
size_t lock_machine_peek(const struct lock_machine *machine, const struct wire_named *request,
                         uint64_t age_ns, void *out, size_t capacity);

struct lock_counts {
    uint64_t applied_index;
    uint64_t stamp_ns;
    uint32_t leases, resources, sessions, waiters, answers;
    uint64_t granted, released, expired, sessions_expired, lost_renewals, deadlocks;
    uint64_t lateness_ns_max; /* of lease endings since start */
    uint64_t token_last;
};
/* Any thread (each field is consistent in itself). */
void lock_machine_counts(const struct lock_machine *machine, struct lock_counts *counts);

/* Order-independent digest of the whole logical state: equal at equal indexes on every replica.
 * Computed on demand over every record (tens of milliseconds per million locks): for tests, and for
 * snapshots, whose tail carries it. Owner thread. */
uint64_t lock_machine_digest(const struct lock_machine *machine);

/* Chain over everything that was answered, granted and ended so far: equal at equal indexes on
 * every replica, and different for ever once replicas have decided differently. Travels in
 * snapshots. One load: for status pages and alarms. Owner thread. */
uint64_t lock_machine_history(const struct lock_machine *machine);

/* ---- snapshot -------------------------------------------------------------------------------- */

/* Starts a snapshot of the state as of now (the last applied entry). Entries may be applied between
 * steps: what they change and the snapshot has not passed yet is saved first. */
void lock_machine_snapshot_begin(struct lock_machine *machine);

/* Produces up to `capacity` (>= 64 KiB) bytes; returns the count; 0 = complete. -ENOBUFS: the saved
 * old versions outgrew their bound because steps came too slowly; begin again. */
long lock_machine_snapshot_step(struct lock_machine *machine, uint8_t *out, size_t capacity);
void lock_machine_snapshot_abort(struct lock_machine *machine);

/* Restores into a machine just initialised (or wiped by begin). Chunks may be cut anywhere. step
 * and end: 0, -EBADMSG not a snapshot or damaged, -ENOSPC beyond this machine's capacity; after an
 * error the machine is blank. `end` finishes the indexes; it does bounded work per call: repeat
 * while -EAGAIN. */
void lock_machine_restore_begin(struct lock_machine *machine);
int lock_machine_restore_step(struct lock_machine *machine, const uint8_t *bytes, size_t length);
int lock_machine_restore_end(struct lock_machine *machine);

/* Checks every invariant of the structure (tests, simulator): NULL or a sentence. O(n). */
const char *lock_machine_verify(const struct lock_machine *machine);

#endif
