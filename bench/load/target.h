/* SPDX-License-Identifier: Apache-2.0
 *
 * What belay-bench drives: a lock service, through the client that a competent user of it would
 * write. One target is one process's connection to one system; it stands for many clients.
 *
 * Everything is asynchronous: a command is begun, and ends with exactly one completion, given from
 * inside turn() (never from inside the call that began it). A target does not read clocks for
 * latency, keeps no statistics and never retries what the user would not retry: timing and counting
 * are the load generator's, the same for every system.
 *
 * One thread. Text and structs passed in are copied if they are needed after the call.
 */
#ifndef BELAY_BENCH_TARGET_H
#define BELAY_BENCH_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum target_status {
    TARGET_OK,
    TARGET_BUSY,        /* a try: somebody else holds it */
    TARGET_TIMED_OUT,   /* waited as long as it would */
    TARGET_LOST,        /* the lock was not held any more */
    TARGET_UNREACHABLE, /* no answer, or the connection broke: the outcome is unknown */
    TARGET_REFUSED,     /* over a limit, or not possible with this system */
    TARGET_STATUS_COUNT
};

enum target_op { TARGET_ACQUIRE, TARGET_RELEASE, TARGET_RENEW, TARGET_QUERY, TARGET_OP_COUNT };

/* A held lock, the target's. 0 = none. Stays valid until its release completes or it is forgotten.
 */
typedef uint64_t target_lock;

struct target_completion {
    uint64_t tag; /* as given to the command */
    enum target_op op;
    enum target_status status;
    target_lock lock; /* acquire with TARGET_OK */
    uint64_t token;   /* fencing token, rising per name: Belay's token, etcd's create revision,
                         ZooKeeper's czxid; 0 = the system has none (Redis) */
    uint32_t holders; /* query with TARGET_OK */
};

typedef void target_complete(void *context, const struct target_completion *completion);
/* The system said that a lock is gone (session expired, lease lost) before it was released. */
typedef void target_lost(void *context, target_lock lock, uint64_t lock_tag);

struct target_options {
    const char *endpoints; /* host:port,... in the system's own order; what followed "belay:" */
    const char *port;      /* "dpdk:..." as given to --port; NULL = the kernel's. Belay's only */
    uint32_t clients; /* numbered 0 .. clients - 1: sessions, leases, as the system calls them */
    uint32_t commands_max; /* begun and not completed, of all clients together */
    uint32_t locks_max;    /* held at once */
    uint32_t ttl_ms;       /* of locks; where the system has only sessions, of those */
    uint32_t pack;         /* requests that may share a datagram or a pipeline; 1 = none do */
    bool renew;            /* kept alive by the client, as its users do; else left to run out */
    target_complete *complete;
    target_lost *lost;
    void *context;
};

struct target_acquire {
    const char *name; /* NUL-terminated, at most 200 bytes */
    bool shared;      /* TARGET_REFUSED where the system has no such thing */
    bool wait;        /* false: a try */
    uint32_t wait_ms; /* UINT32_MAX = as long as it takes */
};

struct target; /* each system's own */

struct target_class {
    const char *name; /* "belay": the part of --target before the colon */
    const char *what; /* one line for --help: which operation each command is */

    /* NULL and a sentence in `error`, naming endpoint and reason. May block until connected and
     * every client is ready (session open, lease granted); at most 30 s. */
    struct target *(*open)(const struct target_options *options, char *error, size_t error_bytes);

    /* Begin a command. False: commands_max are under way already, or the system takes no more now;
     * nothing was begun and there is no completion. */
    bool (*acquire)(struct target *target, uint32_t client, const struct target_acquire *acquire,
                    uint64_t tag);
    bool (*release)(struct target *target, target_lock lock, uint64_t tag);
    bool (*renew)(struct target *target, target_lock lock, uint64_t tag);
    /* Who holds the name; `stale`: from whatever replica is nearest. */
    bool (*query)(struct target *target, uint32_t client, const char *name, bool stale,
                  uint64_t tag);

    /* Sends what was begun, takes in what has come, and gives the completions; waits for the first
     * of them at most until CLOCK_MONOTONIC `until_ns` (0: not at all). */
    void (*turn)(struct target *target, uint64_t until_ns);

    /* Ends sessions and connections; locks still held are given up. Frees the target. */
    void (*close)(struct target *target);
};

extern const struct target_class target_belay, target_etcd, target_etcd_lock, target_zookeeper,
    target_redis, target_redlock;

#endif
