/* SPDX-License-Identifier: Apache-2.0
 *
 * A trading loop without the kernel: one thread polls the network card through libbelay-dpdk,
 * starts acquires, and gives back each lock as soon as it has it. See ../client-dpdk.md.
 *
 *     ./dpdk_client 0000:3b:00.0 10.0.0.9/24 10.0.0.1:7400
 *     ./dpdk_client net_virtio_user0,path=/run/belay/port.sock 10.0.0.9/24 10.0.0.1:7400 no-huge
 */
#include <belay/dpdk.h>
#include <stdio.h>

enum { LOCKS = 32 };

struct loop {
    belay_client *client;
    size_t granted, over;
};

/* Within belay_client_poll(): what is started here leaves with the same poll. */
static void on_complete(void *context, const belay_completion *done)
{
    struct loop *loop = context;
    belay_request *request;
    if (done->user != NULL && done->status == BELAY_OK) {
        loop->granted++; /* here the order would be sent, with belay_lock_token(done->lock) */
        if (belay_release_start(loop->client, done->lock, NULL, &request) == BELAY_OK)
            return;
    }
    loop->over++;
}

static belay_dpdk_port *open_port(const char *device, const char *address, bool hugepages)
{
    char error[BELAY_DPDK_ERROR_BYTES];
    belay_dpdk_port *port = NULL;
    belay_dpdk_options options;
    belay_dpdk_options_init(&options);
    options.device = device;
    options.address = address;
    options.no_hugepages = !hugepages;
    if (belay_dpdk_port_open(&options, &port, error) != BELAY_OK)
        fprintf(stderr, "no port: %s\n", error);
    return port;
}

static belay_client *open_client(belay_dpdk_port *port, const char *endpoints, struct loop *loop)
{
    belay_transport transport;
    belay_dpdk_port_transport(port, &transport);
    belay_client_options options;
    belay_client_options_init(&options);
    options.endpoints = endpoints;
    options.polled = true;
    options.transport = &transport;
    options.on_complete = on_complete;
    options.context = loop;
    if (belay_client_open(&options, &loop->client) != BELAY_OK)
        fprintf(stderr, "no client: %s\n", belay_error_text());
    return loop->client;
}

int main(int argc, char **argv)
{
    struct loop loop = {0};
    if (argc < 4) {
        fprintf(stderr, "usage: dpdk_client DEVICE ADDRESS/PREFIX NODE:PORT,... [no-huge]\n");
        return 2;
    }
    belay_dpdk_port *port = open_port(argv[1], argv[2], argc < 5);
    if (port == NULL || open_client(port, argv[3], &loop) == NULL) {
        belay_dpdk_port_close(port);
        return 1;
    }
    size_t started = 0;
    for (int i = 0; i < LOCKS; i++) {
        char name[32];
        belay_acquire_options wanted;
        belay_request *request;
        snprintf(name, sizeof(name), "orders/%d", i);
        belay_acquire_options_init(&wanted, name);
        started += belay_acquire_start(loop.client, &wanted, &loop, &request) == BELAY_OK;
    }
    while (loop.over < started)
        belay_client_poll(loop.client, NULL); /* and whatever else the thread has to do */
    printf("held %zu of %d\n", loop.granted, (int)LOCKS);
    belay_client_close(loop.client, 1000);
    belay_dpdk_port_close(port);
    return loop.granted == LOCKS ? 0 : 1;
}
