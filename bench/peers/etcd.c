/* SPDX-License-Identifier: Apache-2.0
 *
 * etcd's locks, as its own Go client takes them (clientv3/concurrency, Mutex, as of 3.4):
 *
 * acquire  one transaction: if there is no key prefix/lease, put it with the lease, else read it;
 *          and read the oldest key of the prefix. If that is ours, the lock is held. Else, until
 *          nobody is left: ask for the youngest key that is older than ours and watch it until it
 *          is deleted; then look whether our own key is still there.
 * try      the transaction; if somebody is before us, our key is deleted again
 * release  the key is deleted; like every deletion here tried again for some seconds while no
 *          member answers: a key that stays would block the name as long as its lease is renewed
 * renew    a keepalive of the client's lease
 * query    the oldest key of the prefix
 *
 * The key is the lease's: a client that acquires a name which it holds is refused, and a key that
 * an earlier command of an unknown outcome left behind is deleted first, so that each lock has a
 * creation revision of its own.
 *
 * target_etcd_lock asks the server's lock service instead (v3lockpb: the server does the same as
 * above); it has no try.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/peers/etcd_state.h"
#include "etcd.pb-c.h"

enum {
    OPEN_AT_ONCE = 128, /* grants and revokes under way while opening and closing */
    OPEN_MS = 30000,
    CLOSE_MS = 5000,
    READ_AGAIN_MS = 25, /* clientv3 repeats reads this often and so many times */
    READS_MAX = 100,
    DELETE_AGAIN_MS = 100,
    DELETE_MS = 3000,
};

static uint64_t handle_of(const struct target *target, uint32_t lock)
{
    return peer_pool_handle(&target->lock_pool, lock);
}

static bool is_outage(int code)
{
    /* The lock service passes on whatever stopped it, a change of leaders too, as "unknown". */
    return code == ETCD_UNAVAILABLE || code == ETCD_DEADLINE_EXCEEDED || code == ETCD_CANCELLED ||
           code == ETCD_UNKNOWN || code == ETCD_INTERNAL;
}

/* ---- the end of a lock --------------------------------------------------------------------- */

static void link_lock(struct target *target, uint32_t lock, uint32_t client)
{
    struct etcd_lock *l = &target->locks[lock];
    struct etcd_client *c = &target->clients[client];

    l->client = client;
    l->before = ETCD_NONE;
    l->next = c->locks_first;
    if (l->next != ETCD_NONE)
        target->locks[l->next].before = lock;
    c->locks_first = lock;
}

static void drop_lock(struct target *target, uint32_t lock)
{
    struct etcd_lock *l = &target->locks[lock];

    if (l->before != ETCD_NONE)
        target->locks[l->before].next = l->next;
    else
        target->clients[l->client].locks_first = l->next;
    if (l->next != ETCD_NONE)
        target->locks[l->next].before = l->before;
    peer_timer_clear(&target->lock_timers, lock);
    peer_pool_give(&target->lock_pool, lock);
}

/* Completes what is done with the lock; it is gone unless that was an acquire that got it. */
static void finish(struct target *target, uint32_t lock, enum target_op op,
                   enum target_status status)
{
    struct etcd_lock *l = &target->locks[lock];
    struct target_completion completion = {
        .tag = op == TARGET_ACQUIRE ? l->acquire_tag : l->release_tag, .op = op, .status = status};

    if (op == TARGET_ACQUIRE && status == TARGET_OK) {
        completion.lock = handle_of(target, lock);
        completion.token = (uint64_t)l->revision;
        l->state = LOCK_HELD;
        peer_timer_clear(&target->lock_timers, lock);
    } else {
        drop_lock(target, lock);
    }
    peer_complete(&target->base, &completion);
}

void etcd_lock_lost(struct target *target, uint32_t lock)
{
    peer_lost(&target->base, handle_of(target, lock), target->locks[lock].acquire_tag);
    drop_lock(target, lock);
}

/* The key is ours and first. */
static void obtained(struct target *target, uint32_t lock)
{
    const struct etcd_lock *l = &target->locks[lock];
    bool alive = target->clients[l->client].lease == l->lease;

    finish(target, lock, TARGET_ACQUIRE, alive ? TARGET_OK : TARGET_LOST);
}

/* ---- waiting and giving up ------------------------------------------------------------------- */

static void delete_key(struct target *target, uint32_t lock, enum target_op op,
                       enum target_status result)
{
    struct etcd_lock *l = &target->locks[lock];

    l->op = op;
    l->result = result;
    l->give_up_ns = peer_now_ns() + DELETE_MS * PEER_MS_NS;
    peer_timer_clear(&target->lock_timers, lock);
    etcd_ask_delete(target, lock);
}

static void ask_predecessor(struct target *target, uint32_t lock)
{
    if (target->locks[lock].timed_out)
        delete_key(target, lock, TARGET_ACQUIRE, TARGET_TIMED_OUT);
    else
        etcd_ask_predecessor(target, lock);
}

/* ---- answers ------------------------------------------------------------------------------- */

static void txn_failed(struct target *target, uint32_t lock, const struct etcd_answer *answer)
{
    struct etcd_lock *l = &target->locks[lock];

    if (answer->code == ETCD_NOT_FOUND || strstr(answer->details, "lease not found")) {
        int64_t lease = l->lease;
        uint32_t client = l->client;

        finish(target, lock, TARGET_ACQUIRE, TARGET_LOST);
        etcd_lease_gone(target, client, lease);
    } else if (is_outage(answer->code)) {
        delete_key(target, lock, TARGET_ACQUIRE, TARGET_UNREACHABLE);
    } else {
        finish(target, lock, TARGET_ACQUIRE, TARGET_REFUSED);
    }
}

/* Our key was there before: another lock of this client, or left over. */
static void key_existed(struct target *target, uint32_t lock)
{
    struct etcd_lock *l = &target->locks[lock];

    for (uint32_t i = target->clients[l->client].locks_first; i != ETCD_NONE;
         i = target->locks[i].next) {
        const struct etcd_lock *other = &target->locks[i];

        if (i != lock && other->lease == l->lease && other->key_bytes == l->key_bytes &&
            memcmp(other->key, l->key, l->key_bytes) == 0) {
            finish(target, lock, TARGET_ACQUIRE, TARGET_REFUSED);
            return;
        }
    }
    l->enqueue_again = true;
    delete_key(target, lock, TARGET_ACQUIRE, TARGET_UNREACHABLE);
}

static const Etcdserverpb__KeyValue *first_of(const Etcdserverpb__ResponseOp *response)
{
    if (response->response_case != ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE ||
        response->response_range->n_kvs == 0)
        return NULL;
    return response->response_range->kvs[0];
}

static void txn_answered(struct target *target, uint32_t lock, const struct etcd_answer *answer)
{
    struct etcd_lock *l = &target->locks[lock];
    Etcdserverpb__TxnResponse *txn = NULL;
    const Etcdserverpb__KeyValue *owner;

    if (answer->code == ETCD_OK)
        txn = etcdserverpb__txn_response__unpack(NULL, answer->bytes_count, answer->bytes);
    if (!txn || !txn->header || txn->n_responses != 2) {
        if (txn)
            etcdserverpb__txn_response__free_unpacked(txn, NULL);
        txn_failed(target, lock, answer);
        return;
    }
    owner = first_of(txn->responses[1]);
    l->revision = txn->header->revision;
    bool existed = !txn->succeeded;
    bool is_first = !owner || owner->create_revision == l->revision;
    etcdserverpb__txn_response__free_unpacked(txn, NULL);
    if (existed)
        key_existed(target, lock);
    else if (is_first)
        obtained(target, lock);
    else if (!l->wait)
        delete_key(target, lock, TARGET_ACQUIRE, TARGET_BUSY);
    else
        ask_predecessor(target, lock);
}

static void service_answered(struct target *target, uint32_t lock, const struct etcd_answer *answer)
{
    Etcdserverpb__LockResponse *response = NULL;

    if (answer->code == ETCD_OK)
        response = etcdserverpb__lock_response__unpack(NULL, answer->bytes_count, answer->bytes);
    if (response && response->header) {
        target->locks[lock].revision = response->header->revision;
        obtained(target, lock);
    } else if (peer_now_ns() >= target->locks[lock].wait_until_ns ||
               strstr(answer->details, "deadline exceeded")) {
        /* Said by this side or by the server, whose own status is "unknown" then. It may have been
         * granted meanwhile. */
        delete_key(target, lock, TARGET_ACQUIRE, TARGET_TIMED_OUT);
    } else {
        txn_failed(target, lock, answer);
    }
    if (response)
        etcdserverpb__lock_response__free_unpacked(response, NULL);
}

static void read_failed(struct target *target, uint32_t lock, const struct etcd_answer *answer)
{
    struct etcd_lock *l = &target->locks[lock];

    if (l->timed_out) {
        delete_key(target, lock, TARGET_ACQUIRE, TARGET_TIMED_OUT);
    } else if (!is_outage(answer->code) || ++l->reads_failed >= READS_MAX) {
        delete_key(target, lock, TARGET_ACQUIRE, TARGET_UNREACHABLE);
    } else {
        l->state = LOCK_READ_AGAIN;
        peer_timer_set(&target->lock_timers, lock, peer_now_ns() + READ_AGAIN_MS * PEER_MS_NS);
    }
}

static void read_answered(struct target *target, uint32_t lock, const struct etcd_answer *answer)
{
    struct etcd_lock *l = &target->locks[lock];
    Etcdserverpb__RangeResponse *range = NULL;

    if (answer->code == ETCD_OK)
        range = etcdserverpb__range_response__unpack(NULL, answer->bytes_count, answer->bytes);
    if (!range || !range->header) {
        read_failed(target, lock, answer);
    } else if (l->state == LOCK_CHECK) {
        if (range->n_kvs > 0 && range->kvs[0]->create_revision == l->revision)
            obtained(target, lock);
        else
            finish(target, lock, TARGET_ACQUIRE, TARGET_LOST);
    } else if (range->n_kvs == 0) {
        etcd_ask_own_key(target, lock);
    } else if (l->timed_out) {
        delete_key(target, lock, TARGET_ACQUIRE, TARGET_TIMED_OUT);
    } else {
        l->reads_failed = 0;
        if (l->wait_until_ns != PEER_NEVER_NS)
            peer_timer_set(&target->lock_timers, lock, l->wait_until_ns);
        etcd_watch(target, lock, &range->kvs[0]->key, range->header->revision);
    }
    if (range)
        etcdserverpb__range_response__free_unpacked(range, NULL);
}

static void delete_answered(struct target *target, uint32_t lock, const struct etcd_answer *answer)
{
    struct etcd_lock *l = &target->locks[lock];
    Etcdserverpb__DeleteRangeResponse *response = NULL;

    if (answer->code != ETCD_OK) {
        uint64_t now_ns = peer_now_ns();

        if (!is_outage(answer->code) || now_ns >= l->give_up_ns) {
            finish(target, lock, l->op, TARGET_UNREACHABLE);
            return;
        }
        l->deleted_before = true;
        l->state = LOCK_DELETE_AGAIN;
        peer_timer_set(&target->lock_timers, lock, now_ns + DELETE_AGAIN_MS * PEER_MS_NS);
        return;
    }
    if (l->enqueue_again) {
        l->enqueue_again = false;
        if (l->wait_until_ns != PEER_NEVER_NS)
            peer_timer_set(&target->lock_timers, lock, l->wait_until_ns);
        etcd_ask_enqueue(target, lock);
        return;
    }
    /* The service does not say whether the key was there. */
    if (l->op == TARGET_RELEASE && !target->lock_service && !l->deleted_before) {
        response =
            etcdserverpb__delete_range_response__unpack(NULL, answer->bytes_count, answer->bytes);
        if (!response || response->deleted == 0)
            l->result = TARGET_LOST;
        if (response)
            etcdserverpb__delete_range_response__free_unpacked(response, NULL);
    }
    finish(target, lock, l->op, l->result);
}

void etcd_lock_answered(void *context, uint64_t cookie, const struct etcd_answer *answer)
{
    struct target *target = context;
    uint32_t lock;

    if (!peer_pool_find(&target->lock_pool, cookie, &lock))
        return;
    switch (target->locks[lock].state) {
    case LOCK_TXN:
        txn_answered(target, lock, answer);
        break;
    case LOCK_PREDECESSOR:
    case LOCK_CHECK:
        read_answered(target, lock, answer);
        break;
    case LOCK_SERVICE:
        service_answered(target, lock, answer);
        break;
    case LOCK_DELETE:
        delete_answered(target, lock, answer);
        break;
    default: /* nothing was asked in the other states */
        break;
    }
}

/* ---- watches ------------------------------------------------------------------------------- */

static void watch_message(void *context, uint32_t channel, const uint8_t *bytes, size_t count)
{
    struct target *target = context;
    Etcdserverpb__WatchResponse *message = etcdserverpb__watch_response__unpack(NULL, count, bytes);

    (void)channel;
    if (!message)
        return;
    uint32_t lock = (uint32_t)message->watch_id;
    bool deleted = false;
    for (size_t i = 0; i < message->n_events; i++)
        deleted |= message->events[i]->type == ETCDSERVERPB__EVENT__EVENT_TYPE__DELETE;
    /* What an earlier watch of the same record says has another number. */
    if (lock < target->lock_pool.capacity && target->locks[lock].state == LOCK_WATCH &&
        target->locks[lock].watch_id == (uint64_t)message->watch_id &&
        (deleted || message->canceled)) {
        if (!message->canceled)
            etcd_watch_cancel(target, lock);
        ask_predecessor(target, lock);
    }
    etcdserverpb__watch_response__free_unpacked(message, NULL);
}

static void watch_broken(void *context, uint32_t channel)
{
    struct target *target = context;

    for (uint32_t i = 0; i < target->lock_pool.capacity; i++) {
        if (target->lock_pool.generation[i] % 2 == 1 && target->locks[i].state == LOCK_WATCH &&
            target->clients[target->locks[i].client].channel == channel)
            ask_predecessor(target, i);
    }
    target->streams_retry_ns = peer_now_ns() + ETCD_STREAM_RETRY_MS * PEER_MS_NS;
}

/* ---- time ---------------------------------------------------------------------------------- */

static void lock_timer(struct target *target, uint32_t lock, uint64_t now_ns)
{
    struct etcd_lock *l = &target->locks[lock];

    if (l->state == LOCK_DELETE_AGAIN) {
        etcd_ask_delete(target, lock);
        return;
    }
    l->timed_out = now_ns >= l->wait_until_ns;
    if (l->state == LOCK_READ_AGAIN) {
        ask_predecessor(target, lock);
    } else if (l->state == LOCK_WATCH && l->timed_out) {
        etcd_watch_cancel(target, lock);
        delete_key(target, lock, TARGET_ACQUIRE, TARGET_TIMED_OUT);
    } /* else a call is under way, whose answer finds timed_out */
}

static void restart_streams(struct target *target)
{
    target->streams_retry_ns = PEER_NEVER_NS;
    for (uint32_t i = 0; i < target->channels; i++) {
        etcd_stream_restart(target->keepalives[i].stream);
        etcd_stream_restart(target->watches[i]);
    }
}

/* What is due; and when something is next. */
static uint64_t run_timers(struct target *target)
{
    uint64_t now_ns = peer_now_ns(), next_ns, other_ns;
    uint32_t id;

    while (peer_timers_due(&target->client_timers, now_ns, &id))
        etcd_lease_timer(target, id, now_ns);
    while (peer_timers_due(&target->lock_timers, now_ns, &id))
        lock_timer(target, id, now_ns);
    if (now_ns >= target->streams_retry_ns)
        restart_streams(target);
    next_ns = peer_timers_next_ns(&target->client_timers);
    other_ns = peer_timers_next_ns(&target->lock_timers);
    if (other_ns < next_ns)
        next_ns = other_ns;
    return target->streams_retry_ns < next_ns ? target->streams_retry_ns : next_ns;
}

static void etcd_turn(struct target *target, uint64_t until_ns)
{
    for (;;) {
        uint64_t next_ns = run_timers(target);
        unsigned events = etcd_rpc_turn(target->rpc, 0);

        if (peer_deliver(&target->base) || peer_now_ns() >= until_ns)
            return;
        if (events == 0) {
            etcd_rpc_turn(target->rpc, next_ns < until_ns ? next_ns : until_ns);
            if (peer_deliver(&target->base))
                return;
        }
    }
}

/* ---- commands ------------------------------------------------------------------------------ */

void etcd_lock_leased(struct target *target, uint32_t lock, bool granted)
{
    struct etcd_lock *l = &target->locks[lock];

    if (!granted) {
        finish(target, lock, TARGET_ACQUIRE, TARGET_UNREACHABLE);
        return;
    }
    l->lease = target->clients[l->client].lease;
    l->key_bytes = (uint16_t)(l->prefix_bytes + snprintf((char *)l->key + l->prefix_bytes,
                                                         sizeof(l->key) - l->prefix_bytes, "%llx",
                                                         (unsigned long long)l->lease));
    if (target->lock_service)
        etcd_ask_service(target, lock);
    else
        etcd_ask_enqueue(target, lock);
}

static bool etcd_acquire(struct target *target, uint32_t client,
                         const struct target_acquire *acquire, uint64_t tag)
{
    uint32_t lock;

    if (!peer_may_begin(&target->base) || !peer_pool_take(&target->lock_pool, &lock))
        return false;
    peer_begin(&target->base);
    struct etcd_lock *l = &target->locks[lock];
    *l = (struct etcd_lock){.state = LOCK_LEASE,
                            .acquire_tag = tag,
                            .wait = acquire->wait,
                            .wait_until_ns = PEER_NEVER_NS};
    link_lock(target, lock, client);
    int bytes =
        snprintf((char *)l->key, sizeof(l->key), ETCD_PREFIX, PEER_NAME_BYTES_MAX, acquire->name);
    l->prefix_bytes = (uint16_t)bytes;
    if (acquire->shared || (target->lock_service && !acquire->wait)) {
        finish(target, lock, TARGET_ACQUIRE, TARGET_REFUSED);
        return true;
    }
    if (acquire->wait && acquire->wait_ms != UINT32_MAX) {
        l->wait_until_ns = peer_now_ns() + acquire->wait_ms * PEER_MS_NS;
        peer_timer_set(&target->lock_timers, lock, l->wait_until_ns);
    }
    if (target->clients[client].lease)
        etcd_lock_leased(target, lock, true);
    else
        etcd_lease_grant(target, client);
    return true;
}

static bool etcd_release(struct target *target, target_lock handle, uint64_t tag)
{
    uint32_t lock;

    if (!peer_may_begin(&target->base))
        return false;
    peer_begin(&target->base);
    if (!peer_pool_find(&target->lock_pool, handle, &lock) ||
        target->locks[lock].state != LOCK_HELD) {
        peer_complete(&target->base, &(struct target_completion){
                                         .tag = tag, .op = TARGET_RELEASE, .status = TARGET_LOST});
        return true;
    }
    target->locks[lock].release_tag = tag;
    delete_key(target, lock, TARGET_RELEASE, TARGET_OK);
    return true;
}

void etcd_command_end(struct target *target, uint32_t command, enum target_status status,
                      uint32_t holders)
{
    const struct etcd_command *c = &target->commands[command];

    peer_complete(&target->base,
                  &(struct target_completion){
                      .tag = c->tag, .op = c->op, .status = status, .holders = holders});
    peer_pool_give(&target->command_pool, command);
}

static bool begin_command(struct target *target, enum target_op op, uint64_t tag, uint32_t *command)
{
    if (!peer_may_begin(&target->base) || !peer_pool_take(&target->command_pool, command))
        return false;
    peer_begin(&target->base);
    target->commands[*command] = (struct etcd_command){.op = op, .tag = tag};
    return true;
}

static bool etcd_renew(struct target *target, target_lock handle, uint64_t tag)
{
    uint32_t lock, command;

    if (!begin_command(target, TARGET_RENEW, tag, &command))
        return false;
    if (!peer_pool_find(&target->lock_pool, handle, &lock) ||
        target->locks[lock].state != LOCK_HELD)
        etcd_command_end(target, command, TARGET_LOST, 0);
    else if (!etcd_lease_renew(target, target->locks[lock].client,
                               peer_pool_handle(&target->command_pool, command)))
        etcd_command_end(target, command, TARGET_UNREACHABLE, 0);
    return true;
}

static void query_answered(void *context, uint64_t cookie, const struct etcd_answer *answer)
{
    struct target *target = context;
    uint32_t command;
    Etcdserverpb__RangeResponse *range = NULL;

    if (!peer_pool_find(&target->command_pool, cookie, &command))
        return;
    if (answer->code == ETCD_OK)
        range = etcdserverpb__range_response__unpack(NULL, answer->bytes_count, answer->bytes);
    if (range)
        etcd_command_end(target, command, TARGET_OK, (uint32_t)range->n_kvs);
    else
        etcd_command_end(target, command,
                         is_outage(answer->code) ? TARGET_UNREACHABLE : TARGET_REFUSED, 0);
    if (range)
        etcdserverpb__range_response__free_unpacked(range, NULL);
}

static bool etcd_query(struct target *target, uint32_t client, const char *name, bool stale,
                       uint64_t tag)
{
    uint32_t command;

    if (!begin_command(target, TARGET_QUERY, tag, &command))
        return false;
    etcd_ask_holder(target, client, name, stale, query_answered,
                    peer_pool_handle(&target->command_pool, command));
    return true;
}

/* ---- opening and closing ------------------------------------------------------------------- */

static void free_target(struct target *target)
{
    etcd_rpc_close(target->rpc);
    for (uint32_t i = 0; i < target->channels; i++)
        free(target->keepalives[i].sent);
    free(target->keepalives);
    free(target->watches);
    free(target->clients);
    free(target->locks);
    free(target->commands);
    peer_timers_free(&target->client_timers);
    peer_timers_free(&target->lock_timers);
    peer_pool_free(&target->lock_pool);
    peer_pool_free(&target->command_pool);
    peer_base_free(&target->base);
    free(target);
}

static struct target *make_target(const struct target_options *options)
{
    struct target *target = peer_alloc(1, sizeof(*target));
    uint32_t locks = options->locks_max + options->commands_max;

    peer_base_init(&target->base, options);
    target->channels = (options->clients + ETCD_CLIENTS_PER_CHANNEL - 1) / ETCD_CLIENTS_PER_CHANNEL;
    if (target->channels > ETCD_CHANNELS_MAX)
        target->channels = ETCD_CHANNELS_MAX;
    target->ttl_s = (options->ttl_ms + 999) / 1000;
    target->streams_retry_ns = PEER_NEVER_NS;
    target->clients = peer_alloc(options->clients, sizeof(*target->clients));
    peer_timers_init(&target->client_timers, options->clients);
    target->keepalives = peer_alloc(target->channels, sizeof(*target->keepalives));
    target->watches = peer_alloc(target->channels, sizeof(*target->watches));
    target->locks = peer_alloc(locks, sizeof(*target->locks));
    peer_pool_init(&target->lock_pool, locks);
    peer_timers_init(&target->lock_timers, locks);
    target->commands = peer_alloc(options->commands_max, sizeof(*target->commands));
    peer_pool_init(&target->command_pool, options->commands_max);
    for (uint32_t i = 0; i < options->clients; i++) {
        target->clients[i].channel = i % target->channels;
        target->clients[i].locks_first = ETCD_NONE;
    }
    return target;
}

static void grant_all(struct target *target)
{
    uint64_t until_ns = peer_now_ns() + OPEN_MS * PEER_MS_NS;
    uint32_t begun = 0;

    while (target->error[0] == '\0' &&
           (begun < target->base.options.clients || target->grants_under_way > 0)) {
        while (begun < target->base.options.clients && target->grants_under_way < OPEN_AT_ONCE)
            etcd_lease_grant(target, begun++);
        uint64_t next_ns = run_timers(target); /* the first leases may need to be kept alive */
        etcd_rpc_turn(target->rpc, next_ns < until_ns ? next_ns : until_ns);
        if (peer_now_ns() >= until_ns && target->error[0] == '\0')
            snprintf(target->error, target->error_bytes, "not every client had a lease in %d s",
                     OPEN_MS / 1000);
    }
}

static struct target *open_with(const struct target_options *options, char *error,
                                size_t error_bytes, bool lock_service)
{
    static const struct etcd_stream_class watches = {
        .method = "/etcdserverpb.Watch/Watch", .message = watch_message, .broken = watch_broken};
    struct peer_endpoint endpoints[PEER_ENDPOINTS_MAX];
    char reason[256] = "";
    int count = peer_endpoints(options->endpoints, endpoints, error, error_bytes);

    if (count < 0)
        return NULL;
    struct target *target = make_target(options);
    target->lock_service = lock_service;
    target->rpc = etcd_rpc_open(endpoints, (unsigned)count, target->channels);
    for (uint32_t i = 0; i < target->channels; i++) {
        etcd_leases_open(target, i);
        target->watches[i] = etcd_stream_open(target->rpc, i, &watches, target);
    }
    target->error = reason;
    target->error_bytes = sizeof(reason);
    grant_all(target);
    target->error = NULL;
    if (reason[0] != '\0') {
        snprintf(error, error_bytes, "etcd at %s: %s", options->endpoints, reason);
        free_target(target);
        return NULL;
    }
    return target;
}

static struct target *open_etcd(const struct target_options *options, char *error,
                                size_t error_bytes)
{
    return open_with(options, error, error_bytes, false);
}

static struct target *open_etcd_lock(const struct target_options *options, char *error,
                                     size_t error_bytes)
{
    return open_with(options, error, error_bytes, true);
}

static void etcd_close(struct target *target)
{
    uint64_t until_ns = peer_now_ns() + CLOSE_MS * PEER_MS_NS;
    uint32_t begun = 0;

    while ((begun < target->base.options.clients || target->revokes_under_way > 0) &&
           peer_now_ns() < until_ns) {
        while (begun < target->base.options.clients && target->revokes_under_way < OPEN_AT_ONCE)
            etcd_lease_revoke(target, begun++);
        if (target->revokes_under_way > 0)
            etcd_rpc_turn(target->rpc, until_ns);
    }
    free_target(target);
}

const struct target_class target_etcd = {
    .name = "etcd",
    .what = "etcd: a lease per client, concurrency.Mutex (transaction, watch on the predecessor)",
    .open = open_etcd,
    .acquire = etcd_acquire,
    .release = etcd_release,
    .renew = etcd_renew,
    .query = etcd_query,
    .turn = etcd_turn,
    .close = etcd_close,
};

const struct target_class target_etcd_lock = {
    .name = "etcd-lock",
    .what = "etcd: a lease per client, the server's lock service (Lock, Unlock); no try",
    .open = open_etcd_lock,
    .acquire = etcd_acquire,
    .release = etcd_release,
    .renew = etcd_renew,
    .query = etcd_query,
    .turn = etcd_turn,
    .close = etcd_close,
};
