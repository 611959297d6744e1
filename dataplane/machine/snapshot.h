/* SPDX-License-Identifier: Apache-2.0
 *
 * The snapshot's form, shared by snapshot.c and restore.c.
 *
 *     struct snapshot_head
 *     any number of: struct snapshot_group, then the records of its mask's set bits
 *     struct snapshot_group with slab SNAPSHOT_END, then struct snapshot_tail
 *
 * Groups come in no particular order: a record that changes while the snapshot is taken is put out
 * early, as it was. Each live record is there exactly once. Records and state are written as they
 * lie in memory (little-endian); links are slots and therefore hold after a restore.
 */
#ifndef BELAY_DATAPLANE_SNAPSHOT_H
#define BELAY_DATAPLANE_SNAPSHOT_H

#include "dataplane/machine/machine.h"

#define SNAPSHOT_MAGIC  UINT64_C(0x31504e5359414c42) /* "BLAYSNP1" */
#define SNAPSHOT_LAYOUT 1
enum { SNAPSHOT_END = 255, SNAPSHOT_WRITE_BYTES_MIN = 64 * 1024 };

struct snapshot_head {
    uint64_t magic;
    uint32_t layout;
    uint32_t zero;
    uint32_t live[SLAB_COUNT]; /* records of each slab that follow */
    struct lock_state state;
};

struct snapshot_group {
    uint8_t slab; /* enum slab_number, or SNAPSHOT_END */
    uint8_t zero[3];
    uint32_t word; /* slots 64 * word .. + 63 */
    uint64_t mask; /* which of them follow */
};
static_assert(sizeof(struct snapshot_group) == 16, "a group's head is 16 bytes");

struct snapshot_tail {
    uint64_t digest; /* of the state: lock_machine_digest at that index */
};

enum { SNAPSHOT_RECORD_BYTES_MAX = 320 };

/* Adds a record to a digest: order does not matter. */
uint64_t digest_of_record(int slab, uint32_t slot, const void *record, size_t bytes);
uint64_t digest_of_state(const struct lock_state *state);

/* `memory_bytes`: of the rest of the machine; bounds the buffer for old versions. */
size_t capture_memory_bytes(size_t memory_bytes);
/* `bytes`: what capture_memory_bytes said. */
struct capture *capture_init(void *memory, size_t bytes);
size_t restore_memory_bytes(void);
struct restore *restore_init(void *memory);

#endif
