/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the ZooKeeper driver share: zookeeper_session.c (sessions, and the loop) and
 * zookeeper.c (locks).
 */
#ifndef BELAY_BENCH_PEERS_ZOOKEEPER_STATE_H
#define BELAY_BENCH_PEERS_ZOOKEEPER_STATE_H

#include <poll.h>
#include <zookeeper/zookeeper.h>

#include "bench/peers/common.h"

#define ZOOKEEPER_ROOT "/belay-bench"

enum {
    AGAIN_MS = 100,
    PARENT_BYTES = 272, /* the root, '/', a name as it is spelled in a path */
    NODE_BYTES = 40,    /* number, "-lock-", sequence */
    NUMBER_BYTES = 16,
    SEQUENCE_BYTES = 10,
};

enum lock_state {
    LOCK_CREATE,       /* our node is being created, or looked for */
    LOCK_CREATE_AGAIN, /* there was no answer; it is looked for, and else created again */
    LOCK_PARENT,       /* its parent is, first */
    LOCK_READ,         /* the children are being read */
    LOCK_READ_AGAIN,   /* that failed; it is tried again */
    LOCK_WATCH_SET,    /* the watch is being set */
    LOCK_WATCH,
    LOCK_HELD,
    LOCK_DELETE,
    LOCK_DELETE_AGAIN, /* there was no answer; it is tried again */
    LOCK_LEFT_FIND,    /* completed, but a node may be left: read the children, */
    LOCK_LEFT_DELETE,  /* delete it, */
    LOCK_LEFT_AGAIN,   /* or wait to try either again */
    LOCK_QUERY,        /* not a lock at all */
};

struct session {
    struct target *target;
    zhandle_t *handle;
    bool connected;  /* since it was opened */
    bool expired;    /* is replaced at the next turn */
    uint32_t active; /* locks in all states but LOCK_HELD, queries */
    uint32_t held;
    uint64_t quiet_since_ns; /* active became 0 */
    uint64_t due_ns;         /* when the library wants to be called */
};

struct lock {
    struct target *target;
    enum lock_state state;
    uint32_t session;
    uint64_t acquire_tag, release_tag;
    uint64_t wait_until_ns;
    int64_t czxid;             /* the zxid that created the node: the token */
    enum target_op op;         /* LOCK_DELETE: what ends with the deletion, */
    enum target_status result; /* and how */
    unsigned failures;         /* outages in a row */
    bool wait, timed_out;
    bool deleted_before; /* an earlier deletion's outcome is unknown */
    char parent[PARENT_BYTES];
    char node[NODE_BYTES]; /* without its sequence as long as that is not known */
};

struct target {
    struct peer_base base;
    char *endpoints;
    uint32_t sessions_count;
    struct session *sessions;
    struct pollfd *polled;
    struct lock *locks;
    struct peer_pool pool;
    struct peer_timers timers; /* of a lock: its wait limit, or when it tries again */
    bool root_answered;
    int root_result;
};

/* zookeeper_session.c */
struct target *zookeeper_open(const struct target_options *options, char *error,
                              size_t error_bytes);
void zookeeper_turn(struct target *target, uint64_t until_ns);
void zookeeper_end(struct target *target);

/* zookeeper.c */
void zookeeper_lock_timer(struct lock *lock, uint64_t now_ns);
void zookeeper_lock_over(struct lock *lock);

#endif
