/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's protocol core (client/core.h) on one kernel UDP socket, IPv4, or on a transport past
 * the kernel (belay/belay.h): datagrams go out and come in by bursts. For benchmarks that are many
 * clients in one process; one thread.
 */
#ifndef BELAY_BENCH_CORE_SOCKET_H
#define BELAY_BENCH_CORE_SOCKET_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "belay/belay.h"
#include "client/core.h"

enum { CORE_SOCKET_BURST = 64 };

struct core_socket {
    int descriptor; /* to poll for POLLIN; -1 = not open, or a transport: poll by turns */
    belay_transport transport; /* receive == NULL: the socket */
    unsigned out_count;
    struct mmsghdr out[CORE_SOCKET_BURST], in[CORE_SOCKET_BURST];
    struct iovec out_parts[CORE_SOCKET_BURST], in_parts[CORE_SOCKET_BURST];
    struct sockaddr_in out_to[CORE_SOCKET_BURST], in_from[CORE_SOCKET_BURST];
    _Alignas(8) uint8_t out_bytes[CORE_SOCKET_BURST][WIRE_DATAGRAM_BYTES_MAX];
    _Alignas(8) uint8_t in_bytes[CORE_SOCKET_BURST][WIRE_DATAGRAM_BYTES_MAX];
};

/* False: no socket (errno). The struct must not move while it is open. */
bool core_socket_open(struct core_socket *udp);
/* The same by a transport, whose context outlives it. */
void core_socket_open_transport(struct core_socket *udp, const belay_transport *transport);
void core_socket_close(struct core_socket *udp);

/* What core_sink.send has to do: copies the datagram; it goes out with its burst or by
 * core_socket_flush(). One that the kernel refuses is lost like any other: the core repeats it. */
void core_socket_push(struct core_socket *udp, const struct wire_address *to, const uint8_t *bytes,
                      size_t length);
void core_socket_flush(struct core_socket *udp);

/* Gives the core all that has come and its time, and sends what it has to say. */
void core_socket_turn(struct core_socket *udp, struct core *core);

/* The core counts deadlines in time that passes while the machine is suspended, too. */
uint64_t core_socket_now_ns(void);

#endif
