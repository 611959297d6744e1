/* SPDX-License-Identifier: Apache-2.0
 *
 * belay_transport on a port of a DPDK device: one queue, one port, one thread.
 */
#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "belay/dpdk.h"
#include "hw/dpdk/dpdk.h"

enum { EPHEMERAL_FIRST = 49152, EPHEMERAL_COUNT = 16384 /* RFC 6335, section 6 */ };

static_assert(sizeof(belay_address) == sizeof(struct port_address), "cast in both directions");
static_assert(offsetof(belay_address, port) == offsetof(struct port_address, port), "likewise");

struct belay_dpdk_port {
    struct dpdk_device *device;
    struct port *port;
    bool begun; /* DPDK knows the thread that polls */
};

void belay_dpdk_options_init(belay_dpdk_options *options)
{
    *options = (belay_dpdk_options){.struct_bytes = sizeof(*options), .mtu = 1500};
}

/* ---- the transport --------------------------------------------------------------------------- */

/* A thread that cannot be registered is only slower: it has no cache of packet buffers. */
static struct port *begun(belay_dpdk_port *port)
{
    if (!port->begun) {
        (void)port_thread_begin(port->port);
        port->begun = true;
    }
    return port->port;
}

static uint32_t transport_receive(void *context, belay_packet *packets, uint32_t max)
{
    struct port_packet received[PORT_BURST_MAX];
    uint32_t count =
        port_rx_burst(begun(context), received, max < PORT_BURST_MAX ? max : PORT_BURST_MAX);

    for (uint32_t i = 0; i < count; i++) {
        packets[i].bytes = received[i].bytes;
        packets[i].length = received[i].length;
        memcpy(&packets[i].from, &received[i].from, sizeof(packets[i].from));
    }
    return count;
}

static void transport_send(void *context, const belay_address *to, const uint8_t *bytes,
                           size_t length)
{
    struct port *port = begun(context);
    uint8_t *buffer = port_tx_buffer(port);

    if (buffer == NULL) {
        port_tx_flush(port);
        buffer = port_tx_buffer(port);
    }
    assert(buffer != NULL && length <= PORT_DATAGRAM_BYTES_MAX);
    memcpy(buffer, bytes, length);
    port_tx_push(port, (uint32_t)length, (const struct port_address *)to);
}

static void transport_flush(void *context)
{
    port_tx_flush(begun(context));
}

void belay_dpdk_port_transport(belay_dpdk_port *port, belay_transport *transport)
{
    *transport = (belay_transport){
        .struct_bytes = sizeof(*transport),
        .context = port,
        .receive = transport_receive,
        .send = transport_send,
        .flush = transport_flush,
    };
}

bool belay_dpdk_port_is_up(const belay_dpdk_port *port)
{
    return dpdk_link_is_up(port->device);
}

/* ---- opening and closing --------------------------------------------------------------------- */

static belay_status say(belay_status status, char *error, const char *what, const char *which)
{
    if (error != NULL)
        (void)snprintf(error, BELAY_DPDK_ERROR_BYTES, what, which);
    return status;
}

static belay_status read_options(const belay_dpdk_options *given, struct dpdk_options *to,
                                 uint16_t *udp_port, char *error)
{
    belay_dpdk_options options;

    belay_dpdk_options_init(&options);
    if (given->struct_bytes == 0 || given->struct_bytes > sizeof(options))
        return say(BELAY_BAD_REQUEST, error, "%s is not sizeof(belay_dpdk_options)",
                   "options.struct_bytes");
    memcpy(&options, given, given->struct_bytes);
    *to = (struct dpdk_options){
        .device = options.device,
        .net = {.mtu = options.mtu == 0 ? 1500 : options.mtu},
        .queues = 1,
        .hugepages = !options.no_hugepages,
        .memory_mib = options.memory_mib,
    };
    *udp_port = options.udp_port;
    if (options.device == NULL || options.device[0] == '\0')
        return say(BELAY_BAD_REQUEST, error, "%s is missing: a PCI address or a virtual device",
                   "device");
    if (options.address == NULL || !net_options_set_address(&to->net, options.address))
        return say(BELAY_BAD_REQUEST, error,
                   "address \"%.80s\": expected an address and its prefix, such as 10.0.0.9/24",
                   options.address == NULL ? "" : options.address);
    if (options.gateway != NULL && !net_options_set_gateway(&to->net, options.gateway))
        return say(BELAY_BAD_REQUEST, error,
                   "gateway \"%.80s\": expected an address, such as 10.0.0.1", options.gateway);
    to->net.mac[0] = 2; /* the device's own takes its place */
    const char *wrong = net_options_check(&to->net);
    return wrong == NULL ? BELAY_OK : say(BELAY_BAD_REQUEST, error, "%s", wrong);
}

static bool choose_udp_port(uint16_t *udp_port)
{
    uint16_t random;

    if (*udp_port != 0)
        return true;
    if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return false;
    *udp_port = (uint16_t)(EPHEMERAL_FIRST + random % EPHEMERAL_COUNT);
    return true;
}

belay_status belay_dpdk_port_open(const belay_dpdk_options *given, belay_dpdk_port **result,
                                  char *error)
{
    struct dpdk_options options;
    struct port_address bind = {.port = 0};
    char why[DPDK_ERROR_BYTES] = "";

    *result = NULL;
    belay_status status = read_options(given, &options, &bind.port, error);
    if (status != BELAY_OK)
        return status;
    if (!choose_udp_port(&bind.port))
        return say(BELAY_SYSTEM, error, "%s gives no random number", "getrandom");
    belay_dpdk_port *port = calloc(1, sizeof(*port));
    if (port == NULL)
        return say(BELAY_NO_MEMORY, error, "no memory for %s", "a port");
    port->device = dpdk_open(&options, why);
    if (port->device == NULL) {
        free(port);
        return say(BELAY_SYSTEM, error, "%s", why);
    }
    if (port_dpdk_open(port->device, 0, &bind, &port->port) != 0) {
        dpdk_close(port->device);
        free(port);
        return say(BELAY_NO_MEMORY, error, "no memory for %s", "a port");
    }
    *result = port;
    return BELAY_OK;
}

void belay_dpdk_port_close(belay_dpdk_port *port)
{
    if (port == NULL)
        return;
    if (port->begun)
        port_thread_end(port->port);
    port_close(port->port);
    dpdk_close(port->device);
    free(port);
}
