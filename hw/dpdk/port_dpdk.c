/* SPDX-License-Identifier: Apache-2.0
 *
 * Ports on a queue (hw/port.h): datagrams of one UDP port out of what queue.c has received, and
 * datagrams out as frames built in place.
 *
 * A received buffer is its port's until that port's next burst, or until the caller has read it
 * (port_rx_done): then it is among the first that are written into, as it is in the cache, and what
 * is not used goes back to the pool with the next burst.
 */
#include <assert.h>
#include <errno.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hw/clock.h"
#include "hw/dpdk/inside.h"

static_assert(RTE_PKTMBUF_HEADROOM >= NET_HEADROOM, "headers fit before a datagram");
static_assert(RTE_PKTMBUF_HEADROOM % 8 == 0, "datagrams are aligned");

enum {
    SPARE_BURST = 16, /* buffers asked of the pool at once */
    PREFETCH_AHEAD = 3,
};

static struct dpdk_port *dpdk_of(struct port *port)
{
    return (struct dpdk_port *)port; /* its first member */
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Who is asked for goes along with what is sent. */
static void queue_questions(struct dpdk_queue *queue)
{
    while (queue->net.questions_first != queue->net.questions_end &&
           queue->tx_count < TX_BURST_MAX) {
        struct rte_mbuf *buffer = rte_pktmbuf_alloc(queue->device->pool);
        if (buffer == NULL)
            return;
        uint32_t length = net_question(&queue->net, rte_pktmbuf_mtod(buffer, uint8_t *));
        if (length == 0) {
            rte_pktmbuf_free(buffer);
            return;
        }
        queue_frame(queue, buffer, length, false);
    }
}

static void dpdk_tx_flush(struct port *base)
{
    struct dpdk_queue *queue = dpdk_of(base)->queue;
    queue_questions(queue);
    if (queue->tx_count == 0)
        return;
    base->counters.tx_calls++;
    base->counters.tx_dropped += queue_flush(queue);
}

/* To be written: compilers ask for it in vain unless they are told that the processor can. */
static inline void prefetch_to_write(const uint8_t *line)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*line));
#else
    __builtin_prefetch(line, 1);
#endif
}

/* Where a frame with one request will lie: the peer of a virtual device has read what was there
 * before, and writing waits until its cache has let go. */
static void prefetch_frame(const struct rte_mbuf *buffer)
{
    const uint8_t *bytes = (const uint8_t *)buffer->buf_addr + RTE_PKTMBUF_HEADROOM;
    for (int line = -1; line <= 2; line++)
        prefetch_to_write(bytes + line * RTE_CACHE_LINE_SIZE);
}

static struct rte_mbuf *take_buffer(struct dpdk_port *port)
{
    if (port->spare_count == 0) {
        if (rte_pktmbuf_alloc_bulk(port->queue->device->pool, port->spare, SPARE_BURST) != 0)
            return rte_pktmbuf_alloc(port->queue->device->pool);
        port->spare_count = SPARE_BURST;
    }
    struct rte_mbuf *buffer = port->spare[--port->spare_count];
    if (port->spare_count >= PREFETCH_AHEAD)
        prefetch_frame(port->spare[port->spare_count - PREFETCH_AHEAD]);
    rte_pktmbuf_reset(buffer);
    return buffer;
}

static uint8_t *dpdk_tx_buffer(struct port *base)
{
    struct dpdk_port *port = dpdk_of(base);
    if (port->queue->tx_count >= PORT_BURST_MAX)
        return NULL;
    if (port->writing == NULL)
        port->writing = take_buffer(port);
    return port->writing == NULL ? port->scratch : rte_pktmbuf_mtod(port->writing, uint8_t *);
}

static void offload(const struct dpdk_device *device, struct rte_mbuf *buffer, bool ipv4)
{
    if (!device->tx_checksums)
        return;
    buffer->l2_len = RTE_ETHER_HDR_LEN;
    buffer->l3_len = ipv4 ? sizeof(struct rte_ipv4_hdr) : sizeof(struct rte_ipv6_hdr);
    buffer->ol_flags |= RTE_MBUF_F_TX_UDP_CKSUM |
                        (ipv4 ? RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM : RTE_MBUF_F_TX_IPV6);
}

static void dpdk_tx_push(struct port *base, uint32_t length, const struct port_address *to)
{
    struct dpdk_port *port = dpdk_of(base);
    struct rte_mbuf *buffer = port->writing;
    uint8_t *frame;
    if (buffer == NULL) {
        base->counters.tx_dropped++;
        return;
    }
    uint8_t *bytes = rte_pktmbuf_mtod(buffer, uint8_t *);
    uint32_t frame_length = net_send_unsummed(&port->queue->net, bytes, length, base->local.port,
                                              to, port->queue->now_ns, &frame);
    if (frame_length == 0) { /* counted there; the buffer is simply used again */
        base->counters.tx_errors++;
        return;
    }
    buffer->data_off = (uint16_t)(buffer->data_off - (bytes - frame));
    offload(port->queue->device, buffer, port_ip_is_ipv4(to->ip));
    port->writing = NULL;
    queue_frame(port->queue, buffer, frame_length, !port->queue->device->tx_checksums);
    base->counters.tx_packets++;
    base->counters.tx_bytes += length;
}

/* ---- receiving ------------------------------------------------------------------------------- */

static void free_all(struct rte_mbuf **buffers, uint32_t *count)
{
    if (*count > 0)
        rte_pktmbuf_free_bulk(buffers, *count);
    *count = 0;
}

/* One of the pool's own, whole, with room for any datagram, and nobody else's. */
static bool may_be_sent(const struct rte_mbuf *buffer)
{
    return RTE_MBUF_DIRECT(buffer) && rte_mbuf_refcnt_read(buffer) == 1 && buffer->next == NULL &&
           buffer->buf_len >= RTE_MBUF_DEFAULT_BUF_SIZE;
}

static void dpdk_rx_done(struct port *base)
{
    struct dpdk_port *port = dpdk_of(base);
    free_all(port->spare, &port->spare_count);
    for (uint32_t i = 0; i < port->held_count; i++) {
        if (may_be_sent(port->held[i]))
            port->spare[port->spare_count++] = port->held[i];
        else
            rte_pktmbuf_free(port->held[i]);
    }
    port->held_count = 0;
}

static uint32_t dpdk_rx_burst(struct port *base, struct port_packet *packets, uint32_t max)
{
    struct dpdk_port *port = dpdk_of(base);
    uint32_t count = 0;
    assert(max <= PORT_BURST_MAX);
    free_all(port->held, &port->held_count);
    free_all(port->spare, &port->spare_count);
    base->counters.rx_calls++;
    if (port->waiting_first == port->waiting_end)
        queue_poll(port->queue, &base->counters);
    for (; count < max && port->waiting_first != port->waiting_end; count++) {
        struct waiting *waiting = &port->waiting[port->waiting_first++ % WAITING_MAX];
        bool truncated = waiting->datagram.length > PORT_DATAGRAM_BYTES_MAX;
        port->held[port->held_count++] = waiting->buffer;
        packets[count] = (struct port_packet){
            .bytes = waiting->datagram.bytes,
            .length = truncated ? PORT_DATAGRAM_BYTES_MAX : waiting->datagram.length,
            .truncated = truncated,
            .from = waiting->datagram.from,
        };
        base->counters.rx_bytes += packets[count].length;
    }
    base->counters.rx_packets += count;
    return count;
}

/* ---- sleeping -------------------------------------------------------------------------------- */

static int dpdk_descriptor(const struct port *base)
{
    const struct dpdk_queue *queue = ((const struct dpdk_port *)base)->queue;
    if (!queue->own)
        return PORT_WAKES_POLLER;
    return queue->interrupt >= 0 ? queue->interrupt : PORT_LOOK_AGAIN;
}

static void dpdk_wakes(struct port *base, struct poller *poller)
{
    dpdk_of(base)->queue->sleeper = poller;
}

/* What came before the interrupt was enabled raised none: so look once more. */
static bool dpdk_arm(struct port *base)
{
    const struct dpdk_port *port = dpdk_of(base);
    struct dpdk_queue *queue = port->queue;
    if (queue->interrupt < 0)
        return true;
    (void)rte_eth_dev_rx_intr_enable(queue->device->port_id, queue->number);
    queue_poll(queue, &base->counters);
    return port->waiting_first == port->waiting_end;
}

static void dpdk_disarm(struct port *base)
{
    const struct dpdk_queue *queue = dpdk_of(base)->queue;
    uint64_t count;
    if (queue->interrupt < 0)
        return;
    (void)rte_eth_dev_rx_intr_disable(queue->device->port_id, queue->number);
    (void)!read(queue->interrupt, &count, sizeof count); /* non-blocking */
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* The thread's stock is filled once and given back: its memory is touched now and not later. */
static void touch_stock(struct rte_mempool *pool)
{
    struct rte_mbuf *buffers[STOCK_BUFFERS_MAX];
    uint32_t count = 0;
    while (count < STOCK_BUFFERS_MAX &&
           rte_pktmbuf_alloc_bulk(pool, buffers + count, PORT_BURST_MAX) == 0)
        count += PORT_BURST_MAX;
    free_all(buffers, &count);
}
static_assert(STOCK_BUFFERS_MAX % PORT_BURST_MAX == 0, "whole bursts");

static int dpdk_thread_begin(struct port *base)
{
    if (rte_lcore_id() == LCORE_ID_ANY && rte_thread_register() != 0)
        return -rte_errno;
    touch_stock(dpdk_of(base)->queue->device->pool);
    return 0;
}

/* For all ports of the thread: a second time it does nothing. */
static void dpdk_thread_end(struct port *base)
{
    (void)base;
    rte_thread_unregister();
}

static void dpdk_port_close(struct port *base)
{
    struct dpdk_port *port = dpdk_of(base);
    struct dpdk_queue *queue = port->queue;
    free_all(port->held, &port->held_count);
    free_all(port->spare, &port->spare_count);
    while (port->waiting_first != port->waiting_end)
        rte_pktmbuf_free(port->waiting[port->waiting_first++ % WAITING_MAX].buffer);
    if (port->writing != NULL)
        rte_pktmbuf_free(port->writing);
    (void)queue_flush(queue);
    bool last = true;
    for (int i = 0; i < DPDK_PORTS_PER_QUEUE; i++) {
        if (queue->ports[i] == port)
            queue->ports[i] = NULL;
        last &= queue->ports[i] == NULL;
    }
    if (last)
        queue_drain(queue);
    free(port);
}

static void dpdk_queue_counters(const struct port *port, const struct net_counters **net,
                                const struct dpdk_counters **queue)
{
    const struct dpdk_queue *own = ((const struct dpdk_port *)port)->queue;
    *net = &own->net.counters;
    *queue = &own->counters;
}

static const struct port_kind dpdk_kind = {
    .close = dpdk_port_close,
    .rx_burst = dpdk_rx_burst,
    .rx_done = dpdk_rx_done,
    .tx_buffer = dpdk_tx_buffer,
    .tx_push = dpdk_tx_push,
    .tx_flush = dpdk_tx_flush,
    .descriptor = dpdk_descriptor,
    .wakes = dpdk_wakes,
    .arm = dpdk_arm,
    .disarm = dpdk_disarm,
    .thread_begin = dpdk_thread_begin,
    .thread_end = dpdk_thread_end,
    .queue_counters = dpdk_queue_counters,
};

int port_dpdk_open(struct dpdk_device *device, uint16_t queue_number,
                   const struct port_address *bind, struct port **port)
{
    assert(queue_number < device->queues_count);
    struct dpdk_queue *queue = device->queues[queue_number];
    struct dpdk_port **place = NULL;
    if (queue_port(queue, bind->port) != NULL)
        return -EADDRINUSE;
    for (int i = 0; i < DPDK_PORTS_PER_QUEUE && place == NULL; i++) {
        if (queue->ports[i] == NULL)
            place = &queue->ports[i];
    }
    if (place == NULL)
        return -ENOSPC;
    struct dpdk_port *opened = aligned_alloc(64, (sizeof *opened + 63) / 64 * 64);
    if (opened == NULL)
        return -ENOMEM;
    memset(opened, 0, sizeof *opened);
    opened->base.kind = &dpdk_kind;
    opened->base.local = *bind;
    opened->queue = queue;
    queue->now_ns = clock_monotonic_ns();
    *place = opened;
    *port = &opened->base;
    return 0;
}
