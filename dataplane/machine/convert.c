/* SPDX-License-Identifier: Apache-2.0
 *
 * CONVERT (shared to exclusive and back) and CANCEL (of an acquire or a convert).
 */
#include "consensus/plant.h"
#include "dataplane/machine/machine.h"

/* ---- CONVERT --------------------------------------------------------------------------------- */

/* Exclusive to shared, at once: the token stays, shared waiters at the head join in. */
static void convert_down(struct lock_machine *machine, uint32_t lease)
{
    struct lease_record *record = lease_change(machine, lease);
    resource_write_begin(machine, record->resource);
    WORD_PUT(record->until, record->until & ~(uint64_t)LEASE_EXCLUSIVE);
    resource_write_end(machine, record->resource);
    lease_arm(machine, lease, lease_deadline(machine, record, record->ttl_ms));
}

static void convert_wait(struct lock_machine *machine, const struct wire_convert *convert,
                         uint32_t session, uint32_t lease, uint32_t answer)
{
    const struct lock_limits *limits = &machine->state.limits;
    struct answer_record *record = answer_change(machine, answer);
    uint32_t resource = lease_at(machine, lease)->resource;
    if (queue_upgrader(machine, resource_at(machine, resource)) != NONE) {
        /* Each would wait for the other to let go (redisson#4796). */
        record->status = WIRE_DEADLOCK;
        count_up(&machine->state.deadlocks);
    } else if (convert->wait_ms == 0) {
        record->status = WIRE_TIMED_OUT;
    } else if (convert->wait_ms != WIRE_WAIT_FOREVER && convert->wait_ms > limits->wait_ms_max) {
        answer_problem(record, WIRE_OVER_LIMIT, WIRE_WHAT_WAIT_MAX, limits->wait_ms_max);
    } else if (live(machine, SLAB_WAITERS) >= limits->waiters_max) {
        answer_problem(record, WIRE_OVER_LIMIT, WIRE_WHAT_WAITERS, limits->waiters_max);
    } else {
        struct wait_terms terms = {
            .grant = {.session = session, .extra = NONE, .mode = WIRE_EXCLUSIVE},
            .answer = answer,
            .lease = lease,
            .wait_ms = convert->wait_ms,
            .rank = RANK_UPGRADER,
        };
        (void)waiter_join(machine, resource, &terms);
    }
}

/* Whoever names the lease may convert it, as with release and renew. A wait belongs to the session
 * that asked, whose lease it is or not: it ends with that session, or with the lease. */
void apply_convert(struct lock_machine *machine, const struct wire_convert *convert,
                   uint32_t session, uint32_t answer)
{
    struct answer_record *answer_record = answer_change(machine, answer);
    uint32_t lease = lease_find(machine, &convert->lease, convert->key_tag);
    if (lease == NONE || until_has(lease_at(machine, lease)->until, LEASE_FORCED)) {
        answer_record->status = WIRE_LOST;
        return;
    }
    uint32_t resource = resource_touch(machine, lease_at(machine, lease)->resource);
    assert(resource != NONE); /* this lease holds it */
    const struct lease_record *record = lease_at(machine, lease);
    bool exclusive = until_has(record->until, LEASE_EXCLUSIVE);
    if (exclusive == (convert->mode == WIRE_EXCLUSIVE)) {
        lease_arm(machine, lease, lease_deadline(machine, record, record->ttl_ms));
    } else if (exclusive) {
        convert_down(machine, lease);
    } else if (!tokens_left(machine)) {
        answer_record->status = WIRE_UNAVAILABLE;
        return;
    } else if (holders_of(machine, resource_at(machine, resource)) == 1) {
        lease_upgrade(machine, lease);
    } else {
        convert_wait(machine, convert, session, lease, answer);
        return;
    }
    answer_granted(machine, answer_record, lease, 0);
    (void)grant_next(machine, resource);
}

/* ---- CANCEL ---------------------------------------------------------------------------------- */

/* The acquire has not been seen: when it comes, it finds this answer. */
static void cancel_unseen(struct lock_machine *machine, const struct wire_cancel *cancel,
                          uint32_t session, struct answer_record *answer)
{
    const struct lock_limits *limits = &machine->state.limits;
    if (PLANTED(cancel_forgotten))
        return;
    if (live(machine, SLAB_ANSWERS) >= limits->answers_max) {
        answer_problem(answer, WIRE_OVER_LIMIT, WIRE_WHAT_ANSWERS, limits->answers_max);
        return;
    }
    uint32_t unseen = answer_create(machine, session, cancel->target, WIRE_OP_ACQUIRE);
    answer_change(machine, unseen)->status = WIRE_CANCELLED;
}

static void cancel_waiting(struct lock_machine *machine, uint32_t waiter)
{
    uint32_t resource = queue_at(machine, waiter_at(machine, waiter)->queue)->resource;
    waiter_end(machine, waiter, WIRE_CANCELLED);
    (void)grant_next(machine, resource); /* those behind it may have waited only for it */
}

/* Granted: whoever cancels must not hold it without knowing (curator#600). */
static void cancel_granted(struct lock_machine *machine, struct answer_record *target)
{
    uint32_t lease = target->granted.lease;
    uint64_t secret = target->granted.secret;
    if (target->flags & ANSWER_REENTRANT) {
        return; /* the lease is an earlier acquire's */
    }
    target->status = WIRE_CANCELLED;
    if (slab_is_live(&machine->slabs[SLAB_LEASES], lease) &&
        lease_at(machine, lease)->secret == secret) {
        if (lease_is_over(machine, lease_at(machine, lease))) {
            (void)lease_end_over(machine, lease);
        } else {
            (void)lease_end(machine, lease, LEASE_RELEASED, false);
        }
    }
}

void apply_cancel(struct lock_machine *machine, const struct wire_cancel *cancel, uint32_t session,
                  uint32_t answer)
{
    struct answer_record *record = answer_change(machine, answer);
    enum wire_status placed = window_check(machine, session_at(machine, session), cancel->target);
    if (placed == WIRE_STALE_REQUEST) {
        uint32_t passed = answer_find_passed(machine, session, cancel->target);
        if (passed != NONE) {
            cancel_waiting(machine, answer_at(machine, passed)->queued.waiter);
            return;
        }
    }
    record->status = (uint8_t)placed;
    if (placed != WIRE_OK) {
        return;
    }
    uint32_t target = answer_find(machine, session, cancel->target);
    if (target == NONE) {
        cancel_unseen(machine, cancel, session, record);
        return;
    }
    struct answer_record *target_record = answer_change(machine, target);
    if (target_record->op != WIRE_OP_ACQUIRE && target_record->op != WIRE_OP_CONVERT) {
        answer_problem(record, WIRE_BAD_REQUEST, WIRE_WHAT_NUMBER, cancel->target);
    } else if (target_record->status == WIRE_QUEUED) {
        cancel_waiting(machine, target_record->queued.waiter);
    } else if (target_record->status == WIRE_OK) {
        cancel_granted(machine, target_record);
    }
}
