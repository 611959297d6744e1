/* SPDX-License-Identifier: Apache-2.0 */
#include "dataplane/packer.h"

#include <assert.h>
#include <string.h>

static_assert(sizeof(struct wire_address) == sizeof(struct port_address),
              "addresses on the wire and at the port have one layout");

void packer_init(struct packer *packer, struct port *port, enum wire_kind kind, uint64_t cluster_id,
                 uint16_t node, const uint8_t *key)
{
    memset(packer, 0, sizeof *packer);
    packer->port = port;
    packer->kind = kind;
    packer->cluster_id = cluster_id;
    packer->node = node;
    packer->key = key;
}

static void send(struct packer *packer, struct packer_slot *slot)
{
    uint8_t *datagram = (uint8_t *)slot->buffer;
    struct wire_header *header = (struct wire_header *)datagram;
    struct port_address to;
    size_t bytes = wire_builder_finish(&slot->builder);
    uint8_t *out;

    if (packer->key) {
        header->packet_number = ++packer->packet_number;
        wire_tag_seal(datagram, bytes, packer->key);
    }
    out = port_tx_buffer(packer->port);
    if (!out) {
        port_tx_flush(packer->port);
        out = port_tx_buffer(packer->port);
    }
    memcpy(out, datagram, bytes);
    memcpy(&to, &slot->to, sizeof to);
    port_tx_push(packer->port, (uint32_t)bytes, &to);
    slot->builder.items = 0;
}

static struct packer_slot *slot_for(struct packer *packer, const struct wire_address *to)
{
    struct packer_slot *slot;

    for (int i = 0; i < PACKER_SLOTS; i++) {
        slot = &packer->slots[i];
        if (slot->builder.items && memcmp(&slot->to, to, sizeof *to) == 0)
            return slot;
    }
    for (int i = 0; i < PACKER_SLOTS; i++) {
        slot = &packer->slots[i];
        if (!slot->builder.items)
            goto found;
    }
    slot = &packer->slots[packer->oldest++ % PACKER_SLOTS];
    send(packer, slot);
found:
    slot->to = *to;
    wire_builder_start(&slot->builder, (uint8_t *)slot->buffer, sizeof slot->buffer, packer->kind,
                       packer->cluster_id, packer->node);
    return slot;
}

void *packer_add(struct packer *packer, const struct wire_address *to, uint8_t op, size_t bytes)
{
    struct packer_slot *slot = slot_for(packer, to);
    void *item = wire_builder_add(&slot->builder, op, bytes);

    if (!item) {
        send(packer, slot);
        slot = slot_for(packer, to);
        item = wire_builder_add(&slot->builder, op, bytes);
    }
    assert(item); /* no item is longer than a datagram */
    return item;
}

void packer_flush(struct packer *packer)
{
    for (int i = 0; i < PACKER_SLOTS; i++) {
        if (packer->slots[i].builder.items)
            send(packer, &packer->slots[i]);
    }
}
