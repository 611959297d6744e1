/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults of other services that only show at size: a million leases due at once, a session with
 * 50,000 locks, ten million cycles. The sizes are the reports'; the machine alone is fast enough.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataplane/machine/machine.h"
#include "tests/unit/machine_steps.h"

/* Applies the batch as a follower does: nobody is told, and nothing is kept of the outputs. */
static void apply_in_silence(void)
{
    struct lock_batch batch = {.count = rig.count, .endings_max = rig.endings_max};
    struct lock_entry entry = {
        .index = ++rig.index,
        .stamp_ns = rig.stamp_ns,
        .kind = LOCK_ENTRY_COMMANDS,
        .payload = rig.payload,
        .payload_bytes = rig.payload_bytes,
    };
    memcpy(rig.payload, &batch, sizeof(batch));
    cr_assert_eq(lock_machine_apply(rig.machine, &entry, NULL), 0);
    rig.payload_bytes = sizeof(batch);
    rig.count = 0;
}

/* `locks` exclusive locks of one session, named "o0", "o1", ... ttl_ms 0: bound to the session. */
static void take_many(uint64_t session, uint32_t locks, uint32_t ttl_ms)
{
    char name[24];
    for (uint32_t i = 0; i < locks; i++) {
        snprintf(name, sizeof(name), "o%u", i);
        struct wire_acquire *item = rig_acquire(&rig, session, i + 1, 2, name, ttl_ms);
        item->request.acked_below = i + 1;
        if (i % 1000 == 999 || i + 1 == locks) {
            apply_in_silence();
        }
    }
    cr_assert_eq(counts().leases, locks);
}

/* Everything is due. Entries come, a millisecond apart, with one request of somebody else each: it
 * is served in that entry, by a name that is due but not settled yet; no entry ends more than its
 * share; and the last one ends as late as so many entries take, not later. */
static void due_at_once(uint32_t locks, uint64_t other)
{
    enum { ENDINGS = LOCK_ENDINGS_DEFAULT };
    uint64_t due_ns = rig.stamp_ns;
    uint32_t left = locks;
    uint32_t taken = 0;
    uint32_t entries = 0;
    rig.endings_max = ENDINGS;
    while (left > 0) {
        char name[24];
        uint32_t wanted = locks - 1 - taken;
        cr_assert_lt(entries++, locks / ENDINGS + 8, "endings do not keep up");
        snprintf(name, sizeof(name), "o%u", wanted);
        struct wire_acquire *item = rig_acquire(&rig, other, ++taken, 2, name, 3600000);
        item->request.acked_below = taken;
        item->request.item.flags = WIRE_TRY;
        cr_assert_eq(rig_apply(&rig), 0);
        cr_assert_eq(rig_status(&rig, 0), WIRE_OK, "%s is %s in entry %u", name,
                     wire_status_name(rig_status(&rig, 0)), entries);
        cr_assert_leq(rig.outputs_count, ENDINGS + 2, "one entry told %u", rig.outputs_count);
        uint32_t now_left = counts().leases - taken;
        cr_assert_leq(left - now_left, ENDINGS + 1, "%u ended in one entry", left - now_left);
        left = now_left;
        rig.stamp_ns += RIG_MS;
    }
    cr_assert_leq(counts().lateness_ns_max, rig.stamp_ns - due_ns + 2 * LOCK_TICK_NS);
    cr_assert_leq(rig.stamp_ns - due_ns, (uint64_t)(locks / ENDINGS + 8) * RIG_MS);
}

static void start_many(uint32_t locks)
{
    struct lock_limits limits = rig_limits();
    limits.leases_max = limits.resources_max = locks + locks / 64 + 1000;
    limits.ttl_ms_max = 3600000;
    rig_init(&rig, &limits, true);
}

/* etcd#9360, etcd#12105: a mass expiry stalled the service, and the last lease ended 600 s late. */
Test(lock_rules, a_million_leases_due_at_once, .timeout = 100)
{
    enum { MANY = 1000000 };
    start_many(MANY);
    uint64_t owner = rig_session(&rig, 3600000);
    uint64_t other = rig_session(&rig, 3600000);
    take_many(owner, MANY, 1000);
    rig.stamp_ns += 1000 * RIG_MS + LOCK_TICK_NS;
    due_at_once(MANY, other);
    cr_assert_eq(counts().expired, MANY);
    stop();
}

/* kubernetes#96836: the end of a session with very many locks blocked everybody. */
Test(lock_rules, a_session_with_50000_locks_ends)
{
    enum { MANY = 50000 };
    start_many(MANY);
    uint64_t huge = rig_session(&rig, 1000);
    uint64_t other = rig_session(&rig, 3600000);
    take_many(huge, MANY, 0);
    rig.stamp_ns += 1000 * RIG_MS + LOCK_TICK_NS;
    due_at_once(MANY, other);
    cr_assert_eq(counts().sessions_expired, 1);
    stop();
}

/* The same when it is closed by its own request: that entry is short, too. */
Test(lock_rules, a_session_with_50000_locks_is_closed)
{
    enum { MANY = 50000 };
    start_many(MANY);
    uint64_t huge = rig_session(&rig, 3600000);
    uint64_t other = rig_session(&rig, 3600000);
    take_many(huge, MANY, 0);
    rig_close(&rig, huge, MANY + 1)->request.acked_below = MANY + 1;
    cr_assert_eq(rig_apply(&rig), 0);
    cr_assert_eq(rig_status(&rig, 0), WIRE_OK);
    cr_assert_geq(counts().leases, MANY - LOCK_ENDINGS_DEFAULT - 1, "released in one entry");
    due_at_once(counts().leases, other);
    stop();
}

static uint64_t resident_bytes(void)
{
    unsigned long long size;
    unsigned long long resident;
    FILE *file = fopen("/proc/self/statm", "r");
    cr_assert_not_null(file);
    cr_assert_eq(fscanf(file, "%llu %llu", &size, &resident), 2);
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

#ifdef __SANITIZE_ADDRESS__
enum { MANY_NAMES = 1000000 }; /* each access is checked: a tenth says as much */
#else
enum { MANY_NAMES = 10000000 };
#endif

/* etcd#11495, hazelcast#26402: ten million cycles, each under a name of its own, as a follower
 * applies them. There is room for a few locks only: anything left behind per cycle or per name ends
 * in OVER_LIMIT long before; and no page is touched that was not touched in the first cycles. */
Test(lock_rules, ten_million_names_leave_nothing, .timeout = 100)
{
    enum { CYCLES = MANY_NAMES, BATCH = 500, FIRST = 100000 };
    struct lock_limits limits = rig_limits();
    limits.leases_max = limits.resources_max = 8;
    rig_init(&rig, &limits, true);
    uint64_t session = rig_session(&rig, 3600000);
    uint64_t number = 0;
    uint64_t resident = 0;
    for (uint32_t i = 0; i < CYCLES; i++) {
        char name[24] = "name/0000000000";
        for (uint32_t digit = 14, rest = i; rest > 0; rest /= 10) {
            name[digit--] = (char)('0' + rest % 10);
        }
        number += 2;
        struct wire_lease_id lease = {.secret = wire_lease_secret(rig.drawn, number - 1)};
        rig_acquire(&rig, session, number - 1, 2, name, 1000)->request.acked_below = number - 1;
        rig_release(&rig, session, number, lease, name)->request.acked_below = number;
        if (i % BATCH == BATCH - 1) {
            rig.stamp_ns += RIG_MS;
            apply_in_silence();
        }
        if (i == FIRST) {
            resident = resident_bytes();
        }
        if (i % 1000000 == 999999) { /* its session lives on its keepalives */
            number++;
            rig_renew(&rig, WIRE_OP_KEEPALIVE, session, number, 0)->request.acked_below = number;
            apply_in_silence();
        }
    }
    struct lock_counts end = counts();
    cr_assert_eq(end.granted, CYCLES);
    cr_assert_eq(end.released, CYCLES);
    cr_assert_eq(end.leases, 0);
    cr_assert_eq(end.resources, 0);
    cr_assert_leq(end.answers, 1);
    for (int slab = 0; slab < SLAB_COUNT; slab++) {
        cr_assert_leq(rig.machine->slabs[slab].live, 1, "slab %d keeps %u records", slab,
                      rig.machine->slabs[slab].live);
    }
    cr_assert_leq(resident_bytes(), resident + (1 << 20), "grew by %" PRIu64 " bytes",
                  resident_bytes() - resident);
    stop();
}

/* ---- limits are state -------------------------------------------------------------------------
 */

/* One entry on both machines: the same answers, in the same words. */
static void both(struct machine_rig *tight, struct machine_rig *roomy)
{
    cr_assert_eq(rig_apply(tight), 0);
    cr_assert_eq(rig_apply(roomy), 0);
    cr_assert_eq(tight->outputs_count, roomy->outputs_count);
    for (uint32_t i = 0; i < tight->outputs_count; i++) {
        const struct wire_item *item = (const void *)tight->outputs[i].item;
        const struct wire_item *other = (const void *)roomy->outputs[i].item;
        cr_assert(item->bytes == other->bytes && memcmp(item, other, item->bytes) == 0,
                  "op %u: %s, but with more memory %s", item->op, wire_status_name(item->status),
                  wire_status_name(other->status));
    }
}

/* Per session and step: names of its own, long ones, values, shared ones, waiters, and numbers to
 * the end of the window and beyond. Returns how many were refused for a limit. */
static uint32_t fill_up(struct machine_rig rigs[2])
{
    static const char long_name[] = "long-name-%u-that-does-not-fit-into-its-record";
    uint64_t ids[2][8];
    uint32_t refused = 0;
    for (uint64_t i = 0; i < 10; i++) {
        for (int r = 0; r < 2; r++) {
            (void)rig_open(&rigs[r], 100 + i, 60000);
        }
        both(&rigs[0], &rigs[1]);
        for (int r = 0; r < 2 && i < 8; r++) {
            ids[r][i] = ((const struct wire_opened *)rig_reply(&rigs[r], 0))->reply.session;
        }
    }
    refused += rig_status(&rigs[0], 0) == WIRE_OVER_LIMIT;
    for (uint64_t number = 1; number <= 20; number++) {
        for (uint64_t s = 0; s < 8; s++) {
            uint64_t kind = (number + s) % 5;
            for (int r = 0; r < 2; r++) {
                char name[64];
                snprintf(name, sizeof(name), kind == 1 ? long_name : "n%u",
                         (unsigned)(kind == 4 ? number % 2 : number * 8 + s));
                (void)rig_acquire_value(&rigs[r], ids[r][s], number, kind == 3 ? 1 : 2, "",
                                        kind == 3 ? "shared" : name, kind == 2 ? "value" : "",
                                        50000);
            }
            both(&rigs[0], &rigs[1]);
            refused += rig_status(&rigs[0], 0) == WIRE_OVER_LIMIT;
        }
    }
    return refused;
}

/* Two replicas, one with four times the memory: every table is filled beyond the limits that the
 * log has set, and both say the same. A limit read off the memory instead would divide them. */
Test(lock_rules, limits_are_the_logs_not_the_memorys)
{
    static struct machine_rig rigs[2];
    struct lock_limits memory = rig_limits();
    memory.leases_max = memory.resources_max = memory.sessions_max = 200;
    memory.waiters_max = memory.queue_max = memory.long_names_max = memory.extras_max = 200;
    memory.answers_max = 400;
    memory.window = 64;
    for (int which = 0; which < 3; which++) { /* some limits hide behind others */
        struct lock_limits limits = memory;
        limits.sessions_max = 8;
        limits.window = 16;
        limits.leases_max = which == 0 ? 12 : 200;
        limits.resources_max = which == 1 ? 12 : 200;
        limits.waiters_max = which == 1 ? 4 : 200;
        limits.queue_max = which == 0 ? 4 : which == 1 ? 4 : 3;
        limits.answers_max = which == 0 ? 60 : 400;
        limits.long_names_max = 2;
        limits.extras_max = which == 0 ? 2 : 5;
        rig_init(&rigs[0], &limits, true);
        rig_init(&rigs[1], &memory, false);
        cr_assert_eq(rig_apply_limits(&rigs[1], &limits), 0);
        cr_assert_gt(fill_up(rigs), 5);
        cr_assert_eq(lock_machine_history(rigs[0].machine), lock_machine_history(rigs[1].machine));
        cr_assert_eq(lock_machine_digest(rigs[0].machine), lock_machine_digest(rigs[1].machine));
        rig_free(&rigs[0]);
        rig_free(&rigs[1]);
    }
}

/* ---- names ------------------------------------------------------------------------------------
 */

static int by_hash(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* Of millions of names some share all the bits of their hash that tables look at: they are two
 * locks all the same. */
Test(lock_rules, names_with_one_hash_are_two_locks)
{
    enum { NAMES = 3000000 };
    struct lock_limits limits = rig_limits();
    uint64_t *tags = calloc(NAMES, sizeof(*tags));
    uint32_t pairs = 0;
    rig_init(&rig, &limits, true);
    uint64_t session = rig_session(&rig, 3600000);
    for (uint32_t i = 0; i < NAMES; i++) {
        char name[24];
        int length = snprintf(name, sizeof(name), "c%07u", i);
        uint64_t hash = wire_key_hash(NULL, 0, (const uint8_t *)name, (size_t)length);
        tags[i] = (hash & UINT32_MAX) << 32 | (uint64_t)index_tag(hash) << 24 | i;
    }
    qsort(tags, NAMES, sizeof(*tags), by_hash);
    for (uint32_t i = 0; i + 1 < NAMES && pairs < 3; i++) {
        char names[2][24];
        struct wire_lease_id leases[2];
        if (tags[i] >> 24 != tags[i + 1] >> 24) {
            continue;
        }
        for (uint32_t j = 0; j < 2; j++) {
            snprintf(names[j], sizeof(names[j]), "c%07u", (uint32_t)tags[i + j] & 0xffffff);
            (void)rig_acquire(&rig, session, 4 * pairs + j + 1, 2, names[j], 60000);
        }
        cr_assert_eq(rig_apply(&rig), 0);
        for (uint32_t j = 0; j < 2; j++) {
            cr_assert_eq(rig_status(&rig, j), WIRE_OK, "%s and %s", names[0], names[1]);
            leases[j] = ((const struct wire_granted *)rig_reply(&rig, j))->lease;
        }
        for (uint32_t j = 0; j < 2; j++) {
            (void)rig_release(&rig, session, 4 * pairs + j + 3, leases[j], names[j]);
            cr_assert_eq(rig_apply(&rig), 0);
            cr_assert_eq(rig_status(&rig, 0), WIRE_OK);
            cr_assert_eq(counts().leases, 1 - j);
        }
        pairs++;
    }
    cr_assert_geq(pairs, 1);
    free(tags);
    stop();
}

/* ---- results ----------------------------------------------------------------------------------
 */

/* What happened to an acquire is said by one word each: none stands for another. */
Test(lock_rules, results_are_told_apart)
{
    struct lock_limits limits = rig_limits();
    limits.queue_max = 1;
    rig_init(&rig, &limits, true);
    uint64_t holder = rig_session(&rig, 3600000);
    uint64_t other = rig_session(&rig, 3600000);
    uint64_t third = rig_session(&rig, 3600000);
    uint64_t brief = rig_session(&rig, 1000);
    rig_acquire(&rig, holder, 1, 1, "k", 600000);
    rig_acquire(&rig, holder, 2, 1, "k", 600000);
    rig_acquire(&rig, holder, 3, 2, "k", 600000);
    rig_acquire(&rig, other, 1, 2, "k", 600000)->request.item.flags = WIRE_TRY;
    rig_acquire(&rig, other, 2, 2, "k", 600000)->wait_ms = 0;
    rig_acquire(&rig, other, 3, 2, "k", 600000)->wait_ms = 500;
    rig_acquire(&rig, third, 1, 2, "k", 600000);
    rig_acquire(&rig, third, 100, 2, "k", 600000);
    rig_acquire(&rig, holder, 4, 2, "d", 50)->lock_delay_ms = 60000;
    cr_assert_eq(rig_apply(&rig), 0);
    static const enum wire_status expected[] = {WIRE_OK,         WIRE_ALREADY_HELD, WIRE_DEADLOCK,
                                                WIRE_BUSY,       WIRE_TIMED_OUT,    WIRE_QUEUED,
                                                WIRE_OVER_LIMIT, WIRE_WINDOW_FULL,  WIRE_OK};
    for (uint32_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        cr_assert_eq(rig_status(&rig, i), expected[i], "%u: %s", i,
                     wire_status_name(rig_status(&rig, i)));
    }
    struct wire_lease_id delayed = ((const struct wire_granted *)rig_reply(&rig, 8))->lease;
    rig.stamp_ns += 2000 * RIG_MS;
    rig_acquire(&rig, other, 3, 2, "k", 600000)->wait_ms = 500;
    rig_acquire(&rig, other, 4, 2, "d", 600000)->request.item.flags = WIRE_TRY;
    rig_acquire(&rig, brief, 1, 2, "k", 600000);
    rig_release(&rig, holder, 5, delayed, "d");
    rig_cancel(&rig, third, 3, 2);
    rig_acquire(&rig, third, 2, 2, "e", 600000);
    rig_cancel(&rig, third, 4, 3);
    rig_acquire(&rig, third, 5, 2, "e", 600000)->request.acked_below = 5;
    rig_acquire(&rig, third, 4, 2, "e", 600000);
    cr_assert_eq(rig_apply(&rig), 0);
    static const enum wire_status later[] = {
        WIRE_TIMED_OUT, WIRE_DELAYED,     WIRE_SESSION_LOST, WIRE_LOST,          WIRE_OK,
        WIRE_CANCELLED, WIRE_BAD_REQUEST, WIRE_OK,           WIRE_STALE_REQUEST,
    };
    for (uint32_t i = 0; i < sizeof(later) / sizeof(later[0]); i++) {
        cr_assert_eq(rig_status(&rig, i), later[i], "%u: %s", i,
                     wire_status_name(rig_status(&rig, i)));
    }
    stop();
}
