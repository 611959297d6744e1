/* SPDX-License-Identifier: Apache-2.0
 *
 * Every byte of every item. For each kind of item one good example is spoilt byte by byte: a change
 * must be refused unless the byte belongs to a field that may hold anything ("free" below). Rules
 * that tie fields together have tests of their own.
 */
#include <criterion/criterion.h>

#include <stdalign.h>
#include <string.h>

#include "dataplane/wire/wire.h"

struct bytes {
    alignas(8) uint8_t at[1400];
};

/* Half-open byte ranges of an item that may hold anything, {0, 0} ends the list. */
struct range {
    size_t from, to;
};
#define FIELD(type, member)                                                                        \
    {                                                                                              \
        offsetof(struct type, member),                                                             \
            offsetof(struct type, member) + sizeof(((struct type *)0)->member)                     \
    }
#define ANY_SHARD FIELD(wire_item, shard)
#define ANY_NUMBERS                                                                                \
    {                                                                                              \
        offsetof(struct wire_request, session), offsetof(struct wire_request, drawn)               \
    }

static bool is_free(const struct range *free_ranges, size_t at)
{
    for (; free_ranges->to != 0; free_ranges++) {
        if (at >= free_ranges->from && at < free_ranges->to)
            return true;
    }
    return false;
}

typedef bool (*judge_fn)(const struct wire_item *item);

static bool judge_from_client(const struct wire_item *item)
{
    return wire_judge_request(item, false).status == WIRE_OK;
}

static bool judge_from_log(const struct wire_item *item)
{
    return wire_judge_request(item, true).status == WIRE_OK;
}

/* Spoils the top bit of each byte; the length's own bytes are spoilt too, within the buffer. */
static void spoil_each(const void *good, const struct range *free_ranges, judge_fn judge,
                       const char *what)
{
    const struct wire_item *item = good;
    struct bytes copy;

    cr_assert(judge(item), "%s: the good one", what);
    for (size_t at = 0; at < item->bytes; at++) {
        memset(&copy, 0, sizeof(copy));
        memcpy(copy.at, good, item->bytes);
        copy.at[at] ^= at < 2 ? 0x08 : 0x80; /* bytes: to another multiple of 8 */
        if (at == 1)
            copy.at[at] ^= 0x08 ^ 0x01;
        bool accepted = judge((struct wire_item *)copy.at);
        cr_assert_eq(accepted, is_free(free_ranges, at), "%s: byte %zu %s", what, at,
                     accepted ? "accepted" : "refused");
    }
}

static struct wire_request request_of(uint8_t op, size_t bytes)
{
    return (struct wire_request){
        .item = {.bytes = (uint16_t)bytes, .op = op},
        .session = 7,
        .number = UINT64_MAX >> 1, /* high, so that every acked_below tried here is sound */
        .acked_below = 1,
    };
}

/* acked_below's and number's own top bits are left to numbers() below. */
#define MOST_NUMBERS                                                                               \
    {offsetof(struct wire_request, session), offsetof(struct wire_request, number) + 7},           \
        {offsetof(struct wire_request, acked_below),                                               \
         offsetof(struct wire_request, acked_below) + 7},                                          \
    {                                                                                              \
        offsetof(struct wire_request, number) + 7, offsetof(struct wire_request, number) + 8       \
    }

Test(request, open)
{
    struct wire_open open = {
        .request = {.item = {.bytes = 80, .op = WIRE_OP_OPEN}}, .nonce = UINT64_MAX, .ttl_ms = 5};
    const struct range client[] = {
        ANY_SHARD, FIELD(wire_open, nonce), FIELD(wire_open, ttl_ms), {0}};
    const struct range log[] = {ANY_SHARD,
                                FIELD(wire_open, nonce),
                                FIELD(wire_open, ttl_ms),
                                FIELD(wire_request, drawn),
                                FIELD(wire_open, address.ip),
                                FIELD(wire_open, address.port),
                                {0}};

    spoil_each(&open, client, judge_from_client, "open");
    spoil_each(&open, log, judge_from_log, "open in the log");
    open.nonce = 0;
    cr_assert_not(judge_from_client(&open.request.item));
    open.nonce = 1;
    open.ttl_ms = 0;
    cr_assert_eq(wire_judge_request(&open.request.item, false).what, WIRE_WHAT_SESSION_TTL_MIN);
    open.ttl_ms = UINT32_MAX;
    cr_assert(judge_from_client(&open.request.item));
}

Test(request, renew_and_keepalive)
{
    struct bytes buffer = {{0}};
    struct wire_renew *renew = (struct wire_renew *)buffer.at;
    size_t bytes = sizeof(*renew) + 2 * sizeof(struct wire_renewal);

    for (int keepalive = 0; keepalive < 2; keepalive++) {
        renew->request = request_of(keepalive ? WIRE_OP_KEEPALIVE : WIRE_OP_RENEW, bytes);
        renew->count = 2;
        const struct range client[] = {ANY_SHARD, MOST_NUMBERS, {72, 84},
                                       {88, 108}, {112, 120},   {0}};
        const struct range log[] = {
            ANY_SHARD,
            MOST_NUMBERS,
            FIELD(wire_request, drawn),
            keepalive ? (struct range)FIELD(wire_renew, address.ip) : (struct range){72, 84},
            keepalive ? (struct range)FIELD(wire_renew, address.port) : (struct range){72, 84},
            {72, 84},
            {88, 108},
            {112, 120},
            {0}};
        spoil_each(renew, client, judge_from_client, keepalive ? "keepalive" : "renew");
        spoil_each(renew, log, judge_from_log, keepalive ? "keepalive, log" : "renew, log");
    }
    renew->count = 0;
    renew->request.item.bytes = sizeof(*renew);
    cr_assert(judge_from_client(&renew->request.item), "a keepalive may renew nothing");
    renew->request.item.op = WIRE_OP_RENEW;
    cr_assert_eq(wire_judge_request(&renew->request.item, false).what, WIRE_WHAT_COUNT_RANGE);
    renew->count = 65;
    struct wire_verdict verdict = wire_judge_request(&renew->request.item, false);
    cr_assert(verdict.status == WIRE_OVER_LIMIT && verdict.limit == 64);
    renew->count = UINT16_MAX;
    cr_assert_not(judge_from_client(&renew->request.item));
}

static size_t make_acquire(struct bytes *buffer, const char *ns, const char *name,
                           const char *value)
{
    struct wire_acquire *acquire = (struct wire_acquire *)buffer->at;
    size_t used = sizeof(*acquire);

    memset(buffer, 0, sizeof(*buffer));
    memcpy(buffer->at + used, ns, strlen(ns));
    memcpy(buffer->at + used + strlen(ns), name, strlen(name));
    memcpy(buffer->at + used + strlen(ns) + strlen(name), value, strlen(value));
    used += strlen(ns) + strlen(name) + strlen(value);
    acquire->request = request_of(WIRE_OP_ACQUIRE, wire_pad8(used));
    acquire->ttl_ms = 1;
    acquire->mode = WIRE_EXCLUSIVE;
    acquire->namespace_bytes = (uint8_t)strlen(ns);
    acquire->name_bytes = (uint8_t)strlen(name);
    acquire->value_bytes = (uint8_t)strlen(value);
    return used;
}

Test(request, acquire)
{
    struct bytes buffer;
    struct wire_acquire *acquire = (struct wire_acquire *)buffer.at;
    size_t used = make_acquire(&buffer, "ns", "lock", "host1");
    const struct range client[] = {ANY_SHARD,
                                   MOST_NUMBERS,
                                   FIELD(wire_acquire, ttl_ms),
                                   FIELD(wire_acquire, wait_ms),
                                   FIELD(wire_acquire, lock_delay_ms),
                                   FIELD(wire_acquire, grace_ms),
                                   FIELD(wire_acquire, priority),
                                   {sizeof(*acquire), used},
                                   {0}};

    spoil_each(acquire, client, judge_from_client, "acquire");
    for (unsigned flags = 0; flags < 256; flags++) {
        acquire->request.item.flags = (uint8_t)flags;
        acquire->ttl_ms = (flags & WIRE_SESSION_BOUND) != 0 ? 0 : 10;
        cr_assert_eq(judge_from_client(&acquire->request.item), flags < 16, "flags %u", flags);
        acquire->ttl_ms = acquire->ttl_ms == 0 ? 10 : 0; /* bound with a TTL, unbound without */
        cr_assert_not(judge_from_client(&acquire->request.item), "flags %u", flags);
    }
    for (unsigned mode = 0; mode < 256; mode++) {
        make_acquire(&buffer, "", "x", "");
        acquire->mode = (uint8_t)mode;
        cr_assert_eq(judge_from_client(&acquire->request.item), mode == 1 || mode == 2);
    }
    make_acquire(&buffer, "", "", "");
    cr_assert_eq(wire_judge_request(&acquire->request.item, false).what, WIRE_WHAT_NAME);
}

Test(request, acquire_sizes)
{
    struct bytes buffer;
    struct wire_acquire *acquire = (struct wire_acquire *)buffer.at;
    char ns[65], name[256], value[256];

    memset(ns, 'n', sizeof(ns));
    memset(name, 'm', sizeof(name));
    memset(value, 'v', sizeof(value));
    ns[63] = name[255] = value[255] = '\0';
    make_acquire(&buffer, ns, name, value);
    cr_assert(judge_from_client(&acquire->request.item), "the longest of everything");
    ns[63] = 'n';
    ns[64] = '\0';
    make_acquire(&buffer, ns, name, "");
    struct wire_verdict verdict = wire_judge_request(&acquire->request.item, false);
    cr_assert(verdict.status == WIRE_OVER_LIMIT && verdict.what == WIRE_WHAT_NAMESPACE &&
              verdict.limit == 63);
    for (size_t length = 1; length < 32; length++) {
        name[length] = '\0';
        make_acquire(&buffer, "", name, "");
        cr_assert(judge_from_client(&acquire->request.item), "%zu", length);
        acquire->request.item.bytes += 8; /* zero-filled, but longer than it need be */
        cr_assert_not(judge_from_client(&acquire->request.item), "%zu", length);
        name[length] = 'm';
    }
}

Test(request, small_ones)
{
    struct wire_close close = {.request = request_of(WIRE_OP_CLOSE, 40)};
    struct wire_release release = {.request = request_of(WIRE_OP_RELEASE, 64)};
    struct wire_cancel cancel = {.request = request_of(WIRE_OP_CANCEL, 48), .target = 5};
    struct wire_convert convert = {.request = request_of(WIRE_OP_CONVERT, 72), .mode = 1};
    struct wire_push_ack ack = {.request = request_of(WIRE_OP_PUSH_ACK, 56)};
    const struct range closes[] = {ANY_SHARD, MOST_NUMBERS, {0}};
    const struct range releases[] = {ANY_SHARD, MOST_NUMBERS, {40, 52}, {56, 60}, {0}};
    const struct range cancels[] = {ANY_SHARD, MOST_NUMBERS, {40, 47}, {0}};
    const struct range converts[] = {ANY_SHARD, MOST_NUMBERS, {40, 52}, {56, 64}, {0}};
    const struct range acks[] = {ANY_SHARD, ANY_NUMBERS, {40, 52}, {0}};

    spoil_each(&close, closes, judge_from_client, "close");
    spoil_each(&release, releases, judge_from_client, "release");
    spoil_each(&cancel, cancels, judge_from_client, "cancel");
    spoil_each(&convert, converts, judge_from_client, "convert");
    spoil_each(&ack, acks, judge_from_client, "push ack");
    cr_assert_not(judge_from_log(&ack.request.item), "never in a log");
    close.request.drawn = 1;
    cr_assert_not(judge_from_client(&close.request.item));
    cr_assert(judge_from_log(&close.request.item));
    cancel.target = 0;
    cr_assert_not(judge_from_client(&cancel.request.item));
    cancel.target = cancel.request.number;
    cr_assert_not(judge_from_client(&cancel.request.item), "not itself");
    cancel.target--;
    cr_assert(judge_from_client(&cancel.request.item));
}

Test(request, named)
{
    struct bytes buffer = {{0}};
    struct wire_named *named = (struct wire_named *)buffer.at;
    size_t used = sizeof(*named) + 5;

    memcpy(named->text, "nsabc", 5);
    named->namespace_bytes = 2;
    named->name_bytes = 3;
    const struct range reads[] = {
        ANY_SHARD, ANY_NUMBERS, FIELD(wire_named, cursor), {sizeof(*named), used}, {0}};
    const struct range forced[] = {ANY_SHARD, MOST_NUMBERS, {sizeof(*named), used}, {0}};
    named->request = request_of(WIRE_OP_QUERY, 64);
    spoil_each(named, reads, judge_from_client, "query");
    named->request = request_of(WIRE_OP_LIST, 64);
    spoil_each(named, reads, judge_from_client, "list");
    cr_assert_not(judge_from_log(&named->request.item), "reads are never in a log");
    named->request = request_of(WIRE_OP_FORCE_RELEASE, 64);
    spoil_each(named, forced, judge_from_client, "force-release");
    named->request.item.flags = WIRE_NOW;
    cr_assert(judge_from_client(&named->request.item));
    named->request.item.flags = WIRE_STALE;
    cr_assert_not(judge_from_client(&named->request.item));

    /* An empty name: LIST only. */
    memset(named->text, 0, 8);
    named->namespace_bytes = named->name_bytes = 0;
    for (unsigned op = WIRE_OP_FORCE_RELEASE; op <= WIRE_OP_LIST; op++) {
        named->request = request_of((uint8_t)op, sizeof(*named));
        cr_assert_eq(judge_from_client(&named->request.item), op == WIRE_OP_LIST, "op %u", op);
    }
}

Test(request, pages)
{
    struct wire_page_request page = {.item = {.bytes = 120}};
    const struct range free_ranges[] = {ANY_SHARD, {8, 20}, {0}};

    page.item.op = WIRE_OP_MAP;
    spoil_each(&page, free_ranges, judge_from_client, "map");
    page.item.op = WIRE_OP_STATUS;
    spoil_each(&page, free_ranges, judge_from_client, "status");
    page.item.op = WIRE_OP_WORKER;
    spoil_each(&page, free_ranges, judge_from_client, "worker");
}

Test(request, numbers)
{
    struct wire_close close = {.request = {.item = {.bytes = 40, .op = WIRE_OP_CLOSE}}};
    static const struct {
        uint64_t session, number, acked_below;
        bool sound;
    } cases[] = {
        {1, 1, 0, true},
        {1, 1, 1, true},
        {1, 1, 2, false},
        {0, 1, 0, false},
        {1, 0, 0, false},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, true},
        {1, UINT64_MAX - 1, UINT64_MAX, false},
        {1, UINT64_C(1) << 32, UINT64_C(1) << 32, true},
        {1, UINT64_C(1) << 32, (UINT64_C(1) << 32) + 1, false},
        {1, 1, UINT64_C(1) << 32, false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        close.request.session = cases[i].session;
        close.request.number = cases[i].number;
        close.request.acked_below = cases[i].acked_below;
        cr_assert_eq(judge_from_client(&close.request.item), cases[i].sound, "case %zu", i);
    }
}

/* Every op with every length: no op but the known ones, no length but the right one. */
Test(request, unknown_ops_and_lengths)
{
    struct bytes buffer = {{0}};
    struct wire_item *item = (struct wire_item *)buffer.at;

    for (unsigned op = 0; op < 256; op++) {
        bool known =
            (op >= 1 && op <= 9) || op == 32 || op == 33 || (op >= 48 && op <= 50) || op == 64;
        item->op = (uint8_t)op;
        for (unsigned bytes = 0; bytes <= 256; bytes++) {
            item->bytes = (uint16_t)bytes;
            struct wire_verdict verdict = wire_judge_request(item, false);
            if (bytes >= 8 && bytes % 8 == 0)
                cr_assert_eq(verdict.status == WIRE_UNKNOWN_COMMAND, !known, "op %u", op);
            else
                cr_assert(verdict.status == WIRE_BAD_REQUEST && verdict.what == WIRE_WHAT_LENGTH);
        }
    }
}

/* ---- replies --------------------------------------------------------------------------------- */

/* Flags and shard are not judged in replies; session and number are the caller's to match. */
#define REPLY_FREE                                                                                 \
    FIELD(wire_item, flags), FIELD(wire_item, shard),                                              \
    {                                                                                              \
        8, 24                                                                                      \
    }

static struct wire_reply reply_of(uint8_t op, uint16_t status, size_t bytes)
{
    return (struct wire_reply){
        .item = {.bytes = (uint16_t)bytes, .op = op, .status = status}, .session = 7, .number = 9};
}

Test(reply, fixed_ones)
{
    struct wire_opened opened = {
        .reply = reply_of(WIRE_OP_OPEN, WIRE_OK, 40), .nonce = 1, .ttl_ms = 1, .window = 1};
    const struct range all_opened[] = {REPLY_FREE, {24, 40}, {0}};
    spoil_each(&opened, all_opened, wire_judge_reply, "opened");

    struct wire_granted granted = {
        .reply = reply_of(WIRE_OP_ACQUIRE, WIRE_OK, 72), .token = 1, .mode = 2};
    const struct range grants[] = {REPLY_FREE, {24, 36}, {40, 52}, {56, 72}, {0}};
    spoil_each(&granted, grants, wire_judge_reply, "granted");
    granted.reply.item.op = WIRE_OP_PUSH_GRANT;
    spoil_each(&granted, grants, wire_judge_reply, "pushed grant");
    granted.waited = 1;
    cr_assert(wire_judge_reply(&granted.reply.item));
    granted.waited = 2;
    cr_assert_not(wire_judge_reply(&granted.reply.item));

    struct wire_queued queued = {.reply = reply_of(WIRE_OP_ACQUIRE, WIRE_QUEUED, 32)};
    const struct range queues[] = {REPLY_FREE, {24, 28}, {0}};
    spoil_each(&queued, queues, wire_judge_reply, "queued");

    struct wire_delayed delayed = {.reply = reply_of(WIRE_OP_ACQUIRE, WIRE_DELAYED, 32)};
    const struct range delays[] = {REPLY_FREE, {24, 32}, {0}};
    spoil_each(&delayed, delays, wire_judge_reply, "delayed");

    struct wire_redirect redirect = {.reply = reply_of(WIRE_OP_RELEASE, WIRE_NOT_LEADER, 64)};
    const struct range redirects[] = {REPLY_FREE, {24, 26}, {32, 58}, {0}};
    spoil_each(&redirect, redirects, wire_judge_reply, "redirect");

    struct wire_lost lost = {.reply = reply_of(WIRE_OP_PUSH_LOST, WIRE_OK, 56)};
    const struct range losses[] = {REPLY_FREE, {24, 36}, {40, 48}, {0}};
    spoil_each(&lost, losses, wire_judge_reply, "lost");

    struct wire_node_notice notice = {
        .item = {.bytes = 24, .op = WIRE_OP_NODE, .status = WIRE_CHALLENGE}, .cookie = 1};
    const struct range notices[] = {FIELD(wire_item, flags), FIELD(wire_item, shard), {8, 24}, {0}};
    spoil_each(&notice, notices, wire_judge_reply, "notice");
    notice.cookie = 0;
    cr_assert_not(wire_judge_reply(&notice.item), "a challenge without a cookie");
    for (unsigned status = 0; status < 256; status++) {
        notice.item.status = (uint16_t)status;
        bool known = status == WIRE_WRONG_VERSION || status == WIRE_WRONG_CLUSTER ||
                     status == WIRE_BAD_REQUEST || status == WIRE_DENIED ||
                     status == WIRE_UNAVAILABLE;
        cr_assert_eq(wire_judge_reply(&notice.item), known, "notice %u", status);
    }

    struct wire_problem problem = {.reply = reply_of(WIRE_OP_RENEW, WIRE_OVER_LIMIT, 40)};
    const struct range problems[] = {REPLY_FREE, {24, 26}, {32, 40}, {0}};
    spoil_each(&problem, problems, wire_judge_reply, "problem");
}

Test(reply, counted_ones)
{
    struct bytes buffer = {{0}};
    struct wire_renewed *renewed = (struct wire_renewed *)buffer.at;
    renewed->reply = reply_of(WIRE_OP_KEEPALIVE, WIRE_OK, 40);
    renewed->count = 3;
    const struct range none[] = {REPLY_FREE, {0}};
    spoil_each(renewed, none, wire_judge_reply, "renewed");
    renewed->results[2] = WIRE_LOST;
    cr_assert(wire_judge_reply(&renewed->reply.item));

    memset(&buffer, 0, sizeof(buffer));
    struct wire_busy *busy = (struct wire_busy *)buffer.at;
    busy->reply = reply_of(WIRE_OP_ACQUIRE, WIRE_BUSY, 72);
    busy->first.mode = WIRE_SHARED;
    busy->first.value_bytes = 3;
    const struct range busies[] = {REPLY_FREE, {24, 28}, {32, 56}, {58, 59}, {60, 67}, {0}};
    spoil_each(busy, busies, wire_judge_reply, "busy");

    memset(&buffer, 0, sizeof(buffer));
    struct wire_map *map = (struct wire_map *)buffer.at;
    map->item = (struct wire_item){.bytes = 88, .op = WIRE_OP_MAP};
    map->shards = 16;
    map->from = 4;
    map->count = 1;
    struct wire_mapped *mapped = (struct wire_mapped *)(map + 1);
    mapped->shard = 4;
    const struct range maps[] = {FIELD(wire_item, flags),
                                 FIELD(wire_item, shard),
                                 {8, 25},
                                 {34, 38},
                                 {42, 44},
                                 {48, 82},
                                 {0}};
    /* shards + 128 is sound too, so its low byte is free as well. */
    spoil_each(map, maps, wire_judge_reply, "map");
    map->shards = 4;
    cr_assert_not(wire_judge_reply(&map->item), "a page beyond the shards");
    map->shards = 5;
    map->from = 5;
    cr_assert_not(wire_judge_reply(&map->item), "a page that starts at the end");
    map->shards = WIRE_SHARDS_MAX + 1;
    cr_assert_not(wire_judge_reply(&map->item));
}

Test(reply, reads)
{
    struct bytes buffer = {{0}};
    struct wire_state *state = (struct wire_state *)buffer.at;
    struct wire_party *party = (struct wire_party *)(state + 1);

    state->reply = reply_of(WIRE_OP_QUERY, WIRE_OK, 72 + 40 + 32);
    state->parties = 2;
    party->mode = WIRE_SHARED;
    party->value_bytes = 8;
    ((struct wire_party *)(buffer.at + 72 + 40))->mode = WIRE_EXCLUSIVE;
    const struct range states[] = {REPLY_FREE, {24, 64},   {72, 96},   {98, 99}, {100, 112},
                                   {112, 136}, {138, 139}, {140, 144}, {0}};
    spoil_each(state, states, wire_judge_reply, "state");

    memset(&buffer, 0, sizeof(buffer));
    struct wire_list *list = (struct wire_list *)buffer.at;
    struct wire_listed *listed = (struct wire_listed *)(list + 1);
    list->reply = reply_of(WIRE_OP_LIST, WIRE_OK, 56 + 32);
    list->count = 1;
    listed->namespace_bytes = 1;
    listed->name_bytes = 2;
    const struct range lists[] = {REPLY_FREE, {24, 48}, {56, 72}, {80, 83}, {0}};
    spoil_each(list, lists, wire_judge_reply, "list");

    memset(&buffer, 0, sizeof(buffer));
    struct wire_node_status *status = (struct wire_node_status *)buffer.at;
    status->item = (struct wire_item){.bytes = 176 + 72, .op = WIRE_OP_STATUS};
    status->shards = 1000;
    status->count = 1;
    bool accepted = wire_judge_reply(&status->item);
    cr_assert(accepted);
    ((struct wire_shard_status *)(status + 1))->shard = 1000;
    cr_assert_not(wire_judge_reply(&status->item));
    ((struct wire_shard_status *)(status + 1))->shard = 999;
    status->count = 2;
    cr_assert_not(wire_judge_reply(&status->item));
    status->count = 1;
    status->from = 1000;
    cr_assert_not(wire_judge_reply(&status->item));
    status->from = 999;
    cr_assert(wire_judge_reply(&status->item));
    status->peers[4].zero[5] = 1;
    cr_assert_not(wire_judge_reply(&status->item));
}

Test(reply, worker)
{
    struct {
        struct wire_worker_status status;
        struct wire_counter counters[3];
    } answer = {.status = {.item = {.bytes = 40 + 3 * 16, .op = WIRE_OP_WORKER},
                           .worker = 1,
                           .workers = 2,
                           .count = 3}};
    const struct wire_item *item = &answer.status.item;
    cr_assert(wire_judge_reply(item));
    answer.counters[2] =
        (struct wire_counter){.counter = UINT16_MAX, .detail = UINT16_MAX, .value = UINT64_MAX};
    cr_assert(wire_judge_reply(item), "counters of a later version are let through");
    answer.counters[2].zero = 1;
    cr_assert_not(wire_judge_reply(item));
    answer.counters[2].zero = 0;
    for (unsigned count = 0; count < 70; count++) {
        answer.status.count = (uint16_t)count;
        cr_assert_eq(wire_judge_reply(item), count == 3, "%u", count);
    }
    answer.status.count = UINT16_MAX; /* 40 + 16 * 65535 is 24 more than 2^20 */
    cr_assert_not(wire_judge_reply(item));
    answer.status.count = 3;
    answer.status.worker = 3;
    cr_assert_not(wire_judge_reply(item));
    answer.status.worker = 2;
    cr_assert_not(wire_judge_reply(item), "a worker that is not there has counted nothing");
    answer.status.count = 0;
    answer.status.item.bytes = 40;
    cr_assert(wire_judge_reply(item));
    answer.status.item.bytes = 32;
    cr_assert_not(wire_judge_reply(item));
}

/* A bare reply may say every status that has no body of its own, and only to ops with answers. */
Test(reply, plain_statuses)
{
    for (unsigned status = 0; status < 256; status++) {
        struct wire_reply reply = reply_of(WIRE_OP_RELEASE, (uint16_t)status, 24);
        bool body = status == WIRE_QUEUED || status == WIRE_BUSY || status == WIRE_DELAYED ||
                    status == WIRE_NOT_LEADER;
        cr_assert_eq(wire_judge_reply(&reply.item), status < WIRE_STATUS_COUNT && !body, "%u",
                     status);
        reply.item.op = WIRE_OP_ACQUIRE;
        cr_assert_eq(wire_judge_reply(&reply.item),
                     status < WIRE_STATUS_COUNT && !body && status != WIRE_OK, "%u", status);
    }
    for (unsigned op = 0; op < 256; op++) {
        struct wire_reply reply = reply_of((uint8_t)op, WIRE_UNAVAILABLE, 24);
        bool known = (op >= 1 && op <= 9) || op == 32 || op == 33 || (op >= 48 && op <= 50);
        bool notice = op == WIRE_OP_NODE;
        cr_assert_eq(wire_judge_reply(&reply.item), known || notice, "op %u", op);
    }
}

/* ---- peers ----------------------------------------------------------------------------------- */

Test(peer, items)
{
    struct bytes buffer = {{0}};
    struct wire_ship *ship = (struct wire_ship *)buffer.at;
    ship->item = (struct wire_item){.bytes = 72, .op = WIRE_PEER_SHIP};
    ship->from_replica = ship->to_replica = 1;
    ship->length = 5;
    const struct range ships[] = {{3, 6}, {8, 56}, {64, 69}, {0}};
    spoil_each(ship, ships, wire_judge_peer, "ship");
    ship->length = 0;
    ship->item.bytes = 64;
    cr_assert(wire_judge_peer(&ship->item), "no bytes, only a commit index");
    ship->length = UINT32_MAX;
    cr_assert_not(wire_judge_peer(&ship->item));
    ship->from_replica = 0;
    ship->length = 0;
    cr_assert_not(wire_judge_peer(&ship->item));

    struct wire_hello hello = {.item = {.bytes = 72, .op = WIRE_PEER_HELLO},
                               .node = 5,
                               .nodes = 5,
                               .shards = 1,
                               .state = WIRE_HELLO_BLANK};
    const struct range hellos[] = {{3, 6}, {12, 13}, {16, 72}, {0}};
    spoil_each(&hello, hellos, wire_judge_peer, "hello");
    hello.nodes = 4;
    cr_assert_not(wire_judge_peer(&hello.item));
    hello.nodes = 6;
    cr_assert_not(wire_judge_peer(&hello.item));

    struct wire_join join = {
        .item = {.bytes = 24, .op = WIRE_PEER_JOIN}, .node = 1, .new_replica = 1};
    const struct range joins[] = {{3, 6}, {16, 24}, {0}};
    spoil_each(&join, joins, wire_judge_peer, "join");

    memset(&buffer, 0, sizeof(buffer));
    struct wire_item *item = (struct wire_item *)buffer.at;
    for (unsigned op = 0; op < 256; op++) {
        *item = (struct wire_item){.bytes = 24, .op = (uint8_t)op};
        cr_assert_eq(wire_judge_peer(item), op == WIRE_PEER_RAFT, "op %u", op);
    }
    *item = (struct wire_item){.bytes = 8, .op = WIRE_PEER_RAFT};
    cr_assert_not(wire_judge_peer(item), "an empty raft message");
}
