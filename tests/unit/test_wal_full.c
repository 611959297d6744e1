/* SPDX-License-Identifier: Apache-2.0
 *
 * The WAL when it is full or asked for what it cannot do: refusals, freeing, the two frame buffers.
 */
#include "unit/wal_suite.h"

TestSuite(wal_full, .init = setup, .fini = teardown);

Test(wal_full, a_full_wal_refuses_and_snapshots_free_it)
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

/* Entries that no snapshot covers, because nobody knows that they are committed, hold up the oldest
 * segment. Written once more they do not, however often the WAL comes round; and whenever power is
 * lost, they are there. */
Test(wal_full, what_is_carried_holds_up_nothing)
{
    uint64_t ids[WORLD_REPLICAS];
    struct wal_usage usage;
    uint32_t carried = 0;

    world_add(&world, 0);
    world_add(&world, 1);
    world_flush(&world);
    while (world.logs[0].last_index < 30) { /* more than a frame takes */
        one_frame(0, 1, 7000);
    }
    for (int round = 0; round < 600; round++) {
        if (wal_pressure(world.writer, ids, 1) == 1 && ids[0] == 1) {
            int64_t result = wal_carry(world.writer, 1, &world.logs[0]);

            cr_assert(result == 0 || result == -ENOBUFS, "%d", (int)result);
            carried++;
            world_flush(&world); /* the frame may be full of it */
        }
        if (round == 200) { /* in the middle of whatever it is at */
            cr_assert_gt(world_cut(&world, 0, 20), 0);
        }
        if (round % 100 == 99) {
            cr_assert_gt(world_entry(&world, 0, 2, 700), 0);
        }
        cr_assert_gt(world_entry(&world, 1, 1, 9000), 0, "round %d", round);
        cr_assert_gt(world_snapshot(&world, 1, world.logs[1].last_index), 0);
        world_flush(&world);
        wal_usage(world.writer, &usage);
        expect_last(usage.frames);
    }
    cr_assert_gt(usage.generation, 2 * WORLD_SEGMENTS);
    cr_assert_gt(carried, 3);
    cr_assert_eq(wal_carry(world.writer, 77, &world.logs[0]), -ENOENT);
}

/* A segment is not reused on the word of a frame that is still in flight. */
Test(wal_full, segments_are_freed_by_durable_frames_only)
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
Test(wal_full, cut_entries_hold_no_segment)
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

/* So does an install. */
Test(wal_full, replaced_entries_hold_no_segment)
{
    struct log_base base = {.index = 1, .term = 9, .position = 800, .checksum = 5, .stamp_ns = 900};
    struct wal_usage usage;

    world_add(&world, 0);
    do {
        one_frame(0, 1, 30000);
        wal_usage(world.writer, &usage);
    } while (usage.generation < 4);
    world_install(&world, 0, &base);
    world_flush(&world);
    wal_usage(world.writer, &usage);
    cr_assert_eq(usage.segments_used, 1);
    expect_last(usage.frames);
}

/* Fills the WAL to the last block with records that free nothing, `frames` of them at most; returns
 * how many went in. */
static uint32_t fill_up(uint32_t frames)
{
    uint32_t done = 0;

    world_add(&world, 0);
    world_add(&world, 1);
    world_flush(&world);
    one_frame(0, 1, 100);
    while (world_entry(&world, 1, 1, 30000) > 0) {
        world_flush(&world);
    }
    cr_assert_gt(world_snapshot(&world, 1, world.logs[1].last_index), 0);
    world_flush(&world);
    while (done < frames && world_snapshot(&world, 1, world.logs[1].last_index) > 0) {
        world_flush(&world);
        done++;
    }
    return done;
}

/* The very next frame overwrites what the last durable one has freed, and is torn. */
Test(wal_full, a_segment_may_be_overwritten_right_after_it_was_freed)
{
    uint32_t frames = fill_up(UINT32_MAX);

    teardown();
    setup();
    cr_assert_eq(fill_up(frames - 1), frames - 1);
    cr_assert_gt(world_snapshot(&world, 0, 1), 0);
    world_flush(&world);
    cr_assert_gt(world_entry(&world, 0, 1, 15000), 0);
    world_begin_write(&world);
    cr_assert(world.write.segment == 0 && world.write.offset == 0);
    expect_last(world.write.sequence - 1);
    world_end_write(&world);
    tear_everywhere();
}

Test(wal_full, one_write_in_flight_while_the_next_fills)
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
Test(wal_full, a_range_of_the_log_goes_in_piece_by_piece)
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

Test(wal_full, the_longest_entry_fits_beside_every_state)
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

Test(wal_full, refusals)
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
Test(wal_full, a_failed_write_ends_the_writer)
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

Test(wal_full, options_are_checked)
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
