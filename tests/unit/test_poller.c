/* SPDX-License-Identifier: Apache-2.0
 *
 * A plain program: sleeping, waking, and no lost wake-up in many hand-offs between two threads (to
 * be run under ThreadSanitizer too).
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "hw/clock.h"
#include "hw/mailbox.h"
#include "hw/poller.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define MILLISECOND_NS UINT64_C(1000000)
#define SECOND_NS      UINT64_C(1000000000)

enum { HANDOFFS = 200000 };

static struct poller *open_poller(enum poller_mode mode, uint64_t spin_ns)
{
    struct poller *poller;
    CHECK(poller_open(mode, spin_ns, &poller) == 0);
    return poller;
}

static void test_sleeps_until_deadline(void)
{
    struct poller *poller = open_poller(POLLER_ADAPTIVE, 0);
    uint64_t deadline_ns = clock_monotonic_ns() + 20 * MILLISECOND_NS;
    uint64_t now_ns = poller_rest(poller, false, deadline_ns);
    CHECK(now_ns >= deadline_ns && now_ns < deadline_ns + 10 * SECOND_NS);
    /* A deadline that has passed does not sleep, nor does an iteration that worked. */
    uint64_t before_ns = clock_monotonic_ns();
    poller_rest(poller, false, before_ns - 1);
    poller_rest(poller, true, before_ns + 100 * SECOND_NS);
    CHECK(clock_monotonic_ns() - before_ns < 50 * SECOND_NS);
    poller_close(poller);
}

static void test_busy_never_sleeps(void)
{
    struct poller *poller = open_poller(POLLER_BUSY, 0);
    uint64_t before_ns = clock_monotonic_ns();
    for (int i = 0; i < 1000; i++)
        poller_rest(poller, false, before_ns + 100 * SECOND_NS);
    CHECK(clock_monotonic_ns() - before_ns < 50 * SECOND_NS);
    poller_close(poller);
}

static void test_spins_after_work(void)
{
    struct poller *poller = open_poller(POLLER_ADAPTIVE, 2 * SECOND_NS);
    uint64_t before_ns = poller_rest(poller, true, UINT64_MAX);
    for (int i = 0; i < 1000; i++)
        poller_rest(poller, false, UINT64_MAX); /* would sleep for ever */
    CHECK(clock_monotonic_ns() - before_ns < 2 * SECOND_NS);
    poller_close(poller);
}

static void test_readable_descriptor_ends_sleep(void)
{
    struct poller *poller = open_poller(POLLER_ADAPTIVE, 0);
    int descriptor = eventfd(1, 0);
    CHECK(poller_add(poller, descriptor) == 0);
    for (int i = 0; i < 3; i++) /* level-triggered: as long as it is readable */
        poller_rest(poller, false, UINT64_MAX);
    CHECK(poller_add(poller, -1) < 0);
    close(descriptor);
    poller_close(poller);
}

static void test_wake_while_awake_ends_next_sleep_once(void)
{
    struct poller *poller = open_poller(POLLER_ADAPTIVE, 0);
    poller_wake(poller);
    poller_wake(poller);
    poller_rest(poller, false, UINT64_MAX); /* does not sleep */
    uint64_t deadline_ns = clock_monotonic_ns() + 20 * MILLISECOND_NS;
    CHECK(poller_rest(poller, false, deadline_ns) >= deadline_ns); /* the wake-up is used up */
    poller_close(poller);
}

/* ---- hand-offs ------------------------------------------------------------------------------- */

/* Two threads, each with a poller and a mailbox, pass one number to and fro. Each sleeps without a
 * deadline, so a lost wake-up hangs, and the test's time limit catches it. */
struct side {
    struct poller *poller;
    struct mailbox *mailbox;
    void *memory;
};

struct pair {
    struct side sides[2];
};

static void give(struct side *to, uint64_t number)
{
    uint64_t *space = mailbox_claim(to->mailbox);
    CHECK(space != NULL);
    *space = number;
    mailbox_publish(to->mailbox);
    poller_wake(to->poller);
}

static uint64_t take(struct side *from)
{
    for (;;) {
        const uint64_t *number = mailbox_peek(from->mailbox);
        if (number != NULL) {
            uint64_t taken = *number;
            mailbox_drop(from->mailbox);
            poller_rest(from->poller, true, UINT64_MAX);
            return taken;
        }
        poller_rest(from->poller, false, UINT64_MAX);
    }
}

static void *answer(void *argument)
{
    struct pair *pair = argument;
    for (uint64_t number = 0; number < HANDOFFS; number++) {
        CHECK(take(&pair->sides[1]) == number);
        give(&pair->sides[0], number);
    }
    return NULL;
}

static void test_no_lost_wake_up(uint64_t spin_ns)
{
    struct pair pair;
    for (int i = 0; i < 2; i++) {
        pair.sides[i].poller = open_poller(POLLER_ADAPTIVE, spin_ns);
        pair.sides[i].memory = aligned_alloc(64, mailbox_memory_bytes(2, 8));
        pair.sides[i].mailbox = mailbox_init(pair.sides[i].memory, 2, 8);
    }
    pthread_t other;
    CHECK(pthread_create(&other, NULL, answer, &pair) == 0);
    for (uint64_t number = 0; number < HANDOFFS; number++) {
        give(&pair.sides[1], number);
        CHECK(take(&pair.sides[0]) == number);
    }
    pthread_join(other, NULL);
    for (int i = 0; i < 2; i++) {
        poller_close(pair.sides[i].poller);
        free(pair.sides[i].memory);
    }
}

int main(void)
{
    test_sleeps_until_deadline();
    test_busy_never_sleeps();
    test_spins_after_work();
    test_readable_descriptor_ends_sleep();
    test_wake_while_awake_ends_next_sleep_once();
    test_no_lost_wake_up(0);    /* sleeps each time */
    test_no_lost_wake_up(3000); /* sometimes caught spinning, sometimes at the brink of sleep */
    return 0;
}
