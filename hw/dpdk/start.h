/* SPDX-License-Identifier: Apache-2.0
 *
 * What is settled before DPDK starts, without a header of DPDK's: its arguments, the NUMA node of
 * its memory, and that no socket of an earlier process is in its way.
 */
#ifndef BELAY_HW_DPDK_START_H
#define BELAY_HW_DPDK_START_H

#include <stdint.h>

#include "hw/dpdk/dpdk.h"

enum { DPDK_ARGUMENTS_MAX = 16, DPDK_NUMA_NODES_MAX = 32 };

/* For rte_eal_init. `words` point into the struct and to the options' device. */
struct dpdk_arguments {
    int count;
    char *words[DPDK_ARGUMENTS_MAX];
    char core[16];
    char memory[16 + 2 * DPDK_NUMA_NODES_MAX];
};

/* `core` is the one of the calling thread; `numa_node` gets the memory, -1 = where the kernel has
 * it. */
void dpdk_arguments_make(struct dpdk_arguments *arguments, const struct dpdk_options *options,
                         uint32_t memory_mib, int core, int numa_node);

/* The node that packet buffers shall be on: the device's, and for one that is none of the machine's
 * the one that all workers are pinned to. -1: there is one node only, or none is better than
 * others. `sysfs` is "/sys", but for tests. */
int dpdk_numa_node(const char *sysfs, const struct dpdk_options *options);

/* "dddd:bb:dd.f" or "bb:dd.f" */
bool dpdk_is_pci(const char *device);
/* The domain in front that `device` leaves out, or "". */
const char *dpdk_pci_domain(const char *device);

/* Removes the socket that a killed process has left, since DPDK takes any for one in use. False:
 * something else is where net_vhost wants its socket, and is still there; `error` says what. */
bool dpdk_make_way(const char *device, char error[DPDK_ERROR_BYTES]);

/* Writes to `error`, and is false. */
__attribute__((format(printf, 2, 3))) bool dpdk_fails(char error[DPDK_ERROR_BYTES],
                                                      const char *format, ...);

#endif
