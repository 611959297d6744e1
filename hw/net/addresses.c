/* SPDX-License-Identifier: Apache-2.0
 *
 * Whose an address is, and the options that say which are ours.
 */
#include <arpa/inet.h>

#include "hw/net/bytes.h"

enum { ADDRESS_TEXT_BYTES = INET6_ADDRSTRLEN };

/* ---- whose an address is --------------------------------------------------------------------- */

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
    return ip[0] != 0xff && !all_zero(ip, 16) && memcmp(ip, loopback, 16) != 0 &&
           !port_ip_is_ipv4(ip) && !ipv6_is_own(net, ip);
}

const uint8_t *ipv6_source(const struct net *net, const uint8_t to[16])
{
    return is_link_local(to) ? net->link_local : net->options.ipv6;
}

/* ---- options --------------------------------------------------------------------------------- */

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

/* Decimal digits without a leading zero, at most `most`. */
static bool parse_bits(const char *text, uint32_t most, uint8_t *bits)
{
    uint32_t value = 0;
    if (*text < '1' || *text > '9') {
        return false;
    }
    for (; *text >= '0' && *text <= '9' && value <= most; text++) {
        value = value * 10 + (uint32_t)(*text - '0');
    }
    *bits = (uint8_t)value;
    return *text == '\0' && value <= most;
}

bool net_options_set_address(struct net_options *options, const char *text)
{
    char address[ADDRESS_TEXT_BYTES];
    uint8_t ip[16], bits;
    const char *slash = strchr(text, '/');
    if (slash == NULL || (size_t)(slash - text) >= sizeof(address)) {
        return false;
    }
    memcpy(address, text, (size_t)(slash - text));
    address[slash - text] = '\0';
    if (inet_pton(AF_INET, address, ip) == 1 && parse_bits(slash + 1, 32, &bits)) {
        memcpy(options->ipv4, ip, 4);
        options->ipv4_prefix = bits;
        return true;
    }
    if (inet_pton(AF_INET6, address, ip) == 1 && parse_bits(slash + 1, 128, &bits)) {
        memcpy(options->ipv6, ip, 16);
        options->ipv6_prefix = bits;
        return true;
    }
    return false;
}

bool net_options_set_gateway(struct net_options *options, const char *text)
{
    return inet_pton(AF_INET, text, options->ipv4_gateway) == 1 ||
           inet_pton(AF_INET6, text, options->ipv6_gateway) == 1;
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
