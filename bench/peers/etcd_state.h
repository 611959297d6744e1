/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the etcd driver share: etcd_lease.c (clients: one lease each, kept alive) and
 * etcd.c (locks).
 */
#ifndef BELAY_BENCH_PEERS_ETCD_STATE_H
#define BELAY_BENCH_PEERS_ETCD_STATE_H

#include "bench/peers/common.h"
#include "bench/peers/etcd_rpc.h"

#define ETCD_NONE   UINT32_MAX
#define ETCD_PREFIX "belay-bench/%.*s/"

enum {
    ETCD_CALL_MS = 5000,        /* a call without an answer is given up */
    ETCD_STREAM_RETRY_MS = 100, /* a stream that broke is made again */
    ETCD_CLIENTS_PER_CHANNEL = 64,
    ETCD_CHANNELS_MAX = 4,
    ETCD_KEY_BYTES_MAX = 12 + PEER_NAME_BYTES_MAX + 1 + 16 + 1,
};

struct etcd_client {
    uint32_t channel;
    int64_t lease; /* 0 = none: the next acquire gets one */
    bool granting;
    uint64_t granting_since_ns;
    uint64_t deadline_ns; /* the lease is over then, as far as this side knows */
    uint64_t renew_ns;    /* when it is kept alive next */
    uint64_t ttl_ns;      /* as etcd granted it */
    uint32_t locks_first; /* a list through etcd_lock.next: all that were begun and not ended */
};

/* A keepalive that was sent; a stream's answers come in the order of its requests. */
struct etcd_renewal {
    uint32_t client;
    int64_t lease;
    uint64_t sent_ns;
    uint64_t command; /* handle among the commands, 0: nobody waits for it */
};

struct etcd_keepalive {
    struct etcd_stream *stream;
    struct etcd_renewal *sent; /* ring */
    uint32_t capacity;         /* a power of two */
    uint32_t begin, end;
};

enum etcd_lock_state {
    LOCK_LEASE,       /* waits for its client's lease */
    LOCK_TXN,         /* Mutex: the transaction that enqueues the key */
    LOCK_PREDECESSOR, /* who is before us? */
    LOCK_READ_AGAIN,  /* that question failed and will be asked again */
    LOCK_WATCH,       /* a watch on the predecessor's key */
    LOCK_CHECK,       /* nobody is before us; is our key still there? */
    LOCK_SERVICE,     /* the lock service was asked */
    LOCK_HELD,
    LOCK_DELETE,       /* our key is being deleted */
    LOCK_DELETE_AGAIN, /* that failed and will be tried again */
};

struct etcd_lock {
    enum etcd_lock_state state;
    uint32_t client;
    uint32_t next, before; /* in the client's list */
    int64_t lease;         /* the key's */
    int64_t revision;      /* of the key's creation: its place in the queue, and the token */
    uint64_t acquire_tag, release_tag;
    uint64_t wait_until_ns;
    uint64_t give_up_ns; /* deleting is tried until then */
    uint64_t watch_id;
    enum target_op op;         /* what ends with the deletion ... */
    enum target_status result; /* ... and how */
    unsigned reads_failed;
    bool wait;
    bool timed_out;
    bool enqueue_again;  /* the deletion is of a key that an earlier lock left */
    bool deleted_before; /* an earlier deletion's outcome is unknown */
    uint16_t prefix_bytes, key_bytes;
    uint8_t key[ETCD_KEY_BYTES_MAX]; /* prefix: up to and with the last '/' */
};

struct etcd_command { /* renew and query */
    enum target_op op;
    uint64_t tag;
};

struct target {
    struct peer_base base;
    struct etcd_rpc *rpc;
    bool lock_service;
    uint32_t channels;
    int64_t ttl_s;
    struct etcd_client *clients;
    struct peer_timers client_timers;
    struct etcd_keepalive *keepalives; /* by channel */
    struct etcd_stream **watches;      /* by channel */
    uint64_t streams_retry_ns;         /* PEER_NEVER_NS: all are up */
    struct etcd_lock *locks;
    struct peer_pool lock_pool;
    struct peer_timers lock_timers;
    uint32_t watches_made;
    struct etcd_command *commands;
    struct peer_pool command_pool;
    uint32_t grants_under_way, revokes_under_way;
    char *error; /* while opening: the first thing that went wrong */
    size_t error_bytes;
};

static inline uint64_t etcd_call_deadline_ns(void)
{
    return peer_now_ns() + ETCD_CALL_MS * PEER_MS_NS;
}

/* etcd_lease.c */
void etcd_lease_grant(struct target *target, uint32_t client);
void etcd_lease_revoke(struct target *target, uint32_t client);
/* The lease is over: held locks are lost. Nothing if the client has another by now. */
void etcd_lease_gone(struct target *target, uint32_t client, int64_t lease);
bool etcd_lease_renew(struct target *target, uint32_t client, uint64_t command);
void etcd_lease_timer(struct target *target, uint32_t client, uint64_t now_ns);
void etcd_leases_open(struct target *target, uint32_t channel);
void etcd_command_end(struct target *target, uint32_t command, enum target_status status,
                      uint32_t holders);

/* etcd_requests.c: each sets the state that waits for its answer */
void etcd_ask_enqueue(struct target *target, uint32_t lock);
void etcd_ask_service(struct target *target, uint32_t lock);
void etcd_ask_predecessor(struct target *target, uint32_t lock);
void etcd_ask_own_key(struct target *target, uint32_t lock);
void etcd_ask_delete(struct target *target, uint32_t lock);
void etcd_ask_holder(struct target *target, uint32_t client, const char *name, bool stale,
                     etcd_answered *answered, uint64_t cookie);
void etcd_watch(struct target *target, uint32_t lock, const ProtobufCBinaryData *key,
                int64_t revision);
void etcd_watch_cancel(struct target *target, uint32_t lock);

/* etcd.c */
etcd_answered etcd_lock_answered;
void etcd_lock_leased(struct target *target, uint32_t lock, bool granted);
void etcd_lock_lost(struct target *target, uint32_t lock);

#endif
