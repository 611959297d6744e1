/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "hw/arena.h"

/* What the kernel was asked for last as hugepages (0 = nothing), and whether it has any. */
static int hugepages_flags;
static bool no_hugepages;

void *__real_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset);

void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset)
{
    if (flags & MAP_HUGETLB) {
        hugepages_flags = flags;
        if (no_hugepages) {
            errno = ENOMEM;
            return MAP_FAILED;
        }
    }
    return __real_mmap(address, bytes, protection, flags, file, offset);
}

static void use_up(bool want_hugepages, bool prefault)
{
    struct arena arena;
    cr_assert_eq(arena_create(&arena, 3 << 20, want_hugepages, prefault), 0);
    cr_assert_geq(arena.bytes, 3 << 20);
    unsigned char *first = arena_take(&arena, 1);
    unsigned char *second = arena_take(&arena, 100);
    cr_assert_eq((uintptr_t)first % 64, 0);
    cr_assert_eq(second, first + 64, "pieces do not share a cache line");
    for (int i = 0; i < 100; i++)
        cr_assert_eq(second[i], 0);
    memset(second, 1, 100);
    size_t rest = arena.bytes - arena.used;
    unsigned char *third = arena_take(&arena, rest);
    cr_assert_eq(third, second + 128);
    memset(third, 2, rest);
    cr_assert_eq(arena.used, arena.bytes);
    arena_destroy(&arena);
    cr_assert_null(arena.base);
}

Test(arena, ordinary_pages)
{
    use_up(false, false);
}

Test(arena, ordinary_pages_prefaulted)
{
    use_up(false, true);
}

Test(arena, hugepages_or_what_there_is)
{
    use_up(true, true);
}

/* A machine's default may be 1 GiB, of which arenas are no multiple. */
Test(arena, hugepages_are_asked_for_by_their_size)
{
    struct arena arena;
    cr_assert_eq(arena_create(&arena, 3 << 20, true, false), 0);
    cr_assert_eq((hugepages_flags >> MAP_HUGE_SHIFT) & MAP_HUGE_MASK, 21, "2^21 bytes");
    cr_assert_eq(arena.bytes, 4 << 20);
    arena_destroy(&arena);
}

Test(arena, without_hugepages_others_do)
{
    struct arena arena;
    no_hugepages = true;
    cr_assert_eq(arena_create(&arena, 3 << 20, true, true), 0);
    cr_assert(!arena.hugepages);
    memset(arena_take(&arena, arena.bytes), 1, arena.bytes);
    arena_destroy(&arena);
}

Test(arena, ordinary_pages_are_no_hugepages)
{
    struct arena arena;
    cr_assert_eq(arena_create(&arena, 3 << 20, false, false), 0);
    cr_assert_eq(hugepages_flags, 0);
    arena_destroy(&arena);
}

Test(arena, prefaulted_pages_are_resident)
{
    struct arena arena;
    cr_assert_eq(arena_create(&arena, 1 << 20, false, true), 0);
    unsigned char resident[256];
    cr_assert_eq(mincore(arena.base, 1 << 20, resident), 0);
    for (int i = 0; i < 256; i++)
        cr_assert(resident[i] & 1);
    arena_destroy(&arena);
}

Test(arena, transparent_hugepages_are_aligned)
{
    struct arena arena;
    cr_assert_eq(arena_create(&arena, 5 << 20, true, false), 0);
    cr_assert_eq((uintptr_t)arena.base % (2 << 20), 0);
    cr_assert_eq(arena.bytes, 6 << 20);
    arena_destroy(&arena);
}

Test(arena, impossible_sizes)
{
    struct arena arena;
    cr_assert_eq(arena_create(&arena, SIZE_MAX, false, false), -ENOMEM);
    cr_assert_eq(arena_create(&arena, SIZE_MAX, true, false), -ENOMEM);
    cr_assert_eq(arena_create(&arena, SIZE_MAX / 2, true, false), -ENOMEM);
}

Test(arena, beyond_its_end, .signal = SIGABRT)
{
    struct arena arena;
    cr_assert_eq(arena_create(&arena, 4096, false, false), 0);
    arena_take(&arena, 4000);
    arena_take(&arena, 4000);
}

Test(arena, rounding_does_not_overflow, .signal = SIGABRT)
{
    struct arena arena;
    cr_assert_eq(arena_create(&arena, 4096, false, false), 0);
    arena_take(&arena, SIZE_MAX);
}

Test(arena, sealed, .signal = SIGABRT)
{
    struct arena arena;
    cr_assert_eq(arena_create(&arena, 4096, false, false), 0);
    arena_seal(&arena);
    arena_take(&arena, 1);
}
