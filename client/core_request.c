/* SPDX-License-Identifier: Apache-2.0
 *
 * A request's life: where it stands, when it is sent (again), and how it ends.
 */
#include "client/core_state.h"

/* ---- lists ----------------------------------------------------------------------------------- */

static struct list *list_of(struct core *core, const struct core_request *request)
{
    switch (request->place) {
    case PLACE_UNROUTED:
        return &core->unrouted;
    case PLACE_READS:
        return &core->reads;
    case PLACE_BACKLOG:
        return &core->sessions[request->session].backlog;
    case PLACE_ACTIVE:
        return &core->sessions[request->session].active;
    case PLACE_WAITING:
        return &core->sessions[request->session].waiting;
    default:
        return NULL;
    }
}

static void unlink_place(struct core *core, uint32_t slot)
{
    struct core_request *request = &core->requests[slot];
    struct list *list = list_of(core, request);

    if (list == NULL)
        return;
    if (request->previous != NO_SLOT)
        core->requests[request->previous].next = request->next;
    else
        list->head = request->next;
    if (request->next != NO_SLOT)
        core->requests[request->next].previous = request->previous;
    else
        list->tail = request->previous;
    list->count--;
}

/* Active and waiting are in the order of numbers, so that a head is the lowest unanswered one. New
 * numbers are the highest: the walk from the tail is short. Number 0 goes last. */
static void link_place(struct core *core, uint32_t slot)
{
    struct core_request *request = &core->requests[slot];
    struct list *list = list_of(core, request);

    if (list == NULL)
        return;
    uint32_t after = list->tail;
    if (request->place == PLACE_ACTIVE || request->place == PLACE_WAITING) {
        while (after != NO_SLOT && core->requests[after].number > request->number)
            after = core->requests[after].previous;
    }
    uint32_t before = after == NO_SLOT ? list->head : core->requests[after].next;
    request->previous = after;
    request->next = before;
    if (after == NO_SLOT)
        list->head = slot;
    else
        core->requests[after].next = slot;
    if (before == NO_SLOT)
        list->tail = slot;
    else
        core->requests[before].previous = slot;
    list->count++;
}

void request_place(struct core *core, uint32_t slot, uint8_t place)
{
    unlink_place(core, slot);
    core->requests[slot].place = place;
    link_place(core, slot);
}

static void enter_flight(struct core *core, uint32_t slot)
{
    struct core_request *request = &core->requests[slot];
    struct core_route *route = &core->routes[request->shard];

    if (request->in_flight)
        return;
    request->in_flight = true;
    request->flight_previous = NO_SLOT;
    request->flight_next = route->flight_head;
    if (route->flight_head != NO_SLOT)
        core->requests[route->flight_head].flight_previous = slot;
    route->flight_head = slot;
}

static void leave_flight(struct core *core, uint32_t slot)
{
    struct core_request *request = &core->requests[slot];

    if (!request->in_flight)
        return;
    request->in_flight = false;
    if (request->flight_previous != NO_SLOT)
        core->requests[request->flight_previous].flight_next = request->flight_next;
    else
        core->routes[request->shard].flight_head = request->flight_next;
    if (request->flight_next != NO_SLOT)
        core->requests[request->flight_next].flight_previous = request->flight_previous;
}

/* ---- records --------------------------------------------------------------------------------- */

uint32_t request_new(struct core *core, uint8_t op, uint32_t client)
{
    uint32_t slot = core->requests_free;

    if (slot != NO_SLOT)
        core->requests_free = core->requests[slot].next;
    else if (core->requests_used < core->requests_count)
        slot = core->requests_used++;
    else
        return NO_SLOT;
    uint32_t generation = core->requests[slot].generation + 1;
    core->requests[slot] = (struct core_request){
        .generation = generation != 0 ? generation : 1,
        .op = op,
        .client = client,
        .session = NO_SLOT,
        .lock = NO_SLOT,
        .next = NO_SLOT,
        .previous = NO_SLOT,
        .node = NO_SLOT,
        .ends_ns = UINT64_MAX,
        .wait_until_ns = UINT64_MAX,
        .resend_ns = UINT64_MAX,
    };
    list_init(&core->requests[slot].renewals);
    core->counts.requests++;
    return slot;
}

struct core_request *request_get(struct core *core, core_ref ref)
{
    uint32_t slot = (uint32_t)ref;

    if (slot >= core->requests_used)
        return NULL;
    struct core_request *request = &core->requests[slot];
    return request->place != PLACE_FREE && request->generation == ref >> 32 ? request : NULL;
}

/* A release, a convert, or an acquire that was given up, is confirmed. An acquire sent before may
 * be answered by that lease, as it was, later still, datagrams being what they are: a reentrant one
 * because it found it, or any because a reentrant one found, and gave up, what it had been granted.
 */
static void doubt_others(struct core *core, const struct core_request *ended)
{
    bool cancelled = ended->op == WIRE_OP_ACQUIRE && ended->phase != PHASE_ASK;
    uint64_t token = cancelled ? 0 : ended->given_up_token; /* an acquire's is of others' leases */

    if (!core->reentrant_asked ||
        (ended->op != WIRE_OP_RELEASE && ended->op != WIRE_OP_CONVERT && !cancelled))
        return;
    for (uint32_t i = 0; i < core->requests_used; i++) {
        struct core_request *request = &core->requests[i];

        if (request->place == PLACE_FREE || request->op != WIRE_OP_ACQUIRE ||
            request->phase != PHASE_ASK || request->session != ended->session ||
            request->key_tag != ended->key_tag || request->number == 0)
            continue;
        if (token > request->given_up_token)
            request->given_up_token = token;
        if (token == 0 && ((request->flags | ended->flags) & WIRE_REENTRANT) != 0)
            request->doubtful = true;
    }
}

void request_free(struct core *core, uint32_t slot)
{
    struct core_request *request = &core->requests[slot];

    doubt_others(core, request);
    client_timers_clear(&core->timers, timer_of_request(core, slot));
    leave_flight(core, slot);
    unlink_place(core, slot);
    request->place = PLACE_FREE;
    request->next = core->requests_free;
    core->requests_free = slot;
    core->counts.requests--;
}

/* ---- starting -------------------------------------------------------------------------------- */

static void find_session(struct core *core, uint32_t slot)
{
    struct core_request *request = &core->requests[slot];

    request->session = session_of(core, request->client, request->shard);
    if (request->session == NO_SLOT) {
        request_finish(core, slot, BELAY_OVER_LIMIT, NULL, NO_SLOT, false);
        return;
    }
    request_place(core, slot, PLACE_BACKLOG);
    session_pump(core, request->session);
}

void request_start(struct core *core, uint32_t slot)
{
    struct core_request *request = &core->requests[slot];
    const uint8_t *text = text_of(core, slot);

    if (core->shards == 0) {
        map_want(core);
        request_place(core, slot, PLACE_UNROUTED);
        request_arm(core, slot);
        return;
    }
    if (request->op == WIRE_OP_LIST) {
        if (request->shard >= core->shards)
            request->shard = 0;
    } else {
        request->shard =
            wire_shard_of(text, request->namespace_bytes, text + request->namespace_bytes,
                          request->name_bytes, core->shards);
    }
    request_arm(core, slot);
    if (request->op == WIRE_OP_QUERY || request->op == WIRE_OP_LIST) {
        request_place(core, slot, PLACE_READS);
        request_send(core, slot);
    } else {
        find_session(core, slot);
    }
}

void request_unrouted_all(struct core *core)
{
    while (core->unrouted.head != NO_SLOT)
        request_start(core, core->unrouted.head);
}

/* ---- sending --------------------------------------------------------------------------------- */

void request_arm(struct core *core, uint32_t slot)
{
    const struct core_request *request = &core->requests[slot];
    uint64_t at_ns = min_ns(request->resend_ns, request->ends_ns);

    if (request->place == PLACE_WAITING)
        at_ns = min_ns(at_ns, request->wait_until_ns);
    client_timers_set(&core->timers, timer_of_request(core, slot), at_ns);
}

void request_soft(struct core *core, uint32_t slot)
{
    struct core_request *request = &core->requests[slot];
    uint64_t pause_ns = SOFT_FIRST_NS;

    for (uint8_t i = 0; i < request->softs && pause_ns < SOFT_MAX_NS; i++)
        pause_ns += pause_ns / 2;
    if (request->softs < UINT8_MAX)
        request->softs++;
    request->attempts = 0;
    request->resend_ns = core->now_ns + core_jitter(core, min_ns(pause_ns, SOFT_MAX_NS));
    request_arm(core, slot);
}

/* A cancel needs a number of its own, which a full window may refuse for now. */
static bool has_number(struct core *core, struct core_request *request)
{
    if (request->phase != PHASE_CANCEL || request->cancel_number != 0)
        return true;
    return core->sessions[request->session].state == SESSION_OPEN &&
           session_number(core, request->session, true, &request->cancel_number);
}

void request_send(struct core *core, uint32_t slot)
{
    struct core_request *request = &core->requests[slot];
    bool to_shard = !asks_node(request->op);

    /* No number for a cancel: its own target may be what fills the window. What became of that can
     * be asked without one, and then either ends it or lets acked_below pass it. */
    if (!has_number(core, request))
        request->phase = PHASE_VERIFY;
    if (to_shard) {
        request->node = route_node(core, request->shard);
        enter_flight(core, slot);
    }
    const struct core_node *node = &core->nodes[request->node];
    if (request->first_sent_ns == 0 || PLANTED(deadline_from_retry))
        request->first_sent_ns = core->now_ns;
    request_encode(core, slot, request->node);
    request->sent_ns = core->now_ns;
    request->cookie_generation = node->cookie_generation;
    uint64_t timeout_ns = node_timeout_ns(node) << (request->attempts < 5 ? request->attempts : 5);
    if (request->attempts < UINT8_MAX)
        request->attempts++;
    request->resend_ns = core->now_ns + core_jitter(core, min_ns(timeout_ns, RETRY_MAX_NS));
    request_arm(core, slot);
}

/* Its session is gone: it goes into the next one under a new number. */
void request_renumber(struct core *core, uint32_t slot)
{
    struct core_request *request = &core->requests[slot];

    leave_flight(core, slot);
    request->number = 0;
    request->first_sent_ns = 0;
    request->attempts = 0;
    request->softs = 0;
    request->queued = false;
    request->doubtful = false;
    request->phase = PHASE_ASK;
    request->resend_ns = UINT64_MAX;
    request_place(core, slot, PLACE_BACKLOG);
    request_arm(core, slot);
}

/* The server says that it waits: from now on a push brings the grant, and polls make sure. */
void request_queued(struct core *core, uint32_t slot)
{
    struct core_request *request = &core->requests[slot];
    uint64_t ttl_ms = core->sessions[request->session].ttl_ms;

    if (request->ttl_ms != 0)
        ttl_ms = min_ns(ttl_ms, request->ttl_ms);
    leave_flight(core, slot);
    request->queued = true;
    request->attempts = 0;
    request->softs = 0;
    request->resend_ns = core->now_ns + core_jitter(core, ttl_ms * MS / 3) * 5 / 6;
    if (request->ends_ns != UINT64_MAX)
        request->ends_ns = max_ns(
            request->ends_ns, add_ns(request->resend_ns, core->options.request_timeout_ms * MS));
    request_place(core, slot, PLACE_WAITING);
    request_arm(core, slot);
}

/* ---- time ------------------------------------------------------------------------------------ */

/* What the core itself asked for, and nobody needs any more, is not repeated for ever. */
static bool is_pointless(struct core *core, uint32_t slot)
{
    const struct core_request *request = &core->requests[slot];

    if (request->op != WIRE_OP_OPEN && request->op != WIRE_OP_KEEPALIVE)
        return false;
    const struct core_session *session = &core->sessions[request->session];
    if (request->op == WIRE_OP_KEEPALIVE && core->now_ns < session->deadline_ns)
        return false;
    return session->backlog.count == 0 && session->held.count == 0 && session->waiting.count == 0 &&
           session->active.count == session->keepalives;
}

static bool is_over(struct core *core, uint32_t slot)
{
    struct core_request *request = &core->requests[slot];

    if (is_pointless(core, slot)) {
        session_free(core, request->session);
        return true;
    }
    if (request->place == PLACE_WAITING && core->now_ns >= request->wait_until_ns) {
        request_abandon(core, slot, BELAY_TIMED_OUT);
        return true;
    }
    belay_status problem = request->detached ? BELAY_OK : nodes_problem(core);
    if (problem != BELAY_OK && request->user_op) {
        request_abandon(core, slot, problem);
        return true;
    }
    if (core->now_ns >= request->ends_ns) {
        if (request->op == WIRE_OP_CLOSE) /* the session has expired by itself */
            session_free(core, request->session);
        else
            request_abandon(core, slot, BELAY_UNREACHABLE);
        return true;
    }
    return false;
}

void request_timer(struct core *core, uint32_t slot)
{
    struct core_request *request = &core->requests[slot];

    if (is_over(core, slot))
        return;
    if (core->now_ns < request->resend_ns || request->place == PLACE_UNROUTED ||
        request->place == PLACE_BACKLOG) {
        request_arm(core, slot);
        return;
    }
    if (request->attempts > 0) {
        core->counts.retries++;
        bool silent = core->nodes[request->node].heard_ns < request->sent_ns;
        if (silent && !asks_node(request->op))
            route_silent(core, request->shard, request->node);
    }
    request_send(core, slot);
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void give_completion(struct core *core, uint32_t slot, belay_status status,
                            const struct wire_item *item, uint32_t lock, bool shared_lock)
{
    struct core_request *request = &core->requests[slot];
    struct core_completion completion = {
        .user = request->user,
        .request = ref_of(request->generation, slot),
        .op = request->op,
        .status = status,
        .lock = lock != NO_SLOT ? ref_of(core->locks[lock].generation, lock) : 0,
        .shared_lock = shared_lock,
        .item = item,
    };

    if (request->detached)
        return;
    request->detached = true;
    if (item != NULL && item->bytes == sizeof(struct wire_problem) &&
        (item->status == WIRE_OVER_LIMIT || item->status == WIRE_BAD_REQUEST)) {
        completion.what = ((const struct wire_problem *)item)->what;
        completion.limit = ((const struct wire_problem *)item)->limit;
    }
    if (request->counted)
        core->commands--;
    request->counted = false;
    if (request->reserved && (lock == NO_SLOT || shared_lock))
        core->locks_live--;
    request->reserved = false;
    core->sink.complete(core->sink.context, &completion);
}

void request_finish(struct core *core, uint32_t slot, belay_status status,
                    const struct wire_item *item, uint32_t lock, bool shared_lock)
{
    struct core_request *request = &core->requests[slot];
    uint32_t session = request->session;
    uint32_t named = request->lock;

    give_completion(core, slot, status, item, lock, shared_lock);
    request_free(core, slot);
    if (named != NO_SLOT)
        lock_unpin(core, named);
    if (session != NO_SLOT)
        session_pump(core, session); /* the window may have moved */
}

/* From the active list, so that acked_below does not pass the number until this is settled. */
static void start_cancel(struct core *core, uint32_t slot)
{
    struct core_request *request = &core->requests[slot];

    leave_flight(core, slot);
    request->phase = PHASE_CANCEL;
    request->cancel_number = 0;
    request->ends_ns = UINT64_MAX;
    request->wait_until_ns = UINT64_MAX;
    request->attempts = 0;
    request->softs = 0;
    request->queued = false;
    request_place(core, slot, PLACE_ACTIVE);
    request_send(core, slot);
}

void request_abandon(struct core *core, uint32_t slot, belay_status status)
{
    struct core_request *request = &core->requests[slot];
    bool sent = request->number != 0;

    if (!sent || request->detached ||
        (request->op != WIRE_OP_ACQUIRE && request->op != WIRE_OP_RELEASE &&
         request->op != WIRE_OP_CONVERT)) {
        request_finish(core, slot, status, NULL, NO_SLOT, false);
        return;
    }
    give_completion(core, slot, status, NULL, NO_SLOT, false);
    if (request->op == WIRE_OP_ACQUIRE && !PLANTED(cancel_untold)) {
        start_cancel(core, slot);
        return;
    }
    /* Release: still wanted, of a lock that lives with the session for as long as it takes.
     * Convert: cancelling one that was granted would end the lock itself, so its outcome is awaited
     * instead. Both for a while only. */
    request->ends_ns = request->bound ? UINT64_MAX : core->now_ns + RELEASE_NS;
    request_arm(core, slot);
}

/* A grant that came when its TTL was over: nothing is held, and it is given back. */
void request_lost(struct core *core, uint32_t slot, const struct wire_lease_id *lease,
                  uint64_t token)
{
    give_completion(core, slot, BELAY_LOST, NULL, NO_SLOT, false);
    lock_return(core, slot, lease, token);
}
