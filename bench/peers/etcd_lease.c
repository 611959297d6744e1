/* SPDX-License-Identifier: Apache-2.0
 *
 * The clients of the etcd driver: each has one lease, as a session of clientv3's package
 * concurrency has, kept alive every third of its time on one stream per channel. A lease that ran
 * out is replaced when its client acquires again.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench/peers/etcd_state.h"
#include "etcd.pb-c.h"

static void arm(struct target *target, uint32_t client)
{
    const struct etcd_client *c = &target->clients[client];
    uint64_t due_ns = c->deadline_ns;

    if (target->base.options.renew && c->renew_ns < due_ns)
        due_ns = c->renew_ns;
    peer_timer_set(&target->client_timers, client, due_ns);
}

static void prolong(struct target *target, uint32_t client, uint64_t sent_ns, int64_t ttl_s)
{
    struct etcd_client *c = &target->clients[client];

    c->ttl_ns = (uint64_t)ttl_s * UINT64_C(1000000000);
    c->deadline_ns = sent_ns + c->ttl_ns;
    arm(target, client);
}

/* ---- granting and revoking ----------------------------------------------------------------- */

/* Tells the acquires that waited for the lease. */
static void leased(struct target *target, uint32_t client)
{
    uint32_t next;

    for (uint32_t i = target->clients[client].locks_first; i != ETCD_NONE; i = next) {
        next = target->locks[i].next;
        if (target->locks[i].state == LOCK_LEASE)
            etcd_lock_leased(target, i, target->clients[client].lease != 0);
    }
}

static void granted(void *context, uint64_t cookie, const struct etcd_answer *answer)
{
    struct target *target = context;
    uint32_t client = (uint32_t)cookie;
    struct etcd_client *c = &target->clients[client];
    Etcdserverpb__LeaseGrantResponse *grant = NULL;

    target->grants_under_way--;
    c->granting = false;
    if (answer->code == ETCD_OK)
        grant =
            etcdserverpb__lease_grant_response__unpack(NULL, answer->bytes_count, answer->bytes);
    if (grant && grant->id != 0) {
        c->lease = grant->id;
        c->renew_ns = c->granting_since_ns + (uint64_t)grant->ttl * UINT64_C(1000000000) / 3;
        prolong(target, client, c->granting_since_ns, grant->ttl);
    } else if (target->error && target->error[0] == '\0') {
        snprintf(target->error, target->error_bytes, "no lease: %s (gRPC status %d)",
                 answer->details, answer->code);
    }
    if (grant)
        etcdserverpb__lease_grant_response__free_unpacked(grant, NULL);
    leased(target, client);
}

void etcd_lease_grant(struct target *target, uint32_t client)
{
    struct etcd_client *c = &target->clients[client];
    Etcdserverpb__LeaseGrantRequest request = ETCDSERVERPB__LEASE_GRANT_REQUEST__INIT;

    if (c->granting)
        return;
    c->granting = true;
    c->granting_since_ns = peer_now_ns();
    target->grants_under_way++;
    request.ttl = target->ttl_s;
    etcd_call(target->rpc, c->channel, "/etcdserverpb.Lease/LeaseGrant", &request.base,
              etcd_call_deadline_ns(), granted, target, client);
}

static void revoked(void *context, uint64_t cookie, const struct etcd_answer *answer)
{
    struct target *target = context;

    (void)cookie;
    (void)answer; /* a lease that cannot be revoked runs out */
    target->revokes_under_way--;
}

void etcd_lease_revoke(struct target *target, uint32_t client)
{
    struct etcd_client *c = &target->clients[client];
    Etcdserverpb__LeaseRevokeRequest request = ETCDSERVERPB__LEASE_REVOKE_REQUEST__INIT;

    if (c->lease == 0)
        return;
    target->revokes_under_way++;
    request.id = c->lease;
    c->lease = 0;
    etcd_call(target->rpc, c->channel, "/etcdserverpb.Lease/LeaseRevoke", &request.base,
              etcd_call_deadline_ns(), revoked, target, 0);
}

void etcd_lease_gone(struct target *target, uint32_t client, int64_t lease)
{
    struct etcd_client *c = &target->clients[client];
    uint32_t next;

    if (c->lease != lease || lease == 0)
        return;
    c->lease = 0;
    peer_timer_clear(&target->client_timers, client);
    for (uint32_t i = c->locks_first; i != ETCD_NONE; i = next) {
        next = target->locks[i].next;
        if (target->locks[i].state == LOCK_HELD)
            etcd_lock_lost(target, i); /* one that is still acquired finds out by itself */
    }
}

/* ---- keeping alive ------------------------------------------------------------------------- */

static void remember(struct etcd_keepalive *keepalive, const struct etcd_renewal *renewal)
{
    uint32_t count = keepalive->end - keepalive->begin;

    if (count == keepalive->capacity) {
        struct etcd_renewal *more = peer_alloc((size_t)count * 2, sizeof(*more));

        for (uint32_t i = 0; i < count; i++)
            more[i] = keepalive->sent[(keepalive->begin + i) & (count - 1)];
        free(keepalive->sent);
        keepalive->sent = more;
        keepalive->capacity = count * 2;
        keepalive->begin = 0;
        keepalive->end = count;
    }
    keepalive->sent[keepalive->end++ & (keepalive->capacity - 1)] = *renewal;
}

bool etcd_lease_renew(struct target *target, uint32_t client, uint64_t command)
{
    struct etcd_client *c = &target->clients[client];
    struct etcd_keepalive *keepalive = &target->keepalives[c->channel];
    Etcdserverpb__LeaseKeepAliveRequest request = ETCDSERVERPB__LEASE_KEEP_ALIVE_REQUEST__INIT;

    request.id = c->lease;
    if (!etcd_stream_send(keepalive->stream, &request.base))
        return false;
    remember(keepalive, &(struct etcd_renewal){.client = client,
                                               .lease = c->lease,
                                               .sent_ns = peer_now_ns(),
                                               .command = command});
    return true;
}

void etcd_lease_timer(struct target *target, uint32_t client, uint64_t now_ns)
{
    struct etcd_client *c = &target->clients[client];

    if (now_ns >= c->deadline_ns) {
        etcd_lease_gone(target, client, c->lease);
        return;
    }
    if (etcd_lease_renew(target, client, 0))
        c->renew_ns = now_ns + c->ttl_ns / 3;
    else
        c->renew_ns = now_ns + ETCD_STREAM_RETRY_MS * PEER_MS_NS;
    arm(target, client);
}

static void renewed(struct target *target, const struct etcd_renewal *renewal,
                    enum target_status status, int64_t ttl_s)
{
    struct etcd_client *c = &target->clients[renewal->client];
    uint32_t command;

    if (status == TARGET_OK && c->lease == renewal->lease)
        prolong(target, renewal->client, renewal->sent_ns, ttl_s);
    else if (status == TARGET_LOST)
        etcd_lease_gone(target, renewal->client, renewal->lease);
    if (renewal->command && peer_pool_find(&target->command_pool, renewal->command, &command))
        etcd_command_end(target, command, status, 0);
}

static void keepalive_message(void *context, uint32_t channel, const uint8_t *bytes, size_t count)
{
    struct target *target = context;
    struct etcd_keepalive *keepalive = &target->keepalives[channel];
    Etcdserverpb__LeaseKeepAliveResponse *answer =
        etcdserverpb__lease_keep_alive_response__unpack(NULL, count, bytes);

    if (!answer)
        return;
    if (keepalive->begin != keepalive->end) {
        struct etcd_renewal renewal =
            keepalive->sent[keepalive->begin++ & (keepalive->capacity - 1)];

        renewed(target, &renewal, answer->ttl > 0 ? TARGET_OK : TARGET_LOST, answer->ttl);
    }
    etcdserverpb__lease_keep_alive_response__free_unpacked(answer, NULL);
}

static void keepalive_broken(void *context, uint32_t channel)
{
    struct target *target = context;
    struct etcd_keepalive *keepalive = &target->keepalives[channel];

    while (keepalive->begin != keepalive->end) {
        struct etcd_renewal renewal =
            keepalive->sent[keepalive->begin++ & (keepalive->capacity - 1)];
        struct etcd_client *c = &target->clients[renewal.client];

        renewed(target, &renewal, TARGET_UNREACHABLE, 0);
        if (c->lease == renewal.lease) { /* lost on the way: again as soon as there is a stream */
            c->renew_ns = peer_now_ns();
            arm(target, renewal.client);
        }
    }
    target->streams_retry_ns = peer_now_ns() + ETCD_STREAM_RETRY_MS * PEER_MS_NS;
}

void etcd_leases_open(struct target *target, uint32_t channel)
{
    static const struct etcd_stream_class class = {.method = "/etcdserverpb.Lease/LeaseKeepAlive",
                                                   .message = keepalive_message,
                                                   .broken = keepalive_broken};
    struct etcd_keepalive *keepalive = &target->keepalives[channel];

    keepalive->capacity = 64;
    keepalive->sent = peer_alloc(keepalive->capacity, sizeof(struct etcd_renewal));
    keepalive->stream = etcd_stream_open(target->rpc, channel, &class, target);
}
