/* SPDX-License-Identifier: Apache-2.0
 *
 * libbelay-dpdk: a polled client on net_virtio_user. Behind net_vhost, in a process of its own,
 * answers the tests' own little service (client_fake.h). Needs neither root nor hugepages.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "belay/dpdk.h"
#include "client_fake.h"
#include "hw/dpdk/dpdk.h"
#include "plain_check.h"

enum { PORT_BASE = 7400, ECHO = 7500, REQUESTS = 32, DATAGRAM_BYTES_MAX = 1400 };

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- the service ----------------------------------------------------------------------------- */

static void answer(struct fake *fake, struct port **ports, struct port_address *client)
{
    struct port_packet packets[PORT_BURST_MAX];

    fake->now_ns = now_ns();
    for (uint8_t node = 0; node < FAKE_NODES; node++) {
        uint32_t count = port_rx_burst(ports[node], packets, PORT_BURST_MAX);
        for (uint32_t i = 0; i < count; i++) {
            *client = packets[i].from;
            fake_serve(fake, node, packets[i].bytes, packets[i].length);
        }
    }
    fake_serve(fake, 0, NULL, 0); /* time passes */
    for (uint32_t i = 0; i < fake->packets_count; i++) {
        struct port *port = ports[fake->packets[i].node];
        uint8_t *bytes = port_tx_buffer(port);
        memcpy(bytes, fake->packets[i].bytes, fake->packets[i].length);
        port_tx_push(port, (uint32_t)fake->packets[i].length, client);
        port_tx_flush(port);
    }
    fake->packets_count = 0;
}

static void echo(struct port *port)
{
    struct port_packet packets[PORT_BURST_MAX];
    uint32_t count = port_rx_burst(port, packets, PORT_BURST_MAX);

    for (uint32_t i = 0; i < count; i++) {
        memcpy(port_tx_buffer(port), packets[i].bytes, packets[i].length);
        port_tx_push(port, packets[i].length, &packets[i].from);
        port_tx_flush(port);
    }
}

__attribute__((noreturn)) static void serve(const char *path, int ready)
{
    struct dpdk_options options = {.net = {.ipv4 = {10, 9, 0, 1}, .ipv4_prefix = 24, .mtu = 1500},
                                   .queues = 1};
    char name[128], error[DPDK_ERROR_BYTES] = "";
    struct port_address client = {.port = 0};
    struct port_address echo_bind = {.port = ECHO};
    struct port *ports[FAKE_NODES], *echo_port;
    struct fake *fake = fake_new(NULL);

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    fake->delay_ns = 0;
    fake->port_base = PORT_BASE;
    memcpy(fake->host, options.net.ipv4, sizeof(fake->host));
    (void)snprintf(name, sizeof(name), "net_vhost0,iface=%s,queues=1", path);
    options.device = name;
    struct dpdk_device *device = dpdk_open(&options, error);
    CHECK(device != NULL, "%s", error);
    for (uint16_t node = 0; node < FAKE_NODES; node++) {
        struct port_address bind = {.port = (uint16_t)(PORT_BASE + node)};
        CHECK(port_dpdk_open(device, 0, &bind, &ports[node]) == 0, "port of node %u", node);
    }
    CHECK(port_dpdk_open(device, 0, &echo_bind, &echo_port) == 0, "port that echoes");
    CHECK(write(ready, "", 1) == 1, "pipe");
    for (;;) {
        answer(fake, ports, &client);
        echo(echo_port);
        (void)sched_yield(); /* there may be more processes than cores */
    }
}

/* ---- the transport itself -------------------------------------------------------------------- */

/* In no buffer is the same byte at the same place from before. */
static uint8_t pattern(uint32_t length, uint32_t at)
{
    return (uint8_t)(length * 31 + at * 7 + 1);
}

static bool is_back(const belay_transport *transport, uint32_t length)
{
    belay_packet packet;

    while (transport->receive(transport->context, &packet, 1) == 1) {
        if (packet.length > 0 && packet.bytes[0] != pattern(length, 0))
            continue; /* an earlier one that came twice */
        CHECK(packet.length == length, "%u bytes came back of %u", packet.length, length);
        CHECK(packet.from.port == ECHO && packet.from.ip[15] == 1, "from somebody else");
        for (uint32_t i = 0; i < length; i++)
            CHECK(packet.bytes[i] == pattern(length, i), "byte %u of %u", i, length);
        return true;
    }
    return false;
}

/* Every byte of datagrams of every length travels, there and back. */
static void all_lengths(belay_dpdk_port *port)
{
    belay_address to = {.ip = {[10] = 0xff, 0xff, 10, 9, 0, 1}, .port = ECHO};
    uint8_t bytes[DATAGRAM_BYTES_MAX];
    belay_transport transport;

    belay_dpdk_port_transport(port, &transport);
    for (uint32_t length = 1; length <= DATAGRAM_BYTES_MAX; length++) {
        uint64_t give_up_ns = now_ns() + UINT64_C(20000000000), again_ns = 0;
        for (uint32_t i = 0; i < length; i++)
            bytes[i] = pattern(length, i);
        while (!is_back(&transport, length)) {
            CHECK(now_ns() < give_up_ns, "%u bytes do not come back", length);
            if (now_ns() >= again_ns) { /* datagrams may be lost */
                transport.send(transport.context, &to, bytes, length);
                transport.flush(transport.context);
                again_ns = now_ns() + UINT64_C(100000000);
            }
            (void)sched_yield();
        }
    }
}

/* ---- the client ------------------------------------------------------------------------------ */

struct done {
    uint32_t acquired, released;
    belay_client *client;
};

static void on_complete(void *context, const belay_completion *completion)
{
    struct done *done = context;
    belay_request *request;

    CHECK(completion->status == BELAY_OK, "%s", belay_status_name(completion->status));
    if (completion->user == NULL) {
        done->released++;
        return;
    }
    done->acquired++;
    CHECK(belay_release_start(done->client, completion->lock, NULL, &request) == BELAY_OK, "%s",
          belay_error_text());
}

static belay_client *open_client(belay_dpdk_port *port, struct done *done)
{
    belay_client_options options;
    belay_transport transport;

    belay_dpdk_port_transport(port, &transport);
    belay_client_options_init(&options);
    options.endpoints = "10.9.0.1:7400";
    options.request_timeout_ms = 20000;
    options.polled = true;
    options.transport = &transport;
    options.on_complete = on_complete;
    options.context = done;
    CHECK(belay_client_open(&options, &done->client) == BELAY_OK, "%s", belay_error_text());
    return done->client;
}

static void acquire(belay_client *client, const char *name)
{
    belay_acquire_options options;
    belay_lock *lock;

    belay_acquire_options_init(&options, name);
    options.ttl_ms = 60000;
    options.try_only = true;
    CHECK(belay_acquire(client, &options, &lock, NULL) == BELAY_OK, "%s", belay_error_text());
    CHECK(belay_lock_is_valid(lock) && belay_lock_token(lock) > 0, "%s", name);
}

static void many(struct done *done)
{
    belay_acquire_options options;
    belay_request *request;
    char name[32];

    for (int i = 0; i < REQUESTS; i++) {
        (void)snprintf(name, sizeof(name), "many/%d", i);
        belay_acquire_options_init(&options, name);
        CHECK(belay_acquire_start(done->client, &options, done, &request) == BELAY_OK, "%s",
              belay_error_text());
    }
    while (done->released < REQUESTS) {
        CHECK(belay_client_poll(done->client, NULL) == BELAY_OK, "%s", belay_error_text());
        (void)sched_yield();
    }
    CHECK(done->acquired == REQUESTS, "%u acquired", done->acquired);
}

static void refused(belay_dpdk_options options, const char *text)
{
    char error[BELAY_DPDK_ERROR_BYTES] = "";
    belay_dpdk_port *port;

    CHECK(belay_dpdk_port_open(&options, &port, error) == BELAY_BAD_REQUEST && port == NULL,
          "expected: %s", text);
    CHECK(strstr(error, text) != NULL, "%s is not in: %s", text, error);
    CHECK(belay_dpdk_port_open(&options, &port, NULL) == BELAY_BAD_REQUEST, "without a text");
}

static void test_bad_options(void)
{
    belay_dpdk_options options, bad;

    belay_dpdk_options_init(&options);
    options.device = "net_null0";
    options.address = "10.9.0.2/24";
    bad = options;
    bad.struct_bytes++;
    refused(bad, "struct_bytes");
    bad = options;
    bad.device = NULL;
    refused(bad, "device");
    bad = options;
    bad.address = "10.9.0.2";
    refused(bad, "prefix");
    bad.address = NULL;
    refused(bad, "address");
    bad = options;
    bad.gateway = "nearby";
    refused(bad, "gateway");
    bad.gateway = "192.168.0.1"; /* not on our net */
    refused(bad, "gateway");
}

static void run(const char *path)
{
    char name[128], error[BELAY_DPDK_ERROR_BYTES] = "";
    belay_dpdk_options options;
    belay_dpdk_port *port;
    struct done done = {.client = NULL};

    (void)snprintf(name, sizeof(name), "net_virtio_user0,path=%s,mac=02:00:00:00:00:02", path);
    belay_dpdk_options_init(&options);
    options.device = name;
    options.address = "10.9.0.2/24";
    options.no_hugepages = true;
    CHECK(belay_dpdk_port_open(&options, &port, error) == BELAY_OK, "%s", error);
    all_lengths(port);
    belay_client *client = open_client(port, &done);
    acquire(client, "first");
    CHECK(belay_dpdk_port_is_up(port), "the link is down");
    many(&done);
    belay_client_close(client, 20000);
    /* The next client on it finds released what the first had left behind. */
    client = open_client(port, &done);
    acquire(client, "first");
    belay_client_close(client, 20000);
    belay_dpdk_port_close(port);
    belay_dpdk_port_close(NULL);
}

int main(void)
{
    char directory[] = "/tmp/belay-client-XXXXXX", path[64], byte;
    int ready[2], status;

    test_bad_options();
    CHECK(mkdtemp(directory) != NULL && pipe(ready) == 0, "%s", directory);
    (void)snprintf(path, sizeof(path), "%s/vhost", directory);
    pid_t server = fork();
    if (server == 0)
        serve(path, ready[1]);
    (void)close(ready[1]);
    CHECK(server > 0 && read(ready[0], &byte, 1) == 1, "the service does not start");
    run(path);
    CHECK(kill(server, SIGKILL) == 0 && waitpid(server, &status, 0) == server, "the service");
    (void)unlink(path);
    (void)rmdir(directory);
    return 0;
}
