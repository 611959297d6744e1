/* SPDX-License-Identifier: Apache-2.0
 *
 * `belay status --workers`: what each worker of each node has counted.
 */
#include <stdio.h>
#include <string.h>

#include "client/cli/command.h"

/* As the loop goes through them (docs/operations.md). */
static const char *const stages[] = {"rx",     "decode", "propose", "log",  "ship",
                                     "commit", "apply",  "tx",      "other"};

static uint64_t counted(const belay_worker_info *worker, const char *name, const char *detail)
{
    for (size_t i = 0; i < worker->counters_count; i++)
        if (strcmp(worker->counters[i].name, name) == 0 &&
            strcmp(worker->counters[i].detail, detail) == 0)
            return worker->counters[i].value;
    return 0;
}

/* ---- table ----------------------------------------------------------------------------------- */

static void cell_count(struct table *table, uint64_t count)
{
    table_cell(table, "%llu", (unsigned long long)count);
}

/* Cycles of the stages whose requests are known. */
static void cells_cycles(struct table *table, const belay_worker_info *worker)
{
    uint64_t requests = counted(worker, "sampled_requests", ""), sum = 0;
    for (size_t i = 0; i < COUNT_OF(stages); i++)
        sum += counted(worker, "stage_cycles", stages[i]);
    if (requests == 0) {
        for (size_t i = 0; i < COUNT_OF(stages) + 1; i++)
            table_cell(table, "-");
        return;
    }
    cell_count(table, sum / requests);
    for (size_t i = 0; i < COUNT_OF(stages); i++)
        cell_count(table, counted(worker, "stage_cycles", stages[i]) / requests);
}

static void print_workers(const belay_workers_info *info)
{
    static const char *const headings[] = {
        "NODE",        "WORKER",    "BUSY",  "TURNS",  "LONGEST", "REQUESTS",
        "HANDED-OVER", "CYCLES/RQ", "RX",    "DECODE", "PROPOSE", "LOG",
        "SHIP",        "COMMIT",    "APPLY", "TX",     "OTHER"};
    struct table *table = table_new(headings, COUNT_OF(headings));
    for (size_t i = 0; i < info->workers_count; i++) {
        const belay_worker_info *worker = &info->workers[i];
        double uptime_ns = worker->uptime_ns > 0 ? (double)worker->uptime_ns : 1;
        table_cell(table, "%u", worker->node);
        table_cell(table, "%u", worker->worker);
        table_cell(table, "%.1f%%", 100 * (double)counted(worker, "busy_ns", "") / uptime_ns);
        cell_count(table, counted(worker, "turns", ""));
        table_cell(table, "%.1fms", (double)counted(worker, "turn_ns_max", "") / 1e6);
        cell_count(table, counted(worker, "requests", ""));
        cell_count(table, counted(worker, "handed_over", ""));
        cells_cycles(table, worker);
    }
    table_print_and_free(table);
}

/* Counters of what went wrong, or at least another way than usual. */
static bool is_a_loss(const belay_counter *counter)
{
    static const char *const names[] = {"challenges",
                                        "handed_over_dropped",
                                        "in_flight_dropped",
                                        "resent_answers",
                                        "unavailable",
                                        "pushes_repeated",
                                        "pushes_dropped",
                                        "rejected_client",
                                        "rejected_peer",
                                        "frames_lost",
                                        "frames"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (strcmp(counter->name, names[i]) == 0)
            return true;
    return strcmp(counter->name, "datagrams") == 0 &&
           (strcmp(counter->detail, "clients_unsent") == 0 ||
            strcmp(counter->detail, "peers_unsent") == 0);
}

static void print_losses(const belay_workers_info *info)
{
    static const char *const headings[] = {"NODE", "WORKER", "WHAT", "WHY", "COUNT"};
    struct table *table = NULL;
    for (size_t i = 0; i < info->workers_count; i++) {
        const belay_worker_info *worker = &info->workers[i];
        for (size_t c = 0; c < worker->counters_count; c++) {
            const belay_counter *counter = &worker->counters[c];
            if (!is_a_loss(counter))
                continue;
            if (table == NULL)
                table = table_new(headings, COUNT_OF(headings));
            table_cell(table, "%u", worker->node);
            table_cell(table, "%u", worker->worker);
            table_cell(table, "%s", counter->name);
            table_cell(table, "%s", counter->detail[0] != '\0' ? counter->detail : "-");
            cell_count(table, counter->value);
        }
    }
    if (table == NULL)
        return;
    putchar('\n');
    table_print_and_free(table);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* A counter with details becomes an object of them. */
static json_t *counters_json(const belay_worker_info *worker)
{
    json_t *object = json_object();
    for (size_t i = 0; i < worker->counters_count; i++) {
        const belay_counter *counter = &worker->counters[i];
        if (counter->detail[0] == '\0') {
            json_set_u64_text(object, counter->name, counter->value);
            continue;
        }
        json_t *details = json_object_get(object, counter->name);
        if (details == NULL) {
            details = json_object();
            json_object_set_new(object, counter->name, details);
        }
        json_set_u64_text(details, counter->detail, counter->value);
    }
    return object;
}

static int print_json(const belay_workers_info *info, int code)
{
    json_t *root = json_object(), *workers = json_array(), *silent = json_array();
    for (size_t i = 0; i < info->workers_count; i++) {
        const belay_worker_info *worker = &info->workers[i];
        json_t *object = json_object();
        json_set_number(object, "node", worker->node);
        json_set_number(object, "worker", worker->worker);
        json_set_number(object, "uptime_ms", worker->uptime_ns / 1000000);
        json_set_u64_text(object, "cycles_per_second", worker->cycles_per_second);
        json_object_set_new(object, "counters", counters_json(worker));
        json_array_append_new(workers, object);
    }
    for (size_t i = 0; i < info->nodes_count; i++)
        if (!info->nodes[i].reachable)
            json_array_append_new(silent, json_string(info->nodes[i].endpoint));
    json_object_set_new(root, "workers", workers);
    json_object_set_new(root, "unreachable", silent);
    return json_print_and_free(root, code);
}

/* ---- the command ----------------------------------------------------------------------------- */

int workers_status(const struct args_values *values, belay_client *client)
{
    belay_workers_info info;
    belay_status status = belay_workers_status(client, values->timeout_ms, &info);
    if (status != BELAY_OK)
        return command_report(status, NULL);
    int code = info.workers_count > 0 ? EXIT_CODE_OK : exit_code_of(BELAY_UNREACHABLE);
    if (values->output == ARGS_JSON) {
        code = print_json(&info, code);
    } else {
        print_workers(&info);
        print_losses(&info);
        for (size_t i = 0; i < info.nodes_count; i++)
            if (!info.nodes[i].reachable)
                printf("\n%s does not answer\n", info.nodes[i].endpoint);
    }
    belay_workers_info_free(&info);
    return code;
}
