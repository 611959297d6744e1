/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens between processes: partitions of every shape, links that clog, and storms of
 * elections.
 */
#include "tests/sim/faults.h"

/* ---- network --------------------------------------------------------------------------------- */

void sim_cut(struct sim *sim, uint32_t from, uint32_t to, uint64_t for_ns)
{
    sim->cut[from][to] = true;
    (void)sim_post(sim, sim->now_ns + for_ns, SIM_EV_HEAL_LINK, from, 0, to, NULL);
}

void fault_partition(struct sim *sim)
{
    uint64_t for_ns = 50 * SIM_MS + sim_below(sim, 2 * SIM_SECOND);
    uint32_t a = (uint32_t)sim_below(sim, sim->nodes_count);
    uint32_t b = (uint32_t)sim_below(sim, sim->nodes_count);
    uint32_t kind = (uint32_t)sim_below(sim, 4);
    uint32_t client = SIM_NODES_MAX + (uint32_t)sim_below(sim, sim->cores_count);

    sim_trace(sim, "the network parts at n%u n%u, kind %u, for %.3f s", a + 1, b + 1, kind,
              (double)for_ns / 1e9);
    for (uint32_t i = 0; i < sim->nodes_count; i++) {
        if (kind == 0 && i != a) { /* alone */
            sim_cut(sim, a, i, for_ns);
            sim_cut(sim, i, a, for_ns);
        } else if (kind == 1 && i != a) { /* speaks, hears nothing */
            sim_cut(sim, i, a, for_ns);
        }
    }
    if (kind == 0 && sim_chance(sim, 500)) /* and it does not notice for a while */
        sim_node_pause(&sim->nodes[a], sim_below(sim, for_ns));
    if (kind == 2 && a != b) { /* a bridge: both still reach the others */
        sim_cut(sim, a, b, for_ns);
        sim_cut(sim, b, a, for_ns);
    } else if (kind == 3) {
        sim_cut(sim, client, a, for_ns);
        if (sim_chance(sim, 500))
            sim_cut(sim, a, client, for_ns);
    }
}

/* What is sent over it waits and arrives at once, in order. */
void fault_clog(struct sim *sim)
{
    uint32_t from = (uint32_t)sim_below(sim, sim->nodes_count);
    uint32_t to = (uint32_t)sim_below(sim, sim->nodes_count);
    uint64_t for_ns = 20 * SIM_MS + sim_below(sim, SIM_SECOND);

    if (from == to)
        return;
    sim_trace(sim, "the link from n%u to n%u clogs for %.3f s", from + 1, to + 1,
              (double)for_ns / 1e9);
    sim->clogged_until_ns[from][to] = sim->now_ns + for_ns;
}

/* A port goes down for a moment, or a cable is pulled: everything under way fails. */
void fault_queue_pairs(struct sim *sim)
{
    uint16_t a = (uint16_t)sim_below(sim, sim->nodes_count);
    uint16_t b = (uint16_t)sim_below(sim, sim->nodes_count);

    sim_trace(sim, "the queue pairs between n%u and n%u fail", a + 1, b + 1);
    sim_rdma_break(sim, a, b);
    sim_rdma_break(sim, b, a);
}

static struct sim_node *some_leader(struct sim *sim)
{
    uint16_t s = (uint16_t)sim_below(sim, sim->shards);

    for (uint16_t i = 0; i < sim->nodes_count; i++) {
        struct sim_node *node = &sim->nodes[i];

        if (node->up && node->shards[s].view.role == RAFT_LEADER)
            return node;
    }
    return NULL;
}

/* A leader that nobody hears, and that does not know: others' answers of a moment ago come late,
 * and its writes land while its successor is being elected. */
void fault_deposed(struct sim *sim)
{
    struct sim_node *leader = some_leader(sim);
    uint64_t hold_ns = 160 * SIM_MS + sim_below(sim, 140 * SIM_MS);
    uint16_t n;

    if (!leader)
        return;
    n = (uint16_t)(leader->id - 1);
    sim_trace(sim, "n%u    is not heard; its writes are held up for %.3f s", leader->id,
              (double)hold_ns / 1e9);
    for (uint16_t i = 0; i < sim->nodes_count; i++) {
        if (i == n)
            continue;
        sim->clogged_until_ns[n][i] = sim->now_ns + 400 * SIM_MS + sim_below(sim, 600 * SIM_MS);
        if (sim_chance(sim, 900))
            sim->clogged_until_ns[i][n] = sim->now_ns + 40 * SIM_MS + sim_below(sim, 110 * SIM_MS);
        sim_rdma_hold(sim, n, i, sim->now_ns + hold_ns + sim_below(sim, 40 * SIM_MS));
    }
}

/* ---- storms of elections --------------------------------------------------------------------- */

struct sim_node *sim_leader_of(struct sim *sim, uint16_t s)
{
    struct sim_node *leader = NULL;

    for (uint16_t i = 0; i < sim->nodes_count; i++) {
        struct sim_node *node = &sim->nodes[i];

        if (node->up && node->shards[s].view.role == RAFT_LEADER &&
            (!leader || node->shards[s].view.term > leader->shards[s].view.term))
            leader = node;
    }
    return leader;
}

/* Leaders fall again and again, voters die right after they voted and are back at once, requests
 * for votes come late or get lost: what a voter must not forget is asked of it within one term. */
void fault_storm(struct sim *sim)
{
    uint64_t for_ns = SIM_SECOND + sim_below(sim, 2 * SIM_SECOND);

    if (sim->now_ns < sim->storm_until_ns)
        return;
    sim->storm_until_ns = sim->now_ns + for_ns;
    sim->storm_delay_ns = SIM_MS + sim_below(sim, 150 * SIM_MS);
    sim_trace(sim, "a storm of elections for %.3f s", (double)for_ns / 1e9);
    (void)sim_post(sim, sim->now_ns, SIM_EV_STORM, 0, 0, 0, NULL);
}

static void isolate(struct sim *sim, const struct sim_node *node, uint64_t for_ns)
{
    for (uint16_t i = 0; i < sim->nodes_count; i++) {
        if (i == node->id - 1u)
            continue;
        sim_cut(sim, node->id - 1u, i, for_ns);
        sim_cut(sim, i, node->id - 1u, for_ns);
    }
}

void sim_storm(struct sim *sim)
{
    struct sim_node *leader = sim_leader_of(sim, (uint16_t)sim_below(sim, sim->shards));
    uint64_t die = sim_below(sim, 100);

    if (sim->healed || sim->now_ns >= sim->storm_until_ns)
        return;
    if (leader && die < 35)
        sim_crash_briefly(leader, "a storm");
    else if (leader && die < 75)
        isolate(sim, leader, 100 * SIM_MS + sim_below(sim, 400 * SIM_MS));
    else if (leader && die < 90)
        sim_node_pause(leader, 50 * SIM_MS + sim_below(sim, 300 * SIM_MS));
    (void)sim_post(sim, sim->now_ns + 20 * SIM_MS + sim_below(sim, 300 * SIM_MS), SIM_EV_STORM, 0,
                   0, 0, NULL);
}

/* A granted vote has been handed to the network. */
void sim_voted(struct sim_node *node)
{
    struct sim *sim = node->sim;

    if (sim->healed || sim->now_ns >= sim->storm_until_ns || !sim_chance(sim, 300) ||
        !sim_may_crash(node))
        return;
    node->crash_point = SIM_CRASH_AFTER_VOTE;
    (void)sim_post(sim, sim->now_ns + 2 * SIM_MS + sim_below(sim, 10 * SIM_MS), SIM_EV_NODE_START,
                   node->id - 1u, 0, 0, NULL);
}
