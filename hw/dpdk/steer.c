/* SPDX-License-Identifier: Apache-2.0
 *
 * Which queue a datagram comes to: the one of its UDP port, by flow rules (rte_flow), if the device
 * has them. What comes elsewhere is handed over by queue.c, so no rule is needed to be right.
 */
#include <rte_flow.h>
#include <string.h>

#include "hw/dpdk/inside.h"

static bool steer(const struct dpdk_device *device, uint16_t queue, uint16_t udp_port,
                  enum rte_flow_item_type family)
{
    const struct rte_flow_attr attributes = {.ingress = 1};
    const struct rte_flow_item_udp udp = {.hdr.dst_port = rte_cpu_to_be_16(udp_port)};
    const struct rte_flow_item_udp mask = {.hdr.dst_port = UINT16_MAX};
    const struct rte_flow_item pattern[] = {
        {.type = RTE_FLOW_ITEM_TYPE_ETH},
        {.type = family},
        {.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &udp, .mask = &mask},
        {.type = RTE_FLOW_ITEM_TYPE_END},
    };
    const struct rte_flow_action_queue to = {.index = queue};
    const struct rte_flow_action actions[] = {
        {.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &to},
        {.type = RTE_FLOW_ACTION_TYPE_END},
    };
    struct rte_flow_error error;
    return rte_flow_create(device->port_id, &attributes, pattern, actions, &error) != NULL;
}

static bool steer_port(const struct dpdk_device *device, const struct dpdk_port *port)
{
    const struct net_options *net = &port->queue->net.options;
    static const uint8_t none[16];
    uint16_t queue = (uint16_t)(port->queue->number % device->pairs_count);
    uint16_t number = port->base.local.port;
    bool ipv4 = memcmp(net->ipv4, none, 4) != 0, ipv6 = memcmp(net->ipv6, none, 16) != 0;
    return (!ipv4 || steer(device, queue, number, RTE_FLOW_ITEM_TYPE_IPV4)) &&
           (!ipv6 || steer(device, queue, number, RTE_FLOW_ITEM_TYPE_IPV6));
}

enum dpdk_steering dpdk_steer(const struct dpdk_device *device)
{
    bool flows = device->pairs_count > 1;
    for (uint16_t i = 0; i < device->queues_count; i++) {
        for (int k = 0; k < DPDK_PORTS_PER_QUEUE && flows; k++) {
            const struct dpdk_port *port = device->queues[i]->ports[k];
            flows = port == NULL || steer_port(device, port);
        }
    }
    if (device->queues_count == 1)
        return DPDK_STEER_ALONE;
    if (flows)
        return DPDK_STEER_FLOWS;
    return device->hashes != 0 ? DPDK_STEER_HASH : DPDK_STEER_HAND_OVER;
}
