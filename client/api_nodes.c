/* SPDX-License-Identifier: Apache-2.0
 *
 * What nodes say about themselves: every node is asked at once, page by page, until all have
 * answered or time is up.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/driver.h"

struct member {
    struct call call;
    bool started, over;
    uint32_t from;
    belay_node_info node;
    /* One of these, as asked. */
    belay_shard_info *shards;
    belay_worker_info *workers;
    uint32_t shards_count, workers_count;
};

struct round {
    belay_client *client;
    enum wire_op op;
    /* One page of a node's answer. False: no memory. */
    bool (*take)(struct member *member);
    pthread_cond_t cond;
    struct member *members;
    uint32_t members_count, members_max;
};

static void format_endpoint(const struct wire_address *address, char *text, size_t bytes)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    char host[INET6_ADDRSTRLEN] = "?";

    if (memcmp(address->ip, mapped, sizeof(mapped)) == 0) {
        inet_ntop(AF_INET, address->ip + 12, host, sizeof(host));
        snprintf(text, bytes, "%s:%u", host, address->port);
    } else {
        inet_ntop(AF_INET6, address->ip, host, sizeof(host));
        snprintf(text, bytes, "[%s]:%u", host, address->port);
    }
}

/* With the lock held: starts what is to be started, takes what has come. False: no memory. */
static bool advance(struct round *round)
{
    belay_client *client = round->client;
    uint32_t known = core_members_count(client->core);

    round->members_count = known < round->members_max ? known : round->members_max;
    for (uint32_t i = 0; i < round->members_count; i++) {
        struct member *member = &round->members[i];
        if (member->started && member->call.done && !member->over) {
            member->started = false;
            if (member->call.status != BELAY_OK)
                member->over = true;
            else if (!round->take(member))
                return false;
        }
        if (member->started || member->over)
            continue;
        format_endpoint(core_member(client->core, i), member->node.endpoint,
                        sizeof(member->node.endpoint));
        memset(&member->call, 0, offsetof(struct call, item));
        member->call.client = client;
        member->call.done_cond = &round->cond;
        member->started = true;
        belay_status status =
            core_ask_node(client->core, driver_now_ns(), round->op, i, member->from,
                          (uint64_t)(uintptr_t)&member->call, &member->call.ref);
        member->over = status != BELAY_OK;
    }
    return true;
}

static bool all_over(const struct round *round)
{
    for (uint32_t i = 0; i < round->members_count; i++) {
        if (!round->members[i].over)
            return false;
    }
    return true;
}

/* With the lock held at both ends. */
static belay_status run_round(struct round *round, const struct timespec *until)
{
    belay_client *client = round->client;
    belay_status status = BELAY_OK;
    int error = 0;

    while (status == BELAY_OK) {
        if (client->stopping)
            status = BELAY_CLOSED;
        else if (!advance(round))
            status = BELAY_NO_MEMORY;
        if (status != BELAY_OK || error != 0 || all_over(round))
            break;
        driver_unlock(client); /* sends */
        driver_hold(client);
        bool news = false;
        for (uint32_t i = 0; i < round->members_count; i++)
            news = news || (round->members[i].started && round->members[i].call.done &&
                            !round->members[i].over);
        if (!news)
            error = driver_wait(client, &round->cond, until);
    }
    for (uint32_t i = 0; i < round->members_count; i++) {
        struct member *member = &round->members[i];
        if (member->started && !member->call.done)
            core_cancel(client->core, driver_now_ns(), member->call.ref);
    }
    return status;
}

static void prepare(struct round *round, uint64_t timeout_ms, struct timespec *until)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&round->cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
    clock_gettime(CLOCK_MONOTONIC, until);
    if (timeout_ms > UINT32_MAX)
        timeout_ms = UINT32_MAX;
    uint64_t ns = (uint64_t)until->tv_nsec + timeout_ms % 1000 * 1000000;
    until->tv_sec += (time_t)(timeout_ms / 1000 + ns / 1000000000);
    until->tv_nsec = (long)(ns % 1000000000);
}

/* Asks everybody. What they said is in round->members, until round_end(). */
static belay_status ask_all(struct round *round, uint64_t timeout_ms)
{
    belay_client *client = round->client;
    struct timespec until;

    round->members_max = CORE_ENDPOINTS_MAX + 5;
    prepare(round, timeout_ms, &until);
    round->members = calloc(round->members_max, sizeof(*round->members));
    if (round->members == NULL)
        return BELAY_NO_MEMORY;
    driver_lock(client);
    client->inside++;
    belay_status status = run_round(round, &until);
    client->inside--;
    if (client->stopping)
        pthread_cond_broadcast(&client->changed);
    driver_unlock(client);
    return status;
}

static void round_end(struct round *round)
{
    for (uint32_t i = 0; round->members != NULL && i < round->members_max; i++) {
        for (uint32_t w = 0; w < round->members[i].workers_count; w++)
            free(round->members[i].workers[w].counters);
        free(round->members[i].workers);
        free(round->members[i].shards);
    }
    free(round->members);
    pthread_cond_destroy(&round->cond);
}

/* ---- shards ---------------------------------------------------------------------------------- */

static void copy_shard(belay_shard_info *to, uint16_t node, const struct wire_shard_status *from)
{
    *to = (belay_shard_info){
        .shard = from->shard,
        .node = node,
        .leader_node = from->leader_node,
        .role = from->role,
        .voters = from->voters,
        .learners = from->learners,
        .term = from->term,
        .last_index = from->last_index,
        .commit_index = from->commit_index,
        .applied_index = from->applied_index,
        .snapshot_index = from->snapshot_index,
        .digest = from->digest,
        .leases = from->leases,
        .resources = from->resources,
        .sessions = from->sessions,
        .waiters = from->waiters,
    };
}

static bool take_shards(struct member *member)
{
    const struct wire_node_status *page = (const struct wire_node_status *)member->call.item;
    const struct wire_shard_status *shards = (const struct wire_shard_status *)(page + 1);

    member->node.reachable = true;
    member->node.node = page->node;
    member->node.workers = page->workers;
    member->node.state = page->state;
    member->node.durability = page->durability;
    member->node.cluster_id = page->cluster_id;
    member->node.uptime_ns = page->uptime_ns;
    member->node.shards_count = page->shards;
    belay_shard_info *grown =
        realloc(member->shards, (member->shards_count + page->count) * sizeof(*grown) + 1);
    if (grown == NULL)
        return false;
    member->shards = grown;
    for (uint16_t i = 0; i < page->count; i++)
        copy_shard(&member->shards[member->shards_count++], page->node, &shards[i]);
    member->from = page->from + page->count;
    member->over = page->count == 0 || member->from >= page->shards;
    return true;
}

static belay_status gather_shards(const struct round *round, belay_cluster_info *info)
{
    size_t shards = 0;

    for (uint32_t i = 0; i < round->members_count; i++)
        shards += round->members[i].shards_count;
    info->nodes = calloc(round->members_count + 1, sizeof(*info->nodes));
    info->shards = calloc(shards + 1, sizeof(*info->shards));
    if (info->nodes == NULL || info->shards == NULL)
        return BELAY_NO_MEMORY;
    for (uint32_t i = 0; i < round->members_count; i++) {
        const struct member *member = &round->members[i];
        info->nodes[info->nodes_count++] = member->node;
        if (member->shards_count > 0)
            memcpy(info->shards + info->shards_count, member->shards,
                   member->shards_count * sizeof(*info->shards));
        info->shards_count += member->shards_count;
    }
    return BELAY_OK;
}

belay_status belay_cluster_status(belay_client *client, uint64_t timeout_ms,
                                  belay_cluster_info *info)
{
    struct round round = {.client = client, .op = WIRE_OP_STATUS, .take = take_shards};

    memset(info, 0, sizeof(*info));
    belay_status status = ask_all(&round, timeout_ms);
    if (status == BELAY_OK)
        status = gather_shards(&round, info);
    round_end(&round);
    if (status != BELAY_OK) {
        belay_cluster_info_free(info);
        return fail(status, "%s", belay_status_name(status));
    }
    return BELAY_OK;
}

void belay_cluster_info_free(belay_cluster_info *info)
{
    free(info->nodes);
    free(info->shards);
    memset(info, 0, sizeof(*info));
}

/* ---- workers --------------------------------------------------------------------------------- */

/* Those that this library has a name for. False: no memory. */
static bool copy_counters(belay_worker_info *to, const struct wire_worker_status *from)
{
    const struct wire_counter *counters = (const struct wire_counter *)(from + 1);

    to->counters = calloc(from->count + 1u, sizeof(*to->counters));
    if (to->counters == NULL)
        return false;
    for (uint16_t i = 0; i < from->count; i++) {
        const char *name = wire_count_name(counters[i].counter);
        const char *detail = wire_count_detail(counters[i].counter, counters[i].detail);
        if (name == NULL || (detail == NULL && counters[i].detail != 0))
            continue;
        to->counters[to->counters_count++] = (belay_counter){
            .name = name, .detail = detail != NULL ? detail : "", .value = counters[i].value};
    }
    return true;
}

static bool take_worker(struct member *member)
{
    const struct wire_worker_status *page = (const struct wire_worker_status *)member->call.item;

    member->node.reachable = true;
    member->node.node = page->node;
    member->node.workers = page->workers;
    member->node.uptime_ns = page->uptime_ns;
    member->over = page->worker + 1u >= page->workers;
    if (page->worker != member->from || page->worker >= page->workers)
        return true; /* not what was asked for: nothing to be put down */
    belay_worker_info *grown =
        realloc(member->workers, (member->workers_count + 1) * sizeof(*grown));
    if (grown == NULL)
        return false;
    member->workers = grown;
    belay_worker_info *worker = &grown[member->workers_count++];
    *worker = (belay_worker_info){.node = page->node,
                                  .worker = page->worker,
                                  .uptime_ns = page->uptime_ns,
                                  .cycles_per_second = page->cycles_per_second};
    member->from = page->worker + 1u;
    return copy_counters(worker, page);
}

static belay_status gather_workers(struct round *round, belay_workers_info *info)
{
    size_t workers = 0;

    for (uint32_t i = 0; i < round->members_count; i++)
        workers += round->members[i].workers_count;
    info->nodes = calloc(round->members_count + 1, sizeof(*info->nodes));
    info->workers = calloc(workers + 1, sizeof(*info->workers));
    if (info->nodes == NULL || info->workers == NULL)
        return BELAY_NO_MEMORY;
    for (uint32_t i = 0; i < round->members_count; i++) {
        struct member *member = &round->members[i];
        info->nodes[info->nodes_count++] = member->node;
        for (uint32_t w = 0; w < member->workers_count; w++)
            info->workers[info->workers_count++] = member->workers[w];
        member->workers_count = 0; /* their counters are the caller's now */
    }
    return BELAY_OK;
}

belay_status belay_workers_status(belay_client *client, uint64_t timeout_ms,
                                  belay_workers_info *info)
{
    struct round round = {.client = client, .op = WIRE_OP_WORKER, .take = take_worker};

    memset(info, 0, sizeof(*info));
    belay_status status = ask_all(&round, timeout_ms);
    if (status == BELAY_OK)
        status = gather_workers(&round, info);
    round_end(&round);
    if (status != BELAY_OK) {
        belay_workers_info_free(info);
        return fail(status, "%s", belay_status_name(status));
    }
    return BELAY_OK;
}

void belay_workers_info_free(belay_workers_info *info)
{
    for (size_t i = 0; i < info->workers_count; i++)
        free(info->workers[i].counters);
    free(info->nodes);
    free(info->workers);
    memset(info, 0, sizeof(*info));
}
