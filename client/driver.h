/* SPDX-License-Identifier: Apache-2.0
 *
 * libbelay around the core: one UDP socket, one thread, one mutex.
 *
 * The mutex guards the core and everything here that is not said to be otherwise. A thread that
 * calls the API runs the core itself and sends its own datagrams: no hand-over before the request
 * is on its way. The client's thread receives, keeps time, and calls back. Timers are armed in the
 * kernel (timerfd on CLOCK_BOOTTIME), so arming an earlier one wakes nobody.
 *
 * A polled client has neither thread nor mutex nor timer: its caller's thread is all of them, by
 * turns (driver_poll), and its datagrams may travel by a transport of the caller's.
 */
#ifndef BELAY_CLIENT_DRIVER_H
#define BELAY_CLIENT_DRIVER_H

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>

#include "belay/belay.h"
#include "client/core.h"

enum { DRIVER_TX_MAX = 64, DRIVER_RX_MAX = 32, DRIVER_ENDPOINTS_TEXT_MAX = 1024 };

struct belay_lock {
    belay_client *client;
    core_ref ref;
    _Atomic uint64_t deadline_ns; /* any thread; 0 = lost */
    _Atomic uint64_t token;       /* any thread */
    _Atomic uint32_t mode;        /* any thread */
    belay_lease_id lease;
    uint32_t uses;      /* handles that the caller holds: reentrant acquires share one */
    uint32_t callbacks; /* under way: the memory stays until they are over */
    struct belay_lock *next, *previous; /* client->locks */
    char name[WIRE_NAME_BYTES_MAX + 1];
};

/* One command under way. Blocking calls have it on their stack; of asynchronous ones it is the
 * belay_request that the caller holds. */
struct call {
    belay_client *client;
    core_ref ref;
    pthread_cond_t *done_cond; /* NULL: asynchronous */
    bool done;
    belay_status status;
    struct belay_lock *lock; /* acquire: made beforehand, with room for the name */
    uint16_t what;
    uint64_t limit;
    belay_holder_info holder;
    void *user;
    struct call *next; /* client->done */
    uint32_t item_bytes;
    alignas(8) uint8_t item[WIRE_DATAGRAM_BYTES_MAX]; /* the reply; reads, converts */
};

struct belay_request {
    struct call call;
};

enum callback_kind { CALLBACK_LOST, CALLBACK_REVOKE };

struct callback {
    struct callback *next;
    struct belay_lock *lock;
    enum callback_kind kind;
    belay_lost_reason reason;
};

struct driver_tx {
    struct wire_address to;
    uint32_t length;
    alignas(8) uint8_t bytes[WIRE_DATAGRAM_BYTES_MAX];
};

struct received;

struct belay_client {
    belay_client_options options;
    belay_transport transport; /* receive == NULL: the socket */
    struct received *received; /* of a polled client on a socket */
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* closing: sessions closed, calls left */
    pthread_t thread;
    bool stopping;
    bool mute;       /* nothing is sent any more */
    uint32_t inside; /* blocking calls under way: close waits for them to leave */

    struct core *core;
    void *memory;
    size_t memory_bytes;

    int socket, epoll, timer, wake, ready;
    bool ipv6;
    uint64_t armed_ns; /* what the timerfd is set to; UINT64_MAX = not */
    struct driver_tx *tx;
    uint32_t tx_count;
    uint8_t *rx; /* DRIVER_RX_MAX buffers; the client's thread only */

    struct belay_lock *locks;
    struct call *done_head, *done_tail; /* asynchronous completions not taken yet */
    struct callback *callbacks_head, *callbacks_tail;
};

uint64_t driver_now_ns(void);

/* Socket, descriptors, memory, thread. */
belay_status driver_start(belay_client *client, const struct core_options *options);
/* Stops the thread and frees everything but `client` itself. */
void driver_stop(belay_client *client);

/* One turn; how many datagrams came. */
uint32_t driver_poll(belay_client *client);
/* What a polled client has to send leaves now. */
void driver_send(belay_client *client);

/* With the lock held: until `condition` may be true, or `until` (CLOCK_MONOTONIC; NULL = for ever).
 * 0 or ETIMEDOUT. A polled client makes a turn instead. */
int driver_wait(belay_client *client, pthread_cond_t *condition, const struct timespec *until);

/* The mutex, where there is one: for looking and waiting, without sending. */
void driver_hold(belay_client *client);
void driver_let_go(belay_client *client);

/* Between lock and unlock the core may be used; unlock sends and arms the timer. What a polled
 * client has to send leaves with its next turn. */
void driver_lock(belay_client *client);
void driver_unlock(belay_client *client);

/* A blocking call: begin, start the command with user = (uint64_t)call under the lock, wait. */
void call_begin(belay_client *client, struct call *call, pthread_cond_t *cond);
belay_status call_wait(struct call *call, belay_status started);

/* Handles; with the mutex held. */
struct belay_lock *handle_new(belay_client *client);
/* The caller has one use less of it. */
void handle_unref(struct belay_lock *lock);

/* "host:port,host:port" into addresses; 0, or a text says what is wrong. */
belay_status endpoints_parse(const char *text, struct core_options *options);

/* This thread's error text. Returns `status`. */
belay_status fail(belay_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
belay_status fail_system(const char *call_name);
/* The usual sentence for a status, with the limit if the server named one. */
belay_status fail_call(const struct call *call);

#endif
