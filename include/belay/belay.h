/* SPDX-License-Identifier: Apache-2.0
 *
 * libbelay: locks, leases and fencing tokens from a Belay cluster.
 *
 * A client is one connection to the cluster. It owns one thread for its datagrams, unless it is
 * polled (belay_client_options.polled: then the caller's thread does everything); it opens
 * sessions as it needs them, keeps them alive, renews held locks at a third of their TTL, retries
 * under the same request id with backoff and jitter, and follows leaders. Every function may be
 * called from any thread unless it says otherwise. Blocking calls are asynchronous calls plus a
 * wait.
 *
 * A lock protects a resource only as far as the resource checks the token: see belay_fence_check()
 * and docs/guarantees.md.
 *
 * Times are milliseconds (uint64_t) where a person sets them and nanoseconds of CLOCK_BOOTTIME
 * where the library reports a deadline. No wall clock is involved anywhere.
 */
#ifndef BELAY_BELAY_H
#define BELAY_BELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define BELAY_API __attribute__((visibility("default")))
#else
#define BELAY_API
#endif

/* ---- results --------------------------------------------------------------------------------- */

/* Each value asks something different of the caller; none is ever folded into another. */
typedef enum belay_status {
    BELAY_OK = 0,
    BELAY_BUSY = 1,        /* `try`, and somebody holds it */
    BELAY_TIMED_OUT = 2,   /* the wait limit passed; nothing is held */
    BELAY_LOST = 3,        /* the lease is over */
    BELAY_UNREACHABLE = 4, /* no node answered in time; the outcome may be unknown */
    BELAY_CANCELLED = 5,
    BELAY_DEADLOCK = 6,   /* waiting could never end (second upgrader, S then X) */
    BELAY_OVER_LIMIT = 7, /* belay_error_text() names the limit */
    BELAY_DENIED = 8,
    BELAY_BAD_REQUEST = 9,    /* an argument is wrong; belay_error_text() names it */
    BELAY_SESSION_LOST = 10,  /* the session ended; everything that lived with it is gone */
    BELAY_DELAYED = 11,       /* `try`, and the resource is closed for its lock_delay */
    BELAY_ALREADY_HELD = 12,  /* this client holds it and did not say `reentrant` */
    BELAY_STALE_REQUEST = 13, /* the server no longer knows the outcome */
    BELAY_WRONG_CLUSTER = 14,
    BELAY_WRONG_VERSION = 15,
    BELAY_NO_MEMORY = 16,
    BELAY_CLOSED = 17,  /* the client is being closed */
    BELAY_SYSTEM = 18,  /* a system call failed; belay_error_text() says which */
    BELAY_REFUSED = 19, /* belay_fence_check(): a token lower than the highest seen */
    BELAY_STATUS_COUNT
} belay_status;

/* A lower-case word, e.g. "timed_out". Never NULL. */
BELAY_API const char *belay_status_name(belay_status status);

/* The library's version, "major.minor.patch". */
BELAY_API const char *belay_version(void);

/* A sentence about this thread's last failed call, with the limit or the argument it is about.
 * Valid until this thread's next call. Never NULL. */
BELAY_API const char *belay_error_text(void);

/* ---- client ---------------------------------------------------------------------------------- */

typedef struct belay_client belay_client;
typedef struct belay_lock belay_lock;

typedef enum belay_lost_reason {
    BELAY_LOST_EXPIRED = 1,  /* the server ended the lease, or said so too late to renew */
    BELAY_LOST_DEADLINE = 2, /* the client's own conservative deadline passed without an answer */
    BELAY_LOST_FORCED = 3,   /* an operator forced it */
    BELAY_LOST_SESSION = 4
} belay_lost_reason;

/* Called once when a held lock is no longer certain to be held, no later than its conservative
 * deadline, on the client's thread: do not block in it and do not call blocking functions. */
typedef void (*belay_lost_fn)(void *context, belay_lock *lock, belay_lost_reason reason);

/* An operator asks the holder to let go (force-release); the lock is still held, until a deadline
 * that does not move any more. May be called more than once for a lock. */
typedef void (*belay_revoke_fn)(void *context, belay_lock *lock);

/* An IP address and a UDP port. */
typedef struct belay_address {
    uint8_t ip[16]; /* IPv4 is stored IPv4-mapped, ::ffff:a.b.c.d (RFC 4291 2.5.5.2) */
    uint16_t port;  /* host order */
    uint8_t zero[6];
} belay_address;

typedef struct belay_packet {
    const uint8_t *bytes; /* 8-byte aligned; the transport's, until its next receive() */
    uint32_t length;      /* bytes; of one that was cut off, what it should have been */
    belay_address from;
} belay_packet;

/* How a polled client's datagrams travel, if not by a kernel socket: belay/dpdk.h has one, and any
 * other can be written. Datagrams may be lost, doubled and reordered; the client repeats. All three
 * are called by the thread that uses the client, and by no other; none may block or call the
 * library. */
typedef struct belay_transport {
    size_t struct_bytes; /* sizeof(belay_transport) */
    void *context;       /* passed on */
    /* Up to `max` (at most 64) datagrams that came; returns how many. */
    uint32_t (*receive)(void *context, belay_packet *packets, uint32_t max);
    /* A datagram of at most 1,400 bytes. `bytes` are the client's: copied before it returns. It may
     * stay queued until flush(). */
    void (*send)(void *context, const belay_address *to, const uint8_t *bytes, size_t length);
    /* What is queued leaves now. */
    void (*flush)(void *context);
} belay_transport;

/* An asynchronous request is finished; called in belay_client_poll() alone. *completion is valid
 * during the call; its request is freed already, and the pointer only says which it was. May start
 * further requests, which leave with this poll; must call neither blocking functions nor
 * belay_client_poll(). */
struct belay_completion;
typedef void (*belay_complete_fn)(void *context, const struct belay_completion *completion);

typedef struct belay_client_options {
    size_t struct_bytes;   /* sizeof(belay_client_options), for later growth */
    const char *endpoints; /* "host:port,host:port"; NULL = $BELAY_ENDPOINTS, else 127.0.0.1:7400 */
    uint64_t session_ttl_ms; /* 0 = 10,000 */
    uint64_t
        request_timeout_ms; /* 0 = 5,000: then BELAY_UNREACHABLE (a wait limit is added to it) */
    uint32_t requests_max;  /* 0 = 1,024 outstanding at once */
    uint32_t locks_max;     /* 0 = 65,536 held or waited for at once */
    uint64_t cluster_id;    /* 0 = whichever answers; else others are BELAY_WRONG_CLUSTER */
    belay_lost_fn on_lost;
    belay_revoke_fn on_revoke;
    void *context;
    /* Polled clients only. NULL = a kernel socket. Copied; its context is the caller's and must
     * outlive the client. */
    const belay_transport *transport;
    /* Polled clients only. NULL = completions are taken by belay_client_take(). */
    belay_complete_fn on_complete;
    /* No thread is made and no lock taken: see belay_client_poll(). */
    bool polled;
    uint8_t zero[15];
} belay_client_options;

/* Fills in the defaults. */
BELAY_API void belay_client_options_init(belay_client_options *options);

/* Starts the client's thread unless it is polled; does not wait for the cluster. *client is NULL on
 * failure. BELAY_BAD_REQUEST: also a transport or on_complete without `polled`. */
BELAY_API belay_status belay_client_open(const belay_client_options *options,
                                         belay_client **client);

/* Closes the sessions (which releases what lives with them; locks with a TTL of their own too),
 * waits at most `timeout_ms` for that, frees everything. belay_lock handles end with it. */
BELAY_API void belay_client_close(belay_client *client, uint64_t timeout_ms);

/* Ends without telling the servers: locks with a TTL of their own stay until it ends. */
BELAY_API void belay_client_abandon(belay_client *client);

/* One turn of a polled client: receives a burst, keeps time (retries, renewals, losses), sends what
 * is due and what was asked for since, calls back. Never blocks. *datagrams (may be NULL) is how
 * many came: 0 = nothing to do just now. BELAY_BAD_REQUEST: the client is not polled.
 *
 * A polled client belongs to one thread: every function that takes it or one of its locks is called
 * by that thread (belay_lock_is_valid() and the other belay_lock_*() readers by any). Requests that
 * were started leave with the next poll, several to a datagram. Blocking functions poll until they
 * are done; on_lost and on_revoke are called there, too. Poll at least every millisecond: renewals,
 * retries and on_lost are as late as the poll. A lock that was not renewed in time is lost by the
 * clock, whether or not the client is polled. */
BELAY_API belay_status belay_client_poll(belay_client *client, uint32_t *datagrams);

/* ---- locks ----------------------------------------------------------------------------------- */

typedef enum belay_mode { BELAY_SHARED = 1, BELAY_EXCLUSIVE = 2 } belay_mode;

typedef struct belay_lease_id {
    uint64_t secret;
    uint64_t slot;
} belay_lease_id;

/* Text form, 24 hexadecimal digits and a zero byte. */
enum { BELAY_LEASE_TEXT_BYTES = 25 };
BELAY_API void belay_lease_format(belay_lease_id lease, char text[BELAY_LEASE_TEXT_BYTES]);
BELAY_API bool belay_lease_parse(const char *text, belay_lease_id *lease);

#define BELAY_WAIT_FOREVER UINT64_MAX

typedef struct belay_acquire_options {
    size_t struct_bytes;
    const char *name_space; /* NULL = "" */
    const char *name;       /* 1..255 bytes */
    size_t name_bytes;      /* 0 = strlen(name) */
    belay_mode mode;        /* default BELAY_EXCLUSIVE */
    uint64_t ttl_ms;        /* default 10,000; with session_bound unused */
    bool session_bound;     /* no TTL of its own: lives and ends with the session */
    bool try_only;          /* do not wait: BELAY_BUSY or BELAY_DELAYED */
    uint64_t wait_ms;       /* default BELAY_WAIT_FOREVER */
    bool barge;
    bool reentrant;
    uint8_t priority;
    bool no_renewal; /* do not renew automatically */
    uint64_t lock_delay_ms;
    uint64_t grace_ms;
    const void *value; /* shown to others: who holds it; at most 255 bytes */
    size_t value_bytes;
    uint8_t zero[32];
} belay_acquire_options;

BELAY_API void belay_acquire_options_init(belay_acquire_options *options, const char *name);

/* What a BUSY answer says about the holder(s). */
typedef struct belay_holder_info {
    uint32_t holders;
    uint64_t token;
    uint64_t remaining_ms;
    belay_mode mode;
    size_t value_bytes;
    uint8_t value[256];
} belay_holder_info;

/* BELAY_OK: *lock is held. BELAY_BUSY fills *holder if it is not NULL; BELAY_DELAYED puts the
 * remainder into holder->remaining_ms. Every other result: nothing is held, nothing stays queued (a
 * timed-out or unreachable acquire is cancelled in the background until the server confirms). */
BELAY_API belay_status belay_acquire(belay_client *client, const belay_acquire_options *options,
                                     belay_lock **lock, belay_holder_info *holder);

/* Releases and frees the handle, whatever the result (LOST: it was over before). */
BELAY_API belay_status belay_release(belay_lock *lock);

/* Frees the handle and stops renewing; the lock stays until its TTL ends. */
BELAY_API void belay_lock_forget(belay_lock *lock);

/* Shared to exclusive or back; waits at most wait_ms. Upgrading changes the token. */
BELAY_API belay_status belay_convert(belay_lock *lock, belay_mode mode, uint64_t wait_ms);

/* Renews now. */
BELAY_API belay_status belay_renew(belay_lock *lock);

BELAY_API uint64_t belay_lock_token(const belay_lock *lock);
BELAY_API belay_lease_id belay_lock_lease(const belay_lock *lock);
BELAY_API const char *belay_lock_name(const belay_lock *lock);
BELAY_API belay_mode belay_lock_mode(const belay_lock *lock);

/* CLOCK_BOOTTIME at which this lock must be considered lost: first transmission of the request that
 * granted or renewed it + TTL - max(1 % of TTL, 1 ms). 0 = lost already. */
BELAY_API uint64_t belay_lock_valid_until_ns(const belay_lock *lock);

/* True if it is certainly held now: checked against the clock at the moment of the call. */
BELAY_API bool belay_lock_is_valid(const belay_lock *lock);

/* Locks by lease id, from any client (what `belay release NAME LEASE` does). ttl_ms 0 = its own. */
BELAY_API belay_status belay_release_lease(belay_client *client, const char *name_space,
                                           const char *name, belay_lease_id lease);
BELAY_API belay_status belay_renew_lease(belay_client *client, const char *name_space,
                                         const char *name, belay_lease_id lease, uint64_t ttl_ms);
BELAY_API belay_status belay_convert_lease(belay_client *client, const char *name_space,
                                           const char *name, belay_lease_id lease, belay_mode mode,
                                           uint64_t wait_ms, uint64_t *token);

/* Operator: `now` does not wait for the holder's deadline. OK also when nobody holds it. */
BELAY_API belay_status belay_force_release(belay_client *client, const char *name_space,
                                           const char *name, bool now);

/* ---- asynchronous calls ---------------------------------------------------------------------- */

typedef struct belay_request belay_request;

typedef struct belay_completion {
    belay_request *request;
    void *user; /* as given */
    belay_status status;
    belay_lock *lock; /* acquire with BELAY_OK */
    belay_holder_info holder;
} belay_completion;

/* The request is freed when its completion is taken. NULL + status if it could not start. */
BELAY_API belay_status belay_acquire_start(belay_client *client,
                                           const belay_acquire_options *options, void *user,
                                           belay_request **request);
BELAY_API belay_status belay_release_start(belay_client *client, belay_lock *lock, void *user,
                                           belay_request **request);

/* Cancels an acquire at whatever point it is; its completion still comes (CANCELLED, or OK never).
 */
BELAY_API void belay_request_cancel(belay_request *request);

/* A descriptor that is readable while completions wait (poll, epoll). Owned by the client; a polled
 * one has none: -1. */
BELAY_API int belay_client_fd(belay_client *client);

/* Takes up to `max` completions; does not block. Completions of blocking calls never show here.
 * belay_error_text() is then about the last of them that is not BELAY_OK. */
BELAY_API size_t belay_client_take(belay_client *client, belay_completion *completions, size_t max);

/* ---- reads ----------------------------------------------------------------------------------- */

typedef struct belay_party {
    uint64_t session;
    uint64_t token; /* 0 = waits */
    uint64_t remaining_ms;
    uint32_t position;
    belay_mode mode;
    uint8_t waiting; /* 0 holder, 1 waiter, 2 upgrader */
    uint8_t priority;
    uint8_t value_bytes;
    uint8_t value[255];
} belay_party;

typedef struct belay_resource_state {
    uint64_t index;
    uint64_t age_ns; /* of a stale answer */
    uint64_t delay_remaining_ms;
    uint32_t holders;
    uint32_t waiters;
    size_t parties_count;
    belay_party *parties; /* holders first, then the queue in order */
} belay_resource_state;

/* Linearizable unless `stale`. Free with belay_resource_state_free(). */
BELAY_API belay_status belay_query(belay_client *client, const char *name_space, const char *name,
                                   bool stale, belay_resource_state *state);
BELAY_API void belay_resource_state_free(belay_resource_state *state);

typedef struct belay_listed {
    const char *name_space;
    const char *name;
    uint64_t token;
    uint32_t holders;
    uint32_t waiters;
    belay_mode mode; /* 0 = free */
} belay_listed;

/* Calls `each` for every resource whose name starts with `prefix`, shard by shard, in no order.
 * Return false from it to stop. */
BELAY_API belay_status belay_list(belay_client *client, const char *name_space, const char *prefix,
                                  bool stale,
                                  bool (*each)(void *context, const belay_listed *listed),
                                  void *context);

typedef struct belay_node_info {
    char endpoint[64];
    bool reachable;
    uint16_t node;
    uint16_t workers;
    uint8_t state;      /* 0 starting, 1 running, 2 stepping down, 3 stopping */
    uint8_t durability; /* 0 disk, 1 memory */
    uint64_t cluster_id;
    uint64_t uptime_ns;
    uint32_t shards_count;
} belay_node_info;

typedef struct belay_shard_info {
    uint16_t shard;
    uint16_t node; /* who says so */
    uint16_t leader_node;
    uint8_t role; /* 0 follower, 1 candidate, 2 leader, 3 learner, 4 rebuilding */
    uint8_t voters, learners;
    uint64_t term, last_index, commit_index, applied_index, snapshot_index, digest;
    uint32_t leases, resources, sessions, waiters;
} belay_shard_info;

typedef struct belay_cluster_info {
    size_t nodes_count;
    belay_node_info *nodes;
    size_t shards_count; /* nodes x shards entries */
    belay_shard_info *shards;
} belay_cluster_info;

/* Asks every node for itself; those that do not answer are listed as not reachable. */
BELAY_API belay_status belay_cluster_status(belay_client *client, uint64_t timeout_ms,
                                            belay_cluster_info *info);
BELAY_API void belay_cluster_info_free(belay_cluster_info *info);

/* Something that a worker has counted since its node was started. */
typedef struct belay_counter {
    const char *name;   /* "requests"; a constant */
    const char *detail; /* which of several: "rx" of "stage_cycles"; "" = there are none */
    uint64_t value;     /* never 0; names end in _ns or _cycles where it is no plain count */
} belay_counter;

typedef struct belay_worker_info {
    uint16_t node, worker;
    uint64_t uptime_ns;
    uint64_t cycles_per_second; /* of the processor's counter, as measured */
    size_t counters_count;
    belay_counter *counters;
} belay_worker_info;

typedef struct belay_workers_info {
    size_t nodes_count;
    belay_node_info *nodes; /* of these endpoint, reachable, node, workers and uptime_ns are set */
    size_t workers_count;
    belay_worker_info *workers;
} belay_workers_info;

/* Asks every node what each of its workers has counted (docs/operations.md says what the counters
 * mean). BELAY_OK also if some nodes do not answer in timeout_ms: they are listed as not reachable.
 * BELAY_CLOSED, BELAY_NO_MEMORY: nothing is left to be freed. Any thread; blocks. */
BELAY_API belay_status belay_workers_status(belay_client *client, uint64_t timeout_ms,
                                            belay_workers_info *info);
BELAY_API void belay_workers_info_free(belay_workers_info *info);

/* ---- fencing: the resource's side ------------------------------------------------------------ */

/* Remembers the highest token seen per key and refuses lower ones. What a storage server does
 * before it carries out a write. The file-backed form is durable: a token is on disk before the
 * call returns BELAY_OK. */
typedef struct belay_fence belay_fence;

/* path NULL = in memory only. `keys_max` distinct keys. A damaged file is BELAY_SYSTEM with a text.
 */
BELAY_API belay_status belay_fence_open(const char *path, size_t keys_max, belay_fence **fence);
BELAY_API void belay_fence_close(belay_fence *fence);

/* BELAY_OK: token >= the highest seen for `key` (now remembered). BELAY_REFUSED: lower. Any thread.
 */
BELAY_API belay_status belay_fence_check(belay_fence *fence, const char *key, uint64_t token);

/* The highest token seen for key; 0 = none. */
BELAY_API uint64_t belay_fence_highest(belay_fence *fence, const char *key);

/* The bare rule, for those who keep the number themselves (in their own transaction): true =
 * accept, *highest is raised. */
static inline bool belay_fence_accept(uint64_t *highest, uint64_t token)
{
    if (token < *highest)
        return false;
    *highest = token;
    return true;
}

/* A durable little example store whose writes carry a token: key -> value in a directory, each
 * write refused if its token is lower than the highest seen for that key. */
typedef struct belay_store belay_store;
BELAY_API belay_status belay_store_open(const char *directory, belay_store **store);
BELAY_API void belay_store_close(belay_store *store);
BELAY_API belay_status belay_store_put(belay_store *store, const char *key, const void *value,
                                       size_t value_bytes, uint64_t token);
/* *value_bytes: capacity in, length out. */
BELAY_API belay_status belay_store_get(belay_store *store, const char *key, void *value,
                                       size_t *value_bytes, uint64_t *token);

#ifdef __cplusplus
}
#endif
#endif
