/* SPDX-License-Identifier: Apache-2.0
 *
 * The WAL's rules one by one: what may be torn, what is corruption, what a segment change keeps,
 * what happens when it is full.
 */
#include "unit/wal_world.h"

#include <criterion/criterion.h>

#include "consensus/wal_format.h"

enum { SECTOR_BYTES = 512 };

static struct world world;
static struct world_recovery recovery;

static void setup(void)
{
    world_init(&world, 7, WORLD_IDENTITY);
    world_recovery_init(&recovery);
}

static void teardown(void)
{
    world_recovery_free(&recovery);
    world_free(&world);
}

TestSuite(wal, .init = setup, .fini = teardown);

/* One frame of its own for an entry. */
static struct wal_write one_frame(int i, uint64_t term, size_t payload_bytes)
{
    cr_assert_gt(world_entry(&world, i, term, payload_bytes), 0);
    cr_assert(world_begin_write(&world));
    world_end_write(&world);
    return world.write;
}

static void expect_last(uint64_t sequence)
{
    const char *wrong;

    cr_assert_eq(world_recover(&recovery, &world.disk), 0, "%s",
                 wal_damage_name(recovery.scanned.damage));
    cr_assert_eq(recovery.scanned.sequence_last, sequence, "ended with %llu, not %llu",
                 (unsigned long long)recovery.scanned.sequence_last, (unsigned long long)sequence);
    wrong = world_compare(&recovery, world.after[sequence]);
    cr_assert_null(wrong, "%s", wrong);
}

static void expect_damage(enum wal_damage damage, uint32_t segment, uint64_t offset)
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
static void next_segment(int i)
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

/* ---- what comes back ------------------------------------------------------------------------- */

struct seen {
    struct wal_record_view views[16];
    uint32_t count;
};

static int see(void *context, const struct wal_record_view *view)
{
    struct seen *seen = context;

    cr_assert_lt(seen->count, 16);
    seen->views[seen->count++] = *view;
    return 0;
}

Test(wal, every_record_comes_back_as_it_was_added)
{
    struct log_base base = {.index = 9, .term = 3, .position = 4096, .checksum = 77, .stamp_ns = 5};
    struct seen seen = {.count = 0};
    struct wal_sink sink = {.record = see, .context = &seen};
    struct wal_reader reader = world_reader(&world.disk, recovery.scratch);
    const struct log_entry *entry;

    world_add(&world, 0);
    world_hard(&world, 0, 3, 42);
    world_entry(&world, 0, 3, 5);
    world_cut(&world, 0, 1);
    world_entry(&world, 0, 3, 11);
    world_snapshot(&world, 0, 1);
    world_install(&world, 0, &base);
    world_drop(&world, 0);
    world_flush(&world);
    cr_assert_eq(wal_recover(&reader, &sink, &recovery.scanned), 0);

    cr_assert_eq(seen.count, 8);
    cr_assert(seen.views[0].kind == WAL_RECORD_STATE && !seen.views[0].head &&
              seen.views[0].state.shard == 100 && seen.views[0].replica_id == 1);
    cr_assert(seen.views[1].kind == WAL_RECORD_HARD && seen.views[1].hard.term == 3 &&
              seen.views[1].hard.vote == 42);
    cr_assert(seen.views[2].kind == WAL_RECORD_ENTRIES && seen.views[2].entries.first_index == 1 &&
              seen.views[2].entries.last_index == 1);
    cr_assert(seen.views[3].kind == WAL_RECORD_CUT && seen.views[3].first_index_removed == 1);
    entry = (const struct log_entry *)seen.views[4].entries.bytes;
    cr_assert(seen.views[4].kind == WAL_RECORD_ENTRIES && entry->payload_bytes == 11);
    cr_assert(seen.views[5].kind == WAL_RECORD_SNAPSHOT && seen.views[5].state.base.index == 1 &&
              memcmp(seen.views[5].state.configuration, "c\x01\x00", 3) == 0);
    cr_assert(seen.views[6].kind == WAL_RECORD_INSTALL &&
              memcmp(&seen.views[6].state.base, &base, sizeof base) == 0 &&
              seen.views[6].state.configuration_bytes == 2);
    cr_assert(seen.views[7].kind == WAL_RECORD_DROP);
    expect_last(1);
}

Test(wal, a_blank_wal_is_blank)
{
    cr_assert_eq(world_recover(&recovery, &world.disk), 0);
    cr_assert_eq(recovery.scanned.sequence_last, 0);
    cr_assert_eq(recovery.rebuild.count, 0);
    /* So is one that holds another WAL's frames, as a recycled file would. */
    world_add(&world, 0);
    world_flush(&world);
    world.disk.options.identity++;
    cr_assert_eq(world_recover(&recovery, &world.disk), 0);
    cr_assert_eq(recovery.scanned.sequence_last, 0);
    cr_assert_eq(recovery.rebuild.count, 0);
}

/* cockroach#63302: what is cut and written again reads back as the new. */
Test(wal, truncation_is_its_own_record)
{
    world_add(&world, 0);
    for (int k = 0; k < 10; k++) {
        one_frame(0, 1, 40);
    }
    world_cut(&world, 0, 6);
    world_flush(&world);
    expect_last(11);
    cr_assert_eq(recovery.logs[0].last_index, 5);
    one_frame(0, 2, 8);
    expect_last(12);
    cr_assert_eq(recovery.logs[0].last_index, 6);
    cr_assert_eq(log_term(&recovery.logs[0], 6), 2);
}

/* The same index written twice without a cut between is no log. */
Test(wal, overwriting_without_a_cut_is_refused)
{
    struct log copy;

    world_add(&world, 0);
    one_frame(0, 1, 8);
    one_frame(0, 1, 8);
    copy = world.logs[0];
    log_cut_above(&world.logs[0], 1);
    cr_assert_eq(world_entry(&world, 0, 2, 8), -EINVAL, "an index twice");
    world.logs[0] = copy;
    log_append(&world.logs[0], LOG_NOOP, 2, 9, (log_reserve(&world.logs[0], 8), 8));
    cr_assert_eq(world_entry(&world, 0, 2, 8), -EINVAL, "an index left out");
}

/* scylladb#9551: nothing of a longer, divergent log may stay after an install. */
Test(wal, install_empties_the_log)
{
    struct log_base base = {.index = 4, .term = 9, .position = 800, .checksum = 5, .stamp_ns = 900};

    world_add(&world, 0);
    for (int k = 0; k < 10; k++) {
        one_frame(0, 1, 40);
    }
    world_install(&world, 0, &base);
    world_flush(&world);
    expect_last(11);
    cr_assert_eq(recovery.logs[0].last_index, 4);
    one_frame(0, 9, 40);
    expect_last(12);
    cr_assert_eq(recovery.logs[0].last_index, 5);
}

/* redisraft#43: no gap between snapshot and log. */
Test(wal, the_log_goes_on_where_the_snapshot_ends)
{
    world_add(&world, 0);
    for (int k = 0; k < 10; k++) {
        one_frame(0, 1, 40);
    }
    world_snapshot(&world, 0, 6);
    world_flush(&world);
    one_frame(0, 1, 40);
    expect_last(12);
    cr_assert_eq(recovery.logs[0].base.index, 6);
    cr_assert_eq(recovery.logs[0].last_index, 11);
    cr_assert_not_null(log_at(&recovery.logs[0], 7));
}

/* A base that no entry reaches: something between is lost. */
Test(wal, a_gap_above_the_base_is_found)
{
    struct log_base base = {.index = 3, .term = 1, .position = 800, .checksum = 5, .stamp_ns = 1};

    world_add(&world, 0);
    for (int k = 0; k < 5; k++) {
        one_frame(0, 1, 40);
    }
    /* A base of another log: the chain above it does not fit. */
    cr_assert_gt(wal_add_snapshot(world.writer, 1, &base, NULL, 0), 0);
    world_flush(&world);
    cr_assert_eq(world_recover(&recovery, &world.disk), -EBADMSG);
    cr_assert(recovery.replicas[0].incomplete);
}

/* hashicorp/raft#661: term and vote are one record, and a vote never changes in its term. */
Test(wal, a_vote_is_kept_with_its_term)
{
    world_add(&world, 0);
    cr_assert_gt(world_hard(&world, 0, 5, 0), 0);
    cr_assert_gt(world_hard(&world, 0, 5, 42), 0);
    cr_assert_eq(world_hard(&world, 0, 5, 43), -EINVAL);
    cr_assert_eq(world_hard(&world, 0, 5, 0), -EINVAL);
    cr_assert_eq(world_hard(&world, 0, 4, 42), -EINVAL);
    world_flush(&world);
    expect_last(1);
}

/* Segments go, but not what they said: term, vote, membership and base live on in each head. */
Test(wal, a_segment_change_keeps_every_replicas_state)
{
    struct wal_usage usage;

    for (int i = 0; i < 3; i++) {
        world_add(&world, i);
        world_hard(&world, i, 10 + (uint64_t)i, 70 + (uint64_t)i);
        one_frame(i, 1, 100);
    }
    world_snapshot(&world, 0, 1);
    world_snapshot(&world, 1, 1);
    world_snapshot(&world, 2, 1);
    world_flush(&world);
    for (int k = 0; k < 3 * WORLD_SEGMENTS; k++) {
        next_segment(2);
    }
    wal_usage(world.writer, &usage);
    cr_assert_gt(usage.generation, 2 * WORLD_SEGMENTS);
    cr_assert_eq(world_recover(&recovery, &world.disk), 0);
    cr_assert_gt(recovery.scanned.generation_first, WORLD_SEGMENTS, "old segments are not read");
    expect_last(usage.frames);
    cr_assert_eq(wal_rebuild_find(&recovery.rebuild, 1)->replica.hard.vote, 70);
    cr_assert_eq(wal_rebuild_find(&recovery.rebuild, 2)->replica.configuration_bytes, 3);
}

/* ---- the last frame may be torn -------------------------------------------------------------- */

/* Every cut at a sector, over blank, old and random bytes (etcd#5230, #6515). */
static void tear_everywhere(void)
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

Test(wal, the_last_frame_may_be_torn_anywhere)
{
    world_add(&world, 0);
    one_frame(0, 1, 100);
    one_frame(0, 1, 15000);
    tear_everywhere();
}

Test(wal, the_first_frame_of_all_may_be_torn)
{
    world_add(&world, 0);
    one_frame(0, 1, 15000);
    tear_everywhere();
}

/* Its segment holds the frames of an older lap behind and below it. */
Test(wal, the_first_frame_of_a_recycled_segment_may_be_torn)
{
    struct wal_usage usage;

    world_add(&world, 0);
    world_add(&world, 1);
    one_frame(0, 1, 100);
    world_snapshot(&world, 0, 1);
    do {
        next_segment(1);
        wal_usage(world.writer, &usage);
    } while (usage.generation < WORLD_SEGMENTS + 2);
    cr_assert_eq(world.write.offset, 0);
    tear_everywhere();
}

/* Every byte of the last frame matters. */
Test(wal, a_flipped_bit_in_the_last_frame_cuts_it)
{
    struct wal_frame header;
    uint8_t *place;

    world_add(&world, 0);
    one_frame(0, 1, 10);
    one_frame(0, 1, 100);
    place = world_place(&world, &world.write);
    memcpy(&header, place, sizeof header);
    for (uint32_t k = 0; k < header.bytes; k++) {
        place[k] ^= (uint8_t)(1u << (k % 8));
        expect_last(world.write.sequence - 1);
        place[k] ^= (uint8_t)(1u << (k % 8));
    }
    expect_last(world.write.sequence);
}

/* ---- anything else is corruption ------------------------------------------------------------- */

/* Frames 1..5 in segment 0; the third is the victim. */
static struct wal_write make_victim(void)
{
    struct wal_write victim;

    world_add(&world, 0);
    one_frame(0, 1, 10);
    one_frame(0, 1, 10);
    victim = one_frame(0, 1, 9000);
    one_frame(0, 1, 10);
    one_frame(0, 1, 10);
    expect_last(5);
    return victim;
}

Test(wal, every_flipped_byte_before_the_last_frame_is_corruption)
{
    struct wal_write victim = make_victim();
    uint8_t *place = world_place(&world, &victim);
    struct wal_frame header;

    memcpy(&header, place, sizeof header);
    for (uint32_t k = 0; k < header.bytes; k += k < 200 ? 1 : 61) {
        place[k] ^= (uint8_t)(1u << (k % 8));
        cr_assert_eq(world_recover(&recovery, &world.disk), -EBADMSG, "byte %u", k);
        cr_assert_eq(recovery.scanned.damage_offset, victim.offset, "byte %u", k);
        cr_assert_eq(recovery.rebuild.count, 0);
        place[k] ^= (uint8_t)(1u << (k % 8));
    }
    expect_last(5);
}

Test(wal, a_zeroed_frame_is_named)
{
    struct wal_write victim = make_victim();

    memset(world_place(&world, &victim), 0, victim.bytes);
    expect_damage(WAL_DAMAGE_ZEROED, victim.segment, victim.offset);
}

Test(wal, a_zeroed_sector_is_named)
{
    struct wal_write victim = make_victim();

    memset(world_place(&world, &victim) + 9 * SECTOR_BYTES, 0, SECTOR_BYTES);
    expect_damage(WAL_DAMAGE_CHECKSUM, victim.segment, victim.offset);
}

Test(wal, garbage_is_named)
{
    struct wal_write victim = make_victim();

    memset(world_place(&world, &victim), 0x5a, victim.bytes);
    expect_damage(WAL_DAMAGE_GARBAGE, victim.segment, victim.offset);
}

Test(wal, a_misdirected_frame_is_named)
{
    struct wal_write victim = make_victim();

    memcpy(world_place(&world, &victim), world.disk.segments[0], 4096);
    expect_damage(WAL_DAMAGE_MISDIRECTED, victim.segment, victim.offset);
}

Test(wal, an_unreadable_frame_is_named)
{
    struct wal_write victim = make_victim();

    world.disk.unreadable_segment = victim.segment;
    world.disk.unreadable_offset = victim.offset + 4096;
    expect_damage(WAL_DAMAGE_UNREADABLE, victim.segment, victim.offset);
}

/* An unreadable last frame may have been acknowledged: a crash makes no sector unreadable. */
Test(wal, an_unreadable_end_is_corruption)
{
    make_victim();
    world.disk.unreadable_segment = world.write.segment;
    world.disk.unreadable_offset = world.write.offset;
    expect_damage(WAL_DAMAGE_UNREADABLE, world.write.segment, world.write.offset);
}

/* A write that never arrived: below it lies a sound frame of an older lap. */
Test(wal, a_stale_frame_is_named)
{
    struct wal_usage usage;
    struct wal_write victim;
    struct wal_frame header;
    uint8_t *old = malloc(65536);

    world_add(&world, 0);
    world_add(&world, 1);
    do {
        next_segment(1);
        wal_usage(world.writer, &usage);
    } while (usage.generation < WORLD_SEGMENTS + 1);
    cr_assert_eq(world.write.offset, 0);
    /* Make the older lap and this one meet at one place. */
    memcpy(old, world.disk.segments[0] + world.write.bytes, 65536);
    victim = one_frame(0, 1, 31000);
    cr_assert_eq(victim.segment, 0);
    one_frame(0, 1, 10);
    expect_last(world.write.sequence);
    memcpy(&header, old, sizeof header);
    cr_assert_leq(header.bytes, victim.bytes);
    memcpy(world_place(&world, &victim), old, header.bytes);
    cr_assert_eq(header.generation, 1);
    cr_assert_eq(header.offset, victim.offset);
    expect_damage(WAL_DAMAGE_STALE, victim.segment, victim.offset);
    free(old);
}

/* The first write into a recycled segment was lost, later ones arrived. */
Test(wal, a_lost_segment_start_is_stale)
{
    struct wal_usage usage;
    uint8_t *old = malloc(world.disk.options.segment_bytes);
    struct wal_write first;

    world_add(&world, 0);
    world_add(&world, 1);
    do {
        wal_usage(world.writer, &usage);
        if (usage.generation == WORLD_SEGMENTS + 1) {
            break;
        }
        memcpy(old, world.disk.segments[0], world.disk.options.segment_bytes);
        next_segment(1);
    } while (true);
    first = world.write;
    cr_assert(first.segment == 0 && first.offset == 0);
    one_frame(0, 1, 10);
    expect_last(world.write.sequence);
    memcpy(world.disk.segments[0], old, first.bytes);
    expect_damage(WAL_DAMAGE_STALE, 0, 0);
    memset(world.disk.segments[0], 0, first.bytes);
    expect_damage(WAL_DAMAGE_ZEROED, 0, 0);
    free(old);
}

/* The last frame of a segment is not the last frame of the WAL. */
Test(wal, damage_at_a_segments_end_is_found)
{
    struct wal_write before;
    struct wal_usage usage;

    world_add(&world, 0);
    one_frame(0, 1, 10);
    do {
        before = world.write;
        one_frame(0, 1, 30000);
        wal_usage(world.writer, &usage);
    } while (usage.generation == 1);
    memset(world_place(&world, &before), 0, before.bytes);
    expect_damage(WAL_DAMAGE_ZEROED, 0, before.offset);
}

/* A whole segment that is still needed is gone. */
Test(wal, a_missing_segment_is_found)
{
    struct wal_usage usage;

    world_add(&world, 0);
    do {
        one_frame(0, 1, 30000);
        wal_usage(world.writer, &usage);
    } while (usage.generation < 3);
    memset(world.disk.segments[1], 0, world.disk.options.segment_bytes);
    expect_damage(WAL_DAMAGE_ZEROED, 1, 0);
}

/* Sound bytes, senseless records: never trusted, never fatal. */
Test(wal, senseless_records_are_found)
{
    struct wal_frame header;
    uint8_t *place;

    make_victim();
    place = world_place(&world, &world.write);
    memcpy(&header, place, sizeof header);
    for (uint32_t k = sizeof header; k < header.bytes; k++) {
        struct wal_frame sealed = header;
        int error;

        place[k] ^= 0xff;
        sealed.checksum = wal_frame_checksum(place, &header);
        memcpy(place, &sealed, sizeof sealed);
        error = world_recover(&recovery, &world.disk);
        cr_assert_eq(error, -EBADMSG, "byte %u: %d", k - (uint32_t)sizeof header, error);
        place[k] ^= 0xff;
        memcpy(place, &header, sizeof header);
    }
    expect_last(5);
}

/* ---- full, and other refusals ---------------------------------------------------------------- */

Test(wal, a_full_wal_refuses_and_snapshots_free_it)
{
    uint64_t ids[WORLD_REPLICAS];
    struct wal_usage usage;
    int64_t result;
    uint64_t votes = 0;

    world_add(&world, 0);
    world_add(&world, 1);
    world_flush(&world);
    one_frame(0, 1, 100); /* holds the oldest segment for ever */
    cr_assert_eq(wal_pressure(world.writer, ids, WORLD_REPLICAS), 0);
    while ((result = world_entry(&world, 1, 1, 8000)) > 0) {
        world_flush(&world);
        if (world.logs[1].last_index % 20 == 0) {
            world_snapshot(&world, 1, world.logs[1].last_index);
        }
    }
    cr_assert_eq(result, -ENOSPC);
    cr_assert_eq(wal_pressure(world.writer, ids, WORLD_REPLICAS), 1, "only one holds it up");
    cr_assert_eq(ids[0], 1);

    /* Votes still find room, but not all of it. */
    while ((result = world_hard(&world, 0, 2 + votes, 9)) > 0) {
        world_flush(&world);
        votes++;
    }
    cr_assert_eq(result, -ENOSPC);
    cr_assert_gt(votes, 3);
    wal_usage(world.writer, &usage);
    cr_assert_eq(usage.segments_used, WORLD_SEGMENTS);
    expect_last(usage.frames);

    /* What frees segments does, and at once after it everything is accepted again. */
    cr_assert_gt(world_snapshot(&world, 0, 1), 0);
    cr_assert_eq(world_entry(&world, 1, 1, 10), -ENOBUFS, "a frame on its way will free it");
    world_flush(&world);
    cr_assert_gt(world_entry(&world, 1, 1, 10), 0);
    world_flush(&world);
    wal_usage(world.writer, &usage);
    cr_assert_lt(usage.segments_used, WORLD_SEGMENTS);
    expect_last(usage.frames);
}

/* A segment is not reused on the word of a frame that is still in flight. */
Test(wal, segments_are_freed_by_durable_frames_only)
{
    struct wal_usage before;
    struct wal_usage after;

    world_add(&world, 0);
    do {
        one_frame(0, 1, 30000);
        wal_usage(world.writer, &before);
    } while (before.generation < 3);
    world_snapshot(&world, 0, world.logs[0].last_index);
    world_begin_write(&world);
    wal_usage(world.writer, &after);
    cr_assert_eq(after.segments_used, before.segments_used);
    world_end_write(&world);
    wal_usage(world.writer, &after);
    cr_assert_eq(after.segments_used, 1);
}

/* A cut gives up what the cut entries held, also when the log never grows that long again. */
Test(wal, cut_entries_hold_no_segment)
{
    struct wal_usage usage;

    world_add(&world, 0);
    do {
        one_frame(0, 1, 30000);
        wal_usage(world.writer, &usage);
    } while (usage.generation < 4);
    world_cut(&world, 0, 2);
    world_snapshot(&world, 0, 1);
    world_flush(&world);
    wal_usage(world.writer, &usage);
    cr_assert_eq(usage.segments_used, 1);
    expect_last(usage.frames);
}

Test(wal, one_write_in_flight_while_the_next_fills)
{
    struct wal_write none;
    int64_t first;
    int64_t result;

    world_add(&world, 0);
    first = world_entry(&world, 0, 1, 100);
    cr_assert(world_begin_write(&world));
    cr_assert_not(wal_next_write(world.writer, &none));
    cr_assert_eq(world_entry(&world, 0, 1, 100), first + 1);
    while ((result = world_entry(&world, 0, 1, 9000)) > 0) {
        cr_assert_eq(result, first + 1);
    }
    cr_assert_eq(result, -ENOBUFS);
    cr_assert_eq(wal_durable_sequence(world.writer), 0);
    world_end_write(&world);
    cr_assert_eq(wal_durable_sequence(world.writer), (uint64_t)first);
    cr_assert_eq(world_entry(&world, 0, 1, 9000), -ENOBUFS, "the full frame was not taken yet");
    world_begin_write(&world);
    cr_assert_eq(world_entry(&world, 0, 1, 9000), first + 2);
    world_end_write(&world);
    world_flush(&world);
    expect_last((uint64_t)first + 2);
}

/* Several entries at once, split where the frame and the ring end. */
Test(wal, a_range_of_the_log_goes_in_piece_by_piece)
{
    uint64_t first = 1;
    uint64_t added = 0;

    world_add(&world, 0);
    for (int k = 0; k < 60; k++) {
        world_append(&world, 0, 1, 1000 + 100 * (size_t)k);
    }
    while (first <= 60) {
        int64_t sequence = wal_add_log(world.writer, 1, &world.logs[0], first, 60, &added);

        cr_assert_gt(sequence, 0);
        cr_assert_geq(added, first);
        first = added + 1;
        wal_next_write(world.writer, &world.write);
        world_end_write(&world);
    }
    cr_assert_eq(world_recover(&recovery, &world.disk), 0);
    cr_assert_eq(recovery.logs[0].last_index, 60);
    cr_assert_eq(recovery.logs[0].last_checksum, world.logs[0].last_checksum);
}

Test(wal, the_longest_entry_fits_beside_every_state)
{
    for (int i = 0; i < WORLD_REPLICAS; i++) {
        uint8_t configuration[RAFT_CONFIGURATION_BYTES_MAX] = {1};
        struct log_base base = {0};

        world_add(&world, i);
        cr_assert_gt(wal_add_snapshot(world.writer, world.last_id, &base, configuration,
                                      sizeof configuration),
                     0);
        world.now[i].replica.configuration_bytes = sizeof configuration;
        world.now[i].replica.configuration[0] = 1;
    }
    world_flush(&world);
    for (int k = 0; k < 4; k++) {
        one_frame(0, 1, RAFT_PAYLOAD_BYTES_MAX);
        expect_last(world.write.sequence);
    }
}

Test(wal, refusals)
{
    uint8_t configuration[RAFT_CONFIGURATION_BYTES_MAX + 1] = {0};
    struct log_base base = {.index = 3, .position = 8};
    struct log_base back = {.index = 2, .position = 8};
    size_t long_bytes = wal_entries_bytes_max(world.writer) + 8;
    struct log_entry *entries;

    world_add(&world, 0);
    cr_assert_eq(wal_add_hard(world.writer, 99, 1, 1), -ENOENT);
    cr_assert_eq(wal_add_cut(world.writer, 99, 1), -ENOENT);
    cr_assert_eq(wal_drop_replica(world.writer, 99), -ENOENT);
    cr_assert_eq(wal_add_snapshot(world.writer, 99, &base, NULL, 0), -ENOENT);
    cr_assert_eq(wal_add_replica(world.writer, 1, 5), -EEXIST);
    cr_assert_eq(wal_add_replica(world.writer, 0, 5), -EINVAL);
    cr_assert_gt(wal_add_install(world.writer, 1, &base, NULL, 0), 0);
    cr_assert_eq(wal_add_snapshot(world.writer, 1, &back, NULL, 0), -EINVAL);
    cr_assert_eq(wal_add_snapshot(world.writer, 1, &base, configuration, sizeof configuration),
                 -EINVAL);
    cr_assert_eq(wal_add_cut(world.writer, 1, 3), -EINVAL, "a cut into the snapshot");
    for (uint64_t id = 2; id <= WORLD_REPLICAS; id++) {
        cr_assert_gt(wal_add_replica(world.writer, id, 5), 0);
    }
    cr_assert_eq(wal_add_replica(world.writer, 50, 5), -E2BIG);

    entries = calloc(1, long_bytes);
    for (size_t at = 0, index = 4; at < long_bytes; at += 1040, index++) {
        struct log_entry *entry = (struct log_entry *)((uint8_t *)entries + at);

        entry->payload_bytes = 1000;
        entry->index = index;
        entry->term = 1;
        if (at + 1040 > long_bytes) {
            entry->payload_bytes = (uint32_t)(long_bytes - at - 40);
        }
    }
    cr_assert_eq(wal_add_entries(world.writer, 1, entries, long_bytes), -EMSGSIZE);
    cr_assert_eq(wal_add_entries(world.writer, 1, entries, 1039), -EINVAL, "half an entry");
    cr_assert_eq(wal_add_entries(world.writer, 1, entries, 0), -EINVAL);
    free(entries);
}

/* fsyncgate: after a failed write nothing is written or accepted any more. */
Test(wal, a_failed_write_ends_the_writer)
{
    struct wal_write none;

    world_add(&world, 0);
    world_begin_write(&world);
    world_entry(&world, 0, 1, 10);
    wal_written(world.writer, world.write.sequence, -EIO);
    cr_assert_eq(wal_error(world.writer), -EIO);
    cr_assert_eq(wal_durable_sequence(world.writer), 0);
    cr_assert_eq(world_entry(&world, 0, 1, 10), -EIO);
    cr_assert_not(wal_next_write(world.writer, &none));
    cr_assert_not(wal_pending(world.writer));
}

Test(wal, options_are_checked)
{
    struct wal_options good = world_options(1);
    struct wal_options bad = good;

    cr_assert_null(wal_options_check(&good));
    bad.identity = 0;
    cr_assert_not_null(wal_options_check(&bad));
    bad = good;
    bad.segments_count = 2;
    cr_assert_not_null(wal_options_check(&bad));
    bad = good;
    bad.frame_bytes_max -= 4096;
    cr_assert_not_null(wal_options_check(&bad));
    bad = good;
    bad.segment_bytes = 2 * (uint64_t)good.frame_bytes_max - 4096;
    cr_assert_not_null(wal_options_check(&bad));
    bad = good;
    bad.block_bytes = 512;
    cr_assert_not_null(wal_options_check(&bad));
    bad = good;
    bad.replicas_max = 0;
    cr_assert_not_null(wal_options_check(&bad));
    bad.replicas_max = WAL_REPLICAS_MAX;
    bad.frame_bytes_max = wal_frame_bytes_min(WAL_REPLICAS_MAX, 4096);
    bad.segment_bytes = UINT64_C(1) << 24;
    cr_assert_null(wal_options_check(&bad), "every replica there may be fits");
}
