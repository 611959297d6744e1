/* SPDX-License-Identifier: Apache-2.0
 *
 * For the WAL's tests: a disk in memory that can lose, tear and damage writes, replicas with real
 * logs, and what recovery must give back for each frame that it may end with.
 */
#ifndef BELAY_TESTS_WAL_WORLD_H
#define BELAY_TESTS_WAL_WORLD_H

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "consensus/wal.h"

enum {
    WORLD_REPLICAS = 4,
    WORLD_SEGMENTS = 6,
    WORLD_RING_BYTES = 1 << 20,
    WORLD_SLOTS = 1024,
    WORLD_FRAMES_MAX = 4096,
};

#define WORLD_IDENTITY UINT64_C(0x1d1d1d1d)

/* A replica's state in short; the chain checksum stands for the whole log. */
struct world_state {
    struct wal_replica replica; /* replica_id 0 = not there */
    uint64_t last_index;
    uint64_t last_term;
    uint64_t last_checksum;
};

struct world_disk {
    struct wal_options options;
    uint8_t *segments[WORLD_SEGMENTS];
    uint64_t unreadable_offset;  /* with unreadable_segment */
    uint32_t unreadable_segment; /* UINT32_MAX = none */
};

struct world {
    struct world_disk disk;
    void *memory;
    struct wal_writer *writer;
    struct wal_write write; /* in flight */
    struct world_state now[WORLD_REPLICAS];
    struct log logs[WORLD_REPLICAS];
    void *ring[WORLD_REPLICAS];
    struct world_state (*after)[WORLD_REPLICAS]; /* [sequence]: once that frame is recovered */
    uint64_t last_id;
    uint64_t random;
};

static inline uint64_t world_random(struct world *world)
{
    world->random ^= world->random << 13;
    world->random ^= world->random >> 7;
    world->random ^= world->random << 17;
    return world->random;
}

static inline void *world_memory(size_t bytes)
{
    void *memory = NULL;

    assert(posix_memalign(&memory, 4096, bytes) == 0);
    memset(memory, 0, bytes);
    return memory;
}

static inline struct wal_options world_options(uint64_t identity)
{
    uint32_t frame = wal_frame_bytes_min(WORLD_REPLICAS, 4096);

    return (struct wal_options){.identity = identity,
                                .segment_bytes = 3 * (uint64_t)frame,
                                .segments_count = WORLD_SEGMENTS,
                                .frame_bytes_max = frame,
                                .block_bytes = 4096,
                                .replicas_max = WORLD_REPLICAS};
}

static inline void world_disk_init(struct world_disk *disk, uint64_t identity)
{
    disk->options = world_options(identity);
    disk->unreadable_segment = UINT32_MAX;
    for (int i = 0; i < WORLD_SEGMENTS; i++) {
        disk->segments[i] = world_memory(disk->options.segment_bytes);
    }
}

static inline void world_disk_free(struct world_disk *disk)
{
    for (int i = 0; i < WORLD_SEGMENTS; i++) {
        free(disk->segments[i]);
    }
}

static inline void world_init(struct world *world, uint64_t seed, uint64_t identity)
{
    memset(world, 0, sizeof *world);
    world->random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    world_disk_init(&world->disk, identity);
    assert(wal_options_check(&world->disk.options) == NULL);
    world->memory = world_memory(wal_memory_bytes(&world->disk.options));
    world->writer = wal_writer_init(world->memory, &world->disk.options);
    for (int i = 0; i < WORLD_REPLICAS; i++) {
        world->ring[i] = world_memory(log_memory_bytes(WORLD_RING_BYTES, WORLD_SLOTS));
        log_init(&world->logs[i], world->ring[i], WORLD_RING_BYTES, WORLD_SLOTS);
    }
    world->after = calloc(WORLD_FRAMES_MAX, sizeof *world->after);
}

static inline void world_free(struct world *world)
{
    world_disk_free(&world->disk);
    free(world->memory);
    free(world->after);
    for (int i = 0; i < WORLD_REPLICAS; i++) {
        free(world->ring[i]);
    }
}

/* ---- the disk -------------------------------------------------------------------------------- */

static inline int world_read(void *context, uint32_t segment, uint64_t offset, void *buffer,
                             size_t bytes)
{
    struct world_disk *disk = context;

    assert(segment < disk->options.segments_count && offset + bytes <= disk->options.segment_bytes);
    if (segment == disk->unreadable_segment && offset <= disk->unreadable_offset &&
        disk->unreadable_offset < offset + bytes) {
        return -EIO;
    }
    memcpy(buffer, disk->segments[segment] + offset, bytes);
    return 0;
}

static inline struct wal_reader world_reader(struct world_disk *disk, uint8_t *scratch)
{
    return (struct wal_reader){.read = world_read,
                               .context = disk,
                               .identity = disk->options.identity,
                               .segment_bytes = disk->options.segment_bytes,
                               .segments_count = disk->options.segments_count,
                               .block_bytes = disk->options.block_bytes,
                               .scratch = scratch};
}

static inline uint8_t *world_place(struct world *world, const struct wal_write *write)
{
    return world->disk.segments[write->segment] + write->offset;
}

static inline void world_note(struct world *world, int i)
{
    world->now[i].last_index = world->logs[i].last_index;
    world->now[i].last_term = world->logs[i].last_term;
    world->now[i].last_checksum = world->logs[i].last_checksum;
}

/* Takes the next write; from now on recovery may end with it. */
static inline bool world_begin_write(struct world *world)
{
    if (!wal_next_write(world->writer, &world->write)) {
        return false;
    }
    assert(world->write.sequence < WORLD_FRAMES_MAX);
    for (int i = 0; i < WORLD_REPLICAS; i++) {
        world_note(world, i);
    }
    memcpy(world->after[world->write.sequence], world->now, sizeof world->now);
    return true;
}

static inline void world_land(struct world *world)
{
    memcpy(world_place(world, &world->write), world->write.buffer, world->write.bytes);
}

static inline void world_end_write(struct world *world)
{
    world_land(world);
    wal_written(world->writer, world->write.sequence, 0);
}

/* Everything added so far becomes durable. */
static inline void world_flush(struct world *world)
{
    if (wal_in_flight(world->writer)) {
        world_end_write(world);
    }
    while (world_begin_write(world)) {
        world_end_write(world);
    }
}

/* ---- replicas -------------------------------------------------------------------------------- */

static inline int64_t world_add(struct world *world, int i)
{
    uint64_t id = ++world->last_id;
    int64_t sequence = wal_add_replica(world->writer, id, (uint16_t)(100 + i));

    if (sequence > 0) {
        memset(&world->now[i], 0, sizeof world->now[i]);
        world->now[i].replica.replica_id = id;
        world->now[i].replica.shard = (uint16_t)(100 + i);
        log_reset(&world->logs[i], &(struct log_base){0});
    }
    return sequence;
}

static inline int64_t world_hard(struct world *world, int i, uint64_t term, uint64_t vote)
{
    struct wal_replica *replica = &world->now[i].replica;
    int64_t sequence = wal_add_hard(world->writer, replica->replica_id, term, vote);

    if (sequence > 0) {
        replica->hard = (struct raft_hard_state){.term = term, .vote = vote};
    }
    return sequence;
}

/* One entry into the log alone. */
static inline void world_append(struct world *world, int i, uint64_t term, size_t payload_bytes)
{
    struct log *log = &world->logs[i];
    uint8_t *payload = log_reserve(log, payload_bytes);
    uint64_t value = world_random(world);

    assert(payload != NULL);
    for (size_t k = 0; k < payload_bytes; k++) {
        payload[k] = (uint8_t)(value >> (k % 8 * 8));
    }
    log_append(log, LOG_COMMANDS, term, log->last_stamp_ns + 1, payload_bytes);
}

/* One entry into log and WAL; taken back if the WAL refuses. */
static inline int64_t world_entry(struct world *world, int i, uint64_t term, size_t payload_bytes)
{
    struct log *log = &world->logs[i];
    uint64_t added = 0;
    int64_t sequence;

    world_append(world, i, term, payload_bytes);
    sequence = wal_add_log(world->writer, world->now[i].replica.replica_id, log, log->last_index,
                           log->last_index, &added);
    if (sequence < 0) {
        log_cut_above(log, log->last_index - 1);
    } else {
        assert(added == log->last_index);
    }
    return sequence;
}

static inline int64_t world_cut(struct world *world, int i, uint64_t first)
{
    int64_t sequence = wal_add_cut(world->writer, world->now[i].replica.replica_id, first);

    if (sequence > 0) {
        log_cut_above(&world->logs[i], first - 1);
    }
    return sequence;
}

static inline int64_t world_snapshot(struct world *world, int i, uint64_t index)
{
    struct wal_replica *replica = &world->now[i].replica;
    struct log copy = world->logs[i];
    uint8_t configuration[3] = {'c', (uint8_t)index, (uint8_t)i};
    int64_t sequence;

    log_release_to(&copy, index);
    sequence = wal_add_snapshot(world->writer, replica->replica_id, &copy.base, configuration, 3);
    if (sequence > 0) {
        world->logs[i] = copy;
        replica->base = copy.base;
        replica->configuration_bytes = 3;
        memset(replica->configuration, 0, sizeof replica->configuration);
        memcpy(replica->configuration, configuration, 3);
    }
    return sequence;
}

static inline int64_t world_install(struct world *world, int i, const struct log_base *base)
{
    struct wal_replica *replica = &world->now[i].replica;
    int64_t sequence =
        wal_add_install(world->writer, replica->replica_id, base, (const uint8_t *)"in", 2);

    if (sequence > 0) {
        log_reset(&world->logs[i], base);
        replica->base = *base;
        replica->configuration_bytes = 2;
        memset(replica->configuration, 0, sizeof replica->configuration);
        memcpy(replica->configuration, "in", 2);
    }
    return sequence;
}

static inline int64_t world_drop(struct world *world, int i)
{
    int64_t sequence = wal_drop_replica(world->writer, world->now[i].replica.replica_id);

    if (sequence > 0) {
        memset(&world->now[i], 0, sizeof world->now[i]);
        log_reset(&world->logs[i], &(struct log_base){0});
    }
    return sequence;
}

/* ---- recovery -------------------------------------------------------------------------------- */

struct world_recovery {
    struct wal_recovered scanned;
    struct wal_rebuild rebuild;
    struct wal_rebuilt replicas[2 * WORLD_REPLICAS];
    struct log logs[2 * WORLD_REPLICAS];
    void *rings[2 * WORLD_REPLICAS];
    uint8_t *scratch;
};

static inline void world_recovery_init(struct world_recovery *recovery)
{
    memset(recovery, 0, sizeof *recovery);
    recovery->scratch = world_memory(WAL_FRAME_BYTES_LIMIT);
    for (int i = 0; i < 2 * WORLD_REPLICAS; i++) {
        recovery->rings[i] = world_memory(log_memory_bytes(WORLD_RING_BYTES, WORLD_SLOTS));
    }
}

static inline void world_recovery_free(struct world_recovery *recovery)
{
    free(recovery->scratch);
    for (int i = 0; i < 2 * WORLD_REPLICAS; i++) {
        free(recovery->rings[i]);
    }
}

/* Adds what this disk holds, as WAL number `wal`. */
static inline int world_recover_more(struct world_recovery *recovery, struct world_disk *disk,
                                     uint32_t wal)
{
    struct wal_reader reader = world_reader(disk, recovery->scratch);
    uint32_t first = recovery->rebuild.count;
    int error = wal_scan(&reader, &recovery->scanned);

    recovery->rebuild.replicas = recovery->replicas;
    recovery->rebuild.max = 2 * WORLD_REPLICAS;
    if (error != 0) {
        return error;
    }
    error = wal_rebuild_states(&recovery->rebuild, wal, &reader, &recovery->scanned);
    if (error != 0) {
        return error;
    }
    for (uint32_t i = first; i < recovery->rebuild.count; i++) {
        log_init(&recovery->logs[i], recovery->rings[i], WORLD_RING_BYTES, WORLD_SLOTS);
        recovery->replicas[i].log = &recovery->logs[i];
    }
    return wal_rebuild_logs(&recovery->rebuild, wal, &reader, &recovery->scanned);
}

static inline int world_recover(struct world_recovery *recovery, struct world_disk *disk)
{
    recovery->rebuild.count = 0;
    return world_recover_more(recovery, disk, 0);
}

/* NULL, or how a recovered replica differs from what it must be. */
static inline const char *world_compare_one(const struct wal_rebuilt *got,
                                            const struct world_state *want)
{
    const struct wal_replica *a = got != NULL ? &got->replica : NULL;
    const struct wal_replica *b = &want->replica;

    if (got == NULL) {
        return "a replica is not there";
    }
    if (a->shard != b->shard) {
        return "shard differs";
    }
    if (a->hard.term != b->hard.term || a->hard.vote != b->hard.vote) {
        return "term or vote differs";
    }
    if (memcmp(&a->base, &b->base, sizeof a->base) != 0) {
        return "base differs";
    }
    if (a->configuration_bytes != b->configuration_bytes ||
        memcmp(a->configuration, b->configuration, a->configuration_bytes) != 0) {
        return "membership differs";
    }
    if (got->log->base.index != b->base.index || got->log->last_index != want->last_index ||
        got->log->last_term != want->last_term || got->log->last_checksum != want->last_checksum) {
        return "the log differs";
    }
    return NULL;
}

static inline const char *world_compare(const struct world_recovery *recovery,
                                        const struct world_state want[WORLD_REPLICAS])
{
    uint32_t count = 0;

    for (int i = 0; i < WORLD_REPLICAS; i++) {
        const char *wrong;

        if (want[i].replica.replica_id == 0) {
            continue;
        }
        wrong = world_compare_one(wal_rebuild_find(&recovery->rebuild, want[i].replica.replica_id),
                                  &want[i]);
        if (wrong != NULL) {
            return wrong;
        }
        count++;
    }
    return count == recovery->rebuild.count ? NULL : "a replica too many";
}

#endif
