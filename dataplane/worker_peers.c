/* SPDX-License-Identifier: Apache-2.0
 *
 * Peers' datagrams, in and out, and items handed between the workers of this node.
 *
 * Every peer datagram carries a keyed tag: one forged datagram must not raise a term. A node may
 * run another number of workers than we do; which of its workers owns a shard shows in the source
 * port of what it sends, and until then a wrong guess is handed over there.
 */
#include <string.h>

#include "dataplane/worker.h"
#include "hw/clock.h"

/* ---- out ------------------------------------------------------------------------------------- */

static void peer_address(const struct worker *worker, uint16_t shard, uint16_t node,
                         struct wire_address *address)
{
    uint8_t there = worker->peer_workers[shard / worker->options->workers][node - 1];

    memcpy(address, &worker->options->members[node - 1].peer, sizeof *address);
    address->port = (uint16_t)(address->port + there);
}

static void *add(struct worker *worker, uint16_t shard, uint16_t node, uint8_t op, size_t bytes)
{
    struct wire_address to;
    struct wire_item *item;

    peer_address(worker, shard, node, &to);
    item = packer_add(&worker->messages, &to, op, bytes);
    item->shard = shard;
    return item;
}

static void host_send_raft(void *context, uint16_t shard, uint16_t node,
                           const struct raft_message *message)
{
    struct wire_item *item =
        add(context, shard, node, WIRE_PEER_RAFT, sizeof(struct wire_item) + RAFT_MESSAGE_BYTES);

    raft_message_encode(message, (uint8_t *)(item + 1));
}

static void host_send_ship(void *context, uint16_t shard, uint16_t node,
                           const struct wire_ship *ship, const uint8_t *bytes, size_t length)
{
    struct wire_ship *item = add(context, shard, node, WIRE_PEER_SHIP, sizeof *ship + length);
    struct wire_item head = item->item;

    *item = *ship;
    item->item = head;
    memcpy(item + 1, bytes, length);
}

static void host_send_join(void *context, uint16_t shard, uint16_t node, uint64_t new_replica)
{
    struct worker *worker = context;
    struct wire_join *join = add(worker, shard, node, WIRE_PEER_JOIN, sizeof *join);

    join->node = worker->options->node;
    join->new_replica = new_replica;
}

void worker_peer_host(struct shard_host *host)
{
    host->send_raft = host_send_raft;
    host->send_ship = host_send_ship;
    host->send_join = host_send_join;
}

/* ---- in -------------------------------------------------------------------------------------- */

/* A node that is still blank asks who is here. It gets what this cluster was formed with. */
static void answer_hello(struct worker *worker, const struct wire_address *to)
{
    struct wire_hello *hello =
        packer_add(&worker->messages, to, WIRE_PEER_HELLO, sizeof(struct wire_hello));

    hello->node = worker->options->node;
    hello->nodes = worker->options->members_count;
    hello->shards = worker->options->shards;
    hello->state = WIRE_HELLO_FORMED;
    hello->durability = (uint8_t)worker->options->durability;
    hello->configuration_digest = options_digest(worker->options);
    memcpy(hello->nonces, worker->board->nonces, sizeof hello->nonces);
    hello->epoch_max = worker->board->token_epoch;
}

/* Where that node's worker for the shard is: told by the port it sent from. */
static void learn_worker(struct worker *worker, const struct wire_address *from, uint16_t node,
                         struct shard *shard)
{
    uint16_t base = worker->options->members[node - 1].peer.port;
    uint16_t there = (uint16_t)(from->port - base);
    struct board_shard *row = &worker->board->shards[shard->id];

    if (there >= NODE_WORKERS_MAX)
        return;
    worker->peer_workers[shard->id / worker->options->workers][node - 1] = (uint8_t)there;
    if (shard->view.leader_node == node)
        BOARD_SET(row->leader_worker, there);
}

static void take_raft(struct shard *shard, uint16_t node, const struct wire_item *item,
                      uint64_t now_ns)
{
    struct raft_message message;

    if (raft_message_decode(&message, (const uint8_t *)(item + 1), item->bytes - sizeof *item))
        shard_raft_message(shard, node, &message, now_ns);
}

void worker_peer_item(struct worker *worker, const struct wire_address *from, uint16_t node,
                      const struct wire_item *item, uint64_t now_ns)
{
    struct shard *shard;

    if (item->op == WIRE_PEER_HELLO) {
        if (((const struct wire_hello *)item)->state == WIRE_HELLO_BLANK)
            answer_hello(worker, from);
        return;
    }
    if (item->shard >= worker->options->shards)
        return;
    shard = worker_shard(worker, item->shard);
    if (!shard) {
        (void)worker_hand_over(worker, from, node, item);
        return;
    }
    learn_worker(worker, from, node, shard);
    switch (item->op) {
    case WIRE_PEER_RAFT:
        take_raft(shard, node, item, now_ns);
        break;
    case WIRE_PEER_SHIP:
        shard_ship(shard, (const struct wire_ship *)item);
        break;
    case WIRE_PEER_JOIN:
        shard_join_request(shard, node, ((const struct wire_join *)item)->new_replica, now_ns);
        break;
    default:
        break;
    }
}

static enum wire_reject judge(const struct worker *worker, const struct port_packet *packet,
                              const struct wire_header **header, const struct wire_item **items)
{
    enum wire_reject reject;

    if (packet->truncated)
        return WIRE_REJECT_OVERSIZED;
    reject = wire_decode_datagram(packet->bytes, packet->length, WIRE_KIND_PEER, header, items);
    if (reject != WIRE_ACCEPTED)
        return reject;
    if (!wire_tag_check(packet->bytes, packet->length, worker->options->cluster_key))
        return WIRE_REJECT_TAG;
    if ((*header)->sender_node < 1 || (*header)->sender_node > worker->options->members_count ||
        (*header)->sender_node == worker->options->node)
        return WIRE_REJECT_SENDER;
    /* A blank node does not know the cluster's id yet; it can only say hello. */
    if ((*header)->cluster_id != worker->board->cluster_id &&
        !((*header)->cluster_id == 0 && (*items)->op == WIRE_PEER_HELLO))
        return WIRE_REJECT_CLUSTER;
    return WIRE_ACCEPTED;
}

static void take_datagram(struct worker *worker, const struct port_packet *packet, uint64_t now_ns)
{
    const struct wire_header *header;
    const struct wire_item *item;
    struct wire_address from;
    enum wire_reject reject = judge(worker, packet, &header, &item);

    if (reject != WIRE_ACCEPTED) {
        board_count(&worker->counters->rejects_peer[reject]);
        return;
    }
    memcpy(&from, &packet->from, sizeof from);
    for (uint16_t i = 0; i < header->item_count; i++, item = wire_item_next(item)) {
        if (wire_judge_peer(item))
            worker_peer_item(worker, &from, header->sender_node, item, now_ns);
        else
            board_count(&worker->counters->rejects_peer[WIRE_REJECT_FIELD]);
    }
}

bool worker_take_peers(struct worker *worker)
{
    /* A cluster of one has no peers, and asking the kernel for what never comes costs a tenth of a
     * turn. What strangers send is taken away, or it would wake a sleeper again and again. */
    if (worker->options->members_count == 1 &&
        worker->peerless_turns++ % WORKER_STRANGERS_TURNS != 0)
        return false;
    return worker_take_bursts(worker, worker->peers, WORKER_PEER_BURSTS_MAX, take_datagram);
}

/* ---- between workers ------------------------------------------------------------------------- */

bool worker_hand_over(struct worker *worker, const struct wire_address *from, uint16_t sender_node,
                      const struct wire_item *item)
{
    uint16_t owner = (uint16_t)(item->shard % worker->options->workers);
    struct worker_handover *handover = mailbox_claim(worker->outbox[owner]);

    if (!handover) {
        board_count(&worker->counters->handed_over_dropped);
        return false;
    }
    handover->from = *from;
    handover->sender_node = sender_node;
    memcpy(handover->item, item, item->bytes);
    mailbox_publish(worker->outbox[owner]);
    poller_wake(worker->siblings[owner]);
    board_count(&worker->counters->handed_over);
    return true;
}

bool worker_take_handovers(struct worker *worker)
{
    bool worked = false;

    for (uint16_t i = 0; i < worker->options->workers; i++) {
        const struct worker_handover *handover;

        if (!worker->inbox[i])
            continue;
        while ((handover = mailbox_peek(worker->inbox[i])) != NULL) {
            const struct wire_item *item = (const struct wire_item *)handover->item;
            uint64_t now_ns = clock_monotonic_ns(); /* as in worker_take_bursts */

            if (handover->sender_node)
                worker_peer_item(worker, &handover->from, handover->sender_node, item, now_ns);
            else
                worker_client_item(worker, &handover->from, item, now_ns);
            mailbox_drop(worker->inbox[i]);
            worked = true;
        }
    }
    return worked;
}
