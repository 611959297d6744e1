/* SPDX-License-Identifier: Apache-2.0
 *
 * Ports past the kernel for measurements: net_vhost on one side, net_virtio_user on the other, on a
 * network of their own.
 */
#ifndef BELAY_BENCH_RAW_VIRTUAL_H
#define BELAY_BENCH_RAW_VIRTUAL_H

#include <stdint.h>

#include "hw/port.h"

enum {
    VIRTUAL_SERVER_HOST = 1,
    VIRTUAL_CLIENT_HOST = 2,
    VIRTUAL_SERVICE = 7400, /* 10.9.0.1:7400 */
    VIRTUAL_CLIENT = 5000,
    VIRTUAL_IN_FLIGHT_MAX = 256, /* a device's ring: more would be dropped */
};

/* A UDP port at 10.9.0.`host`; ends the program if there can be none. */
struct port *virtual_port(const char *device_name, uint8_t host, uint16_t number);

/* The calling thread stays on this one of the cores that the process may use, counted from 0, as
 * long as there are several: two that poll must not share one. */
void virtual_pin(uint32_t number);

#endif
