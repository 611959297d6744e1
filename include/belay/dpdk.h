/* SPDX-License-Identifier: Apache-2.0
 *
 * libbelay-dpdk: a polled client's datagrams on a network card's queues, without the kernel. A
 * library of its own, so that libbelay needs no DPDK. See docs/client-dpdk.md.
 *
 * A card bound to vfio-pci has no address in the kernel any more: whatever else the machine says
 * goes by another interface.
 *
 * Source: DPDK 22.11, ethdev.
 */
#ifndef BELAY_DPDK_H
#define BELAY_DPDK_H

#include <belay/belay.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct belay_dpdk_port belay_dpdk_port;

typedef struct belay_dpdk_options {
    size_t struct_bytes; /* sizeof(belay_dpdk_options), for later growth */
    /* A PCI address ("0000:3b:00.0", bound to vfio-pci or the like), or a virtual device with its
     * arguments ("net_virtio_user0,path=/run/belay.sock"). */
    const char *device;
    const char *address; /* this host's on that device, and its prefix: "10.0.0.9/24" */
    const char *gateway; /* for nodes outside the prefix; NULL = those are unreachable */
    uint32_t memory_mib; /* for packet buffers and the driver; 0 = what one queue needs */
    uint16_t udp_port;   /* ours; 0 = a random one from 49152 up */
    uint16_t mtu;        /* bytes of an IP packet; 0 = 1,500 */
    bool no_hugepages;   /* ordinary memory, which only virtual devices can use */
    uint8_t zero[31];
} belay_dpdk_options;

/* Fills in the defaults. */
BELAY_API void belay_dpdk_options_init(belay_dpdk_options *options);

enum { BELAY_DPDK_ERROR_BYTES = 256 };

/* Starts DPDK and the device: once per process, and one port at a time. The strings are the
 * caller's and may go. *port is NULL on failure, and `error` (BELAY_DPDK_ERROR_BYTES, or NULL) says
 * what is wrong and what to do. BELAY_BAD_REQUEST: an option is wrong; BELAY_SYSTEM: DPDK or the
 * device does not start; BELAY_NO_MEMORY. Blocks for as long as devices take to start. */
BELAY_API belay_status belay_dpdk_port_open(const belay_dpdk_options *options,
                                            belay_dpdk_port **port, char *error);

/* For belay_client_options.transport, which copies it. One client per port, on one thread: the
 * first that polls. */
BELAY_API void belay_dpdk_port_transport(belay_dpdk_port *port, belay_transport *transport);

/* Any thread. False: the link is down, or no peer is there. */
BELAY_API bool belay_dpdk_port_is_up(const belay_dpdk_port *port);

/* After the client is closed, by the thread that polled it. NULL is allowed. */
BELAY_API void belay_dpdk_port_close(belay_dpdk_port *port);

#ifdef __cplusplus
}
#endif
#endif
