/* SPDX-License-Identifier: Apache-2.0
 *
 * A port: where datagrams come from and go to. Implementations: kernel UDP (hw/port_kernel.c) and
 * DPDK (hw/dpdk/port_dpdk.c); RDMA and the simulator's have the same face. One owner thread per
 * port; no call blocks.
 *
 * Buffers belong to the port. A received packet is valid until the next port_rx_burst on that port,
 * or port_rx_done.
 * A buffer from port_tx_buffer is the caller's until port_tx_push or the next port_tx_flush.
 */
#ifndef BELAY_HW_PORT_H
#define BELAY_HW_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { PORT_BURST_MAX = 64, PORT_DATAGRAM_BYTES_MAX = 1472 };

/* IPv4 is stored IPv4-mapped. Same layout as struct wire_address. */
struct port_address {
    uint8_t ip[16];
    uint16_t port; /* host order */
    uint8_t zero[6];
};

/* IPv4 within `ip` (RFC 4291 2.5.5.2): its four bytes are the last. */
enum { PORT_IPV4_AT = 12 };

static inline bool port_ip_is_ipv4(const uint8_t ip[16])
{
    static const uint8_t prefix[PORT_IPV4_AT] = {[10] = 0xff, [11] = 0xff};
    return memcmp(ip, prefix, sizeof prefix) == 0;
}

static inline void port_ip_map(uint8_t ip[16], const uint8_t ipv4[4])
{
    /* Put together first and written at once: whoever reads it next need not wait for parts. */
    uint8_t mapped[16] = {[10] = 0xff, [11] = 0xff};
    memcpy(mapped + PORT_IPV4_AT, ipv4, 4);
    memcpy(ip, mapped, sizeof mapped);
}

struct port_packet {
    const uint8_t *bytes; /* 8-byte aligned */
    uint32_t length;
    bool truncated; /* it was longer than PORT_DATAGRAM_BYTES_MAX; bytes hold its beginning */
    struct port_address from;
};

struct port_counters {
    uint64_t rx_packets, rx_bytes, rx_calls, rx_errors;
    uint64_t tx_packets, tx_bytes, tx_calls, tx_errors,
        tx_dropped; /* kernel buffer full: dropped */
};

struct port;

struct port_kernel_options {
    struct port_address bind;     /* port 0 = any free one */
    uint32_t socket_buffer_bytes; /* asked for, both directions; 0 = the system's */
    bool reuse_port;
};

/* 0 or a negative errno; *port owns its memory (allocated here, none later). */
int port_kernel_open(const struct port_kernel_options *options, struct port **port);
/* Bytes of that memory. */
size_t port_kernel_memory_bytes(void);
void port_close(struct port *port);

/* To be called by the thread that uses the port from now on, before it does, and by the same when
 * it ends. 0 or a negative errno. */
int port_thread_begin(struct port *port);
void port_thread_end(struct port *port);

/* The address bound to (with the real port number). */
void port_local_address(const struct port *port, struct port_address *address);

/* Receives up to `max` (<= PORT_BURST_MAX) packets; returns how many, 0 = none now. */
uint32_t port_rx_burst(struct port *port, struct port_packet *packets, uint32_t max);

/* What the last burst brought has been read: its buffers may be used for what is sent. */
void port_rx_done(struct port *port);

/* A buffer of PORT_DATAGRAM_BYTES_MAX for one outgoing datagram; NULL = the burst is full, flush.
 */
uint8_t *port_tx_buffer(struct port *port);

/* Queues the buffer last taken, with its length and destination. */
void port_tx_push(struct port *port, uint32_t length, const struct port_address *to);

/* Sends what is queued. What the kernel does not take is dropped and counted (datagrams may be). */
void port_tx_flush(struct port *port);

/* How whoever waits for the port is woken; poller_add_port() sees to all of it. */
enum {
    PORT_LOOK_AGAIN = -1, /* nothing tells: look again soon */
    PORT_WAKES_POLLER = -2,
};
/* To be polled for readability between port_arm and port_disarm, or one of the above. */
int port_descriptor(const struct port *port);
/* The owner is about to sleep: what comes from now on makes the descriptor readable. False:
 * something is there. */
bool port_arm(struct port *port);
void port_disarm(struct port *port);
struct poller;
/* PORT_WAKES_POLLER: whom. Before the port is used by its thread. */
void port_wakes(struct port *port, struct poller *poller);

const struct port_counters *port_counters(const struct port *port);

/* What the queue of a port past the kernel has counted (hw/net/net.h, hw/dpdk/dpdk.h), all ports on
 * it together. False: the port is the kernel's. */
struct net_counters;
struct dpdk_counters;
bool port_queue_counters(const struct port *port, const struct net_counters **net,
                         const struct dpdk_counters **queue);

/* "127.0.0.1:7400", "[::1]:7400". Names are resolved (blocking: not on a worker). 0 or negative
 * errno. */
int port_address_parse(const char *text, struct port_address *address);
enum { PORT_ADDRESS_TEXT_BYTES = 64 };
void port_address_format(const struct port_address *address, char text[PORT_ADDRESS_TEXT_BYTES]);
bool port_address_equal(const struct port_address *a, const struct port_address *b);

#endif
