/* SPDX-License-Identifier: Apache-2.0
 *
 * See mgmt/ports.h.
 */
#include "mgmt/ports.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "hw/journal.h"

/* ---- the device ------------------------------------------------------------------------------ */

static int open_device(struct ports *ports, char *error, size_t error_bytes)
{
    const struct node_options *options = ports->options;
    char text[DPDK_ERROR_BYTES] = "";
    struct dpdk_options device_options = {
        .device = options->dpdk.device,
        .net = options->dpdk.net,
        .queues = options->workers,
        .hugepages = options->dpdk.hugepages,
        .interrupts = options->polling == POLLER_ADAPTIVE,
        .memory_mib = (uint32_t)(options->dpdk.memory_bytes / (1024 * 1024)),
        .pinned = options->first_core >= 0,
        .first_core = options->first_core >= 0 ? (uint32_t)options->first_core : 0,
    };
    if (options->dpdk.device[0] == '\0')
        return 0;
    ports->device = dpdk_open(&device_options, text);
    if (ports->device != NULL)
        return 0;
    (void)snprintf(error, error_bytes, "dpdk.device: %s", text);
    return -ENODEV;
}

static void tell_of_device(struct ports *ports)
{
    static const char *const steering[] = {"none", "flow_rules", "hash", "hand_over"};
    const struct node_dpdk *dpdk = &ports->options->dpdk;
    uint8_t mac[6];
    dpdk_mac(ports->device, mac);
    ports->link_up = dpdk_link_is_up(ports->device);
    journal_write(JOURNAL_INFO, "device",
                  "device=\"%s\" driver=%s mac=%02x:%02x:%02x:%02x:%02x:%02x queues=%u link=%s "
                  "steering=%s sleeping=%s",
                  dpdk->device, dpdk_driver(ports->device), mac[0], mac[1], mac[2], mac[3], mac[4],
                  mac[5], (unsigned)dpdk_pairs(ports->device), ports->link_up ? "up" : "down",
                  steering[dpdk_steer(ports->device)],
                  ports->options->polling == POLLER_BUSY ? "never"
                  : dpdk_has_interrupts(ports->device)   ? "until_interrupt"
                                                         : "at_most_500us");
    if (ports->options->members_count > 1) {
        const struct node_member *own = &ports->options->members[ports->options->node - 1];
        char address[PORT_ADDRESS_TEXT_BYTES];
        port_address_format(&own->management, address);
        journal_write(
            JOURNAL_INFO, "management",
            "address=%s what=\"the kernel has no address on the device: snapshots go over "
            "this one\"",
            address);
    }
}

void ports_look(struct ports *ports)
{
    if (ports->device == NULL || dpdk_link_is_up(ports->device) == ports->link_up)
        return;
    ports->link_up = !ports->link_up;
    journal_write(ports->link_up ? JOURNAL_INFO : JOURNAL_WARN, "link", "device=\"%s\" link=%s",
                  ports->options->dpdk.device, ports->link_up ? "up" : "down");
}

/* ---- ports ----------------------------------------------------------------------------------- */

static int open_port(const struct ports *ports, uint16_t worker, const struct port_address *base,
                     bool on_device, struct port **port)
{
    struct port_address bind = *base;
    bind.port = (uint16_t)(bind.port + worker);
    if (on_device)
        return port_dpdk_open(ports->device, worker, &bind, port);
    const struct port_kernel_options options = {
        .bind = bind,
        .socket_buffer_bytes = ports->options->socket_buffer_bytes,
    };
    return port_kernel_open(&options, port);
}

static int open_pair(struct ports *ports, struct worker *worker, char *error, size_t error_bytes)
{
    const struct node_options *options = ports->options;
    const struct node_member *own = &options->members[options->node - 1];
    const struct {
        const char *name;
        const struct port_address *base;
        enum node_traffic alone;
        struct port **port;
    } pair[] = {
        {"client", &own->client, NODE_TRAFFIC_CLIENTS, &worker->clients},
        {"peer", &own->peer, NODE_TRAFFIC_PEERS, &worker->peers},
    };
    for (int i = 0; i < 2; i++) {
        bool on_device = ports->device != NULL && (options->dpdk.traffic == NODE_TRAFFIC_ALL ||
                                                   options->dpdk.traffic == pair[i].alone);
        int result = open_port(ports, worker->index, pair[i].base, on_device, pair[i].port);
        if (result == 0)
            result = poller_add_port(worker->poller, *pair[i].port);
        if (result < 0) {
            char address[PORT_ADDRESS_TEXT_BYTES];
            struct port_address bind = *pair[i].base;
            bind.port = (uint16_t)(bind.port + worker->index);
            port_address_format(&bind, address);
            (void)snprintf(error, error_bytes, "cannot listen on %s (%s, worker %u): %s", address,
                           pair[i].name, (unsigned)worker->index, strerror(-result));
            return result;
        }
    }
    return 0;
}

int ports_open(struct ports *ports, const struct node_options *options,
               struct worker *const *workers, char *error, size_t error_bytes)
{
    ports->options = options;
    int result = open_device(ports, error, error_bytes);
    for (uint16_t i = 0; i < options->workers && result == 0; i++)
        result = open_pair(ports, workers[i], error, error_bytes);
    if (result == 0 && ports->device != NULL)
        tell_of_device(ports);
    return result;
}

void ports_close(struct ports *ports, struct worker *const *workers)
{
    for (uint16_t i = 0; ports->options != NULL && i < ports->options->workers; i++) {
        if (workers[i] == NULL)
            continue;
        port_close(workers[i]->clients);
        port_close(workers[i]->peers);
    }
    if (ports->device != NULL)
        dpdk_close(ports->device);
}
