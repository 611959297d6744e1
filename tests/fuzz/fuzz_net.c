/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames of any content, one after another, into a host that has asked for a neighbour of either
 * family. Each is as long as its memory; what is a datagram is read to its end, and what is to be
 * sent back, too.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "hw/net/net.h"

static struct net net;
static volatile uint8_t sink;

static void read_all(const uint8_t *bytes, uint32_t length)
{
    for (uint32_t i = 0; i < length; i++)
        sink ^= bytes[i];
}

static void ask(const struct port_address *to)
{
    uint8_t buffer[NET_HEADROOM + 16] = {0};
    uint8_t question[NET_QUESTION_BYTES_MAX];
    uint8_t *frame;
    uint32_t length = net_send(&net, buffer + NET_HEADROOM, 16, 1, to, 1, &frame);
    if (length > 0)
        read_all(frame, length);
    while ((length = net_question(&net, question)) > 0)
        read_all(question, length);
}

static uint64_t outcomes(void)
{
    uint64_t sum = net.counters.datagrams_in + net.counters.echoes + net.counters.answers;
    for (int i = 0; i < NET_LOSSES; i++)
        sum += net.counters.losses[i];
    return sum;
}

/* The first byte of a frame says how long it is and how its first fields are made plausible. */
static size_t feed(const uint8_t *data, size_t size)
{
    uint32_t length = data[0];
    uint32_t kind = data[0] % 4;
    if (length > size - 1)
        length = (uint32_t)size - 1;
    uint8_t *frame = malloc(length + NET_FRAME_BYTES_MIN);
    memcpy(frame, data + 1, length);
    if (kind != 3 && length >= NET_ETHERNET_BYTES) {
        static const uint8_t types[3][2] = {{8, 0}, {8, 6}, {0x86, 0xdd}};
        memcpy(frame, net.options.mac, 6);
        memcpy(frame + 12, types[kind], 2);
    }
    struct net_datagram datagram;
    uint32_t frame_length = length;
    uint64_t before = outcomes();
    bool checked = (data[0] & 4) != 0;
    uint16_t to_port = 0;
    enum net_look look = net_look(frame, length, &to_port);
    enum net_verdict verdict = net_receive(&net, frame, &frame_length, checked, 2, &datagram);
    if (verdict == NET_DATAGRAM) {
        assert(look == NET_LOOK_DATAGRAM && to_port == datagram.to_port);
        assert((uintptr_t)datagram.bytes % 8 == 0);
        read_all(datagram.bytes, datagram.length);
    } else if (verdict == NET_ANSWER) {
        assert(frame_length <= length + NET_FRAME_BYTES_MIN);
        read_all(frame, frame_length);
    }
    assert(outcomes() - before <= 1);
    free(frame);
    return 1 + length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct net_options options = {
        .mac = {2, 0, 0, 0, 0, 1},
        .ipv4 = {10, 1, 1, 1},
        .ipv4_prefix = 24,
        .ipv6 = {0xfd, [15] = 1},
        .ipv6_prefix = 64,
        .mtu = 1500,
    };
    static const struct port_address to[2] = {
        {.ip = {[10] = 0xff, 0xff, 10, 1, 1, 2}, .port = 9},
        {.ip = {0xfd, [15] = 2}, .port = 9},
    };
    assert(net_options_check(&options) == NULL);
    net_init(&net, &options);
    ask(&to[0]);
    ask(&to[1]);
    for (size_t at = 0; at < size;)
        at += feed(data + at, size - at);
    ask(&to[0]);
    ask(&to[1]);
    return 0;
}
