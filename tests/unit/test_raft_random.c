/* SPDX-License-Identifier: Apache-2.0
 *
 * Clusters under random schedules, reproducible from a seed: packets are lost, repeated, reordered
 * and cut off, disks stall, processes die and come back, members come and go, leadership is moved.
 * The rig checks election safety, leader completeness, state machine safety and log matching all
 * along; reads must not be older than what was committed when they were asked. Then everything is
 * healed and the group must lead, commit and agree again.
 *
 * BELAY_RAFT_SEEDS=n runs n seeds per kind; BELAY_RAFT_SEED=n only that one.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/raft_rig.h"

enum { CHAOS_STEPS = 6000, READS_MAX = 4096, SEEDS = 50 };

#define MS UINT64_C(1000000)

struct chaos {
    struct rig rig;
    bool lossy;
    bool members_change;
    bool cut[RIG_NODES_MAX][RIG_NODES_MAX];
    uint64_t pair_due_ns[RIG_NODES_MAX][RIG_NODES_MAX]; /* one-sided writes keep their order */
    uint64_t floor[READS_MAX];                          /* what a read must see */
    uint64_t reads, reads_ready;
    uint64_t next_id;
    uint64_t elections, cuts, installs, needs, reattached, ships, configurations, losses;
};

static const char *running;
static uint64_t running_seed;

static struct chaos *shown;

static void say_nodes(void)
{
    for (uint32_t i = 0; shown != NULL && i < shown->rig.nodes_count; i++) {
        struct rig_node *node = &shown->rig.nodes[i];
        struct raft_view view = rig_look(node);
        fprintf(
            stderr,
            "%llu%s role %d term %llu leader %llu log %llu..%llu durable %llu commit %llu applied "
            "%llu members %u@%llu grant %d disk ops %u fetches %llu installs %llu\n",
            (unsigned long long)node->id, node->alive ? "" : " dead", view.role,
            (unsigned long long)view.term, (unsigned long long)view.leader,
            (unsigned long long)node->log.base.index, (unsigned long long)view.last_index,
            (unsigned long long)view.durable_index, (unsigned long long)view.commit_index,
            (unsigned long long)view.applied_index, view.peers_count,
            (unsigned long long)view.configuration->index, node->access.open, node->disk.ops_count,
            (unsigned long long)node->fetches, (unsigned long long)node->installs);
        for (uint32_t j = 0; j < view.peers_count; j++)
            fprintf(stderr, "    %llu role %u state %u match %llu grant %llu active %d\n",
                    (unsigned long long)view.peers[j].member.replica_id, view.peers[j].member.role,
                    view.peers[j].state, (unsigned long long)view.peers[j].match_index,
                    (unsigned long long)view.peers[j].grant, view.peers[j].active);
    }
}

static void say_seed(int signal_number)
{
    char line[128];
    int length = snprintf(line, sizeof(line), "\nfailed: %s, BELAY_RAFT_SEED=%llu\n", running,
                          (unsigned long long)running_seed);
    (void)!write(STDERR_FILENO, line, (size_t)length);
    say_nodes();
    raise(signal_number);
}

static uint32_t slot(struct rig *rig, uint64_t id)
{
    return (uint32_t)(rig_node(rig, id) - rig->nodes);
}

static void on_packet(struct rig *rig, struct rig_packet *packet)
{
    struct chaos *chaos = rig->context;
    uint64_t delay_ns = 50000 + rig_random(rig, 400000);

    if (chaos->lossy && rig_random(rig, 20) == 0)
        delay_ns += rig_random(rig, 30 * MS);
    if (packet->kind == RIG_SNAPSHOT)
        delay_ns += rig_random(rig, 100 * MS);
    packet->due_ns = rig->now_ns + delay_ns;
    if (packet->kind == RIG_WRITE || packet->kind == RIG_SHIPPED || packet->kind == RIG_FAILED) {
        uint64_t *due_ns = &chaos->pair_due_ns[slot(rig, packet->from)][slot(rig, packet->to)];
        if (packet->due_ns <= *due_ns)
            packet->due_ns = *due_ns + 1;
        *due_ns = packet->due_ns;
    }
}

static void on_disk(struct rig *rig, struct rig_node *node, struct rig_disk_op *op)
{
    struct chaos *chaos = rig->context;
    uint64_t delay_ns = 50000 + rig_random(rig, MS / 2);

    (void)node;
    if (chaos->lossy && rig_random(rig, 100) == 0)
        delay_ns += rig_random(rig, 200 * MS);
    op->due_ns = rig->now_ns + delay_ns;
}

static void on_effect(struct rig *rig, struct rig_node *node, const struct raft_effect *effect)
{
    struct chaos *chaos = rig->context;

    chaos->elections += effect->kind == RAFT_FX_ROLE && effect->role.role == RAFT_LEADER;
    chaos->cuts += effect->kind == RAFT_FX_ENTRIES_LOST;
    chaos->installs += node->installs;
    node->installs = 0;
    chaos->needs += effect->kind == RAFT_FX_NEED_SNAPSHOT;
    chaos->reattached += effect->kind == RAFT_FX_DETACH;
    chaos->ships += effect->kind == RAFT_FX_SHIP;
    chaos->configurations += effect->kind == RAFT_FX_CONFIGURATION;
    if (effect->kind != RAFT_FX_READ_READY)
        return;
    chaos->reads_ready++;
    assert(effect->read.index >= chaos->floor[effect->read.context % READS_MAX]);
}

/* ---- time ------------------------------------------------------------------------------------ */

static bool is_lost(struct chaos *chaos, const struct rig_packet *packet)
{
    struct rig *rig = &chaos->rig;
    bool cut = rig_node(rig, packet->to) != NULL &&
               chaos->cut[slot(rig, packet->from)][slot(rig, packet->to)];

    if (packet->kind == RIG_MESSAGE || packet->kind == RIG_SHIP)
        return cut || (chaos->lossy && rig_random(rig, 25) == 0);
    return false;
}

static void deliver(struct chaos *chaos, uint32_t at)
{
    struct rig *rig = &chaos->rig;
    struct rig_packet *packet = &rig->packets[at];
    bool datagram = packet->kind == RIG_MESSAGE || packet->kind == RIG_SHIP;

    if (is_lost(chaos, packet)) {
        rig_drop(rig, at);
        return;
    }
    if (packet->kind == RIG_WRITE && chaos->cut[slot(rig, packet->from)][slot(rig, packet->to)]) {
        packet->refused = true; /* nothing lands, the writer gets an error */
    }
    if (chaos->lossy && datagram && rig_random(rig, 30) == 0)
        rig_duplicate(rig, at);
    rig_deliver(rig, at);
}

/* Performs what is due next; false if that is later than until_ns. */
static bool next(struct chaos *chaos, uint64_t until_ns)
{
    struct rig *rig = &chaos->rig;
    struct rig_due due = rig_due(rig);

    if (due.kind == RIG_DUE_NOTHING || due.at_ns > until_ns)
        return false;
    if (rig->now_ns < due.at_ns)
        rig->now_ns = due.at_ns;
    if (due.kind == RIG_DUE_TIMER) {
        rig->now_ns += 1000; /* clocks that run slow are not there yet: no endless loop */
        rig_tick(rig, due.node);
    } else if (due.kind == RIG_DUE_DISK) {
        rig_disk_step(rig, due.node);
    } else {
        deliver(chaos, due.packet);
    }
    return true;
}

/* ---- what happens to the cluster ------------------------------------------------------------- */

static struct rig_node *any_alive(struct chaos *chaos)
{
    struct rig *rig = &chaos->rig;
    uint32_t start = (uint32_t)rig_random(rig, rig->nodes_count);

    for (uint32_t i = 0; i < rig->nodes_count; i++) {
        struct rig_node *node = &rig->nodes[(start + i) % rig->nodes_count];
        if (node->alive)
            return node;
    }
    return NULL;
}

static struct rig_node *any_leader(struct chaos *chaos)
{
    struct rig *rig = &chaos->rig;
    uint32_t start = (uint32_t)rig_random(rig, rig->nodes_count);

    for (uint32_t i = 0; i < rig->nodes_count; i++) {
        struct rig_node *node = &rig->nodes[(start + i) % rig->nodes_count];
        if (node->alive && node->role == RAFT_LEADER)
            return node;
    }
    return NULL;
}

static void heal_links(struct chaos *chaos)
{
    memset(chaos->cut, 0, sizeof(chaos->cut));
}

static void cut_links(struct chaos *chaos)
{
    uint32_t count = chaos->rig.nodes_count;

    heal_links(chaos);
    uint32_t lonely = (uint32_t)rig_random(&chaos->rig, count);
    if (rig_random(&chaos->rig, 3) == 0) { /* one way, one link */
        chaos->cut[lonely][rig_random(&chaos->rig, count)] = true;
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        if (i != lonely)
            chaos->cut[i][lonely] = chaos->cut[lonely][i] = true;
}

/* Memory durability survives the loss of a minority: nobody else may be lost before the last one is
 * out of every configuration in force. */
static bool may_lose(struct chaos *chaos)
{
    struct rig *rig = &chaos->rig;

    if (rig->options.durability == RAFT_DISK)
        return true;
    for (uint32_t i = 0; i < rig->nodes_count; i++) {
        struct rig_node *node = &rig->nodes[i];
        if (!node->alive)
            continue;
        struct raft_view view = rig_look(node);
        uint32_t voters = 0;
        for (uint32_t j = 0; j < view.configuration->count; j++) {
            const struct raft_member *member = &view.configuration->members[j];
            voters += member->role == RAFT_VOTER;
            if (!rig_node(rig, member->replica_id)->alive)
                return false;
        }
        if (view.configuration->count > 0 && voters < 3)
            return false;
    }
    return true;
}

static void crash_or_restart(struct chaos *chaos)
{
    struct rig *rig = &chaos->rig;
    struct rig_node *node = &rig->nodes[rig_random(rig, rig->nodes_count)];

    if (node->alive && may_lose(chaos))
        rig_crash(rig, node);
    else if (!node->alive && rig->options.durability == RAFT_DISK)
        rig_restart(rig, node);
}

static void change_members(struct chaos *chaos)
{
    struct rig *rig = &chaos->rig;
    struct rig_node *leader = any_leader(chaos);

    if (leader == NULL)
        return;
    const struct raft_configuration *configuration = rig_look(leader).configuration;
    uint64_t member = configuration->members[rig_random(rig, configuration->count)].replica_id;
    for (uint32_t i = 0; i < configuration->count; i++) {
        const struct raft_member *other = &configuration->members[i];
        if (!rig_node(rig, other->replica_id)->alive && rig->options.durability == RAFT_MEMORY) {
            rig_change(rig, leader, RAFT_REMOVE, other->replica_id);
            return;
        }
    }
    switch (rig_random(rig, 4)) {
    case 0:
        if (configuration->count < 5 && rig->nodes_count < RIG_NODES_MAX) {
            uint64_t id = chaos->next_id++;
            rig_start(rig, id, NULL);
            rig_change(rig, leader, RAFT_ADD_LEARNER, id);
        }
        break;
    case 1:
        if (configuration->count > 3)
            rig_change(rig, leader, RAFT_REMOVE, member);
        break;
    default:
        rig_change(rig, leader, RAFT_PROMOTE, member);
        break;
    }
}

static void propose(struct chaos *chaos)
{
    struct rig_node *leader = any_leader(chaos);
    size_t bytes = rig_random(&chaos->rig, 10) == 0 ? rig_random(&chaos->rig, 700)
                                                    : rig_random(&chaos->rig, 60);

    if (leader != NULL)
        rig_propose(&chaos->rig, leader, bytes);
}

static void read_somewhere(struct chaos *chaos)
{
    struct rig_node *node = any_leader(chaos);

    if (node == NULL)
        return;
    chaos->floor[++chaos->reads % READS_MAX] = chaos->rig.committed_max;
    rig_read(&chaos->rig, node, chaos->reads);
}

static void misfortune(struct chaos *chaos)
{
    struct rig *rig = &chaos->rig;
    struct rig_node *node = any_alive(chaos);

    switch (rig_random(rig, 12)) {
    case 0:
    case 1:
        cut_links(chaos);
        break;
    case 2:
    case 3:
    case 4:
        heal_links(chaos);
        break;
    case 5:
    case 6:
        crash_or_restart(chaos);
        break;
    case 7:
        if (node != NULL)
            rig_transfer(rig, node, 0);
        break;
    case 8:
    case 9:
        if (chaos->members_change)
            change_members(chaos);
        break;
    default:
        chaos->lossy = rig_random(rig, 3) != 0;
        break;
    }
}

static void act(struct chaos *chaos)
{
    struct rig *rig = &chaos->rig;
    struct rig_node *node = any_alive(chaos);
    uint64_t dice = rig_random(rig, 400);

    if (dice < 60)
        propose(chaos);
    else if (dice < 80)
        read_somewhere(chaos);
    else if (dice < 90 && node != NULL && rig->options.durability == RAFT_DISK)
        rig_save(rig, node);
    else if (dice < 93)
        misfortune(chaos);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void heal(struct chaos *chaos)
{
    struct rig *rig = &chaos->rig;

    heal_links(chaos);
    chaos->lossy = false;
    for (uint32_t i = 0; i < rig->nodes_count; i++)
        if (!rig->nodes[i].alive && rig->options.durability == RAFT_DISK)
            rig_restart(rig, &rig->nodes[i]);
}

static void run(struct chaos *chaos, uint64_t duration_ns)
{
    uint64_t until_ns = chaos->rig.now_ns + duration_ns;

    while (next(chaos, until_ns))
        ;
    chaos->rig.now_ns = until_ns;
}

static bool saves(struct chaos *chaos)
{
    for (uint32_t i = 0; i < chaos->rig.nodes_count; i++)
        if (chaos->rig.nodes[i].alive && chaos->rig.options.durability == RAFT_DISK)
            rig_save(&chaos->rig, &chaos->rig.nodes[i]);
    return true;
}

/* A healed group leads, commits and agrees within a second or two. */
static void check_liveness(struct chaos *chaos)
{
    struct rig *rig = &chaos->rig;
    struct rig_node *leader = NULL;

    for (int i = 0; i < 20; i++) {
        run(chaos, 200 * MS);
        saves(chaos); /* or full rings stay full */
    }
    leader = any_leader(chaos);
    assert(leader != NULL && "no leader after healing");
    bool proposed = rig_propose(rig, leader, 24);
    assert(proposed && "the healed leader takes nothing");
    uint64_t index = rig_look(leader).last_index;
    uint64_t reads = chaos->reads_ready;
    read_somewhere(chaos);
    run(chaos, 500 * MS);
    struct raft_view view = rig_look(leader);
    assert(view.role == RAFT_LEADER && view.commit_index >= index);
    assert(chaos->reads_ready > reads);
    for (uint32_t i = 0; i < view.configuration->count; i++) {
        struct rig_node *node = rig_node(rig, view.configuration->members[i].replica_id);
        if (node->alive)
            assert(rig_look(node).commit_index >= index && "a member does not follow");
    }
}

static void chaos_run(const char *name, const struct rig_options *options, bool members_change,
                      uint64_t seed)
{
    static struct chaos chaos; /* one per forked test process */
    struct rig *rig = &chaos.rig;
    const uint64_t voters[] = {1, 2, 3, 4, 5};
    uint32_t count = seed % 3 == 0 ? 5 : 3;
    struct raft_configuration configuration = rig_configuration(voters, count);
    struct rig_options seeded = *options;

    running = name;
    running_seed = seed;
    memset(&chaos, 0, sizeof(chaos));
    seeded.seed = seed;
    rig_init(rig, &seeded);
    rig->context = &chaos;
    shown = &chaos;
    rig->on_packet = on_packet;
    rig->on_disk = on_disk;
    rig->on_effect = on_effect;
    chaos.members_change = members_change;
    chaos.next_id = 6;
    for (uint32_t i = 0; i < count; i++) {
        struct rig_node *node = rig_start(rig, voters[i], &configuration);
        node->clock_ppm = (int64_t)rig_random(rig, 800) - 400;
    }
    for (int i = 0; i < CHAOS_STEPS; i++) {
        next(&chaos, UINT64_MAX);
        act(&chaos);
        if (i % 64 == 0)
            rig_check(rig);
    }
    heal(&chaos);
    check_liveness(&chaos);
    rig_check(rig);
    assert(rig->committed_max > 10);
    if (getenv("BELAY_RAFT_SHOW") != NULL)
        fprintf(
            stderr,
            "%s %llu: committed %llu elections %llu cuts %llu snapshots %llu/%llu detached %llu "
            "ships %llu reads %llu/%llu configurations %llu nodes %u time %llu ms\n",
            name, (unsigned long long)seed, (unsigned long long)rig->committed_max,
            (unsigned long long)chaos.elections, (unsigned long long)chaos.cuts,
            (unsigned long long)chaos.installs, (unsigned long long)chaos.needs,
            (unsigned long long)chaos.reattached, (unsigned long long)chaos.ships,
            (unsigned long long)chaos.reads_ready, (unsigned long long)chaos.reads,
            (unsigned long long)chaos.configurations, rig->nodes_count,
            (unsigned long long)(rig->now_ns / MS));
    rig_free(rig);
}

static void chaos_seeds(const char *name, const struct rig_options *options, bool members_change)
{
    const char *one = getenv("BELAY_RAFT_SEED"), *many = getenv("BELAY_RAFT_SEEDS");
    uint64_t seeds = many != NULL ? strtoull(many, NULL, 10) : SEEDS;

    sigaction(SIGABRT, &(struct sigaction){.sa_handler = say_seed, .sa_flags = SA_RESETHAND}, NULL);
    if (one != NULL) {
        chaos_run(name, options, members_change, strtoull(one, NULL, 10));
        return;
    }
    for (uint64_t seed = 1; seed <= seeds; seed++)
        chaos_run(name, options, members_change, seed);
}

static struct rig_options options_of(enum raft_durability durability, bool one_sided)
{
    return (struct rig_options){
        .durability = durability,
        .one_sided = one_sided,
        .ring_bytes = 16384,
        .slots_count = 256,
        .window_bytes = 2048,
        .heartbeat_ns = 10 * MS,
        .election_timeout_ns = 50 * MS,
        .lease_drift_ppm = 1000,
    };
}

Test(raft_random, disk_messages)
{
    struct rig_options options = options_of(RAFT_DISK, false);
    chaos_seeds("disk_messages", &options, false);
}

Test(raft_random, disk_messages_members)
{
    struct rig_options options = options_of(RAFT_DISK, false);
    chaos_seeds("disk_messages_members", &options, true);
}

Test(raft_random, disk_one_sided)
{
    struct rig_options options = options_of(RAFT_DISK, true);
    chaos_seeds("disk_one_sided", &options, true);
}

Test(raft_random, memory_messages)
{
    struct rig_options options = options_of(RAFT_MEMORY, false);
    chaos_seeds("memory_messages", &options, true);
}

Test(raft_random, memory_one_sided)
{
    struct rig_options options = options_of(RAFT_MEMORY, true);
    chaos_seeds("memory_one_sided", &options, true);
}

Test(raft_random, lease_reads)
{
    struct rig_options options = options_of(RAFT_DISK, false);
    options.lease_reads = true;
    chaos_seeds("lease_reads", &options, false);
}

/* The lease depends on the state's restart rule and on the clocks; one-sided completions must not
 * feed it. */
Test(raft_random, lease_reads_one_sided)
{
    struct rig_options options = options_of(RAFT_DISK, true);
    options.lease_reads = true;
    chaos_seeds("lease_reads_one_sided", &options, true);
}
