/* SPDX-License-Identifier: Apache-2.0
 *
 * Locks in Redis: one node (target_redis), or a majority of independent nodes (target_redlock).
 *
 * acquire  SET name <unique value> NX PX ttl. Waiting is asking again after a pause that doubles
 *          and is jittered, which is what its users do: Redis has no queue
 * try      the same, once
 * release  a script that deletes the key if the value is still ours
 * renew    a script that prolongs the key if the value is still ours
 * query    EXISTS
 *
 * Redlock asks all nodes at once; the lock counts if a majority said yes and less than the TTL
 * minus the drift of clocks has passed since before it asked; else it is given back everywhere. A
 * node that is late is not waited for longer than a twentieth of the TTL, as the algorithm's
 * description advises. No tokens: neither form has an order that a store could check.
 *
 * Clients share up to 64 connections per node; `pack` requests may be under way on each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/peers/redis_wire.h"

enum {
    CONNECTIONS_MAX = 64, /* redis-benchmark's own default is 50 */
    TIMEOUT_MS = 5000,
    REDLOCK_TIMEOUT_MIN_MS = 50,
    REDLOCK_DRIFT_MS = 2, /* and a hundredth of the TTL */
    PAUSE_FIRST_MS = 2,
    PAUSE_MAX_MS = 64,
    CLOSE_MS = 2000,
};

enum round {
    ROUND_NONE,
    ROUND_SET,
    ROUND_BACK,
    ROUND_RELEASE,
    ROUND_RENEW,
    ROUND_WATCHDOG,
    ROUND_QUERY
};

struct lock {
    enum round round; /* what the nodes are being asked; they answer each round in full */
    uint32_t client;
    uint64_t acquire_tag, release_tag, renew_tag;
    uint32_t answers_due, yes, failed;
    uint64_t round_since_ns;
    uint64_t wait_until_ns; /* 0: a try */
    uint64_t deadline_ns;   /* held at least until then: since the request that set it + TTL */
    uint32_t pause_ms;
    enum target_status result; /* ROUND_BACK: what the acquire ends with */
    bool held;
    bool release_wanted, renew_wanted; /* came while a round was under way */
    char key[REDIS_KEY_BYTES];
    char value[REDIS_VALUE_BYTES];
};

struct target {
    struct peer_base base;
    struct redis_wire *wire;
    uint32_t nodes, quorum;
    struct lock *locks;
    struct peer_pool pool;
    struct peer_timers timers; /* of a lock: the pause before it asks again, or the next renewal */
};

static void drop(struct target *target, uint32_t lock)
{
    peer_timer_clear(&target->timers, lock);
    peer_pool_give(&target->pool, lock);
}

static void complete(struct target *target, uint64_t tag, enum target_op op,
                     enum target_status status)
{
    peer_complete(&target->base,
                  &(struct target_completion){.tag = tag, .op = op, .status = status});
}

/* ---- rounds -------------------------------------------------------------------------------- */

static void start_round(struct target *target, uint32_t lock, enum round round)
{
    static const enum redis_what what[] = {
        [ROUND_SET] = REDIS_SET,         [ROUND_BACK] = REDIS_DELETE,
        [ROUND_RELEASE] = REDIS_DELETE,  [ROUND_RENEW] = REDIS_EXPIRE,
        [ROUND_WATCHDOG] = REDIS_EXPIRE, [ROUND_QUERY] = REDIS_EXISTS,
    };
    struct lock *l = &target->locks[lock];
    struct redis_request request = {.what = what[round],
                                    .cookie = peer_pool_handle(&target->pool, lock),
                                    .key = l->key,
                                    .value = l->value,
                                    .ttl_ms = target->base.options.ttl_ms};

    peer_timer_clear(&target->timers, lock);
    l->round = round;
    l->round_since_ns = peer_now_ns();
    l->answers_due = target->nodes;
    l->yes = l->failed = 0;
    for (uint32_t node = 0; node < target->nodes; node++)
        redis_wire_send(target->wire, node, l->client, &request);
}

static void start_set(struct target *target, uint32_t lock)
{
    struct lock *l = &target->locks[lock];

    /* A new value each time: a late "give back" of the last attempt must not hit this one. */
    snprintf(l->value, sizeof(l->value), "%016llx", (unsigned long long)peer_random(&target->base));
    start_round(target, lock, ROUND_SET);
}

/* Held: what happens next by itself, or was asked for meanwhile. */
static void settle(struct target *target, uint32_t lock)
{
    struct lock *l = &target->locks[lock];

    l->round = ROUND_NONE;
    if (l->renew_wanted) {
        l->renew_wanted = false;
        start_round(target, lock, ROUND_RENEW);
    } else if (l->release_wanted) {
        l->release_wanted = false;
        start_round(target, lock, ROUND_RELEASE);
    } else if (target->base.options.renew) {
        peer_timer_set(&target->timers, lock,
                       l->round_since_ns + target->base.options.ttl_ms * PEER_MS_NS / 3);
    }
}

static void not_obtained(struct target *target, uint32_t lock, enum target_status status)
{
    struct lock *l = &target->locks[lock];
    uint64_t now_ns = peer_now_ns();

    l->round = ROUND_NONE;
    if (status == TARGET_BUSY && l->wait_until_ns) {
        if (now_ns < l->wait_until_ns) {
            uint64_t pause_ns = l->pause_ms * PEER_MS_NS;

            if (l->pause_ms < PAUSE_MAX_MS)
                l->pause_ms *= 2;
            uint64_t due_ns = now_ns + pause_ns / 2 + peer_random(&target->base) % (pause_ns / 2);
            peer_timer_set(&target->timers, lock,
                           due_ns < l->wait_until_ns ? due_ns : l->wait_until_ns);
            return;
        }
        status = TARGET_TIMED_OUT;
    }
    complete(target, l->acquire_tag, TARGET_ACQUIRE, status);
    drop(target, lock);
}

/* Yes of a majority / unknown because too many nodes did not answer / no. */
static enum target_status verdict(const struct target *target, const struct lock *lock,
                                  enum target_status no)
{
    if (lock->yes >= target->quorum)
        return TARGET_OK;
    return lock->failed > target->nodes - target->quorum ? TARGET_UNREACHABLE : no;
}

static void set_answered(struct target *target, uint32_t lock)
{
    struct lock *l = &target->locks[lock];
    uint64_t ttl_ns = target->base.options.ttl_ms * PEER_MS_NS;
    uint64_t drift_ns = ttl_ns / 100 + REDLOCK_DRIFT_MS * PEER_MS_NS;
    enum target_status status = verdict(target, l, TARGET_BUSY);

    if (status == TARGET_OK && target->nodes > 1 &&
        peer_now_ns() - l->round_since_ns + drift_ns >= ttl_ns)
        status = TARGET_BUSY; /* it took so long that it may be over */
    if (status == TARGET_OK) {
        l->held = true;
        l->deadline_ns = l->round_since_ns + ttl_ns;
        peer_complete(&target->base,
                      &(struct target_completion){.tag = l->acquire_tag,
                                                  .op = TARGET_ACQUIRE,
                                                  .status = TARGET_OK,
                                                  .lock = peer_pool_handle(&target->pool, lock)});
        settle(target, lock);
    } else if (target->nodes > 1 && l->yes + l->failed > 0) {
        l->result = status;
        start_round(target, lock, ROUND_BACK);
    } else {
        not_obtained(target, lock, status);
    }
}

static void renew_answered(struct target *target, uint32_t lock, bool watchdog)
{
    struct lock *l = &target->locks[lock];
    enum target_status status = verdict(target, l, TARGET_LOST);

    if (status == TARGET_OK)
        l->deadline_ns = l->round_since_ns + target->base.options.ttl_ms * PEER_MS_NS;
    if (!watchdog)
        complete(target, l->renew_tag, TARGET_RENEW, status);
    if (status == TARGET_OK || (status == TARGET_UNREACHABLE && peer_now_ns() < l->deadline_ns)) {
        settle(target, lock);
        return;
    }
    if (l->renew_wanted)
        complete(target, l->renew_tag, TARGET_RENEW, TARGET_LOST);
    if (l->release_wanted)
        complete(target, l->release_tag, TARGET_RELEASE, TARGET_LOST);
    else if (watchdog)
        peer_lost(&target->base, peer_pool_handle(&target->pool, lock), l->acquire_tag);
    drop(target, lock);
}

static void round_answered(struct target *target, uint32_t lock)
{
    struct lock *l = &target->locks[lock];

    switch (l->round) {
    case ROUND_SET:
        set_answered(target, lock);
        break;
    case ROUND_BACK:
        not_obtained(target, lock, l->result);
        break;
    case ROUND_RELEASE:
        complete(target, l->release_tag, TARGET_RELEASE, verdict(target, l, TARGET_LOST));
        drop(target, lock);
        break;
    case ROUND_RENEW:
    case ROUND_WATCHDOG:
        renew_answered(target, lock, l->round == ROUND_WATCHDOG);
        break;
    case ROUND_QUERY:
        peer_complete(&target->base,
                      &(struct target_completion){
                          .tag = l->acquire_tag,
                          .op = TARGET_QUERY,
                          .status = l->failed > target->nodes - target->quorum ? TARGET_UNREACHABLE
                                                                               : TARGET_OK,
                          .holders = l->yes >= target->quorum});
        drop(target, lock);
        break;
    case ROUND_NONE:
        break;
    }
}

static void answered(void *context, uint64_t cookie, enum redis_result result)
{
    struct target *target = context;
    uint32_t lock;

    if (!peer_pool_find(&target->pool, cookie, &lock))
        return;
    struct lock *l = &target->locks[lock];
    l->yes += result == REDIS_YES;
    l->failed += result == REDIS_FAILED;
    if (--l->answers_due == 0)
        round_answered(target, lock);
}

/* ---- commands ------------------------------------------------------------------------------ */

static bool begin(struct target *target, uint32_t client, const char *name, uint64_t tag,
                  uint32_t *lock)
{
    if (!peer_may_begin(&target->base) || !peer_pool_take(&target->pool, lock))
        return false;
    peer_begin(&target->base);
    struct lock *l = &target->locks[*lock];
    *l = (struct lock){.client = client, .acquire_tag = tag, .pause_ms = PAUSE_FIRST_MS};
    snprintf(l->key, sizeof(l->key), "belay-bench:%.*s", PEER_NAME_BYTES_MAX, name);
    return true;
}

static bool redis_acquire(struct target *target, uint32_t client,
                          const struct target_acquire *acquire, uint64_t tag)
{
    uint32_t lock;

    if (!begin(target, client, acquire->name, tag, &lock))
        return false;
    if (acquire->shared) {
        not_obtained(target, lock, TARGET_REFUSED);
        return true;
    }
    if (acquire->wait)
        target->locks[lock].wait_until_ns = acquire->wait_ms == UINT32_MAX
                                                ? PEER_NEVER_NS
                                                : peer_now_ns() + acquire->wait_ms * PEER_MS_NS;
    start_set(target, lock);
    return true;
}

/* The held lock that a command names; if there is none the command ends with TARGET_LOST. */
static bool begin_held(struct target *target, target_lock handle, enum target_op op, uint64_t tag,
                       struct lock **lock)
{
    uint32_t index;

    peer_begin(&target->base);
    *lock = peer_pool_find(&target->pool, handle, &index) ? &target->locks[index] : NULL;
    if (*lock && (*lock)->held && !(*lock)->release_wanted && (*lock)->round != ROUND_RELEASE)
        return true;
    complete(target, tag, op, TARGET_LOST);
    return false;
}

static bool redis_release(struct target *target, target_lock handle, uint64_t tag)
{
    struct lock *l;

    if (!peer_may_begin(&target->base))
        return false;
    if (!begin_held(target, handle, TARGET_RELEASE, tag, &l))
        return true;
    l->release_tag = tag;
    if (l->round == ROUND_NONE)
        start_round(target, (uint32_t)(l - target->locks), ROUND_RELEASE);
    else
        l->release_wanted = true;
    return true;
}

static bool redis_renew(struct target *target, target_lock handle, uint64_t tag)
{
    struct lock *l;

    if (!peer_may_begin(&target->base))
        return false;
    if (!begin_held(target, handle, TARGET_RENEW, tag, &l))
        return true;
    if (l->renew_wanted || l->round == ROUND_RENEW) { /* one at a time */
        complete(target, tag, TARGET_RENEW, TARGET_REFUSED);
        return true;
    }
    l->renew_tag = tag;
    if (l->round == ROUND_NONE)
        start_round(target, (uint32_t)(l - target->locks), ROUND_RENEW);
    else
        l->renew_wanted = true;
    return true;
}

static bool redis_query(struct target *target, uint32_t client, const char *name, bool stale,
                        uint64_t tag)
{
    uint32_t lock;

    (void)stale; /* there are no replicas to ask instead */
    if (!begin(target, client, name, tag, &lock))
        return false;
    start_round(target, lock, ROUND_QUERY);
    return true;
}

static void redis_turn(struct target *target, uint64_t until_ns)
{
    for (;;) {
        uint64_t now_ns = peer_now_ns(), next_ns;
        uint32_t lock;

        while (peer_timers_due(&target->timers, now_ns, &lock)) {
            if (target->locks[lock].held)
                start_round(target, lock, ROUND_WATCHDOG);
            else
                start_set(target, lock);
        }
        next_ns = peer_timers_next_ns(&target->timers);
        if (target->base.events_begin != target->base.events_end)
            next_ns = 0;
        redis_wire_turn(target->wire, next_ns < until_ns ? next_ns : until_ns);
        if (peer_deliver(&target->base) || peer_now_ns() >= until_ns)
            return;
    }
}

/* ---- opening and closing ------------------------------------------------------------------- */

static void free_target(struct target *target)
{
    redis_wire_close(target->wire);
    free(target->locks);
    peer_pool_free(&target->pool);
    peer_timers_free(&target->timers);
    peer_base_free(&target->base);
    free(target);
}

static struct target *open_nodes(const struct target_options *options,
                                 const struct peer_endpoint *endpoints, uint32_t nodes, char *error,
                                 size_t error_bytes)
{
    struct target *target = peer_alloc(1, sizeof(*target));
    uint32_t locks = options->locks_max + options->commands_max;
    uint64_t timeout_ms = TIMEOUT_MS;

    if (nodes > 1)
        timeout_ms = options->ttl_ms / 20 > REDLOCK_TIMEOUT_MIN_MS ? options->ttl_ms / 20
                                                                   : REDLOCK_TIMEOUT_MIN_MS;
    peer_base_init(&target->base, options);
    target->nodes = nodes;
    target->quorum = nodes / 2 + 1;
    target->locks = peer_alloc(locks, sizeof(*target->locks));
    peer_pool_init(&target->pool, locks);
    peer_timers_init(&target->timers, locks);
    target->wire = redis_wire_open(
        endpoints, nodes, options->clients < CONNECTIONS_MAX ? options->clients : CONNECTIONS_MAX,
        options->pack, timeout_ms * PEER_MS_NS, answered, target);
    if (redis_wire_nodes_up(target->wire, error, error_bytes) < target->quorum) {
        free_target(target);
        return NULL;
    }
    return target;
}

static struct target *open_redis(const struct target_options *options, char *error,
                                 size_t error_bytes)
{
    struct peer_endpoint endpoints[PEER_ENDPOINTS_MAX];
    int count = peer_endpoints(options->endpoints, endpoints, error, error_bytes);

    if (count > 1)
        snprintf(error, error_bytes, "redis takes one endpoint (redlock takes several)");
    return count == 1 ? open_nodes(options, endpoints, 1, error, error_bytes) : NULL;
}

static struct target *open_redlock(const struct target_options *options, char *error,
                                   size_t error_bytes)
{
    struct peer_endpoint endpoints[PEER_ENDPOINTS_MAX];
    int count = peer_endpoints(options->endpoints, endpoints, error, error_bytes);

    if (count >= 0 && (count < 3 || count % 2 == 0)) {
        snprintf(error, error_bytes, "redlock takes an odd number of endpoints, three at least");
        return NULL;
    }
    return count < 0 ? NULL : open_nodes(options, endpoints, (uint32_t)count, error, error_bytes);
}

static void ignore(void *context, const struct target_completion *completion)
{
    (void)context;
    (void)completion;
}

/* Gives up whatever is not being answered for just now. */
static void give_up(struct target *target)
{
    for (uint32_t i = 0; i < target->pool.capacity; i++) {
        struct lock *l = &target->locks[i];

        if (target->pool.generation[i] % 2 == 0)
            continue;
        l->wait_until_ns = 0;
        if (l->round == ROUND_NONE && l->held) {
            peer_begin(&target->base);
            start_round(target, i, ROUND_RELEASE);
        } else if (l->round == ROUND_NONE) {
            not_obtained(target, i, TARGET_TIMED_OUT);
        }
    }
}

static void redis_close(struct target *target)
{
    uint64_t until_ns = peer_now_ns() + CLOSE_MS * PEER_MS_NS;

    target->base.options.complete = ignore;
    target->base.options.lost = NULL;
    for (give_up(target); target->pool.taken > 0 && peer_now_ns() < until_ns; give_up(target))
        redis_turn(target, until_ns);
    free_target(target);
}

const struct target_class target_redis = {
    .name = "redis",
    .what = "one Redis: SET NX PX, compare-and-delete by script; waiting is asking again",
    .open = open_redis,
    .acquire = redis_acquire,
    .release = redis_release,
    .renew = redis_renew,
    .query = redis_query,
    .turn = redis_turn,
    .close = redis_close,
};

const struct target_class target_redlock = {
    .name = "redlock",
    .what = "Redlock over independent Redis nodes: a majority within the TTL minus drift",
    .open = open_redlock,
    .acquire = redis_acquire,
    .release = redis_release,
    .renew = redis_renew,
    .query = redis_query,
    .turn = redis_turn,
    .close = redis_close,
};
