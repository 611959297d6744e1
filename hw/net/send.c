/* SPDX-License-Identifier: Apache-2.0
 *
 * Datagrams out: where they go next, and the headers before them. Options, too.
 */
#include "hw/net/bytes.h"

/* ---- options --------------------------------------------------------------------------------- */

static bool prefix_matches(const uint8_t *a, const uint8_t *b, uint32_t bits)
{
    uint32_t whole = bits / 8;
    uint8_t mask = (uint8_t)(0xff00u >> (bits % 8));
    return memcmp(a, b, whole) == 0 && (bits % 8 == 0 || ((a[whole] ^ b[whole]) & mask) == 0);
}

bool ipv4_is_near(const struct net *net, const uint8_t ip[4])
{
    return prefix_matches(ip, net->options.ipv4, net->options.ipv4_prefix);
}

static bool is_link_local(const uint8_t ip[16])
{
    return ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80;
}

bool ipv6_is_near(const struct net *net, const uint8_t ip[16])
{
    return is_link_local(ip) || prefix_matches(ip, net->options.ipv6, net->options.ipv6_prefix);
}

bool ipv6_is_own(const struct net *net, const uint8_t ip[16])
{
    if (all_zero(net->options.ipv6, 16)) {
        return false;
    }
    return memcmp(ip, net->options.ipv6, 16) == 0 || memcmp(ip, net->link_local, 16) == 0;
}

/* Neither network nor broadcast of our prefix, no group, no loopback (RFC 1122 3.2.1.3). */
bool ipv4_is_hosts(const struct net *net, const uint8_t ip[4])
{
    if (ip[0] == 0 || ip[0] == 127 || ip[0] >= 224 || memcmp(ip, net->options.ipv4, 4) == 0) {
        return false;
    }
    uint32_t host_bits = 32u - net->options.ipv4_prefix;
    if (host_bits < 2 || !ipv4_is_near(net, ip)) {
        return true;
    }
    uint32_t host_mask = host_bits == 32 ? UINT32_MAX : (UINT32_C(1) << host_bits) - 1;
    uint32_t host = ((uint32_t)get16(ip) << 16 | get16(ip + 2)) & host_mask;
    return host != 0 && host != host_mask;
}

bool ipv6_is_hosts(const struct net *net, const uint8_t ip[16])
{
    static const uint8_t loopback[16] = {[15] = 1};
    return ip[0] != 0xff && !all_zero(ip, 16) && memcmp(ip, loopback, 16) != 0 && !is_mapped(ip) &&
           !ipv6_is_own(net, ip);
}

const char *net_options_check(const struct net_options *options)
{
    struct net net = {.options = *options}; /* addresses are judged against no prefix */
    bool ipv4 = !all_zero(options->ipv4, 4);
    bool ipv6 = !all_zero(options->ipv6, 16);
    memset(net.options.ipv4, 0, 4);
    memset(net.options.ipv6, 0, 16);
    net.options.ipv4_prefix = 32;
    if (!mac_is_hosts(options->mac)) {
        return "the hardware address is not that of one host";
    }
    if (!ipv4 && !ipv6) {
        return "neither an IPv4 nor an IPv6 address is given";
    }
    if (options->mtu < NET_MTU_MIN || options->mtu > NET_MTU_MAX) {
        return "the MTU must be from 1280 to 1500";
    }
    if (ipv4 && (options->ipv4_prefix == 0 || options->ipv4_prefix > 32)) {
        return "the IPv4 prefix must be from 1 to 32 bits";
    }
    if (ipv4 && !ipv4_is_hosts(&net, options->ipv4)) {
        return "the IPv4 address is not that of one host";
    }
    if (ipv6 && (options->ipv6_prefix == 0 || options->ipv6_prefix > 128)) {
        return "the IPv6 prefix must be from 1 to 128 bits";
    }
    if (ipv6 && !ipv6_is_hosts(&net, options->ipv6)) {
        return "the IPv6 address is not that of one host";
    }
    net.options = *options;
    if (!all_zero(options->ipv4_gateway, 4) &&
        !(ipv4 && ipv4_is_near(&net, options->ipv4_gateway) &&
          ipv4_is_hosts(&net, options->ipv4_gateway))) {
        return "the IPv4 gateway is not another host inside the prefix";
    }
    if (!all_zero(options->ipv6_gateway, 16) &&
        !(ipv6 && ipv6_is_near(&net, options->ipv6_gateway) &&
          ipv6_is_hosts(&net, options->ipv6_gateway))) {
        return "the IPv6 gateway is not another host inside the prefix";
    }
    return NULL;
}

void net_init(struct net *net, const struct net_options *options)
{
    const uint8_t *mac = options->mac;
    memset(net, 0, sizeof(*net));
    net->options = *options;
    const uint8_t interface[8] = {mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
    net->link_local[0] = 0xfe;
    net->link_local[1] = 0x80;
    memcpy(net->link_local + 8, interface, sizeof(interface));
}

const char *net_loss_name(enum net_loss loss)
{
    static const char *const names[NET_LOSSES] = {
        [NET_LOSS_RUNT] = "runt",
        [NET_LOSS_NOT_OURS] = "not_ours",
        [NET_LOSS_ETHERTYPE] = "ethertype",
        [NET_LOSS_SOURCE] = "source",
        [NET_LOSS_IP_HEADER] = "ip_header",
        [NET_LOSS_IP_CHECKSUM] = "ip_checksum",
        [NET_LOSS_FRAGMENT] = "fragment",
        [NET_LOSS_EXTENSION] = "extension",
        [NET_LOSS_PROTOCOL] = "protocol",
        [NET_LOSS_UDP_HEADER] = "udp_header",
        [NET_LOSS_UDP_CHECKSUM] = "udp_checksum",
        [NET_LOSS_ICMP] = "icmp",
        [NET_LOSS_ECHO_LIMIT] = "echo_limit",
        [NET_LOSS_ARP] = "arp",
        [NET_LOSS_DISCOVERY] = "discovery",
        [NET_LOSS_NO_ROUTE] = "no_route",
        [NET_LOSS_NO_NEIGHBOUR] = "no_neighbour",
        [NET_LOSS_TOO_LONG] = "too_long",
    };
    return names[loss];
}

/* ---- where to -------------------------------------------------------------------------------- */

/* The neighbour that takes it; false = there is none. */
static bool next_hop(const struct net *net, const uint8_t to[16], uint8_t hop[16])
{
    const struct net_options *options = &net->options;
    if (is_mapped(to)) {
        if (all_zero(options->ipv4, 4) || !ipv4_is_hosts(net, to + 12)) {
            return false;
        }
        bool near = ipv4_is_near(net, to + 12);
        map_ipv4(hop, near ? to + 12 : options->ipv4_gateway);
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
    memcpy(ip + 16, to + 12, 4);
    if (!net->options.tx_checksums) {
        put16(ip + 10, ~sum_add(0, ip, IPV4_BYTES));
    }
    return sum_pseudo(ip + 12, 4, PROTOCOL_UDP, udp_bytes);
}

static uint32_t write_ipv6(const struct net *net, uint8_t *ip, const uint8_t to[16],
                           uint32_t udp_bytes)
{
    put16(ip, 0x6000);
    put16(ip + 2, 0);
    put16(ip + 4, udp_bytes);
    ip[6] = PROTOCOL_UDP;
    ip[7] = HOPS;
    memcpy(ip + 8, is_link_local(to) ? net->link_local : net->options.ipv6, 16);
    memcpy(ip + 24, to, 16);
    return sum_pseudo(ip + 8, 16, PROTOCOL_UDP, udp_bytes);
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
    bool ipv4 = is_mapped(to->ip);
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
    memcpy(*frame, mac, 6);
    memcpy(*frame + 6, net->options.mac, 6);
    put16(*frame + 12, ipv4 ? ETHERTYPE_IPV4 : ETHERTYPE_IPV6);
    uint32_t sum =
        ipv4 ? write_ipv4(net, ip, to->ip, udp_bytes) : write_ipv6(net, ip, to->ip, udp_bytes);
    write_udp(net, udp, from_port, to->port, udp_bytes, sum);
    net->counters.datagrams_out++;
    return NET_ETHERNET_BYTES + ip_bytes + udp_bytes;
}
