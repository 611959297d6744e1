/* SPDX-License-Identifier: Apache-2.0
 *
 * The WAL's rules one by one: what may be torn, what is corruption, what a segment change keeps.
 */
#include "unit/wal_suite.h"

#include "consensus/wal_format.h"

TestSuite(wal, .init = setup, .fini = teardown);

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

/* Also when the base is the one that it had: the leader's log goes on differently from there. */
Test(wal, install_of_the_same_base_empties_the_log)
{
    struct log_base base;

    world_add(&world, 0);
    for (int k = 0; k < 10; k++) {
        one_frame(0, 1, 40);
    }
    world_snapshot(&world, 0, 6);
    base = world.logs[0].base;
    world_install(&world, 0, &base);
    world_flush(&world);
    expect_last(11);
    cr_assert_eq(recovery.logs[0].last_index, 6);
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
    /* A head confirms what this WAL said before, never what another one said. */
    cr_assert_eq(world_recover_more(&recovery, &world.disk, 1), -EBADMSG);
    cr_assert_eq(recovery.rebuild.count, 3);
}

/* ---- the last frame may be torn -------------------------------------------------------------- */

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

/* A number is left out although every frame is sound: one was lost. */
Test(wal, a_gap_in_the_sequence_is_found)
{
    struct wal_frame header;
    uint8_t *place;

    make_victim();
    place = world_place(&world, &world.write);
    memcpy(&header, place, sizeof header);
    header.sequence++;
    header.checksum = wal_frame_checksum(place, &header);
    memcpy(place, &header, sizeof header);
    expect_damage(WAL_DAMAGE_MISDIRECTED, world.write.segment, world.write.offset);
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
        cr_assert(recovery.rebuild.count == 0 || recovery.replicas[0].incomplete);
        place[k] ^= 0xff;
        memcpy(place, &header, sizeof header);
    }
    expect_last(5);
}
