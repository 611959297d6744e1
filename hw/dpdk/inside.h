/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of hw/dpdk. DPDK's headers are included here alone.
 */
#ifndef BELAY_HW_DPDK_INSIDE_H
#define BELAY_HW_DPDK_INSIDE_H

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "hw/dpdk/dpdk.h"
#include "hw/mailbox.h"
#include "hw/poller.h"
#include "hw/port_inside.h"

enum {
    RX_DESCRIPTORS = 1024,
    TX_DESCRIPTORS = 1024,
    TX_BURST_MAX = 2 * PORT_BURST_MAX,    /* of all ports of a queue, and questions */
    WAITING_MAX = 4 * PORT_BURST_MAX,     /* received by another port's burst */
    HANDED_OVER_MAX = 2 * PORT_BURST_MAX, /* frames under way from one queue to another */
    /* A thread's stock of buffers, last in first out, so that those in use stay in its cache: more
     * than are ever under way to a virtual device. What is beyond it goes round the whole pool. */
    STOCK_BUFFERS = RTE_MEMPOOL_CACHE_MAX_SIZE,
    STOCK_BUFFERS_MAX = STOCK_BUFFERS * 3 / 2, /* before DPDK gives some back */
};

/* A frame on its way from one queue to another. */
struct handed_over {
    struct rte_mbuf *buffer;
    bool overheard; /* a copy of what others get, too */
};

struct waiting {
    struct rte_mbuf *buffer;
    struct net_datagram datagram;
};

struct dpdk_port {
    struct port base;
    struct dpdk_queue *queue;
    uint32_t held_count;  /* of the last burst, as its packets point into them */
    uint32_t spare_count; /* read, and free to be sent */
    struct rte_mbuf *held[PORT_BURST_MAX];
    struct rte_mbuf *spare[PORT_BURST_MAX];
    uint32_t waiting_first, waiting_end; /* counters; places are modulo WAITING_MAX */
    struct waiting waiting[WAITING_MAX];
    struct rte_mbuf *writing; /* by port_tx_buffer, not pushed yet */
    /* When the pool is empty the caller writes here, and what it wrote is dropped. */
    _Alignas(64) uint8_t scratch[PORT_DATAGRAM_BYTES_MAX];
};

/* What one worker has of the device: a queue pair, or, where the device has fewer than there are
 * workers, what others hand over. Its thread alone, but for the mailboxes. */
struct dpdk_queue {
    struct dpdk_device *device;
    struct dpdk_port *ports[DPDK_PORTS_PER_QUEUE];
    uint16_t number;
    bool own;      /* the device has a queue pair for it: `number` */
    int interrupt; /* readable when something came, once enabled; -1 = there is none */
    uint16_t tx_count;
    uint32_t polls;
    uint64_t now_ns;                   /* of some late poll: neighbours are a matter of seconds */
    struct rte_mbuf *tx[TX_BURST_MAX]; /* to be sent by the next flush */
    bool to_sum[TX_BURST_MAX];         /* which of them net_sum() is still to be called for */
    struct poller *sleeper;            /* woken when another hands something over */
    /* By the number of the other; NULL = none. */
    struct mailbox *given[DPDK_QUEUES_MAX];   /* frames that came there and are ours */
    struct mailbox *to_send[DPDK_QUEUES_MAX]; /* frames that leave by our queue pair */
    struct dpdk_counters counters;
    struct net net;
};

struct dpdk_device {
    uint16_t port_id;
    uint16_t queues_count;
    uint16_t pairs_count; /* queue pairs that the device has for them */
    bool tx_checksums;
    bool interrupts; /* each pair has one */
    uint64_t hashes; /* RTE_ETH_RSS_*: what is spread by; 0 = nothing is */
    struct rte_mempool *pool;
    struct rte_eth_dev_info info;
    struct dpdk_queue *queues[DPDK_QUEUES_MAX];
};

/* ---- queue.c --------------------------------------------------------------------------------- */

/* Receives a burst and gives each frame to whom it is for. */
void queue_poll(struct dpdk_queue *queue, struct port_counters *counters);
/* Takes over the buffer, whose frame begins at data_off; `to_sum`: it lacks its checksum. */
void queue_frame(struct dpdk_queue *queue, struct rte_mbuf *buffer, uint32_t length, bool to_sum);
/* Sends what is queued; returns how many were dropped. */
uint32_t queue_flush(struct dpdk_queue *queue);
/* Frees what others have handed over. */
void queue_drain(struct dpdk_queue *queue);
/* The port of this queue with that number; NULL = none. */
struct dpdk_port *queue_port(const struct dpdk_queue *queue, uint16_t number);

#endif
