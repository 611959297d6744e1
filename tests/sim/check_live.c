/* SPDX-License-Identifier: Apache-2.0
 *
 * Liveness: once nothing fails any more, every command ends, every lock is given back, every shard
 * has one leader and as many voters as there are nodes, and every replica has all of the log.
 */
#include <stdio.h>

#include "tests/sim/sim.h"

static bool late(struct sim *sim, bool last, const char *format, unsigned a, unsigned b)
{
    char text[128];

    if (!last)
        return false;
    (void)snprintf(text, sizeof text, format, a, b);
    sim_fail(sim, "liveness", "%s, long after everything was healed", text);
    return false;
}

static const struct shard *leader_of(const struct sim *sim, uint16_t s)
{
    const struct shard *leader = NULL;

    for (uint16_t i = 0; i < sim->nodes_count; i++) {
        const struct shard *shard = &sim->nodes[i].shards[s];

        if (sim->nodes[i].up && shard_leads(shard) &&
            (!leader || shard->view.term > leader->view.term))
            leader = shard;
    }
    return leader;
}

static bool clients_done(struct sim *sim, bool last)
{
    for (uint32_t c = 0; c < sim->cores_count; c++) {
        for (int i = 0; i < SIM_LOCKS_MAX; i++) {
            if (sim->cores[c].asks[i].kind != SIM_ASK_NONE)
                return late(sim, last, "c%u: command #%u has not ended", c,
                            (unsigned)sim->cores[c].asks[i].user);
        }
        if (!sim_agents_idle(&sim->cores[c]))
            return late(sim, last, "c%u still holds something (%u)", c, 0);
    }
    return true;
}

static bool shard_settled(struct sim *sim, uint16_t s, bool last)
{
    const struct shard *leader = leader_of(sim, s);
    struct lock_counts counts;
    uint32_t voters = 0;

    if (!leader)
        return late(sim, last, "s%u has no leader%.0u", s, 0);
    for (uint32_t i = 0; i < leader->view.configuration->count; i++)
        voters += leader->view.configuration->members[i].role == RAFT_VOTER;
    if (voters != sim->nodes_count || leader->view.configuration->count != voters)
        return late(sim, last, "s%u has %u voters", s, voters);
    lock_machine_counts(leader->machine, &counts);
    if (counts.leases || counts.waiters)
        return late(sim, last, "s%u: %u leases or waiters are left", s,
                    counts.leases + counts.waiters);
    /* What is not held, waited for or delayed leaves no memory behind. */
    if (counts.resources)
        return late(sim, last, "s%u: %u resources are left", s, counts.resources);
    if (!sim->settle_index[s])
        sim->settle_index[s] = leader->view.last_index;
    return true;
}

bool check_live_settled(struct sim *sim, bool last)
{
    if (!clients_done(sim, last))
        return false;
    for (uint16_t s = 0; s < sim->shards; s++) {
        if (!shard_settled(sim, s, last))
            return false;
    }
    for (uint16_t i = 0; i < sim->nodes_count; i++) {
        for (uint16_t s = 0; s < sim->shards; s++) {
            const struct shard *shard = &sim->nodes[i].shards[s];

            if (!sim->nodes[i].up || shard->state != SHARD_RUNNING ||
                shard->applied < sim->settle_index[s])
                return late(sim, last, "n%u s%u has not applied all there is", i + 1u, s);
        }
    }
    return true;
}
