/* SPDX-License-Identifier: Apache-2.0
 *
 * An arena: one mapping made at start, on hugepages where there are any, handed out in pieces and
 * then sealed. The hot path lives in arenas and nowhere else.
 */
#ifndef BELAY_HW_ARENA_H
#define BELAY_HW_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct arena {
    unsigned char *base;
    size_t bytes;
    size_t used;
    bool hugepages; /* really got them */
    bool sealed;    /* no more allocation; asserted */
};

/* Maps `bytes` (rounded up). `want_hugepages`: try MAP_HUGETLB, then transparent ones. `prefault`:
 * touch every page now (else the kernel gives pages as they are used). 0 or negative errno. */
int arena_create(struct arena *arena, size_t bytes, bool want_hugepages, bool prefault);
/* Zero-filled, 64-byte aligned. Asserts that it fits and is not sealed. */
void *arena_take(struct arena *arena, size_t bytes);
void arena_seal(struct arena *arena);
void arena_destroy(struct arena *arena);

#endif
