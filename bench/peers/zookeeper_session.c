/* SPDX-License-Identifier: Apache-2.0
 *
 * The clients share up to 64 sessions: a process uses one, not one per thread or task, and
 * ZooKeeper pays for each with heartbeats. The library is the single-threaded one, whose sockets
 * are polled here: the other one brings two threads per session, and hands every answer from thread
 * to thread.
 *
 * Not renewed: a session that holds locks and has nothing under way is left alone, without
 * heartbeats, until twice its time has passed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "bench/peers/zookeeper_state.h"

enum {
    SESSIONS_MAX = 64,
    OPEN_MS = 10000,
    REFUSED_MS = 2000,      /* opening: nobody answered anything for so long */
    MESSAGES_PER_TURN = 64, /* of one session */
};

/* ---- sessions ------------------------------------------------------------------------------ */

static void session_event(zhandle_t *handle, int type, int state, const char *path, void *context)
{
    struct session *session = context;

    (void)handle;
    (void)path;
    if (type != ZOO_SESSION_EVENT)
        return;
    if (state == ZOO_CONNECTED_STATE)
        session->connected = true;
    else if (state == ZOO_EXPIRED_SESSION_STATE || state == ZOO_AUTH_FAILED_STATE)
        session->expired = true; /* it cannot be closed from inside its own callback */
}

static bool open_session(struct target *target, struct session *session)
{
    session->target = target;
    session->expired = session->connected = false;
    session->handle = zookeeper_init(target->endpoints, session_event,
                                     (int)target->base.options.ttl_ms, NULL, session, 0);
    /* By default every call of zookeeper_interest() resolves all host names again. */
    return session->handle && zoo_set_servers_resolution_delay(session->handle, -1) == ZOK;
}

/* Locks that wait for no answer from the library are told here, the others by their callbacks. */
static void replace_session(struct target *target, uint32_t number)
{
    struct session *session = &target->sessions[number];

    zookeeper_close(session->handle);
    for (uint32_t i = 0; i < target->pool.capacity; i++) {
        if (target->pool.generation[i] % 2 == 1 && target->locks[i].session == number)
            zookeeper_lock_over(&target->locks[i]);
    }
    if (!open_session(target, session)) {
        fprintf(stderr, "zookeeper_init failed\n");
        abort();
    }
}

/* Until when a session that is not renewed gets no heartbeats. The server may have made its time
 * longer than was asked for, and ends it up to a tick and a half after that: at most three quarters
 * of its time, which is two ticks at least. */
static uint64_t alone_until_ns(const struct session *session)
{
    return session->quiet_since_ns + (uint64_t)zoo_recv_timeout(session->handle) * PEER_MS_NS * 2;
}

/* See "not renewed" at the top. */
static bool is_left_alone(const struct target *target, const struct session *session,
                          uint64_t now_ns)
{
    return !target->base.options.renew && session->held > 0 && session->active == 0 &&
           now_ns < alone_until_ns(session);
}

static void prepare(struct target *target, uint32_t number, uint64_t now_ns)
{
    struct session *session = &target->sessions[number];
    struct pollfd *polled = &target->polled[number];
    int descriptor = -1, interest = 0;
    struct timeval wait = {0};

    polled->fd = -1;
    if (is_left_alone(target, session, now_ns)) {
        session->due_ns = alone_until_ns(session);
        return;
    }
    /* Connects, pings and notices timeouts; errors come to the callbacks. */
    int code = zookeeper_interest(session->handle, &descriptor, &interest, &wait);
    session->due_ns =
        now_ns + (uint64_t)wait.tv_sec * UINT64_C(1000000000) + (uint64_t)wait.tv_usec * 1000;
    if (code == ZOK || code == ZNOTHING) {
        polled->fd = descriptor;
    } else if (session->due_ns < now_ns + PEER_MS_NS) {
        session->due_ns = now_ns + PEER_MS_NS; /* refused at once: no endless loop */
    }
    polled->events = (short)((interest & ZOOKEEPER_READ ? POLLIN : 0) |
                             (interest & ZOOKEEPER_WRITE ? POLLOUT : 0));
}

static void process(struct session *session, short events)
{
    int what = (events & (POLLIN | POLLHUP | POLLERR) ? ZOOKEEPER_READ : 0) |
               (events & POLLOUT ? ZOOKEEPER_WRITE : 0);

    /* One message a call: go on until there is none. */
    for (int i = 0; i < MESSAGES_PER_TURN && !session->expired; i++) {
        if (zookeeper_process(session->handle, what) != ZOK || !(what & ZOOKEEPER_READ))
            return;
        what = ZOOKEEPER_READ;
    }
}

static void poll_sessions(struct target *target, uint64_t until_ns)
{
    uint64_t now_ns = peer_now_ns();

    for (uint32_t i = 0; i < target->sessions_count; i++) {
        if (target->sessions[i].expired)
            replace_session(target, i);
        prepare(target, i, now_ns);
        if (target->sessions[i].due_ns < until_ns)
            until_ns = target->sessions[i].due_ns;
        if (target->sessions[i].expired)
            until_ns = 0;
    }
    if (target->base.events_begin != target->base.events_end)
        until_ns = 0;
    uint64_t wait_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    struct timespec wait = {.tv_sec = (time_t)(wait_ns / UINT64_C(1000000000)),
                            .tv_nsec = (long)(wait_ns % UINT64_C(1000000000))};
    if (ppoll(target->polled, target->sessions_count, until_ns == PEER_NEVER_NS ? NULL : &wait,
              NULL) <= 0)
        return;
    for (uint32_t i = 0; i < target->sessions_count; i++) {
        if (target->polled[i].fd >= 0 && target->polled[i].revents)
            process(&target->sessions[i], target->polled[i].revents);
    }
}

void zookeeper_turn(struct target *target, uint64_t until_ns)
{
    for (;;) {
        uint64_t now_ns = peer_now_ns(), next_ns;
        uint32_t lock;

        while (peer_timers_due(&target->timers, now_ns, &lock))
            zookeeper_lock_timer(&target->locks[lock], now_ns);
        next_ns = peer_timers_next_ns(&target->timers);
        poll_sessions(target, next_ns < until_ns ? next_ns : until_ns);
        if (peer_deliver(&target->base) || peer_now_ns() >= until_ns)
            return;
    }
}

/* ---- opening and closing ------------------------------------------------------------------- */

void zookeeper_end(struct target *target)
{
    for (uint32_t i = 0; i < target->sessions_count; i++) {
        if (target->sessions[i].handle)
            zookeeper_close(target->sessions[i].handle); /* ends the session, and its nodes */
    }
    free(target->endpoints);
    free(target->sessions);
    free(target->polled);
    free(target->locks);
    peer_pool_free(&target->pool);
    peer_timers_free(&target->timers);
    peer_base_free(&target->base);
    free(target);
}

static void root_created(int code, const char *path, const void *data)
{
    struct target *target = (struct target *)data;

    (void)path;
    target->root_answered = true;
    target->root_result = code == ZNODEEXISTS ? ZOK : code;
}

static bool wait_connected(struct target *target)
{
    uint64_t start_ns = peer_now_ns(), until_ns = start_ns + OPEN_MS * PEER_MS_NS;

    for (;;) {
        uint64_t now_ns = peer_now_ns();
        uint32_t connected = 0;

        for (uint32_t i = 0; i < target->sessions_count; i++)
            connected += target->sessions[i].connected;
        if (connected == target->sessions_count)
            return true;
        if (now_ns >= until_ns || (connected == 0 && now_ns >= start_ns + REFUSED_MS * PEER_MS_NS))
            return false;
        poll_sessions(target, now_ns + AGAIN_MS * PEER_MS_NS);
    }
}

static bool make_root(struct target *target)
{
    uint64_t until_ns = peer_now_ns() + OPEN_MS * PEER_MS_NS;

    if (zoo_acreate(target->sessions[0].handle, ZOOKEEPER_ROOT, "", 0, &ZOO_OPEN_ACL_UNSAFE,
                    ZOO_PERSISTENT, root_created, target) != ZOK)
        return false;
    while (!target->root_answered && peer_now_ns() < until_ns)
        poll_sessions(target, until_ns);
    return target->root_answered && target->root_result == ZOK;
}

struct target *zookeeper_open(const struct target_options *options, char *error, size_t error_bytes)
{
    struct peer_endpoint endpoints[PEER_ENDPOINTS_MAX];
    uint32_t locks = options->locks_max + options->commands_max;

    if (peer_endpoints(options->endpoints, endpoints, error, error_bytes) < 0)
        return NULL;
    struct target *target = peer_alloc(1, sizeof(*target));
    peer_base_init(&target->base, options);
    target->endpoints = strdup(options->endpoints);
    target->sessions_count = options->clients < SESSIONS_MAX ? options->clients : SESSIONS_MAX;
    target->sessions = peer_alloc(target->sessions_count, sizeof(*target->sessions));
    target->polled = peer_alloc(target->sessions_count, sizeof(*target->polled));
    target->locks = peer_alloc(locks, sizeof(*target->locks));
    peer_pool_init(&target->pool, locks);
    peer_timers_init(&target->timers, locks);
    zoo_set_debug_level((ZooLogLevel)0); /* what goes wrong comes as a status */
    bool ok = true;
    for (uint32_t i = 0; i < target->sessions_count && ok; i++)
        ok = open_session(target, &target->sessions[i]);
    if (ok && wait_connected(target) && make_root(target))
        return target;
    snprintf(error, error_bytes, "ZooKeeper at %s: %s", options->endpoints,
             !ok                     ? "zookeeper_init failed"
             : target->root_answered ? zerror(target->root_result)
                                     : "no session was opened in time");
    zookeeper_end(target);
    return NULL;
}
