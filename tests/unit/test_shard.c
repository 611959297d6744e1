/* SPDX-License-Identifier: Apache-2.0
 *
 * A shard's three replicas together: what a client sees when everything goes well, when the leader
 * dies, when a replica falls behind its peers' logs, and when one comes back under a new id.
 */
#include "shard_world.h"

static struct world world;

static void close_world(void)
{
    world_close(&world);
}

TestSuite(shard, .fini = close_world, .timeout = 60);

static struct wire_granted granted(uint64_t who, uint64_t session, uint64_t number,
                                   const char *name, uint32_t ttl_ms)
{
    const struct wire_reply *reply;

    world_send_acquire(&world, who, session, number, name, ttl_ms);
    reply = world_wait_reply(&world, who, WIRE_OP_ACQUIRE, number);
    cr_assert_eq(reply->item.status, WIRE_OK, "status %s", wire_status_name(reply->item.status));
    return *(const struct wire_granted *)reply;
}

static void release_hands_over(enum node_durability durability)
{
    struct wire_granted first;
    const struct wire_granted *push;
    uint64_t a;
    uint64_t b;

    world_open(&world, durability);
    a = world_open_session(&world, 1, 30000);
    b = world_open_session(&world, 2, 30000);
    cr_assert_neq(a, b);
    first = granted(1, a, 1, "jobs/7", 10000);
    world_send_acquire(&world, 2, b, 1, "jobs/7", 10000);
    cr_assert_eq(world_wait_reply(&world, 2, WIRE_OP_ACQUIRE, 1)->item.status, WIRE_QUEUED);
    world_run(&world, 200 * WORLD_MS);
    cr_assert_null(world_find(&world, 2, WIRE_OP_PUSH_GRANT, 1), "still held by the first");
    world_send_release(&world, 1, a, 2, "jobs/7", &first.lease);
    push = (const struct wire_granted *)world_wait_reply(&world, 2, WIRE_OP_PUSH_GRANT, 1);
    cr_assert_gt(push->token, first.token);
    cr_assert_eq(push->waited, 1);
    cr_assert_eq(world_find(&world, 1, WIRE_OP_RELEASE, 2)->item.status, WIRE_OK);
    world_converge(&world);
    for (int i = 0; i < WORLD_NODES; i++) {
        const struct shard *shard = &world.nodes[i].shard;

        cr_assert_eq(shard->applied, world.nodes[0].shard.applied);
        cr_assert_eq(lock_machine_digest(shard->machine),
                     lock_machine_digest(world.nodes[0].shard.machine));
        cr_assert_null(lock_machine_verify(shard->machine));
    }
}

Test(shard, release_hands_over_on_disk)
{
    release_hands_over(NODE_DISK);
}

Test(shard, release_hands_over_in_memory)
{
    release_hands_over(NODE_MEMORY);
}

/* A retry at the new leader gets the same answer, and the lease is neither lost nor longer. */
static void leader_dies(enum node_durability durability)
{
    struct wire_granted first;
    struct wire_granted again;
    struct world_node *leader;
    const struct wire_granted *push;
    uint64_t a;
    uint64_t b;
    uint64_t granted_ns;
    uint64_t died_ns;
    uint64_t served_ns;

    world_open(&world, durability);
    a = world_open_session(&world, 1, 60000);
    b = world_open_session(&world, 2, 60000);
    first = granted(1, a, 1, "x", 2000);
    granted_ns = world.now_ns;
    world_send_acquire(&world, 2, b, 1, "x", 5000);
    (void)world_wait_reply(&world, 2, WIRE_OP_ACQUIRE, 1);
    world_run(&world, 500 * WORLD_MS);
    leader = world_leader(&world);
    leader->down = true;
    died_ns = world.now_ns;
    cr_assert_neq(world_wait_leader(&world), leader);
    served_ns = world.now_ns;
    world.replies_count = 0;
    again = granted(1, a, 1, "x", 2000);
    cr_assert_eq(again.token, first.token);
    cr_assert_eq(again.lease.secret, first.lease.secret);
    push = (const struct wire_granted *)world_wait_reply(&world, 2, WIRE_OP_PUSH_GRANT, 1);
    cr_assert_gt(push->token, first.token);
    cr_assert_geq(world.now_ns, granted_ns + 2000 * WORLD_MS - 2 * WORLD_MS, "never early");
    /* Late by the leaderless time, one stamp interval, a tick, and what replication takes. */
    cr_assert_leq(world.now_ns, granted_ns + 2000 * WORLD_MS + (served_ns - died_ns) +
                                    leader->options.stamp_interval_ns + 20 * WORLD_MS);
}

Test(shard, leader_dies_on_disk)
{
    leader_dies(NODE_DISK);
}

Test(shard, leader_dies_in_memory)
{
    leader_dies(NODE_MEMORY);
}

Test(shard, a_cut_off_leader_changes_nothing)
{
    struct world_node *old;
    struct wire_address from = world_client(1);
    uint64_t space[16] = {0};
    struct wire_acquire *acquire = (struct wire_acquire *)space;
    struct wire_granted held;
    uint64_t a;
    uint64_t b;

    world_open(&world, NODE_DISK);
    a = world_open_session(&world, 1, 60000);
    b = world_open_session(&world, 2, 60000);
    old = world_leader(&world);
    old->cut = true;
    /* It still believes it leads and takes the request into its log. */
    acquire->request.item = (struct wire_item){.bytes = sizeof *acquire + 8, .op = WIRE_OP_ACQUIRE};
    acquire->request.session = a;
    acquire->request.number = 1;
    acquire->request.acked_below = 1;
    acquire->ttl_ms = 9000;
    acquire->mode = WIRE_EXCLUSIVE;
    acquire->name_bytes = 1;
    acquire->text[0] = 'y';
    shard_request(&old->shard, &from, &acquire->request.item, world.now_ns);
    world_run(&world, 20 * WORLD_MS);
    cr_assert_null(world_find(&world, 1, WIRE_OP_ACQUIRE, 1), "not committed, not answered");
    held = granted(2, b, 1, "y", 9000);
    old->cut = false;
    world_run(&world, 1000 * WORLD_MS);
    world_converge(&world);
    cr_assert_null(world_find(&world, 1, WIRE_OP_ACQUIRE, 1));
    cr_assert_gt(held.token, 0);
    cr_assert_eq(lock_machine_digest(old->shard.machine),
                 lock_machine_digest(world_leader(&world)->shard.machine));
}

/* Enough acquire and release to go round the ring several times. */
static void churn(uint64_t who, uint64_t session, uint64_t *number, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        struct wire_granted held;

        world.replies_count = 0;
        world_send_acquire(&world, who, session, *number, "churn/lock", 5000);
        held =
            *(const struct wire_granted *)world_wait_reply(&world, who, WIRE_OP_ACQUIRE, *number);
        if (held.reply.item.status == WIRE_WINDOW_FULL)
            cr_assert_fail("the window is acknowledged by every request");
        world_send_release(&world, who, session, *number + 1, "churn/lock", &held.lease);
        (void)world_wait_reply(&world, who, WIRE_OP_RELEASE, *number + 1);
        *number += 2;
    }
}

static void ask_with_session(struct shard *shard, uint64_t session)
{
    struct wire_address from = world_client(1);
    uint64_t space[16] = {0};
    struct wire_acquire *acquire = (struct wire_acquire *)space;

    acquire->request.item = (struct wire_item){.bytes = sizeof *acquire + 8, .op = WIRE_OP_ACQUIRE};
    acquire->request.session = session;
    acquire->request.number = 1;
    acquire->request.acked_below = 1;
    acquire->ttl_ms = 9000;
    acquire->mode = WIRE_EXCLUSIVE;
    acquire->name_bytes = 1;
    acquire->text[0] = 'y';
    shard_request(shard, &from, &acquire->request.item, world.now_ns);
}

/* A leader that was stopped while another was elected has not heard of the sessions opened since:
 * it must not say of them that they are lost. */
Test(shard, a_deposed_leader_takes_no_session_for_lost)
{
    const struct wire_reply *reply;
    struct world_node *old;
    uint64_t a;

    world_open(&world, NODE_DISK);
    old = world_wait_leader(&world);
    old->down = true;
    world_run(&world, 2000 * WORLD_MS);
    a = world_open_session(&world, 1, 60000);
    old->down = false;
    old->cut = true;
    cr_assert(shard_leads(&old->shard), "as far as it knows");
    ask_with_session(&old->shard, a);
    world_run(&world, 500 * WORLD_MS);
    reply = world_find(&world, 1, WIRE_OP_ACQUIRE, 1);
    cr_assert(reply == NULL || reply->item.status == WIRE_NOT_LEADER);
    ask_with_session(&world_leader(&world)->shard, 4711); /* this one is */
    world_run(&world, 500 * WORLD_MS);
    reply = world_find(&world, 1, WIRE_OP_ACQUIRE, 1);
    cr_assert(reply != NULL && reply->item.status == WIRE_SESSION_LOST);
}

Test(shard, a_replica_behind_the_log_installs_a_snapshot)
{
    struct world_node *behind;
    uint64_t number = 1;
    uint64_t a;

    world_open(&world, NODE_DISK);
    a = world_open_session(&world, 1, 60000);
    (void)granted(1, a, number++, "kept", 60000);
    behind = &world.nodes[world_leader(&world) == &world.nodes[0] ? 1 : 0];
    behind->down = true;
    for (int i = 0; i < 40; i++) {
        /* Sessions come and go so that the log grows without filling one session's window. */
        uint64_t s = world_open_session(&world, 10 + (uint64_t)i, 60000);
        uint64_t n = 1;

        churn(10 + (uint64_t)i, s, &n, 40);
    }
    cr_assert_gt(world_leader(&world)->shard.log.base.index, behind->shard.log.last_index,
                 "its entries are gone from the leader's log");
    behind->down = false;
    world_run(&world, 1000 * WORLD_MS);
    world_converge(&world);
    cr_assert_geq(behind->shard.saved_index, 1);
    cr_assert_eq(lock_machine_digest(behind->shard.machine),
                 lock_machine_digest(world_leader(&world)->shard.machine));
    cr_assert_null(lock_machine_verify(behind->shard.machine));
}

/* Snapshots that are faster than the WAL: its word for one is waited for before the next is taken,
 * or it would be put off for ever and the log would never get room. */
Test(shard, snapshots_faster_than_the_disk_count)
{
    uint64_t a;
    uint64_t number = 1;

    world_open(&world, NODE_DISK);
    a = world_open_session(&world, 1, 60000);
    (void)granted(1, a, number++, "kept", 60000);
    world.disk_ns = 50 * WORLD_MS;
    for (int i = 0; i < 3000; i++) {
        for (int n = 0; n < WORLD_NODES; n++)
            shard_want_snapshot(&world.nodes[n].shard);
        world_tick(&world);
    }
    for (int n = 0; n < WORLD_NODES; n++)
        cr_assert_gt(world.nodes[n].shard.saved_index, 0);
}

Test(shard, a_lost_replica_joins_under_a_new_id)
{
    struct world_node *lost;
    const struct raft_configuration *configuration;
    uint64_t a;

    world_open(&world, NODE_DISK);
    a = world_open_session(&world, 1, 60000);
    (void)granted(1, a, 1, "kept", 60000);
    lost = &world.nodes[world_leader(&world) == &world.nodes[0] ? 1 : 0];
    world_begin(lost, 999, true, NULL);
    world_run(&world, 1000 * WORLD_MS);
    world_converge(&world);
    configuration = world_leader(&world)->shard.view.configuration;
    cr_assert_eq(configuration->count, WORLD_NODES);
    for (uint32_t i = 0; i < configuration->count; i++) {
        cr_assert_eq(configuration->members[i].role, RAFT_VOTER);
        cr_assert_eq(configuration->members[i].replica_id,
                     configuration->members[i].node == lost->node
                         ? 999u
                         : 100u + configuration->members[i].node);
    }
    cr_assert_not(lost->shard.joining);
    cr_assert_eq(lock_machine_digest(lost->shard.machine),
                 lock_machine_digest(world_leader(&world)->shard.machine));
}

/* The entry that makes a newcomer a voter may be cut again: it has joined when that is committed.
 */
Test(shard, a_newcomer_asks_until_it_is_a_committed_voter)
{
    struct world_node *lost;
    bool seen = false;

    world_open(&world, NODE_DISK);
    world_run(&world, 500 * WORLD_MS);
    lost = &world.nodes[world_leader(&world) == &world.nodes[0] ? 1 : 0];
    world_begin(lost, 999, true, NULL);
    for (int i = 0; i < 20000 && lost->shard.joining; i++) {
        const struct raft_configuration *configuration = lost->shard.view.configuration;
        bool voter = false;

        for (uint32_t k = 0; k < configuration->count; k++)
            voter |= configuration->members[k].replica_id == 999 &&
                     configuration->members[k].role == RAFT_VOTER;
        seen |= voter && configuration->index > lost->shard.view.commit_index;
        world_tick(&world);
    }
    cr_assert(seen, "an uncommitted voter was still asking");
    cr_assert_not(lost->shard.joining);
    cr_assert_leq(lost->shard.view.configuration->index, lost->shard.view.commit_index);
}

/* A request to join from before, heard while its node is silent, brings back a replica that nobody
 * has any more. It does not stay. */
Test(shard, a_replica_that_a_late_request_brought_back_goes_again)
{
    struct world_node *leader;
    struct world_node *silent;

    world_open(&world, NODE_DISK);
    world_run(&world, 500 * WORLD_MS);
    leader = world_leader(&world);
    silent = &world.nodes[leader == &world.nodes[0] ? 1 : 0];
    silent->cut = true;
    world_run(&world, 200 * WORLD_MS);
    shard_join_request(&leader->shard, silent->node, 4711, world.now_ns);
    cr_assert_eq(leader->shard.view.configuration->count, WORLD_NODES + 1);
    silent->cut = false;
    world_run(&world, 5000 * WORLD_MS);
    world_converge(&world);
    for (int i = 0; i < WORLD_NODES; i++)
        cr_assert_eq(world.nodes[i].shard.view.configuration->count, WORLD_NODES);
}

Test(shard, leadership_goes_where_it_belongs)
{
    world_open(&world, NODE_DISK);
    (void)world_wait_leader(&world);
    world_run(&world, 15000 * WORLD_MS);
    cr_assert_eq(world_leader(&world), &world.nodes[0], "shard 0 prefers node 1");
}
