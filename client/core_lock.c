/* SPDX-License-Identifier: Apache-2.0
 *
 * Locks that are held: from which moment their deadline counts, their renewal, and their loss.
 *
 * The deadline is conservative: basis + TTL - drift, where the basis is a moment at which the
 * server cannot yet have stamped the grant or renewal. An answer that comes late, twice or out of
 * order can move it forward only to what a later request justifies.
 */
#include "client/core_state.h"

/* ---- finding --------------------------------------------------------------------------------- */

static uint32_t *bucket_of(const struct core *core, uint64_t secret)
{
    return &core->lock_buckets[secret & core->lock_mask];
}

uint32_t lock_get(const struct core *core, core_ref ref)
{
    uint32_t slot = (uint32_t)ref;

    if (slot >= core->locks_used || core->locks[slot].generation != ref >> 32)
        return NO_SLOT;
    uint8_t state = core->locks[slot].state;
    return state == LOCK_HELD || state == LOCK_LOST ? slot : NO_SLOT;
}

uint32_t lock_by_lease(const struct core *core, const struct wire_lease_id *lease)
{
    uint32_t at = *bucket_of(core, lease->secret);

    while (at != NO_SLOT && (core->locks[at].lease.secret != lease->secret ||
                             core->locks[at].lease.slot != lease->slot))
        at = core->locks[at].hash_next;
    return at;
}

static void hash_in(struct core *core, uint32_t slot)
{
    uint32_t *bucket = bucket_of(core, core->locks[slot].lease.secret);

    core->locks[slot].hash_next = *bucket;
    *bucket = slot;
}

static void hash_out(struct core *core, uint32_t slot)
{
    uint32_t *link = bucket_of(core, core->locks[slot].lease.secret);

    while (*link != slot)
        link = &core->locks[*link].hash_next;
    *link = core->locks[slot].hash_next;
}

/* ---- lists of renewals ----------------------------------------------------------------------- */

void lock_renewal_to(struct core *core, uint32_t slot, struct list *list, uint8_t renewal)
{
    struct core_lock *lock = &core->locks[slot];

    assert(lock->renewal == RENEWAL_NONE);
    lock->renewal = renewal;
    lock->sent_lease = lock->lease;
    lock->renew_previous = list->tail;
    lock->renew_next = NO_SLOT;
    if (list->tail != NO_SLOT)
        core->locks[list->tail].renew_next = slot;
    else
        list->head = slot;
    list->tail = slot;
    list->count++;
}

void lock_renewal_none(struct core *core, uint32_t slot, struct list *list)
{
    struct core_lock *lock = &core->locks[slot];

    if (lock->renew_previous != NO_SLOT)
        core->locks[lock->renew_previous].renew_next = lock->renew_next;
    else
        list->head = lock->renew_next;
    if (lock->renew_next != NO_SLOT)
        core->locks[lock->renew_next].renew_previous = lock->renew_previous;
    else
        list->tail = lock->renew_previous;
    list->count--;
    lock->renewal = RENEWAL_NONE;
}

/* ---- grants ---------------------------------------------------------------------------------- */

static uint32_t lock_new(struct core *core)
{
    uint32_t slot = core->locks_free;

    if (slot != NO_SLOT)
        core->locks_free = core->locks[slot].hash_next;
    else
        slot = core->locks_used++;
    assert(slot < core->locks_count); /* the acquire has set a slot aside */
    uint32_t generation = core->locks[slot].generation + 1;
    core->locks[slot] = (struct core_lock){
        .generation = generation != 0 ? generation : 1,
        .state = LOCK_HELD,
        .uses = 1,
        .renew_ns = UINT64_MAX,
    };
    core->counts.locks++;
    return slot;
}

static void held_in(struct core *core, uint32_t slot)
{
    struct core_lock *lock = &core->locks[slot];
    struct core_session *session = &core->sessions[lock->session];

    lock->held_previous = session->held.tail;
    lock->held_next = NO_SLOT;
    if (session->held.tail != NO_SLOT)
        core->locks[session->held.tail].held_next = slot;
    else
        session->held.head = slot;
    session->held.tail = slot;
    session->held.count++;
    session->bound += lock->ttl_ms == 0;
}

static void held_out(struct core *core, uint32_t slot)
{
    struct core_lock *lock = &core->locks[slot];
    struct core_session *session = &core->sessions[lock->session];

    if (lock->held_previous != NO_SLOT)
        core->locks[lock->held_previous].held_next = lock->held_next;
    else
        session->held.head = lock->held_next;
    if (lock->held_next != NO_SLOT)
        core->locks[lock->held_next].held_previous = lock->held_previous;
    else
        session->held.tail = lock->held_previous;
    session->held.count--;
    session->bound -= lock->ttl_ms == 0;
}

uint64_t grant_basis_ns(const struct core *core, uint32_t at, const struct wire_granted *granted)
{
    const struct core_request *request = &core->requests[at];
    const struct core_session *session = &core->sessions[request->session];
    uint64_t basis_ns = request->first_sent_ns;
    uint64_t mark_ns;

    /* After a wait, the keepalive named was sent before it was stamped: with the shard time since
     * then it gives a later moment that is still certain, but for what our clock may run slow
     * against the leader's, in that time as in the TTL. One no longer remembered leaves the
     * request's own first transmission, which is certain too. */
    uint64_t since_ns = granted->since_keepalive_ns - granted->since_keepalive_ns / 100;

    if (granted->waited && session_mark(session, granted->keepalive_number, &mark_ns))
        basis_ns = max_ns(basis_ns, add_ns(mark_ns, since_ns));
    if (PLANTED(deadline_from_reply))
        return core->now_ns;
    /* Nothing was granted after its answer came. */
    return min_ns(basis_ns, core->now_ns);
}

static void set_deadline(struct core_lock *lock, uint64_t basis_ns)
{
    lock->basis_ns = basis_ns;
    lock->deadline_ns = add_ns(basis_ns, ttl_less_drift_ns(lock->ttl_ms));
    lock->renew_ns =
        lock->no_renewal ? UINT64_MAX : add_ns(basis_ns, (uint64_t)lock->ttl_ms * MS / 3);
}

uint32_t lock_granted(struct core *core, uint32_t at, const struct wire_granted *granted,
                      bool *shared_lock)
{
    const struct core_request *request = &core->requests[at];
    uint32_t slot = lock_by_lease(core, &granted->lease);

    *shared_lock = slot != NO_SLOT;
    if (*shared_lock) { /* reentrant: the lease is the one we hold; its deadline stays */
        core->locks[slot].uses++;
        return slot;
    }
    slot = lock_new(core);
    struct core_lock *lock = &core->locks[slot];
    lock->lease = granted->lease;
    lock->token = granted->token;
    lock->mode = granted->mode;
    lock->user = request->lock_user;
    lock->session = request->session;
    lock->key_tag = request->key_tag;
    lock->lock_delay = request->lock_delay_ms != 0;
    lock->ttl_ms = granted->ttl_ms;
    if (request->ttl_ms != 0 && granted->ttl_ms != 0)
        lock->ttl_ms = (uint32_t)min_ns(request->ttl_ms, granted->ttl_ms);
    /* The answer to a poll may give only what is left of the TTL; a reentrant one may be shorter.
     */
    if (lock->ttl_ms < request->ttl_ms && lock->ttl_ms != 0)
        lock->ask_ttl_ms = request->ttl_ms;
    lock->no_renewal = request->no_renewal || lock->ttl_ms == 0;
    if (lock->ttl_ms != 0)
        set_deadline(lock, grant_basis_ns(core, at, granted));
    hash_in(core, slot);
    held_in(core, slot);
    lock_arm(core, slot);
    if (lock->ttl_ms == 0)
        session_arm(core, lock->session);
    return slot;
}

/* The TTL does not begin anew with a convert: the deadline stays. */
void lock_converted(struct core *core, uint32_t at, const struct wire_granted *granted)
{
    struct core_lock *lock = &core->locks[core->requests[at].lock];

    if (lock->state != LOCK_HELD)
        return;
    hash_out(core, core->requests[at].lock);
    lock->lease = granted->lease;
    lock->token = granted->token;
    lock->mode = granted->mode;
    hash_in(core, core->requests[at].lock);
}

/* The request becomes a release of the lease that it was granted and nobody wants. */
void lock_return(struct core *core, uint32_t at, const struct wire_lease_id *lease, uint64_t token)
{
    struct core_request *request = &core->requests[at];

    request->op = WIRE_OP_RELEASE;
    request->flags = 0;
    request->lease = *lease;
    request->given_up_token = token;
    request->detached = true;
    request->cancel_number = 0;
    request->ends_ns = request->bound ? UINT64_MAX : add_ns(core->now_ns, RELEASE_NS);
    request->wait_until_ns = UINT64_MAX;
    request_renumber(core, at);
    session_pump(core, request->session);
}

/* ---- renewals -------------------------------------------------------------------------------- */

void lock_due(struct core *core, uint32_t slot)
{
    struct core_lock *lock = &core->locks[slot];
    struct core_session *session = &core->sessions[lock->session];

    if (lock->renewal != RENEWAL_NONE || lock->renew_ns == UINT64_MAX)
        return;
    lock_renewal_to(core, slot, &session->due, RENEWAL_DUE);
    if (session->state == SESSION_OPEN)
        session_timer(core, lock->session);
    else
        session_pump(core, lock->session);
}

void lock_extend(struct core *core, uint32_t slot, uint64_t basis_ns)
{
    struct core_lock *lock = &core->locks[slot];

    if (lock->ttl_ms == 0 || basis_ns <= lock->basis_ns)
        return;
    set_deadline(lock, basis_ns);
    lock_arm(core, slot);
    core->sink.renewed(core->sink.context, ref_of(lock->generation, slot), lock->user,
                       lock->deadline_ns);
}

/* A release in the background, of a lease that no lock has. One that lives with the session is
 * asked for until it is answered: as long as the session lives, nothing else would end it. False:
 * no record now. */
bool lease_return(struct core *core, uint32_t session, uint32_t key_tag, bool bound,
                  const struct wire_lease_id *lease, uint64_t token)
{
    uint32_t at = request_new(core, WIRE_OP_RELEASE, core->sessions[session].client);

    if (at == NO_SLOT)
        return false;
    struct core_request *request = &core->requests[at];
    request->session = session;
    request->shard = core->sessions[session].shard;
    request->key_tag = key_tag;
    request->bound = bound;
    request_place(core, at, PLACE_BACKLOG);
    lock_return(core, at, lease, token);
    return true;
}

/* A lock that was reported lost. */
static bool give_back(struct core *core, uint32_t slot)
{
    const struct core_lock *lock = &core->locks[slot];

    return lease_return(core, lock->session, lock->key_tag, lock->ttl_ms == 0, &lock->lease,
                        lock->token);
}

/* A lost lock that the server may go on holding for us. The application has been told and may take
 * until the deadline to stop: not before that is it given back. */
static void owe(struct core *core, uint32_t slot, uint64_t deadline_ns)
{
    struct core_lock *lock = &core->locks[slot];

    lock->owed = true;
    lock->deadline_ns = PLANTED(returned_early) ? core->now_ns : deadline_ns;
    lock->session_key = core->sessions[lock->session].key;
    lock_arm(core, slot);
}

/* What is owed becomes a release, unless the session has ended (and what lived with it too), is
 * being closed, or a reentrant acquire has found the lease again meanwhile. */
static void pay(struct core *core, uint32_t slot)
{
    struct core_lock *lock = &core->locks[slot];
    const struct core_session *session = &core->sessions[lock->session];

    if (session->state == SESSION_OPEN && session->key == lock->session_key &&
        lock_by_lease(core, &lock->lease) == NO_SLOT && !give_back(core, slot)) {
        lock->deadline_ns = core->now_ns + SOFT_FIRST_NS; /* no record: again soon */
        lock_arm(core, slot);
        return;
    }
    lock->owed = false;
    lock_arm(core, slot);
    lock_try_free(core, slot);
}

/* All locks are looked at, which is rare enough, as in is_being_given_up(). */
bool lock_is_stopping(struct core *core, const struct wire_lease_id *lease)
{
    for (uint32_t slot = 0; slot < core->locks_used; slot++) {
        struct core_lock *lock = &core->locks[slot];

        if (lock->state != LOCK_LOST || lock->lease.secret != lease->secret ||
            lock->deadline_ns <= core->now_ns)
            continue;
        if (!lock->owed && !lock->lock_delay)
            owe(core, slot, lock->deadline_ns);
        return true;
    }
    return false;
}

void lock_stopped(struct core *core, uint32_t slot)
{
    if (core->locks[slot].owed)
        pay(core, slot);
}

void lock_renewal_result(struct core *core, uint32_t slot, unsigned result, uint64_t basis_ns)
{
    struct core_lock *lock = &core->locks[slot];
    bool same = lock->sent_lease.secret == lock->lease.secret;

    if (lock->state == LOCK_LOST && result == WIRE_OK) {
        /* The server holds it still, and nobody would renew it: others need not wait for its end.
         * Not if a lock delay was asked for: that protects what the holder may still be doing. */
        if (!lock->lock_delay)
            owe(core, slot, lock->deadline_ns);
    } else if (lock->state == LOCK_HELD && result == WIRE_OK && same) {
        if (lock->ask_ttl_ms != 0)
            lock->ttl_ms = lock->ask_ttl_ms;
        lock_extend(core, slot, basis_ns);
    } else if (lock->state == LOCK_HELD && result == WIRE_LOST && same && !lock->converting) {
        lock_lose(core, slot, BELAY_LOST_EXPIRED);
    } else if (lock->state == LOCK_HELD) { /* no verdict on what we hold now: ask again soon */
        lock->renew_ns = core->now_ns + core_jitter(core, SOFT_MAX_NS);
        lock_arm(core, slot);
    } else {
        lock_try_free(core, slot);
    }
}

/* ---- deadlines and the end ------------------------------------------------------------------- */

uint64_t lock_deadline_ns(const struct core *core, uint32_t slot)
{
    const struct core_lock *lock = &core->locks[slot];

    if (lock->state != LOCK_HELD)
        return 0;
    return lock->ttl_ms != 0 || lock->forced ? lock->deadline_ns
                                             : core->sessions[lock->session].deadline_ns;
}

/* A little before the deadline, so that the caller is told no later than it. */
static uint64_t loss_ns(const struct core *core, const struct core_lock *lock)
{
    uint64_t ttl_ms = lock->ttl_ms != 0 ? lock->ttl_ms : core->sessions[lock->session].ttl_ms;
    uint64_t margin_ns = min_ns(2 * MS, ttl_ms * MS / 50);

    return lock->deadline_ns > margin_ns ? lock->deadline_ns - margin_ns : 0;
}

void lock_arm(struct core *core, uint32_t slot)
{
    const struct core_lock *lock = &core->locks[slot];
    uint64_t at_ns = UINT64_MAX;

    if (lock->owed) {
        at_ns = lock->deadline_ns;
    } else if (lock->state == LOCK_HELD && (lock->ttl_ms != 0 || lock->forced)) {
        at_ns = loss_ns(core, lock);
        if (lock->renewal == RENEWAL_NONE)
            at_ns = min_ns(at_ns, lock->renew_ns);
    }
    client_timers_set(&core->timers, timer_of_lock(core, slot), at_ns);
}

void lock_timer(struct core *core, uint32_t slot)
{
    struct core_lock *lock = &core->locks[slot];

    if (lock->owed) {
        pay(core, slot);
        return;
    }
    if (core->now_ns >= loss_ns(core, lock) && PLANTED(lost_untold))
        return;
    if (core->now_ns >= loss_ns(core, lock)) {
        lock_lose(core, slot, lock->forced ? BELAY_LOST_FORCED : BELAY_LOST_DEADLINE);
        return;
    }
    if (core->now_ns >= lock->renew_ns)
        lock_due(core, slot);
    lock_arm(core, slot);
}

static void leave(struct core *core, uint32_t slot)
{
    struct core_lock *lock = &core->locks[slot];

    hash_out(core, slot);
    held_out(core, slot);
    if (lock->renewal == RENEWAL_DUE)
        lock_renewal_none(core, slot, &core->sessions[lock->session].due);
    client_timers_clear(&core->timers, timer_of_lock(core, slot));
    lock->renew_ns = UINT64_MAX;
}

void lock_try_free(struct core *core, uint32_t slot)
{
    struct core_lock *lock = &core->locks[slot];

    if (lock->state != LOCK_GONE || lock->commands > 0 || lock->renewal == RENEWAL_SENT ||
        lock->owed)
        return;
    lock->state = LOCK_FREE;
    lock->hash_next = core->locks_free;
    core->locks_free = slot;
    core->locks_live--;
    core->counts.locks--;
}

void lock_unpin(struct core *core, uint32_t slot)
{
    core->locks[slot].commands--;
    lock_try_free(core, slot);
}

void lock_drop(struct core *core, uint32_t slot)
{
    if (core->locks[slot].state == LOCK_HELD)
        leave(core, slot);
    core->locks[slot].state = LOCK_GONE;
    lock_try_free(core, slot);
}

void lock_ended(struct core *core, uint32_t slot, belay_lost_reason reason)
{
    struct core_lock *lock = &core->locks[slot];

    leave(core, slot);
    lock->state = LOCK_LOST;
    core->counts.locks_lost++;
    core->sink.lost(core->sink.context, ref_of(lock->generation, slot), lock->user, reason);
}

void lock_lose(struct core *core, uint32_t slot, belay_lost_reason reason)
{
    struct core_lock *lock = &core->locks[slot];
    uint64_t deadline_ns = lock_deadline_ns(core, slot);

    lock_ended(core, slot, reason);
    if (lock->ttl_ms == 0)
        owe(core, slot, deadline_ns);
}

void lock_revoke(struct core *core, uint32_t slot)
{
    struct core_lock *lock = &core->locks[slot];

    if (lock->ttl_ms == 0 && !lock->forced) {
        lock->deadline_ns = lock_deadline_ns(core, slot);
        lock->forced = true;
        lock_arm(core, slot);
    }
    core->sink.revoke(core->sink.context, ref_of(lock->generation, slot), lock->user);
}

void locks_bound_lose(struct core *core, uint32_t session, belay_lost_reason reason)
{
    uint32_t next;

    for (uint32_t at = core->sessions[session].held.head;
         at != NO_SLOT && core->sessions[session].bound > 0; at = next) {
        next = core->locks[at].held_next;
        if (core->locks[at].ttl_ms != 0)
            continue;
        if (reason == BELAY_LOST_SESSION)
            lock_ended(core, at, reason);
        else /* the session may yet turn out to be alive */
            lock_lose(core, at, reason);
    }
}
