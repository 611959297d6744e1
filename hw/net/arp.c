/* SPDX-License-Identifier: Apache-2.0
 *
 * ARP for IPv4 over Ethernet (RFC 826): answers to who asks for us, and our own questions.
 */
#include "hw/net/bytes.h"

/* Offsets in the packet. */
enum { OPERATION = 6, SENDER_MAC = 8, SENDER_IP = 14, TARGET_MAC = 18, TARGET_IP = 24 };
enum { REQUEST = 1, REPLY = 2 };

/* Hardware 1 (Ethernet), protocol IPv4, lengths 6 and 4. */
static const uint8_t kind[6] = {0, 1, ETHERTYPE_IPV4 >> 8, ETHERTYPE_IPV4 & 0xff, 6, 4};

static enum net_verdict answer(struct net *net, struct frame *frame)
{
    uint8_t *arp = frame->bytes + NET_ETHERNET_BYTES;
    put16(arp + OPERATION, REPLY);
    memcpy(arp + TARGET_MAC, arp + SENDER_MAC, 10); /* address and IP */
    memcpy(arp + SENDER_MAC, net->options.mac, 6);
    memcpy(arp + SENDER_IP, net->options.ipv4, 4);
    frame_return(net, frame->bytes);
    frame->length = NET_ETHERNET_BYTES + ARP_BYTES;
    net->counters.answers++;
    return NET_ANSWER;
}

enum net_verdict arp_receive(struct net *net, struct frame *frame)
{
    const uint8_t *arp = frame->bytes + NET_ETHERNET_BYTES;
    uint8_t ip[16];
    if (frame->length < NET_ETHERNET_BYTES + ARP_BYTES || memcmp(arp, kind, sizeof(kind)) != 0) {
        return lose(net, NET_LOSS_ARP);
    }
    if (!mac_is_hosts(arp + SENDER_MAC) || memcmp(arp + SENDER_MAC, frame->bytes + 6, 6) != 0) {
        return lose(net, NET_LOSS_ARP); /* speaks for somebody else */
    }
    if (all_zero(net->options.ipv4, 4) || memcmp(arp + TARGET_IP, net->options.ipv4, 4) != 0) {
        return lose(net, NET_LOSS_NOT_OURS);
    }
    port_ip_map(ip, arp + SENDER_IP);
    bool known_host = ipv4_is_hosts(net, arp + SENDER_IP) && ipv4_is_near(net, arp + SENDER_IP);
    switch (get16(arp + OPERATION)) {
    case REQUEST:
        if (known_host) {
            neighbour_seen(net, ip, arp + SENDER_MAC, frame->now_ns);
        } else if (!all_zero(arp + SENDER_IP, 4)) { /* zero: a probe (RFC 5227) */
            return lose(net, NET_LOSS_SOURCE);
        }
        return answer(net, frame);
    case REPLY:
        if (!known_host || !neighbour_answered(net, ip, arp + SENDER_MAC, frame->now_ns)) {
            return lose(net, NET_LOSS_ARP);
        }
        return NET_NOTHING;
    }
    return lose(net, NET_LOSS_ARP);
}

bool arp_is_answer(const uint8_t *arp, uint32_t length)
{
    return length >= ARP_BYTES && get16(arp + OPERATION) == REPLY;
}

uint32_t arp_question(const struct net *net, const struct net_neighbour *neighbour, uint8_t *frame)
{
    uint8_t *arp = frame + NET_ETHERNET_BYTES;
    bool known = neighbour_is_asked_alone(neighbour);
    frame_begin(net, frame, known ? neighbour->mac : mac_of_all, ETHERTYPE_ARP);
    memset(arp, 0, ARP_BYTES);
    memcpy(arp, kind, sizeof(kind));
    put16(arp + OPERATION, REQUEST);
    memcpy(arp + SENDER_MAC, net->options.mac, 6);
    memcpy(arp + SENDER_IP, net->options.ipv4, 4);
    memcpy(arp + TARGET_IP, neighbour->ip + PORT_IPV4_AT, 4);
    return NET_ETHERNET_BYTES + ARP_BYTES;
}
