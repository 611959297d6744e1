/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/command.h"

#include <poll.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BUSY_VALUE_BYTES = 80 };

belay_status command_open(const struct args_values *values,
                          void (*adjust)(void *context, belay_client_options *options),
                          void *context, belay_client **client)
{
    belay_client_options options;
    belay_client_options_init(&options);
    options.endpoints = values->endpoints;
    options.request_timeout_ms = values->timeout_ms;
    if (adjust)
        adjust(context, &options);
    belay_status status = belay_client_open(&options, client);
    if (status != BELAY_OK)
        (void)command_report(status, NULL);
    return status;
}

uint64_t command_close_ms(const struct args_values *values)
{
    return values->timeout_ms < 1000 ? values->timeout_ms : 1000;
}

/* What a person can do about it; NULL = the library's own sentence says all there is to say. */
static const char *advice(belay_status status)
{
    switch (status) {
    case BELAY_UNREACHABLE:
        return "check --endpoints and `belay status`; what was asked may still have happened";
    case BELAY_TIMED_OUT:
        return "wait longer (--wait), or see `belay holders` and `belay queue`";
    case BELAY_LOST:
        return "it is not held under this lease (any more): acquire it again";
    case BELAY_DENIED:
        return "this client may not do that (only the client that holds a lock converts it)";
    case BELAY_DEADLOCK:
        return "release what is held first, then try again";
    case BELAY_SESSION_LOST:
        return "the cluster did not hear from this client in time: run it again";
    case BELAY_WRONG_CLUSTER:
        return "the --endpoints belong to different clusters";
    case BELAY_WRONG_VERSION:
        return "use a client of the cluster's version (`belay version`)";
    case BELAY_STALE_REQUEST:
        return "see `belay holders` for what happened";
    default:
        return NULL;
    }
}

/* The library's sentence may be empty; it never ends a line in the middle. */
static void print_reason(belay_status status, const char *about)
{
    char reason[512];
    snprintf(reason, sizeof reason, "%s", belay_error_text());
    reason[strcspn(reason, "\n")] = '\0';
    fprintf(stderr, "belay: %s%s%s", about ? about : "", about ? ": " : "",
            belay_status_name(status));
    if (reason[0])
        fprintf(stderr, " (%s)", reason);
}

int command_report(belay_status status, const char *about)
{
    if (status == BELAY_OK)
        return EXIT_CODE_OK;
    print_reason(status, about);
    const char *what_to_do = advice(status);
    fprintf(stderr, "%s%s\n", what_to_do ? "; " : "", what_to_do ? what_to_do : "");
    return exit_code_of(status);
}

int command_report_busy(belay_status status, const char *name, const belay_holder_info *holder)
{
    char remaining[24],
        value[BUSY_VALUE_BYTES]; /* the beginning will do: the line stays readable */
    duration_text(holder->remaining_ms, remaining);
    if (status == BELAY_DELAYED) {
        fprintf(stderr, "belay: %s: delayed: closed for another %s after an expiry; try then\n",
                name, remaining);
        return exit_code_of(status);
    }
    if (status != BELAY_BUSY)
        return command_report(status, name);
    printable(holder->value, holder->value_bytes, value, sizeof value);
    fprintf(
        stderr, "belay: %s: busy: held by %s (%s, token %llu, %s left%s); use --wait to queue\n",
        name, value[0] ? value : "an unnamed holder", mode_text(holder->mode),
        (unsigned long long)holder->token, remaining, holder->holders > 1 ? ", and others" : "");
    return exit_code_of(status);
}

int command_usage_error(const char *command, const struct parse_error *error)
{
    fprintf(stderr, "belay%s%s: %s; see `belay %s%s--help`\n", command ? " " : "",
            command ? command : "", error->text, command ? command : "", command ? " " : "");
    return EXIT_CODE_USAGE;
}

bool command_check(const char *command, bool (*check)(const char *, struct parse_error *),
                   const char *text)
{
    struct parse_error error = {""};
    if (check(text, &error))
        return true;
    (void)command_usage_error(command, &error);
    return false;
}

bool command_lease(const char *command, const char *text, belay_lease_id *lease)
{
    if (belay_lease_parse(text, lease))
        return true;
    struct parse_error error;
    parse_fail(&error, "'%.60s' is not a lease id: 24 hexadecimal digits, as `acquire` prints",
               text);
    (void)command_usage_error(command, &error);
    return false;
}

void command_acquire_options(const struct args_values *values, const char *name, const char *value,
                             belay_acquire_options *options)
{
    belay_acquire_options_init(options, name);
    options->name_space = values->name_space;
    options->mode = values->shared ? BELAY_SHARED : BELAY_EXCLUSIVE;
    options->ttl_ms = values->ttl_ms;
    options->try_only = values->try_only;
    if (values->wait_set)
        options->wait_ms = values->wait_ms;
    options->barge = values->barge;
    options->priority = (uint8_t)values->priority;
    options->grace_ms = values->grace_ms;
    options->lock_delay_ms = values->lock_delay_ms;
    options->value = value;
    options->value_bytes = value ? strlen(value) : 0;
}

belay_status command_acquire_cancellable(belay_client *client, const belay_acquire_options *options,
                                         int cancel_fd, belay_lock **lock,
                                         belay_holder_info *holder)
{
    belay_request *request;
    belay_completion completion;
    bool cancelled = false;
    belay_status status = belay_acquire_start(client, options, NULL, &request);
    if (status != BELAY_OK)
        return status;
    while (belay_client_take(client, &completion, 1) == 0) {
        struct pollfd fds[] = {{.fd = belay_client_fd(client), .events = POLLIN},
                               {.fd = cancelled ? -1 : cancel_fd, .events = POLLIN}};
        (void)poll(fds, 2, -1);
        if (!cancelled && fds[1].revents) {
            belay_request_cancel(request);
            cancelled = true;
        }
    }
    *lock = completion.lock;
    *holder = completion.holder;
    return completion.status;
}

void default_value(char text[DEFAULT_VALUE_BYTES], int pid, char *const *words)
{
    char host[128] = "?";
    (void)gethostname(host, sizeof host - 1);
    const struct passwd *user = getpwuid(geteuid());
    int length = snprintf(text, DEFAULT_VALUE_BYTES, "%.64s@%.100s %d", user ? user->pw_name : "?",
                          host, pid);
    size_t used = length < 0 ? 0 : (size_t)length;
    for (; words && *words && used + 1 < DEFAULT_VALUE_BYTES; words++) {
        length = snprintf(text + used, DEFAULT_VALUE_BYTES - used, " %s", *words);
        used += length < 0 ? 0 : (size_t)length;
    }
    /* Cut inside a UTF-8 character? Then without its first bytes. */
    size_t bytes = strlen(text);
    if (bytes == DEFAULT_VALUE_BYTES - 1) {
        while (bytes > 0 && ((unsigned char)text[bytes - 1] & 0xc0) == 0x80)
            bytes--;
        if (bytes > 0 && (unsigned char)text[bytes - 1] >= 0xc0)
            bytes--;
        text[bytes] = '\0';
    }
}
