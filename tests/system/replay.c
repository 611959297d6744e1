/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames from a pcap file, as if they came from the wire: two queues on one queue pair, ports for
 * 10.78.0.1:7400 and :7401, every datagram answered. All buffers must come back.
 *
 *     system_replay IN.pcap OUT.pcap
 *
 * Prints what came of them, a line each; exit code 0 if no buffer is missing.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hw/dpdk/dpdk.h"

enum { QUEUES = 2, SERVICE = 7400, EMPTY_TURNS = 1000 /* then the file has been read */ };

static uint32_t answer(struct port *port)
{
    struct port_packet packets[PORT_BURST_MAX];
    uint32_t count = port_rx_burst(port, packets, PORT_BURST_MAX);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *bytes = port_tx_buffer(port);
        if (bytes == NULL)
            break;
        memcpy(bytes, packets[i].bytes, packets[i].length);
        port_tx_push(port, packets[i].length, &packets[i].from);
    }
    port_tx_flush(port);
    return count;
}

static uint64_t came_of_it(const struct dpdk_device *device)
{
    uint64_t sum = 0;
    for (uint16_t queue = 0; queue < QUEUES; queue++) {
        const struct net_counters *net = dpdk_net_counters(device, queue);
        const struct dpdk_counters *counters = dpdk_counters(device, queue);
        sum += net->datagrams_in + net->answers + net->echoes + counters->oversized;
        for (int i = 0; i < NET_LOSSES; i++)
            sum += net->losses[i];
    }
    return sum;
}

static void print_losses(const struct dpdk_device *device)
{
    for (int i = 0; i < NET_LOSSES; i++) {
        uint64_t count = 0;
        for (uint16_t queue = 0; queue < QUEUES; queue++)
            count += dpdk_net_counters(device, queue)->losses[i];
        if (count > 0)
            printf("%s: %" PRIu64 "\n", net_loss_name((enum net_loss)i), count);
    }
}

int main(int argc, char **argv)
{
    char name[512], error[DPDK_ERROR_BYTES] = "";
    struct port *ports[QUEUES];
    uint64_t answered = 0, handed_over = 0, oversized = 0;
    if (argc != 3) {
        fprintf(stderr, "usage: system_replay IN.pcap OUT.pcap\n");
        return 2;
    }
    (void)snprintf(name, sizeof name, "net_pcap0,rx_pcap=%s,tx_pcap=%s", argv[1], argv[2]);
    struct dpdk_options options = {
        .device = name,
        .net = {.ipv4 = {10, 78, 0, 1},
                .ipv4_prefix = 24,
                .ipv6 = {0xfd, 0x78, [15] = 1},
                .ipv6_prefix = 64,
                .mtu = 1500},
        .queues = QUEUES,
    };
    struct dpdk_device *device = dpdk_open(&options, error);
    if (device == NULL) {
        fprintf(stderr, "system_replay: %s\n", error);
        return 1;
    }
    for (uint16_t i = 0; i < QUEUES; i++) {
        struct port_address bind = {.port = (uint16_t)(SERVICE + i)};
        if (port_dpdk_open(device, i, &bind, &ports[i]) != 0)
            return 1;
    }
    (void)dpdk_steer(device);
    uint32_t buffers = dpdk_buffers_free(device);
    uint64_t seen = 0;
    for (uint32_t empty = 0; empty < EMPTY_TURNS; empty++) {
        for (uint16_t i = 0; i < QUEUES; i++)
            answered += answer(ports[i]);
        if (came_of_it(device) != seen)
            empty = 0;
        seen = came_of_it(device);
    }
    for (uint16_t i = 0; i < QUEUES; i++) {
        handed_over += dpdk_counters(device, i)->handed_over;
        oversized += dpdk_counters(device, i)->oversized;
        port_close(ports[i]);
    }
    uint32_t left = dpdk_buffers_free(device);
    printf("accounted for: %" PRIu64 "\nanswered: %" PRIu64 "\nhanded over: %" PRIu64
           "\noversized: %" PRIu64 "\nbuffers missing: %" PRId64 "\n",
           seen, answered, handed_over, oversized, (int64_t)buffers - (int64_t)left);
    print_losses(device);
    dpdk_close(device);
    return left == buffers ? 0 : 1;
}
