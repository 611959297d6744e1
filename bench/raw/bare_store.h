/* SPDX-License-Identifier: Apache-2.0
 *
 * What one node of the bare chain keeps: a ring of bytes and, with a disk, the file they go to.
 */
#ifndef BELAY_BENCH_RAW_BARE_STORE_H
#define BELAY_BENCH_RAW_BARE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hw/disk.h"

enum { BARE_RING_BYTES = 4 << 20, BARE_FRAME_BYTES_MAX = 256 << 10 };

struct bare_store {
    uint8_t *ring;
    uint64_t end;       /* bytes taken */
    uint64_t submitted; /* of those, given to the disk; <= end */
    uint64_t durable;   /* of those, there; <= submitted; without a disk always = end */
    struct disk *disk;  /* NULL = memory */
    uint8_t *frame;     /* in flight while durable < submitted */
    uint64_t offset;    /* in the file, of the next write */
};

/* directory NULL = memory. In the process that will use it. Ends the program if it cannot be. */
void bare_store_open(struct bare_store *store, const char *directory);
/* The next `bytes` of the ring; never wraps inside (the ring's end is skipped by copying). */
void bare_store_put(struct bare_store *store, const void *bytes, size_t length);
void bare_store_read(const struct bare_store *store, uint64_t position, void *bytes, size_t length);
/* Takes what the disk finished and gives it what there is. */
void bare_store_turn(struct bare_store *store);

#endif
