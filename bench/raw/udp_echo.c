/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernel UDP on loopback with Belay's datagram sizes and bursts: a process that sends back what it
 * gets, and a client. What no service on this kernel's UDP can be faster than.
 */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/raw/bare.h"
#include "bench/raw/loopback.h"
#include "bench/raw/raw.h"
#include "hw/clock.h"
#include "hw/port.h"

enum { SAMPLES_MAX = 1 << 20, SILENCE_MS = 2000 };

enum {
    ONE_BYTES = sizeof(struct wire_header) + BARE_ACQUIRE_BYTES,
    MANY_REQUESTS =
        (WIRE_DATAGRAM_BYTES_MAX - sizeof(struct wire_header)) / (size_t)BARE_ACQUIRE_BYTES,
    MANY_BYTES = sizeof(struct wire_header) + MANY_REQUESTS * BARE_ACQUIRE_BYTES,
};

struct echo {
    struct port *client, *server;
    struct port_address address; /* the server's */
    pid_t child;
};

static void wait_readable(struct port *port, int limit_ms)
{
    struct pollfd socket = {port_descriptor(port), POLLIN, 0};
    if (poll(&socket, 1, limit_ms) == 0)
        raw_die("no answer in %d ms: a datagram was lost", limit_ms);
}

__attribute__((noreturn)) static void serve(struct port *port)
{
    struct port_packet packets[PORT_BURST_MAX];
    for (;;) {
        uint32_t count = port_rx_burst(port, packets, PORT_BURST_MAX);
        for (uint32_t i = 0; i < count; i++) {
            memcpy(port_tx_buffer(port), packets[i].bytes, packets[i].length);
            port_tx_push(port, packets[i].length, &packets[i].from);
        }
        port_tx_flush(port);
        if (count < PORT_BURST_MAX)
            wait_readable(port, -1);
    }
}

static void echo_start(struct echo *echo)
{
    echo->client = loopback_port();
    echo->server = loopback_port();
    port_local_address(echo->server, &echo->address);
    echo->child = loopback_fork();
    if (echo->child == 0)
        serve(echo->server);
}

static void echo_stop(struct echo *echo)
{
    kill(echo->child, SIGKILL);
    waitpid(echo->child, NULL, 0);
    port_close(echo->client);
    port_close(echo->server);
}

static void send_one(struct echo *echo, uint32_t bytes)
{
    if (port_tx_buffer(echo->client) == NULL)
        port_tx_flush(echo->client);
    memset(port_tx_buffer(echo->client), 7, bytes);
    port_tx_push(echo->client, bytes, &echo->address);
}

static uint32_t take(struct echo *echo)
{
    struct port_packet packets[PORT_BURST_MAX];
    wait_readable(echo->client, SILENCE_MS);
    return port_rx_burst(echo->client, packets, PORT_BURST_MAX);
}

static void one_in_flight(struct echo *echo, uint64_t round_ns, struct raw_samples *samples)
{
    uint64_t now_ns = clock_monotonic_ns();
    for (const uint64_t until_ns = now_ns + round_ns; now_ns < until_ns;) {
        uint64_t sent_ns = now_ns;
        send_one(echo, ONE_BYTES);
        port_tx_flush(echo->client);
        while (take(echo) == 0)
            ;
        now_ns = clock_monotonic_ns();
        raw_sample(samples, now_ns - sent_ns);
    }
}

/* Datagrams per second with `window` of them under way. */
static double pipelined(struct echo *echo, uint64_t round_ns, uint32_t bytes, uint32_t window)
{
    uint64_t began_ns = clock_monotonic_ns(), now_ns = began_ns, answers = 0;
    for (uint32_t room = window; now_ns - began_ns < round_ns;) {
        for (; room > 0; room--)
            send_one(echo, bytes);
        port_tx_flush(echo->client);
        room = take(echo);
        answers += room;
        now_ns = clock_monotonic_ns();
    }
    return (double)answers * 1e9 / (double)(now_ns - began_ns);
}

static void measure(const struct raw_options *options, struct raw_samples *samples,
                    struct raw_report *report)
{
    struct echo echo;
    uint32_t datagrams = options->in_flight / MANY_REQUESTS + 1;
    samples->count = 0;
    echo_start(&echo);
    one_in_flight(&echo, options->round_ns, samples);
    raw_add(report, "one.p50_us", "one datagram in flight, p50, us", raw_quantile_us(samples, 0.5));
    raw_add(report, "one.p99_us", "one datagram in flight, p99, us",
            raw_quantile_us(samples, 0.99));
    raw_add(report, "single.requests_s", "pipelined, one request per datagram, requests/s",
            pipelined(&echo, options->round_ns, ONE_BYTES, options->in_flight));
    echo_stop(&echo);
    echo_start(&echo);
    raw_add(report, "packed.requests_s", "pipelined, 15 requests per datagram, requests/s",
            pipelined(&echo, options->round_ns, MANY_BYTES, datagrams) * MANY_REQUESTS);
    echo_stop(&echo);
}
static_assert((int)MANY_REQUESTS == 15, "the report says 15");

int main(int argc, char **argv)
{
    struct raw_options options;
    struct raw_report report = {.program = "udp_echo"};
    struct raw_samples samples;
    raw_parse(&options, "f", "kernel UDP over loopback, echoed: what the transport alone can do",
              argc, argv);
    raw_samples_open(&samples, SAMPLES_MAX);
    for (uint32_t round = 0; round < options.rounds; round++)
        measure(&options, &samples, &report);
    raw_note(&report, "two processes, not pinned, recvmmsg, sendmmsg and UDP_SEGMENT");
    raw_print(&report, options.json);
    raw_samples_close(&samples);
    return 0;
}
