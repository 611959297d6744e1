/* SPDX-License-Identifier: Apache-2.0
 *
 * What datagrams say. A reply counts only if it comes from a known node and names a session and a
 * number that are waiting for it; anything else (a late duplicate, a stranger) changes nothing.
 */
#include "consensus/plant.h"
#include "client/core_state.h"

belay_status status_of_wire(unsigned status)
{
    switch (status) {
    case WIRE_OK:
        return BELAY_OK;
    case WIRE_BUSY:
        return BELAY_BUSY;
    case WIRE_DELAYED:
        return BELAY_DELAYED;
    case WIRE_TIMED_OUT:
        return BELAY_TIMED_OUT;
    case WIRE_LOST:
        return BELAY_LOST;
    case WIRE_CANCELLED:
        return BELAY_CANCELLED;
    case WIRE_DEADLOCK:
        return BELAY_DEADLOCK;
    case WIRE_OVER_LIMIT:
        return BELAY_OVER_LIMIT;
    case WIRE_DENIED:
        return BELAY_DENIED;
    case WIRE_SESSION_LOST:
        return BELAY_SESSION_LOST;
    case WIRE_STALE_REQUEST:
        return BELAY_STALE_REQUEST;
    case WIRE_WRONG_VERSION:
        return BELAY_WRONG_VERSION;
    case WIRE_WRONG_CLUSTER:
        return BELAY_WRONG_CLUSTER;
    case WIRE_ALREADY_HELD:
        return BELAY_ALREADY_HELD;
    default:
        return BELAY_BAD_REQUEST;
    }
}

/* ---- final answers --------------------------------------------------------------------------- */

/* The TTL may be over when a grant arrives at last: then the caller holds nothing. */
static bool grant_is_over(const struct core *core, uint32_t at, const struct wire_granted *granted)
{
    const struct core_request *request = &core->requests[at];
    uint64_t deadline_ns = core->sessions[request->session].deadline_ns;

    if (granted->ttl_ms != 0)
        deadline_ns = add_ns(grant_basis_ns(core, at, granted), ttl_less_drift_ns(granted->ttl_ms));
    return deadline_ns <= core->now_ns + 2 * MS;
}

/* Where acquires are reentrant, a grant may be of the very lease whose release, or the cancel of
 * the acquire that got it, is under way: that lease is as good as gone. Or it is being converted,
 * and the grant tells of the mode that it had before. All requests are looked at,
 * which is rare enough: only for grants of a lease that no lock has. */
static bool is_being_given_up(const struct core *core, uint32_t at,
                              const struct wire_lease_id *lease)
{
    const struct core_request *asking = &core->requests[at];

    for (uint32_t i = 0; i < core->requests_used; i++) {
        const struct core_request *request = &core->requests[i];

        if (request->place == PLACE_FREE || i == at)
            continue;
        if ((request->op == WIRE_OP_RELEASE || request->op == WIRE_OP_CONVERT) &&
            request->lease.secret == lease->secret)
            return true;
        if (request->op == WIRE_OP_ACQUIRE && request->phase != PHASE_ASK &&
            ((request->flags | asking->flags) & WIRE_REENTRANT) != 0 &&
            request->session == asking->session && request->key_tag == asking->key_tag)
            return true;
    }
    return false;
}

/* The lease goes back, whoever gave it up, and the acquire is made anew: were it only asked again,
 * it might hear of a lease that nobody here holds and that lives as long as the session. */
static void acquire_anew(struct core *core, uint32_t at, const struct wire_granted *granted)
{
    struct core_request *request = &core->requests[at];

    if (lock_is_stopping(core, &granted->lease)) {
        request_finish(core, at, BELAY_LOST, NULL, NO_SLOT, false);
        return;
    }
    if (!lease_return(core, request->session, request->key_tag, request->bound, &granted->lease,
                      granted->token)) {
        request_lost(core, at, &granted->lease, granted->token);
        return;
    }
    request_renumber(core, at);
    session_pump(core, request->session);
}

/* A reentrant acquire may hear first of a lease that an earlier acquire was granted after a wait:
 * the secret bears the number of the one that got it. That one has what it asked for, and must not
 * go on to time out, or be cancelled: the server would take the lease for given up. All requests
 * are looked at, as above. */
static void tell_who_got_it(struct core *core, uint32_t lock, const struct wire_granted *granted)
{
    for (uint32_t i = 0; i < core->requests_used; i++) {
        struct core_request *request = &core->requests[i];
        bool shared_lock;

        if (request->place == PLACE_FREE || request->op != WIRE_OP_ACQUIRE ||
            request->phase != PHASE_ASK || request->session != core->locks[lock].session ||
            request->key_tag != core->locks[lock].key_tag || request->number == 0 ||
            wire_lease_secret(granted->lease.secret, request->number) != granted->lease.secret)
            continue;
        if (request->mode == core->locks[lock].mode)
            request_finish(core, i, BELAY_OK, &granted->reply.item,
                           lock_granted(core, i, granted, &shared_lock), true);
        else
            request_finish(core, i, BELAY_LOST, NULL, NO_SLOT, false);
        return;
    }
}

static void acquire_granted(struct core *core, uint32_t at, const struct wire_granted *granted)
{
    struct core_request *request = &core->requests[at];
    uint32_t held = lock_by_lease(core, &granted->lease);
    bool known = held != NO_SLOT;
    bool reentrant = (request->flags & WIRE_REENTRANT) != 0;
    bool shared_lock;

    if (request->phase == PHASE_VERIFY) {
        /* A reentrant one: the lease is another acquire's. */
        if (known || (reentrant && lock_is_stopping(core, &granted->lease)))
            request_finish(core, at, BELAY_CANCELLED, NULL, NO_SLOT, false);
        else
            lock_return(core, at, &granted->lease, granted->token);
        return;
    }
    if (known && core->locks[held].mode != request->mode) {
        /* Another acquire had this grant first, and converted it. */
        request_finish(core, at, BELAY_LOST, NULL, NO_SLOT, false);
        return;
    }
    if (!known && core->reentrant_asked && !PLANTED(reentrant_trusted) &&
        (request->doubtful || granted->token <= request->given_up_token ||
         is_being_given_up(core, at, &granted->lease))) {
        acquire_anew(core, at, granted);
        return;
    }
    if (grant_is_over(core, at, granted) && !known) {
        request_lost(core, at, &granted->lease, granted->token);
        return;
    }
    uint32_t lock = lock_granted(core, at, granted, &shared_lock);
    bool found = reentrant && !known;
    request_finish(core, at, BELAY_OK, &granted->reply.item, lock, shared_lock);
    if (found)
        tell_who_got_it(core, lock, granted);
}

static void acquire_answered(struct core *core, uint32_t at, const struct wire_item *item)
{
    struct core_request *request = &core->requests[at];

    if (item->status == WIRE_OK) {
        acquire_granted(core, at, (const struct wire_granted *)item);
    } else if (request->phase == PHASE_VERIFY) {
        request_finish(core, at, BELAY_CANCELLED, NULL, NO_SLOT, false);
    } else if (item->status == WIRE_STALE_REQUEST) {
        /* The server cannot say what became of it: make sure that nothing is left of it. */
        request_abandon(core, at, BELAY_STALE_REQUEST);
    } else {
        request_finish(core, at, status_of_wire(item->status), item, NO_SLOT, false);
    }
}

static void convert_answered(struct core *core, uint32_t at, const struct wire_item *item)
{
    struct core_request *request = &core->requests[at];
    uint32_t lock = request->lock;

    if (lock != NO_SLOT) {
        core->locks[lock].converting = false;
        if (item->status == WIRE_OK)
            lock_converted(core, at, (const struct wire_granted *)item);
        else if (item->status == WIRE_LOST && core->locks[lock].state == LOCK_HELD)
            lock_lose(core, lock, BELAY_LOST_EXPIRED);
        if (core->locks[lock].state != LOCK_HELD)
            lock = NO_SLOT;
    }
    request_finish(core, at, status_of_wire(item->status), item, lock, false);
}

static void renew_answered(struct core *core, uint32_t at, const struct wire_item *item)
{
    const struct core_request *request = &core->requests[at];
    const struct wire_renewed *renewed = (const struct wire_renewed *)item;
    unsigned result = item->status;
    uint32_t lock = request->lock;

    if (result == WIRE_OK)
        result = renewed->count == 1 ? renewed->results[0] : (unsigned)WIRE_STALE_REQUEST;
    if (lock != NO_SLOT && core->locks[lock].state == LOCK_HELD &&
        core->locks[lock].lease.secret == request->lease.secret) {
        if (result == WIRE_OK)
            lock_extend(core, lock, request->first_sent_ns);
        else if (result == WIRE_LOST && !core->locks[lock].converting)
            lock_lose(core, lock, BELAY_LOST_EXPIRED);
    }
    request_finish(core, at, status_of_wire(result), item, NO_SLOT, false);
}

static void keepalive_answered(struct core *core, uint32_t at, const struct wire_item *item)
{
    if (item->status == WIRE_OK)
        session_renewed(core, at, (const struct wire_renewed *)item);
    else /* cannot be said of a keepalive: as if nothing had come */
        request_soft(core, at);
}

/* A cancel's answer is also the last word on what it cancelled, unless acked_below had passed that
 * number: then the server no longer finds a grant by it, and it is asked for by name once more. */
static void cancel_answered(struct core *core, uint32_t at)
{
    struct core_request *request = &core->requests[at];

    if (request->number >= core->sessions[request->session].acked) {
        request_finish(core, at, BELAY_CANCELLED, NULL, NO_SLOT, false);
        return;
    }
    request->phase = PHASE_VERIFY;
    request->cancel_number = 0;
    request->attempts = 0;
    request_send(core, at);
}

static void final_answer(struct core *core, uint32_t at, const struct wire_item *item)
{
    struct core_request *request = &core->requests[at];

    switch (request->op) {
    case WIRE_OP_ACQUIRE:
        acquire_answered(core, at, item);
        break;
    case WIRE_OP_CONVERT:
        convert_answered(core, at, item);
        break;
    case WIRE_OP_RENEW:
        renew_answered(core, at, item);
        break;
    case WIRE_OP_KEEPALIVE:
        keepalive_answered(core, at, item);
        break;
    case WIRE_OP_CLOSE: {
        uint32_t session = request->session;
        request_finish(core, at, BELAY_OK, NULL, NO_SLOT, false);
        session_free(core, session);
        break;
    }
    default:
        request_finish(core, at, status_of_wire(item->status), item, NO_SLOT, false);
        break;
    }
}

/* ---- answers that are not final -------------------------------------------------------------- */

static void queued(struct core *core, uint32_t at)
{
    struct core_request *request = &core->requests[at];

    if (request->phase == PHASE_VERIFY) { /* it waits: (once more) a cancel */
        request->phase = PHASE_CANCEL;
        request->cancel_number = 0;
        request_place(core, at, PLACE_WAITING);
        request_soft(core, at);
        return;
    }
    request_queued(core, at);
}

static bool not_final(struct core *core, uint32_t at, uint32_t node, const struct wire_item *item)
{
    struct core_request *request = &core->requests[at];

    switch (item->status) {
    case WIRE_QUEUED:
        queued(core, at);
        return true;
    case WIRE_NOT_LEADER:
        if (!route_redirect(core, request->shard, node, (const struct wire_redirect *)item))
            request_soft(core, at);
        return true;
    case WIRE_UNAVAILABLE:
        core->counts.unavailable++;
        request_soft(core, at);
        return true;
    case WIRE_WINDOW_FULL:
        request_soft(core, at);
        return true;
    case WIRE_WRONG_SHARD: /* cannot be, with the right number of shards: look again */
        map_want(core);
        return false;
    default:
        return false;
    }
}

static void answer(struct core *core, uint32_t at, uint32_t node, const struct wire_item *item)
{
    struct core_request *request = &core->requests[at];

    if (request->attempts == 1 && request->node == node)
        node_rtt(&core->nodes[node], core->now_ns - request->sent_ns);
    if (not_final(core, at, node, item))
        return;
    request->attempts = 0;
    request->softs = 0;
    final_answer(core, at, item);
}

/* ---- by kind --------------------------------------------------------------------------------- */

/* A refused open names neither session nor nonce: it is about the shard, so about the first open
 * that is under way there. */
static void open_reply(struct core *core, uint32_t node, const struct wire_item *item)
{
    uint16_t shard = item->shard;
    uint32_t at;

    if (item->status == WIRE_OK) {
        const struct wire_opened *opened = (const struct wire_opened *)item;
        uint32_t session = session_by_key(core, opened->nonce);
        if (session != NO_SLOT && core->sessions[session].state == SESSION_OPENING &&
            session_by_key(core, opened->reply.session) == NO_SLOT) {
            const struct core_request *open = &core->requests[core->sessions[session].opening];
            if (open->attempts == 1 && open->node == node)
                node_rtt(&core->nodes[node], core->now_ns - open->sent_ns);
            session_opened(core, session, opened);
        }
        return;
    }
    if (shard >= core->shards)
        return;
    for (at = core->routes[shard].flight_head; at != NO_SLOT; at = core->requests[at].flight_next) {
        if (core->requests[at].op == WIRE_OP_OPEN && core->requests[at].node == node)
            break;
    }
    if (at == NO_SLOT || not_final(core, at, node, item))
        return;
    if (item->status == WIRE_OVER_LIMIT || item->status == WIRE_BAD_REQUEST ||
        item->status == WIRE_DENIED)
        session_open_failed(core, at, item);
}

static void read_reply(struct core *core, uint32_t node, const struct wire_item *item)
{
    const struct wire_reply *reply = (const struct wire_reply *)item;
    struct core_request *request = request_get(core, reply->number);

    if (request == NULL || request->place != PLACE_READS || request->op != item->op)
        return;
    answer(core, (uint32_t)reply->number, node, item);
}

static void node_reply(struct core *core, uint32_t node, const struct wire_item *item)
{
    /* Both begin with the item and the number. */
    uint64_t number = ((const struct wire_node_status *)item)->number;
    struct core_request *request = request_get(core, number);

    if (item->status != WIRE_OK || request == NULL || request->op != item->op ||
        request->node != node)
        return;
    if (item->op == WIRE_OP_STATUS)
        map_peers(core, (const struct wire_node_status *)item);
    request_finish(core, (uint32_t)number, BELAY_OK, item, NO_SLOT, false);
}

static void push_ack(struct core *core, uint32_t node, uint16_t shard, uint64_t session,
                     uint64_t number, const struct wire_lease_id *lease)
{
    struct wire_push_ack *ack = node_item(core, node, WIRE_OP_PUSH_ACK, sizeof(*ack));

    ack->request.item.shard = shard;
    ack->request.session = session;
    ack->request.number = number;
    ack->lease = *lease;
}

static void push_grant(struct core *core, uint32_t node, const struct wire_item *item)
{
    const struct wire_granted *granted = (const struct wire_granted *)item;
    uint32_t session = session_by_key(core, granted->reply.session);

    if (session == NO_SLOT || core->sessions[session].state == SESSION_OPENING)
        return;
    uint16_t shard = core->sessions[session].shard;
    uint64_t number = granted->reply.number + PLANTED(push_of_another);
    uint32_t at = session_request(core, session, number);
    if (at != NO_SLOT && core->requests[at].phase == PHASE_ASK &&
        core->requests[at].number == number) {
        if (core->requests[at].op == WIRE_OP_ACQUIRE)
            acquire_granted(core, at, granted);
        else if (core->requests[at].op == WIRE_OP_CONVERT)
            convert_answered(core, at, item);
    }
    /* Also if it is being cancelled (which ends the grant), or was seen before. */
    push_ack(core, node, shard, granted->reply.session, granted->reply.number, &granted->lease);
}

static void push_lost(struct core *core, uint32_t node, const struct wire_item *item)
{
    const struct wire_lost *lost = (const struct wire_lost *)item;
    uint32_t slot = lock_by_lease(core, &lost->lease);
    uint32_t session = session_by_key(core, lost->reply.session);
    uint16_t shard = item->shard;

    if (slot != NO_SLOT) {
        if (!lost->final)
            lock_revoke(core, slot);
        else if (lost->reason == WIRE_DENIED)
            lock_ended(core, slot, BELAY_LOST_FORCED);
        else if (lost->reason == WIRE_SESSION_LOST)
            lock_ended(core, slot, BELAY_LOST_SESSION);
        else
            lock_ended(core, slot, BELAY_LOST_EXPIRED);
    }
    if (slot != NO_SLOT || session != NO_SLOT)
        push_ack(core, node, shard, lost->reply.session, 0, &lost->lease);
}

static void session_reply(struct core *core, uint32_t node, const struct wire_item *item)
{
    const struct wire_reply *reply = (const struct wire_reply *)item;
    uint32_t session = session_by_key(core, reply->session);

    if (session == NO_SLOT || core->sessions[session].state == SESSION_OPENING)
        return;
    uint32_t at = session_request(core, session, reply->number);
    if (at == NO_SLOT)
        return; /* answered before */
    if (item->status == WIRE_SESSION_LOST) {
        session_lost(core, session);
        return;
    }
    struct core_request *request = &core->requests[at];
    bool cancel = request->phase == PHASE_CANCEL;
    if (cancel != (item->op == WIRE_OP_CANCEL) || (!cancel && item->op != request->op))
        return; /* the acquire's own answer no longer matters; or one that fits nothing */
    if (!cancel) {
        answer(core, at, node, item);
    } else if (!not_final(core, at, node, item)) {
        request->softs = 0;
        cancel_answered(core, at);
    }
}

/* ---- entry ----------------------------------------------------------------------------------- */

static void one_item(struct core *core, uint32_t node, const struct wire_item *item)
{
    switch (item->op) {
    case WIRE_OP_MAP:
        if (item->status == WIRE_OK)
            map_page(core, node, (const struct wire_map *)item);
        break;
    case WIRE_OP_STATUS:
    case WIRE_OP_WORKER:
        node_reply(core, node, item);
        break;
    case WIRE_OP_QUERY:
    case WIRE_OP_LIST:
        read_reply(core, node, item);
        break;
    case WIRE_OP_OPEN:
        open_reply(core, node, item);
        break;
    case WIRE_OP_PUSH_GRANT:
        push_grant(core, node, item);
        break;
    case WIRE_OP_PUSH_LOST:
        push_lost(core, node, item);
        break;
    default:
        session_reply(core, node, item);
        break;
    }
}

/* The cluster's id is learned from the first map, or given; then nothing of another one counts. */
static bool right_cluster(struct core *core, uint32_t node, uint64_t cluster_id)
{
    if (core->cluster_id == 0 || cluster_id == 0 || cluster_id == core->cluster_id) {
        core->nodes[node].problem = 0;
        return true;
    }
    core->nodes[node].problem = WIRE_WRONG_CLUSTER;
    return false;
}

void core_receive(struct core *core, uint64_t now_ns, const struct wire_address *from,
                  const uint8_t *bytes, size_t length)
{
    const struct wire_header *header;
    const struct wire_item *item;
    uint32_t node = node_of_answer(core, from);

    core->now_ns = max_ns(core->now_ns, now_ns);
    core->counts.datagrams_in++;
    enum wire_reject reject = wire_decode_datagram(bytes, length, WIRE_KIND_REPLY, &header, &item);
    if (node == NO_SLOT || reject != WIRE_ACCEPTED) {
        core->counts.rejected++;
        if (node != NO_SLOT && reject == WIRE_REJECT_VERSION)
            core->nodes[node].problem = WIRE_WRONG_VERSION;
        return;
    }
    node_heard(core, node);
    for (uint16_t i = 0; i < header->item_count; i++, item = wire_item_next(item)) {
        if (!wire_judge_reply(item))
            core->counts.rejected++;
        else if (item->op == WIRE_OP_NODE)
            node_notice(core, node, (const struct wire_node_notice *)item);
        else if (right_cluster(core, node, header->cluster_id))
            one_item(core, node, item);
    }
}
