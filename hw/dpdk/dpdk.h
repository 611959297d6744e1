/* SPDX-License-Identifier: Apache-2.0
 *
 * Ports on a DPDK device: frames are taken from and given to the network card's queues, without the
 * kernel. One device per process, opened once before the workers start; a queue per worker; on each
 * queue some ports (hw/port.h), which share it: all of them belong to the worker's thread. Ports
 * are opened and closed while no other thread polls one of the device.
 *
 * A datagram that comes to another queue than its port's is handed over, and counted. dpdk_steer()
 * makes the device bring them to the right one, where it can. A device may have fewer queue pairs
 * than queues are asked for, down to one: the others then receive and send by hand-over alone.
 *
 * Source: DPDK 22.11, ethdev and mbuf libraries.
 */
#ifndef BELAY_HW_DPDK_DPDK_H
#define BELAY_HW_DPDK_DPDK_H

#include "hw/net/net.h"
#include "hw/port.h"

enum { DPDK_QUEUES_MAX = 16, DPDK_PORTS_PER_QUEUE = 4, DPDK_ERROR_BYTES = 256 };

struct dpdk_options {
    /* A PCI address ("0000:3b:00.0", bound to vfio-pci or the like), or a virtual device with its
     * arguments ("net_vhost0,iface=/run/belay.sock"). */
    const char *device;
    /* Addresses, gateways, MTU. The MAC is the device's; tx_checksums is decided by what it can. */
    struct net_options net;
    uint16_t queues;     /* 1 to DPDK_QUEUES_MAX */
    bool hugepages;      /* false: ordinary memory, which only virtual devices can use */
    bool interrupts;     /* sleepers shall be woken by the device, where it can */
    uint32_t memory_mib; /* for packet buffers and the device's driver; 0 = what `queues` need */
    /* The thread of queue i runs on core first_core + i: memory near these, if the device is near
     * none. */
    bool pinned;
    uint32_t first_core;
};

/* Of one queue. */
struct dpdk_counters {
    uint64_t handed_over, handed_over_dropped; /* frames of other queues that came here */
    uint64_t sent_for_others, sent_for_others_dropped;
    uint64_t no_port;   /* datagrams to a UDP port that nobody has opened */
    uint64_t oversized; /* frames longer than a packet buffer */
};

struct dpdk_device;

/* Starts DPDK (once per process; the calling thread's affinity stays as it was) and the device.
 * NULL: `error` says what is wrong and what to do. */
struct dpdk_device *dpdk_open(const struct dpdk_options *options, char error[DPDK_ERROR_BYTES]);

/* All ports of it are closed. DPDK itself stays until the process ends. */
void dpdk_close(struct dpdk_device *device);

/* "net_vhost", "net_e1000_igb": for logs. */
const char *dpdk_driver(const struct dpdk_device *device);
bool dpdk_link_is_up(const struct dpdk_device *device);
void dpdk_mac(const struct dpdk_device *device, uint8_t mac[6]);
/* Queue pairs that the device has for our queues; whether sleepers are woken by it. */
uint16_t dpdk_pairs(const struct dpdk_device *device);
bool dpdk_has_interrupts(const struct dpdk_device *device);

enum dpdk_steering {
    DPDK_STEER_ALONE,     /* one queue: nothing to steer */
    DPDK_STEER_FLOWS,     /* the device brings each UDP port to its queue */
    DPDK_STEER_HASH,      /* it spreads them by a hash: most are handed over */
    DPDK_STEER_HAND_OVER, /* all come to the first queue, and are handed over */
};
/* After all ports are opened, before threads use them. */
enum dpdk_steering dpdk_steer(const struct dpdk_device *device);

/* What frames came to on this queue. Its thread alone. */
const struct net_counters *dpdk_net_counters(const struct dpdk_device *device, uint16_t queue);
const struct dpdk_counters *dpdk_counters(const struct dpdk_device *device, uint16_t queue);

/* Buffers of all queues that nobody uses now: the same number again means that none is lost. */
uint32_t dpdk_buffers_free(const struct dpdk_device *device);

/* A port for datagrams to this UDP port, on one of the queues. 0, -EADDRINUSE, or -ENOSPC. */
int port_dpdk_open(struct dpdk_device *device, uint16_t queue, const struct port_address *bind,
                   struct port **port);

#endif
