/* SPDX-License-Identifier: Apache-2.0
 *
 * The `belay` command: finds the command's table, parses by it, runs it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/command.h"

static const struct args_command *const commands[] = {
    &command_lock,          &command_acquire, &command_release, &command_renew,
    &command_convert,       &command_holders, &command_queue,   &command_list,
    &command_force_release, &command_status,  &command_fence,   &command_store,
    &command_check_host,
};

static const struct args_command *find_command(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(commands); i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static void print_overview(FILE *stream)
{
    fprintf(stream, "usage: belay [global options] COMMAND [arguments]\n\n"
                    "Locks, leases and fencing tokens from a Belay cluster.\n\ncommands:\n");
    for (size_t i = 0; i < COUNT_OF(commands); i++)
        fprintf(stream, "  %-15s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(stream, "  %-15s %s\n", "version", "print the version");
    fprintf(stream, "  %-15s %s\n", "help [COMMAND]", "this text, or all about one command");
    fprintf(stream, "\nglobal options:\n");
    args_print_options(stream, args_global_options, args_global_options_count);
    fprintf(stream, "\nTIME is digits and a unit: 500ms, 10s, 2m, 1h.\n\nexit codes:\n");
    exit_codes_print(stream);
}

static void print_command(FILE *stream, const struct args_command *command)
{
    fprintf(stream, "usage: belay %s %s\n\n%s\n", command->name, command->synopsis,
            command->description);
    if (command->options_count) {
        fprintf(stream, "\noptions:\n");
        args_print_options(stream, command->options, command->options_count);
    }
    fprintf(stream, "\nglobal options:\n");
    args_print_options(stream, args_global_options, args_global_options_count);
    fprintf(stream, "\nexamples:\n%s\nexit codes:\n", command->examples);
    exit_codes_print(stream);
}

/* Each word of `belay help --words COMMAND` on a line of its own: what shell completion offers. */
static void print_words(const struct args_command *command)
{
    if (!command) {
        for (size_t i = 0; i < COUNT_OF(commands); i++)
            puts(commands[i]->name);
        puts("version\nhelp");
    }
    for (size_t i = 0; i < args_global_options_count; i++)
        printf("--%s\n", args_global_options[i].name);
    for (size_t i = 0; command && i < command->options_count; i++)
        printf("--%s\n", command->options[i].name);
}

static int unknown_command(const char *name)
{
    struct parse_error error;
    parse_fail(&error, "'%.60s' is not a command", name);
    return command_usage_error(NULL, &error);
}

static int run_help(char **words)
{
    bool only_words = words[0] && strcmp(words[0], "--words") == 0;
    words += only_words;
    const struct args_command *command = words[0] ? find_command(words[0]) : NULL;
    if (words[0] && !command && !(only_words || strcmp(words[0], "version") == 0))
        return unknown_command(words[0]);
    if (only_words)
        print_words(command);
    else if (command)
        print_command(stdout, command);
    else
        print_overview(stdout);
    return fflush(stdout) == 0 ? EXIT_CODE_OK : exit_code_of(BELAY_SYSTEM);
}

static int run_version(const struct args_values *values)
{
    if (values->output != ARGS_JSON) {
        printf("belay %s (library %s)\n", BELAY_VERSION_STRING, belay_version());
        return fflush(stdout) == 0 ? EXIT_CODE_OK : exit_code_of(BELAY_SYSTEM);
    }
    json_t *root = json_object();
    json_set_text(root, "version", BELAY_VERSION_STRING);
    json_set_text(root, "library", belay_version());
    return json_print_and_free(root, EXIT_CODE_OK);
}

/* Options from the environment are checked like those from the command line. */
static bool take_environment(struct args_values *values, struct parse_error *error)
{
    struct parse_error reason = {""};
    const char *endpoints = getenv("BELAY_ENDPOINTS");
    const char *name_space = getenv("BELAY_NAMESPACE");
    if (endpoints && endpoints[0]) {
        if (!parse_endpoints(endpoints, &reason)) {
            parse_fail(error, "BELAY_ENDPOINTS: %s", reason.text);
            return false;
        }
        values->endpoints = endpoints;
    }
    if (name_space && name_space[0]) {
        if (!parse_namespace(name_space, &reason)) {
            parse_fail(error, "BELAY_NAMESPACE: %s", reason.text);
            return false;
        }
        values->name_space = name_space;
    }
    return true;
}

static int run_command(char **words, struct args_values *values)
{
    struct parse_error error = {""};
    struct args_given given;
    const struct args_command *command = find_command(words[0]);
    if (!command)
        return unknown_command(words[0]);
    int count = 0;
    while (words[1 + count])
        count++;
    if (!args_parse(command, count, words + 1, values, &given, &error))
        return command_usage_error(command->name, &error);
    if (values->help) {
        print_command(stdout, command);
        return fflush(stdout) == 0 ? EXIT_CODE_OK : exit_code_of(BELAY_SYSTEM);
    }
    return command->run(values, &given);
}

int main(int argc, char **argv)
{
    struct parse_error error = {""};
    struct args_values values;
    struct args_given given;

    args_values_defaults(&values);
    if (!take_environment(&values, &error) ||
        !args_parse(NULL, argc > 0 ? argc - 1 : 0, argv + 1, &values, &given, &error))
        return command_usage_error(NULL, &error);
    bool has_command = given.rest && given.rest[0];
    if (values.help && !has_command) {
        print_overview(stdout);
        return fflush(stdout) == 0 ? EXIT_CODE_OK : exit_code_of(BELAY_SYSTEM);
    }
    if (!has_command) {
        print_overview(stderr);
        return EXIT_CODE_USAGE;
    }
    if (strcmp(given.rest[0], "help") == 0)
        return run_help(given.rest + 1);
    if (strcmp(given.rest[0], "version") == 0) {
        int count = 0;
        while (given.rest[1 + count])
            count++;
        if (!args_parse(NULL, count, given.rest + 1, &values, &given, &error) || given.rest) {
            if (!error.text[0])
                parse_fail(&error, "version takes no arguments");
            return command_usage_error(NULL, &error);
        }
        return run_version(&values);
    }
    return run_command(given.rest, &values);
}
