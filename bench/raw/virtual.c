/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/raw/virtual.h"

#include <sched.h>

#include "bench/raw/raw.h"
#include "hw/cores.h"
#include "hw/dpdk/dpdk.h"

enum { MEMORY_MIB = 64 };

struct port *virtual_port(const char *device_name, uint8_t host, uint16_t number)
{
    char error[DPDK_ERROR_BYTES];
    struct dpdk_options options = {
        .device = device_name,
        .net = {.ipv4 = {10, 9, 0, host}, .ipv4_prefix = 24, .mtu = 1500},
        .queues = 1,
        .memory_mib = MEMORY_MIB,
    };
    struct port_address bind = {.port = number};
    struct port *port;
    struct dpdk_device *device = dpdk_open(&options, error);
    if (device == NULL)
        raw_die("%s", error);
    if (port_dpdk_open(device, 0, &bind, &port) != 0)
        raw_die("%s: UDP port %u cannot be opened", device_name, number);
    return port;
}

void virtual_pin(uint32_t number)
{
    cpu_set_t mask;
    CPU_ZERO(&mask);
    if (cores_available() < 2 || sched_getaffinity(0, sizeof mask, &mask) != 0)
        return;
    number %= cores_available();
    for (uint32_t core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &mask) && number-- == 0) {
            (void)cores_pin(core);
            return;
        }
    }
}
