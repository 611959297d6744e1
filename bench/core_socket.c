/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/core_socket.h"

#include <arpa/inet.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/core_transport.h"

enum { BUFFER_BYTES = 16 << 20 }; /* of the kernel, for what comes in */

uint64_t core_socket_now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

bool core_socket_open(struct core_socket *udp)
{
    int bytes = BUFFER_BYTES;

    udp->out_count = 0;
    udp->transport = (belay_transport){.receive = NULL};
    udp->descriptor = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (udp->descriptor < 0)
        return false;
    if (setsockopt(udp->descriptor, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) < 0)
        (void)setsockopt(udp->descriptor, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    for (int i = 0; i < CORE_SOCKET_BURST; i++) {
        udp->out_to[i].sin_family = AF_INET;
        udp->out_parts[i].iov_base = udp->out_bytes[i];
        udp->in_parts[i] =
            (struct iovec){.iov_base = udp->in_bytes[i], .iov_len = sizeof udp->in_bytes[i]};
        udp->out[i].msg_hdr = (struct msghdr){.msg_name = &udp->out_to[i],
                                              .msg_namelen = sizeof udp->out_to[i],
                                              .msg_iov = &udp->out_parts[i],
                                              .msg_iovlen = 1};
        udp->in[i].msg_hdr = (struct msghdr){.msg_name = &udp->in_from[i],
                                             .msg_namelen = sizeof udp->in_from[i],
                                             .msg_iov = &udp->in_parts[i],
                                             .msg_iovlen = 1};
    }
    return true;
}

void core_socket_open_transport(struct core_socket *udp, const belay_transport *transport)
{
    udp->out_count = 0;
    udp->descriptor = -1;
    udp->transport = *transport;
}

void core_socket_close(struct core_socket *udp)
{
    if (udp->descriptor >= 0)
        (void)close(udp->descriptor);
    udp->descriptor = -1;
}

void core_socket_flush(struct core_socket *udp)
{
    unsigned done = 0;

    if (udp->transport.flush != NULL)
        udp->transport.flush(udp->transport.context);
    while (done < udp->out_count) {
        int sent = sendmmsg(udp->descriptor, udp->out + done, udp->out_count - done, 0);

        done += sent > 0 ? (unsigned)sent : 1; /* full or refused: lost */
    }
    udp->out_count = 0;
}

void core_socket_push(struct core_socket *udp, const struct wire_address *to, const uint8_t *bytes,
                      size_t length)
{
    unsigned i = udp->out_count;

    if (udp->transport.send != NULL) {
        core_transport_send(&udp->transport, to, bytes, length);
        return;
    }
    udp->out_count++;
    memcpy(udp->out_bytes[i], bytes, length);
    udp->out_parts[i].iov_len = length;
    udp->out_to[i].sin_port = htons(to->port);
    memcpy(&udp->out_to[i].sin_addr, to->ip + 12, 4);
    if (udp->out_count == CORE_SOCKET_BURST)
        core_socket_flush(udp);
}

static int receive(struct core_socket *udp, struct core *core)
{
    uint64_t now_ns;

    if (udp->transport.receive != NULL)
        return (int)core_transport_receive(&udp->transport, core, CORE_SOCKET_BURST,
                                           core_socket_now_ns, &now_ns);
    int count = recvmmsg(udp->descriptor, udp->in, CORE_SOCKET_BURST, MSG_DONTWAIT, NULL);
    now_ns = core_socket_now_ns();
    for (int i = 0; i < count; i++) {
        struct wire_address from = {.ip = {[10] = 0xff, [11] = 0xff},
                                    .port = ntohs(udp->in_from[i].sin_port)};

        memcpy(from.ip + 12, &udp->in_from[i].sin_addr, 4);
        core_receive(core, now_ns, &from, udp->in_bytes[i], udp->in[i].msg_len);
        udp->in[i].msg_hdr.msg_namelen = sizeof udp->in_from[i];
    }
    return count;
}

void core_socket_turn(struct core_socket *udp, struct core *core)
{
    while (receive(udp, core) == CORE_SOCKET_BURST)
        ;
    core_tick(core, core_socket_now_ns());
    core_flush(core);
    core_socket_flush(udp);
}
