/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the log ends at its beginning: releasing what a snapshot (or the applied state) stands for,
 * and taking over a snapshot when the entries one needs are gone (thesis 5, 7).
 */
#include "consensus/plant.h"
#include "consensus/raft_internal.h"

enum { RAFT_FETCH_PATIENCE = 10 }; /* election timeouts until a fetch is asked for again */

/* ---- releasing ------------------------------------------------------------------------------- */

/* Disk durability: what a durable snapshot covers. Memory durability: what the state machine has.
 * Never what the disk has yet to read from the ring. */
static uint64_t raft_releasable(const struct raft *raft)
{
    if (!raft_on_disk(raft))
        return raft->applied_index;
    return raft_min(raft->saved_index, raft->durable_index);
}

/* Whether the log, with everything up to `position` and `index` gone, has that many sixteenths of
 * its bytes and of its slots free. */
static bool raft_has_free(const struct log *log, uint64_t position, uint64_t index,
                          uint64_t sixteenths)
{
    uint64_t held_bytes = log->end - position, held = log->last_index - index;

    return held_bytes + log->ring_bytes * sixteenths / 16 <= log->ring_bytes &&
           held + log->slots_count * sixteenths / 16 <= log->slots_count;
}

/* Entries are kept as long as there is room, for members that lag. When less than 6/16 are free the
 * oldest go; a member that still needs them is detached and will get a snapshot. */
void raft_make_room(struct raft *raft)
{
    struct log *log = raft->log;
    uint64_t index = log->base.index, releasable = raft_releasable(raft);

    if (raft_has_free(log, log->base.position, index, 6) || index >= releasable)
        return;
    while (index < releasable && !raft_has_free(log, log_end_of(log, index), index, 7))
        index++;
    raft_configuration_release(raft, index);
    log_release_to(log, index);
    /* What came while the log had no slot free lies behind it. Its leader counts it as received and
     * does not send it again. */
    if (raft->grant.state == RAFT_GRANT_OPEN)
        raft_adopt_received(raft);
    for (uint32_t i = 0; i < raft->configuration.count && raft_is_leader(raft); i++) {
        struct raft_peer *peer = &raft->peers[i];
        if (peer->state == RAFT_PEER_ATTACHED && peer->acked_position < log->base.position)
            raft_peer_attach(raft, peer);
    }
}

/* ---- leader ---------------------------------------------------------------------------------- */

void raft_on_snapshot_done(struct raft *raft, const struct raft_message *message)
{
    struct raft_peer *peer = raft_peer_of(raft, message->from);

    if (!raft_is_leader(raft) || peer == NULL || peer->state != RAFT_PEER_SNAPSHOT) {
        raft_ignore(raft);
        return;
    }
    peer->heard_ns = raft->now_ns;
    raft_peer_attach(raft, peer);
}

/* ---- follower -------------------------------------------------------------------------------- */

static void raft_send_snapshot_done(struct raft *raft, uint64_t to)
{
    struct raft_message *message = raft_send(raft, RAFT_MSG_SNAPSHOT_DONE, to);

    message->index = raft->commit_index;
    message->log_term = log_term(raft->log, raft->commit_index);
}

static void raft_fetch(struct raft *raft, const struct raft_message *message)
{
    uint64_t patience_ns = raft->options.election_timeout_ns * RAFT_FETCH_PATIENCE;

    if (raft->fetching && raft->fetch_from == message->from &&
        raft->now_ns < raft->fetch_asked_ns + patience_ns)
        return;
    raft->fetching = true;
    raft->fetch_from = message->from;
    raft->fetch_asked_ns = raft->now_ns;
    struct raft_effect *effect = raft_emit(raft, RAFT_FX_FETCH_SNAPSHOT);
    effect->snapshot.peer = message->from;
    effect->snapshot.node = (uint16_t)message->limit;
}

void raft_on_snapshot_needed(struct raft *raft, const struct raft_message *message)
{
    struct raft_grant *grant = &raft->grant;

    if (raft_is_leader(raft) || (raft->leader != 0 && raft->leader != message->from)) {
        raft_ignore(raft);
        return;
    }
    raft_accept_leader(raft, message);
    if (message->index <= raft->commit_index) { /* late, or the leader does not know yet */
        raft_send_snapshot_done(raft, message->from);
        return;
    }
    if (grant->state != RAFT_GRANT_NONE) {
        if (grant->term == message->term && message->grant < grant->number)
            raft_ignore(raft);
        else
            raft_revoke(raft, RAFT_PENDING_MESSAGE, message);
        return;
    }
    raft_fetch(raft, message);
}

/* The log does not hold the snapshot's last entry: nothing of it can be kept. Entries behind that
 * index are of another history (they would not match), configurations among them included. */
static void raft_log_replace(struct raft *raft, const struct log_base *base,
                             const struct raft_configuration *configuration)
{
    assert(base->index > raft->commit_index);
    raft_flush_hard(raft);
    if (raft_on_disk(raft))
        raft_emit(raft, RAFT_FX_PERSIST_CUT)->range.first = base->index + 1;
    if (raft->log->last_index > raft->commit_index)
        raft_emit(raft, RAFT_FX_ENTRIES_LOST)->range.first = raft->commit_index + 1;
    log_reset(raft->log, base);
    raft->durable_index = base->index;
    raft->base_configuration = *configuration;
    if (!PLANTED(install_keeps_members))
        raft_set_configuration(raft, configuration);
}

static void raft_snapshot_take(struct raft *raft, const struct log_base *base,
                               const struct raft_configuration *configuration)
{
    struct log *log = raft->log;

    if (base->index <= log->base.index)
        return;
    if (base->index > log->last_index || log_term(log, base->index) != base->term) {
        raft_log_replace(raft, base, configuration);
    } else {
        uint64_t index = raft_min(base->index, raft->durable_index);
        raft_configuration_release(raft, index);
        log_release_to(log, index);
    }
    raft->commit_index = raft_max(raft->commit_index, base->index);
    raft->applied_index = raft_max(raft->applied_index, base->index);
    raft->saved_index = raft_max(raft->saved_index, base->index);
}

void raft_on_snapshot_installed(struct raft *raft, const struct raft_event *event)
{
    if (raft_is_leader(raft) || raft->grant.state != RAFT_GRANT_NONE) {
        raft_ignore(raft);
        return;
    }
    raft->fetching = false;
    if (event->snapshot.base.index == 0)
        return;
    raft_snapshot_take(raft, &event->snapshot.base, &event->snapshot.configuration);
    if (raft->leader != 0)
        raft_send_snapshot_done(raft, raft->leader);
}
