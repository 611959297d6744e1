/* SPDX-License-Identifier: Apache-2.0
 *
 * The fence: tokens only rise, in memory and on disk, through crashes at every step and damage of
 * every byte.
 */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdlib.h>

#include "belay/belay.h"
#include "durable_faults.h"

static char directory[64], path[96], lock_path[112];

static void setup(void)
{
    snprintf(directory, sizeof(directory), "/tmp/belay-fence-XXXXXX");
    cr_assert_not_null(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/tokens", directory);
    snprintf(lock_path, sizeof(lock_path), "%s.lock", path);
    fault_reset(-1, false);
}

static void teardown(void)
{
    char temporary[112];

    fault_reset(-1, false);
    snprintf(temporary, sizeof(temporary), "%s.new", path);
    unlink(temporary);
    unlink(path);
    unlink(lock_path);
    cr_assert_eq(rmdir(directory), 0);
}

static belay_fence *open_fence(const char *where)
{
    belay_fence *fence;
    cr_assert_eq(belay_fence_open(where, 100, &fence), BELAY_OK, "%s", belay_error_text());
    return fence;
}

TestSuite(fence, .init = setup, .fini = teardown);

Test(fence, the_bare_rule)
{
    uint64_t highest = 0;

    cr_assert(belay_fence_accept(&highest, 5) && highest == 5);
    cr_assert(belay_fence_accept(&highest, 5) && highest == 5);
    cr_assert_not(belay_fence_accept(&highest, 4));
    cr_assert(belay_fence_accept(&highest, UINT64_C(1) << 32));
    cr_assert_not(belay_fence_accept(&highest, UINT32_MAX));
    cr_assert(belay_fence_accept(&highest, UINT64_MAX) && highest == UINT64_MAX);
    cr_assert_not(belay_fence_accept(&highest, UINT64_MAX - 1));
}

static void check_rules(const char *where)
{
    belay_fence *fence = open_fence(where);

    cr_assert_eq(belay_fence_highest(fence, "a"), 0);
    cr_assert_eq(belay_fence_check(fence, "a", 10), BELAY_OK);
    cr_assert_eq(belay_fence_check(fence, "a", 10), BELAY_OK);
    cr_assert_eq(belay_fence_check(fence, "a", 9), BELAY_REFUSED);
    cr_assert_eq(belay_fence_check(fence, "a/b", 1), BELAY_OK, "keys are whole, not prefixes");
    cr_assert_eq(belay_fence_check(fence, "ab", 1), BELAY_OK);
    cr_assert_eq(belay_fence_check(fence, "a", UINT64_MAX), BELAY_OK);
    cr_assert_eq(belay_fence_check(fence, "a", (UINT64_C(1) << 32) + 10), BELAY_REFUSED);
    cr_assert_eq(belay_fence_highest(fence, "a"), UINT64_MAX);
    cr_assert_eq(belay_fence_highest(fence, "a/b"), 1);
    cr_assert_eq(belay_fence_check(fence, "", 1), BELAY_BAD_REQUEST);
    cr_assert_eq(belay_fence_check(fence, NULL, 1), BELAY_BAD_REQUEST);
    belay_fence_close(fence);
}

Test(fence, in_memory)
{
    check_rules(NULL);
}

Test(fence, in_a_file)
{
    check_rules(path);
    belay_fence *fence = open_fence(path);
    cr_assert_eq(belay_fence_highest(fence, "a"), UINT64_MAX, "it is still there");
    cr_assert_eq(belay_fence_check(fence, "a", 5), BELAY_REFUSED);
    belay_fence_close(fence);
}

Test(fence, keys_max)
{
    belay_fence *fence;

    cr_assert_eq(belay_fence_open(path, 2, &fence), BELAY_OK);
    cr_assert_eq(belay_fence_check(fence, "a", 1), BELAY_OK);
    cr_assert_eq(belay_fence_check(fence, "b", 1), BELAY_OK);
    cr_assert_eq(belay_fence_check(fence, "c", 1), BELAY_OVER_LIMIT);
    cr_assert_eq(belay_fence_check(fence, "a", 2), BELAY_OK, "nothing is lost");
    belay_fence_close(fence);
    cr_assert_eq(belay_fence_open(path, 1, &fence), BELAY_OVER_LIMIT, "more keys than asked for");
    cr_assert_null(fence);
    cr_assert_eq(belay_fence_open(path, 0, &fence), BELAY_BAD_REQUEST);
}

/* The order is what makes it durable: the bytes before the name, the name before the answer. */
Test(fence, order_of_steps)
{
    belay_fence *fence = open_fence(path);

    fault_reset(-1, false);
    cr_assert_eq(belay_fence_check(fence, "a", 1), BELAY_OK);
    cr_assert_str_eq(fault_steps, "wfrd");
    fault_reset(-1, false);
    cr_assert_eq(belay_fence_check(fence, "a", 1), BELAY_OK);
    cr_assert_eq(belay_fence_check(fence, "a", 0), BELAY_REFUSED);
    cr_assert_str_eq(fault_steps, "", "nothing new, nothing written");
    belay_fence_close(fence);
}

/* A crash at each step: OK was never said, and a restart finds the old token or the new one. */
Test(fence, crash_at_every_step)
{
    for (int step = 0; step < 4; step++) {
        belay_fence *fence = open_fence(path);
        uint64_t old = belay_fence_highest(fence, "a");
        cr_assert_eq(belay_fence_check(fence, "a", old + 10), BELAY_OK);
        fault_reset(step, true);
        cr_assert_eq(belay_fence_check(fence, "a", old + 20), BELAY_SYSTEM, "step %d", step);
        fault_reset(-1, false);
        cr_assert_eq(belay_fence_check(fence, "a", old + 30), BELAY_SYSTEM,
                     "no promise after a failed sync");
        belay_fence_close(fence);
        fence = open_fence(path);
        uint64_t found = belay_fence_highest(fence, "a");
        cr_assert(found == old + 10 || (step == 3 && found == old + 20), "step %d: %d", step,
                  (int)(found - old));
        cr_assert_eq(belay_fence_check(fence, "a", old + 9), BELAY_REFUSED);
        belay_fence_close(fence);
    }
}

static size_t read_file(uint8_t *bytes, size_t capacity)
{
    FILE *file = fopen(path, "rb");
    size_t length = fread(bytes, 1, capacity, file);
    fclose(file);
    return length;
}

static void write_file(const uint8_t *bytes, size_t length)
{
    FILE *file = fopen(path, "wb");
    cr_assert_eq(fwrite(bytes, 1, length, file), length);
    fclose(file);
}

/* Every cut and every spoilt byte is noticed; none is taken for a fence without tokens. */
Test(fence, damage)
{
    belay_fence *fence = open_fence(path);
    uint8_t good[512], bad[512];

    belay_fence_check(fence, "some key", 77);
    belay_fence_check(fence, "other", 78);
    belay_fence_close(fence);
    size_t length = read_file(good, sizeof(good));
    for (size_t at = 0; at < length; at++) {
        write_file(good, at);
        cr_assert_eq(belay_fence_open(path, 100, &fence), BELAY_SYSTEM, "cut at %zu", at);
        cr_assert_null(fence);
        memcpy(bad, good, length);
        bad[at] ^= 0x10;
        write_file(bad, length);
        cr_assert_eq(belay_fence_open(path, 100, &fence), BELAY_SYSTEM, "byte %zu", at);
        cr_assert_not_null(strstr(belay_error_text(), "damaged"));
    }
    write_file(good, length);
    fence = open_fence(path);
    cr_assert_eq(belay_fence_highest(fence, "other"), 78);
    belay_fence_close(fence);
}

/* Two openers of one file, as two processes would be: neither undoes what the other has raised. */
Test(fence, shared_file)
{
    belay_fence *one = open_fence(path), *two = open_fence(path);

    cr_assert_eq(belay_fence_check(one, "a", 5), BELAY_OK);
    cr_assert_eq(belay_fence_check(two, "a", 4), BELAY_REFUSED);
    cr_assert_eq(belay_fence_check(two, "b", 9), BELAY_OK);
    cr_assert_eq(belay_fence_check(one, "b", 8), BELAY_REFUSED);
    cr_assert_eq(belay_fence_highest(one, "b"), 9);
    cr_assert_eq(belay_fence_check(one, "c", 1), BELAY_OK);
    belay_fence_close(one);
    belay_fence_close(two);
    one = open_fence(path);
    cr_assert(belay_fence_highest(one, "a") == 5 && belay_fence_highest(one, "b") == 9);
    belay_fence_close(one);
}

/* An older copy of the file put back while it is in use is refused, not believed. */
Test(fence, rolled_back_file)
{
    belay_fence *fence = open_fence(path);
    uint8_t old[512];

    belay_fence_check(fence, "a", 5);
    size_t length = read_file(old, sizeof(old));
    belay_fence_check(fence, "a", 6);
    write_file(old, length);
    cr_assert_eq(belay_fence_check(fence, "a", 7), BELAY_SYSTEM);
    belay_fence_close(fence);
}

static void *raise_many(void *context)
{
    for (uint64_t token = 1; token <= 2000; token++)
        belay_fence_check(context, "k", token);
    return NULL;
}

Test(fence, threads)
{
    belay_fence *fence = open_fence(NULL);
    pthread_t threads[4];

    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, raise_many, fence);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    cr_assert_eq(belay_fence_highest(fence, "k"), 2000);
    belay_fence_close(fence);
}
