/* SPDX-License-Identifier: Apache-2.0
 *
 * See hw/arena.h.
 */
#include "hw/arena.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#ifndef MAP_HUGE_2MB
#define MAP_HUGE_2MB (21 << MAP_HUGE_SHIFT)
#endif

#define HUGEPAGE_BYTES ((size_t)2 << 20)

enum { ARENA_ALIGNMENT = 64 };

/* 0 on overflow: no mapping has that size. */
static size_t round_up(size_t bytes, size_t unit)
{
    if (bytes > SIZE_MAX - (unit - 1))
        return 0;
    return (bytes + unit - 1) / unit * unit;
}

static void *map(size_t bytes, int flags)
{
    void *base =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    return base == MAP_FAILED ? NULL : base;
}

/* A mapping that begins at a hugepage boundary, so that transparent hugepages can cover all of it:
 * one page too many is mapped and what sticks out at both ends is given back. */
static void *map_aligned(size_t bytes)
{
    if (bytes > SIZE_MAX - HUGEPAGE_BYTES)
        return NULL;
    unsigned char *raw = map(bytes + HUGEPAGE_BYTES, 0);
    if (raw == NULL)
        return NULL;
    size_t before = (HUGEPAGE_BYTES - (uintptr_t)raw % HUGEPAGE_BYTES) % HUGEPAGE_BYTES;
    size_t after = HUGEPAGE_BYTES - before;
    if (before > 0)
        munmap(raw, before);
    if (after > 0)
        munmap(raw + before + bytes, after);
    return raw + before;
}

/* Populating by madvise reports a lack of memory; touching pages by hand would be killed for it. */
static int populate(unsigned char *base, size_t bytes, size_t page_bytes)
{
    if (madvise(base, bytes, MADV_POPULATE_WRITE) == 0)
        return 0;
    if (errno != EINVAL)
        return -errno;
    for (size_t at = 0; at < bytes; at += page_bytes) /* a kernel before 5.14 */
        ((volatile unsigned char *)base)[at] = 0;
    return 0;
}

int arena_create(struct arena *arena, size_t bytes, bool want_hugepages, bool prefault)
{
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    *arena = (struct arena){0};
    arena->bytes = round_up(bytes > 0 ? bytes : 1, want_hugepages ? HUGEPAGE_BYTES : page_bytes);
    if (arena->bytes == 0)
        return -ENOMEM;
    if (want_hugepages) {
        /* Of this size, to which the arena is rounded up, and not of the machine's default. */
        arena->base = map(arena->bytes, MAP_HUGETLB | MAP_HUGE_2MB);
        arena->hugepages = arena->base != NULL;
        if (arena->base == NULL) {
            arena->base = map_aligned(arena->bytes);
            /* Advice only: where the kernel has none, ordinary pages do. */
            if (arena->base != NULL)
                (void)madvise(arena->base, arena->bytes, MADV_HUGEPAGE);
        }
    } else {
        arena->base = map(arena->bytes, 0);
    }
    if (arena->base == NULL)
        return -ENOMEM;
    int result = prefault ? populate(arena->base, arena->bytes, page_bytes) : 0;
    if (result < 0)
        arena_destroy(arena);
    return result;
}

void *arena_take(struct arena *arena, size_t bytes)
{
    assert(!arena->sealed);
    size_t rounded = round_up(bytes, ARENA_ALIGNMENT);
    assert(rounded >= bytes && rounded <= arena->bytes - arena->used);
    void *piece = arena->base + arena->used;
    arena->used += rounded;
    return piece; /* never taken before, so still as the kernel gave it: zero */
}

void arena_seal(struct arena *arena)
{
    arena->sealed = true;
}

void arena_destroy(struct arena *arena)
{
    if (arena->base != NULL)
        munmap(arena->base, arena->bytes);
    *arena = (struct arena){0};
}
