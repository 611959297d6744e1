/* SPDX-License-Identifier: Apache-2.0
 *
 * `belay lock NAME -- CMD`: the supervisor of guard/ fed by libbelay.
 */
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/cli/command.h"
#include "client/cli/guard/supervise.h"

/* Below this the machine's own scheduling delays come too near to the margins. */
enum { LOCK_TTL_MS_MIN = 500 };

/* A release is tried for at least this long, even with no more time on the lease. */
enum { RELEASE_MS_MIN = 1000 };

struct lock_feed {
    const struct args_values *values;
    const char *name;
    const char *value;
    belay_client *client;
    belay_lock *lock;
    atomic_int event; /* enum guard_cause: written on the client's thread */
    int event_fd;
};

static void raise_event(struct lock_feed *feed, enum guard_cause cause)
{
    uint64_t one = 1;
    /* Lost outweighs revoked. */
    if (cause == GUARD_CAUSE_LOST || atomic_load(&feed->event) == GUARD_CAUSE_NONE)
        atomic_store(&feed->event, (int)cause);
    (void)!write(feed->event_fd, &one, sizeof one);
}

static void on_lost(void *context, belay_lock *lock, belay_lost_reason reason)
{
    (void)lock;
    (void)reason;
    raise_event(context, GUARD_CAUSE_LOST);
}

static void on_revoke(void *context, belay_lock *lock)
{
    (void)lock;
    raise_event(context, GUARD_CAUSE_REVOKED);
}

static void adjust(void *context, belay_client_options *options)
{
    options->on_lost = on_lost;
    options->on_revoke = on_revoke;
    options->context = context;
}

static int feed_acquire(void *context, int cancel_fd, struct supervise_grant *grant)
{
    struct lock_feed *feed = context;
    belay_acquire_options options;
    belay_holder_info holder = {0};

    feed->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (feed->event_fd < 0)
        return exit_code_of(BELAY_SYSTEM);
    belay_status status = command_open(feed->values, adjust, feed, &feed->client);
    if (status != BELAY_OK)
        return exit_code_of(status);
    command_acquire_options(feed->values, feed->name, feed->value, &options);
    status = command_acquire_cancellable(feed->client, &options, cancel_fd, &feed->lock, &holder);
    if (status == BELAY_CANCELLED) /* by a person, who knows */
        return exit_code_of(status);
    if (status != BELAY_OK)
        return command_report_busy(status, feed->name, &holder);
    grant->token = belay_lock_token(feed->lock);
    grant->ttl_ms = feed->values->ttl_ms;
    grant->deadline_ns = belay_lock_valid_until_ns(feed->lock);
    belay_lease_format(belay_lock_lease(feed->lock), grant->lease);
    return 0;
}

static uint64_t feed_valid_until_ns(void *context)
{
    struct lock_feed *feed = context;
    return belay_lock_valid_until_ns(feed->lock);
}

static enum guard_cause feed_event(void *context)
{
    struct lock_feed *feed = context;
    return (enum guard_cause)atomic_load(&feed->event);
}

static int feed_event_fd(void *context)
{
    struct lock_feed *feed = context;
    return feed->event_fd;
}

/* Releases, but waits no longer than that can matter: when the lease is over the cluster needs no
 * release, and out of reach it hears none. True: the cluster answered. */
static bool release_in_time(struct lock_feed *feed)
{
    uint64_t deadline_ns = belay_lock_valid_until_ns(feed->lock), now_ns = guard_now_ns();
    uint64_t limit_ms = deadline_ns > now_ns ? (deadline_ns - now_ns) / 1000000u : 0;
    limit_ms = limit_ms < RELEASE_MS_MIN ? RELEASE_MS_MIN : limit_ms;
    limit_ms = limit_ms < feed->values->timeout_ms ? limit_ms : feed->values->timeout_ms;
    uint64_t end_ns = now_ns + limit_ms * 1000000u;

    belay_request *request;
    belay_completion completion;
    if (deadline_ns == 0 || belay_release_start(feed->client, feed->lock, NULL, &request))
        return false;
    while (belay_client_take(feed->client, &completion, 1) == 0) {
        now_ns = guard_now_ns();
        if (now_ns >= end_ns)
            return false;
        struct pollfd fd = {.fd = belay_client_fd(feed->client), .events = POLLIN};
        (void)poll(&fd, 1, (int)((end_ns - now_ns) / 1000000u) + 1);
    }
    return completion.status == BELAY_OK || completion.status == BELAY_LOST;
}

static void feed_finish(void *context, bool release)
{
    struct lock_feed *feed = context;
    if (!feed->client)
        return;
    if (!release || (feed->lock && !release_in_time(feed)))
        belay_client_abandon(feed->client);
    else
        belay_client_close(feed->client, command_close_ms(feed->values));
}

static int run_lock(const struct args_values *values, const struct args_given *given)
{
    struct parse_error error;
    char value[DEFAULT_VALUE_BYTES];
    const char *name = given->positionals[0];

    if (!command_check("lock", parse_name, name))
        return EXIT_CODE_USAGE;
    if (values->ttl_ms < LOCK_TTL_MS_MIN) {
        parse_fail(&error, "--ttl: at least %dms, or CMD could not be ended in time",
                   LOCK_TTL_MS_MIN);
        return command_usage_error("lock", &error);
    }
    if (values->try_only && values->wait_set) {
        parse_fail(&error, "--try and --wait exclude each other");
        return command_usage_error("lock", &error);
    }
    default_value(value, (int)getpid(), given->rest);
    struct lock_feed context = {.values = values,
                                .name = name,
                                .value = values->value ? values->value : value,
                                .event = GUARD_CAUSE_NONE};
    struct supervise_feed feed = {.context = &context,
                                  .acquire = feed_acquire,
                                  .valid_until_ns = feed_valid_until_ns,
                                  .event = feed_event,
                                  .event_fd = feed_event_fd,
                                  .finish = feed_finish};
    struct supervise_options options = {.command = given->rest,
                                        .lock_name = name,
                                        .name_space = values->name_space,
                                        .on_lost_signal = values->on_lost_signal,
                                        .leftovers_wait = values->leftovers_wait};
    return supervise_run(&options, &feed);
}

static const struct args_option lock_options[] = {
    OPTIONS_OF_ACQUIRE,
    {"on-lost", 0, ARGS_SIGNAL, OPTION_AT(on_lost_signal), 0, "SIGNAL",
     "what CMD gets first if the lock is lost (default TERM); KILL = no time to tidy up"},
    {"leftovers", 0, ARGS_LEFTOVERS, OPTION_AT(leftovers_wait), 0, "end|wait",
     "processes that CMD left behind: end them (default), or hold the lock until they end"},
};

const struct args_command command_lock = {
    .name = "lock",
    .synopsis = "NAME [options] -- CMD [ARG...]",
    .summary = "run a command while holding a lock",
    .description =
        "Waits for the lock, runs CMD, renews the lock while CMD runs, and releases it when CMD "
        "and\n"
        "everything CMD started are gone. CMD finds BELAY_TOKEN (the fencing token), BELAY_LEASE "
        "and\n"
        "BELAY_LOCK in its environment. The exit code is CMD's, or 128 + n if signal n ended it.\n"
        "\n"
        "If the lock cannot be renewed, CMD and all its descendants get SIGTERM (--on-lost) and "
        "then\n"
        "SIGKILL, so that nothing of them is alive at the lease's deadline: SIGTERM goes out "
        "TTL/5\n"
        "(200ms to 5s) before it, SIGKILL TTL/10 (50ms to 1s) before it. A guardian process "
        "sees\n"
        "to that even if belay itself is killed or stopped; if belay is killed, CMD is ended at "
        "once.\n"
        "Suspended with Ctrl-Z, CMD keeps the lock.\n"
        "\n"
        "INT, TERM, HUP, QUIT, USR1, USR2, WINCH, TSTP and CONT are passed on to CMD's process "
        "group.",
    .examples =
        "  belay lock nightly-backup -- /usr/local/bin/backup --full\n"
        "  belay lock deploy --try -- ./deploy.sh\n"
        "  belay lock report --shared --wait 5s --ttl 30s -- sh -c 'make-report $BELAY_TOKEN'\n",
    .options = lock_options,
    .options_count = COUNT_OF(lock_options),
    .positionals_min = 1,
    .positionals_max = 1,
    .takes_rest = true,
    .run = run_lock,
};
