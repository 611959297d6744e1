/* SPDX-License-Identifier: Apache-2.0
 *
 * Ports on a DPDK device: frames are taken from and given to the network card's queues, without the
 * kernel. One device per process, opened once before the workers start; a queue pair per worker;
 * on each queue some ports (hw/port.h), which share it: all of them belong to the worker's thread.
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
    uint16_t queues;
    bool hugepages;      /* false: ordinary memory, which only virtual devices can use */
    uint32_t memory_mib; /* for packet buffers and the device's driver; 0 = 128 */
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

/* What frames came to on this queue. Its thread alone. */
const struct net_counters *dpdk_net_counters(const struct dpdk_device *device, uint16_t queue);

/* Buffers of all queues that nobody uses now: the same number again means that none is lost. */
uint32_t dpdk_buffers_free(const struct dpdk_device *device);

/* To be called by the thread that will use a queue, before it does. 0 or a negative errno. */
int dpdk_thread_begin(void);
void dpdk_thread_end(void);

/* A port for datagrams to this UDP port, on one of the queues. port_descriptor() is -1: whoever
 * waits for it must look again soon. 0, -EADDRINUSE, or -ENOSPC. */
int port_dpdk_open(struct dpdk_device *device, uint16_t queue, const struct port_address *bind,
                   struct port **port);

#endif
