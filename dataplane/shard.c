/* SPDX-License-Identifier: Apache-2.0
 *
 * A shard's life and its conversation with the Raft core: one event in, effects carried out.
 */
#include "consensus/plant.h"
#include "dataplane/shard.h"

#include <assert.h>
#include <string.h>

/* ---- memory ---------------------------------------------------------------------------------- */

static size_t round64(size_t bytes)
{
    return (bytes + 63u) & ~(size_t)63u;
}

static void *take(uint8_t **cursor, size_t bytes)
{
    void *piece = *cursor;

    *cursor += round64(bytes);
    return piece;
}

size_t shard_memory_bytes(const struct node_options *options)
{
    return round64(log_memory_bytes(options->ring_bytes, options->entries_max)) +
           round64(raft_memory_bytes()) + round64(lock_machine_memory(&options->limits).total) +
           round64(SHARD_READS_MAX * sizeof(struct shard_read)) +
           round64(SHARD_IN_FLIGHT * sizeof(struct shard_in_flight)) +
           round64(push_memory_bytes()) + round64(SHARD_REPLY_BYTES_MAX);
}

void shard_layout(struct shard *shard, void *memory, const struct node_options *options)
{
    uint8_t *cursor = memory;
    void *ring;
    void *machine;

    memset(shard, 0, sizeof *shard);
    shard->options = options;
    /* The ring first: it is what will be registered with a device, on its own pages. */
    ring = take(&cursor, log_memory_bytes(options->ring_bytes, options->entries_max));
    log_init(&shard->log, ring, options->ring_bytes, options->entries_max);
    machine = take(&cursor, lock_machine_memory(&options->limits).total);
    shard->machine = lock_machine_init(machine, &options->limits);
    shard->raft = take(&cursor, raft_memory_bytes());
    shard->reads = take(&cursor, SHARD_READS_MAX * sizeof(struct shard_read));
    shard->in_flight = take(&cursor, SHARD_IN_FLIGHT * sizeof(struct shard_in_flight));
    push_init(&shard->pushes, take(&cursor, push_memory_bytes()));
    shard->reply_scratch = take(&cursor, SHARD_REPLY_BYTES_MAX);
    assert((size_t)(cursor - (uint8_t *)memory) == shard_memory_bytes(options));
}

void shard_begin(struct shard *shard, const struct shard_start *start, uint64_t now_ns)
{
    struct raft_options raft_options = {
        .replica_id = start->replica,
        .node = shard->options->node,
        .durability = shard->options->durability == NODE_DISK ? RAFT_DISK : RAFT_MEMORY,
        .heartbeat_ns = shard->options->heartbeat_ns,
        .election_timeout_ns = shard->options->election_timeout_ns,
        .rng_seed = shard->host->draw(shard->host_context),
        .lease_reads = shard->options->lease_reads,
        .lease_drift_ppm = shard->options->lease_drift_ppm,
        .ship_window_bytes = shard->options->ship_window_bytes,
    };

    shard->id = start->id;
    shard->replica = start->replica;
    shard->joining = start->joining;
    shard->limits_set = start->limits_set;
    shard->token_epoch = start->token_epoch;
    shard->configuration = start->configuration;
    shard->applied = shard->log.base.index;
    shard->applied_stamp_ns = shard->log.base.stamp_ns;
    shard->due_ns = lock_machine_next_deadline(shard->machine);
    shard->saved_index = shard->log.base.index;
    shard->persist.next = shard->log.last_index + 1;
    shard->persist.to = shard->log.last_index;
    shard->persist.written = shard->log.last_index;
    shard->received_gap = UINT64_MAX;
    shard->raft = raft_init(shard->raft, &raft_options, &shard->log, &start->hard,
                            &start->configuration, now_ns);
    raft_look(shard->raft, &shard->view);
    shard_configuration(shard);
    shard_publish(shard, now_ns);
}

/* ---- effects --------------------------------------------------------------------------------- */

bool shard_leads(const struct shard *shard)
{
    return shard->view.role == RAFT_LEADER && (shard->view.ready || PLANTED(read_before_noop)) &&
           shard->state == SHARD_RUNNING && shard->limits_set;
}

void shard_note(struct shard *shard, const struct shard_note *note)
{
    shard->host->note(shard->host_context, shard->id, note);
}

static void became_leader(struct shard *shard, uint64_t now_ns)
{
    shard->leader_since_ns = now_ns;
    shard->spread_at_ns = now_ns + shard->options->election_timeout_ns * 10;
    shard->proposed_stamp_ns = 0;
    shard->proposed_at_ns = now_ns;
    shard->unconfirmed_walk = true;
    shard->unconfirmed_cursor = 0;
}

static void lost_leadership(struct shard *shard)
{
    shard->leader_since_ns = 0;
    shard->unconfirmed_walk = false;
    assert(!shard->batch);
    memset(shard->in_flight, 0, SHARD_IN_FLIGHT * sizeof *shard->in_flight);
    push_clear(&shard->pushes);
}

static void role_changed(struct shard *shard, const struct raft_effect *effect, uint64_t now_ns)
{
    bool leads = effect->role.role == RAFT_LEADER;

    if (leads && !shard->leader_since_ns)
        became_leader(shard, now_ns);
    else if (!leads && shard->leader_since_ns)
        lost_leadership(shard);
    shard_note(shard, &(struct shard_note){
                          .event = leads                 ? "leader"
                                   : effect->role.leader ? "follows"
                                                         : "no_leader",
                          .first_name = "term",
                          .first = effect->role.term,
                          .second_name = effect->role.leader ? "leader_node" : NULL,
                          .second = effect->role.leader_node,
                          .detail = !effect->role.leader,
                      });
    shard->board_at_ns = 0; /* tell everybody at the end of this turn */
}

/* With messages, opening and closing the ring is a matter of which datagrams are taken: both are
 * complete at once. The events go back into the core after the effects of this step are done. With
 * one-sided writes both take their time (shard_granted, shard_revoked). */
struct follow_up {
    bool granted, revoked;
    uint64_t grant;
};

static void carry_out(struct shard *shard, const struct raft_effect *effect, uint64_t now_ns,
                      struct follow_up *follow_up)
{
    switch (effect->kind) {
    case RAFT_FX_SEND: {
        const struct shard_peer *peer = shard_peer_of(shard, effect->message.to);
        struct raft_message message = effect->message;

        if (!peer)
            break;
        if (message.kind == RAFT_MSG_ATTACH && shard_offers_writes(shard, peer))
            message.flags |= RAFT_MSG_ONE_SIDED;
        shard->host->send_raft(shard->host_context, shard->id, peer->node, &message);
        break;
    }
    case RAFT_FX_PERSIST_HARD:
        shard->persist.hard = effect->hard;
        shard->persist.hard_pending = true;
        break;
    case RAFT_FX_PERSIST_ENTRIES:
        shard_persist_entries(shard, effect->range.first, effect->range.last);
        break;
    case RAFT_FX_PERSIST_CUT:
        shard_persist_cut(shard, effect->range.first);
        break;
    case RAFT_FX_SHIP:
        shard_ship_extend(shard, effect);
        break;
    case RAFT_FX_DETACH:
        shard_ship_detach(shard, effect->ship.peer);
        break;
    case RAFT_FX_GRANT:
        shard->grant_leader = effect->grant.leader;
        shard->grant_number = effect->grant.number;
        follow_up->granted = !shard_ring_open(shard, effect);
        follow_up->grant = effect->grant.number;
        break;
    case RAFT_FX_REVOKE:
        shard->grant_leader = 0;
        shard->grant_number = 0;
        follow_up->revoked = !shard_ring_close(shard);
        follow_up->grant = effect->grant.number;
        break;
    case RAFT_FX_COMMITTED: /* applied at the end of the turn */
        break;
    case RAFT_FX_ROLE:
        role_changed(shard, effect, now_ns);
        break;
    case RAFT_FX_CONFIGURATION:
        shard_configuration(shard);
        break;
    case RAFT_FX_NEED_SNAPSHOT:
        /* A saved one serves if it reaches the log; else one is taken now. */
        if (shard->saved_index < shard->log.base.index)
            shard->save_wanted = true;
        break;
    case RAFT_FX_FETCH_SNAPSHOT:
        shard_fetch_from(shard, effect->snapshot.peer, effect->snapshot.node);
        break;
    case RAFT_FX_READ_READY:
        shard_reads_ready(shard, effect->read.context, effect->read.index);
        break;
    case RAFT_FX_READ_FAILED:
        shard_reads_failed(shard, effect->read.context);
        break;
    case RAFT_FX_CHANGE_REFUSED:
        shard_note(shard, &(struct shard_note){.event = "change_refused",
                                               .first_name = "why",
                                               .first = effect->refused.why,
                                               .detail = true});
        break;
    case RAFT_FX_ENTRIES_LOST:
        memset(shard->in_flight, 0, SHARD_IN_FLIGHT * sizeof *shard->in_flight);
        break;
    }
}

void shard_step(struct shard *shard, const struct raft_event *event)
{
    struct raft_event next = *event;
    bool again = true;

    /* The batch lies in the ring behind the last entry: nothing may be appended before it is. */
    if (shard->batch && event->kind != RAFT_EV_PROPOSE)
        shard_close_batch(shard, event->now_ns);
    while (again) {
        struct follow_up follow_up = {0};
        uint64_t now_ns = next.now_ns;

        raft_step(shard->raft, &next, shard->effects);
        raft_look(shard->raft, &shard->view);
        for (uint32_t i = 0; i < shard->effects->count; i++)
            carry_out(shard, &shard->effects->items[i], now_ns, &follow_up);
        assert(!(follow_up.granted && follow_up.revoked));
        again = follow_up.granted || follow_up.revoked;
        if (again) {
            next = (struct raft_event){
                .kind = follow_up.granted ? RAFT_EV_GRANTED : RAFT_EV_REVOKED,
                .now_ns = now_ns,
                .progress = {.grant = follow_up.grant},
            };
        }
    }
}

/* ---- one turn -------------------------------------------------------------------------------- */

bool shard_turn(struct shard *shard, uint64_t now_ns)
{
    bool more = false;

    shard_close_batch(shard, now_ns);
    shard_reads_close(shard, now_ns);
    if (raft_next_deadline(shard->raft) <= now_ns)
        shard_step(shard, &(struct raft_event){.kind = RAFT_EV_TICK, .now_ns = now_ns});
    if (shard_apply(shard, now_ns))
        more = true;
    shard_reads_serve(shard);
    shard_propose_due(shard, now_ns);
    shard_spread(shard, now_ns);
    if (shard_snapshot_turn(shard, now_ns))
        more = true;
    shard_persist_flush(shard);
    shard_ship_flush(shard, now_ns);
    shard_publish(shard, now_ns);
    return more;
}

void shard_step_down(struct shard *shard, uint64_t now_ns)
{
    shard_step(shard, &(struct raft_event){.kind = RAFT_EV_STEP_DOWN, .now_ns = now_ns});
}

void shard_want_snapshot(struct shard *shard)
{
    if (shard->applied > shard->saved_index)
        shard->save_wanted = true;
}

static void relieve(struct shard *shard)
{
    bool saves = shard->applied > shard->saved_index || shard->save != SHARD_SAVE_NONE ||
                 shard->persist.snapshot_sequence != 0;

    if (saves)
        shard_want_snapshot(shard);
    else if (!shard->persist.cut_pending && !shard->install_sequence)
        (void)wal_carry(shard->wal, shard->replica, &shard->log); /* again at the next turn */
}

void shards_relieve(struct shard shards[], size_t count, const struct wal_writer *wal)
{
    uint64_t replicas[16]; /* whoever is not among them is at a later turn */
    size_t named = wal_pressure(wal, replicas, sizeof replicas / sizeof *replicas);

    for (size_t i = 0; i < named; i++) {
        for (size_t k = 0; k < count; k++) {
            if (shards[k].replica == replicas[i])
                relieve(&shards[k]);
        }
    }
}

/* ---- what others see ------------------------------------------------------------------------- */

enum { SHARD_BOARD_INTERVAL_NS = 100 * 1000 * 1000 };

static uint8_t shown_role(const struct shard *shard)
{
    if (shard->state == SHARD_INSTALLING || shard->joining)
        return 4;
    switch (shard->view.role) {
    case RAFT_LEADER:
        return 2;
    case RAFT_PRECANDIDATE:
    case RAFT_CANDIDATE:
        return 1;
    case RAFT_FOLLOWER:
        break;
    }
    return 0;
}

/* The machine's history, at the index it belongs to: readers look at digest_index before and after,
 * because only digests of one index may be compared. */
static void publish_digest(const struct shard *shard, struct board_shard *row)
{
    if (shard->state != SHARD_RUNNING)
        return;
    BOARD_SET(row->digest_index, 0);
    atomic_store_explicit(&row->digest, lock_machine_history(shard->machine), memory_order_release);
    atomic_store_explicit(&row->digest_index, shard->applied, memory_order_release);
}

void shard_publish(struct shard *shard, uint64_t now_ns)
{
    struct board_shard *row = &shard->board->shards[shard->id];
    const struct raft_view *view = &shard->view;
    struct lock_counts counts;
    uint8_t voters = 0;
    uint8_t learners = 0;
    uint16_t leader_node = view->leader_node;

    if (now_ns < shard->board_at_ns)
        return;
    shard->board_at_ns = now_ns + SHARD_BOARD_INTERVAL_NS;
    for (uint32_t i = 0; i < view->configuration->count; i++) {
        if (view->configuration->members[i].role == RAFT_VOTER)
            voters++;
        else
            learners++;
    }
    lock_machine_counts(shard->machine, &counts);
    /* A leader that cannot serve yet is not worth a redirect, but it is the one to wait for. */
    BOARD_SET(row->leader_node, leader_node);
    if (view->role == RAFT_LEADER)
        BOARD_SET(row->leader_worker, (uint16_t)(shard->id % shard->options->workers));
    BOARD_SET(row->role, shown_role(shard));
    BOARD_SET(row->contact_ns, view->role == RAFT_LEADER ? now_ns : view->last_leader_contact_ns);
    BOARD_SET(row->term, view->term);
    BOARD_SET(row->configuration_index, view->configuration->index);
    BOARD_SET(row->last_index, view->last_index);
    BOARD_SET(row->commit_index, view->commit_index);
    publish_digest(shard, row);
    BOARD_SET(row->applied_index, shard->applied);
    BOARD_SET(row->snapshot_index, shard->saved_index);
    BOARD_SET(row->leases, counts.leases);
    BOARD_SET(row->resources, counts.resources);
    BOARD_SET(row->sessions, counts.sessions);
    BOARD_SET(row->waiters, counts.waiters);
    BOARD_SET(row->ship_mode, shard_ship_mode(shard));
    BOARD_SET(row->voters, voters);
    BOARD_SET(row->learners, learners);
}

/* ---- when to wake ---------------------------------------------------------------------------- */

static uint64_t earlier(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns < b_ns ? a_ns : b_ns;
}

/* The leader's deadline for an entry that settles time. */
static uint64_t due_deadline(const struct shard *shard, uint64_t now_ns)
{
    uint64_t due_ns = shard_leads(shard) ? shard->due_ns : UINT64_MAX;
    uint64_t shard_now_ns;

    if (due_ns == UINT64_MAX)
        return UINT64_MAX;
    shard_now_ns = raft_shard_time(shard->raft, now_ns);
    if (due_ns > shard_now_ns)
        return earlier(now_ns + (due_ns - shard_now_ns),
                       shard->proposed_at_ns + shard->options->stamp_interval_ns);
    /* Due already. If an entry that will settle it is under way, its commit will wake us. */
    if (shard->proposed_stamp_ns >= due_ns && shard->view.last_index > shard->applied)
        return UINT64_MAX;
    return now_ns;
}

uint64_t shard_deadline(const struct shard *shard, uint64_t now_ns)
{
    uint64_t deadline_ns = raft_next_deadline(shard->raft);

    deadline_ns = earlier(deadline_ns, due_deadline(shard, now_ns));
    deadline_ns = earlier(deadline_ns, push_deadline(&shard->pushes));
    for (int i = 0; i < RAFT_MEMBERS_MAX; i++) {
        if (shard->peers[i].replica)
            deadline_ns = earlier(deadline_ns, ship_sender_deadline(&shard->peers[i].sender));
    }
    if (shard->joining)
        deadline_ns = earlier(deadline_ns, shard->join_at_ns);
    if (shard->leader_since_ns)
        deadline_ns = earlier(deadline_ns, shard->spread_at_ns);
    if (shard->fetch_peer && !shard->fetch_running)
        deadline_ns = earlier(deadline_ns, shard->fetch_at_ns);
    return deadline_ns;
}
