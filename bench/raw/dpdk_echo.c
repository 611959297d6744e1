/* SPDX-License-Identifier: Apache-2.0
 *
 * The same as udp_echo past the kernel: a process behind net_vhost sends back what a client on
 * net_virtio_user asks, each polling, frames and checksums in software. What no service on this
 * port can be faster than, and how many cycles of the server each request takes by itself.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/raw/echo.h"
#include "bench/raw/loopback.h"
#include "bench/raw/virtual.h"
#include "hw/clock.h"

enum { SAMPLES_MAX = 1 << 21 };

enum { AWAY_NS = 300000 };

/* Of the server's: polls that found something, from receiving to sending; but for those in which
 * its core was taken away. */
struct busy {
    volatile uint64_t cycles, datagrams;
    volatile bool ready;
};

__attribute__((noreturn)) static void serve(const char *path, struct busy *busy)
{
    char name[256];
    (void)snprintf(name, sizeof name, "net_vhost0,iface=%s,queues=1", path);
    struct port *port = virtual_port(name, VIRTUAL_SERVER_HOST, VIRTUAL_SERVICE);
    virtual_pin(1);
    double away = AWAY_NS * raw_cycles_per_ns();
    busy->ready = true;
    for (;;) {
        uint64_t began = raw_cycles();
        uint32_t count = echo_answer(port);
        uint64_t spent = raw_cycles() - began;
        if (count > 0 && (double)spent < away) {
            busy->cycles += spent;
            busy->datagrams += count;
        }
    }
}

/* Until the server knows us and we know it. */
static void get_acquainted(const struct echo *echo)
{
    struct port_packet packet;
    uint64_t give_up_ns = clock_monotonic_ns() + UINT64_C(5000000000);
    for (uint32_t polls = 0; port_rx_burst(echo->client, &packet, 1) == 0; polls++) {
        if (polls % 65536 == 0) {
            (void)port_tx_buffer(echo->client);
            port_tx_push(echo->client, 8, &echo->address);
            port_tx_flush(echo->client);
        }
        if (clock_monotonic_ns() > give_up_ns)
            raw_die("the server behind net_vhost does not answer");
    }
    for (uint32_t polls = 0; polls < 65536; polls++) /* answers to what was asked twice */
        (void)port_rx_burst(echo->client, &packet, 1);
}

static void measure(const struct echo *echo, const struct raw_options *options,
                    const struct busy *busy, struct raw_samples *samples, struct raw_report *report)
{
    echo_measure_one(echo, options, samples, report);
    uint64_t cycles = busy->cycles, datagrams = busy->datagrams;
    echo_measure_single(echo, options, report);
    raw_add(report, "single.server_cycles", "the server's busy cycles (TSC) per request",
            (double)(busy->cycles - cycles) / (double)(busy->datagrams - datagrams));
    echo_measure_packed(echo, options, report);
}

int main(int argc, char **argv)
{
    struct raw_options options;
    struct raw_report report = {.program = "dpdk_echo"};
    struct raw_samples samples;
    char directory[] = "/tmp/belay-echo-XXXXXX";
    char path[64], name[128];
    raw_parse(&options, "f", "vhost and virtio-user, echoed: what the port past the kernel can do",
              argc, argv);
    if (options.in_flight > VIRTUAL_IN_FLIGHT_MAX)
        options.in_flight = VIRTUAL_IN_FLIGHT_MAX;
    struct busy *busy =
        mmap(NULL, sizeof *busy, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (busy == MAP_FAILED || mkdtemp(directory) == NULL)
        raw_die("%s cannot be made", directory);
    (void)snprintf(path, sizeof path, "%s/vhost", directory);
    (void)snprintf(name, sizeof name, "net_virtio_user0,path=%s", path);
    pid_t child = loopback_fork();
    if (child == 0)
        serve(path, busy);
    while (!busy->ready) {
        if (waitpid(child, NULL, WNOHANG) != 0)
            raw_die("the server did not start");
    }
    struct echo echo = {.client = virtual_port(name, VIRTUAL_CLIENT_HOST, VIRTUAL_CLIENT)};
    (void)port_address_parse("10.9.0.1:7400", &echo.address);
    virtual_pin(0);
    get_acquainted(&echo);
    raw_samples_open(&samples, SAMPLES_MAX);
    for (uint32_t round = 0; round < options.rounds; round++)
        measure(&echo, &options, busy, &samples, &report);
    raw_note(
        &report,
        "two processes that poll, each on a core of its own if there are two; ordinary memory, one "
        "queue, at most 256 under way");
    raw_print(&report, options.json);
    raw_samples_close(&samples);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    (void)unlink(path);
    (void)rmdir(directory);
    return 0;
}
