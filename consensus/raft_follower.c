/* SPDX-License-Identifier: Apache-2.0
 *
 * A follower: finds the common entry with its leader, opens its ring, takes what arrives.
 */
#include "consensus/plant.h"
#include "consensus/raft_internal.h"

/* ---- the leader ------------------------------------------------------------------------------ */

/* A message of a leader of our term: false if it cannot be one. */
static bool raft_is_leader_message(struct raft *raft, const struct raft_message *message)
{
    bool other = raft->leader != 0 && raft->leader != message->from;

    if (raft_is_leader(raft) || other) {
        raft_ignore(raft); /* at most one leader per term (3.6.3): not ours to judge here */
        return false;
    }
    return true;
}

static void raft_contact(struct raft *raft)
{
    raft->contact_ns = raft->now_ns;
    raft->election_deadline_ns = raft->now_ns + raft_random_timeout(raft);
}

void raft_accept_leader(struct raft *raft, const struct raft_message *message)
{
    if (raft->role != RAFT_FOLLOWER)
        raft_become_follower(raft, raft->hard.term, message->from);
    raft->leader = message->from;
    raft->leader_node = (uint16_t)message->limit;
    raft_contact(raft);
}

/* Only a log that is known to be a prefix of this term's leader's may follow its commit index, and
 * only as far as it goes. */
void raft_follower_commit(struct raft *raft, uint64_t commit_index)
{
    uint64_t commit = raft_min(commit_index, raft->log->last_index);

    if (raft->matched_term != raft->hard.term || commit <= raft->commit_index)
        return;
    struct raft_effect *effect = raft_emit(raft, RAFT_FX_COMMITTED);
    effect->range.first = raft->commit_index + 1;
    effect->range.last = commit;
    raft->commit_index = commit;
}

/* ---- what the leader is told ----------------------------------------------------------------- */

static uint64_t raft_received_position(const struct raft *raft)
{
    return raft->grant.one_sided ? raft->log->end : raft->log->received;
}

static void raft_fill_progress(struct raft *raft, struct raft_message *message)
{
    struct raft_grant *grant = &raft->grant;

    message->commit = raft->commit_index;
    message->limit = log_limit(raft->log);
    /* Everything acknowledged is durable, the term it was taken in included. */
    if (grant->state != RAFT_GRANT_OPEN || raft->hard_durable.term != raft->hard.term)
        return;
    message->grant = grant->number;
    message->index = PLANTED(ack_unsynced) ? raft->log->last_index : raft->durable_index;
    message->log_term = log_term(raft->log, message->index);
    message->position = raft_received_position(raft);
    grant->position_sent = message->position;
    grant->limit_sent = message->limit;
}

void raft_ack(struct raft *raft)
{
    if (raft->role == RAFT_FOLLOWER && raft->leader != 0 && raft->grant.state == RAFT_GRANT_OPEN &&
        raft->hard_durable.term == raft->hard.term)
        raft_fill_progress(raft, raft_send(raft, RAFT_MSG_ACK, raft->leader));
}

/* A leader that waits for room hears of it at once, not with the next heartbeat. */
void raft_ack_limit(struct raft *raft)
{
    uint64_t told = raft->grant.limit_sent;

    if (raft->grant.state == RAFT_GRANT_OPEN && log_limit(raft->log) > told &&
        told - raft_min(told, raft->log->end) < raft->log->ring_bytes / 4)
        raft_ack(raft);
}

void raft_answer_heartbeat(struct raft *raft, uint64_t to, uint64_t round)
{
    struct raft_message *reply = raft_send(raft, RAFT_MSG_HEARTBEAT_REPLY, to);

    reply->round = round;
    if (round != 0)
        raft_fill_progress(raft, reply);
}

void raft_on_heartbeat(struct raft *raft, const struct raft_message *message)
{
    if (!raft_is_leader_message(raft, message))
        return;
    raft_accept_leader(raft, message);
    raft_follower_commit(raft, message->commit);
    raft_answer_heartbeat(raft, message->from, message->round);
}

/* ---- attach ---------------------------------------------------------------------------------- */

/* The highest index up to bound whose term is not above `term`; base.index if there is none. Terms
 * never decrease along a log, so both sides skip whole terms of entries that cannot match (3.5). */
uint64_t raft_last_not_after_term(const struct log *log, uint64_t bound, uint64_t term)
{
    uint64_t low = log->base.index, high = bound;

    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        if (log_term(log, middle) <= term)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static void raft_attach_hint(struct raft *raft, const struct raft_message *message, uint64_t index)
{
    struct raft_message *reply = raft_send(raft, RAFT_MSG_ATTACH_REPLY, message->from);

    reply->grant = message->grant;
    reply->index = index;
    reply->log_term = log_term(raft->log, index);
    reply->commit = raft->commit_index;
    reply->limit = log_limit(raft->log);
}

static void raft_attach_granted(struct raft *raft)
{
    struct raft_grant *grant = &raft->grant;
    struct raft_message *reply = raft_send(raft, RAFT_MSG_ATTACH_REPLY, grant->leader);

    reply->flags = RAFT_MSG_GRANTED;
    if (grant->one_sided)
        reply->flags |= RAFT_MSG_ONE_SIDED;
    reply->grant = grant->number;
    reply->index = raft->log->last_index;
    reply->log_term = raft->log->last_term;
    reply->commit = raft->commit_index;
    reply->position = raft->log->end;
    reply->limit = log_limit(raft->log);
    grant->limit_sent = reply->limit;
    grant->position_sent = reply->position;
}

static void raft_cut(struct raft *raft, uint64_t index)
{
    assert(index >=
           raft->commit_index); /* committed entries are in every later leader's log (3.6.3) */
    raft_flush_hard(raft);
    if (raft_on_disk(raft))
        raft_emit(raft, RAFT_FX_PERSIST_CUT)->range.first = index + 1;
    log_cut_above(raft->log, index);
    raft->durable_index = raft_min(raft->durable_index, index);
    raft_configuration_after_cut(raft);
    raft_emit(raft, RAFT_FX_ENTRIES_LOST)->range.first = index + 1;
}

static void raft_grant_open(struct raft *raft, const struct raft_message *message)
{
    raft->matched_term = raft->hard.term;
    raft->grant = (struct raft_grant){
        .state = RAFT_GRANT_OPENING,
        .leader = message->from,
        .term = message->term,
        .number = message->grant,
    };
    log_forget_received(raft->log);
    struct raft_effect *effect = raft_emit(raft, RAFT_FX_GRANT);
    effect->grant.leader = message->from;
    effect->grant.number = message->grant;
    effect->grant.term = message->term;
    effect->grant.position = raft->log->end;
    effect->grant.one_sided = (message->flags & RAFT_MSG_ONE_SIDED) != 0;
}

/* Looks for the highest common entry. The log above it is cut only if it conflicts: the probe says
 * which term the leader's next entry has (or, if it had none then, whatever it appended since has
 * the leader's own term). So even a probe that comes late, after a restart forgot that it was
 * answered, never cuts an entry the leader sent. */
static void raft_attach_match(struct raft *raft, const struct raft_message *message)
{
    struct log *log = raft->log;
    uint64_t next_term = message->round != 0 ? message->round : message->term;

    if (message->index < log->base.index) {
        raft_attach_hint(raft, message, log->base.index);
        return;
    }
    if (message->index > log->last_index || log_term(log, message->index) != message->log_term) {
        uint64_t bound = raft_min(log->last_index, message->index - (message->index != 0));
        bound = raft_max(bound, log->base.index);
        raft_attach_hint(raft, message, raft_last_not_after_term(log, bound, message->log_term));
        return;
    }
    if (log->last_index > message->index) {
        if (log_term(log, message->index + 1) == next_term && !PLANTED(agreeing_cut)) {
            raft_attach_hint(raft, message, log->last_index);
            return;
        }
        /* An entry that is cut while its write is on the way could come again with the same index
         * and term, and the first write's completion would pass for the second's. */
        if (raft->durable_index < log->last_index) {
            raft->pending.kind = RAFT_PENDING_DURABLE;
            raft->pending.message = *message;
            return;
        }
        raft_cut(raft, message->index);
    }
    raft_grant_open(raft, message);
}

void raft_on_attach(struct raft *raft, const struct raft_message *message)
{
    struct raft_grant *grant = &raft->grant;

    if (!raft_is_leader_message(raft, message))
        return;
    raft_accept_leader(raft, message);
    if (grant->term == message->term && message->grant <= grant->number) {
        /* Answered before: once per (term, grant); an older one is over. */
        if (message->grant == grant->number && grant->state == RAFT_GRANT_OPEN)
            raft_attach_granted(raft);
        else
            raft_ignore(raft);
        return;
    }
    if (raft->fetching) {
        raft_ignore(raft); /* the ring stays closed until the state is replaced or given up */
        return;
    }
    if (grant->state != RAFT_GRANT_NONE) {
        raft_revoke(raft, RAFT_PENDING_MESSAGE, message);
        return;
    }
    raft_attach_match(raft, message);
}

void raft_on_granted(struct raft *raft, const struct raft_event *event)
{
    struct raft_grant *grant = &raft->grant;

    if (grant->state != RAFT_GRANT_OPENING || event->progress.grant != grant->number) {
        raft_ignore(raft);
        return;
    }
    grant->state = RAFT_GRANT_OPEN;
    grant->one_sided = event->progress.one_sided;
    raft_attach_granted(raft);
    raft_ack(raft);
}

/* ---- what arrives ---------------------------------------------------------------------------- */

/* Takes the complete entries that lie in the ring behind the log. */
void raft_adopt_received(struct raft *raft)
{
    struct log *log = raft->log;
    uint64_t first = log->last_index + 1;
    uint64_t until = raft->grant.one_sided ? log_limit(log) : log->received;
    size_t payload_bytes_max = raft_min(RAFT_PAYLOAD_BYTES_MAX, log->ring_bytes / 4);

    /* What is written into the ring one-sidedly counts as soon as it lies there. */
    bool keep_spare = !raft->grant.one_sided;

    if (log_adopt(log, until, payload_bytes_max, keep_spare) == 0)
        return;
    raft_configuration_from_log(raft, first);
    raft_flush_hard(raft);
    if (raft_on_disk(raft)) {
        struct raft_effect *effect = raft_emit(raft, RAFT_FX_PERSIST_ENTRIES);
        effect->range.first = first;
        effect->range.last = log->last_index;
    } else {
        raft->durable_index = log->last_index;
    }
}

/* An acknowledgement is due when entries became durable here (memory), when much of a long entry
 * came (its sender's window is bounded), or when nothing new came: then the last one was lost. On
 * disk the usual one follows DURABLE. */
static bool raft_ack_is_due(const struct raft *raft, uint64_t durable_before, uint64_t received)
{
    uint64_t unsaid_bytes = received - raft_min(received, raft->grant.position_sent);

    if (raft->durable_index > durable_before || PLANTED(ack_unsynced))
        return true;
    if (raft->grant.one_sided)
        return false;
    return unsaid_bytes == 0 || unsaid_bytes >= raft->options.ship_window_bytes / 4;
}

void raft_on_received(struct raft *raft, const struct raft_event *event)
{
    struct raft_grant *grant = &raft->grant;
    uint64_t durable_before = raft->durable_index;
    uint64_t last_before = raft->log->last_index;

    if (grant->state != RAFT_GRANT_OPEN || event->progress.grant != grant->number) {
        raft_ignore(raft);
        return;
    }
    raft_adopt_received(raft);
    /* A datagram is a sign of life. Half an entry, which a dead leader's device left in the ring,
     * is none, however often it is looked at. */
    if (raft->role == RAFT_FOLLOWER && (!grant->one_sided || raft->log->last_index > last_before))
        raft_contact(raft);
    raft_follower_commit(raft, event->progress.commit);
    raft_make_room(raft);
    if (raft_ack_is_due(raft, durable_before, raft_received_position(raft)))
        raft_ack(raft);
}
