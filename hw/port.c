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

void port_local_address(const struct port *port, struct port_address *address)
{
    *address = port->local;
}

const struct port_counters *port_counters(const struct port *port)
{
    return &port->counters;
}

uint32_t port_rx_burst(struct port *port, struct port_packet *packets, uint32_t max)
{
    return port->kind->rx_burst(port, packets, max);
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
