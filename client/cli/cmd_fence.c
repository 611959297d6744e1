/* SPDX-License-Identifier: Apache-2.0
 *
 * The resource's side: checking tokens for shell scripts, and the example store.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/command.h"

enum { FENCE_KEYS_MAX = 65536, STORE_VALUE_BYTES_MAX = 1 << 20 };

/* From the argument or --token, else from the environment that `belay lock` sets. */
static bool find_token(const char *command, const struct args_values *values, const char *argument,
                       uint64_t *token)
{
    struct parse_error error = {""};
    if (!argument && values->token_set) {
        *token = values->token;
        return true;
    }
    const char *text = argument ? argument : getenv("BELAY_TOKEN");
    if (!text)
        parse_fail(&error, "no token given, and BELAY_TOKEN is not set (`belay lock` sets it)");
    else if (parse_token(text, token, &error))
        return true;
    (void)command_usage_error(command, &error);
    return false;
}

static int report_refused(const char *key, uint64_t token, uint64_t highest)
{
    fprintf(stderr, "belay: %s: refused: token %llu is lower than %llu; a newer holder was here\n",
            key, (unsigned long long)token, (unsigned long long)highest);
    return exit_code_of(BELAY_REFUSED);
}

static int run_fence(const struct args_values *values, const struct args_given *given)
{
    struct parse_error error;
    uint64_t token;
    belay_fence *fence;
    if (strcmp(given->positionals[0], "check") != 0) {
        parse_fail(&error, "'%.60s' is not 'check'", given->positionals[0]);
        return command_usage_error("fence", &error);
    }
    if (!values->file) {
        parse_fail(&error, "--file is missing: where the highest tokens are kept");
        return command_usage_error("fence", &error);
    }
    const char *name = given->positionals[1];
    if (!command_check("fence", parse_name, name) ||
        !find_token("fence", values, given->positionals_count > 2 ? given->positionals[2] : NULL,
                    &token))
        return EXIT_CODE_USAGE;
    belay_status status = belay_fence_open(values->file, FENCE_KEYS_MAX, &fence);
    if (status != BELAY_OK)
        return command_report(status, values->file);
    status = belay_fence_check(fence, name, token);
    uint64_t highest = status == BELAY_REFUSED ? belay_fence_highest(fence, name) : token;
    int code = status == BELAY_REFUSED ? report_refused(name, token, highest)
                                       : command_report(status, values->file);
    belay_fence_close(fence);
    if (values->output == ARGS_JSON && (status == BELAY_OK || status == BELAY_REFUSED)) {
        json_t *root = json_object();
        json_set_bytes(root, "name", name, strlen(name));
        json_object_set_new(root, "accepted", json_boolean(status == BELAY_OK));
        json_set_u64_text(root, "highest", highest);
        code = json_print_and_free(root, code);
    }
    return code;
}

static const struct args_option fence_options[] = {
    {"file", 'f', ARGS_TEXT, OPTION_AT(file), 0, "FILE", "keeps the highest token per name"},
    {"token", 0, ARGS_TOKEN, OPTION_AT(token), OPTION_AT(token_set), "TOKEN",
     "instead of the argument (else $BELAY_TOKEN)"},
};

const struct args_command command_fence = {
    .name = "fence",
    .synopsis = "check NAME [TOKEN] --file FILE",
    .summary = "refuse tokens older than the newest seen",
    .description =
        "What a resource does before it acts for a lock holder: accepts TOKEN if none higher was "
        "seen\n"
        "for NAME, and remembers it on disk first. Exits 0 if accepted, 119 if refused. Needs no\n"
        "cluster.",
    .examples = "  belay fence check nightly-backup \"$BELAY_TOKEN\" --file /var/lib/app/fence \\\n"
                "    && mv new-state /var/lib/app/state\n",
    .options = fence_options,
    .options_count = COUNT_OF(fence_options),
    .positionals_min = 2,
    .positionals_max = 3,
    .run = run_fence,
};

/* ---- store ----------------------------------------------------------------------------------- */

/* A value from the argument, or from standard input for "-". Caller frees. */
static char *read_value(const char *argument, size_t *bytes)
{
    char *value = malloc(STORE_VALUE_BYTES_MAX + 1);
    if (!value)
        return NULL;
    if (strcmp(argument, "-") != 0) {
        *bytes = strnlen(argument, STORE_VALUE_BYTES_MAX + 1);
        memcpy(value, argument, *bytes);
        return value;
    }
    *bytes = fread(value, 1, STORE_VALUE_BYTES_MAX + 1, stdin);
    return value;
}

static int store_put(const struct args_values *values, const struct args_given *given,
                     belay_store *store)
{
    struct parse_error error;
    const char *key = given->positionals[1];
    uint64_t token, highest = 0;
    size_t bytes, none = 0;
    char probe[1];
    if (!find_token("store", values, NULL, &token))
        return EXIT_CODE_USAGE;
    char *value = read_value(given->positionals[2], &bytes);
    if (!value)
        return command_report(BELAY_NO_MEMORY, key);
    if (bytes > STORE_VALUE_BYTES_MAX) {
        free(value);
        parse_fail(&error, "the value is too long: at most %d bytes", STORE_VALUE_BYTES_MAX);
        return command_usage_error("store", &error);
    }
    belay_status status = belay_store_put(store, key, value, bytes, token);
    free(value);
    if (status != BELAY_REFUSED)
        return command_report(status, key);
    (void)belay_store_get(store, key, probe, &none, &highest);
    return report_refused(key, token, highest);
}

static int store_get(const struct args_values *values, const struct args_given *given,
                     belay_store *store)
{
    const char *key = given->positionals[1];
    size_t bytes = STORE_VALUE_BYTES_MAX;
    uint64_t token = 0;
    char *value = malloc(bytes);
    if (!value)
        return command_report(BELAY_NO_MEMORY, key);
    belay_status status = belay_store_get(store, key, value, &bytes, &token);
    int code = command_report(status, key);
    if (status == BELAY_OK && token == 0) { /* no write has token 0 */
        fprintf(stderr, "belay: %s: there is no such key in %s\n", key, values->directory);
        code = EXIT_CODE_ABSENT;
    } else if (status == BELAY_OK && values->output == ARGS_JSON) {
        json_t *root = json_object();
        json_set_bytes(root, "key", key, strlen(key));
        json_set_u64_text(root, "token", token);
        json_t *text = json_stringn(value, bytes);
        json_object_set_new(root, "value", text ? text : json_null());
        code = json_print_and_free(root, code);
    } else if (status == BELAY_OK) {
        bool failed = fwrite(value, 1, bytes, stdout) != bytes ||
                      (isatty(STDOUT_FILENO) && putchar('\n') == EOF) || fflush(stdout) != 0;
        if (failed) {
            fprintf(stderr, "belay: cannot write the value: %s\n", strerror(errno));
            code = exit_code_of(BELAY_SYSTEM);
        }
    }
    free(value);
    return code;
}

static int run_store(const struct args_values *values, const struct args_given *given)
{
    struct parse_error error;
    const char *action = given->positionals[0];
    bool is_put = strcmp(action, "put") == 0;
    belay_store *store;
    if (!is_put && strcmp(action, "get") != 0) {
        parse_fail(&error, "'%.60s' is neither 'put' nor 'get'", action);
        return command_usage_error("store", &error);
    }
    if (given->positionals_count != (is_put ? 3 : 2)) {
        parse_fail(&error, is_put ? "put takes KEY and VALUE" : "get takes KEY");
        return command_usage_error("store", &error);
    }
    if (!values->directory) {
        parse_fail(&error, "--dir is missing: the directory that holds the store");
        return command_usage_error("store", &error);
    }
    belay_status status = belay_store_open(values->directory, &store);
    if (status != BELAY_OK)
        return command_report(status, values->directory);
    int code = is_put ? store_put(values, given, store) : store_get(values, given, store);
    belay_store_close(store);
    return code;
}

static const struct args_option store_options[] = {
    {"dir", 'd', ARGS_TEXT, OPTION_AT(directory), 0, "DIR", "the directory that holds the store"},
    {"token", 0, ARGS_TOKEN, OPTION_AT(token), OPTION_AT(token_set), "TOKEN",
     "of the lock under which is written (else $BELAY_TOKEN)"},
};

const struct args_command command_store = {
    .name = "store",
    .synopsis = "put KEY VALUE|- --dir DIR [--token TOKEN] | get KEY --dir DIR",
    .summary = "the example store: writes carry a token",
    .description =
        "A little durable store that refuses a write whose token is lower than the highest it\n"
        "has seen for that key: what every resource behind a lock should do. Needs no\n"
        "cluster. VALUE '-' is standard input.",
    .examples =
        "  belay lock account-7 -- sh -c 'belay store put balance 100 --dir /var/lib/bank'\n"
        "  belay store get balance --dir /var/lib/bank\n",
    .options = store_options,
    .options_count = COUNT_OF(store_options),
    .positionals_min = 2,
    .positionals_max = 3,
    .run = run_store,
};
