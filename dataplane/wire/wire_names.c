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

const char *wire_count_name(unsigned counter)
{
    static const char *const names[] = {
        [WIRE_COUNT_TURNS] = "turns",
        [WIRE_COUNT_TURNS_BUSY] = "turns_busy",
        [WIRE_COUNT_BUSY_NS] = "busy_ns",
        [WIRE_COUNT_TURN_NS_MAX] = "turn_ns_max",
        [WIRE_COUNT_REQUESTS] = "requests",
        [WIRE_COUNT_CHALLENGES] = "challenges",
        [WIRE_COUNT_HANDED_OVER] = "handed_over",
        [WIRE_COUNT_HANDED_OVER_DROPPED] = "handed_over_dropped",
        [WIRE_COUNT_IN_FLIGHT_DROPPED] = "in_flight_dropped",
        [WIRE_COUNT_RESENT_ANSWERS] = "resent_answers",
        [WIRE_COUNT_UNAVAILABLE] = "unavailable",
        [WIRE_COUNT_PUSHES] = "pushes",
        [WIRE_COUNT_PUSHES_REPEATED] = "pushes_repeated",
        [WIRE_COUNT_PUSHES_DROPPED] = "pushes_dropped",
        [WIRE_COUNT_DATAGRAMS] = "datagrams",
        [WIRE_COUNT_REJECTED_CLIENT] = "rejected_client",
        [WIRE_COUNT_REJECTED_PEER] = "rejected_peer",
        [WIRE_COUNT_SAMPLED_TURNS] = "sampled_turns",
        [WIRE_COUNT_SAMPLED_REQUESTS] = "sampled_requests",
        [WIRE_COUNT_STAGE_CYCLES] = "stage_cycles",
        [WIRE_COUNT_FRAMES_LOST] = "frames_lost",
        [WIRE_COUNT_FRAMES] = "frames",
    };
    static_assert(sizeof(names) / sizeof(names[0]) == WIRE_COUNTS, "every counter has a name");
    return counter < WIRE_COUNTS ? names[counter] : NULL;
}

static const char *const traffic_names[] = {
    [WIRE_TRAFFIC_CLIENTS_IN] = "clients_in",         [WIRE_TRAFFIC_CLIENTS_OUT] = "clients_out",
    [WIRE_TRAFFIC_CLIENTS_UNSENT] = "clients_unsent", [WIRE_TRAFFIC_PEERS_IN] = "peers_in",
    [WIRE_TRAFFIC_PEERS_OUT] = "peers_out",           [WIRE_TRAFFIC_PEERS_UNSENT] = "peers_unsent",
};
static_assert(sizeof(traffic_names) / sizeof(traffic_names[0]) == WIRE_TRAFFICS, "each has one");

static const char *const stage_names[] = {
    [WIRE_STAGE_RX] = "rx",       [WIRE_STAGE_DECODE] = "decode", [WIRE_STAGE_PROPOSE] = "propose",
    [WIRE_STAGE_LOG] = "log",     [WIRE_STAGE_SHIP] = "ship",     [WIRE_STAGE_COMMIT] = "commit",
    [WIRE_STAGE_APPLY] = "apply", [WIRE_STAGE_TX] = "tx",         [WIRE_STAGE_OTHER] = "other",
};
static_assert(sizeof(stage_names) / sizeof(stage_names[0]) == WIRE_STAGES, "each has one");

static const char *const frames_names[] = {
    [WIRE_FRAMES_HANDED_OVER] = "handed_over",
    [WIRE_FRAMES_HANDED_OVER_DROPPED] = "handed_over_dropped",
    [WIRE_FRAMES_SENT_FOR_OTHERS] = "sent_for_others",
    [WIRE_FRAMES_SENT_FOR_OTHERS_DROPPED] = "sent_for_others_dropped",
    [WIRE_FRAMES_NO_PORT] = "no_port",
    [WIRE_FRAMES_OVERSIZED] = "oversized",
};
static_assert(sizeof(frames_names) / sizeof(frames_names[0]) == WIRE_FRAMES, "each has one");

static const char *const frame_loss_names[] = {
    "runt",       "not_ours",  "ethertype", "source",     "ip_header",    "ip_checksum",
    "fragment",   "extension", "protocol",  "udp_header", "udp_checksum", "icmp",
    "echo_limit", "arp",       "discovery", "no_route",   "no_neighbour", "too_long",
};
static_assert(sizeof(frame_loss_names) / sizeof(frame_loss_names[0]) == WIRE_FRAME_LOSSES,
              "each has one");

const char *wire_count_detail(unsigned counter, unsigned detail)
{
    switch (counter) {
    case WIRE_COUNT_DATAGRAMS:
        return detail < WIRE_TRAFFICS ? traffic_names[detail] : NULL;
    case WIRE_COUNT_REJECTED_CLIENT:
    case WIRE_COUNT_REJECTED_PEER:
        return detail < WIRE_REJECT_COUNT ? wire_reject_name(detail) : NULL;
    case WIRE_COUNT_STAGE_CYCLES:
        return detail < WIRE_STAGES ? stage_names[detail] : NULL;
    case WIRE_COUNT_FRAMES_LOST:
        return detail < WIRE_FRAME_LOSSES ? frame_loss_names[detail] : NULL;
    case WIRE_COUNT_FRAMES:
        return detail < WIRE_FRAMES ? frames_names[detail] : NULL;
    default:
        return NULL;
    }
}
