/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/raw/echo.h"

#include <assert.h>
#include <poll.h>
#include <string.h>

#include "bench/raw/bare.h"
#include "hw/clock.h"

enum { SILENCE_MS = 2000 };

enum {
    ONE_BYTES = sizeof(struct wire_header) + BARE_ACQUIRE_BYTES,
    MANY_REQUESTS =
        (WIRE_DATAGRAM_BYTES_MAX - sizeof(struct wire_header)) / (size_t)BARE_ACQUIRE_BYTES,
    MANY_BYTES = sizeof(struct wire_header) + MANY_REQUESTS * BARE_ACQUIRE_BYTES,
};

uint32_t echo_answer(struct port *port)
{
    struct port_packet packets[PORT_BURST_MAX];
    uint32_t count = port_rx_burst(port, packets, PORT_BURST_MAX);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(port_tx_buffer(port), packets[i].bytes, packets[i].length);
        port_tx_push(port, packets[i].length, &packets[i].from);
    }
    if (count > 0)
        port_tx_flush(port);
    return count;
}

void echo_wait(struct port *port, int limit_ms)
{
    struct pollfd socket = {port_descriptor(port), POLLIN, 0};
    if (socket.fd >= 0 && poll(&socket, 1, limit_ms) == 0)
        raw_die("no answer in %d ms: a datagram was lost", limit_ms);
}

static void send_one(const struct echo *echo, uint32_t bytes)
{
    if (port_tx_buffer(echo->client) == NULL)
        port_tx_flush(echo->client);
    memset(port_tx_buffer(echo->client), 7, bytes);
    port_tx_push(echo->client, bytes, &echo->address);
}

/* Waits for at least one. */
static uint32_t take(const struct echo *echo)
{
    struct port_packet packets[PORT_BURST_MAX];
    uint64_t give_up_ns = clock_monotonic_ns() + SILENCE_MS * UINT64_C(1000000);
    uint32_t count = 0;
    while (count == 0) {
        echo_wait(echo->client, SILENCE_MS);
        count = port_rx_burst(echo->client, packets, PORT_BURST_MAX);
        if (count == 0 && clock_monotonic_ns() > give_up_ns)
            raw_die("no answer in %d ms: a datagram was lost", SILENCE_MS);
    }
    return count;
}

void echo_measure_one(const struct echo *echo, const struct raw_options *options,
                      struct raw_samples *samples, struct raw_report *report)
{
    uint64_t now_ns = clock_monotonic_ns();
    samples->count = 0;
    for (const uint64_t until_ns = now_ns + options->round_ns; now_ns < until_ns;) {
        uint64_t sent_ns = now_ns;
        send_one(echo, ONE_BYTES);
        port_tx_flush(echo->client);
        (void)take(echo);
        now_ns = clock_monotonic_ns();
        raw_sample(samples, now_ns - sent_ns);
    }
    raw_add(report, "one.p50_us", "one datagram in flight, p50, us", raw_quantile_us(samples, 0.5));
    raw_add(report, "one.p99_us", "one datagram in flight, p99, us",
            raw_quantile_us(samples, 0.99));
}

/* Datagrams per second with `window` of them under way. All have come back in the end. */
static double pipelined(const struct echo *echo, uint64_t round_ns, uint32_t bytes, uint32_t window)
{
    uint64_t began_ns = clock_monotonic_ns(), now_ns = began_ns, answers = 0;
    for (uint32_t room = window; now_ns - began_ns < round_ns;) {
        for (; room > 0; room--)
            send_one(echo, bytes);
        port_tx_flush(echo->client);
        room = take(echo);
        answers += room;
        now_ns = clock_monotonic_ns();
        if (now_ns - began_ns >= round_ns) {
            for (uint32_t left = window - room; left > 0;)
                left -= take(echo);
        }
    }
    return (double)answers * 1e9 / (double)(now_ns - began_ns);
}

void echo_measure_single(const struct echo *echo, const struct raw_options *options,
                         struct raw_report *report)
{
    raw_add(report, "single.requests_s", "pipelined, one request per datagram, requests/s",
            pipelined(echo, options->round_ns, ONE_BYTES, options->in_flight));
}

void echo_measure_packed(const struct echo *echo, const struct raw_options *options,
                         struct raw_report *report)
{
    uint32_t datagrams = options->in_flight / MANY_REQUESTS + 1;
    raw_add(report, "packed.requests_s", "pipelined, 15 requests per datagram, requests/s",
            pipelined(echo, options->round_ns, MANY_BYTES, datagrams) * MANY_REQUESTS);
}
static_assert((int)MANY_REQUESTS == 15, "the report says 15");
