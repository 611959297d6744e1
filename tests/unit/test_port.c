/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernel UDP ports over loopback, and addresses as text.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hw/clock.h"
#include "hw/poller.h"
#include "hw/port.h"
#include "hw/port_socket.h"

static struct port_address address_of(const char *text)
{
    struct port_address address;
    cr_assert_eq(port_address_parse(text, &address), 0, "%s", text);
    return address;
}

static struct port *open_port(const char *bind)
{
    struct port_kernel_options options = {.bind = address_of(bind)};
    struct port *port = NULL;
    cr_assert_eq(port_kernel_open(&options, &port), 0, "%s", bind);
    return port;
}

static void wait_readable(struct port *port)
{
    struct pollfd poller = {.fd = port_descriptor(port), .events = POLLIN};
    cr_assert_eq(poll(&poller, 1, 5000), 1, "nothing arrived");
}

/* Byte at `offset` of the datagram with this number: differs between datagrams and within one. */
static uint8_t pattern(uint32_t number, uint32_t offset)
{
    return (uint8_t)(number * 31 + offset * 7);
}

static void send_pattern(struct port *port, uint32_t number, uint32_t length,
                         const struct port_address *to)
{
    uint8_t *bytes = port_tx_buffer(port);
    cr_assert_not_null(bytes);
    for (uint32_t i = 0; i < length; i++)
        bytes[i] = pattern(number, i);
    port_tx_push(port, length, to);
}

/* A full burst of different lengths goes there, whole and in order, with the right source. */
static void exchange(const char *bind)
{
    struct port *a = open_port(bind);
    struct port *b = open_port(bind);
    struct port_address to, from;
    port_local_address(b, &to);
    port_local_address(a, &from);
    cr_assert_neq(to.port, 0);
    for (uint32_t i = 0; i < PORT_BURST_MAX; i++)
        send_pattern(a, i, i == 0 ? 0 : PORT_DATAGRAM_BYTES_MAX - i, &to);
    cr_assert_null(port_tx_buffer(a), "the burst is full");
    port_tx_flush(a);
    cr_assert_not_null(port_tx_buffer(a));

    uint32_t number = 0;
    while (number < PORT_BURST_MAX) {
        wait_readable(b);
        struct port_packet packets[PORT_BURST_MAX];
        uint32_t count = port_rx_burst(b, packets, 48);
        cr_assert_leq(count, 48);
        for (uint32_t i = 0; i < count; i++, number++) {
            cr_assert_eq(packets[i].length, number == 0 ? 0 : PORT_DATAGRAM_BYTES_MAX - number);
            cr_assert_not(packets[i].truncated);
            cr_assert(port_address_equal(&packets[i].from, &from));
            cr_assert_eq((uintptr_t)packets[i].bytes % 8, 0);
            for (uint32_t k = 0; k < packets[i].length; k++)
                cr_assert_eq(packets[i].bytes[k], pattern(number, k));
        }
    }
    struct port_packet packets[PORT_BURST_MAX];
    cr_assert_eq(port_rx_burst(b, packets, PORT_BURST_MAX), 0);
    cr_assert_eq(port_counters(a)->tx_packets, PORT_BURST_MAX);
    cr_assert_eq(port_counters(a)->tx_calls, 1);
    cr_assert_eq(port_counters(b)->rx_packets, PORT_BURST_MAX);
    cr_assert_eq(port_counters(b)->rx_bytes, port_counters(a)->tx_bytes);
    cr_assert_eq(port_counters(b)->rx_errors, 0);
    port_close(a);
    port_close(b);
}

Test(port, burst_ipv4)
{
    exchange("127.0.0.1:0");
}

Test(port, burst_ipv6)
{
    exchange("[::1]:0");
}

Test(port, dual_stack_sees_ipv4_as_mapped)
{
    struct port *any = open_port("[::]:0");
    struct port *ipv4 = open_port("127.0.0.1:0");
    struct port_address to, source;
    port_local_address(any, &to);
    struct port_address mapped = address_of("127.0.0.1:1");
    mapped.port = to.port;
    send_pattern(ipv4, 1, 10, &mapped);
    port_tx_flush(ipv4);
    wait_readable(any);
    struct port_packet packet;
    cr_assert_eq(port_rx_burst(any, &packet, 1), 1);
    port_local_address(ipv4, &source);
    cr_assert(port_address_equal(&packet.from, &source));
    /* and back */
    send_pattern(any, 2, 11, &packet.from);
    port_tx_flush(any);
    wait_readable(ipv4);
    cr_assert_eq(port_rx_burst(ipv4, &packet, 1), 1);
    cr_assert_eq(packet.length, 11);
    port_close(any);
    port_close(ipv4);
}

Test(port, oversized_is_marked_and_the_next_one_whole)
{
    struct port *port = open_port("127.0.0.1:0");
    struct port_address to;
    port_local_address(port, &to);
    int sender = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_storage name;
    uint32_t name_bytes = port_address_to_socket(&to, true, &name);
    uint8_t bytes[PORT_DATAGRAM_BYTES_MAX + 1];
    memset(bytes, 7, sizeof bytes);
    for (size_t length = sizeof bytes; length >= sizeof bytes - 1; length--)
        cr_assert_eq(sendto(sender, bytes, length, 0, (struct sockaddr *)&name, name_bytes),
                     (ssize_t)length);
    wait_readable(port);
    struct port_packet packets[2];
    cr_assert_eq(port_rx_burst(port, packets, 2), 2);
    cr_assert(packets[0].truncated);
    cr_assert_eq(packets[0].length, PORT_DATAGRAM_BYTES_MAX);
    cr_assert_not(packets[1].truncated);
    cr_assert_eq(packets[1].length, PORT_DATAGRAM_BYTES_MAX);
    close(sender);
    port_close(port);
}

Test(port, a_bad_destination_costs_only_its_own_datagram)
{
    struct port *a = open_port("127.0.0.1:0");
    struct port *b = open_port("127.0.0.1:0");
    struct port_address to;
    port_local_address(b, &to);
    struct port_address ipv6 = address_of("[::1]:9");
    struct port_address broadcast = address_of("255.255.255.255:9"); /* EACCES */
    send_pattern(a, 0, 8, &ipv6);
    send_pattern(a, 1, 8, &to);
    send_pattern(a, 2, 8, &broadcast);
    send_pattern(a, 3, 8, &to);
    port_tx_flush(a);
    wait_readable(b);
    struct port_packet packets[4];
    cr_assert_eq(port_rx_burst(b, packets, 4), 2);
    cr_assert_eq(packets[0].bytes[0], pattern(1, 0));
    cr_assert_eq(packets[1].bytes[0], pattern(3, 0));
    cr_assert_eq(port_counters(a)->tx_errors, 2);
    cr_assert_eq(port_counters(a)->tx_packets, 2);
    port_close(a);
    port_close(b);
}

/* Equal lengths in a row travel as one through the kernel; what arrives must be as if they had not:
 * every boundary, also around a shorter last one, an empty one, and a change of destination. */
Test(port, runs_of_equal_lengths_stay_datagrams)
{
    static const struct {
        uint32_t length, receiver;
    } sent[] = {{1400, 0}, {1400, 0}, {1400, 0}, {700, 0}, {700, 0},  {701, 0}, {701, 1}, {701, 1},
                {701, 0},  {0, 0},    {0, 0},    {9, 0},   {9, 0},    {8, 0},   {9, 0},   {1, 1},
                {1, 1},    {1, 1},    {1, 1},    {1, 1},   {1472, 1}, {1471, 1}};
    enum { SENT = sizeof sent / sizeof *sent };
    struct port *sender = open_port("127.0.0.1:0");
    struct port *receivers[2] = {open_port("127.0.0.1:0"), open_port("127.0.0.1:0")};
    struct port_address to[2];
    for (int i = 0; i < 2; i++)
        port_local_address(receivers[i], &to[i]);
    for (uint32_t i = 0; i < SENT; i++)
        send_pattern(sender, i, sent[i].length, &to[sent[i].receiver]);
    port_tx_flush(sender);
    cr_assert_eq(port_counters(sender)->tx_packets, SENT);
    cr_assert_eq(port_counters(sender)->tx_errors, 0);
    cr_assert_eq(port_counters(sender)->tx_calls, 1);
    for (uint32_t receiver = 0; receiver < 2; receiver++) {
        struct port_packet packets[PORT_BURST_MAX];
        wait_readable(receivers[receiver]);
        uint32_t count = port_rx_burst(receivers[receiver], packets, PORT_BURST_MAX), at = 0;
        for (uint32_t i = 0; i < SENT; i++) {
            if (sent[i].receiver != receiver)
                continue;
            cr_assert_lt(at, count);
            cr_assert_eq(packets[at].length, sent[i].length, "datagram %u", i);
            for (uint32_t k = 0; k < sent[i].length; k++)
                cr_assert_eq(packets[at].bytes[k], pattern(i, k));
            at++;
        }
        cr_assert_eq(at, count);
        port_close(receivers[receiver]);
    }
    port_close(sender);
}

Test(port, a_full_burst_of_the_longest)
{
    struct port *a = open_port("127.0.0.1:0");
    struct port *b = open_port("[::1]:0"), *c = open_port("[::1]:0");
    struct port *receiver = open_port("127.0.0.1:0");
    struct port_address to, to_ipv6;
    port_local_address(receiver, &to);
    port_local_address(c, &to_ipv6);
    for (uint32_t i = 0; i < PORT_BURST_MAX; i++) {
        send_pattern(a, i, PORT_DATAGRAM_BYTES_MAX, &to);
        send_pattern(b, i, PORT_DATAGRAM_BYTES_MAX, &to_ipv6);
    }
    port_tx_flush(a);
    port_tx_flush(b);
    cr_assert_eq(port_counters(a)->tx_packets, PORT_BURST_MAX);
    cr_assert_eq(port_counters(a)->tx_calls, 1, "no fallback was needed");
    cr_assert_eq(port_counters(b)->tx_packets, PORT_BURST_MAX);
    cr_assert_eq(port_counters(b)->tx_calls, 1);
    struct port_packet packets[PORT_BURST_MAX];
    cr_assert_eq(port_rx_burst(receiver, packets, PORT_BURST_MAX), PORT_BURST_MAX);
    for (uint32_t i = 0; i < PORT_BURST_MAX; i++)
        cr_assert_eq(packets[i].bytes[99], pattern(i, 99));
    cr_assert_eq(port_rx_burst(c, packets, PORT_BURST_MAX), PORT_BURST_MAX);
    port_close(a);
    port_close(b);
    port_close(c);
    port_close(receiver);
}

Test(port, a_bad_destination_costs_only_its_own_run)
{
    struct port *a = open_port("127.0.0.1:0");
    struct port *b = open_port("127.0.0.1:0");
    struct port_address to, broadcast = address_of("255.255.255.255:9"); /* EACCES */
    port_local_address(b, &to);
    for (uint32_t i = 0; i < 9; i++)
        send_pattern(a, i, 8, i / 3 == 1 ? &broadcast : &to);
    port_tx_flush(a);
    wait_readable(b);
    struct port_packet packets[PORT_BURST_MAX];
    cr_assert_eq(port_rx_burst(b, packets, PORT_BURST_MAX), 6);
    cr_assert_eq(packets[3].bytes[0], pattern(6, 0));
    cr_assert_eq(port_counters(a)->tx_errors, 3);
    port_close(a);
    port_close(b);
}

/* As the ports for clients and for peers do, which one queue of a network card serves. */
Test(port, several_ports_of_a_poller_may_share_a_descriptor)
{
    struct poller *poller;
    struct port *port = open_port("127.0.0.1:0");
    struct port_address to;
    port_local_address(port, &to);
    cr_assert_eq(poller_open(POLLER_ADAPTIVE, 0, &poller), 0);
    cr_assert_eq(poller_add_port(poller, port), 0);
    cr_assert_eq(poller_add_port(poller, port), 0);
    send_pattern(port, 1, 8, &to);
    port_tx_flush(port);
    uint64_t deadline_ns = clock_monotonic_ns() + UINT64_C(100000000000);
    cr_assert_lt(poller_rest(poller, false, deadline_ns), deadline_ns, "it woke nobody");
    poller_close(poller);
    port_close(port);
}

Test(port, address_in_use)
{
    struct port *port = open_port("127.0.0.1:0");
    struct port_kernel_options options = {0};
    port_local_address(port, &options.bind);
    struct port *second = NULL;
    cr_assert_eq(port_kernel_open(&options, &second), -EADDRINUSE);
    cr_assert_null(second);
    port_close(port);
}

Test(port, addresses_as_text)
{
    const char *good[] = {"127.0.0.1:7400", "[::1]:7400", "255.255.255.255:65535",
                          "[2001:db8::5]:1", "0.0.0.0:0"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct port_address address = address_of(good[i]);
        char text[PORT_ADDRESS_TEXT_BYTES];
        port_address_format(&address, text);
        cr_assert_str_eq(text, good[i]);
    }
    struct port_address address = address_of("localhost:80");
    cr_assert_eq(address.port, 80);
    const char *bad[] = {"",          "127.0.0.1",  "127.0.0.1:", ":7400",       "127.0.0.1:65536",
                         "a:b",       "[::1]",      "[::1]7400",  "::1:7400",    "127.0.0.1:-1",
                         "[::1:7400", "1.2.3.4: 5", "[]:1",       "1.2.3.4:+80", "[1.2.3.4]:5"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert_lt(port_address_parse(bad[i], &address), 0, "%s", bad[i]);
}

Test(port, addresses_compare_by_ip_and_port)
{
    struct port_address a = address_of("10.0.0.1:5"), b = a;
    cr_assert(port_address_equal(&a, &b));
    b.port = 6;
    cr_assert_not(port_address_equal(&a, &b));
    b = address_of("10.0.0.2:5");
    cr_assert_not(port_address_equal(&a, &b));
}
