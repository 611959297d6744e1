/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/machine/slab.h"

static uint64_t random_state;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) % below;
}

static struct slab make(uint32_t capacity, uint32_t record_bytes)
{
    struct slab slab;
    size_t bytes = slab_memory_bytes(capacity, record_bytes);
    cr_assert_eq(bytes % 64, 0);
    void *memory = aligned_alloc(64, bytes);
    memset(memory, 0xee, bytes); /* it must not rely on zeroes */
    slab_init(&slab, memory, capacity, record_bytes);
    return slab;
}

Test(slab, takes_the_lowest_free_slot)
{
    static const uint32_t capacities[] = {1, 2, 63, 64, 65, 4095, 4096, 4097, 70000};
    for (size_t c = 0; c < sizeof(capacities) / sizeof(capacities[0]); c++) {
        uint32_t capacity = capacities[c];
        struct slab slab = make(capacity, 8);
        for (uint32_t i = 0; i < capacity; i++) {
            cr_assert_eq(slab_take(&slab), i, "capacity %u", capacity);
        }
        cr_assert_eq(slab_take(&slab), SLAB_NONE);
        cr_assert_eq(slab.live, capacity);
        slab_free(&slab, capacity - 1);
        if (capacity > 2) {
            slab_free(&slab, capacity / 2);
            cr_assert_eq(slab_take(&slab), capacity / 2);
        }
        cr_assert_eq(slab_take(&slab), capacity - 1);
        free(slab.records);
    }
}

Test(slab, agrees_with_a_plain_array)
{
    enum { CAPACITY = 9000 };
    struct slab slab = make(CAPACITY, 24);
    bool *live = calloc(CAPACITY, sizeof(*live));
    uint32_t count = 0;
    random_state = 7;
    for (int step = 0; step < 200000; step++) {
        /* Swings between nearly empty and full. */
        bool take = draw(100) < (step / 20000 % 2 == 0 ? 60u : 40u);
        if (take) {
            uint32_t lowest = 0;
            while (lowest < CAPACITY && live[lowest]) {
                lowest++;
            }
            uint32_t slot = slab_take(&slab);
            cr_assert_eq(slot, lowest == CAPACITY ? SLAB_NONE : lowest);
            if (slot != SLAB_NONE) {
                live[slot] = true;
                count++;
            }
        } else if (count > 0) {
            uint32_t slot = draw(CAPACITY);
            while (!live[slot]) {
                slot = (slot + 1) % CAPACITY;
            }
            slab_free(&slab, slot);
            live[slot] = false;
            count--;
        }
        cr_assert_eq(slab.live, count);
    }
    for (uint32_t slot = 0; slot < CAPACITY; slot++) {
        cr_assert_eq(slab_is_live(&slab, slot), live[slot]);
    }
    cr_assert_not(slab_is_live(&slab, CAPACITY));
    cr_assert_not(slab_is_live(&slab, SLAB_NONE));
    free(live);
    free(slab.records);
}

Test(slab, slots_do_not_depend_on_the_capacity)
{
    struct slab small = make(100, 8);
    struct slab large = make(100000, 8);
    random_state = 3;
    for (int step = 0; step < 5000; step++) {
        if (small.live < 100 && draw(2) == 0) {
            cr_assert_eq(slab_take(&small), slab_take(&large));
        } else if (small.live > 0) {
            uint32_t slot = draw(100);
            while (!slab_is_live(&small, slot)) {
                slot = (slot + 1) % 100;
            }
            slab_free(&small, slot);
            slab_free(&large, slot);
        }
    }
    free(small.records);
    free(large.records);
}

Test(slab, claims_each_slot_once)
{
    struct slab slab = make(130, 8);
    cr_assert(slab_claim(&slab, 129));
    cr_assert(slab_claim(&slab, 0));
    cr_assert_not(slab_claim(&slab, 0));
    cr_assert_not(slab_claim(&slab, 130));
    cr_assert_not(slab_claim(&slab, UINT32_MAX));
    cr_assert_eq(slab_take(&slab), 1);
    cr_assert_eq(slab.live, 3);
    free(slab.records);
}

/* ---- capture --------------------------------------------------------------------------------- */

enum { CAPTURED = 3000 };

struct seen {
    uint64_t values[CAPTURED]; /* as captured; 0 = not */
    uint32_t handed;
};

static void note(struct seen *seen, const struct slab *slab, uint32_t slot)
{
    cr_assert_eq(seen->values[slot], 0, "slot %u came twice", slot);
    memcpy(&seen->values[slot], slab_at(slab, slot), sizeof(uint64_t));
}

static void on_change(void *context, const struct slab *slab, uint32_t slot)
{
    struct seen *seen = context;
    note(seen, slab, slot);
    seen->handed++;
}

static void put_value(struct slab *slab, uint32_t slot, uint64_t value)
{
    slab_touch(slab, slot);
    memcpy(slab->records + (size_t)slot * slab->record_bytes, &value, sizeof(value));
}

/* Whatever happens between the steps, what is captured is what was there at the beginning. */
Test(slab, capture_is_of_one_moment)
{
    struct slab slab = make(CAPTURED, 16);
    struct seen *seen = calloc(1, sizeof(*seen));
    uint64_t *before = calloc(CAPTURED, sizeof(*before));
    uint64_t value = 1;
    random_state = 11;
    for (int i = 0; i < 2500; i++) {
        put_value(&slab, slab_take(&slab), value++);
    }
    for (int i = 0; i < 500; i++) {
        uint32_t slot = draw(2500);
        if (slab_is_live(&slab, slot)) {
            slab_free(&slab, slot);
        }
    }
    for (uint32_t slot = 0; slot < CAPTURED; slot++) {
        if (slab_is_live(&slab, slot)) {
            memcpy(&before[slot], slab_at(&slab, slot), sizeof(uint64_t));
        }
    }
    slab_capture_begin(&slab, on_change, seen);
    for (uint32_t word = 0; word < slab_words(&slab); word++) {
        for (int change = 0; change < 30; change++) {
            uint32_t slot = draw(CAPTURED);
            if (!slab_is_live(&slab, slot)) {
                put_value(&slab, slab_take(&slab), value++);
            } else if (draw(2) == 0) {
                slab_free(&slab, slot);
            } else {
                put_value(&slab, slot, value++);
            }
        }
        for (uint64_t mask = slab_capture_word(&slab, word); mask != 0; mask &= mask - 1) {
            note(seen, &slab, word * 64 + (uint32_t)__builtin_ctzll(mask));
        }
    }
    slab_capture_end(&slab);
    cr_assert_gt(seen->handed, 100);
    for (uint32_t slot = 0; slot < CAPTURED; slot++) {
        cr_assert_eq(seen->values[slot], before[slot], "slot %u", slot);
    }
    put_value(&slab, slab_take(&slab), value); /* after the end nothing is handed over */
    free(seen);
    free(before);
    free(slab.records);
}
