/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots of the lock machine: damaged ones, ones that find no room, and what a snapshot is while
 * the state goes on changing.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/machine/machine.h"
#include "tests/unit/machine_steps.h"

/* A state with something of everything. */
static void furnish(uint64_t sessions[8])
{
    for (int i = 0; i < 8; i++) {
        sessions[i] = rig_session(&rig, i == 7 ? 1500 : 60000);
    }
    for (uint64_t i = 0; i < 8; i++) {
        struct wire_acquire *item =
            rig_acquire_value(&rig, sessions[i], 1, 1 + i % 2, "", "busy", "v", 9000);
        item->priority = (uint8_t)(i % 3);
        item->wait_ms = 5000 + (uint32_t)i;
        (void)rig_acquire(&rig, sessions[i], 2, 1, "shared", 7000);
        (void)rig_acquire(&rig, sessions[i], 3, 2, i == 0 ? "a-name-of-more-than-24-bytes" : "own",
                          0);
        rig_acquire(&rig, sessions[i], 4, 2, i == 1 ? "y" : "x", 8000)->lock_delay_ms = 100;
        struct wire_acquire *brief = rig_acquire(&rig, sessions[i], 5, 2, "delayed", 20);
        brief->lock_delay_ms = 5000;
        brief->request.item.flags = WIRE_TRY;
        (void)rig_renew(&rig, WIRE_OP_KEEPALIVE, sessions[i], 6, 0);
        (void)rig_cancel(&rig, sessions[i], 8, 7);
    }
    cr_assert_eq(rig_apply(&rig), 0);
    rig.stamp_ns += 100 * RIG_MS;
    rig.endings_max = 1;
    cr_assert_eq(rig_apply(&rig), 0);
    rig.stamp_ns += 1600 * RIG_MS; /* the last session ends, but not all it has */
    cr_assert_eq(rig_apply(&rig), 0);
}

Test(lock_machine_snapshot, every_cut_and_every_flipped_byte_is_noticed)
{
    uint64_t sessions[8];
    size_t length;
    start();
    furnish(sessions);
    cr_assert_gt(counts().waiters, 3);
    uint8_t *bytes = rig_snapshot(rig.machine, &length);
    struct machine_rig target;
    struct lock_limits limits = rig_limits();
    rig_init(&target, &limits, false);
    uint64_t blank = lock_machine_digest(target.machine);
    for (size_t at = 0; at < length; at += at < 400 ? 1 : 37) {
        cr_assert_eq(rig_feed(target.machine, bytes, at, 8192), -EBADMSG, "cut at %zu", at);
        cr_assert_eq(lock_machine_digest(target.machine), blank, "not blank after %zu", at);
        for (int bit = 0; bit < 8; bit += 3) {
            bytes[at] ^= (uint8_t)(1 << bit);
            int error = rig_feed(target.machine, bytes, length, 8192);
            cr_assert(error == -EBADMSG || error == -ENOSPC, "flip at %zu: %d", at, error);
            bytes[at] ^= (uint8_t)(1 << bit);
        }
    }
    uint8_t *longer = malloc(length + 1);
    memcpy(longer, bytes, length);
    longer[length] = 0;
    cr_assert_eq(rig_feed(target.machine, longer, length + 1, 8192), -EBADMSG);
    cr_assert_eq(rig_feed(target.machine, bytes, length, 1), 0);
    cr_assert_eq(lock_machine_digest(target.machine), lock_machine_digest(rig.machine));
    cr_assert_null(lock_machine_verify(target.machine));
    free(longer);
    free(bytes);
    rig_free(&target);
    stop();
}

/* Sound in every link and sum, and yet no machine ever stood so: it would leave the waiter waiting
 * for a lock that it may have. */
Test(lock_machine_snapshot, a_snapshot_in_which_a_waiter_was_forgotten_is_refused)
{
    size_t length;
    start();
    uint64_t holder = rig_session(&rig, 60000);
    uint64_t other = rig_session(&rig, 60000);
    (void)rig_acquire(&rig, holder, 1, WIRE_SHARED, "shared", 9000);
    (void)rig_acquire(&rig, other, 1, WIRE_EXCLUSIVE, "shared", 9000);
    cr_assert_eq(rig_apply(&rig), 0);
    cr_assert_eq(counts().waiters, 1);
    struct machine_rig target;
    struct lock_limits limits = rig_limits();
    rig_init(&target, &limits, false);
    uint8_t *bytes = rig_snapshot(rig.machine, &length);
    cr_assert_eq(rig_feed(target.machine, bytes, length, 8192), 0);
    free(bytes);
    struct waiter_record *waiters = (void *)rig.machine->slabs[SLAB_WAITERS].records;
    waiters[0].mode = WIRE_SHARED;
    bytes = rig_snapshot(rig.machine, &length);
    waiters[0].mode = WIRE_EXCLUSIVE;
    cr_assert_eq(rig_feed(target.machine, bytes, length, 8192), -EBADMSG);
    free(bytes);
    rig_free(&target);
    stop();
}

Test(lock_machine_snapshot, a_snapshot_needs_room)
{
    uint64_t sessions[8];
    size_t length;
    start();
    furnish(sessions);
    uint8_t *bytes = rig_snapshot(rig.machine, &length);
    struct lock_limits limits = rig_limits();
    uint32_t *const fields[] = {&limits.leases_max,  &limits.resources_max, &limits.sessions_max,
                                &limits.waiters_max, &limits.answers_max,   &limits.extras_max,
                                &limits.window};
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        struct machine_rig target;
        uint32_t before = *fields[i];
        *fields[i] = before / 2;
        limits.queue_max = limits.waiters_max;
        rig_init(&target, &limits, false);
        cr_assert_eq(rig_feed(target.machine, bytes, length, 8192), -ENOSPC, "field %zu", i);
        /* It is blank and may start its own life. */
        cr_assert_eq(rig_apply_limits(&target, &limits), 0);
        (void)rig_session(&target, 1000);
        rig_free(&target);
        *fields[i] = before;
    }
    free(bytes);
    stop();
}

/* The snapshot is the state at its begin, whatever is applied between its steps; and the restored
 * machine, fed the rest of the log, becomes equal to the one that never stopped. */
Test(lock_machine_snapshot, a_snapshot_is_of_one_moment)
{
    enum { LOCKS = 4000, LATER = 300 };
    struct lock_limits limits = rig_limits();
    limits.leases_max = limits.resources_max = LOCKS + 500;
    limits.answers_max = 100;
    start_with(&limits);
    uint64_t session = rig_session(&rig, 3600000);
    uint64_t number = 0;
    char name[24];
    struct wire_lease_id leases[LOCKS];
    for (int i = 0; i < LOCKS; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        (void)add_acked(session, ++number, 2, name, 600000 + (uint32_t)(i * 7919 % 4001));
        cr_assert_eq(rig_apply(&rig), 0);
        leases[i] = granted(0)->lease;
    }
    uint64_t digest = lock_machine_digest(rig.machine);
    struct machine_rig restored;
    rig_init(&restored, &limits, false);
    restored.index = rig.index;
    uint8_t *snapshot = malloc(4 << 20);
    size_t length = 0;
    uint8_t *log = malloc(LATER * 256);
    size_t log_bytes[LATER];
    lock_machine_snapshot_begin(rig.machine);
    bool done = false;
    for (int i = 0; i < LATER; i++) {
        int victim = (i * 13 + 3999) % LOCKS;
        snprintf(name, sizeof(name), "n%d", victim);
        struct wire_release *release = rig_release(&rig, session, ++number, leases[victim], name);
        release->request.acked_below = number;
        snprintf(name, sizeof(name), "m%d", i);
        (void)add_acked(session, ++number, 2, name, 9000);
        rig.stamp_ns += RIG_MS;
        struct lock_batch batch = {.count = rig.count, .endings_max = rig.endings_max};
        memcpy(rig.payload, &batch, sizeof(batch));
        memcpy(log + i * 256, rig.payload, rig.payload_bytes);
        log_bytes[i] = rig.payload_bytes;
        cr_assert_eq(rig_apply(&rig), 0);
        cr_assert(rig_status(&rig, 0) == WIRE_OK && rig_status(&rig, 1) == WIRE_OK);
        if (!done) {
            long made = lock_machine_snapshot_step(rig.machine, snapshot + length, 64 * 1024);
            cr_assert_geq(made, 0);
            length += (size_t)made;
            done = made == 0;
        }
    }
    cr_assert(done);
    cr_assert_eq(rig_feed(restored.machine, snapshot, length, 3333), 0);
    cr_assert_eq(lock_machine_digest(restored.machine), digest);
    cr_assert_null(lock_machine_verify(restored.machine));
    for (int i = 0; i < LATER; i++) {
        struct lock_entry entry = {.index = ++restored.index,
                                   .stamp_ns = restored.stamp_ns + (uint64_t)(i + 1) * RIG_MS,
                                   .kind = LOCK_ENTRY_COMMANDS,
                                   .payload = log + i * 256,
                                   .payload_bytes = log_bytes[i]};
        cr_assert_eq(lock_machine_apply(restored.machine, &entry, NULL), 0);
    }
    cr_assert_eq(lock_machine_digest(restored.machine), lock_machine_digest(rig.machine));
    cr_assert_eq(lock_machine_history(restored.machine), lock_machine_history(rig.machine));
    cr_assert_null(lock_machine_verify(restored.machine));
    rig_free(&restored);
    free(snapshot);
    free(log);
    stop();
}

/* Steps that come too slowly: the snapshot says so, the machine goes on, and the next one works. */
Test(lock_machine_snapshot, a_snapshot_that_falls_behind_is_given_up)
{
    enum { LOCKS = 9000 };
    struct lock_limits limits = rig_limits();
    limits.leases_max = limits.resources_max = LOCKS;
    limits.extras_max = LOCKS;
    limits.answers_max = 100;
    start_with(&limits);
    uint64_t session = rig_session(&rig, 3600000);
    uint64_t number = 0;
    char name[24];
    char value[200];
    memset(value, 'v', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    struct wire_lease_id *leases = calloc(LOCKS, sizeof(*leases));
    for (int i = 0; i < LOCKS; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        struct wire_acquire *item =
            rig_acquire_value(&rig, session, ++number, 2, "", name, value, 600000);
        item->request.acked_below = number;
        cr_assert_eq(rig_apply(&rig), 0);
        leases[i] = granted(0)->lease;
    }
    uint8_t *out = malloc(64 * 1024);
    lock_machine_snapshot_begin(rig.machine);
    cr_assert_gt(lock_machine_snapshot_step(rig.machine, out, 64 * 1024), 0);
    for (int i = LOCKS - 1; i >= 0; i--) { /* everything changes before the walk gets there */
        snprintf(name, sizeof(name), "n%d", i);
        struct wire_release *item = rig_release(&rig, session, ++number, leases[i], name);
        item->request.acked_below = number;
        cr_assert_eq(rig_apply(&rig), 0);
    }
    cr_assert_eq(lock_machine_snapshot_step(rig.machine, out, 64 * 1024), -ENOBUFS);
    cr_assert_eq(rig_restore(&rig, 50000), 0);
    free(out);
    free(leases);
    stop();
}

Test(lock_machine_snapshot, blank_states_travel_too)
{
    struct lock_limits limits = rig_limits();
    rig_init(&rig, &limits, false);
    cr_assert_eq(rig_restore(&rig, 100), 0);
    cr_assert_eq(rig_apply_limits(&rig, &limits), 0);
    cr_assert_eq(rig_restore(&rig, 100), 0);
    (void)rig_session(&rig, 1000);
    stop();
}
