/* SPDX-License-Identifier: Apache-2.0
 *
 * A second lock machine, written from DESIGN's rules with plain arrays and linear searches: no
 * index, no wheel, no links, no snapshots. It is slow and easy to believe; fed the same entries, it
 * and the real one must put out the same items, byte for byte.
 */
#ifndef BELAY_TESTS_LOCK_TWIN_H
#define BELAY_TESTS_LOCK_TWIN_H

#include "tests/unit/machine_rig.h"

enum {
    TWIN_SESSIONS_MAX = 64,
    TWIN_LEASES_MAX = 256,
    TWIN_WAITERS_MAX = 128,
    TWIN_RESOURCES_MAX = 256,
    TWIN_WINDOW_MAX = 128, /* besides the window: waiters that were passed over */
};

struct twin_key {
    uint8_t ns_bytes, name_bytes;
    uint8_t text[WIRE_NAMESPACE_BYTES_MAX + WIRE_NAME_BYTES_MAX];
};

struct twin_terms { /* of a lease, or of the lease that a waiter will get */
    uint64_t secret;
    uint32_t ttl_ms, lock_delay_ms, grace_ms;
    uint8_t mode, value_bytes;
    uint8_t value[WIRE_VALUE_BYTES_MAX];
};

struct twin_timer {
    uint64_t tick; /* UINT64_MAX = none */
    uint64_t armed;
};

struct twin_answer {
    bool used;
    bool waits; /* its waiter knows it by session and number */
    bool holds_value;
    bool reentrant, waited;
    uint64_t number;
    uint8_t op;
    struct wire_lease_id lease; /* granted */
    _Alignas(8) uint8_t item[RIG_ITEM_BYTES_MAX];
};

struct twin_session {
    bool used, over, closed;
    uint64_t over_order;
    uint64_t id, nonce, acked_below, keepalive_number, keepalive_stamp_ns, address_number;
    struct wire_address address;
    uint16_t shard;
    uint32_t ttl_ms;
    struct twin_timer timer;
    struct twin_answer answers[TWIN_WINDOW_MAX];
};

struct twin_lease {
    bool used, forced;
    uint64_t order; /* when it was granted first: newest first in lists */
    uint64_t token;
    int session; /* -1: outlives it */
    int resource;
    struct twin_terms terms;
    struct twin_timer timer;
};

struct twin_waiter {
    bool used;
    uint64_t order;
    uint32_t ordinal;
    int session;
    uint64_t number;
    int resource;
    int lease; /* upgrader's; else -1 */
    int rank;
    struct twin_terms terms;
    struct twin_timer timer;
};

struct twin_resource {
    bool used;
    struct twin_key key;
    struct twin_timer closed;
};

struct lock_twin {
    struct lock_limits limits;
    uint64_t stamp_ns, tick, armings, orders, token_last;
    uint32_t command;
    uint16_t shard;
    struct twin_session sessions[TWIN_SESSIONS_MAX];
    struct twin_lease leases[TWIN_LEASES_MAX];
    struct twin_waiter waiters[TWIN_WAITERS_MAX];
    struct twin_resource resources[TWIN_RESOURCES_MAX];
    struct rig_output *outputs;
    uint32_t outputs_count;
};

void twin_init(struct lock_twin *twin, const struct lock_limits *limits);
void twin_free(struct lock_twin *twin);
/* The payload of a LOG_COMMANDS entry. */
void twin_apply(struct lock_twin *twin, uint64_t stamp_ns, const uint8_t *payload);
/* As lock_machine_counts, what a twin has. */
void twin_counts(const struct lock_twin *twin, struct lock_counts *counts);

#endif
