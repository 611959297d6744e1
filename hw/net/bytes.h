/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of hw/net: byte order, header layouts as offsets, checksums, and what the files have of
 * each other. Frames are read and written by byte: they lie at any address.
 */
#ifndef BELAY_HW_NET_BYTES_H
#define BELAY_HW_NET_BYTES_H

#include <string.h>

#include "hw/net/net.h"

enum { ETHERTYPE_IPV4 = 0x0800, ETHERTYPE_ARP = 0x0806, ETHERTYPE_IPV6 = 0x86dd };
enum { PROTOCOL_ICMP = 1, PROTOCOL_UDP = 17, PROTOCOL_ICMPV6 = 58 };
enum { IPV4_BYTES = 20, IPV6_BYTES = 40, UDP_BYTES = 8, ICMP_BYTES = 8, ARP_BYTES = 28 };
enum { ICMPV6_SOLICITATION = 135, ICMPV6_ADVERTISEMENT = 136 }; /* of neighbours */
enum { HOPS = 64 /* of what we send */ };

static inline uint16_t get16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static inline void put16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

/* The halves together, until there is only one. */
static inline uint32_t sum_fold(uint32_t sum)
{
    sum = (sum & 0xffff) + (sum >> 16);
    return (sum & 0xffff) + (sum >> 16);
}

/* Adds 16-bit words to a sum (RFC 1071). An odd last byte counts as a word's upper half. Words are
 * added as they lie in memory, four at a time: turned round, the sum of all is the sum of those
 * turned round (section 2 B). */
static inline uint32_t sum_add(uint32_t sum, const uint8_t *bytes, uint32_t length)
{
    uint64_t wide = 0;
    uint32_t at = 0;
    for (; at + 8 <= length; at += 8) {
        uint64_t words;
        memcpy(&words, bytes + at, 8);
        wide += (words & UINT32_MAX) + (words >> 32);
    }
    for (; at < length; at += 2) {
        uint16_t word = 0;
        memcpy(&word, bytes + at, length - at >= 2 ? 2 : 1);
        wide += word;
    }
    while (wide >> 32 != 0) {
        wide = (wide & UINT32_MAX) + (wide >> 32);
    }
    uint16_t folded = (uint16_t)sum_fold((uint32_t)wide);
    return sum_fold(sum_fold(sum) + get16((const uint8_t *)&folded));
}

/* 0xffff: the checksum that was summed along is right. */
static inline bool sum_is_right(uint32_t sum)
{
    return sum == 0xffff;
}

/* The pseudo header of IPv4 and IPv6 (RFC 768, RFC 8200 8.1): addresses of 4 or 16 bytes that
 * follow each other, the protocol and the length of what it carries. */
static inline uint32_t sum_pseudo(const uint8_t *addresses, uint32_t address_bytes,
                                  uint8_t protocol, uint32_t length)
{
    uint32_t sum = sum_add(0, addresses, 2 * address_bytes) + protocol + length;
    return sum_fold(sum);
}

static inline bool all_zero(const uint8_t *bytes, size_t length)
{
    uint8_t any = 0;
    for (size_t i = 0; i < length; i++) {
        any |= bytes[i];
    }
    return any == 0;
}

static const uint8_t mac_of_all[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

/* A host's hardware address: neither a group's nor nobody's. */
static inline bool mac_is_hosts(const uint8_t mac[6])
{
    return (mac[0] & 1) == 0 && !all_zero(mac, 6);
}

static inline enum net_verdict lose(struct net *net, enum net_loss loss)
{
    net->counters.losses[loss]++;
    return NET_NOTHING;
}

/* Where everything of a received frame is. */
struct frame {
    uint8_t *bytes;
    uint32_t length; /* of what counts: padding beyond the IP packet is cut off */
    uint64_t now_ns;
    bool checked;
};

/* The frame goes back to where it came from. */
static inline void frame_return(const struct net *net, uint8_t *frame)
{
    memcpy(frame, frame + 6, 6);
    memcpy(frame + 6, net->options.mac, 6);
}

/* The Ethernet header of a frame of ours. */
static inline void frame_begin(const struct net *net, uint8_t *frame, const uint8_t mac[6],
                               uint16_t type)
{
    memcpy(frame, mac, 6);
    memcpy(frame + 6, net->options.mac, 6);
    put16(frame + 12, type);
}

/* The address belongs to one host, and it is not ours. */
bool ipv4_is_hosts(const struct net *net, const uint8_t ip[4]);
bool ipv6_is_hosts(const struct net *net, const uint8_t ip[16]);
/* One of ours. */
bool ipv6_is_own(const struct net *net, const uint8_t ip[16]);
bool ipv4_is_near(const struct net *net, const uint8_t ip[4]); /* inside the prefix */
bool ipv6_is_near(const struct net *net, const uint8_t ip[16]);
/* Ours, for what goes there. */
const uint8_t *ipv6_source(const struct net *net, const uint8_t to[16]);

/* Writes an IPv6 header; `to` may lie in the source's place. Returns the pseudo header's sum. */
uint32_t ipv6_write(uint8_t *ip, const uint8_t from[16], const uint8_t to[16], uint8_t protocol,
                    uint8_t hops, uint32_t length);

bool arp_is_answer(const uint8_t *arp, uint32_t length);
enum net_verdict arp_receive(struct net *net, struct frame *frame);
uint32_t arp_question(const struct net *net, const struct net_neighbour *neighbour, uint8_t *frame);
/* Solicitations and advertisements. The checksum is right. */
enum net_verdict discovery_receive(struct net *net, struct frame *frame);
uint32_t discovery_question(const struct net *net, const struct net_neighbour *neighbour,
                            uint8_t *frame);

/* What a host said of itself unasked. */
void neighbour_seen(struct net *net, const uint8_t ip[16], const uint8_t mac[6], uint64_t now_ns);
/* What it answered. False: nobody asked, or another than the only one that was asked. */
bool neighbour_answered(struct net *net, const uint8_t ip[16], const uint8_t mac[6],
                        uint64_t now_ns);
/* Whether the next question goes to the address that answered before, not to all. */
bool neighbour_is_asked_alone(const struct net_neighbour *neighbour);
/* To send to; NULL = not known, asked for. */
const uint8_t *neighbour_mac(struct net *net, const uint8_t ip[16], uint64_t now_ns);

#endif
