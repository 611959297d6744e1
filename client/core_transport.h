/* SPDX-License-Identifier: Apache-2.0
 *
 * The protocol core on a transport of the caller's (belay/belay.h): datagrams in and out.
 */
#ifndef BELAY_CLIENT_CORE_TRANSPORT_H
#define BELAY_CLIENT_CORE_TRANSPORT_H

#include "belay/belay.h"
#include "client/core.h"

enum { CORE_TRANSPORT_BURST_MAX = 64 };

/* Gives the core one burst, of at most `burst` datagrams, at the time that `clock_ns` says after
 * they were received; *now_ns is that time. Returns how many came. */
uint32_t core_transport_receive(const belay_transport *transport, struct core *core, uint32_t burst,
                                uint64_t (*clock_ns)(void), uint64_t *now_ns);

/* What core_sink.send has to do. */
void core_transport_send(const belay_transport *transport, const struct wire_address *to,
                         const uint8_t *bytes, size_t length);

#endif
