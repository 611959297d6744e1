/* SPDX-License-Identifier: Apache-2.0
 *
 * The network, the lock service and the nodes of client_fake.h.
 */
#include "client_fake_internal.h"

uint64_t fake_random(struct fake *f)
{
    f->random ^= f->random << 13;
    f->random ^= f->random >> 7;
    f->random ^= f->random << 17;
    return f->random;
}

struct wire_address fake_address(const struct fake *f, uint8_t node)
{
    struct wire_address address = {.port = (uint16_t)(f->port_base + node)};
    address.ip[10] = address.ip[11] = 0xff;
    address.ip[12] = 127;
    address.ip[15] = (uint8_t)(node + 1);
    if (f->host[0] != 0)
        memcpy(address.ip + 12, f->host, sizeof(f->host));
    return address;
}

/* ---- the network ----------------------------------------------------------------------------- */

static void post_once(struct fake *f, bool to_client, uint8_t node, const void *bytes,
                      size_t length)
{
    MUST(f->packets_count < FAKE_PACKETS);
    struct fake_packet *packet = &f->packets[f->packets_count++];
    packet->at_ns = f->now_ns + f->delay_ns;
    if (f->delay_spread_ns > 0)
        packet->at_ns += fake_random(f) % f->delay_spread_ns;
    packet->order = f->packets_order++;
    packet->to_client = to_client;
    packet->node = node;
    packet->length = length;
    memcpy(packet->bytes, bytes, length);
}

void fake_post(struct fake *f, bool to_client, uint8_t node, const void *bytes, size_t length)
{
    if (fake_random(f) % 100 < f->loss_percent)
        return;
    post_once(f, to_client, node, bytes, length);
    if (fake_random(f) % 100 < f->double_percent)
        post_once(f, to_client, node, bytes, length);
}

void fake_send_raw(struct fake *f, uint8_t node, const void *bytes, size_t length)
{
    post_once(f, true, node, bytes, length);
}

static size_t wrap(struct fake *f, uint8_t node, const void *item, uint8_t *bytes)
{
    struct wire_builder builder;
    const struct wire_item *head = item;

    wire_builder_start(&builder, bytes, WIRE_DATAGRAM_BYTES_MAX, WIRE_KIND_REPLY, f->cluster_id,
                       (uint16_t)(node + 1));
    void *to = wire_builder_add(&builder, head->op, head->bytes);
    MUST(to != NULL);
    memcpy(to, item, head->bytes);
    MUST(wire_judge_reply(head));
    return wire_builder_finish(&builder);
}

void fake_reply(struct fake *f, uint8_t node, const void *item)
{
    _Alignas(8) uint8_t bytes[WIRE_DATAGRAM_BYTES_MAX];
    size_t length = wrap(f, node, item, bytes);

    fake_post(f, true, node, bytes, length);
}

/* ---- sessions and answers -------------------------------------------------------------------- */

static struct fake_session *session_of(struct fake *f, uint64_t id)
{
    for (uint32_t i = 0; i < f->sessions_count; i++) {
        if (f->sessions[i].id == id && f->sessions[i].alive)
            return &f->sessions[i];
    }
    return NULL;
}

static struct fake_answer *answer_of(struct fake *f, uint64_t session, uint64_t number)
{
    for (uint32_t i = 0; i < FAKE_ANSWERS; i++) {
        struct fake_answer *answer = &f->answers[i];
        if (answer->used && answer->session == session && answer->number == number)
            return answer;
    }
    return NULL;
}

static void store(struct fake *f, uint64_t session, uint64_t number, const void *item)
{
    struct fake_answer *answer = answer_of(f, session, number);

    for (uint32_t i = 0; answer == NULL && i < FAKE_ANSWERS; i++) {
        if (!f->answers[i].used)
            answer = &f->answers[i];
    }
    MUST(answer != NULL && ((const struct wire_item *)item)->bytes <= sizeof(answer->item));
    answer->used = true;
    answer->session = session;
    answer->number = number;
    memcpy(answer->item, item, ((const struct wire_item *)item)->bytes);
}

static void trim(struct fake *f, struct fake_session *session, uint64_t acked_below)
{
    if (acked_below <= session->acked)
        return;
    session->acked = acked_below;
    for (uint32_t i = 0; i < FAKE_ANSWERS; i++) {
        if (f->answers[i].session == session->id && f->answers[i].number < acked_below)
            f->answers[i].used = false;
    }
}

static struct wire_reply plain(const struct wire_request *request, uint16_t status)
{
    return (struct wire_reply){.item = {.bytes = sizeof(struct wire_reply),
                                        .op = request->item.op,
                                        .shard = request->item.shard,
                                        .status = status},
                               .session = request->session,
                               .number = request->number};
}

/* ---- leases and waiters ---------------------------------------------------------------------- */

struct fake_lease *fake_lease(struct fake *f, const char *name)
{
    for (uint32_t i = 0; i < f->leases_count; i++) {
        if (f->leases[i].alive && strcmp(f->leases[i].name, name) == 0)
            return &f->leases[i];
    }
    return NULL;
}

struct fake_lease *fake_by_secret(struct fake *f, uint64_t secret)
{
    for (uint32_t i = 0; i < f->leases_count; i++) {
        if (f->leases[i].secret == secret)
            return &f->leases[i];
    }
    return NULL;
}

uint32_t fake_leases(const struct fake *f)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < f->leases_count; i++)
        count += f->leases[i].alive;
    return count;
}

uint32_t fake_waiters(const struct fake *f)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < FAKE_WAITERS; i++)
        count += f->waiters[i].waits;
    return count;
}

static struct fake_waiter *waiter_of(struct fake *f, uint64_t session, uint64_t number)
{
    for (uint32_t i = 0; i < FAKE_WAITERS; i++) {
        struct fake_waiter *waiter = &f->waiters[i];
        if (waiter->waits && waiter->session == session && waiter->number == number)
            return waiter;
    }
    return NULL;
}

static struct fake_lease *new_lease(struct fake *f, const char *name, uint64_t session,
                                    uint64_t number, uint32_t ttl_ms, uint32_t key_tag)
{
    struct fake_lease *lease = NULL;

    for (uint32_t i = 0; lease == NULL && i < f->leases_count; i++) {
        if (!f->leases[i].alive && f->leases[i].deadline_ns + 60000 * FAKE_MS < f->now_ns)
            lease = &f->leases[i];
    }
    if (lease == NULL) {
        MUST(f->leases_count < FAKE_LEASES);
        lease = &f->leases[f->leases_count++];
    }
    *lease = (struct fake_lease){.secret = wire_lease_secret(0xabc000000000u + ++f->secret, number),
                                 .session = session,
                                 .number = number,
                                 .token = ++f->token,
                                 .deadline_ns = f->now_ns + ttl_ms * FAKE_MS,
                                 .ttl_ms = ttl_ms,
                                 .key_tag = key_tag,
                                 .mode = WIRE_EXCLUSIVE,
                                 .alive = true};
    snprintf(lease->name, sizeof(lease->name), "%s", name);
    return lease;
}

static struct wire_granted granted_of(struct fake *f, const struct fake_lease *lease, uint8_t op)
{
    struct wire_granted granted = {
        .reply = {.item = {.bytes = sizeof(granted), .op = op},
                  .session = lease->session,
                  .number = lease->number},
        .lease = {.secret = lease->secret, .slot = 7},
        .token = lease->token,
        .ttl_ms = lease->ttl_ms,
        .mode = lease->mode,
    };
    struct fake_session *session = session_of(f, lease->session);
    if (lease->pushed && session != NULL) {
        granted.waited = 1;
        granted.keepalive_number = session->keepalive_number;
        granted.since_keepalive_ns = f->now_ns - session->keepalive_ns;
    }
    return granted;
}

static void grant_next(struct fake *f, const char *name)
{
    struct fake_waiter *first = NULL;

    if (fake_lease(f, name) != NULL)
        return;
    for (uint32_t i = 0; i < FAKE_WAITERS; i++) {
        struct fake_waiter *waiter = &f->waiters[i];
        if (waiter->waits && strcmp(waiter->name, name) == 0 && waiter->until_ns > f->now_ns &&
            session_of(f, waiter->session) != NULL &&
            (first == NULL || waiter->order < first->order))
            first = waiter;
    }
    if (first == NULL)
        return;
    first->waits = false;
    struct fake_lease *lease =
        new_lease(f, name, first->session, first->number, first->ttl_ms, first->key_tag);
    lease->pushed = true;
    struct wire_granted granted = granted_of(f, lease, WIRE_OP_ACQUIRE);
    if (first->number >= session_of(f, first->session)->acked)
        store(f, first->session, first->number, &granted);
    granted.reply.item.op = WIRE_OP_PUSH_GRANT;
    if (!f->mute_pushes && f->leader != FAKE_NONE)
        fake_reply(f, f->leader, &granted);
}

static void end_lease(struct fake *f, struct fake_lease *lease, uint64_t at_ns)
{
    char name[64];

    lease->alive = false;
    lease->deadline_ns = at_ns;
    snprintf(name, sizeof(name), "%s", lease->name);
    grant_next(f, name);
}

static void push_lost(struct fake *f, const struct fake_lease *lease, uint8_t reason, bool final)
{
    struct wire_lost lost = {
        .reply = {.item = {.bytes = sizeof(lost), .op = WIRE_OP_PUSH_LOST},
                  .session = lease->session},
        .lease = {.secret = lease->secret, .slot = 7},
        .token = lease->token,
        .reason = reason,
        .final = final,
    };
    if (!f->mute_pushes && f->leader != FAKE_NONE)
        fake_reply(f, f->leader, &lost);
}

void fake_force(struct fake *f, const char *name, bool final)
{
    struct fake_lease *lease = fake_lease(f, name);

    MUST(lease != NULL);
    lease->forced = true;
    push_lost(f, lease, WIRE_DENIED, final);
    if (final)
        end_lease(f, lease, f->now_ns);
}

static void end_session(struct fake *f, struct fake_session *session, bool closed)
{
    session->alive = false;
    for (uint32_t i = 0; i < FAKE_WAITERS; i++) {
        if (f->waiters[i].session == session->id)
            f->waiters[i].waits = false;
    }
    for (uint32_t i = 0; i < FAKE_ANSWERS; i++) {
        if (f->answers[i].session == session->id)
            f->answers[i].used = false;
    }
    for (uint32_t i = 0; i < f->leases_count; i++) {
        struct fake_lease *lease = &f->leases[i];
        if (lease->alive && lease->session == session->id && (closed || lease->ttl_ms == 0))
            end_lease(f, lease, f->now_ns);
    }
}

void fake_lose_sessions(struct fake *f)
{
    for (uint32_t i = 0; i < f->sessions_count; i++) {
        if (f->sessions[i].alive)
            end_session(f, &f->sessions[i], false);
    }
}

/* Nothing happens while there is no leader: time stands still for leases (they end later). */
void fake_settle(struct fake *f)
{
    if (f->leader == FAKE_NONE || !f->up[f->leader])
        return;
    for (uint32_t i = 0; i < f->sessions_count; i++) {
        if (f->sessions[i].alive && f->sessions[i].deadline_ns <= f->now_ns)
            end_session(f, &f->sessions[i], false);
    }
    for (uint32_t i = 0; i < FAKE_WAITERS; i++) {
        struct fake_waiter *waiter = &f->waiters[i];
        if (!waiter->waits || waiter->until_ns > f->now_ns)
            continue;
        waiter->waits = false;
        struct wire_reply reply = {
            .item = {.bytes = sizeof(reply), .op = WIRE_OP_ACQUIRE, .status = WIRE_TIMED_OUT},
            .session = waiter->session,
            .number = waiter->number};
        store(f, waiter->session, waiter->number, &reply);
    }
    for (uint32_t i = 0; i < f->leases_count; i++) {
        struct fake_lease *lease = &f->leases[i];
        if (lease->alive && lease->ttl_ms != 0 && lease->deadline_ns <= f->now_ns)
            end_lease(f, lease, lease->deadline_ns);
    }
}

/* ---- commands -------------------------------------------------------------------------------- */

static void do_open(struct fake *f, uint8_t node, const struct wire_open *open)
{
    struct fake_session *session = NULL;

    for (uint32_t i = 0; i < f->sessions_count; i++) {
        if (f->sessions[i].alive && f->sessions[i].nonce == open->nonce)
            session = &f->sessions[i];
    }
    for (uint32_t i = 0; session == NULL && i < FAKE_SESSIONS; i++) {
        if (f->sessions[i].alive)
            continue;
        if (i >= f->sessions_count)
            f->sessions_count = i + 1;
        session = &f->sessions[i];
        *session = (struct fake_session){.id = fake_random(f) | 1,
                                         .nonce = open->nonce,
                                         .keepalive_ns = f->now_ns,
                                         .deadline_ns = f->now_ns + open->ttl_ms * FAKE_MS,
                                         .ttl_ms = open->ttl_ms,
                                         .shard = open->request.item.shard,
                                         .alive = true};
    }
    MUST(session != NULL);
    struct wire_opened opened = {.reply = plain(&open->request, WIRE_OK),
                                 .nonce = open->nonce,
                                 .ttl_ms = session->ttl_ms,
                                 .window = f->window};
    opened.reply.item.bytes = sizeof(opened);
    opened.reply.session = session->id;
    fake_reply(f, node, &opened);
}

static void do_renewals(struct fake *f, uint8_t node, struct fake_session *session,
                        const struct wire_renew *renew)
{
    _Alignas(8) uint8_t buffer[128] = {0};
    struct wire_renewed *renewed = (struct wire_renewed *)buffer;

    if (renew->request.item.op == WIRE_OP_KEEPALIVE &&
        renew->request.number > session->keepalive_number) {
        session->keepalive_number = renew->request.number;
        session->keepalive_ns = f->now_ns;
        session->deadline_ns = f->now_ns + session->ttl_ms * FAKE_MS;
    }
    renewed->reply = plain(&renew->request, WIRE_OK);
    renewed->reply.item.bytes = (uint16_t)wire_pad8(sizeof(*renewed) + renew->count);
    renewed->count = renew->count;
    for (uint16_t i = 0; i < renew->count; i++) {
        struct fake_lease *lease = fake_by_secret(f, renew->renewals[i].lease.secret);
        bool held = lease != NULL && lease->alive && !lease->forced &&
                    lease->key_tag == renew->renewals[i].key_tag;
        if (held && lease->ttl_ms != 0) {
            uint32_t ttl_ms = renew->renewals[i].ttl_ms;
            lease->deadline_ns = f->now_ns + (ttl_ms != 0 ? ttl_ms : lease->ttl_ms) * FAKE_MS;
        }
        renewed->results[i] = held ? WIRE_OK : WIRE_LOST;
    }
    store(f, session->id, renew->request.number, renewed);
    fake_reply(f, node, renewed);
}

static void queue(struct fake *f, const struct wire_acquire *acquire, const char *name)
{
    for (uint32_t i = 0; i < FAKE_WAITERS; i++) {
        struct fake_waiter *waiter = &f->waiters[i];
        if (waiter->waits)
            continue;
        *waiter = (struct fake_waiter){.session = acquire->request.session,
                                       .number = acquire->request.number,
                                       .until_ns = acquire->wait_ms == WIRE_WAIT_FOREVER
                                                       ? UINT64_MAX
                                                       : f->now_ns + acquire->wait_ms * FAKE_MS,
                                       .order = f->order++,
                                       .ttl_ms = acquire->ttl_ms,
                                       .waits = true};
        waiter->key_tag =
            (uint32_t)wire_key_hash(acquire->text, acquire->namespace_bytes,
                                    acquire->text + acquire->namespace_bytes, acquire->name_bytes);
        snprintf(waiter->name, sizeof(waiter->name), "%s", name);
        return;
    }
    MUST(false);
}

static void say_queued(struct fake *f, uint8_t node, const struct wire_request *request)
{
    struct wire_queued queued = {.reply = plain(request, WIRE_QUEUED)};
    queued.reply.item.bytes = sizeof(queued);
    fake_reply(f, node, &queued);
}

static void do_acquire(struct fake *f, uint8_t node, const struct wire_acquire *acquire)
{
    char name[64] = {0};
    memcpy(name, acquire->text + acquire->namespace_bytes,
           acquire->name_bytes < 63 ? acquire->name_bytes : 63);
    struct fake_lease *lease = fake_lease(f, name);
    const struct wire_request *request = &acquire->request;
    uint32_t key_tag =
        (uint32_t)wire_key_hash(acquire->text, acquire->namespace_bytes,
                                acquire->text + acquire->namespace_bytes, acquire->name_bytes);

    if (lease == NULL) {
        lease = new_lease(f, name, request->session, request->number, acquire->ttl_ms, key_tag);
    } else if (lease->session == request->session && (request->item.flags & WIRE_REENTRANT) != 0) {
        struct wire_granted again = granted_of(f, lease, WIRE_OP_ACQUIRE);
        again.reply.number = request->number;
        again.waited = 0;
        store(f, request->session, request->number, &again);
        fake_reply(f, node, &again);
        return;
    } else if ((request->item.flags & WIRE_TRY) != 0) {
        struct wire_busy busy = {.reply = plain(request, WIRE_BUSY), .holders = 1};
        busy.reply.item.bytes = sizeof(busy);
        busy.first.mode = lease->mode;
        busy.first.token = lease->token;
        store(f, request->session, request->number, &busy);
        fake_reply(f, node, &busy);
        return;
    } else {
        queue(f, acquire, name);
        say_queued(f, node, request);
        return;
    }
    struct wire_granted granted = granted_of(f, lease, WIRE_OP_ACQUIRE);
    store(f, request->session, request->number, &granted);
    fake_reply(f, node, &granted);
}

static void do_cancel(struct fake *f, uint8_t node, const struct wire_cancel *cancel)
{
    uint64_t session = cancel->request.session;
    struct fake_waiter *waiter = waiter_of(f, session, cancel->target);
    struct fake_answer *answer = answer_of(f, session, cancel->target);
    struct wire_reply reply = plain(&cancel->request, WIRE_OK);
    struct wire_reply target = reply;

    target.item.op = WIRE_OP_ACQUIRE;
    target.item.status = WIRE_CANCELLED;
    target.number = cancel->target;
    if (waiter != NULL) {
        waiter->waits = false;
        store(f, session, cancel->target, &target);
    } else if (answer != NULL) {
        const struct wire_granted *granted = (const struct wire_granted *)answer->item;
        if (granted->reply.item.status == WIRE_OK) {
            struct fake_lease *lease = fake_by_secret(f, granted->lease.secret);
            if (lease != NULL && lease->alive)
                end_lease(f, lease, f->now_ns);
        }
        store(f, session, cancel->target, &target);
    } else if (cancel->target >= session_of(f, session)->acked) {
        store(f, session, cancel->target, &target); /* unseen: remembered */
    }
    store(f, session, cancel->request.number, &reply);
    fake_reply(f, node, &reply);
}

static void do_convert(struct fake *f, uint8_t node, const struct wire_convert *convert)
{
    struct fake_lease *lease = fake_by_secret(f, convert->lease.secret);
    struct wire_reply lost = plain(&convert->request, WIRE_LOST);

    if (lease == NULL || !lease->alive || lease->forced) {
        store(f, convert->request.session, convert->request.number, &lost);
        fake_reply(f, node, &lost);
        return;
    }
    lease->mode = convert->mode;
    lease->token = ++f->token;
    struct wire_granted granted = granted_of(f, lease, WIRE_OP_CONVERT);
    granted.reply.session = convert->request.session;
    granted.reply.number = convert->request.number;
    store(f, convert->request.session, convert->request.number, &granted);
    fake_reply(f, node, &granted);
}

static void do_simple(struct fake *f, uint8_t node, struct fake_session *session,
                      const struct wire_request *request)
{
    struct wire_reply reply = plain(request, WIRE_OK);

    if (request->item.op == WIRE_OP_RELEASE) {
        const struct wire_release *release = (const struct wire_release *)request;
        struct fake_lease *lease = fake_by_secret(f, release->lease.secret);
        if (lease != NULL && lease->alive && lease->key_tag == release->key_tag)
            end_lease(f, lease, f->now_ns);
        else
            reply.item.status = WIRE_LOST;
    }
    if (request->item.op == WIRE_OP_CLOSE)
        end_session(f, session, true);
    else
        store(f, session->id, request->number, &reply);
    fake_reply(f, node, &reply);
}

/* A number seen before, or outside the window. True: answered. */
static bool answer_again(struct fake *f, uint8_t node, struct fake_session *session,
                         const struct wire_request *request)
{
    struct fake_answer *answer = answer_of(f, session->id, request->number);
    struct wire_reply refusal = plain(request, WIRE_STALE_REQUEST);

    if (answer != NULL) {
        struct wire_item *item = (struct wire_item *)answer->item;
        uint8_t op = item->op;
        if (request->item.op == WIRE_OP_ACQUIRE || op == request->item.op)
            fake_reply(f, node, answer->item);
        return true;
    }
    bool below = request->number < session->acked;
    if (waiter_of(f, session->id, request->number) != NULL &&
        (!below || !f->no_poll_below_window)) {
        say_queued(f, node, request);
        return true;
    }
    if (below && request->item.op == WIRE_OP_ACQUIRE && !f->no_poll_below_window) {
        for (uint32_t i = 0; i < f->leases_count; i++) {
            struct fake_lease *lease = &f->leases[i];
            if (!lease->alive || lease->session != session->id || lease->number != request->number)
                continue;
            /* As if granted now, with what is left of its TTL. */
            struct wire_granted granted = granted_of(f, lease, WIRE_OP_ACQUIRE);
            if (lease->ttl_ms != 0)
                granted.ttl_ms = (uint32_t)((lease->deadline_ns - f->now_ns) / FAKE_MS);
            fake_reply(f, node, &granted);
            return true;
        }
    }
    if (below) {
        fake_reply(f, node, &refusal);
        return true;
    }
    if (request->number >= session->acked + f->window) {
        refusal.item.status = WIRE_WINDOW_FULL;
        fake_reply(f, node, &refusal);
        return true;
    }
    return false;
}

static void command(struct fake *f, uint8_t node, const struct wire_request *request)
{
    struct fake_session *session = session_of(f, request->session);
    struct wire_reply lost = plain(request, WIRE_SESSION_LOST);

    if (request->item.op == WIRE_OP_OPEN) {
        do_open(f, node, (const struct wire_open *)request);
        return;
    }
    if (session == NULL) {
        fake_reply(f, node, &lost);
        return;
    }
    trim(f, session, request->acked_below);
    if (answer_again(f, node, session, request))
        return;
    switch (request->item.op) {
    case WIRE_OP_KEEPALIVE:
    case WIRE_OP_RENEW:
        do_renewals(f, node, session, (const struct wire_renew *)request);
        break;
    case WIRE_OP_ACQUIRE:
        do_acquire(f, node, (const struct wire_acquire *)request);
        break;
    case WIRE_OP_CANCEL:
        do_cancel(f, node, (const struct wire_cancel *)request);
        break;
    case WIRE_OP_CONVERT:
        do_convert(f, node, (const struct wire_convert *)request);
        break;
    default:
        do_simple(f, node, session, request);
        break;
    }
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void say_map(struct fake *f, uint8_t node, const struct wire_page_request *page)
{
    _Alignas(8) uint8_t buffer[1344] = {0};
    struct wire_map *map = (struct wire_map *)buffer;
    struct wire_mapped *mapped = (struct wire_mapped *)(map + 1);

    *map = (struct wire_map){.item = {.op = WIRE_OP_MAP},
                             .number = page->number,
                             .cluster_id = f->cluster_id,
                             .shards = f->shards,
                             .from = page->from,
                             .node = (uint16_t)(node + 1),
                             .nodes = FAKE_NODES};
    for (uint32_t shard = page->from; shard < f->shards && map->count < 5; shard++) {
        mapped[map->count] = (struct wire_mapped){.shard = (uint16_t)shard, .term = f->term};
        if (f->leader_claimed != FAKE_NONE) {
            mapped[map->count].leader_node = (uint16_t)(f->leader_claimed + 1);
            mapped[map->count].leader = fake_address(f, f->leader_claimed);
            mapped[map->count].leader.port =
                (uint16_t)(mapped[map->count].leader.port + f->worker_ports);
        }
        map->count++;
    }
    map->item.bytes = (uint16_t)(sizeof(*map) + map->count * sizeof(*mapped));
    fake_reply(f, node, map);
}

static void say_status(struct fake *f, uint8_t node, const struct wire_page_request *page)
{
    struct wire_node_status status = {.item = {.bytes = sizeof(status), .op = WIRE_OP_STATUS},
                                      .number = page->number,
                                      .cluster_id = f->cluster_id,
                                      .shards = f->shards,
                                      .from = page->from,
                                      .node = (uint16_t)(node + 1),
                                      .nodes = FAKE_NODES,
                                      .workers = 1};
    for (uint8_t i = 0; i < FAKE_NODES; i++)
        status.peers[i] = fake_address(f, i);
    fake_reply(f, node, &status);
}

/* Two workers a node; the second has counted something that clients do not know. */
static void say_worker(struct fake *f, uint8_t node, const struct wire_page_request *page)
{
    struct {
        struct wire_worker_status status;
        struct wire_counter counters[3];
    } answer = {.status = {.item = {.op = WIRE_OP_WORKER},
                           .number = page->number,
                           .uptime_ns = 5,
                           .cycles_per_second = 1000,
                           .node = (uint16_t)(node + 1),
                           .worker = (uint16_t)page->from,
                           .workers = 2,
                           .count = page->from == 0 ? 2 : 3}};

    answer.counters[0] = (struct wire_counter){.counter = WIRE_COUNT_REQUESTS, .value = 7};
    answer.counters[1] = (struct wire_counter){
        .counter = WIRE_COUNT_STAGE_CYCLES, .detail = WIRE_STAGE_APPLY, .value = 8};
    answer.counters[2] = (struct wire_counter){.counter = 999, .value = 9};
    answer.status.item.bytes =
        (uint16_t)(sizeof(answer.status) + answer.status.count * sizeof(answer.counters[0]));
    fake_reply(f, node, &answer);
}

static void redirect(struct fake *f, uint8_t node, const struct wire_request *request)
{
    struct wire_redirect redirect = {.reply = plain(request, WIRE_NOT_LEADER), .term = f->term};

    redirect.reply.item.bytes = sizeof(redirect);
    if (f->leader_claimed != FAKE_NONE && f->leader_claimed != node) {
        redirect.node = f->leader_claimed + 1u;
        redirect.address = fake_address(f, f->leader_claimed);
        redirect.address.port = (uint16_t)(redirect.address.port + f->worker_ports);
    }
    fake_reply(f, node, &redirect);
}

static void node_item(struct fake *f, uint8_t node, const struct wire_item *item)
{
    if (item->op == WIRE_OP_MAP)
        say_map(f, node, (const struct wire_page_request *)item);
    else if (item->op == WIRE_OP_STATUS)
        say_status(f, node, (const struct wire_page_request *)item);
    else if (item->op == WIRE_OP_WORKER)
        say_worker(f, node, (const struct wire_page_request *)item);
    else if (item->op == WIRE_OP_PUSH_ACK)
        f->pushes_acked++;
    else if (node != f->leader)
        redirect(f, node, (const struct wire_request *)item);
    else if (item->op <= WIRE_OP_LOGGED_LAST)
        command(f, node, (const struct wire_request *)item);
}

static void node_receive(struct fake *f, uint8_t node, const uint8_t *bytes, size_t length)
{
    const struct wire_header *header;
    const struct wire_item *item;

    if (!f->up[node])
        return;
    MUST(wire_decode_datagram(bytes, length, WIRE_KIND_REQUEST, &header, &item) == WIRE_ACCEPTED);
    if (header->cluster_id != 0 && header->cluster_id != f->cluster_id) {
        struct wire_node_notice notice = {
            .item = {.bytes = sizeof(notice), .op = WIRE_OP_NODE, .status = WIRE_WRONG_CLUSTER},
            .detail = f->cluster_id};
        fake_reply(f, node, &notice);
        return;
    }
    if (header->cookie != f->cookies[node]) {
        struct wire_node_notice notice = {
            .item = {.bytes = sizeof(notice), .op = WIRE_OP_NODE, .status = WIRE_CHALLENGE},
            .cookie = f->cookies[node]};
        f->challenges++;
        fake_reply(f, node, &notice);
        return;
    }
    for (uint16_t i = 0; i < header->item_count; i++, item = wire_item_next(item)) {
        MUST(wire_judge_request(item, false).status == WIRE_OK);
        if (f->hook == NULL || !f->hook(f, node, item))
            node_item(f, node, item);
    }
}

void fake_serve(struct fake *f, uint8_t node, const uint8_t *bytes, size_t length)
{
    fake_settle(f);
    if (bytes != NULL)
        node_receive(f, node, bytes, length);
}
