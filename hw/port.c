/* SPDX-License-Identifier: Apache-2.0
 *
 * From a port to its implementation: see hw/port.h.
 */
#include "hw/port_inside.h"

#include <stddef.h>

void port_close(struct port *port)
{
    if (port != NULL)
        port->kind->close(port);
}

int port_thread_begin(struct port *port)
{
    return port->kind->thread_begin == NULL ? 0 : port->kind->thread_begin(port);
}

void port_thread_end(struct port *port)
{
    if (port->kind->thread_end != NULL)
        port->kind->thread_end(port);
}

void port_local_address(const struct port *port, struct port_address *address)
{
    *address = port->local;
}

const struct port_counters *port_counters(const struct port *port)
{
    return &port->counters;
}

bool port_queue_counters(const struct port *port, const struct net_counters **net,
                         const struct dpdk_counters **queue)
{
    if (port->kind->queue_counters == NULL)
        return false;
    port->kind->queue_counters(port, net, queue);
    return true;
}

uint32_t port_rx_burst(struct port *port, struct port_packet *packets, uint32_t max)
{
    return port->kind->rx_burst(port, packets, max);
}

void port_rx_done(struct port *port)
{
    if (port->kind->rx_done != NULL)
        port->kind->rx_done(port);
}

uint8_t *port_tx_buffer(struct port *port)
{
    return port->kind->tx_buffer(port);
}

void port_tx_push(struct port *port, uint32_t length, const struct port_address *to)
{
    port->kind->tx_push(port, length, to);
}

void port_tx_flush(struct port *port)
{
    port->kind->tx_flush(port);
}

int port_descriptor(const struct port *port)
{
    return port->kind->descriptor(port);
}

bool port_arm(struct port *port)
{
    return port->kind->arm == NULL || port->kind->arm(port);
}

void port_disarm(struct port *port)
{
    if (port->kind->disarm != NULL)
        port->kind->disarm(port);
}

void port_wakes(struct port *port, struct poller *poller)
{
    if (port->kind->wakes != NULL)
        port->kind->wakes(port, poller);
}
