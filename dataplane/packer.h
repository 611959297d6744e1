/* SPDX-License-Identifier: Apache-2.0
 *
 * A packer gathers items for the same destination into datagrams: what one turn of a worker says to
 * one client or peer leaves in as few packets as sizes allow. A few destinations are open at once;
 * when another is needed the oldest leaves.
 */
#ifndef BELAY_DATAPLANE_PACKER_H
#define BELAY_DATAPLANE_PACKER_H

#include <stdint.h>

#include "dataplane/wire/wire.h"
#include "hw/port.h"

enum { PACKER_SLOTS = 8 };

struct packer_slot {
    struct wire_address to;
    struct wire_builder builder; /* items == 0: free */
    uint64_t buffer[WIRE_DATAGRAM_BYTES_MAX / 8];
};

struct packer {
    struct port *port;
    enum wire_kind kind;
    uint64_t cluster_id;
    uint16_t node;
    const uint8_t *key;     /* NULL = no tag */
    uint64_t packet_number; /* of the last one sealed */
    uint32_t oldest;        /* round robin */
    struct packer_slot slots[PACKER_SLOTS];
};

void packer_init(struct packer *packer, struct port *port, enum wire_kind kind, uint64_t cluster_id,
                 uint16_t node, const uint8_t *key);

/* Zeroed space for one item (<= WIRE_DATAGRAM_BYTES_MAX - header) to that destination; its length
 * and op are set. Valid until the next call. */
void *packer_add(struct packer *packer, const struct wire_address *to, uint8_t op, size_t bytes);

/* Everything gathered goes to the port's queue (port_tx_flush is the caller's). */
void packer_flush(struct packer *packer);

#endif
