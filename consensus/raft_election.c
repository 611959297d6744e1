/* SPDX-License-Identifier: Apache-2.0
 *
 * Elections: pre-vote (thesis 9.6), votes (3.4, 3.6.1), disruptive servers (4.2.3), and closing the
 * own ring to the old leader before any of it counts.
 */
#include "consensus/plant.h"
#include "consensus/raft_internal.h"

#include <string.h>

/* ---- revoking -------------------------------------------------------------------------------- */

void raft_revoke(struct raft *raft, enum raft_pending_kind kind, const struct raft_message *message)
{
    struct raft_grant *grant = &raft->grant;

    assert(grant->state == RAFT_GRANT_OPENING || grant->state == RAFT_GRANT_OPEN);
    grant->state = RAFT_GRANT_REVOKING;
    raft->pending.kind = kind;
    if (message != NULL)
        raft->pending.message = *message;
    struct raft_effect *effect = raft_emit(raft, RAFT_FX_REVOKE);
    effect->grant.leader = grant->leader;
    effect->grant.number = grant->number;
    effect->grant.term = grant->term;
    effect->grant.position = raft->log->end;
}

/* Nothing lands any more. What the old leader saw complete it may have counted: every valid entry
 * in the ring joins the log before logs are compared. */
void raft_on_revoked(struct raft *raft, uint64_t number)
{
    struct raft_pending pending = raft->pending;

    if (raft->grant.state != RAFT_GRANT_REVOKING || raft->grant.number != number) {
        raft_ignore(raft);
        return;
    }
    if (!PLANTED(ring_not_searched))
        raft_adopt_received(raft);
    raft->grant.state = RAFT_GRANT_NONE;
    log_forget_received(raft->log);
    raft->pending.kind = RAFT_PENDING_NONE;
    if (pending.kind == RAFT_PENDING_MESSAGE)
        raft_message_step(raft, &pending.message);
    else if (pending.kind == RAFT_PENDING_CAMPAIGN)
        raft_campaign(raft, pending.transfer, false);
}

/* ---- who may be elected ---------------------------------------------------------------------- */

/* A replica that hears a leader refuses to elect another (4.2.3; it is what leader leases rest on,
 * 6.4.1), unless the leader itself ordered the election (3.10). A leader hears itself. */
bool raft_refuses_election(const struct raft *raft, const struct raft_message *message)
{
    if ((message->flags & RAFT_MSG_TRANSFER) != 0)
        return false;
    if (raft_is_leader(raft) || raft->now_ns < raft->quiet_until_ns)
        return true;
    return raft->contact_ns != 0 &&
           raft->now_ns < raft->contact_ns + raft->options.election_timeout_ns;
}

/* 3.6.1: the candidate's log must be at least as up to date as ours. */
static bool raft_is_up_to_date(const struct raft *raft, const struct raft_message *message)
{
    if (PLANTED(vote_for_shorter_log))
        return true;
    if (message->log_term != raft->log->last_term)
        return message->log_term > raft->log->last_term;
    return message->index >= raft->log->last_index;
}

/* ---- campaigning ----------------------------------------------------------------------------- */

static void raft_request(struct raft *raft, const struct raft_peer *peer)
{
    bool prevote = raft->role == RAFT_PRECANDIDATE;
    struct raft_message *message =
        raft_send(raft, prevote ? RAFT_MSG_PREVOTE : RAFT_MSG_VOTE, peer->id);

    message->term = raft->hard.term + prevote;
    message->index = raft->log->last_index;
    message->log_term = raft->log->last_term;
    if (raft->campaign_transfer)
        message->flags = RAFT_MSG_TRANSFER;
}

/* To every voter that has not answered yet; the own vote is counted when it may be. */
static void raft_request_votes(struct raft *raft)
{
    raft->resend_ns = raft->now_ns + raft->options.heartbeat_ns;
    for (uint32_t i = 0; i < raft->configuration.count; i++) {
        struct raft_peer *peer = &raft->peers[i];
        if (raft->configuration.members[i].role != RAFT_VOTER)
            continue;
        if (peer->id == raft->options.replica_id)
            peer->vote = 1;
        else if (peer->vote == 0)
            raft_request(raft, peer);
    }
}

static void raft_count_votes(struct raft *raft)
{
    uint8_t votes[RAFT_MEMBERS_MAX];
    size_t voters = 0;

    for (uint32_t i = 0; i < raft->configuration.count; i++)
        if (raft->configuration.members[i].role == RAFT_VOTER)
            votes[voters++] = raft->peers[i].vote;
    enum raft_vote_result result = raft_quorum_vote(votes, voters);
    if (result == RAFT_VOTE_LOST)
        raft_become_follower(raft, raft->hard.term, 0);
    else if (result == RAFT_VOTE_WON && raft->role == RAFT_PRECANDIDATE)
        raft_campaign(raft, false, false);
    else if (result == RAFT_VOTE_WON)
        raft_become_leader(raft);
}

static void raft_start_candidacy(struct raft *raft, enum raft_role role)
{
    raft->role = role;
    raft->leader = 0;
    raft->leader_node = 0;
    raft->election_deadline_ns = raft->now_ns + raft_random_timeout(raft);
    for (uint32_t i = 0; i < raft->configuration.count; i++)
        raft->peers[i].vote = 0;
}

static bool raft_may_campaign(const struct raft *raft, bool transfer)
{
    return raft->campaigns && raft_may_stand(raft) && !raft->fetching && !raft_is_leader(raft) &&
           raft->hard.term < UINT64_MAX && (transfer || raft->now_ns >= raft->quiet_until_ns);
}

void raft_campaign(struct raft *raft, bool transfer, bool prevote)
{
    if (raft->grant.state == RAFT_GRANT_REVOKING)
        return; /* what is pending goes first */
    if (!raft_may_campaign(raft, transfer)) {
        raft->election_deadline_ns = raft->now_ns + raft_random_timeout(raft);
        return;
    }
    raft->campaign_transfer = transfer;
    if (prevote) {
        raft_start_candidacy(raft, RAFT_PRECANDIDATE);
        raft_request_votes(raft);
        raft_count_votes(raft);
        return;
    }
    if (raft->grant.state != RAFT_GRANT_NONE) {
        raft->pending.transfer = transfer;
        raft_revoke(raft, RAFT_PENDING_CAMPAIGN, NULL);
        return;
    }
    raft_start_candidacy(raft, RAFT_CANDIDATE);
    raft->resend_ns = UINT64_MAX; /* nothing is asked before the own vote is durable */
    raft->vote_reply_to = 0;
    raft->hard.term++;
    raft->hard.vote = raft->options.replica_id;
    raft->hard_dirty = true;
}

/* Term and vote are durable. A candidate asks only now: had it asked before and lost its memory, it
 * could stand again in the same term with a shorter log and count votes given to the longer one. */
void raft_hard_reached(struct raft *raft)
{
    uint64_t self = raft->options.replica_id;

    if (raft->role == RAFT_CANDIDATE && raft->hard.vote == self) {
        raft_request_votes(raft);
        raft_count_votes(raft);
    }
    if (raft->vote_reply_to != 0 && raft->vote_reply_to == raft->hard.vote) {
        raft_send(raft, RAFT_MSG_VOTE_REPLY, raft->vote_reply_to)->flags = RAFT_MSG_GRANTED;
        raft->vote_reply_to = 0;
    }
}

void raft_election_tick(struct raft *raft)
{
    if (raft->now_ns >= raft->election_deadline_ns) {
        if (raft->grant.state == RAFT_GRANT_REVOKING)
            raft->election_deadline_ns = raft->now_ns + raft->options.heartbeat_ns;
        raft_campaign(raft, false, true);
    } else if (raft->role != RAFT_FOLLOWER && raft->now_ns >= raft->resend_ns) {
        raft_request_votes(raft);
    }
}

/* ---- pre-vote -------------------------------------------------------------------------------- */

void raft_on_prevote(struct raft *raft, const struct raft_message *message)
{
    if (raft_refuses_election(raft, message)) {
        raft_ignore(raft);
        return;
    }
    bool granted = message->term > raft->hard.term && raft_is_up_to_date(raft, message);
    struct raft_message *reply = raft_send(raft, RAFT_MSG_PREVOTE_REPLY, message->from);
    if (granted) {
        reply->flags = RAFT_MSG_GRANTED;
        reply->term = message->term;
    }
}

void raft_on_prevote_reply(struct raft *raft, const struct raft_message *message)
{
    bool granted = (message->flags & RAFT_MSG_GRANTED) != 0;

    if (raft->role != RAFT_PRECANDIDATE || raft->grant.state == RAFT_GRANT_REVOKING ||
        (granted && message->term != raft->hard.term + 1)) {
        raft_ignore(raft);
        return;
    }
    raft_peer_of(raft, message->from)->vote = granted ? 1 : 2;
    raft_count_votes(raft);
}

/* ---- vote ------------------------------------------------------------------------------------ */

/* The message's term is ours. */
void raft_on_vote(struct raft *raft, const struct raft_message *message)
{
    bool free = raft->hard.vote == 0 && raft->leader == 0 && raft->grant.state == RAFT_GRANT_NONE;

    if ((!free && raft->hard.vote != message->from) || !raft_is_up_to_date(raft, message)) {
        raft_send(raft, RAFT_MSG_VOTE_REPLY, message->from);
        return;
    }
    raft->election_deadline_ns = raft->now_ns + raft_random_timeout(raft);
    raft->vote_reply_to = message->from;
    if (raft->hard.vote == 0) {
        raft->hard.vote = message->from;
        raft->hard_dirty = true;
        if (PLANTED(vote_unsynced))
            raft_hard_reached(raft);
    } else if (raft->hard_durable.term == raft->hard.term &&
               raft->hard_durable.vote == raft->hard.vote) {
        raft_hard_reached(raft); /* asked again: the answer was lost */
    }
}

void raft_on_vote_reply(struct raft *raft, const struct raft_message *message)
{
    /* A refusal of an older term says nothing about this one, nor does a vote: both were sorted out
     * by term before. */
    if (raft->role != RAFT_CANDIDATE) {
        raft_ignore(raft);
        return;
    }
    raft_peer_of(raft, message->from)->vote = (message->flags & RAFT_MSG_GRANTED) != 0 ? 1 : 2;
    raft_count_votes(raft);
}
