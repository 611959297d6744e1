/* SPDX-License-Identifier: Apache-2.0
 *
 * Datagrams out: where they go next, and the headers before them.
 */
#include "hw/net/bytes.h"

/* ---- where to -------------------------------------------------------------------------------- */

/* The neighbour that takes it, which is `to` itself or, in `scratch`, a gateway; NULL = there is
 * none. What is near is not copied: the copy would be read before it is written through. */
static const uint8_t *next_hop(const struct net *net, const uint8_t to[16], uint8_t scratch[16])
{
    const struct net_options *options = &net->options;
    if (port_ip_is_ipv4(to)) {
        if (all_zero(options->ipv4, 4) || !ipv4_is_hosts(net, to + PORT_IPV4_AT)) {
            return NULL;
        }
        if (ipv4_is_near(net, to + PORT_IPV4_AT)) {
            return to;
        }
        port_ip_map(scratch, options->ipv4_gateway);
        return all_zero(options->ipv4_gateway, 4) ? NULL : scratch;
    }
    if (all_zero(options->ipv6, 16) || !ipv6_is_hosts(net, to)) {
        return NULL;
    }
    if (ipv6_is_near(net, to)) {
        return to;
    }
    return all_zero(options->ipv6_gateway, 16) ? NULL : options->ipv6_gateway;
}

/* ---- headers --------------------------------------------------------------------------------- */

/* Returns the pseudo header's sum. The header's own is of what goes in, not of what was written:
 * bytes that are read right after parts of them were written hold up everything. */
static uint32_t write_ipv4(const struct net *net, uint8_t *ip, const uint8_t to[16],
                           uint32_t udp_bytes)
{
    uint32_t addresses = sum_add(sum_add(0, net->options.ipv4, 4), to + PORT_IPV4_AT, 4);
    put16(ip, 0x4500);
    put16(ip + 2, IPV4_BYTES + udp_bytes);
    put16(ip + 4, 0); /* never in fragments, so it needs no identification (RFC 6864) */
    put16(ip + 6, 0x4000);
    ip[8] = HOPS;
    ip[9] = PROTOCOL_UDP;
    put16(ip + 10, 0);
    memcpy(ip + 12, net->options.ipv4, 4);
    memcpy(ip + 16, to + PORT_IPV4_AT, 4);
    if (!net->options.tx_checksums) {
        put16(ip + 10, ~sum_fold(addresses + 0x4500 + IPV4_BYTES + udp_bytes + 0x4000 +
                                 (HOPS << 8 | PROTOCOL_UDP)));
    }
    return sum_fold(addresses + PROTOCOL_UDP + udp_bytes);
}

uint32_t ipv6_write(uint8_t *ip, const uint8_t from[16], const uint8_t to[16], uint8_t protocol,
                    uint8_t hops, uint32_t length)
{
    put16(ip, 0x6000);
    put16(ip + 2, 0);
    put16(ip + 4, length);
    ip[6] = protocol;
    ip[7] = hops;
    memmove(ip + 24, to, 16);
    memcpy(ip + 8, from, 16);
    return sum_pseudo(ip + 8, 16, protocol, length);
}

/* In the place of the checksum is the pseudo header's, which whoever sums the datagram starts from:
 * the device, or net_sum(). */
static void write_udp(uint8_t *udp, uint16_t from_port, uint16_t to_port, uint32_t udp_bytes,
                      uint32_t sum)
{
    put16(udp, from_port);
    put16(udp + 2, to_port);
    put16(udp + 4, udp_bytes);
    put16(udp + 6, sum);
}

void net_sum(uint8_t *frame)
{
    uint8_t *ip = frame + NET_ETHERNET_BYTES;
    uint8_t *udp = ip + (ip[0] >> 4 == 4 ? IPV4_BYTES : IPV6_BYTES);
    uint32_t sum = ~sum_add(0, udp, get16(udp + 4)) & 0xffff;
    put16(udp + 6, sum == 0 ? 0xffff : sum); /* zero says that there is none (RFC 768) */
}

static uint32_t no(struct net *net, enum net_loss loss)
{
    (void)lose(net, loss);
    return 0;
}

uint32_t net_send_unsummed(struct net *net, uint8_t *bytes, uint32_t length, uint16_t from_port,
                           const struct port_address *to, uint64_t now_ns, uint8_t **frame)
{
    bool ipv4 = port_ip_is_ipv4(to->ip);
    uint32_t ip_bytes = ipv4 ? IPV4_BYTES : IPV6_BYTES;
    uint32_t udp_bytes = UDP_BYTES + length;
    uint8_t scratch[16];
    if (length > NET_MTU_MAX || ip_bytes + udp_bytes > net->options.mtu) {
        return no(net, NET_LOSS_TOO_LONG);
    }
    const uint8_t *hop = next_hop(net, to->ip, scratch);
    if (hop == NULL) {
        return no(net, NET_LOSS_NO_ROUTE);
    }
    const uint8_t *mac = neighbour_mac(net, hop, now_ns);
    if (mac == NULL) {
        return no(net, NET_LOSS_NO_NEIGHBOUR);
    }
    uint8_t *udp = bytes - UDP_BYTES;
    uint8_t *ip = udp - ip_bytes;
    *frame = ip - NET_ETHERNET_BYTES;
    frame_begin(net, *frame, mac, ipv4 ? ETHERTYPE_IPV4 : ETHERTYPE_IPV6);
    uint32_t sum =
        ipv4 ? write_ipv4(net, ip, to->ip, udp_bytes)
             : ipv6_write(ip, ipv6_source(net, to->ip), to->ip, PROTOCOL_UDP, HOPS, udp_bytes);
    write_udp(udp, from_port, to->port, udp_bytes, sum);
    net->counters.datagrams_out++;
    return NET_ETHERNET_BYTES + ip_bytes + udp_bytes;
}

uint32_t net_send(struct net *net, uint8_t *bytes, uint32_t length, uint16_t from_port,
                  const struct port_address *to, uint64_t now_ns, uint8_t **frame)
{
    uint32_t frame_bytes = net_send_unsummed(net, bytes, length, from_port, to, now_ns, frame);
    if (frame_bytes > 0 && !net->options.tx_checksums) {
        net_sum(*frame);
    }
    return frame_bytes;
}
