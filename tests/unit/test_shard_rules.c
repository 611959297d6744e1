/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules that other services got wrong, played by three replicas on a virtual clock: leases and
 * sessions over many leader changes, a stalled leader that comes back, requests whose leader dies
 * at any moment, reads compared on every node.
 */
#include "shard_world.h"

#define SECOND (1000 * WORLD_MS)

static struct world world;

static void close_world(void)
{
    world_close(&world);
}

TestSuite(shard_rules, .fini = close_world, .timeout = 100);

/* ---- one client ------------------------------------------------------------------------------ */

/* Sends the item until it is answered, as a client does: again, under the same number, to whoever
 * leads by then. */
static const struct wire_reply *ask(uint64_t who, struct wire_item *item)
{
    uint64_t number = ((const struct wire_request *)item)->number;

    for (int attempt = 0; attempt < 100; attempt++) {
        world_request(&world, who, item);
        for (int tick = 0; tick < 500; tick++) {
            const struct wire_reply *reply = world_find(&world, who, item->op, number);

            if (reply && reply->item.status != WIRE_UNAVAILABLE &&
                reply->item.status != WIRE_NOT_LEADER)
                return reply;
            world_tick(&world);
        }
    }
    cr_assert_fail("no answer to op %u number %llu", item->op, (unsigned long long)number);
    return NULL;
}

static struct wire_acquire *acquire_item(uint64_t *space, uint64_t session, uint64_t number,
                                         const char *name, uint32_t ttl_ms)
{
    struct wire_acquire *acquire = (struct wire_acquire *)space;

    memset(space, 0, 16 * sizeof *space);
    acquire->request.item.op = WIRE_OP_ACQUIRE;
    acquire->request.item.flags = ttl_ms ? 0 : WIRE_SESSION_BOUND;
    acquire->request.item.bytes = (uint16_t)(sizeof *acquire + wire_pad8(strlen(name)));
    acquire->request.session = session;
    acquire->request.number = number;
    acquire->request.acked_below = 1;
    acquire->ttl_ms = ttl_ms;
    acquire->wait_ms = WIRE_WAIT_FOREVER;
    acquire->mode = WIRE_EXCLUSIVE;
    acquire->name_bytes = (uint8_t)strlen(name);
    memcpy(acquire->text, name, strlen(name));
    return acquire;
}

static struct wire_granted acquire(uint64_t who, uint64_t session, uint64_t number,
                                   const char *name, uint32_t ttl_ms)
{
    uint64_t space[16];
    const struct wire_reply *reply =
        ask(who, &acquire_item(space, session, number, name, ttl_ms)->request.item);

    cr_assert_eq(reply->item.status, WIRE_OK, "%s: %s", name, wire_status_name(reply->item.status));
    return *(const struct wire_granted *)reply;
}

static enum wire_status keep_alive(uint64_t who, uint64_t session, uint64_t number)
{
    struct wire_renew renew = {.request = {.item = {.bytes = sizeof renew, .op = WIRE_OP_KEEPALIVE},
                                           .session = session,
                                           .number = number,
                                           .acked_below = number}};

    return (enum wire_status)ask(who, &renew.request.item)->item.status;
}

static uint32_t name_tag(const char *name)
{
    return (uint32_t)wire_key_hash((const uint8_t *)"", 0, (const uint8_t *)name, strlen(name));
}

/* The result of renewing one lease. */
static enum wire_status renew(uint64_t who, uint64_t session, uint64_t number, const char *name,
                              const struct wire_lease_id *lease)
{
    uint64_t space[(sizeof(struct wire_renew) + sizeof(struct wire_renewal)) / 8] = {0};
    struct wire_renew *item = (struct wire_renew *)space;
    const struct wire_renewed *renewed;

    item->request.item = (struct wire_item){.bytes = sizeof space, .op = WIRE_OP_RENEW};
    item->request.session = session;
    item->request.number = number;
    item->request.acked_below = number;
    item->count = 1;
    item->renewals[0] = (struct wire_renewal){.lease = *lease, .key_tag = name_tag(name)};
    renewed = (const struct wire_renewed *)ask(who, &item->request.item);
    cr_assert_eq(renewed->reply.item.status, WIRE_OK);
    return (enum wire_status)renewed->results[0];
}

static struct wire_release release_item(uint64_t session, uint64_t number, const char *name,
                                        const struct wire_lease_id *lease)
{
    return (struct wire_release){
        .request = {.item = {.bytes = sizeof(struct wire_release), .op = WIRE_OP_RELEASE},
                    .session = session,
                    .number = number,
                    .acked_below = 1},
        .lease = *lease,
        .key_tag = name_tag(name),
    };
}

static struct lock_counts counts(void)
{
    struct lock_counts result;

    lock_machine_counts(world_wait_leader(&world)->shard.machine, &result);
    return result;
}

/* ---- leader changes -------------------------------------------------------------------------- */

/* What the bound on lateness is made of. */
static struct {
    const struct world_node *leader;
    uint64_t leaderless_ns;
    uint32_t changes;
} watch;

static void watch_tick(void)
{
    const struct world_node *leader = world_leader(&world);

    if (!leader)
        watch.leaderless_ns += WORLD_MS / 10;
    else if (leader != watch.leader)
        watch.changes++;
    if (leader)
        watch.leader = leader;
    world_tick(&world);
}

static void watch_run(uint64_t for_ns)
{
    for (uint64_t until_ns = world.now_ns + for_ns; world.now_ns < until_ns;)
        watch_tick();
}

/* The leader hands over to the next node, or is stopped until another one leads. */
static void change_leader(bool orderly)
{
    struct world_node *old = world_wait_leader(&world);

    if (orderly) {
        struct raft_event transfer = {.kind = RAFT_EV_TRANSFER, .now_ns = world.now_ns};

        transfer.progress.peer = 101 + old->node % WORLD_NODES;
        shard_step(&old->shard, &transfer);
    } else {
        old->down = true;
    }
    for (int i = 0; world_leader(&world) == old || !world_leader(&world); i++) {
        cr_assert_lt(i, 20000, "nobody else leads");
        watch_tick();
    }
    old->down = false;
}

/* etcd#9395, etcd#13294: a TTL of 60 s and another leader every 20 s. The lease ends neither early
 * nor later than what the promise adds up: the time without a leader, one stamp interval per
 * change, a tick, and the hops of the entry that ends it. */
static void sixty_seconds(enum node_durability durability, bool orderly)
{
    uint64_t a, b, sent_ns, granted_ns, changed_ns;
    struct wire_granted held;

    world_open(&world, durability);
    memset(&watch, 0, sizeof watch);
    a = world_open_session(&world, 1, 3600000);
    b = world_open_session(&world, 2, 3600000);
    watch.leader = world_leader(&world);
    sent_ns = world.now_ns;
    held = acquire(1, a, 1, "x", 60000);
    granted_ns = world.now_ns;
    world_send_acquire(&world, 2, b, 1, "x", 60000);
    for (int change = 0; change < 2; change++) {
        watch_run(sent_ns + (uint64_t)(change + 1) * 20 * SECOND - world.now_ns);
        change_leader(orderly);
        cr_assert_eq(counts().leases, 1);
    }
    /* And once more right before the end. */
    watch_run(sent_ns + 59800 * WORLD_MS - world.now_ns);
    change_leader(orderly);
    changed_ns = world.now_ns;
    while (!world_find(&world, 2, WIRE_OP_PUSH_GRANT, 1)) {
        cr_assert_lt(world.now_ns, changed_ns + 70 * SECOND, "the lease began anew");
        watch_tick();
    }
    cr_assert_geq(watch.changes, 3);
    cr_assert_geq(world.now_ns, sent_ns + 60 * SECOND, "ended early");
    cr_assert_leq(world.now_ns - granted_ns,
                  60 * SECOND + watch.leaderless_ns +
                      watch.changes * world.nodes[0].options.stamp_interval_ns + LOCK_TICK_NS +
                      5 * WORLD_MS,
                  "%llu ms late over %u changes and %llu ms without a leader",
                  (unsigned long long)((world.now_ns - granted_ns - 60 * SECOND) / WORLD_MS),
                  watch.changes, (unsigned long long)(watch.leaderless_ns / WORLD_MS));
    cr_assert_gt(((const struct wire_granted *)world_find(&world, 2, WIRE_OP_PUSH_GRANT, 1))->token,
                 held.token);
}

Test(shard_rules, sixty_seconds_and_orderly_changes)
{
    sixty_seconds(NODE_DISK, true);
}

Test(shard_rules, sixty_seconds_and_stopped_leaders)
{
    sixty_seconds(NODE_DISK, false);
}

Test(shard_rules, sixty_seconds_and_stopped_leaders_in_memory)
{
    sixty_seconds(NODE_MEMORY, false);
}

/* Without a leader change a lease ends a tick and the hops of one entry after its TTL, whatever its
 * TTL: the leader proposes when something is due, not only when a stamp is. */
static void on_time(enum node_durability durability)
{
    uint64_t a, b;

    world_open(&world, durability);
    a = world_open_session(&world, 1, 3600000);
    b = world_open_session(&world, 2, 3600000);
    world_run(&world, 15 * SECOND); /* leadership has settled */
    for (uint64_t i = 1; i <= 20; i++) {
        uint32_t ttl_ms = (uint32_t)(100 + 37 * i);
        uint64_t sent_ns = world.now_ns;
        uint64_t granted_ns;
        struct wire_granted next;

        (void)acquire(1, a, i, "x", ttl_ms);
        granted_ns = world.now_ns;
        world_send_acquire(&world, 2, b, 2 * i, "x", 50000);
        next = *(const struct wire_granted *)world_wait_reply(&world, 2, WIRE_OP_PUSH_GRANT, 2 * i);
        cr_assert_geq(world.now_ns, sent_ns + ttl_ms * WORLD_MS, "ended early");
        cr_assert_leq(world.now_ns, granted_ns + ttl_ms * WORLD_MS + LOCK_TICK_NS + 3 * WORLD_MS,
                      "a TTL of %u ms ended %llu ms late", ttl_ms,
                      (unsigned long long)(world.now_ns - granted_ns) / WORLD_MS - ttl_ms);
        world_send_release(&world, 2, b, 2 * i + 1, "x", &next.lease);
        (void)world_wait_reply(&world, 2, WIRE_OP_RELEASE, 2 * i + 1);
    }
}

Test(shard_rules, leases_end_on_time_on_disk)
{
    on_time(NODE_DISK);
}

Test(shard_rules, leases_end_on_time_in_memory)
{
    on_time(NODE_MEMORY);
}

/* etcd#15922: fifty transfers, one every 400 ms; a session with a TTL of a second is kept alive all
 * the while, and what is bound to it is never lost. */
Test(shard_rules, a_session_outlives_fifty_transfers)
{
    struct wire_granted held, again;
    uint64_t space[16];
    uint64_t a;

    world_open(&world, NODE_DISK);
    memset(&watch, 0, sizeof watch);
    a = world_open_session(&world, 1, 1000);
    held = acquire(1, a, 1, "x", 0);
    for (uint64_t i = 0; i < 50; i++) {
        change_leader(true);
        cr_assert_eq(keep_alive(1, a, 2 + i), WIRE_OK, "after %u transfers", (unsigned)i + 1);
        watch_run(400 * WORLD_MS);
    }
    cr_assert_geq(watch.changes, 50);
    cr_assert_eq(counts().sessions_expired, 0);
    cr_assert_eq(counts().expired, 0);
    acquire_item(space, a, 60, "x", 0)->request.item.flags |= WIRE_REENTRANT;
    ((struct wire_acquire *)space)->request.acked_below = 52;
    again = *(const struct wire_granted *)ask(1, (struct wire_item *)space);
    cr_assert_eq(again.reply.item.status, WIRE_OK);
    cr_assert_eq(again.token, held.token, "the same lease still");
}

/* ---- a leader that stalls -------------------------------------------------------------------- */

enum stall { STALL_DISK, STALL_PROCESS };

/* While the disk stalls nothing that is written becomes durable; its process goes on. */
static void stall(struct world_node *node, enum stall how)
{
    node->cut = how == STALL_DISK;
    node->down = how == STALL_PROCESS;
    node->write_done_ns = UINT64_MAX;
}

static void unstall(struct world_node *node)
{
    node->cut = false;
    node->down = false;
    node->write_done_ns = wal_in_flight(node->wal) ? world.now_ns : 0;
}

/* etcd#15247: a leader stalls while a lease of 2 s runs; another one is elected and renews it; then
 * the first comes back, by whose clock the lease ended long ago. It must change nothing. */
static void comes_back(enum stall how)
{
    struct world_node *old;
    struct wire_granted held;
    uint64_t a, b, renewed_ns;

    world_open(&world, NODE_DISK);
    a = world_open_session(&world, 1, 3600000);
    b = world_open_session(&world, 2, 3600000);
    held = acquire(1, a, 1, "x", 2000);
    world_send_acquire(&world, 2, b, 1, "x", 2000);
    (void)world_wait_reply(&world, 2, WIRE_OP_ACQUIRE, 1);
    world_run(&world, 1000 * WORLD_MS);
    old = world_leader(&world);
    (void)renew(1, a, 2, "x", &held.lease);
    /* Right before the deadline: it comes while the stalled leader still takes itself for one. */
    world_run(&world, 1960 * WORLD_MS);
    cr_assert_eq(world_leader(&world), old);
    stall(old, how);
    for (int i = 0; world_leader(&world) == old || !world_leader(&world); i++) {
        cr_assert_lt(i, 20000);
        world_tick(&world);
    }
    renewed_ns = world.now_ns;
    cr_assert_eq(renew(1, a, 3, "x", &held.lease), WIRE_OK);
    world_run(&world, 1000 * WORLD_MS);
    unstall(old);
    /* All of it happens within the renewed TTL. */
    world_run(&world, 700 * WORLD_MS);
    cr_assert_lt(world.now_ns, renewed_ns + 2000 * WORLD_MS);
    cr_assert_null(world_find(&world, 2, WIRE_OP_PUSH_GRANT, 1), "granted to the waiter");
    cr_assert_null(world_find(&world, 1, WIRE_OP_PUSH_LOST, 0), "the holder was told it lost");
    cr_assert_eq(renew(1, a, 4, "x", &held.lease), WIRE_OK);
    world_run(&world, 1900 * WORLD_MS);
    cr_assert_null(world_find(&world, 2, WIRE_OP_PUSH_GRANT, 1));
    (void)world_wait_reply(&world, 2, WIRE_OP_PUSH_GRANT, 1);
    world_converge(&world);
    cr_assert_eq(lock_machine_history(old->shard.machine),
                 lock_machine_history(world_leader(&world)->shard.machine));
}

Test(shard_rules, a_leader_whose_disk_stalled_comes_back)
{
    comes_back(STALL_DISK);
}

Test(shard_rules, a_leader_that_was_stopped_comes_back)
{
    comes_back(STALL_PROCESS);
}

/* ---- once ------------------------------------------------------------------------------------ */

/* etcd#18424, jetcd#1444: the leader dies `ticks` after it took the request: before it is
 * replicated, before it is committed, after that, after the answer; answers that it sent are lost.
 * The retry at the next leader gets the one answer there is. */
static void dies_after(int ticks)
{
    struct wire_granted held, second;
    struct wire_release release;
    struct world_node *old;
    uint64_t space[16];
    uint64_t a, b;

    world_open(&world, NODE_DISK);
    a = world_open_session(&world, 1, 3600000);
    b = world_open_session(&world, 2, 3600000);
    world_request(&world, 1, &acquire_item(space, a, 1, "x", 60000)->request.item);
    old = world_leader(&world);
    for (int i = 0; i < ticks; i++)
        world_tick(&world);
    old->down = true;
    world.replies_count = 0;
    held = acquire(1, a, 1, "x", 60000);
    cr_assert_eq(counts().granted, 1, "after %d ticks", ticks);
    world_run(&world, 50 * WORLD_MS);
    old->down = false;
    world_run(&world, 500 * WORLD_MS);
    world_converge(&world);
    cr_assert_eq(counts().granted, 1);
    cr_assert_eq(counts().leases, 1);

    release = release_item(a, 2, "x", &held.lease);
    world_request(&world, 1, &release.request.item);
    old = world_leader(&world);
    for (int i = 0; i < ticks; i++)
        world_tick(&world);
    old->down = true;
    world.replies_count = 0;
    cr_assert_eq(ask(1, &release.request.item)->item.status, WIRE_OK);
    second = acquire(2, b, 1, "x", 60000);
    cr_assert_gt(second.token, held.token);
    /* A copy of the release that comes late releases nothing of the next holder. */
    world.replies_count = 0;
    cr_assert_eq(ask(1, &release.request.item)->item.status, WIRE_OK);
    old->down = false;
    world_run(&world, 500 * WORLD_MS);
    world_converge(&world);
    cr_assert_eq(counts().leases, 1);
    cr_assert_eq(counts().released, 1);
}

Test(shard_rules, the_leader_dies_at_every_moment_of_a_request)
{
    for (int ticks = 0; ticks < 14; ticks++) {
        dies_after(ticks);
        world_close(&world);
    }
    dies_after(40);
}

/* What a leader that is cut off takes in is never committed, and clients repeat it elsewhere. When
 * it leads again it must not drop a repetition as one that is under way: those entries are gone. */
Test(shard_rules, what_was_lost_with_leadership_may_come_again)
{
    enum { LOST = 40 };
    struct raft_event transfer = {.kind = RAFT_EV_TRANSFER};
    struct wire_address from = world_client(1);
    struct world_node *old, *other;
    uint64_t space[16];
    uint64_t a;
    char name[16];

    world_open(&world, NODE_DISK);
    a = world_open_session(&world, 1, 3600000);
    world_run(&world, 15 * SECOND); /* leadership has settled */
    old = world_leader(&world);
    old->cut = true;
    for (uint64_t i = 1; i <= LOST; i++) { /* an entry each */
        snprintf(name, sizeof name, "n%u", (unsigned)i);
        shard_request(&old->shard, &from, &acquire_item(space, a, i, name, 60000)->request.item,
                      world.now_ns);
        world_tick(&world);
    }
    other = world_wait_leader(&world);
    cr_assert_neq(other, old);
    old->cut = false;
    world_run(&world, 200 * WORLD_MS);
    transfer.now_ns = world.now_ns;
    transfer.progress.peer = 100 + old->node;
    shard_step(&other->shard, &transfer);
    world_run(&world, 50 * WORLD_MS);
    cr_assert_eq(world_wait_leader(&world), old);
    for (uint64_t i = LOST; i > 0; i--) {
        uint64_t asked_ns = world.now_ns;

        snprintf(name, sizeof name, "n%u", (unsigned)i);
        (void)acquire(1, a, i, name, 60000);
        cr_assert_leq(world.now_ns, asked_ns + 10 * WORLD_MS, "number %u was dropped", (unsigned)i);
    }
    cr_assert_eq(counts().granted, LOST);
}

/* redisson#1763: the lock is released in every gap of an acquire that finds it taken: before it
 * arrives, while it is committed, while its answer is on the way. It is granted at once each time.
 */
Test(shard_rules, a_release_in_every_gap_wakes_the_waiter)
{
    uint64_t a, b;

    world_open(&world, NODE_DISK);
    a = world_open_session(&world, 1, 3600000);
    b = world_open_session(&world, 2, 3600000);
    for (uint64_t gap = 0; gap < 40; gap++) {
        struct wire_granted held = acquire(1, a, 2 * gap + 1, "x", 60000);
        struct wire_release release = release_item(a, 2 * gap + 2, "x", &held.lease);
        uint64_t space[16];
        struct wire_acquire *wanted = acquire_item(space, b, 2 * gap + 1, "x", 60000);
        const struct wire_reply *grant = NULL;
        uint64_t from_ns;

        release.request.acked_below = 2 * gap + 1;
        wanted->request.acked_below = 2 * gap + 1;
        /* From the release 20 ticks before the acquire to 19 ticks after it. */
        for (uint64_t tick = 0; tick < 40; tick++) {
            if (tick == 20)
                world_request(&world, 2, &wanted->request.item);
            if (tick == gap)
                world_request(&world, 1, &release.request.item);
            world_tick(&world);
        }
        from_ns = world.now_ns;
        for (;;) {
            const struct wire_reply *answer = world_find(&world, 2, WIRE_OP_ACQUIRE, 2 * gap + 1);

            grant = world_find(&world, 2, WIRE_OP_PUSH_GRANT, 2 * gap + 1);
            if (!grant && answer && answer->item.status == WIRE_OK)
                grant = answer;
            if (grant)
                break;
            cr_assert_lt(world.now_ns, from_ns + 20 * WORLD_MS, "missed at gap %u", (unsigned)gap);
            world_tick(&world);
        }
        release = release_item(b, 2 * gap + 2, "x", &((const struct wire_granted *)grant)->lease);
        release.request.acked_below = 2 * gap + 2;
        cr_assert_eq(ask(2, &release.request.item)->item.status, WIRE_OK);
    }
}

/* A waiter is granted, and the leader dies before the push is acknowledged; what it sent is lost.
 * The next one pushes again, unasked, until the client says that it knows. */
Test(shard_rules, a_new_leader_pushes_again)
{
    struct wire_granted held, push;
    struct world_node *old;
    struct wire_release release;
    struct wire_push_ack ack = {.request = {.item = {.bytes = sizeof ack, .op = WIRE_OP_PUSH_ACK}}};
    uint64_t a, b;

    world_open(&world, NODE_DISK);
    a = world_open_session(&world, 1, 3600000);
    b = world_open_session(&world, 2, 3600000);
    held = acquire(1, a, 1, "x", 60000);
    world_send_acquire(&world, 2, b, 1, "x", 60000);
    (void)world_wait_reply(&world, 2, WIRE_OP_ACQUIRE, 1);
    release = release_item(a, 2, "x", &held.lease);
    world_request(&world, 1, &release.request.item);
    push = *(const struct wire_granted *)world_wait_reply(&world, 2, WIRE_OP_PUSH_GRANT, 1);
    world_run(&world, 10 * WORLD_MS); /* the others have heard that it is committed */
    old = world_leader(&world);
    old->down = true;
    world.replies_count = 0;
    cr_assert_neq(world_wait_leader(&world), old);
    world_run(&world, 20 * WORLD_MS);
    cr_assert_not_null(world_find(&world, 2, WIRE_OP_PUSH_GRANT, 1), "not pushed again");
    cr_assert_eq(((const struct wire_granted *)world_find(&world, 2, WIRE_OP_PUSH_GRANT, 1))->token,
                 push.token);
    ack.request.session = b;
    ack.request.number = 1;
    ack.lease = push.lease;
    world_request(&world, 2, &ack.request.item);
    world.replies_count = 0;
    world_run(&world, 5 * SECOND);
    cr_assert_null(world_find(&world, 2, WIRE_OP_PUSH_GRANT, 1),
                   "pushed after it was acknowledged");
    old->down = false;
}

/* ---- reads ----------------------------------------------------------------------------------- */

/* The answer of that node alone, its age left out. */
static struct wire_reply *read_at(struct world_node *node, uint8_t op, const char *name,
                                  uint64_t *out)
{
    uint64_t space[16] = {0};
    struct wire_named *named = (struct wire_named *)space;
    struct wire_address from = world_client(5);
    const struct wire_reply *reply;

    named->request.item.op = op;
    named->request.item.flags = WIRE_STALE;
    named->request.item.bytes = (uint16_t)(sizeof *named + wire_pad8(strlen(name)));
    named->request.number = 1;
    named->name_bytes = (uint8_t)strlen(name);
    memcpy(named->text, name, strlen(name));
    world.replies_count = 0;
    shard_request(&node->shard, &from, &named->request.item, world.now_ns);
    reply = world_find(&world, 5, op, 1);
    cr_assert_not_null(reply);
    cr_assert_eq(reply->item.status, WIRE_OK);
    memcpy(out, reply, reply->item.bytes);
    if (op == WIRE_OP_QUERY)
        ((struct wire_state *)out)->age_ns = 0;
    else
        ((struct wire_list *)out)->age_ns = 0;
    return (struct wire_reply *)out;
}

/* etcd#14019: list and get must agree, on every node, also after leader changes and on a node that
 * was away. */
Test(shard_rules, list_and_query_agree_on_every_node)
{
    enum { NAMES = 12 };
    uint64_t expected[SHARD_REPLY_BYTES_MAX / 8], found[SHARD_REPLY_BYTES_MAX / 8];
    uint64_t a;
    uint64_t tokens[NAMES] = {0};
    char name[16];

    world_open(&world, NODE_DISK);
    memset(&watch, 0, sizeof watch);
    a = world_open_session(&world, 1, 3600000);
    for (uint64_t i = 0; i < NAMES; i++) {
        struct wire_granted held;

        snprintf(name, sizeof name, "k/%u", (unsigned)i);
        held = acquire(1, a, i + 1, name, 60000);
        tokens[i] = held.token;
        if (i % 4 == 1)
            change_leader(i % 8 == 1);
        if (i % 3 == 2) {
            struct wire_release release = release_item(a, 20 + i, name, &held.lease);

            cr_assert_eq(ask(1, &release.request.item)->item.status, WIRE_OK);
            tokens[i] = 0;
        }
    }
    world_run(&world, 500 * WORLD_MS);
    world_converge(&world);
    for (int n = 0; n < WORLD_NODES; n++) {
        const struct wire_list *list;
        const struct wire_listed *listed;
        uint32_t held = 0;

        list = (const struct wire_list *)read_at(&world.nodes[n], WIRE_OP_LIST, "k/", found);
        if (n == 0)
            memcpy(expected, found, list->reply.item.bytes);
        cr_assert_eq(list->index, world_leader(&world)->shard.applied);
        cr_assert_eq(memcmp(expected, found, list->reply.item.bytes), 0, "lists differ");
        listed = (const struct wire_listed *)(list + 1);
        for (uint32_t i = 0; i < list->count; i++) {
            char one[16] = {0};
            uint64_t state_space[SHARD_REPLY_BYTES_MAX / 8];
            const struct wire_state *state;

            memcpy(one, listed + 1, listed->name_bytes);
            state = (const struct wire_state *)read_at(&world.nodes[n], WIRE_OP_QUERY, one,
                                                       state_space);
            cr_assert_eq(state->holders, listed->holders);
            cr_assert_eq(((const struct wire_party *)(state + 1))->token, listed->token);
            cr_assert_eq(listed->token, tokens[strtoul(one + 2, NULL, 10)], "%s", one);
            held++;
            listed = (const struct wire_listed *)((const uint8_t *)(listed + 1) +
                                                  wire_pad8(listed->name_bytes));
        }
        for (uint32_t i = 0; i < NAMES; i++) {
            const struct wire_state *state;

            snprintf(name, sizeof name, "k/%u", i);
            state = (const struct wire_state *)read_at(&world.nodes[n], WIRE_OP_QUERY, name, found);
            cr_assert_eq(state->holders, tokens[i] != 0, "%s on node %d", name, n + 1);
            held -= tokens[i] != 0;
        }
        cr_assert_eq(held, 0, "as many in the list as are held");
    }
}

/* A stale answer says of which index it is and for how long this replica has heard no leader; asked
 * without `stale`, a node that cannot know says so instead. */
Test(shard_rules, a_stale_answer_says_how_old_it_is)
{
    uint64_t found[SHARD_REPLY_BYTES_MAX / 8];
    struct wire_address from = world_client(5);
    struct world_node *away;
    const struct wire_state *state;
    uint64_t index, a;

    world_open(&world, NODE_DISK);
    a = world_open_session(&world, 1, 3600000);
    (void)acquire(1, a, 1, "old", 60000);
    world_run(&world, 100 * WORLD_MS);
    world_converge(&world);
    away = &world.nodes[world_leader(&world) == &world.nodes[0] ? 1 : 0];
    away->cut = true;
    index = away->shard.applied;
    (void)acquire(1, a, 2, "new", 60000);
    world_run(&world, 3 * SECOND);
    (void)read_at(away, WIRE_OP_QUERY, "new", found);
    state = (const struct wire_state *)world_find(&world, 5, WIRE_OP_QUERY, 1);
    cr_assert_eq(state->holders, 0);
    cr_assert_eq(state->index, index);
    cr_assert_geq(state->age_ns, 3 * SECOND);
    cr_assert_leq(state->age_ns, 3 * SECOND + 200 * WORLD_MS);
    for (int n = 0; n < WORLD_NODES; n++) {
        struct wire_named named = {
            .request = {.item = {.bytes = sizeof named + 8, .op = WIRE_OP_QUERY}, .number = 2},
            .name_bytes = 3};
        uint64_t space[sizeof named / 8 + 1] = {0};
        const struct wire_reply *reply;

        memcpy(space, &named, sizeof named);
        memcpy((uint8_t *)space + sizeof named, "new", 3);
        world.replies_count = 0;
        shard_request(&world.nodes[n].shard, &from, (const struct wire_item *)space, world.now_ns);
        world_run(&world, 50 * WORLD_MS);
        reply = world_find(&world, 5, WIRE_OP_QUERY, 2);
        cr_assert_not_null(reply);
        if (&world.nodes[n] == world_leader(&world)) {
            cr_assert_eq(reply->item.status, WIRE_OK);
            cr_assert_eq(((const struct wire_state *)reply)->holders, 1);
        } else {
            cr_assert_eq(reply->item.status, WIRE_NOT_LEADER);
        }
    }
    away->cut = false;
}
