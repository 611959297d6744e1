/* SPDX-License-Identifier: Apache-2.0
 *
 * Holders: how one becomes a holder, ceases to be one, and who is next.
 */
#include "consensus/plant.h"
#include "dataplane/machine/machine.h"

#include <string.h>

/* ---- a lease's timer ------------------------------------------------------------------------- */

void lease_disarm(struct lock_machine *machine, uint32_t lease)
{
    uint64_t tick = until_tick(lease_at(machine, lease)->until);
    if (tick != TICK_NEVER) {
        timers_disarm(&machine->timers, timer_id(machine, TIMER_LEASE, lease), tick);
    }
}

void lease_arm(struct lock_machine *machine, uint32_t lease, uint64_t tick)
{
    struct lease_record *record = lease_change(machine, lease);
    lease_disarm(machine, lease);
    WORD_PUT(record->until, until_with_tick(record->until, tick));
    if (tick != TICK_NEVER) {
        record->armed = next_arming(machine);
        timers_arm(&machine->timers, timer_id(machine, TIMER_LEASE, lease), tick);
    }
}

uint64_t lease_deadline(const struct lock_machine *machine, const struct lease_record *record,
                        uint32_t ttl_ms)
{
    if (until_has(record->until, LEASE_BOUND)) {
        return TICK_NEVER;
    }
    uint64_t span_ms = PLANTED(early_expiry) ? ttl_ms - ttl_ms / 4 : ttl_ms;
    if (record->extra != NONE) {
        span_ms += extra_at(machine, record->extra)->grace_ms;
    }
    return tick_after(machine->now.stamp_ns, span_ms);
}

bool lease_is_over(const struct lock_machine *machine, const struct lease_record *record)
{
    if (is_due(machine, record->until)) {
        return true;
    }
    if (record->session == NONE) {
        return false;
    }
    const struct session_record *session = session_at(machine, record->session);
    return until_has(record->until, LEASE_BOUND) ? session_is_over(machine, session)
                                                 : until_has(session->until, SESSION_CLOSED);
}

/* ---- a new holder ---------------------------------------------------------------------------- */

void lease_new_token(struct lock_machine *machine, uint32_t lease)
{
    struct lease_record *record = lease_change(machine, lease);
    assert(tokens_left(machine));
    /* The count's overflow carries into the epoch: {epoch 16, count 48} is one number. */
    WORD_PUT(machine->state.token_last,
             machine->state.token_last + (PLANTED(token_reuse) ? lease & 1 : 1));
    WORD_PUT(record->token, machine->state.token_last);
    count_up(&machine->state.granted);
    history_add(machine, record->token, lease);
}

/* In front of its resource's holders and of its session's leases. */
static void lease_link(struct lock_machine *machine, uint32_t lease, struct lease_record *record)
{
    struct resource_record *resource = resource_change(machine, record->resource);
    struct session_record *session = session_change(machine, record->session);
    WORD_PUT(record->holder_prev, holders_of(machine, resource) + 1);
    WORD_PUT(record->holder_next, resource->holder);
    if (resource->holder != NONE) {
        WORD_PUT(lease_change(machine, resource->holder)->holder_prev, lease);
    }
    WORD_PUT(resource->holder, lease);
    record->session_prev = NONE;
    record->session_next = session->lease;
    if (session->lease != NONE) {
        lease_change(machine, session->lease)->session_prev = lease;
    }
    session->lease = lease;
}

uint32_t grant(struct lock_machine *machine, uint32_t resource, const struct grant_terms *terms)
{
    uint32_t lease = slab_take(&machine->slabs[SLAB_LEASES]);
    assert(lease != NONE);
    struct lease_record *record = lease_change(machine, lease);
    uint64_t flags = (terms->mode == WIRE_EXCLUSIVE ? LEASE_EXCLUSIVE : 0) |
                     (terms->ttl_ms == 0 ? LEASE_BOUND : 0);
    record->secret = terms->secret;
    WORD_PUT(record->until, until_make(TICK_NEVER, flags));
    record->armed = 0;
    record->ttl_ms = terms->ttl_ms;
    WORD_PUT(record->session, terms->session);
    record->resource = resource;
    WORD_PUT(record->extra, terms->extra);
    lease_link(machine, lease, record);
    lease_new_token(machine, lease);
    uint64_t tick = lease_deadline(machine, record, terms->ttl_ms);
    if (tick != TICK_NEVER) {
        WORD_PUT(record->until, until_make(tick, flags));
        record->armed = next_arming(machine);
        timers_arm(&machine->timers, timer_id(machine, TIMER_LEASE, lease), tick);
    }
    return lease;
}

/* ---- one holder less ------------------------------------------------------------------------- */

static void holder_unlink(struct lock_machine *machine, uint32_t lease,
                          const struct lease_record *record)
{
    struct resource_record *resource = resource_change(machine, record->resource);
    uint32_t next = record->holder_next;
    if (resource->holder == lease) {
        WORD_PUT(resource->holder, next);
        if (next != NONE) {
            WORD_PUT(lease_change(machine, next)->holder_prev, record->holder_prev - 1);
        }
        return;
    }
    struct lease_record *first = lease_change(machine, resource->holder);
    WORD_PUT(first->holder_prev, first->holder_prev - 1);
    WORD_PUT(lease_change(machine, record->holder_prev)->holder_next, next);
    if (next != NONE) {
        WORD_PUT(lease_change(machine, next)->holder_prev, record->holder_prev);
    }
}

static void session_unlink(struct lock_machine *machine, const struct lease_record *record)
{
    if (record->session == NONE) {
        return;
    }
    if (record->session_prev == NONE) {
        session_change(machine, record->session)->lease = record->session_next;
    } else {
        lease_change(machine, record->session_prev)->session_next = record->session_next;
    }
    if (record->session_next != NONE) {
        lease_change(machine, record->session_next)->session_prev = record->session_prev;
    }
}

bool lease_remove(struct lock_machine *machine, uint32_t lease, bool stay)
{
    const struct lease_record *record = lease_at(machine, lease);
    uint32_t resource = record->resource;
    lease_disarm(machine, lease);
    resource_write_begin(machine, resource);
    holder_unlink(machine, lease, record);
    session_unlink(machine, record);
    slab_free(&machine->slabs[SLAB_LEASES], lease);
    bool idle = !stay && resource_is_idle(resource_at(machine, resource));
    if (idle) {
        resource_drop(machine, resource);
    }
    resource_write_end(machine, resource);
    return idle;
}

/* ---- who is next ----------------------------------------------------------------------------- */

void lease_upgrade(struct lock_machine *machine, uint32_t lease)
{
    struct lease_record *record = lease_change(machine, lease);
    resource_write_begin(machine, record->resource);
    WORD_PUT(record->until, record->until | LEASE_EXCLUSIVE);
    if (!PLANTED(upgrade_keeps_token))
        lease_new_token(machine, lease);
    resource_write_end(machine, record->resource);
    lease_arm(machine, lease, lease_deadline(machine, record, record->ttl_ms));
}

static void grant_waiter(struct lock_machine *machine, uint32_t resource, uint32_t waiter)
{
    const struct waiter_record *record = waiter_at(machine, waiter);
    uint32_t answer = record->answer;
    uint32_t lease = record->lease;
    struct grant_terms terms = {
        .secret = record->secret,
        .session = record->session,
        .ttl_ms = record->ttl_ms,
        .extra = record->extra,
        .mode = record->mode,
    };
    waiter_remove(machine, waiter);
    if (lease == NONE) {
        resource_write_begin(machine, resource);
        lease = grant(machine, resource, &terms);
        resource_write_end(machine, resource);
    } else {
        lease_upgrade(machine, lease);
    }
    struct answer_record *answer_record = answer_change(machine, answer);
    memset(answer_record->words, 0, sizeof(answer_record->words)); /* named the waiter */
    answer_granted(machine, answer_record, lease, ANSWER_WAITED);
    push_grant(machine, machine->now.sink, answer_at(machine, answer));
    answer_ended(machine, answer);
}

/* Whether holders (and only they) let this waiter in now. */
static bool holders_let_in(const struct lock_machine *machine,
                           const struct resource_record *resource,
                           const struct waiter_record *waiter)
{
    if (waiter->lease != NONE) {
        return resource->holder == waiter->lease && holders_of(machine, resource) == 1;
    }
    return holders_allow(machine, resource, waiter->mode);
}

/* Grants or removes the head of the queue; false if it must wait, or nobody waits. */
static bool grant_step(struct lock_machine *machine, uint32_t resource, uint32_t *dead)
{
    const struct resource_record *record = resource_at(machine, resource);
    uint32_t head = queue_at(machine, record->queue)->head;
    if (head == NONE) {
        return false;
    }
    const struct waiter_record *waiter = waiter_at(machine, head);
    if (waiter_is_over(machine, waiter) &&
        !PLANTED(grant_to_dead)) { /* never granted any more (etcd#11456) */
        if (++*dead > TOUCH_WAITERS_MAX) {
            return false;
        }
        bool session_over = session_is_over(machine, session_at(machine, waiter->session));
        waiter_end(machine, head, session_over ? WIRE_SESSION_LOST : WIRE_TIMED_OUT);
        return true;
    }
    if (resource_closed_until(machine, record) != 0 || !tokens_left(machine) ||
        !holders_let_in(machine, record, waiter)) {
        return false;
    }
    grant_waiter(machine, resource, head);
    return true;
}

uint32_t grant_next(struct lock_machine *machine, uint32_t resource)
{
    const struct resource_record *record = resource_at(machine, resource);
    if (record->queue != NONE) {
        uint32_t queue = record->queue;
        uint32_t dead = 0;
        uint64_t closed_until = queue_at(machine, queue)->closed_until;
        if (closed_until != TICK_NEVER && closed_until <= machine->now.tick) {
            queue_open(machine, queue);
        }
        while (grant_step(machine, resource, &dead)) {
        }
        queue_drop_if_empty(machine, queue);
    }
    if (!resource_is_idle(record)) {
        return resource;
    }
    resource_write_begin(machine, resource);
    resource_drop(machine, resource);
    resource_write_end(machine, resource);
    return NONE;
}

/* ---- whose ----------------------------------------------------------------------------------- */

/* Walks the resource's holders and the session's leases in step: as long as the shorter list. Both
 * may be huge only for names shared by thousands in sessions that hold thousands; then the search
 * gives up and the session counts as not holding it: it may get a second shared lease, or wait for
 * itself until its first one ends. */
uint32_t lease_of_session(const struct lock_machine *machine, uint32_t resource, uint32_t session)
{
    uint32_t holder = resource_at(machine, resource)->holder;
    uint32_t owned = session_at(machine, session)->lease;
    for (uint32_t steps = 0; steps < HELD_SEARCH_MAX && holder != NONE && owned != NONE; steps++) {
        const struct lease_record *holder_record = lease_at(machine, holder);
        const struct lease_record *owned_record = lease_at(machine, owned);
        if (holder_record->session == session) {
            return holder;
        }
        if (owned_record->resource == resource) {
            return owned;
        }
        holder = holder_record->holder_next;
        owned = owned_record->session_next;
    }
    return NONE;
}

static bool lease_is_of(const struct lease_record *record, uint32_t resource, uint32_t session,
                        uint64_t number)
{
    return record->session == session && record->resource == resource &&
           wire_lease_secret(record->secret, number) == record->secret;
}

uint32_t lease_of_number(const struct lock_machine *machine, uint32_t resource, uint32_t session,
                         uint64_t number)
{
    uint32_t holder = resource_at(machine, resource)->holder;
    uint32_t owned = session_at(machine, session)->lease;
    for (uint32_t steps = 0; steps < HELD_SEARCH_MAX && holder != NONE && owned != NONE; steps++) {
        const struct lease_record *holder_record = lease_at(machine, holder);
        const struct lease_record *owned_record = lease_at(machine, owned);
        if (lease_is_of(holder_record, resource, session, number)) {
            return holder;
        }
        if (lease_is_of(owned_record, resource, session, number)) {
            return owned;
        }
        holder = holder_record->holder_next;
        owned = owned_record->session_next;
    }
    return NONE;
}
