/* SPDX-License-Identifier: Apache-2.0
 *
 * Deadlines, renewals, losses. The arithmetic is tried where 32 and 64 bits end.
 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include "client_steps.h"

#define DRIFT(ttl_ms) ((ttl_ms) < 100 ? FAKE_MS : (uint64_t)(ttl_ms)*FAKE_MS / 100)

static core_ref lock_with(struct fake *f, struct core_acquire acquire, uint64_t user)
{
    cr_assert_eq(core_acquire(f->core, f->now_ns, 0, &acquire, user, NULL), BELAY_OK);
    const struct fake_completion *done = ended_with(f, user, 4000, BELAY_OK);
    return done->lock;
}

static bool swallowing;

static bool swallow(struct fake *f, uint8_t node, const struct wire_item *item)
{
    (void)f;
    (void)node;
    return swallowing && item->op <= WIRE_OP_LOGGED_LAST;
}

/* ---- deadlines ------------------------------------------------------------------------------- */

/* First transmission + TTL - drift; the retries that were needed do not count anew. */
Test(leases, deadline_counts_from_the_first_transmission)
{
    static const uint32_t ttls[] = {5, 99, 100, 1000, 60000, UINT32_MAX};

    for (size_t i = 0; i < sizeof(ttls) / sizeof(ttls[0]); i++) {
        struct fake *f = fake_new(NULL);
        f->cookies[1] = f->cookies[2] = 0;
        cr_assert_neq(fake_acquire(f, "{s}0", 100000, 1), 0);
        bool retried = ttls[i] >= 1000;
        swallowing = retried;
        f->hook = swallow;
        struct core_acquire acquire = fake_lock("{s}1", ttls[i], UINT64_MAX);
        acquire.no_renewal = true;
        uint64_t first_ns = f->now_ns;
        ask_as(f, 0, acquire, 2);
        fake_run(f, retried ? 300 : 0);
        swallowing = false;
        const struct fake_completion *done = ended_with(f, 2, 2000, BELAY_OK);
        cr_assert_eq(info_of(f, done->lock).deadline_ns,
                     first_ns + ttls[i] * FAKE_MS - DRIFT(ttls[i]), "TTL %u", ttls[i]);
        fake_free(f);
    }
}

/* A grant whose TTL was over when it came at last: the caller gets LOST, the lease is given back.
 */
Test(leases, a_grant_that_comes_too_late)
{
    struct fake *f = fake_new(NULL);

    cr_assert_neq(fake_acquire(f, "{s}0", 100000, 1), 0);
    swallowing = true;
    f->hook = swallow;
    ask(f, "{s}1", 400, UINT64_MAX, 2);
    fake_run(f, 450);
    swallowing = false;
    const struct fake_completion *done = ended_with(f, 2, 1000, BELAY_LOST);
    cr_assert_eq(done->lock, 0);
    fake_run(f, 20);
    cr_assert_null(fake_lease(f, "{s}1"));
    fake_free(f);
}

/* ---- grants after a wait --------------------------------------------------------------------- */

struct waited_case {
    uint64_t keepalive_number, since_ns;
    uint32_t ttl_ms;
};

/* What the client makes of a grant after a wait, given what it says of the keepalive. The request
 * was first sent at `asked_ns`; keepalive 0 is the open. */
static uint64_t waited_deadline(struct waited_case the_case, uint64_t *opened_ns,
                                uint64_t *asked_ns, uint64_t *granted_ns)
{
    struct fake *f = fake_new(NULL);

    f->check_safety = false;                   /* what is pushed here is made up */
    memset(f->cookies, 0, sizeof(f->cookies)); /* no challenge: one copy of each request */
    f->mute_pushes = true;
    cr_assert_neq(fake_acquire(f, "{s}0", 100000, 1), 0);
    *opened_ns = fake_last(f, WIRE_OP_OPEN)->at_ns;
    *asked_ns = f->now_ns;
    struct core_acquire acquire = fake_lock("{s}0", the_case.ttl_ms, UINT64_MAX);
    acquire.no_renewal = true;
    ask_as(f, 0, acquire, 2);
    fake_run(f, 2000);
    struct wire_granted granted = {
        .reply = {.item = {.bytes = sizeof(granted), .op = WIRE_OP_PUSH_GRANT},
                  .session = f->sessions[0].id,
                  .number = 2},
        .lease = {.secret = 0x77, .slot = 7},
        .token = 99,
        .ttl_ms = the_case.ttl_ms,
        .mode = WIRE_EXCLUSIVE,
        .waited = 1,
        .keepalive_number = the_case.keepalive_number,
        .since_keepalive_ns = the_case.since_ns};
    fake_reply(f, 0, &granted);
    *granted_ns = f->now_ns + f->delay_ns;
    fake_run_until(f, *granted_ns);
    const struct fake_completion *done = fake_completion(f, 2);
    cr_assert_not_null(done);
    uint64_t deadline_ns = done->status == BELAY_OK ? info_of(f, done->lock).deadline_ns : 0;
    fake_free(f);
    return deadline_ns;
}

Test(leases, deadline_of_a_grant_after_a_wait)
{
    uint64_t opened_ns, asked_ns, granted_ns;
    const uint64_t wide = UINT64_C(1) << 32;

    /* First send of the keepalive (here the open) + shard time since + TTL - drift of both. */
    struct waited_case plain = {0, 1500 * FAKE_MS, 9000};
    uint64_t deadline_ns = waited_deadline(plain, &opened_ns, &asked_ns, &granted_ns);
    cr_assert_eq(deadline_ns, opened_ns + (1500 - 15 + 9000 - 90) * FAKE_MS);

    /* TTLs as long as they come. */
    plain.ttl_ms = UINT32_MAX;
    deadline_ns = waited_deadline(plain, &opened_ns, &asked_ns, &granted_ns);
    cr_assert_eq(deadline_ns, opened_ns + (1500 - 15) * FAKE_MS + UINT32_MAX * FAKE_MS -
                                  UINT32_MAX * FAKE_MS / 100);

    /* Shard time beyond 32 bits of nanoseconds, and beyond everything: never after the answer came.
     */
    struct waited_case far = {0, wide, 9000};
    deadline_ns = waited_deadline(far, &opened_ns, &asked_ns, &granted_ns);
    cr_assert_eq(deadline_ns, granted_ns + (9000 - 90) * FAKE_MS);
    far.since_ns = UINT64_MAX;
    deadline_ns = waited_deadline(far, &opened_ns, &asked_ns, &granted_ns);
    cr_assert_eq(deadline_ns, granted_ns + (9000 - 90) * FAKE_MS);

    /* A keepalive that we do not remember: the request's own first transmission. */
    struct waited_case unknown[] = {
        {1, UINT64_MAX, 9000}, {wide, 0, 9000}, {UINT64_MAX - 1, 5, 9000}};
    for (size_t i = 0; i < 3; i++) {
        deadline_ns = waited_deadline(unknown[i], &opened_ns, &asked_ns, &granted_ns);
        cr_assert_eq(deadline_ns, asked_ns + (9000 - 90) * FAKE_MS, "case %zu", i);
    }
}

/* With real keepalives, over many hand-overs; the fake checks that no deadline is beyond the
 * server's. */
Test(leases, waited_deadlines_are_never_late)
{
    struct fake *f = fake_new(NULL);
    core_ref lock = fake_acquire(f, "{s}a", 5000, 1);

    f->delay_spread_ns = 20 * FAKE_MS;
    for (uint64_t i = 0; i < 60; i++) {
        struct core_acquire acquire = fake_lock("{s}a", 5000, UINT64_MAX);
        core_acquire(f->core, f->now_ns, 0, &acquire, 10 + 2 * i, NULL);
        core_flush(f->core);
        fake_run(f, 100 + fake_random(f) % 6000);
        core_release(f->core, f->now_ns, lock, 11 + 2 * i, NULL);
        const struct fake_completion *done = ended_with(f, 10 + 2 * i, 5000, BELAY_OK);
        lock = done->lock;
        cr_assert_gt(info_of(f, lock).deadline_ns, f->now_ns + 4700 * FAKE_MS,
                     "and not needlessly early");
    }
    cr_assert_eq(f->losses_count, 0);
    fake_free(f);
}

/* ---- renewals -------------------------------------------------------------------------------- */

Test(leases, renewed_at_a_third)
{
    struct fake *f = fake_new(NULL);
    core_ref lock = fake_acquire(f, "a", 9000, 1);
    uint64_t deadline_ns = info_of(f, lock).deadline_ns;

    fake_run(f, 2900);
    cr_assert_eq(info_of(f, lock).deadline_ns, deadline_ns);
    fake_run(f, 200);
    cr_assert_geq(info_of(f, lock).deadline_ns, deadline_ns + 2800 * FAKE_MS);
    cr_assert_eq(f->renewed_deadline_ns, info_of(f, lock).deadline_ns);
    fake_run(f, 200000);
    cr_assert_eq(f->losses_count, 0);
    cr_assert_gt(info_of(f, lock).deadline_ns, f->now_ns + 5800 * FAKE_MS);
    fake_free(f);
}

/* Renewals of one session go together: about one keepalive per third of a TTL, not one per lock. */
Test(leases, renewals_share_keepalives)
{
    struct fake *f = fake_new(NULL);
    struct core_counts before, after;
    char name[16];

    for (uint64_t i = 0; i < 120; i++) {
        snprintf(name, sizeof(name), "{s}%d", (int)i);
        cr_assert_neq(fake_acquire(f, name, 9000, i + 1), 0);
        if (i == 50) {
            before = counts_of(f);
            fake_run(f, 60000);
            after = counts_of(f);
            cr_assert_leq(after.keepalives - before.keepalives, 45);
            cr_assert_geq(after.renewals - before.renewals, 51 * 19);
        }
    }
    fake_run(f, 60000);
    cr_assert_eq(f->losses_count, 0);
    cr_assert_eq(fake_leases(f), 120);
    fake_free(f);
}

/* The cluster is silent from now on: told no later than the deadline, and not much before. */
Test(leases, lost_by_deadline)
{
    struct fake *f = fake_new(NULL);
    core_ref own = fake_acquire(f, "{s}own", 3000, 1);
    core_ref bound = fake_acquire(f, "{s}bound", 0, 2);

    fake_run(f, 5000);
    silence(f);
    fake_run(f, 1);
    uint64_t own_ns = info_of(f, own).deadline_ns, bound_ns = info_of(f, bound).deadline_ns;
    fake_run(f, 20000);
    cr_assert_eq(f->losses_count, 2);
    for (int i = 0; i < 2; i++) {
        uint64_t deadline_ns = f->losses[i].lock == own ? own_ns : bound_ns;
        cr_assert_eq(f->losses[i].reason, BELAY_LOST_DEADLINE);
        cr_assert_leq(f->losses[i].at_ns, deadline_ns);
        cr_assert_geq(f->losses[i].at_ns + 3 * FAKE_MS, deadline_ns);
    }
    cr_assert_eq(info_of(f, own).deadline_ns, 0);
    cr_assert_eq(core_release(f->core, f->now_ns, own, 3, NULL), BELAY_OK);
    cr_assert_eq(fake_completion(f, 3)->status, BELAY_LOST);
    cr_assert_eq(core_release(f->core, f->now_ns, own, 4, NULL), BELAY_BAD_REQUEST);
    fake_free(f);
}

/* A renewal under way when the lock was lost: if it succeeds after all, nobody wants that. */
Test(leases, a_late_renewal_is_given_back)
{
    for (int delay = 0; delay < 2; delay++) {
        struct fake *f = fake_new(NULL);
        struct core_acquire acquire = fake_lock("{s}own", 3000, UINT64_MAX);
        acquire.lock_delay_ms = delay != 0 ? 1000 : 0;
        lock_with(f, acquire, 1);
        f->leader = FAKE_NONE; /* time stands still for leases */
        fake_run(f, 4000);
        cr_assert_eq(f->losses_count, 1);
        struct fake_lease *lease = fake_lease(f, "{s}own");
        cr_assert_not_null(lease);
        lease->deadline_ns = f->now_ns + 500 * FAKE_MS;
        fake_new_leader(f, 0);
        fake_run(f, 450);
        cr_assert_eq(fake_lease(f, "{s}own") == NULL, delay == 0,
                     "given back, unless a lock delay protects what is still being done");
        fake_free(f);
    }
}

/* A session-bound lock lost by its deadline while the servers stood still: the session lives on,
 * and nothing but a release would ever end the lock. */
Test(leases, a_bound_lock_that_was_lost_is_released)
{
    struct fake *f = fake_new(NULL);

    cr_assert_neq(fake_acquire(f, "{s}bound", 0, 1), 0);
    f->leader = FAKE_NONE;
    fake_run(f, 12000);
    cr_assert_eq(f->losses_count, 1);
    cr_assert_not_null(fake_lease(f, "{s}bound"));
    for (uint32_t i = 0; i < f->sessions_count; i++)
        f->sessions[i].deadline_ns = f->now_ns + 5000 * FAKE_MS;
    fake_new_leader(f, 0);
    fake_run(f, 500);
    cr_assert_null(fake_lease(f, "{s}bound"));
    cr_assert(f->sessions[0].alive);
    fake_free(f);
}

/* ---- a bound lock that the server keeps ------------------------------------------------------ */

/* Bound, held by client 0 and wanted by client 1, both with sessions of their own. */
static core_ref bound_and_wanted(struct fake *f)
{
    core_ref lock = fake_acquire(f, "{s}bound", 0, 1);
    struct core_acquire acquire = fake_lock("{s}bound", 60000, UINT64_MAX);

    ask_as(f, 1, acquire, 2);
    fake_run(f, 1000);
    cr_assert_eq(fake_waiters(f), 1);
    return lock;
}

static void two_clients(struct fake *f)
{
    f->options.clients_count = 2;
}

/* The other one has it, not before `deadline_ns` of the lost one, and soon after. */
static void passes_on_at(struct fake *f, uint64_t deadline_ns)
{
    fake_run_until(f, deadline_ns - 1);
    cr_assert_eq(fake_sent_ops(f, WIRE_OP_RELEASE), 0, "told; now it has until its deadline");
    cr_assert_null(fake_completion(f, 2));
    fake_run_until(f, deadline_ns + 50 * FAKE_MS);
    const struct fake_completion *done = fake_completion(f, 2);
    cr_assert(done != NULL && done->status == BELAY_OK);
    cr_assert(f->sessions[0].alive && f->sessions[1].alive);
}

/* Asked to let go: keepalives no longer move the deadline. Told at it, and then given back. */
Test(leases, a_forced_bound_lock_ends_at_the_deadline_it_had)
{
    struct fake *f = fake_new(two_clients);
    core_ref lock = bound_and_wanted(f);

    fake_force(f, "{s}bound", false);
    fake_run(f, 10);
    uint64_t deadline_ns = info_of(f, lock).deadline_ns;
    f->renewed_deadline_ns = 0;
    fake_run(f, 5000);
    cr_assert_gt(fake_sent_ops(f, WIRE_OP_KEEPALIVE), 1);
    cr_assert_eq(info_of(f, lock).deadline_ns, deadline_ns);
    cr_assert_eq(f->renewed_deadline_ns, 0);
    fake_force(f, "{s}bound", false); /* asked again: of the same deadline */
    passes_on_at(f, deadline_ns);
    cr_assert(f->revokes_count == 2 && f->losses_count == 1);
    cr_assert(f->losses[0].lock == lock && f->losses[0].reason == BELAY_LOST_FORCED);
    cr_assert_leq(f->losses[0].at_ns, deadline_ns);
    cr_assert_geq(f->losses[0].at_ns + 3 * FAKE_MS, deadline_ns);
    fake_free(f);
}

/* Nobody told us, and a renewal is refused: lost, while the server holds it as long as the session
 * lives. Given back at the deadline, or as soon as the application says that it has stopped. */
Test(leases, a_bound_lock_whose_renewal_was_refused)
{
    enum { KEEP, FORGET, RELEASE, WAYS };

    for (int way = 0; way < WAYS; way++) {
        struct fake *f = fake_new(two_clients);
        core_ref lock = bound_and_wanted(f);
        f->mute_pushes = true;
        fake_force(f, "{s}bound", false);
        f->mute_pushes = false;
        uint64_t deadline_ns = info_of(f, lock).deadline_ns;
        cr_assert_eq(core_renew(f->core, f->now_ns, lock, 3, NULL), BELAY_OK);
        ended_with(f, 3, 1000, BELAY_LOST);
        cr_assert_eq(f->revokes_count, 0);
        cr_assert(f->losses_count == 1 && f->losses[0].reason == BELAY_LOST_EXPIRED);
        if (way == FORGET) {
            core_forget(f->core, lock);
            cr_assert_eq(counts_of(f).locks, 1, "its record stays for what is still to be done");
        }
        if (way == RELEASE) {
            cr_assert_eq(core_release(f->core, f->now_ns, lock, 4, NULL), BELAY_OK);
            cr_assert_eq(fake_completion(f, 4)->status, BELAY_LOST);
            ended_with(f, 2, 10, BELAY_OK);
        } else {
            passes_on_at(f, deadline_ns);
        }
        cr_assert_eq(counts_of(f).locks, way == KEEP ? 2 : 1);
        fake_free(f);
    }
}

/* The session ended before the deadline did, and with it the lock: there is nothing to give back,
 * and the next session has nothing to do with it. */
Test(leases, a_lost_bound_lock_ends_with_its_session)
{
    struct fake *f = fake_new(two_clients);
    core_ref lock = bound_and_wanted(f);

    fake_lease(f, "{s}bound")->forced = true;
    cr_assert_eq(core_renew(f->core, f->now_ns, lock, 3, NULL), BELAY_OK);
    cr_assert_not_null(fake_wait(f, 3, 1000));
    f->check_safety = false;
    fake_lose_sessions(f);
    fake_run(f, 4000);
    cr_assert_neq(fake_acquire(f, "{s}other", 60000, 4), 0, "in the next session");
    fake_run(f, 20000);
    cr_assert_eq(fake_sent_ops(f, WIRE_OP_RELEASE), 0);
    cr_assert_eq(f->losses_count, 1);
    core_forget(f->core, lock);
    cr_assert_eq(counts_of(f).locks, 2, "the other one, and what client 1 was granted");
    fake_free(f);
}

/* What was lost is found again by a reentrant acquire: then it is not given back. */
Test(leases, a_lost_bound_lock_that_was_found_again)
{
    struct fake *f = fake_new(NULL);
    core_ref lock = fake_acquire(f, "{s}bound", 0, 1);
    struct core_acquire again = fake_lock("{s}bound", 0, UINT64_MAX);

    fake_lease(f, "{s}bound")->forced = true;
    cr_assert_eq(core_renew(f->core, f->now_ns, lock, 2, NULL), BELAY_OK);
    cr_assert_not_null(fake_wait(f, 2, 1000));
    cr_assert_eq(f->losses_count, 1);
    fake_lease(f, "{s}bound")->forced = false;
    again.flags |= WIRE_REENTRANT;
    core_ref found = lock_with(f, again, 3);
    cr_assert(found != lock && !fake_completion(f, 3)->shared_lock);
    core_release(f->core, f->now_ns, lock, 4, NULL);
    fake_run(f, 30000);
    cr_assert_eq(fake_sent_ops(f, WIRE_OP_RELEASE), 0);
    cr_assert_neq(info_of(f, found).deadline_ns, 0);
    fake_free(f);
}

static struct wire_renewed late_renewal; /* as the answer to the last keepalive would be */

static bool keep_from_server(struct fake *f, uint8_t node, const struct wire_item *item)
{
    const struct wire_request *request = (const struct wire_request *)item;

    (void)f;
    (void)node;
    if (item->op == WIRE_OP_KEEPALIVE)
        late_renewal = (struct wire_renewed){
            .reply = {.item = {.bytes = sizeof(late_renewal) + 8, .op = WIRE_OP_KEEPALIVE},
                      .session = request->session,
                      .number = request->number},
            .count = 1};
    return swallowing;
}

/* The loss is told two milliseconds before the deadline. A renewal that succeeds in between does
 * not shorten what the holder was promised. */
Test(leases, a_late_renewal_is_not_given_back_before_the_deadline)
{
    struct fake *f = fake_new(NULL);
    core_ref lock = fake_acquire(f, "{s}own", 3000, 1);
    uint64_t deadline_ns = info_of(f, lock).deadline_ns;
    _Alignas(8) uint8_t item[sizeof(late_renewal) + 8] = {0}; /* result OK */

    swallowing = true;
    f->hook = keep_from_server;
    fake_run_until(f, deadline_ns - 3 * FAKE_MS / 2);
    cr_assert_eq(f->losses_count, 1);
    swallowing = false;
    memcpy(item, &late_renewal, sizeof(late_renewal));
    fake_reply(f, 0, item);
    fake_run_until(f, deadline_ns - 1);
    cr_assert_eq(fake_sent_ops(f, WIRE_OP_RELEASE), 0);
    fake_run_until(f, deadline_ns + 5 * FAKE_MS);
    cr_assert_geq(fake_sent_ops(f, WIRE_OP_RELEASE), 1);
    cr_assert_null(fake_lease(f, "{s}own"));
    fake_free(f);
}

/* redisson#7272: release and renewal cross; the TTL never grows after the release. */
Test(leases, release_races_with_a_renewal)
{
    for (uint64_t at_us = 2990000; at_us < 3004000; at_us += 50) {
        struct fake *f = fake_new(NULL);
        core_ref lock = fake_acquire(f, "a", 9000, 1);
        fake_run_until(f, f->now_ns + at_us * 1000);
        let_go(f, lock, 2);
        ended_with(f, 2, 1000, BELAY_OK);
        fake_run(f, 10000);
        cr_assert_eq(fake_leases(f), 0);
        cr_assert_eq(f->losses_count, 0, "a lock that was released is not lost");
        cr_assert(counts_of(f).locks == 0 && counts_of(f).requests == 0);
        fake_free(f);
    }
}

Test(leases, forgotten_locks_are_not_renewed)
{
    struct fake *f = fake_new(NULL);
    core_ref lock = fake_acquire(f, "a", 3000, 1);

    core_forget(f->core, lock);
    fake_run(f, 2900);
    cr_assert_not_null(fake_lease(f, "a"), "it stays until its TTL ends");
    fake_run(f, 200);
    cr_assert_null(fake_lease(f, "a"));
    cr_assert_eq(f->losses_count, 0);
    fake_free(f);
}

Test(leases, without_renewal)
{
    struct fake *f = fake_new(NULL);
    struct core_acquire acquire = fake_lock("a", 3000, UINT64_MAX);

    acquire.no_renewal = true;
    core_ref lock = lock_with(f, acquire, 1);
    cr_assert_eq(core_renew(f->core, f->now_ns, lock, 2, NULL), BELAY_OK);
    fake_run(f, 2000);
    cr_assert_eq(fake_completion(f, 2)->status, BELAY_OK);
    cr_assert_eq(core_renew(f->core, f->now_ns, lock, 3, NULL), BELAY_OK);
    uint64_t renewed_ns = f->now_ns;
    core_flush(f->core);
    fake_run(f, 10);
    cr_assert_eq(info_of(f, lock).deadline_ns, renewed_ns + 2970 * FAKE_MS);
    fake_run(f, 3100);
    cr_assert_eq(f->losses_count, 1);
    cr_assert_eq(core_renew(f->core, f->now_ns, lock, 4, NULL), BELAY_LOST);
    fake_free(f);
}

/* ---- told by the server ---------------------------------------------------------------------- */

Test(leases, forced)
{
    struct fake *f = fake_new(NULL);
    core_ref lock = fake_acquire(f, "a", 60000, 1);

    fake_force(f, "a", false);
    fake_run(f, 10);
    cr_assert(f->revokes_count == 1 && f->losses_count == 0);
    f->check_safety = false; /* `now` is the documented exception */
    fake_force(f, "a", true);
    fake_run(f, 10);
    cr_assert_eq(f->losses_count, 1);
    cr_assert(f->losses[0].lock == lock && f->losses[0].reason == BELAY_LOST_FORCED);
    cr_assert_eq(f->pushes_acked, 2);
    fake_free(f);
}

/* The server ended it and the notice was lost: the next renewal says LOST. */
Test(leases, expired)
{
    struct fake *f = fake_new(NULL);
    core_ref lock = fake_acquire(f, "a", 9000, 1);

    f->check_safety = false;
    fake_lease(f, "a")->alive = false;
    fake_run(f, 3200);
    cr_assert_eq(f->losses_count, 1);
    cr_assert(f->losses[0].lock == lock && f->losses[0].reason == BELAY_LOST_EXPIRED);
    fake_free(f);
}

/* ---- convert, reentrant, by lease ------------------------------------------------------------ */

Test(leases, convert_changes_the_token_and_not_the_deadline)
{
    struct fake *f = fake_new(NULL);
    core_ref lock = fake_acquire(f, "a", 60000, 1);
    struct core_lock_info before = info_of(f, lock);

    fake_run(f, 1000);
    cr_assert_eq(core_convert(f->core, f->now_ns, lock, WIRE_SHARED, 1000, 2, NULL), BELAY_OK);
    const struct fake_completion *done = ended_with(f, 2, 1000, BELAY_OK);
    cr_assert(done->lock == lock);
    struct core_lock_info after = info_of(f, lock);
    cr_assert(after.token > before.token && after.mode == WIRE_SHARED);
    cr_assert_eq(after.deadline_ns, before.deadline_ns);
    fake_run(f, 100000);
    cr_assert_eq(f->losses_count, 0);
    fake_free(f);
}

Test(leases, reentrant_locks_are_shared)
{
    struct fake *f = fake_new(NULL);
    struct core_acquire again = fake_lock("a", 10000, UINT64_MAX);
    core_ref lock = fake_acquire(f, "a", 10000, 1);

    again.flags = WIRE_REENTRANT;
    cr_assert_eq(lock_with(f, again, 2), lock);
    cr_assert(fake_completion(f, 2)->shared_lock);
    core_release(f->core, f->now_ns, lock, 3, NULL);
    fake_run(f, 100);
    cr_assert_eq(fake_completion(f, 3)->status, BELAY_OK);
    cr_assert_not_null(fake_lease(f, "a"), "one use is left");
    let_go(f, lock, 4);
    fake_run(f, 100);
    cr_assert_null(fake_lease(f, "a"));
    cr_assert_eq(counts_of(f).locks, 0);
    fake_free(f);
}

/* What an acquire was granted, and did not hear of, was found by a reentrant one: both have it
 * then, and the first does not go on to time out, which would take it from the second. When it
 * hears of it after all, that lease is over. */
Test(leases, a_grant_that_was_found_first)
{
    struct fake *f = fake_new(two_clients);
    core_ref first = fake_acquire(f, "a", 60000, 1);
    struct core_acquire waiting = fake_lock("a", 60000, UINT64_MAX);
    struct core_acquire again = waiting;

    ask_as(f, 1, waiting, 2);
    fake_run(f, 1000);
    f->mute_pushes = true;
    cr_assert_eq(core_release(f->core, f->now_ns, first, 3, NULL), BELAY_OK);
    ended_with(f, 3, 1000, BELAY_OK);
    const struct fake_lease granted = *fake_lease(f, "a");
    struct wire_granted push = {
        .reply = {.item = {.bytes = sizeof(push), .op = WIRE_OP_PUSH_GRANT},
                  .session = granted.session,
                  .number = granted.number},
        .lease = {.secret = granted.secret, .slot = 7},
        .token = granted.token,
        .ttl_ms = granted.ttl_ms,
        .mode = granted.mode,
        .waited = 1,
    };
    again.flags = WIRE_REENTRANT;
    ask_as(f, 1, again, 4);
    const struct fake_completion *found = ended_with(f, 4, 1000, BELAY_OK);
    cr_assert_eq(info_of(f, found->lock).token, granted.token);
    cr_assert(!found->shared_lock);
    const struct fake_completion *waited = ended_with(f, 2, 0, BELAY_OK);
    cr_assert_eq(waited->lock, found->lock);
    cr_assert(waited->shared_lock);
    release(f, found->lock, 5);
    fake_run(f, 2000);
    cr_assert_eq(fake_lease(f, "a")->token, granted.token); /* one of two uses */
    release(f, waited->lock, 6);
    core_ref others = fake_acquire(f, "a", 20000, 7);
    cr_assert_neq(others, 0);
    fake_reply(f, 0, &push);
    fake_run(f, 1000);
    cr_assert_eq(counts_of(f).locks, 1);
    release(f, others, 8);
    fake_free(f);
}

static bool keep_reentrant(struct fake *f, uint8_t node, const struct wire_item *item)
{
    (void)f;
    (void)node;
    return swallowing && item->op == WIRE_OP_ACQUIRE && (item->flags & WIRE_REENTRANT) != 0;
}

/* A reentrant acquire found what another was granted; that one was cancelled, and its lease with
 * it, before the answer came. The other had seen an earlier lease go: its cancel takes a later one.
 */
Test(leases, a_grant_that_went_with_a_cancel)
{
    struct fake *f = fake_new(two_clients);
    core_ref first = fake_acquire(f, "a", 60000, 1);
    struct core_acquire waiting = fake_lock("a", 60000, UINT64_MAX);
    struct core_acquire again = waiting;

    struct core_acquire other = fake_lock("b", 60000, UINT64_MAX);

    other.flags = again.flags = WIRE_REENTRANT; /* from the first one on, releases are looked at */
    (void)ask_as(f, 1, other, 7);
    ended_with(f, 7, 1000, BELAY_OK);
    (void)ask_as(f, 1, waiting, 2);
    fake_run(f, 100);
    core_ref second = ask_as(f, 1, waiting, 3);
    fake_run(f, 100);
    release(f, first, 4);
    const struct fake_completion *got = ended_with(f, 2, 1000, BELAY_OK);
    f->mute_pushes = true;
    release(f, got->lock, 5); /* `second` has the next lease, and does not hear of it */
    const struct fake_lease lease = *fake_lease(f, "a");
    swallowing = true;
    f->hook = keep_reentrant;
    (void)ask_as(f, 1, again, 6);
    fake_run(f, 5);
    const struct wire_request *asked =
        (const struct wire_request *)fake_last(f, WIRE_OP_ACQUIRE)->item;
    struct wire_granted found = {
        .reply = {.item = {.bytes = sizeof(found), .op = WIRE_OP_ACQUIRE},
                  .session = lease.session,
                  .number = asked->number},
        .lease = {.secret = lease.secret, .slot = 7},
        .token = lease.token,
        .ttl_ms = lease.ttl_ms,
        .mode = lease.mode,
    };
    cr_assert(core_cancel(f->core, f->now_ns, second));
    core_flush(f->core);
    fake_run(f, 50);
    cr_assert_null(fake_lease(f, "a"));
    swallowing = false;
    fake_reply(f, 0, &found);
    const struct fake_completion *late = ended_with(f, 6, 4000, BELAY_OK);
    cr_assert_gt(info_of(f, late->lock).token, lease.token);
    fake_free(f);
}

Test(leases, by_lease_id)
{
    struct fake *f = fake_new(NULL);
    core_ref lock = fake_acquire(f, "a", 60000, 1);
    struct core_lease_command command = {.op = WIRE_OP_RENEW,
                                         .name = {.name = (const uint8_t *)"a", .name_bytes = 1},
                                         .lease = info_of(f, lock).lease};

    cr_assert_eq(core_lease(f->core, f->now_ns, 0, &command, 2, NULL), BELAY_OK);
    ended_with(f, 2, 1000, BELAY_OK);
    command.op = WIRE_OP_RELEASE;
    core_forget(f->core, lock);
    cr_assert_eq(core_lease(f->core, f->now_ns, 0, &command, 3, NULL), BELAY_OK);
    ended_with(f, 3, 1000, BELAY_OK);
    cr_assert_null(fake_lease(f, "a"));
    cr_assert_eq(core_lease(f->core, f->now_ns, 0, &command, 4, NULL), BELAY_OK);
    ended_with(f, 4, 1000, BELAY_LOST);
    fake_free(f);
}
