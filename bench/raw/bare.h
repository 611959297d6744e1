/* SPDX-License-Identifier: Apache-2.0
 *
 * The bare chain: the smallest program that does the hops and writes of one lock request, without a
 * lock. A client's datagram goes to a leader; the leader writes it (or not), and sends it to two
 * followers, who write it (or not) and acknowledge; when two of the three have it, the leader
 * answers. Nobody looks anything up, judges, checks or remembers.
 *
 * Datagrams have the layout and the sizes of Belay's (dataplane/wire/wire.h), and go through the
 * same kernel UDP port; writes go through the same io_uring file, one in flight while the next
 * fills. So what Belay costs above this is Belay's doing.
 *
 * Each node is a process, and the client is a fourth. They are not pinned and sleep when there is
 * nothing to do, as belayd's workers are and do by default.
 */
#ifndef BELAY_BENCH_RAW_BARE_H
#define BELAY_BENCH_RAW_BARE_H

#include <stdbool.h>
#include <stdint.h>

#include "dataplane/wire/wire.h"
#include "hw/port.h"

enum {
    BARE_CLIENTS = 2,
    BARE_FOLLOWERS = 2,
    BARE_NAME_BYTES = 24, /* namespace and name together: what fits into a resource's record */
    BARE_ACQUIRE_BYTES = sizeof(struct wire_acquire) + BARE_NAME_BYTES,
    BARE_SEGMENT_BYTES = 16 << 20,
    BARE_IN_FLIGHT_MAX = 4096,
};

enum bare_work {
    BARE_REQUESTS, /* each request is answered */
    /* One token, two clients: a client that gets it releases at once, and queues again in the same
     * datagram; the release, once committed, is answered and grants it to the other client. */
    BARE_HAND_OVER,
};

struct bare_setup {
    enum bare_work work;
    bool disk;
    const char *directories[1 + BARE_FOLLOWERS]; /* of written files, leader first */
    /* Opened before the processes part; each uses only its own. */
    struct port *clients[BARE_CLIENTS];
    struct port *leader;
    struct port *followers[BARE_FOLLOWERS];
};

/* Never return: killed when the measurement is over. */
__attribute__((noreturn)) void bare_leader(const struct bare_setup *setup);
__attribute__((noreturn)) void bare_follower(const struct bare_setup *setup, uint32_t number);

#endif
