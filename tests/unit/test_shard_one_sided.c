/* SPDX-License-Identifier: Apache-2.0
 *
 * One-sided shipping in the shard, against a transport that the test plays by hand: who agrees on
 * it, what is posted and how much of it at a time, what a completion and an error are worth, and
 * that a ring is closed before its owner goes on. The bytes land when the test says so.
 */
#include "tests/unit/shard_world.h"

enum { POSTED_MAX = 256 };

struct posted {
    uint16_t from;
    struct shard_write what;
};

/* What the device was told, by all nodes. */
static struct {
    struct posted writes[POSTED_MAX];
    uint32_t count;
    uint32_t stops;
    struct shard_writer opening[WORLD_NODES + 1], closing[WORLD_NODES + 1]; /* grant 0 = none */
    bool deaf; /* nobody opens that way */
    int write_result;
} device;

static struct world world;

static int ring_open(void *context, uint16_t shard, const struct shard_writer *writer)
{
    (void)shard;
    if (device.deaf)
        return -1;
    device.opening[((struct world_node *)context)->node] = *writer;
    return 0;
}

static void ring_close(void *context, uint16_t shard, const struct shard_writer *writer)
{
    (void)shard;
    device.closing[((struct world_node *)context)->node] = *writer;
}

static int post_write(void *context, uint16_t shard, const struct shard_write *write)
{
    (void)shard;
    if (device.write_result < 0)
        return device.write_result;
    cr_assert(device.count < POSTED_MAX);
    device.writes[device.count++] =
        (struct posted){.from = ((struct world_node *)context)->node, .what = *write};
    return 0;
}

static void write_flush(void *context, uint16_t shard)
{
    (void)context;
    (void)shard;
}

static void write_stop(void *context, uint16_t shard, uint16_t node, uint64_t replica)
{
    (void)context;
    (void)shard;
    (void)node;
    (void)replica;
    device.stops++;
}

static void start(enum node_durability durability)
{
    memset(&device, 0, sizeof device);
    world_open(&world, durability);
    for (int i = 0; i < WORLD_NODES; i++) {
        struct shard_host *host = &world.nodes[i].host;

        host->ring_open = ring_open;
        host->ring_close = ring_close;
        host->write = post_write;
        host->write_flush = write_flush;
        host->write_stop = write_stop;
    }
}

static void answer_rings(void)
{
    for (int n = 1; n <= WORLD_NODES; n++) {
        struct shard *shard = &world.nodes[n - 1].shard;
        struct shard_writer opened = device.opening[n];
        struct shard_writer closed = device.closing[n];

        device.opening[n] = device.closing[n] = (struct shard_writer){0};
        if (closed.grant)
            shard_revoked(shard, &closed, world.now_ns);
        if (opened.grant)
            shard_granted(shard, &opened, world.now_ns);
    }
}

static void land(const struct shard_write *write)
{
    struct log *log = &world.nodes[write->to_node - 1].shard.log;

    memcpy(log->ring + write->position % log->ring_bytes, write->bytes, write->length);
}

/* All that was posted lands and completes, in order. */
static void land_all(void)
{
    uint32_t count = device.count;
    static struct posted writes[POSTED_MAX];

    memcpy(writes, device.writes, sizeof writes);
    device.count = 0;
    for (uint32_t i = 0; i < count; i++) {
        land(&writes[i].what);
        if (writes[i].what.last)
            shard_shipped(&world.nodes[writes[i].from - 1].shard, writes[i].what.to_replica,
                          writes[i].what.number, world.now_ns);
    }
}

static struct world_node *leader_of_world(void)
{
    for (int i = 0; i < WORLD_NODES; i++) {
        if (shard_leads(&world.nodes[i].shard))
            return &world.nodes[i];
    }
    return NULL;
}

/* A leader whose no-op is committed. */
static struct world_node *lead(void)
{
    for (int i = 0; i < 20000 && !leader_of_world(); i++) {
        world_tick(&world);
        answer_rings();
        land_all();
    }
    cr_assert_not_null(leader_of_world());
    for (int i = 0; i < 200; i++) {
        world_tick(&world);
        answer_rings();
        land_all();
    }
    return leader_of_world();
}

static struct world_node *follower_of(const struct world_node *leader)
{
    return &world.nodes[leader->node % WORLD_NODES];
}

static void append(struct world_node *node)
{
    struct raft_event event = {.kind = RAFT_EV_PROPOSE, .now_ns = world.now_ns};
    uint8_t *payload = raft_reserve(node->shard.raft, 8);

    cr_assert_not_null(payload);
    memset(payload, 0, 8); /* a batch of no commands */
    event.propose.kind = LOG_COMMANDS;
    event.propose.payload_bytes = 8;
    shard_step(&node->shard, &event);
}

static void propose(struct world_node *node)
{
    append(node);
    shard_ship_flush(&node->shard, world.now_ns);
}

static struct shard_writes *writes_to(struct world_node *leader, const struct world_node *peer)
{
    return &shard_peer_of(&leader->shard, peer->shard.replica)->writes;
}

/* ---- the happy path -------------------------------------------------------------------------- */

Test(shard_one_sided, commits_by_completions_in_memory)
{
    start(NODE_MEMORY);
    struct world_node *leader = lead();
    struct world_node *peer = follower_of(leader);
    uint64_t before = leader->shard.view.commit_index;

    cr_assert_eq(shard_ship_mode(&leader->shard), 1);
    cr_assert_eq(shard_ship_mode(&peer->shard), 1);
    propose(leader);
    cr_assert_gt(device.count, 0);
    cr_assert_eq(leader->shard.view.commit_index, before, "posted is not written");
    land_all();
    cr_assert_eq(leader->shard.view.commit_index, before + 1);
    cr_assert(log_sees_next(&peer->shard.log));
    shard_received(&peer->shard, world.now_ns);
    cr_assert_eq(peer->shard.log.last_index, before + 1);
    world_close(&world);
}

Test(shard_one_sided, on_disk_the_follower_says_so)
{
    start(NODE_DISK);
    struct world_node *leader = lead();
    uint64_t before = leader->shard.view.commit_index;

    propose(leader);
    land_all();
    cr_assert_eq(leader->shard.view.commit_index, before, "nobody has it on disk");
    for (int i = 0; i < 50; i++)
        world_tick(&world);
    cr_assert_eq(leader->shard.view.commit_index, before + 1);
    world_close(&world);
}

/* ---- what is posted -------------------------------------------------------------------------- */

Test(shard_one_sided, batches_under_way_are_bounded)
{
    start(NODE_MEMORY);
    struct world_node *leader = lead();
    struct shard_writes *writes = writes_to(leader, follower_of(leader));
    uint64_t grant = writes->grant;

    for (int i = 0; i < SHARD_WRITES_MAX + 5; i++)
        propose(leader);
    cr_assert_eq(writes->count, SHARD_WRITES_MAX);
    cr_assert_lt(writes->next, writes->end);
    land_all();
    shard_ship_flush(&leader->shard, world.now_ns);
    cr_assert_eq(writes->grant, grant);
    cr_assert_eq(writes->count, 1, "the rest in one");
    cr_assert_eq(writes->next, writes->end);
    world_close(&world);
}

/* No write crosses the ring's end, and a batch that does is one completion. */
Test(shard_one_sided, two_writes_at_the_rings_end)
{
    start(NODE_MEMORY);
    struct world_node *leader = lead();
    uint64_t ring_bytes = leader->shard.log.ring_bytes;
    uint32_t split = 0;

    for (int i = 0; i < 60; i++) {
        for (int entry = 0; entry < 100; entry++)
            append(leader);
        shard_ship_flush(&leader->shard, world.now_ns);
        for (uint32_t w = 0; w < device.count; w++) {
            const struct shard_write *write = &device.writes[w].what;

            cr_assert_leq(write->position % ring_bytes + write->length, ring_bytes);
            if (write->last)
                continue;
            split++;
            cr_assert_eq((write->position + write->length) % ring_bytes, 0);
            cr_assert_eq(device.writes[w + 1].what.number, write->number);
        }
        land_all();
        for (int t = 0; t < 20; t++) {
            world_tick(&world);
            answer_rings();
            land_all();
        }
    }
    cr_assert_gt(split, 0);
    cr_assert_eq(follower_of(leader)->shard.log.last_index, leader->shard.log.last_index);
    world_close(&world);
}

/* ---- what became of it ----------------------------------------------------------------------- */

Test(shard_one_sided, an_error_counts_for_nothing_and_attaches_anew)
{
    start(NODE_MEMORY);
    struct world_node *leader = lead();
    struct world_node *peer = follower_of(leader);
    uint64_t before = leader->shard.view.commit_index;
    uint64_t grant = writes_to(leader, peer)->grant;

    propose(leader);
    for (uint32_t i = 0; i < device.count; i++)
        shard_ship_failed(&leader->shard, device.writes[i].what.to_replica,
                          device.writes[i].what.number, world.now_ns);
    cr_assert_eq(leader->shard.view.commit_index, before);
    cr_assert_eq(device.stops, 2, "both queue pairs are reset");
    cr_assert_eq(writes_to(leader, peer)->grant, 0);
    land_all(); /* completions of the grant that is over */
    cr_assert_eq(leader->shard.view.commit_index, before);
    for (int i = 0; i < 200; i++) {
        world_tick(&world);
        answer_rings();
        land_all();
    }
    cr_assert_gt(leader->shard.view.commit_index, before, "the attach found it there");
    propose(leader);
    cr_assert_gt(writes_to(leader, peer)->grant, grant);
    world_close(&world);
}

Test(shard_one_sided, messages_after_many_errors_and_back)
{
    start(NODE_MEMORY);
    struct world_node *leader = lead();
    struct world_node *peer = follower_of(leader);

    device.write_result = -5;
    for (int i = 0; i < 4000 && !shard_peer_of(&leader->shard, peer->shard.replica)->sender.grant;
         i++) {
        world_tick(&world);
        answer_rings();
        if (i % 50 == 0)
            propose(leader);
    }
    cr_assert_neq(shard_peer_of(&leader->shard, peer->shard.replica)->sender.grant, 0);
    cr_assert_eq(writes_to(leader, peer)->grant, 0, "one mode at a time");
    for (int i = 0; i < 500; i++) {
        world_tick(&world);
        answer_rings();
    }
    cr_assert_eq(peer->shard.log.last_index, leader->shard.log.last_index);
    cr_assert_eq(shard_ship_mode(&peer->shard), 0);
    device.write_result = 0;
    for (int i = 0; i < 15000 && !writes_to(leader, peer)->grant; i++) {
        world_tick(&world);
        answer_rings();
        land_all();
    }
    propose(leader);
    land_all();
    cr_assert_neq(writes_to(leader, peer)->grant, 0, "offered again after a while");
    cr_assert_eq(shard_peer_of(&leader->shard, peer->shard.replica)->sender.grant, 0);
    world_close(&world);
}

Test(shard_one_sided, who_cannot_gets_messages)
{
    start(NODE_MEMORY);
    device.deaf = true;
    struct world_node *leader = lead();

    propose(leader);
    cr_assert_eq(device.count, 0);
    for (int i = 0; i < 100; i++)
        world_tick(&world);
    cr_assert_eq(leader->shard.view.commit_index, leader->shard.log.last_index);
    cr_assert_eq(shard_ship_mode(&leader->shard), 0);
    world_close(&world);
}

/* ---- the follower's ring --------------------------------------------------------------------- */

/* Datagrams of the same grant are not taken while its leader writes the ring. */
Test(shard_one_sided, no_datagrams_into_an_open_ring)
{
    start(NODE_MEMORY);
    struct world_node *leader = lead();
    struct world_node *peer = follower_of(leader);
    uint8_t item[sizeof(struct wire_ship) + 64] = {0};
    struct wire_ship ship = {.from_replica = leader->shard.replica,
                             .to_replica = peer->shard.replica,
                             .term = peer->shard.view.term,
                             .grant = peer->shard.grant_number,
                             .position = peer->shard.log.end,
                             .length = 64};

    memcpy(item, &ship, sizeof ship);
    shard_ship(&peer->shard, (const struct wire_ship *)(const void *)item);
    cr_assert_eq(peer->shard.log.received, peer->shard.log.end);
    world_close(&world);
}

/* Mu, DARE: no answer to a vote before the device says that nothing lands any more; what landed
 * until then makes the log longer. */
Test(shard_one_sided, a_vote_waits_for_the_device)
{
    start(NODE_MEMORY);
    struct world_node *leader = lead();
    struct world_node *peer = follower_of(leader);
    uint64_t term = peer->shard.view.term;
    uint64_t last = peer->shard.log.last_index;
    struct raft_message vote = {.kind = RAFT_MSG_VOTE,
                                .flags = RAFT_MSG_TRANSFER,
                                .from = world.nodes[peer->node % WORLD_NODES].shard.replica,
                                .to = peer->shard.replica,
                                .term = term + 1,
                                .index = last,
                                .log_term = peer->shard.log.last_term};

    shard_raft_message(&peer->shard, (uint16_t)(peer->node % WORLD_NODES + 1), &vote, world.now_ns);
    cr_assert_eq(peer->shard.view.term, term);
    cr_assert_neq(device.closing[peer->node].grant, 0);
    propose(leader);
    land_all(); /* it still lands, and the old leader counts it */
    shard_received(&peer->shard, world.now_ns);
    cr_assert_eq(peer->shard.log.last_index, last, "not looked at while it is being closed");
    cr_assert_eq(peer->shard.view.term, term);
    answer_rings();
    cr_assert_eq(peer->shard.log.last_index, last + 1);
    cr_assert_eq(peer->shard.view.term, term + 1);
    cr_assert_eq(peer->shard.view.vote, 0, "its log is longer than the candidate's");
    world_close(&world);
}

/* What was cut lies behind the end, valid in every respect, until the ring is opened. */
Test(shard_one_sided, the_window_is_zeroed)
{
    start(NODE_MEMORY);
    struct world_node *leader = lead();
    struct world_node *peer = follower_of(leader);
    struct log *log = &peer->shard.log;
    struct raft_effect grant = {.kind = RAFT_FX_GRANT};

    memset(log->ring + log->end % log->ring_bytes, 0xa5, 4096);
    peer->shard.ring_state = SHARD_RING_CLOSED;
    grant.grant.leader = leader->shard.replica;
    grant.grant.number = 99;
    grant.grant.one_sided = true;
    cr_assert(shard_ring_open(&peer->shard, &grant));
    for (uint64_t at = log->end; at < log_limit(log); at++)
        cr_assert_eq(log->ring[at % log->ring_bytes], 0);
    world_close(&world);
}
