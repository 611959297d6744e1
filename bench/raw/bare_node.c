/* SPDX-License-Identifier: Apache-2.0
 *
 * The three nodes of the bare chain. See bare.h.
 */
#include "bench/raw/bare.h"

#include <errno.h>
#include <string.h>

#include "bench/raw/bare_store.h"
#include "bench/raw/raw.h"
#include "consensus/log.h"
#include "hw/clock.h"
#include "hw/poller.h"

static_assert(BARE_CLIENTS == 2, "a token goes to the other one");

enum {
    SHIP_BYTES_MAX =
        WIRE_DATAGRAM_BYTES_MAX - sizeof(struct wire_header) - sizeof(struct wire_ship),
    ACK_BYTES = 96, /* about what a Raft acknowledgement takes: see struct bare_ack */
    PENDING_MAX = 2 * BARE_IN_FLIGHT_MAX,
};
#define REPEAT_NS UINT64_C(100000000) /* what was not acknowledged so long is shipped again */

struct bare_ack {
    struct wire_item item;
    uint64_t follower;
    uint64_t position; /* everything before is there */
    uint8_t rest[ACK_BYTES - 24];
};
static_assert(sizeof(struct bare_ack) == ACK_BYTES, "an acknowledgement is 96 bytes");

static struct poller *poller_of(struct port *port, const struct bare_store *store)
{
    struct poller *poller;
    int error = poller_open(POLLER_ADAPTIVE, 0, &poller);
    if (error == 0)
        error = poller_add(poller, port_descriptor(port));
    if (error == 0 && store->disk != NULL)
        error = poller_add_edge(poller, disk_event_fd(store->disk));
    if (error != 0)
        raw_die("epoll: %s", strerror(-error));
    return poller;
}

static uint8_t *buffer_of(struct port *port)
{
    uint8_t *buffer = port_tx_buffer(port);
    if (buffer == NULL) {
        port_tx_flush(port);
        buffer = port_tx_buffer(port);
    }
    return buffer;
}

/* ---- follower -------------------------------------------------------------------------------- */

static void take_ship(struct bare_store *store, const struct port_packet *packet)
{
    const struct wire_ship *ship =
        (const void *)(packet->bytes + sizeof(struct wire_header)); /* 8-byte aligned */
    if (ship->position > store->end || ship->position + ship->length <= store->end)
        return; /* a gap, or known: only after a loss */
    uint64_t known = store->end - ship->position;
    bare_store_put(store, (const uint8_t *)(ship + 1) + known, ship->length - known);
}

static void acknowledge(struct port *port, const struct port_address *leader, uint32_t number,
                        uint64_t position)
{
    struct wire_builder builder;
    wire_builder_start(&builder, buffer_of(port), WIRE_DATAGRAM_BYTES_MAX, WIRE_KIND_PEER, 1,
                       (uint16_t)(2 + number));
    struct bare_ack *ack = wire_builder_add(&builder, WIRE_PEER_RAFT, sizeof *ack);
    ack->follower = number;
    ack->position = position;
    port_tx_push(port, (uint32_t)wire_builder_finish(&builder), leader);
    port_tx_flush(port);
}

void bare_follower(const struct bare_setup *setup, uint32_t number)
{
    struct port *port = setup->followers[number];
    struct port_packet packets[PORT_BURST_MAX];
    struct port_address leader;
    struct bare_store store;
    bare_store_open(&store, setup->disk ? setup->directories[1 + number] : NULL);
    struct poller *poller = poller_of(port, &store);
    port_local_address(setup->leader, &leader);
    for (uint64_t acked = 0;;) {
        uint32_t count = port_rx_burst(port, packets, PORT_BURST_MAX);
        for (uint32_t i = 0; i < count; i++)
            take_ship(&store, &packets[i]);
        bare_store_turn(&store);
        if (store.durable > acked || (count > 0 && store.durable == store.end)) {
            acked = store.durable;
            acknowledge(port, &leader, number, acked);
        }
        poller_rest(poller, count == PORT_BURST_MAX, UINT64_MAX);
    }
}

/* ---- leader ---------------------------------------------------------------------------------- */

struct bare_pending {
    uint64_t end; /* answered when so much is committed */
    uint64_t number;
    uint8_t op;
    uint8_t client;
};

struct bare_lead {
    const struct bare_setup *setup;
    struct port *port;
    struct bare_store store;
    uint64_t shipped[BARE_FOLLOWERS];
    uint64_t acked[BARE_FOLLOWERS]; /* <= shipped */
    uint64_t repeat_ns;             /* when shipping starts over, unless acknowledged before */
    struct port_address follower_addresses[BARE_FOLLOWERS];
    struct port_address client_addresses[BARE_CLIENTS];
    struct wire_builder replies[BARE_CLIENTS]; /* items == 0: none open */
    uint64_t buffers[BARE_CLIENTS][WIRE_DATAGRAM_BYTES_MAX / 8];
    struct bare_pending pending[PENDING_MAX];
    uint32_t first, last; /* pending[first % MAX .. last % MAX) */
};

static uint8_t client_of(const struct bare_lead *lead, const struct port_address *from)
{
    for (uint8_t i = 0; i < BARE_CLIENTS; i++)
        if (lead->client_addresses[i].port == from->port)
            return i;
    raw_die("a datagram from a stranger, port %u", from->port);
}

static void take_requests(struct bare_lead *lead, const struct port_packet *packet, bool *batch)
{
    const struct wire_header *header = (const void *)packet->bytes;
    const struct wire_item *item = (const void *)(header + 1);
    uint8_t client = client_of(lead, &packet->from);
    if (!*batch) { /* what one turn takes in is one entry, with one header */
        bare_store_put(&lead->store, &(struct log_entry){0}, sizeof(struct log_entry));
        *batch = true;
    }
    for (uint32_t i = 0; i < header->item_count; i++, item = wire_item_next(item)) {
        if (lead->last - lead->first == PENDING_MAX)
            raw_die("more requests under way than can be");
        bare_store_put(&lead->store, item, item->bytes);
        lead->pending[lead->last++ % PENDING_MAX] =
            (struct bare_pending){.end = lead->store.end,
                                  .number = ((const struct wire_request *)item)->number,
                                  .op = item->op,
                                  .client = client};
    }
}

static bool take(struct bare_lead *lead)
{
    struct port_packet packets[PORT_BURST_MAX];
    uint32_t count = port_rx_burst(lead->port, packets, PORT_BURST_MAX);
    bool batch = false;
    for (uint32_t i = 0; i < count; i++) {
        const struct wire_header *header = (const void *)packets[i].bytes;
        if (header->kind == WIRE_KIND_REQUEST) {
            take_requests(lead, &packets[i], &batch);
            continue;
        }
        const struct bare_ack *ack = (const void *)(header + 1);
        if (ack->position > lead->acked[ack->follower]) {
            lead->acked[ack->follower] = ack->position;
            lead->repeat_ns = 0;
        }
    }
    return count == PORT_BURST_MAX;
}

static void ship(struct bare_lead *lead, uint32_t follower)
{
    while (lead->shipped[follower] < lead->store.end) {
        struct wire_builder builder;
        uint64_t length = lead->store.end - lead->shipped[follower];
        if (length > SHIP_BYTES_MAX)
            length = SHIP_BYTES_MAX;
        wire_builder_start(&builder, buffer_of(lead->port), WIRE_DATAGRAM_BYTES_MAX, WIRE_KIND_PEER,
                           1, 1);
        struct wire_ship *item =
            wire_builder_add(&builder, WIRE_PEER_SHIP, sizeof *item + (size_t)length);
        item->position = lead->shipped[follower];
        item->length = (uint32_t)length;
        bare_store_read(&lead->store, item->position, item + 1, (size_t)length);
        port_tx_push(lead->port, (uint32_t)wire_builder_finish(&builder),
                     &lead->follower_addresses[follower]);
        lead->shipped[follower] += length;
    }
}

/* The same bytes again after a loss. It costs the round a tenth of a second, and so shows. */
static uint64_t repeat(struct bare_lead *lead, uint64_t now_ns)
{
    bool waits = lead->acked[0] < lead->store.end || lead->acked[1] < lead->store.end;
    if (!waits) {
        lead->repeat_ns = 0;
        return UINT64_MAX;
    }
    if (lead->repeat_ns == 0)
        lead->repeat_ns = now_ns + REPEAT_NS;
    else if (now_ns >= lead->repeat_ns) {
        memcpy(lead->shipped, lead->acked, sizeof lead->shipped);
        lead->repeat_ns = now_ns + REPEAT_NS;
    }
    return lead->repeat_ns;
}

/* What two of the three have. */
static uint64_t committed(const struct bare_lead *lead)
{
    uint64_t a = lead->store.durable, b = lead->acked[0], c = lead->acked[1];
    uint64_t low = a < b ? a : b, high = a < b ? b : a;
    return c < low ? low : c > high ? high : c;
}

static void send_replies(struct bare_lead *lead, uint8_t client)
{
    struct wire_builder *builder = &lead->replies[client];
    if (builder->items == 0)
        return;
    size_t bytes = wire_builder_finish(builder);
    memcpy(buffer_of(lead->port), builder->buffer, bytes);
    port_tx_push(lead->port, (uint32_t)bytes, &lead->client_addresses[client]);
    builder->items = 0;
}

static void reply(struct bare_lead *lead, uint8_t client, uint8_t op, uint64_t number, size_t bytes)
{
    struct wire_builder *builder = &lead->replies[client];
    struct wire_reply *item = NULL;
    if (builder->items > 0)
        item = wire_builder_add(builder, op, bytes);
    if (item == NULL) {
        send_replies(lead, client);
        wire_builder_start(builder, (uint8_t *)lead->buffers[client], WIRE_DATAGRAM_BYTES_MAX,
                           WIRE_KIND_REPLY, 1, 1);
        item = wire_builder_add(builder, op, bytes);
    }
    item->number = number;
}

static void answer(struct bare_lead *lead)
{
    const uint64_t commit = committed(lead);
    uint8_t leaves_first = 0; /* a grant: somebody waits for it */
    for (; lead->first != lead->last; lead->first++) {
        const struct bare_pending *one = &lead->pending[lead->first % PENDING_MAX];
        if (one->end > commit)
            break;
        if (one->op == WIRE_OP_RELEASE) {
            reply(lead, one->client, one->op, one->number, sizeof(struct wire_reply));
            leaves_first = one->client ^ 1;
            if (lead->setup->work == BARE_HAND_OVER)
                reply(lead, one->client ^ 1, WIRE_OP_PUSH_GRANT, 0, sizeof(struct wire_granted));
        } else {
            reply(lead, one->client, one->op, one->number,
                  lead->setup->work == BARE_HAND_OVER ? sizeof(struct wire_queued)
                                                      : sizeof(struct wire_granted));
        }
    }
    send_replies(lead, leaves_first);
    send_replies(lead, leaves_first ^ 1);
}

void bare_leader(const struct bare_setup *setup)
{
    static struct bare_lead lead; /* one per process; too large for a stack */
    lead.setup = setup;
    lead.port = setup->leader;
    for (uint32_t i = 0; i < BARE_FOLLOWERS; i++)
        port_local_address(setup->followers[i], &lead.follower_addresses[i]);
    for (uint32_t i = 0; i < BARE_CLIENTS; i++)
        port_local_address(setup->clients[i], &lead.client_addresses[i]);
    bare_store_open(&lead.store, setup->disk ? setup->directories[0] : NULL);
    struct poller *poller = poller_of(lead.port, &lead.store);
    for (uint64_t now_ns = clock_monotonic_ns();;) {
        bool worked = take(&lead);
        bare_store_turn(&lead.store); /* the disk first: it takes longest */
        for (uint32_t i = 0; i < BARE_FOLLOWERS; i++)
            ship(&lead, i);
        answer(&lead);
        port_tx_flush(lead.port);
        now_ns = poller_rest(poller, worked, repeat(&lead, now_ns));
    }
}
