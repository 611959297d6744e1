/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens to processes, disks and shards. The atlas spares the last good copy: what destroys a
 * replica's data (rot, a wiped disk) strikes one node at a time and waits until that node's
 * replicas vote again.
 */
#include <string.h>

#include "tests/sim/faults.h"

/* ---- nodes ----------------------------------------------------------------------------------- */

struct sim_node *sim_any_node(struct sim *sim)
{
    return &sim->nodes[sim_below(sim, sim->nodes_count)];
}

static void start_after(struct sim_node *node, uint64_t after_ns)
{
    (void)sim_post(node->sim, node->sim->now_ns + after_ns, SIM_EV_NODE_START, node->id - 1u, 0, 0,
                   NULL);
}

static void start_later(struct sim_node *node)
{
    start_after(node, 10 * SIM_MS + sim_below(node->sim, 1500 * SIM_MS));
}

/* In memory durability a crash destroys: only a minority may be lost at a time. */
bool sim_may_crash(const struct sim_node *node)
{
    return !node->sim->weather.memory || sim_may_destroy(node->sim);
}

/* Before anybody noticed much. */
void sim_crash_briefly(struct sim_node *node, const char *why)
{
    if (!node->up || !sim_may_crash(node))
        return;
    sim_node_crash(node, why);
    start_after(node, 5 * SIM_MS + sim_below(node->sim, 30 * SIM_MS));
}

void fault_crash(struct sim *sim)
{
    struct sim_node *node = sim_any_node(sim);

    if (!node->up || !sim_may_crash(node))
        return;
    switch (sim_below(sim, 6)) {
    case 0:
        node->crash_point = SIM_CRASH_BEFORE_WRITE;
        break;
    case 1:
        node->crash_point = SIM_CRASH_BEFORE_SEND;
        break;
    case 2:
        node->crash_point = SIM_CRASH_AFTER_SEND;
        break;
    case 3:
        node->crash_point = SIM_CRASH_AFTER_WRITE;
        break;
    default:
        sim_node_crash(node, "killed");
        break;
    }
    start_later(node);
}

void fault_power(struct sim *sim)
{
    if (sim->weather.memory)
        return;
    sim_trace(sim, "power is lost everywhere");
    for (uint16_t i = 0; i < sim->nodes_count; i++) {
        sim_node_crash(&sim->nodes[i], "no power");
        start_later(&sim->nodes[i]);
    }
}

void sim_node_pause(struct sim_node *node, uint64_t for_ns)
{
    struct sim *sim = node->sim;

    if (!node->up || node->paused)
        return;
    node->paused = true;
    sim_trace(sim, "n%u    stops for %.3f s", node->id, (double)for_ns / 1e9);
    (void)sim_post(sim, sim->now_ns + for_ns, SIM_EV_NODE_RESUME, node->id - 1u, node->epoch, 0,
                   NULL);
}

void fault_pause(struct sim *sim)
{
    struct sim_node *node = sim_any_node(sim);

    sim_node_pause(node, 20 * SIM_MS + sim_below(sim, 2 * SIM_SECOND));
}

void fault_disk_stall(struct sim *sim)
{
    struct sim_node *node = sim_any_node(sim);

    node->disk.stalled_until_ns = sim->now_ns + 20 * SIM_MS + sim_below(sim, 2 * SIM_SECOND);
    sim_trace(sim, "n%u    its disk stalls", node->id);
}

void fault_disk_error(struct sim *sim)
{
    struct sim_node *node = sim_any_node(sim);

    if (sim->weather.memory)
        return;
    if (!node->up)
        return;
    sim_trace(sim, "n%u    its next write will fail", node->id);
    node->disk.fail_next = true;
    (void)sim_post(sim, sim->now_ns + 2 * SIM_SECOND, SIM_EV_NODE_START, node->id - 1u, 0, 0, NULL);
}

void fault_disk_full(struct sim *sim)
{
    struct sim_node *node = sim_any_node(sim);

    if (sim->weather.memory)
        return;
    node->disk.full = !node->disk.full && sim_chance(sim, 300);
    if (node->disk.full) {
        sim_trace(sim, "n%u    its disk is full", node->id);
        for (uint16_t s = 0; s < sim->shards && node->up; s++)
            shard_want_snapshot(&node->shards[s]);
    } else if (node->stepped_down) {
        sim_node_crash(node, "restarted by its operator");
        start_later(node);
    }
}

/* ---- destruction ----------------------------------------------------------------------------- */

static bool is_whole(const struct sim *sim, const struct shard *shard)
{
    const struct raft_configuration *configuration = shard->view.configuration;

    for (uint32_t i = 0; i < configuration->count; i++) {
        if (configuration->members[i].role != RAFT_VOTER)
            return false;
    }
    return !shard->joining && shard->state == SHARD_RUNNING &&
           configuration->count == sim->nodes_count &&
           configuration->index <= shard->view.commit_index;
}

/* Every shard has a full set of voters, all of them on the nodes as they are. */
bool sim_may_destroy(struct sim *sim)
{
    for (uint16_t i = 0; i < sim->nodes_count; i++) {
        struct sim_node *node = &sim->nodes[i];
        bool whole = node->up;

        for (uint16_t s = 0; s < sim->shards && whole; s++)
            whole = is_whole(sim, &node->shards[s]);
        if (node->crash_point != SIM_CRASH_NOT && sim->weather.memory)
            whole = false;
        if (!whole)
            return false;
        node->rebuilding = false;
    }
    return true;
}

void fault_rot(struct sim *sim)
{
    struct sim_node *node = sim_any_node(sim);

    if (sim->weather.memory)
        return;
    if (!sim_may_destroy(sim))
        return;
    sim_node_crash(node, "killed");
    if (sim_disk_rot(node))
        node->rebuilding = true;
    start_later(node);
}

void fault_snapshot_rot(struct sim *sim)
{
    struct sim_node *node = sim_any_node(sim);
    uint32_t which = (uint32_t)sim_below(sim, SIM_FILES_MAX);
    struct sim_file *file = &node->disk.files[which];

    if (sim->weather.memory)
        return;
    if (!file->used || !sim_may_destroy(sim))
        return;
    sim_node_crash(node, "killed");
    file->bytes[sim_below(sim, file->length)] ^= (uint8_t)(1u << sim_below(sim, 8));
    sim_trace(sim, "n%u s%u bits rot in its snapshot at %llu", node->id, file->shard,
              (unsigned long long)file->index);
    node->rebuilding = true;
    start_later(node);
}

void fault_wipe(struct sim *sim)
{
    struct sim_node *node = sim_any_node(sim);

    if (!sim_may_destroy(sim))
        return;
    sim_node_crash(node, "its disk is replaced by a blank one");
    sim_disk_wipe(&node->disk);
    node->rebuilding = true;
    start_later(node);
}

/* ---- shards ---------------------------------------------------------------------------------- */

void fault_transfer(struct sim *sim)
{
    struct sim_node *node = sim_any_node(sim);
    uint16_t s = (uint16_t)sim_below(sim, sim->shards);
    struct shard *shard = &node->shards[s];

    if (!node->up || node->paused || shard->view.role != RAFT_LEADER)
        return;
    sim_trace(sim, "n%u s%u is to hand over leadership", node->id, s);
    shard_step(shard, &(struct raft_event){.kind = RAFT_EV_TRANSFER,
                                           .now_ns = sim_clock_read(sim, &node->clock)});
    sim_node_wake(node, sim->now_ns + 10 * SIM_US);
}

void fault_snapshot(struct sim *sim)
{
    struct sim_node *node = sim_any_node(sim);

    if (!node->up || node->paused)
        return;
    shard_want_snapshot(&node->shards[sim_below(sim, sim->shards)]);
    sim_node_wake(node, sim->now_ns + 10 * SIM_US);
}
