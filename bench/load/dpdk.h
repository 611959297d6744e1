/* SPDX-License-Identifier: Apache-2.0
 *
 * What follows --port, and the DPDK port that it means.
 */
#ifndef BELAY_BENCH_DPDK_H
#define BELAY_BENCH_DPDK_H

#include <stdbool.h>
#include <stddef.h>

#include "belay/dpdk.h"

/* "dpdk:DEVICE,address=IP/PREFIX[,gateway=IP][,memory=MIB][,hugepages=yes]": what is not one of
 * these words belongs to the device. False: a sentence in `error`. */
bool dpdk_port(const char *text, belay_dpdk_port **port, char *error, size_t error_bytes);

#endif
