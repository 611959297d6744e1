/* SPDX-License-Identifier: Apache-2.0
 *
 * Between frames of an Ethernet device and datagrams, for ports that have no kernel below them:
 * Ethernet, ARP, IPv4, IPv6, neighbour discovery, echo, UDP. Pure: frames, time and memory come
 * from the caller; nothing is allocated, nothing waits, a frame of any content is judged within its
 * length. One owner thread.
 *
 * Files: receive.c (frames in, echo), send.c (frames out, routes), arp.c, discovery.c (IPv6
 * neighbours), neighbours.c (whose hardware address is known, and how well), addresses.c (options,
 * and whose an IP address is), bytes.h.
 *
 * Neighbours. Nothing waits for one: a datagram to a host whose address is not known is dropped and
 * counted, as networks may drop any, and the host is asked for (RFC 826, RFC 4861). What a host
 * says of itself unasked, in a request or by a datagram's source, is good for sending until it is
 * silent for a minute, but never replaces what it answered when asked: whoever forges frames cannot
 * turn away the traffic to a peer that was asked.
 */
#ifndef BELAY_HW_NET_NET_H
#define BELAY_HW_NET_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hw/port.h"

enum {
    NET_HEADROOM = 64, /* that net_send needs before the bytes of a datagram */
    NET_MTU_MIN = 1280,
    NET_MTU_MAX = 1500,
    NET_ETHERNET_BYTES = 14,
    NET_FRAME_BYTES_MIN = 60, /* what is shorter is padded with zeros, by us or by the device */
    NET_SETS = 1024,
    NET_WAYS = 4,
    NET_ECHOES_MAX = 1000,   /* answered per second */
    NET_QUESTIONS_MAX = 256, /* waiting to be sent; a power of two */
    NET_QUESTION_BYTES_MAX = 128,
};

/* How long a neighbour's address is used, in milliseconds. */
enum {
    NET_FRESH_MS = 20000,  /* then it is asked again, and used meanwhile */
    NET_USABLE_MS = 60000, /* then it is forgotten */
    NET_ASK_MS = 200,      /* between the first two questions to a host; doubles up to the next */
    NET_ASK_MS_MAX = 3200,
    NET_DOUBT_MS = 1000, /* between questions to one whose IP address another uses, too */
};

struct net_options {
    uint8_t mac[6];
    /* All zero: none. Gateways: for hosts outside the prefix, all zero: those are unreachable. */
    uint8_t ipv4[4];
    uint8_t ipv4_gateway[4];
    uint8_t ipv6[16];
    uint8_t ipv6_gateway[16];
    uint8_t ipv4_prefix, ipv6_prefix; /* bits */
    uint16_t mtu;                     /* of an IP packet */
    bool tx_checksums;                /* the device completes them, from the pseudo header's sum */
};

/* Why a received frame was dropped, or a datagram not sent. */
enum net_loss {
    NET_LOSS_RUNT,      /* too short for what it says it is */
    NET_LOSS_NOT_OURS,  /* another host's hardware or IP address */
    NET_LOSS_ETHERTYPE, /* neither ARP, IPv4 nor IPv6 */
    NET_LOSS_SOURCE,    /* no host's address, or our own */
    NET_LOSS_IP_HEADER, /* version, lengths */
    NET_LOSS_IP_CHECKSUM,
    NET_LOSS_FRAGMENT,
    NET_LOSS_EXTENSION, /* IPv6 extension headers */
    NET_LOSS_PROTOCOL,  /* neither UDP nor an echo request */
    NET_LOSS_UDP_HEADER,
    NET_LOSS_UDP_CHECKSUM,
    NET_LOSS_ICMP, /* malformed, or a bad checksum */
    NET_LOSS_ECHO_LIMIT,
    NET_LOSS_ARP, /* malformed, or an answer that was not asked for */
    NET_LOSS_DISCOVERY,
    NET_LOSS_NO_ROUTE,     /* sending: outside the prefix and no gateway, or no such family */
    NET_LOSS_NO_NEIGHBOUR, /* sending: asked for, not known yet */
    NET_LOSS_TOO_LONG,     /* sending: longer than the MTU */
    NET_LOSSES
};
/* In words, for counters: "fragment". */
const char *net_loss_name(enum net_loss loss);

enum net_neighbour_state {
    NET_NEIGHBOUR_NONE,
    NET_NEIGHBOUR_ASKED,     /* nothing known */
    NET_NEIGHBOUR_SEEN,      /* by what it sent unasked */
    NET_NEIGHBOUR_CONFIRMED, /* it answered */
};

struct net_neighbour {
    uint8_t ip[16]; /* IPv4-mapped */
    uint8_t mac[6];
    uint8_t state;     /* enum net_neighbour_state */
    uint8_t asked;     /* times, since it last answered */
    uint64_t known_ns; /* when that was */
    uint64_t asked_ns; /* last question */
    uint64_t used_ns;
};

struct net_counters {
    uint64_t datagrams_in, datagrams_out;
    uint64_t echoes, questions, answers; /* of ours: sent */
    uint64_t losses[NET_LOSSES];
};

struct net {
    struct net_options options;
    uint8_t link_local[16]; /* fe80:: and the MAC (RFC 4291, appendix A) */
    struct net_counters counters;
    uint64_t echo_second;
    uint32_t echo_count;
    uint32_t questions_first, questions_end; /* counters; places are modulo NET_QUESTIONS_MAX */
    uint32_t questions[NET_QUESTIONS_MAX];   /* indexes of neighbours to ask */
    struct net_neighbour neighbours[NET_SETS * NET_WAYS];
};

/* "10.9.0.1/24" or "fd09::1/64" into address and prefix of its family, "10.9.0.254" or "fd09::fe"
 * into its gateway. False: it is not one, and nothing is changed. */
bool net_options_set_address(struct net_options *options, const char *text);
bool net_options_set_gateway(struct net_options *options, const char *text);

/* NULL, or a sentence about what is wrong with the options. */
const char *net_options_check(const struct net_options *options);

/* The options have been checked. `net` is any memory of its size. */
void net_init(struct net *net, const struct net_options *options);

enum net_verdict {
    NET_NOTHING,  /* dropped and counted, or taken note of */
    NET_DATAGRAM, /* *datagram: it points into the frame */
    NET_ANSWER,   /* the frame was rewritten into one to be sent, *length long */
};

struct net_datagram {
    uint8_t *bytes; /* 8-byte aligned: moved within the frame where it did not lie so */
    uint32_t length;
    struct port_address from;
    uint16_t to_port; /* host order */
};

/* One received frame of *length bytes, with room for NET_FRAME_BYTES_MIN more. `checked`: the
 * device has found the IP and UDP checksums right. */
enum net_verdict net_receive(struct net *net, uint8_t *frame, uint32_t *length, bool checked,
                             uint64_t now_ns, struct net_datagram *datagram);

/* What a frame is, without judging it: for whoever has several queues, and a `net` for each. */
enum net_look {
    NET_LOOK_OTHER,
    NET_LOOK_DATAGRAM,         /* UDP: *to_port is where it goes, host order */
    NET_LOOK_NEIGHBOUR_ANSWER, /* every queue may have asked */
};
enum net_look net_look(const uint8_t *frame, uint32_t length, uint16_t *to_port);

/* Takes note of a neighbour's answer that came to another queue, or that another queue may have
 * asked for. Not counted: whether anybody asked is not known here. The frame may be changed. */
void net_overhear(struct net *net, uint8_t *frame, uint32_t length, uint64_t now_ns);

/* Puts headers before `bytes` (NET_HEADROOM bytes there are the caller's to give). Returns the
 * frame's length and *frame where it begins; 0 = it cannot be sent, counted. */
uint32_t net_send(struct net *net, uint8_t *bytes, uint32_t length, uint16_t from_port,
                  const struct port_address *to, uint64_t now_ns, uint8_t **frame);

/* The same in two steps, for whoever sends many: what the device sums up (tx_checksums), or else
 * net_sum(), once the bytes that were written have arrived in the cache. */
uint32_t net_send_unsummed(struct net *net, uint8_t *bytes, uint32_t length, uint16_t from_port,
                           const struct port_address *to, uint64_t now_ns, uint8_t **frame);
void net_sum(uint8_t *frame);

/* The next question to a neighbour, as a frame (NET_QUESTION_BYTES_MAX of room). Its length; 0 =
 * none is due. To be called until then after sending. */
uint32_t net_question(struct net *net, uint8_t *frame);

#endif
