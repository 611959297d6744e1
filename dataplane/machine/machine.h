/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the lock machine. Files, by concern:
 *
 *   lock_limits.c   limits: defaults, check, encoding
 *   lock_machine.c  memory layout, init, counts, deadlines
 *   apply.c         one log entry: judge, prefetch, settle, dispatch
 *   settle.c        what is due: sessions, waits, leases, lock delays
 *   sessions.c      open, keepalive, close, and the bounded ending of a session
 *   answers.c       the replicated window of answers
 *   replies.c       answers and pushes as wire items, and their emission
 *   resources.c     names: finding, making, dropping
 *   queues.c        wait queues
 *   grants.c        holders: granting, and who is next
 *   acquire.c       ACQUIRE
 *   endings.c       RELEASE, FORCE_RELEASE, and how a lease ends
 *   renew.c         RENEW and the renewals of KEEPALIVE
 *   convert.c       CONVERT and CANCEL
 *   reads.c         admission, QUERY, LIST, unconfirmed grants
 *   peek.c          QUERY from any thread
 *   snapshot.c      snapshot steps
 *   restore.c       restore steps, rebuilding of what is derived
 *   verify.c        invariants, and the digest
 *
 * A slot argument is named after what it numbers (`lease`, `session`); the record is `record` or
 * has the same name with a suffix. Functions that may free the record they were given say so.
 */
#ifndef BELAY_DATAPLANE_MACHINE_H
#define BELAY_DATAPLANE_MACHINE_H

#include "dataplane/machine/index.h"
#include "dataplane/machine/lock_machine.h"
#include "dataplane/machine/records.h"
#include "dataplane/machine/shared_words.h"
#include "dataplane/machine/slab.h"
#include "dataplane/machine/timers.h"

/* What one command may do beyond its own effect. All are part of the replicated rules. */
enum {
    /* Dead waiters removed from the head of a queue at one touch; more are left to settling, and
     * each removal there looks at the queue again. */
    TOUCH_WAITERS_MAX = 256,
    /* Shared holders looked at to end those that are due, at one touch of a resource. */
    TOUCH_HOLDERS_MAX = 32,
    /* Steps of the search for a lease of this session on this resource (grants.c). */
    HELD_SEARCH_MAX = 4096,
    /* Holders that one FORCE_RELEASE asks or ends. */
    FORCE_HOLDERS_MAX = 4096,
    /* Resources that one LIST looks at. */
    LIST_SLOTS_MAX = 4096,
};

/* Replicated state outside the records. Snapshots hold it as it is (layout versioned). */
struct lock_state {
    struct lock_limits limits; /* leases_max == 0: none set yet */
    uint32_t promised;         /* waiters that will need a lease: counted against leases_max */
    uint64_t applied_index;
    uint64_t stamp_ns;
    uint64_t armings;    /* arming sequence last given */
    uint64_t token_last; /* last token granted; its epoch is the shard's */
    uint64_t history;    /* chain over everything answered and ended */
    uint64_t granted, released, expired, sessions_expired, lost_renewals, deadlocks;
    uint32_t over_first, over_last; /* sessions that are over and still hold something */
};
static_assert(sizeof(struct lock_state) == 72 + 11 * 8 + 8, "the state has no padding");

/* The slabs in the order of their numbers in snapshots. */
enum slab_number {
    SLAB_LEASES,
    SLAB_RESOURCES,
    SLAB_SESSIONS,
    SLAB_WAITERS,
    SLAB_ANSWERS,
    SLAB_LONG_NAMES,
    SLAB_EXTRAS,
    SLAB_QUEUES,
    SLAB_COUNT
};

/* A name as a request gives it: namespace, then name, without separator. */
struct key {
    const uint8_t *text;
    uint64_t hash;
    uint16_t bytes; /* of both */
    uint8_t namespace_bytes;
    uint8_t name_bytes;
};

/* The entry being applied. */
struct entry_now {
    uint64_t stamp_ns;
    uint64_t tick; /* what is due at it is over */
    struct lock_sink *sink;
    uint64_t key_hash; /* of an acquire's name */
    uint32_t command;  /* ordinal of the command being applied */
    uint16_t shard;    /* as its item says */
};

enum timer_kind { TIMER_LEASE, TIMER_SESSION, TIMER_WAITER, TIMER_QUEUE };
enum { TIMER_KINDS = TIMER_QUEUE + 1 };

enum { AHEAD_COMMANDS = 32 /* announced at once; a power of two */ };

struct announced {
    const struct wire_request *request;
    uint64_t key_hash; /* acquires */
    uint32_t session;  /* a guess */
};

/* Commands whose cache lines are on their way (apply.c). No state: a machine may forget it. Counts
 * are of the stream that begins with the first command of the entry being applied. */
struct ahead {
    const uint8_t *payload; /* of the entry that the stream begins with; NULL = none */
    uint64_t index;
    const struct wire_item *item; /* to be announced next */
    const struct wire_item *end;  /* of the entry; from there it goes on at next_item */
    const struct wire_item *next_item;
    uint32_t named, found, neighbours; /* have passed each stage */
    uint32_t ring;
    struct announced commands[AHEAD_COMMANDS];
};

struct capture; /* snapshot.c */
struct restore; /* restore.c */

struct lock_machine {
    struct lock_state state;
    struct entry_now now;

    struct slab slabs[SLAB_COUNT];
    struct index names;  /* key hash -> resource */
    struct index ids;    /* session id -> session */
    struct index nonces; /* client's nonce, mixed -> session */
    uint32_t *windows;   /* per session: answer of each number, at number & window_mask; or NONE */
    uint32_t window_mask;
    struct timers timers;
    uint32_t timers_before[TIMER_KINDS]; /* of other kinds */
    struct ahead ahead;

    struct lock_limits capacity;
    uint64_t lateness_ns_max;
    struct capture *capture;
    struct restore *restore;
    bool restoring; /* between restore_begin and a successful restore_end: nothing may be applied */
};

/* ---- records --------------------------------------------------------------------------------- */

/* lease_at() reads, lease_change() is for writing: it lets a snapshot in progress have the record
 * as it was. */
#define RECORD_ACCESSORS(kind, number)                                                             \
    static inline const struct kind##_record *kind##_at(const struct lock_machine *machine,        \
                                                        uint32_t slot)                             \
    {                                                                                              \
        return (const struct kind##_record *)(const void *)machine->slabs[number].records + slot;  \
    }                                                                                              \
    static inline struct kind##_record *kind##_change(struct lock_machine *machine, uint32_t slot) \
    {                                                                                              \
        slab_touch(&machine->slabs[number], slot);                                                 \
        return (struct kind##_record *)(void *)machine->slabs[number].records + slot;              \
    }
RECORD_ACCESSORS(lease, SLAB_LEASES)
RECORD_ACCESSORS(resource, SLAB_RESOURCES)
RECORD_ACCESSORS(session, SLAB_SESSIONS)
RECORD_ACCESSORS(waiter, SLAB_WAITERS)
RECORD_ACCESSORS(answer, SLAB_ANSWERS)
RECORD_ACCESSORS(long, SLAB_LONG_NAMES)
RECORD_ACCESSORS(extra, SLAB_EXTRAS)
RECORD_ACCESSORS(queue, SLAB_QUEUES)
#undef RECORD_ACCESSORS

static inline uint32_t live(const struct lock_machine *machine, enum slab_number number)
{
    return machine->slabs[number].live;
}

static inline void count_up(uint64_t *count)
{
    WORD_PUT(*count, *count + 1);
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Rounded up: a deadline never ends early. Saturates far beyond any stamp's tick. */
static inline uint64_t tick_after(uint64_t stamp_ns, uint64_t span_ms)
{
    uint64_t span_ns;
    uint64_t end_ns;
    if (__builtin_mul_overflow(span_ms, UINT64_C(1000000), &span_ns) ||
        __builtin_add_overflow(stamp_ns, span_ns, &end_ns)) {
        return TIMERS_TICK_END - 1;
    }
    return end_ns / LOCK_TICK_NS + (end_ns % LOCK_TICK_NS != 0);
}

static inline bool is_due(const struct lock_machine *machine, uint64_t until)
{
    return until_tick(until) <= machine->now.tick;
}

/* Milliseconds from the stamp to the tick, rounded up; UINT64_MAX = never. */
uint64_t remaining_ms(uint64_t stamp_ns, uint64_t tick);

/* Each kind's timers are a range of the timers' numbers. */
static inline uint32_t timer_id(const struct lock_machine *machine, enum timer_kind kind,
                                uint32_t slot)
{
    return machine->timers_before[kind] + slot;
}
enum timer_kind timer_of(const struct lock_machine *machine, uint32_t id, uint32_t *slot);

/* Draws the next arming sequence. */
static inline uint64_t next_arming(struct lock_machine *machine)
{
    return ++machine->state.armings;
}

void lease_arm(struct lock_machine *machine, uint32_t lease, uint64_t tick);
void lease_disarm(struct lock_machine *machine, uint32_t lease);

/* Chains what was decided into the history (lock_machine_history). */
static inline void history_add(struct lock_machine *machine, uint64_t a, uint64_t b)
{
    uint64_t mixed = (machine->state.history ^ a) * UINT64_C(0x9e3779b97f4a7c15);
    machine->state.history = (mixed ^ mixed >> 32) + b;
}

static inline uint64_t mix64(uint64_t value)
{
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

/* ---- resources ------------------------------------------------------------------------------- */

/* The text is readable up to the next multiple of 8 bytes, as in every item and record. */
struct key key_of(const uint8_t *text, uint8_t namespace_bytes, uint8_t name_bytes);
/* With the hash at hand. */
static inline struct key key_with_hash(const uint8_t *text, uint8_t namespace_bytes,
                                       uint8_t name_bytes, uint64_t hash)
{
    return (struct key){
        .text = text,
        .hash = hash,
        .bytes = (uint16_t)(namespace_bytes + name_bytes),
        .namespace_bytes = namespace_bytes,
        .name_bytes = name_bytes,
    };
}
uint32_t resource_find(const struct lock_machine *machine, const struct key *key);
/* The text is in the record or in its long name. */
const uint8_t *resource_text(const struct lock_machine *machine,
                             const struct resource_record *record);
/* WIRE_WHAT_NONE, or the capacity that a new resource of this key would exceed. */
enum wire_what resource_limit(const struct lock_machine *machine, const struct key *key,
                              uint64_t *limit);
/* Both inside a bracket of the key (resource_write_begin). */
uint32_t resource_create(struct lock_machine *machine, const struct key *key);
void resource_drop(struct lock_machine *machine, uint32_t resource);
/* Nobody holds it or waits for it and it is not closed. */
static inline bool resource_is_idle(const struct resource_record *record)
{
    /* Word by word: one load of both would wait for the store of either. */
    return WORD_GET(record->holder) == NONE && WORD_GET(record->queue) == NONE;
}

/* Brackets a change that readers of other threads must see whole. Not nested. */
static inline void resource_write_begin(struct lock_machine *machine, uint32_t resource)
{
    index_write_begin(&machine->names, resource_at(machine, resource)->key_tag);
}

static inline void resource_write_end(struct lock_machine *machine, uint32_t resource)
{
    index_write_end(&machine->names, resource_at(machine, resource)->key_tag);
}

static inline uint32_t holders_of(const struct lock_machine *machine,
                                  const struct resource_record *record)
{
    return record->holder == NONE ? 0 : lease_at(machine, record->holder)->holder_prev;
}

static inline uint32_t waiters_of(const struct lock_machine *machine,
                                  const struct resource_record *record)
{
    return record->queue == NONE ? 0 : queue_at(machine, record->queue)->waiters;
}

/* Tick until which the resource is closed for a lock_delay; 0 = open. */
uint64_t resource_closed_until(const struct lock_machine *machine,
                               const struct resource_record *record);

/* Ends what is due on the resource and grants what follows, within the TOUCH bounds; a command does
 * this to whatever it touches, because settling may not have got there. Returns the resource, or
 * NONE if it is idle now and gone. */
uint32_t resource_touch(struct lock_machine *machine, uint32_t resource);

/* ---- extras ---------------------------------------------------------------------------------- */

uint32_t extra_create(struct lock_machine *machine, uint32_t lock_delay_ms, uint32_t grace_ms,
                      const uint8_t *value, uint32_t value_bytes);
void extra_free(struct lock_machine *machine, uint32_t extra); /* NONE is fine */

/* ---- holders and grants ---------------------------------------------------------------------- */

struct grant_terms {
    uint64_t secret;
    uint32_t session;
    uint32_t ttl_ms;
    uint32_t extra;
    uint8_t mode; /* enum wire_mode */
};
/* A new lease on the resource, with the next token, ending a TTL (and grace) after this stamp. The
 * caller has checked that it may be granted and that a lease and a token are left, and has opened a
 * bracket. */
uint32_t grant(struct lock_machine *machine, uint32_t resource, const struct grant_terms *terms);

/* False: the last token of the last epoch is spent. */
static inline bool tokens_left(const struct lock_machine *machine)
{
    return machine->state.token_last != UINT64_MAX;
}

/* Gives the lease a new token. */
void lease_new_token(struct lock_machine *machine, uint32_t lease);

/* Deadline tick of a grant or renewal with this TTL by this entry. */
uint64_t lease_deadline(const struct lock_machine *machine, const struct lease_record *record,
                        uint32_t ttl_ms);

/* Shared to exclusive: new token, whole TTL. It is the only holder. */
void lease_upgrade(struct lock_machine *machine, uint32_t lease);

/* Takes the lease out of its lists and frees it, not its extra, without granting anybody. The
 * resource goes with it if it is idle then and need not `stay`: true if it is gone. */
bool lease_remove(struct lock_machine *machine, uint32_t lease, bool stay);

/* Grants whoever is next, in order, as far as holders, delay and limits allow. Frees the resource
 * if it is idle in the end: then returns NONE, else the resource. */
uint32_t grant_next(struct lock_machine *machine, uint32_t resource);

/* A lease that this session has on the resource; NONE. */
uint32_t lease_of_session(const struct lock_machine *machine, uint32_t resource, uint32_t session);
/* The one that it got by the acquire with that number (wire_lease_secret). NONE = none, or not seen
 * within HELD_SEARCH_MAX steps. */
uint32_t lease_of_number(const struct lock_machine *machine, uint32_t resource, uint32_t session,
                         uint64_t number);

static inline bool holders_exclusive(const struct lock_machine *machine,
                                     const struct resource_record *record)
{
    return record->holder != NONE &&
           until_has(lease_at(machine, record->holder)->until, LEASE_EXCLUSIVE);
}

static inline bool holders_allow(const struct lock_machine *machine,
                                 const struct resource_record *record, uint8_t mode)
{
    return record->holder == NONE || (mode == WIRE_SHARED && !holders_exclusive(machine, record));
}

/* ---- endings --------------------------------------------------------------------------------- */

enum lease_end {
    LEASE_RELEASED, /* by its holder, or by closing its session */
    LEASE_EXPIRED,  /* its deadline passed, or its session's */
    LEASE_FORCED_OUT,
};
/* Ends the lease, tells its session unless the session itself let go (`told`), closes the resource
 * for its lock_delay if it expired, and grants whoever is next. May free the resource; returns as
 * grant_next does. */
uint32_t lease_end(struct lock_machine *machine, uint32_t lease, enum lease_end how, bool told);

/* Ends a lease that is over (lease_is_over). */
uint32_t lease_end_over(struct lock_machine *machine, uint32_t lease);

/* The live, not due lease of this id and key; NONE. A due one is ended first. */
uint32_t lease_find(struct lock_machine *machine, const struct wire_lease_id *id, uint32_t key_tag);

/* True if the lease, or the session it is bound to, is over at this entry. */
bool lease_is_over(const struct lock_machine *machine, const struct lease_record *record);

/* ---- queues ---------------------------------------------------------------------------------- */

/* The resource's queue, made if need be. */
uint32_t queue_of(struct lock_machine *machine, uint32_t resource);
void queue_drop_if_empty(struct lock_machine *machine, uint32_t queue);
/* Closes the resource until the tick (a later end wins); takes over the extra that said so. */
void queue_close(struct lock_machine *machine, uint32_t queue, uint64_t tick, uint32_t extra);
void queue_open(struct lock_machine *machine, uint32_t queue);

struct wait_terms {
    struct grant_terms grant;
    uint32_t answer;
    uint32_t lease; /* upgrader's */
    uint32_t wait_ms;
    uint16_t rank;
};
uint32_t waiter_join(struct lock_machine *machine, uint32_t resource,
                     const struct wait_terms *terms);
/* At most so many are ahead: exact unless waiters in the middle have left. */
uint32_t waiter_position(const struct lock_machine *machine, uint32_t waiter);
/* Its wait limit or session is over. */
bool waiter_is_over(const struct lock_machine *machine, const struct waiter_record *record);
/* Takes the waiter out and frees it, not its extra. The queue stays. */
void waiter_remove(struct lock_machine *machine, uint32_t waiter);
/* Ends the wait with this status in its answer. Grants nobody; the queue stays. */
void waiter_end(struct lock_machine *machine, uint32_t waiter, enum wire_status status);
/* First rank in the queue; -1 = nobody waits. */
int queue_first_rank(const struct lock_machine *machine, const struct resource_record *record);
/* The waiting upgrader; NONE. */
uint32_t queue_upgrader(const struct lock_machine *machine, const struct resource_record *record);

/* ---- sessions -------------------------------------------------------------------------------- */

/* By id; NONE for one that is over. Does not look at its deadline. `hint`: a slot that it may be.
 */
static inline bool session_is(const struct lock_machine *machine, uint32_t slot, uint64_t id)
{
    /* A record that was freed says over; one that was never taken has no id. */
    return slot != NONE && session_at(machine, slot)->id == id &&
           !until_has(session_at(machine, slot)->until, SESSION_OVER);
}
uint32_t session_find(const struct lock_machine *machine, uint64_t id);
uint32_t session_find_nonce(const struct lock_machine *machine, uint64_t nonce);
static inline bool session_is_over(const struct lock_machine *machine,
                                   const struct session_record *record)
{
    return until_has(record->until, SESSION_OVER) || is_due(machine, record->until);
}
/* Over from now on; what it has is released by session_end_step. */
void session_end(struct lock_machine *machine, uint32_t session, bool closed);
/* One bounded step of the oldest session that is over; false if there is none. */
bool session_end_step(struct lock_machine *machine);
void session_rearm(struct lock_machine *machine, uint32_t session, uint64_t tick);
void apply_open(struct lock_machine *machine, const struct wire_open *open);

/* ---- answers --------------------------------------------------------------------------------- */

static inline uint32_t *window_cell(const struct lock_machine *machine, uint32_t session,
                                    uint64_t number)
{
    return &machine->windows[(size_t)session * (machine->window_mask + 1) +
                             (number & machine->window_mask)];
}

/* A cell is NONE, or an answer's slot, marked if forgetting it takes a look at the record: it may
 * still wait, or own an extra. Most do not, and are forgotten without touching their cache line. */
#define CELL_LOOK (UINT32_C(1) << 31)
static inline uint32_t cell_answer(uint32_t cell)
{
    return cell == NONE ? NONE : cell & ~CELL_LOOK;
}
static inline bool answer_needs_look(const struct answer_record *answer)
{
    return answer->status == WIRE_QUEUED || answer->status == WIRE_BUSY;
}
/* To be called when answer_needs_look has become true. */
static inline void answer_mark_look(struct lock_machine *machine,
                                    const struct answer_record *answer)
{
    *window_cell(machine, answer->session, answer->number) |= CELL_LOOK;
}

/* The stored answer; NONE. The number is inside the window. */
static inline uint32_t answer_find(const struct lock_machine *machine, uint32_t session,
                                   uint64_t number)
{
    return cell_answer(*window_cell(machine, session, number));
}
uint32_t answer_create(struct lock_machine *machine, uint32_t session, uint64_t number, uint8_t op);
void answer_free(struct lock_machine *machine, uint32_t answer);
/* Forgets answers below (above what is forgotten already); one that is still waiting leaves the
 * window and stays with its waiter. */
void answers_forget(struct lock_machine *machine, uint32_t session, uint64_t below);
static inline void answers_trim(struct lock_machine *machine, uint32_t session, uint64_t below)
{
    if (below > session_at(machine, session)->acked_below) {
        answers_forget(machine, session, below);
    }
}
static inline bool answer_is_passed(const struct lock_machine *machine,
                                    const struct answer_record *answer)
{
    return answer->number < session_at(machine, answer->session)->acked_below;
}
/* The wait that it stood for is over and has been told: forgets it if it was passed over. */
void answer_ended(struct lock_machine *machine, uint32_t answer);
/* The answer of a waiter whose number was passed over; NONE. */
uint32_t answer_find_passed(const struct lock_machine *machine, uint32_t session, uint64_t number);
/* Whether a request of this op may be a retry of what was answered. A convert may find that it was
 * cancelled before it was seen: nobody knew then that it would not be an acquire. */
static inline bool answer_fits(const struct answer_record *answer, uint8_t op)
{
    return answer->op == op || (op == WIRE_OP_CONVERT && answer->status == WIRE_CANCELLED);
}
/* OK, STALE_REQUEST or WINDOW_FULL. */
enum wire_status window_check(const struct lock_machine *machine,
                              const struct session_record *record, uint64_t number);
void answer_problem(struct answer_record *answer, enum wire_status status, enum wire_what what,
                    uint64_t limit);
/* `answer` is fresh. */
void answer_granted(const struct lock_machine *machine, struct answer_record *answer,
                    uint32_t lease, uint8_t flags);

/* ---- replies --------------------------------------------------------------------------------- */

enum { REPLY_BYTES_MAX = 512 }; /* lock_machine_admit's buffer */

struct reply_head {
    uint64_t session;
    uint64_t number;
    uint16_t shard;
    uint8_t op;
};
/* Each builds one item at `out` (REPLY_BYTES_MAX). */
void build_status(void *out, const struct reply_head *head, enum wire_status status);
void build_problem(void *out, const struct reply_head *head, enum wire_status status,
                   enum wire_what what, uint64_t limit);
void build_opened(const struct lock_machine *machine, void *out, const struct reply_head *head,
                  const struct session_record *record);
void build_answer(const struct lock_machine *machine, void *out, const struct reply_head *head,
                  const struct answer_record *answer);

void reply_status(struct lock_machine *machine, const struct wire_request *request,
                  const struct wire_address *address, enum wire_status status);
void reply_problem(struct lock_machine *machine, const struct wire_request *request,
                   const struct wire_address *address, enum wire_status status, enum wire_what what,
                   uint64_t limit);
void reply_opened(struct lock_machine *machine, const struct wire_open *open, uint32_t session);
void reply_answer(struct lock_machine *machine, const struct wire_request *request,
                  uint32_t session, const struct answer_record *answer);
void push_grant(const struct lock_machine *machine, struct lock_sink *sink,
                const struct answer_record *answer);
void push_lost(struct lock_machine *machine, uint32_t lease, enum wire_status reason, bool final);

/* ---- commands: each fills the answer that was created for it --------------------------------- */

void apply_acquire(struct lock_machine *machine, const struct wire_acquire *acquire,
                   uint32_t session, uint32_t answer);
void apply_release(struct lock_machine *machine, const struct wire_release *release,
                   uint32_t session, uint32_t answer);
void apply_force_release(struct lock_machine *machine, const struct wire_named *named,
                         uint32_t answer);
void apply_renew(struct lock_machine *machine, const struct wire_renew *renew, uint32_t answer);
void apply_keepalive(struct lock_machine *machine, const struct wire_renew *renew, uint32_t session,
                     uint32_t answer);
void apply_convert(struct lock_machine *machine, const struct wire_convert *convert,
                   uint32_t session, uint32_t answer);
void apply_cancel(struct lock_machine *machine, const struct wire_cancel *cancel, uint32_t session,
                  uint32_t answer);

/* ---- settling -------------------------------------------------------------------------------- */

/* Ends what is due, in order, at most so many. */
void settle(struct lock_machine *machine, uint32_t endings_max);

/* ---- restore --------------------------------------------------------------------------------- */

void machine_blank(struct lock_machine *machine);

#endif
