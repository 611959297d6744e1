/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions: opening, keeping alive, and ending.
 *
 * A session ends in two parts. At once it is over: its id is unknown, its waiters can never be
 * granted, what is bound to it counts as ended wherever a command meets it. What it has is then
 * released step by step (session_end_step), so that ending a session with any number of locks holds
 * up nobody (kubernetes#96836).
 */
#include "consensus/plant.h"
#include "dataplane/machine/machine.h"

#include <string.h>

uint32_t session_find(const struct lock_machine *machine, uint64_t id)
{
    struct index_search search = index_search(&machine->ids, id);
    for (uint32_t slot; index_candidate(&search, &slot);) {
        if (session_at(machine, slot)->id == id) {
            return slot;
        }
    }
    return NONE;
}

uint32_t session_find_nonce(const struct lock_machine *machine, uint64_t nonce)
{
    /* The nonce is the client's choice: mixed, so that it cannot choose the bucket as easily. */
    struct index_search search = index_search(&machine->nonces, mix64(nonce));
    for (uint32_t slot; index_candidate(&search, &slot);) {
        if (session_at(machine, slot)->nonce == nonce) {
            return slot;
        }
    }
    return NONE;
}

void session_rearm(struct lock_machine *machine, uint32_t session, uint64_t tick)
{
    struct session_record *record = session_change(machine, session);
    uint32_t id = timer_id(machine, TIMER_SESSION, session);
    if (until_tick(record->until) != TICK_NEVER) {
        timers_disarm(&machine->timers, id, until_tick(record->until));
    }
    record->until = until_with_tick(record->until, tick);
    if (tick != TICK_NEVER) {
        record->armed = next_arming(machine);
        timers_arm(&machine->timers, id, tick);
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Ids are drawn by the leader. One that is taken (or zero) is hashed on until it is free: every
 * replica arrives at the same one. */
static uint64_t free_id(const struct lock_machine *machine, uint64_t drawn)
{
    uint64_t id = drawn;
    while (id == 0 || session_find(machine, id) != NONE) {
        id = mix64(id + UINT64_C(0x9e3779b97f4a7c15));
    }
    return id;
}

static uint32_t session_create(struct lock_machine *machine, const struct wire_open *open)
{
    uint32_t session = slab_take(&machine->slabs[SLAB_SESSIONS]);
    assert(session != NONE);
    struct session_record *record = session_change(machine, session);
    struct session_record fresh = {
        .id = free_id(machine, open->request.drawn),
        .nonce = open->nonce,
        .acked_below = 1,
        .keepalive_stamp_ns = machine->now.stamp_ns,
        .until = until_make(TICK_NEVER, 0),
        .address = open->address,
        .ttl_ms = open->ttl_ms,
        .lease = NONE,
        .waiter = NONE,
        .over_next = NONE,
        .shard = machine->now.shard,
    };
    words_put(record, &fresh, sizeof(fresh));
    memset(window_cell(machine, session, 0), 0xff,
           (size_t)(machine->window_mask + 1) * sizeof(uint32_t));
    static_assert(NONE == UINT32_MAX, "a window of 0xff bytes is empty");
    index_insert(&machine->ids, fresh.id, session);
    index_insert(&machine->nonces, mix64(fresh.nonce), session);
    session_rearm(machine, session, tick_after(machine->now.stamp_ns, fresh.ttl_ms));
    return session;
}

void apply_open(struct lock_machine *machine, const struct wire_open *open)
{
    const struct lock_limits *limits = &machine->state.limits;
    const struct wire_request *request = &open->request;
    uint32_t session = PLANTED(opened_twice) ? NONE : session_find_nonce(machine, open->nonce);
    if (session != NONE && session_is_over(machine, session_at(machine, session))) {
        session_end(machine, session, false);
        session = NONE;
    }
    if (session != NONE) {
        reply_opened(machine, open, session); /* a retry */
    } else if (open->ttl_ms < limits->session_ttl_ms_min) {
        /* Here and below: who gets no session has no address but that of this datagram. */
        reply_problem(machine, request, &open->address, WIRE_OVER_LIMIT, WIRE_WHAT_SESSION_TTL_MIN,
                      limits->session_ttl_ms_min);
    } else if (open->ttl_ms > limits->session_ttl_ms_max) {
        reply_problem(machine, request, &open->address, WIRE_OVER_LIMIT, WIRE_WHAT_SESSION_TTL_MAX,
                      limits->session_ttl_ms_max);
    } else if (live(machine, SLAB_SESSIONS) >= limits->sessions_max) {
        reply_problem(machine, request, &open->address, WIRE_OVER_LIMIT, WIRE_WHAT_SESSIONS,
                      limits->sessions_max);
    } else {
        reply_opened(machine, open, session_create(machine, open));
    }
}

/* ---- keeping alive --------------------------------------------------------------------------- */

void apply_keepalive(struct lock_machine *machine, const struct wire_renew *renew, uint32_t session,
                     uint32_t answer)
{
    struct session_record *record = session_change(machine, session);
    record->keepalive_number = renew->request.number;
    record->keepalive_stamp_ns = machine->now.stamp_ns;
    /* Datagrams reorder: an older one must not bring back an older address. */
    if (renew->request.number > record->address_number) {
        record->address_number = renew->request.number;
        record->address = renew->address;
    }
    if (!PLANTED(session_not_extended))
        session_rearm(machine, session, tick_after(machine->now.stamp_ns, record->ttl_ms));
    apply_renew(machine, renew, answer);
}

/* ---- ending ---------------------------------------------------------------------------------- */

void session_end(struct lock_machine *machine, uint32_t session, bool closed)
{
    struct session_record *record = session_change(machine, session);
    struct lock_state *state = &machine->state;
    assert(!until_has(record->until, SESSION_OVER));
    session_rearm(machine, session, TICK_NEVER);
    record->until |= SESSION_OVER | (closed ? SESSION_CLOSED : 0);
    index_remove(&machine->ids, (uint32_t)record->id, session);
    index_remove(&machine->nonces, (uint32_t)mix64(record->nonce), session);
    if (state->over_last == NONE) {
        state->over_first = session;
    } else {
        session_change(machine, state->over_last)->over_next = session;
    }
    state->over_last = session;
    if (!closed) {
        count_up(&state->sessions_expired);
    }
    history_add(machine, record->id, closed);
}

/* The lease outlives its session: from now on it belongs to nobody but who knows its id. */
static void lease_detach(struct lock_machine *machine, uint32_t lease)
{
    struct lease_record *record = lease_change(machine, lease);
    uint32_t next = record->session_next;
    assert(record->session_prev == NONE);
    resource_write_begin(machine, record->resource);
    session_change(machine, record->session)->lease = next;
    if (next != NONE) {
        lease_change(machine, next)->session_prev = NONE;
    }
    record->session_next = NONE;
    WORD_PUT(record->session, NONE);
    resource_write_end(machine, record->resource);
}

/* Releases one lease of a session that is over, or lets it live on. */
static void session_end_lease(struct lock_machine *machine, const struct session_record *record)
{
    uint32_t lease = record->lease;
    if (until_has(record->until, SESSION_CLOSED)) {
        (void)lease_end(machine, lease, LEASE_RELEASED, false);
    } else if (until_has(lease_at(machine, lease)->until, LEASE_BOUND)) {
        (void)lease_end(machine, lease, LEASE_EXPIRED, true);
    } else {
        lease_detach(machine, lease);
    }
}

static void session_free(struct lock_machine *machine, uint32_t session)
{
    const struct session_record *record = session_at(machine, session);
    for (uint32_t i = 0; i <= machine->window_mask && record->answers > 0; i++) {
        uint32_t answer = cell_answer(*window_cell(machine, session, i));
        if (answer != NONE) {
            answer_free(machine, answer);
        }
    }
    assert(record->answers == 0);
    slab_free(&machine->slabs[SLAB_SESSIONS], session);
}

bool session_end_step(struct lock_machine *machine)
{
    struct lock_state *state = &machine->state;
    uint32_t session = state->over_first;
    if (session == NONE) {
        return false;
    }
    const struct session_record *record = session_at(machine, session);
    if (record->waiter != NONE && !PLANTED(queue_left)) {
        uint32_t waiter = record->waiter;
        uint32_t resource = queue_at(machine, waiter_at(machine, waiter)->queue)->resource;
        waiter_end(machine, waiter, WIRE_SESSION_LOST);
        (void)grant_next(machine, resource);
    } else if (record->lease != NONE) {
        session_end_lease(machine, record);
    } else {
        state->over_first = record->over_next;
        if (state->over_first == NONE) {
            state->over_last = NONE;
        }
        session_free(machine, session);
    }
    return true;
}
