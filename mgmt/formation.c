/* SPDX-License-Identifier: Apache-2.0 */
#include "mgmt/formation.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <xxhash.h>

#include "dataplane/wire/wire.h"
#include "hw/clock.h"
#include "hw/journal.h"

enum { FORMATION_HELLO_MS = 40, FORMATION_LOOK_MS = 1 /* at ports that wake nobody */ };
#define FORMATION_SAY_NS UINT64_C(3000000000)
#define MS_NS            UINT64_C(1000000)

uint64_t formation_cluster_id(const uint64_t *nonces, uint16_t count)
{
    uint64_t id = XXH3_64bits_withSeed(nonces, count * sizeof *nonces, count);

    return id ? id : 1;
}

uint64_t formation_replica_id(uint64_t nonce, uint16_t shard)
{
    uint64_t id = XXH3_64bits_withSeed(&nonce, sizeof nonce, UINT64_C(0xb31a0000) + shard);

    return id ? id : 1;
}

struct forming {
    const struct node_options *options;
    struct port *peers;
    struct formation *found;
    uint64_t own_nonce;
    bool formed;
    uint64_t said_ns;
    uint64_t packet_number;
};

static void say_hello(struct forming *forming, uint16_t node)
{
    struct wire_builder builder;
    struct wire_hello *hello;
    uint8_t *datagram = port_tx_buffer(forming->peers);
    size_t bytes;

    if (!datagram)
        return;
    wire_builder_start(&builder, datagram, WIRE_DATAGRAM_BYTES_MAX, WIRE_KIND_PEER, 0,
                       forming->options->node);
    hello = wire_builder_add(&builder, WIRE_PEER_HELLO, sizeof *hello);
    hello->node = forming->options->node;
    hello->nodes = forming->options->members_count;
    hello->shards = forming->options->shards;
    hello->state = WIRE_HELLO_BLANK;
    hello->durability = (uint8_t)forming->options->durability;
    hello->configuration_digest = options_digest(forming->options);
    memcpy(hello->nonces, forming->found->nonces, sizeof hello->nonces);
    hello->epoch_max = forming->found->epoch_max;
    ((struct wire_header *)datagram)->packet_number = ++forming->packet_number;
    bytes = wire_builder_finish(&builder);
    wire_tag_seal(datagram, bytes, forming->options->cluster_key);
    port_tx_push(forming->peers, (uint32_t)bytes, &forming->options->members[node - 1].peer);
}

static bool may_say(struct forming *forming)
{
    uint64_t now_ns = clock_monotonic_ns();

    if (now_ns - forming->said_ns < FORMATION_SAY_NS)
        return false;
    forming->said_ns = now_ns;
    return true;
}

static void heard(struct forming *forming, const struct wire_header *header,
                  const struct wire_hello *hello)
{
    const struct node_options *options = forming->options;
    struct formation *found = forming->found;
    uint16_t from = header->sender_node;

    if (hello->node != from || from == options->node || hello->nodes != options->members_count)
        return;
    if (hello->configuration_digest != options_digest(options)) {
        if (may_say(forming))
            journal_write(
                JOURNAL_ERROR, "configurations_differ",
                "node=%u what=\"members, shards, durability, limits and log sizes must be "
                "equal on every node\"",
                from);
        return;
    }
    if (hello->epoch_max > found->epoch_max)
        found->epoch_max = (uint32_t)hello->epoch_max;
    if (hello->state == WIRE_HELLO_BLANK) {
        found->nonces[from - 1] = hello->nonces[from - 1];
        return;
    }
    found->joins = hello->nonces[options->node - 1] != forming->own_nonce;
    memcpy(found->nonces, hello->nonces, sizeof found->nonces);
    found->cluster_id = header->cluster_id;
    forming->formed = true;
}

/* One for another port of the device is not for a node without shards. */
static void poll_others(struct port *const *ports, uint16_t ports_count)
{
    struct port_packet packets[PORT_BURST_MAX];

    for (uint16_t i = 1; i < ports_count; i++)
        (void)port_rx_burst(ports[i], packets, PORT_BURST_MAX);
}

/* Until the next hello is due, or something may have come. */
static void wait_for_hellos(struct port *peers, uint64_t until_ns)
{
    struct pollfd descriptor = {.fd = port_descriptor(peers), .events = POLLIN};
    uint64_t now_ns = clock_monotonic_ns();

    if (now_ns >= until_ns)
        return;
    if (descriptor.fd < 0)
        (void)poll(NULL, 0, FORMATION_LOOK_MS);
    else if (port_arm(peers))
        (void)poll(&descriptor, 1, (int)((until_ns - now_ns) / MS_NS) + 1);
    port_disarm(peers);
}

static void take_hellos(struct forming *forming)
{
    struct port_packet packets[PORT_BURST_MAX];
    uint32_t count = port_rx_burst(forming->peers, packets, PORT_BURST_MAX);

    for (uint32_t i = 0; i < count && !forming->formed; i++) {
        const struct wire_header *header;
        const struct wire_item *item;

        if (packets[i].truncated ||
            wire_decode_datagram(packets[i].bytes, packets[i].length, WIRE_KIND_PEER, &header,
                                 &item) != WIRE_ACCEPTED ||
            !wire_tag_check(packets[i].bytes, packets[i].length, forming->options->cluster_key))
            continue;
        if (header->sender_node < 1 || header->sender_node > forming->options->members_count)
            continue;
        for (uint16_t k = 0; k < header->item_count; k++, item = wire_item_next(item)) {
            if (item->op == WIRE_PEER_HELLO && wire_judge_peer(item) && !forming->formed)
                heard(forming, header, (const struct wire_hello *)item);
        }
    }
}

/* All nonces known, every one of them from a blank node: the cluster is this set. */
static void form_if_complete(struct forming *forming)
{
    uint16_t count = forming->options->members_count;

    for (uint16_t i = 0; i < count; i++) {
        if (!forming->found->nonces[i])
            return;
    }
    forming->found->cluster_id = formation_cluster_id(forming->found->nonces, count);
    forming->formed = true;
}

static void say_missing(struct forming *forming)
{
    if (!may_say(forming))
        return;
    for (uint16_t i = 0; i < forming->options->members_count; i++) {
        char address[PORT_ADDRESS_TEXT_BYTES];

        if (forming->found->nonces[i])
            continue;
        port_address_format(&forming->options->members[i].peer, address);
        journal_write(JOURNAL_INFO, "waiting_for_node", "node=%u peer=%s", i + 1, address);
    }
}

int formation_run(const struct node_options *options, struct port *const *ports,
                  uint16_t ports_count, uint64_t own_nonce, uint32_t own_epoch,
                  const _Atomic bool *stop, struct formation *formation)
{
    struct forming forming = {
        .options = options,
        .peers = ports[0],
        .found = formation,
        .own_nonce = own_nonce,
        .said_ns = clock_monotonic_ns(),
    };

    memset(formation, 0, sizeof *formation);
    formation->nonces[options->node - 1] = own_nonce;
    formation->epoch_max = own_epoch;
    while (!atomic_load_explicit(stop, memory_order_acquire)) {
        uint64_t next_ns = clock_monotonic_ns() + FORMATION_HELLO_MS * MS_NS;

        for (uint16_t node = 1; node <= options->members_count; node++) {
            if (node != options->node)
                say_hello(&forming, node);
        }
        port_tx_flush(forming.peers);
        /* Having told everybody first, those that still wait can form as well. */
        form_if_complete(&forming);
        if (forming.formed)
            return 0;
        do {
            wait_for_hellos(forming.peers, next_ns);
            poll_others(ports, ports_count);
            take_hellos(&forming);
        } while (port_descriptor(forming.peers) < 0 && clock_monotonic_ns() < next_ns);
        say_missing(&forming);
    }
    return -ECANCELED;
}
