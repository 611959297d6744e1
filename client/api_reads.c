/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads: one resource, all resources, the cluster. Answers come in pages, put together here.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/driver.h"

static belay_status read_name(const char *name_space, const char *name, bool needed,
                              struct core_name *to)
{
    size_t ns_bytes = name_space != NULL ? strlen(name_space) : 0;
    size_t name_bytes = name != NULL ? strlen(name) : 0;

    if (ns_bytes > WIRE_NAMESPACE_BYTES_MAX || name_bytes > WIRE_NAME_BYTES_MAX ||
        (needed && name_bytes == 0))
        return fail(BELAY_BAD_REQUEST, "name_space is 0 to %d bytes, name %d to %d bytes long",
                    WIRE_NAMESPACE_BYTES_MAX, needed, WIRE_NAME_BYTES_MAX);
    *to = (struct core_name){
        .name_space = (const uint8_t *)name_space,
        .name = (const uint8_t *)name,
        .namespace_bytes = (uint8_t)ns_bytes,
        .name_bytes = (uint8_t)name_bytes,
    };
    return BELAY_OK;
}

static belay_status read_page(belay_client *client, const struct core_read *read, struct call *call,
                              uint32_t *shards)
{
    pthread_cond_t cond;

    call_begin(client, call, &cond);
    belay_status started = client->stopping ? BELAY_CLOSED
                                            : core_read(client->core, driver_now_ns(), 0, read,
                                                        (uint64_t)(uintptr_t)call, &call->ref);
    belay_status status = call_wait(call, started);
    if (shards != NULL && status == BELAY_OK) {
        driver_lock(client);
        *shards = core_shards(client->core);
        driver_unlock(client);
    }
    return status;
}

/* ---- one resource ---------------------------------------------------------------------------- */

static void copy_party(belay_party *to, const struct wire_party *from)
{
    *to = (belay_party){
        .session = from->session,
        .token = from->token,
        .remaining_ms = from->remaining_ms,
        .position = from->position,
        .mode = (belay_mode)from->mode,
        .waiting = from->waiting,
        .priority = from->priority,
        .value_bytes = from->value_bytes,
    };
    memcpy(to->value, from + 1, from->value_bytes);
}

static bool add_parties(belay_resource_state *state, const struct wire_state *page)
{
    const uint8_t *at = (const uint8_t *)(page + 1);
    belay_party *grown =
        realloc(state->parties, (state->parties_count + page->parties) * sizeof(*grown) + 1);

    if (grown == NULL)
        return false;
    state->parties = grown;
    for (uint32_t i = 0; i < page->parties; i++) {
        const struct wire_party *party = (const struct wire_party *)at;
        copy_party(&state->parties[state->parties_count++], party);
        at += wire_pad8(sizeof(*party) + party->value_bytes);
    }
    state->index = page->index;
    state->age_ns = page->age_ns;
    state->delay_remaining_ms = page->delay_remaining_ms;
    state->holders = page->holders;
    state->waiters = page->waiters;
    return true;
}

belay_status belay_query(belay_client *client, const char *name_space, const char *name, bool stale,
                         belay_resource_state *state)
{
    struct core_read read = {.op = WIRE_OP_QUERY, .stale = stale};
    belay_status status = read_name(name_space, name, true, &read.name);

    memset(state, 0, sizeof(*state));
    do {
        struct call call;
        if (status == BELAY_OK)
            status = read_page(client, &read, &call, NULL);
        if (status != BELAY_OK)
            break;
        const struct wire_state *page = (const struct wire_state *)call.item;
        if (!add_parties(state, page))
            status = fail(BELAY_NO_MEMORY, "no memory for holders and waiters");
        read.cursor = page->cursor;
    } while (status == BELAY_OK && read.cursor != 0);
    if (status != BELAY_OK)
        belay_resource_state_free(state);
    return status;
}

void belay_resource_state_free(belay_resource_state *state)
{
    free(state->parties);
    memset(state, 0, sizeof(*state));
}

/* ---- all resources --------------------------------------------------------------------------- */

/* False: the caller has seen enough. */
static bool give_listed(const struct wire_list *page,
                        bool (*each)(void *context, const belay_listed *listed), void *context)
{
    const uint8_t *at = (const uint8_t *)(page + 1);

    for (uint32_t i = 0; i < page->count; i++) {
        const struct wire_listed *from = (const struct wire_listed *)at;
        const uint8_t *text = (const uint8_t *)(from + 1);
        char ns[WIRE_NAMESPACE_BYTES_MAX + 1] = {0};
        char name[WIRE_NAME_BYTES_MAX + 1] = {0};
        memcpy(ns, text, from->namespace_bytes);
        memcpy(name, text + from->namespace_bytes, from->name_bytes);
        belay_listed listed = {
            .name_space = ns,
            .name = name,
            .token = from->token,
            .holders = from->holders,
            .waiters = from->waiters,
            .mode = (belay_mode)from->mode,
        };
        if (!each(context, &listed))
            return false;
        at += wire_pad8(sizeof(*from) + from->namespace_bytes + from->name_bytes);
    }
    return true;
}

belay_status belay_list(belay_client *client, const char *name_space, const char *prefix,
                        bool stale, bool (*each)(void *context, const belay_listed *listed),
                        void *context)
{
    struct core_read read = {.op = WIRE_OP_LIST, .stale = stale};
    belay_status status = read_name(name_space, prefix, false, &read.name);
    uint32_t shards = 1;

    while (status == BELAY_OK && read.shard < shards) {
        struct call call;
        status = read_page(client, &read, &call, &shards);
        if (status != BELAY_OK)
            break;
        const struct wire_list *page = (const struct wire_list *)call.item;
        if (!give_listed(page, each, context))
            break;
        read.cursor = page->cursor;
        read.shard = (uint16_t)(read.shard + (page->cursor == 0));
    }
    return status;
}

/* ---- the cluster ----------------------------------------------------------------------------- */

struct member_status {
    struct call call;
    bool started, over;
    uint32_t from;
    belay_node_info node;
    belay_shard_info *shards; /* node.shards_count of them */
    uint32_t shards_count;
};

struct status_round {
    belay_client *client;
    pthread_cond_t cond;
    struct member_status *members;
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

/* One page of a node's answer. False: no memory. */
static bool take_page(struct member_status *member)
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

/* With the lock held: starts what is to be started, takes what has come. False: no memory. */
static bool advance(struct status_round *round)
{
    belay_client *client = round->client;
    uint32_t known = core_members_count(client->core);

    round->members_count = known < round->members_max ? known : round->members_max;
    for (uint32_t i = 0; i < round->members_count; i++) {
        struct member_status *member = &round->members[i];
        if (member->started && member->call.done && !member->over) {
            member->started = false;
            if (member->call.status != BELAY_OK)
                member->over = true;
            else if (!take_page(member))
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
        belay_status status = core_status(client->core, driver_now_ns(), i, member->from,
                                          (uint64_t)(uintptr_t)&member->call, &member->call.ref);
        member->over = status != BELAY_OK;
    }
    return true;
}

static bool all_over(const struct status_round *round)
{
    for (uint32_t i = 0; i < round->members_count; i++) {
        if (!round->members[i].over)
            return false;
    }
    return true;
}

/* With the lock held at both ends. */
static belay_status run_round(struct status_round *round, const struct timespec *until)
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
        struct member_status *member = &round->members[i];
        if (member->started && !member->call.done)
            core_cancel(client->core, driver_now_ns(), member->call.ref);
    }
    return status;
}

static belay_status gather(const struct status_round *round, belay_cluster_info *info)
{
    size_t shards = 0;

    for (uint32_t i = 0; i < round->members_count; i++)
        shards += round->members[i].shards_count;
    info->nodes = calloc(round->members_count + 1, sizeof(*info->nodes));
    info->shards = calloc(shards + 1, sizeof(*info->shards));
    if (info->nodes == NULL || info->shards == NULL)
        return BELAY_NO_MEMORY;
    for (uint32_t i = 0; i < round->members_count; i++) {
        const struct member_status *member = &round->members[i];
        info->nodes[info->nodes_count++] = member->node;
        if (member->shards_count > 0)
            memcpy(info->shards + info->shards_count, member->shards,
                   member->shards_count * sizeof(*info->shards));
        info->shards_count += member->shards_count;
    }
    return BELAY_OK;
}

static void prepare(struct status_round *round, uint64_t timeout_ms, struct timespec *until)
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

belay_status belay_cluster_status(belay_client *client, uint64_t timeout_ms,
                                  belay_cluster_info *info)
{
    struct status_round round = {.client = client, .members_max = CORE_ENDPOINTS_MAX + 5};
    struct timespec until;

    memset(info, 0, sizeof(*info));
    round.members = calloc(round.members_max, sizeof(*round.members));
    if (round.members == NULL)
        return fail(BELAY_NO_MEMORY, "no memory for the nodes' answers");
    prepare(&round, timeout_ms, &until);
    driver_lock(client);
    client->inside++;
    belay_status status = run_round(&round, &until);
    client->inside--;
    if (client->stopping)
        pthread_cond_broadcast(&client->changed);
    driver_unlock(client);
    if (status == BELAY_OK)
        status = gather(&round, info);
    for (uint32_t i = 0; i < round.members_max; i++)
        free(round.members[i].shards);
    free(round.members);
    pthread_cond_destroy(&round.cond);
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
