/* SPDX-License-Identifier: Apache-2.0
 *
 * Locks that outlive the command: acquire, and release, renew, convert by lease id.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "client/cli/command.h"

/* ---- acquire --------------------------------------------------------------------------------- */

static int print_granted(const struct args_values *values, const char *name, const belay_lock *lock)
{
    char lease[BELAY_LEASE_TEXT_BYTES];
    belay_lease_format(belay_lock_lease(lock), lease);
    uint64_t token = belay_lock_token(lock);
    if (values->output == ARGS_JSON) {
        json_t *root = json_object();
        json_set_bytes(root, "name", name, strlen(name));
        json_set_u64_text(root, "token", token);
        json_set_text(root, "lease", lease);
        json_set_text(root, "mode", mode_text(belay_lock_mode(lock)));
        json_set_number(root, "ttl_ms", values->ttl_ms);
        return json_print_and_free(root, EXIT_CODE_OK);
    }
    printf("token %llu\nlease %s\n", (unsigned long long)token, lease);
    return fflush(stdout) == 0 ? EXIT_CODE_OK : exit_code_of(BELAY_SYSTEM);
}

/* A signal cancels: ending at once would leave a waiter, which could still be granted. The signals
 * are blocked before the client starts its thread. -1 = errno. */
static int take_ending_signals(void)
{
    sigset_t ending;
    sigemptyset(&ending);
    sigaddset(&ending, SIGINT);
    sigaddset(&ending, SIGTERM);
    sigaddset(&ending, SIGHUP);
    return sigprocmask(SIG_BLOCK, &ending, NULL) == 0 ? signalfd(-1, &ending, SFD_CLOEXEC) : -1;
}

static int run_acquire(const struct args_values *values, const struct args_given *given)
{
    const char *name = given->positionals[0];
    char value[DEFAULT_VALUE_BYTES];
    belay_client *client;
    belay_lock *lock;
    belay_holder_info holder = {0};
    belay_acquire_options options;

    if (!command_check("acquire", parse_name, name))
        return EXIT_CODE_USAGE;
    default_value(value, (int)getppid(), NULL);
    int cancel_fd = take_ending_signals();
    if (cancel_fd < 0) {
        fprintf(stderr, "belay: cannot wait for signals: %s\n", strerror(errno));
        return exit_code_of(BELAY_SYSTEM);
    }
    belay_status status = command_open(values, NULL, NULL, &client);
    if (status != BELAY_OK)
        return exit_code_of(status);
    command_acquire_options(values, name, values->value ? values->value : value, &options);
    options.no_renewal = true;
    status = command_acquire_cancellable(client, &options, cancel_fd, &lock, &holder);
    if (status != BELAY_OK) {
        int code = command_report_busy(status, name, &holder);
        belay_client_close(client, command_close_ms(values));
        return code;
    }
    int code = print_granted(values, name, lock);
    if (code == EXIT_CODE_OK) {
        belay_lock_forget(lock);
        belay_client_abandon(client); /* closing would release it */
    } else {
        /* Nobody learned of the lock: nobody could release it. */
        (void)belay_release(lock);
        belay_client_close(client, command_close_ms(values));
    }
    return code;
}

static const struct args_option acquire_options[] = {OPTIONS_OF_ACQUIRE};

const struct args_command command_acquire = {
    .name = "acquire",
    .synopsis = "NAME [--ttl TIME] [--shared] [--wait TIME | --try] [options]",
    .summary = "take a lock and leave it behind until its TTL ends",
    .description =
        "Takes the lock, prints its fencing token and its lease id, and exits. Nothing renews it:\n"
        "it ends after --ttl, or by `belay release NAME LEASE`; `belay renew NAME LEASE` carries "
        "it\n"
        "on. For the duration of a command use `belay lock`, which renews and guards.",
    .examples = "  belay acquire nightly-backup --ttl 30s\n"
                "  lease=$(belay acquire report --ttl 1m -o json | jq -r .lease)\n",
    .options = acquire_options,
    .options_count = COUNT_OF(acquire_options),
    .positionals_min = 1,
    .positionals_max = 1,
    .run = run_acquire,
};

/* ---- release, renew, convert, force-release -------------------------------------------------- */

static int print_done(const struct args_values *values, const char *name, const char *done,
                      uint64_t token)
{
    if (values->output != ARGS_JSON) {
        if (token)
            printf("token %llu\n", (unsigned long long)token);
        return fflush(stdout) == 0 ? EXIT_CODE_OK : exit_code_of(BELAY_SYSTEM);
    }
    json_t *root = json_object();
    json_set_bytes(root, "name", name, strlen(name));
    json_set_text(root, "done", done);
    if (token)
        json_set_u64_text(root, "token", token);
    return json_print_and_free(root, EXIT_CODE_OK);
}

/* What one of the four does with its client. */
typedef belay_status lease_action(belay_client *client, const struct args_values *values,
                                  const struct args_given *given, belay_lease_id lease,
                                  uint64_t *token);

static int run_on_lease(const char *command, const struct args_values *values,
                        const struct args_given *given, bool with_lease, lease_action *action)
{
    const char *name = given->positionals[0];
    belay_lease_id lease = {0};
    belay_client *client;
    uint64_t token = 0;

    if (!command_check(command, parse_name, name))
        return EXIT_CODE_USAGE;
    if (with_lease && !command_lease(command, given->positionals[1], &lease))
        return EXIT_CODE_USAGE;
    belay_status status = command_open(values, NULL, NULL, &client);
    if (status != BELAY_OK)
        return exit_code_of(status);
    status = action(client, values, given, lease, &token);
    int code = status == BELAY_OK ? print_done(values, name, command, token)
                                  : command_report(status, name);
    belay_client_close(client, command_close_ms(values));
    return code;
}

static belay_status do_release(belay_client *client, const struct args_values *values,
                               const struct args_given *given, belay_lease_id lease,
                               uint64_t *token)
{
    (void)token;
    return belay_release_lease(client, values->name_space, given->positionals[0], lease);
}

static int run_release(const struct args_values *values, const struct args_given *given)
{
    return run_on_lease("release", values, given, true, do_release);
}

const struct args_command command_release = {
    .name = "release",
    .synopsis = "NAME LEASE",
    .summary = "release a lock by its lease id",
    .description =
        "Releases what `belay acquire` (or BELAY_LEASE under `belay lock`) named. A lease\n"
        "that is over already is reported as lost.",
    .examples = "  belay release nightly-backup 5f3c29a0d1e4b7780000002a\n",
    .positionals_min = 2,
    .positionals_max = 2,
    .run = run_release,
};

static belay_status do_renew(belay_client *client, const struct args_values *values,
                             const struct args_given *given, belay_lease_id lease, uint64_t *token)
{
    (void)token;
    return belay_renew_lease(client, values->name_space, given->positionals[0], lease,
                             values->ttl_set ? values->ttl_ms : 0);
}

static int run_renew(const struct args_values *values, const struct args_given *given)
{
    return run_on_lease("renew", values, given, true, do_renew);
}

static const struct args_option renew_options[] = {
    {"ttl", 0, ARGS_DURATION, OPTION_AT(ttl_ms), OPTION_AT(ttl_set), "TIME",
     "the lease then ends this long from now (default: its own TTL again)"},
};

const struct args_command command_renew = {
    .name = "renew",
    .synopsis = "NAME LEASE [--ttl TIME]",
    .summary = "carry a lock on by its lease id",
    .description = "Starts the lease's TTL anew. A lease that is over cannot be renewed: lost.",
    .examples = "  belay renew nightly-backup 5f3c29a0d1e4b7780000002a --ttl 1m\n",
    .options = renew_options,
    .options_count = COUNT_OF(renew_options),
    .positionals_min = 2,
    .positionals_max = 2,
    .run = run_renew,
};

static belay_status do_convert(belay_client *client, const struct args_values *values,
                               const struct args_given *given, belay_lease_id lease,
                               uint64_t *token)
{
    belay_mode mode = strcmp(given->positionals[2], "shared") == 0 ? BELAY_SHARED : BELAY_EXCLUSIVE;
    uint64_t wait_ms = values->try_only   ? 0
                       : values->wait_set ? values->wait_ms
                                          : BELAY_WAIT_FOREVER;
    return belay_convert_lease(client, values->name_space, given->positionals[0], lease, mode,
                               wait_ms, token);
}

static int run_convert(const struct args_values *values, const struct args_given *given)
{
    const char *mode = given->positionals[2];
    if (strcmp(mode, "shared") != 0 && strcmp(mode, "exclusive") != 0) {
        struct parse_error error;
        parse_fail(&error, "'%.60s' is neither 'shared' nor 'exclusive'", mode);
        return command_usage_error("convert", &error);
    }
    return run_on_lease("convert", values, given, true, do_convert);
}

static const struct args_option convert_options[] = {
    {"wait", 'w', ARGS_DURATION, OPTION_AT(wait_ms), OPTION_AT(wait_set), "TIME",
     "give up waiting for the other holders after this long"},
    {"try", 0, ARGS_FLAG, OPTION_AT(try_only), 0, NULL, "do not wait at all"},
};

const struct args_command command_convert = {
    .name = "convert",
    .synopsis = "NAME LEASE shared|exclusive [--wait TIME | --try]",
    .summary = "make a shared lock exclusive or the other way round",
    .description =
        "An upgrade waits ahead of everybody and gives a new token, which is printed; the\n"
        "second upgrader of the same lock gets a deadlock at once.",
    .examples = "  belay convert report 5f3c29a0d1e4b7780000002a exclusive --wait 5s\n",
    .options = convert_options,
    .options_count = COUNT_OF(convert_options),
    .positionals_min = 3,
    .positionals_max = 3,
    .run = run_convert,
};

static belay_status do_force(belay_client *client, const struct args_values *values,
                             const struct args_given *given, belay_lease_id lease, uint64_t *token)
{
    (void)lease;
    (void)token;
    return belay_force_release(client, values->name_space, given->positionals[0], values->now);
}

static int run_force_release(const struct args_values *values, const struct args_given *given)
{
    return run_on_lease("force-release", values, given, false, do_force);
}

static const struct args_option force_options[] = {
    {"now", 0, ARGS_FLAG, OPTION_AT(now), 0, NULL,
     "do not wait for the holder: it may still believe that it holds the lock"},
};

const struct args_command command_force_release = {
    .name = "force-release",
    .synopsis = "NAME [--now]",
    .summary = "take a lock away from its holder",
    .description =
        "Asks the holder to let go. The next grant waits for its acknowledgement or for its\n"
        "deadline. With --now it does not: two may act at once, and only resources that\n"
        "check fencing tokens are safe.",
    .examples = "  belay force-release nightly-backup\n",
    .options = force_options,
    .options_count = COUNT_OF(force_options),
    .positionals_min = 1,
    .positionals_max = 1,
    .run = run_force_release,
};
