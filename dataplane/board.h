/* SPDX-License-Identifier: Apache-2.0
 *
 * The board: what each worker publishes about its shards for everybody else in the process (other
 * workers answering MAP and STATUS, readiness, metrics). Each field has one writer, the worker that
 * owns the shard; readers take fields one by one without locks, so a row is never torn within a
 * field but may mix two moments.
 */
#ifndef BELAY_DATAPLANE_BOARD_H
#define BELAY_DATAPLANE_BOARD_H

#include <stdatomic.h>
#include <stdint.h>

#include "dataplane/options.h"
#include "dataplane/wire/wire.h"

struct board_shard {
    _Atomic uint64_t term;
    _Atomic uint64_t configuration_index;
    _Atomic uint64_t last_index;
    _Atomic uint64_t commit_index;
    _Atomic uint64_t applied_index;
    _Atomic uint64_t snapshot_index;
    _Atomic uint64_t digest; /* lock_machine_history() at digest_index */
    _Atomic uint64_t digest_index;
    _Atomic uint32_t leases;
    _Atomic uint32_t resources;
    _Atomic uint32_t sessions;
    _Atomic uint32_t waiters;
    _Atomic uint64_t contact_ns;  /* when a leader was last heard here; leader: now */
    _Atomic uint16_t leader_node; /* 0 = not known */
    _Atomic uint16_t leader_worker;
    _Atomic uint8_t role; /* as in struct wire_shard_status */
    _Atomic uint8_t voters;
    _Atomic uint8_t learners;
    _Atomic uint8_t ship_mode; /* as in struct wire_shard_status */
};

/* What a worker did and what happened to its datagrams; written by it alone, the second part not at
 * once but when it has a moment (dataplane/account.h). */
struct board_worker {
    _Atomic uint64_t rejects_client[WIRE_REJECT_COUNT]; /* by enum wire_reject */
    _Atomic uint64_t rejects_peer[WIRE_REJECT_COUNT];
    _Atomic uint64_t requests;
    _Atomic uint64_t challenges;
    _Atomic uint64_t handed_over; /* items for a shard of another worker of this node */
    _Atomic uint64_t handed_over_dropped;
    _Atomic uint64_t in_flight_dropped;
    _Atomic uint64_t resent_answers;
    _Atomic uint64_t unavailable;
    _Atomic uint64_t pushes, pushes_repeated, pushes_dropped;
    _Atomic uint64_t turn_ns_max; /* longest turn of the loop, sleeping not counted */

    _Atomic uint64_t turns, turns_busy, busy_ns; /* busy: there was something to do */
    _Atomic uint64_t datagrams[WIRE_TRAFFICS];
    _Atomic uint64_t sampled_turns, sampled_requests; /* of which stage_cycles are */
    _Atomic uint64_t stage_cycles[WIRE_STAGES];
    _Atomic uint64_t frames_lost[WIRE_FRAME_LOSSES]; /* by a port past the kernel */
    _Atomic uint64_t frames[WIRE_FRAMES];
};

struct board {
    const struct node_options *options;
    uint64_t cluster_id;
    uint64_t started_ns, started_cycles; /* the same moment on two clocks */
    uint8_t cookie_secret[WIRE_MAC_KEY_BYTES];
    uint64_t nonces[NODE_MEMBERS_MAX]; /* the data directories that formed the cluster */
    uint32_t token_epoch;              /* highest on this node's disk */
    _Atomic uint8_t state;             /* enum node_state of mgmt/node.h, for STATUS */
    struct board_worker workers[NODE_WORKERS_MAX];
    struct board_shard shards[WIRE_SHARDS_MAX];
    /* For lock-free stale reads (lock_machine_peek) by any worker. Set before workers start. */
    const struct lock_machine *machines[WIRE_SHARDS_MAX];
};

static inline void board_count(_Atomic uint64_t *counter)
{
    /* One writer: no read-modify-write needed. */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

static inline void board_raise(_Atomic uint64_t *most, uint64_t value)
{
    if (value > atomic_load_explicit(most, memory_order_relaxed))
        atomic_store_explicit(most, value, memory_order_relaxed);
}

#define BOARD_SET(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)
#define BOARD_GET(field)        atomic_load_explicit(&(field), memory_order_relaxed)

#endif
