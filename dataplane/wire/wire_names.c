/* SPDX-License-Identifier: Apache-2.0
 *
 * Words for people: statuses, limits, reasons of rejection.
 */
#include "dataplane/wire/wire.h"

static const char *lookup(const char *const *names, unsigned count, unsigned value)
{
    return value < count && names[value] != NULL ? names[value] : "unknown";
}

const char *wire_status_name(unsigned status)
{
    static const char *const names[] = {
        [WIRE_OK] = "ok",
        [WIRE_QUEUED] = "queued",
        [WIRE_BUSY] = "busy",
        [WIRE_DELAYED] = "delayed",
        [WIRE_TIMED_OUT] = "timed_out",
        [WIRE_LOST] = "lost",
        [WIRE_CANCELLED] = "cancelled",
        [WIRE_DEADLOCK] = "deadlock",
        [WIRE_OVER_LIMIT] = "over_limit",
        [WIRE_DENIED] = "denied",
        [WIRE_BAD_REQUEST] = "bad_request",
        [WIRE_SESSION_LOST] = "session_lost",
        [WIRE_WINDOW_FULL] = "window_full",
        [WIRE_STALE_REQUEST] = "stale_request",
        [WIRE_NOT_LEADER] = "not_leader",
        [WIRE_WRONG_SHARD] = "wrong_shard",
        [WIRE_CHALLENGE] = "challenge",
        [WIRE_WRONG_VERSION] = "wrong_version",
        [WIRE_WRONG_CLUSTER] = "wrong_cluster",
        [WIRE_UNKNOWN_COMMAND] = "unknown_command",
        [WIRE_UNAVAILABLE] = "unavailable",
        [WIRE_ALREADY_HELD] = "already_held",
    };
    static_assert(sizeof(names) / sizeof(names[0]) == WIRE_STATUS_COUNT, "every status has a name");
    return lookup(names, WIRE_STATUS_COUNT, status);
}

const char *wire_what_text(unsigned what)
{
    static const char *const texts[] = {
        [WIRE_WHAT_NONE] = "no limit or field named",
        [WIRE_WHAT_NAME] = "length of the name outside its range",
        [WIRE_WHAT_NAMESPACE] = "namespace longer than the limit",
        [WIRE_WHAT_VALUE] = "value longer than the limit",
        [WIRE_WHAT_TTL_MIN] = "TTL shorter than the limit",
        [WIRE_WHAT_TTL_MAX] = "TTL longer than the limit",
        [WIRE_WHAT_WAIT_MAX] = "wait limit longer than the limit",
        [WIRE_WHAT_DELAY_MAX] = "lock delay longer than the limit",
        [WIRE_WHAT_GRACE_MAX] = "grace longer than the limit",
        [WIRE_WHAT_SESSION_TTL_MIN] = "session TTL shorter than the limit",
        [WIRE_WHAT_SESSION_TTL_MAX] = "session TTL longer than the limit",
        [WIRE_WHAT_LEASES] = "as many locks held in this shard as it may hold",
        [WIRE_WHAT_RESOURCES] = "as many names in use in this shard as it may hold",
        [WIRE_WHAT_SESSIONS] = "as many sessions in this shard as it may hold",
        [WIRE_WHAT_WAITERS] = "as many waiters in this shard as it may hold",
        [WIRE_WHAT_ANSWERS] = "as many unacknowledged answers in this shard as it may hold",
        [WIRE_WHAT_QUEUE] = "as many waiters for this name as one may have",
        [WIRE_WHAT_LONG_NAMES] = "as many long names in this shard as it may hold",
        [WIRE_WHAT_EXTRAS] = "as many values, lock delays and graces in this shard as it may hold",
        [WIRE_WHAT_MODE] = "mode neither shared nor exclusive",
        [WIRE_WHAT_FLAGS] = "flags that do not go together or do not exist",
        [WIRE_WHAT_LENGTH] = "length of the request not what its fields say",
        [WIRE_WHAT_RESERVED] = "a reserved field is not zero",
        [WIRE_WHAT_COUNT_RANGE] = "number of leases in one request outside its range",
        [WIRE_WHAT_NUMBER] = "session or request number outside its range",
    };
    static_assert(sizeof(texts) / sizeof(texts[0]) == WIRE_WHAT_COUNT, "every limit has a text");
    return lookup(texts, WIRE_WHAT_COUNT, what);
}

const char *wire_reject_name(unsigned reject)
{
    static const char *const names[] = {
        [WIRE_ACCEPTED] = "accepted",
        [WIRE_REJECT_RUNT] = "runt",
        [WIRE_REJECT_OVERSIZED] = "oversized",
        [WIRE_REJECT_MAGIC] = "magic",
        [WIRE_REJECT_VERSION] = "version",
        [WIRE_REJECT_KIND] = "kind",
        [WIRE_REJECT_CLUSTER] = "cluster",
        [WIRE_REJECT_TAG] = "tag",
        [WIRE_REJECT_ITEMS] = "items",
        [WIRE_REJECT_ITEM_LENGTH] = "item_length",
        [WIRE_REJECT_OP] = "op",
        [WIRE_REJECT_FIELD] = "field",
        [WIRE_REJECT_REPLAY] = "replay",
        [WIRE_REJECT_SENDER] = "sender",
    };
    static_assert(sizeof(names) / sizeof(names[0]) == WIRE_REJECT_COUNT, "every reason has a name");
    return lookup(names, WIRE_REJECT_COUNT, reject);
}
