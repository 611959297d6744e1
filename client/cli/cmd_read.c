/* SPDX-License-Identifier: Apache-2.0
 *
 * Who holds, who waits, what there is: holders, queue, list.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/command.h"

static const struct args_option read_options[] = {
    {"stale", 0, ARGS_FLAG, OPTION_AT(stale), 0, NULL,
     "let any replica answer, without a round trip to the leader's majority"},
};

static json_t *party_json(const belay_party *party)
{
    json_t *object = json_object();
    if (party->waiting) {
        json_set_number(object, "position", party->position);
        json_object_set_new(object, "upgrader", json_boolean(party->waiting == 2));
    } else {
        json_set_u64_text(object, "token", party->token);
    }
    json_set_text(object, "mode", mode_text(party->mode));
    if (party->remaining_ms != UINT64_MAX)
        json_set_number(object, "remaining_ms", party->remaining_ms);
    json_set_number(object, "priority", party->priority);
    json_set_u64_text(object, "session", party->session);
    json_set_bytes(object, "value", party->value, party->value_bytes);
    return object;
}

static int print_parties_json(const char *name, const belay_resource_state *state, bool waiting)
{
    json_t *root = json_object(), *parties = json_array();
    json_set_bytes(root, "name", name, strlen(name));
    json_set_number(root, "holders_count", state->holders);
    json_set_number(root, "waiters_count", state->waiters);
    json_set_number(root, "delay_remaining_ms", state->delay_remaining_ms);
    json_set_u64_text(root, "index", state->index);
    json_set_u64_text(root, "age_ns", state->age_ns);
    for (size_t i = 0; i < state->parties_count; i++)
        if ((state->parties[i].waiting != 0) == waiting)
            json_array_append_new(parties, party_json(&state->parties[i]));
    json_object_set_new(root, waiting ? "queue" : "holders", parties);
    return json_print_and_free(root, EXIT_CODE_OK);
}

static void print_holders(const belay_resource_state *state)
{
    static const char *const headings[] = {"TOKEN", "MODE", "REMAINING", "VALUE"};
    struct table *table = table_new(headings, COUNT_OF(headings));
    for (size_t i = 0; i < state->parties_count; i++) {
        const belay_party *party = &state->parties[i];
        char remaining[24], value[PRINTABLE_BYTES];
        if (party->waiting)
            continue;
        table_cell(table, "%llu", (unsigned long long)party->token);
        table_cell(table, "%s", mode_text(party->mode));
        table_cell(table, "%s", duration_text(party->remaining_ms, remaining));
        table_cell(table, "%s", printable(party->value, party->value_bytes, value, sizeof value));
    }
    table_print_and_free(table);
    if (state->delay_remaining_ms) {
        char remaining[24];
        printf("closed for another %s after an expiry (lock delay)\n",
               duration_text(state->delay_remaining_ms, remaining));
    }
}

static void print_queue(const belay_resource_state *state)
{
    static const char *const headings[] = {"POSITION", "MODE", "PRIORITY", "GIVES-UP-IN", "VALUE"};
    struct table *table = table_new(headings, COUNT_OF(headings));
    for (size_t i = 0; i < state->parties_count; i++) {
        const belay_party *party = &state->parties[i];
        char remaining[24], value[PRINTABLE_BYTES];
        if (!party->waiting)
            continue;
        table_cell(table, "%u", party->position);
        table_cell(table, "%s%s", mode_text(party->mode), party->waiting == 2 ? " (upgrade)" : "");
        table_cell(table, "%u", party->priority);
        table_cell(table, "%s", duration_text(party->remaining_ms, remaining));
        table_cell(table, "%s", printable(party->value, party->value_bytes, value, sizeof value));
    }
    table_print_and_free(table);
}

static int run_query(const char *command, const struct args_values *values,
                     const struct args_given *given, bool waiting)
{
    const char *name = given->positionals[0];
    belay_client *client;
    belay_resource_state state;

    if (!command_check(command, parse_name, name))
        return EXIT_CODE_USAGE;
    belay_status status = command_open(values, NULL, NULL, &client);
    if (status != BELAY_OK)
        return exit_code_of(status);
    status = belay_query(client, values->name_space, name, values->stale, &state);
    int code = command_report(status, name);
    if (status == BELAY_OK) {
        if (values->output == ARGS_JSON)
            code = print_parties_json(name, &state, waiting);
        else if (waiting)
            print_queue(&state);
        else
            print_holders(&state);
        belay_resource_state_free(&state);
    }
    belay_client_close(client, command_close_ms(values));
    return code;
}

static int run_holders(const struct args_values *values, const struct args_given *given)
{
    return run_query("holders", values, given, false);
}

const struct args_command command_holders = {
    .name = "holders",
    .synopsis = "NAME [--stale]",
    .summary = "who holds a lock",
    .description = "Prints a line per holder. A free lock has none, which is no error.",
    .examples = "  belay holders nightly-backup\n"
                "  belay holders nightly-backup -o json | jq -r '.holders[].token'\n",
    .options = read_options,
    .options_count = COUNT_OF(read_options),
    .positionals_min = 1,
    .positionals_max = 1,
    .run = run_holders,
};

static int run_queue(const struct args_values *values, const struct args_given *given)
{
    return run_query("queue", values, given, true);
}

const struct args_command command_queue = {
    .name = "queue",
    .synopsis = "NAME [--stale]",
    .summary = "who waits for a lock",
    .description = "Prints a line per waiter, in the order in which they will be granted.",
    .examples = "  belay queue nightly-backup\n",
    .options = read_options,
    .options_count = COUNT_OF(read_options),
    .positionals_min = 1,
    .positionals_max = 1,
    .run = run_queue,
};

/* ---- list ------------------------------------------------------------------------------------ */

struct listed {
    char *name;
    uint64_t token;
    uint32_t holders, waiters;
    belay_mode mode;
};

struct listing {
    struct listed *items;
    size_t count, max;
    bool out_of_memory;
};

static bool collect(void *context, const belay_listed *listed)
{
    struct listing *listing = context;
    if (listing->count == listing->max) {
        size_t max = listing->max ? 2 * listing->max : 256;
        struct listed *items = realloc(listing->items, max * sizeof *items);
        listing->out_of_memory = !items;
        if (!items)
            return false;
        listing->items = items;
        listing->max = max;
    }
    char *name = strdup(listed->name);
    listing->out_of_memory = !name;
    if (!name)
        return false;
    listing->items[listing->count++] = (struct listed){.name = name,
                                                       .token = listed->token,
                                                       .holders = listed->holders,
                                                       .waiters = listed->waiters,
                                                       .mode = listed->mode};
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct listed *)a)->name, ((const struct listed *)b)->name);
}

static int print_list_json(const struct listing *listing)
{
    json_t *root = json_object(), *locks = json_array();
    for (size_t i = 0; i < listing->count; i++) {
        const struct listed *item = &listing->items[i];
        json_t *object = json_object();
        json_set_bytes(object, "name", item->name, strlen(item->name));
        json_set_text(object, "mode", mode_text(item->mode));
        json_set_number(object, "holders_count", item->holders);
        json_set_number(object, "waiters_count", item->waiters);
        if (item->token)
            json_set_u64_text(object, "token", item->token);
        json_array_append_new(locks, object);
    }
    json_object_set_new(root, "locks", locks);
    return json_print_and_free(root, EXIT_CODE_OK);
}

static void print_list(const struct listing *listing)
{
    static const char *const headings[] = {"NAME", "MODE", "HOLDERS", "WAITERS", "TOKEN"};
    struct table *table = table_new(headings, COUNT_OF(headings));
    for (size_t i = 0; i < listing->count; i++) {
        const struct listed *item = &listing->items[i];
        char name[PRINTABLE_BYTES];
        table_cell(table, "%s", printable(item->name, strlen(item->name), name, sizeof name));
        table_cell(table, "%s", mode_text(item->mode));
        table_cell(table, "%u", item->holders);
        table_cell(table, "%u", item->waiters);
        if (item->token)
            table_cell(table, "%llu", (unsigned long long)item->token);
        else
            table_cell(table, "-");
    }
    table_print_and_free(table);
}

static int run_list(const struct args_values *values, const struct args_given *given)
{
    const char *prefix = given->positionals_count ? given->positionals[0] : "";
    struct listing listing = {0};
    belay_client *client;

    if (!command_check("list", parse_prefix, prefix))
        return EXIT_CODE_USAGE;
    belay_status status = command_open(values, NULL, NULL, &client);
    if (status != BELAY_OK)
        return exit_code_of(status);
    status = belay_list(client, values->name_space, prefix, values->stale, collect, &listing);
    int code = command_report(status, NULL);
    if (status == BELAY_OK && listing.out_of_memory)
        code = command_report(BELAY_NO_MEMORY, NULL);
    else if (status == BELAY_OK) {
        if (listing.count)
            qsort(listing.items, listing.count, sizeof *listing.items, by_name);
        if (values->output == ARGS_JSON)
            code = print_list_json(&listing);
        else
            print_list(&listing);
    }
    for (size_t i = 0; i < listing.count; i++)
        free(listing.items[i].name);
    free(listing.items);
    belay_client_close(client, command_close_ms(values));
    return code;
}

const struct args_command command_list = {
    .name = "list",
    .synopsis = "[PREFIX] [--stale]",
    .summary = "the locks that are held, waited for, or closed for a delay",
    .description =
        "Lists one name space, sorted by name; with PREFIX only names that start with it.",
    .examples = "  belay list\n"
                "  belay list jobs/ --namespace batch\n",
    .options = read_options,
    .options_count = COUNT_OF(read_options),
    .positionals_min = 0,
    .positionals_max = 1,
    .run = run_list,
};
