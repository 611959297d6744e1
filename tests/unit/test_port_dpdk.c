/* SPDX-License-Identifier: Apache-2.0
 *
 * A DPDK port without a network card: this process answers behind net_vhost, its children ask
 * through net_virtio_user. Children are killed in the middle of everything; the server must go on,
 * and every packet buffer must come back. Needs neither root nor hugepages.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hw/clock.h"
#include "hw/dpdk/dpdk.h"

enum { SERVICE = 7400, OTHER = 7500, CLIENT = 5000, KILLS = 5, LENGTH_MAX = 1452 };
static const uint64_t second_ns = 1000000000;

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s: ", __FILE__, __LINE__, #condition);                \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static struct port_address address_of(const char *text)
{
    struct port_address address;
    CHECK(port_address_parse(text, &address) == 0, "%s", text);
    return address;
}

static struct dpdk_device *open_device(const char *name, uint8_t host)
{
    char error[DPDK_ERROR_BYTES] = "";
    struct dpdk_options options = {
        .device = name,
        .net = {.ipv4 = {10, 9, 0, host},
                .ipv4_prefix = 24,
                .ipv6 = {0xfd, 9},
                .ipv6_prefix = 64,
                .mtu = 1500},
        .queues = 1,
        .memory_mib = 64,
    };
    options.net.ipv6[15] = host;
    struct dpdk_device *device = dpdk_open(&options, error);
    CHECK(device != NULL, "%s: %s", name, error);
    return device;
}

static struct port *open_port(struct dpdk_device *device, uint16_t number)
{
    struct port_address bind = {.port = number};
    struct port *port = NULL;
    CHECK(port_dpdk_open(device, 0, &bind, &port) == 0, "port %u", number);
    CHECK(port_dpdk_open(device, 0, &bind, &port) == -EADDRINUSE, "port %u twice", number);
    return port;
}

/* ---- the one that asks ----------------------------------------------------------------------- */

static uint8_t pattern(uint32_t number, uint32_t at)
{
    return (uint8_t)(number * 31 + at * 7);
}

static void send_pattern(struct port *port, uint32_t number, uint32_t length,
                         const struct port_address *to)
{
    uint8_t *bytes = port_tx_buffer(port);
    CHECK(bytes != NULL, "no buffer");
    for (uint32_t i = 0; i < length; i++)
        bytes[i] = pattern(number, i);
    port_tx_push(port, length, to);
    port_tx_flush(port);
}

/* Until the same comes back; what may have been lost is sent again after a while. */
static void ask(struct port *port, uint32_t number, uint32_t length, const struct port_address *to)
{
    const uint64_t give_up_ns = clock_monotonic_ns() + 20 * second_ns;
    struct port_packet packet;
    while (true) {
        uint64_t again_ns = clock_monotonic_ns() + second_ns / 20;
        send_pattern(port, number, length, to);
        while (clock_monotonic_ns() < again_ns) {
            if (port_rx_burst(port, &packet, 1) == 0 || packet.length != length ||
                (length > 0 && packet.bytes[0] != pattern(number, 0)))
                continue;
            CHECK(port_address_equal(&packet.from, to), "from somebody else");
            for (uint32_t i = 0; i < length; i++)
                CHECK(packet.bytes[i] == pattern(number, i), "byte %u of %u", i, length);
            return;
        }
        CHECK(again_ns < give_up_ns, "no answer to %u", number);
    }
}

static int client(const char *path, bool for_ever)
{
    char name[256];
    (void)snprintf(name, sizeof name, "net_virtio_user0,path=%s,mac=02:00:00:00:00:02", path);
    struct dpdk_device *device = open_device(name, 2);
    struct port *port = open_port(device, CLIENT);
    const struct port_address to[] = {address_of("10.9.0.1:7400"), address_of("[fd09::1]:7400"),
                                      address_of("10.9.0.1:7500")};
    uint32_t number = 0;
    do {
        for (uint32_t length = 0; length <= LENGTH_MAX; length += 11, number++)
            ask(port, number, length, &to[number % 3]);
    } while (for_ever);
    port_close(port);
    dpdk_close(device);
    return 0;
}

/* ---- the one that answers -------------------------------------------------------------------- */

static uint32_t answer(struct port *port)
{
    struct port_packet packets[PORT_BURST_MAX];
    uint32_t count = port_rx_burst(port, packets, PORT_BURST_MAX);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *bytes = port_tx_buffer(port);
        if (bytes == NULL) {
            port_tx_flush(port);
            bytes = port_tx_buffer(port);
        }
        memcpy(bytes, packets[i].bytes, packets[i].length);
        port_tx_push(port, packets[i].length, &packets[i].from);
    }
    if (count > 0)
        port_tx_flush(port);
    return count;
}

static pid_t start(char *self, char *path, char *role)
{
    char *words[] = {self, role, path, NULL};
    pid_t child = fork();
    if (child == 0) {
        execv("/proc/self/exe", words);
        _exit(127);
    }
    CHECK(child > 0, "fork");
    return child;
}

/* Answers until the child has ended; kills it after so many answers (0 = never). Its status. */
static int serve(struct port *ports[2], pid_t child, uint64_t kill_after)
{
    const uint64_t give_up_ns = clock_monotonic_ns() + 60 * second_ns;
    uint64_t answered = 0;
    int status = 0;
    for (uint32_t turn = 0; turn % 256 != 0 || waitpid(child, &status, WNOHANG) == 0; turn++) {
        answered += answer(ports[0]) + answer(ports[1]);
        if (kill_after > 0 && answered >= kill_after) {
            (void)kill(child, SIGKILL);
            kill_after = UINT64_MAX;
        }
        if (turn % 4096 == 0 && clock_monotonic_ns() > give_up_ns) {
            (void)kill(child, SIGKILL);
            CHECK(false, "the client does not come to an end: %lu answers", answered);
        }
    }
    return status;
}

static int server(char *self, char *path)
{
    char name[256];
    (void)snprintf(name, sizeof name, "net_vhost0,iface=%s,queues=1", path);
    struct dpdk_device *device = open_device(name, 1);
    struct port *ports[2] = {open_port(device, SERVICE), open_port(device, OTHER)};
    uint32_t buffers_free = dpdk_buffers_free(device);
    for (uint32_t i = 0; i < KILLS; i++) {
        int status = serve(ports, start(self, path, "for-ever"), 50 + 100 * i);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %d", status);
    }
    int status = serve(ports, start(self, path, "once"), 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
    (void)answer(ports[0]);
    (void)answer(ports[1]);
    port_close(ports[0]);
    port_close(ports[1]);
    const struct net_counters *counters = dpdk_net_counters(device, 0);
    for (int i = 0; i < NET_LOSSES; i++)
        CHECK(counters->losses[i] == 0 || i == NET_LOSS_NO_NEIGHBOUR || i == NET_LOSS_ARP ||
                  i == NET_LOSS_DISCOVERY,
              "%s: %lu", net_loss_name((enum net_loss)i), counters->losses[i]);
    CHECK(dpdk_buffers_free(device) == buffers_free, "%u of %u buffers are free",
          dpdk_buffers_free(device), buffers_free);
    printf("%s: %lu datagrams answered, %d clients killed\n", dpdk_driver(device),
           counters->datagrams_in, KILLS);
    dpdk_close(device);
    return 0;
}

int main(int argc, char **argv)
{
    char directory[] = "/tmp/belay-dpdk-XXXXXX";
    char path[64];
    if (argc == 3)
        return client(argv[2], strcmp(argv[1], "for-ever") == 0);
    CHECK(mkdtemp(directory) != NULL, "%s", directory);
    (void)snprintf(path, sizeof path, "%s/vhost", directory);
    int result = server(argv[0], path);
    (void)unlink(path);
    (void)rmdir(directory);
    return result;
}
