/* SPDX-License-Identifier: Apache-2.0
 *
 * What every implementation of hw/port.h has: a struct port as its first member.
 */
#ifndef BELAY_HW_PORT_INSIDE_H
#define BELAY_HW_PORT_INSIDE_H

#include "hw/port.h"

/* Each as its namesake in port.h. */
struct port_kind {
    void (*close)(struct port *port);
    uint32_t (*rx_burst)(struct port *port, struct port_packet *packets, uint32_t max);
    uint8_t *(*tx_buffer)(struct port *port);
    void (*tx_push)(struct port *port, uint32_t length, const struct port_address *to);
    void (*tx_flush)(struct port *port);
    int (*descriptor)(const struct port *port);
    /* NULL: there is nothing to do. */
    int (*thread_begin)(struct port *port);
    void (*thread_end)(struct port *port);
    void (*rx_done)(struct port *port);
    bool (*arm)(struct port *port);
    void (*disarm)(struct port *port);
    void (*wakes)(struct port *port, struct poller *poller);
    void (*queue_counters)(const struct port *port, const struct net_counters **net,
                           const struct dpdk_counters **queue);
};

struct port {
    const struct port_kind *kind;
    struct port_address local;
    struct port_counters counters;
};

#endif
