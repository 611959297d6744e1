/* SPDX-License-Identifier: Apache-2.0
 *
 * Three replicas of one shard in one process on a virtual clock: real cores, logs, lock machines
 * and WAL writers; messages, disk and snapshot thread are queues and arrays here.
 */
#ifndef BELAY_TESTS_SHARD_WORLD_H
#define BELAY_TESTS_SHARD_WORLD_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/shard.h"

enum {
    WORLD_NODES = 3,
    WORLD_QUEUE = 4096,
    WORLD_REPLIES = 4096,
    WORLD_SNAPSHOT_BYTES = 8 << 20,
};
#define WORLD_MS UINT64_C(1000000)

enum world_what { WORLD_RAFT, WORLD_SHIP, WORLD_JOIN };

struct world_packet {
    uint64_t due_ns;
    enum world_what what;
    uint16_t from, to;
    uint64_t bytes[WIRE_DATAGRAM_BYTES_MAX / 8];
};

struct world_reply {
    struct wire_address to;
    uint16_t node;
    uint64_t item[SHARD_REPLY_BYTES_MAX / 8];
};

/* What a snapshot thread would have on disk. */
struct world_snapshot {
    struct snapshot_mail begin;
    uint8_t *bytes;
    size_t length;
    bool complete;
};

struct world_node {
    struct world *world;
    uint16_t node;
    bool down; /* killed: takes nothing, does nothing */
    bool cut;  /* its messages are lost in both directions */
    struct node_options options;
    struct board *board;
    struct shard shard;
    struct shard_host host;
    struct shard_turnstile turnstile;
    struct raft_effects effects;
    void *memory;
    struct wal_writer *wal;
    void *wal_memory;
    uint64_t write_done_ns; /* 0 = none in flight */
    uint64_t write_sequence;
    struct snapshot_mail mail;
    struct world_snapshot saving, saved;
    uint64_t fetch_from; /* node + 1 */
    uint64_t drawn;
};

struct world {
    uint64_t now_ns;
    uint64_t disk_ns;
    struct world_node nodes[WORLD_NODES];
    struct world_packet *queue;
    uint32_t queued;
    struct world_reply *replies;
    uint32_t replies_count;
    uint64_t number[8]; /* of client sessions */
};

static inline uint64_t world_mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static inline struct world_packet *world_send(struct world_node *node, uint16_t to,
                                              enum world_what what)
{
    struct world *world = node->world;
    struct world_packet *packet;

    cr_assert(world->queued < WORLD_QUEUE);
    packet = &world->queue[world->queued++];
    packet->due_ns = world->now_ns + 100 * 1000;
    packet->what = what;
    packet->from = node->node;
    packet->to = to;
    if (node->cut || node->down || world->nodes[to - 1].cut)
        world->queued--;
    return packet;
}

static inline void world_send_raft(void *context, uint16_t shard, uint16_t to,
                                   const struct raft_message *message)
{
    (void)shard;
    raft_message_encode(message, (uint8_t *)world_send(context, to, WORLD_RAFT)->bytes);
}

static inline void world_send_ship(void *context, uint16_t shard, uint16_t to,
                                   const struct wire_ship *ship, const uint8_t *bytes,
                                   size_t length)
{
    struct world_packet *packet = world_send(context, to, WORLD_SHIP);

    (void)shard;
    memcpy(packet->bytes, ship, sizeof *ship);
    memcpy((uint8_t *)packet->bytes + sizeof *ship, bytes, length);
}

static inline void world_send_join(void *context, uint16_t shard, uint16_t to, uint64_t replica)
{
    (void)shard;
    world_send(context, to, WORLD_JOIN)->bytes[0] = replica;
}

static inline void world_reply(void *context, const struct wire_address *to,
                               const struct wire_item *item)
{
    struct world_node *node = context;
    struct world *world = node->world;
    struct world_reply *reply;

    if (world->replies_count == WORLD_REPLIES)
        world->replies_count = 0;
    reply = &world->replies[world->replies_count++];
    reply->to = *to;
    reply->node = node->node;
    memcpy(reply->item, item, item->bytes);
}

static inline struct snapshot_mail *world_mail_claim(void *context)
{
    return &((struct world_node *)context)->mail;
}

static inline void world_mail_publish(void *context)
{
    struct world_node *node = context;
    const struct snapshot_mail *mail = &node->mail;

    switch (mail->kind) {
    case SNAPSHOT_SAVE_BEGIN:
        node->saving.begin = *mail;
        node->saving.length = 0;
        node->saving.complete = false;
        break;
    case SNAPSHOT_SAVE_BLOCK:
        cr_assert(node->saving.length + mail->length <= WORLD_SNAPSHOT_BYTES);
        memcpy(node->saving.bytes + node->saving.length, mail->block, mail->length);
        node->saving.length += mail->length;
        break;
    case SNAPSHOT_SAVE_END:
        node->saving.complete = true;
        break;
    case SNAPSHOT_FETCH:
        node->fetch_from = mail->peer_node;
        break;
    default:
        break;
    }
}

static inline uint64_t world_draw(void *context)
{
    struct world_node *node = context;

    return world_mix(node->node * UINT64_C(1000003) + node->drawn++);
}

static inline void world_note(void *context, uint16_t shard, const struct shard_note *note)
{
    struct world_node *node = context;

    (void)shard;
    if (getenv("BELAY_TEST_TRACE"))
        fprintf(stderr, "%8.3f node=%u %s %s=%llu\n", (double)node->world->now_ns / 1e6, node->node,
                note->event, note->first_name, (unsigned long long)note->first);
}

static inline void world_begin(struct world_node *node, uint64_t replica, bool joining,
                               const struct raft_configuration *configuration)
{
    struct shard_start start = {
        .replica = replica,
        .joining = joining,
        .token_epoch = 1,
    };
    struct wal_options wal_options = {
        .identity = replica,
        .segment_bytes = 4 << 20,
        .segments_count = 4,
        .frame_bytes_max = 1 << 20,
        .block_bytes = WAL_BLOCK_BYTES,
        .replicas_max = 4,
    };

    if (configuration)
        start.configuration = *configuration;
    free(node->memory);
    node->memory = aligned_alloc(4096, (shard_memory_bytes(&node->options) + 4095) & ~4095ul);
    memset(node->memory, 0, shard_memory_bytes(&node->options));
    shard_layout(&node->shard, node->memory, &node->options);
    if (node->options.durability == NODE_DISK) {
        free(node->wal_memory);
        node->wal_memory = aligned_alloc(4096, (wal_memory_bytes(&wal_options) + 4095) & ~4095ul);
        node->wal = wal_writer_init(node->wal_memory, &wal_options);
        cr_assert_gt(wal_add_replica(node->wal, replica, 0), 0);
        node->write_done_ns = 0;
    }
    node->shard.host = &node->host;
    node->shard.host_context = node;
    node->shard.board = node->board;
    node->shard.wal = node->wal;
    node->shard.effects = &node->effects;
    node->shard.turnstile = &node->turnstile;
    memset(&node->turnstile, 0, sizeof node->turnstile);
    shard_begin(&node->shard, &start, node->world->now_ns);
}

static inline void world_open(struct world *world, enum node_durability durability)
{
    struct raft_configuration configuration = {.count = WORLD_NODES};

    memset(world, 0, sizeof *world);
    world->now_ns = 1000 * WORLD_MS;
    world->disk_ns = 200 * 1000;
    world->queue = calloc(WORLD_QUEUE, sizeof *world->queue);
    world->replies = calloc(WORLD_REPLIES, sizeof *world->replies);
    for (uint16_t i = 0; i < WORLD_NODES; i++)
        configuration.members[i] = (struct raft_member){
            .replica_id = 101 + i, .node = (uint16_t)(i + 1), .role = RAFT_VOTER};
    for (uint16_t i = 0; i < WORLD_NODES; i++) {
        struct world_node *node = &world->nodes[i];

        node->world = world;
        node->node = (uint16_t)(i + 1);
        node_options_defaults(&node->options);
        node->options.node = node->node;
        node->options.members_count = WORLD_NODES;
        node->options.shards = 1;
        node->options.workers = 1;
        node->options.durability = durability;
        node->options.limits = lock_limits_for(2000);
        node->options.ring_bytes = 1 << 18;
        node->options.entries_max = 2048;
        node->options.ship_window_bytes = 1 << 15;
        node->board = calloc(1, sizeof *node->board);
        node->board->options = &node->options;
        node->saving.bytes = malloc(WORLD_SNAPSHOT_BYTES);
        node->saved.bytes = malloc(WORLD_SNAPSHOT_BYTES);
        node->host = (struct shard_host){
            .send_raft = world_send_raft,
            .send_ship = world_send_ship,
            .send_join = world_send_join,
            .reply = world_reply,
            .mail_claim = world_mail_claim,
            .mail_publish = world_mail_publish,
            .draw = world_draw,
            .note = world_note,
        };
        world_begin(node, 101 + i, false, &configuration);
    }
}

static inline void world_close(struct world *world)
{
    for (int i = 0; i < WORLD_NODES; i++) {
        struct world_node *node = &world->nodes[i];

        free(node->memory);
        free(node->wal_memory);
        free(node->board);
        free(node->saving.bytes);
        free(node->saved.bytes);
    }
    free(world->queue);
    free(world->replies);
}

/* The disk of one node: one write in flight, durable after disk_ns. */
static inline void world_disk(struct world_node *node)
{
    struct wal_write write;

    if (!node->wal)
        return;
    if (node->write_done_ns && node->write_done_ns <= node->world->now_ns) {
        node->write_done_ns = 0;
        wal_written(node->wal, node->write_sequence, 0);
        shard_durable(&node->shard, wal_durable_sequence(node->wal), node->world->now_ns);
    }
    if (!node->write_done_ns && wal_next_write(node->wal, &write)) {
        node->write_sequence = write.sequence;
        node->write_done_ns = node->world->now_ns + node->world->disk_ns;
    }
}

/* The snapshot thread of one node. */
static inline void world_snapshots(struct world_node *node)
{
    struct snapshot_mail *mail = malloc(sizeof *mail);
    struct world_snapshot *from;

    if (node->saving.complete) {
        struct world_snapshot done = node->saving;

        node->saving = node->saved;
        node->saving.complete = false;
        node->saved = done;
        *mail = done.begin;
        mail->kind = SNAPSHOT_SAVED;
        mail->result = 0;
        shard_mail(&node->shard, mail, node->world->now_ns);
    }
    from = node->fetch_from ? &node->world->nodes[node->fetch_from - 1].saved : NULL;
    if (from && from->complete) {
        node->fetch_from = 0;
        *mail = from->begin;
        mail->kind = SNAPSHOT_LOAD_BEGIN;
        shard_mail(&node->shard, mail, node->world->now_ns);
        for (size_t at = 0; at < from->length; at += SNAPSHOT_BLOCK_BYTES) {
            size_t left = from->length - at;

            mail->kind = SNAPSHOT_LOAD_BLOCK;
            mail->length = (uint32_t)(left < SNAPSHOT_BLOCK_BYTES ? left : SNAPSHOT_BLOCK_BYTES);
            memcpy(mail->block, from->bytes + at, mail->length);
            shard_mail(&node->shard, mail, node->world->now_ns);
        }
        mail->kind = SNAPSHOT_LOAD_END;
        mail->result = 0;
        shard_mail(&node->shard, mail, node->world->now_ns);
    }
    free(mail);
}

static inline void world_deliver(struct world *world, const struct world_packet *packet)
{
    struct world_node *node = &world->nodes[packet->to - 1];
    struct raft_message message;

    if (node->down || node->cut)
        return;
    switch (packet->what) {
    case WORLD_RAFT:
        cr_assert(
            raft_message_decode(&message, (const uint8_t *)packet->bytes, RAFT_MESSAGE_BYTES));
        shard_raft_message(&node->shard, packet->from, &message, world->now_ns);
        break;
    case WORLD_SHIP:
        shard_ship(&node->shard, (const struct wire_ship *)packet->bytes);
        break;
    case WORLD_JOIN:
        shard_join_request(&node->shard, packet->from, packet->bytes[0], world->now_ns);
        break;
    }
}

/* Everything due now, then the clock moves by a tenth of a millisecond. */
static inline void world_tick(struct world *world)
{
    uint32_t count = world->queued;
    struct world_packet *due = malloc((count + 1) * sizeof *due);
    uint32_t due_count = 0;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (world->queue[i].due_ns <= world->now_ns)
            due[due_count++] = world->queue[i];
        else
            world->queue[kept++] = world->queue[i];
    }
    world->queued = kept;
    for (uint32_t i = 0; i < due_count; i++)
        world_deliver(world, &due[i]);
    free(due);
    for (int i = 0; i < WORLD_NODES; i++) {
        struct world_node *node = &world->nodes[i];

        if (node->down)
            continue;
        world_disk(node);
        shard_received(&node->shard, world->now_ns);
        (void)shard_turn(&node->shard, world->now_ns);
        world_disk(node);
        world_snapshots(node);
    }
    world->now_ns += WORLD_MS / 10;
}

static inline void world_run(struct world *world, uint64_t for_ns)
{
    uint64_t until_ns = world->now_ns + for_ns;

    while (world->now_ns < until_ns)
        world_tick(world);
}

static inline struct world_node *world_leader(struct world *world)
{
    struct world_node *leader = NULL;

    for (int i = 0; i < WORLD_NODES; i++) {
        struct world_node *node = &world->nodes[i];

        if (!node->down && !node->cut && shard_leads(&node->shard) &&
            (!leader || node->shard.view.term > leader->shard.view.term))
            leader = node;
    }
    return leader;
}

/* Runs until there is a leader that serves. */
static inline struct world_node *world_wait_leader(struct world *world)
{
    for (int i = 0; i < 50000; i++) {
        struct world_node *leader = world_leader(world);

        if (leader)
            return leader;
        world_tick(world);
    }
    cr_assert_fail("no leader within five seconds");
    return NULL;
}

/* Runs until every replica has applied the same entries. */
static inline void world_converge(struct world *world)
{
    for (int i = 0; i < 50000; i++) {
        uint64_t applied = world->nodes[0].shard.applied;

        if (world_leader(world) && applied == world->nodes[1].shard.applied &&
            applied == world->nodes[2].shard.applied)
            return;
        world_tick(world);
    }
    cr_assert_fail("replicas do not converge within five seconds");
}

/* ---- clients --------------------------------------------------------------------------------- */

static inline struct wire_address world_client(uint64_t who)
{
    return (struct wire_address){.ip = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1},
                                 .port = (uint16_t)(1000 + who)};
}

static inline void world_request(struct world *world, uint64_t who, struct wire_item *item)
{
    struct wire_address from = world_client(who);
    struct world_node *leader = world_wait_leader(world);

    cr_assert_eq(wire_judge_request(item, false).status, WIRE_OK);
    shard_request(&leader->shard, &from, item, world->now_ns);
}

/* The newest reply or push of that op to that client at or after `from` in the list. */
static inline const struct wire_reply *world_find(struct world *world, uint64_t who, uint8_t op,
                                                  uint64_t number)
{
    struct wire_address to = world_client(who);

    for (uint32_t i = world->replies_count; i-- > 0;) {
        const struct wire_reply *reply = (const struct wire_reply *)world->replies[i].item;

        if (world->replies[i].to.port == to.port && reply->item.op == op && reply->number == number)
            return reply;
    }
    return NULL;
}

static inline const struct wire_reply *world_wait_reply(struct world *world, uint64_t who,
                                                        uint8_t op, uint64_t number)
{
    for (int i = 0; i < 20000; i++) {
        const struct wire_reply *reply = world_find(world, who, op, number);

        if (reply)
            return reply;
        world_tick(world);
    }
    cr_assert_fail("no reply to op %u number %llu within two seconds", op,
                   (unsigned long long)number);
    return NULL;
}

static inline uint64_t world_open_session(struct world *world, uint64_t who, uint32_t ttl_ms)
{
    struct wire_open open = {
        .request = {.item = {.bytes = sizeof open, .op = WIRE_OP_OPEN}},
        .nonce = 7000 + who,
        .ttl_ms = ttl_ms,
    };
    const struct wire_reply *reply;

    world_request(world, who, &open.request.item);
    reply = world_wait_reply(world, who, WIRE_OP_OPEN, 0);
    cr_assert_eq(reply->item.status, WIRE_OK);
    cr_assert_neq(reply->session, 0);
    return reply->session;
}

static inline uint64_t world_send_acquire(struct world *world, uint64_t who, uint64_t session,
                                          uint64_t number, const char *name, uint32_t ttl_ms)
{
    uint64_t space[16] = {0};
    struct wire_acquire *acquire = (struct wire_acquire *)space;

    acquire->request.item.op = WIRE_OP_ACQUIRE;
    acquire->request.item.bytes = (uint16_t)(sizeof *acquire + wire_pad8(strlen(name)));
    acquire->request.session = session;
    acquire->request.number = number;
    acquire->request.acked_below = number;
    acquire->ttl_ms = ttl_ms;
    acquire->wait_ms = WIRE_WAIT_FOREVER;
    acquire->mode = WIRE_EXCLUSIVE;
    acquire->name_bytes = (uint8_t)strlen(name);
    memcpy(acquire->text, name, strlen(name));
    world_request(world, who, &acquire->request.item);
    return number;
}

static inline void world_send_release(struct world *world, uint64_t who, uint64_t session,
                                      uint64_t number, const char *name,
                                      const struct wire_lease_id *lease)
{
    struct wire_release release = {
        .request = {.item = {.bytes = sizeof release, .op = WIRE_OP_RELEASE},
                    .session = session,
                    .number = number,
                    .acked_below = number},
        .lease = *lease,
        .key_tag =
            (uint32_t)wire_key_hash((const uint8_t *)"", 0, (const uint8_t *)name, strlen(name)),
    };

    world_request(world, who, &release.request.item);
}

#endif
