/* SPDX-License-Identifier: Apache-2.0
 *
 * What a lean client is answered, what it writes, and what it asks again.
 */
#include <string.h>

#include "bench/raw/lean.h"
#include "bench/raw/raw.h"

enum { UNAVAILABLE_PAUSE_MS = 10, PAUSE_MS_MAX = 500 };

/* ---- requests -------------------------------------------------------------------------------- */

static void write_acquire(struct wire_acquire *acquire, const struct lean_name *name)
{
    acquire->ttl_ms = LEAN_TTL_MS;
    acquire->wait_ms = WIRE_WAIT_FOREVER;
    acquire->mode = WIRE_EXCLUSIVE;
    acquire->name_bytes = LEAN_NAME_BYTES;
    memcpy(acquire->text, name->text, LEAN_NAME_BYTES);
}

static void write_release(struct wire_release *release, const struct lean_name *name)
{
    release->lease = name->lease;
    release->key_tag = name->key_tag;
}

static uint32_t bytes_of(uint8_t op)
{
    switch (op) {
    case WIRE_OP_ACQUIRE:
        return sizeof(struct wire_acquire) + LEAN_NAME_BYTES;
    case WIRE_OP_RELEASE:
        return sizeof(struct wire_release);
    case WIRE_OP_KEEPALIVE:
        return sizeof(struct wire_renew);
    default:
        return sizeof(struct wire_close);
    }
}

void lean_write(struct lean *lean, const struct lean_session *session, uint64_t number,
                const struct lean_request *request)
{
    struct wire_request *head = lean_item(lean, request->op, session->shard, bytes_of(request->op));
    head->session = session->id;
    head->number = number;
    head->acked_below = session->acked_below < number ? session->acked_below : number;
    if (request->op == WIRE_OP_ACQUIRE)
        write_acquire((struct wire_acquire *)head, &lean->names[request->name]);
    else if (request->op == WIRE_OP_RELEASE)
        write_release((struct wire_release *)head, &lean->names[request->name]);
}

/* ---- answers to what has a number ------------------------------------------------------------ */

__attribute__((noreturn)) static void wrong(const struct lean *lean,
                                            const struct lean_request *request,
                                            const struct wire_item *item, const char *what)
{
    const struct lean_name *name = &lean->names[request->name];
    raw_die("%s of %.*s: %s (status %s)", request->op == WIRE_OP_ACQUIRE ? "acquire" : "release",
            LEAN_NAME_BYTES, (const char *)name->text, what, wire_status_name(item->status));
}

static void take_grant(struct lean *lean, const struct lean_request *request,
                       const struct wire_item *item)
{
    const struct wire_granted *granted = (const struct wire_granted *)item;
    struct lean_name *name = &lean->names[request->name];
    if (item->status != WIRE_OK)
        wrong(lean, request, item, "not granted, though nobody else wants it");
    if (granted->token <= name->token)
        wrong(lean, request, item, "its token did not rise");
    if (granted->mode != WIRE_EXCLUSIVE || granted->ttl_ms != LEAN_TTL_MS || granted->waited != 0)
        wrong(lean, request, item, "granted, but not as it was asked for");
    name->token = granted->token;
    name->lease = granted->lease;
    lean->granted[lean->granted_end++ & lean->granted_mask] = request->name;
}

static void take_end(struct lean *lean, const struct lean_request *request,
                     const struct wire_item *item)
{
    struct lean_name *name = &lean->names[request->name];
    if (item->status != WIRE_OK)
        wrong(lean, request, item, "not released, though it was held");
    name->taken = false;
}

/* UNAVAILABLE: the same number again, after a pause. */
static void put_off(struct lean *lean, struct lean_request *request)
{
    lean->counts.unavailable++;
    request->repeat_ns = lean->now_ns + UNAVAILABLE_PAUSE_MS * UINT64_C(1000000);
}

static void take_numbered(struct lean *lean, const struct wire_item *item)
{
    const struct wire_reply *reply = (const struct wire_reply *)item;
    if (item->op == WIRE_OP_PUSH_LOST)
        raw_die("a lock was lost before it was released");
    struct lean_session *session = lean_session_of(lean, reply->session);
    if (session == NULL || reply->number == 0 || reply->number >= session->next_number)
        raw_die("an answer to number %llu, which was never asked",
                (unsigned long long)reply->number);
    struct lean_request *request = &session->requests[reply->number % LEAN_WINDOW_MAX];
    if (reply->number < session->acked_below || request->op == 0) {
        lean->counts.again++;
        return;
    }
    if (request->op != item->op)
        raw_die("number %llu was answered as if it were another command",
                (unsigned long long)reply->number);
    if (item->status == WIRE_UNAVAILABLE) {
        put_off(lean, request);
        return;
    }
    if (item->op == WIRE_OP_ACQUIRE)
        take_grant(lean, request, item);
    else if (item->op == WIRE_OP_RELEASE)
        take_end(lean, request, item);
    else if (item->op == WIRE_OP_CLOSE) /* repeated: its session has gone */
        lean->closes--;
    else if (item->status != WIRE_OK)
        raw_die("a session's keepalive: %s", wire_status_name(item->status));
    if (item->op == WIRE_OP_ACQUIRE || item->op == WIRE_OP_RELEASE) {
        histogram_record(&lean->counts.latency_ns, lean->now_ns - request->sent_ns);
        lean->counts.answers++;
        lean->under_way--;
    }
    request->op = 0;
    while (session->acked_below < session->next_number &&
           session->requests[session->acked_below % LEAN_WINDOW_MAX].op == 0)
        session->acked_below++;
}

/* ---- other answers --------------------------------------------------------------------------- */

static void take_map(struct lean *lean, const struct wire_header *header,
                     const struct wire_map *map)
{
    const struct wire_mapped *mapped = (const struct wire_mapped *)(map + 1);
    for (uint16_t i = 0; i < map->count; i++) {
        if (mapped[i].leader_node == 0)
            return; /* not yet: asked again */
        if (memcmp(&mapped[i].leader, &lean->options.node, sizeof mapped[i].leader) != 0)
            raw_die("one node with one worker is measured, and shard %u is elsewhere",
                    mapped[i].shard);
    }
    if (map->count != map->shards)
        raw_die("%u shards are more than this program has room for", map->shards);
    lean->cluster_id = header->cluster_id;
    lean->shards = map->shards;
}

static void take_opened(struct lean *lean, const struct wire_item *item)
{
    const struct wire_opened *opened = (const struct wire_opened *)item;
    if (item->status == WIRE_UNAVAILABLE)
        return;
    if (item->status != WIRE_OK)
        raw_die("a session was not opened: %s", wire_status_name(item->status));
    for (uint32_t i = 0; i < lean->sessions_count; i++) {
        struct lean_session *session = &lean->sessions[i];
        if (session->nonce != opened->nonce || session->id != 0)
            continue;
        session->id = opened->reply.session;
        session->window = opened->window < LEAN_WINDOW_MAX ? opened->window : LEAN_WINDOW_MAX;
        session->beat_ns = lean->now_ns + LEAN_TTL_MS / 3 * UINT64_C(1000000);
        lean->asks_on = true;
    }
}

static void take_account(struct lean *lean, const struct wire_worker_status *status)
{
    const struct wire_counter *counters = (const struct wire_counter *)(status + 1);
    struct lean_account account = {.number = status->number};
    for (uint16_t i = 0; i < status->count; i++) {
        if (counters[i].counter == WIRE_COUNT_STAGE_CYCLES)
            account.cycles += counters[i].value;
        else if (counters[i].counter == WIRE_COUNT_SAMPLED_REQUESTS)
            account.requests = counters[i].value;
    }
    if (account.number == lean->accounts_asked)
        lean->account = account;
}

/* The cookie was too old, or there was none: all that is under way again, with the new one. */
static void take_notice(struct lean *lean, const struct wire_item *item)
{
    if (item->status != WIRE_CHALLENGE)
        raw_die("the node says: %s", wire_status_name(item->status));
    uint64_t cookie = ((const struct wire_node_notice *)item)->cookie;
    if (cookie == lean->cookie)
        return;
    lean->cookie = cookie;
    lean->asks_on = true;
    for (uint32_t i = 0; i < lean->sessions_count; i++)
        for (uint32_t j = 0; j < LEAN_WINDOW_MAX; j++)
            lean->sessions[i].requests[j].repeat_ns = lean->now_ns;
}

static void take_item(struct lean *lean, const struct wire_header *header,
                      const struct wire_item *item)
{
    if (!wire_judge_reply(item))
        raw_die("an answer that is not sound: op %u, status %s", item->op,
                wire_status_name(item->status));
    switch (item->op) {
    case WIRE_OP_MAP:
        take_map(lean, header, (const struct wire_map *)item);
        break;
    case WIRE_OP_OPEN:
        take_opened(lean, item);
        break;
    case WIRE_OP_WORKER:
        take_account(lean, (const struct wire_worker_status *)item);
        break;
    case WIRE_OP_NODE:
        take_notice(lean, item);
        break;
    default:
        take_numbered(lean, item);
        break;
    }
}

void lean_take(struct lean *lean, const struct port_packet *packet)
{
    const struct wire_header *header;
    const struct wire_item *item;
    enum wire_reject reject =
        wire_decode_datagram(packet->bytes, packet->length, WIRE_KIND_REPLY, &header, &item);
    if (reject != WIRE_ACCEPTED)
        raw_die("a datagram that is not sound: %s", wire_reject_name(reject));
    for (uint16_t i = 0; i < header->item_count; i++, item = wire_item_next(item))
        take_item(lean, header, item);
}

/* ---- once more ------------------------------------------------------------------------------- */

static void repeat(struct lean *lean, const struct lean_session *session, uint64_t number,
                   struct lean_request *request)
{
    if (lean->now_ns - request->sent_ns > LEAN_GIVE_UP_NS)
        raw_die("number %llu has had no answer for %u s", (unsigned long long)number,
                (unsigned)(LEAN_GIVE_UP_NS / UINT64_C(1000000000)));
    if (request->pause_ms < PAUSE_MS_MAX)
        request->pause_ms *= 2;
    request->repeat_ns = lean->now_ns + request->pause_ms * UINT64_C(1000000);
    lean->counts.repeats++;
    lean_write(lean, session, number, request);
}

void lean_look(struct lean *lean)
{
    for (uint32_t i = 0; i < lean->sessions_count; i++) {
        struct lean_session *session = &lean->sessions[i];
        for (uint64_t number = session->acked_below; number < session->next_number; number++) {
            struct lean_request *request = &session->requests[number % LEAN_WINDOW_MAX];
            if (request->op != 0 && lean->now_ns >= request->repeat_ns)
                repeat(lean, session, number, request);
        }
        if (lean->now_ns >= session->beat_ns && lean_has_room(session) && !lean->closing) {
            uint64_t number;
            const struct lean_request *request =
                lean_number(lean, session, WIRE_OP_KEEPALIVE, 0, &number);
            session->beat_ns = lean->now_ns + LEAN_TTL_MS / 3 * UINT64_C(1000000);
            lean_write(lean, session, number, request);
        }
    }
}
