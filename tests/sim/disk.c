/* SPDX-License-Identifier: Apache-2.0
 *
 * One node's disk: WAL segments with one write in flight, snapshot files, the manifest. What a real
 * disk may do to a file that was never synced, this one does: a crash leaves any subset of the
 * sectors of the write in flight.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

enum {
    SECTOR_BYTES = 512,
    SEGMENT_BYTES = 384 * 1024,
    SEGMENTS = 8,
    FRAME_BYTES_MAX = 128 * 1024,
    REPLICAS_MAX = 2 * SIM_SHARDS_MAX,
};

struct wal_options sim_wal_options(const struct sim *sim, uint64_t identity)
{
    uint32_t least = wal_frame_bytes_min(REPLICAS_MAX, WAL_BLOCK_BYTES);
    struct wal_options options = {
        .identity = identity,
        .segment_bytes = SEGMENT_BYTES,
        .segments_count = SEGMENTS,
        .frame_bytes_max = FRAME_BYTES_MAX > least ? FRAME_BYTES_MAX : least,
        .block_bytes = WAL_BLOCK_BYTES,
        .replicas_max = REPLICAS_MAX,
    };

    (void)sim;
    assert(!wal_options_check(&options));
    return options;
}

/* ---- WAL directories ------------------------------------------------------------------------- */

struct sim_wal *sim_wal_of(struct sim_device *device, uint64_t incarnation)
{
    for (int i = 0; i < 2; i++) {
        if (incarnation && device->wals[i].incarnation == incarnation)
            return &device->wals[i];
    }
    return NULL;
}

struct sim_wal *sim_wal_create(struct sim_device *device, uint64_t incarnation)
{
    struct sim_wal *wal = device->wals[0].incarnation ? &device->wals[1] : &device->wals[0];

    assert(!wal->incarnation);
    wal->incarnation = incarnation;
    wal->bytes = calloc(SEGMENTS, SEGMENT_BYTES);
    assert(wal->bytes);
    device->written_count = 0;
    return wal;
}

static void wal_remove(struct sim_wal *wal)
{
    free(wal->bytes);
    *wal = (struct sim_wal){0};
}

void sim_wal_remove_others(struct sim_disk *disk, uint64_t keep)
{
    for (int w = 0; w < SIM_WORKERS_MAX; w++) {
        for (int i = 0; i < 2; i++) {
            struct sim_wal *wal = &disk->devices[w].wals[i];

            if (wal->incarnation && wal->incarnation != keep)
                wal_remove(wal);
        }
    }
}

int sim_disk_read(void *context, uint32_t segment, uint64_t offset, void *buffer, size_t bytes)
{
    const struct sim_wal *wal = context;

    if (segment >= SEGMENTS || offset + bytes > SEGMENT_BYTES)
        return -EIO;
    if (wal->bad_bytes && segment == wal->bad_segment &&
        offset < wal->bad_offset + wal->bad_bytes && wal->bad_offset < offset + bytes)
        return -EIO;
    memcpy(buffer, wal->bytes + (size_t)segment * SEGMENT_BYTES + offset, bytes);
    return 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void remember_written(struct sim_device *device, uint32_t segment, uint64_t offset,
                             uint32_t bytes)
{
    memmove(device->written + 1, device->written,
            sizeof device->written - sizeof device->written[0]);
    device->written[0].segment = segment;
    device->written[0].offset = offset;
    device->written[0].bytes = bytes;
    if (device->written_count < 16)
        device->written_count++;
}

void sim_disk_write_now(struct sim_device *device, struct sim_wal *wal,
                        const struct wal_write *write)
{
    assert(write->segment < SEGMENTS && write->offset + write->bytes <= SEGMENT_BYTES);
    memcpy(wal->bytes + (size_t)write->segment * SEGMENT_BYTES + write->offset, write->buffer,
           write->bytes);
    remember_written(device, write->segment, write->offset, write->bytes);
}

/* Takes back an earlier time for the same write. */
void sim_disk_due(struct sim_node *node, uint16_t worker, uint64_t at_ns)
{
    node->disk.devices[worker].due_order =
        sim_post(node->sim, at_ns, SIM_EV_NODE_DISK, node->id - 1u, node->epoch, worker, NULL);
}

void sim_disk_submit(struct sim_node *node, uint16_t worker, const struct wal_write *write)
{
    struct sim *sim = node->sim;
    struct sim_device *device = &node->disk.devices[worker];
    uint64_t done_ns =
        sim->now_ns + sim->weather.disk_ns + sim_below(sim, sim->weather.disk_spread_ns + 1);

    assert(!device->in_flight && write->offset + write->bytes <= SEGMENT_BYTES);
    if (done_ns < node->disk.stalled_until_ns)
        done_ns = node->disk.stalled_until_ns;
    device->in_flight = true;
    device->in_flight_done = false;
    device->sequence = write->sequence;
    device->segment = write->segment;
    device->offset = write->offset;
    device->bytes = write->bytes;
    device->copy = malloc(write->bytes);
    assert(device->copy);
    memcpy(device->copy, write->buffer, write->bytes);
    sim_disk_due(node, worker, done_ns);
}

static uint8_t *place_in_flight(struct sim_node *node, struct sim_device *device)
{
    struct sim_wal *wal = sim_wal_of(device, node->manifest->wal_incarnation);

    assert(wal);
    return wal->bytes + (size_t)device->segment * SEGMENT_BYTES + device->offset;
}

/* The bytes are on the platter; the process hears of it in its next turn. */
void sim_disk_complete(struct sim_node *node, uint16_t worker)
{
    struct sim_device *device = &node->disk.devices[worker];

    if (!device->in_flight || device->in_flight_done)
        return;
    memcpy(place_in_flight(node, device), device->copy, device->bytes);
    remember_written(device, device->segment, device->offset, device->bytes);
    device->in_flight_done = true;
    free(device->copy);
    device->copy = NULL;
}

/* A write that waits for the stall's end has been due for a while. */
void sim_disk_unstall(struct sim_node *node)
{
    if (node->sim->now_ns >= node->disk.stalled_until_ns)
        return;
    node->disk.stalled_until_ns = 0;
    for (uint16_t w = 0; w < SIM_WORKERS_MAX; w++) {
        if (node->disk.devices[w].in_flight && !node->disk.devices[w].in_flight_done)
            sim_disk_due(node, w, node->sim->now_ns);
    }
}

static void device_crash(struct sim_node *node, struct sim_device *device)
{
    struct sim *sim = node->sim;

    if (device->in_flight && !device->in_flight_done) {
        uint8_t *place = place_in_flight(node, device);
        uint32_t kept_permille = (uint32_t)sim_below(sim, 3) * 500; /* nothing, some, all of it */

        for (uint32_t at = 0; at < device->bytes; at += SECTOR_BYTES) {
            if (sim_chance(sim, kept_permille))
                memcpy(place + at, device->copy + at, SECTOR_BYTES);
        }
        free(device->copy);
        device->copy = NULL;
    }
    device->in_flight = device->in_flight_done = false;
}

void sim_disk_crash(struct sim_node *node)
{
    for (int w = 0; w < SIM_WORKERS_MAX; w++)
        device_crash(node, &node->disk.devices[w]);
    node->disk.stalled_until_ns = 0;
    node->disk.fail_next = false;
}

static uint8_t *place_written(const struct sim_device *device, struct sim_wal *wal, uint32_t which)
{
    return wal->bytes + (size_t)device->written[which].segment * SEGMENT_BYTES +
           device->written[which].offset;
}

/* Bits flip; the write never arrived, or arrived somewhere else; sectors cannot be read. */
static const char *damage(struct sim *sim, struct sim_device *device, struct sim_wal *wal,
                          uint32_t which)
{
    uint8_t *place = place_written(device, wal, which);
    uint32_t bytes = device->written[which].bytes;
    uint32_t other = 1 + (uint32_t)sim_below(sim, device->written_count - 1);

    switch (sim_below(sim, 4)) {
    case 0:
        wal->bad_segment = device->written[which].segment;
        wal->bad_offset = device->written[which].offset + sim_below(sim, bytes) / 512 * 512;
        wal->bad_bytes = 512;
        return "a sector cannot be read";
    case 1:
        memset(place, 0, bytes);
        return "the write was lost";
    case 2:
        if (other == which)
            break;
        memcpy(place_written(device, wal, other), place,
               bytes < device->written[other].bytes ? bytes : device->written[other].bytes);
        memset(place, 0, bytes);
        return "the write went elsewhere";
    default:
        break;
    }
    for (int i = 0; i < 3; i++)
        place[sim_below(sim, bytes)] ^= (uint8_t)(1u << sim_below(sim, 8));
    return "bits rot";
}

bool sim_disk_rot(struct sim_node *node)
{
    struct sim *sim = node->sim;
    struct sim_device *device = &node->disk.devices[sim_below(sim, node->workers)];
    struct manifest *manifest = node->manifest;
    struct sim_wal *wal = sim_wal_of(device, manifest->wal_incarnation);
    const char *what;
    uint32_t which;

    /* The newest frame, damaged, is a torn one as far as anybody can tell: not it, and not one
     * that the newest may have made superfluous. */
    if (!wal || device->written_count < 3)
        return false;
    which = 1 + (uint32_t)sim_below(sim, device->written_count - 2);
    what = damage(sim, device, wal, which);
    sim_trace(sim, "n%u    %s: frame -%u, segment %u offset %llu", node->id, what, which,
              device->written[which].segment, (unsigned long long)device->written[which].offset);
    return true;
}

/* ---- files ----------------------------------------------------------------------------------- */

static void file_remove(struct sim_file *file)
{
    free(file->bytes);
    *file = (struct sim_file){0};
}

void sim_disk_wipe(struct sim_disk *disk)
{
    disk->manifest_length = 0;
    sim_wal_remove_others(disk, 0);
    for (int i = 0; i < SIM_FILES_MAX; i++)
        file_remove(&disk->files[i]);
    for (int w = 0; w < SIM_WORKERS_MAX; w++)
        disk->devices[w].written_count = 0;
    disk->full = false;
}

struct sim_file *sim_file_newest(struct sim_disk *disk, uint64_t replica, uint64_t below)
{
    struct sim_file *newest = NULL;

    for (int i = 0; i < SIM_FILES_MAX; i++) {
        struct sim_file *file = &disk->files[i];

        if (file->used && file->replica == replica && file->index < below &&
            (!newest || snapshot_is_newer(file->index, newest->index)))
            newest = file;
    }
    return newest;
}

void sim_file_sweep(struct sim_disk *disk, struct manifest *manifest)
{
    for (int i = 0; i < SIM_FILES_MAX; i++) {
        if (disk->files[i].used && !manifest_find(manifest, disk->files[i].replica))
            file_remove(&disk->files[i]);
    }
}

/* Takes the file's bytes; the newest two of a replica stay. */
void sim_file_keep(struct sim_disk *disk, struct sim_file *file)
{
    struct sim_file *free_file = NULL;
    struct sim_file *newest;
    struct sim_file *second;

    for (int i = 0; i < SIM_FILES_MAX; i++) {
        if (disk->files[i].used && disk->files[i].replica == file->replica &&
            disk->files[i].index == file->index)
            file_remove(&disk->files[i]);
        if (!disk->files[i].used)
            free_file = &disk->files[i];
    }
    assert(free_file);
    *free_file = *file;
    free_file->used = true;
    *file = (struct sim_file){0};
    newest = sim_file_newest(disk, free_file->replica, UINT64_MAX);
    second = sim_file_newest(disk, newest->replica, newest->index);
    for (int i = 0; second && i < SIM_FILES_MAX; i++) {
        if (disk->files[i].used && disk->files[i].replica == newest->replica &&
            disk->files[i].index < second->index)
            file_remove(&disk->files[i]);
    }
}

/* One atomic rename. */
void sim_manifest_save(struct sim_node *node)
{
    node->disk.manifest_length = manifest_encode(node->manifest, node->disk.manifest);
}
