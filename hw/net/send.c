/* SPDX-License-Identifier: Apache-2.0
 *
 * Datagrams out: where they go next, and the headers before them.
 */
#include "hw/net/bytes.h"

/* ---- where to -------------------------------------------------------------------------------- */

/* The neighbour that takes it; false = there is none. */
static bool next_hop(const struct net *net, const uint8_t to[16], uint8_t hop[16])
{
    const struct net_options *options = &net->options;
    if (port_ip_is_ipv4(to)) {
        if (all_zero(options->ipv4, 4) || !ipv4_is_hosts(net, to + PORT_IPV4_AT)) {
            return false;
        }
        bool near = ipv4_is_near(net, to + PORT_IPV4_AT);
        port_ip_map(hop, near ? to + PORT_IPV4_AT : options->ipv4_gateway);
        return near || !all_zero(options->ipv4_gateway, 4);
    }
    if (all_zero(options->ipv6, 16) || !ipv6_is_hosts(net, to)) {
        return false;
    }
    bool near = ipv6_is_near(net, to);
    memcpy(hop, near ? to : options->ipv6_gateway, 16);
    return near || !all_zero(options->ipv6_gateway, 16);
}

/* ---- headers --------------------------------------------------------------------------------- */

/* Returns the pseudo header's sum. */
static uint32_t write_ipv4(const struct net *net, uint8_t *ip, const uint8_t to[16],
                           uint32_t udp_bytes)
{
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
        put16(ip + 10, ~sum_add(0, ip, IPV4_BYTES));
    }
    return sum_pseudo(ip + 12, 4, PROTOCOL_UDP, udp_bytes);
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

static void write_udp(const struct net *net, uint8_t *udp, uint16_t from_port, uint16_t to_port,
                      uint32_t udp_bytes, uint32_t sum)
{
    put16(udp, from_port);
    put16(udp + 2, to_port);
    put16(udp + 4, udp_bytes);
    put16(udp + 6, 0);
    if (net->options.tx_checksums) {
        put16(udp + 6, sum);
        return;
    }
    sum = ~sum_add(sum, udp, udp_bytes) & 0xffff;
    put16(udp + 6, sum == 0 ? 0xffff : sum); /* zero says that there is none (RFC 768) */
}

static uint32_t no(struct net *net, enum net_loss loss)
{
    (void)lose(net, loss);
    return 0;
}

uint32_t net_send(struct net *net, uint8_t *bytes, uint32_t length, uint16_t from_port,
                  const struct port_address *to, uint64_t now_ns, uint8_t **frame)
{
    bool ipv4 = port_ip_is_ipv4(to->ip);
    uint32_t ip_bytes = ipv4 ? IPV4_BYTES : IPV6_BYTES;
    uint32_t udp_bytes = UDP_BYTES + length;
    uint8_t hop[16];
    if (length > NET_MTU_MAX || ip_bytes + udp_bytes > net->options.mtu) {
        return no(net, NET_LOSS_TOO_LONG);
    }
    if (!next_hop(net, to->ip, hop)) {
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
    write_udp(net, udp, from_port, to->port, udp_bytes, sum);
    net->counters.datagrams_out++;
    return NET_ETHERNET_BYTES + ip_bytes + udp_bytes;
}
