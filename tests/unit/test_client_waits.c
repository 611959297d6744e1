/* SPDX-License-Identifier: Apache-2.0
 *
 * Acquires that wait: pushes, polls, wait limits, and cancelling at every point. What ended at the
 * client must never leave a ghost waiter or a grant that nobody knows (curator#600, kazoo#760).
 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include "client_steps.h"

static void nothing_is_left(struct fake *f, uint32_t leases)
{
    cr_assert_eq(fake_leases(f), leases);
    cr_assert_eq(fake_waiters(f), 0);
    cr_assert_eq(counts_of(f).requests, 0);
    cr_assert_eq(counts_of(f).locks, leases);
}

Test(waits, push_brings_the_grant)
{
    struct fake *f = fake_new(NULL);
    core_ref first = fake_acquire(f, "a", 60000, 1);

    ask(f, "a", 60000, UINT64_MAX, 2);
    fake_run(f, 1000);
    cr_assert_null(fake_completion(f, 2));
    uint32_t polls = fake_sent_ops(f, WIRE_OP_ACQUIRE);
    let_go(f, first, 3);
    const struct fake_completion *done = ended_with(f, 2, 100, BELAY_OK);
    cr_assert_lt(done->at_ns - f->now_ns + FAKE_MS, 2 * FAKE_MS);
    cr_assert_eq(fake_sent_ops(f, WIRE_OP_ACQUIRE), polls, "the push brought it, not a poll");
    fake_run(f, 10);
    cr_assert_eq(f->pushes_acked, 1);
    fake_free(f);
}

/* Every push is lost: the poll at min(session, TTL) / 3 finds the grant. */
Test(waits, poll_finds_a_grant_whose_push_was_lost)
{
    struct fake *f = fake_new(NULL);
    core_ref first = fake_acquire(f, "a", 60000, 1);

    f->mute_pushes = true;
    ask(f, "a", 60000, UINT64_MAX, 2);
    fake_run(f, 1000);
    uint64_t from_ns = f->now_ns;
    let_go(f, first, 3);
    const struct fake_completion *done = ended_with(f, 2, 10000, BELAY_OK);
    cr_assert_lt(done->at_ns - from_ns, 10000 * FAKE_MS / 3 + 10 * FAKE_MS);
    fake_free(f);
}

/* A push that comes again, also long after, or after the release, is acknowledged and no more. */
Test(waits, repeated_pushes)
{
    struct fake *f = fake_new(NULL);
    core_ref first = fake_acquire(f, "a", 60000, 1);

    f->double_percent = 100;
    ask(f, "a", 60000, UINT64_MAX, 2);
    fake_run(f, 100);
    let_go(f, first, 3);
    const struct fake_completion *done = ended_with(f, 2, 100, BELAY_OK);
    fake_run(f, 10);
    cr_assert_geq(f->pushes_acked, 2);
    struct fake_lease *lease = fake_lease(f, "a");
    struct wire_granted again = {
        .reply = {.item = {.bytes = sizeof(again), .op = WIRE_OP_PUSH_GRANT},
                  .session = lease->session,
                  .number = lease->number},
        .lease = {.secret = lease->secret, .slot = 7},
        .token = lease->token,
        .ttl_ms = 60000,
        .mode = WIRE_EXCLUSIVE,
        .waited = 1};
    let_go(f, done->lock, 4);
    fake_run(f, 100);
    uint32_t acked = f->pushes_acked;
    fake_reply(f, 0, &again);
    fake_run(f, 100);
    cr_assert_gt(f->pushes_acked, acked);
    cr_assert_eq(f->completions_count, 4);
    nothing_is_left(f, 0);
    fake_free(f);
}

/* The wait limit is kept by the client's own clock, and the waiter is gone from the queue. */
Test(waits, wait_limit)
{
    struct fake *f = fake_new(NULL);
    core_ref first = fake_acquire(f, "a", 60000, 1);
    uint64_t from_ns = f->now_ns;

    ask(f, "a", 60000, 700, 2);
    const struct fake_completion *done = ended_with(f, 2, 5000, BELAY_TIMED_OUT);
    cr_assert(done->at_ns - from_ns >= 700 * FAKE_MS && done->at_ns - from_ns < 702 * FAKE_MS);
    fake_run(f, 100);
    nothing_is_left(f, 1);
    let_go(f, first, 3);
    fake_run(f, 100);
    nothing_is_left(f, 0);
    fake_free(f);
}

/* The limit passes while nobody answers: UNREACHABLE, wait limit + request timeout after the start.
 */
Test(waits, wait_limit_without_answers)
{
    struct fake *f = fake_new(NULL);

    cr_assert_neq(fake_acquire(f, "{a}0", 60000, 1), 0);
    silence(f);
    uint64_t from_ns = f->now_ns;
    ask(f, "{a}1", 60000, 700, 2);
    const struct fake_completion *done = ended_with(f, 2, 10000, BELAY_UNREACHABLE);
    cr_assert(done->at_ns - from_ns >= 5700 * FAKE_MS && done->at_ns - from_ns < 5710 * FAKE_MS);
    fake_free(f);
}

/* The cluster goes away under a waiter for ever: it is told, in bounded time. */
Test(waits, waiter_of_a_dead_cluster)
{
    struct fake *f = fake_new(NULL);

    fake_acquire(f, "a", 60000, 1);
    ask(f, "a", 10000, UINT64_MAX, 2);
    fake_run(f, 500);
    silence(f);
    uint64_t from_ns = f->now_ns;
    const struct fake_completion *done = ended_with(f, 2, 60000, BELAY_UNREACHABLE);
    cr_assert_lt(done->at_ns - from_ns, 9000 * FAKE_MS);
    fake_free(f);
}

Test(waits, try_says_who_holds_it)
{
    struct fake *f = fake_new(NULL);
    struct core_acquire acquire = fake_lock("a", 1000, 0);

    fake_acquire(f, "a", 60000, 1);
    acquire.flags = WIRE_TRY;
    core_acquire(f->core, f->now_ns, 0, &acquire, 2, NULL);
    ended_with(f, 2, 1000, BELAY_BUSY);
    nothing_is_left(f, 1);
    fake_free(f);
}

/* Cancel after every 20 microseconds of an acquire's life: before it is sent, on its way, while it
 * waits, while the grant is on its way, after it. Also with loss. */
static void cancel_at(uint64_t after_ns, bool held, uint32_t loss_percent)
{
    struct fake *f = fake_new(NULL);
    core_ref first = held ? fake_acquire(f, "a", 60000, 1) : 0;

    fake_run(f, 300);
    f->random = after_ns * 2654435761u + 1;
    f->loss_percent = loss_percent;
    uint64_t from_ns = f->now_ns;
    core_ref request = ask(f, "a", 60000, UINT64_MAX, 2);
    if (held) {
        fake_run_until(f, from_ns + 150000);
        let_go(f, first, 3);
    }
    fake_run_until(f, from_ns + after_ns);
    bool cancelled = core_cancel(f->core, f->now_ns, request);
    core_flush(f->core);
    const struct fake_completion *done = fake_completion(f, 2);
    cr_assert_not_null(done);
    cr_assert_eq(done->status, cancelled ? BELAY_CANCELLED : BELAY_OK, "after %d us",
                 (int)(after_ns / 1000));
    cr_assert_not(core_cancel(f->core, f->now_ns, request), "only once");
    fake_run(f, 8000);
    f->loss_percent = 0;
    fake_run(f, 3000);
    nothing_is_left(f, cancelled ? 0 : 1);
    fake_free(f);
}

Test(waits, cancel_at_every_point)
{
    for (uint64_t after_ns = 0; after_ns <= 700000; after_ns += 20000) {
        cancel_at(after_ns, false, 0);
        cancel_at(after_ns, true, 0);
    }
}

Test(waits, cancel_at_every_point_with_loss)
{
    for (uint64_t after_ns = 0; after_ns <= 600000; after_ns += 40000) {
        struct fake *f = fake_new(NULL);
        core_ref first = fake_acquire(f, "a", 60000, 1);
        f->random = after_ns + 99;
        f->loss_percent = 50;
        f->double_percent = 30;
        uint64_t from_ns = f->now_ns;
        core_ref request = ask(f, "a", 60000, UINT64_MAX, 2);
        fake_run_until(f, from_ns + after_ns);
        let_go(f, first, 3);
        fake_run_until(f, from_ns + 2 * after_ns);
        bool cancelled = core_cancel(f->core, f->now_ns, request);
        core_flush(f->core);
        fake_run(f, 8000);
        f->loss_percent = 0;
        fake_run(f, 3000);
        nothing_is_left(f, cancelled ? 0 : 1);
        fake_free(f);
    }
}

/* The cancel overtakes the acquire: the server remembers it. */
static bool hold_acquires;
static _Alignas(8) uint8_t held_item[256];

static bool hold(struct fake *f, uint8_t node, const struct wire_item *item)
{
    (void)f;
    (void)node;
    if (item->op != WIRE_OP_ACQUIRE || !hold_acquires)
        return false;
    memcpy(held_item, item, item->bytes);
    return true;
}

Test(waits, cancel_overtakes_the_acquire)
{
    struct fake *f = fake_new(NULL);

    core_ref keep = fake_acquire(f, "{a}keep", 60000, 1);
    cr_assert_neq(keep, 0);
    hold_acquires = true;
    f->hook = hold;
    core_ref request = ask(f, "{a}x", 60000, UINT64_MAX, 2);
    fake_run(f, 5);
    cr_assert(core_cancel(f->core, f->now_ns, request));
    core_flush(f->core);
    fake_run(f, 100);
    hold_acquires = false;
    nothing_is_left(f, 1);
    /* Now the held datagram arrives at last. */
    f->hook = NULL;
    struct wire_acquire *late = (struct wire_acquire *)held_item;
    uint32_t before = fake_leases(f);
    cr_assert_eq(late->request.item.op, WIRE_OP_ACQUIRE);
    for (uint32_t i = 0; i < FAKE_ANSWERS; i++) {
        if (f->answers[i].used && f->answers[i].number == late->request.number &&
            f->answers[i].session == late->request.session)
            before |= 0x100; /* remembered */
    }
    cr_assert(before & 0x100);
    fake_free(f);
}

/* ---- one that waits long does not stop the others -------------------------------------------- */

static void small_window(struct fake *f)
{
    f->window = 16;
}

/* A waiter keeps its number unanswered for minutes while hundreds of other numbers come and go, its
 * grant is then pushed, or found by a poll, or cancelled: all as if the window were endless. */
static void long_wait(bool mute, bool cancel)
{
    struct fake *f = fake_new(small_window);
    core_ref first = fake_acquire(f, "{w}a", 120000, 1);
    core_ref request = ask(f, "{w}a", 9000, UINT64_MAX, 2);

    for (uint64_t i = 0; i < 100; i++) {
        core_ref other = fake_acquire(f, "{w}b", 60000, 10 + 2 * i);
        cr_assert_neq(other, 0, "round %d", (int)i);
        let_go(f, other, 11 + 2 * i);
        cr_assert_not_null(fake_wait(f, 11 + 2 * i, 1000));
        fake_run(f, 1000);
    }
    cr_assert_null(fake_completion(f, 2));
    cr_assert_eq(fake_waiters(f), 1);
    f->mute_pushes = mute;
    if (cancel) {
        /* The grant and the cancel cross. */
        let_go(f, first, 3);
        fake_run_until(f, f->now_ns + 150000);
        core_cancel(f->core, f->now_ns, request);
        core_flush(f->core);
        fake_run(f, 5000);
        nothing_is_left(f, 0);
    } else {
        let_go(f, first, 3);
        ended_with(f, 2, 10000, BELAY_OK);
        fake_run(f, 200000);
        cr_assert_eq(f->losses_count, 0);
    }
    fake_free(f);
}

Test(waits, long_wait_granted_by_push)
{
    long_wait(false, false);
}

Test(waits, long_wait_granted_by_poll)
{
    long_wait(true, false);
}

Test(waits, long_wait_cancelled)
{
    long_wait(true, true);
}

/* A server that does not keep a waiter whose number was passed over: the outcome is unknown, and
 * made certain by a cancel. */
Test(waits, stale_waiter)
{
    struct fake *f = fake_new(small_window);
    core_ref first = fake_acquire(f, "{w}a", 120000, 1);

    ask(f, "{w}a", 120000, UINT64_MAX, 2);
    f->no_poll_below_window = true;
    for (uint64_t i = 0; i < 20; i++) {
        core_ref other = fake_acquire(f, "{w}b", 60000, 10 + 2 * i);
        cr_assert_neq(other, 0);
        let_go(f, other, 11 + 2 * i);
        cr_assert_not_null(fake_wait(f, 11 + 2 * i, 1000));
    }
    ended_with(f, 2, 10000, BELAY_STALE_REQUEST);
    fake_run(f, 1000);
    let_go(f, first, 3);
    fake_run(f, 1000);
    nothing_is_left(f, 0);
    fake_free(f);
}

/* ---- leaders --------------------------------------------------------------------------------- */

/* A waiter survives changes of the leader, and is granted by the newest. */
Test(waits, across_leader_changes)
{
    struct fake *f = fake_new(NULL);
    core_ref first = fake_acquire(f, "a", 60000, 1);

    ask(f, "a", 60000, UINT64_MAX, 2);
    fake_run(f, 100);
    for (uint8_t i = 1; i < 8; i++) {
        fake_new_leader(f, i % FAKE_NODES);
        fake_run(f, 1500);
        cr_assert_null(fake_completion(f, 2));
        cr_assert_eq(fake_waiters(f), 1);
    }
    f->mute_pushes = true;
    let_go(f, first, 3);
    ended_with(f, 2, 4000, BELAY_OK);
    fake_free(f);
}
