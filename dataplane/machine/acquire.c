/* SPDX-License-Identifier: Apache-2.0
 *
 * ACQUIRE: granted now, or told why not, or set to wait.
 */
#include "consensus/plant.h"
#include "dataplane/machine/machine.h"

struct attempt {
    const struct wire_acquire *acquire;
    struct key key;
    uint32_t session;
    uint32_t answer;
    uint32_t resource; /* NONE: nobody holds it, waits for it or closed it */
};

static bool over(struct answer_record *answer, enum wire_what what, uint64_t limit)
{
    answer_problem(answer, WIRE_OVER_LIMIT, what, limit);
    return true;
}

static bool has_extra(const struct wire_acquire *acquire)
{
    return acquire->lock_delay_ms != 0 || acquire->grace_ms != 0 || acquire->value_bytes != 0;
}

/* Times beyond what the shard allows. */
static bool times_refused(const struct lock_limits *limits, const struct wire_acquire *acquire,
                          struct answer_record *answer)
{
    uint8_t flags = acquire->request.item.flags;
    if ((flags & WIRE_SESSION_BOUND) == 0) {
        if (acquire->ttl_ms < limits->ttl_ms_min) {
            return over(answer, WIRE_WHAT_TTL_MIN, limits->ttl_ms_min);
        }
        if (acquire->ttl_ms > limits->ttl_ms_max) {
            return over(answer, WIRE_WHAT_TTL_MAX, limits->ttl_ms_max);
        }
    }
    if ((flags & WIRE_TRY) == 0 && acquire->wait_ms != WIRE_WAIT_FOREVER &&
        acquire->wait_ms > limits->wait_ms_max) {
        return over(answer, WIRE_WHAT_WAIT_MAX, limits->wait_ms_max);
    }
    if (acquire->lock_delay_ms > limits->lock_delay_ms_max) {
        return over(answer, WIRE_WHAT_DELAY_MAX, limits->lock_delay_ms_max);
    }
    if (acquire->grace_ms > limits->grace_ms_max) {
        return over(answer, WIRE_WHAT_GRACE_MAX, limits->grace_ms_max);
    }
    return false;
}

/* What both a holder and a waiter need: every waiter has a lease promised, so that granting it
 * never fails. */
static bool capacity_refused(const struct lock_machine *machine, const struct attempt *attempt,
                             struct answer_record *answer)
{
    const struct lock_limits *limits = &machine->state.limits;
    uint64_t limit;
    if ((uint64_t)live(machine, SLAB_LEASES) + machine->state.promised >= limits->leases_max) {
        return over(answer, WIRE_WHAT_LEASES, limits->leases_max);
    }
    if (has_extra(attempt->acquire) && live(machine, SLAB_EXTRAS) >= limits->extras_max) {
        return over(answer, WIRE_WHAT_EXTRAS, limits->extras_max);
    }
    if (attempt->resource == NONE) {
        enum wire_what what = resource_limit(machine, &attempt->key, &limit);
        if (what != WIRE_WHAT_NONE) {
            return over(answer, what, limit);
        }
    }
    return false;
}

static struct grant_terms terms_of(struct lock_machine *machine, const struct attempt *attempt)
{
    const struct wire_acquire *acquire = attempt->acquire;
    const uint8_t *value = acquire->text + acquire->namespace_bytes + acquire->name_bytes;
    return (struct grant_terms){
        .secret = acquire->request.drawn,
        .session = attempt->session,
        .ttl_ms = acquire->ttl_ms,
        .extra = has_extra(acquire) ? extra_create(machine, acquire->lock_delay_ms,
                                                   acquire->grace_ms, value, acquire->value_bytes)
                                    : NONE,
        .mode = acquire->mode,
    };
}

/* ---- what becomes of it ---------------------------------------------------------------------- */

static void acquire_now(struct lock_machine *machine, struct attempt *attempt)
{
    struct answer_record *answer = answer_change(machine, attempt->answer);
    if (capacity_refused(machine, attempt, answer)) {
        return;
    }
    struct grant_terms terms = terms_of(machine, attempt);
    index_write_begin(&machine->names, (uint32_t)attempt->key.hash);
    if (attempt->resource == NONE) {
        attempt->resource = resource_create(machine, &attempt->key);
    }
    uint32_t lease = grant(machine, attempt->resource, &terms);
    index_write_end(&machine->names, (uint32_t)attempt->key.hash);
    answer_granted(machine, answer, lease, 0);
}

static void acquire_later(struct lock_machine *machine, const struct attempt *attempt)
{
    const struct lock_limits *limits = &machine->state.limits;
    struct answer_record *answer = answer_change(machine, attempt->answer);
    const struct resource_record *resource = resource_at(machine, attempt->resource);
    if (live(machine, SLAB_WAITERS) >= limits->waiters_max) {
        (void)over(answer, WIRE_WHAT_WAITERS, limits->waiters_max);
        return;
    }
    if (waiters_of(machine, resource) >= limits->queue_max) {
        (void)over(answer, WIRE_WHAT_QUEUE, limits->queue_max);
        return;
    }
    if (capacity_refused(machine, attempt, answer)) {
        return;
    }
    struct wait_terms terms = {
        .grant = terms_of(machine, attempt),
        .answer = attempt->answer,
        .lease = NONE,
        .wait_ms = attempt->acquire->wait_ms,
        .rank = PLANTED(priority_ignored) ? 0 : attempt->acquire->priority,
    };
    (void)waiter_join(machine, attempt->resource, &terms);
}

/* The session holds it already. */
static void acquire_again(struct lock_machine *machine, const struct attempt *attempt,
                          uint32_t lease)
{
    struct answer_record *answer = answer_change(machine, attempt->answer);
    const struct lease_record *record = lease_at(machine, lease);
    uint8_t held = until_has(record->until, LEASE_EXCLUSIVE) ? WIRE_EXCLUSIVE : WIRE_SHARED;
    if (held != attempt->acquire->mode) {
        /* It would wait for itself; CONVERT is the way. */
        answer->status = WIRE_DEADLOCK;
        count_up(&machine->state.deadlocks);
        return;
    }
    if ((attempt->acquire->request.item.flags & WIRE_REENTRANT) == 0 ||
        until_has(record->until, LEASE_FORCED)) {
        answer->status = WIRE_ALREADY_HELD;
        return;
    }
    /* The client counts its deadline from this request: so does the lease. */
    lease_arm(machine, lease, lease_deadline(machine, record, record->ttl_ms));
    answer_granted(machine, answer, lease, ANSWER_REENTRANT);
}

static void answer_busy(struct lock_machine *machine, const struct attempt *attempt)
{
    const struct resource_record *resource = resource_at(machine, attempt->resource);
    struct answer_record *answer = answer_change(machine, attempt->answer);
    answer->status = WIRE_BUSY;
    answer_mark_look(machine, answer);
    answer->mode = attempt->acquire->mode;
    answer->busy.extra = NONE;
    if (resource->holder == NONE) { /* free, but others wait: nobody passes them */
        return;
    }
    const struct lease_record *first = lease_at(machine, resource->holder);
    answer->mode = until_has(first->until, LEASE_EXCLUSIVE) ? WIRE_EXCLUSIVE : WIRE_SHARED;
    answer->busy.holders = holders_of(machine, resource);
    answer->busy.token = first->token;
    answer->busy.remaining_ms = remaining_ms(machine->now.stamp_ns, until_tick(first->until));
    if (first->session != NONE) {
        answer->busy.session = session_at(machine, first->session)->id;
    }
    /* A retry must show the same value, whoever holds it then: so the answer keeps a copy, if there
     * is room for one; else it shows none. */
    if (first->extra != NONE && live(machine, SLAB_EXTRAS) < machine->state.limits.extras_max) {
        const struct extra_record *extra = extra_at(machine, first->extra);
        if (extra->value_bytes > 0) {
            answer->busy.extra = extra_create(machine, 0, 0, extra->value, extra->value_bytes);
        }
    }
}

/* Not granted now, and it does not want to wait. */
static void acquire_refused(struct lock_machine *machine, const struct attempt *attempt)
{
    const struct resource_record *resource = resource_at(machine, attempt->resource);
    struct answer_record *answer = answer_change(machine, attempt->answer);
    uint64_t closed_until = resource_closed_until(machine, resource);
    if ((attempt->acquire->request.item.flags & WIRE_TRY) == 0) {
        answer->status = WIRE_TIMED_OUT;
    } else if (closed_until != 0 && holders_allow(machine, resource, attempt->acquire->mode)) {
        answer->status = WIRE_DELAYED;
        answer->delayed.remaining_ms = remaining_ms(machine->now.stamp_ns, closed_until);
    } else {
        answer_busy(machine, attempt);
    }
}

/* Whether it may be granted by this entry: nobody of equal or higher rank waits, unless it asked to
 * barge (and even then an upgrader goes first). */
static bool is_open_to(const struct lock_machine *machine, const struct attempt *attempt)
{
    if (attempt->resource == NONE) {
        return true;
    }
    const struct resource_record *resource = resource_at(machine, attempt->resource);
    bool barge = (attempt->acquire->request.item.flags & WIRE_BARGE) != 0 || PLANTED(barging) ||
                 (PLANTED(shared_past_exclusive) && attempt->acquire->mode == WIRE_SHARED);
    int passed_rank = barge ? RANK_UPGRADER : attempt->acquire->priority;
    return holders_allow(machine, resource, attempt->acquire->mode) &&
           resource_closed_until(machine, resource) == 0 &&
           queue_first_rank(machine, resource) < passed_rank;
}

/* The session's own lease on the resource; NONE. One that is over does not count: it ends. */
static uint32_t held_already(struct lock_machine *machine, struct attempt *attempt)
{
    while (attempt->resource != NONE) {
        uint32_t held = lease_of_session(machine, attempt->resource, attempt->session);
        if (held == NONE || !lease_is_over(machine, lease_at(machine, held))) {
            return held;
        }
        attempt->resource = lease_end_over(machine, held);
    }
    return NONE;
}

void apply_acquire(struct lock_machine *machine, const struct wire_acquire *acquire,
                   uint32_t session, uint32_t answer)
{
    struct answer_record *record = answer_change(machine, answer);
    if (times_refused(&machine->state.limits, acquire, record)) {
        return;
    }
    if (!tokens_left(machine)) {
        record->status = WIRE_UNAVAILABLE;
        return;
    }
    struct attempt attempt = {
        .acquire = acquire,
        .key = key_with_hash(acquire->text, acquire->namespace_bytes, acquire->name_bytes,
                             machine->now.key_hash),
        .session = session,
        .answer = answer,
    };
    attempt.resource = resource_find(machine, &attempt.key);
    if (attempt.resource != NONE) {
        attempt.resource = resource_touch(machine, attempt.resource);
    }
    uint32_t held = held_already(machine, &attempt);
    uint8_t flags = acquire->request.item.flags;
    if (held != NONE) {
        acquire_again(machine, &attempt, held);
    } else if (is_open_to(machine, &attempt)) {
        acquire_now(machine, &attempt);
    } else if ((flags & WIRE_TRY) != 0 || acquire->wait_ms == 0) {
        acquire_refused(machine, &attempt);
    } else {
        acquire_later(machine, &attempt);
    }
}
