/* SPDX-License-Identifier: Apache-2.0
 *
 * The frames of a queue: in by bursts, judged in place (hw/net), handed to the port or the queue
 * whose they are; out by bursts.
 *
 * What ARP, neighbour discovery and echo answer is the received frame itself, sent back.
 *
 * With several queues a frame may come to the wrong one: the device does not know better (see
 * steer.c), or it was sent before it did. Such a frame is handed over as it came, and judged by its
 * owner. An answer of a neighbour is copied to all, as any of them may have asked.
 */
#include <assert.h>
#include <string.h>

#include "hw/clock.h"
#include "hw/dpdk/inside.h"

enum { POLLS_PER_CLOCK = 64 };

/* ---- sending --------------------------------------------------------------------------------- */

void queue_frame(struct dpdk_queue *queue, struct rte_mbuf *buffer, uint32_t length, bool to_sum)
{
    assert(queue->tx_count < TX_BURST_MAX);
    buffer->data_len = (uint16_t)length;
    buffer->pkt_len = length;
    queue->to_sum[queue->tx_count] = to_sum;
    queue->tx[queue->tx_count++] = buffer;
}

static void wake(const struct dpdk_queue *queue)
{
    if (queue->sleeper != NULL)
        poller_wake(queue->sleeper);
}

/* False: too many are under way. */
static bool post(struct mailbox *mailbox, struct rte_mbuf *buffer, bool overheard)
{
    struct handed_over *handed_over = mailbox_claim(mailbox);
    if (handed_over == NULL)
        return false;
    *handed_over = (struct handed_over){.buffer = buffer, .overheard = overheard};
    mailbox_publish(mailbox);
    return true;
}

/* By another's queue pair, because the device has too few. */
static uint16_t send_through(struct dpdk_queue *queue)
{
    struct dpdk_queue *through = queue->device->queues[queue->number % queue->device->pairs_count];
    uint16_t sent = 0;
    while (sent < queue->tx_count && post(through->to_send[queue->number], queue->tx[sent], false))
        sent++;
    wake(through);
    return sent;
}

/* All at the end: a frame's bytes lie in the write buffer right after they were written, in pieces,
 * and whoever reads them there waits until all of them have reached the cache. */
static void sum_frames(const struct dpdk_queue *queue)
{
    for (uint16_t i = 0; i < queue->tx_count; i++) {
        if (queue->to_sum[i])
            net_sum(rte_pktmbuf_mtod(queue->tx[i], uint8_t *));
    }
}

uint32_t queue_flush(struct dpdk_queue *queue)
{
    if (queue->tx_count == 0)
        return 0;
    sum_frames(queue);
    uint16_t sent = queue->own ? rte_eth_tx_burst(queue->device->port_id, queue->number, queue->tx,
                                                  queue->tx_count)
                               : send_through(queue);
    uint32_t dropped = queue->tx_count - sent;
    if (dropped > 0)
        rte_pktmbuf_free_bulk(queue->tx + sent, dropped);
    queue->tx_count = 0;
    return dropped;
}

static void send_for_others(struct dpdk_queue *queue)
{
    struct rte_mbuf *frames[PORT_BURST_MAX];
    for (uint16_t from = 0; from < queue->device->queues_count; from++) {
        if (queue->to_send[from] == NULL)
            continue;
        const struct handed_over *handed_over;
        uint16_t count = 0;
        while (count < PORT_BURST_MAX &&
               (handed_over = mailbox_peek(queue->to_send[from])) != NULL) {
            frames[count++] = handed_over->buffer;
            mailbox_drop(queue->to_send[from]);
        }
        if (count == 0)
            continue;
        uint16_t sent = rte_eth_tx_burst(queue->device->port_id, queue->number, frames, count);
        if (sent < count)
            rte_pktmbuf_free_bulk(frames + sent, count - sent);
        queue->counters.sent_for_others += sent;
        queue->counters.sent_for_others_dropped += (uint64_t)(count - sent);
    }
}

/* ---- receiving ------------------------------------------------------------------------------- */

struct dpdk_port *queue_port(const struct dpdk_queue *queue, uint16_t number)
{
    for (int i = 0; i < DPDK_PORTS_PER_QUEUE; i++) {
        if (queue->ports[i] != NULL && queue->ports[i]->base.local.port == number)
            return queue->ports[i];
    }
    return NULL;
}

/* False: nobody waits for it, or too many wait already. */
static bool give_to_port(struct dpdk_queue *queue, struct rte_mbuf *buffer,
                         const struct net_datagram *datagram)
{
    struct dpdk_port *port = queue_port(queue, datagram->to_port);
    if (port == NULL) {
        queue->counters.no_port++;
        return false;
    }
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
    enum net_verdict verdict = net_receive(&queue->net, rte_pktmbuf_mtod(buffer, uint8_t *),
                                           &length, is_checked(buffer), queue->now_ns, &datagram);
    if (verdict == NET_DATAGRAM && give_to_port(queue, buffer, &datagram))
        return false;
    if (verdict == NET_ANSWER && queue->tx_count < TX_BURST_MAX) {
        buffer->ol_flags = 0;
        queue_frame(queue, buffer, length, false);
        return true;
    }
    rte_pktmbuf_free(buffer);
    return false;
}

/* ---- between queues -------------------------------------------------------------------------- */

/* Takes over the buffer. */
static void hand_over(struct dpdk_queue *queue, struct dpdk_queue *to, struct rte_mbuf *buffer,
                      bool overheard)
{
    if (!post(to->given[queue->number], buffer, overheard)) {
        rte_pktmbuf_free(buffer);
        queue->counters.handed_over_dropped++;
        return;
    }
    queue->counters.handed_over++;
    wake(to);
}

static void tell_all(struct dpdk_queue *queue, struct rte_mbuf *buffer)
{
    for (uint16_t i = 0; i < queue->device->queues_count; i++) {
        struct rte_mbuf *copy =
            i == queue->number ? NULL
                               : rte_pktmbuf_copy(buffer, queue->device->pool, 0, buffer->data_len);
        if (copy != NULL)
            hand_over(queue, queue->device->queues[i], copy, true);
    }
}

static void overhear(struct dpdk_queue *queue, struct rte_mbuf *buffer)
{
    net_overhear(&queue->net, rte_pktmbuf_mtod(buffer, uint8_t *), buffer->data_len, queue->now_ns);
    rte_pktmbuf_free(buffer);
}

static struct dpdk_queue *owner_of(const struct dpdk_queue *queue, uint16_t to_port)
{
    const struct dpdk_device *device = queue->device;
    for (uint16_t i = 0; i < device->queues_count; i++) {
        if (i != queue->number && queue_port(device->queues[i], to_port) != NULL)
            return device->queues[i];
    }
    return NULL;
}

/* True: it is somebody else's, or everybody's, and has been taken care of. */
static bool is_not_for_us_alone(struct dpdk_queue *queue, struct rte_mbuf *buffer)
{
    uint16_t to_port;
    switch (net_look(rte_pktmbuf_mtod(buffer, uint8_t *), buffer->data_len, &to_port)) {
    case NET_LOOK_DATAGRAM:
        if (queue_port(queue, to_port) != NULL)
            return false;
        struct dpdk_queue *owner = owner_of(queue, to_port);
        if (owner != NULL)
            hand_over(queue, owner, buffer, false);
        return owner != NULL;
    case NET_LOOK_NEIGHBOUR_ANSWER:
        tell_all(queue, buffer);
        overhear(queue, buffer);
        return true;
    case NET_LOOK_OTHER:
        break;
    }
    return false;
}

static bool take_given(struct dpdk_queue *queue)
{
    bool answered = false;
    for (uint16_t from = 0; from < queue->device->queues_count; from++) {
        const struct handed_over *given;
        for (int i = 0; i < PORT_BURST_MAX && from != queue->number &&
                        (given = mailbox_peek(queue->given[from])) != NULL;
             i++) {
            if (given->overheard)
                overhear(queue, given->buffer);
            else
                answered |= take_frame(queue, given->buffer);
            mailbox_drop(queue->given[from]);
        }
    }
    return answered;
}

static void drain(struct mailbox *mailbox)
{
    const struct handed_over *handed_over;
    while (mailbox != NULL && (handed_over = mailbox_peek(mailbox)) != NULL) {
        rte_pktmbuf_free(handed_over->buffer);
        mailbox_drop(mailbox);
    }
}

void queue_drain(struct dpdk_queue *queue)
{
    for (uint16_t from = 0; from < DPDK_QUEUES_MAX; from++) {
        drain(queue->given[from]);
        drain(queue->to_send[from]);
    }
}

/* ---- polling --------------------------------------------------------------------------------- */

/* No frame that we take is longer than one buffer. */
static bool is_sound(const struct rte_mbuf *buffer)
{
    return buffer->nb_segs == 1 && rte_pktmbuf_tailroom(buffer) >= NET_FRAME_BYTES_MIN;
}

static bool take_burst(struct dpdk_queue *queue)
{
    struct rte_mbuf *buffers[PORT_BURST_MAX];
    bool several = queue->device->queues_count > 1, answered = false;
    uint16_t count =
        rte_eth_rx_burst(queue->device->port_id, queue->number, buffers, PORT_BURST_MAX);
    if (count == 0)
        return false;
    queue->now_ns = clock_monotonic_ns();
    for (uint16_t i = 0; i < count; i++) {
        if (i + 1 < count)
            rte_prefetch0(rte_pktmbuf_mtod(buffers[i + 1], void *));
        if (!is_sound(buffers[i])) {
            queue->counters.oversized++;
            rte_pktmbuf_free(buffers[i]);
        } else if (!several || !is_not_for_us_alone(queue, buffers[i])) {
            answered |= take_frame(queue, buffers[i]);
        }
    }
    return answered;
}

/* What is answered here goes out at once: the caller may have nothing to send. */
void queue_poll(struct dpdk_queue *queue, struct port_counters *counters)
{
    bool answered = false;
    if (queue->polls++ % POLLS_PER_CLOCK == 0) /* neighbours grow old, too, when nothing comes */
        queue->now_ns = clock_monotonic_ns();
    if (queue->own)
        answered = take_burst(queue);
    if (queue->device->queues_count > 1) {
        answered |= take_given(queue);
        send_for_others(queue);
    }
    if (answered)
        counters->tx_dropped += queue_flush(queue);
}
