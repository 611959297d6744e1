/* SPDX-License-Identifier: Apache-2.0
 *
 * Figure 8 of the Raft paper, played on one shard: a leader appends entries that nobody else gets
 * and falls; another leads, appends its own and falls; the first returns and brings its old entries
 * to a majority, but nothing of its new term; it falls again. The second must now be able to win
 * and replace those entries: whoever counted them as committed is wrong (5.4.2).
 */
#include "tests/sim/faults.h"

enum { PATIENCE_MS = 1500 };

static void stage(struct sim *sim, enum sim_figure8_stage next)
{
    sim_trace(sim, "figure 8: stage %d, s%u, n%u then n%u, up to index %llu", next,
              sim->figure8.shard, sim->figure8.first, sim->figure8.second,
              (unsigned long long)sim->figure8.index);
    sim->figure8.stage = next;
    sim->figure8.until_ns = sim->now_ns + PATIENCE_MS * SIM_MS;
}

static void start(struct sim *sim, uint16_t node)
{
    if (node && !sim->nodes[node - 1].up)
        (void)sim_post(sim, sim->now_ns + SIM_MS, SIM_EV_NODE_START, node - 1u, 0, 0, NULL);
}

static void end(struct sim *sim)
{
    sim->figure8.stage = FIGURE8_NOT;
    start(sim, sim->figure8.first);
    start(sim, sim->figure8.second);
}

void fault_figure8(struct sim *sim)
{
    uint16_t s = (uint16_t)sim_below(sim, sim->shards);
    const struct sim_node *leader = sim_leader_of(sim, s);

    if (sim->weather.memory || sim->figure8.stage != FIGURE8_NOT || !leader ||
        !leader->shards[s].view.ready || !sim_may_destroy(sim))
        return;
    sim->figure8 = (struct sim_figure8){.shard = s, .first = leader->id};
    stage(sim, FIGURE8_LONELY);
}

bool sim_figure8_blocks(const struct sim *sim, uint32_t from, uint32_t to)
{
    const struct sim_figure8 *play = &sim->figure8;

    return play->stage == FIGURE8_LONELY && (from == play->first - 1u || to == play->first - 1u);
}

size_t sim_figure8_ship(const struct sim *sim, const struct sim_node *node, uint16_t s,
                        uint64_t position, size_t length)
{
    const struct sim_figure8 *play = &sim->figure8;
    const struct log *log = &node->shards[s].log;
    uint64_t end_position;

    if (play->shard != s || (play->stage != FIGURE8_SECOND && play->stage != FIGURE8_RETURNED))
        return length;
    if (play->stage == FIGURE8_SECOND || node->id != play->first || play->index > log->last_index)
        return 0;
    end_position = log_end_of(log, play->index);
    if (position >= end_position)
        return 0;
    return length < end_position - position ? length : (size_t)(end_position - position);
}

static bool majority_has_it(const struct sim *sim)
{
    const struct sim_figure8 *play = &sim->figure8;
    const struct shard *first = &sim->nodes[play->first - 1].shards[play->shard];
    uint32_t holders = 0;

    for (uint16_t i = 0; i < sim->nodes_count; i++) {
        const struct shard *shard = &sim->nodes[i].shards[play->shard];

        holders += sim->nodes[i].up && shard->view.durable_index >= play->index &&
                   log_term(&shard->log, play->index) == log_term(&first->log, play->index);
    }
    return holders > sim->nodes_count / 2u;
}

static void turn_of_leader(struct sim *sim, struct sim_node *node, const struct shard *shard)
{
    struct sim_figure8 *play = &sim->figure8;
    bool written = shard->view.durable_index == shard->view.last_index;

    if (play->stage == FIGURE8_LONELY && node->id == play->first && written &&
        shard->view.last_index > shard->view.commit_index) {
        play->index = shard->view.last_index;
        sim_node_crash(node, "figure 8, b");
        stage(sim, FIGURE8_SECOND);
    } else if (play->stage == FIGURE8_SECOND && written) {
        play->second = node->id;
        sim_node_crash(node, "figure 8, c");
        start(sim, play->first);
        stage(sim, FIGURE8_RETURNED);
    } else if (play->stage == FIGURE8_RETURNED && node->id != play->first) {
        end(sim);
    } else if (play->stage == FIGURE8_JUDGED && node->id == play->second && shard->view.ready) {
        end(sim);
    }
}

void sim_figure8_turn(struct sim *sim, struct sim_node *node)
{
    struct sim_figure8 *play = &sim->figure8;
    const struct shard *shard = &node->shards[play->shard];

    if (play->stage == FIGURE8_NOT)
        return;
    if (sim->now_ns >= play->until_ns) {
        end(sim);
        return;
    }
    if (shard->view.role == RAFT_LEADER)
        turn_of_leader(sim, node, shard);
    if (play->stage != FIGURE8_RETURNED || node->id != play->first || !node->up)
        return;
    /* Its followers acknowledge within a moment; what it makes of that is what is judged. */
    if (shard->view.role == RAFT_LEADER && majority_has_it(sim) && !play->seen_ns)
        play->seen_ns = sim->now_ns;
    if (play->seen_ns && sim->now_ns >= play->seen_ns + 30 * SIM_MS) {
        sim_node_crash(node, "figure 8, d");
        start(sim, play->second);
        stage(sim, FIGURE8_JUDGED);
    }
}
