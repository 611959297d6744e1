/* SPDX-License-Identifier: Apache-2.0
 *
 * Recovery over hostile segments. The input is a list of edits to a sound WAL of several segments:
 * {place, length, bytes}, each followed by an optional repair of the checksum of the frame that it
 * hit, so that the fuzzer gets past the checksums to the records. Whatever comes out: no crash, no
 * read beyond a segment, and what recovery calls intact can be handed over to a new WAL.
 */
#include "unit/wal_world.h"

#include "consensus/wal_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct world *fuzz_world;
static uint8_t *fuzz_sound[WORLD_SEGMENTS];
static struct wal_frame fuzz_frames[64];
static size_t fuzz_frames_count;
static struct world_recovery *fuzz_recovery;

static void fuzz_note_frame(const struct wal_write *write)
{
    if (fuzz_frames_count < 64) {
        memcpy(&fuzz_frames[fuzz_frames_count++], write->buffer, sizeof fuzz_frames[0]);
    }
}

static void fuzz_setup(void)
{
    fuzz_world = calloc(1, sizeof *fuzz_world);
    fuzz_recovery = calloc(1, sizeof *fuzz_recovery);
    world_init(fuzz_world, 3, WORLD_IDENTITY);
    world_recovery_init(fuzz_recovery);
    for (int i = 0; i < WORLD_REPLICAS; i++) {
        world_add(fuzz_world, i);
        world_hard(fuzz_world, i, 3, 9);
    }
    for (int k = 0; k < 60; k++) {
        int i = k % WORLD_REPLICAS;

        world_entry(fuzz_world, i, 3 + (uint64_t)k, (size_t)(100 * k));
        if (k % 7 == 0) {
            world_snapshot(fuzz_world, i, fuzz_world->logs[i].last_index - 1);
        }
        if (k % 11 == 0) {
            world_cut(fuzz_world, i, fuzz_world->logs[i].last_index);
        }
        if (k % 3 == 0 && world_begin_write(fuzz_world)) {
            fuzz_note_frame(&fuzz_world->write);
            world_end_write(fuzz_world);
        }
    }
    for (int s = 0; s < WORLD_SEGMENTS; s++) {
        fuzz_sound[s] = malloc(fuzz_world->disk.options.segment_bytes);
        memcpy(fuzz_sound[s], fuzz_world->disk.segments[s], fuzz_world->disk.options.segment_bytes);
    }
}

/* One edit; returns how much of the input it took. */
static size_t fuzz_edit(const uint8_t *data, size_t size)
{
    const struct wal_frame *frame = &fuzz_frames[data[0] % fuzz_frames_count];
    uint32_t at = (uint32_t)(data[1] | data[2] << 8) % frame->bytes;
    size_t length = data[3] % 32u;
    uint8_t *place = fuzz_world->disk.segments[frame->segment] + frame->offset;

    length = length < size - 4 ? length : size - 4;
    length = length < frame->bytes - at ? length : frame->bytes - at;
    memcpy(place + at, data + 4, length);
    if ((data[3] & 0x80) != 0) {
        struct wal_frame header;

        memcpy(&header, place, sizeof header);
        if (header.bytes > sizeof header && header.bytes <= frame->bytes) {
            header.checksum = wal_frame_checksum(place, &header);
            memcpy(place, &header, sizeof header);
        }
    }
    return 4 + length;
}

static void fuzz_hand_over(void)
{
    static void *memory;
    struct wal_options options = world_options(77);
    struct wal_writer *writer;

    if (memory == NULL) {
        memory = world_memory(wal_memory_bytes(&options));
    }
    writer = wal_writer_init(memory, &options);
    for (uint32_t i = 0; i < fuzz_recovery->rebuild.count && i < WORLD_REPLICAS; i++) {
        struct wal_write write;
        uint64_t next_index = 0;

        while (wal_hand_over(writer, &fuzz_recovery->replicas[i], &next_index) == 0) {
            if (wal_next_write(writer, &write)) {
                wal_written(writer, write.sequence, 0);
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (fuzz_world == NULL) {
        fuzz_setup();
    }
    for (int s = 0; s < WORLD_SEGMENTS; s++) {
        memcpy(fuzz_world->disk.segments[s], fuzz_sound[s], fuzz_world->disk.options.segment_bytes);
    }
    while (size > 4) {
        size_t taken = fuzz_edit(data, size);

        data += taken;
        size -= taken;
    }
    if (world_recover(fuzz_recovery, &fuzz_world->disk) == 0) {
        fuzz_hand_over();
    }
    return 0;
}
