/* SPDX-License-Identifier: Apache-2.0
 *
 * The lock machine where transcripts and random streams do not look: edges of numbers, sizes that
 * matter, pages of reads.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/machine/machine.h"
#include "tests/unit/machine_steps.h"

/* An acquire in an entry of its own. */
static enum wire_status acquire(uint64_t session, uint64_t number, uint8_t mode, const char *name,
                                uint32_t ttl_ms)
{
    (void)rig_acquire(&rig, session, number, mode, name, ttl_ms);
    cr_assert_eq(rig_apply(&rig), 0);
    return rig_status(&rig, 0);
}

/* ---- limits ---------------------------------------------------------------------------------- */

Test(lock_machine, limits_are_encoded_and_judged)
{
    uint8_t bytes[LOCK_LIMITS_BYTES + 1] = {0};
    struct lock_limits limits = lock_limits_for(1000000);
    struct lock_limits decoded;
    limits.token_epoch = 0xfedc;
    cr_assert_null(lock_limits_check(&limits));
    lock_limits_encode(&limits, bytes);
    cr_assert(lock_limits_decode(&decoded, bytes, LOCK_LIMITS_BYTES));
    cr_assert_eq(memcmp(&limits, &decoded, sizeof(limits)), 0);
    cr_assert_not(lock_limits_decode(&decoded, bytes, LOCK_LIMITS_BYTES - 1));
    cr_assert_not(lock_limits_decode(&decoded, bytes, LOCK_LIMITS_BYTES + 1));
    bytes[LOCK_LIMITS_BYTES - 1] = 1; /* reserved */
    cr_assert_not(lock_limits_decode(&decoded, bytes, LOCK_LIMITS_BYTES));
    for (uint32_t leases = 1; leases < UINT32_MAX / 3; leases *= 3) {
        limits = lock_limits_for(leases);
        cr_assert_null(lock_limits_check(&limits), "%u: %s", leases, lock_limits_check(&limits));
    }
    limits.window = 0;
    cr_assert(strstr(lock_limits_check(&limits), "window") != NULL);
    limits = lock_limits_for(10);
    limits.ttl_ms_min = limits.ttl_ms_max + 1;
    cr_assert(strstr(lock_limits_check(&limits), "ttl_ms_min") != NULL);
    limits = lock_limits_for(10);
    limits.leases_max = 1u << 29;
    cr_assert(strstr(lock_limits_check(&limits), "leases_max") != NULL);
}

Test(lock_machine, limits_come_first_and_may_rise_to_the_capacity)
{
    struct lock_limits limits = rig_limits();
    struct lock_limits lower = limits;
    rig_init(&rig, &limits, false);
    (void)rig_open(&rig, 1, 1000);
    cr_assert_eq(rig_apply(&rig), 0);
    cr_assert_eq(rig_status(&rig, 0), WIRE_UNAVAILABLE);
    lower.sessions_max = 1;
    cr_assert_eq(rig_apply_limits(&rig, &lower), 0);
    (void)rig_session(&rig, 1000);
    (void)rig_open(&rig, 2, 1000);
    cr_assert_eq(rig_apply(&rig), 0);
    cr_assert_eq(rig_status(&rig, 0), WIRE_OVER_LIMIT);
    cr_assert_eq(rig_apply_limits(&rig, &limits), 0);
    (void)rig_session(&rig, 1000);
    struct lock_limits higher = limits;
    higher.leases_max++;
    cr_assert_eq(rig_apply_limits(&rig, &higher), -ENOSPC);
    higher = limits;
    higher.window *= 2;
    cr_assert_eq(rig_apply_limits(&rig, &higher), -ENOSPC);
    higher.window = 0;
    cr_assert_eq(rig_apply_limits(&rig, &higher), -EBADMSG);
    stop();
}

/* DESIGN's budget: 120 bytes for a held lock, 512 for an idle session. */
Test(lock_machine, memory_budget)
{
    static const uint32_t sizes[] = {1000000, 10000000};
    for (size_t i = 0; i < 2; i++) {
        struct lock_limits limits = lock_limits_for(sizes[i]);
        limits.sessions_max = limits.waiters_max = limits.queue_max = limits.answers_max = 1;
        limits.extras_max = limits.long_names_max = 1;
        struct lock_memory memory = lock_machine_memory(&limits);
        double per_lock =
            (double)(memory.leases + memory.resources + memory.timers) / limits.leases_max;
        cr_expect_leq(per_lock, 120.0, "%.2f bytes per lock at %u", per_lock, sizes[i]);
        limits = lock_limits_for(1000);
        limits.sessions_max = limits.answers_max = sizes[i];
        struct lock_limits without = limits;
        without.sessions_max = without.answers_max = 1;
        struct lock_memory with = lock_machine_memory(&limits);
        struct lock_memory base = lock_machine_memory(&without);
        double per_session =
            (double)(with.sessions + with.answers + with.timers - base.timers) / sizes[i];
        cr_expect_leq(per_session, 512.0, "%.2f bytes per session", per_session);
        size_t parts = with.leases + with.resources + with.sessions + with.waiters + with.answers +
                       with.long_names + with.extras + with.timers + with.other;
        cr_expect_eq(parts, with.total);
    }
}

/* ---- payloads -------------------------------------------------------------------------------- */

Test(lock_machine, malformed_payloads_change_nothing)
{
    start();
    uint64_t session = rig_session(&rig, 60000);
    uint64_t digest = lock_machine_digest(rig.machine);
    struct wire_acquire *item = rig_acquire(&rig, session, 1, WIRE_EXCLUSIVE, "k", 1000);
    item->mode = 3;
    cr_assert_eq(rig_apply(&rig), -EBADMSG);
    item = rig_acquire(&rig, session, 1, WIRE_EXCLUSIVE, "k", 1000);
    item->request.item.bytes += 8;
    cr_assert_eq(rig_apply(&rig), -EBADMSG);
    (void)rig_acquire(&rig, session, 1, WIRE_EXCLUSIVE, "k", 1000);
    item = rig_acquire(&rig, session, 2, WIRE_EXCLUSIVE, "m", 1000);
    item->request.item.bytes = 0;
    cr_assert_eq(rig_apply(&rig), -EBADMSG, "the first command must not be applied either");
    (void)rig_named(&rig, WIRE_OP_QUERY, session, 1, "", "k");
    cr_assert_eq(rig_apply(&rig), -EBADMSG, "a read is no log entry");
    struct lock_entry entry = {.kind = LOCK_ENTRY_COMMANDS,
                               .payload = rig.payload,
                               .payload_bytes = 4,
                               .stamp_ns = rig.stamp_ns};
    cr_assert_eq(lock_machine_apply(rig.machine, &entry, NULL), -EBADMSG);
    cr_assert_eq(lock_machine_digest(rig.machine), digest);
    stop();
}

Test(lock_machine, follower_and_leader_agree)
{
    start();
    struct machine_rig leader = rig;
    struct lock_limits limits = rig_limits();
    rig_init(&rig, &limits, true);
    struct machine_rig follower = rig;
    uint64_t session = rig_session(&leader, 60000);
    struct lock_batch batch = {.count = 1, .endings_max = 256};
    struct wire_open *open = rig_open(&follower, leader.drawn + 0x7000 - 1, 60000);
    open->request.drawn = session;
    memcpy(follower.payload, &batch, sizeof(batch));
    struct lock_entry entry = {.index = leader.index,
                               .stamp_ns = leader.stamp_ns,
                               .kind = LOCK_ENTRY_COMMANDS,
                               .payload = follower.payload,
                               .payload_bytes = follower.payload_bytes};
    cr_assert_eq(lock_machine_apply(follower.machine, &entry, NULL), 0); /* no sink */
    cr_assert_eq(lock_machine_digest(follower.machine), lock_machine_digest(leader.machine));
    cr_assert_eq(lock_machine_history(follower.machine), lock_machine_history(leader.machine));
    rig_free(&leader);
    rig_free(&follower);
}

/* ---- entries known in advance ---------------------------------------------------------------- */

enum { KEPT_ENTRIES = 60, KEPT_COMMANDS = 12 };

struct kept_entry {
    struct lock_entry entry;
    _Alignas(8) uint8_t payload[KEPT_COMMANDS * 128];
};

/* Applies the batch and keeps the entry that it was. */
static void apply_and_keep(struct kept_entry *kept)
{
    struct lock_batch batch = {.count = rig.count, .endings_max = rig.endings_max};
    kept->entry = (struct lock_entry){.index = rig.index + 1,
                                      .stamp_ns = rig.stamp_ns,
                                      .kind = LOCK_ENTRY_COMMANDS,
                                      .payload = kept->payload,
                                      .payload_bytes = rig.payload_bytes};
    cr_assert_leq(rig.payload_bytes, sizeof(kept->payload));
    memcpy(kept->payload, rig.payload, rig.payload_bytes);
    memcpy(kept->payload, &batch, sizeof(batch));
    cr_assert_eq(rig_apply(&rig), 0);
}

/* Entries of acquires and releases by a few sessions; the sessions' openings are the first ones. */
static void keep_entries(struct kept_entry kept[KEPT_ENTRIES])
{
    enum { SESSIONS = 4 };
    uint64_t sessions[SESSIONS];
    struct wire_lease_id leases[KEPT_COMMANDS];
    char name[16];
    start();
    for (uint32_t i = 0; i < SESSIONS; i++) {
        (void)rig_open(&rig, 100 + i, 60000);
        apply_and_keep(&kept[i]);
        sessions[i] = ((const struct wire_opened *)rig_reply(&rig, 0))->reply.session;
    }
    for (uint32_t at = SESSIONS; at < KEPT_ENTRIES; at++) {
        bool releases = at % 2 == 1;
        rig.stamp_ns += RIG_MS;
        if (at % 10 == 6) { /* as a leader proposes when something is due: no commands */
            apply_and_keep(&kept[at++]);
            apply_and_keep(&kept[at]);
            continue;
        }
        for (uint32_t i = 0; i < KEPT_COMMANDS; i++) {
            uint64_t number = (uint64_t)(at - SESSIONS) * KEPT_COMMANDS + i + 1;
            snprintf(name, sizeof(name), "n%u", (at / 2 * 5 + i) % 31);
            struct wire_request *request =
                releases
                    ? &rig_release(&rig, sessions[i % SESSIONS], number, leases[i], name)->request
                    : &rig_acquire(&rig, sessions[i % SESSIONS], number, WIRE_EXCLUSIVE, name,
                                   60000)
                           ->request;
            request->acked_below = number - i; /* all of the entry before */
        }
        apply_and_keep(&kept[at]);
        for (uint32_t i = 0; i < KEPT_COMMANDS; i++) {
            leases[i] = granted(i)->lease;
        }
    }
}

/* `next` is told as what comes next, whether it does or not. */
static void apply_kept(struct lock_machine *machine, const struct kept_entry *kept,
                       const struct lock_entry *next)
{
    cr_assert_eq(lock_machine_apply_ahead(machine, &kept->entry, next, NULL), 0);
}

/* The machine that was told of entries in advance, rightly or wrongly, holds what the other does.
 */
Test(lock_machine, entries_known_in_advance_change_nothing)
{
    static struct kept_entry kept[KEPT_ENTRIES];
    static struct kept_entry place; /* one buffer for all, as when a ring comes round */
    struct lock_limits limits = rig_limits();
    struct machine_rig ahead;
    keep_entries(kept);
    for (int way = 0; way < 4; way++) {
        rig_init(&ahead, &limits, true);
        for (uint32_t at = 0; at < KEPT_ENTRIES; at++) {
            const struct lock_entry *next = at + 1 < KEPT_ENTRIES ? &kept[at + 1].entry : NULL;
            struct lock_entry wrong = kept[(at + 7) % KEPT_ENTRIES].entry;
            switch (way) {
            case 0:
                apply_kept(ahead.machine, &kept[at], next);
                break;
            case 1: /* another comes */
                apply_kept(ahead.machine, &kept[at], &wrong);
                break;
            case 2: /* one that will be refused */
                wrong.payload_bytes -= 8;
                apply_kept(ahead.machine, &kept[at], &wrong);
                cr_assert_eq(lock_machine_apply(ahead.machine, &wrong, NULL), -EBADMSG);
                break;
            default: /* another, where the announced one was */
                place = kept[(at + 7) % KEPT_ENTRIES];
                place.entry.payload = place.payload;
                apply_kept(ahead.machine, &kept[at], &place.entry);
                if (next != NULL) {
                    place = kept[++at];
                    place.entry.payload = place.payload;
                    apply_kept(ahead.machine, &place, NULL);
                }
            }
        }
        cr_assert_eq(lock_machine_history(ahead.machine), lock_machine_history(rig.machine),
                     "way %d", way);
        cr_assert_eq(lock_machine_digest(ahead.machine), lock_machine_digest(rig.machine));
        cr_assert_null(lock_machine_verify(ahead.machine));
        rig_free(&ahead);
    }
    stop();
}

/* ---- numbers at their edges ------------------------------------------------------------------ */

Test(lock_machine, request_numbers_up_to_the_last)
{
    static const uint64_t edges[] = {UINT64_C(1) << 32, UINT64_C(1) << 63, UINT64_MAX - 4};
    start();
    for (size_t i = 0; i < 3; i++) {
        uint64_t session = rig_session(&rig, 60000);
        char name[24];
        for (uint64_t step = 0; step < 4; step++) {
            snprintf(name, sizeof(name), "k%zu%d", i, (int)step);
            uint64_t number = edges[i] - 2 + step;
            struct wire_acquire *item = rig_acquire(&rig, session, number, 2, name, 1000);
            item->request.acked_below = edges[i] - 2;
            cr_assert_eq(rig_apply(&rig), 0);
            cr_assert_eq(rig_status(&rig, 0), WIRE_OK, "number %" PRIu64, number);
        }
        /* A retry of the first finds its answer; one below the window does not. */
        cr_assert_eq(acquire(session, edges[i] - 2, 2, "other", 1000), WIRE_OK);
        cr_assert_eq(acquire(session, edges[i] - 3, 2, "other", 1000), WIRE_STALE_REQUEST);
    }
    uint64_t session = rig_session(&rig, 60000);
    (void)add_acked(session, UINT64_MAX, 2, "last", 1000);
    cr_assert_eq(rig_apply(&rig), 0);
    cr_assert_eq(rig_status(&rig, 0), WIRE_OK);
    cr_assert_eq(acquire(session, UINT64_MAX - 1, 2, "x", 1000), WIRE_STALE_REQUEST);
    stop();
}

Test(lock_machine, the_token_epoch_only_rises)
{
    struct lock_limits limits = rig_limits();
    start_with(&limits);
    uint64_t session = rig_session(&rig, 60000);
    limits.token_epoch = 9;
    cr_assert_eq(rig_apply_limits(&rig, &limits), 0);
    limits.token_epoch = 3;
    cr_assert_eq(rig_apply_limits(&rig, &limits), 0);
    cr_assert_eq(acquire(session, 1, 2, "a", 1000), WIRE_OK);
    cr_assert_eq(granted(0)->token, (UINT64_C(9) << 48) + 1);
    stop();
}

/* No log is long enough to get there: the counter is set inside. */
Test(lock_machine, tokens_carry_into_the_epoch_and_end)
{
    start();
    uint64_t session = rig_session(&rig, 60000);
    uint64_t other = rig_session(&rig, 60000);
    rig.machine->state.token_last = (UINT64_C(10) << 48) - 2;
    cr_assert_eq(acquire(session, 1, 1, "a", 1000), WIRE_OK);
    cr_assert_eq(granted(0)->token, (UINT64_C(10) << 48) - 1);
    cr_assert_eq(acquire(session, 2, 2, "b", 1000), WIRE_OK);
    cr_assert_eq(granted(0)->token, UINT64_C(10) << 48);
    rig.machine->state.token_last = UINT64_MAX - 1;
    cr_assert_eq(acquire(session, 3, 2, "c", 1000), WIRE_OK);
    struct wire_lease_id lease = granted(0)->lease;
    cr_assert_eq(granted(0)->token, UINT64_MAX);
    /* Spent: nobody is granted anything any more, waiters wait, holders keep what they have. */
    cr_assert_eq(acquire(session, 4, 2, "d", 1000), WIRE_UNAVAILABLE);
    cr_assert_eq(acquire(other, 1, 2, "c", 1000), WIRE_UNAVAILABLE);
    (void)rig_renew(&rig, WIRE_OP_RENEW, session, 5, 1);
    struct wire_renew *renew = (void *)(rig.payload + sizeof(struct lock_batch));
    renew->renewals[0] = (struct wire_renewal){.lease = lease, .key_tag = rig_key_tag("", "c")};
    cr_assert_eq(rig_apply(&rig), 0);
    cr_assert_eq(((const struct wire_renewed *)rig_reply(&rig, 0))->results[0], WIRE_OK);
    stop();
}

Test(lock_machine, stamps_and_ttls_up_to_the_last)
{
    struct lock_limits limits = rig_limits();
    limits.ttl_ms_max = UINT32_MAX;
    limits.grace_ms_max = UINT32_MAX;
    limits.session_ttl_ms_max = UINT32_MAX;
    static const uint64_t stamps[] = {(UINT64_C(1) << 32) - 1, UINT64_C(1) << 52,
                                      UINT64_MAX - 10 * RIG_MS};
    for (size_t i = 0; i < 3; i++) {
        start_with(&limits);
        rig.stamp_ns = stamps[i];
        uint64_t session = rig_session(&rig, UINT32_MAX);
        struct wire_acquire *item = rig_acquire(&rig, session, 1, 2, "k", UINT32_MAX);
        item->grace_ms = UINT32_MAX;
        cr_assert_eq(rig_apply(&rig), 0);
        cr_assert_eq(rig_status(&rig, 0), WIRE_OK);
        cr_assert_eq(acquire(session, 2, 2, "short", 10), WIRE_OK);
        uint64_t end_ns;
        if (__builtin_add_overflow(rig.stamp_ns, UINT64_C(2) * UINT32_MAX * RIG_MS, &end_ns)) {
            rig.stamp_ns = UINT64_MAX; /* a deadline beyond the end of time never comes */
            cr_assert_eq(rig_apply(&rig), 0);
            cr_assert_geq(counts().leases, 1);
        } else {
            rig.stamp_ns = end_ns - 1;
            cr_assert_eq(rig_apply(&rig), 0);
            cr_assert_eq(counts().leases, 1);
            rig.stamp_ns = end_ns + LOCK_TICK_NS;
            cr_assert_eq(rig_apply(&rig), 0);
            cr_assert_eq(counts().leases, 0);
        }
        stop();
    }
}

/* Never early: for stamps and TTLs of every residue, the lease is there one nanosecond before its
 * TTL, and gone at most one tick after. */
Test(lock_machine, leases_never_end_early)
{
    start();
    uint64_t session = rig_session(&rig, 3600000);
    uint64_t number = 0;
    for (uint32_t i = 0; i < 300; i++) {
        uint32_t ttl_ms = 10 + i % 7;
        rig.stamp_ns += 123457 * (uint64_t)i;
        uint64_t granted_ns = rig.stamp_ns;
        (void)add_acked(session, ++number, 2, "k", ttl_ms);
        cr_assert_eq(rig_apply(&rig), 0);
        cr_assert_eq(rig_status(&rig, 0), WIRE_OK);
        rig.stamp_ns = granted_ns + ttl_ms * RIG_MS - 1;
        cr_assert_eq(rig_apply(&rig), 0);
        cr_assert_eq(counts().leases, 1, "ended early: stamp %" PRIu64 " ttl %u", granted_ns,
                     ttl_ms);
        cr_assert_leq(lock_machine_next_deadline(rig.machine),
                      granted_ns + ttl_ms * RIG_MS + LOCK_TICK_NS);
        rig.stamp_ns = granted_ns + ttl_ms * RIG_MS + LOCK_TICK_NS;
        cr_assert_eq(rig_apply(&rig), 0);
        cr_assert_eq(counts().leases, 0, "ended late: stamp %" PRIu64 " ttl %u", granted_ns,
                     ttl_ms);
    }
    stop();
}

/* A stamp that went back would shorten nothing and lengthen nothing: time stands still. */
Test(lock_machine, time_never_goes_back)
{
    start();
    uint64_t session = rig_session(&rig, 60000);
    cr_assert_eq(acquire(session, 1, 2, "k", 1000), WIRE_OK);
    rig.stamp_ns -= 900 * RIG_MS;
    cr_assert_eq(acquire(session, 2, 2, "m", 1000), WIRE_OK);
    rig.stamp_ns += 1895 * RIG_MS;
    cr_assert_eq(rig_apply(&rig), 0);
    cr_assert_eq(counts().leases, 2);
    stop();
}

/* etcd#9395: entries of a new leader carry shard time on; no entry by itself renews or ends. */
Test(lock_machine, leader_changes_do_not_reset_leases)
{
    start();
    uint64_t session = rig_session(&rig, 3600000);
    cr_assert_eq(acquire(session, 1, 2, "k", 60000), WIRE_OK);
    for (int change = 0; change < 2; change++) {
        rig.stamp_ns += 20000 * RIG_MS;
        cr_assert_eq(rig_restore(&rig, 4096), 0); /* the new leader's copy of the state */
        cr_assert_eq(rig_apply(&rig), 0);
        cr_assert_eq(counts().leases, 1);
    }
    rig.stamp_ns += 20000 * RIG_MS + LOCK_TICK_NS;
    cr_assert_eq(rig_apply(&rig), 0);
    cr_assert_eq(counts().leases, 0);
    stop();
}

Test(lock_machine, taken_session_ids_are_hashed_on)
{
    start();
    uint64_t ids[3];
    for (uint64_t i = 0; i < 3; i++) {
        struct wire_open *open = rig_open(&rig, 50 + i, 60000);
        open->request.drawn = i == 0 ? 0 : 77;
        cr_assert_eq(rig_apply(&rig), 0);
        ids[i] = ((const struct wire_opened *)rig_reply(&rig, 0))->reply.session;
    }
    cr_assert_neq(ids[0], 0);
    cr_assert_eq(ids[1], 77);
    cr_assert_neq(ids[2], 77);
    cr_assert_neq(ids[2], ids[0]);
    stop();
}

/* ---- sizes ----------------------------------------------------------------------------------- */

/* consul#7523: 5,000 waiters, one push per release, in order. */
Test(lock_machine, one_release_wakes_one_of_5000)
{
    enum { WAITERS = 5000 };
    struct lock_limits limits = rig_limits();
    limits.leases_max = WAITERS + 1;
    limits.sessions_max = WAITERS + 1;
    limits.waiters_max = limits.queue_max = WAITERS;
    limits.answers_max = 4 * WAITERS;
    start_with(&limits);
    uint64_t *sessions = calloc(WAITERS + 1, sizeof(*sessions));
    for (int i = 0; i <= WAITERS; i++) {
        sessions[i] = rig_session(&rig, 3600000);
        enum wire_status status = acquire(sessions[i], 1, 2, "hot", 600000);
        cr_assert_eq(status, i == 0 ? WIRE_OK : WIRE_QUEUED);
        if (i > 0) {
            const struct wire_queued *queued = rig_reply(&rig, 0);
            cr_assert_eq(queued->position, (uint32_t)i - 1);
        }
    }
    (void)acquire(sessions[0], 1, 2, "hot", 600000);
    struct wire_lease_id lease = granted(0)->lease;
    for (int i = 0; i < WAITERS; i++) {
        (void)rig_release(&rig, sessions[i], 2, lease, "hot");
        cr_assert_eq(rig_apply(&rig), 0);
        cr_assert_eq(rig.outputs_count, 2, "one answer and one push, not %u", rig.outputs_count);
        const struct wire_granted *push = rig_push(&rig, LOCK_OUT_PUSH_GRANT, 0);
        cr_assert_eq(push->reply.session, sessions[i + 1]);
        lease = push->lease;
    }
    free(sessions);
    stop();
}

/* redisson#1104: 1,000 dead waiters in front do not wedge the lock, nor hold up one entry. */
Test(lock_machine, dead_waiters_give_way_in_bounded_steps)
{
    enum { DEAD = 1000 };
    struct lock_limits limits = rig_limits();
    limits.leases_max = DEAD + 2;
    limits.sessions_max = DEAD + 2;
    limits.waiters_max = limits.queue_max = DEAD + 1;
    limits.answers_max = 4 * DEAD;
    start_with(&limits);
    uint64_t holder = rig_session(&rig, 3600000);
    uint64_t patient = rig_session(&rig, 3600000);
    cr_assert_eq(acquire(holder, 1, 2, "k", 600000), WIRE_OK);
    struct wire_lease_id lease = granted(0)->lease;
    for (int i = 0; i < DEAD; i++) {
        uint64_t session = rig_session(&rig, 50);
        cr_assert_eq(acquire(session, 1, 2, "k", 600000), WIRE_QUEUED);
    }
    cr_assert_eq(acquire(patient, 1, 2, "k", 600000), WIRE_QUEUED);
    rig.stamp_ns += 100 * RIG_MS;
    rig.endings_max = 0;
    (void)rig_release(&rig, holder, 2, lease, "k");
    cr_assert_eq(rig_apply(&rig), 0);
    cr_assert_eq(rig_status(&rig, 0), WIRE_OK);
    cr_assert_gt(counts().waiters, 500, "one command removed them all");
    rig.endings_max = 256;
    uint32_t entries = 0;
    while (rig_pushes(&rig, LOCK_OUT_PUSH_GRANT) == 0) {
        cr_assert_lt(entries++, 20);
        cr_assert_eq(rig_apply(&rig), 0);
    }
    cr_assert_eq(
        ((const struct wire_granted *)rig_push(&rig, LOCK_OUT_PUSH_GRANT, 0))->reply.session,
        patient);
    while (counts().sessions > 2) {
        cr_assert_lt(entries++, 30);
        cr_assert_eq(rig_apply(&rig), 0);
    }
    stop();
}

/* etcd#9360, kubernetes#96836, scaled down: 20,000 leases due in one instant and a session with
 * 20,000 locks ending; each entry does a bounded number of endings, and whoever asks is served
 * first. */
Test(lock_machine, mass_expiry_is_bounded_per_entry)
{
    enum { MANY = 20000, ENDINGS = 256 };
    struct lock_limits limits = rig_limits();
    limits.leases_max = limits.resources_max = 2 * MANY + 10;
    limits.answers_max = 1000;
    start_with(&limits);
    uint64_t owner = rig_session(&rig, 3600000);
    uint64_t huge = rig_session(&rig, 1000);
    uint64_t other = rig_session(&rig, 3600000);
    uint64_t number = 0;
    for (int i = 0; i < MANY; i++) {
        char name[24];
        snprintf(name, sizeof(name), "o%d", i);
        (void)add_acked(owner, ++number, 2, name, 1000);
        snprintf(name, sizeof(name), "h%d", i);
        (void)add_acked(huge, number, 2, name, 0); /* bound */
        if (i % 100 == 99) {
            cr_assert_eq(rig_apply(&rig), 0);
        }
    }
    cr_assert_eq(counts().leases, 2 * MANY);
    rig.stamp_ns += 2000 * RIG_MS;
    rig.endings_max = ENDINGS;
    uint32_t left = 2 * MANY;
    for (int entry = 0; left > 0; entry++) {
        char name[24];
        uint64_t asked = (uint64_t)entry + 1;
        cr_assert_lt(entry, 2 * 2 * MANY / ENDINGS);
        if (entry < 50) { /* names that settling has not come to yet */
            snprintf(name, sizeof(name), entry % 2 == 0 ? "h%d" : "o%d",
                     entry % 2 == 0 ? entry : MANY - 1 - entry);
            struct wire_acquire *item = add_acked(other, asked, 2, name, 3600000);
            item->request.item.flags = WIRE_TRY;
        }
        cr_assert_eq(rig_apply(&rig), 0);
        if (entry < 50) {
            cr_assert_eq(rig_status(&rig, 0), WIRE_OK, "%s is %s", name,
                         wire_status_name(rig_status(&rig, 0)));
        }
        uint32_t now_left = counts().leases - (uint32_t)(entry < 50 ? entry + 1 : 50);
        cr_assert_leq(left - now_left, ENDINGS + 1, "%u ended at once", left - now_left);
        cr_assert(now_left < left || now_left == 0);
        left = now_left;
        if (entry == 3) { /* and a restored machine goes on in the same order */
            cr_assert_eq(rig_restore(&rig, 65536), 0);
        }
    }
    stop();
}

/* etcd#11495, hazelcast#26402: any number of acquires and releases of distinct names leave nothing.
 */
Test(lock_machine, cycles_leave_nothing_behind)
{
    start();
    uint64_t session = rig_session(&rig, 3600000);
    uint64_t number = 0;
    for (uint32_t i = 0; i < 100000; i++) {
        char name[40];
        snprintf(name, sizeof(name), i % 10 == 0 ? "a-long-name-that-needs-room-%u" : "%u", i);
        struct wire_acquire *item = add_acked(session, ++number, 2, name, 1000);
        item->lock_delay_ms = i % 3;
        cr_assert_eq(rig_apply(&rig), 0);
        cr_assert_eq(rig_status(&rig, 0), WIRE_OK);
        struct wire_lease_id lease = granted(0)->lease;
        cr_assert_eq(lease.slot, 0); /* the lowest slot, again and again */
        struct wire_release *release = rig_release(&rig, session, ++number, lease, name);
        release->request.acked_below = number;
        cr_assert_eq(rig_apply(&rig), 0);
        cr_assert_eq(rig_status(&rig, 0), WIRE_OK);
    }
    cr_assert_eq(counts().leases, 0);
    cr_assert_eq(counts().resources, 0);
    cr_assert_leq(counts().answers, 1);
    stop();
}

/* ---- reads ----------------------------------------------------------------------------------- */

/* Pages of QUERY together show every party once; pages of LIST every name once. */
Test(lock_machine, reads_are_paged)
{
    enum { HOLDERS = 60, WAITERS = 60 };
    struct lock_limits limits = rig_limits();
    limits.sessions_max = HOLDERS + WAITERS;
    start_with(&limits);
    for (int i = 0; i < HOLDERS + WAITERS; i++) {
        uint64_t session = rig_session(&rig, 60000);
        struct wire_acquire *item =
            rig_acquire(&rig, session, 1, i < HOLDERS ? 1 : 2, "crowd", 60000);
        item->priority = (uint8_t)(i % 5);
        char name[24];
        snprintf(name, sizeof(name), "list/%d", i);
        (void)rig_acquire(&rig, session, 2, 2, name, 60000);
        cr_assert_eq(rig_apply(&rig), 0);
    }
    _Alignas(8) uint8_t out[1280];
    struct wire_named *query = rig_named(&rig, WIRE_OP_QUERY, 0, 0, "", "crowd");
    query->request.drawn = 0;
    uint32_t holders = 0;
    uint32_t waiters = 0;
    uint32_t pages = 0;
    do {
        cr_assert_lt(pages++, 20);
        (void)lock_machine_read(rig.machine, query, 7, out, sizeof(out));
        const struct wire_state *state = (const void *)out;
        cr_assert(wire_judge_reply(&state->reply.item));
        cr_assert(state->holders == HOLDERS && state->waiters == WAITERS && state->age_ns == 7);
        const struct wire_party *party = (const void *)(state + 1);
        for (uint32_t i = 0; i < state->parties; i++, party++) {
            cr_assert(party->waiting == 0 || party->position == waiters);
            holders += party->waiting == 0;
            waiters += party->waiting == 1;
        }
        query->cursor = state->cursor;
    } while (query->cursor != 0);
    cr_assert(holders == HOLDERS && waiters == WAITERS, "%u holders %u waiters", holders, waiters);
    struct wire_named *list = rig_named(&rig, WIRE_OP_LIST, 0, 0, "", "list/");
    uint32_t names = 0;
    do {
        (void)lock_machine_read(rig.machine, list, 0, out, sizeof(out));
        const struct wire_list *page = (const void *)out;
        cr_assert(wire_judge_reply(&page->reply.item));
        names += page->count;
        list->cursor = page->cursor;
    } while (list->cursor != 0);
    cr_assert_eq(names, HOLDERS + WAITERS);
    rig.count = 0;
    rig.payload_bytes = sizeof(struct lock_batch);
    stop();
}

Test(lock_machine, peek_sees_what_query_sees)
{
    start();
    uint64_t session = rig_session(&rig, 60000);
    uint64_t other = rig_session(&rig, 60000);
    const char *long_name = "a-name-that-is-longer-than-what-a-record-holds";
    (void)rig_acquire_value(&rig, session, 1, 1, "space", "k", "value", 5000);
    (void)rig_acquire_value(&rig, other, 1, 1, "space", "k", "", 6000);
    (void)rig_acquire_value(&rig, session, 2, 2, "", long_name, "x", 5000);
    (void)rig_acquire_value(&rig, other, 2, 2, "", long_name, "", 5000);
    cr_assert_eq(rig_apply(&rig), 0);
    static const struct {
        const char *ns, *name;
        uint32_t holders, waiters;
    } asked[] = {{"space", "k", 2, 0},
                 {"", "a-name-that-is-longer-than-what-a-record-holds", 1, 1},
                 {"", "spacek", 0, 0}};
    for (size_t i = 0; i < 3; i++) {
        _Alignas(8) uint8_t peeked[1280];
        _Alignas(8) uint8_t queried[1280];
        struct wire_named *named = rig_named(&rig, WIRE_OP_QUERY, 9, 4, asked[i].ns, asked[i].name);
        size_t bytes = lock_machine_peek(rig.machine, named, 5, peeked, sizeof(peeked));
        (void)lock_machine_read(rig.machine, named, 5, queried, sizeof(queried));
        const struct wire_state *state = (const void *)peeked;
        cr_assert(bytes == state->reply.item.bytes && wire_judge_reply(&state->reply.item));
        cr_assert_eq(state->holders, asked[i].holders);
        cr_assert_eq(state->waiters, asked[i].waiters);
        cr_assert_eq(state->index, rig.index);
        /* The same holders, in the same order; waiters are only counted. */
        cr_assert_eq(
            memcmp(peeked + sizeof(*state), queried + sizeof(*state), bytes - sizeof(*state)), 0);
    }
    rig.count = 0;
    rig.payload_bytes = sizeof(struct lock_batch);
    stop();
}
