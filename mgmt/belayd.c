/* SPDX-License-Identifier: Apache-2.0
 *
 * belayd: one node of a cluster as a process. This file is the way from the command line to a
 * running node and back: configuration, signals, the service manager.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "hw/clock.h"
#include "mgmt/arguments.h"
#include "mgmt/dev.h"
#include "mgmt/health.h"
#include "mgmt/http.h"
#include "mgmt/metrics.h"
#include "mgmt/node.h"
#include "mgmt/report.h"

enum {
    EXIT_USAGE = 2,
    LOOK_STARTING_MS = 10,  /* how often readiness is looked at until it is there */
    LOOK_RUNNING_MS = 1000, /* and afterwards */
};

struct belayd {
    struct arguments arguments;
    struct config config;
    bool temporary; /* the data directory is ours to remove */
    struct node *node;
    struct http_server *http; /* NULL = none is wanted */
    int signals;              /* signalfd of TERM and INT, -1 until they are taken */
    sigset_t signal_set;
    uint64_t watchdog_ns;      /* the service manager wants to hear from us so often; 0 = never */
    uint64_t watchdog_next_ns; /* when it is told again */
    bool announced;            /* READY was sent */
    bool ready;                /* what the service manager was last told */
};

/* ---- signals --------------------------------------------------------------------------------- */

static void end_at_once(int number)
{
    (void)number;
    _exit(EXIT_SUCCESS);
}

/* Until there is anything to put in order: asked to end, it ends, and that is no failure. A look-up
 * of a name may take long, so signals are not just left pending. */
static void end_on_signals(void)
{
    struct sigaction end = {.sa_handler = end_at_once};
    sigaction(SIGTERM, &end, NULL);
    sigaction(SIGINT, &end, NULL);
}

/* Blocked before any thread or directory is made, so that every thread inherits that and they
 * arrive here. One that comes while the node starts is seen right after. */
static int take_signals(struct belayd *belayd)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction usual = {.sa_handler = SIG_DFL};
    if (belayd->signals >= 0) /* taken before */
        return 0;
    sigaction(SIGPIPE, &ignore, NULL); /* a peer that went away is a result of write(2) */
    sigemptyset(&belayd->signal_set);
    sigaddset(&belayd->signal_set, SIGTERM);
    sigaddset(&belayd->signal_set, SIGINT);
    if (sigprocmask(SIG_BLOCK, &belayd->signal_set, NULL) < 0)
        return -errno;
    sigaction(SIGTERM, &usual, NULL);
    sigaction(SIGINT, &usual, NULL);
    belayd->signals = signalfd(-1, &belayd->signal_set, SFD_CLOEXEC | SFD_NONBLOCK);
    return belayd->signals < 0 ? -errno : 0;
}

/* From now on a signal has its default effect: the second one ends the process at once. */
static void leave_signals(struct belayd *belayd)
{
    struct signalfd_siginfo first;
    ssize_t got = read(belayd->signals, &first, sizeof first);
    if (got == (ssize_t)sizeof first)
        journal_write(JOURNAL_INFO, "stopping", "signal=%s from_pid=%u",
                      first.ssi_signo == SIGINT ? "INT" : "TERM", (unsigned)first.ssi_pid);
    sigprocmask(SIG_UNBLOCK, &belayd->signal_set, NULL);
}

/* ---- configuration --------------------------------------------------------------------------- */

static int configure(struct belayd *belayd, struct config_error *error)
{
    struct config *config = &belayd->config;
    struct arguments *arguments = &belayd->arguments;
    config_defaults(config);
    if (arguments->config_path == NULL && !arguments->dev)
        arguments->config_path = getenv("BELAYD_CONFIG");
    if (arguments->config_path == NULL && !arguments->dev)
        return config_fail(error, "a configuration is needed: --config FILE, or --dev to try "
                                  "things out; see belayd --help");
    int result = 0;
    if (arguments->dev)
        dev_defaults(config);
    else
        result = config_load(config, arguments->config_path, error);
    if (result == 0)
        result = config_environment(config, environ, error);
    if (result == 0)
        result = arguments_apply(arguments, config, error);
    /* In dev mode a directory is about to be made, and has to be removed in any case. */
    if (result == 0 && arguments->dev && !arguments->check && take_signals(belayd) < 0)
        return config_fail(error, "signals cannot be received");
    if (result == 0)
        result = arguments->dev ? dev_resolve(config, &belayd->temporary, error)
                                : config_resolve(config, error);
    if (result == 0)
        result = config_judge(config, error);
    return result;
}

static int check(const struct belayd *belayd)
{
    const struct node_options *options = &belayd->config.options;
    printf("%s: valid: node %u of %u\n", belayd->config.file, (unsigned)options->node,
           (unsigned)options->members_count);
    report_memory(stdout, options);
    return ferror(stdout) || fflush(stdout) != 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* ---- HTTP ------------------------------------------------------------------------------------ */

static int start_http(struct belayd *belayd, char *error, size_t error_bytes)
{
    static const struct http_route routes[] = {
        {"/livez", true, health_live},
        {"/readyz", true, health_ready},
        {"/metrics", false, metrics_page},
    };
    char text[PORT_ADDRESS_TEXT_BYTES];
    struct port_address address;
    if (!belayd->config.http_on)
        return 0;
    int result = http_start(&belayd->http, &belayd->config.http, routes,
                            sizeof routes / sizeof *routes, belayd->node, error, error_bytes);
    if (result < 0)
        return result;
    http_address(belayd->http, &address);
    port_address_format(&address, text);
    journal_write(JOURNAL_INFO, "http", "listen=%s", text);
    return 0;
}

/* ---- running --------------------------------------------------------------------------------- */

static void announce_dev(const struct belayd *belayd)
{
    char endpoint[PORT_ADDRESS_TEXT_BYTES];
    port_address_format(&belayd->config.options.members[0].client, endpoint);
    printf("belayd is ready at %s; try: BELAY_ENDPOINTS=%s belay lock demo/1 --ttl 10s -- "
           "echo held\n",
           endpoint, endpoint);
    struct port_address http;
    http_address(belayd->http, &http);
    port_address_format(&http, endpoint);
    printf("what it is doing: curl 'http://%s/readyz?verbose' http://%s/metrics\n", endpoint,
           endpoint);
    fflush(stdout);
}

/* Tells the service manager, and in dev mode the user, when readiness changed. */
static void tell_readiness(struct belayd *belayd)
{
    bool ready = node_ready(belayd->node);
    if (ready && !belayd->announced) {
        belayd->announced = true;
        belayd->ready = true;
        sd_notify(0, "READY=1\nSTATUS=every shard has a leader");
        journal_write(JOURNAL_INFO, "ready", "shards=%u", (unsigned)belayd->config.options.shards);
        if (belayd->arguments.dev)
            announce_dev(belayd);
    } else if (ready != belayd->ready) {
        belayd->ready = ready;
        const char *status = ready ? "every shard has a leader"
                             : node_state(belayd->node) == NODE_STEPPING_DOWN
                                 ? "stepping down: the disk is full"
                                 : "some shards have no leader";
        sd_notifyf(0, "STATUS=%s", status);
        journal_write(JOURNAL_WARN, "readiness", "ready=%s status=\"%s\"", ready ? "true" : "false",
                      status);
    }
}

static void feed_watchdog(struct belayd *belayd)
{
    uint64_t now_ns = clock_monotonic_ns();
    if (belayd->watchdog_ns == 0 || now_ns < belayd->watchdog_next_ns)
        return;
    sd_notify(0, "WATCHDOG=1");
    belayd->watchdog_next_ns = now_ns + belayd->watchdog_ns / 2;
}

static int look_again_ms(const struct belayd *belayd)
{
    uint64_t wait_ms = belayd->announced ? LOOK_RUNNING_MS : LOOK_STARTING_MS;
    uint64_t watchdog_ms = belayd->watchdog_ns / 4 / UINT64_C(1000000);
    return (int)(belayd->watchdog_ns != 0 && watchdog_ms < wait_ms ? watchdog_ms : wait_ms);
}

/* Until a signal (0) or a failure of the node (negative). */
static int watch(struct belayd *belayd)
{
    struct pollfd descriptors[] = {
        {.fd = belayd->signals, .events = POLLIN},
        {.fd = node_failure_descriptor(belayd->node), .events = POLLIN},
    };
    for (;;) {
        tell_readiness(belayd);
        feed_watchdog(belayd);
        node_look(belayd->node);
        if (poll(descriptors, 2, look_again_ms(belayd)) < 0 && errno != EINTR)
            return -errno;
        if (descriptors[1].revents != 0) {
            journal_write(JOURNAL_ERROR, "failed", "reason=\"%s\"",
                          node_failure_text(belayd->node));
            return -EIO;
        }
        if (descriptors[0].revents != 0)
            return 0;
    }
}

static int run(struct belayd *belayd)
{
    const struct node_options *options = &belayd->config.options;
    char error[CONFIG_ERROR_BYTES] = "";
    uint64_t watchdog_us = 0;
    if (sd_watchdog_enabled(0, &watchdog_us) > 0)
        belayd->watchdog_ns = watchdog_us * 1000;
    journal_setup(belayd->config.log_level, belayd->config.log_format);
    journal_write(JOURNAL_INFO, "start",
                  "version=%s node=%u members=%u shards=%u workers=%u "
                  "data_directory=\"%s\"",
                  BELAY_VERSION_STRING, (unsigned)options->node, (unsigned)options->members_count,
                  (unsigned)options->shards, (unsigned)options->workers, options->data_directory);
    sd_notify(0, "STATUS=recovering");
    int result = take_signals(belayd);
    if (result == 0)
        result = node_start(options, &belayd->node, error, sizeof error);
    if (result < 0) {
        fprintf(stderr, "belayd: %s\n", error[0] != '\0' ? error : strerrordesc_np(-result));
        return EXIT_FAILURE;
    }
    sd_notify(0, "STATUS=waiting for a leader of every shard");
    result = start_http(belayd, error, sizeof error);
    if (result < 0) {
        fprintf(stderr, "belayd: %s\n", error);
        node_stop(belayd->node);
        belayd->node = NULL;
        return EXIT_FAILURE;
    }
    result = watch(belayd);
    if (result < 0) /* its disk failed: nothing it would still write can be trusted */
        return EXIT_FAILURE;
    sd_notify(0, "STOPPING=1\nSTATUS=stopping");
    leave_signals(belayd);
    http_stop(belayd->http);
    node_stop(belayd->node);
    journal_write(JOURNAL_INFO, "stopped", "node=%u", (unsigned)options->node);
    return EXIT_SUCCESS;
}

static int run_configured(struct belayd *belayd, struct config_error *error)
{
    if (configure(belayd, error) < 0) {
        fprintf(stderr, "belayd: %s\n", error->text);
        return EXIT_FAILURE;
    }
    return belayd->arguments.check ? check(belayd) : run(belayd);
}

int main(int argument_count, char *argument_words[])
{
    struct belayd *belayd = calloc(1, sizeof *belayd);
    struct config_error error = {""};
    if (belayd == NULL)
        return EXIT_FAILURE;
    int code = EXIT_FAILURE;
    belayd->signals = -1;
    if (arguments_parse(argument_count, argument_words, &belayd->arguments, &error) < 0) {
        fprintf(stderr, "belayd: %s\n", error.text);
        code = EXIT_USAGE;
    } else if (belayd->arguments.help) {
        code = fputs(arguments_help, stdout) < 0 || fflush(stdout) != 0;
    } else if (belayd->arguments.version) {
        code = puts("belayd " BELAY_VERSION_STRING) < 0 || fflush(stdout) != 0;
    } else {
        if (!belayd->arguments.check)
            end_on_signals();
        code = run_configured(belayd, &error);
    }
    if (belayd->temporary)
        dev_remove(belayd->config.options.data_directory);
    if (belayd->node != NULL && code != EXIT_SUCCESS)
        _exit(code); /* a failed node's threads still run and read the options */
    free(belayd);
    return code;
}
