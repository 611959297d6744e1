/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's core against a cluster in virtual time: finding it, retries, leaders, sessions.
 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include "client_steps.h"

static belay_status start(struct fake *f, const char *name, uint64_t user)
{
    struct core_acquire acquire = fake_lock(name, 10000, UINT64_MAX);
    return core_acquire(f->core, f->now_ns, 0, &acquire, user, NULL);
}

/* ---- finding the cluster --------------------------------------------------------------------- */

Test(core, acquires_and_releases)
{
    struct fake *f = fake_new(NULL);
    core_ref lock = fake_acquire(f, "a", 10000, 1);
    struct core_lock_info info;

    cr_assert_neq(lock, 0);
    cr_assert(core_lock_info(f->core, lock, &info));
    cr_assert_eq(info.token, fake_lease(f, "a")->token);
    cr_assert_eq(info.mode, WIRE_EXCLUSIVE);
    release(f, lock, 2);
    cr_assert_null(fake_lease(f, "a"));
    cr_assert_not(core_lock_info(f->core, lock, &info), "a released lock's ref is stale");
    cr_assert_eq(core_release(f->core, f->now_ns, lock, 3, NULL), BELAY_BAD_REQUEST);
    cr_assert_eq(counts_of(f).locks, 0);
    cr_assert_eq(counts_of(f).requests, 0);
    fake_free(f);
}

/* Each node challenges once; then its cookie is used. A cookie that grows old costs one more. */
Test(core, cookies)
{
    struct fake *f = fake_new(NULL);

    cr_assert_neq(fake_acquire(f, "a", 10000, 1), 0);
    fake_run(f, 1000);
    uint32_t before = f->challenges;
    cr_assert_leq(before, 2 * FAKE_NODES);
    cr_assert_neq(fake_acquire(f, "b", 10000, 2), 0);
    fake_run(f, 1000);
    cr_assert_eq(f->challenges, before);
    cr_assert_eq(fake_last(f, WIRE_OP_ACQUIRE)->cookie, f->cookies[0]);
    f->cookies[0] = 77;
    uint64_t start_ns = f->now_ns;
    cr_assert_neq(fake_acquire(f, "c", 10000, 3), 0);
    cr_assert_lt(f->now_ns - start_ns, 10 * FAKE_MS, "repeated at once, not by the retry timer");
    cr_assert_eq(fake_last(f, WIRE_OP_ACQUIRE)->cookie, 77);
    fake_free(f);
}

static uint32_t storm;

static bool challenge_everything(struct fake *f, uint8_t node, const struct wire_item *item)
{
    struct wire_node_notice notice = {
        .item = {.bytes = sizeof(notice), .op = WIRE_OP_NODE, .status = WIRE_CHALLENGE},
        .cookie = ++f->cookies[node]};

    (void)item;
    storm++;
    fake_reply(f, node, &notice);
    return true;
}

/* A node that never accepts a cookie makes no storm. */
Test(core, endless_challenges_are_bounded)
{
    struct fake *f = fake_new(NULL);

    cr_assert_neq(fake_acquire(f, "a", 10000, 1), 0);
    f->hook = challenge_everything;
    start(f, "b", 2);
    storm = 0;
    fake_run(f, 3000);
    cr_assert_lt(storm, 150);
    fake_free(f);
}

static void only_the_second(struct fake *f)
{
    f->options.endpoints[0] = f->options.endpoints[1];
    f->options.endpoints_count = 1;
}

/* One endpoint is enough: the others are learned, and serve when it is gone. */
Test(core, learns_the_other_nodes)
{
    struct fake *f = fake_new(only_the_second);

    cr_assert_neq(fake_acquire(f, "a", 10000, 1), 0);
    fake_run(f, 100);
    cr_assert_eq(core_members_count(f->core), 3);
    f->up[0] = f->up[1] = false;
    fake_new_leader(f, 2);
    cr_assert_neq(fake_acquire(f, "b", 10000, 2), 0);
    fake_free(f);
}

static void fifty_shards(struct fake *f)
{
    f->shards = 50;
}

Test(core, map_in_pages)
{
    struct fake *f = fake_new(fifty_shards);

    fake_run(f, 200);
    cr_assert_eq(core_shards(f->core), 50);
    cr_assert_eq(fake_sent_ops(f, WIRE_OP_MAP) >= 10, true);
    uint32_t asked = fake_sent_ops(f, WIRE_OP_MAP);
    fake_run(f, 5000);
    cr_assert_eq(fake_sent_ops(f, WIRE_OP_MAP), asked, "known: not asked again");
    fake_free(f);
}

static void other_cluster(struct fake *f)
{
    f->options.cluster_id = 0xdead;
}

Test(core, wrong_cluster)
{
    struct fake *f = fake_new(other_cluster);

    cr_assert_eq(start(f, "a", 1), BELAY_OK);
    ended_with(f, 1, 6000, BELAY_WRONG_CLUSTER);
    fake_free(f);
}

/* A stray datagram of another cluster's node, or from a stranger, changes nothing. */
Test(core, strangers_are_ignored)
{
    struct fake *f = fake_new(NULL);
    core_ref lock = fake_acquire(f, "a", 10000, 1);
    struct fake_lease *lease = fake_lease(f, "a");
    struct wire_lost lost = {.reply = {.item = {.bytes = sizeof(lost), .op = WIRE_OP_PUSH_LOST},
                                       .session = lease->session},
                             .lease = {.secret = lease->secret, .slot = 7},
                             .reason = WIRE_LOST,
                             .final = 1};
    _Alignas(8) uint8_t bytes[256];
    struct wire_builder builder;
    struct wire_address stranger = {.port = 9999};

    wire_builder_start(&builder, bytes, sizeof(bytes), WIRE_KIND_REPLY, f->cluster_id, 1);
    memcpy(wire_builder_add(&builder, WIRE_OP_PUSH_LOST, sizeof(lost)), &lost, sizeof(lost));
    size_t length = wire_builder_finish(&builder);
    core_receive(f->core, f->now_ns, &stranger, bytes, length);
    cr_assert_eq(f->losses_count, 0);
    ((struct wire_header *)bytes)->cluster_id = 0xbad;
    fake_send_raw(f, 0, bytes, length);
    fake_run(f, 10);
    cr_assert_eq(f->losses_count, 0);
    struct core_lock_info info;
    cr_assert(core_lock_info(f->core, lock, &info) && info.deadline_ns > f->now_ns);
    ((struct wire_header *)bytes)->cluster_id = f->cluster_id;
    fake_send_raw(f, 0, bytes, length);
    f->check_safety = false;
    fake_run(f, 10);
    cr_assert_eq(f->losses_count, 1, "the same, from where it should come");
    fake_free(f);
}

/* ---- retries --------------------------------------------------------------------------------- */

static int to_swallow;

static bool swallow_acquires(struct fake *f, uint8_t node, const struct wire_item *item)
{
    (void)f;
    (void)node;
    return item->op == WIRE_OP_ACQUIRE && to_swallow-- > 0;
}

/* The same number again until it is answered, at growing intervals. */
Test(core, repeats_under_one_number)
{
    struct fake *f = fake_new(NULL);

    f->cookies[1] = f->cookies[2] = 0; /* never challenge: only time makes it repeat */
    cr_assert_neq(fake_acquire(f, "{s}a", 10000, 1), 0);
    to_swallow = 4;
    f->hook = swallow_acquires;
    uint32_t from = f->sent_count;
    cr_assert_neq(fake_acquire(f, "{s}b", 10000, 2), 0);
    uint64_t number = 0, last_ns = 0, gap_ns = 0;
    uint32_t copies = 0;
    for (uint32_t i = from; i < f->sent_count; i++) {
        const struct wire_acquire *acquire = (const struct wire_acquire *)f->sent[i].item;
        if (acquire->request.item.op != WIRE_OP_ACQUIRE)
            continue;
        cr_assert(number == 0 || acquire->request.number == number);
        number = acquire->request.number;
        if (copies >= 2 && copies <= 4)
            cr_assert_gt(f->sent[i].at_ns - last_ns, gap_ns, "intervals grow");
        if (copies >= 1)
            gap_ns = (f->sent[i].at_ns - last_ns) * 5 / 4;
        last_ns = f->sent[i].at_ns;
        copies++;
    }
    cr_assert_geq(copies, 5);
    cr_assert_eq(fake_leases(f), 2);
    fake_free(f);
}

/* etcd#18424: the answer is lost after the command was carried out; the retry changes nothing. */
Test(core, lost_answers_have_one_effect)
{
    struct fake *f = fake_new(NULL);

    f->loss_percent = 40;
    f->double_percent = 30;
    f->delay_spread_ns = 3 * FAKE_MS;
    for (uint64_t i = 0; i < 40; i++) {
        char name[16];
        snprintf(name, sizeof(name), "lock-%d", (int)(i % 7));
        core_ref lock = fake_acquire(f, name, 10000, 2 * i + 1);
        cr_assert_neq(lock, 0, "round %d", (int)i);
        cr_assert_eq(fake_leases(f), 1);
        release(f, lock, 2 * i + 2);
        cr_assert_eq(fake_leases(f), 0, "round %d", (int)i);
    }
    fake_free(f);
}

/* No answer at all: UNREACHABLE in time, and nothing is left when the cluster comes back. */
Test(core, unreachable)
{
    struct fake *f = fake_new(NULL);

    cr_assert_neq(fake_acquire(f, "{u}a", 60000, 1), 0);
    silence(f);
    uint64_t from_ns = f->now_ns;
    cr_assert_eq(start(f, "{u}b", 2), BELAY_OK);
    const struct fake_completion *done = ended_with(f, 2, 10000, BELAY_UNREACHABLE);
    cr_assert(done->at_ns - from_ns >= 5000 * FAKE_MS && done->at_ns - from_ns < 5050 * FAKE_MS);
    uint32_t sent = fake_sent_ops(f, WIRE_OP_ACQUIRE);
    cr_assert(sent > 8 && sent < 40, "%u transmissions in 5 s", sent);
    f->up[0] = f->up[1] = f->up[2] = true;
    fake_run(f, 3000);
    cr_assert_null(fake_lease(f, "{u}b"), "an acquire that ended at the client holds nothing");
    cr_assert_eq(fake_waiters(f), 0);
    cr_assert_eq(counts_of(f).requests, 0);
    fake_free(f);
}

Test(core, never_reachable)
{
    struct fake *f = fake_new(NULL);

    silence(f);
    cr_assert_eq(start(f, "b", 1), BELAY_OK);
    ended_with(f, 1, 10000, BELAY_UNREACHABLE);
    fake_free(f);
}

/* ---- leaders --------------------------------------------------------------------------------- */

Test(core, follows_a_redirect_at_once)
{
    struct fake *f = fake_new(NULL);

    cr_assert_neq(fake_acquire(f, "a", 10000, 1), 0);
    fake_run(f, 500);
    fake_new_leader(f, 2);
    uint64_t from_ns = f->now_ns;
    cr_assert_neq(fake_acquire(f, "a2", 10000, 2), 0);
    cr_assert_lt(f->now_ns - from_ns, 10 * FAKE_MS);
    cr_assert_eq(counts_of(f).redirects >= 1, true);
    fake_free(f);
}

/* The leader dies; another is elected 60 ms later. Both followers name the dead one meanwhile. */
static void fail_over(uint16_t worker_ports, uint64_t limit_ms)
{
    struct fake *f = fake_new(NULL);

    f->worker_ports = worker_ports;
    cr_assert_neq(fake_acquire(f, "a", 60000, 1), 0);
    for (uint64_t round = 0; round < 20; round++) {
        char name[16];
        snprintf(name, sizeof(name), "n%d", (int)round);
        uint8_t dead = f->leader;
        f->up[dead] = false;
        uint64_t from_ns = f->now_ns;
        start(f, name, 10 + round);
        core_flush(f->core);
        fake_run(f, 60);
        cr_assert_null(fake_completion(f, 10 + round));
        fake_new_leader(f, (uint8_t)((dead + 1) % FAKE_NODES));
        const struct fake_completion *done = ended_with(f, 10 + round, 1000, BELAY_OK);
        cr_assert_lt(done->at_ns - from_ns, (60 + limit_ms) * FAKE_MS, "round %d: %d ms",
                     (int)round, (int)((done->at_ns - from_ns) / FAKE_MS));
        f->up[dead] = true;
        fake_run(f, 300);
    }
    fake_free(f);
}

Test(core, failover_is_quick)
{
    fail_over(0, 75);
}

/* A node is asked at its first port, and what knows the leader is another worker of it. */
Test(core, failover_is_quick_where_another_worker_answers)
{
    fail_over(16, 200);
}

/* Two nodes that name each other do not make the client run in circles. */
static bool name_each_other(struct fake *f, uint8_t node, const struct wire_item *item)
{
    if (item->op == WIRE_OP_MAP || item->op == WIRE_OP_STATUS)
        return false;
    f->leader_claimed = node == 0 ? 1 : 0;
    f->leader = FAKE_NONE;
    return false;
}

Test(core, redirect_loops_are_slow)
{
    struct fake *f = fake_new(NULL);

    cr_assert_neq(fake_acquire(f, "a", 60000, 1), 0);
    f->hook = name_each_other;
    start(f, "b", 2);
    uint32_t before = f->sent_count;
    fake_run(f, 1000);
    cr_assert_lt(f->sent_count - before, 150);
    f->hook = NULL;
    fake_new_leader(f, 1);
    cr_assert_not_null(fake_wait(f, 2, 1000));
    fake_free(f);
}

static bool unavailable(struct fake *f, uint8_t node, const struct wire_item *item)
{
    const struct wire_request *request = (const struct wire_request *)item;
    struct wire_reply reply = {.item = {.bytes = sizeof(reply),
                                        .op = item->op,
                                        .shard = item->shard,
                                        .status = WIRE_UNAVAILABLE},
                               .session = request->session,
                               .number = request->number};
    if (item->op > WIRE_OP_LOGGED_LAST)
        return false;
    fake_reply(f, node, &reply);
    return true;
}

/* "Not now" is asked again after pauses that grow, and ends as UNREACHABLE. */
Test(core, unavailable_backs_off)
{
    struct fake *f = fake_new(NULL);

    cr_assert_neq(fake_acquire(f, "{u}a", 60000, 1), 0);
    f->hook = unavailable;
    uint32_t before = fake_sent_ops(f, WIRE_OP_ACQUIRE);
    start(f, "{u}b", 2);
    fake_run(f, 1000);
    uint32_t sent = fake_sent_ops(f, WIRE_OP_ACQUIRE) - before;
    cr_assert(sent > 4 && sent < 20, "%u", sent);
    f->hook = NULL;
    ended_with(f, 2, 400, BELAY_OK);
    fake_free(f);
}

/* ---- sessions -------------------------------------------------------------------------------- */

Test(core, one_session_per_shard_opened_when_used)
{
    struct fake *f = fake_new(NULL);

    fake_run(f, 500);
    cr_assert_eq(fake_sent_ops(f, WIRE_OP_OPEN), 0);
    for (uint64_t i = 0; i < 30; i++) {
        char name[16];
        snprintf(name, sizeof(name), "k%d", (int)i);
        cr_assert_neq(fake_acquire(f, name, 30000, i + 1), 0);
    }
    cr_assert_eq(f->sessions_count, 4);
    fake_run(f, 40000);
    cr_assert_eq(f->sessions_count, 4, "kept alive");
    for (uint32_t i = 0; i < 4; i++)
        cr_assert(f->sessions[i].alive);
    cr_assert_eq(fake_leases(f), 30, "renewed");
    cr_assert_eq(f->losses_count, 0);
    fake_free(f);
}

/* The answer to OPEN is lost: the same nonce again, the same session. */
static int opens_to_answer_for_nothing;

static bool lose_open_answer(struct fake *f, uint8_t node, const struct wire_item *item)
{
    (void)node;
    if (item->op != WIRE_OP_OPEN || opens_to_answer_for_nothing-- <= 0) {
        f->loss_percent = 0;
        return false;
    }
    f->loss_percent = 100; /* the open is carried out; what it answers is lost */
    return false;
}

Test(core, open_is_idempotent)
{
    struct fake *f = fake_new(NULL);

    fake_run(f, 200);
    opens_to_answer_for_nothing = 1;
    f->hook = lose_open_answer;
    start(f, "a", 1);
    core_flush(f->core);
    fake_run(f, 15);
    f->loss_percent = 0;
    ended_with(f, 1, 1000, BELAY_OK);
    cr_assert_geq(fake_sent_ops(f, WIRE_OP_OPEN), 2);
    cr_assert_eq(f->sessions_count, 1);
    fake_free(f);
}

static bool refuse_open(struct fake *f, uint8_t node, const struct wire_item *item)
{
    struct wire_problem problem = {.reply = {.item = {.bytes = sizeof(problem),
                                                      .op = WIRE_OP_OPEN,
                                                      .shard = item->shard,
                                                      .status = WIRE_OVER_LIMIT}},
                                   .what = WIRE_WHAT_SESSIONS,
                                   .limit = 10};
    if (item->op != WIRE_OP_OPEN)
        return false;
    fake_reply(f, node, &problem);
    return true;
}

Test(core, open_refused)
{
    struct fake *f = fake_new(NULL);

    cr_assert_neq(fake_acquire(f, "{other}a", 10000, 9), 0);
    uint32_t before = fake_sent_ops(f, WIRE_OP_OPEN);
    f->hook = refuse_open;
    start(f, "a", 1);
    start(f, "a", 2);
    const struct fake_completion *done = ended_with(f, 1, 1000, BELAY_OVER_LIMIT);
    cr_assert(done->what == WIRE_WHAT_SESSIONS);
    ended_with(f, 2, 1000, BELAY_OVER_LIMIT);
    cr_assert_eq(fake_sent_ops(f, WIRE_OP_OPEN), before + 1, "one refusal is not an invitation");
    cr_assert_eq(counts_of(f).sessions, 1);
    f->hook = NULL;
    cr_assert_neq(fake_acquire(f, "a", 10000, 3), 0);
    fake_free(f);
}

/* Bound locks and waiters end with the session; own-TTL locks stay, renewed from the next one. */
Test(core, session_lost)
{
    struct fake *f = fake_new(NULL);

    core_ref own = fake_acquire(f, "{x}own", 10000, 1);
    core_ref bound = fake_acquire(f, "{x}bound", 0, 2);
    cr_assert(own != 0 && bound != 0);
    ask(f, "{x}own", 10000, UINT64_MAX, 3);
    fake_run(f, 100);
    cr_assert_eq(fake_waiters(f), 1);
    f->check_safety = false; /* the test breaks the service's promise to the bound lock */
    fake_lose_sessions(f);
    fake_run(f, 4000); /* the next keepalive finds out */
    const struct fake_completion *done = fake_completion(f, 3);
    cr_assert(done != NULL && done->status == BELAY_SESSION_LOST);
    cr_assert_eq(f->losses_count, 1);
    cr_assert(f->losses[0].lock == bound && f->losses[0].reason == BELAY_LOST_SESSION);
    f->check_safety = true;
    fake_run(f, 30000);
    struct core_lock_info info;
    cr_assert(core_lock_info(f->core, own, &info) && info.deadline_ns > f->now_ns);
    cr_assert_eq(f->losses_count, 1, "renewed in the new session");
    release(f, own, 4);
    cr_assert_eq(fake_leases(f), 0);
    fake_free(f);
}

/* A session that is not used any more is left to expire, and opened anew when needed. */
Test(core, idle_sessions_lapse)
{
    struct fake *f = fake_new(NULL);

    release(f, fake_acquire(f, "a", 10000, 1), 2);
    fake_run(f, 300000);
    cr_assert_eq(counts_of(f).sessions, 0);
    cr_assert_neq(fake_acquire(f, "a", 10000, 3), 0);
    fake_free(f);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static void small_window(struct fake *f)
{
    f->window = 8;
    f->options.requests_max = 100;
}

/* More commands than the window holds: they wait their turn, none is refused by the server. */
Test(core, window_is_respected)
{
    struct fake *f = fake_new(small_window);
    char name[16];

    for (uint64_t i = 0; i < 60; i++) {
        snprintf(name, sizeof(name), "{w}%d", (int)i);
        cr_assert_eq(start(f, name, i + 1), BELAY_OK);
    }
    core_flush(f->core);
    fake_run(f, 2000);
    for (uint64_t i = 0; i < 60; i++)
        cr_assert(fake_completion(f, i + 1) != NULL &&
                  fake_completion(f, i + 1)->status == BELAY_OK);
    for (uint32_t i = 0; i < f->sent_count; i++) {
        const struct wire_request *request = (const struct wire_request *)f->sent[i].item;
        if (request->item.op == WIRE_OP_ACQUIRE)
            cr_assert_lt(request->number, (request->acked_below ? request->acked_below : 1) + 8);
    }
    fake_run(f, 60000);
    cr_assert_eq(f->losses_count, 0);
    fake_free(f);
}

Test(core, acknowledges_only_what_was_handed_over)
{
    struct fake *f = fake_new(NULL);

    cr_assert_neq(fake_acquire(f, "{q}0", 60000, 1), 0);
    to_swallow = 1;
    f->hook = swallow_acquires;
    start(f, "{q}1", 2); /* number 2: swallowed, unanswered for now */
    core_flush(f->core);
    fake_run(f, 1);
    cr_assert_neq(fake_acquire(f, "{q}2", 60000, 3), 0);
    const struct wire_request *last =
        (const struct wire_request *)fake_last(f, WIRE_OP_ACQUIRE)->item;
    cr_assert(last->number == 3 && last->acked_below == 2);
    cr_assert_not_null(fake_wait(f, 2, 1000));
    cr_assert_neq(fake_acquire(f, "{q}3", 60000, 4), 0);
    last = (const struct wire_request *)fake_last(f, WIRE_OP_ACQUIRE)->item;
    cr_assert_eq(last->acked_below, last->number);
    fake_free(f);
}

Test(core, limits_of_the_client)
{
    struct fake *f = fake_new(NULL);
    struct core_acquire acquire = fake_lock("x", 10000, UINT64_MAX);

    silence(f);
    for (uint64_t i = 0; i < f->options.requests_max; i++)
        cr_assert_eq(core_acquire(f->core, f->now_ns, 0, &acquire, i + 1, NULL), BELAY_OK);
    cr_assert_eq(core_acquire(f->core, f->now_ns, 0, &acquire, 1000, NULL), BELAY_OVER_LIMIT);
    fake_run(f, 6000);
    cr_assert_eq(f->completions_count, f->options.requests_max);
    cr_assert_eq(core_acquire(f->core, f->now_ns, 0, &acquire, 1000, NULL), BELAY_OK);
    acquire.mode = 0;
    cr_assert_eq(core_acquire(f->core, f->now_ns, 0, &acquire, 1001, NULL), BELAY_BAD_REQUEST);
    acquire.mode = WIRE_SHARED;
    acquire.ttl_ms = 0;
    cr_assert_eq(core_acquire(f->core, f->now_ns, 0, &acquire, 1001, NULL), BELAY_BAD_REQUEST);
    fake_free(f);
}

/* ---- closing --------------------------------------------------------------------------------- */

Test(core, close_releases_everything)
{
    struct fake *f = fake_new(NULL);

    for (uint64_t i = 0; i < 10; i++) {
        char name[16];
        snprintf(name, sizeof(name), "c%d", (int)i);
        cr_assert_neq(fake_acquire(f, name, i % 2 ? 60000 : 0, i + 1), 0);
    }
    start(f, "c1", 50);
    fake_run(f, 50);
    cr_assert_eq(fake_waiters(f), 1);
    core_close(f->core, f->now_ns, 0);
    core_flush(f->core);
    const struct fake_completion *done = fake_completion(f, 50);
    cr_assert(done != NULL && done->status == BELAY_CLOSED);
    cr_assert_not(core_client_is_closed(f->core, 0));
    fake_run(f, 100);
    cr_assert(core_client_is_closed(f->core, 0));
    cr_assert_eq(fake_leases(f), 0);
    cr_assert_eq(fake_waiters(f), 0);
    struct core_counts counts = counts_of(f);
    cr_assert(counts.requests == 0 && counts.locks == 0 && counts.sessions == 0);
    cr_assert_neq(fake_acquire(f, "c1", 1000, 60), 0, "the client may be used anew");
    fake_free(f);
}

/* ---- many clients in one core ---------------------------------------------------------------- */

static void many(struct fake *f)
{
    f->options.clients_count = 60;
    f->options.sessions_max = 240;
    f->options.locks_max = 300;
    f->options.requests_max = 300;
}

/* What many clients send to one node at one time shares datagrams. */
Test(core, virtual_clients_share_datagrams)
{
    struct fake *f = fake_new(many);
    char name[16];

    fake_run(f, 200);
    for (uint32_t i = 0; i < 60; i++) {
        snprintf(name, sizeof(name), "{v}%u", i);
        struct core_acquire acquire = fake_lock(name, 9000, UINT64_MAX);
        cr_assert_eq(core_acquire(f->core, f->now_ns, i, &acquire, i + 1, NULL), BELAY_OK);
    }
    core_flush(f->core);
    fake_run(f, 100);
    for (uint32_t i = 0; i < 60; i++)
        cr_assert(fake_completion(f, i + 1) != NULL &&
                  fake_completion(f, i + 1)->status == BELAY_OK);
    cr_assert_eq(counts_of(f).sessions, 60, "a session each");
    struct core_counts before = counts_of(f);
    fake_run(f, 30000);
    struct core_counts after = counts_of(f);
    cr_assert_eq(f->losses_count, 0);
    cr_assert_eq(fake_leases(f), 60);
    cr_assert_geq(after.keepalives - before.keepalives, 60 * 8);
    cr_assert_leq(after.keepalives - before.keepalives, 60 * 24);
    for (uint32_t i = 0; i < 60; i++)
        core_close(f->core, f->now_ns, i);
    core_flush(f->core);
    struct core_counts closing = counts_of(f);
    cr_assert_eq(closing.items_out - after.items_out, 60);
    cr_assert_leq(closing.datagrams_out - after.datagrams_out, 3,
                  "40 bytes each, 33 to a datagram");
    fake_run(f, 100);
    cr_assert_eq(fake_leases(f), 0);
    fake_free(f);
}

/* ---- reads ----------------------------------------------------------------------------------- */

static bool answer_query(struct fake *f, uint8_t node, const struct wire_item *item)
{
    const struct wire_named *named = (const struct wire_named *)item;
    struct wire_state state = {.reply = {.item = {.bytes = sizeof(state), .op = WIRE_OP_QUERY},
                                         .session = named->request.session,
                                         .number = named->request.number},
                               .index = 42};
    if (item->op != WIRE_OP_QUERY || node != f->leader)
        return false;
    fake_reply(f, node, &state);
    return true;
}

Test(core, reads_need_no_session)
{
    struct fake *f = fake_new(NULL);
    struct core_read read = {.op = WIRE_OP_QUERY,
                             .name = {.name = (const uint8_t *)"x", .name_bytes = 1}};
    f->hook = answer_query;
    cr_assert_eq(core_read(f->core, f->now_ns, 0, &read, 1, NULL), BELAY_OK);
    const struct fake_completion *done = ended_with(f, 1, 1000, BELAY_OK);
    cr_assert(done->op == WIRE_OP_QUERY);
    cr_assert_eq(fake_sent_ops(f, WIRE_OP_OPEN), 0);
    cr_assert_eq(core_ask_node(f->core, f->now_ns, WIRE_OP_STATUS, 1, 0, 2, NULL), BELAY_OK);
    done = ended_with(f, 2, 1000, BELAY_OK);
    cr_assert(done->op == WIRE_OP_STATUS);
    cr_assert_eq(core_ask_node(f->core, f->now_ns, WIRE_OP_WORKER, 1, 1, 4, NULL), BELAY_OK);
    done = ended_with(f, 4, 1000, BELAY_OK);
    cr_assert(done->op == WIRE_OP_WORKER);
    f->up[1] = false;
    core_ask_node(f->core, f->now_ns, WIRE_OP_STATUS, 1, 0, 3, NULL);
    ended_with(f, 3, 6000, BELAY_UNREACHABLE);
    fake_free(f);
}
