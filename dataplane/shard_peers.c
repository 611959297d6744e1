/* SPDX-License-Identifier: Apache-2.0
 *
 * Peers: who they are, log bytes to and from them, who may join, and where leadership belongs.
 */
#include <string.h>

#include "dataplane/shard.h"

enum {
    /* First wait for an acknowledgement: above a slow disk's write, below an election timeout. */
    SHARD_RETRANSMIT_NS = 20 * 1000 * 1000,
    SHARD_RETRANSMIT_NS_MAX = 320 * 1000 * 1000,
    SHARD_ASK_AGAIN_NS = 2 * 1000 * 1000,
};

/* ---- who they are ---------------------------------------------------------------------------- */

struct shard_peer *shard_peer_of(struct shard *shard, uint64_t replica)
{
    if (!replica) /* nobody, not a free place */
        return NULL;
    for (int i = 0; i < RAFT_MEMBERS_MAX; i++) {
        if (shard->peers[i].replica == replica)
            return &shard->peers[i];
    }
    return NULL;
}

static bool is_member(const struct shard *shard, uint64_t replica)
{
    const struct raft_configuration *configuration = shard->view.configuration;

    for (uint32_t i = 0; i < configuration->count; i++) {
        if (configuration->members[i].replica_id == replica)
            return true;
    }
    return false;
}

/* A peer that the configuration does not name: the leader of a replica that is still blank, or a
 * replica just removed. Its place is given away first. */
static struct shard_peer *place_for(struct shard *shard, uint64_t replica)
{
    struct shard_peer *stranger = NULL;

    for (int i = 0; i < RAFT_MEMBERS_MAX; i++) {
        struct shard_peer *peer = &shard->peers[i];

        if (peer->replica == replica || !peer->replica)
            return peer;
        if (!is_member(shard, peer->replica))
            stranger = peer;
    }
    return stranger;
}

static void learn_peer(struct shard *shard, uint64_t replica, uint16_t node)
{
    struct shard_peer *peer = shard_peer_of(shard, replica);

    if (!replica || replica == shard->replica)
        return;
    if (!peer) {
        peer = place_for(shard, replica);
        if (!peer)
            return;
        memset(peer, 0, sizeof *peer);
        peer->replica = replica;
        ship_sender_init(&peer->sender, &(struct ship_options){
                                            .ring_bytes = shard->options->ring_bytes,
                                            .window_bytes = shard->options->ship_window_bytes,
                                            .retransmit_ns = SHARD_RETRANSMIT_NS,
                                            .retransmit_ns_max = SHARD_RETRANSMIT_NS_MAX,
                                        });
    }
    peer->node = node;
}

/* Removed replicas do not ask to come back; only one that never was a voter joins. The entry that
 * makes it one may be cut again: it goes on asking until that is committed. */
static void look_whether_joined(struct shard *shard)
{
    const struct raft_configuration *configuration = shard->view.configuration;

    if (!shard->joining || configuration->index > shard->view.commit_index)
        return;
    for (uint32_t i = 0; i < configuration->count; i++) {
        const struct raft_member *member = &configuration->members[i];

        if (member->replica_id == shard->replica && member->role == RAFT_VOTER)
            shard->joining = false;
    }
    if (shard->joining)
        return;
    shard->board_at_ns = 0;
    shard_note(shard, &(struct shard_note){.event = "joined",
                                           .first_name = "configuration_index",
                                           .first = configuration->index});
}

/* The configuration changed: learn its members, and whether this replica is one of the voters. */
void shard_configuration(struct shard *shard)
{
    const struct raft_configuration *configuration = shard->view.configuration;

    for (uint32_t i = 0; i < configuration->count; i++) {
        const struct raft_member *member = &configuration->members[i];

        if (member->replica_id != shard->replica)
            learn_peer(shard, member->replica_id, member->node);
    }
    look_whether_joined(shard);
    shard->board_at_ns = 0;
}

/* ---- messages -------------------------------------------------------------------------------- */

void shard_raft_message(struct shard *shard, uint16_t node, const struct raft_message *message,
                        uint64_t now_ns)
{
    struct shard_peer *peer;

    if (message->to != shard->replica)
        return; /* for an earlier replica of this node */
    learn_peer(shard, message->from, node);
    peer = shard_peer_of(shard, message->from);
    if (peer && (message->kind == RAFT_MSG_ACK || message->kind == RAFT_MSG_HEARTBEAT_REPLY) &&
        message->grant && message->grant == peer->sender.grant)
        ship_sender_acked(&peer->sender, message->position,
                          (message->flags & RAFT_MSG_RETRANSMIT) != 0, now_ns);
    shard_step(shard, &(struct raft_event){
                          .kind = RAFT_EV_MESSAGE, .now_ns = now_ns, .message = *message});
}

/* ---- log bytes out --------------------------------------------------------------------------- */

void shard_ship_extend(struct shard *shard, const struct raft_effect *effect)
{
    struct shard_peer *peer = shard_peer_of(shard, effect->ship.peer);

    if (!peer)
        return;
    if (effect->ship.one_sided) {
        shard_writes_extend(shard, peer, effect);
        return;
    }
    if (peer->sender.grant != effect->ship.grant)
        ship_sender_start(&peer->sender, effect->ship.grant, effect->ship.from);
    ship_sender_extend(&peer->sender, effect->ship.to, effect->ship.last_index,
                       effect->ship.last_term);
}

void shard_ship_detach(struct shard *shard, uint64_t replica)
{
    struct shard_peer *peer = shard_peer_of(shard, replica);

    if (!peer)
        return;
    ship_sender_stop(&peer->sender);
    shard_writes_stop(shard, peer);
}

static void ship_to(struct shard *shard, struct shard_peer *peer, uint64_t now_ns)
{
    uint64_t position;
    size_t length;

    while (ship_sender_next(&peer->sender, now_ns, SHARD_SHIP_BYTES_MAX, &position, &length)) {
        while (length) {
            size_t run = length;
            const uint8_t *bytes = log_read(&shard->log, position, &run);
            struct wire_ship ship = {
                .from_replica = shard->replica,
                .to_replica = peer->replica,
                .term = shard->view.term,
                .grant = peer->sender.grant,
                .position = position,
                .commit_index = shard->view.commit_index,
                .length = (uint32_t)run,
            };

            shard->host->send_ship(shard->host_context, shard->id, peer->node, &ship, bytes, run);
            position += run;
            length -= run;
        }
    }
}

void shard_ship_flush(struct shard *shard, uint64_t now_ns)
{
    if (shard->view.role != RAFT_LEADER)
        return;
    enum wire_stage before = shard_stage(shard, WIRE_STAGE_SHIP);
    for (int i = 0; i < RAFT_MEMBERS_MAX; i++) {
        if (shard->peers[i].replica)
            ship_to(shard, &shard->peers[i], now_ns);
    }
    if (shard->host->write)
        shard_writes_flush(shard, now_ns);
    (void)shard_stage(shard, before);
}

/* ---- log bytes in ---------------------------------------------------------------------------- */

void shard_ship(struct shard *shard, const struct wire_ship *ship)
{
    const uint8_t *bytes = (const uint8_t *)(ship + 1);

    if (ship->to_replica != shard->replica || ship->from_replica != shard->grant_leader ||
        ship->grant != shard->grant_number || ship->term != shard->view.term ||
        shard->ring_state != SHARD_RING_CLOSED)
        return; /* the writer was deposed, or this is from before the last attach */
    if (!log_write(&shard->log, ship->position, bytes, ship->length)) {
        if (ship->position > shard->log.received)
            shard->received_gap = shard->log.received;
        return;
    }
    shard->received = true;
    if (ship->commit_index > shard->received_commit)
        shard->received_commit = ship->commit_index;
}

static void ask_again(struct shard *shard)
{
    struct shard_peer *leader = shard_peer_of(shard, shard->grant_leader);
    struct raft_message message = {
        .kind = RAFT_MSG_ACK,
        .flags = RAFT_MSG_RETRANSMIT,
        .from = shard->replica,
        .to = shard->grant_leader,
        .term = shard->view.term,
        .grant = shard->grant_number,
        .position = shard->log.received,
        .limit = log_limit(&shard->log),
    };

    if (leader)
        shard->host->send_raft(shard->host_context, shard->id, leader->node, &message);
}

void shard_received(struct shard *shard, uint64_t now_ns)
{
    shard_ring_poll(shard, now_ns);
    if (shard->received) {
        shard->received = false;
        shard_step(shard, &(struct raft_event){.kind = RAFT_EV_RECEIVED,
                                               .now_ns = now_ns,
                                               .progress = {.grant = shard->grant_number,
                                                            .commit = shard->received_commit}});
        shard->received_commit = 0;
    }
    if (shard->received_gap != UINT64_MAX) {
        if (shard->received_gap == shard->log.received &&
            ship_receiver_ask(&shard->receiver, shard->log.received, now_ns, SHARD_ASK_AGAIN_NS))
            ask_again(shard);
        shard->received_gap = UINT64_MAX;
    }
}

/* ---- joining --------------------------------------------------------------------------------- */

static void change(struct shard *shard, enum raft_change_kind kind, struct raft_member member,
                   uint64_t now_ns)
{
    shard_step(shard, &(struct raft_event){.kind = RAFT_EV_CHANGE,
                                           .now_ns = now_ns,
                                           .change = {.kind = kind, .member = member}});
}

static const struct raft_member *member_of(const struct raft_configuration *configuration,
                                           uint64_t replica)
{
    for (uint32_t i = 0; i < configuration->count; i++) {
        if (configuration->members[i].replica_id == replica)
            return &configuration->members[i];
    }
    return NULL;
}

static const struct raft_member *other_of_node(const struct raft_configuration *configuration,
                                               uint16_t node, uint64_t replica)
{
    for (uint32_t i = 0; i < configuration->count; i++) {
        if (configuration->members[i].node == node &&
            configuration->members[i].replica_id != replica)
            return &configuration->members[i];
    }
    return NULL;
}

/* A late request, of an id that was replaced since, must not bring that back: whoever still speaks
 * for the node would have to be silent. */
static bool has_live_replica(const struct shard *shard, uint16_t node)
{
    for (uint32_t i = 0; i < shard->view.peers_count; i++) {
        const struct raft_peer_view *peer = &shard->view.peers[i];

        if (peer->member.node == node && peer->active)
            return true;
    }
    return false;
}

/* A node lost a replica (damaged, wiped, or memory durability) and has a new one under a new id.
 * One step per request, each a committed configuration: learner in, old one out, learner to voter.
 * The old one goes before the new one votes, so that no step needs a dead replica's
 * acknowledgement. */
void shard_join_request(struct shard *shard, uint16_t node, uint64_t new_replica, uint64_t now_ns)
{
    const struct raft_configuration *configuration = shard->view.configuration;
    const struct raft_member *newcomer = member_of(configuration, new_replica);
    const struct raft_member *old = other_of_node(configuration, node, new_replica);

    if (!shard_leads(shard) || node == shard->options->node || !new_replica)
        return;
    if (!newcomer && has_live_replica(shard, node))
        return;
    learn_peer(shard, new_replica, node);
    if (!newcomer) {
        struct raft_member member = {.replica_id = new_replica, .node = node};

        change(shard, RAFT_ADD_LEARNER, member, now_ns);
    } else if (newcomer->role == RAFT_LEARNER && old) {
        bool caught_up = false;

        for (uint32_t i = 0; i < shard->view.peers_count; i++) {
            const struct raft_peer_view *peer = &shard->view.peers[i];

            if (peer->member.replica_id == new_replica)
                caught_up = peer->match_index >= shard->view.commit_index;
        }
        if (caught_up)
            change(shard, RAFT_REMOVE, *old, now_ns);
    } else if (newcomer->role == RAFT_LEARNER) {
        change(shard, RAFT_PROMOTE, *newcomer, now_ns);
    }
}

enum { SHARD_JOIN_INTERVAL_NS = 100 * 1000 * 1000 };

static void ask_to_join(struct shard *shard, uint64_t now_ns)
{
    look_whether_joined(shard);
    if (!shard->joining || now_ns < shard->join_at_ns)
        return;
    shard->join_at_ns = now_ns + SHARD_JOIN_INTERVAL_NS;
    for (uint16_t node = 1; node <= shard->options->members_count; node++) {
        if (node != shard->options->node)
            shard->host->send_join(shard->host_context, shard->id, node, shard->replica);
    }
}

/* ---- where leadership belongs ---------------------------------------------------------------- */

enum { SHARD_SPREAD_TRIES_GAP = 50 /* election timeouts */ };

/* Shards are spread over the nodes: shard s prefers node s % nodes + 1. Looked at rarely, and only
 * while that node's replica is attached, caught up and heard from. */
static void hand_over(struct shard *shard, uint64_t now_ns)
{
    uint16_t preferred = (uint16_t)(shard->id % shard->options->members_count + 1);

    if (preferred == shard->options->node)
        return;
    for (uint32_t i = 0; i < shard->view.peers_count; i++) {
        const struct raft_peer_view *peer = &shard->view.peers[i];

        if (peer->member.node != preferred || peer->member.role != RAFT_VOTER || !peer->active ||
            peer->state != 2 || peer->match_index < shard->view.commit_index)
            continue;
        shard_step(shard, &(struct raft_event){.kind = RAFT_EV_TRANSFER,
                                               .now_ns = now_ns,
                                               .progress = {.peer = peer->member.replica_id}});
        return;
    }
}

static bool has_live_voter(const struct shard *shard, uint16_t node)
{
    if (node == shard->options->node)
        return true; /* the leader */
    for (uint32_t i = 0; i < shard->view.peers_count; i++) {
        const struct raft_peer_view *peer = &shard->view.peers[i];

        if (peer->member.node == node && peer->member.role == RAFT_VOTER && peer->active)
            return true;
    }
    return false;
}

/* A request to join that came late may have brought back, as a learner, a replica that was replaced
 * since: nobody else would ever take it out, and there are only so many places. */
static void drop_ghost(struct shard *shard, uint64_t now_ns)
{
    for (uint32_t i = 0; i < shard->view.peers_count; i++) {
        const struct raft_peer_view *peer = &shard->view.peers[i];

        if (peer->member.role == RAFT_LEARNER && !peer->active &&
            has_live_voter(shard, peer->member.node)) {
            change(shard, RAFT_REMOVE, peer->member, now_ns);
            return;
        }
    }
}

void shard_spread(struct shard *shard, uint64_t now_ns)
{
    ask_to_join(shard, now_ns);
    if (!shard->leader_since_ns || now_ns < shard->spread_at_ns)
        return;
    shard->spread_at_ns = now_ns + shard->options->election_timeout_ns * SHARD_SPREAD_TRIES_GAP;
    if (shard_leads(shard))
        drop_ghost(shard, now_ns);
    if (shard_leads(shard))
        hand_over(shard, now_ns);
}
