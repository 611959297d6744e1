/* SPDX-License-Identifier: Apache-2.0
 *
 * Judging peer items. The datagram's tag was checked before: this guards against our own bugs and
 * other versions, not against forgers. Raft messages are judged by their own decoder.
 */
#include "dataplane/wire/wire.h"

#include <string.h>

enum { NODES_MAX = 5 };

static bool all_zero(const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    uint8_t any = 0;

    for (size_t i = 0; i < count; i++)
        any |= at[i];
    return any == 0;
}

static bool judge_ship(const struct wire_item *item)
{
    const struct wire_ship *ship = (const struct wire_ship *)item;

    if (item->bytes < sizeof(*ship) || ship->zero != 0 ||
        ship->length > item->bytes - sizeof(*ship))
        return false;
    size_t used = sizeof(*ship) + ship->length;
    return item->bytes == wire_pad8(used) && ship->from_replica != 0 && ship->to_replica != 0 &&
           all_zero((const uint8_t *)item + used, item->bytes - used);
}

static bool judge_hello(const struct wire_item *item)
{
    const struct wire_hello *hello = (const struct wire_hello *)item;

    return item->bytes == sizeof(*hello) && hello->nodes >= 1 && hello->nodes <= NODES_MAX &&
           hello->node >= 1 && hello->node <= hello->nodes && hello->shards >= 1 &&
           hello->shards <= WIRE_SHARDS_MAX &&
           (hello->state == WIRE_HELLO_BLANK || hello->state == WIRE_HELLO_FORMED) &&
           hello->durability <= 1;
}

static bool judge_join(const struct wire_item *item)
{
    const struct wire_join *join = (const struct wire_join *)item;

    return item->bytes == sizeof(*join) && join->node >= 1 && join->node <= NODES_MAX &&
           join->new_replica != 0 && all_zero(join->zero, sizeof(join->zero));
}

bool wire_judge_peer(const struct wire_item *item)
{
    if (item->bytes < sizeof(*item) || item->bytes % 8 != 0 || item->status != 0)
        return false;
    switch (item->op) {
    case WIRE_PEER_RAFT:
        return item->bytes > sizeof(*item);
    case WIRE_PEER_SHIP:
        return judge_ship(item);
    case WIRE_PEER_HELLO:
        return judge_hello(item);
    case WIRE_PEER_JOIN:
        return judge_join(item);
    default:
        return false;
    }
}
