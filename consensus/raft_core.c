/* SPDX-License-Identifier: Apache-2.0
 *
 * The core's entry: one event in, effects out. Terms and roles change only here.
 */
#include "consensus/plant.h"
#include "consensus/raft_internal.h"

#include <string.h>

/* ---- effects --------------------------------------------------------------------------------- */

struct raft_effect *raft_emit(struct raft *raft, enum raft_effect_kind kind)
{
    struct raft_effects *effects = raft->effects;

    assert(effects->count < RAFT_EFFECTS_MAX);
    struct raft_effect *effect = &effects->items[effects->count++];
    memset(effect, 0, sizeof(*effect));
    effect->kind = kind;
    return effect;
}

struct raft_message *raft_send(struct raft *raft, enum raft_message_kind kind, uint64_t to)
{
    struct raft_message *message = &raft_emit(raft, RAFT_FX_SEND)->message;

    message->kind = (uint8_t)kind;
    message->from = raft->options.replica_id;
    message->to = to;
    message->term = raft->hard.term;
    return message;
}

void raft_ignore(struct raft *raft)
{
    raft->ignored++;
}

/* Term and vote go to disk in one write (never one without the other), before any entry that was
 * taken under them. */
void raft_flush_hard(struct raft *raft)
{
    if (!raft->hard_dirty)
        return;
    raft->hard_dirty = false;
    if (raft_on_disk(raft))
        raft_emit(raft, RAFT_FX_PERSIST_HARD)->hard = raft->hard;
    else
        raft->hard_durable = raft->hard;
}

static bool raft_hard_equal(const struct raft_hard_state *a, const struct raft_hard_state *b)
{
    return a->term == b->term && a->vote == b->vote;
}

/* What waits for term and vote to be durable may go on at once in memory durability: a process that
 * restarts comes back under another id and has nothing to remember. */
static void raft_settle_hard(struct raft *raft)
{
    while (raft->hard_dirty) {
        raft_flush_hard(raft);
        if (!raft_on_disk(raft))
            raft_hard_reached(raft);
    }
}

static void raft_report_role(struct raft *raft)
{
    if (raft->reported.role == raft->role && raft->reported.term == raft->hard.term &&
        raft->reported.leader == raft->leader)
        return;
    raft->reported.role = raft->role;
    raft->reported.term = raft->hard.term;
    raft->reported.leader = raft->leader;
    struct raft_effect *effect = raft_emit(raft, RAFT_FX_ROLE);
    effect->role.role = raft->role;
    effect->role.term = raft->hard.term;
    effect->role.leader = raft->leader;
    effect->role.leader_node = raft->leader_node;
}

/* ---- terms and roles ------------------------------------------------------------------------- */

/* Drawn anew each time, so that split votes do not repeat (3.4). */
uint64_t raft_random_timeout(struct raft *raft)
{
    uint64_t z = raft->rng += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return raft->options.election_timeout_ns + z % raft->options.election_timeout_ns;
}

/* The vote belongs to the term: a step down within a term keeps it, a higher term clears it. */
void raft_become_follower(struct raft *raft, uint64_t term, uint64_t leader)
{
    assert(term >= raft->hard.term);
    if (raft_is_leader(raft))
        raft_leader_teardown(raft);
    if (term > raft->hard.term) {
        assert(raft->grant.state == RAFT_GRANT_NONE);
        raft->hard = (struct raft_hard_state){.term = term};
        raft->hard_dirty = true;
        raft->vote_reply_to = 0;
    } else if (PLANTED(vote_cleared)) {
        raft->hard.vote = 0;
    }
    if (raft->role != RAFT_FOLLOWER)
        raft->election_deadline_ns = raft->now_ns + raft_random_timeout(raft);
    raft->role = RAFT_FOLLOWER;
    raft->leader = leader;
    raft->leader_node = 0;
}

/* ---- messages -------------------------------------------------------------------------------- */

static bool raft_is_from_leader(const struct raft_message *message)
{
    return message->kind == RAFT_MSG_ATTACH || message->kind == RAFT_MSG_HEARTBEAT ||
           message->kind == RAFT_MSG_SNAPSHOT_NEEDED;
}

/* A leader may be a member that this replica has not heard of yet (it lags, or is blank), or one
 * that removed itself: being leader of a term not lower than ours is credential enough. Everybody
 * else must be known; that also silences removed replicas (4.2.3). */
static bool raft_is_addressed(struct raft *raft, const struct raft_message *message)
{
    return message->to == raft->options.replica_id && message->from != raft->options.replica_id &&
           message->kind != 0 && message->kind < RAFT_MSG_KIND_COUNT &&
           (raft_is_from_leader(message) || message->kind == RAFT_MSG_TIMEOUT_NOW ||
            raft_member_of(raft, message->from) != NULL);
}

/* A message of an older term. Its sender must hear of ours, or it may lead, or stand, for ever:
 * with pre-vote a partitioned replica of a higher term cannot make it step down by campaigning. */
static void raft_message_stale(struct raft *raft, const struct raft_message *message)
{
    raft_ignore(raft);
    if (raft_is_from_leader(message))
        raft_answer_heartbeat(raft, message->from, 0);
    else if (message->kind == RAFT_MSG_VOTE)
        raft_send(raft, RAFT_MSG_VOTE_REPLY, message->from);
}

static void raft_message_dispatch(struct raft *raft, const struct raft_message *message)
{
    switch (message->kind) {
    case RAFT_MSG_VOTE:
        raft_on_vote(raft, message);
        break;
    case RAFT_MSG_VOTE_REPLY:
        raft_on_vote_reply(raft, message);
        break;
    case RAFT_MSG_ATTACH:
        raft_on_attach(raft, message);
        break;
    case RAFT_MSG_ATTACH_REPLY:
        raft_on_attach_reply(raft, message);
        break;
    case RAFT_MSG_ACK:
        raft_on_ack(raft, message);
        break;
    case RAFT_MSG_HEARTBEAT:
        raft_on_heartbeat(raft, message);
        break;
    case RAFT_MSG_HEARTBEAT_REPLY:
        raft_on_heartbeat_reply(raft, message);
        break;
    case RAFT_MSG_TIMEOUT_NOW:
        raft_on_timeout_now(raft, message);
        break;
    case RAFT_MSG_SNAPSHOT_NEEDED:
        raft_on_snapshot_needed(raft, message);
        break;
    case RAFT_MSG_SNAPSHOT_DONE:
        raft_on_snapshot_done(raft, message);
        break;
    default:
        raft_ignore(raft);
        break;
    }
}

void raft_message_step(struct raft *raft, const struct raft_message *message)
{
    if (!raft_is_addressed(raft, message)) {
        raft_ignore(raft);
        return;
    }
    /* Pre-votes are questions: they change no term and need no revocation (9.6). */
    if (message->kind == RAFT_MSG_PREVOTE) {
        raft_on_prevote(raft, message);
        return;
    }
    if (message->kind == RAFT_MSG_PREVOTE_REPLY && (message->flags & RAFT_MSG_GRANTED) != 0) {
        raft_on_prevote_reply(raft, message);
        return;
    }
    if (raft->grant.state == RAFT_GRANT_REVOKING) {
        raft_ignore(raft);
        return;
    }
    if (message->kind == RAFT_MSG_VOTE && raft_refuses_election(raft, message)) {
        raft_ignore(raft);
        return;
    }
    if (message->term < raft->hard.term) {
        raft_message_stale(raft, message);
        return;
    }
    if (message->term > raft->hard.term) {
        /* The old leader must not be able to write here once a higher term is accepted. */
        if (raft->grant.state != RAFT_GRANT_NONE) {
            raft_revoke(raft, RAFT_PENDING_MESSAGE, message);
            return;
        }
        raft_become_follower(raft, message->term, 0);
    }
    if (message->kind == RAFT_MSG_PREVOTE_REPLY)
        raft_on_prevote_reply(raft, message);
    else
        raft_message_dispatch(raft, message);
}

/* ---- other events ---------------------------------------------------------------------------- */

/* The disk reports in order, but the core may have gone on meanwhile: only a report that fits the
 * log as it is now counts (index reuse). */
static void raft_on_durable(struct raft *raft, uint64_t index, uint64_t term)
{
    if (!raft_on_disk(raft) || index <= raft->durable_index || index > raft->log->last_index ||
        log_term(raft->log, index) != term) {
        raft_ignore(raft);
        return;
    }
    raft->durable_index = index;
    raft_make_room(raft);
    if (raft_is_leader(raft)) {
        raft_advance_commit(raft);
        return;
    }
    raft_ack(raft);
    if (raft->pending.kind == RAFT_PENDING_DURABLE && index == raft->log->last_index) {
        struct raft_message message = raft->pending.message;
        raft->pending.kind = RAFT_PENDING_NONE;
        raft_message_step(raft, &message);
    }
}

static void raft_on_hard_durable(struct raft *raft, const struct raft_hard_state *hard)
{
    struct raft_hard_state *durable = &raft->hard_durable;

    if (!raft_on_disk(raft) || hard->term > raft->hard.term || hard->term < durable->term ||
        (hard->term == durable->term && durable->vote != 0)) {
        raft_ignore(raft);
        return;
    }
    *durable = *hard;
    if (raft_hard_equal(durable, &raft->hard))
        raft_hard_reached(raft);
    raft_ack(raft); /* acknowledgements waited for the term */
}

static void raft_on_propose(struct raft *raft, uint16_t kind, size_t payload_bytes)
{
    if (!raft_is_leader(raft) || raft->log->reserved_bytes <= payload_bytes ||
        (kind != LOG_COMMANDS && kind != LOG_LIMITS)) {
        raft_ignore(raft);
        return;
    }
    raft_append(raft, kind, payload_bytes);
}

static void raft_on_applied(struct raft *raft, uint64_t index)
{
    assert(index <= raft->commit_index);
    raft->applied_index = raft_max(raft->applied_index, index);
    raft_make_room(raft);
    raft_ack_limit(raft);
}

static void raft_on_snapshot_saved(struct raft *raft, uint64_t index)
{
    assert(index <= raft->applied_index);
    raft->saved_index = raft_max(raft->saved_index, index);
    raft_make_room(raft);
    raft_ack_limit(raft);
}

static void raft_on_tick(struct raft *raft)
{
    if (raft_is_leader(raft))
        raft_leader_tick(raft);
    else
        raft_election_tick(raft);
}

static void raft_dispatch(struct raft *raft, const struct raft_event *event)
{
    switch (event->kind) {
    case RAFT_EV_TICK:
        raft_on_tick(raft);
        break;
    case RAFT_EV_MESSAGE:
        raft_message_step(raft, &event->message);
        break;
    case RAFT_EV_PROPOSE:
        raft_on_propose(raft, event->propose.kind, event->propose.payload_bytes);
        break;
    case RAFT_EV_HARD_DURABLE:
        raft_on_hard_durable(raft, &event->hard);
        break;
    case RAFT_EV_DURABLE:
        raft_on_durable(raft, event->progress.index, event->progress.term);
        break;
    case RAFT_EV_RECEIVED:
        raft_on_received(raft, event);
        break;
    case RAFT_EV_SHIPPED:
        raft_on_shipped(raft, event);
        break;
    case RAFT_EV_SHIP_FAILED:
        raft_on_ship_failed(raft, event);
        break;
    case RAFT_EV_GRANTED:
        raft_on_granted(raft, event);
        break;
    case RAFT_EV_REVOKED:
        raft_on_revoked(raft, event->progress.grant);
        break;
    case RAFT_EV_APPLIED:
        raft_on_applied(raft, event->progress.index);
        break;
    case RAFT_EV_READ:
        raft_on_read(raft, event->read.context);
        break;
    case RAFT_EV_CHANGE:
        raft_on_change(raft, event);
        break;
    case RAFT_EV_TRANSFER:
        raft_on_transfer(raft, event->progress.peer);
        break;
    case RAFT_EV_SNAPSHOT_INSTALLED:
        raft_on_snapshot_installed(raft, event);
        break;
    case RAFT_EV_SNAPSHOT_SAVED:
        raft_on_snapshot_saved(raft, event->progress.index);
        break;
    case RAFT_EV_STEP_DOWN:
        raft_on_step_down(raft);
        break;
    }
}

void raft_step(struct raft *raft, const struct raft_event *event, struct raft_effects *effects)
{
    effects->count = 0;
    raft->effects = effects;
    raft->now_ns = raft_max(raft->now_ns, event->now_ns);
    raft_dispatch(raft, event);
    raft_settle_hard(raft);
    raft_report_role(raft);
    raft->effects = NULL;
}

/* ---- start and view -------------------------------------------------------------------------- */

size_t raft_memory_bytes(void)
{
    return (sizeof(struct raft) + 63u) & ~(size_t)63u;
}

static void raft_check_options(const struct raft_options *options, const struct log *log)
{
    assert(options->replica_id != 0);
    assert(options->heartbeat_ns > 0 && options->election_timeout_ns > options->heartbeat_ns);
    assert(options->ship_window_bytes > 0 && options->ship_window_bytes <= log->ring_bytes / 4);
    assert(options->lease_drift_ppm < 1000000);
}

struct raft *raft_init(void *memory, const struct raft_options *options, struct log *log,
                       const struct raft_hard_state *hard,
                       const struct raft_configuration *configuration, uint64_t now_ns)
{
    struct raft *raft = memory;

    assert(((uintptr_t)memory & 63u) == 0);
    raft_check_options(options, log);
    memset(raft, 0, sizeof(*raft));
    raft->options = *options;
    raft->log = log;
    raft->now_ns = now_ns;
    raft->rng = options->rng_seed;
    raft->hard = *hard;
    /* Entries of a term that never became durable as such: it was neither voted nor acknowledged
     * in, but must not be gone back behind. */
    if (raft->hard.term < log->last_term)
        raft->hard = (struct raft_hard_state){.term = log->last_term};
    raft->hard_durable = raft->hard;
    raft->campaigns = true;
    raft->commit_index = log->base.index;
    raft->applied_index = log->base.index;
    raft->saved_index = log->base.index;
    raft->durable_index = log->last_index;
    raft->announce_ns = UINT64_MAX;
    raft->election_deadline_ns = now_ns + raft_random_timeout(raft);
    if (options->lease_reads)
        raft->quiet_until_ns = now_ns + options->election_timeout_ns;
    raft->base_configuration = *configuration;
    raft->configuration = *configuration;
    for (uint32_t i = 0; i < configuration->count; i++)
        raft->peers[i].id = configuration->members[i].replica_id;
    struct raft_effects none = {0};
    raft->effects = &none; /* the caller sees the configuration in raft_look() */
    raft_configuration_from_log(raft, log->base.index + 1);
    raft->effects = NULL;
    raft->reported.term = raft->hard.term;
    return raft;
}

uint64_t raft_next_deadline(const struct raft *raft)
{
    if (raft_is_leader(raft)) {
        uint64_t due_ns = raft_min(raft->heartbeat_ns, raft->announce_ns);
        return raft->transfer_target ? raft_min(due_ns, raft->transfer_deadline_ns) : due_ns;
    }
    if (raft->role == RAFT_FOLLOWER)
        return raft->election_deadline_ns;
    return raft_min(raft->election_deadline_ns, raft->resend_ns);
}

uint64_t raft_shard_time(const struct raft *raft, uint64_t now_ns)
{
    uint64_t elapsed_ns = now_ns > raft->leader_since_ns ? now_ns - raft->leader_since_ns : 0;

    if (PLANTED(stamps_from_uptime))
        return raft_max(raft->log->last_stamp_ns, now_ns);
    return raft_max(raft->log->last_stamp_ns, raft->shard_time_base_ns + elapsed_ns);
}

/* The leader counts itself by what is durable here; others by what they acknowledged. */
static void raft_look_peer(const struct raft *raft, uint32_t i, struct raft_peer_view *view)
{
    const struct raft_peer *peer = &raft->peers[i];
    bool self = peer->id == raft->options.replica_id;

    view->member = raft->configuration.members[i];
    view->match_index = self ? raft->durable_index : peer->match_index;
    view->grant = peer->grant;
    view->state = peer->state;
    view->active = self || peer->heard_ns + raft->options.election_timeout_ns > raft->now_ns;
}

void raft_look(const struct raft *raft, struct raft_view *view)
{
    memset(view, 0, sizeof(*view));
    view->role = raft->role;
    view->term = raft->hard.term;
    view->vote = raft->hard.vote;
    view->leader = raft->leader;
    view->leader_node = raft->leader_node;
    view->commit_index = raft->commit_index;
    view->applied_index = raft->applied_index;
    view->last_index = raft->log->last_index;
    view->durable_index = raft->durable_index;
    view->ready = raft_is_ready(raft);
    view->ignored = raft->ignored;
    view->last_leader_contact_ns = raft->contact_ns;
    view->configuration = &raft->configuration;
    view->peers_count = raft->configuration.count;
    for (uint32_t i = 0; i < raft->configuration.count; i++)
        raft_look_peer(raft, i, &view->peers[i]);
}
