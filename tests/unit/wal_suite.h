/* SPDX-License-Identifier: Apache-2.0
 *
 * What the suites of the WAL's rules share: one world, one recovery, and what to expect of them.
 */
#ifndef BELAY_TESTS_WAL_SUITE_H
#define BELAY_TESTS_WAL_SUITE_H

#include "unit/wal_world.h"

#include <criterion/criterion.h>

enum { SECTOR_BYTES = 512 };

static struct world world;
static struct world_recovery recovery;

static inline void setup(void)
{
    world_init(&world, 7, WORLD_IDENTITY);
    world_recovery_init(&recovery);
}

static inline void teardown(void)
{
    world_recovery_free(&recovery);
    world_free(&world);
}

/* One frame of its own for an entry. */
static inline struct wal_write one_frame(int i, uint64_t term, size_t payload_bytes)
{
    cr_assert_gt(world_entry(&world, i, term, payload_bytes), 0);
    cr_assert(world_begin_write(&world));
    world_end_write(&world);
    return world.write;
}

static inline void expect_last(uint64_t sequence)
{
    const char *wrong;

    cr_assert_eq(world_recover(&recovery, &world.disk), 0, "%s",
                 wal_damage_name(recovery.scanned.damage));
    cr_assert_eq(recovery.scanned.sequence_last, sequence, "ended with %llu, not %llu",
                 (unsigned long long)recovery.scanned.sequence_last, (unsigned long long)sequence);
    wrong = world_compare(&recovery, world.after[sequence]);
    cr_assert_null(wrong, "%s", wrong);
}

static inline void expect_damage(enum wal_damage damage, uint32_t segment, uint64_t offset)
{
    int error = world_recover(&recovery, &world.disk);

    cr_assert_eq(error, -EBADMSG, "error %d", error);
    cr_assert_eq(recovery.scanned.damage, damage, "%s, not %s",
                 wal_damage_name(recovery.scanned.damage), wal_damage_name(damage));
    cr_assert_eq(recovery.scanned.damage_segment, segment);
    cr_assert_eq(recovery.scanned.damage_offset, offset);
    cr_assert_eq(recovery.rebuild.count, 0, "no replica of a damaged WAL may be used");
}

/* Fills frames with one replica's entries until the writer is in the next segment; the replica that
 * fills snapshots as it goes, so that only others hold segments. */
static inline void next_segment(int i)
{
    struct wal_usage before;
    struct wal_usage now;

    wal_usage(world.writer, &before);
    do {
        cr_assert_gt(
            world_entry(&world, i, world.logs[i].last_term + (world.logs[i].last_term == 0), 30000),
            0);
        cr_assert_gt(world_snapshot(&world, i, world.logs[i].last_index), 0);
        world_flush(&world);
        wal_usage(world.writer, &now);
    } while (now.generation == before.generation);
}

/* Every cut at a sector, over blank, old and random bytes (etcd#5230, #6515). */
static inline void tear_everywhere(void)
{
    struct wal_write last = world.write;
    uint8_t *place = world_place(&world, &last);
    uint8_t *whole = malloc(last.bytes);
    uint8_t *behind = malloc(last.bytes);

    memcpy(whole, place, last.bytes);
    for (int kind = 0; kind < 3; kind++) {
        for (uint32_t k = 0; k < last.bytes; k++) {
            behind[k] = kind == 0 ? 0 : kind == 1 ? 0xff : (uint8_t)world_random(&world);
        }
        for (uint32_t from = 0; from * SECTOR_BYTES < last.bytes - 4096; from++) {
            size_t kept = from * SECTOR_BYTES;

            memcpy(place, behind, last.bytes); /* a prefix arrived */
            memcpy(place, whole, kept);
            expect_last(last.sequence - 1);
            memcpy(place, whole, last.bytes); /* a suffix arrived */
            memcpy(place, behind, kept + SECTOR_BYTES);
            expect_last(last.sequence - 1);
            memcpy(place, whole, last.bytes); /* all but one sector */
            memcpy(place + kept, behind, SECTOR_BYTES);
            expect_last(last.sequence - 1);
        }
    }
    memcpy(place, whole, last.bytes);
    expect_last(last.sequence);
    free(whole);
    free(behind);
}

#endif
