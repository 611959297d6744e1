/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/machine/timers.h"

static uint64_t random_state;

static uint64_t draw(uint64_t below)
{
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % below;
}

struct twin {
    struct timers timers;
    void *memory;
    uint32_t max;
    uint64_t *ticks; /* TIMERS_NEVER = not armed */
    uint64_t *armed; /* arming sequence */
    uint64_t sequence;
};

static uint64_t tick_of(const void *context, uint32_t id)
{
    return ((const struct twin *)context)->ticks[id];
}

static struct twin *make(uint32_t max)
{
    struct twin *twin = calloc(1, sizeof(*twin));
    twin->memory = malloc(timers_memory_bytes(max));
    twin->max = max;
    twin->ticks = malloc(sizeof(uint64_t) * max);
    twin->armed = calloc(max, sizeof(uint64_t));
    memset(twin->ticks, 0xff, sizeof(uint64_t) * max);
    timers_init(&twin->timers, twin->memory, max, tick_of, twin);
    return twin;
}

static void drop(struct twin *twin)
{
    free(twin->memory);
    free(twin->ticks);
    free(twin->armed);
    free(twin);
}

static void arm(struct twin *twin, uint32_t id, uint64_t tick)
{
    twin->ticks[id] = tick;
    twin->armed[id] = ++twin->sequence;
    timers_arm(&twin->timers, id, tick);
}

static void disarm(struct twin *twin, uint32_t id)
{
    timers_disarm(&twin->timers, id, twin->ticks[id]);
    twin->ticks[id] = TIMERS_NEVER;
}

/* The first by (tick, arming sequence), by looking at all. */
static uint32_t first_of_all(const struct twin *twin)
{
    uint32_t first = TIMERS_NONE;
    for (uint32_t id = 0; id < twin->max; id++) {
        if (twin->ticks[id] != TIMERS_NEVER &&
            (first == TIMERS_NONE || twin->ticks[id] < twin->ticks[first] ||
             (twin->ticks[id] == twin->ticks[first] && twin->armed[id] < twin->armed[first]))) {
            first = id;
        }
    }
    return first;
}

static void check_next(const struct twin *twin)
{
    uint32_t first = first_of_all(twin);
    uint64_t bound = timers_next(&twin->timers);
    if (first == TIMERS_NONE) {
        cr_assert_eq(bound, TIMERS_NEVER);
        return;
    }
    cr_assert_leq(bound, twin->ticks[first]);
    /* Exact within the current block. */
    if (twin->ticks[first] >> TIMERS_BLOCK_BITS == twin->timers.cursor >> TIMERS_BLOCK_BITS) {
        cr_assert_eq(bound, twin->ticks[first]);
    }
}

/* Ends up to `endings_max` of what is due and compares each with the twin. */
static void end_due(struct twin *twin, uint64_t now, uint32_t endings_max)
{
    while (endings_max-- > 0) {
        uint32_t expected = first_of_all(twin);
        if (expected != TIMERS_NONE && twin->ticks[expected] > now) {
            expected = TIMERS_NONE;
        }
        uint32_t id = timers_first(&twin->timers, now);
        cr_assert_eq(id, expected, "at %" PRIu64 ": timer %u, expected %u", now, id, expected);
        if (id == TIMERS_NONE) {
            return;
        }
        disarm(twin, id);
    }
}

/* Spans of time that land in every level of the wheel. */
static uint64_t any_span(uint64_t scale)
{
    static const uint64_t spans[] = {3,
                                     60,
                                     5000,
                                     100000,
                                     UINT64_C(1) << 22,
                                     UINT64_C(1) << 25,
                                     UINT64_C(1) << 33,
                                     UINT64_C(1) << 36};
    return 1 + draw(spans[draw(scale)]);
}

static void churn(uint64_t seed, uint64_t start, uint64_t scale, int steps)
{
    struct twin *twin = make(120);
    uint64_t now = start;
    random_state = seed;
    timers_clear(&twin->timers, start);
    for (int step = 0; step < steps; step++) {
        uint32_t id = (uint32_t)draw(twin->max);
        if (twin->ticks[id] != TIMERS_NEVER) {
            disarm(twin, id);
        }
        if (draw(10) < 8) {
            arm(twin, id, now + any_span(scale));
        }
        if (draw(4) == 0) {
            now += draw(10) == 0 ? any_span(scale) : draw(40);
            timers_pace(&twin->timers, now);
            end_due(twin, now, draw(3) == 0 ? (uint32_t)draw(3) : UINT32_MAX);
        }
        check_next(twin);
        if (step % 500 == 0) {
            const char *wrong = timers_verify(&twin->timers);
            cr_assert_null(wrong, "seed %" PRIu64 " step %d: %s", seed, step, wrong);
        }
    }
    drop(twin);
}

Test(timers, end_in_the_order_of_a_sorted_list)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        churn(seed, 0, 2 + seed % 7, 4000);
    }
}

Test(timers, at_the_edges_of_time)
{
    churn(101, (UINT64_C(1) << 32) - 5000, 6, 4000);
    churn(102, (UINT64_C(1) << 44) - 5000, 6, 4000); /* stamps of 2^64-1 ns */
}

/* Two timers of one tick, the first armed far ahead and moved through the levels, the second armed
 * directly: the first ends first, whether or not the move was done in time. */
Test(timers, what_was_armed_first_ends_first)
{
    static const uint64_t spans[] = {9000, UINT64_C(1) << 23, UINT64_C(1) << 34};
    for (int paced = 0; paced < 2; paced++) {
        for (int s = 0; s < 3; s++) {
            struct twin *twin = make(8);
            uint64_t tick = spans[s] + 17;
            arm(twin, 5, tick);
            for (uint64_t now = 0; now + 100 < tick; now += spans[s] / 64 + 1) {
                if (paced) {
                    timers_pace(&twin->timers, now);
                }
                cr_assert_eq(timers_first(&twin->timers, now), TIMERS_NONE);
            }
            cr_assert_eq(timers_first(&twin->timers, tick - 50), TIMERS_NONE);
            arm(twin, 3, tick);
            cr_assert_null(timers_verify(&twin->timers));
            cr_assert_eq(timers_first(&twin->timers, tick - 1), TIMERS_NONE);
            end_due(twin, tick, 1);
            cr_assert_eq(timers_first(&twin->timers, tick), 3);
            drop(twin);
        }
    }
}

/* Many timers in one far instant: pacing moves them in small portions, in step with time. */
Test(timers, pacing_spreads_the_work)
{
    enum { MANY = 20000 };
    struct twin *twin = make(MANY);
    uint64_t tick = (UINT64_C(5) << TIMERS_BLOCK_BITS) + 7; /* block 5 */
    for (uint32_t id = 0; id < MANY; id++) {
        arm(twin, id, tick);
    }
    uint64_t opened_at = UINT64_C(4) << TIMERS_BLOCK_BITS;
    cr_assert_eq(timers_first(&twin->timers, opened_at), TIMERS_NONE);
    timers_pace(&twin->timers, opened_at);
    uint32_t head = twin->timers.far[0].first_head + 2 * 5 + 1; /* direct list of block 5 */
    uint64_t left = MANY;
    for (uint64_t now = opened_at; now < tick - 7; now += 32) {
        timers_pace(&twin->timers, now);
        uint64_t still = 0;
        for (uint32_t id = twin->timers.nodes[head].next; id < MANY;
             id = twin->timers.nodes[id].next) {
            still++;
        }
        cr_assert_leq(left - still, 1000, "%" PRIu64 " moved at once", left - still);
        left = still;
    }
    cr_assert_leq(left, 500, "%" PRIu64 " are left for the last moment", left);
    end_due(twin, tick, 50);
    cr_assert_null(timers_verify(&twin->timers));
    drop(twin);
}

/* Whoever comes every quarter of a second, and when timers_next() says so, never finds much to
 * move, and nothing at the end. */
Test(timers, asks_for_time_to_move)
{
    enum { MANY = 400000 };
    struct twin *twin = make(MANY);
    const uint64_t tick = (UINT64_C(5) << TIMERS_BLOCK_BITS) + 7;
    for (uint32_t id = 0; id < MANY; id++) {
        arm(twin, id, tick);
    }
    const uint64_t interval = 238;
    uint32_t calls = 0;
    uint64_t due = 0;
    for (uint64_t now = 0; now < tick; now = due < now + interval ? due : now + interval) {
        uint32_t before = twin->timers.far[0].counts[5];
        timers_pace(&twin->timers, now);
        cr_assert_eq(timers_first(&twin->timers, now), TIMERS_NONE);
        uint32_t moved = before - twin->timers.far[0].counts[5];
        cr_assert_leq(moved, 2 * TIMERS_MOVES, "%" PRIu32 " moved at %" PRIu64, moved, now);
        due = timers_next(&twin->timers);
        cr_assert_gt(due, now, "no time passes");
        calls++;
    }
    cr_assert_lt(calls, tick / interval + 4 * MANY / TIMERS_MOVES, "%" PRIu32 " calls", calls);
    cr_assert_eq(twin->timers.far[0].counts[5], 0, "some were left for the last moment");
    cr_assert_null(timers_verify(&twin->timers));
    drop(twin);
}

/* A year in which nothing happens costs nothing. */
Test(timers, skips_empty_time)
{
    struct twin *twin = make(4);
    uint64_t year = UINT64_C(31557600) * 1000000000 >> 20;
    arm(twin, 0, 100 * year);
    arm(twin, 1, 100 * year + 1);
    arm(twin, 2, 5);
    end_due(twin, 99 * year, 10);
    cr_assert_eq(twin->timers.armed, 2);
    cr_assert_leq(timers_next(&twin->timers), 100 * year);
    end_due(twin, 100 * year, 10);
    cr_assert_eq(timers_first(&twin->timers, 100 * year + 1), 1);
    cr_assert_null(timers_verify(&twin->timers));
    drop(twin);
}
