/* SPDX-License-Identifier: Apache-2.0
 *
 * The requests of the etcd driver, one function each. The answers come to etcd_lock_answered().
 */
#include <stdio.h>
#include <string.h>

#include "bench/peers/etcd_state.h"
#include "etcd.pb-c.h"

static void call(struct target *target, uint32_t lock, const char *method,
                 const ProtobufCMessage *request, uint64_t deadline_ns)
{
    etcd_call(target->rpc, target->clients[target->locks[lock].client].channel, method, request,
              deadline_ns, etcd_lock_answered, target, peer_pool_handle(&target->lock_pool, lock));
}

static ProtobufCBinaryData key_of(struct etcd_lock *lock)
{
    return (ProtobufCBinaryData){.len = lock->key_bytes, .data = lock->key};
}

/* All keys with the prefix "name/": up to, and without, "name0" ('0' follows '/'). */
static void range_of(uint8_t *prefix, size_t prefix_bytes, uint8_t *range_end,
                     Etcdserverpb__RangeRequest *range)
{
    memcpy(range_end, prefix, prefix_bytes);
    range_end[prefix_bytes - 1]++;
    range->key = (ProtobufCBinaryData){.len = prefix_bytes, .data = prefix};
    range->range_end = (ProtobufCBinaryData){.len = prefix_bytes, .data = range_end};
    range->limit = 1;
    range->sort_target = ETCDSERVERPB__RANGE_REQUEST__SORT_TARGET__CREATE;
}

void etcd_ask_enqueue(struct target *target, uint32_t lock)
{
    struct etcd_lock *l = &target->locks[lock];
    uint8_t range_end[ETCD_KEY_BYTES_MAX];
    Etcdserverpb__Compare absent = ETCDSERVERPB__COMPARE__INIT, *compares[] = {&absent};
    Etcdserverpb__PutRequest put = ETCDSERVERPB__PUT_REQUEST__INIT;
    Etcdserverpb__RangeRequest own = ETCDSERVERPB__RANGE_REQUEST__INIT;
    Etcdserverpb__RangeRequest owner = ETCDSERVERPB__RANGE_REQUEST__INIT;
    Etcdserverpb__RequestOp do_put = ETCDSERVERPB__REQUEST_OP__INIT, do_own = do_put,
                            do_owner = do_put;
    Etcdserverpb__RequestOp *success[] = {&do_put, &do_owner}, *failure[] = {&do_own, &do_owner};
    Etcdserverpb__TxnRequest txn = ETCDSERVERPB__TXN_REQUEST__INIT;

    absent.target = ETCDSERVERPB__COMPARE__COMPARE_TARGET__CREATE;
    absent.target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_CREATE_REVISION;
    absent.key = own.key = put.key = key_of(l);
    put.lease = l->lease;
    range_of(l->key, l->prefix_bytes, range_end, &owner);
    owner.sort_order = ETCDSERVERPB__RANGE_REQUEST__SORT_ORDER__ASCEND;
    do_put.request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT;
    do_put.request_put = &put;
    do_own.request_case = do_owner.request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_RANGE;
    do_own.request_range = &own;
    do_owner.request_range = &owner;
    txn.n_compare = 1;
    txn.compare = compares;
    txn.n_success = txn.n_failure = 2;
    txn.success = success;
    txn.failure = failure;
    l->state = LOCK_TXN;
    call(target, lock, "/etcdserverpb.KV/Txn", &txn.base, etcd_call_deadline_ns());
}

void etcd_ask_service(struct target *target, uint32_t lock)
{
    struct etcd_lock *l = &target->locks[lock];
    Etcdserverpb__LockRequest request = ETCDSERVERPB__LOCK_REQUEST__INIT;

    request.name = (ProtobufCBinaryData){.len = l->prefix_bytes - 1U, .data = l->key};
    request.lease = l->lease;
    l->state = LOCK_SERVICE;
    call(target, lock, "/v3lockpb.Lock/Lock", &request.base, l->wait_until_ns);
}

void etcd_ask_predecessor(struct target *target, uint32_t lock)
{
    struct etcd_lock *l = &target->locks[lock];
    uint8_t range_end[ETCD_KEY_BYTES_MAX];
    Etcdserverpb__RangeRequest range = ETCDSERVERPB__RANGE_REQUEST__INIT;

    range_of(l->key, l->prefix_bytes, range_end, &range);
    range.sort_order = ETCDSERVERPB__RANGE_REQUEST__SORT_ORDER__DESCEND;
    range.max_create_revision = l->revision - 1;
    l->state = LOCK_PREDECESSOR;
    call(target, lock, "/etcdserverpb.KV/Range", &range.base, etcd_call_deadline_ns());
}

void etcd_ask_own_key(struct target *target, uint32_t lock)
{
    struct etcd_lock *l = &target->locks[lock];
    Etcdserverpb__RangeRequest range = ETCDSERVERPB__RANGE_REQUEST__INIT;

    range.key = key_of(l);
    l->state = LOCK_CHECK;
    call(target, lock, "/etcdserverpb.KV/Range", &range.base, etcd_call_deadline_ns());
}

void etcd_ask_delete(struct target *target, uint32_t lock)
{
    struct etcd_lock *l = &target->locks[lock];

    l->state = LOCK_DELETE;
    if (target->lock_service && l->op == TARGET_RELEASE) {
        Etcdserverpb__UnlockRequest unlock = ETCDSERVERPB__UNLOCK_REQUEST__INIT;

        unlock.key = key_of(l);
        call(target, lock, "/v3lockpb.Lock/Unlock", &unlock.base, etcd_call_deadline_ns());
        return;
    }
    Etcdserverpb__DeleteRangeRequest request = ETCDSERVERPB__DELETE_RANGE_REQUEST__INIT;
    request.key = key_of(l);
    call(target, lock, "/etcdserverpb.KV/DeleteRange", &request.base, etcd_call_deadline_ns());
}

void etcd_watch(struct target *target, uint32_t lock, const ProtobufCBinaryData *key,
                int64_t revision)
{
    struct etcd_lock *l = &target->locks[lock];
    Etcdserverpb__WatchCreateRequest create = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;
    Etcdserverpb__WatchRequest request = ETCDSERVERPB__WATCH_REQUEST__INIT;
    Etcdserverpb__WatchCreateRequest__FilterType no_puts =
        ETCDSERVERPB__WATCH_CREATE_REQUEST__FILTER_TYPE__NOPUT;

    l->watch_id = (uint64_t)(++target->watches_made & 0x7fffffffU) << 32 | lock;
    create.key = *key;
    create.start_revision = revision;
    create.watch_id = (int64_t)l->watch_id;
    create.n_filters = 1;
    create.filters = &no_puts;
    request.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
    request.create_request = &create;
    if (etcd_stream_send(target->watches[target->clients[l->client].channel], &request.base)) {
        l->state = LOCK_WATCH;
        return;
    }
    l->state = LOCK_READ_AGAIN; /* no stream now: look again when there is one */
    peer_timer_set(&target->lock_timers, lock, peer_now_ns() + ETCD_STREAM_RETRY_MS * PEER_MS_NS);
}

void etcd_watch_cancel(struct target *target, uint32_t lock)
{
    struct etcd_lock *l = &target->locks[lock];
    Etcdserverpb__WatchCancelRequest cancel = ETCDSERVERPB__WATCH_CANCEL_REQUEST__INIT;
    Etcdserverpb__WatchRequest request = ETCDSERVERPB__WATCH_REQUEST__INIT;

    cancel.watch_id = (int64_t)l->watch_id;
    request.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CANCEL_REQUEST;
    request.cancel_request = &cancel;
    (void)etcd_stream_send(target->watches[target->clients[l->client].channel], &request.base);
}

void etcd_ask_holder(struct target *target, uint32_t client, const char *name, bool stale,
                     etcd_answered *answered, uint64_t cookie)
{
    uint8_t prefix[ETCD_KEY_BYTES_MAX], range_end[ETCD_KEY_BYTES_MAX];
    Etcdserverpb__RangeRequest range = ETCDSERVERPB__RANGE_REQUEST__INIT;
    int bytes = snprintf((char *)prefix, sizeof(prefix), ETCD_PREFIX, PEER_NAME_BYTES_MAX, name);

    range_of(prefix, (size_t)bytes, range_end, &range);
    range.sort_order = ETCDSERVERPB__RANGE_REQUEST__SORT_ORDER__ASCEND;
    range.serializable = stale;
    etcd_call(target->rpc, target->clients[client].channel, "/etcdserverpb.KV/Range", &range.base,
              etcd_call_deadline_ns(), answered, target, cookie);
}
