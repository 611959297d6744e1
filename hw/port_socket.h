/* SPDX-License-Identifier: Apache-2.0
 *
 * Between a port_address and what the socket calls take: for code that speaks TCP or UDP itself.
 */
#ifndef BELAY_HW_PORT_SOCKET_H
#define BELAY_HW_PORT_SOCKET_H

#include <sys/socket.h>

#include "hw/port.h"

bool port_address_is_ipv4(const struct port_address *address);

/* `ipv4`: for a socket of AF_INET, else of AF_INET6 (which takes IPv4-mapped ones too). Returns the
 * length; 0 = an IPv6 address cannot be reached from an AF_INET socket. */
uint32_t port_address_to_socket(const struct port_address *address, bool ipv4,
                                struct sockaddr_storage *storage);

/* False: neither AF_INET nor AF_INET6. */
bool port_address_from_socket(const struct sockaddr_storage *storage, struct port_address *address);

#endif
