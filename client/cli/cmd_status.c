/* SPDX-License-Identifier: Apache-2.0
 *
 * The cluster: its nodes, and each shard as its leader sees it. `--wait-ready` is what scripts wait
 * for before they start.
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/cli/command.h"

enum {
    READY_POLL_MS = 50,       /* between two looks at a cluster that is not ready */
    READY_LOOK_MS = 1000,     /* for one look: a node that is down must not use up all the time */
    READY_TIMEOUT_MS = 30000, /* without --timeout */
};

static const char *node_state_text(unsigned state)
{
    static const char *const names[] = {"starting", "running", "stepping-down", "stopping"};
    return state < COUNT_OF(names) ? names[state] : "unknown";
}

static const char *role_text(unsigned role)
{
    static const char *const names[] = {"follower", "candidate", "leader", "learner", "rebuilding"};
    return role < COUNT_OF(names) ? names[role] : "unknown";
}

/* The report of the shard's leader of the highest term: after an election an old leader may not
 * have noticed yet. NULL = none. */
static const belay_shard_info *leader_of(const belay_cluster_info *info, unsigned shard)
{
    const belay_shard_info *best = NULL;
    uint64_t newest_term = 0;
    for (size_t i = 0; i < info->shards_count; i++) {
        const belay_shard_info *report = &info->shards[i];
        if (report->shard != shard)
            continue;
        newest_term = report->term > newest_term ? report->term : newest_term;
        if (report->role == 2 && (!best || report->term > best->term))
            best = report;
    }
    /* A follower that has seen a newer term: that leader is not one any more. */
    return best && best->term == newest_term ? best : NULL;
}

static unsigned shards_of(const belay_cluster_info *info)
{
    unsigned shards = 0;
    for (size_t i = 0; i < info->nodes_count; i++)
        if (info->nodes[i].reachable && info->nodes[i].shards_count > shards)
            shards = info->nodes[i].shards_count;
    for (size_t i = 0; i < info->shards_count; i++)
        if (info->shards[i].shard + 1u > shards)
            shards = info->shards[i].shard + 1u;
    return shards;
}

/* A leader serves only after it committed something. */
static bool can_serve(const belay_shard_info *leader)
{
    return leader && leader->commit_index > 0;
}

/* An empty reason = ready: every node answers and runs, every shard has a leader whose first entry
 * is committed. */
static bool is_ready(const belay_cluster_info *info, char *reason, size_t reason_bytes)
{
    unsigned shards = shards_of(info), leaderless = 0;
    reason[0] = '\0';
    for (size_t i = 0; i < info->nodes_count && !reason[0]; i++) {
        const belay_node_info *node = &info->nodes[i];
        if (!node->reachable)
            snprintf(reason, reason_bytes, "node %s does not answer", node->endpoint);
        else if (node->state != 1)
            snprintf(reason, reason_bytes, "node %u (%s) is %s", node->node, node->endpoint,
                     node_state_text(node->state));
    }
    for (unsigned shard = 0; shard < shards; shard++)
        leaderless += !can_serve(leader_of(info, shard));
    if (!reason[0] && info->nodes_count == 0)
        snprintf(reason, reason_bytes, "no node is known");
    else if (!reason[0] && shards == 0)
        snprintf(reason, reason_bytes, "no shard is known yet");
    else if (!reason[0] && leaderless)
        snprintf(reason, reason_bytes, "%u of %u shards have no leader", leaderless, shards);
    return reason[0] == '\0';
}

/* ---- output ---------------------------------------------------------------------------------- */

static void print_nodes(const belay_cluster_info *info)
{
    static const char *const headings[] = {"NODE",    "ENDPOINT", "STATE",  "DURABILITY",
                                           "WORKERS", "LEADS",    "UPTIME", "CLUSTER"};
    struct table *table = table_new(headings, COUNT_OF(headings));
    unsigned shards = shards_of(info);
    for (size_t i = 0; i < info->nodes_count; i++) {
        const belay_node_info *node = &info->nodes[i];
        char uptime[24];
        if (!node->reachable) {
            table_cell(table, "-");
            table_cell(table, "%s", node->endpoint);
            table_cell(table, "unreachable");
            for (int rest = 3; rest < 8; rest++)
                table_cell(table, "-");
            continue;
        }
        unsigned leads = 0;
        for (unsigned shard = 0; shard < shards; shard++) {
            const belay_shard_info *leader = leader_of(info, shard);
            leads += leader && leader->node == node->node;
        }
        table_cell(table, "%u", node->node);
        table_cell(table, "%s", node->endpoint);
        table_cell(table, "%s", node_state_text(node->state));
        table_cell(table, "%s", node->durability ? "memory" : "disk");
        table_cell(table, "%u", node->workers);
        table_cell(table, "%u/%u", leads, shards);
        table_cell(table, "%s", duration_text(node->uptime_ns / 1000000, uptime));
        table_cell(table, "%016llx", (unsigned long long)node->cluster_id);
    }
    table_print_and_free(table);
}

static void print_shards(const belay_cluster_info *info)
{
    static const char *const headings[] = {
        "SHARD",  "LEADER",   "TERM",  "LAST",   "COMMITTED", "APPLIED", "SNAPSHOT",
        "VOTERS", "LEARNERS", "LOCKS", "LEASES", "WAITERS",   "SESSIONS"};
    struct table *table = table_new(headings, COUNT_OF(headings));
    unsigned shards = shards_of(info);
    for (unsigned shard = 0; shard < shards; shard++) {
        const belay_shard_info *leader = leader_of(info, shard);
        table_cell(table, "%u", shard);
        if (!leader) {
            table_cell(table, "none");
            for (size_t rest = 2; rest < COUNT_OF(headings); rest++)
                table_cell(table, "-");
            continue;
        }
        table_cell(table, "node %u", leader->node);
        table_cell(table, "%llu", (unsigned long long)leader->term);
        table_cell(table, "%llu", (unsigned long long)leader->last_index);
        table_cell(table, "%llu", (unsigned long long)leader->commit_index);
        table_cell(table, "%llu", (unsigned long long)leader->applied_index);
        table_cell(table, "%llu", (unsigned long long)leader->snapshot_index);
        table_cell(table, "%u", leader->voters);
        table_cell(table, "%u", leader->learners);
        table_cell(table, "%u", leader->resources);
        table_cell(table, "%u", leader->leases);
        table_cell(table, "%u", leader->waiters);
        table_cell(table, "%u", leader->sessions);
    }
    table_print_and_free(table);
}

static json_t *node_json(const belay_node_info *node)
{
    json_t *object = json_object();
    json_set_text(object, "endpoint", node->endpoint);
    json_object_set_new(object, "reachable", json_boolean(node->reachable));
    if (!node->reachable)
        return object;
    json_set_number(object, "node", node->node);
    json_set_text(object, "state", node_state_text(node->state));
    json_set_text(object, "durability", node->durability ? "memory" : "disk");
    json_set_number(object, "workers", node->workers);
    json_set_number(object, "shards_count", node->shards_count);
    json_set_u64_text(object, "cluster_id", node->cluster_id);
    json_set_number(object, "uptime_ms", node->uptime_ns / 1000000);
    return object;
}

static json_t *shard_json(const belay_shard_info *shard)
{
    json_t *object = json_object();
    json_set_number(object, "shard", shard->shard);
    json_set_number(object, "node", shard->node);
    json_set_number(object, "leader_node", shard->leader_node);
    json_set_text(object, "role", role_text(shard->role));
    json_set_number(object, "voters", shard->voters);
    json_set_number(object, "learners", shard->learners);
    json_set_u64_text(object, "term", shard->term);
    json_set_u64_text(object, "last_index", shard->last_index);
    json_set_u64_text(object, "commit_index", shard->commit_index);
    json_set_u64_text(object, "applied_index", shard->applied_index);
    json_set_u64_text(object, "snapshot_index", shard->snapshot_index);
    json_set_u64_text(object, "digest", shard->digest);
    json_set_number(object, "leases_count", shard->leases);
    json_set_number(object, "resources_count", shard->resources);
    json_set_number(object, "sessions_count", shard->sessions);
    json_set_number(object, "waiters_count", shard->waiters);
    return object;
}

static int print_status_json(const belay_cluster_info *info, bool ready, const char *reason,
                             int code)
{
    json_t *root = json_object(), *nodes = json_array(), *shards = json_array();
    json_object_set_new(root, "ready", json_boolean(ready));
    if (!ready)
        json_set_text(root, "not_ready_because", reason);
    for (size_t i = 0; i < info->nodes_count; i++)
        json_array_append_new(nodes, node_json(&info->nodes[i]));
    for (size_t i = 0; i < info->shards_count; i++)
        json_array_append_new(shards, shard_json(&info->shards[i]));
    json_object_set_new(root, "nodes", nodes);
    json_object_set_new(root, "shards", shards);
    return json_print_and_free(root, code);
}

/* ---- the command ----------------------------------------------------------------------------- */

static uint64_t monotonic_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

/* Looks until the cluster is ready or the time is over; the last look is left in *info. */
static belay_status wait_ready(belay_client *client, uint64_t timeout_ms, belay_cluster_info *info,
                               char *reason, size_t reason_bytes)
{
    uint64_t end_ms = monotonic_ms() + timeout_ms;
    for (;;) {
        uint64_t left_ms = end_ms > monotonic_ms() ? end_ms - monotonic_ms() : 1;
        belay_status status =
            belay_cluster_status(client, left_ms < READY_LOOK_MS ? left_ms : READY_LOOK_MS, info);
        bool ready = status == BELAY_OK && is_ready(info, reason, reason_bytes);
        if (ready ||
            (status != BELAY_OK && status != BELAY_UNREACHABLE && status != BELAY_TIMED_OUT))
            return status;
        if (status != BELAY_OK)
            snprintf(reason, reason_bytes, "no node answers");
        if (monotonic_ms() + READY_POLL_MS >= end_ms) {
            if (status == BELAY_OK)
                belay_cluster_info_free(info);
            return BELAY_TIMED_OUT;
        }
        if (status == BELAY_OK)
            belay_cluster_info_free(info);
        (void)poll(NULL, 0, READY_POLL_MS);
    }
}

static int print_status(const struct args_values *values, const belay_cluster_info *info)
{
    char reason[160];
    bool ready = is_ready(info, reason, sizeof reason);
    bool any_reachable = false;
    for (size_t i = 0; i < info->nodes_count; i++)
        any_reachable = any_reachable || info->nodes[i].reachable;
    int code = any_reachable ? EXIT_CODE_OK : exit_code_of(BELAY_UNREACHABLE);
    if (values->output == ARGS_JSON)
        return print_status_json(info, ready, reason, code);
    print_nodes(info);
    if (info->shards_count) {
        putchar('\n');
        print_shards(info);
    }
    printf("\n%s%s\n", ready ? "ready" : "not ready: ", reason);
    return code;
}

static int run_status(const struct args_values *values, const struct args_given *given)
{
    (void)given;
    belay_client *client;
    belay_cluster_info info;
    char reason[160] = "";

    if (values->workers && values->wait_ready) {
        struct parse_error error;
        parse_fail(&error, "--workers and --wait-ready do not go together");
        return command_usage_error("status", &error);
    }
    belay_status status = command_open(values, NULL, NULL, &client);
    if (status != BELAY_OK)
        return exit_code_of(status);
    if (values->workers) {
        int workers_code = workers_status(values, client);
        belay_client_close(client, command_close_ms(values));
        return workers_code;
    }
    if (values->wait_ready) {
        uint64_t timeout_ms = values->timeout_set ? values->timeout_ms : READY_TIMEOUT_MS;
        status = wait_ready(client, timeout_ms, &info, reason, sizeof reason);
    } else {
        status = belay_cluster_status(client, values->timeout_ms, &info);
    }
    int code;
    if (status == BELAY_OK) {
        code = print_status(values, &info);
        belay_cluster_info_free(&info);
    } else if (status == BELAY_TIMED_OUT && values->wait_ready) {
        fprintf(stderr, "belay: the cluster is not ready: %s; see the nodes' logs\n", reason);
        code = exit_code_of(status);
    } else {
        code = command_report(status, NULL);
    }
    belay_client_close(client, command_close_ms(values));
    return code;
}

static const struct args_option status_options[] = {
    {"wait-ready", 0, ARGS_FLAG, OPTION_AT(wait_ready), 0, NULL,
     "wait until all nodes answer and every shard has a leader (at most --timeout, 30s)"},
    {"workers", 0, ARGS_FLAG, OPTION_AT(workers), 0, NULL,
     "what each worker thread does and has dropped, and on what it spends its time"},
};

const struct args_command command_status = {
    .name = "status",
    .synopsis = "[--wait-ready | --workers] [--timeout TIME]",
    .summary = "nodes, shards, leaders, indexes, counts",
    .description =
        "Asks every node for itself. The shards are shown as their leaders see them; -o json\n"
        "has every node's report of every shard. With --workers instead: for each worker since\n"
        "its node was started how much of its time it had work (BUSY), and processor cycles per\n"
        "request by stage of its loop, out of one busy turn in 32.",
    .examples = "  belay status\n"
                "  belay status --wait-ready --timeout 30s\n"
                "  belay status -o json | jq .ready\n"
                "  belay status --workers\n",
    .options = status_options,
    .options_count = COUNT_OF(status_options),
    .positionals_min = 0,
    .positionals_max = 0,
    .run = run_status,
};
