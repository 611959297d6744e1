/* SPDX-License-Identifier: Apache-2.0
 *
 * ZooKeeper's lock recipe, as Curator and kazoo take it:
 *
 * acquire  create an ephemeral sequential node below /belay-bench/<name>; read the children; if
 *          ours has the lowest number the lock is held, else watch the node before ours (with a
 *          read, so that no watch is left on a node that is gone) and read again when it is deleted
 * try      the same; if somebody is before us, our node is deleted again
 * release  delete the node
 * renew    there is no such thing: a session is kept alive as a whole. TARGET_REFUSED
 * query    read the children; if not stale, after a sync
 *
 * A node's name begins with a number of its own, so that one whose creation was not answered (the
 * connection broke) can be found; it and nodes whose deletion was not answered are deleted in the
 * background until that is confirmed or the session is over, as Curator's "guaranteed" does.
 * Parents are container nodes, which the server deletes when they are empty.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/peers/zookeeper_state.h"

/* After an outage, until a command is given up: Curator's and kazoo's recipes try again as well. */
enum { FAILURES_MAX = 30 };

#define ROOT ZOOKEEPER_ROOT

static void read_children(struct lock *lock);
static void delete_node(struct lock *lock, enum target_op op, enum target_status result);

static uint32_t index_of(const struct lock *lock)
{
    return (uint32_t)(lock - lock->target->locks);
}

static zhandle_t *handle_of(const struct lock *lock)
{
    return lock->target->sessions[lock->session].handle;
}

static void again(struct lock *lock, enum lock_state state)
{
    lock->state = state;
    peer_timer_set(&lock->target->timers, index_of(lock), peer_now_ns() + AGAIN_MS * PEER_MS_NS);
}

/* ---- the end of a lock --------------------------------------------------------------------- */

static void activity(struct lock *lock, int change)
{
    struct session *session = &lock->target->sessions[lock->session];

    session->active += (uint32_t)change;
    if (session->active == 0)
        session->quiet_since_ns = peer_now_ns();
}

static void drop(struct lock *lock)
{
    struct target *target = lock->target;

    if (lock->state == LOCK_HELD)
        target->sessions[lock->session].held--;
    else
        activity(lock, -1);
    peer_timer_clear(&target->timers, index_of(lock));
    peer_pool_give(&target->pool, index_of(lock));
}

static void complete(struct lock *lock, enum target_op op, enum target_status status)
{
    struct target_completion completion = {.tag = op == TARGET_RELEASE ? lock->release_tag
                                                                       : lock->acquire_tag,
                                           .op = op,
                                           .status = status};

    if (op == TARGET_ACQUIRE && status == TARGET_OK) {
        completion.lock = peer_pool_handle(&lock->target->pool, index_of(lock));
        completion.token = (uint64_t)lock->czxid;
    }
    peer_complete(&lock->target->base, &completion);
}

static void finish(struct lock *lock, enum target_op op, enum target_status status)
{
    complete(lock, op, status);
    drop(lock);
}

/* Finished for the user, but the node may be there, and would be in everybody's way. */
static void finish_unsure(struct lock *lock, enum target_op op, enum target_status status)
{
    complete(lock, op, status);
    again(lock, LOCK_LEFT_AGAIN);
}

static void obtained(struct lock *lock)
{
    struct session *session = &lock->target->sessions[lock->session];

    peer_timer_clear(&lock->target->timers, index_of(lock));
    lock->state = LOCK_HELD;
    session->held++;
    activity(lock, -1);
    complete(lock, TARGET_ACQUIRE, TARGET_OK);
}

static bool is_outage(int code)
{
    return code == ZCONNECTIONLOSS || code == ZOPERATIONTIMEOUT || code == ZSESSIONMOVED ||
           code == ZTHROTTLEDOP;
}

/* The session is over, and its nodes with it. */
static bool is_over(int code)
{
    return code == ZSESSIONEXPIRED || code == ZCLOSING || code == ZINVALIDSTATE ||
           code == ZAUTHFAILED;
}

/* ---- creating ------------------------------------------------------------------------------ */

static void create_node(struct lock *lock);

static void create_failed(struct lock *lock, int code)
{
    if (!is_outage(code))
        finish(lock, TARGET_ACQUIRE, is_over(code) ? TARGET_LOST : TARGET_REFUSED);
    else if (lock->timed_out)
        finish_unsure(lock, TARGET_ACQUIRE, TARGET_TIMED_OUT);
    else if (++lock->failures < FAILURES_MAX)
        again(lock, LOCK_CREATE_AGAIN);
    else
        finish_unsure(lock, TARGET_ACQUIRE, TARGET_UNREACHABLE);
}

/* The child whose name begins with our number; NULL: there is none. */
static const char *own_child(const struct lock *lock, const struct String_vector *children)
{
    for (int32_t i = 0; i < children->count; i++) {
        if (strncmp(children->data[i], lock->node, NUMBER_BYTES) == 0)
            return children->data[i];
    }
    return NULL;
}

static void found_examined(int code, const struct Stat *stat, const void *data)
{
    struct lock *lock = (struct lock *)data;

    if (code != ZOK) {
        create_failed(lock, code);
        return;
    }
    lock->czxid = stat->czxid;
    read_children(lock);
}

static void created_before(int code, const struct String_vector *children, const void *data)
{
    struct lock *lock = (struct lock *)data;
    char path[PARENT_BYTES + NODE_BYTES];
    const char *node = code == ZOK ? own_child(lock, children) : NULL;

    if (code == ZNONODE || (code == ZOK && !node)) {
        create_node(lock);
        return;
    }
    if (code == ZOK) {
        snprintf(lock->node, sizeof(lock->node), "%s", node);
        snprintf(path, sizeof(path), "%s/%s", lock->parent, node);
        code = zoo_aexists(handle_of(lock), path, 0, found_examined, lock);
    }
    if (code != ZOK)
        create_failed(lock, code);
}

/* The answer to our creation was lost: is the node there? */
static void create_again(struct lock *lock)
{
    lock->state = LOCK_CREATE;
    int code = zoo_aget_children(handle_of(lock), lock->parent, 0, created_before, lock);
    if (code != ZOK)
        create_failed(lock, code);
}

static void parent_created(int code, const char *path, const void *data)
{
    struct lock *lock = (struct lock *)data;

    (void)path;
    if (code == ZOK || code == ZNODEEXISTS)
        create_node(lock);
    else
        create_failed(lock, code);
}

static void node_created(int code, const char *path, const struct Stat *stat, const void *data)
{
    struct lock *lock = (struct lock *)data;

    if (code == ZNONODE) {
        lock->state = LOCK_PARENT;
        code = zoo_acreate(handle_of(lock), lock->parent, "", 0, &ZOO_OPEN_ACL_UNSAFE,
                           ZOO_CONTAINER, parent_created, lock);
        if (code != ZOK)
            create_failed(lock, code);
        return;
    }
    if (code != ZOK) {
        create_failed(lock, code);
        return;
    }
    const char *slash = strrchr(path, '/');
    snprintf(lock->node, sizeof(lock->node), "%s", slash ? slash + 1 : path);
    lock->czxid = stat->czxid;
    read_children(lock);
}

static void create_node(struct lock *lock)
{
    char path[PARENT_BYTES + NODE_BYTES];

    snprintf(path, sizeof(path), "%s/%s", lock->parent, lock->node);
    lock->state = LOCK_CREATE;
    int code = zoo_acreate2(handle_of(lock), path, "", 0, &ZOO_OPEN_ACL_UNSAFE,
                            ZOO_EPHEMERAL_SEQUENTIAL, node_created, lock);
    if (code != ZOK)
        create_failed(lock, code);
}

/* ---- waiting ------------------------------------------------------------------------------- */

static uint64_t sequence_of(const char *node)
{
    size_t bytes = strlen(node);

    return bytes > SEQUENCE_BYTES ? strtoull(node + bytes - SEQUENCE_BYTES, NULL, 10) : 0;
}

/* The child just before ours; NULL: none. `found`: ours is among them. */
static const char *predecessor(const struct lock *lock, const struct String_vector *children,
                               bool *found)
{
    uint64_t own = sequence_of(lock->node), best = 0;
    const char *before = NULL;

    *found = false;
    for (int32_t i = 0; i < children->count; i++) {
        uint64_t sequence = sequence_of(children->data[i]);

        if (strcmp(children->data[i], lock->node) == 0)
            *found = true;
        else if (sequence < own && (!before || sequence > best)) {
            before = children->data[i];
            best = sequence;
        }
    }
    return before;
}

static void read_failed(struct lock *lock, int code)
{
    if (is_over(code))
        finish(lock, TARGET_ACQUIRE, TARGET_LOST);
    else if (lock->timed_out)
        delete_node(lock, TARGET_ACQUIRE, TARGET_TIMED_OUT);
    else if (is_outage(code) && ++lock->failures < FAILURES_MAX)
        again(lock, LOCK_READ_AGAIN);
    else
        delete_node(lock, TARGET_ACQUIRE, TARGET_UNREACHABLE);
}

static void watch_fired(zhandle_t *handle, int type, int state, const char *path, void *context)
{
    struct lock *lock = context;

    (void)handle;
    (void)state;
    (void)path;
    /* The record may be another lock's by now: then that one looks once more than it must. */
    if (type != ZOO_SESSION_EVENT && lock->state == LOCK_WATCH)
        read_children(lock);
}

static void watch_set(int code, const char *value, int value_bytes, const struct Stat *stat,
                      const void *data)
{
    struct lock *lock = (struct lock *)data;

    (void)value;
    (void)value_bytes;
    (void)stat;
    if (code == ZNONODE) {
        read_children(lock);
    } else if (code != ZOK) {
        read_failed(lock, code);
    } else if (lock->timed_out) {
        delete_node(lock, TARGET_ACQUIRE, TARGET_TIMED_OUT);
    } else {
        lock->failures = 0;
        lock->state = LOCK_WATCH;
        if (lock->wait_until_ns != PEER_NEVER_NS)
            peer_timer_set(&lock->target->timers, index_of(lock), lock->wait_until_ns);
    }
}

static void children_read(int code, const struct String_vector *children, const void *data)
{
    struct lock *lock = (struct lock *)data;
    char path[PARENT_BYTES + NODE_BYTES * 2];
    bool found;

    if (code != ZOK) {
        read_failed(lock, code);
        return;
    }
    const char *before = predecessor(lock, children, &found);
    if (!found) {
        finish(lock, TARGET_ACQUIRE, TARGET_LOST);
    } else if (!before) {
        obtained(lock);
    } else if (!lock->wait) {
        delete_node(lock, TARGET_ACQUIRE, TARGET_BUSY);
    } else if (lock->timed_out) {
        delete_node(lock, TARGET_ACQUIRE, TARGET_TIMED_OUT);
    } else {
        snprintf(path, sizeof(path), "%s/%s", lock->parent, before);
        lock->state = LOCK_WATCH_SET;
        code = zoo_awget(handle_of(lock), path, watch_fired, lock, watch_set, lock);
        if (code != ZOK)
            read_failed(lock, code);
    }
}

static void read_children(struct lock *lock)
{
    lock->state = LOCK_READ;
    int code = zoo_aget_children(handle_of(lock), lock->parent, 0, children_read, lock);
    if (code != ZOK)
        read_failed(lock, code);
}

/* ---- deleting ------------------------------------------------------------------------------ */

static void node_deleted(int code, const void *data)
{
    struct lock *lock = (struct lock *)data;
    enum target_status status = lock->result;

    if (code == ZOK) {
        finish(lock, lock->op, status);
    } else if (is_outage(code) && ++lock->failures < FAILURES_MAX) {
        lock->deleted_before = true;
        again(lock, LOCK_DELETE_AGAIN);
    } else if (is_outage(code)) {
        finish_unsure(lock, lock->op, status == TARGET_OK ? TARGET_UNREACHABLE : status);
    } else if (code == ZNONODE && lock->deleted_before) { /* by the one without an answer */
        finish(lock, lock->op, status);
    } else {
        finish(lock, lock->op, status == TARGET_OK ? TARGET_LOST : status);
    }
}

static int send_delete(struct lock *lock, void_completion_t deleted)
{
    char path[PARENT_BYTES + NODE_BYTES];

    snprintf(path, sizeof(path), "%s/%s", lock->parent, lock->node);
    return zoo_adelete(handle_of(lock), path, -1, deleted, lock);
}

static void delete_now(struct lock *lock)
{
    lock->state = LOCK_DELETE;
    int code = send_delete(lock, node_deleted);
    if (code != ZOK)
        node_deleted(code, lock);
}

static void delete_node(struct lock *lock, enum target_op op, enum target_status result)
{
    peer_timer_clear(&lock->target->timers, index_of(lock));
    lock->op = op;
    lock->result = result;
    lock->failures = 0;
    delete_now(lock);
}

static void left_deleted(int code, const void *data)
{
    struct lock *lock = (struct lock *)data;

    if (is_outage(code))
        again(lock, LOCK_LEFT_AGAIN);
    else
        drop(lock);
}

static void delete_left(struct lock *lock)
{
    lock->state = LOCK_LEFT_DELETE;
    int code = send_delete(lock, left_deleted);
    if (code != ZOK)
        left_deleted(code, lock);
}

static void left_found(int code, const struct String_vector *children, const void *data)
{
    struct lock *lock = (struct lock *)data;

    const char *node = code == ZOK ? own_child(lock, children) : NULL;

    if (node) {
        snprintf(lock->node, sizeof(lock->node), "%s", node);
        delete_left(lock);
        return;
    }
    left_deleted(code, lock);
}

static void clean_up(struct lock *lock)
{
    if (lock->czxid) { /* its name is known in full */
        delete_left(lock);
        return;
    }
    lock->state = LOCK_LEFT_FIND;
    int code = zoo_aget_children(handle_of(lock), lock->parent, 0, left_found, lock);
    if (code != ZOK)
        left_deleted(code, lock);
}

/* ---- commands ------------------------------------------------------------------------------ */

/* The name as one component of a path: false if it is too long so. */
static bool spell(char *parent, const char *name)
{
    size_t used = (size_t)snprintf(parent, PARENT_BYTES, ROOT "/");

    for (const char *at = name; *at != '\0'; at++) {
        bool plain = (unsigned char)*at > ' ' && *at != '/' && *at != '%' && *at != 0x7f &&
                     !(*at == '.' && at == name);

        if (used + 4 > PARENT_BYTES)
            return false;
        if (plain)
            parent[used++] = *at;
        else
            used += (size_t)snprintf(parent + used, 4, "%%%02X", (unsigned)(unsigned char)*at);
    }
    parent[used] = '\0';
    return name[0] != '\0';
}

static struct lock *begin(struct target *target, uint32_t client, uint64_t tag)
{
    uint32_t index;

    if (!peer_may_begin(&target->base) || !peer_pool_take(&target->pool, &index))
        return NULL;
    peer_begin(&target->base);
    struct lock *lock = &target->locks[index];
    *lock = (struct lock){.target = target,
                          .session = client % target->sessions_count,
                          .acquire_tag = tag,
                          .wait_until_ns = PEER_NEVER_NS};
    activity(lock, 1);
    return lock;
}

static bool zookeeper_acquire(struct target *target, uint32_t client,
                              const struct target_acquire *acquire, uint64_t tag)
{
    struct lock *lock = begin(target, client, tag);

    if (!lock)
        return false;
    if (acquire->shared || !spell(lock->parent, acquire->name)) {
        finish(lock, TARGET_ACQUIRE, TARGET_REFUSED);
        return true;
    }
    lock->wait = acquire->wait;
    if (acquire->wait && acquire->wait_ms != UINT32_MAX) {
        lock->wait_until_ns = peer_now_ns() + acquire->wait_ms * PEER_MS_NS;
        peer_timer_set(&target->timers, index_of(lock), lock->wait_until_ns);
    }
    snprintf(lock->node, sizeof(lock->node), "%016llx-lock-",
             (unsigned long long)peer_random(&target->base));
    create_node(lock);
    return true;
}

static bool zookeeper_release(struct target *target, target_lock handle, uint64_t tag)
{
    uint32_t index;

    if (!peer_may_begin(&target->base))
        return false;
    peer_begin(&target->base);
    if (!peer_pool_find(&target->pool, handle, &index) || target->locks[index].state != LOCK_HELD) {
        peer_complete(&target->base, &(struct target_completion){
                                         .tag = tag, .op = TARGET_RELEASE, .status = TARGET_LOST});
        return true;
    }
    struct lock *lock = &target->locks[index];
    lock->release_tag = tag;
    target->sessions[lock->session].held--;
    activity(lock, 1);
    delete_node(lock, TARGET_RELEASE, TARGET_OK);
    return true;
}

static bool zookeeper_renew(struct target *target, target_lock handle, uint64_t tag)
{
    (void)handle;
    if (!peer_may_begin(&target->base))
        return false;
    peer_begin(&target->base);
    peer_complete(&target->base, &(struct target_completion){
                                     .tag = tag, .op = TARGET_RENEW, .status = TARGET_REFUSED});
    return true;
}

static void query_answered(int code, const struct String_vector *children, const void *data)
{
    struct lock *lock = (struct lock *)data;
    struct target_completion completion = {
        .tag = lock->acquire_tag, .op = TARGET_QUERY, .status = TARGET_OK};

    if (code == ZOK)
        completion.holders = children->count > 0;
    else if (is_outage(code) || is_over(code))
        completion.status = TARGET_UNREACHABLE;
    else if (code != ZNONODE)
        completion.status = TARGET_REFUSED;
    peer_complete(&lock->target->base, &completion);
    drop(lock);
}

static void query_synced(int code, const char *path, const void *data)
{
    struct lock *lock = (struct lock *)data;

    (void)path;
    if (code == ZOK)
        code = zoo_aget_children(handle_of(lock), lock->parent, 0, query_answered, lock);
    if (code != ZOK)
        query_answered(code, NULL, lock);
}

static bool zookeeper_query(struct target *target, uint32_t client, const char *name, bool stale,
                            uint64_t tag)
{
    struct lock *lock = begin(target, client, tag);

    if (!lock)
        return false;
    lock->state = LOCK_QUERY;
    if (!spell(lock->parent, name)) {
        query_answered(ZBADARGUMENTS, NULL, lock);
    } else if (stale) {
        query_synced(ZOK, NULL, lock);
    } else {
        int code = zoo_async(handle_of(lock), lock->parent, query_synced, lock);
        if (code != ZOK)
            query_answered(code, NULL, lock);
    }
    return true;
}

/* ---- time, and the end of a session -------------------------------------------------------- */

void zookeeper_lock_timer(struct lock *lock, uint64_t now_ns)
{
    if (lock->state == LOCK_LEFT_AGAIN) {
        clean_up(lock);
        return;
    }
    if (lock->state == LOCK_DELETE_AGAIN) {
        delete_now(lock);
        return;
    }
    lock->timed_out = now_ns >= lock->wait_until_ns;
    if (lock->state == LOCK_CREATE_AGAIN)
        create_again(lock);
    else if (lock->state == LOCK_READ_AGAIN)
        read_children(lock);
    else if (lock->state == LOCK_WATCH && lock->timed_out)
        delete_node(lock, TARGET_ACQUIRE, TARGET_TIMED_OUT);
    /* Else an answer is under way that finds timed_out. */
}

/* The session is over. Whoever waits for an answer from the library is told by that. */
void zookeeper_lock_over(struct lock *lock)
{
    struct target *target = lock->target;

    if (lock->state == LOCK_HELD) {
        peer_lost(&target->base, peer_pool_handle(&target->pool, index_of(lock)),
                  lock->acquire_tag);
        drop(lock);
    } else if (lock->state == LOCK_WATCH || lock->state == LOCK_READ_AGAIN ||
               lock->state == LOCK_CREATE_AGAIN) {
        finish(lock, TARGET_ACQUIRE, TARGET_LOST);
    } else if (lock->state == LOCK_DELETE_AGAIN) {
        finish(lock, lock->op, lock->result == TARGET_OK ? TARGET_LOST : lock->result);
    } else if (lock->state == LOCK_LEFT_AGAIN) {
        drop(lock);
    }
}

const struct target_class target_zookeeper = {
    .name = "zookeeper",
    .what = "ZooKeeper: ephemeral sequential nodes, a watch on the predecessor; up to 64 sessions",
    .open = zookeeper_open,
    .acquire = zookeeper_acquire,
    .release = zookeeper_release,
    .renew = zookeeper_renew,
    .query = zookeeper_query,
    .turn = zookeeper_turn,
    .close = zookeeper_end,
};
