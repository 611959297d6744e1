/* SPDX-License-Identifier: Apache-2.0
 *
 * Neighbour discovery for IPv6 (RFC 4861): solicitations answered and made, advertisements that
 * answer ours. Routers are configured, not discovered.
 */
#include "hw/net/bytes.h"

#include <assert.h>

enum { OPTION_SOURCE = 1, OPTION_TARGET = 2 };
enum { FLAG_SOLICITED = 0x40, FLAG_OVERRIDE = 0x20 };

/* Offsets in the ICMPv6 message. */
enum { FLAGS = 4, TARGET = 8, OPTIONS = 24, OPTION_BYTES = 8 };
enum {
    MESSAGE_AT = NET_ETHERNET_BYTES + IPV6_BYTES,
    SOURCE_AT = NET_ETHERNET_BYTES + 8,
    DESTINATION_AT = SOURCE_AT + 16,
    HOPS_AT = NET_ETHERNET_BYTES + 7,
    FRAME_BYTES = MESSAGE_AT + OPTIONS + OPTION_BYTES,
};
static_assert((int)FRAME_BYTES <= (int)NET_QUESTION_BYTES_MAX, "a question has room");

static const uint8_t all_nodes[16] = {0xff, 2, [15] = 1};
static const uint8_t solicited_node[13] = {0xff, 2, [11] = 1, 0xff}; /* then the last 3 bytes */

/* The hardware address in the first option of this kind; false = malformed. *mac NULL = none. */
static bool option_mac(const struct frame *frame, uint8_t kind, const uint8_t **mac)
{
    const uint8_t *at = frame->bytes + MESSAGE_AT + OPTIONS;
    const uint8_t *end = frame->bytes + frame->length;
    *mac = NULL;
    while (at < end) {
        if (end - at < 2 || at[1] == 0 || at[1] * 8 > end - at) {
            return false;
        }
        if (at[0] == kind && at[1] == 1 && *mac == NULL) {
            *mac = at + 2;
        }
        at += at[1] * 8;
    }
    return true;
}

/* To `mac`, from us to `to`, with one option that holds our hardware address. */
static uint32_t complete(const struct net *net, uint8_t *frame, const uint8_t mac[6],
                         const uint8_t from[16], const uint8_t to[16], uint8_t option)
{
    uint8_t *ip = frame + NET_ETHERNET_BYTES;
    uint8_t *message = frame + MESSAGE_AT;
    const uint32_t length = OPTIONS + OPTION_BYTES;
    frame_begin(net, frame, mac, ETHERTYPE_IPV6);
    /* 255 hops: nobody has forwarded it. */
    uint32_t sum = ipv6_write(ip, from, to, PROTOCOL_ICMPV6, 255, length);
    message[OPTIONS] = option;
    message[OPTIONS + 1] = 1;
    memcpy(message + OPTIONS + 2, net->options.mac, 6);
    put16(message + 2, 0);
    put16(message + 2, ~sum_add(sum, message, length));
    return FRAME_BYTES;
}

static enum net_verdict advertise(struct net *net, struct frame *frame, bool to_all)
{
    static const uint8_t all_nodes_mac[6] = {0x33, 0x33, 0, 0, 0, 1};
    uint8_t *message = frame->bytes + MESSAGE_AT;
    uint8_t mac[6], target[16];
    memcpy(mac, to_all ? all_nodes_mac : frame->bytes + 6, 6);
    memcpy(target, message + TARGET, 16);
    message[0] = ICMPV6_ADVERTISEMENT;
    message[1] = 0;
    memset(message + FLAGS, 0, 4);
    message[FLAGS] = to_all ? FLAG_OVERRIDE : FLAG_SOLICITED | FLAG_OVERRIDE;
    frame->length = complete(net, frame->bytes, mac, target,
                             to_all ? all_nodes : frame->bytes + SOURCE_AT, OPTION_TARGET);
    net->counters.answers++;
    return NET_ANSWER;
}

static enum net_verdict solicited(struct net *net, struct frame *frame)
{
    const uint8_t *source = frame->bytes + SOURCE_AT;
    const uint8_t *destination = frame->bytes + DESTINATION_AT;
    const uint8_t *target = frame->bytes + MESSAGE_AT + TARGET;
    const uint8_t *mac;
    bool to_group = memcmp(destination, solicited_node, sizeof(solicited_node)) == 0 &&
                    memcmp(destination + 13, target + 13, 3) == 0;
    if (!ipv6_is_own(net, target)) {
        return lose(net, NET_LOSS_NOT_OURS);
    }
    if (!option_mac(frame, OPTION_SOURCE, &mac) || !(to_group || ipv6_is_own(net, destination))) {
        return lose(net, NET_LOSS_DISCOVERY);
    }
    if (all_zero(source, 16)) { /* is the address free? (RFC 4862) It is not. */
        return mac == NULL && to_group ? advertise(net, frame, true)
                                       : lose(net, NET_LOSS_DISCOVERY);
    }
    if (!ipv6_is_hosts(net, source) || !ipv6_is_near(net, source)) {
        return lose(net, NET_LOSS_SOURCE);
    }
    if (mac != NULL) {
        if (memcmp(mac, frame->bytes + 6, 6) != 0) {
            return lose(net, NET_LOSS_DISCOVERY); /* speaks for somebody else */
        }
        neighbour_seen(net, source, mac, frame->now_ns);
    }
    return advertise(net, frame, false);
}

static enum net_verdict advertised(struct net *net, struct frame *frame)
{
    const uint8_t *target = frame->bytes + MESSAGE_AT + TARGET;
    const uint8_t *mac;
    if (!option_mac(frame, OPTION_TARGET, &mac)) {
        return lose(net, NET_LOSS_DISCOVERY);
    }
    if (mac == NULL) {
        mac = frame->bytes + 6; /* an answer to a question that went to it alone may do without */
    }
    if (!mac_is_hosts(mac) || memcmp(mac, frame->bytes + 6, 6) != 0 ||
        !ipv6_is_hosts(net, target) || !neighbour_answered(net, target, mac, frame->now_ns)) {
        return lose(net, NET_LOSS_DISCOVERY);
    }
    return NET_NOTHING;
}

enum net_verdict discovery_receive(struct net *net, struct frame *frame)
{
    const uint8_t *message = frame->bytes + MESSAGE_AT;
    if (frame->length < MESSAGE_AT + OPTIONS || frame->bytes[HOPS_AT] != 255 || message[1] != 0) {
        return lose(net, NET_LOSS_DISCOVERY);
    }
    return message[0] == ICMPV6_SOLICITATION ? solicited(net, frame) : advertised(net, frame);
}

uint32_t discovery_question(const struct net *net, const struct net_neighbour *neighbour,
                            uint8_t *frame)
{
    uint8_t *message = frame + MESSAGE_AT;
    uint8_t group[16];
    uint8_t mac[6] = {0x33, 0x33, 0xff};
    memcpy(group, solicited_node, sizeof(solicited_node));
    memcpy(group + 13, neighbour->ip + 13, 3);
    memcpy(mac + 3, neighbour->ip + 13, 3);
    bool known = neighbour_is_asked_alone(neighbour);
    memset(message, 0, OPTIONS);
    message[0] = ICMPV6_SOLICITATION;
    memcpy(message + TARGET, neighbour->ip, 16);
    return complete(net, frame, known ? neighbour->mac : mac, ipv6_source(net, neighbour->ip),
                    known ? neighbour->ip : group, OPTION_SOURCE);
}
