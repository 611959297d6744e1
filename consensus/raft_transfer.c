/* SPDX-License-Identifier: Apache-2.0
 *
 * Handing leadership over (thesis 3.10) and giving it up.
 */
#include "consensus/raft_internal.h"

static bool raft_is_candidate_for_transfer(const struct raft *raft, uint32_t i)
{
    return raft->configuration.members[i].role == RAFT_VOTER &&
           raft->peers[i].id != raft->options.replica_id;
}

/* The voter that is attached, was heard lately, and has the most of the log; 0 = none. */
static uint64_t raft_best_successor(const struct raft *raft)
{
    uint64_t best = 0, best_match = 0;

    for (uint32_t i = 0; i < raft->configuration.count; i++) {
        const struct raft_peer *peer = &raft->peers[i];
        bool active = raft->now_ns < peer->heard_ns + raft->options.election_timeout_ns;
        if (!raft_is_candidate_for_transfer(raft, i) || !active ||
            peer->state != RAFT_PEER_ATTACHED || (best != 0 && peer->match_index <= best_match))
            continue;
        best = peer->id;
        best_match = peer->match_index;
    }
    return best;
}

static void raft_transfer_to(struct raft *raft, uint64_t target)
{
    raft->transfer_target = target;
    raft->transfer_deadline_ns = raft->now_ns + raft->options.election_timeout_ns;
    /* From now on another may be elected although we are heard: no lease any more, and none later
     * in this term either, for the order may be delivered late. */
    raft->lease_until_ns = 0;
    raft->lease_forfeited = true;
    raft_transfer_progress(raft);
}

void raft_on_transfer(struct raft *raft, uint64_t target)
{
    enum raft_refusal why = 0;

    if (target == 0 && raft_is_leader(raft))
        target = raft_best_successor(raft);
    const struct raft_member *member = raft_member_of(raft, target);
    if (!raft_is_leader(raft))
        why = RAFT_REFUSED_NOT_LEADER;
    else if (raft->transfer_target != 0)
        why = RAFT_REFUSED_BUSY;
    else if (member == NULL || member->role != RAFT_VOTER || target == raft->options.replica_id)
        why = RAFT_REFUSED_INVALID;
    if (why != 0) {
        raft_emit(raft, RAFT_FX_CHANGE_REFUSED)->refused.why = why;
        return;
    }
    raft_transfer_to(raft, target);
}

/* The target is told to stand once it has the whole log; nothing is proposed meanwhile. */
void raft_transfer_progress(struct raft *raft)
{
    if (raft->transfer_target == 0)
        return;
    const struct raft_peer *peer = raft_peer_of(raft, raft->transfer_target);
    if (peer->match_index == raft->log->last_index)
        raft_send(raft, RAFT_MSG_TIMEOUT_NOW, peer->id);
}

void raft_transfer_tick(struct raft *raft)
{
    if (raft->transfer_target == 0 || raft->now_ns < raft->transfer_deadline_ns)
        return;
    raft->transfer_target = 0;
    if (!raft->campaigns)
        raft_become_follower(raft, raft->hard.term, 0);
}

/* A leader that is no member any more: the others hear the commit, the best of them stands. */
void raft_hand_over(struct raft *raft)
{
    uint64_t best = raft_best_successor(raft);

    raft_round_start(raft);
    if (best != 0)
        raft_send(raft, RAFT_MSG_TIMEOUT_NOW, best);
    raft_become_follower(raft, raft->hard.term, 0);
}

/* Stands at once, without pre-vote, under a flag that tells voters that their leader wants it. */
void raft_on_timeout_now(struct raft *raft, const struct raft_message *message)
{
    if (raft->role != RAFT_FOLLOWER || raft->leader != message->from) {
        raft_ignore(raft);
        return;
    }
    raft_campaign(raft, true, false);
}

void raft_on_step_down(struct raft *raft)
{
    raft->campaigns = false;
    if (raft->role == RAFT_FOLLOWER)
        return;
    if (raft_is_leader(raft) && raft->transfer_target != 0)
        return; /* its end is the step down */
    uint64_t best = raft_is_leader(raft) ? raft_best_successor(raft) : 0;
    if (best != 0)
        raft_transfer_to(raft, best);
    else
        raft_become_follower(raft, raft->hard.term, 0);
}
