/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads without log entries: ReadIndex (thesis 6.4) and, opt-in, leader leases (6.4.1).
 */
#include "consensus/plant.h"
#include "consensus/raft_internal.h"

#include <string.h>

static void raft_read_answer(struct raft *raft, enum raft_effect_kind kind, uint64_t context,
                             uint64_t index)
{
    struct raft_effect *effect = raft_emit(raft, kind);

    effect->read.context = context;
    effect->read.index = index;
}

/* The latest round that a majority answered. Only answers of follower workers count, never a
 * completed write: a device writes on while its process is stopped. */
static uint64_t raft_confirmed_round(const struct raft *raft)
{
    uint64_t rounds[RAFT_MEMBERS_MAX];
    size_t voters = 0;

    for (uint32_t i = 0; i < raft->configuration.count; i++) {
        if (raft->configuration.members[i].role != RAFT_VOTER)
            continue;
        bool self = raft->peers[i].id == raft->options.replica_id;
        rounds[voters++] = self ? raft->round : raft->peers[i].round_acked;
    }
    return raft_quorum_commit(rounds, voters);
}

/* Whoever answered that round elects nobody for an election timeout of its own clock, counted from
 * when it got it, which was not before it was sent. */
static void raft_lease_extend(struct raft *raft, uint64_t confirmed)
{
    uint64_t timeout_ns = raft->options.election_timeout_ns;
    uint64_t drift_ns = timeout_ns / 1000 * raft->options.lease_drift_ppm / 1000 + 1;

    if (!raft->options.lease_reads || raft->lease_forfeited || confirmed == 0 ||
        raft->round - confirmed >= RAFT_ROUNDS_KEPT || drift_ns >= timeout_ns)
        return;
    uint64_t until_ns = raft->round_sent_ns[confirmed % RAFT_ROUNDS_KEPT] + timeout_ns - drift_ns;
    raft->lease_until_ns = raft_max(raft->lease_until_ns, until_ns);
}

void raft_reads_confirm(struct raft *raft)
{
    uint64_t confirmed = raft_confirmed_round(raft);
    uint32_t done = 0;

    raft_lease_extend(raft, confirmed);
    while (done < raft->reads_count && raft->reads[done].round != 0 &&
           raft->reads[done].round <= confirmed) {
        struct raft_pending_read *read = &raft->reads[done++];
        raft_read_answer(raft, RAFT_FX_READ_READY, read->context, read->index);
    }
    if (done == 0)
        return;
    raft->reads_count -= done;
    memmove(raft->reads, raft->reads + done, raft->reads_count * sizeof(raft->reads[0]));
    raft_reads_start(raft);
}

/* One round for reads is under way at a time; what comes meanwhile shares the next. A round
 * confirms only reads that were there when it started, and none is started for reads before this
 * term has a committed entry: until then the commit index may lie behind what was answered before
 * (6.4). */
void raft_reads_start(struct raft *raft)
{
    bool waiting = raft->reads_count > 0 && raft->reads[raft->reads_count - 1].round == 0;

    if (!waiting || (!raft_is_ready(raft) && !PLANTED(read_before_noop)) ||
        raft->read_round > raft_confirmed_round(raft))
        return;
    raft_round_start(raft);
    raft_reads_confirm(raft);
}

void raft_on_read(struct raft *raft, uint64_t context)
{
    if (!raft_is_leader(raft) || raft->reads_count == RAFT_READS_MAX) {
        raft_read_answer(raft, RAFT_FX_READ_FAILED, context, 0);
        return;
    }
    if (raft_is_ready(raft) &&
        (raft->now_ns < raft->lease_until_ns || PLANTED(read_without_round))) {
        raft_read_answer(raft, RAFT_FX_READ_READY, context, raft->commit_index);
        return;
    }
    raft->reads[raft->reads_count++] = (struct raft_pending_read){.context = context};
    raft_reads_start(raft);
}

void raft_reads_fail(struct raft *raft)
{
    for (uint32_t i = 0; i < raft->reads_count; i++)
        raft_read_answer(raft, RAFT_FX_READ_FAILED, raft->reads[i].context, 0);
    raft->reads_count = 0;
    raft->lease_until_ns = 0;
}
