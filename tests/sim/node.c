/* SPDX-License-Identifier: Apache-2.0
 *
 * A node: one process with one worker, its turns, its datagrams, its death. The real worker's order
 * of things (dataplane/worker.c), with places in between at which it may die.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

static const uint8_t cluster_key[WIRE_MAC_KEY_BYTES] = "all the nodes'k";

enum { OUT_SLOTS = SIM_NODES_MAX + 2 * SIM_CORES_MAX, RING_BYTES = 1 << 18, ENTRIES_MAX = 1024 };

uint64_t sim_node_draw(struct sim_node *node)
{
    uint64_t drawn;

    do
        drawn = sim_draw(node->sim);
    while (!drawn);
    return drawn;
}

/* ---- datagrams out --------------------------------------------------------------------------- */

static void send_slot(struct sim_node *node, int slot)
{
    struct wire_builder *out = &node->out[slot];
    bool peer = node->out_to[slot].ip[14] == 0;
    struct wire_address from = sim_node_address(node->id, peer);
    size_t bytes = wire_builder_finish(out);

    if (peer)
        wire_tag_seal(out->buffer, bytes, cluster_key);
    sim_net_send(node->sim, &from, &node->out_to[slot], out->buffer, bytes);
    out->items = 0;
}

static void *add_item(struct sim_node *node, const struct wire_address *to, uint8_t op,
                      size_t bytes)
{
    bool peer = to->ip[14] == 0;
    int slot = -1;
    void *item;

    for (int i = 0; i < OUT_SLOTS; i++) {
        if (node->out[i].items && memcmp(&node->out_to[i], to, sizeof *to) == 0)
            slot = i;
    }
    if (slot >= 0) {
        item = wire_builder_add(&node->out[slot], op, bytes);
        if (item)
            return item;
        send_slot(node, slot);
    }
    for (int i = 0; slot < 0 && i < OUT_SLOTS; i++) {
        if (!node->out[i].items)
            slot = i;
    }
    if (slot < 0) { /* clients that came and went within one turn */
        send_slot(node, 0);
        slot = 0;
    }
    node->out_to[slot] = *to;
    memset(node->out_bytes[slot], 0, sizeof node->out_bytes[slot]);
    wire_builder_start(&node->out[slot], (uint8_t *)node->out_bytes[slot],
                       sizeof node->out_bytes[slot], peer ? WIRE_KIND_PEER : WIRE_KIND_REPLY,
                       SIM_CLUSTER_ID, node->id);
    item = wire_builder_add(&node->out[slot], op, bytes);
    assert(item);
    return item;
}

static void flush_out(struct sim_node *node)
{
    for (int i = 0; i < OUT_SLOTS; i++) {
        if (node->out[i].items)
            send_slot(node, i);
    }
}

/* ---- what shards ask for --------------------------------------------------------------------- */

static void *peer_item(void *context, uint16_t shard, uint16_t to, uint8_t op, size_t bytes)
{
    struct wire_address address = sim_node_address(to, true);
    struct wire_item *item = add_item(context, &address, op, bytes);

    item->shard = shard;
    return item;
}

static void host_send_raft(void *context, uint16_t shard, uint16_t to,
                           const struct raft_message *message)
{
    struct wire_item *item = peer_item(context, shard, to, WIRE_PEER_RAFT,
                                       sizeof(struct wire_item) + RAFT_MESSAGE_BYTES);

    check_raft_sent(((struct sim_node *)context)->sim, shard, message);
    if (message->kind == RAFT_MSG_VOTE_REPLY && (message->flags & RAFT_MSG_GRANTED))
        sim_voted(context);
    raft_message_encode(message, (uint8_t *)(item + 1));
}

static void host_send_ship(void *context, uint16_t shard, uint16_t to, const struct wire_ship *ship,
                           const uint8_t *bytes, size_t length)
{
    struct sim_node *node = context;
    struct wire_item head;
    struct wire_ship *item;

    length = sim_figure8_ship(node->sim, node, shard, ship->position, length);
    if (!length)
        return;
    item = peer_item(context, shard, to, WIRE_PEER_SHIP, sizeof *ship + wire_pad8(length));
    head = item->item;
    *item = *ship;
    item->item = head;
    item->length = (uint32_t)length;
    memcpy(item + 1, bytes, length);
}

static void host_send_join(void *context, uint16_t shard, uint16_t to, uint64_t replica)
{
    struct sim_node *node = context;
    struct wire_join *join = peer_item(context, shard, to, WIRE_PEER_JOIN, sizeof *join);

    join->node = node->id;
    join->new_replica = replica;
}

static void trace_reply(struct sim_node *node, const struct wire_address *to,
                        const struct wire_item *item)
{
    const struct wire_reply *reply = (const struct wire_reply *)item;

    if (node->sim->trace && item->op != WIRE_OP_KEEPALIVE && item->bytes >= sizeof *reply)
        sim_trace(node->sim, "n%u s%u tells c%u: op %u number %llu session %04llx: %s", node->id,
                  item->shard, to->ip[15], item->op, (unsigned long long)reply->number,
                  (unsigned long long)reply->session & 0xffff, wire_status_name(item->status));
}

static void host_reply(void *context, const struct wire_address *to, const struct wire_item *item)
{
    struct sim_node *node = context;

    trace_reply(node, to, item);
    check_state_reply(node->sim, node, item->shard, item);
    memcpy(add_item(node, to, item->op, item->bytes), item, item->bytes);
}

static struct snapshot_mail *host_mail_claim(void *context)
{
    return sim_mail_claim(context);
}

static void host_mail_publish(void *context)
{
    sim_mail_publish(context);
}

static uint64_t host_draw(void *context)
{
    return sim_node_draw(context);
}

static void host_note(void *context, uint16_t shard, const struct shard_note *note)
{
    struct sim_node *node = context;

    if (note->second_name)
        sim_trace(node->sim, "n%u s%u %s %s=%llu %s=%llu", node->id, shard, note->event,
                  note->first_name, (unsigned long long)note->first, note->second_name,
                  (unsigned long long)note->second);
    else
        sim_trace(node->sim, "n%u s%u %s %s=%llu", node->id, shard, note->event,
                  note->first_name ? note->first_name : "", (unsigned long long)note->first);
}

/* ---- clients' datagrams ---------------------------------------------------------------------- */

static void answer_map(struct sim_node *node, const struct wire_address *to,
                       const struct wire_page_request *request)
{
    uint16_t shards = node->sim->shards;
    uint16_t rows = request->from < shards ? (uint16_t)(shards - request->from) : 0;
    struct wire_map *map =
        add_item(node, to, WIRE_OP_MAP, sizeof *map + rows * sizeof(struct wire_mapped));
    struct wire_mapped *mapped = (struct wire_mapped *)(map + 1);

    map->number = request->number;
    map->cluster_id = SIM_CLUSTER_ID;
    map->shards = shards;
    map->from = request->from;
    map->count = rows;
    map->node = node->id;
    map->nodes = node->sim->nodes_count;
    for (uint16_t i = 0; i < rows; i++) {
        const struct board_shard *row = &node->board->shards[request->from + i];

        mapped[i].shard = (uint16_t)(request->from + i);
        mapped[i].leader_node = BOARD_GET(row->leader_node);
        mapped[i].term = BOARD_GET(row->term);
        mapped[i].configuration_index = BOARD_GET(row->configuration_index);
        if (mapped[i].leader_node)
            mapped[i].leader = sim_node_address(mapped[i].leader_node, false);
    }
}

static void answer_status(struct sim_node *node, const struct wire_address *to,
                          const struct wire_page_request *request)
{
    struct wire_node_status *status = add_item(node, to, WIRE_OP_STATUS, sizeof *status);

    status->number = request->number;
    status->cluster_id = SIM_CLUSTER_ID;
    status->shards = node->sim->shards;
    status->from = request->from;
    status->node = node->id;
    status->nodes = node->sim->nodes_count;
    status->workers = 1;
    status->state = 1;
    for (uint16_t peer = 1; peer <= node->sim->nodes_count; peer++)
        status->peers[peer - 1] = sim_node_address(peer, false);
}

static void trace_item(struct sim_node *node, const struct wire_address *from,
                       const struct wire_item *item)
{
    static const char *const ops[] = {"?",       "open",  "keepalive", "close",   "acquire",
                                      "release", "renew", "cancel",    "convert", "force"};
    const struct wire_request *request = (const struct wire_request *)item;

    if (item->op <= WIRE_OP_LOGGED_LAST && item->op != WIRE_OP_KEEPALIVE)
        sim_trace(node->sim, "n%u s%u hears c%u: %s number %llu%s%llu session %04llx flags %u",
                  node->id, item->shard, from->ip[15], ops[item->op],
                  (unsigned long long)request->number,
                  item->op == WIRE_OP_CANCEL ? " target " : " acked below ",
                  (unsigned long long)(item->op == WIRE_OP_CANCEL
                                           ? ((const struct wire_cancel *)item)->target
                                           : request->acked_below),
                  (unsigned long long)request->session & 0xffff, item->flags);
}

static void client_item(struct sim_node *node, const struct wire_address *from,
                        const struct wire_item *item, uint64_t now_ns)
{
    struct wire_verdict verdict = wire_judge_request(item, false);

    if (verdict.status != WIRE_OK) {
        sim_fail(node->sim, "protocol", "n%u: a client sent a malformed item, op %u", node->id,
                 item->op);
    } else if (item->op == WIRE_OP_MAP) {
        answer_map(node, from, (const struct wire_page_request *)item);
    } else if (item->op == WIRE_OP_STATUS) {
        answer_status(node, from, (const struct wire_page_request *)item);
    } else if (item->shard < node->sim->shards) {
        trace_item(node, from, item);
        shard_request(&node->shards[item->shard], from, item, now_ns);
    }
}

static uint64_t period_of(uint64_t now_ns)
{
    return now_ns / (60 * SIM_SECOND) + 1;
}

static bool cookie_is_right(const struct sim_node *node, const struct wire_address *from,
                            uint64_t cookie, uint64_t now_ns)
{
    uint64_t period = period_of(now_ns);

    return cookie && (cookie == wire_cookie(from, period, node->board->cookie_secret) ||
                      cookie == wire_cookie(from, period - 1, node->board->cookie_secret));
}

static void client_datagram(struct sim_node *node, const struct sim_packet *packet, uint64_t now_ns)
{
    const struct wire_header *header;
    const struct wire_item *item;

    if (wire_decode_datagram((const uint8_t *)packet->bytes, packet->length, WIRE_KIND_REQUEST,
                             &header, &item) != WIRE_ACCEPTED) {
        sim_fail(node->sim, "protocol", "n%u: a client sent a malformed datagram", node->id);
        return;
    }
    if (!cookie_is_right(node, &packet->from, header->cookie, now_ns)) {
        struct wire_node_notice *notice =
            add_item(node, &packet->from, WIRE_OP_NODE, sizeof *notice);

        notice->item.status = WIRE_CHALLENGE;
        notice->cookie = wire_cookie(&packet->from, period_of(now_ns), node->board->cookie_secret);
        return;
    }
    for (uint16_t i = 0; i < header->item_count; i++, item = wire_item_next(item))
        client_item(node, &packet->from, item, now_ns);
}

/* ---- peers' datagrams ------------------------------------------------------------------------ */

static void peer_item_in(struct sim_node *node, uint16_t from, const struct wire_item *item,
                         uint64_t now_ns)
{
    struct shard *shard = &node->shards[item->shard];
    struct raft_message message;

    switch (item->op) {
    case WIRE_PEER_RAFT:
        if (raft_message_decode(&message, (const uint8_t *)(item + 1), item->bytes - sizeof *item))
            shard_raft_message(shard, from, &message, now_ns);
        break;
    case WIRE_PEER_SHIP:
        shard_ship(shard, (const struct wire_ship *)item);
        break;
    case WIRE_PEER_JOIN:
        shard_join_request(shard, from, ((const struct wire_join *)item)->new_replica, now_ns);
        break;
    default:
        break;
    }
}

static void peer_datagram(struct sim_node *node, const struct sim_packet *packet, uint64_t now_ns)
{
    const struct wire_header *header;
    const struct wire_item *item;

    if (wire_decode_datagram((const uint8_t *)packet->bytes, packet->length, WIRE_KIND_PEER,
                             &header, &item) != WIRE_ACCEPTED ||
        !wire_tag_check((const uint8_t *)packet->bytes, packet->length, cluster_key)) {
        sim_fail(node->sim, "protocol", "n%u: a peer sent a malformed datagram", node->id);
        return;
    }
    for (uint16_t i = 0; i < header->item_count; i++, item = wire_item_next(item)) {
        if (!wire_judge_peer(item) || item->shard >= node->sim->shards)
            sim_fail(node->sim, "protocol", "n%u: a peer sent a malformed item, op %u", node->id,
                     item->op);
        else
            peer_item_in(node, header->sender_node, item, now_ns);
    }
}

void sim_node_packet(struct sim_node *node, struct sim_packet *packet)
{
    if (!node->up || node->inbox_count == SIM_INBOX_MAX) {
        free(packet);
        return;
    }
    node->inbox[node->inbox_count++] = packet;
    if (!node->paused)
        sim_node_wake(node, node->sim->now_ns + 5 * SIM_US + sim_below(node->sim, 10 * SIM_US));
}

/* ---- one turn -------------------------------------------------------------------------------- */

void sim_node_wake(struct sim_node *node, uint64_t at_ns)
{
    if (at_ns >= node->turn_at_ns)
        return;
    node->turn_at_ns = at_ns;
    node->turn_order =
        sim_post(node->sim, at_ns, SIM_EV_NODE_TURN, node->id - 1u, node->epoch, 0, NULL);
}

/* False: the write failed and the process ends. */
static bool take_write(struct sim_node *node, uint16_t w, uint64_t now_ns)
{
    struct sim_device *device = &node->disk.devices[w];
    struct wal_writer *wal = node->wals[w];

    if (!wal || !device->in_flight || !device->in_flight_done)
        return true;
    device->in_flight = device->in_flight_done = false;
    if (node->disk.fail_next) {
        node->disk.fail_next = false;
        wal_written(wal, device->sequence, -EIO);
        sim_node_crash(node, "a write failed");
        return false;
    }
    wal_written(wal, device->sequence, 0);
    for (uint16_t s = w; s < node->sim->shards; s = (uint16_t)(s + node->workers))
        shard_durable(&node->shards[s], wal_durable_sequence(wal), now_ns);
    return true;
}

static void take_datagrams(struct sim_node *node, uint64_t now_ns, bool peers)
{
    for (uint32_t i = 0; i < node->inbox_count; i++) {
        const struct sim_packet *packet = node->inbox[i];

        if ((packet->from.ip[14] == 0) != peers)
            continue;
        if (peers)
            peer_datagram(node, packet, now_ns);
        else
            client_datagram(node, packet, now_ns);
    }
}

static void drop_inbox(struct sim_node *node)
{
    for (uint32_t i = 0; i < node->inbox_count; i++)
        free(node->inbox[i]);
    node->inbox_count = 0;
}

static bool dies_here(struct sim_node *node, enum sim_crash_point point, const char *where)
{
    if (node->crash_point != point)
        return false;
    sim_node_crash(node, where);
    return true;
}

static bool has_write(const struct sim_node *node)
{
    bool writes = false;

    for (uint16_t w = 0; w < node->workers; w++)
        writes |=
            !node->wals[w] || (wal_pending(node->wals[w]) && !node->disk.devices[w].in_flight);
    return writes;
}

static void submit_writes(struct sim_node *node)
{
    struct wal_write write;

    for (uint16_t w = 0; w < node->workers; w++) {
        if (node->wals[w] && !node->disk.devices[w].in_flight &&
            wal_next_write(node->wals[w], &write))
            sim_disk_submit(node, w, &write);
    }
}

/* The worst that fits: the process dies between two of a turn's steps. */
static bool finish_turn(struct sim_node *node)
{
    bool writes = has_write(node);

    if (writes && dies_here(node, SIM_CRASH_BEFORE_WRITE, "before a write"))
        return false;
    submit_writes(node);
    if (writes && dies_here(node, SIM_CRASH_BEFORE_SEND, "with a write in flight, nothing sent"))
        return false;
    for (uint16_t w = 0; w < node->workers; w++) {
        if (node->wals[w])
            shards_relieve(node->shards, node->sim->shards, node->wals[w]);
    }
    flush_out(node);
    if (dies_here(node, SIM_CRASH_AFTER_VOTE, "right after a vote"))
        return false;
    return !(writes && dies_here(node, SIM_CRASH_AFTER_SEND, "with a write in flight, all sent"));
}

void sim_node_turn(struct sim_node *node)
{
    struct sim *sim = node->sim;
    uint64_t now_ns = sim_clock_read(sim, &node->clock);
    uint64_t deadline_ns = UINT64_MAX;
    bool more = false;

    for (uint16_t w = 0; w < node->workers; w++) {
        if (!take_write(node, w, now_ns))
            return;
    }
    sim_rdma_turn(node, now_ns);
    take_datagrams(node, now_ns, true);
    for (uint16_t s = 0; s < sim->shards; s++)
        shard_received(&node->shards[s], now_ns);
    take_datagrams(node, now_ns, false);
    drop_inbox(node);
    for (uint16_t s = 0; s < sim->shards; s++)
        more |= shard_turn(&node->shards[s], now_ns);
    check_raft_turn(sim, node);
    check_state_turn(sim, node);
    if (!finish_turn(node))
        return;
    sim_figure8_turn(sim, node);
    if (!node->up)
        return;
    if (more) {
        sim_node_wake(node, sim->now_ns + 10 * SIM_US);
        return;
    }
    for (uint16_t s = 0; s < sim->shards; s++) {
        uint64_t shard_ns = shard_deadline(&node->shards[s], now_ns);

        if (shard_ns < deadline_ns)
            deadline_ns = shard_ns;
    }
    deadline_ns = sim_clock_true(sim, &node->clock, deadline_ns);
    if (deadline_ns != UINT64_MAX)
        sim_node_wake(node, deadline_ns + 20 * SIM_US);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void free_process(struct sim_node *node)
{
    drop_inbox(node);
    for (int s = 0; s < SIM_SHARDS_MAX; s++) {
        free(node->memory[s]);
        node->memory[s] = NULL;
    }
    for (int w = 0; w < SIM_WORKERS_MAX; w++) {
        free(node->wal_memory[w]);
        node->wal_memory[w] = NULL;
        node->wals[w] = NULL;
    }
    sim_snapshots_free(node);
    for (int i = 0; i < OUT_SLOTS; i++)
        node->out[i].items = 0;
}

void sim_node_crash(struct sim_node *node, const char *why)
{
    if (!node->up)
        return;
    sim_trace(node->sim, "n%u    dies: %s", node->id, why);
    node->sim->crashes++;
    sim_rdma_crash(node);
    sim_disk_crash(node);
    if (node->sim->weather.memory) {
        sim_disk_wipe(&node->disk);
        node->rebuilding = true;
    }
    node->up = node->paused = node->stepped_down = false;
    node->crash_point = SIM_CRASH_NOT;
    node->epoch++;
    node->turn_at_ns = UINT64_MAX;
    free_process(node);
}

void sim_node_memory(struct sim_node *node)
{
    struct node_options *options = &node->options;

    node->workers = 1;
    if (node->sim->weather.workers) /* whatever it was before */
        node->workers = (uint16_t)(1 + sim_below(node->sim, SIM_WORKERS_MAX));
    options->workers = node->workers;
    for (uint16_t s = 0; s < node->sim->shards; s++) {
        size_t bytes = (shard_memory_bytes(options) + 4095) & ~(size_t)4095;

        node->memory[s] = aligned_alloc(4096, bytes);
        assert(node->memory[s]);
        memset(node->memory[s], 0, bytes);
        shard_layout(&node->shards[s], node->memory[s], options);
    }
    memset(node->board, 0, sizeof *node->board);
    node->board->options = options;
    for (int i = 0; i < WIRE_MAC_KEY_BYTES; i++)
        node->board->cookie_secret[i] = (uint8_t)sim_draw(node->sim);
    sim_snapshots_init(node);
}

void sim_node_begin(struct sim_node *node, struct shard_start starts[])
{
    struct sim *sim = node->sim;
    uint64_t now_ns = sim_clock_read(sim, &node->clock);

    memset(&node->turnstile, 0, sizeof node->turnstile);
    node->up = true;
    node->turn_at_ns = UINT64_MAX;
    for (uint16_t s = 0; s < sim->shards; s++) {
        struct shard *shard = &node->shards[s];

        shard->host = &node->host;
        shard->host_context = node;
        shard->board = node->board;
        shard->wal = node->wals[s % node->workers];
        shard->effects = node->effects;
        shard->turnstile = &node->turnstile;
        node->board->machines[s] = shard->machine;
        shard_begin(shard, &starts[s], now_ns);
        sim_trace(sim, "n%u s%u starts as replica %04llx: log %llu..%llu, term %llu%s", node->id, s,
                  (unsigned long long)shard->replica & 0xffff,
                  (unsigned long long)shard->log.base.index + 1,
                  (unsigned long long)shard->log.last_index,
                  (unsigned long long)starts[s].hard.term, starts[s].joining ? ", joins" : "");
    }
    check_raft_started(sim, node);
    sim_node_wake(node, sim->now_ns + 10 * SIM_US);
}

static void blank_manifest(struct sim_node *node)
{
    struct manifest *manifest = node->manifest;

    memset(manifest, 0, sizeof *manifest);
    manifest->nonce = sim_node_draw(node);
    manifest->cluster_id = SIM_CLUSTER_ID;
    manifest->node_id = node->id;
    manifest->durability = node->sim->weather.memory ? RAFT_MEMORY : RAFT_DISK;
    manifest->formed = 1;
    manifest->shards_count = node->sim->shards;
    manifest->next_incarnation = 1;
    manifest->nodes_count = node->sim->nodes_count;
    manifest->token_epoch = 1;
    for (uint16_t i = 0; i < node->sim->nodes_count; i++)
        manifest->nodes[i].node = (uint16_t)(i + 1);
    manifest->nodes[node->id - 1].nonce = manifest->nonce;
}

/* The process starts; what it finds on the disk says what it is. */
void sim_node_start(struct sim_node *node)
{
    struct sim *sim = node->sim;
    struct shard_start starts[SIM_SHARDS_MAX] = {0};

    if (node->up)
        return;
    node->epoch++;
    if (sim_chance(sim, 500)) /* the machine was restarted, not only the process */
        node->clock = (struct sim_clock){.base_ns = SIM_SECOND + sim_below(sim, 100 * SIM_SECOND),
                                         .base_true_ns = sim->now_ns,
                                         .rate_ppm = node->clock.rate_ppm};
    sim_node_memory(node);
    if (node->disk.manifest_length) {
        int result =
            manifest_decode(node->manifest, node->disk.manifest, node->disk.manifest_length);

        assert(result == 0);
        sim_wal_remove_others(&node->disk, node->manifest->wal_incarnation);
        node->manifest->next_incarnation++;
        sim_manifest_save(node);
        sim_node_recover(node, starts);
    } else {
        sim_trace(sim, "n%u    starts blank and joins", node->id);
        sim_wal_remove_others(&node->disk, 0);
        blank_manifest(node);
        sim_node_join(node, starts);
    }
    if (sim_node_renew(node, starts)) {
        sim_node_begin(node, starts);
        return;
    }
    free_process(node);
    (void)sim_post(sim, sim->now_ns + 10 * SIM_MS + sim_below(sim, 300 * SIM_MS), SIM_EV_NODE_START,
                   node->id - 1u, 0, 0, NULL);
}

static void fill_options(struct sim_node *node)
{
    struct sim *sim = node->sim;
    struct node_options *options = &node->options;

    *options = (struct node_options){
        .node = node->id,
        .members_count = sim->nodes_count,
        .shards = sim->shards,
        .workers = 1,
        .durability = sim->weather.memory ? NODE_MEMORY : NODE_DISK,
        .heartbeat_ns = 20 * SIM_MS,
        .election_timeout_ns = 150 * SIM_MS,
        .stamp_interval_ns = 250 * SIM_MS,
        .ring_bytes = RING_BYTES,
        .entries_max = ENTRIES_MAX,
        .ship_window_bytes = RING_BYTES / 4,
    };
    options->limits = lock_limits_for(256);
    options->limits.resources_max = 128;
    options->limits.sessions_max = 48;
    options->limits.waiters_max = options->limits.queue_max = 100;
    options->limits.answers_max = 600;
    options->limits.window = 16;
    memcpy(options->cluster_key, cluster_key, sizeof cluster_key);
    for (uint16_t i = 0; i < sim->nodes_count; i++) {
        struct wire_address client = sim_node_address((uint16_t)(i + 1), false);
        struct wire_address peer = sim_node_address((uint16_t)(i + 1), true);

        options->members[i].node = (uint16_t)(i + 1);
        memcpy(&options->members[i].client, &client, sizeof client);
        memcpy(&options->members[i].peer, &peer, sizeof peer);
    }
    node->host = (struct shard_host){
        .send_raft = host_send_raft,
        .send_ship = host_send_ship,
        .send_join = host_send_join,
        .reply = host_reply,
        .mail_claim = host_mail_claim,
        .mail_publish = host_mail_publish,
        .draw = host_draw,
        .note = host_note,
    };
    if (sim->weather.rdma)
        sim_rdma_host(&node->host);
}

/* Every listed node is present and blank: the cluster forms. */
void sim_node_form(struct sim *sim)
{
    struct raft_configuration configurations[SIM_SHARDS_MAX] = {0};

    for (uint16_t i = 0; i < sim->nodes_count; i++) {
        struct sim_node *node = &sim->nodes[i];
        int32_t rate_ppm = sim->weather.rate_ppm;

        node->sim = sim;
        node->id = (uint16_t)(i + 1);
        node->board = calloc(1, sizeof *node->board);
        node->effects = calloc(1, sizeof *node->effects);
        node->manifest = calloc(1, sizeof *node->manifest);
        node->out_bytes = calloc(OUT_SLOTS, sizeof *node->out_bytes);
        assert(node->board && node->effects && node->manifest && node->out_bytes);
        node->clock = (struct sim_clock){
            .base_ns = SIM_SECOND + sim_below(sim, 1000 * SIM_SECOND),
            .base_true_ns = sim->now_ns,
            .rate_ppm = (int32_t)sim_below(sim, 2 * (uint64_t)rate_ppm + 1) - rate_ppm};
        fill_options(node);
        blank_manifest(node);
        for (uint16_t s = 0; s < sim->shards; s++) {
            uint64_t replica = sim_node_draw(node);

            configurations[s].members[configurations[s].count++] =
                (struct raft_member){.replica_id = replica, .node = node->id, .role = RAFT_VOTER};
            (void)manifest_add(node->manifest, replica, s);
        }
    }
    for (uint16_t i = 0; i < sim->nodes_count; i++) {
        struct sim_node *node = &sim->nodes[i];
        struct shard_start starts[SIM_SHARDS_MAX] = {0};
        bool stormy = sim->weather.storage;

        for (uint16_t s = 0; s < sim->shards; s++)
            starts[s] = (struct shard_start){.id = s,
                                             .replica = configurations[s].members[i].replica_id,
                                             .token_epoch = 1,
                                             .configuration = configurations[s]};
        sim_node_memory(node);
        sim->weather.storage = false; /* a formation that is interrupted is not our subject */
        (void)sim_node_renew(node, starts);
        sim->weather.storage = stormy;
        sim_node_begin(node, starts);
    }
}

void sim_node_free(struct sim_node *node)
{
    free_process(node);
    for (int w = 0; w < SIM_WORKERS_MAX; w++)
        free(node->disk.devices[w].copy);
    sim_disk_wipe(&node->disk);
    free(node->board);
    free(node->effects);
    free(node->manifest);
    free(node->out_bytes);
}
