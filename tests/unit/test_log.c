/* SPDX-License-Identifier: Apache-2.0
 *
 * The log ring: places, chain, cutting, releasing, receiving.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "consensus/log.h"

enum { RING = 4096, SLOTS = 64 };

static struct log a, b;

static void *start(struct log *log)
{
    void *memory = aligned_alloc(64, log_memory_bytes(RING, SLOTS));

    memset(memory, 0xee, log_memory_bytes(RING, SLOTS));
    log_init(log, memory, RING, SLOTS);
    return memory;
}

static void setup(void)
{
    start(&a);
    start(&b);
}

static void finish(void)
{
    free(a.ring);
    free(b.ring);
}

TestSuite(log_ring, .init = setup, .fini = finish);

static const struct log_entry *append(struct log *log, uint64_t term, size_t bytes, int fill)
{
    uint8_t *payload = log_reserve(log, bytes);

    if (payload == NULL)
        return NULL;
    memset(payload, fill, bytes);
    return log_append(log, LOG_COMMANDS, term, log->last_stamp_ns + 1, bytes);
}

/* Everything of `from` that `to` has not, in pieces of that size. */
static void ship(const struct log *from, struct log *to, size_t piece)
{
    while (to->received < from->end) {
        size_t length = from->end - to->received < piece ? from->end - to->received : piece;
        const uint8_t *bytes = log_read(from, to->received, &length);
        cr_assert(log_write(to, to->received, bytes, length));
    }
}

Test(log_ring, blank)
{
    cr_assert_eq(a.last_index, 0);
    cr_assert_eq(log_term(&a, 0), 0);
    cr_assert_eq(log_end_of(&a, 0), 0);
    cr_assert_null(log_at(&a, 0));
    cr_assert_null(log_at(&a, 1));
    cr_assert_eq(log_limit(&a), RING);
}

Test(log_ring, append_and_look)
{
    cr_assert_not_null(append(&a, 3, 5, 'x'));
    cr_assert_not_null(append(&a, 4, 0, 0));
    const struct log_entry *entry = log_at(&a, 1);
    cr_assert_eq(entry->index, 1);
    cr_assert_eq(entry->term, 3);
    cr_assert_eq(entry->payload_bytes, 5);
    cr_assert_eq(memcmp(log_entry_payload(entry), "xxxxx\0\0\0", 8), 0, "zero-filled");
    cr_assert_eq(log_end_of(&a, 1), 48);
    cr_assert_eq(log_end_of(&a, 2), 88);
    cr_assert_eq(log_term(&a, 2), 4);
    cr_assert_eq(log_term(&a, 3), 0);
    cr_assert_null(log_at(&a, 3));
}

/* A place is a function of the log, not of how much was reserved, nor of the pieces it came in. */
Test(log_ring, same_log_same_places)
{
    for (unsigned i = 0; i < 200; i++) {
        size_t bytes = i * 37 % 600;
        uint8_t *payload = log_reserve(&a, 900);
        cr_assert_not_null(payload);
        memset(payload, (int)i, bytes);
        log_append(&a, LOG_COMMANDS, 1 + i / 10, i, bytes);
        ship(&a, &b, 1 + i % 97);
        cr_assert_eq(log_adopt(&b, b.received, 4096, false), 1);
        cr_assert_eq(a.end, b.end);
        cr_assert_eq(a.last_checksum, b.last_checksum);
        const struct log_entry *entry = log_at(&b, i + 1);
        cr_assert_eq((const uint8_t *)entry - b.ring, (const uint8_t *)log_at(&a, i + 1) - a.ring);
        for (size_t j = 0; j < bytes; j++)
            cr_assert_eq(log_entry_payload(entry)[j], (uint8_t)i);
        if (i > 2) {
            log_release_to(&a, i - 1);
            log_release_to(&b, i - 1);
        }
    }
    cr_assert_gt(a.end, 10 * RING);
}

Test(log_ring, entries_never_wrap)
{
    cr_assert_not_null(append(&a, 1, 3000, 'a'));
    cr_assert_eq(log_start_position(&a, a.end, log_entry_bytes(1000)), a.end);
    cr_assert_eq(log_start_position(&a, a.end, log_entry_bytes(1100)), RING);
    cr_assert_null(log_reserve(&a, 1100), "its place is taken");
    log_release_to(&a, 1);
    cr_assert_not_null(append(&a, 1, 1100, 'b'));
    cr_assert_eq((const uint8_t *)log_at(&a, 2), a.ring);
    cr_assert_eq(a.end, RING + log_entry_bytes(1100));
}

Test(log_ring, full)
{
    unsigned count = 0;

    while (append(&a, 1, 0, 0) != NULL)
        count++;
    cr_assert_eq(count, SLOTS, "slots run out first");
    log_release_to(&a, 1);
    cr_assert_not_null(append(&a, 1, 0, 0));
    cr_assert_null(log_reserve(&b, RING));
    cr_assert_null(log_reserve(&b, SIZE_MAX - 100));
    cr_assert_not_null(append(&b, 1, RING - 40, 1));
    cr_assert_null(append(&b, 1, 0, 1));
}

Test(log_ring, cut)
{
    for (int i = 1; i <= 5; i++)
        append(&a, (uint64_t)i, 16, i);
    uint64_t checksum = log_at(&a, 3)->checksum, end = log_end_of(&a, 3);
    log_cut_above(&a, 3);
    cr_assert_eq(a.last_index, 3);
    cr_assert_eq(a.last_term, 3);
    cr_assert_eq(a.end, end);
    cr_assert_eq(a.received, end);
    cr_assert_eq(a.last_checksum, checksum);
    cr_assert_eq(a.last_stamp_ns, 3);
    cr_assert_null(log_at(&a, 4));
    /* cockroach#63302: what is read back is what was appended again. */
    append(&a, 9, 24, 'n');
    cr_assert_eq(log_at(&a, 4)->term, 9);
    cr_assert_eq(log_term(&a, 4), 9);
    log_release_to(&a, 2);
    log_cut_above(&a, 2);
    cr_assert_eq(a.last_index, 2);
    cr_assert_eq(a.last_term, 2);
    cr_assert_eq(log_term(&a, 2), 2);
}

/* Bytes of a former life behind the end never join the log, whether of an earlier lap or cut. */
Test(log_ring, stale_bytes)
{
    for (int i = 1; i <= 6; i++)
        append(&a, 1, 16, i);
    log_cut_above(&a, 4);
    cr_assert_eq(log_adopt(&a, a.received, 4096, false), 0, "entry 5 still lies there");
    log_cut_above(&a, 0);
    append(&a, 2, 16, 'z');
    cr_assert_eq(log_adopt(&a, log_limit(&a), 4096, false), 0,
                 "2 of term 1 does not follow 1 of term 2");
}

Test(log_ring, adopt_judges)
{
    append(&a, 1, 100, 'p');
    append(&a, 2, 30, 'q');
    size_t first = log_end_of(&a, 1);
    for (size_t at = 0; at < first; at++) { /* any byte of the first entry damaged */
        log_reset(&b, &(struct log_base){0});
        ship(&a, &b, 4096);
        b.ring[at] ^= 0x40;
        cr_assert_eq(log_adopt(&b, b.received, 4096, false), 0, "byte %zu", at);
        b.ring[at] ^= 0x40;
        cr_assert_eq(log_adopt(&b, b.received, 4096, false), 2);
    }
    log_reset(&b, &(struct log_base){0});
    ship(&a, &b, 4096);
    cr_assert_eq(log_adopt(&b, first + 69, 4096, false), 1, "the second is not complete");
    cr_assert_eq(log_adopt(&b, first + 80, 29, false), 0, "longer than allowed");
    cr_assert_eq(log_adopt(&b, first + 80, 30, false), 1);
}

/* Kinds that are not known, indexes, terms and stamps that do not follow: with a right checksum. */
Test(log_ring, adopt_judges_the_header)
{
    struct log_base base = {.index = 5, .term = 3, .position = 64, .checksum = 77, .stamp_ns = 9};

    for (int fault = 0; fault < 6; fault++) {
        struct log_base other = base;
        if (fault == 1)
            other.index = 6;
        if (fault == 2)
            other.checksum = 78;
        if (fault == 3)
            other.term = 2;
        if (fault == 4)
            other.stamp_ns = 7;
        log_reset(&a, &other);
        log_reset(&b, &base);
        cr_assert_not_null(log_reserve(&a, 8));
        log_append(&a, fault == 5 ? 99 : LOG_COMMANDS, fault == 3 ? 2 : 3, fault == 4 ? 8 : 9, 8);
        ship(&a, &b, 4096);
        cr_assert_eq(log_adopt(&b, b.received, 4096, false), fault == 0 ? 1u : 0u, "fault %d",
                     fault);
    }
}

Test(log_ring, write_rules)
{
    uint8_t bytes[64] = {1, 2, 3, 4};

    cr_assert(!log_write(&b, 8, bytes, 8), "a gap");
    cr_assert(log_write(&b, 0, bytes, 4));
    cr_assert(log_write(&b, 0, bytes, 4), "again: skipped");
    cr_assert_eq(b.received, 4);
    bytes[0] = 9;
    cr_assert(log_write(&b, 0, bytes, 8));
    cr_assert_eq(b.ring[0], 1, "what is received is not touched");
    cr_assert_eq(b.received, 8);
    cr_assert(!log_write(&b, UINT64_MAX - 3, bytes, 8));
    log_forget_received(&b);
    cr_assert_eq(b.received, 0);
    struct log_base late = {.index = 1, .term = 1, .position = RING - 8};
    log_reset(&b, &late);
    cr_assert(log_write(&b, RING - 8, bytes, 24), "over the ring's end");
    cr_assert_eq(b.ring[RING - 8], 9);
    cr_assert_eq(b.ring[8 + 7], bytes[23]);
    cr_assert(!log_write(&b, RING + 16, bytes, 2 * RING), "past the limit");
    while (log_limit(&b) - b.received >= 64)
        cr_assert(log_write(&b, b.received, bytes, 64));
    cr_assert(!log_write(&b, b.received, bytes, 64));
    cr_assert_eq(b.end, RING - 8, "writing moves no end");
}

Test(log_ring, recovery)
{
    for (int i = 1; i <= 5; i++)
        append(&a, 1, (size_t)i * 11, i);
    for (uint64_t index = 1; index <= 5; index++) {
        if (index > 1)
            cr_assert(!log_append_copy(&b, log_at(&a, index - 1)), "it is there already");
        if (index < 5)
            cr_assert(!log_append_copy(&b, log_at(&a, index + 1)), "a gap");
        cr_assert(log_append_copy(&b, log_at(&a, index)));
    }
    cr_assert_eq(a.end, b.end);
    cr_assert_eq(memcmp(a.ring, b.ring, a.end), 0);
    struct log_base base = {.index = 2, .term = 1, .position = 96, .checksum = 5, .stamp_ns = 1};
    log_reset(&b, &base); /* a snapshot of another history (hashicorp/raft#395, redisraft#43) */
    cr_assert(!log_append_copy(&b, log_at(&a, 3)));
}

Test(log_ring, base)
{
    for (int i = 1; i <= 5; i++)
        append(&a, 2, 16, i);
    log_release_to(&a, 3);
    cr_assert_null(log_at(&a, 3));
    cr_assert_eq(log_term(&a, 3), 2);
    cr_assert_eq(log_term(&a, 2), 0);
    cr_assert_eq(log_end_of(&a, 3), 3 * 56);
    cr_assert_eq(log_limit(&a), 3 * 56 + RING);
    log_release_to(&a, 2);
    cr_assert_eq(a.base.index, 3, "the base never goes back");
    struct log_base base = a.base;
    log_reset(&b, &base); /* what a snapshot at 3 gives: the rest follows on it */
    ship(&a, &b, 4096);
    cr_assert_eq(log_adopt(&b, b.received, 4096, false), 2);
    cr_assert_eq(b.last_checksum, a.last_checksum);
}

/* 64-bit positions, indexes and terms. */
Test(log_ring, edges)
{
    struct log_base base = {.index = UINT64_MAX - 3,
                            .term = UINT64_MAX - 1,
                            .position = (UINT64_C(1) << 40) + 8,
                            .stamp_ns = UINT64_MAX - 2};

    log_reset(&a, &base);
    log_reset(&b, &base);
    cr_assert_not_null(append(&a, UINT64_MAX, 8, 1));
    cr_assert_not_null(append(&a, UINT64_MAX, 8, 2));
    ship(&a, &b, 4096);
    cr_assert_eq(log_adopt(&b, b.received, 4096, false), 2);
    cr_assert_eq(b.last_index, UINT64_MAX - 1);
}
