/* SPDX-License-Identifier: Apache-2.0
 *
 * See client/core_transport.h.
 */
#include "client/core_transport.h"

#include <assert.h>

static_assert(sizeof(belay_address) == sizeof(struct wire_address), "cast in both directions");
static_assert(offsetof(belay_address, port) == offsetof(struct wire_address, port), "likewise");

uint32_t core_transport_receive(const belay_transport *transport, struct core *core, uint32_t burst,
                                uint64_t (*clock_ns)(void), uint64_t *now_ns)
{
    belay_packet packets[CORE_TRANSPORT_BURST_MAX];

    assert(burst <= CORE_TRANSPORT_BURST_MAX);
    uint32_t count = transport->receive(transport->context, packets, burst);
    *now_ns = clock_ns();
    assert(count <= burst);
    for (uint32_t i = 0; i < count; i++)
        core_receive(core, *now_ns, (const struct wire_address *)&packets[i].from, packets[i].bytes,
                     packets[i].length);
    return count;
}

void core_transport_send(const belay_transport *transport, const struct wire_address *to,
                         const uint8_t *bytes, size_t length)
{
    transport->send(transport->context, (const belay_address *)to, bytes, length);
}
