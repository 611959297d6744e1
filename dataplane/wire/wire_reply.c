/* SPDX-License-Identifier: Apache-2.0
 *
 * Judging reply items, pushes and notices: what a client may read without looking further. After
 * `true` every count and length in the item lies inside it, so a reader needs no checks of its own.
 *
 * Flags of replies and unknown `what` values are ignored, not refused: a newer node may set them.
 */
#include "dataplane/wire/wire.h"

#include <string.h>

static bool all_zero(const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    uint8_t any = 0;

    for (size_t i = 0; i < count; i++)
        any |= at[i];
    return any == 0;
}

static bool is_mode(uint8_t mode)
{
    return mode == WIRE_SHARED || mode == WIRE_EXCLUSIVE;
}

static bool judge_opened(const struct wire_item *item)
{
    const struct wire_opened *opened = (const struct wire_opened *)item;

    return item->bytes == sizeof(*opened) && opened->reply.session != 0 && opened->nonce != 0 &&
           opened->ttl_ms != 0 && opened->window != 0;
}

static bool judge_granted(const struct wire_item *item)
{
    const struct wire_granted *granted = (const struct wire_granted *)item;

    return item->bytes == sizeof(*granted) && granted->reply.session != 0 &&
           granted->lease.zero == 0 && granted->token != 0 && is_mode(granted->mode) &&
           granted->waited <= 1 && all_zero(granted->zero, sizeof(granted->zero));
}

static bool judge_queued(const struct wire_item *item)
{
    const struct wire_queued *queued = (const struct wire_queued *)item;

    return item->bytes == sizeof(*queued) && queued->zero == 0;
}

/* A party and its value; *bytes_used is what they take. */
static bool judge_party(const uint8_t *at, size_t bytes_left, size_t *bytes_used)
{
    const struct wire_party *party = (const struct wire_party *)at;

    if (bytes_left < sizeof(*party))
        return false;
    size_t used = sizeof(*party) + party->value_bytes;
    *bytes_used = wire_pad8(used);
    return *bytes_used <= bytes_left && all_zero(at + used, *bytes_used - used) &&
           is_mode(party->mode) && party->waiting <= 2;
}

static bool judge_busy(const struct wire_item *item)
{
    const struct wire_busy *busy = (const struct wire_busy *)item;
    size_t before = offsetof(struct wire_busy, first);
    size_t used;

    return item->bytes >= sizeof(*busy) && busy->zero == 0 &&
           judge_party((const uint8_t *)item + before, item->bytes - before, &used) &&
           used == item->bytes - before;
}

static bool judge_renewed(const struct wire_item *item)
{
    const struct wire_renewed *renewed = (const struct wire_renewed *)item;

    if (item->bytes < sizeof(*renewed) || renewed->count > WIRE_RENEWALS_MAX ||
        !all_zero(renewed->zero, sizeof(renewed->zero)))
        return false;
    size_t used = sizeof(*renewed) + renewed->count;
    if (item->bytes != wire_pad8(used))
        return false;
    for (uint16_t i = 0; i < renewed->count; i++) {
        if (renewed->results[i] >= WIRE_STATUS_COUNT)
            return false;
    }
    return all_zero((const uint8_t *)item + used, item->bytes - used);
}

static bool judge_state(const struct wire_item *item)
{
    const struct wire_state *state = (const struct wire_state *)item;
    size_t at = sizeof(*state);

    if (item->bytes < sizeof(*state) || state->zero != 0)
        return false;
    for (uint32_t i = 0; i < state->parties; i++) {
        size_t used;
        if (!judge_party((const uint8_t *)item + at, item->bytes - at, &used))
            return false;
        at += used;
    }
    return at == item->bytes;
}

static bool judge_listed(const uint8_t *at, size_t bytes_left, size_t *bytes_used)
{
    const struct wire_listed *listed = (const struct wire_listed *)at;

    if (bytes_left < sizeof(*listed))
        return false;
    size_t used = sizeof(*listed) + listed->namespace_bytes + listed->name_bytes;
    *bytes_used = wire_pad8(used);
    return *bytes_used <= bytes_left && all_zero(at + used, *bytes_used - used) &&
           listed->mode <= WIRE_EXCLUSIVE && listed->namespace_bytes <= WIRE_NAMESPACE_BYTES_MAX &&
           listed->name_bytes != 0 && all_zero(listed->zero, sizeof(listed->zero));
}

static bool judge_list(const struct wire_item *item)
{
    const struct wire_list *list = (const struct wire_list *)item;
    size_t at = sizeof(*list);

    if (item->bytes < sizeof(*list) || list->zero != 0)
        return false;
    for (uint32_t i = 0; i < list->count; i++) {
        size_t used;
        if (!judge_listed((const uint8_t *)item + at, item->bytes - at, &used))
            return false;
        at += used;
    }
    return at == item->bytes;
}

static bool judge_redirect(const struct wire_item *item)
{
    const struct wire_redirect *redirect = (const struct wire_redirect *)item;

    return item->bytes == sizeof(*redirect) && redirect->zero == 0 &&
           redirect->node <= UINT16_MAX &&
           all_zero(redirect->address.zero, sizeof(redirect->address.zero));
}

static bool judge_lost(const struct wire_item *item)
{
    const struct wire_lost *lost = (const struct wire_lost *)item;

    return item->bytes == sizeof(*lost) && lost->reply.session != 0 && lost->lease.zero == 0 &&
           lost->reason < WIRE_STATUS_COUNT && lost->final <= 1 &&
           all_zero(lost->zero, sizeof(lost->zero));
}

/* About the datagram as a whole, so only what can be wrong with one as a whole. */
static bool judge_notice(const struct wire_item *item)
{
    const struct wire_node_notice *notice = (const struct wire_node_notice *)item;

    if (item->bytes != sizeof(*notice))
        return false;
    switch (item->status) {
    case WIRE_CHALLENGE:
        return notice->cookie != 0;
    case WIRE_WRONG_VERSION:
    case WIRE_WRONG_CLUSTER:
    case WIRE_BAD_REQUEST:
    case WIRE_DENIED:
    case WIRE_UNAVAILABLE:
        return true;
    default:
        return false;
    }
}

static bool judge_map(const struct wire_item *item)
{
    const struct wire_map *map = (const struct wire_map *)item;

    if (item->bytes < sizeof(*map) || map->zero != 0 || map->shards == 0 ||
        map->shards > WIRE_SHARDS_MAX || map->from > map->shards ||
        map->count > map->shards - map->from ||
        item->bytes != sizeof(*map) + map->count * sizeof(struct wire_mapped))
        return false;
    const struct wire_mapped *mapped = (const struct wire_mapped *)(map + 1);
    for (uint16_t i = 0; i < map->count; i++) {
        if (mapped[i].shard >= map->shards || mapped[i].zero != 0 ||
            !all_zero(mapped[i].leader.zero, sizeof(mapped[i].leader.zero)))
            return false;
    }
    return true;
}

static bool judge_status(const struct wire_item *item)
{
    const struct wire_node_status *status = (const struct wire_node_status *)item;

    if (item->bytes < sizeof(*status) || status->shards == 0 || status->shards > WIRE_SHARDS_MAX ||
        status->from > status->shards || status->count > status->shards - status->from ||
        !all_zero(status->zero, sizeof(status->zero)) || status->nodes > 5 ||
        item->bytes != sizeof(*status) + status->count * sizeof(struct wire_shard_status))
        return false;
    for (size_t i = 0; i < 5; i++) {
        if (!all_zero(status->peers[i].zero, sizeof(status->peers[i].zero)))
            return false;
    }
    const struct wire_shard_status *shard = (const struct wire_shard_status *)(status + 1);
    for (uint16_t i = 0; i < status->count; i++) {
        if (shard[i].shard >= status->shards)
            return false;
    }
    return true;
}

static bool judge_worker(const struct wire_item *item)
{
    const struct wire_worker_status *worker = (const struct wire_worker_status *)item;

    if (item->bytes < sizeof(*worker) || worker->worker > worker->workers ||
        (worker->worker == worker->workers && worker->count != 0) ||
        item->bytes != sizeof(*worker) + worker->count * sizeof(struct wire_counter))
        return false;
    const struct wire_counter *counters = (const struct wire_counter *)(worker + 1);
    for (uint16_t i = 0; i < worker->count; i++) {
        if (counters[i].zero != 0)
            return false;
    }
    return true;
}

/* Statuses without a body of their own: a bare reply, or one that says which limit or field. */
static bool judge_plain(const struct wire_item *item)
{
    if (item->bytes == sizeof(struct wire_reply))
        return true;
    const struct wire_problem *problem = (const struct wire_problem *)item;
    return item->bytes == sizeof(*problem) && all_zero(problem->zero, sizeof(problem->zero));
}

static bool judge_ok(const struct wire_item *item)
{
    switch (item->op) {
    case WIRE_OP_OPEN:
        return judge_opened(item);
    case WIRE_OP_KEEPALIVE:
    case WIRE_OP_RENEW:
        return judge_renewed(item);
    case WIRE_OP_ACQUIRE:
    case WIRE_OP_CONVERT:
    case WIRE_OP_PUSH_GRANT:
        return judge_granted(item);
    case WIRE_OP_CLOSE:
    case WIRE_OP_RELEASE:
    case WIRE_OP_CANCEL:
    case WIRE_OP_FORCE_RELEASE:
        return item->bytes == sizeof(struct wire_reply);
    case WIRE_OP_QUERY:
        return judge_state(item);
    case WIRE_OP_LIST:
        return judge_list(item);
    case WIRE_OP_MAP:
        return judge_map(item);
    case WIRE_OP_STATUS:
        return judge_status(item);
    case WIRE_OP_WORKER:
        return judge_worker(item);
    default:
        return false;
    }
}

static bool is_answered(uint8_t op)
{
    return (op >= WIRE_OP_OPEN && op <= WIRE_OP_LOGGED_LAST) || op == WIRE_OP_QUERY ||
           op == WIRE_OP_LIST || op == WIRE_OP_MAP || op == WIRE_OP_STATUS || op == WIRE_OP_WORKER;
}

bool wire_judge_reply(const struct wire_item *item)
{
    bool acquires = item->op == WIRE_OP_ACQUIRE || item->op == WIRE_OP_CONVERT;

    if (item->bytes < sizeof(struct wire_reply) || item->bytes % 8 != 0 ||
        item->status >= WIRE_STATUS_COUNT)
        return false;
    if (item->op == WIRE_OP_NODE)
        return judge_notice(item);
    if (item->op == WIRE_OP_PUSH_LOST)
        return item->status == WIRE_OK && judge_lost(item);
    if (item->op == WIRE_OP_PUSH_GRANT)
        return item->status == WIRE_OK && judge_granted(item);
    if (!is_answered(item->op))
        return item->status == WIRE_UNKNOWN_COMMAND && judge_plain(item);
    switch (item->status) {
    case WIRE_OK:
        return judge_ok(item);
    case WIRE_NOT_LEADER:
        return judge_redirect(item);
    case WIRE_QUEUED:
        return acquires && judge_queued(item);
    case WIRE_BUSY:
        return acquires && judge_busy(item);
    case WIRE_DELAYED:
        return acquires && item->bytes == sizeof(struct wire_delayed);
    default:
        return judge_plain(item);
    }
}
