/* SPDX-License-Identifier: Apache-2.0
 *
 * hw/net against the kernel's own stack, in a network namespace of the test's: the kernel has one
 * end of a TAP device, hw/net the other. Whatever the kernel asks, answers, sums up and discards is
 * its own affair: they must understand each other. One thread; every wait is for an event.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/icmp6.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hw/clock.h"
#include "hw/net/net.h"
#include "hw/port_socket.h"

enum { ROOM = 2048, WAIT_MS = 5000, ROUNDS = 200 };

static const char ours4[] = "10.77.0.2", ours6[] = "fd77::2";
static const char kernels4[] = "10.77.0.1", kernels6[] = "fd77::1";

static int tap;
static struct net net;
static uint64_t datagrams; /* taken from the TAP */
static struct net_datagram last;
static _Alignas(64) uint8_t frame[ROOM];

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s: ", __FILE__, __LINE__, #condition);                \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fprintf(stderr, " (%s)\n", strerror(errno));                                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* ---- the kernel's end ------------------------------------------------------------------------ */

static void enter_namespace(void)
{
    int flags = CLONE_NEWNET | (geteuid() == 0 ? 0 : CLONE_NEWUSER);
    CHECK(unshare(flags) == 0, "a network namespace: needs root, or user namespaces");
}

static void address4(int any, struct ifreq *request, unsigned long what, const char *text)
{
    struct sockaddr_in *in = (struct sockaddr_in *)&request->ifr_addr;
    *in = (struct sockaddr_in){.sin_family = AF_INET};
    CHECK(inet_pton(AF_INET, text, &in->sin_addr) == 1, "%s", text);
    CHECK(ioctl(any, what, request) == 0, "%s", text);
}

/* By netlink, which alone can say that nobody is to be asked whether the address is free: until
 * that is settled, some time later, it cannot be bound to. */
static void address6(int index, const char *text)
{
    struct {
        struct nlmsghdr header;
        struct ifaddrmsg address;
        struct rtattr local_header;
        struct in6_addr local;
        struct rtattr flags_header;
        uint32_t flags;
    } request = {
        .header = {.nlmsg_len = sizeof request,
                   .nlmsg_type = RTM_NEWADDR,
                   .nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_ACK},
        .address = {.ifa_family = AF_INET6, .ifa_prefixlen = 64, .ifa_index = (unsigned)index},
        .local_header = {.rta_len = RTA_LENGTH(sizeof request.local), .rta_type = IFA_LOCAL},
        .flags_header = {.rta_len = RTA_LENGTH(sizeof request.flags), .rta_type = IFA_FLAGS},
        .flags = IFA_F_NODAD,
    };
    struct {
        struct nlmsghdr header;
        struct nlmsgerr error;
    } answer;
    int route = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    CHECK(inet_pton(AF_INET6, text, &request.local) == 1, "%s", text);
    CHECK(send(route, &request, sizeof request, 0) == sizeof request, "%s", text);
    CHECK(recv(route, &answer, sizeof answer, MSG_TRUNC) >= (ssize_t)sizeof answer, "%s", text);
    errno = -answer.error.error;
    CHECK(errno == 0, "%s", text);
    close(route);
}

static void open_tap(void)
{
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    int any = socket(AF_INET, SOCK_DGRAM, 0);
    int index;
    tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    CHECK(tap >= 0, "/dev/net/tun");
    memcpy(request.ifr_name, "tap0", sizeof "tap0");
    CHECK(ioctl(tap, TUNSETIFF, &request) == 0, "tap0");
    CHECK(ioctl(any, SIOCGIFINDEX, &request) == 0, "tap0");
    index = request.ifr_ifindex;
    address4(any, &request, SIOCSIFADDR, kernels4);
    address4(any, &request, SIOCSIFNETMASK, "255.255.255.0");
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    CHECK(ioctl(any, SIOCSIFFLAGS, &request) == 0, "tap0 up");
    address6(index, kernels6);
    close(any);
}

static void start_net(void)
{
    struct net_options options = {
        .mac = {2, 0, 0, 0, 0, 2}, .ipv4_prefix = 24, .ipv6_prefix = 64, .mtu = 1500};
    CHECK(inet_pton(AF_INET, ours4, options.ipv4) == 1, "%s", ours4);
    CHECK(inet_pton(AF_INET6, ours6, options.ipv6) == 1, "%s", ours6);
    CHECK(net_options_check(&options) == NULL, "%s", net_options_check(&options));
    net_init(&net, &options);
}

/* ---- our end --------------------------------------------------------------------------------- */

static void put_frame(const uint8_t *bytes, uint32_t length)
{
    CHECK(write(tap, bytes, length) == (ssize_t)length, "a frame of %u bytes", length);
}

static void ask(void)
{
    uint8_t question[NET_QUESTION_BYTES_MAX];
    for (uint32_t length; (length = net_question(&net, question)) > 0;)
        put_frame(question, length);
}

/* Takes one frame and does what is to be done; false = there is none. */
static bool take_frame(void)
{
    ssize_t count = read(tap, frame, ROOM - NET_FRAME_BYTES_MIN);
    uint32_t length = (uint32_t)count;
    if (count < 0)
        return false;
    switch (net_receive(&net, frame, &length, false, clock_monotonic_ns(), &last)) {
    case NET_DATAGRAM:
        datagrams++;
        return true;
    case NET_ANSWER:
        put_frame(frame, length);
        return true;
    case NET_NOTHING:
        return true;
    }
    return true;
}

/* Until `until` has something to be read, or, if it is -1, until a datagram has come. */
static void serve(int until)
{
    uint64_t before = datagrams;
    struct pollfd wanted[2] = {{.fd = tap, .events = POLLIN}, {.fd = until, .events = POLLIN}};
    while (until >= 0 || datagrams == before) {
        CHECK(poll(wanted, 2, WAIT_MS) > 0, "nothing comes");
        if ((wanted[1].revents & POLLIN) != 0)
            return;
        while ((wanted[0].revents & POLLIN) != 0 && datagrams == before && take_frame()) {
        }
    }
}

/* ---- datagrams ------------------------------------------------------------------------------- */

static int socket_of(const char *text, uint16_t port, struct sockaddr_storage *to, socklen_t *bytes)
{
    struct port_address address;
    char full[80];
    bool ipv6 = strchr(text, ':') != NULL;
    snprintf(full, sizeof full, ipv6 ? "[%s]:%u" : "%s:%u", text, port);
    CHECK(port_address_parse(full, &address) == 0, "%s", full);
    *bytes = port_address_to_socket(&address, !ipv6, to);
    return socket(ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
}

static uint8_t pattern(uint32_t round, uint32_t at)
{
    return (uint8_t)(round * 13 + at * 7);
}

/* The kernel sends to us, we send the same back; both with every kind of length. */
static void exchange(const char *theirs, const char *ours, uint32_t length_max)
{
    struct sockaddr_storage here, there;
    socklen_t here_bytes, there_bytes;
    int file = socket_of(theirs, 5000, &here, &here_bytes);
    close(socket_of(ours, 7400, &there, &there_bytes));
    CHECK(bind(file, (struct sockaddr *)&here, here_bytes) == 0, "%s", theirs);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t length = round < 64 ? round : length_max - (ROUNDS - 1 - round);
        uint8_t sent[ROOM], back[ROOM];
        _Alignas(8) uint8_t buffer[NET_HEADROOM + ROOM];
        for (uint32_t i = 0; i < length; i++)
            sent[i] = pattern(round, i);
        CHECK(sendto(file, sent, length, 0, (struct sockaddr *)&there, there_bytes) ==
                  (ssize_t)length,
              "%s", ours);
        serve(-1);
        CHECK(last.length == length && last.to_port == 7400, "%u, %u", last.length, last.to_port);
        CHECK(memcmp(last.bytes, sent, length) == 0, "round %u", round);
        memcpy(buffer + NET_HEADROOM, last.bytes, length);
        uint8_t *out;
        uint32_t out_length = net_send(&net, buffer + NET_HEADROOM, length, 7400, &last.from,
                                       clock_monotonic_ns(), &out);
        CHECK(out_length > 0, "round %u", round);
        put_frame(out, out_length);
        ask();
        serve(file);
        CHECK(recv(file, back, sizeof back, 0) == (ssize_t)length, "round %u", round);
        CHECK(memcmp(back, sent, length) == 0, "round %u", round);
    }
    close(file);
}

/* We send first: the kernel is asked who it is. */
static void speak_first(const char *theirs)
{
    struct sockaddr_storage here;
    struct port_address to;
    socklen_t here_bytes;
    int file = socket_of(theirs, 5001, &here, &here_bytes);
    struct pollfd wanted = {.fd = tap, .events = POLLIN};
    _Alignas(8) uint8_t buffer[NET_HEADROOM + 8] = {0};
    uint8_t *out;
    uint32_t length;
    CHECK(bind(file, (struct sockaddr *)&here, here_bytes) == 0, "%s", theirs);
    CHECK(port_address_from_socket(&here, &to), "%s", theirs);
    while ((length = net_send(&net, buffer + NET_HEADROOM, 8, 7400, &to, clock_monotonic_ns(),
                              &out)) == 0) {
        ask();
        CHECK(poll(&wanted, 1, WAIT_MS) == 1, "%s does not answer", theirs);
        (void)take_frame();
    }
    put_frame(out, length);
    serve(file);
    CHECK(recv(file, buffer, sizeof buffer, 0) == 8, "%s", theirs);
    close(file);
}

/* ---- echo ------------------------------------------------------------------------------------ */

static void ping(const char *ours, bool ipv6)
{
    struct sockaddr_storage to;
    socklen_t to_bytes;
    uint8_t packet[108] = {ipv6 ? ICMP6_ECHO_REQUEST : ICMP_ECHO, 0, 0, 0, 0x12, 0x34, 0, 1};
    uint8_t back[ROOM];
    close(socket_of(ours, 0, &to, &to_bytes));
    int file = socket(ipv6 ? AF_INET6 : AF_INET, SOCK_RAW | SOCK_NONBLOCK,
                      ipv6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP);
    CHECK(file >= 0, "a raw socket");
    if (ipv6) { /* the kernel makes that checksum itself, and hands on what it found right */
        struct icmp6_filter filter;
        ICMP6_FILTER_SETBLOCKALL(&filter);
        ICMP6_FILTER_SETPASS(ICMP6_ECHO_REPLY, &filter);
        CHECK(setsockopt(file, IPPROTO_ICMPV6, ICMP6_FILTER, &filter, sizeof filter) == 0, "-");
    } else {
        uint32_t sum = ((uint32_t)ICMP_ECHO << 8) + 0x1234 + 1;
        packet[2] = (uint8_t)(~sum >> 8);
        packet[3] = (uint8_t)~sum;
    }
    CHECK(sendto(file, packet, sizeof packet, 0, (struct sockaddr *)&to, to_bytes) ==
              (ssize_t)sizeof packet,
          "%s", ours);
    serve(file);
    ssize_t count = recv(file, back, sizeof back, 0);
    size_t header = ipv6 ? 0 : 20;
    CHECK(count == (ssize_t)(header + sizeof packet), "%zd", count);
    CHECK(back[header] == (ipv6 ? ICMP6_ECHO_REPLY : ICMP_ECHOREPLY), "%u", back[header]);
    CHECK(memcmp(back + header + 4, packet + 4, sizeof packet - 4) == 0, "%s", ours);
    close(file);
}

/* What the kernel sends of itself (groups it joins, routers it looks for) is not for us; nothing
 * else may have been lost, and nothing for a reason that says that we misread it. */
static void nothing_misread(void)
{
    for (int i = 0; i < NET_LOSSES; i++)
        CHECK(net.counters.losses[i] == 0 || i == NET_LOSS_NOT_OURS || i == NET_LOSS_EXTENSION ||
                  i == NET_LOSS_PROTOCOL || i == NET_LOSS_NO_NEIGHBOUR,
              "%s: %lu", net_loss_name((enum net_loss)i), net.counters.losses[i]);
}

int main(void)
{
    enter_namespace();
    open_tap();
    start_net();
    exchange(kernels4, ours4, 1472);
    exchange(kernels6, ours6, 1452);
    ping(ours4, false);
    ping(ours6, true);
    nothing_misread();
    CHECK(net.counters.answers >= 2, "the kernel has asked in each family");
    CHECK(net.counters.echoes == 2 && net.counters.datagrams_in == 2 * ROUNDS, "counters");
    start_net(); /* knows nobody */
    speak_first(kernels4);
    speak_first(kernels6);
    nothing_misread();
    CHECK(net.counters.questions >= 2, "one in each family");
    printf("%d datagrams there and back\n", 2 * ROUNDS);
    return 0;
}
