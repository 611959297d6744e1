/* SPDX-License-Identifier: Apache-2.0
 *
 * What hw/net has for devices with several queues: a look at a frame without judging it, and
 * neighbours' answers that came to another queue. And addresses as text.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hw/net/net.h"

enum { ROOM = 2048, AT = 128 };

struct frame {
    uint32_t length;
    uint8_t bytes[ROOM];
};

static struct net *host_new(uint8_t number)
{
    struct net_options options = {.mac = {2, 0, 0, 0, 0, number}, .mtu = 1500};
    char text[32];
    snprintf(text, sizeof text, "10.1.1.%u/24", number);
    cr_assert(net_options_set_address(&options, text));
    snprintf(text, sizeof text, "fd00::%u/64", number);
    cr_assert(net_options_set_address(&options, text));
    cr_assert_null(net_options_check(&options));
    struct net *net = malloc(sizeof *net);
    net_init(net, &options);
    return net;
}

static struct port_address address_of(const char *text)
{
    struct port_address address;
    cr_assert_eq(port_address_parse(text, &address), 0);
    return address;
}

static struct frame send(struct net *net, const struct port_address *to)
{
    uint8_t buffer[ROOM] = {0}, *begin;
    struct frame frame = {.length = 0};
    frame.length = net_send(net, buffer + AT, 40, 7400, to, 1, &begin);
    if (frame.length > 0)
        memcpy(frame.bytes, begin, frame.length);
    return frame;
}

static struct frame answer(struct net *net, struct net *other)
{
    struct frame frame = {.length = 0};
    struct net_datagram datagram;
    frame.length = net_question(net, frame.bytes);
    cr_assert_gt(frame.length, 0);
    cr_assert_eq(net_receive(other, frame.bytes, &frame.length, false, 1, &datagram), NET_ANSWER);
    return frame;
}

static void an_answer_to_another_queue(const char *text)
{
    struct net *asking = host_new(1), *beside = host_new(1), *other = host_new(2);
    struct port_address to = address_of(text);
    uint16_t port = 0;
    cr_assert_eq(send(asking, &to).length, 0, "not known");
    struct frame said = answer(asking, other), copy = said;
    cr_assert_eq(net_look(said.bytes, said.length, &port), NET_LOOK_NEIGHBOUR_ANSWER);
    /* Who did not ask believes nothing, and counts nothing. */
    struct net_counters before = beside->counters;
    net_overhear(beside, copy.bytes, copy.length, 1);
    cr_assert_eq(memcmp(&before, &beside->counters, sizeof before), 0);
    cr_assert_eq(send(beside, &to).length, 0);
    net_overhear(asking, said.bytes, said.length, 1);
    struct frame datagram = send(asking, &to);
    cr_assert_gt(datagram.length, 0, "known");
    cr_assert_eq(net_look(datagram.bytes, datagram.length, &port), NET_LOOK_DATAGRAM);
    cr_assert_eq(port, to.port);
    for (uint32_t length = 0; length < datagram.length; length++) { /* never beyond its end */
        uint8_t *exact = malloc(length > 0 ? length : 1);
        memcpy(exact, datagram.bytes, length);
        if (net_look(exact, length, &port) == NET_LOOK_DATAGRAM)
            cr_assert_geq(length, 14 + (to.ip[0] == 0xfd ? 40 : 20) + 8);
        free(exact);
    }
    free(asking);
    free(beside);
    free(other);
}

Test(net_queues, an_answer_over_arp)
{
    an_answer_to_another_queue("10.1.1.2:9000");
}

Test(net_queues, an_answer_over_ipv6)
{
    an_answer_to_another_queue("[fd00::2]:9000");
}

Test(net_queues, other_frames)
{
    struct net *a = host_new(1), *b = host_new(2);
    struct port_address to = address_of("10.1.1.2:9000");
    uint16_t port = 0;
    (void)send(a, &to);
    struct frame question = {.length = 0};
    question.length = net_question(a, question.bytes);
    cr_assert_eq(net_look(question.bytes, question.length, &port), NET_LOOK_OTHER, "a question");
    net_overhear(a, question.bytes, 0, 1); /* an empty frame is nothing */
    struct net_datagram datagram;
    cr_assert_eq(net_receive(b, question.bytes, &question.length, false, 1, &datagram), NET_ANSWER);
    cr_assert_eq(net_receive(a, question.bytes, &question.length, false, 1, &datagram),
                 NET_NOTHING);
    struct frame fragment = send(a, &to);
    cr_assert_gt(fragment.length, 0);
    fragment.bytes[14 + 6] = 0x20; /* more fragments */
    cr_assert_eq(net_look(fragment.bytes, fragment.length, &port), NET_LOOK_OTHER, "a fragment");
    fragment.bytes[14 + 6] = 0;
    fragment.bytes[14 + 9] = 6;
    cr_assert_eq(net_look(fragment.bytes, fragment.length, &port), NET_LOOK_OTHER, "TCP");
    free(a);
    free(b);
}

Test(net_queues, addresses_as_text)
{
    static const char *const bad[] = {"",
                                      "/",
                                      "10.1.1.1",
                                      "10.1.1.1/",
                                      "10.1.1.1/33",
                                      "10.1.1.1/0",
                                      "10.1.1/24",
                                      "10.1.1.1/24x",
                                      "10.1.1.1/ 24",
                                      "10.1.1.1/+24",
                                      "fd00::1/129",
                                      "fd00::1",
                                      "fd00:::/64",
                                      "10.1.1.1/024",
                                      "10.1.1.256/24",
                                      "host/24",
                                      "10.1.1.1.10.1.1.1.10.1.1.1.10.1.1.1.10.1.1.1.10.1.1.1/24"};
    struct net_options options = {.mtu = 1500}, before = options;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_assert_not(net_options_set_address(&options, bad[i]), "%s", bad[i]);
        cr_assert_eq(memcmp(&options, &before, sizeof options), 0, "%s", bad[i]);
    }
    cr_assert(net_options_set_address(&options, "10.1.1.7/32"));
    cr_assert_eq(options.ipv4[3], 7);
    cr_assert_eq(options.ipv4_prefix, 32);
    cr_assert(net_options_set_address(&options, "fd00::7/128"));
    cr_assert_eq(options.ipv6[15], 7);
    cr_assert_eq(options.ipv6_prefix, 128);
    cr_assert(net_options_set_gateway(&options, "10.1.1.254"));
    cr_assert_eq(options.ipv4_gateway[3], 254);
    cr_assert(net_options_set_gateway(&options, "fd00::fe"));
    cr_assert_eq(options.ipv6_gateway[15], 0xfe);
    cr_assert_not(net_options_set_gateway(&options, "10.1.1.254/24"));
}
