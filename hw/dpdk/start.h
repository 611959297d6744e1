/* SPDX-License-Identifier: Apache-2.0
 *
 * What is settled before DPDK starts, without a header of DPDK's: that no socket of an earlier
 * process is in its way.
 */
#ifndef BELAY_HW_DPDK_START_H
#define BELAY_HW_DPDK_START_H

#include "hw/dpdk/dpdk.h"

/* "dddd:bb:dd.f" or "bb:dd.f" */
bool dpdk_is_pci(const char *device);

/* Removes the socket that a killed process has left, since DPDK takes any for one in use. False:
 * something else is where net_vhost wants its socket, and is still there; `error` says what. */
bool dpdk_make_way(const char *device, char error[DPDK_ERROR_BYTES]);

/* Writes to `error`, and is false. */
__attribute__((format(printf, 2, 3))) bool dpdk_fails(char error[DPDK_ERROR_BYTES],
                                                      const char *format, ...);

#endif
