/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes wrong, and how often: each seed draws its own weather and its own mixture of faults, so
 * that rare ones meet in some seeds instead of drowning in all.
 */
#include <string.h>

#include "tests/sim/faults.h"

/* ---- weather --------------------------------------------------------------------------------- */

static void draw_winds(struct sim *sim)
{
    struct sim_weather *weather = &sim->weather;

    weather->rate_ppm = (int32_t)sim_below(sim, 4000);
    weather->loss_permille = (uint32_t)sim_below(sim, 40);
    weather->double_permille = (uint32_t)sim_below(sim, 40);
    weather->stale_permille = (uint32_t)sim_below(sim, 10);
    weather->spike_permille = (uint32_t)sim_below(sim, 20);
    weather->spike_ns = sim_below(sim, 400 * SIM_MS);
    weather->disk_spread_ns += sim_below(sim, 5 * SIM_MS);
    weather->fault_gap_ns = 100 * SIM_MS + sim_below(sim, 900 * SIM_MS);
    if (sim->profile == SIM_ELECTIONS || (sim->profile == SIM_ALL && sim_chance(sim, 300))) {
        weather->elections = true;
        weather->spike_permille = (uint32_t)sim_below(sim, 80);
        if (sim_chance(sim, 300)) /* rounds are faster than writes */
            weather->disk_ns += sim_below(sim, 40 * SIM_MS);
    }
}

/* In `all` a share of the seeds, chosen without a word of theirs: the others' histories stay. Not
 * together with figure 8, which plays with datagrams. */
static void draw_rdma(struct sim *sim)
{
    struct sim_weather *weather = &sim->weather;

    weather->rdma = sim->profile == SIM_RDMA ||
                    (sim->profile == SIM_ALL && !weather->elections && sim->seed % 10 == 7);
    if (!weather->rdma)
        return;
    weather->rdma_error_permille = (uint32_t)sim_below(sim, 12);
    weather->rdma_late_permille = (uint32_t)sim_below(sim, 120);
    if (sim->profile != SIM_RDMA)
        return;
    weather->memory = sim_chance(sim, 700);
    weather->elections = sim_chance(sim, 500);
}

void sim_weather_draw(struct sim *sim)
{
    struct sim_weather *weather = &sim->weather;

    *weather = (struct sim_weather){
        .delay_ns = 20 * SIM_US + sim_below(sim, 200 * SIM_US),
        .delay_spread_ns = sim_below(sim, 500 * SIM_US),
        .disk_ns = 50 * SIM_US + sim_below(sim, 300 * SIM_US),
        .disk_spread_ns = sim_below(sim, SIM_MS),
        .rate_ppm = 100,
        .think_ns = 20 * SIM_MS + sim_below(sim, 100 * SIM_MS),
        .reads_permille = 200,
    };
    if (sim->profile != SIM_CALM)
        draw_winds(sim);
    weather->ousting = sim_chance(sim, 150);
    if (sim_chance(sim, 300))
        weather->reads_permille = (uint32_t)sim_below(sim, 700);
    weather->memory =
        sim->profile == SIM_MEMORY || (sim->profile == SIM_ALL && sim_chance(sim, 100));
    weather->workers = sim->profile != SIM_CALM && sim_chance(sim, 300);
    weather->storage = sim->profile == SIM_STORAGE || sim->profile == SIM_ALL;
    draw_rdma(sim);
    sim_faults_draw(sim);
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

enum {
    IN_FAULTS = 1 << SIM_FAULTS,
    IN_STORAGE = 1 << SIM_STORAGE,
    IN_MEMBERSHIP = 1 << SIM_MEMBERSHIP,
    IN_ELECTIONS = 1 << SIM_ELECTIONS,
    IN_MEMORY = 1 << SIM_MEMORY,
    IN_RDMA = 1 << SIM_RDMA,
    IN_ANY = IN_FAULTS | IN_STORAGE | IN_MEMBERSHIP | IN_ELECTIONS | IN_MEMORY | IN_RDMA,
};

static const struct fault {
    void (*strike)(struct sim *sim);
    uint32_t weight;
    uint32_t profiles; /* besides `all` */
} faults[] = {
    {fault_client, 15, IN_ANY},
    {fault_snapshot, 15, IN_ANY},
    {fault_transfer, 10, IN_ANY},
    {fault_partition, 15, IN_FAULTS | IN_ELECTIONS | IN_MEMORY | IN_RDMA},
    {fault_clog, 8, IN_FAULTS | IN_ELECTIONS | IN_MEMORY | IN_RDMA},
    {fault_crash, 13, IN_ANY},
    {fault_power, 4, IN_ANY},
    {fault_pause, 5, IN_ANY},
    {fault_disk_stall, 6, IN_ANY},
    {fault_disk_error, 3, IN_STORAGE},
    {fault_disk_full, 3, IN_STORAGE},
    {fault_rot, 5, IN_STORAGE},
    {fault_snapshot_rot, 3, IN_STORAGE},
    {fault_wipe, 4, IN_MEMBERSHIP},
    {fault_storm, 0, IN_ELECTIONS | IN_RDMA},
    {fault_figure8, 0, IN_ELECTIONS},
    /* These two are drawn only where there is RDMA. */
    {fault_queue_pairs, 15, IN_RDMA},
    {fault_deposed, 20, IN_RDMA},
};

enum { FAULTS = sizeof faults / sizeof faults[0] };
_Static_assert((size_t)FAULTS <= SIM_FAULTS_MAX, "a weight for each");

/* Some kinds are left out, some come thrice as often. */
void sim_faults_draw(struct sim *sim)
{
    static const uint32_t factors[] = {0, 1, 1, 1, 3};

    for (size_t i = 0; i < FAULTS; i++) {
        uint32_t weight = faults[i].weight;

        if (faults[i].profiles == IN_RDMA && !sim->weather.rdma)
            continue;
        if (sim->weather.elections && !weight)
            weight = 12;
        if (sim->profile != SIM_ALL && !(faults[i].profiles & (1u << sim->profile)))
            weight = 0;
        sim->fault_weights[i] = weight * factors[sim_below(sim, 5)];
        sim->fault_weights_sum += sim->fault_weights[i];
    }
}

void sim_fault(struct sim *sim)
{
    uint64_t die = sim_below(sim, sim->fault_weights_sum);
    size_t which = 0;

    if (!sim->fault_weights_sum)
        return;
    while (die >= sim->fault_weights[which])
        die -= sim->fault_weights[which++];
    sim->faults_done++;
    faults[which].strike(sim);
}

/* From now on nothing fails. */
void sim_heal(struct sim *sim)
{
    sim_trace(sim, "everything is healed");
    sim->healed = true;
    sim->healed_ns = sim->now_ns;
    sim->storm_until_ns = 0;
    memset(sim->clogged_until_ns, 0, sizeof sim->clogged_until_ns);
    sim_net_heal(sim);
    sim->figure8.stage = FIGURE8_NOT;
    for (uint16_t i = 0; i < sim->nodes_count; i++) {
        struct sim_node *node = &sim->nodes[i];

        node->disk.full = node->disk.fail_next = false;
        sim_disk_unstall(node);
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
