/* SPDX-License-Identifier: Apache-2.0
 *
 * DPDK and one of its devices, from start to stop. The datapath is in port_dpdk.c.
 */
#include <errno.h>
#include <limits.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hw/dpdk/inside.h"
#include "hw/dpdk/start.h"

enum {
    NAME_BYTES = RTE_ETH_NAME_MAX_LEN,
    BUFFER_BYTES = RTE_MBUF_DEFAULT_BUF_SIZE + 256, /* with what the pool adds */
    OTHER_MIB = 48,                                 /* drivers, rings, DPDK itself */
};

/* ---- DPDK itself ----------------------------------------------------------------------------- */

/* Every descriptor may hold one, every port some bursts, threads' stocks and hand-overs some. */
static uint32_t buffers_count(const struct dpdk_options *options)
{
    uint32_t queue = RX_DESCRIPTORS + TX_DESCRIPTORS + TX_BURST_MAX + STOCK_BUFFERS_MAX +
                     DPDK_PORTS_PER_QUEUE * (WAITING_MAX + 3 * PORT_BURST_MAX);
    return options->queues * (queue + (options->queues - 1u) * 2 * HANDED_OVER_MAX);
}

static bool start_eal(const struct dpdk_options *options, int numa_node, char *error)
{
    static bool started;
    struct dpdk_arguments arguments;
    char where[32] = "";
    cpu_set_t affinity;
    if (started)
        return dpdk_fails(error, "DPDK was started before: one device per process");
    if (!options->hugepages && dpdk_is_pci(options->device))
        return dpdk_fails(error, "%s is a PCI device: it needs hugepages", options->device);
    uint32_t needed_mib =
        OTHER_MIB + (uint32_t)(buffers_count(options) / 1024 * BUFFER_BYTES / 1024);
    dpdk_arguments_make(&arguments, options,
                        options->memory_mib > 0 ? options->memory_mib : needed_mib, sched_getcpu(),
                        numa_node);
    CPU_ZERO(&affinity);
    (void)sched_getaffinity(0, sizeof affinity, &affinity);
    int taken = rte_eal_init(arguments.count, arguments.words);
    (void)sched_setaffinity(0, sizeof affinity, &affinity); /* it has pinned this thread */
    if (numa_node >= 0)
        (void)snprintf(where, sizeof where, " on NUMA node %d", numa_node);
    if (taken < 0 && options->hugepages)
        return dpdk_fails(error, "DPDK does not start: %s; are there hugepages%s?",
                          rte_strerror(rte_errno), where);
    if (taken < 0)
        return dpdk_fails(error, "DPDK does not start: %s", rte_strerror(rte_errno));
    started = true;
    return true;
}

/* Whose interrupts come by a descriptor for each queue. */
static bool is_bound_to_vfio(const char *device)
{
    char path[128], driver[PATH_MAX];
    if (!dpdk_is_pci(device))
        return false;
    (void)snprintf(path, sizeof path, "/sys/bus/pci/devices/%s%s/driver", dpdk_pci_domain(device),
                   device);
    ssize_t length = readlink(path, driver, sizeof driver - 1);
    if (length < 0)
        return false;
    driver[length] = '\0';
    const char *name = strrchr(driver, '/');
    return name != NULL && strcmp(name, "/vfio-pci") == 0;
}

/* ---- the device ------------------------------------------------------------------------------ */

static bool find_device(struct dpdk_device *device, const char *name, char *error)
{
    char bare[NAME_BYTES];
    size_t length = strcspn(name, ",");
    if (length >= sizeof bare)
        return dpdk_fails(error, "'%s' is too long for a device's name", name);
    memcpy(bare, name, length);
    bare[length] = '\0';
    if (!dpdk_make_way(name, error))
        return false;
    if (!dpdk_is_pci(name)) {
        int result = rte_dev_probe(name);
        if (result < 0)
            return dpdk_fails(error, "%s: %s: is the driver's name right, and may it do this?",
                              name, rte_strerror(-result));
    }
    if (rte_eth_dev_get_port_by_name(bare, &device->port_id) != 0)
        return dpdk_fails(error, "%s: no network device%s", name,
                          dpdk_is_pci(name) ? ": bind it to vfio-pci first (dpdk-devbind.py)" : "");
    return true;
}

static bool configure(struct dpdk_device *device, const struct dpdk_options *options, char *error)
{
    const uint64_t tx_wanted = RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
    struct rte_eth_conf configuration = {.rxmode = {.mtu = options->net.mtu}};
    uint16_t rx_descriptors = RX_DESCRIPTORS, tx_descriptors = TX_DESCRIPTORS;
    int result = rte_eth_dev_info_get(device->port_id, &device->info);
    if (result != 0)
        return dpdk_fails(error, "%s: %s", options->device, rte_strerror(-result));
    uint16_t most = device->info.max_rx_queues < device->info.max_tx_queues
                        ? device->info.max_rx_queues
                        : device->info.max_tx_queues;
    device->pairs_count = options->queues < most ? options->queues : most;
    if (device->pairs_count == 0)
        return dpdk_fails(error, "%s has no queues", options->device);
    if (device->pairs_count > 1) {
        const uint64_t udp = RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_NONFRAG_IPV6_UDP;
        device->hashes = udp & device->info.flow_type_rss_offloads;
        configuration.rx_adv_conf.rss_conf.rss_hf = device->hashes;
        if (device->hashes != 0)
            configuration.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
    }
    configuration.intr_conf.rxq = options->interrupts && is_bound_to_vfio(options->device);
    configuration.rxmode.offloads = device->info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_CHECKSUM;
    device->tx_checksums = (device->info.tx_offload_capa & tx_wanted) == tx_wanted;
    if (device->tx_checksums)
        configuration.txmode.offloads = tx_wanted;
    result = rte_eth_dev_configure(device->port_id, device->pairs_count, device->pairs_count,
                                   &configuration);
    if (result != 0 && configuration.intr_conf.rxq) { /* the driver cannot, or there are too few */
        configuration.intr_conf.rxq = 0;
        result = rte_eth_dev_configure(device->port_id, device->pairs_count, device->pairs_count,
                                       &configuration);
    }
    device->interrupts = configuration.intr_conf.rxq;
    if (result == 0)
        result =
            rte_eth_dev_adjust_nb_rx_tx_desc(device->port_id, &rx_descriptors, &tx_descriptors);
    for (uint16_t queue = 0; result == 0 && queue < device->pairs_count; queue++) {
        unsigned socket = (unsigned)rte_eth_dev_socket_id(device->port_id);
        result = rte_eth_rx_queue_setup(device->port_id, queue, rx_descriptors, socket, NULL,
                                        device->pool);
        if (result == 0)
            result = rte_eth_tx_queue_setup(device->port_id, queue, tx_descriptors, socket, NULL);
    }
    return result == 0 ||
           dpdk_fails(error, "%s cannot be set up: %s", options->device, rte_strerror(-result));
}

static bool make_queues(struct dpdk_device *device, const struct dpdk_options *options, char *error)
{
    struct net_options net = options->net;
    struct rte_ether_addr mac;
    if (rte_eth_macaddr_get(device->port_id, &mac) != 0)
        return dpdk_fails(error, "%s has no hardware address", options->device);
    memcpy(net.mac, mac.addr_bytes, sizeof net.mac);
    net.tx_checksums = device->tx_checksums;
    const char *wrong = net_options_check(&net);
    if (wrong != NULL)
        return dpdk_fails(error, "%s: %s", options->device, wrong);
    for (uint16_t number = 0; number < options->queues; number++) {
        struct dpdk_queue *queue = aligned_alloc(64, (sizeof *queue + 63) / 64 * 64);
        if (queue == NULL)
            return dpdk_fails(error, "out of memory");
        memset(queue, 0, sizeof *queue);
        queue->device = device;
        queue->number = number;
        queue->own = number < device->pairs_count;
        queue->interrupt = -1;
        net_init(&queue->net, &net);
        device->queues[number] = queue;
        device->queues_count++;
    }
    return true;
}

/* NULL: there is no memory for it. */
static struct mailbox *make_mailbox(void)
{
    size_t bytes = mailbox_memory_bytes(HANDED_OVER_MAX, sizeof(struct handed_over));
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    return memory == NULL ? NULL
                          : mailbox_init(memory, HANDED_OVER_MAX, sizeof(struct handed_over));
}

static bool make_mailboxes(struct dpdk_device *device, char *error)
{
    for (uint16_t to = 0; to < device->queues_count; to++) {
        struct dpdk_queue *queue = device->queues[to];
        for (uint16_t from = 0; from < device->queues_count; from++) {
            bool sends = from >= device->pairs_count && from % device->pairs_count == to;
            if (from == to)
                continue;
            queue->given[from] = make_mailbox();
            if (sends)
                queue->to_send[from] = make_mailbox();
            if (queue->given[from] == NULL || (sends && queue->to_send[from] == NULL))
                return dpdk_fails(error, "out of memory");
        }
    }
    return true;
}

static void free_queue(struct dpdk_queue *queue)
{
    queue_drain(queue);
    for (uint16_t from = 0; from < DPDK_QUEUES_MAX; from++) {
        free(queue->given[from]);
        free(queue->to_send[from]);
    }
    free(queue);
}

/* Neighbours' questions by IPv6 go to groups of ours (RFC 4291 2.7.1), which a device that filters
 * must let pass. */
static void join_groups(const struct dpdk_device *device)
{
    const struct net *net = &device->queues[0]->net;
    struct rte_ether_addr groups[2];
    const uint8_t *addresses[2] = {net->link_local, net->options.ipv6};
    for (int i = 0; i < 2; i++) {
        const uint8_t *ip = addresses[i];
        groups[i] = (struct rte_ether_addr){{0x33, 0x33, 0xff, ip[13], ip[14], ip[15]}};
    }
    if (rte_eth_dev_set_mc_addr_list(device->port_id, groups, 2) != 0)
        (void)rte_eth_allmulticast_enable(device->port_id); /* one that cannot does not filter */
}

static void find_interrupts(struct dpdk_device *device)
{
    for (uint16_t i = 0; i < device->pairs_count && device->interrupts; i++) {
        int descriptor = rte_eth_dev_rx_intr_ctl_q_get_fd(device->port_id, i);
        if (descriptor < 0 || rte_eth_dev_rx_intr_enable(device->port_id, i) != 0)
            device->interrupts = false;
        else
            (void)rte_eth_dev_rx_intr_disable(device->port_id, i);
        device->queues[i]->interrupt = descriptor;
    }
    for (uint16_t i = 0; i < device->pairs_count && !device->interrupts; i++)
        device->queues[i]->interrupt = -1;
}

static bool open_device(struct dpdk_device *device, const struct dpdk_options *options, char *error)
{
    uint32_t buffers = buffers_count(options);
    int numa_node = options->hugepages ? dpdk_numa_node("/sys", options) : -1;
    if (!start_eal(options, numa_node, error))
        return false;
    device->pool =
        rte_pktmbuf_pool_create("belay", buffers, STOCK_BUFFERS, 0, RTE_MBUF_DEFAULT_BUF_SIZE,
                                numa_node >= 0 ? numa_node : SOCKET_ID_ANY);
    if (device->pool == NULL)
        return dpdk_fails(error, "%u packet buffers do not fit into DPDK's memory: %s", buffers,
                          rte_strerror(rte_errno));
    if (!find_device(device, options->device, error) || !configure(device, options, error) ||
        !make_queues(device, options, error) || !make_mailboxes(device, error))
        return false;
    int result = rte_eth_dev_start(device->port_id);
    if (result != 0)
        return dpdk_fails(error, "%s does not start: %s", options->device, rte_strerror(-result));
    join_groups(device);
    find_interrupts(device);
    return true;
}

struct dpdk_device *dpdk_open(const struct dpdk_options *options, char error[DPDK_ERROR_BYTES])
{
    if (options->queues == 0 || options->queues > DPDK_QUEUES_MAX) {
        (void)dpdk_fails(error, "the number of queues must be from 1 to %d", DPDK_QUEUES_MAX);
        return NULL;
    }
    struct dpdk_device *device = calloc(1, sizeof *device);
    if (device == NULL) {
        (void)dpdk_fails(error, "out of memory");
        return NULL;
    }
    device->port_id = RTE_MAX_ETHPORTS;
    if (open_device(device, options, error))
        return device;
    dpdk_close(device);
    return NULL;
}

void dpdk_close(struct dpdk_device *device)
{
    if (device->port_id != RTE_MAX_ETHPORTS) {
        (void)rte_eth_dev_stop(device->port_id);
        (void)rte_eth_dev_close(device->port_id);
    }
    for (uint16_t queue = 0; queue < device->queues_count; queue++)
        free_queue(device->queues[queue]);
    free(device);
}

const char *dpdk_driver(const struct dpdk_device *device)
{
    return device->info.driver_name;
}

bool dpdk_link_is_up(const struct dpdk_device *device)
{
    struct rte_eth_link link;
    return rte_eth_link_get_nowait(device->port_id, &link) == 0 &&
           link.link_status == RTE_ETH_LINK_UP;
}

void dpdk_mac(const struct dpdk_device *device, uint8_t mac[6])
{
    memcpy(mac, device->queues[0]->net.options.mac, 6);
}

uint16_t dpdk_pairs(const struct dpdk_device *device)
{
    return device->pairs_count;
}

bool dpdk_has_interrupts(const struct dpdk_device *device)
{
    return device->interrupts;
}

const struct dpdk_counters *dpdk_counters(const struct dpdk_device *device, uint16_t queue)
{
    return &device->queues[queue]->counters;
}

const struct net_counters *dpdk_net_counters(const struct dpdk_device *device, uint16_t queue)
{
    return &device->queues[queue]->net.counters;
}

uint32_t dpdk_buffers_free(const struct dpdk_device *device)
{
    return rte_mempool_avail_count(device->pool);
}
