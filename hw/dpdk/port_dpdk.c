/* SPDX-License-Identifier: Apache-2.0
 *
 * The datapath of a DPDK queue: frames in bursts, judged in place (hw/net), handed to the port
 * whose UDP port they name; datagrams out as frames built in place.
 *
 * A received buffer is its port's until that port's next burst; then it goes back to the pool. What
 * ARP, neighbour discovery and echo answer is the received frame itself, sent back.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hw/clock.h"
#include "hw/dpdk/inside.h"

enum { WAITING_MAX = 4 * PORT_BURST_MAX /* received by another port's burst */ };
static_assert(RTE_PKTMBUF_HEADROOM >= NET_HEADROOM, "headers fit before a datagram");
static_assert(RTE_PKTMBUF_HEADROOM % 8 == 0, "datagrams are aligned");

struct waiting {
    struct rte_mbuf *buffer;
    struct net_datagram datagram;
};

struct dpdk_port {
    struct port base;
    struct dpdk_queue *queue;
    uint32_t held_count;
    struct rte_mbuf *held[PORT_BURST_MAX]; /* of the last burst */
    uint32_t waiting_first, waiting_end;   /* counters; places are modulo WAITING_MAX */
    struct waiting waiting[WAITING_MAX];
    struct rte_mbuf *writing; /* by port_tx_buffer, not pushed yet */
    /* When the pool is empty the caller writes here, and what it wrote is dropped. */
    _Alignas(64) uint8_t scratch[PORT_DATAGRAM_BYTES_MAX];
};

static struct dpdk_port *dpdk_of(struct port *port)
{
    return (struct dpdk_port *)port; /* its first member */
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Takes over the buffer, whose frame begins at data_off. */
static void queue_frame(struct dpdk_queue *queue, struct rte_mbuf *buffer, uint32_t length)
{
    assert(queue->tx_count < TX_BURST_MAX);
    buffer->data_len = (uint16_t)length;
    buffer->pkt_len = length;
    queue->tx[queue->tx_count++] = buffer;
}

static uint32_t flush(struct dpdk_queue *queue)
{
    uint16_t sent =
        rte_eth_tx_burst(queue->device->port_id, queue->number, queue->tx, queue->tx_count);
    uint32_t dropped = queue->tx_count - sent;
    if (dropped > 0)
        rte_pktmbuf_free_bulk(queue->tx + sent, dropped);
    queue->tx_count = 0;
    return dropped;
}

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
        queue_frame(queue, buffer, length);
    }
}

static void dpdk_tx_flush(struct port *base)
{
    struct dpdk_queue *queue = dpdk_of(base)->queue;
    queue_questions(queue);
    if (queue->tx_count == 0)
        return;
    base->counters.tx_calls++;
    base->counters.tx_dropped += flush(queue);
}

static uint8_t *dpdk_tx_buffer(struct port *base)
{
    struct dpdk_port *port = dpdk_of(base);
    if (port->queue->tx_count >= PORT_BURST_MAX)
        return NULL;
    if (port->writing == NULL)
        port->writing = rte_pktmbuf_alloc(port->queue->device->pool);
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
    uint32_t frame_length = net_send(&port->queue->net, bytes, length, base->local.port, to,
                                     port->queue->now_ns, &frame);
    if (frame_length == 0) { /* counted there; the buffer is simply used again */
        base->counters.tx_errors++;
        return;
    }
    buffer->data_off = (uint16_t)(buffer->data_off - (bytes - frame));
    offload(port->queue->device, buffer, port_ip_is_ipv4(to->ip));
    port->writing = NULL;
    queue_frame(port->queue, buffer, frame_length);
    base->counters.tx_packets++;
    base->counters.tx_bytes += length;
}

/* ---- receiving ------------------------------------------------------------------------------- */

static struct dpdk_port *port_for(const struct dpdk_queue *queue, uint16_t number)
{
    for (int i = 0; i < DPDK_PORTS_PER_QUEUE; i++) {
        if (queue->ports[i] != NULL && queue->ports[i]->base.local.port == number)
            return queue->ports[i];
    }
    return NULL;
}

/* False: nobody waits for it, or too many wait already. */
static bool hand_over(struct dpdk_queue *queue, struct rte_mbuf *buffer,
                      const struct net_datagram *datagram)
{
    struct dpdk_port *port = port_for(queue, datagram->to_port);
    if (port == NULL)
        return false;
    if (port->waiting_end - port->waiting_first == WAITING_MAX) {
        port->base.counters.rx_errors++;
        return false;
    }
    port->waiting[port->waiting_end++ % WAITING_MAX] =
        (struct waiting){.buffer = buffer, .datagram = *datagram};
    return true;
}

static bool is_checked(const struct rte_mbuf *buffer)
{
    const uint64_t good = RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
    const uint64_t mask = RTE_MBUF_F_RX_IP_CKSUM_MASK | RTE_MBUF_F_RX_L4_CKSUM_MASK;
    return (buffer->ol_flags & mask) == good;
}

/* True: an answer is queued. */
static bool take_frame(struct dpdk_queue *queue, struct rte_mbuf *buffer)
{
    uint32_t length = buffer->data_len;
    struct net_datagram datagram;
    enum net_verdict verdict = NET_NOTHING;
    /* No frame that we take is longer than one buffer. */
    if (buffer->nb_segs == 1 && rte_pktmbuf_tailroom(buffer) >= NET_FRAME_BYTES_MIN)
        verdict = net_receive(&queue->net, rte_pktmbuf_mtod(buffer, uint8_t *), &length,
                              is_checked(buffer), queue->now_ns, &datagram);
    if (verdict == NET_DATAGRAM && hand_over(queue, buffer, &datagram))
        return false;
    if (verdict == NET_ANSWER && queue->tx_count < TX_BURST_MAX) {
        buffer->ol_flags = 0;
        queue_frame(queue, buffer, length);
        return true;
    }
    rte_pktmbuf_free(buffer);
    return false;
}

/* What is answered here goes out at once: the caller may have nothing to send. */
static void poll_queue(struct dpdk_queue *queue, struct port_counters *counters)
{
    struct rte_mbuf *buffers[PORT_BURST_MAX];
    uint16_t count =
        rte_eth_rx_burst(queue->device->port_id, queue->number, buffers, PORT_BURST_MAX);
    bool answered = false;
    queue->now_ns = clock_monotonic_ns();
    for (uint16_t i = 0; i < count; i++) {
        if (i + 1 < count)
            rte_prefetch0(rte_pktmbuf_mtod(buffers[i + 1], void *));
        answered |= take_frame(queue, buffers[i]);
    }
    if (answered)
        counters->tx_dropped += flush(queue);
}

static void release_held(struct dpdk_port *port)
{
    if (port->held_count > 0)
        rte_pktmbuf_free_bulk(port->held, port->held_count);
    port->held_count = 0;
}

static uint32_t dpdk_rx_burst(struct port *base, struct port_packet *packets, uint32_t max)
{
    struct dpdk_port *port = dpdk_of(base);
    uint32_t count = 0;
    assert(max <= PORT_BURST_MAX);
    release_held(port);
    base->counters.rx_calls++;
    if (port->waiting_first == port->waiting_end)
        poll_queue(port->queue, &base->counters);
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

/* ---- opening and closing --------------------------------------------------------------------- */

static int dpdk_descriptor(const struct port *base)
{
    (void)base;
    return -1;
}

static void dpdk_port_close(struct port *base)
{
    struct dpdk_port *port = dpdk_of(base);
    struct dpdk_queue *queue = port->queue;
    release_held(port);
    while (port->waiting_first != port->waiting_end)
        rte_pktmbuf_free(port->waiting[port->waiting_first++ % WAITING_MAX].buffer);
    if (port->writing != NULL)
        rte_pktmbuf_free(port->writing);
    (void)flush(queue);
    for (int i = 0; i < DPDK_PORTS_PER_QUEUE; i++) {
        if (queue->ports[i] == port)
            queue->ports[i] = NULL;
    }
    free(port);
}

static const struct port_kind dpdk_kind = {
    .close = dpdk_port_close,
    .rx_burst = dpdk_rx_burst,
    .tx_buffer = dpdk_tx_buffer,
    .tx_push = dpdk_tx_push,
    .tx_flush = dpdk_tx_flush,
    .descriptor = dpdk_descriptor,
};

int port_dpdk_open(struct dpdk_device *device, uint16_t queue_number,
                   const struct port_address *bind, struct port **port)
{
    assert(queue_number < device->queues_count);
    struct dpdk_queue *queue = device->queues[queue_number];
    struct dpdk_port **place = NULL;
    if (port_for(queue, bind->port) != NULL)
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
