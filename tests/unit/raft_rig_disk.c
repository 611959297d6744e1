/* SPDX-License-Identifier: Apache-2.0
 *
 * The rig's disks, and the life and death of its replicas; see raft_rig.h.
 */
#include "tests/unit/raft_rig.h"

#include <stdlib.h>
#include <string.h>

static void *rig_memory(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) & ~(size_t)63);

    assert(memory != NULL);
    memset(memory, 0, bytes);
    return memory;
}

/* ---- disk ------------------------------------------------------------------------------------ */

static void rig_op_free(struct rig_disk_op *op)
{
    for (uint64_t i = 0; op->entries != NULL && i <= op->last - op->first; i++)
        free(op->entries[i]);
    free(op->entries);
}

struct rig_disk_op *rig_disk_op(struct rig_node *node, enum rig_disk_kind kind)
{
    struct rig_disk *disk = &node->disk;

    disk->ops = realloc(disk->ops, (disk->ops_count + 1) * sizeof(*disk->ops));
    assert(disk->ops != NULL);
    struct rig_disk_op *op = &disk->ops[disk->ops_count++];
    memset(op, 0, sizeof(*op));
    op->kind = kind;
    return op;
}

void rig_disk_queued(struct rig *rig, struct rig_node *node)
{
    if (rig->on_disk != NULL)
        rig->on_disk(rig, node, &node->disk.ops[node->disk.ops_count - 1]);
}

void rig_persist_entries(struct rig *rig, struct rig_node *node, uint64_t first, uint64_t last)
{
    struct rig_disk_op *op = rig_disk_op(node, RIG_DISK_ENTRIES);

    op->first = first;
    op->last = last;
    op->last_term = log_term(&node->log, last);
    op->entries = calloc(last - first + 1, sizeof(*op->entries));
    for (uint64_t index = first; index <= last; index++) {
        const struct log_entry *entry = log_at(&node->log, index);
        assert(entry != NULL && entry->index == index);
        size_t bytes = log_entry_bytes(entry->payload_bytes);
        op->entries[index - first] = rig_memory(bytes);
        memcpy(op->entries[index - first], entry, bytes);
    }
    rig_disk_queued(rig, node);
}

static void rig_disk_cut(struct rig_disk *disk, uint64_t first)
{
    for (uint64_t index = first; index <= disk->last; index++) {
        free(disk->entries[index]);
        disk->entries[index] = NULL;
    }
    if (disk->last >= first)
        disk->last = first - 1;
}

static void rig_disk_apply(struct rig_disk *disk, struct rig_disk_op *op)
{
    switch (op->kind) {
    case RIG_DISK_HARD:
        assert(op->hard.term >= disk->hard.term);
        disk->hard = op->hard;
        break;
    case RIG_DISK_ENTRIES:
        for (uint64_t index = op->first; index <= op->last; index++) {
            assert(index < RIG_INDEX_MAX);
            free(disk->entries[index]);
            disk->entries[index] = op->entries[index - op->first];
            op->entries[index - op->first] = NULL;
        }
        if (disk->last < op->last)
            disk->last = op->last;
        break;
    case RIG_DISK_CUT:
        rig_disk_cut(disk, op->first);
        break;
    case RIG_DISK_SAVE:
    case RIG_DISK_INSTALL:
        if (op->base.index <= disk->base.index)
            break;
        disk->base = op->base;
        disk->configuration = op->configuration;
        break;
    }
}

void rig_disk_report(struct rig_node *node, const struct rig_disk_op *op)
{
    struct raft_event event = {0};

    switch (op->kind) {
    case RIG_DISK_HARD:
        event.kind = RAFT_EV_HARD_DURABLE;
        event.hard = op->hard;
        break;
    case RIG_DISK_ENTRIES:
        event.kind = RAFT_EV_DURABLE;
        event.progress.index = op->last;
        event.progress.term = op->last_term;
        break;
    case RIG_DISK_CUT:
        return;
    case RIG_DISK_SAVE:
        event.kind = RAFT_EV_SNAPSHOT_SAVED;
        event.progress.index = op->base.index;
        break;
    case RIG_DISK_INSTALL:
        event.kind = RAFT_EV_SNAPSHOT_INSTALLED;
        if (op->base.index <= node->applied) /* overtaken by another one: given up */
            break;
        node->installs++;
        node->applied = op->base.index;
        node->committed = op->base.index;
        node->applied_configuration = op->configuration;
        event.snapshot.base = op->base;
        event.snapshot.configuration = op->configuration;
        break;
    }
    rig_queue(node, &event);
}

bool rig_disk_step(struct rig *rig, struct rig_node *node)
{
    struct rig_disk *disk = &node->disk;

    if (disk->ops_count == 0)
        return false;
    struct rig_disk_op op = disk->ops[0];
    memmove(disk->ops, disk->ops + 1, --disk->ops_count * sizeof(op));
    rig_disk_apply(disk, &op);
    rig_disk_report(node, &op);
    rig_op_free(&op);
    rig_run_events(rig, node);
    return true;
}

static void rig_disk_drop(struct rig_disk *disk)
{
    for (uint32_t i = 0; i < disk->ops_count; i++)
        rig_op_free(&disk->ops[i]);
    disk->ops_count = 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void rig_boot(struct rig *rig, struct rig_node *node)
{
    const struct rig_options *options = &rig->options;
    struct raft_options core = {
        .replica_id = node->id,
        .node = (uint16_t)node->id,
        .durability = options->durability,
        .heartbeat_ns = options->heartbeat_ns,
        .election_timeout_ns = options->election_timeout_ns,
        .rng_seed = options->seed * 1000 + node->id * 17 + node->life,
        .lease_reads = options->lease_reads,
        .lease_drift_ppm = options->lease_drift_ppm,
        .ship_window_bytes = options->window_bytes,
    };
    struct ship_options ship = {
        .ring_bytes = options->ring_bytes,
        .window_bytes = options->window_bytes,
        .retransmit_ns = options->heartbeat_ns,
        .retransmit_ns_max = options->heartbeat_ns * 8,
    };
    struct rig_disk *disk = &node->disk;

    log_init(&node->log, node->log_memory, options->ring_bytes, options->slots_count);
    log_reset(&node->log, &disk->base);
    uint64_t index = disk->base.index + 1;
    while (index <= disk->last && disk->entries[index] != NULL &&
           log_append_copy(&node->log, disk->entries[index]))
        index++;
    rig_disk_cut(disk, index);
    node->applied = node->committed = disk->base.index;
    node->applied_configuration = disk->configuration;
    for (uint32_t i = 0; i < RIG_NODES_MAX; i++)
        ship_sender_init(&node->senders[i], &ship);
    node->receiver = (struct ship_receiver){0};
    node->access.open = false;
    node->granting = node->revoking = 0;
    node->role = RAFT_FOLLOWER;
    node->life++;
    node->alive = true;
    node->raft = raft_init(node->raft_memory, &core, &node->log, &disk->hard, &disk->configuration,
                           rig_clock(rig, node));
}

struct rig_node *rig_start(struct rig *rig, uint64_t id,
                           const struct raft_configuration *configuration)
{
    assert(rig->nodes_count < RIG_NODES_MAX && rig_node(rig, id) == NULL);
    struct rig_node *node = &rig->nodes[rig->nodes_count++];
    node->id = id;
    node->raft_memory = rig_memory(raft_memory_bytes());
    node->log_memory =
        rig_memory(log_memory_bytes(rig->options.ring_bytes, rig->options.slots_count));
    node->disk.entries = calloc(RIG_INDEX_MAX, sizeof(*node->disk.entries));
    if (configuration != NULL)
        node->disk.configuration = *configuration;
    rig_boot(rig, node);
    return node;
}

void rig_crash(struct rig *rig, struct rig_node *node)
{
    (void)rig;
    node->alive = false;
    node->events_count = 0;
    node->access.open = false;
    rig_disk_drop(&node->disk);
}

void rig_restart(struct rig *rig, struct rig_node *node)
{
    assert(!node->alive && rig->options.durability == RAFT_DISK);
    rig_boot(rig, node);
}

void rig_free(struct rig *rig)
{
    while (rig->packets_count > 0)
        rig_drop(rig, rig->packets_count - 1);
    for (uint32_t i = 0; i < rig->nodes_count; i++) {
        struct rig_node *node = &rig->nodes[i];
        rig_disk_drop(&node->disk);
        rig_disk_cut(&node->disk, 0);
        free(node->disk.ops);
        free(node->disk.entries);
        free(node->events);
        free(node->raft_memory);
        free(node->log_memory);
    }
    free(rig->packets);
    free(rig->committed);
}
