/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions: opened when first used, one per virtual client and shard; numbers and their window;
 * keepalives that carry renewals; what happens when one is lost or closed.
 */
#include "consensus/plant.h"
#include "client/core_state.h"

/* ---- finding --------------------------------------------------------------------------------- */

/* Keys are random: their low bits will do. */
static uint32_t *bucket_of(const struct core *core, uint64_t key)
{
    return &core->session_buckets[key & core->session_mask];
}

uint32_t session_by_key(const struct core *core, uint64_t key)
{
    uint32_t at = *bucket_of(core, key);

    while (at != NO_SLOT && core->sessions[at].key != key)
        at = core->sessions[at].hash_next;
    return at;
}

static void rekey(struct core *core, uint32_t slot, uint64_t key)
{
    struct core_session *session = &core->sessions[slot];

    if (session->key != 0) {
        uint32_t *link = bucket_of(core, session->key);
        while (*link != slot)
            link = &core->sessions[*link].hash_next;
        *link = session->hash_next;
    }
    session->key = key;
    if (key != 0) {
        uint32_t *bucket = bucket_of(core, key);
        session->hash_next = *bucket;
        *bucket = slot;
    }
}

static uint32_t session_new(struct core *core, uint32_t client, uint16_t shard)
{
    uint32_t slot = core->sessions_free;

    if (slot != NO_SLOT)
        core->sessions_free = core->sessions[slot].hash_next;
    else if (core->sessions_used < core->sessions_count)
        slot = core->sessions_used++;
    else
        return NO_SLOT;
    struct core_session *session = &core->sessions[slot];
    *session = (struct core_session){
        .state = SESSION_NEW,
        .client = client,
        .shard = shard,
        .hash_next = NO_SLOT,
        .client_next = core->clients[client],
        .opening = NO_SLOT,
        .next_number = 1,
    };
    list_init(&session->backlog);
    list_init(&session->active);
    list_init(&session->waiting);
    list_init(&session->held);
    list_init(&session->due);
    core->clients[client] = slot;
    core->counts.sessions++;
    return slot;
}

uint32_t session_of(struct core *core, uint32_t client, uint16_t shard)
{
    uint32_t at = core->clients[client];

    while (at != NO_SLOT &&
           (core->sessions[at].shard != shard || core->sessions[at].state == SESSION_CLOSING))
        at = core->sessions[at].client_next;
    return at != NO_SLOT ? at : session_new(core, client, shard);
}

static uint32_t find_number(const struct core *core, uint32_t at, uint64_t number)
{
    for (; at != NO_SLOT; at = core->requests[at].next) {
        const struct core_request *request = &core->requests[at];
        if (request->number == number || request->cancel_number == number)
            return at;
    }
    return NO_SLOT;
}

uint32_t session_request(const struct core *core, uint32_t slot, uint64_t number)
{
    const struct core_session *session = &core->sessions[slot];
    uint32_t found = NO_SLOT;

    if (number != 0)
        found = find_number(core, session->active.head, number);
    if (found == NO_SLOT && number != 0)
        found = find_number(core, session->waiting.head, number);
    return found;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* The lowest number whose answer has not reached the application. A waiting acquire would hold it
 * back for as long as it waits, and with it the window: once half the window is used up, numbers
 * whose last answer was QUEUED are passed over. The server keeps such a waiter (and what it was
 * granted) by itself, see docs/protocol.md. */
uint64_t session_acked_below(struct core *core, uint32_t slot)
{
    struct core_session *session = &core->sessions[slot];
    uint64_t asked = session->next_number;
    uint64_t waits = UINT64_MAX;

    if (session->active.head != NO_SLOT)
        asked = core->requests[session->active.head].number;
    if (session->waiting.head != NO_SLOT)
        waits = core->requests[session->waiting.head].number;
    uint64_t acked = min_ns(asked, waits);
    if (waits < asked && session->next_number - waits >= session->window / 2)
        acked = asked;
    session->acked = max_ns(session->acked, acked);
    return session->acked;
}

/* `internal`: keepalives and cancels, for which a part of the window is set aside. */
bool session_number(struct core *core, uint32_t slot, bool internal, uint64_t *number)
{
    struct core_session *session = &core->sessions[slot];
    uint64_t reserve = internal ? 0 : min_ns(8, session->window / 4);
    uint64_t acked = session_acked_below(core, slot);

    if (session->next_number - acked >= session->window - reserve)
        return false;
    *number = session->next_number++;
    return true;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The renewals of a keepalive that will get no answer. */
static void drop_keepalive(struct core *core, uint32_t at, bool again)
{
    struct core_request *request = &core->requests[at];

    while (request->renewals.head != NO_SLOT) {
        uint32_t lock = request->renewals.head;
        lock_renewal_none(core, lock, &request->renewals);
        if (core->locks[lock].state == LOCK_HELD && again)
            lock_due(core, lock);
        else
            lock_try_free(core, lock);
    }
    core->sessions[request->session].keepalives--;
    request_free(core, at);
}

static void open_start(struct core *core, uint32_t slot)
{
    struct core_session *session = &core->sessions[slot];
    uint32_t request = request_new(core, WIRE_OP_OPEN, session->client);

    if (request == NO_SLOT) { /* cannot be: every session has its share of the pool */
        session->beat_ns = core->now_ns + SOFT_FIRST_NS;
        session_arm(core, slot);
        return;
    }
    rekey(core, slot, core_draw(core));
    session->state = SESSION_OPENING;
    session->opening = request;
    core->requests[request].session = slot;
    core->requests[request].shard = session->shard;
    core->requests[request].detached = true;
    core->requests[request].place = PLACE_OPENING;
    request_send(core, request);
}

void session_opened(struct core *core, uint32_t slot, const struct wire_opened *opened)
{
    struct core_session *session = &core->sessions[slot];
    uint32_t request = session->opening;
    uint64_t first_sent_ns = core->requests[request].first_sent_ns;

    session->opening = NO_SLOT;
    request_free(core, request);
    rekey(core, slot, opened->reply.session);
    session->state = SESSION_OPEN;
    session->ttl_ms = opened->ttl_ms;
    session->window = opened->window;
    session->next_number = 1;
    session->acked = 1;
    session->keepalives = 0;
    session->idle = 0;
    session->marks_at = 0;
    for (int i = 0; i < KEEPALIVE_RING; i++)
        session->marks[i] = (struct core_keepalive_mark){.number = UINT64_MAX};
    session->marks[session->marks_at++] =
        (struct core_keepalive_mark){.number = 0, .first_sent_ns = first_sent_ns};
    session->deadline_ns = add_ns(first_sent_ns, ttl_less_drift_ns(session->ttl_ms));
    session->beat_ns = first_sent_ns + session->ttl_ms * MS / 3;
    core->counts.sessions_opened++;
    session_pump(core, slot);
    session_arm(core, slot);
}

static void finish_list(struct core *core, const struct list *list, belay_status status,
                        const struct wire_item *item)
{
    while (list->head != NO_SLOT) {
        uint32_t at = list->head;
        if (core->requests[at].op == WIRE_OP_KEEPALIVE)
            drop_keepalive(core, at, false);
        else
            request_finish(core, at, status, item, NO_SLOT, false);
    }
}

/* OVER_LIMIT and the like: nothing that waits for this session can be done. */
void session_open_failed(struct core *core, uint32_t request, const struct wire_item *item)
{
    uint32_t slot = core->requests[request].session;
    struct core_session *session = &core->sessions[slot];

    session->opening = NO_SLOT;
    request_free(core, request);
    rekey(core, slot, 0);
    session->state = SESSION_CLOSING; /* nothing starts anew meanwhile */
    finish_list(core, &session->backlog, status_of_wire(item->status), item);
    if (session->held.count == 0) {
        session_free(core, slot);
        return;
    }
    /* Locks with a TTL of their own still want renewing. */
    session->state = SESSION_NEW;
    session->beat_ns = core->now_ns + core_jitter(core, SOFT_MAX_NS);
    session_arm(core, slot);
}

void session_pump(struct core *core, uint32_t slot)
{
    struct core_session *session = &core->sessions[slot];

    if (session->state == SESSION_NEW && (session->backlog.count > 0 || session->due.count > 0))
        open_start(core, slot);
    while (session->state == SESSION_OPEN && session->backlog.head != NO_SLOT) {
        uint32_t head = session->backlog.head;
        struct core_request *request = &core->requests[head];
        if (!session_number(core, slot, !request->user_op, &request->number))
            break;
        session->idle = 0;
        request_place(core, head, PLACE_ACTIVE);
        request_send(core, head);
    }
}

/* ---- keepalives ------------------------------------------------------------------------------ */

bool session_mark(const struct core_session *session, uint64_t number, uint64_t *first_sent_ns)
{
    for (int i = 0; i < KEEPALIVE_RING; i++) {
        if (session->marks[i].number == number) {
            *first_sent_ns = session->marks[i].first_sent_ns;
            return true;
        }
    }
    return false;
}

/* Locks that will be due before long come along: renewals of one session drift together, into one
 * keepalive per third of a TTL. */
static void take_ripe(struct core *core, struct core_session *session, struct list *renewals)
{
    if (session->held.count > RENEWALS_MAX)
        return;
    for (uint32_t at = session->held.head; at != NO_SLOT; at = core->locks[at].held_next) {
        struct core_lock *lock = &core->locks[at];
        if (renewals->count == RENEWALS_MAX)
            return;
        if (lock->renewal != RENEWAL_NONE || lock->renew_ns == UINT64_MAX ||
            core->now_ns < lock->basis_ns + lock->ttl_ms * MS / 6)
            continue;
        lock_renewal_to(core, at, renewals, RENEWAL_SENT);
        lock_arm(core, at);
    }
}

static void fill_renewals(struct core *core, struct core_session *session, struct list *renewals)
{
    while (session->due.head != NO_SLOT && renewals->count < RENEWALS_MAX) {
        uint32_t lock = session->due.head;
        lock_renewal_none(core, lock, &session->due);
        lock_renewal_to(core, lock, renewals, RENEWAL_SENT);
        lock_arm(core, lock);
    }
    take_ripe(core, session, renewals);
}

/* False: no record or no number now; the session's timer tries again soon. */
static bool keepalive_send(struct core *core, uint32_t slot)
{
    struct core_session *session = &core->sessions[slot];
    uint32_t at = request_new(core, WIRE_OP_KEEPALIVE, session->client);

    session->beat_ns = core->now_ns + SOFT_FIRST_NS;
    if (at == NO_SLOT)
        return false;
    struct core_request *request = &core->requests[at];
    if (!session_number(core, slot, true, &request->number)) {
        request_free(core, at);
        return false;
    }
    request->session = slot;
    request->shard = session->shard;
    request->detached = true;
    request->first_sent_ns = core->now_ns;
    fill_renewals(core, session, &request->renewals);
    session->marks[session->marks_at] =
        (struct core_keepalive_mark){.number = request->number, .first_sent_ns = core->now_ns};
    session->marks_at = (uint8_t)((session->marks_at + 1) % KEEPALIVE_RING);
    session->keepalives++;
    session->beat_ns = core->now_ns + core_jitter(core, session->ttl_ms * MS / 3) * 5 / 6;
    core->counts.keepalives++;
    core->counts.renewals += request->renewals.count;
    request_place(core, at, PLACE_ACTIVE);
    request_send(core, at);
    return true;
}

static bool is_idle(const struct core_session *session)
{
    return session->held.count == 0 && session->backlog.count == 0 && session->waiting.count == 0 &&
           session->active.count == session->keepalives;
}

static void beat(struct core *core, uint32_t slot)
{
    struct core_session *session = &core->sessions[slot];
    bool due = core->now_ns >= session->beat_ns && session->keepalives == 0;

    if (due && is_idle(session) && ++session->idle > IDLE_KEEPALIVES_MAX) {
        session_free(core, slot); /* nothing needs it: the server lets it expire */
        return;
    }
    while ((due || session->due.count > 0) && session->keepalives < KEEPALIVES_IN_FLIGHT) {
        due = false;
        if (!keepalive_send(core, slot))
            break;
    }
    session_arm(core, slot);
}

/* Answer to a keepalive, lock by lock. */
void session_renewed(struct core *core, uint32_t at, const struct wire_renewed *renewed)
{
    struct core_request *request = &core->requests[at];
    uint32_t slot = request->session;
    struct core_session *session = &core->sessions[slot];
    bool fits = renewed->count == request->renewals.count;

    session->deadline_ns =
        max_ns(session->deadline_ns,
               add_ns(PLANTED(renewal_from_reply) ? core->now_ns : request->first_sent_ns,
                      ttl_less_drift_ns(session->ttl_ms)));
    for (uint16_t i = 0; request->renewals.head != NO_SLOT; i++) {
        uint32_t lock = request->renewals.head;
        lock_renewal_none(core, lock, &request->renewals);
        lock_renewal_result(core, lock, fits ? renewed->results[i] : WIRE_UNAVAILABLE,
                            PLANTED(renewal_from_reply) ? core->now_ns : request->first_sent_ns);
    }
    for (uint32_t held = session->bound > 0 ? session->held.head : NO_SLOT; held != NO_SLOT;
         held = core->locks[held].held_next) {
        if (core->locks[held].ttl_ms == 0 && !core->locks[held].forced)
            core->sink.renewed(core->sink.context, ref_of(core->locks[held].generation, held),
                               core->locks[held].user, session->deadline_ns);
    }
    session->keepalives--;
    request_finish(core, at, BELAY_OK, NULL, NO_SLOT, false);
    beat(core, slot);
}

/* ---- time ------------------------------------------------------------------------------------ */

/* A little before the deadline, so that the caller is told no later than it. */
static uint64_t bound_loss_ns(const struct core_session *session)
{
    uint64_t margin_ns = min_ns(2 * MS, session->ttl_ms * MS / 50);

    return session->deadline_ns > margin_ns ? session->deadline_ns - margin_ns : 0;
}

void session_arm(struct core *core, uint32_t slot)
{
    const struct core_session *session = &core->sessions[slot];
    uint64_t at_ns = UINT64_MAX;

    if (session->state == SESSION_OPEN && session->keepalives == 0)
        at_ns = session->beat_ns;
    if (session->state == SESSION_NEW && session->beat_ns > core->now_ns)
        at_ns = session->beat_ns;
    if (session->bound > 0)
        at_ns = min_ns(at_ns, bound_loss_ns(session));
    client_timers_set(&core->timers, timer_of_session(core, slot), at_ns);
}

void session_timer(struct core *core, uint32_t slot)
{
    struct core_session *session = &core->sessions[slot];

    if (session->bound > 0 && core->now_ns >= bound_loss_ns(session))
        locks_bound_lose(core, slot, BELAY_LOST_DEADLINE);
    if (session->state == SESSION_OPEN) {
        beat(core, slot);
    } else {
        session_pump(core, slot);
        session_arm(core, slot);
    }
}

/* ---- the end of one -------------------------------------------------------------------------- */

/* What was sent in the lost session: releases, renewals and operators' commands are repeated in the
 * next one (leases are named by id, not by session); acquires and converts ended with it. */
static void session_lost_request(struct core *core, uint32_t at)
{
    struct core_request *request = &core->requests[at];

    switch (request->op) {
    case WIRE_OP_KEEPALIVE:
        drop_keepalive(core, at, true);
        break;
    case WIRE_OP_ACQUIRE:
    case WIRE_OP_CONVERT:
        request_finish(core, at, BELAY_SESSION_LOST, NULL, NO_SLOT, false);
        break;
    case WIRE_OP_RELEASE:
    case WIRE_OP_RENEW:
    case WIRE_OP_FORCE_RELEASE:
        request_renumber(core, at);
        break;
    default:
        assert(request->op == WIRE_OP_CLOSE);
        request_finish(core, at, BELAY_OK, NULL, NO_SLOT, false);
        break;
    }
}

void session_lost(struct core *core, uint32_t slot)
{
    struct core_session *session = &core->sessions[slot];
    bool closing = session->state == SESSION_CLOSING;

    core->counts.sessions_lost++;
    rekey(core, slot, 0);
    session->state = SESSION_CLOSING; /* nothing starts anew while the lists are emptied */
    while (session->waiting.head != NO_SLOT)
        session_lost_request(core, session->waiting.head);
    while (session->active.head != NO_SLOT)
        session_lost_request(core, session->active.head);
    locks_bound_lose(core, slot, BELAY_LOST_SESSION);
    if (closing) {
        session_free(core, slot);
        return;
    }
    session->state = SESSION_NEW;
    session->beat_ns = 0;
    session_pump(core, slot);
    if (session->state == SESSION_NEW && session->held.count == 0)
        session_free(core, slot);
    else
        session_arm(core, slot);
}

/* The record only; whatever it still had is gone with it. */
void session_free(struct core *core, uint32_t slot)
{
    struct core_session *session = &core->sessions[slot];

    session->state = SESSION_CLOSING;
    if (session->opening != NO_SLOT)
        request_free(core, session->opening);
    session->opening = NO_SLOT;
    finish_list(core, &session->active, BELAY_CLOSED, NULL);
    assert(session->held.count == 0 && session->waiting.count == 0 && session->backlog.count == 0);
    rekey(core, slot, 0);
    client_timers_clear(&core->timers, timer_of_session(core, slot));
    uint32_t *link = &core->clients[session->client];
    while (*link != slot)
        link = &core->sessions[*link].client_next;
    *link = session->client_next;
    session->state = SESSION_FREE;
    session->hash_next = core->sessions_free;
    core->sessions_free = slot;
    core->counts.sessions--;
}

/* Ends all of a session's business; tells the server if it knows the session. */
void session_close(struct core *core, uint32_t slot)
{
    struct core_session *session = &core->sessions[slot];
    bool known = session->state == SESSION_OPEN;

    session->state = SESSION_CLOSING;
    finish_list(core, &session->backlog, BELAY_CLOSED, NULL);
    finish_list(core, &session->waiting, BELAY_CLOSED, NULL);
    finish_list(core, &session->active, BELAY_CLOSED, NULL);
    while (session->held.head != NO_SLOT)
        lock_drop(core, session->held.head);
    client_timers_clear(&core->timers, timer_of_session(core, slot));
    uint32_t at = known ? request_new(core, WIRE_OP_CLOSE, session->client) : NO_SLOT;
    if (at == NO_SLOT || !session_number(core, slot, true, &core->requests[at].number)) {
        if (at != NO_SLOT)
            request_free(core, at);
        session_free(core, slot);
        return;
    }
    struct core_request *request = &core->requests[at];
    request->session = slot;
    request->shard = session->shard;
    request->detached = true;
    request->ends_ns = add_ns(core->now_ns, 2 * session->ttl_ms * MS);
    request_place(core, at, PLACE_ACTIVE);
    request_send(core, at);
}
