/* SPDX-License-Identifier: Apache-2.0
 *
 * From one start to the next: WALs of any number of workers are recovered, new ones are written
 * under a new incarnation, the manifest's rename commits them. A crash at every step loses nothing.
 */
#include "unit/wal_world.h"

#include <criterion/criterion.h>

#include "consensus/manifest.h"

enum { WORKERS_MAX = 3, DIRECTORIES_MAX = 16 };

#define NONCE UINT64_C(0xfeedfacecafe)

/* A data directory in memory: the manifest's bytes and WAL directories. Every change is one step;
 * the power fails before the one that `steps_left` counts down to. */
struct directory {
    uint8_t manifest[MANIFEST_BYTES_MAX];
    size_t manifest_bytes;
    struct {
        bool exists;
        uint64_t incarnation;
        uint32_t worker;
        struct world_disk disk;
    } wals[DIRECTORIES_MAX];
    uint64_t steps_left;
    bool failed;
};

static bool step(struct directory *directory)
{
    if (directory->steps_left == 0) {
        directory->failed = true;
        return false;
    }
    directory->steps_left--;
    return true;
}

static struct manifest *manifest_of(const struct directory *directory)
{
    struct manifest *manifest = malloc(sizeof *manifest);

    cr_assert_eq(manifest_decode(manifest, directory->manifest, directory->manifest_bytes), 0);
    return manifest;
}

static bool put_manifest(struct directory *directory, const struct manifest *manifest)
{
    if (!step(directory)) {
        return false;
    }
    directory->manifest_bytes = manifest_encode(manifest, directory->manifest);
    return true;
}

static struct world_disk *create_wal(struct directory *directory, uint64_t incarnation,
                                     uint32_t worker)
{
    for (int i = 0; i < DIRECTORIES_MAX; i++) {
        if (!directory->wals[i].exists) {
            directory->wals[i].exists = true;
            directory->wals[i].incarnation = incarnation;
            directory->wals[i].worker = worker;
            world_disk_init(&directory->wals[i].disk, wal_identity(NONCE, incarnation, worker));
            return &directory->wals[i].disk;
        }
    }
    cr_assert_fail("too many WAL directories");
    return NULL;
}

static void delete_wal(struct directory *directory, int i)
{
    directory->wals[i].exists = false;
    world_disk_free(&directory->wals[i].disk);
}

static struct directory *copy_of(const struct directory *from)
{
    struct directory *copy = malloc(sizeof *copy);

    *copy = *from;
    for (int i = 0; i < DIRECTORIES_MAX; i++) {
        if (from->wals[i].exists) {
            world_disk_init(&copy->wals[i].disk, from->wals[i].disk.options.identity);
            for (int s = 0; s < WORLD_SEGMENTS; s++) {
                memcpy(copy->wals[i].disk.segments[s], from->wals[i].disk.segments[s],
                       from->wals[i].disk.options.segment_bytes);
            }
        }
    }
    return copy;
}

static void free_directory(struct directory *directory)
{
    for (int i = 0; i < DIRECTORIES_MAX; i++) {
        if (directory->wals[i].exists) {
            delete_wal(directory, i);
        }
    }
    free(directory);
}

/* Recovers the WALs in force; the worker numbers tell them apart. */
static int recover_all(struct directory *directory, struct world_recovery *recovery)
{
    struct manifest *manifest = manifest_of(directory);
    uint32_t found = 0;
    int error = 0;

    recovery->rebuild.count = 0;
    for (int i = 0; i < DIRECTORIES_MAX; i++) {
        if (directory->wals[i].exists &&
            directory->wals[i].incarnation == manifest->wal_incarnation) {
            int result =
                world_recover_more(recovery, &directory->wals[i].disk, directory->wals[i].worker);

            error = result != 0 ? result : error;
            found++;
        }
    }
    cr_assert_eq(found, manifest->wal_count, "a WAL in force is gone");
    free(manifest);
    return error;
}

/* Writes the replicas that `worker` of `workers` hosts from now on; each write is a step. */
static bool write_wal(struct directory *directory, struct world_recovery *recovery,
                      struct world_disk *disk, uint32_t worker, uint32_t workers)
{
    void *memory = world_memory(wal_memory_bytes(&disk->options));
    struct wal_writer *writer = wal_writer_init(memory, &disk->options);
    struct wal_write write;
    bool alive = true;

    for (uint32_t i = 0; alive && i < recovery->rebuild.count; i++) {
        uint64_t next_index = 0;
        int result = 0;

        if (recovery->replicas[i].replica.shard % workers != worker) {
            continue;
        }
        while (alive && result == 0) {
            result = wal_hand_over(writer, &recovery->replicas[i], &next_index);
            cr_assert_geq(result, 0, "hand-over: %d", result);
            while (alive && wal_next_write(writer, &write)) {
                alive = step(directory);
                memcpy(disk->segments[write.segment] + write.offset, write.buffer,
                       alive ? write.bytes : write.bytes / 2);
                if (alive) {
                    wal_written(writer, write.sequence, 0);
                }
            }
        }
    }
    free(memory);
    return alive;
}

/* One start of the node with that many workers; false = the power failed in it. */
static bool start(struct directory *directory, struct world_recovery *recovery, uint32_t workers)
{
    struct manifest *manifest;
    uint64_t incarnation;
    bool alive;

    cr_assert_eq(recover_all(directory, recovery), 0);
    manifest = manifest_of(directory);
    incarnation = manifest->next_incarnation++;
    alive = put_manifest(directory, manifest);
    for (uint32_t worker = 0; alive && worker < workers; worker++) {
        alive = step(directory) &&
                write_wal(directory, recovery, create_wal(directory, incarnation, worker), worker,
                          workers);
    }
    manifest->wal_incarnation = incarnation;
    manifest->wal_count = workers;
    alive = alive && put_manifest(directory, manifest);
    for (int i = 0; alive && i < DIRECTORIES_MAX; i++) {
        if (directory->wals[i].exists && directory->wals[i].incarnation != incarnation) {
            alive = step(directory);
            if (alive) {
                delete_wal(directory, i);
            }
        }
    }
    free(manifest);
    return alive;
}

/* Two workers, each with replicas that have entries, a base and votes. */
static struct directory *make_directory(struct world *worlds)
{
    struct directory *directory = calloc(1, sizeof *directory);
    struct manifest *manifest = calloc(1, sizeof *manifest);

    *manifest = (struct manifest){.nonce = NONCE,
                                  .durability = RAFT_DISK,
                                  .shards_count = 256,
                                  .wal_count = 2,
                                  .wal_incarnation = 1,
                                  .next_incarnation = 2};
    for (uint32_t w = 0; w < 2; w++) {
        struct world *world = &worlds[w];

        world_init(world, 5 + w, wal_identity(NONCE, 1, w));
        world->last_id = 1000 * (w + 1);
        for (int i = (int)w; i < WORLD_REPLICAS; i += 2) {
            world_add(world, i);
            cr_assert_eq(manifest_add(manifest, world->last_id, (uint16_t)(100 + i)), 0);
            world_hard(world, i, 7, 1000 + (uint64_t)i);
            for (int k = 0; k < 40; k++) {
                world_flush(world);
                cr_assert_gt(world_entry(world, i, 7, (size_t)(100 + 200 * k)), 0);
            }
            world_snapshot(world, i, 3 + (uint64_t)i);
            world_cut(world, i, 39);
            world_entry(world, i, 8, 50);
        }
        world_flush(world);
        directory->wals[w].exists = true;
        directory->wals[w].incarnation = 1;
        directory->wals[w].worker = w;
        directory->wals[w].disk = world->disk;
    }
    directory->manifest_bytes = manifest_encode(manifest, directory->manifest);
    directory->steps_left = UINT64_MAX;
    free(manifest);
    return directory;
}

static void expect_all(struct directory *directory, struct world_recovery *recovery,
                       struct world *worlds, const char *when)
{
    cr_assert_eq(recover_all(directory, recovery), 0, "%s", when);
    cr_assert_eq(recovery->rebuild.count, WORLD_REPLICAS, "%s", when);
    for (int w = 0; w < 2; w++) {
        for (int i = w; i < WORLD_REPLICAS; i += 2) {
            const struct world_state *want = &worlds[w].now[i];
            const char *wrong = world_compare_one(
                wal_rebuild_find(&recovery->rebuild, want->replica.replica_id), want);

            cr_assert_null(wrong, "%s: %s", when, wrong);
        }
    }
}

/* The worlds' disks went into the directory. */
static void free_worlds(struct world *worlds)
{
    for (int w = 0; w < 2; w++) {
        world_disk_init(&worlds[w].disk, 1);
        world_free(&worlds[w]);
    }
    free(worlds);
}

Test(wal_handover, any_number_of_workers_follows_any_other)
{
    struct world *worlds = calloc(2, sizeof *worlds);
    struct directory *directory = make_directory(worlds);
    static const uint32_t counts[] = {2, 1, 3, 3, 2, 1};
    struct world_recovery recovery;

    world_recovery_init(&recovery);
    expect_all(directory, &recovery, worlds, "at first");
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        cr_assert(start(directory, &recovery, counts[k]));
        expect_all(directory, &recovery, worlds, "after a start");
    }
    world_recovery_free(&recovery);
    free_directory(directory);
    free_worlds(worlds);
}

Test(wal_handover, a_crash_at_every_step_loses_nothing)
{
    struct world *worlds = calloc(2, sizeof *worlds);
    struct directory *original = make_directory(worlds);
    struct world_recovery recovery;
    uint64_t crashes = 0;
    bool survived = false;

    world_recovery_init(&recovery);
    for (uint64_t steps = 0; !survived; steps++) {
        struct directory *directory = copy_of(original);

        directory->steps_left = steps;
        survived = start(directory, &recovery, 3);
        cr_assert_eq(survived, !directory->failed);
        expect_all(directory, &recovery, worlds, "after a crash");
        /* The next start crashes in turn, in its middle; the one after goes through. */
        directory->steps_left = steps / 2;
        start(directory, &recovery, 1);
        expect_all(directory, &recovery, worlds, "after two crashes");
        directory->steps_left = UINT64_MAX;
        cr_assert(start(directory, &recovery, 2));
        expect_all(directory, &recovery, worlds, "after the start that went through");
        free_directory(directory);
        crashes += survived ? 0 : 1;
    }
    cr_assert_gt(crashes, 15, "only %llu steps", (unsigned long long)crashes);
    world_recovery_free(&recovery);
    free_directory(original);
    free_worlds(worlds);
}

/* Damage in one WAL costs its replicas, not the other WAL's. */
Test(wal_handover, a_damaged_wal_costs_its_own_replicas_only)
{
    struct world *worlds = calloc(2, sizeof *worlds);
    struct directory *directory = make_directory(worlds);
    struct manifest *manifest = manifest_of(directory);
    struct world_recovery recovery;
    uint64_t found[WORLD_REPLICAS];
    uint64_t missing[WORLD_REPLICAS];

    world_recovery_init(&recovery);
    directory->wals[0].disk.segments[0][100] ^= 1;
    cr_assert_eq(recover_all(directory, &recovery), -EBADMSG);
    cr_assert_eq(recovery.rebuild.count, 2);
    for (uint32_t i = 0; i < recovery.rebuild.count; i++) {
        found[i] = recovery.replicas[i].replica.replica_id;
        cr_assert_gt(found[i], 2000, "a replica of the damaged WAL");
    }
    cr_assert_eq(manifest_missing(manifest, found, 2, missing, WORLD_REPLICAS), 2);
    cr_assert(missing[0] == 1001 && missing[1] == 1002);
    world_recovery_free(&recovery);
    free(manifest);
    free_directory(directory);
    free_worlds(worlds);
}

/* A replica lives in one WAL of an incarnation: two answers about one vote would be worse than
 * none. */
Test(wal_handover, a_replica_in_two_wals_is_refused)
{
    struct world *worlds = calloc(2, sizeof *worlds);
    struct directory *directory = make_directory(worlds);
    struct world_recovery recovery;
    uint32_t count;

    world_recovery_init(&recovery);
    recovery.rebuild.count = 0;
    cr_assert_eq(world_recover_more(&recovery, &directory->wals[0].disk, 0), 0);
    count = recovery.rebuild.count;
    cr_assert_eq(world_recover_more(&recovery, &directory->wals[0].disk, 1), -EBADMSG);
    cr_assert_eq(recovery.rebuild.count, count);
    world_recovery_free(&recovery);
    free_directory(directory);
    free_worlds(worlds);
}

/* A new WAL that is too small says so and loses nothing. */
Test(wal_handover, too_small_a_wal_is_refused)
{
    struct world *world = malloc(sizeof *world);
    struct world_recovery recovery;
    struct wal_options small;
    struct wal_writer *writer;
    struct wal_write write;
    uint64_t next_index = 0;
    void *memory;
    int result = 0;

    world_init(world, 1, WORLD_IDENTITY);
    world_recovery_init(&recovery);
    world_add(world, 0);
    while (world_entry(world, 0, 1, 9000) > 0) {
        world_flush(world);
    }
    cr_assert_eq(world_recover(&recovery, &world->disk), 0);
    small = world->disk.options;
    small.segments_count = WAL_SEGMENTS_MIN;
    small.segment_bytes = 2 * (uint64_t)small.frame_bytes_max;
    memory = world_memory(wal_memory_bytes(&small));
    writer = wal_writer_init(memory, &small);
    while (result == 0) {
        result = wal_hand_over(writer, &recovery.replicas[0], &next_index);
        while (wal_next_write(writer, &write)) {
            wal_written(writer, write.sequence, 0);
        }
    }
    cr_assert_eq(result, -ENOSPC);
    free(memory);
    world_recovery_free(&recovery);
    world_free(world);
    free(world);
}
