/* SPDX-License-Identifier: Apache-2.0
 *
 * One seed, from formation to rest: weather and faults for a while, then healing, then everything
 * must settle. Safety is judged all the time, liveness at the end.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

enum { SETTLE_LOOKS = 600 }; /* of 50 ms */

static const char *const profiles[SIM_PROFILES] = {"calm",      "faults", "storage", "membership",
                                                   "elections", "memory", "rdma",    "all"};

const char *sim_profile_name(enum sim_profile profile)
{
    return profiles[profile];
}

bool sim_profile_choose(const char *name, enum sim_profile *profile)
{
    for (int i = 0; i < SIM_PROFILES; i++) {
        if (strcmp(profiles[i], name) == 0) {
            *profile = (enum sim_profile)i;
            return true;
        }
    }
    return false;
}

/* ---- one event ------------------------------------------------------------------------------- */

static void resume_node(struct sim_node *node)
{
    if (!node->paused)
        return;
    node->paused = false;
    sim_trace(node->sim, "n%u    goes on", node->id);
    sim_node_wake(node, node->sim->now_ns);
}

static void disk_event(struct sim_node *node, const struct sim_event *event)
{
    struct sim *sim = node->sim;
    uint16_t worker = (uint16_t)event->detail;

    if (event->order != node->disk.devices[worker].due_order)
        return;
    if (sim->now_ns < node->disk.stalled_until_ns) {
        sim_disk_due(node, worker, node->disk.stalled_until_ns);
        return;
    }
    sim_disk_complete(node, worker);
    if (node->crash_point == SIM_CRASH_AFTER_WRITE)
        sim_node_crash(node, "after a write, before it heard of it");
    else if (!node->paused)
        sim_node_wake(node, sim->now_ns + SIM_US);
}

static void turn_event(struct sim_node *node, const struct sim_event *event)
{
    if (event->order != node->turn_order)
        return;
    node->turn_at_ns = UINT64_MAX;
    if (!node->paused)
        sim_node_turn(node);
}

static void node_event(struct sim *sim, struct sim_event *event)
{
    struct sim_node *node = &sim->nodes[event->who];

    if (event->kind == SIM_EV_NODE_START) {
        sim_node_start(node);
    } else if (event->kind == SIM_EV_NODE_PACKET) {
        sim_node_packet(node, event->packet);
        event->packet = NULL;
    } else if (node->up && event->epoch == node->epoch) {
        if (event->kind == SIM_EV_NODE_TURN)
            turn_event(node, event);
        else if (event->kind == SIM_EV_NODE_DISK)
            disk_event(node, event);
        else if (event->kind == SIM_EV_NODE_SNAPSHOTS)
            sim_snapshots_turn(node);
        else
            resume_node(node);
    }
}

static void agent_event(struct sim *sim, const struct sim_event *event)
{
    struct sim_core *core = &sim->cores[event->who];

    sim_agent_step(core, (uint32_t)event->detail);
    (void)sim_post(sim, sim->now_ns + 2 * SIM_MS + sim_below(sim, sim->weather.think_ns),
                   SIM_EV_AGENT, event->who, event->epoch, event->detail, NULL);
}

static void core_event(struct sim *sim, struct sim_event *event)
{
    struct sim_core *core = &sim->cores[event->who];

    if (!core->up || event->epoch != core->epoch)
        return;
    switch (event->kind) {
    case SIM_EV_CORE_PACKET:
        sim_core_packet(core, event->packet);
        event->packet = NULL;
        break;
    case SIM_EV_CORE_TICK:
        if (event->order != core->tick_order)
            break;
        core->tick_at_ns = UINT64_MAX;
        sim_core_tick(core);
        break;
    case SIM_EV_CORE_RESUME:
        sim_core_resume(core);
        break;
    default:
        agent_event(sim, event);
        break;
    }
}

static void fault_event(struct sim *sim)
{
    if (sim->healed)
        return;
    if (sim->figure8.stage == FIGURE8_NOT)
        sim_fault(sim);
    (void)sim_post(sim, sim->now_ns + sim_below(sim, 2 * sim->weather.fault_gap_ns), SIM_EV_FAULT,
                   0, 0, 0, NULL);
}

static void step(struct sim *sim, struct sim_event *event)
{
    sim->steps++;
    switch (event->kind) {
    case SIM_EV_NODE_TURN:
    case SIM_EV_NODE_PACKET:
    case SIM_EV_NODE_DISK:
    case SIM_EV_NODE_SNAPSHOTS:
    case SIM_EV_NODE_RESUME:
    case SIM_EV_NODE_START:
        node_event(sim, event);
        break;
    case SIM_EV_CORE_PACKET:
    case SIM_EV_CORE_TICK:
    case SIM_EV_CORE_RESUME:
    case SIM_EV_AGENT:
        core_event(sim, event);
        break;
    case SIM_EV_FAULT:
        fault_event(sim);
        break;
    case SIM_EV_STORM:
        sim_storm(sim);
        break;
    case SIM_EV_HEAL_LINK:
        sim->cut[event->who][event->detail] = false;
        break;
    case SIM_EV_RDMA_RING:
    case SIM_EV_RDMA_LAND:
    case SIM_EV_RDMA_DONE:
        sim_rdma_event(sim, event);
        break;
    }
    free(event->packet);
}

static void run_until(struct sim *sim, uint64_t until_ns)
{
    struct sim_event event;

    while (!sim->failed && sim->events_count && sim->events[0].at_ns <= until_ns) {
        (void)sim_next(sim, &event);
        sim->now_ns = event.at_ns;
        step(sim, &event);
    }
    if (!sim->failed)
        sim->now_ns = until_ns;
}

/* ---- one seed -------------------------------------------------------------------------------- */

static void draw_names(struct sim *sim)
{
    static const char *const names[SIM_NAMES] = {
        "a", "a/b", "orders", "{orders}/7", "a-name-that-is-longer-than-24", "z"};

    for (uint32_t i = 0; i < SIM_NAMES; i++) {
        const uint8_t *name = (const uint8_t *)names[i];
        size_t length = strlen(names[i]);

        (void)snprintf(sim->names[i], sizeof sim->names[i], "%s", names[i]);
        sim->name_hash[i] = wire_key_hash(name, 0, name, length);
        sim->name_shard[i] = wire_shard_of(name, 0, name, length, sim->shards);
    }
}

static struct sim *sim_new(uint64_t seed, enum sim_profile profile, bool trace)
{
    struct sim *sim = calloc(1, sizeof *sim);

    assert(sim);
    sim->seed = sim->random = seed;
    sim->profile = profile;
    sim->trace = trace;
    sim->now_ns = SIM_MS;
    sim_weather_draw(sim);
    sim->nodes_count = sim_chance(sim, sim->weather.elections ? 500 : 150) ? 5 : 3;
    sim->shards = (uint16_t)(2 + sim_below(sim, SIM_SHARDS_MAX - 1));
    sim->cores_count = SIM_CORES_MAX;
    sim->agents_count = 1 + (uint32_t)sim_below(sim, SIM_AGENTS_MAX);
    sim->end_ns = 8 * SIM_SECOND + sim_below(sim, 12 * SIM_SECOND);
    draw_names(sim);
    if (sim->weather.rdma)
        sim->rdma = sim_rdma_new();
    sim->raft = check_raft_new(sim);
    sim->state = check_state_new(sim);
    sim->locks = check_locks_new(sim);
    sim->reads = check_reads_new(sim);
    return sim;
}

struct sim *sim_run(uint64_t seed, enum sim_profile profile, bool trace)
{
    struct sim *sim = sim_new(seed, profile, trace);

    sim_node_form(sim);
    for (uint32_t c = 0; c < sim->cores_count; c++)
        sim_core_start(sim, c);
    if (sim->weather.fault_gap_ns)
        (void)sim_post(sim, 500 * SIM_MS, SIM_EV_FAULT, 0, 0, 0, NULL);
    run_until(sim, sim->end_ns);
    if (sim->failed)
        return sim;
    sim_heal(sim);
    run_until(sim, sim->now_ns + 2 * SIM_SECOND); /* and clients go on meanwhile */
    sim->draining = true;
    for (int look = 1; look <= SETTLE_LOOKS && !sim->failed; look++) {
        run_until(sim, sim->now_ns + 50 * SIM_MS);
        if (!sim->failed && check_live_settled(sim, look == SETTLE_LOOKS))
            break;
    }
    return sim;
}

void sim_free(struct sim *sim)
{
    struct sim_event event;

    for (uint16_t i = 0; i < sim->nodes_count; i++)
        sim_node_free(&sim->nodes[i]);
    for (uint32_t c = 0; c < sim->cores_count; c++)
        sim_core_free(&sim->cores[c]);
    while (sim_next(sim, &event))
        free(event.packet);
    free(sim->events);
    sim_rdma_free(sim);
    for (int i = 0; i < 32; i++)
        free(sim->old[i]);
    check_raft_free(sim->raft);
    check_state_free(sim->state);
    check_locks_free(sim->locks);
    check_reads_free(sim->reads);
    free(sim);
}
