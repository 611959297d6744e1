/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames in: what is a datagram for us, what is answered here, and why all else is dropped.
 */
#include "hw/net/bytes.h"

enum { ECHO4_REQUEST = 8, ECHO4_REPLY = 0, ECHO6_REQUEST = 128, ECHO6_REPLY = 129 };

/* The part of the frame behind the IP header. */
struct transport {
    uint8_t *bytes;
    uint32_t length;
    uint32_t sum; /* of the pseudo header without its length; IPv4: for UDP only */
    struct port_address from;
};

/* ---- UDP ------------------------------------------------------------------------------------- */

/* `near`: what sent the frame is the source itself, and no router. */
static enum net_verdict take_udp(struct net *net, const struct frame *frame,
                                 struct transport *transport, bool near,
                                 struct net_datagram *datagram)
{
    uint8_t *udp = transport->bytes;
    if (transport->length < UDP_BYTES) {
        return lose(net, NET_LOSS_UDP_HEADER);
    }
    uint32_t length = get16(udp + 4);
    transport->from.port = get16(udp);
    if (length < UDP_BYTES || length > transport->length || transport->from.port == 0) {
        return lose(net, NET_LOSS_UDP_HEADER);
    }
    bool unsummed = get16(udp + 6) == 0;
    if (unsummed && !port_ip_is_ipv4(transport->from.ip)) {
        return lose(net, NET_LOSS_UDP_CHECKSUM); /* RFC 8200 8.1 */
    }
    /* The pseudo header has the length that UDP claims. */
    uint32_t sum = transport->sum + length;
    if (!frame->checked && !unsummed && !sum_is_right(sum_add(sum, udp, length))) {
        return lose(net, NET_LOSS_UDP_CHECKSUM);
    }
    uint8_t *bytes = udp + UDP_BYTES;
    size_t beyond = (uintptr_t)bytes % 8;
    *datagram = (struct net_datagram){.bytes = bytes - beyond,
                                      .length = length - UDP_BYTES,
                                      .from = transport->from,
                                      .to_port = get16(udp + 2)};
    if (beyond != 0) { /* back over the header, which has been read */
        memmove(datagram->bytes, bytes, datagram->length);
    }
    if (near) {
        neighbour_seen(net, transport->from.ip, frame->bytes + 6, frame->now_ns);
    }
    net->counters.datagrams_in++;
    return NET_DATAGRAM;
}

/* ---- echo ------------------------------------------------------------------------------------ */

static bool echo_allowed(struct net *net, uint64_t now_ns)
{
    uint64_t second = now_ns / 1000000000;
    if (second != net->echo_second) {
        net->echo_second = second;
        net->echo_count = 0;
    }
    return net->echo_count++ < NET_ECHOES_MAX;
}

/* The message with another type: its checksum changes by the difference (RFC 1624). */
static void retype(uint8_t *icmp, uint8_t type)
{
    uint32_t sum = (uint16_t)~get16(icmp + 2);
    uint32_t before = (uint32_t)icmp[0] << 8 | icmp[1];
    sum += (uint16_t)~before;
    icmp[0] = type;
    sum += (uint32_t)icmp[0] << 8 | icmp[1];
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    put16(icmp + 2, ~sum);
}

static void swap(uint8_t *a, uint8_t *b, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        uint8_t kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

static enum net_verdict echo(struct net *net, struct frame *frame, uint8_t *icmp, uint8_t type)
{
    if (!echo_allowed(net, frame->now_ns)) {
        return lose(net, NET_LOSS_ECHO_LIMIT);
    }
    retype(icmp, type);
    frame_return(net, frame->bytes);
    net->counters.echoes++;
    return NET_ANSWER;
}

static enum net_verdict take_icmp(struct net *net, struct frame *frame, struct transport *transport)
{
    uint8_t *ip = frame->bytes + NET_ETHERNET_BYTES;
    uint8_t *icmp = transport->bytes;
    if (transport->length < ICMP_BYTES || !sum_is_right(sum_add(0, icmp, transport->length))) {
        return lose(net, NET_LOSS_ICMP);
    }
    if (icmp[0] != ECHO4_REQUEST || icmp[1] != 0) {
        return lose(net, NET_LOSS_PROTOCOL);
    }
    enum net_verdict verdict = echo(net, frame, icmp, ECHO4_REPLY);
    if (verdict == NET_ANSWER) {
        swap(ip + 12, ip + 16, 4);
        ip[8] = HOPS;
        put16(ip + 10, 0);
        put16(ip + 10, ~sum_add(0, ip, (ip[0] & 15u) * 4));
    }
    return verdict;
}

static enum net_verdict take_icmpv6(struct net *net, struct frame *frame,
                                    struct transport *transport)
{
    uint8_t *ip = frame->bytes + NET_ETHERNET_BYTES;
    uint8_t *icmp = transport->bytes;
    if (transport->length < ICMP_BYTES ||
        !sum_is_right(sum_add(transport->sum + transport->length, icmp, transport->length))) {
        return lose(net, NET_LOSS_ICMP);
    }
    if (icmp[0] == ICMPV6_SOLICITATION || icmp[0] == ICMPV6_ADVERTISEMENT) {
        return discovery_receive(net, frame);
    }
    if (icmp[0] != ECHO6_REQUEST || icmp[1] != 0) {
        return lose(net, NET_LOSS_PROTOCOL);
    }
    if (!ipv6_is_own(net, ip + 24)) {
        return lose(net, NET_LOSS_NOT_OURS);
    }
    enum net_verdict verdict = echo(net, frame, icmp, ECHO6_REPLY);
    if (verdict == NET_ANSWER) {
        swap(ip + 8, ip + 24, 16);
        ip[7] = HOPS;
    }
    return verdict;
}

/* ---- IP -------------------------------------------------------------------------------------- */

static enum net_verdict take_ipv4(struct net *net, struct frame *frame,
                                  struct net_datagram *datagram)
{
    uint8_t *ip = frame->bytes + NET_ETHERNET_BYTES;
    uint32_t room = frame->length - NET_ETHERNET_BYTES;
    if (room < IPV4_BYTES) {
        return lose(net, NET_LOSS_RUNT);
    }
    uint32_t header = (ip[0] & 15u) * 4;
    uint32_t total = get16(ip + 2);
    if (ip[0] >> 4 != 4 || header < IPV4_BYTES || total < header) {
        return lose(net, NET_LOSS_IP_HEADER);
    }
    if (total > room) {
        return lose(net, NET_LOSS_RUNT);
    }
    if (!frame->checked && !sum_is_right(sum_add(0, ip, header))) {
        return lose(net, NET_LOSS_IP_CHECKSUM);
    }
    if ((get16(ip + 6) & 0x3fff) != 0) { /* more of it, or not its beginning */
        return lose(net, NET_LOSS_FRAGMENT);
    }
    if (all_zero(net->options.ipv4, 4) || memcmp(ip + 16, net->options.ipv4, 4) != 0) {
        return lose(net, NET_LOSS_NOT_OURS);
    }
    if (!ipv4_is_hosts(net, ip + 12)) {
        return lose(net, NET_LOSS_SOURCE);
    }
    frame->length = NET_ETHERNET_BYTES + total;
    struct transport transport = {.bytes = ip + header, .length = total - header};
    port_ip_map(transport.from.ip, ip + 12);
    if (ip[9] == PROTOCOL_ICMP) {
        return take_icmp(net, frame, &transport);
    }
    if (ip[9] != PROTOCOL_UDP) {
        return lose(net, NET_LOSS_PROTOCOL);
    }
    transport.sum = sum_pseudo(ip + 12, 4, PROTOCOL_UDP, 0);
    return take_udp(net, frame, &transport, ipv4_is_near(net, ip + 12), datagram);
}

static enum net_verdict take_ipv6(struct net *net, struct frame *frame,
                                  struct net_datagram *datagram)
{
    uint8_t *ip = frame->bytes + NET_ETHERNET_BYTES;
    uint32_t room = frame->length - NET_ETHERNET_BYTES;
    if (room < IPV6_BYTES) {
        return lose(net, NET_LOSS_RUNT);
    }
    uint32_t payload = get16(ip + 4);
    if (ip[0] >> 4 != 6) {
        return lose(net, NET_LOSS_IP_HEADER);
    }
    if (payload > room - IPV6_BYTES) {
        return lose(net, NET_LOSS_RUNT);
    }
    if (ip[6] != PROTOCOL_UDP && ip[6] != PROTOCOL_ICMPV6) {
        bool extension = ip[6] == 0 || ip[6] == 43 || ip[6] == 44 || ip[6] == 51 || ip[6] == 60;
        return lose(net, extension ? NET_LOSS_EXTENSION : NET_LOSS_PROTOCOL);
    }
    if ((frame->bytes[0] & 1) != 0 && ip[6] != PROTOCOL_ICMPV6) {
        return lose(net, NET_LOSS_NOT_OURS); /* a host's packet in a group's frame (RFC 1122) */
    }
    frame->length = NET_ETHERNET_BYTES + IPV6_BYTES + payload;
    struct transport transport = {
        .bytes = ip + IPV6_BYTES, .length = payload, .sum = sum_pseudo(ip + 8, 16, ip[6], 0)};
    memcpy(transport.from.ip, ip + 8, 16);
    if (ip[6] == PROTOCOL_ICMPV6 && (all_zero(ip + 8, 16) || ip[24] == 0xff)) {
        return take_icmpv6(net, frame, &transport); /* to a group, or from a host without address */
    }
    if (!ipv6_is_own(net, ip + 24)) {
        return lose(net, NET_LOSS_NOT_OURS);
    }
    if (!ipv6_is_hosts(net, ip + 8)) {
        return lose(net, NET_LOSS_SOURCE);
    }
    if (ip[6] == PROTOCOL_ICMPV6) {
        return take_icmpv6(net, frame, &transport);
    }
    return take_udp(net, frame, &transport, ipv6_is_near(net, ip + 8), datagram);
}

/* ---- frames ---------------------------------------------------------------------------------- */

/* To us alone, or to a group that may ask for us. */
static bool is_to_us(const struct net *net, const uint8_t *frame)
{
    uint16_t type = get16(frame + 12);
    return memcmp(frame, net->options.mac, 6) == 0 ||
           (type == ETHERTYPE_ARP && memcmp(frame, mac_of_all, 6) == 0) ||
           (type == ETHERTYPE_IPV6 && frame[0] == 0x33 && frame[1] == 0x33);
}

enum net_verdict net_receive(struct net *net, uint8_t *bytes, uint32_t *length, bool checked,
                             uint64_t now_ns, struct net_datagram *datagram)
{
    struct frame frame = {.bytes = bytes, .length = *length, .now_ns = now_ns, .checked = checked};
    enum net_verdict verdict;
    if (*length < NET_ETHERNET_BYTES) {
        return lose(net, NET_LOSS_RUNT);
    }
    if (!is_to_us(net, bytes)) {
        return lose(net, NET_LOSS_NOT_OURS);
    }
    if (!mac_is_hosts(bytes + 6) || memcmp(bytes + 6, net->options.mac, 6) == 0) {
        return lose(net, NET_LOSS_SOURCE);
    }
    switch (get16(bytes + 12)) {
    case ETHERTYPE_IPV4:
        verdict = take_ipv4(net, &frame, datagram);
        break;
    case ETHERTYPE_IPV6:
        verdict = take_ipv6(net, &frame, datagram);
        break;
    case ETHERTYPE_ARP:
        verdict = arp_receive(net, &frame);
        break;
    default:
        return lose(net, NET_LOSS_ETHERTYPE);
    }
    if (verdict == NET_ANSWER) {
        while (frame.length < NET_FRAME_BYTES_MIN) {
            bytes[frame.length++] = 0;
        }
        *length = frame.length;
    }
    return verdict;
}

/* ---- several queues -------------------------------------------------------------------------- */

static enum net_look look_ipv4(const uint8_t *ip, uint32_t room, uint16_t *to_port)
{
    if (room < IPV4_BYTES) {
        return NET_LOOK_OTHER;
    }
    uint32_t header = (ip[0] & 15u) * 4;
    bool fragment = (get16(ip + 6) & 0x3fff) != 0;
    if (ip[9] != PROTOCOL_UDP || header < IPV4_BYTES || fragment || room < header + UDP_BYTES) {
        return NET_LOOK_OTHER;
    }
    *to_port = get16(ip + header + 2);
    return NET_LOOK_DATAGRAM;
}

static enum net_look look_ipv6(const uint8_t *ip, uint32_t room, uint16_t *to_port)
{
    if (room < IPV6_BYTES + UDP_BYTES) {
        return NET_LOOK_OTHER;
    }
    if (ip[6] == PROTOCOL_ICMPV6) {
        return ip[IPV6_BYTES] == ICMPV6_ADVERTISEMENT ? NET_LOOK_NEIGHBOUR_ANSWER : NET_LOOK_OTHER;
    }
    if (ip[6] != PROTOCOL_UDP) {
        return NET_LOOK_OTHER;
    }
    *to_port = get16(ip + IPV6_BYTES + 2);
    return NET_LOOK_DATAGRAM;
}

enum net_look net_look(const uint8_t *frame, uint32_t length, uint16_t *to_port)
{
    if (length < NET_ETHERNET_BYTES) {
        return NET_LOOK_OTHER;
    }
    const uint8_t *packet = frame + NET_ETHERNET_BYTES;
    uint32_t room = length - NET_ETHERNET_BYTES;
    switch (get16(frame + 12)) {
    case ETHERTYPE_IPV4:
        return look_ipv4(packet, room, to_port);
    case ETHERTYPE_IPV6:
        return look_ipv6(packet, room, to_port);
    case ETHERTYPE_ARP:
        return arp_is_answer(packet, room) ? NET_LOOK_NEIGHBOUR_ANSWER : NET_LOOK_OTHER;
    default:
        return NET_LOOK_OTHER;
    }
}

void net_overhear(struct net *net, uint8_t *frame, uint32_t length, uint64_t now_ns)
{
    struct net_counters kept = net->counters;
    struct net_datagram datagram;
    (void)net_receive(net, frame, &length, false, now_ns, &datagram);
    net->counters = kept;
}
