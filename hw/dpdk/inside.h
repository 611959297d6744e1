/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of hw/dpdk. DPDK's headers are included here alone.
 */
#ifndef BELAY_HW_DPDK_INSIDE_H
#define BELAY_HW_DPDK_INSIDE_H

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "hw/dpdk/dpdk.h"
#include "hw/port_inside.h"

enum {
    RX_DESCRIPTORS = 1024,
    TX_DESCRIPTORS = 1024,
    TX_BURST_MAX = 2 * PORT_BURST_MAX, /* of all ports of a queue, and questions */
};

/* One queue pair. Its thread alone. */
struct dpdk_queue {
    struct dpdk_device *device;
    struct dpdk_port *ports[DPDK_PORTS_PER_QUEUE];
    uint16_t number;
    uint16_t tx_count;
    uint64_t now_ns;                   /* of the last poll: neighbours are a matter of seconds */
    struct rte_mbuf *tx[TX_BURST_MAX]; /* to be sent by the next flush */
    struct net net;
};

struct dpdk_device {
    uint16_t port_id;
    uint16_t queues_count;
    bool tx_checksums;
    struct rte_mempool *pool;
    struct rte_eth_dev_info info;
    struct dpdk_queue *queues[DPDK_QUEUES_MAX];
};

#endif
