/* SPDX-License-Identifier: Apache-2.0
 *
 * DPDK ports without a network card: a process answers behind net_vhost, with a thread for each
 * queue, and its children ask through net_virtio_user. Children are killed in the middle of
 * everything; the server must go on, and every packet buffer must come back. With several queues,
 * each asks each, so that half of all frames come to the wrong one, on either side. Needs neither
 * root nor hugepages.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hw/clock.h"
#include "hw/dpdk/dpdk.h"
#include "plain_check.h"

enum { SERVICE = 7400, OTHER = 7500, CLIENT = 5000, KILLS = 5, LENGTH_MAX = 1452, QUEUES_MAX = 3 };
static const uint64_t second_ns = 1000000000;

/* Queues of either side, and how many queue pairs the devices have for them. */
struct shape {
    uint16_t queues, pairs;
};
static const struct shape shapes[] = {{1, 1}, {2, 2}, {3, 1}, {3, 2}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static struct dpdk_device *open_device(const char *name, uint8_t host, uint16_t queues)
{
    char error[DPDK_ERROR_BYTES] = "";
    struct dpdk_options options = {
        .device = name,
        .net = {.ipv4 = {10, 9, 0, host},
                .ipv4_prefix = 24,
                .ipv6 = {0xfd, 9},
                .ipv6_prefix = 64,
                .mtu = 1500},
        .queues = queues,
    };
    options.net.ipv6[15] = host;
    struct dpdk_device *device = dpdk_open(&options, error);
    CHECK(device != NULL, "%s: %s", name, error);
    return device;
}

static struct port *open_port(struct dpdk_device *device, uint16_t queue, uint16_t number)
{
    struct port_address bind = {.port = number};
    struct port *port = NULL;
    CHECK(port_dpdk_open(device, queue, &bind, &port) == 0, "port %u", number);
    CHECK(port_dpdk_open(device, queue, &bind, &port) == -EADDRINUSE, "port %u twice", number);
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

struct asking {
    struct port *ports[QUEUES_MAX];
    uint16_t queues;
};

/* What came to one port. The others are polled, too: a frame for this one may come by them. What
 * they get themselves is an answer that came twice. */
static bool receive(const struct asking *asking, uint16_t queue, struct port_packet *packet)
{
    struct port_packet late;
    for (uint16_t i = 0; i < asking->queues; i++) {
        if (i != queue)
            (void)port_rx_burst(asking->ports[i], &late, 1);
    }
    return port_rx_burst(asking->ports[queue], packet, 1) == 1;
}

/* Until the same comes back; what may have been lost is sent again after a while. */
static void ask(const struct asking *asking, uint16_t queue, uint32_t number, uint32_t length,
                const struct port_address *to)
{
    const uint64_t give_up_ns = clock_monotonic_ns() + 20 * second_ns;
    struct port_packet packet;
    while (true) {
        uint64_t again_ns = clock_monotonic_ns() + second_ns / 20;
        send_pattern(asking->ports[queue], number, length, to);
        while (clock_monotonic_ns() < again_ns) {
            if (!receive(asking, queue, &packet) || packet.length != length ||
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

static int client(const char *path, const struct shape *shape, bool for_ever)
{
    char name[256];
    (void)snprintf(name, sizeof name, "net_virtio_user0,path=%s,mac=02:00:00:00:00:02,queues=%u",
                   path, shape->pairs);
    struct dpdk_device *device = open_device(name, 2, shape->queues);
    const char *const services[] = {"10.9.0.1:7400", "[fd09::1]:7400", "10.9.0.1:7500"};
    struct asking asking = {.queues = shape->queues};
    uint32_t number = 0;
    for (uint16_t i = 0; i < shape->queues; i++)
        asking.ports[i] = open_port(device, i, (uint16_t)(CLIENT + i));
    CHECK(port_thread_begin(asking.ports[0]) == 0, "thread");
    do {
        for (uint32_t length = 0; length <= LENGTH_MAX; length += 11, number++) {
            struct port_address to;
            CHECK(port_address_parse(services[number % 3], &to) == 0, "address");
            to.port = (uint16_t)(to.port + number / 3 % shape->queues);
            ask(&asking, (uint16_t)(number / 3 / shape->queues % shape->queues), number, length,
                &to);
        }
    } while (for_ever);
    for (uint16_t i = 0; i < shape->queues; i++)
        port_close(asking.ports[i]);
    dpdk_close(device);
    return 0;
}

/* ---- the one that answers -------------------------------------------------------------------- */

static _Atomic bool stop;
static _Atomic uint64_t answered;

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

/* One thread per queue, as workers are. */
static void *serve(void *context)
{
    struct port **ports = context;
    CHECK(port_thread_begin(ports[0]) == 0 && port_thread_begin(ports[1]) == 0, "thread");
    while (!atomic_load(&stop)) {
        uint32_t count = answer(ports[0]) + answer(ports[1]);
        if (count > 0)
            atomic_fetch_add(&answered, count);
        else
            (void)sched_yield(); /* there may be more threads than cores */
    }
    port_thread_end(ports[0]);
    port_thread_end(ports[1]);
    return NULL;
}

static pid_t start(const char *path, int shape, const char *role)
{
    char number[] = {(char)('0' + shape), '\0'};
    char *words[] = {"client", number, (char *)(uintptr_t)path, (char *)(uintptr_t)role, NULL};
    pid_t child = fork();
    if (child == 0) {
        execv("/proc/self/exe", words);
        _exit(127);
    }
    CHECK(child > 0, "fork");
    return child;
}

/* Until the child has ended; killed after so many answers (0 = never). Its status. */
static int watch(pid_t child, uint64_t kill_after)
{
    const uint64_t give_up_ns = clock_monotonic_ns() + 60 * second_ns;
    uint64_t before = atomic_load(&answered);
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        bool late = clock_monotonic_ns() > give_up_ns;
        if (late || (kill_after > 0 && atomic_load(&answered) - before >= kill_after))
            (void)kill(child, SIGKILL);
        CHECK(!late, "the client does not come to an end: %lu answers", answered);
        (void)sched_yield();
    }
    return status;
}

static uint32_t kills_of(const struct shape *shape)
{
    return shape->queues == 1 ? KILLS : 1;
}

static void check_counters(const struct dpdk_device *device, const struct shape *shape)
{
    uint64_t handed_over = 0, datagrams = 0;
    for (uint16_t queue = 0; queue < shape->queues; queue++) {
        const struct net_counters *counters = dpdk_net_counters(device, queue);
        for (int i = 0; i < NET_LOSSES; i++)
            CHECK(counters->losses[i] == 0 || i == NET_LOSS_NO_NEIGHBOUR || i == NET_LOSS_ARP ||
                      i == NET_LOSS_DISCOVERY,
                  "%s: %lu", net_loss_name((enum net_loss)i), counters->losses[i]);
        handed_over += dpdk_counters(device, queue)->handed_over;
        datagrams += counters->datagrams_in;
    }
    CHECK((handed_over > 0) == (shape->queues > 1), "%lu handed over", handed_over);
    printf("%s: %u queues on %u pairs: %lu datagrams answered, %lu frames handed over, %u clients "
           "killed\n",
           dpdk_driver(device), shape->queues, dpdk_pairs(device), datagrams, handed_over,
           kills_of(shape));
}

static int server(const char *path, int number)
{
    const struct shape *shape = &shapes[number];
    struct port *ports[QUEUES_MAX][2];
    pthread_t threads[QUEUES_MAX];
    char name[256];
    (void)snprintf(name, sizeof name, "net_vhost0,iface=%s,queues=%u", path, shape->pairs);
    struct dpdk_device *device = open_device(name, 1, shape->queues);
    CHECK(dpdk_pairs(device) == shape->pairs, "%u pairs", dpdk_pairs(device));
    for (uint16_t i = 0; i < shape->queues; i++) {
        ports[i][0] = open_port(device, i, (uint16_t)(SERVICE + i));
        ports[i][1] = open_port(device, i, (uint16_t)(OTHER + i));
    }
    CHECK((dpdk_steer(device) == DPDK_STEER_ALONE) == (shape->queues == 1), "steering");
    uint32_t buffers_free = dpdk_buffers_free(device);
    for (uint16_t i = 0; i < shape->queues; i++)
        CHECK(pthread_create(&threads[i], NULL, serve, ports[i]) == 0, "thread");
    for (uint32_t i = 0; i < kills_of(shape); i++) {
        int status = watch(start(path, number, "for-ever"), 50 + 100 * i);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %d", status);
    }
    int status = watch(start(path, number, "once"), 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
    atomic_store(&stop, true);
    for (uint16_t i = 0; i < shape->queues; i++)
        pthread_join(threads[i], NULL);
    for (uint16_t i = 0; i < shape->queues; i++) {
        (void)answer(ports[i][0]); /* what they had received is given back */
        port_close(ports[i][0]);
        port_close(ports[i][1]);
    }
    check_counters(device, shape);
    CHECK(dpdk_buffers_free(device) == buffers_free, "%u of %u buffers are free",
          dpdk_buffers_free(device), buffers_free);
    dpdk_close(device);
    return 0;
}

/* As one that was killed leaves it: nobody listens any more. */
static void leave_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int left = socket(AF_UNIX, SOCK_STREAM, 0);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    CHECK(bind(left, (struct sockaddr *)&address, sizeof address) == 0, "%s", path);
    (void)close(left);
}

/* DPDK is started once in a process: each shape has its own. */
int main(int argc, char **argv)
{
    if (argc == 4)
        return client(argv[2], &shapes[argv[1][0] - '0'], strcmp(argv[3], "for-ever") == 0);
    for (int shape = 0; shape < SHAPES; shape++) {
        char directory[] = "/tmp/belay-dpdk-XXXXXX";
        char path[64];
        int status = 0;
        CHECK(mkdtemp(directory) != NULL, "%s", directory);
        (void)snprintf(path, sizeof path, "%s/vhost", directory);
        leave_socket(path);
        pid_t child = fork();
        if (child == 0)
            exit(server(path, shape));
        CHECK(child > 0 && waitpid(child, &status, 0) == child, "fork");
        (void)unlink(path);
        (void)rmdir(directory);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "shape %d: status %d", shape, status);
    }
    return 0;
}
