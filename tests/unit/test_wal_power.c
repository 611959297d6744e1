/* SPDX-License-Identifier: Apache-2.0
 *
 * Power loss at every write boundary (etcd#14143, #14370): a random life of several replicas, and
 * before, inside and after each write the power fails. What was reported durable must come back,
 * and the state must be exactly that of the last frame found.
 */
#include "unit/wal_world.h"

#include <criterion/criterion.h>

enum { SECTOR_BYTES = 512 };

/* One random event in the replicas' lives. Refusals are part of life. `rare`: snapshots only now
 * and then, so that the WAL fills up. */
static int64_t power_event(struct world *world, bool rare)
{
    int i = (int)(world_random(world) % WORLD_REPLICAS);
    struct world_state *state = &world->now[i];
    struct log *log = &world->logs[i];
    uint64_t roll = world_random(world) % 100;

    if (state->replica.replica_id == 0) {
        return world_add(world, i);
    }
    if (world_random(world) % (rare ? 8 : 24) == 0) { /* changes nothing, at any time */
        return wal_carry(world->writer, state->replica.replica_id, log);
    }
    if (roll < 60) {
        uint64_t term =
            state->replica.hard.term > log->last_term ? state->replica.hard.term : log->last_term;
        size_t payload = world_random(world) % (roll < 50 ? 300 : 20000);

        return world_entry(world, i, term > 0 ? term : 1, payload);
    }
    if (roll < 72) {
        return world_hard(world, i, state->replica.hard.term + 1, world_random(world) % 5);
    }
    if (roll < 82 && log->last_index > log->base.index) {
        uint64_t span = log->last_index - log->base.index;

        return world_cut(world, i, log->base.index + 1 + world_random(world) % span);
    }
    if (roll < 97 && (!rare || world_random(world) % 40 == 0)) {
        uint64_t span = log->last_index - log->base.index;

        return world_snapshot(world, i, log->base.index + world_random(world) % (span + 1));
    }
    if (roll >= 97 && roll < 99 && !rare) {
        struct log_base base = {.index = log->last_index + world_random(world) % 3,
                                .term = log->last_term + 1,
                                .position = log->end + 64,
                                .checksum = world_random(world),
                                .stamp_ns = log->last_stamp_ns + 5};

        return world_install(world, i, &base);
    }
    return roll == 99 && world_random(world) % 4 == 0 ? world_drop(world, i) : 0;
}

static void power_check(struct world *world, struct world_recovery *recovery, const char *when)
{
    int error = world_recover(recovery, &world->disk);
    uint64_t last = recovery->scanned.sequence_last;

    cr_assert_eq(error, 0, "%s: error %d, %s at segment %u offset %llu", when, error,
                 wal_damage_name(recovery->scanned.damage), recovery->scanned.damage_segment,
                 (unsigned long long)recovery->scanned.damage_offset);
    cr_assert_geq(last, wal_durable_sequence(world->writer), "%s: a durable frame is lost", when);
    if (last > 0) {
        const char *wrong = world_compare(recovery, world->after[last]);

        cr_assert_null(wrong, "%s, frame %llu: %s", when, (unsigned long long)last, wrong);
    }
}

/* Some sectors of the write in flight arrived, others did not; then the disk is as it was. */
static void power_tear(struct world *world, struct world_recovery *recovery)
{
    uint8_t *place = world_place(world, &world->write);
    uint8_t *before = malloc(world->write.bytes);
    uint32_t sectors = world->write.bytes / SECTOR_BYTES;

    memcpy(before, place, world->write.bytes);
    for (int round = 0; round < 3; round++) {
        uint32_t kept = (uint32_t)(world_random(world) % (sectors + 1));

        for (uint32_t s = 0; s < sectors; s++) {
            bool arrived = round == 0   ? s < kept
                           : round == 1 ? s >= kept
                                        : world_random(world) % 2 == 0;

            if (arrived) {
                memcpy(place + s * SECTOR_BYTES, world->write.buffer + s * SECTOR_BYTES,
                       SECTOR_BYTES);
            }
        }
        power_check(world, recovery, "torn");
        memcpy(place, before, world->write.bytes);
    }
    free(before);
}

/* Returns how often the WAL was full. */
static int power_life(uint64_t seed, int steps, bool rare)
{
    struct world *world = malloc(sizeof *world);
    struct world_recovery recovery;
    struct wal_usage usage;
    int full = 0;

    world_init(world, seed, WORLD_IDENTITY);
    world_recovery_init(&recovery);
    for (int step = 0; step < steps; step++) {
        int64_t result = power_event(world, rare);

        full += result == -ENOSPC;
        cr_assert(result >= 0 || result == -ENOBUFS || result == -ENOSPC, "event: %lld",
                  (long long)result);
        if (wal_in_flight(world->writer) && (result < 0 || world_random(world) % 3 == 0)) {
            power_check(world, &recovery, "not yet written");
            power_tear(world, &recovery);
            world_end_write(world);
            power_check(world, &recovery, "written");
        }
        if (result < 0 || world_random(world) % 3 == 0) {
            world_begin_write(world);
        }
    }
    wal_usage(world->writer, &usage);
    cr_log_info("seed %llu: %llu frames, generation %llu, refused as full %d times",
                (unsigned long long)seed, (unsigned long long)usage.frames,
                (unsigned long long)usage.generation, full);
    cr_assert_gt(usage.generation, WORLD_SEGMENTS, "the test must recycle segments");
    world_recovery_free(&recovery);
    world_free(world);
    free(world);
    return full;
}

Test(wal_power, everything_durable_survives)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        power_life(seed, 1500, false);
    }
}

Test(wal_power, everything_durable_survives_a_full_wal)
{
    int full = 0;

    for (uint64_t seed = 101; seed <= 108; seed++) {
        full += power_life(seed, 2000, true);
    }
    cr_assert_gt(full, 0, "the WAL never filled up");
}
