/* SPDX-License-Identifier: Apache-2.0
 *
 * Taking a snapshot: the state at one applied index, in steps, while entries go on being applied.
 *
 * The state outside the records is copied at the beginning. Records are walked slab by slab; one
 * that changes before the walk has come to it is saved first, as it was, in a bounded buffer, and
 * put out ahead of the walk (the slabs' capture hook). The order of records in a snapshot does not
 * matter, so nothing has to be found again: a saved record is simply sent early.
 */
#include "dataplane/machine/snapshot.h"

#include <errno.h>
#include <string.h>

#include <xxhash.h>

enum {
    SAVED_BYTES_MIN = 256 * 1024,
    SAVED_BYTES_MAX = 8 * 1024 * 1024,
    SAVED_SHARE = 8, /* at most this part of the machine's memory */
};

enum capture_phase { CAPTURE_IDLE, CAPTURE_HEAD, CAPTURE_RECORDS, CAPTURE_TAIL, CAPTURE_DONE };

struct capture {
    enum capture_phase phase;
    bool overflowed;
    int slab;      /* where the walk is */
    uint32_t word; /* slots 64 * word on are next */
    uint64_t digest;
    struct snapshot_head head;
    /* Old versions not put out yet: whole groups of one record each, in [start, end). */
    uint8_t *saved;
    size_t saved_max, saved_start, saved_end;
};

/* ---- digest ---------------------------------------------------------------------------------- */

uint64_t digest_of_record(int slab, uint32_t slot, const void *record, size_t bytes)
{
    return XXH3_64bits_withSeed(record, bytes, mix64(((uint64_t)slab << 32 | slot) + 1));
}

uint64_t digest_of_state(const struct lock_state *state)
{
    return XXH3_64bits(state, sizeof(*state));
}

/* ---- saved versions -------------------------------------------------------------------------- */

static size_t saved_bytes_max(size_t memory_bytes)
{
    size_t share = memory_bytes / SAVED_SHARE / 64 * 64;
    if (share < SAVED_BYTES_MIN) {
        return SAVED_BYTES_MIN;
    }
    return share > SAVED_BYTES_MAX ? SAVED_BYTES_MAX : share;
}

static size_t header_bytes(void)
{
    return (sizeof(struct capture) + 63) / 64 * 64;
}

size_t capture_memory_bytes(size_t memory_bytes)
{
    return header_bytes() + saved_bytes_max(memory_bytes);
}

struct capture *capture_init(void *memory, size_t bytes)
{
    struct capture *capture = memory;
    memset(capture, 0, sizeof(*capture));
    capture->saved = (uint8_t *)memory + header_bytes();
    capture->saved_max = bytes - header_bytes();
    return capture;
}

/* Room for more at the end, made by moving what is left to the front if that is most of the gain.
 */
static bool saved_make_room(struct capture *capture, size_t bytes)
{
    if (bytes <= capture->saved_max - capture->saved_end) {
        return true;
    }
    if (capture->saved_start < capture->saved_max / 2) {
        return false;
    }
    size_t left = capture->saved_end - capture->saved_start;
    memmove(capture->saved, capture->saved + capture->saved_start, left);
    capture->saved_start = 0;
    capture->saved_end = left;
    return bytes <= capture->saved_max - capture->saved_end;
}

static size_t put_group(uint8_t *out, uint8_t slab, uint32_t word, uint64_t mask)
{
    struct snapshot_group group = {.slab = slab, .word = word, .mask = mask};
    memcpy(out, &group, sizeof(group));
    return sizeof(group);
}

/* The slabs' hook: the record is about to change. */
static void save_record(void *context, const struct slab *slab, uint32_t slot)
{
    struct lock_machine *machine = context;
    struct capture *capture = machine->capture;
    int number = (int)(slab - machine->slabs);
    if (capture->overflowed ||
        !saved_make_room(capture, sizeof(struct snapshot_group) + slab->record_bytes)) {
        capture->overflowed = true;
        return;
    }
    uint8_t *out = capture->saved + capture->saved_end;
    const void *record = slab_at(slab, slot);
    size_t bytes = put_group(out, (uint8_t)number, slot / 64, UINT64_C(1) << (slot % 64));
    memcpy(out + bytes, record, slab->record_bytes);
    capture->saved_end += bytes + slab->record_bytes;
    capture->digest += digest_of_record(number, slot, record, slab->record_bytes);
}

/* Moves whole saved groups out. */
static size_t drain_saved(const struct lock_machine *machine, uint8_t *out, size_t capacity)
{
    struct capture *capture = machine->capture;
    size_t bytes = 0;
    while (capture->saved_start < capture->saved_end) {
        const uint8_t *from = capture->saved + capture->saved_start;
        size_t group_bytes = sizeof(struct snapshot_group) + machine->slabs[from[0]].record_bytes;
        if (group_bytes > capacity - bytes) {
            return bytes;
        }
        memcpy(out + bytes, from, group_bytes);
        bytes += group_bytes;
        capture->saved_start += group_bytes;
    }
    capture->saved_start = 0;
    capture->saved_end = 0;
    return bytes;
}

/* ---- the walk -------------------------------------------------------------------------------- */

static size_t put_word(struct lock_machine *machine, uint8_t *out)
{
    struct capture *capture = machine->capture;
    struct slab *slab = &machine->slabs[capture->slab];
    uint64_t mask = slab_capture_word(slab, capture->word);
    if (mask == 0) {
        return 0;
    }
    size_t bytes = put_group(out, (uint8_t)capture->slab, capture->word, mask);
    for (; mask != 0; mask &= mask - 1) {
        uint32_t slot = capture->word * 64 + (uint32_t)__builtin_ctzll(mask);
        const void *record = slab_at(slab, slot);
        memcpy(out + bytes, record, slab->record_bytes);
        bytes += slab->record_bytes;
        capture->digest += digest_of_record(capture->slab, slot, record, slab->record_bytes);
    }
    return bytes;
}

/* Puts out what fits; at the end of the records moves on to the tail. */
static size_t walk(struct lock_machine *machine, uint8_t *out, size_t capacity)
{
    struct capture *capture = machine->capture;
    size_t bytes = 0;
    while (capture->slab < SLAB_COUNT) {
        const struct slab *slab = &machine->slabs[capture->slab];
        size_t word_bytes_max = sizeof(struct snapshot_group) + 64 * (size_t)slab->record_bytes;
        if (capture->word == slab_words(slab)) {
            capture->slab++;
            capture->word = 0;
            continue;
        }
        if (word_bytes_max > capacity - bytes) {
            return bytes;
        }
        bytes += put_word(machine, out + bytes);
        capture->word++;
    }
    capture->phase = CAPTURE_TAIL;
    return bytes;
}

static size_t put_tail(struct lock_machine *machine, uint8_t *out)
{
    struct capture *capture = machine->capture;
    struct snapshot_tail tail = {.digest = capture->digest + digest_of_state(&capture->head.state)};
    size_t bytes = put_group(out, SNAPSHOT_END, 0, 0);
    memcpy(out + bytes, &tail, sizeof(tail));
    capture->phase = CAPTURE_DONE;
    return bytes + sizeof(tail);
}

/* ---- interface ------------------------------------------------------------------------------- */

void lock_machine_snapshot_begin(struct lock_machine *machine)
{
    struct capture *capture = machine->capture;
    lock_machine_snapshot_abort(machine);
    capture->head = (struct snapshot_head){
        .magic = SNAPSHOT_MAGIC, .layout = SNAPSHOT_LAYOUT, .state = machine->state};
    for (int i = 0; i < SLAB_COUNT; i++) {
        capture->head.live[i] = machine->slabs[i].live;
        slab_capture_begin(&machine->slabs[i], save_record, machine);
    }
    capture->phase = CAPTURE_HEAD;
    capture->overflowed = false;
    capture->slab = 0;
    capture->word = 0;
    capture->digest = 0;
    capture->saved_start = 0;
    capture->saved_end = 0;
}

void lock_machine_snapshot_abort(struct lock_machine *machine)
{
    for (int i = 0; i < SLAB_COUNT; i++) {
        slab_capture_end(&machine->slabs[i]);
    }
    machine->capture->phase = CAPTURE_IDLE;
}

long lock_machine_snapshot_step(struct lock_machine *machine, uint8_t *out, size_t capacity)
{
    struct capture *capture = machine->capture;
    size_t bytes = 0;
    assert(capacity >= SNAPSHOT_WRITE_BYTES_MIN && capture->phase != CAPTURE_IDLE);
    if (capture->overflowed) {
        lock_machine_snapshot_abort(machine);
        return -ENOBUFS;
    }
    if (capture->phase == CAPTURE_HEAD) {
        memcpy(out, &capture->head, sizeof(capture->head));
        bytes = sizeof(capture->head);
        capture->phase = CAPTURE_RECORDS;
    }
    if (capture->phase == CAPTURE_RECORDS || capture->phase == CAPTURE_TAIL) {
        bytes += drain_saved(machine, out + bytes, capacity - bytes);
    }
    if (capture->phase == CAPTURE_RECORDS) {
        bytes += walk(machine, out + bytes, capacity - bytes);
    }
    if (capture->phase == CAPTURE_TAIL && capture->saved_start == capture->saved_end &&
        capacity - bytes >= sizeof(struct snapshot_group) + sizeof(struct snapshot_tail)) {
        bytes += put_tail(machine, out + bytes);
    }
    if (bytes == 0) {
        assert(capture->phase == CAPTURE_DONE);
        lock_machine_snapshot_abort(machine);
    }
    return (long)bytes;
}

uint64_t lock_machine_digest(const struct lock_machine *machine)
{
    uint64_t digest = digest_of_state(&machine->state);
    for (int number = 0; number < SLAB_COUNT; number++) {
        const struct slab *slab = &machine->slabs[number];
        for (uint32_t word = 0; word < slab_words(slab); word++) {
            for (uint64_t mask = slab_live_word(slab, word); mask != 0; mask &= mask - 1) {
                uint32_t slot = word * 64 + (uint32_t)__builtin_ctzll(mask);
                digest += digest_of_record(number, slot, slab_at(slab, slot), slab->record_bytes);
            }
        }
    }
    return digest;
}
