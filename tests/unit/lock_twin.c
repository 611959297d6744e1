/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/lock_twin_rules.h"

void twin_init(struct lock_twin *twin, const struct lock_limits *limits)
{
    memset(twin, 0, sizeof(*twin));
    twin->limits = *limits;
    twin->token_last = (uint64_t)limits->token_epoch << 48;
    twin->outputs = calloc(RIG_OUTPUTS_MAX, sizeof(*twin->outputs));
}

void twin_free(struct lock_twin *twin)
{
    free(twin->outputs);
}

void twin_counts(const struct lock_twin *twin, struct lock_counts *counts)
{
    memset(counts, 0, sizeof(*counts));
    counts->leases = count_leases(twin);
    counts->resources = count_resources(twin, false);
    counts->waiters = count_waiters(twin, -1);
    counts->answers = count_answers(twin);
    counts->token_last = twin->token_last;
    foreach (i, TWIN_SESSIONS_MAX, twin->sessions) {
        counts->sessions++;
    }
}

/* ---- commands -------------------------------------------------------------------------------- */

static int find_lease(struct lock_twin *twin, const struct wire_lease_id *id, uint32_t key_tag)
{
    if (id->slot >= TWIN_LEASES_MAX || !twin->leases[id->slot].used) {
        return -1;
    }
    int at = (int)id->slot;
    const struct twin_key *key = &twin->resources[twin->leases[at].resource].key;
    uint64_t hash =
        wire_key_hash(key->text, key->ns_bytes, key->text + key->ns_bytes, key->name_bytes);
    if (twin->leases[at].terms.secret != id->secret || (uint32_t)hash != key_tag) {
        return -1;
    }
    if (lease_gone(twin, &twin->leases[at])) {
        end_gone(twin, at);
        return -1;
    }
    return at;
}

static void do_busy(struct lock_twin *twin, struct twin_answer *answer,
                    const struct wire_acquire *acquire, int resource)
{
    struct wire_busy *busy = (void *)answer->item;
    int holder = holder_before(twin, resource, NEVER);
    busy->first.mode = acquire->mode;
    size_t value_bytes = 0;
    if (holder >= 0) {
        const struct twin_lease *lease = &twin->leases[holder];
        busy->holders = count_holders(twin, resource);
        busy->first.session = lease->session < 0 ? 0 : twin->sessions[lease->session].id;
        busy->first.token = lease->token;
        busy->first.remaining_ms = ms_to(twin, lease->timer.tick);
        busy->first.mode = lease->terms.mode;
        if (lease->terms.value_bytes > 0 && count_extras(twin) < twin->limits.extras_max) {
            value_bytes = lease->terms.value_bytes;
            memcpy(busy->value, lease->terms.value, value_bytes);
            answer->holds_value = true;
        }
    }
    busy->first.value_bytes = (uint8_t)value_bytes;
    busy->reply = reply_to(&acquire->request, WIRE_BUSY, wire_pad8(sizeof(*busy) + value_bytes));
}

/* True if a limit refuses what a holder and a waiter both need. */
static bool refused(struct lock_twin *twin, struct twin_answer *answer,
                    const struct wire_acquire *acquire, const struct twin_key *key, int resource)
{
    const struct lock_limits *limits = &twin->limits;
    const struct wire_request *request = &acquire->request;
    bool extra = acquire->lock_delay_ms || acquire->grace_ms || acquire->value_bytes;
    if (count_leases(twin) + count_promised(twin) >= limits->leases_max) {
        answer_limit(answer->item, request, WIRE_OVER_LIMIT, WIRE_WHAT_LEASES, limits->leases_max);
    } else if (extra && count_extras(twin) >= limits->extras_max) {
        answer_limit(answer->item, request, WIRE_OVER_LIMIT, WIRE_WHAT_EXTRAS, limits->extras_max);
    } else if (resource < 0 && count_resources(twin, false) >= limits->resources_max) {
        answer_limit(answer->item, request, WIRE_OVER_LIMIT, WIRE_WHAT_RESOURCES,
                     limits->resources_max);
    } else if (resource < 0 && key->ns_bytes + key->name_bytes > 24 &&
               count_resources(twin, true) >= limits->long_names_max) {
        answer_limit(answer->item, request, WIRE_OVER_LIMIT, WIRE_WHAT_LONG_NAMES,
                     limits->long_names_max);
    } else {
        return false;
    }
    return true;
}

static void join(struct lock_twin *twin, int session, uint64_t number, int resource, int lease,
                 int rank, uint32_t wait_ms, const struct twin_terms *terms)
{
    int at = 0;
    uint32_t ordinal = 0;
    while (twin->waiters[at].used) {
        at++;
        assert(at < TWIN_WAITERS_MAX);
    }
    foreach (i, TWIN_WAITERS_MAX, twin->waiters) {
        const struct twin_waiter *other = &twin->waiters[i];
        if (other->resource == resource && other->rank == rank && other->ordinal + 1 > ordinal) {
            ordinal = other->ordinal + 1;
        }
    }
    twin->waiters[at] = (struct twin_waiter){.used = true,
                                             .order = ++twin->orders,
                                             .ordinal = ordinal,
                                             .session = session,
                                             .number = number,
                                             .resource = resource,
                                             .lease = lease,
                                             .rank = rank,
                                             .terms = *terms};
    arm(twin, &twin->waiters[at].timer,
        wait_ms == WIRE_WAIT_FOREVER ? NEVER : tick_in(twin, wait_ms));
    answer_of(twin, session, number)->waits = true;
}

static bool times_wrong(const struct lock_twin *twin, struct twin_answer *answer,
                        const struct wire_acquire *acquire)
{
    const struct lock_limits *limits = &twin->limits;
    bool bound = acquire->request.item.flags & WIRE_SESSION_BOUND;
    bool tries = acquire->request.item.flags & WIRE_TRY;
    uint16_t what = 0;
    uint64_t limit = 0;
    if (!bound && acquire->ttl_ms < limits->ttl_ms_min) {
        what = WIRE_WHAT_TTL_MIN, limit = limits->ttl_ms_min;
    } else if (!bound && acquire->ttl_ms > limits->ttl_ms_max) {
        what = WIRE_WHAT_TTL_MAX, limit = limits->ttl_ms_max;
    } else if (!tries && acquire->wait_ms != WIRE_WAIT_FOREVER &&
               acquire->wait_ms > limits->wait_ms_max) {
        what = WIRE_WHAT_WAIT_MAX, limit = limits->wait_ms_max;
    } else if (acquire->lock_delay_ms > limits->lock_delay_ms_max) {
        what = WIRE_WHAT_DELAY_MAX, limit = limits->lock_delay_ms_max;
    } else if (acquire->grace_ms > limits->grace_ms_max) {
        what = WIRE_WHAT_GRACE_MAX, limit = limits->grace_ms_max;
    } else {
        return false;
    }
    answer_limit(answer->item, &acquire->request, WIRE_OVER_LIMIT, what, limit);
    return true;
}

static int held_by(struct lock_twin *twin, int *resource, int session)
{
    while (*resource >= 0) {
        int held = -1;
        foreach (i, TWIN_LEASES_MAX, twin->leases) {
            if (twin->leases[i].resource == *resource && twin->leases[i].session == session) {
                held = held < 0 || twin->leases[i].order > twin->leases[held].order ? i : held;
            }
        }
        if (held < 0 || !lease_gone(twin, &twin->leases[held])) {
            return held;
        }
        end_gone(twin, held);
        *resource = twin->resources[*resource].used ? *resource : -1;
    }
    return -1;
}

static void do_again(struct lock_twin *twin, const struct wire_acquire *acquire, int session,
                     struct twin_answer *answer, int held)
{
    struct twin_lease *lease = &twin->leases[held];
    if (lease->terms.mode != acquire->mode) {
        answer_plain(answer->item, &acquire->request, WIRE_DEADLOCK);
    } else if (!(acquire->request.item.flags & WIRE_REENTRANT) || lease->forced) {
        answer_plain(answer->item, &acquire->request, WIRE_ALREADY_HELD);
    } else {
        arm_lease(twin, held);
        answer_granted(twin, answer, session, held, false);
        answer->reentrant = true;
    }
}

static bool may_enter(const struct lock_twin *twin, const struct wire_acquire *acquire,
                      int resource)
{
    if (resource < 0) {
        return true;
    }
    int first = first_waiter(twin, resource);
    int rank = first < 0 ? -1 : twin->waiters[first].rank;
    int limit = acquire->request.item.flags & WIRE_BARGE ? UPGRADER : acquire->priority;
    return lets_in(twin, resource, acquire->mode) &&
           twin->resources[resource].closed.tick == NEVER && rank < limit;
}

static int new_resource(struct lock_twin *twin, const struct twin_key *key)
{
    int at = 0;
    while (twin->resources[at].used) {
        at++;
        assert(at < TWIN_RESOURCES_MAX);
    }
    twin->resources[at] = (struct twin_resource){.used = true, .key = *key, .closed = {NEVER, 0}};
    return at;
}

static void do_acquire(struct lock_twin *twin, const struct wire_acquire *acquire, int session,
                       struct twin_answer *answer)
{
    const struct wire_request *request = &acquire->request;
    struct twin_key key = {acquire->namespace_bytes, acquire->name_bytes, {0}};
    struct twin_terms terms = {.secret = request->drawn,
                               .ttl_ms = acquire->ttl_ms,
                               .lock_delay_ms = acquire->lock_delay_ms,
                               .grace_ms = acquire->grace_ms,
                               .mode = acquire->mode,
                               .value_bytes = acquire->value_bytes};
    size_t text_bytes = (size_t)key.ns_bytes + key.name_bytes;
    memcpy(key.text, acquire->text, text_bytes);
    memcpy(terms.value, acquire->text + text_bytes, terms.value_bytes);
    if (times_wrong(twin, answer, acquire)) {
        return;
    }
    int resource = find_resource(twin, &key);
    if (resource >= 0) {
        resource = touch(twin, resource);
    }
    int held = held_by(twin, &resource, session);
    bool tries = request->item.flags & WIRE_TRY;
    if (held >= 0) {
        do_again(twin, acquire, session, answer, held);
    } else if (may_enter(twin, acquire, resource)) {
        if (!refused(twin, answer, acquire, &key, resource)) {
            resource = resource < 0 ? new_resource(twin, &key) : resource;
            answer_granted(twin, answer, session, new_lease(twin, resource, session, &terms),
                           false);
        }
    } else if (!tries && acquire->wait_ms == 0) {
        answer_plain(answer->item, request, WIRE_TIMED_OUT);
    } else if (tries && twin->resources[resource].closed.tick != NEVER &&
               lets_in(twin, resource, acquire->mode)) {
        struct wire_delayed delayed = {.reply = reply_to(request, WIRE_DELAYED, sizeof(delayed)),
                                       .remaining_ms =
                                           ms_to(twin, twin->resources[resource].closed.tick)};
        memcpy(answer->item, &delayed, sizeof(delayed));
    } else if (tries) {
        do_busy(twin, answer, acquire, resource);
    } else if (count_waiters(twin, -1) >= twin->limits.waiters_max) {
        answer_limit(answer->item, request, WIRE_OVER_LIMIT, WIRE_WHAT_WAITERS,
                     twin->limits.waiters_max);
    } else if (count_waiters(twin, resource) >= twin->limits.queue_max) {
        answer_limit(answer->item, request, WIRE_OVER_LIMIT, WIRE_WHAT_QUEUE,
                     twin->limits.queue_max);
    } else if (!refused(twin, answer, acquire, &key, resource)) {
        join(twin, session, request->number, resource, -1, acquire->priority, acquire->wait_ms,
             &terms);
    }
}

static void do_release(struct lock_twin *twin, const struct wire_release *release, int session,
                       struct twin_answer *answer)
{
    int lease = find_lease(twin, &release->lease, release->key_tag);
    if (lease >= 0) {
        end_lease(twin, lease, RELEASED, twin->leases[lease].session != session);
    }
    answer_plain(answer->item, &release->request, lease >= 0 ? WIRE_OK : WIRE_LOST);
}

static void do_force(struct lock_twin *twin, const struct wire_named *named,
                     struct twin_answer *answer)
{
    struct twin_key key = {named->namespace_bytes, named->name_bytes, {0}};
    memcpy(key.text, named->text, (size_t)key.ns_bytes + key.name_bytes);
    int resource = find_resource(twin, &key);
    if (resource >= 0) {
        resource = touch(twin, resource);
    }
    if (resource < 0 || count_holders(twin, resource) == 0) {
        answer_plain(answer->item, &named->request, WIRE_LOST);
        return;
    }
    int next;
    for (int at = holder_before(twin, resource, NEVER); at >= 0; at = next) {
        struct twin_lease *lease = &twin->leases[at];
        next = holder_before(twin, resource, lease->order);
        if (named->request.item.flags & WIRE_NOW) {
            remove_lease(twin, at, FORCED, true);
        } else if (!lease_gone(twin, lease)) {
            lease->forced = true;
            foreach (i, TWIN_WAITERS_MAX, twin->waiters) {
                if (twin->waiters[i].lease == at) {
                    end_wait(twin, i, WIRE_LOST);
                }
            }
            push_lost(twin, at, WIRE_DENIED, 0);
        }
    }
    look_who_is_next(twin, resource);
    answer_plain(answer->item, &named->request, WIRE_OK);
}

static void do_renew(struct lock_twin *twin, const struct wire_renew *renew,
                     struct twin_answer *answer)
{
    const struct lock_limits *limits = &twin->limits;
    for (int i = 0; i < renew->count; i++) {
        uint32_t ttl_ms = renew->renewals[i].ttl_ms;
        if (ttl_ms != 0 && ttl_ms < limits->ttl_ms_min) {
            answer_limit(answer->item, &renew->request, WIRE_OVER_LIMIT, WIRE_WHAT_TTL_MIN,
                         limits->ttl_ms_min);
            return;
        }
        if (ttl_ms > limits->ttl_ms_max) {
            answer_limit(answer->item, &renew->request, WIRE_OVER_LIMIT, WIRE_WHAT_TTL_MAX,
                         limits->ttl_ms_max);
            return;
        }
    }
    struct wire_renewed *renewed = (void *)answer->item;
    renewed->reply = reply_to(&renew->request, WIRE_OK, wire_pad8(sizeof(*renewed) + renew->count));
    renewed->count = renew->count;
    for (int i = 0; i < renew->count; i++) {
        const struct wire_renewal *renewal = &renew->renewals[i];
        int lease = find_lease(twin, &renewal->lease, renewal->key_tag);
        bool lost = lease < 0 || twin->leases[lease].forced;
        if (!lost && twin->leases[lease].terms.ttl_ms != 0) {
            if (renewal->ttl_ms != 0) {
                twin->leases[lease].terms.ttl_ms = renewal->ttl_ms;
            }
            arm_lease(twin, lease);
        }
        renewed->results[i] = lost ? WIRE_LOST : WIRE_OK;
    }
}

static void do_keepalive(struct lock_twin *twin, const struct wire_renew *renew, int session,
                         struct twin_answer *answer)
{
    struct twin_session *record = &twin->sessions[session];
    record->keepalive_number = renew->request.number;
    record->keepalive_stamp_ns = twin->stamp_ns;
    if (renew->request.number > record->address_number) {
        record->address_number = renew->request.number;
        record->address = renew->address;
    }
    arm(twin, &record->timer, tick_in(twin, record->ttl_ms));
    do_renew(twin, renew, answer);
}

static bool upgrade_waits(const struct lock_twin *twin, int resource)
{
    int first = first_waiter(twin, resource);
    return first >= 0 && twin->waiters[first].rank == UPGRADER;
}

static void do_upgrade(struct lock_twin *twin, const struct wire_convert *convert, int session,
                       struct twin_answer *answer, int lease)
{
    const struct wire_request *request = &convert->request;
    int resource = twin->leases[lease].resource;
    if (upgrade_waits(twin, resource)) {
        answer_plain(answer->item, request, WIRE_DEADLOCK);
    } else if (convert->wait_ms == 0) {
        answer_plain(answer->item, request, WIRE_TIMED_OUT);
    } else if (convert->wait_ms != WIRE_WAIT_FOREVER &&
               convert->wait_ms > twin->limits.wait_ms_max) {
        answer_limit(answer->item, request, WIRE_OVER_LIMIT, WIRE_WHAT_WAIT_MAX,
                     twin->limits.wait_ms_max);
    } else if (count_waiters(twin, -1) >= twin->limits.waiters_max) {
        answer_limit(answer->item, request, WIRE_OVER_LIMIT, WIRE_WHAT_WAITERS,
                     twin->limits.waiters_max);
    } else {
        struct twin_terms none = {.mode = WIRE_EXCLUSIVE};
        join(twin, session, request->number, resource, lease, UPGRADER, convert->wait_ms, &none);
    }
}

static void do_convert(struct lock_twin *twin, const struct wire_convert *convert, int session,
                       struct twin_answer *answer)
{
    int at = find_lease(twin, &convert->lease, convert->key_tag);
    struct twin_lease *lease = &twin->leases[at < 0 ? 0 : at];
    if (at < 0 || lease->forced) {
        answer_plain(answer->item, &convert->request, WIRE_LOST);
        return;
    }
    int resource = touch(twin, lease->resource);
    if (convert->mode == WIRE_EXCLUSIVE && lease->terms.mode == WIRE_SHARED) {
        if (count_holders(twin, resource) > 1) {
            do_upgrade(twin, convert, session, answer, at);
            return;
        }
        lease->terms.mode = WIRE_EXCLUSIVE;
        give_token(twin, at);
    }
    lease->terms.mode = convert->mode;
    arm_lease(twin, at);
    answer_granted(twin, answer, session, at, false);
    look_who_is_next(twin, resource);
}

static struct twin_answer *new_answer(struct lock_twin *twin, int session, uint64_t number,
                                      uint8_t op)
{
    struct twin_answer *answers = twin->sessions[session].answers;
    int at = 0;
    while (answers[at].used) {
        at++;
        assert(at < TWIN_WINDOW_MAX);
    }
    memset(&answers[at], 0, sizeof(answers[at]));
    answers[at].used = true;
    answers[at].number = number;
    answers[at].op = op;
    return &answers[at];
}

static void do_cancel(struct lock_twin *twin, const struct wire_cancel *cancel, int session,
                      struct twin_answer *answer)
{
    answer_plain(answer->item, &cancel->request, WIRE_OK);
    struct twin_answer *target = answer_of(twin, session, cancel->target);
    if (cancel->target < twin->sessions[session].acked_below && target == NULL) {
        answer_plain(answer->item, &cancel->request, WIRE_STALE_REQUEST);
        return;
    }
    struct wire_request cancelled = {
        .item = {.op = target != NULL ? target->op : WIRE_OP_ACQUIRE, .shard = twin->shard},
        .session = cancel->request.session,
        .number = cancel->target};
    if (target == NULL) {
        if (count_answers(twin) >= twin->limits.answers_max) {
            answer_limit(answer->item, &cancel->request, WIRE_OVER_LIMIT, WIRE_WHAT_ANSWERS,
                         twin->limits.answers_max);
            return;
        }
        target = new_answer(twin, session, cancel->target, WIRE_OP_ACQUIRE);
        answer_plain(target->item, &cancelled, WIRE_CANCELLED);
        return;
    }
    if (target->op != WIRE_OP_ACQUIRE && target->op != WIRE_OP_CONVERT) {
        answer_limit(answer->item, &cancel->request, WIRE_BAD_REQUEST, WIRE_WHAT_NUMBER,
                     cancel->target);
        return;
    }
    if (target->waits) {
        foreach (i, TWIN_WAITERS_MAX, twin->waiters) {
            if (twin->waiters[i].session == session && twin->waiters[i].number == cancel->target) {
                int resource = twin->waiters[i].resource;
                end_wait(twin, i, WIRE_CANCELLED);
                look_who_is_next(twin, resource);
                return;
            }
        }
        assert(false && "a waiting answer has a waiter");
    }
    if (((struct wire_item *)target->item)->status != WIRE_OK || target->reentrant) {
        return;
    }
    answer_plain(target->item, &cancelled, WIRE_CANCELLED);
    int lease = (int)target->lease.slot;
    target->waited = false;
    if (twin->leases[lease].used && twin->leases[lease].terms.secret == target->lease.secret) {
        if (lease_gone(twin, &twin->leases[lease])) {
            end_gone(twin, lease);
        } else {
            end_lease(twin, lease, RELEASED, false);
        }
    }
}

/* ---- one request ----------------------------------------------------------------------------- */

static void do_open(struct lock_twin *twin, const struct wire_open *open)
{
    _Alignas(8) uint8_t item[64] = {0};
    const struct wire_request *request = &open->request;
    const struct lock_limits *limits = &twin->limits;
    int at = -1;
    int unused = -1;
    uint32_t live = 0;
    for (int i = 0; i < TWIN_SESSIONS_MAX; i++) {
        const struct twin_session *session = &twin->sessions[i];
        live += session->used;
        if (!session->used && unused < 0) {
            unused = i;
        }
        if (session->used && !session->over && session->nonce == open->nonce) {
            at = i;
        }
    }
    if (at >= 0 && session_gone(twin, at)) {
        end_session(twin, at, false);
        at = -1;
    }
    if (at < 0 && open->ttl_ms < limits->session_ttl_ms_min) {
        answer_limit(item, request, WIRE_OVER_LIMIT, WIRE_WHAT_SESSION_TTL_MIN,
                     limits->session_ttl_ms_min);
    } else if (at < 0 && open->ttl_ms > limits->session_ttl_ms_max) {
        answer_limit(item, request, WIRE_OVER_LIMIT, WIRE_WHAT_SESSION_TTL_MAX,
                     limits->session_ttl_ms_max);
    } else if (at < 0 && live >= limits->sessions_max) {
        answer_limit(item, request, WIRE_OVER_LIMIT, WIRE_WHAT_SESSIONS, limits->sessions_max);
    } else {
        if (at < 0) {
            uint64_t id = request->drawn;
            for (bool taken = true; taken;) {
                taken = id == 0;
                foreach (i, TWIN_SESSIONS_MAX, twin->sessions) {
                    taken |= !twin->sessions[i].over && twin->sessions[i].id == id;
                }
                id = taken ? hash_on(id + UINT64_C(0x9e3779b97f4a7c15)) : id;
            }
            at = unused;
            memset(&twin->sessions[at], 0, sizeof(twin->sessions[at]));
            twin->sessions[at] = (struct twin_session){.used = true,
                                                       .id = id,
                                                       .nonce = open->nonce,
                                                       .acked_below = 1,
                                                       .keepalive_stamp_ns = twin->stamp_ns,
                                                       .address = open->address,
                                                       .shard = twin->shard,
                                                       .ttl_ms = open->ttl_ms};
            arm(twin, &twin->sessions[at].timer, tick_in(twin, open->ttl_ms));
        }
        struct wire_opened opened = {.reply = reply_to(request, WIRE_OK, sizeof(opened)),
                                     .nonce = open->nonce,
                                     .ttl_ms = twin->sessions[at].ttl_ms,
                                     .window = limits->window};
        opened.reply.session = twin->sessions[at].id;
        memcpy(item, &opened, sizeof(opened));
    }
    put_out(twin, LOCK_OUT_REPLY, at, item);
    if (at < 0) { /* refused: answered to where it came from */
        twin->outputs[twin->outputs_count - 1].addressed = true;
        twin->outputs[twin->outputs_count - 1].port = open->address.port;
    }
}

static void put_answer(struct lock_twin *twin, int session, const struct wire_request *request,
                       const struct twin_answer *answer)
{
    _Alignas(8) uint8_t item[RIG_ITEM_BYTES_MAX];
    memcpy(item, answer->item, sizeof(item));
    if (answer->waits) {
        struct wire_queued queued = {.reply = reply_to(request, WIRE_QUEUED, sizeof(queued))};
        foreach (i, TWIN_WAITERS_MAX, twin->waiters) {
            if (twin->waiters[i].session == session && twin->waiters[i].number == request->number) {
                queued.position = position_of(twin, &twin->waiters[i]);
            }
        }
        memcpy(item, &queued, sizeof(queued));
    }
    struct wire_item *head = (void *)item;
    head->op = request->item.op;
    head->shard = request->item.shard;
    put_out(twin, LOCK_OUT_REPLY, session, item);
}

static void trim(struct lock_twin *twin, int session, uint64_t below)
{
    struct twin_session *record = &twin->sessions[session];
    if (below <= record->acked_below) {
        return;
    }
    record->acked_below = below;
    foreach (i, TWIN_WINDOW_MAX, record->answers) {
        record->answers[i].used = record->answers[i].number >= below || record->answers[i].waits;
    }
}

static void execute(struct lock_twin *twin, const struct wire_request *request, int session,
                    struct twin_answer *answer)
{
    switch (request->item.op) {
    case WIRE_OP_ACQUIRE:
        do_acquire(twin, (const void *)request, session, answer);
        break;
    case WIRE_OP_RELEASE:
        do_release(twin, (const void *)request, session, answer);
        break;
    case WIRE_OP_RENEW:
        do_renew(twin, (const void *)request, answer);
        break;
    case WIRE_OP_KEEPALIVE:
        do_keepalive(twin, (const void *)request, session, answer);
        break;
    case WIRE_OP_CANCEL:
        do_cancel(twin, (const void *)request, session, answer);
        break;
    case WIRE_OP_CONVERT:
        do_convert(twin, (const void *)request, session, answer);
        break;
    default:
        do_force(twin, (const void *)request, answer);
    }
}

/* What the session got by an old acquire, or -1. */
static int held_by_name(struct lock_twin *twin, const struct wire_acquire *acquire, int session)
{
    int held = -1;
    foreach (i, TWIN_LEASES_MAX, twin->leases) {
        const struct twin_lease *lease = &twin->leases[i];
        const struct twin_key *key = &twin->resources[lease->resource].key;
        if (lease->session == session &&
            lease->terms.secret >> 48 == (acquire->request.number & 0xffff) &&
            key->ns_bytes == acquire->namespace_bytes && key->name_bytes == acquire->name_bytes &&
            memcmp(key->text, acquire->text, (size_t)key->ns_bytes + key->name_bytes) == 0 &&
            (held < 0 || lease->order > twin->leases[held].order)) {
            held = i;
        }
    }
    return held;
}

/* The lease that an old convert names, in the mode that it asked for, or -1. */
static int held_converted(struct lock_twin *twin, const struct wire_convert *convert)
{
    int held = find_lease(twin, &convert->lease, convert->key_tag);
    return held >= 0 && twin->leases[held].terms.mode == convert->mode ? held : -1;
}

/* What an old acquire or convert got and is still held. */
static bool tell_held(struct lock_twin *twin, const struct wire_request *request, int session)
{
    struct twin_answer found = {.number = request->number, .op = request->item.op};
    int held = -1;
    if (request->item.op == WIRE_OP_ACQUIRE) {
        held = held_by_name(twin, (const void *)request, session);
    } else if (request->item.op == WIRE_OP_CONVERT) {
        held = held_converted(twin, (const void *)request);
    }
    if (held < 0 || lease_gone(twin, &twin->leases[held])) {
        return false;
    }
    answer_granted(twin, &found, session, held, true);
    const struct twin_lease *lease = &twin->leases[held];
    if (lease->terms.ttl_ms != 0) {
        uint64_t left_ms = (lease->timer.tick * LOCK_TICK_NS - twin->stamp_ns) / 1000000;
        if (left_ms <= lease->terms.grace_ms) {
            return false;
        }
        left_ms -= lease->terms.grace_ms;
        if (left_ms < lease->terms.ttl_ms) {
            ((struct wire_granted *)found.item)->ttl_ms = (uint32_t)left_ms;
        }
    }
    put_answer(twin, session, request, &found);
    return true;
}

static void do_request(struct lock_twin *twin, const struct wire_request *request)
{
    _Alignas(8) uint8_t item[64] = {0};
    int session = -1;
    foreach (i, TWIN_SESSIONS_MAX, twin->sessions) {
        if (!twin->sessions[i].over && twin->sessions[i].id == request->session) {
            session = i;
        }
    }
    if (session >= 0 && session_gone(twin, session)) {
        end_session(twin, session, false);
        session = -1;
    }
    if (session < 0) {
        answer_plain(item, request, WIRE_SESSION_LOST);
        put_out(twin, LOCK_OUT_REPLY, -1, item);
        return;
    }
    trim(twin, session, request->acked_below);
    uint64_t below = twin->sessions[session].acked_below;
    struct twin_answer *answer = answer_of(twin, session, request->number);
    if (request->number < below && answer != NULL && answer->op == request->item.op) {
        put_answer(twin, session, request, answer); /* passed over, and waits */
    } else if (request->number < below && tell_held(twin, request, session)) {
        /* answered */
    } else if (request->number < below || request->number - below >= twin->limits.window) {
        answer_plain(item, request,
                     request->number < below ? WIRE_STALE_REQUEST : WIRE_WINDOW_FULL);
        put_out(twin, LOCK_OUT_REPLY, session, item);
    } else if (answer != NULL && answer->op != request->item.op &&
               !(request->item.op == WIRE_OP_CONVERT &&
                 ((struct wire_item *)answer->item)->status == WIRE_CANCELLED)) {
        answer_limit(item, request, WIRE_BAD_REQUEST, WIRE_WHAT_NUMBER, request->number);
        put_out(twin, LOCK_OUT_REPLY, session, item);
    } else if (answer != NULL) {
        put_answer(twin, session, request, answer);
    } else if (request->item.op == WIRE_OP_CLOSE) {
        answer_plain(item, request, WIRE_OK);
        put_out(twin, LOCK_OUT_REPLY, session, item);
        end_session(twin, session, true);
    } else if (count_answers(twin) >= twin->limits.answers_max) {
        answer_limit(item, request, WIRE_OVER_LIMIT, WIRE_WHAT_ANSWERS, twin->limits.answers_max);
        put_out(twin, LOCK_OUT_REPLY, session, item);
    } else {
        answer = new_answer(twin, session, request->number, request->item.op);
        execute(twin, request, session, answer);
        put_answer(twin, session, request, answer);
    }
}

void twin_apply(struct lock_twin *twin, uint64_t stamp_ns, const uint8_t *payload)
{
    struct lock_batch batch;
    memcpy(&batch, payload, sizeof(batch));
    const uint8_t *at = payload + sizeof(batch);
    twin->stamp_ns = stamp_ns;
    twin->tick = stamp_ns / LOCK_TICK_NS;
    twin->outputs_count = 0;
    settle(twin, batch.endings_max);
    for (twin->command = 0; twin->command < batch.count; twin->command++) {
        const struct wire_request *request = (const void *)at;
        twin->shard = request->item.shard;
        if (request->item.op == WIRE_OP_OPEN) {
            do_open(twin, (const void *)request);
        } else {
            do_request(twin, request);
        }
        at += request->item.bytes;
    }
}
