/* SPDX-License-Identifier: Apache-2.0
 *
 * Membership: one change at a time (thesis 4.1), new members as learners first (4.2.1). A
 * configuration is in force from the moment it is in the log, committed or not, and out of it when
 * it is cut.
 */
#include "consensus/raft_internal.h"

#include <string.h>

/* ---- members --------------------------------------------------------------------------------- */

struct raft_peer *raft_peer_of(struct raft *raft, uint64_t id)
{
    for (uint32_t i = 0; i < raft->configuration.count; i++)
        if (raft->peers[i].id == id)
            return &raft->peers[i];
    return NULL;
}

static struct raft_member *raft_find(struct raft_configuration *configuration, uint64_t id)
{
    for (uint32_t i = 0; i < configuration->count; i++)
        if (configuration->members[i].replica_id == id)
            return &configuration->members[i];
    return NULL;
}

const struct raft_member *raft_member_of(const struct raft *raft, uint64_t id)
{
    for (uint32_t i = 0; i < raft->configuration.count; i++)
        if (raft->configuration.members[i].replica_id == id)
            return &raft->configuration.members[i];
    return NULL;
}

bool raft_is_voter(const struct raft *raft)
{
    const struct raft_member *self = raft_member_of(raft, raft->options.replica_id);

    return self != NULL && self->role == RAFT_VOTER;
}

/* ---- the configuration in force -------------------------------------------------------------- */

static void raft_peer_dropped(struct raft *raft, const struct raft_peer *peer)
{
    if (raft->transfer_target == peer->id)
        raft->transfer_target = 0;
    if (peer->state != RAFT_PEER_ATTACHED)
        return;
    struct raft_effect *effect = raft_emit(raft, RAFT_FX_DETACH);
    effect->ship.peer = peer->id;
    effect->ship.grant = peer->grant;
}

/* Progress goes with the id. A member that comes back starts from nothing, under a new grant, so
 * that acknowledgements from before cannot count for it. */
void raft_set_configuration(struct raft *raft, const struct raft_configuration *configuration)
{
    struct raft_peer before[RAFT_MEMBERS_MAX];
    struct raft_configuration next = *configuration;
    uint32_t before_count = raft->configuration.count;

    memcpy(before, raft->peers, sizeof(before));
    memset(raft->peers, 0, sizeof(raft->peers));
    for (uint32_t i = 0; i < next.count; i++) {
        for (uint32_t j = 0; j < before_count; j++)
            if (before[j].id == next.members[i].replica_id)
                raft->peers[i] = before[j];
        raft->peers[i].id = next.members[i].replica_id;
    }
    for (uint32_t j = 0; j < before_count; j++)
        if (raft_find(&next, before[j].id) == NULL)
            raft_peer_dropped(raft, &before[j]);
    raft->configuration = next;
    raft_emit(raft, RAFT_FX_CONFIGURATION)->configuration = next;
    if (!raft_is_leader(raft))
        return;
    for (uint32_t i = 0; i < next.count; i++) {
        struct raft_peer *peer = &raft->peers[i];
        if (peer->state != RAFT_PEER_DETACHED || peer->id == raft->options.replica_id)
            continue;
        peer->heard_ns = raft->now_ns;
        raft_peer_attach(raft, peer);
    }
}

static bool raft_configuration_at(const struct raft *raft, uint64_t index,
                                  struct raft_configuration *configuration)
{
    const struct log_entry *entry = log_at(raft->log, index);

    if (entry == NULL || entry->kind != LOG_CONFIGURATION)
        return false;
    bool decoded =
        raft_configuration_decode(configuration, log_entry_payload(entry), entry->payload_bytes);
    assert(decoded); /* the chain vouches for the leader's bytes: no leader writes another */
    configuration->index = index;
    return decoded;
}

/* The newest configuration in [first, last], going down. */
static bool raft_configuration_find(const struct raft *raft, uint64_t first, uint64_t last,
                                    struct raft_configuration *configuration)
{
    for (uint64_t index = last; index >= first && index > raft->log->base.index; index--)
        if (raft_configuration_at(raft, index, configuration))
            return true;
    return false;
}

/* Entries from `first` on were added. */
void raft_configuration_from_log(struct raft *raft, uint64_t first)
{
    struct raft_configuration configuration;

    if (raft_configuration_find(raft, first, raft->log->last_index, &configuration))
        raft_set_configuration(raft, &configuration);
}

void raft_configuration_after_cut(struct raft *raft)
{
    struct raft_configuration configuration;

    if (raft->configuration.index <= raft->log->last_index)
        return;
    if (!raft_configuration_find(raft, 0, raft->log->last_index, &configuration))
        configuration = raft->base_configuration;
    raft_set_configuration(raft, &configuration);
}

/* The log up to index is about to be released: what is in force there must be remembered. */
void raft_configuration_release(struct raft *raft, uint64_t index)
{
    struct raft_configuration configuration;

    if (raft->configuration.index <= index)
        raft->base_configuration = raft->configuration;
    else if (raft_configuration_find(raft, 0, index, &configuration))
        raft->base_configuration = configuration;
}

static bool raft_has_voter(const struct raft_configuration *configuration, uint64_t id)
{
    for (uint32_t i = 0; i < configuration->count; i++)
        if (configuration->members[i].replica_id == id)
            return configuration->members[i].role == RAFT_VOTER;
    return false;
}

/* A voter, or one that the newest configuration leaves out while that is not committed: it may be
 * the only one whose log can win (4.2.2). Two voters become one: the leader that removed itself
 * fails before the other has the entry, which then would wait for its vote for ever. */
bool raft_may_stand(const struct raft *raft)
{
    struct raft_configuration before;

    if (raft_is_voter(raft))
        return true;
    if (raft->configuration.index <= raft->commit_index)
        return false;
    if (!raft_configuration_find(raft, 0, raft->configuration.index - 1, &before))
        before = raft->base_configuration;
    return raft_has_voter(&before, raft->options.replica_id);
}

/* ---- changes --------------------------------------------------------------------------------- */

static uint32_t raft_voters(const struct raft_configuration *configuration)
{
    uint32_t voters = 0;

    for (uint32_t i = 0; i < configuration->count; i++)
        voters += configuration->members[i].role == RAFT_VOTER;
    return voters;
}

/* A learner that would hold up commits as a voter is not made one (4.2.1). */
static bool raft_is_caught_up(struct raft *raft, const struct raft_peer *peer)
{
    return peer->state == RAFT_PEER_ATTACHED && peer->match_index >= raft->term_start_index &&
           raft->log->end - peer->acked_position <= raft->options.ship_window_bytes / 2;
}

static enum raft_refusal raft_change_apply(struct raft *raft, enum raft_change_kind kind,
                                           const struct raft_member *member,
                                           struct raft_configuration *next)
{
    struct raft_member *known = raft_find(next, member->replica_id);

    if (kind == RAFT_ADD_LEARNER) {
        if (known != NULL || member->replica_id == 0 || next->count == RAFT_MEMBERS_MAX)
            return RAFT_REFUSED_INVALID;
        next->members[next->count++] = (struct raft_member){
            .replica_id = member->replica_id,
            .node = member->node,
            .role = RAFT_LEARNER,
        };
        return 0;
    }
    if (known == NULL)
        return RAFT_REFUSED_INVALID;
    if (kind == RAFT_PROMOTE) {
        if (known->role != RAFT_LEARNER)
            return RAFT_REFUSED_INVALID;
        if (!raft_is_caught_up(raft, raft_peer_of(raft, member->replica_id)))
            return RAFT_REFUSED_BEHIND;
        known->role = RAFT_VOTER;
        return 0;
    }
    if (kind != RAFT_REMOVE || (known->role == RAFT_VOTER && raft_voters(next) == 1))
        return RAFT_REFUSED_INVALID;
    *known = next->members[--next->count];
    memset(&next->members[next->count], 0, sizeof(next->members[0]));
    return 0;
}

static enum raft_refusal raft_change_allowed(const struct raft *raft)
{
    if (!raft_is_leader(raft))
        return RAFT_REFUSED_NOT_LEADER;
    /* Majorities of two configurations that differ by one voter overlap, but only if both are of
     * one history: none before this term committed an entry (Ongaro's correction of 4.1). */
    if (!raft_is_ready(raft))
        return RAFT_REFUSED_TOO_EARLY;
    if (raft->configuration.index > raft->commit_index || raft->transfer_target != 0)
        return RAFT_REFUSED_BUSY;
    return 0;
}

void raft_on_change(struct raft *raft, const struct raft_event *event)
{
    struct raft_configuration next = raft->configuration;
    uint8_t bytes[RAFT_CONFIGURATION_BYTES_MAX];
    uint8_t *payload = NULL;
    size_t length = 0;

    enum raft_refusal why = raft_change_allowed(raft);
    if (why == 0)
        why = raft_change_apply(raft, event->change.kind, &event->change.member, &next);
    if (why == 0) {
        length = raft_configuration_encode(&next, bytes);
        payload = log_reserve(raft->log, length);
        why = payload == NULL ? RAFT_REFUSED_BUSY : 0;
    }
    if (why != 0) {
        raft_emit(raft, RAFT_FX_CHANGE_REFUSED)->refused.why = why;
        return;
    }
    memcpy(payload, bytes, length);
    raft_append(raft, LOG_CONFIGURATION, length);
}
