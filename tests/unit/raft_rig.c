/* SPDX-License-Identifier: Apache-2.0
 *
 * See raft_rig.h.
 */
#include "tests/unit/raft_rig.h"

#include <stdlib.h>
#include <string.h>

/* ---- small things ---------------------------------------------------------------------------- */

uint64_t rig_random(struct rig *rig, uint64_t below)
{
    rig->rng = rig->rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint64_t mixed = (rig->rng >> 29) ^ (rig->rng >> 7);
    return below == 0 ? 0 : mixed % below;
}

struct rig_node *rig_node(struct rig *rig, uint64_t id)
{
    for (uint32_t i = 0; i < rig->nodes_count; i++)
        if (rig->nodes[i].id == id)
            return &rig->nodes[i];
    return NULL;
}

static uint32_t rig_slot(struct rig *rig, uint64_t id)
{
    return (uint32_t)(rig_node(rig, id) - rig->nodes);
}

uint64_t rig_clock(const struct rig *rig, const struct rig_node *node)
{
    int64_t skew_ns = (int64_t)(rig->now_ns / 1000000) * node->clock_ppm;

    return (uint64_t)((int64_t)rig->now_ns + skew_ns) + node->id * 1000000;
}

struct raft_view rig_look(const struct rig_node *node)
{
    struct raft_view view;

    raft_look(node->raft, &view);
    return view;
}

struct raft_configuration rig_configuration(const uint64_t *voters, uint32_t count)
{
    struct raft_configuration configuration = {.count = count};

    for (uint32_t i = 0; i < count; i++)
        configuration.members[i] = (struct raft_member){
            .replica_id = voters[i], .node = (uint16_t)voters[i], .role = RAFT_VOTER};
    return configuration;
}

void rig_init(struct rig *rig, const struct rig_options *options)
{
    memset(rig, 0, sizeof(*rig));
    rig->options = *options;
    rig->rng = options->seed * 7919 + 1;
    rig->now_ns = 1000000000;
    rig->committed = calloc(RIG_INDEX_MAX, sizeof(uint64_t));
    assert(rig->committed != NULL);
}

/* ---- events -----------------------------------------------------------------------------------
 */

void rig_queue(struct rig_node *node, const struct raft_event *event)
{
    node->events = realloc(node->events, (node->events_count + 1) * sizeof(*event));
    assert(node->events != NULL);
    node->events[node->events_count++] = *event;
}

/* ---- packets --------------------------------------------------------------------------------- */

static struct rig_packet *rig_packet(struct rig *rig, enum rig_packet_kind kind, uint64_t from,
                                     uint64_t to)
{
    if (rig->packets_count == rig->packets_room) {
        rig->packets_room = rig->packets_room * 2 + 64;
        rig->packets = realloc(rig->packets, rig->packets_room * sizeof(*rig->packets));
        assert(rig->packets != NULL);
    }
    struct rig_packet *packet = &rig->packets[rig->packets_count++];
    *packet = (struct rig_packet){.id = ++rig->packet_next, .kind = kind, .from = from, .to = to};
    struct rig_node *sender = rig_node(rig, from);
    packet->from_life = sender == NULL ? 0 : sender->life;
    return packet;
}

static void rig_packet_queued(struct rig *rig)
{
    if (rig->on_packet != NULL)
        rig->on_packet(rig, &rig->packets[rig->packets_count - 1]);
}

void rig_drop(struct rig *rig, uint32_t packet)
{
    free(rig->packets[packet].bytes);
    memmove(&rig->packets[packet], &rig->packets[packet + 1],
            (--rig->packets_count - packet) * sizeof(rig->packets[0]));
}

void rig_duplicate(struct rig *rig, uint32_t packet)
{
    struct rig_packet copy = rig->packets[packet];
    struct rig_packet *again = rig_packet(rig, copy.kind, copy.from, copy.to);

    copy.id = again->id;
    copy.from_life = rig->packets[packet].from_life;
    if (copy.bytes != NULL) {
        uint8_t *bytes = malloc(copy.length + 1);
        memcpy(bytes, copy.bytes, copy.length);
        copy.bytes = bytes;
    }
    *again = copy;
    rig_packet_queued(rig);
}

static void rig_send_message(struct rig *rig, const struct raft_message *message)
{
    uint8_t bytes[RAFT_MESSAGE_BYTES];
    struct rig_packet *packet = rig_packet(rig, RIG_MESSAGE, message->from, message->to);

    raft_message_encode(message, bytes);
    bool decoded = raft_message_decode(&packet->message, bytes, sizeof(bytes));
    assert(decoded);
    rig_packet_queued(rig);
}

/* ---- shipping -------------------------------------------------------------------------------- */

static void rig_copy_out(const struct log *log, uint64_t position, uint8_t *bytes, size_t length)
{
    while (length > 0) {
        size_t run = length;
        const uint8_t *from = log_read(log, position, &run);
        memcpy(bytes, from, run);
        position += run;
        bytes += run;
        length -= run;
    }
}

void rig_pump(struct rig *rig, struct rig_node *node)
{
    for (uint32_t i = 0; i < rig->nodes_count; i++) {
        struct ship_sender *sender = &node->senders[i];
        uint64_t position;
        size_t length;
        while (ship_sender_next(sender, rig_clock(rig, node), RIG_DATAGRAM_BYTES, &position,
                                &length)) {
            struct raft_view view = rig_look(node);
            struct rig_packet *packet = rig_packet(rig, RIG_SHIP, node->id, rig->nodes[i].id);
            packet->term = view.term;
            packet->grant = sender->grant;
            packet->position = position;
            packet->commit = view.commit_index;
            packet->length = length;
            packet->bytes = malloc(length + 1);
            rig_copy_out(&node->log, position, packet->bytes, length);
            rig_packet_queued(rig);
        }
    }
}

static void rig_write(struct rig *rig, struct rig_node *node, const struct raft_effect *effect)
{
    struct rig_packet *packet = rig_packet(rig, RIG_WRITE, node->id, effect->ship.peer);

    packet->term = rig_look(node).term;
    packet->grant = effect->ship.grant;
    packet->position = effect->ship.from;
    packet->last_index = effect->ship.last_index;
    packet->last_term = effect->ship.last_term;
    packet->length = effect->ship.to - effect->ship.from;
    packet->bytes = malloc(packet->length + 1);
    rig_copy_out(&node->log, packet->position, packet->bytes, packet->length);
    rig_packet_queued(rig);
}

static void rig_ship(struct rig *rig, struct rig_node *node, const struct raft_effect *effect)
{
    struct ship_sender *sender = &node->senders[rig_slot(rig, effect->ship.peer)];

    if (rig->options.one_sided) {
        rig_write(rig, node, effect);
        return;
    }
    if (sender->grant != effect->ship.grant)
        ship_sender_start(sender, effect->ship.grant, effect->ship.from);
    assert(sender->end == effect->ship.from);
    ship_sender_extend(sender, effect->ship.to, effect->ship.last_index, effect->ship.last_term);
}

/* ---- the state machine ----------------------------------------------------------------------- */

static void rig_committed(struct rig *rig, struct rig_node *node, uint64_t first, uint64_t last)
{
    assert(first == node->committed + 1 || node->committed < first);
    for (uint64_t index = first; index <= last; index++) {
        const struct log_entry *entry = log_at(&node->log, index);
        assert(index < RIG_INDEX_MAX);
        if (entry == NULL)
            continue; /* below the base: another replica's snapshot vouches for it */
        if (rig->committed[index] == 0)
            rig->committed[index] = entry->checksum;
        assert(rig->committed[index] == entry->checksum); /* state machine safety */
    }
    node->committed = last;
    if (rig->committed_max < last)
        rig->committed_max = last;
}

void rig_apply(struct rig *rig, struct rig_node *node)
{
    (void)rig;
    if (node->applied >= node->committed)
        return;
    while (node->applied < node->committed) {
        const struct log_entry *entry = log_at(&node->log, ++node->applied);
        assert(entry != NULL); /* released only when applied */
        if (entry->kind != LOG_CONFIGURATION)
            continue;
        raft_configuration_decode(&node->applied_configuration, log_entry_payload(entry),
                                  entry->payload_bytes);
        node->applied_configuration.index = node->applied;
    }
    struct raft_event event = {.kind = RAFT_EV_APPLIED};
    event.progress.index = node->applied;
    rig_queue(node, &event);
    rig_run_events(rig, node);
}

static struct log_base rig_applied_base(const struct rig_node *node)
{
    const struct log_entry *entry = log_at(&node->log, node->applied);

    if (entry == NULL)
        return node->log.base;
    return (struct log_base){
        .index = entry->index,
        .term = entry->term,
        .position = log_end_of(&node->log, entry->index),
        .checksum = entry->checksum,
        .stamp_ns = entry->stamp_ns,
    };
}

void rig_save(struct rig *rig, struct rig_node *node)
{
    struct log_base base = rig_applied_base(node);

    if (base.index != node->applied || base.index == 0)
        return;
    struct rig_disk_op *op = rig_disk_op(node, RIG_DISK_SAVE);
    op->base = base;
    op->configuration = node->applied_configuration;
    rig_disk_queued(rig, node);
}

/* ---- effects --------------------------------------------------------------------------------- */

static void rig_report_access(struct rig_node *node, enum raft_event_kind kind, uint64_t number,
                              bool one_sided)
{
    struct raft_event event = {.kind = kind};

    event.progress.grant = number;
    event.progress.one_sided = one_sided;
    rig_queue(node, &event);
}

static void rig_zero_window(struct log *log)
{
    for (uint64_t at = log->end; at < log_limit(log); at++)
        log->ring[at % log->ring_bytes] = 0;
}

static void rig_grant(struct rig *rig, struct rig_node *node, const struct raft_effect *effect)
{
    assert(!node->access.open);
    assert(effect->grant.position == node->log.end);
    if (rig->options.one_sided)
        rig_zero_window(&node->log);
    node->access.open = true;
    node->access.leader = effect->grant.leader;
    node->access.number = effect->grant.number;
    node->access.term = effect->grant.term;
    node->granting = effect->grant.number;
    if (!rig->options.grant_by_hand)
        rig_granted(rig, node);
}

void rig_granted(struct rig *rig, struct rig_node *node)
{
    if (node->granting != 0)
        rig_report_access(node, RAFT_EV_GRANTED, node->granting, rig->options.one_sided);
    node->granting = 0;
}

static void rig_revoke(struct rig *rig, struct rig_node *node, const struct raft_effect *effect)
{
    assert(node->access.open && node->access.number == effect->grant.number);
    node->revoking = effect->grant.number;
    if (!rig->options.revoke_by_hand)
        rig_revoked(rig, node);
}

/* Until here the leader's writes still land. */
void rig_revoked(struct rig *rig, struct rig_node *node)
{
    (void)rig;
    if (node->revoking != 0) {
        node->access.open = false;
        rig_report_access(node, RAFT_EV_REVOKED, node->revoking, false);
    }
    node->revoking = 0;
}

static void rig_role(struct rig *rig, struct rig_node *node, const struct raft_effect *effect)
{
    uint64_t term = effect->role.term;

    node->role = effect->role.role;
    if (node->role != RAFT_LEADER)
        return;
    assert(term < 4096);
    assert(rig->leader_of_term[term] == 0 || rig->leader_of_term[term] == node->id);
    rig->leader_of_term[term] = node->id;
    /* Leader completeness (3.6.3). */
    for (uint64_t index = node->log.base.index + 1; index <= rig->committed_max; index++) {
        const struct log_entry *entry = log_at(&node->log, index);
        if (rig->committed[index] != 0)
            assert(entry != NULL && entry->checksum == rig->committed[index]);
    }
}

static void rig_fetch(struct rig *rig, struct rig_node *node, uint64_t peer)
{
    struct rig_node *source = rig_node(rig, peer);
    struct rig_packet *packet = rig_packet(rig, RIG_SNAPSHOT, peer, node->id);

    node->fetches++;
    if (source != NULL && source->alive) {
        packet->base = rig_applied_base(source);
        packet->configuration = source->applied_configuration;
    }
    rig_packet_queued(rig);
}

static void rig_perform(struct rig *rig, struct rig_node *node, const struct raft_effect *effect)
{
    struct rig_disk_op *op;

    switch (effect->kind) {
    case RAFT_FX_SEND:
        assert(effect->message.from == node->id);
        rig_send_message(rig, &effect->message);
        break;
    case RAFT_FX_PERSIST_HARD:
        rig_disk_op(node, RIG_DISK_HARD)->hard = effect->hard;
        rig_disk_queued(rig, node);
        break;
    case RAFT_FX_PERSIST_ENTRIES:
        rig_persist_entries(rig, node, effect->range.first, effect->range.last);
        break;
    case RAFT_FX_PERSIST_CUT:
        op = rig_disk_op(node, RIG_DISK_CUT);
        op->first = op->last = effect->range.first;
        rig_disk_queued(rig, node);
        break;
    case RAFT_FX_SHIP:
        rig_ship(rig, node, effect);
        break;
    case RAFT_FX_DETACH:
        ship_sender_stop(&node->senders[rig_slot(rig, effect->ship.peer)]);
        break;
    case RAFT_FX_GRANT:
        rig_grant(rig, node, effect);
        break;
    case RAFT_FX_REVOKE:
        rig_revoke(rig, node, effect);
        break;
    case RAFT_FX_COMMITTED:
        rig_committed(rig, node, effect->range.first, effect->range.last);
        break;
    case RAFT_FX_ROLE:
        rig_role(rig, node, effect);
        break;
    case RAFT_FX_FETCH_SNAPSHOT:
        rig_fetch(rig, node, effect->snapshot.peer);
        break;
    case RAFT_FX_READ_READY:
        node->ready_context = effect->read.context;
        node->ready_index = effect->read.index;
        node->ready_count++;
        break;
    case RAFT_FX_READ_FAILED:
        node->failed_count++;
        break;
    case RAFT_FX_CHANGE_REFUSED:
        node->refused = effect->refused.why;
        break;
    case RAFT_FX_CONFIGURATION:
    case RAFT_FX_NEED_SNAPSHOT:
    case RAFT_FX_ENTRIES_LOST:
        break;
    }
}

void rig_run_events(struct rig *rig, struct rig_node *node)
{
    struct raft_effects *effects = malloc(sizeof(*effects));

    assert(effects != NULL);
    while (node->events_count > 0 && node->alive) {
        struct raft_event event = node->events[0];
        memmove(node->events, node->events + 1, --node->events_count * sizeof(event));
        event.now_ns = rig_clock(rig, node);
        raft_step(node->raft, &event, effects);
        for (uint32_t i = 0; i < effects->count; i++) {
            rig_perform(rig, node, &effects->items[i]);
            if (rig->on_effect != NULL)
                rig->on_effect(rig, node, &effects->items[i]);
        }
        if (!rig->options.apply_by_hand)
            rig_apply(rig, node);
        if (!rig->options.one_sided)
            rig_pump(rig, node);
    }
    free(effects);
}

void rig_event(struct rig *rig, struct rig_node *node, const struct raft_event *event)
{
    rig_queue(node, event);
    rig_run_events(rig, node);
}

void rig_tick(struct rig *rig, struct rig_node *node)
{
    rig_event(rig, node, &(struct raft_event){.kind = RAFT_EV_TICK});
    if (!rig->options.one_sided)
        rig_pump(rig, node);
}

bool rig_propose(struct rig *rig, struct rig_node *node, size_t payload_bytes)
{
    uint8_t *payload = raft_reserve(node->raft, payload_bytes);
    struct raft_event event = {.kind = RAFT_EV_PROPOSE};

    if (payload == NULL)
        return false;
    for (size_t i = 0; i < payload_bytes; i++)
        payload[i] = (uint8_t)rig_random(rig, 256);
    event.propose.kind = LOG_COMMANDS;
    event.propose.payload_bytes = payload_bytes;
    rig_event(rig, node, &event);
    return true;
}

void rig_read(struct rig *rig, struct rig_node *node, uint64_t context)
{
    struct raft_event event = {.kind = RAFT_EV_READ};

    event.read.context = context;
    rig_event(rig, node, &event);
}

void rig_change(struct rig *rig, struct rig_node *node, enum raft_change_kind kind, uint64_t id)
{
    struct raft_event event = {.kind = RAFT_EV_CHANGE};

    event.change.kind = kind;
    event.change.member.replica_id = id;
    event.change.member.node = (uint16_t)id;
    rig_event(rig, node, &event);
}

void rig_transfer(struct rig *rig, struct rig_node *node, uint64_t target)
{
    struct raft_event event = {.kind = RAFT_EV_TRANSFER};

    event.progress.peer = target;
    rig_event(rig, node, &event);
}

/* ---- delivery -------------------------------------------------------------------------------- */

static void rig_acked(struct rig *rig, struct rig_node *node, const struct raft_message *message)
{
    struct ship_sender *sender = &node->senders[rig_slot(rig, message->from)];

    if (message->kind != RAFT_MSG_ACK && message->kind != RAFT_MSG_HEARTBEAT_REPLY)
        return;
    if (sender->grant == 0 || sender->grant != message->grant ||
        message->term != rig_look(node).term)
        return;
    ship_sender_acked(sender, message->position, (message->flags & RAFT_MSG_RETRANSMIT) != 0,
                      rig_clock(rig, node));
}

static bool rig_may_write(const struct rig_node *node, const struct rig_packet *packet)
{
    return node->access.open && node->access.leader == packet->from &&
           node->access.number == packet->grant && node->access.term == packet->term;
}

static void rig_receive_ship(struct rig *rig, struct rig_node *node, struct rig_packet *packet)
{
    if (!rig_may_write(node, packet))
        return;
    if (log_write(&node->log, packet->position, packet->bytes, packet->length)) {
        struct raft_event event = {.kind = RAFT_EV_RECEIVED};
        event.progress.grant = packet->grant;
        event.progress.commit = packet->commit;
        rig_queue(node, &event);
    } else if (ship_receiver_ask(&node->receiver, node->log.received, rig_clock(rig, node),
                                 1000000)) {
        struct raft_message ask = {
            .kind = RAFT_MSG_ACK,
            .flags = RAFT_MSG_RETRANSMIT,
            .from = node->id,
            .to = packet->from,
            .term = packet->term,
            .grant = packet->grant,
            .position = node->log.received,
            .limit = log_limit(&node->log),
        };
        rig_send_message(rig, &ask);
    }
}

/* A write lands, or is refused, and its writer hears of it; the reader looks when it likes. */
static void rig_land(struct rig *rig, struct rig_node *node, const struct rig_packet *write)
{
    struct rig_node *writer = rig_node(rig, write->from);
    uint64_t *broken = &writer->broken[rig_slot(rig, write->to)];
    bool landed = node != NULL && node->alive && rig_may_write(node, write) && !write->refused &&
                  *broken != write->grant;

    if (!landed)
        *broken = write->grant;
    if (landed) {
        assert(write->position + write->length <= log_limit(&node->log));
        for (size_t i = 0; i < write->length; i++)
            node->log.ring[(write->position + i) % node->log.ring_bytes] = write->bytes[i];
        struct rig_packet *poll = rig_packet(rig, RIG_POLL, node->id, node->id);
        poll->grant = write->grant;
        rig_packet_queued(rig);
    }
    struct rig_packet *done =
        rig_packet(rig, landed ? RIG_SHIPPED : RIG_FAILED, write->to, write->from);
    done->from_life = write->from_life; /* the writer's: completions die with it */
    done->grant = write->grant;
    done->last_index = write->last_index;
    done->last_term = write->last_term;
    rig_packet_queued(rig);
}

static void rig_completed(struct rig_node *node, const struct rig_packet *packet)
{
    struct raft_event event = {.kind = packet->kind == RIG_SHIPPED ? RAFT_EV_SHIPPED
                                                                   : RAFT_EV_SHIP_FAILED};

    if (node->life != packet->from_life)
        return;
    event.progress.peer = packet->from;
    event.progress.index = packet->last_index;
    event.progress.term = packet->last_term;
    event.progress.grant = packet->grant;
    rig_queue(node, &event);
}

static void rig_install(struct rig *rig, struct rig_node *node, const struct rig_packet *packet)
{
    struct rig_disk_op install = {.kind = RIG_DISK_INSTALL};

    if (packet->base.index <= node->applied || node->access.open) {
        struct raft_event event = {.kind = RAFT_EV_SNAPSHOT_INSTALLED};
        rig_queue(node, &event);
        return;
    }
    install.base = packet->base;
    install.configuration = packet->configuration;
    if (rig->options.durability == RAFT_MEMORY) {
        rig_disk_report(node, &install);
        return;
    }
    *rig_disk_op(node, RIG_DISK_INSTALL) = install;
    rig_disk_queued(rig, node);
}

void rig_deliver(struct rig *rig, uint32_t at)
{
    struct rig_packet packet = rig->packets[at];
    struct rig_node *node = rig_node(rig, packet.to);

    rig->packets[at].bytes = NULL;
    rig_drop(rig, at);
    if (packet.kind == RIG_WRITE) {
        rig_land(rig, node, &packet);
    } else if (node != NULL && node->alive) {
        struct raft_event event = {.kind = RAFT_EV_MESSAGE, .message = packet.message};
        switch (packet.kind) {
        case RIG_MESSAGE:
            if (rig_node(rig, packet.from) != NULL)
                rig_acked(rig, node, &packet.message);
            rig_queue(node, &event);
            break;
        case RIG_SHIP:
            rig_receive_ship(rig, node, &packet);
            break;
        case RIG_SHIPPED:
        case RIG_FAILED:
            rig_completed(node, &packet);
            break;
        case RIG_POLL:
            if (node->life != packet.from_life)
                break;
            event = (struct raft_event){.kind = RAFT_EV_RECEIVED};
            event.progress.grant = packet.grant;
            rig_queue(node, &event);
            break;
        case RIG_SNAPSHOT:
            rig_install(rig, node, &packet);
            break;
        case RIG_WRITE:
            break;
        }
        rig_run_events(rig, node);
    }
    free(packet.bytes);
}

/* ---- simple schedules ------------------------------------------------------------------------ */

/* When the node has to be ticked, in the rig's time. */
static uint64_t timer_ns(const struct rig *rig, const struct rig_node *node)
{
    uint64_t deadline_ns = raft_next_deadline(node->raft);
    uint64_t clock_ns = rig_clock(rig, node);

    for (uint32_t i = 0; i < rig->nodes_count; i++)
        if (ship_sender_deadline(&node->senders[i]) < deadline_ns)
            deadline_ns = ship_sender_deadline(&node->senders[i]);
    return rig->now_ns + (deadline_ns > clock_ns ? deadline_ns - clock_ns : 0);
}

struct rig_due rig_due(struct rig *rig)
{
    struct rig_due due = {.kind = RIG_DUE_NOTHING, .at_ns = UINT64_MAX};

    for (uint32_t i = 0; i < rig->packets_count; i++)
        if (rig->packets[i].due_ns < due.at_ns)
            due = (struct rig_due){RIG_DUE_PACKET, rig->packets[i].due_ns, i, NULL};
    for (uint32_t i = 0; i < rig->nodes_count; i++) {
        struct rig_node *node = &rig->nodes[i];
        if (!node->alive)
            continue;
        if (node->disk.ops_count > 0 && node->disk.ops[0].due_ns < due.at_ns)
            due = (struct rig_due){RIG_DUE_DISK, node->disk.ops[0].due_ns, 0, node};
        uint64_t at_ns = timer_ns(rig, node);
        if (at_ns < due.at_ns)
            due = (struct rig_due){RIG_DUE_TIMER, at_ns, 0, node};
    }
    return due;
}

void rig_settle(struct rig *rig)
{
    for (uint32_t turns = 0; turns < 100000; turns++) {
        bool busy = false;
        for (uint32_t i = 0; i < rig->nodes_count; i++)
            if (rig->nodes[i].alive && !rig->nodes[i].disk_held)
                busy |= rig_disk_step(rig, &rig->nodes[i]);
        if (rig->packets_count > 0) {
            rig_deliver(rig, 0);
            busy = true;
        }
        if (!busy)
            return;
    }
    assert(false && "the cluster never settles");
}

void rig_run_until(struct rig *rig, uint64_t until_ns)
{
    while (rig->now_ns < until_ns) {
        rig->now_ns += rig->options.heartbeat_ns / 4;
        for (uint32_t i = 0; i < rig->nodes_count; i++) {
            struct rig_node *node = &rig->nodes[i];
            if (node->alive && raft_next_deadline(node->raft) <= rig_clock(rig, node))
                rig_tick(rig, node);
            if (node->alive && !rig->options.one_sided)
                rig_pump(rig, node);
        }
        rig_settle(rig);
    }
}

void rig_elect(struct rig *rig, struct rig_node *node)
{
    for (uint32_t tries = 0; tries < 10 && rig_look(node).role != RAFT_LEADER; tries++) {
        rig->now_ns += 2 * rig->options.election_timeout_ns;
        rig_tick(rig, node);
        rig_settle(rig);
    }
    assert(rig_look(node).role == RAFT_LEADER);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static void rig_check_pair(const struct rig_node *a, const struct rig_node *b)
{
    uint64_t first = a->log.base.index > b->log.base.index ? a->log.base.index : b->log.base.index;
    uint64_t last = a->log.last_index < b->log.last_index ? a->log.last_index : b->log.last_index;
    bool equal = false;

    /* Log matching (3.5): from the highest entry of equal term down, all are equal, in the same
     * place. */
    for (uint64_t index = last; index > first; index--) {
        const struct log_entry *one = log_at(&a->log, index), *two = log_at(&b->log, index);
        equal |= one->term == two->term;
        if (!equal)
            continue;
        assert(one->checksum == two->checksum);
        assert(log_end_of(&a->log, index) == log_end_of(&b->log, index));
    }
}

void rig_check(struct rig *rig)
{
    for (uint32_t i = 0; i < rig->nodes_count; i++)
        for (uint32_t j = 0; j < i; j++)
            if (rig->nodes[i].alive && rig->nodes[j].alive)
                rig_check_pair(&rig->nodes[i], &rig->nodes[j]);
}
