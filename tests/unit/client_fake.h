/* SPDX-License-Identifier: Apache-2.0
 *
 * A cluster for tests of the client's core: three nodes that share one perfect replicated state (a
 * dumb lock service, written for this purpose only), a network in virtual time that drops, doubles
 * and delays what it is told to, and a log of everything the core said.
 */
#ifndef BELAY_TESTS_CLIENT_FAKE_H
#define BELAY_TESTS_CLIENT_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/core.h"

#define FAKE_MS UINT64_C(1000000)

enum {
    FAKE_NODES = 3,
    FAKE_NONE = 255,
    FAKE_SESSIONS = 256,
    FAKE_ANSWERS = 16384,
    FAKE_LEASES = 4096,
    FAKE_WAITERS = 1024,
    FAKE_PACKETS = 4096,
    FAKE_LOG = 16384,
};

struct fake_packet {
    uint64_t at_ns;
    uint64_t order;
    bool to_client;
    uint8_t node;
    size_t length;
    _Alignas(8) uint8_t bytes[1408];
};

struct fake_session {
    uint64_t id, nonce;
    uint64_t keepalive_number, keepalive_ns, deadline_ns;
    uint64_t acked;
    uint32_t ttl_ms;
    uint16_t shard;
    bool alive;
};

struct fake_answer {
    uint64_t session, number;
    bool used;
    _Alignas(8) uint8_t item[128]; /* enough for what this service says */
};

struct fake_lease {
    uint64_t secret, session, number, token, deadline_ns;
    uint32_t ttl_ms; /* 0 = with the session */
    uint32_t key_tag;
    uint8_t mode;
    bool alive;
    bool pushed; /* granted after a wait */
    bool forced; /* its holder was asked to let go */
    char name[64];
};

struct fake_waiter {
    uint64_t session, number, until_ns, order;
    uint32_t ttl_ms, key_tag;
    bool waits;
    char name[64];
};

struct fake_completion {
    uint64_t at_ns, user;
    core_ref lock, request;
    belay_status status;
    uint8_t op;
    bool shared_lock;
    uint16_t what;
};

struct fake_loss {
    uint64_t at_ns, user;
    core_ref lock;
    belay_lost_reason reason;
};

/* An item that the core sent, as it was. */
struct fake_sent {
    uint64_t at_ns;
    uint8_t node;
    uint64_t cookie;
    _Alignas(8) uint8_t item[1344];
};

struct fake;
/* True: the request was dealt with (or lost); the service does not see it. */
typedef bool (*fake_hook)(struct fake *fake, uint8_t node, const struct wire_item *item);

struct fake {
    uint64_t now_ns;
    struct core_options options;
    struct core *core;
    void *memory;
    uint64_t random;

    /* what the test sets */
    bool up[FAKE_NODES];    /* answers at all */
    uint8_t leader;         /* of every shard; FAKE_NONE = nobody */
    uint8_t leader_claimed; /* what others say; FAKE_NONE = that they do not know */
    uint64_t term;
    uint16_t shards;
    uint16_t port_base;    /* node i is 127.0.0.(i+1), port base + i */
    uint8_t host[4];       /* not zero: every node has this address instead */
    uint16_t worker_ports; /* shards' worker is on a port so far from the node's; 0 = on the same */
    uint64_t cluster_id;
    uint32_t window;
    uint64_t delay_ns;        /* one way */
    uint64_t delay_spread_ns; /* and up to so much more */
    uint32_t loss_percent, double_percent;
    bool mute_pushes;
    bool no_poll_below_window; /* strict: numbers below acked_below are STALE even if they wait */
    fake_hook hook;
    void *hook_context;

    /* the service */
    uint64_t cookies[FAKE_NODES];
    struct fake_session sessions[FAKE_SESSIONS];
    uint32_t sessions_count;
    struct fake_answer answers[FAKE_ANSWERS];
    struct fake_lease leases[FAKE_LEASES];
    uint32_t leases_count;
    struct fake_waiter waiters[FAKE_WAITERS];
    uint64_t order, token, secret;

    struct fake_packet *packets;
    uint32_t packets_count;
    uint64_t packets_order;

    /* the log */
    struct fake_completion completions[FAKE_LOG];
    uint32_t completions_count;
    struct fake_loss losses[FAKE_LOG];
    uint32_t losses_count;
    uint32_t revokes_count;
    uint64_t renewed_deadline_ns;
    struct fake_sent *sent; /* the last FAKE_LOG items, by sent_count % FAKE_LOG */
    uint32_t sent_count;
    uint32_t challenges, pushes_acked;
    bool check_safety; /* after every event: what the client believes is true */
};

/* A running cluster with node 0 leading and a core that knows all three endpoints. `adjust` may
 * change f->options before the core is made. */
struct fake *fake_new(void (*adjust)(struct fake *fake));
void fake_free(struct fake *fake);

/* The service alone, without a core, for tests on real sockets: what a datagram to `node` makes of
 * it is left in f->packets (to_client). The test keeps f->now_ns. */
void fake_serve(struct fake *fake, uint8_t node, const uint8_t *bytes, size_t length);

/* Lets virtual time pass up to `until_ns`, or for `ms`. */
void fake_run_until(struct fake *fake, uint64_t until_ns);
void fake_run(struct fake *fake, uint64_t ms);
/* Until a completion of `user` has come, at most `ms`; NULL if it did not. */
const struct fake_completion *fake_wait(struct fake *fake, uint64_t user, uint64_t ms);
const struct fake_completion *fake_completion(const struct fake *fake, uint64_t user);

struct core_acquire fake_lock(const char *name, uint32_t ttl_ms, uint64_t wait_ms);
/* Acquires and waits for it; 0 if it was not granted. */
core_ref fake_acquire(struct fake *fake, const char *name, uint32_t ttl_ms, uint64_t user);

/* How often the core has sent `op`, all copies; and the last copy (NULL = none). */
uint32_t fake_sent_ops(const struct fake *fake, uint8_t op);
const struct fake_sent *fake_last(const struct fake *fake, uint8_t op);

/* Sends one item to the client as node `node`, cluster and kind right. */
void fake_reply(struct fake *fake, uint8_t node, const void *item);
void fake_send_raw(struct fake *fake, uint8_t node, const void *bytes, size_t length);

struct fake_lease *fake_lease(struct fake *fake, const char *name); /* alive; NULL = free */
uint32_t fake_waiters(const struct fake *fake);
uint32_t fake_leases(const struct fake *fake);
void fake_force(struct fake *fake, const char *name, bool final);
void fake_lose_sessions(struct fake *fake);
void fake_new_leader(struct fake *fake, uint8_t node);
uint64_t fake_random(struct fake *fake);

#endif
