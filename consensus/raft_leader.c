/* SPDX-License-Identifier: Apache-2.0
 *
 * A leader: attaches its peers, ships to them, counts what they hold, commits (thesis 3.5, 3.6).
 */
#include "consensus/plant.h"
#include "consensus/raft_internal.h"

/* ---- entries and commit ---------------------------------------------------------------------- */

/* The payload lies in the reservation. The entry is shipped while it is written here (10.2.1): this
 * replica counts itself only when its own copy is durable. */
void raft_append(struct raft *raft, uint16_t kind, size_t payload_bytes)
{
    uint64_t stamp_ns = raft_shard_time(raft, raft->now_ns);

    log_append(raft->log, kind, raft->hard.term, stamp_ns, payload_bytes);
    uint64_t index = raft->log->last_index;
    raft_flush_hard(raft);
    if (kind == LOG_CONFIGURATION)
        raft_configuration_from_log(raft, index);
    if (raft_on_disk(raft)) {
        struct raft_effect *effect = raft_emit(raft, RAFT_FX_PERSIST_ENTRIES);
        effect->range.first = index;
        effect->range.last = index;
    } else {
        raft->durable_index = index;
    }
    raft_ship_all(raft);
    raft_make_room(raft);
    raft_advance_commit(raft);
}

static void raft_append_noop(struct raft *raft)
{
    raft_make_room(raft);
    if (log_reserve(raft->log, 0) == NULL)
        return; /* tried again at the next heartbeat */
    raft->term_start_index = raft->log->last_index + 1;
    raft_append(raft, LOG_NOOP, 0);
}

static uint64_t raft_quorum_match(const struct raft *raft)
{
    uint64_t match[RAFT_MEMBERS_MAX];
    size_t voters = 0;

    for (uint32_t i = 0; i < raft->configuration.count; i++) {
        if (raft->configuration.members[i].role != RAFT_VOTER)
            continue;
        bool self = raft->peers[i].id == raft->options.replica_id;
        match[voters++] = self ? raft->durable_index : raft->peers[i].match_index;
        if (self && PLANTED(count_unsynced))
            match[voters - 1] = raft->log->last_index;
    }
    assert(voters > 0);
    return raft_quorum_commit(match, voters);
}

/* Only entries of the own term are committed by counting; older ones with them (3.6.2). */
void raft_advance_commit(struct raft *raft)
{
    uint64_t commit = raft_quorum_match(raft);
    bool was_ready = raft_is_ready(raft);

    if (commit <= raft->commit_index ||
        (log_term(raft->log, commit) != raft->hard.term && !PLANTED(count_older_term)))
        return;
    struct raft_effect *effect = raft_emit(raft, RAFT_FX_COMMITTED);
    effect->range.first = raft->commit_index + 1;
    effect->range.last = commit;
    raft->commit_index = commit;
    if (raft->announce_ns == UINT64_MAX)
        raft->announce_ns = raft->now_ns + RAFT_ANNOUNCE_NS;
    if (!was_ready && raft_is_ready(raft))
        raft_reads_start(raft);
    /* A leader that removed itself leads until that is committed (4.2.2). */
    if (raft->configuration.index <= commit && !raft_is_voter(raft))
        raft_hand_over(raft);
}

/* ---- attach ---------------------------------------------------------------------------------- */

static void raft_detach(struct raft *raft, struct raft_peer *peer)
{
    if (peer->state == RAFT_PEER_ATTACHED) {
        struct raft_effect *effect = raft_emit(raft, RAFT_FX_DETACH);
        effect->ship.peer = peer->id;
        effect->ship.grant = peer->grant;
    }
    peer->state = RAFT_PEER_DETACHED;
}

static void raft_send_snapshot_needed(struct raft *raft, const struct raft_peer *peer)
{
    struct raft_message *message = raft_send(raft, RAFT_MSG_SNAPSHOT_NEEDED, peer->id);

    message->index = raft->log->base.index;
    message->log_term = raft->log->base.term;
    message->grant = peer->grant;
    message->limit = raft->options.node;
}

/* The entries it needs are gone (7). */
void raft_peer_needs_snapshot(struct raft *raft, struct raft_peer *peer)
{
    raft_detach(raft, peer);
    peer->state = RAFT_PEER_SNAPSHOT;
    struct raft_effect *effect = raft_emit(raft, RAFT_FX_NEED_SNAPSHOT);
    effect->snapshot.peer = peer->id;
    effect->snapshot.node = raft_member_of(raft, peer->id)->node;
    raft_send_snapshot_needed(raft, peer);
}

static void raft_probe(struct raft *raft, struct raft_peer *peer)
{
    const struct log *log = raft->log;

    if (peer->probe_index < log->base.index) {
        raft_peer_needs_snapshot(raft, peer);
        return;
    }
    struct raft_message *message = raft_send(raft, RAFT_MSG_ATTACH, peer->id);
    message->index = peer->probe_index;
    message->log_term = log_term(log, peer->probe_index);
    message->grant = peer->grant;
    message->commit = raft->commit_index;
    message->round = log_term(log, peer->probe_index + 1);
    message->position = log_end_of(log, peer->probe_index);
    message->limit = raft->options.node;
}

static void raft_attach_at(struct raft *raft, struct raft_peer *peer, uint64_t index)
{
    raft_detach(raft, peer);
    peer->state = RAFT_PEER_ATTACHING;
    peer->grant = ++raft->grants;
    peer->probe_index = index;
    raft_probe(raft, peer);
}

void raft_peer_attach(struct raft *raft, struct raft_peer *peer)
{
    raft_attach_at(raft, peer, raft->log->last_index);
}

static struct raft_peer *raft_heard(struct raft *raft, const struct raft_message *message)
{
    struct raft_peer *peer = raft_peer_of(raft, message->from);

    if (!raft_is_leader(raft) || peer == NULL) {
        raft_ignore(raft);
        return NULL;
    }
    peer->heard_ns = raft->now_ns;
    return peer;
}

static void raft_attached(struct raft *raft, struct raft_peer *peer,
                          const struct raft_message *message)
{
    peer->state = RAFT_PEER_ATTACHED;
    peer->sent_index = message->index;
    peer->sent_position = message->position;
    peer->acked_position = message->position;
    peer->limit = message->limit;
    peer->progress_ns = raft->now_ns;
    peer->attach_round = raft->round;
    peer->one_sided = (message->flags & RAFT_MSG_ONE_SIDED) != 0;
    raft_ship_all(raft);
}

/* The next place to ask at, from what the peer says about its log. */
static void raft_probe_further(struct raft *raft, struct raft_peer *peer,
                               const struct raft_message *message)
{
    const struct log *log = raft->log;
    uint64_t bound = raft_min(message->index, log->last_index);

    if (bound < log->base.index) {
        raft_peer_needs_snapshot(raft, peer);
        return;
    }
    uint64_t index = raft_last_not_after_term(log, bound, message->log_term);
    if (log_term(log, index) > message->log_term) {
        raft_peer_needs_snapshot(raft, peer);
        return;
    }
    if (index == peer->probe_index)
        return; /* an old answer; the probe is repeated with the heartbeat */
    peer->probe_index = index;
    raft_probe(raft, peer);
}

void raft_on_attach_reply(struct raft *raft, const struct raft_message *message)
{
    const struct log *log = raft->log;
    struct raft_peer *peer = raft_heard(raft, message);

    if (peer == NULL)
        return;
    if (peer->state != RAFT_PEER_ATTACHING || peer->grant != message->grant) {
        raft_ignore(raft);
        return;
    }
    if ((message->flags & RAFT_MSG_GRANTED) == 0)
        raft_probe_further(raft, peer, message);
    else if (message->index < log->base.index)
        raft_peer_needs_snapshot(raft, peer);
    else if (message->index <= log->last_index &&
             log_term(log, message->index) == message->log_term &&
             log_end_of(log, message->index) == message->position)
        raft_attached(raft, peer, message);
    else
        raft_ignore(raft); /* not our log's place: cannot be an answer to our probe */
}

/* ---- shipping -------------------------------------------------------------------------------- */

/* The last entry that may be under way to the peer now: within the window of unacknowledged bytes,
 * and within its ring. A single entry longer than the window goes alone. */
static uint64_t raft_ship_until(const struct raft *raft, const struct raft_peer *peer)
{
    const struct log *log = raft->log;
    uint64_t bound = raft_min(peer->limit, peer->acked_position + raft->options.ship_window_bytes);
    uint64_t index = peer->sent_index;

    if (log->end <= bound)
        return log->last_index;
    while (index < log->last_index && log_end_of(log, index + 1) <= bound)
        index++;
    if (index == peer->sent_index && peer->acked_position == peer->sent_position &&
        log_end_of(log, index + 1) <= peer->limit)
        index++;
    return index;
}

static void raft_ship(struct raft *raft, struct raft_peer *peer)
{
    if (peer->state != RAFT_PEER_ATTACHED || peer->sent_index == raft->log->last_index)
        return;
    uint64_t index = raft_ship_until(raft, peer);
    if (index == peer->sent_index)
        return;
    if (peer->acked_position == peer->sent_position)
        peer->progress_ns = raft->now_ns;
    struct raft_effect *effect = raft_emit(raft, RAFT_FX_SHIP);
    effect->ship.peer = peer->id;
    effect->ship.grant = peer->grant;
    effect->ship.from = peer->sent_position;
    effect->ship.to = log_end_of(raft->log, index);
    effect->ship.last_index = index;
    effect->ship.last_term = log_term(raft->log, index);
    effect->ship.one_sided = peer->one_sided;
    peer->sent_index = index;
    peer->sent_position = effect->ship.to;
    if (!peer->one_sided) /* datagrams of the log carry the commit index */
        peer->commit_announced = raft->commit_index;
}

void raft_ship_all(struct raft *raft)
{
    for (uint32_t i = 0; i < raft->configuration.count; i++)
        raft_ship(raft, &raft->peers[i]);
}

/* ---- acknowledgements ------------------------------------------------------------------------ */

static void raft_count_position(struct raft *raft, struct raft_peer *peer, uint64_t position)
{
    if (position <= peer->acked_position || position > peer->sent_position)
        return;
    peer->acked_position = position;
    peer->progress_ns = raft->now_ns;
}

/* Match index and probe index are two things: only what the peer holds durably, at a term that is
 * ours at that index, counts. */
static void raft_count_match(struct raft *raft, struct raft_peer *peer, uint64_t index,
                             uint64_t term)
{
    if (index <= peer->match_index || index > peer->sent_index ||
        log_term(raft->log, index) != term || term == 0)
        return;
    peer->match_index = index;
    raft_count_position(raft, peer, log_end_of(raft->log, index));
}

static void raft_acknowledged(struct raft *raft, struct raft_peer *peer,
                              const struct raft_message *message)
{
    raft_count_position(raft, peer, message->position);
    raft_count_match(raft, peer, message->index, message->log_term);
    peer->limit = raft_max(peer->limit, message->limit);
    raft_ship(raft, peer);
    raft_advance_commit(raft);
    if (raft_is_leader(raft))
        raft_transfer_progress(raft);
}

void raft_on_ack(struct raft *raft, const struct raft_message *message)
{
    struct raft_peer *peer = raft_heard(raft, message);

    if (peer == NULL)
        return;
    if (peer->state != RAFT_PEER_ATTACHED || peer->grant != message->grant) {
        raft_ignore(raft);
        return;
    }
    raft_acknowledged(raft, peer, message);
}

void raft_on_heartbeat_reply(struct raft *raft, const struct raft_message *message)
{
    struct raft_peer *peer = raft_heard(raft, message);

    if (peer == NULL)
        return;
    if (message->round > peer->round_acked && message->round <= raft->round)
        peer->round_acked = message->round;
    if (peer->state == RAFT_PEER_ATTACHED && message->grant == peer->grant)
        raft_acknowledged(raft, peer, message);
    else if (peer->state == RAFT_PEER_ATTACHED && message->round > peer->attach_round)
        raft_peer_attach(raft, peer); /* its ring is closed: it restarted, or stood as candidate */
    else if (peer->state == RAFT_PEER_SNAPSHOT && message->commit >= raft->log->base.index)
        raft_peer_attach(raft, peer);
    if (raft_is_leader(raft))
        raft_reads_confirm(raft);
}

static struct raft_peer *raft_shipped_peer(struct raft *raft, const struct raft_event *event)
{
    struct raft_peer *peer = raft_peer_of(raft, event->progress.peer);

    if (raft_is_leader(raft) && peer != NULL && peer->state == RAFT_PEER_ATTACHED &&
        peer->grant == event->progress.grant)
        return peer;
    raft_ignore(raft);
    return NULL;
}

/* A completed one-sided write frees the window; it counts as a copy in memory durability only. It
 * is no sign of life of the peer's worker. */
void raft_on_shipped(struct raft *raft, const struct raft_event *event)
{
    struct raft_peer *peer = raft_shipped_peer(raft, event);
    uint64_t index = event->progress.index, term = event->progress.term;

    if (peer == NULL)
        return;
    peer->one_sided = true;
    if (index > peer->sent_index || term == 0 || log_term(raft->log, index) != term) {
        raft_ignore(raft);
        return;
    }
    raft_count_position(raft, peer, log_end_of(raft->log, index));
    if (!raft_on_disk(raft))
        raft_count_match(raft, peer, index, term);
    raft_ship(raft, peer);
    raft_advance_commit(raft);
    if (raft_is_leader(raft))
        raft_transfer_progress(raft);
}

void raft_on_ship_failed(struct raft *raft, const struct raft_event *event)
{
    struct raft_peer *peer = raft_shipped_peer(raft, event);

    if (peer != NULL)
        raft_peer_attach(raft, peer);
}

/* ---- heartbeats ------------------------------------------------------------------------------ */

/* At whole multiples of the interval, so that all shards of a worker beat in the same turn and
 * share datagrams. */
static uint64_t raft_next_heartbeat(const struct raft *raft)
{
    uint64_t interval_ns = raft->options.heartbeat_ns;

    return (raft->now_ns / interval_ns + 1) * interval_ns;
}

static void raft_send_heartbeat(struct raft *raft, struct raft_peer *peer)
{
    struct raft_message *message = raft_send(raft, RAFT_MSG_HEARTBEAT, peer->id);

    message->round = raft->round;
    message->commit = raft->commit_index;
    message->grant = peer->grant;
    message->limit = raft->options.node;
    peer->commit_announced = raft->commit_index;
}

void raft_round_start(struct raft *raft)
{
    raft->round++;
    raft->round_sent_ns[raft->round % RAFT_ROUNDS_KEPT] = raft->now_ns;
    for (uint32_t i = 0; i < raft->configuration.count; i++)
        if (raft->peers[i].id != raft->options.replica_id)
            raft_send_heartbeat(raft, &raft->peers[i]);
    if (!raft_is_ready(raft) && !PLANTED(read_before_noop))
        return;
    for (uint32_t i = 0; i < raft->reads_count; i++) {
        if (raft->reads[i].round != 0)
            continue;
        raft->reads[i].round = raft->round;
        raft->reads[i].index = raft->commit_index;
        raft->read_round = raft->round;
    }
}

/* Check-quorum: a leader that a majority does not answer makes room for one that it would (6.2). */
static bool raft_has_quorum(const struct raft *raft)
{
    uint8_t votes[RAFT_MEMBERS_MAX];
    size_t voters = 0;

    for (uint32_t i = 0; i < raft->configuration.count; i++) {
        const struct raft_peer *peer = &raft->peers[i];
        if (raft->configuration.members[i].role != RAFT_VOTER)
            continue;
        bool active = peer->id == raft->options.replica_id ||
                      raft->now_ns < peer->heard_ns + raft->options.election_timeout_ns;
        votes[voters++] = active ? 1 : 2;
    }
    return raft_quorum_vote(votes, voters) == RAFT_VOTE_WON;
}

/* What may have been lost on the way is sent again. Shipped bytes are the driver's to repeat; a
 * peer that makes no progress for an election timeout starts over under a new grant. */
static void raft_peer_tick(struct raft *raft, struct raft_peer *peer)
{
    bool stalled = peer->acked_position < peer->sent_position &&
                   raft->now_ns >= peer->progress_ns + raft->options.election_timeout_ns;

    if (peer->id == raft->options.replica_id)
        return;
    if (peer->state == RAFT_PEER_ATTACHING)
        raft_probe(raft, peer);
    else if (peer->state == RAFT_PEER_SNAPSHOT)
        raft_send_snapshot_needed(raft, peer);
    else if (peer->state == RAFT_PEER_ATTACHED && stalled)
        raft_peer_attach(raft, peer);
}

static void raft_announce(struct raft *raft)
{
    raft->announce_ns = UINT64_MAX;
    for (uint32_t i = 0; i < raft->configuration.count; i++) {
        struct raft_peer *peer = &raft->peers[i];
        if (peer->state == RAFT_PEER_ATTACHED && peer->commit_announced < raft->commit_index)
            raft_send_heartbeat(raft, peer);
    }
}

static void raft_heartbeat(struct raft *raft)
{
    raft->heartbeat_ns = raft_next_heartbeat(raft);
    if (!raft_has_quorum(raft)) {
        raft_become_follower(raft, raft->hard.term, 0);
        return;
    }
    if (raft->term_start_index == 0)
        raft_append_noop(raft);
    if (!raft_is_leader(raft))
        return;
    for (uint32_t i = 0; i < raft->configuration.count; i++)
        raft_peer_tick(raft, &raft->peers[i]);
    raft_round_start(raft);
    raft_reads_confirm(raft);
}

void raft_leader_tick(struct raft *raft)
{
    if (raft->now_ns >= raft->heartbeat_ns)
        raft_heartbeat(raft);
    if (raft_is_leader(raft))
        raft_transfer_tick(raft);
    if (raft_is_leader(raft) && raft->now_ns >= raft->announce_ns)
        raft_announce(raft);
}

/* ---- leadership ------------------------------------------------------------------------------ */

void raft_become_leader(struct raft *raft)
{
    assert(raft->role == RAFT_CANDIDATE && raft->grant.state == RAFT_GRANT_NONE);
    raft->role = RAFT_LEADER;
    raft->leader = raft->options.replica_id;
    raft->leader_node = raft->options.node;
    raft->pending.kind = RAFT_PENDING_NONE;
    raft->shard_time_base_ns = raft->log->last_stamp_ns;
    raft->leader_since_ns = raft->now_ns;
    raft->heartbeat_ns = raft_next_heartbeat(raft);
    raft->announce_ns = UINT64_MAX;
    raft->lease_until_ns = 0;
    raft->lease_forfeited = false;
    raft->transfer_target = 0;
    raft->read_round = 0;
    raft->term_start_index = 0;
    log_forget_received(raft->log);
    for (uint32_t i = 0; i < raft->configuration.count; i++) {
        uint64_t id = raft->peers[i].id;
        raft->peers[i] = (struct raft_peer){.id = id, .heard_ns = raft->now_ns};
    }
    uint64_t last_index = raft->log->last_index; /* most have it; nobody has the no-op */
    raft_append_noop(raft);
    for (uint32_t i = 0; i < raft->configuration.count && raft_is_leader(raft); i++)
        if (raft->peers[i].id != raft->options.replica_id)
            raft_attach_at(raft, &raft->peers[i], last_index);
}

void raft_leader_teardown(struct raft *raft)
{
    for (uint32_t i = 0; i < raft->configuration.count; i++)
        raft_detach(raft, &raft->peers[i]);
    raft->transfer_target = 0;
    raft->term_start_index = 0;
    raft->announce_ns = UINT64_MAX;
    raft->log->reserved_bytes = 0;
    raft_reads_fail(raft);
}

uint8_t *raft_reserve(struct raft *raft, size_t payload_bytes_max)
{
    struct log *log = raft->log;
    size_t entry_bytes = log_entry_bytes(payload_bytes_max);

    if (!raft_is_leader(raft) || raft->transfer_target != 0 || raft->term_start_index == 0 ||
        payload_bytes_max > RAFT_PAYLOAD_BYTES_MAX || payload_bytes_max > log->ring_bytes / 4)
        return NULL;
    if (!log_keeps_spare(log, log_start_position(log, log->end, entry_bytes) + entry_bytes))
        return NULL;
    return log_reserve(log, payload_bytes_max);
}
