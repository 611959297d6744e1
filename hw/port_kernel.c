/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel's UDP as a port: one non-blocking socket, datagrams in bursts by recvmmsg and
 * sendmmsg, all buffers and headers laid out once. See hw/port.h.
 */
#include "hw/port.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "hw/port_inside.h"
#include "hw/port_socket.h"

enum { BUFFER_BYTES = 1536 }; /* whole cache lines */
static_assert(BUFFER_BYTES >= (int)PORT_DATAGRAM_BYTES_MAX && BUFFER_BYTES % 64 == 0, "buffer");

/* One direction's burst. messages[i] always points at vectors[i], addresses[i] and buffers[i]. */
struct port_burst {
    struct mmsghdr messages[PORT_BURST_MAX];
    struct iovec vectors[PORT_BURST_MAX];
    struct sockaddr_storage addresses[PORT_BURST_MAX];
    alignas(64) uint8_t buffers[PORT_BURST_MAX][BUFFER_BYTES];
};

/* Datagrams of one flush that follow each other to one destination with equal lengths (the last may
 * be shorter) go down the stack as one (UDP_SEGMENT) and are cut apart at its end: that is where
 * most of a small datagram's cost lies. */
struct port_segments {
    struct mmsghdr messages[PORT_BURST_MAX];
    uint32_t counts[PORT_BURST_MAX]; /* datagrams in each */
    struct {
        alignas(struct cmsghdr) uint8_t bytes[CMSG_SPACE(sizeof(uint16_t))];
    } controls[PORT_BURST_MAX];
};

struct kernel_port {
    struct port base;
    int descriptor;
    bool segmentation;  /* the kernel takes UDP_SEGMENT, as far as is known */
    bool ipv4;          /* the socket is AF_INET */
    uint32_t tx_queued; /* messages[0..tx_queued) of tx wait for the flush; <= PORT_BURST_MAX */
    uint32_t rx_used;   /* headers of rx that the last receive call changed */
    struct port_burst rx;
    struct port_burst tx;
    struct port_segments segments;
};

static struct kernel_port *kernel_of(struct port *port)
{
    return (struct kernel_port *)port; /* its first member */
}

/* ---- opening --------------------------------------------------------------------------------- */

static int set_option(int descriptor, int level, int name, int value)
{
    return setsockopt(descriptor, level, name, &value, sizeof value) < 0 ? -errno : 0;
}

/* DF on every datagram and no belief in path MTUs that strangers' ICMP messages claim: we keep
 * below every path's MTU ourselves, and a fragment lost is a datagram lost. */
static int forbid_fragments(int descriptor, bool ipv4)
{
    if (ipv4)
        return set_option(descriptor, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
    int result = set_option(descriptor, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
    if (result == 0) /* the IPv4-mapped half of a dual-stack socket */
        (void)set_option(descriptor, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
    return result;
}

static int configure(struct kernel_port *port, const struct port_kernel_options *options)
{
    int descriptor = port->descriptor;
    int result = 0;
    if (!port->ipv4)
        result = set_option(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (result == 0)
        result = forbid_fragments(descriptor, port->ipv4);
    if (result == 0 && options->reuse_port)
        result = set_option(descriptor, SOL_SOCKET, SO_REUSEPORT, 1);
    if (result == 0 && options->socket_buffer_bytes > 0) {
        int bytes = options->socket_buffer_bytes > INT32_MAX / 2
                        ? INT32_MAX / 2
                        : (int)options->socket_buffer_bytes;
        /* Beyond net.core.?mem_max only root may go; others get as much as they may have. */
        if (set_option(descriptor, SOL_SOCKET, SO_RCVBUFFORCE, bytes) < 0)
            result = set_option(descriptor, SOL_SOCKET, SO_RCVBUF, bytes);
        if (result == 0 && set_option(descriptor, SOL_SOCKET, SO_SNDBUFFORCE, bytes) < 0)
            result = set_option(descriptor, SOL_SOCKET, SO_SNDBUF, bytes);
    }
    return result;
}

static int bind_to(struct kernel_port *port, const struct port_address *address)
{
    struct sockaddr_storage storage = {0};
    socklen_t length = port_address_to_socket(address, port->ipv4, &storage);
    if (bind(port->descriptor, (struct sockaddr *)&storage, length) < 0)
        return -errno;
    length = sizeof storage;
    if (getsockname(port->descriptor, (struct sockaddr *)&storage, &length) < 0)
        return -errno;
    return port_address_from_socket(&storage, &port->base.local) ? 0 : -EAFNOSUPPORT;
}

static void lay_out(struct port_burst *burst, size_t vector_bytes)
{
    for (uint32_t i = 0; i < PORT_BURST_MAX; i++) {
        burst->vectors[i] = (struct iovec){.iov_base = burst->buffers[i], .iov_len = vector_bytes};
        burst->messages[i].msg_hdr = (struct msghdr){.msg_iov = &burst->vectors[i],
                                                     .msg_iovlen = 1,
                                                     .msg_name = &burst->addresses[i],
                                                     .msg_namelen = sizeof burst->addresses[i]};
    }
}

static const struct port_kind kernel_kind;

int port_kernel_open(const struct port_kernel_options *options, struct port **port)
{
    struct kernel_port *opened = aligned_alloc(alignof(struct kernel_port), sizeof *opened);
    if (opened == NULL)
        return -ENOMEM;
    memset(opened, 0, sizeof *opened); /* also brings the pages in, before anybody is in a hurry */
    opened->base.kind = &kernel_kind;
    opened->ipv4 = port_address_is_ipv4(&options->bind);
    lay_out(&opened->rx, PORT_DATAGRAM_BYTES_MAX);
    lay_out(&opened->tx, 0);
    opened->descriptor =
        socket(opened->ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int result = opened->descriptor < 0 ? -errno : configure(opened, options);
    if (result == 0)
        result = bind_to(opened, &options->bind);
    opened->segmentation =
        result == 0 && set_option(opened->descriptor, SOL_UDP, UDP_SEGMENT, 0) == 0;
    if (result < 0) {
        port_close(&opened->base);
        return result;
    }
    *port = &opened->base;
    return 0;
}

size_t port_kernel_memory_bytes(void)
{
    return sizeof(struct kernel_port);
}

static void kernel_close(struct port *base)
{
    struct kernel_port *port = kernel_of(base);
    if (port->descriptor >= 0)
        close(port->descriptor);
    free(port);
}

static int kernel_descriptor(const struct port *base)
{
    return ((const struct kernel_port *)base)->descriptor;
}

/* ---- receiving ------------------------------------------------------------------------------- */

static uint32_t kernel_rx_burst(struct port *base, struct port_packet *packets, uint32_t max)
{
    struct kernel_port *port = kernel_of(base);
    assert(max <= PORT_BURST_MAX);
    struct port_burst *rx = &port->rx;
    for (uint32_t i = 0; i < port->rx_used; i++) /* the kernel wrote the lengths it used */
        rx->messages[i].msg_hdr.msg_namelen = sizeof rx->addresses[i];
    port->rx_used = 0;
    port->base.counters.rx_calls++;
    int received = recvmmsg(port->descriptor, rx->messages, max, MSG_DONTWAIT, NULL);
    if (received <= 0) {
        if (received < 0 && errno != EAGAIN && errno != EINTR)
            port->base.counters.rx_errors++;
        return 0;
    }
    port->rx_used = (uint32_t)received;
    uint32_t count = 0;
    for (uint32_t i = 0; i < port->rx_used; i++) {
        struct port_packet *packet = &packets[count];
        packet->bytes = rx->buffers[i];
        packet->length = rx->messages[i].msg_len;
        packet->truncated = (rx->messages[i].msg_hdr.msg_flags & MSG_TRUNC) != 0;
        port->base.counters.rx_bytes += packet->length;
        if (port_address_from_socket(&rx->addresses[i], &packet->from))
            count++;
        else
            port->base.counters.rx_errors++;
    }
    port->base.counters.rx_packets += count;
    return count;
}

/* ---- sending --------------------------------------------------------------------------------- */

static uint8_t *kernel_tx_buffer(struct port *base)
{
    struct kernel_port *port = kernel_of(base);
    return port->tx_queued < PORT_BURST_MAX ? port->tx.buffers[port->tx_queued] : NULL;
}

static void kernel_tx_push(struct port *base, uint32_t length, const struct port_address *to)
{
    struct kernel_port *port = kernel_of(base);
    uint32_t at = port->tx_queued;
    assert(at < PORT_BURST_MAX && length <= PORT_DATAGRAM_BYTES_MAX);
    uint32_t name_bytes = port_address_to_socket(to, port->ipv4, &port->tx.addresses[at]);
    if (name_bytes == 0) { /* IPv6 from an IPv4 socket: the buffer is simply used again */
        port->base.counters.tx_errors++;
        return;
    }
    port->tx.messages[at].msg_hdr.msg_namelen = name_bytes;
    port->tx.vectors[at].iov_len = length;
    port->tx_queued = at + 1;
}

enum { SEGMENTED_BYTES_MAX = 65000 }; /* of one group: an IP packet's 16-bit length, with headers */

static bool same_destination(const struct msghdr *a, const struct msghdr *b)
{
    return a->msg_namelen == b->msg_namelen &&
           memcmp(a->msg_name, b->msg_name, a->msg_namelen) == 0;
}

/* How many of the datagrams from `at` on can go as one. */
static uint32_t group_length(const struct kernel_port *port, uint32_t at)
{
    const struct port_burst *tx = &port->tx;
    size_t unit = tx->vectors[at].iov_len, total = unit;
    uint32_t next = at + 1;
    if (!port->segmentation || unit == 0)
        return 1;
    for (; next < port->tx_queued; next++) {
        size_t length = tx->vectors[next].iov_len;
        if (length == 0 || length > unit || total + length > SEGMENTED_BYTES_MAX ||
            !same_destination(&tx->messages[at].msg_hdr, &tx->messages[next].msg_hdr))
            break;
        total += length;
        if (length < unit)
            return next + 1 - at; /* a shorter one can only be the last */
    }
    return next - at;
}

static void make_group(struct kernel_port *port, uint32_t group, uint32_t at, uint32_t count)
{
    struct msghdr *header = &port->segments.messages[group].msg_hdr;
    *header = port->tx.messages[at].msg_hdr;
    port->segments.counts[group] = count;
    if (count == 1)
        return;
    const uint16_t unit = (uint16_t)port->tx.vectors[at].iov_len;
    header->msg_iovlen = count; /* vectors of neighbours are neighbours */
    header->msg_control = port->segments.controls[group].bytes;
    header->msg_controllen = sizeof port->segments.controls[group].bytes;
    struct cmsghdr *control = CMSG_FIRSTHDR(header);
    control->cmsg_level = SOL_UDP;
    control->cmsg_type = UDP_SEGMENT;
    control->cmsg_len = CMSG_LEN(sizeof unit);
    memcpy(CMSG_DATA(control), &unit, sizeof unit);
}

/* Groups what is queued from `at` on; returns how many groups there are. */
static uint32_t make_groups(struct kernel_port *port, uint32_t at)
{
    uint32_t groups = 0;
    while (at < port->tx_queued) {
        uint32_t count = group_length(port, at);
        make_group(port, groups++, at, count);
        at += count;
    }
    return groups;
}

/* Sends what is queued from *at on, as far as the kernel goes along. Moves *at; the errno of what
 * stopped it, 0 = try on. */
static int send_groups(struct kernel_port *port, uint32_t *at)
{
    struct port_counters *counters = &port->base.counters;
    uint32_t groups = make_groups(port, *at);
    counters->tx_calls++;
    int sent = sendmmsg(port->descriptor, port->segments.messages, groups, MSG_DONTWAIT);
    if (sent < 0)
        return errno;
    for (uint32_t group = 0; group < (uint32_t)sent; group++)
        for (uint32_t i = 0; i < port->segments.counts[group]; i++) {
            counters->tx_bytes += port->tx.vectors[*at].iov_len;
            counters->tx_packets++;
            ++*at;
        }
    return 0;
}

static void kernel_tx_flush(struct port *base)
{
    struct kernel_port *port = kernel_of(base);
    uint32_t at = 0;
    while (at < port->tx_queued) {
        int error = send_groups(port, &at);
        if (error == EAGAIN || error == ENOBUFS) {
            port->base.counters.tx_dropped += port->tx_queued - at;
            break;
        }
        if (error == 0 || error == EINTR)
            continue;
        uint32_t count = port->segments.counts[0];
        if (count > 1 && (error == EIO || error == EINVAL || error == EMSGSIZE)) {
            port->segmentation = false; /* not every route can cut: one by one from now on */
            continue;
        }
        /* It belongs to the first group's destination (no route, refused, too long): pass it by. */
        port->base.counters.tx_errors += count;
        at += count;
    }
    port->tx_queued = 0;
}

static const struct port_kind kernel_kind = {
    .close = kernel_close,
    .rx_burst = kernel_rx_burst,
    .tx_buffer = kernel_tx_buffer,
    .tx_push = kernel_tx_push,
    .tx_flush = kernel_tx_flush,
    .descriptor = kernel_descriptor,
};
