/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames and datagrams (hw/net): two hosts that know nothing of each other, on one wire.
 * Checksums are checked by a slow sum of this file's own.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hw/net/net.h"

enum { ROOM = 2048, SECOND_MS = 1000 };
static const uint64_t ms_ns = 1000000;

struct frame {
    _Alignas(64) uint8_t bytes[ROOM];
    uint32_t length; /* 0 = none */
};

struct host {
    struct net net;
    struct frame sent; /* by say() */
    struct net_datagram heard;
};

static uint64_t now_ms;

static struct port_address address_of(const char *text)
{
    struct port_address address;
    cr_assert_eq(port_address_parse(text, &address), 0, "%s", text);
    return address;
}

static void set_ip(uint8_t *ip, const char *text)
{
    bool ipv6 = strchr(text, ':') != NULL;
    char full[80];
    snprintf(full, sizeof(full), ipv6 ? "[%s]:1" : "%s:1", text);
    struct port_address address = address_of(full);
    memcpy(ip, ipv6 ? address.ip : address.ip + 12, ipv6 ? 16 : 4);
}

static struct net_options options_of(uint8_t number)
{
    struct net_options options = {
        .mac = {2, 0, 0, 0, 0, number}, .ipv4_prefix = 24, .ipv6_prefix = 64, .mtu = 1500};
    set_ip(options.ipv4, "10.1.1.0");
    options.ipv4[3] = number;
    set_ip(options.ipv4_gateway, "10.1.1.254");
    set_ip(options.ipv6, "fd00::");
    options.ipv6[15] = number;
    set_ip(options.ipv6_gateway, "fd00::fe");
    return options;
}

static struct host *host_new(uint8_t number)
{
    struct host *host = aligned_alloc(64, (sizeof(struct host) + 63) / 64 * 64);
    struct net_options options = options_of(number);
    cr_assert_null(net_options_check(&options), "%s", net_options_check(&options));
    net_init(&host->net, &options);
    host->sent.length = 0;
    return host;
}

/* Folded one's complement sum, two bytes at a time, as RFC 1071 puts it. */
static uint16_t slow_sum(const uint8_t *bytes, size_t length, uint32_t sum)
{
    for (size_t i = 0; i < length; i++)
        sum += i % 2 == 0 ? (uint32_t)bytes[i] << 8 : bytes[i];
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

static uint16_t word(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static void put(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static bool is_ipv6(const struct frame *frame)
{
    return word(frame->bytes + 12) == 0x86dd;
}

static uint8_t *transport_of(struct frame *frame)
{
    return frame->bytes + 14 + (is_ipv6(frame) ? 40 : 20);
}

/* Of what is behind the IP header, with the pseudo header; 0xffff if the checksum is right. */
static uint16_t transport_sum(struct frame *frame)
{
    uint8_t *ip = frame->bytes + 14;
    uint32_t length = is_ipv6(frame) ? word(ip + 4) : word(ip + 2) - 20u;
    uint8_t protocol = is_ipv6(frame) ? ip[6] : ip[9];
    if (length > frame->length)
        length = 0; /* the length is what was changed */
    uint32_t sum = protocol == 1 ? 0 : length + protocol;
    if (protocol != 1)
        sum += is_ipv6(frame) ? slow_sum(ip + 8, 32, 0) : slow_sum(ip + 12, 8, 0);
    return slow_sum(transport_of(frame), length, sum);
}

/* After a field was changed: all checksums are made right. */
static void mend(struct frame *frame)
{
    uint8_t *ip = frame->bytes + 14;
    uint8_t protocol = is_ipv6(frame) ? ip[6] : ip[9];
    uint8_t *sum = transport_of(frame) + (protocol == 17 ? 6 : 2);
    if (!is_ipv6(frame)) {
        put(ip + 10, 0);
        put(ip + 10, (uint16_t)~slow_sum(ip, 20, 0));
    }
    put(sum, 0);
    put(sum, (uint16_t)~transport_sum(frame));
}

static void check_sums(struct frame *frame)
{
    if (!is_ipv6(frame))
        cr_assert_eq(slow_sum(frame->bytes + 14, 20, 0), 0xffff);
    cr_assert_eq(transport_sum(frame), 0xffff);
}

static uint8_t pattern(uint32_t at)
{
    return (uint8_t)(at * 7 + at / 251);
}

/* False: it could not be sent. */
static bool say(struct host *host, uint32_t length, const struct port_address *to)
{
    _Alignas(64) static uint8_t buffer[ROOM];
    uint8_t *bytes = buffer + NET_HEADROOM;
    uint8_t *frame;
    for (uint32_t i = 0; i < length; i++)
        bytes[i] = pattern(i);
    host->sent.length = net_send(&host->net, bytes, length, 7400, to, now_ms * ms_ns, &frame);
    if (host->sent.length == 0)
        return false;
    cr_assert_geq(frame, buffer);
    memcpy(host->sent.bytes, frame, host->sent.length);
    check_sums(&host->sent);
    return true;
}

static enum net_verdict hear(struct host *host, struct frame *frame)
{
    return net_receive(&host->net, frame->bytes, &frame->length, false, now_ms * ms_ns,
                       &host->heard);
}

static struct frame question_of(struct host *host)
{
    struct frame frame = {.length = 0};
    frame.length = net_question(&host->net, frame.bytes);
    return frame;
}

/* `host` gets to know who `to` is, by asking. */
static void introduce(struct host *host, struct host *other, const struct port_address *to)
{
    cr_assert_not(say(host, 1, to));
    struct frame frame = question_of(host);
    cr_assert_gt(frame.length, 0);
    cr_assert_eq(question_of(host).length, 0, "asked once");
    cr_assert_eq(hear(other, &frame), NET_ANSWER);
    cr_assert_geq(frame.length, NET_FRAME_BYTES_MIN);
    cr_assert_eq(hear(host, &frame), NET_NOTHING);
}

static uint64_t losses_of(const struct host *host, enum net_loss loss)
{
    return host->net.counters.losses[loss];
}

static uint64_t all_losses(const struct host *host)
{
    uint64_t sum = 0;
    for (int i = 0; i < NET_LOSSES; i++)
        sum += host->net.counters.losses[i];
    return sum;
}

/* Sends a frame to b with what is in `frame`; it must be lost for this reason alone. */
static void lost(struct host *host, const struct frame *frame, enum net_loss loss)
{
    struct frame copy = *frame;
    uint64_t before = losses_of(host, loss), all = all_losses(host);
    cr_assert_eq(hear(host, &copy), NET_NOTHING, "not lost: %s", net_loss_name(loss));
    cr_assert_eq(losses_of(host, loss), before + 1, "not counted as %s", net_loss_name(loss));
    cr_assert_eq(all_losses(host), all + 1);
}

/* ---- datagrams ------------------------------------------------------------------------------- */

static void exchange(const char *from, const char *to_text)
{
    struct host *a = host_new(1), *b = host_new(2);
    struct port_address to = address_of(to_text);
    now_ms = 5;
    introduce(a, b, &to);
    cr_assert_eq(losses_of(a, NET_LOSS_NO_NEIGHBOUR), 1);
    uint32_t length_max = strchr(from, '[') == NULL ? 1472 : 1452;
    for (uint32_t length = 0; length <= length_max; length++) {
        cr_assert(say(a, length, &to), "%u bytes", length);
        struct frame frame = a->sent;
        while (frame.length < NET_FRAME_BYTES_MIN) /* as a device pads it */
            frame.bytes[frame.length++] = 0xee;
        cr_assert_eq(hear(b, &frame), NET_DATAGRAM, "%u bytes", length);
        cr_assert_eq(b->heard.length, length);
        cr_assert_eq((uintptr_t)b->heard.bytes % 8, 0);
        cr_assert_eq(b->heard.to_port, to.port);
        struct port_address source = address_of(from);
        cr_assert(port_address_equal(&b->heard.from, &source));
        for (uint32_t i = 0; i < length; i++)
            cr_assert_eq(b->heard.bytes[i], pattern(i), "byte %u of %u", i, length);
    }
    cr_assert_not(say(a, length_max + 1, &to));
    cr_assert_eq(losses_of(a, NET_LOSS_TOO_LONG), 1);
    cr_assert_eq(all_losses(b), 0);
    /* b has seen a, and answers without having asked. */
    struct port_address back = address_of(from);
    cr_assert(say(b, 10, &back));
    cr_assert_eq(hear(a, &b->sent), NET_DATAGRAM);
    free(a);
    free(b);
}

Test(net, datagrams_over_ipv4)
{
    exchange("10.1.1.1:7400", "10.1.1.2:9");
}

Test(net, datagrams_over_ipv6)
{
    exchange("[fd00::1]:7400", "[fd00::2]:9");
}

Test(net, datagrams_between_link_local_addresses)
{
    exchange("[fe80::ff:fe00:1]:7400", "[fe80::ff:fe00:2]:9");
}

/* Somebody else's bytes: the header that is worked out at en.wikipedia.org/wiki/
 * Internet_checksum, with a datagram that has no checksum. */
Test(net, a_header_worked_out_elsewhere)
{
    static const uint8_t header[20] = {0x45, 0,    0,    0x73, 0, 0, 0x40, 0,    0x40, 0x11,
                                       0xb8, 0x61, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0,    0xc7};
    struct host *host = host_new(1);
    struct net_options options = options_of(1);
    set_ip(options.ipv4, "192.168.0.199");
    memset(options.ipv4_gateway, 0, 4);
    net_init(&host->net, &options);
    struct frame frame = {.bytes = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 8, 0}, .length = 14 + 0x73};
    memcpy(frame.bytes + 14, header, sizeof(header));
    uint8_t *udp = frame.bytes + 34;
    put(udp, 53);
    put(udp + 2, 5353);
    put(udp + 4, 0x73 - 20);
    struct frame copy = frame;
    cr_assert_eq(hear(host, &copy), NET_DATAGRAM);
    cr_assert_eq(host->heard.length, 0x73 - 28);
    frame.bytes[14 + 8]--;
    lost(host, &frame, NET_LOSS_IP_CHECKSUM);
    free(host);
}

Test(net, a_device_may_check_and_complete_checksums)
{
    struct host *a = host_new(1), *b = host_new(2);
    struct port_address to = address_of("10.1.1.2:9");
    introduce(a, b, &to);
    cr_assert(say(a, 100, &to));
    a->sent.bytes[14 + 20 + 6] ^= 1;
    lost(b, &a->sent, NET_LOSS_UDP_CHECKSUM);
    cr_assert_eq(net_receive(&b->net, a->sent.bytes, &a->sent.length, true, 0, &b->heard),
                 NET_DATAGRAM);
    a->net.options.tx_checksums = true;
    _Alignas(8) uint8_t buffer[NET_HEADROOM + 8] = {0};
    uint8_t *frame;
    cr_assert_eq(net_send(&a->net, buffer + NET_HEADROOM, 8, 1, &to, 0, &frame), 50);
    cr_assert_eq(word(frame + 14 + 10), 0);
    cr_assert_eq(word(frame + 14 + 20 + 6), slow_sum(frame + 14 + 12, 8, 17 + 16));
    free(a);
    free(b);
}

/* What is summed eight bytes at a time is what is summed by twos, whatever is left over at the end;
 * and a frame that is summed later is the same frame. */
Test(net, checksums_of_every_length)
{
    struct host *a = host_new(1), *b = host_new(2);
    struct port_address addresses[2] = {address_of("10.1.1.2:9"), address_of("[fd00::2]:9")};
    for (int family = 0; family < 2; family++) {
        introduce(a, b, &addresses[family]);
        for (uint32_t length = 0; length <= 1400; length++) {
            cr_assert(say(a, length, &addresses[family]));
            _Alignas(64) uint8_t buffer[ROOM];
            uint8_t *frame;
            memset(buffer, 0xff, sizeof(buffer));
            for (uint32_t i = 0; i < length; i++)
                buffer[NET_HEADROOM + i] = pattern(i);
            cr_assert_eq(net_send_unsummed(&a->net, buffer + NET_HEADROOM, length, 7400,
                                           &addresses[family], now_ms * ms_ns, &frame),
                         a->sent.length);
            net_sum(frame);
            cr_assert_arr_eq(frame, a->sent.bytes, a->sent.length, "%u bytes", length);
            cr_assert_eq(hear(b, &a->sent), NET_DATAGRAM, "%u bytes", length);
        }
    }
    free(a);
    free(b);
}

/* ---- routes ---------------------------------------------------------------------------------- */

static void through_a_gateway(const char *far, const char *gateway)
{
    struct host *a = host_new(1), *router = host_new(3);
    struct net_options options = options_of(254);
    memset(options.ipv4_gateway, 0, 4);
    memset(options.ipv6_gateway, 0, 16);
    net_init(&router->net, &options);
    struct port_address to = address_of(far), hop = address_of(gateway);
    introduce(a, router, &to);
    cr_assert(say(a, 3, &to));
    cr_assert_arr_eq(a->sent.bytes, options.mac, 6);
    cr_assert(say(a, 3, &hop), "the gateway itself is known by then");
    cr_assert_eq(hear(router, &a->sent), NET_DATAGRAM);
    free(a);
    free(router);
}

Test(net, far_hosts_are_reached_through_the_gateway)
{
    struct host *a = host_new(1);
    memset(a->net.options.ipv4_gateway, 0, 4);
    memset(a->net.options.ipv6_gateway, 0, 16);
    static const char *const nowhere[] = {
        "10.1.2.1:9",  "[fd01::1]:9", "10.1.1.255:9", "224.0.0.1:9", "[ff02::1]:9",
        "127.0.0.1:9", "10.1.1.1:9",  "[::1]:9",      "[fd00::1]:9", "255.255.255.255:9"};
    for (size_t i = 0; i < sizeof(nowhere) / sizeof(nowhere[0]); i++) {
        struct port_address to = address_of(nowhere[i]);
        cr_assert_not(say(a, 1, &to), "%s", nowhere[i]);
        cr_assert_eq(losses_of(a, NET_LOSS_NO_ROUTE), i + 1, "%s", nowhere[i]);
    }
    cr_assert_eq(question_of(a).length, 0);
    free(a);
    through_a_gateway("192.0.2.7:9", "10.1.1.254:9");
    through_a_gateway("[2001:db8::7]:9", "[fd00::fe]:9");
}

/* ---- echo ------------------------------------------------------------------------------------ */

/* An echo request from host 9 to host 1 with `length` bytes. */
static struct frame ping(bool ipv6, uint32_t length)
{
    struct frame frame = {.bytes = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9}};
    struct net_options from = options_of(9), to = options_of(1);
    uint8_t *ip = frame.bytes + 14;
    if (ipv6) {
        put(frame.bytes + 12, 0x86dd);
        ip[0] = 0x60;
        put(ip + 4, 8 + length);
        ip[6] = 58;
        ip[7] = 3;
        memcpy(ip + 8, from.ipv6, 16);
        memcpy(ip + 24, to.ipv6, 16);
    } else {
        put(frame.bytes + 12, 0x0800);
        ip[0] = 0x45;
        put(ip + 2, 28 + length);
        ip[8] = 3;
        ip[9] = 1;
        memcpy(ip + 12, from.ipv4, 4);
        memcpy(ip + 16, to.ipv4, 4);
    }
    uint8_t *icmp = transport_of(&frame);
    icmp[0] = ipv6 ? 128 : 8;
    put(icmp + 4, 0x1234);
    put(icmp + 6, 7);
    for (uint32_t i = 0; i < length; i++)
        icmp[8 + i] = pattern(i);
    frame.length = (uint32_t)(icmp - frame.bytes) + 8 + length;
    mend(&frame);
    return frame;
}

static void echoes(bool ipv6)
{
    struct host *host = host_new(1);
    for (uint32_t length = 0; length < 600; length += 7) {
        struct frame asked = ping(ipv6, length), frame = asked;
        cr_assert_eq(hear(host, &frame), NET_ANSWER);
        uint32_t padded = asked.length < NET_FRAME_BYTES_MIN ? NET_FRAME_BYTES_MIN : asked.length;
        cr_assert_eq(frame.length, padded);
        check_sums(&frame);
        cr_assert_arr_eq(frame.bytes, asked.bytes + 6, 6);
        cr_assert_arr_eq(frame.bytes + 6, host->net.options.mac, 6);
        uint8_t *icmp = transport_of(&frame);
        cr_assert_eq(icmp[0], ipv6 ? 129 : 0);
        cr_assert_arr_eq(icmp + 4, transport_of(&asked) + 4, 4 + length);
        uint32_t source = 14 + (ipv6 ? 8 : 12), bytes = ipv6 ? 16 : 4;
        cr_assert_arr_eq(frame.bytes + source, asked.bytes + source + bytes, bytes);
        cr_assert_arr_eq(frame.bytes + source + bytes, asked.bytes + source, bytes);
    }
    uint32_t answered = (uint32_t)host->net.counters.echoes;
    for (uint32_t i = answered; i < NET_ECHOES_MAX; i++) {
        struct frame frame = ping(ipv6, 1);
        cr_assert_eq(hear(host, &frame), NET_ANSWER);
    }
    struct frame frame = ping(ipv6, 1);
    lost(host, &frame, NET_LOSS_ECHO_LIMIT);
    now_ms += SECOND_MS;
    cr_assert_eq(hear(host, &frame), NET_ANSWER);
    frame = ping(ipv6, 5);
    frame.bytes[frame.length - 1] ^= 4;
    lost(host, &frame, NET_LOSS_ICMP);
    frame = ping(ipv6, 5);
    transport_of(&frame)[0]++;
    mend(&frame);
    lost(host, &frame, NET_LOSS_PROTOCOL);
    free(host);
}

Test(net, echo_requests_are_answered_within_limits)
{
    echoes(false);
    echoes(true);
}

/* ---- neighbours ------------------------------------------------------------------------------ */

/* What `who` says of itself unasked to host 1: an ARP packet. */
static struct frame claim(uint16_t operation, const char *ip, uint8_t mac)
{
    struct frame frame = {.bytes = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, mac, 8, 6, 0, 1, 8, 0, 6, 4},
                          .length = 60};
    uint8_t *arp = frame.bytes + 14;
    put(arp + 6, operation);
    memcpy(arp + 8, frame.bytes + 6, 6);
    set_ip(arp + 14, ip);
    set_ip(arp + 24, "10.1.1.1");
    return frame;
}

Test(net, what_was_answered_is_not_replaced_by_what_is_claimed)
{
    struct host *a = host_new(1), *b = host_new(2);
    struct port_address to = address_of("10.1.1.2:9");
    now_ms = 1;
    introduce(a, b, &to);
    struct frame forged = claim(2, "10.1.1.2", 66);
    lost(a, &forged, NET_LOSS_ARP);
    forged = claim(1, "10.1.1.2", 66);
    cr_assert_eq(hear(a, &forged), NET_ANSWER);
    cr_assert(say(a, 1, &to));
    cr_assert_eq(a->sent.bytes[5], 2, "the traffic was turned away");
    /* Of an unknown host it is believed, until it answers itself. */
    forged = claim(1, "10.1.1.3", 66);
    cr_assert_eq(hear(a, &forged), NET_ANSWER);
    struct port_address other = address_of("10.1.1.3:9");
    cr_assert(say(a, 1, &other));
    cr_assert_eq(a->sent.bytes[5], 66);
    struct frame asked = question_of(a);
    cr_assert_eq(asked.bytes[0], 0xff, "everybody is asked for it");
    struct host *c = host_new(3);
    cr_assert_eq(hear(c, &asked), NET_ANSWER);
    cr_assert_eq(hear(a, &asked), NET_NOTHING);
    cr_assert(say(a, 1, &other));
    cr_assert_eq(a->sent.bytes[5], 3);
    free(a);
    free(b);
    free(c);
}

/* A client that starts anew on a virtual device comes back with another hardware address. Whoever
 * answered is asked first, and alone: only its silence lets another take its place. */
Test(net, a_host_that_moved_is_found_again)
{
    struct host *a = host_new(1), *b = host_new(2), *moved = host_new(2);
    struct port_address to = address_of("10.1.1.2:9"), back = address_of("10.1.1.1:9");
    now_ms = 1;
    introduce(a, b, &to);
    introduce(moved, a, &back);
    moved->net.options.mac[5] = 22;
    now_ms += NET_DOUBT_MS;
    for (uint32_t i = 0; i < 100; i++) { /* b is still there */
        cr_assert(say(moved, 1, &back));
        cr_assert_eq(hear(a, &moved->sent), NET_DATAGRAM);
        struct frame asked = question_of(a);
        cr_assert_eq(asked.length > 0, i == 0, "asked once, however often");
        if (i == 0) {
            struct frame forged = claim(2, "10.1.1.2", 22);
            lost(a, &forged, NET_LOSS_ARP);
            cr_assert_eq(asked.bytes[5], 2);
            cr_assert_eq(hear(b, &asked), NET_ANSWER);
            cr_assert_eq(hear(a, &asked), NET_NOTHING);
        }
        cr_assert(say(a, 1, &to));
        cr_assert_eq(a->sent.bytes[5], 2, "the traffic was turned away");
    }
    now_ms += NET_DOUBT_MS;
    cr_assert(say(moved, 1, &back)); /* b is no more */
    cr_assert_eq(hear(a, &moved->sent), NET_DATAGRAM);
    cr_assert_eq(question_of(a).bytes[5], 2);
    now_ms += NET_ASK_MS;
    cr_assert(say(a, 1, &to));
    struct frame asked = question_of(a);
    cr_assert_eq(asked.bytes[0], 0xff, "now all are asked");
    cr_assert_eq(hear(moved, &asked), NET_ANSWER);
    cr_assert_eq(hear(a, &asked), NET_NOTHING);
    cr_assert(say(a, 1, &to));
    cr_assert_eq(a->sent.bytes[5], 22);
    free(a);
    free(b);
    free(moved);
}

Test(net, neighbours_are_asked_again_and_forgotten)
{
    struct host *a = host_new(1), *b = host_new(2);
    struct port_address to = address_of("10.1.1.2:9");
    now_ms = 1;
    introduce(a, b, &to);
    now_ms += NET_FRESH_MS;
    cr_assert(say(a, 1, &to), "it is used while it is asked again");
    struct frame asked = question_of(a);
    cr_assert_eq(asked.length, 42);
    cr_assert_eq(asked.bytes[5], 2, "it alone is asked");
    cr_assert_eq(hear(b, &asked), NET_ANSWER);
    cr_assert_eq(hear(a, &asked), NET_NOTHING);
    now_ms += NET_FRESH_MS - 1;
    cr_assert(say(a, 1, &to));
    cr_assert_eq(question_of(a).length, 0);
    /* Nobody answers any more. */
    uint32_t questions = 0, sent = 0;
    uint64_t end = now_ms + 2 * NET_USABLE_MS;
    for (; now_ms < end; now_ms += 10) {
        sent += say(a, 1, &to);
        questions += question_of(a).length > 0;
    }
    cr_assert_eq(sent, (NET_USABLE_MS - NET_FRESH_MS + 1 + 9) / 10);
    cr_assert_geq(questions, (2 * NET_USABLE_MS - 1) / NET_ASK_MS_MAX);
    cr_assert_leq(questions, 2 * NET_USABLE_MS / NET_ASK_MS_MAX + 8);
    free(a);
    free(b);
}

Test(net, strangers_do_not_push_out_who_answered)
{
    struct host *a = host_new(1), *b = host_new(2);
    struct port_address to = address_of("10.1.1.2:9");
    a->net.options.ipv4_prefix = 8;
    now_ms = 1;
    introduce(a, b, &to);
    for (uint32_t i = 0; i < 100000; i++) {
        char ip[20];
        snprintf(ip, sizeof(ip), "10.%u.%u.9", 2 + i / 256 % 200, i % 256);
        struct frame stranger = claim(1, ip, 66);
        now_ms += i % 8 == 0;
        (void)hear(a, &stranger);
    }
    cr_assert(say(a, 1, &to));
    cr_assert_eq(a->sent.bytes[5], 2);
    free(a);
    free(b);
}

Test(net, questions_are_bounded)
{
    struct host *a = host_new(1);
    a->net.options.ipv4_prefix = 8;
    for (uint32_t i = 0; i < 10000; i++) {
        char text[24];
        snprintf(text, sizeof(text), "10.3.%u.%u:9", i / 250, 1 + i % 250);
        struct port_address to = address_of(text);
        cr_assert_not(say(a, 1, &to));
    }
    uint32_t count = 0;
    while (question_of(a).length > 0)
        count++;
    cr_assert_leq(count, NET_QUESTIONS_MAX);
    cr_assert_gt(count, 0);
    free(a);
}

/* ---- frames that are not as they should be --------------------------------------------------- */

struct fault {
    const char *what;
    uint32_t at;
    uint8_t value;
    bool mended; /* checksums are right again */
    enum net_loss loss;
};

static void judge(struct host *host, const struct frame *good, const struct fault *faults,
                  size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct frame frame = *good;
        cr_assert_neq(frame.bytes[faults[i].at], faults[i].value, "%s", faults[i].what);
        frame.bytes[faults[i].at] = faults[i].value;
        if (faults[i].mended)
            mend(&frame);
        uint64_t before = losses_of(host, faults[i].loss);
        enum net_verdict verdict = hear(host, &frame);
        cr_assert_eq(verdict, NET_NOTHING, "%s", faults[i].what);
        cr_assert_eq(losses_of(host, faults[i].loss), before + 1, "%s", faults[i].what);
    }
}

Test(net, every_header_field_is_judged)
{
    enum { IP = 14, UDP4 = IP + 20, UDP6 = IP + 40 };
    static const struct fault faults4[] = {
        {"destination MAC", 5, 9, false, NET_LOSS_NOT_OURS},
        {"broadcast frame", 0, 0xff, false, NET_LOSS_NOT_OURS},
        {"source MAC of a group", 6, 3, false, NET_LOSS_SOURCE},
        {"source MAC is ours", 11, 2, false, NET_LOSS_SOURCE},
        {"ethertype", 12, 0x88, false, NET_LOSS_ETHERTYPE},
        {"version", IP, 0x65, true, NET_LOSS_IP_HEADER},
        {"header of 16 bytes", IP, 0x44, true, NET_LOSS_IP_HEADER},
        {"header longer than the packet", IP + 3, 19, true, NET_LOSS_IP_HEADER},
        {"total length beyond the frame", IP + 2, 5, true, NET_LOSS_RUNT},
        {"more fragments", IP + 6, 0x20, true, NET_LOSS_FRAGMENT},
        {"fragment offset", IP + 7, 1, true, NET_LOSS_FRAGMENT},
        {"protocol", IP + 9, 6, true, NET_LOSS_PROTOCOL},
        {"header checksum", IP + 10, 0, false, NET_LOSS_IP_CHECKSUM},
        {"source is a group", IP + 12, 224, true, NET_LOSS_SOURCE},
        {"source is loopback", IP + 12, 127, true, NET_LOSS_SOURCE},
        {"source is the broadcast address", IP + 15, 255, true, NET_LOSS_SOURCE},
        {"source is ours", IP + 15, 2, true, NET_LOSS_SOURCE},
        {"destination", IP + 19, 3, true, NET_LOSS_NOT_OURS},
        {"UDP length beyond the packet", UDP4 + 4, 5, true, NET_LOSS_UDP_HEADER},
        {"UDP length below the header", UDP4 + 5, 7, true, NET_LOSS_UDP_HEADER},
        {"UDP checksum", UDP4 + 7, 0, false, NET_LOSS_UDP_CHECKSUM},
        {"a byte of the datagram", UDP4 + 8, 0xaa, false, NET_LOSS_UDP_CHECKSUM},
    };
    static const struct fault faults6[] = {
        {"destination MAC", 5, 9, false, NET_LOSS_NOT_OURS},
        {"version", IP, 0x40, false, NET_LOSS_IP_HEADER},
        {"payload beyond the frame", IP + 4, 5, true, NET_LOSS_RUNT},
        {"hop-by-hop header", IP + 6, 0, false, NET_LOSS_EXTENSION},
        {"routing header", IP + 6, 43, false, NET_LOSS_EXTENSION},
        {"fragment header", IP + 6, 44, false, NET_LOSS_EXTENSION},
        {"protocol", IP + 6, 6, false, NET_LOSS_PROTOCOL},
        {"source is a group", IP + 8, 0xff, true, NET_LOSS_SOURCE},
        {"source is ours", IP + 23, 2, true, NET_LOSS_SOURCE},
        {"destination", IP + 39, 9, true, NET_LOSS_NOT_OURS},
        {"destination is a group", IP + 24, 0xff, true, NET_LOSS_NOT_OURS},
        {"UDP length below the header", UDP6 + 5, 7, true, NET_LOSS_UDP_HEADER},
        {"UDP checksum", UDP6 + 7, 0, false, NET_LOSS_UDP_CHECKSUM},
    };
    struct host *a = host_new(1), *b = host_new(2);
    struct port_address to4 = address_of("10.1.1.2:9"), to6 = address_of("[fd00::2]:9");
    introduce(a, b, &to4);
    introduce(a, b, &to6);
    cr_assert(say(a, 40, &to4));
    judge(b, &a->sent, faults4, sizeof(faults4) / sizeof(faults4[0]));
    struct frame frame = a->sent;
    put(frame.bytes + UDP4, 0);
    mend(&frame);
    lost(b, &frame, NET_LOSS_UDP_HEADER); /* from port 0: nobody can answer */
    frame = a->sent;
    put(frame.bytes + UDP4 + 6, 0);
    cr_assert_eq(hear(b, &frame), NET_DATAGRAM, "IPv4 may do without a checksum");
    cr_assert(say(a, 40, &to6));
    judge(b, &a->sent, faults6, sizeof(faults6) / sizeof(faults6[0]));
    frame = a->sent;
    put(frame.bytes + UDP6 + 6, 0);
    lost(b, &frame, NET_LOSS_UDP_CHECKSUM); /* IPv6 may not */
    frame = a->sent;
    memcpy(frame.bytes, "\x33\x33\xff\0\0\x02", 6);
    lost(b, &frame, NET_LOSS_NOT_OURS); /* a host's packet in a group's frame */
    free(a);
    free(b);
}

/* Cut anywhere, a frame is a runt or malformed, and nothing beyond is looked at. */
Test(net, frames_cut_short)
{
    struct host *a = host_new(1), *b = host_new(2);
    struct port_address to[2] = {address_of("10.1.1.2:9"), address_of("[fd00::2]:9")};
    for (int i = 0; i < 2; i++) {
        struct frame question;
        cr_assert_not(say(a, 1, &to[i]));
        question = question_of(a);
        struct frame frames[2] = {question};
        cr_assert_eq(hear(b, &question), NET_ANSWER);
        cr_assert_eq(hear(a, &question), NET_NOTHING);
        cr_assert(say(a, 30, &to[i]));
        frames[1] = a->sent;
        for (int k = 0; k < 2; k++)
            for (uint32_t length = 0; length < frames[k].length; length++) {
                uint8_t *exact = malloc(length + NET_FRAME_BYTES_MIN);
                memset(exact, 0x5a, length + NET_FRAME_BYTES_MIN);
                memcpy(exact, frames[k].bytes, length);
                uint32_t left = length;
                uint64_t before = all_losses(b);
                cr_assert_eq(net_receive(&b->net, exact, &left, false, 0, &b->heard), NET_NOTHING,
                             "frame %d.%d, %u bytes", i, k, length);
                cr_assert_eq(all_losses(b), before + 1);
                free(exact);
            }
    }
    free(a);
    free(b);
}

Test(net, arp_packets_are_judged)
{
    enum { ARP = 14 };
    static const struct fault faults[] = {
        {"hardware kind", ARP + 1, 6, false, NET_LOSS_ARP},
        {"protocol kind", ARP + 2, 9, false, NET_LOSS_ARP},
        {"hardware length", ARP + 4, 8, false, NET_LOSS_ARP},
        {"protocol length", ARP + 5, 16, false, NET_LOSS_ARP},
        {"operation", ARP + 7, 3, false, NET_LOSS_ARP},
        {"speaks for another", ARP + 13, 77, false, NET_LOSS_ARP},
        {"asks for another", ARP + 27, 7, false, NET_LOSS_NOT_OURS},
        {"from outside the prefix", ARP + 14, 11, false, NET_LOSS_SOURCE},
        {"has our address", ARP + 17, 1, false, NET_LOSS_SOURCE},
    };
    struct host *host = host_new(1);
    struct frame good = claim(1, "10.1.1.9", 9), probe = claim(1, "0.0.0.0", 9);
    judge(host, &good, faults, sizeof(faults) / sizeof(faults[0]));
    cr_assert_eq(hear(host, &good), NET_ANSWER);
    cr_assert_eq(hear(host, &probe), NET_ANSWER, "is the address free? It is not (RFC 5227)");
    cr_assert_arr_eq(probe.bytes + 14 + 14, host->net.options.ipv4, 4);
    free(host);
}

Test(net, discovery_messages_are_judged)
{
    enum { IP = 14, ICMP = IP + 40 };
    static const struct fault solicitation[] = {
        {"forwarded", IP + 7, 254, false, NET_LOSS_DISCOVERY},
        {"code", ICMP + 1, 1, true, NET_LOSS_DISCOVERY},
        {"checksum", ICMP + 3, 0, false, NET_LOSS_ICMP},
        {"target", ICMP + 8 + 15, 9, true, NET_LOSS_NOT_OURS},
        {"option without length", ICMP + 25, 0, true, NET_LOSS_DISCOVERY},
        {"option beyond the end", ICMP + 25, 2, true, NET_LOSS_DISCOVERY},
        {"speaks for another", ICMP + 31, 77, true, NET_LOSS_DISCOVERY},
        {"to another group", IP + 24 + 15, 7, true, NET_LOSS_DISCOVERY},
        {"from outside the prefix", IP + 8, 0xfc, true, NET_LOSS_SOURCE},
    };
    static const struct fault advertisement[] = {
        {"forwarded", IP + 7, 254, false, NET_LOSS_DISCOVERY},
        {"nobody asked for this one", ICMP + 8 + 15, 9, true, NET_LOSS_DISCOVERY},
        {"speaks for another", ICMP + 31, 77, true, NET_LOSS_DISCOVERY},
        {"a group's hardware address", ICMP + 26, 3, true, NET_LOSS_DISCOVERY},
    };
    struct host *a = host_new(1), *b = host_new(2);
    struct port_address to = address_of("[fd00::2]:9");
    cr_assert_not(say(a, 1, &to));
    struct frame question = question_of(a), answer = question;
    judge(b, &question, solicitation, sizeof(solicitation) / sizeof(solicitation[0]));
    cr_assert_eq(hear(b, &answer), NET_ANSWER);
    check_sums(&answer);
    judge(a, &answer, advertisement, sizeof(advertisement) / sizeof(advertisement[0]));
    struct frame again = answer;
    cr_assert_eq(hear(a, &answer), NET_NOTHING);
    lost(a, &again, NET_LOSS_DISCOVERY); /* a second answer to one question */
    /* A host without an address yet asks whether ours is free: all are told that it is not. */
    struct frame free_yet = question;
    memset(free_yet.bytes + IP + 8, 0, 16);
    put(free_yet.bytes + IP + 4, 24);
    free_yet.length -= 8;
    mend(&free_yet);
    cr_assert_eq(hear(b, &free_yet), NET_ANSWER);
    check_sums(&free_yet);
    cr_assert_eq(free_yet.length, 86);
    cr_assert_eq(word(free_yet.bytes), 0x3333);
    cr_assert_eq(word(free_yet.bytes + IP + 24), 0xff02);
    cr_assert_eq(free_yet.bytes[ICMP + 4], 0x20);
    free(a);
    free(b);
}

/* Every frame has one outcome, and each is counted. */
Test(net, random_changes_are_all_accounted_for)
{
    struct host *a = host_new(1), *b = host_new(2);
    struct port_address to[2] = {address_of("10.1.1.2:9"), address_of("[fd00::2]:9")};
    introduce(a, b, &to[0]);
    introduce(a, b, &to[1]);
    uint64_t noted = 0, datagrams = 0, answers = 0, random = 1;
    const uint64_t others = b->net.counters.answers;
    for (uint32_t i = 0; i < 300000; i++) {
        struct frame frame;
        if (i % 4 < 2) {
            cr_assert(say(a, i % 64, &to[i % 2]));
            frame = a->sent;
        } else {
            frame = ping(i % 2, i % 64);
            frame.bytes[5] = 2;
        }
        for (int k = 0; k < 3; k++) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
            frame.bytes[(random >> 33) % frame.length] ^= (uint8_t)(random >> 24);
        }
        now_ms += i % 64 == 0;
        uint64_t before = all_losses(b);
        enum net_verdict verdict = hear(b, &frame);
        datagrams += verdict == NET_DATAGRAM;
        answers += verdict == NET_ANSWER;
        noted += verdict == NET_NOTHING && all_losses(b) == before;
    }
    cr_assert_eq(datagrams, b->net.counters.datagrams_in);
    cr_assert_eq(answers, b->net.counters.echoes + b->net.counters.answers - others);
    cr_assert_eq(datagrams + answers + noted + all_losses(b), 300000);
    free(a);
    free(b);
}

/* ---- options --------------------------------------------------------------------------------- */

static void refused(struct net_options options, const char *why)
{
    const char *said = net_options_check(&options);
    cr_assert_not_null(said, "%s", why);
    cr_assert_not_null(strstr(said, why), "'%s' instead of '%s'", said, why);
}

Test(net, options_are_checked)
{
    struct net_options good = options_of(1), bad;
    cr_assert_null(net_options_check(&good));
    bad = good, bad.mac[0] = 3, refused(bad, "hardware address");
    bad = good, memset(bad.ipv4, 0, 4), memset(bad.ipv6, 0, 16), refused(bad, "neither");
    bad = good, bad.mtu = 1279, refused(bad, "MTU");
    bad = good, bad.mtu = 1501, refused(bad, "MTU");
    bad = good, bad.ipv4_prefix = 33, refused(bad, "IPv4 prefix");
    bad = good, bad.ipv4_prefix = 0, refused(bad, "IPv4 prefix");
    bad = good, bad.ipv6_prefix = 129, refused(bad, "IPv6 prefix");
    bad = good, bad.ipv4[0] = 230, refused(bad, "IPv4 address");
    bad = good, bad.ipv6[0] = 0xff, refused(bad, "IPv6 address");
    bad = good, bad.ipv4_gateway[2] = 9, refused(bad, "IPv4 gateway");
    bad = good, memcpy(bad.ipv4_gateway, bad.ipv4, 4), refused(bad, "IPv4 gateway");
    bad = good, bad.ipv6_gateway[0] = 9, refused(bad, "IPv6 gateway");
    bad = good, memset(bad.ipv4, 0, 4), refused(bad, "IPv4 gateway");
    bad = good, memset(bad.ipv4, 0, 4), memset(bad.ipv4_gateway, 0, 4);
    cr_assert_null(net_options_check(&bad), "one family is enough");
}
