/* SPDX-License-Identifier: Apache-2.0
 *
 * The parties of a measurement over kernel UDP on loopback: their ports, opened before the
 * processes part, and the processes. What fails ends the program with a sentence (raw_die).
 */
#ifndef BELAY_BENCH_RAW_LOOPBACK_H
#define BELAY_BENCH_RAW_LOOPBACK_H

#include <sys/types.h>

#include "hw/port.h"

/* A port of its own number, with room for many datagrams under way; port_close() it. */
struct port *loopback_port(void);

/* As fork(), but the child is killed when its parent ends, however that happens. */
pid_t loopback_fork(void);

#endif
