/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes wrong, and when. The atlas spares the last good copy: what destroys a replica's data
 * (rot, a wiped disk) strikes one node at a time and waits until that node's replicas vote again.
 */
#include <string.h>

#include "tests/sim/sim.h"

/* ---- weather --------------------------------------------------------------------------------- */

void sim_weather_draw(struct sim *sim)
{
    struct sim_weather *weather = &sim->weather;

    *weather = (struct sim_weather){
        .delay_ns = 20 * SIM_US + sim_below(sim, 200 * SIM_US),
        .delay_spread_ns = sim_below(sim, 500 * SIM_US),
        .disk_ns = 50 * SIM_US + sim_below(sim, 300 * SIM_US),
        .disk_spread_ns = sim_below(sim, SIM_MS),
        .rate_ppm = 100,
    };
    if (sim->profile == SIM_CALM)
        return;
    weather->rate_ppm = (int32_t)sim_below(sim, 4000);
    weather->loss_permille = (uint32_t)sim_below(sim, 40);
    weather->double_permille = (uint32_t)sim_below(sim, 40);
    weather->stale_permille = (uint32_t)sim_below(sim, 10);
    weather->spike_permille = (uint32_t)sim_below(sim, 20);
    weather->spike_ns = sim_below(sim, 400 * SIM_MS);
    weather->disk_spread_ns += sim_below(sim, 5 * SIM_MS);
    weather->fault_gap_ns = 100 * SIM_MS + sim_below(sim, 900 * SIM_MS);
    weather->network = sim->profile == SIM_FAULTS || sim->profile == SIM_ALL;
    weather->process = true;
    weather->storage = sim->profile == SIM_STORAGE || sim->profile == SIM_ALL;
    weather->membership = sim->profile == SIM_MEMBERSHIP || sim->profile == SIM_ALL;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static struct sim_node *any_node(struct sim *sim)
{
    return &sim->nodes[sim_below(sim, sim->nodes_count)];
}

static void start_later(struct sim_node *node)
{
    struct sim *sim = node->sim;

    (void)sim_post(sim, sim->now_ns + 10 * SIM_MS + sim_below(sim, 1500 * SIM_MS),
                   SIM_EV_NODE_START, node->id - 1u, 0, 0, NULL);
}

static void fault_crash(struct sim *sim)
{
    struct sim_node *node = any_node(sim);

    if (!node->up)
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

static void fault_power(struct sim *sim)
{
    sim_trace(sim, "power is lost everywhere");
    for (uint16_t i = 0; i < sim->nodes_count; i++) {
        sim_node_crash(&sim->nodes[i], "no power");
        start_later(&sim->nodes[i]);
    }
}

static void pause_node(struct sim_node *node, uint64_t for_ns)
{
    struct sim *sim = node->sim;

    if (!node->up || node->paused)
        return;
    node->paused = true;
    sim_trace(sim, "n%u    stops for %.3f s", node->id, (double)for_ns / 1e9);
    (void)sim_post(sim, sim->now_ns + for_ns, SIM_EV_NODE_RESUME, node->id - 1u, node->epoch, 0,
                   NULL);
}

static void fault_pause(struct sim *sim)
{
    struct sim_node *node = any_node(sim);

    pause_node(node, 20 * SIM_MS + sim_below(sim, 2 * SIM_SECOND));
}

static void fault_disk_stall(struct sim *sim)
{
    struct sim_node *node = any_node(sim);

    node->disk.stalled_until_ns = sim->now_ns + 20 * SIM_MS + sim_below(sim, 2 * SIM_SECOND);
    sim_trace(sim, "n%u    its disk stalls", node->id);
}

static void fault_disk_error(struct sim *sim)
{
    struct sim_node *node = any_node(sim);

    if (!node->up)
        return;
    sim_trace(sim, "n%u    its next write will fail", node->id);
    node->disk.fail_next = true;
    (void)sim_post(sim, sim->now_ns + 2 * SIM_SECOND, SIM_EV_NODE_START, node->id - 1u, 0, 0, NULL);
}

static void fault_disk_full(struct sim *sim)
{
    struct sim_node *node = any_node(sim);

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

/* Every shard has a full set of voters, all of them on the nodes as they are. */
static bool may_destroy(struct sim *sim)
{
    for (uint16_t i = 0; i < sim->nodes_count; i++) {
        struct sim_node *node = &sim->nodes[i];
        bool whole = node->up;

        for (uint16_t s = 0; s < sim->shards && whole; s++)
            whole = !node->shards[s].joining && node->shards[s].state == SHARD_RUNNING;
        if (!whole)
            return false;
        node->rebuilding = false;
    }
    return true;
}

static void fault_rot(struct sim *sim)
{
    struct sim_node *node = any_node(sim);

    if (!may_destroy(sim))
        return;
    sim_node_crash(node, "killed");
    if (sim_disk_rot(node))
        node->rebuilding = true;
    start_later(node);
}

static void fault_snapshot_rot(struct sim *sim)
{
    struct sim_node *node = any_node(sim);
    uint32_t which = (uint32_t)sim_below(sim, SIM_FILES_MAX);
    struct sim_file *file = &node->disk.files[which];

    if (!file->used || !may_destroy(sim))
        return;
    sim_node_crash(node, "killed");
    file->bytes[sim_below(sim, file->length)] ^= (uint8_t)(1u << sim_below(sim, 8));
    sim_trace(sim, "n%u s%u bits rot in its snapshot at %llu", node->id, file->shard,
              (unsigned long long)file->index);
    node->rebuilding = true;
    start_later(node);
}

static void fault_wipe(struct sim *sim)
{
    struct sim_node *node = any_node(sim);

    if (!may_destroy(sim))
        return;
    sim_node_crash(node, "its disk is replaced by a blank one");
    sim_disk_wipe(&node->disk);
    node->rebuilding = true;
    start_later(node);
}

/* ---- shards ---------------------------------------------------------------------------------- */

static void fault_transfer(struct sim *sim)
{
    struct sim_node *node = any_node(sim);
    uint16_t s = (uint16_t)sim_below(sim, sim->shards);
    struct shard *shard = &node->shards[s];

    if (!node->up || node->paused || shard->view.role != RAFT_LEADER)
        return;
    sim_trace(sim, "n%u s%u is to hand over leadership", node->id, s);
    shard_step(shard, &(struct raft_event){.kind = RAFT_EV_TRANSFER,
                                           .now_ns = sim_clock_read(sim, &node->clock)});
    sim_node_wake(node, sim->now_ns + 10 * SIM_US);
}

static void fault_snapshot(struct sim *sim)
{
    struct sim_node *node = any_node(sim);

    if (!node->up || node->paused)
        return;
    shard_want_snapshot(&node->shards[sim_below(sim, sim->shards)]);
    sim_node_wake(node, sim->now_ns + 10 * SIM_US);
}

/* ---- network --------------------------------------------------------------------------------- */

static void cut(struct sim *sim, uint32_t from, uint32_t to, uint64_t for_ns)
{
    sim->cut[from][to] = true;
    (void)sim_post(sim, sim->now_ns + for_ns, SIM_EV_HEAL_LINK, from, 0, to, NULL);
}

static void fault_partition(struct sim *sim)
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
            cut(sim, a, i, for_ns);
            cut(sim, i, a, for_ns);
        } else if (kind == 1 && i != a) { /* speaks, hears nothing */
            cut(sim, i, a, for_ns);
        }
    }
    if (kind == 0 && sim_chance(sim, 500)) /* and it does not notice for a while */
        pause_node(&sim->nodes[a], sim_below(sim, for_ns));
    if (kind == 2 && a != b) { /* a bridge: both still reach the others */
        cut(sim, a, b, for_ns);
        cut(sim, b, a, for_ns);
    } else if (kind == 3) {
        cut(sim, client, a, for_ns);
        if (sim_chance(sim, 500))
            cut(sim, a, client, for_ns);
    }
}

/* ---- clients --------------------------------------------------------------------------------- */

static void fault_client(struct sim *sim)
{
    struct sim_core *core = &sim->cores[sim_below(sim, sim->cores_count)];

    if (sim_chance(sim, 300) && !core->paused)
        sim_core_crash(core);
    else
        sim_core_pause(core, 50 * SIM_MS + sim_below(sim, 3 * SIM_SECOND));
}

/* ---- the dice -------------------------------------------------------------------------------- */

void sim_fault(struct sim *sim)
{
    const struct sim_weather *weather = &sim->weather;
    uint64_t die = sim_below(sim, 100);

    sim->faults_done++;
    if (die < 15)
        fault_client(sim);
    else if (die < 30)
        fault_snapshot(sim);
    else if (die < 40)
        fault_transfer(sim);
    else if (die < 55 && weather->network)
        fault_partition(sim);
    else if (die < 68)
        fault_crash(sim);
    else if (die < 72)
        fault_power(sim);
    else if (die < 77)
        fault_pause(sim);
    else if (die < 83)
        fault_disk_stall(sim);
    else if (die < 86 && weather->storage)
        fault_disk_error(sim);
    else if (die < 89 && weather->storage)
        fault_disk_full(sim);
    else if (die < 93 && weather->storage)
        fault_rot(sim);
    else if (die < 96 && weather->storage)
        fault_snapshot_rot(sim);
    else if (weather->membership)
        fault_wipe(sim);
}

/* From now on nothing fails. */
void sim_heal(struct sim *sim)
{
    sim_trace(sim, "everything is healed");
    sim->healed = true;
    sim_net_heal(sim);
    for (uint16_t i = 0; i < sim->nodes_count; i++) {
        struct sim_node *node = &sim->nodes[i];

        node->disk.full = node->disk.fail_next = false;
        node->disk.stalled_until_ns = 0;
        node->crash_point = SIM_CRASH_NOT;
        if (node->stepped_down)
            sim_node_crash(node, "restarted by its operator");
        if (node->paused) {
            node->paused = false;
            sim_node_wake(node, sim->now_ns);
        }
        if (!node->up)
            (void)sim_post(sim, sim->now_ns + SIM_MS, SIM_EV_NODE_START, i, 0, 0, NULL);
    }
    for (uint32_t c = 0; c < sim->cores_count; c++)
        sim_core_resume(&sim->cores[c]);
}
