/* SPDX-License-Identifier: Apache-2.0
 *
 * Shipping by messages: which bytes of the log go into the next datagram to a follower, and when
 * they go again. The core (raft.h) says how far a peer may be sent (SHIP) and hears what it
 * acknowledged; here are only loss and pace: go-back-N, a bounded window of bytes under way, a
 * retransmission time that doubles while nothing moves.
 *
 * Pure: no clock (times are given), no I/O, no allocation. One owner thread, one sender per
 * attached peer. The driver: SHIP effect      ship_sender_start() if the grant is new, then
 * ship_sender_extend() DETACH effect    ship_sender_stop() each iteration   while
 * (ship_sender_next(...)) log_read(), send ACK arrived      ship_sender_acked(), and the message to
 * the core on the follower  log_write(), RECEIVED to the core; if log_write() refuses and
 *                    ship_receiver_ask(): an ACK with RAFT_MSG_RETRANSMIT and position =
 *                    log->received, under the open grant
 */
#ifndef BELAY_CONSENSUS_SHIP_H
#define BELAY_CONSENSUS_SHIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ship_options {
    uint64_t ring_bytes;        /* of the log: no range crosses its end; a power of two */
    uint32_t window_bytes;      /* sent and not acknowledged, at most */
    uint64_t retransmit_ns;     /* first wait for an acknowledgement; the disk's time included */
    uint64_t retransmit_ns_max; /* what doubling leads to */
};

struct ship_sender {
    struct ship_options options;
    uint64_t grant;      /* 0 = stopped */
    uint64_t acked;      /* everything before is there; acked <= next <= end */
    uint64_t next;       /* first byte of the next datagram */
    uint64_t end;        /* may be sent up to here */
    uint64_t sent;       /* highest `next` ever: bytes below it are retransmissions */
    uint64_t last_index; /* whose end `end` is */
    uint64_t last_term;
    uint64_t wait_ns;         /* current retransmission time */
    uint64_t deadline_ns;     /* UINT64_MAX = nothing is under way */
    uint64_t asked_position;  /* last position the peer asked to have again ... */
    uint64_t asked_ns;        /* ... and when: duplicates of the request are not obeyed */
    uint64_t retransmissions; /* times the sender went back */
};

void ship_sender_init(struct ship_sender *sender, const struct ship_options *options);

/* A new grant: shipping starts at a position. */
void ship_sender_start(struct ship_sender *sender, uint64_t grant, uint64_t from_position);
void ship_sender_stop(struct ship_sender *sender);

/* Bytes up to to_position may be sent. */
void ship_sender_extend(struct ship_sender *sender, uint64_t to_position, uint64_t last_index,
                        uint64_t last_term);

/* The next range to send, as sent now; false = nothing at present. */
bool ship_sender_next(struct ship_sender *sender, uint64_t now_ns, size_t datagram_payload_max,
                      uint64_t *position, size_t *length);

/* The peer holds everything before position. retransmit: it saw a gap there. */
void ship_sender_acked(struct ship_sender *sender, uint64_t position, bool retransmit,
                       uint64_t now_ns);

/* When ship_sender_next() may have something to repeat; UINT64_MAX = never. */
static inline uint64_t ship_sender_deadline(const struct ship_sender *sender)
{
    return sender->deadline_ns;
}

/* A follower's side: asking again is limited to once per gap and interval. */
struct ship_receiver {
    uint64_t asked_position;
    uint64_t asked_ns; /* 0 = never */
};

/* Bytes beyond `received` came: ask for what is missing now? */
bool ship_receiver_ask(struct ship_receiver *receiver, uint64_t received, uint64_t now_ns,
                       uint64_t interval_ns);

#endif
