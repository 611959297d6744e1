/* SPDX-License-Identifier: Apache-2.0
 *
 * Acquires and releases of a million names, as many as one core can ask for: by kernel UDP or past
 * the kernel, 1, 4, 16 and 32 requests to a datagram (as far as 1,400 bytes go). Given no node it
 * measures itself, against a server that only says yes.
 *
 *   lean_locks --target 127.0.0.1:7400
 *   lean_locks --target 10.9.0.1:7400 --device net_virtio_user0,path=/run/vhost
 *   lean_locks                            net_vhost and net_virtio_user, a server of its own
 *
 * What is one request's share of the server's core: while a server is never idle, it is the clock
 * rate over the request rate. That it is never idle shows at the client: it finds nothing in a good
 * part of its polls although everything that may be under way is. Both cores may be taken away for
 * a while, by other processes or the host, so rates are also taken of those milliseconds alone in
 * which neither was.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/raw/lean.h"
#include "bench/raw/lean_null.h"
#include "bench/raw/loopback.h"
#include "bench/raw/raw.h"
#include "bench/raw/virtual.h"

enum { PACKS = 4, SESSIONS_PER_SHARD = 16, KEY_BYTES = 32, WARM_UP_SHARE = 4 };

static const uint32_t PACK[PACKS] = {1, 4, 16, 32};

/* Of a server of our own. */
struct server {
    char directory[32], path[64];
    volatile bool *ready;
    pid_t process;
};

/* ---- a server of our own --------------------------------------------------------------------- */

static void start_server(struct server *server, enum lean_fault fault)
{
    char device[128];
    (void)snprintf(server->directory, sizeof server->directory, "/tmp/belay-lean-XXXXXX");
    server->ready = mmap(NULL, sizeof *server->ready, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (server->ready == MAP_FAILED || mkdtemp(server->directory) == NULL)
        raw_die("%s cannot be made", server->directory);
    (void)snprintf(server->path, sizeof server->path, "%s/vhost", server->directory);
    (void)snprintf(device, sizeof device, "net_vhost0,iface=%s,queues=1", server->path);
    server->process = loopback_fork();
    if (server->process == 0) {
        struct port_address self;
        struct port *port = virtual_port(device, VIRTUAL_SERVER_HOST, VIRTUAL_SERVICE);
        (void)port_address_parse("10.9.0.1:7400", &self);
        virtual_pin(1);
        *server->ready = true;
        lean_null_serve(port, &self, fault);
    }
    while (!*server->ready) {
        if (waitpid(server->process, NULL, WNOHANG) != 0)
            raw_die("the server did not start");
    }
}

static struct server own; /* for stop_server() at exit */

static void stop_server(void)
{
    if (own.process <= 0)
        return;
    kill(own.process, SIGKILL);
    waitpid(own.process, NULL, 0);
    (void)unlink(own.path);
    (void)rmdir(own.directory);
}

/* ---- figures --------------------------------------------------------------------------------- */

static void add(struct raw_report *report, uint32_t pack, const char *figure, const char *what,
                double value)
{
    static char keys[RAW_ROWS_MAX][KEY_BYTES];
    static uint32_t keys_count;
    char key[KEY_BYTES];
    (void)snprintf(key, sizeof key, "p%u.%s", pack, figure);
    for (uint32_t i = 0; i < report->rows_count; i++) {
        if (strcmp(report->rows[i].key, key) == 0) {
            raw_add(report, report->rows[i].key, what, value);
            return;
        }
    }
    memcpy(keys[keys_count], key, sizeof key);
    raw_add(report, keys[keys_count++], what, value);
}

static void report_pack(struct raw_report *report, const struct lean *lean, uint32_t pack)
{
    const struct lean_counts *counts = &lean->counts;
    double answers = (double)counts->answers;
    double present = (double)(counts->busy_cycles + counts->idle_cycles);
    double all = answers * 1e9 / (double)counts->measured_ns;
    double steady = counts->sound_answers == 0
                        ? all /* on a busy machine */
                        : (double)counts->sound_answers * 1e9 / (double)counts->sound_ns;
    add(report, pack, "requests_s", "requests/s", all);
    add(report, pack, "steady_requests_s", "requests/s while nothing disturbed either core",
        steady);
    add(report, pack, "steady_share", "part of the time that nothing disturbed",
        (double)counts->sound_ns / (double)counts->measured_ns);
    add(report, pack, "server_cycles",
        "clock rate over that: the server's cycles (TSC) per request, if it was never idle",
        lean->cycles_per_ns * 1e9 / steady);
    add(report, pack, "client_cycles", "the client's busy cycles per request",
        (double)counts->busy_cycles / answers);
    add(report, pack, "client_idle", "part of its cycles in which the client found nothing",
        (double)counts->idle_cycles / present);
    add(report, pack, "per_datagram", "requests to a datagram, in truth",
        (double)counts->requests / (double)counts->datagrams);
    add(report, pack, "p50_us", "p50 of a request, us",
        (double)histogram_quantile(&counts->latency_ns, 500000) / 1000);
    add(report, pack, "p99_us", "p99 of a request, us",
        (double)histogram_quantile(&counts->latency_ns, 990000) / 1000);
    add(report, pack, "repeats", "requests sent once more",
        (double)(counts->repeats + counts->unavailable));
}

static void report_account(struct raw_report *report, uint32_t pack,
                           const struct lean_account *before, struct lean_account after)
{
    add(report, pack, "node_cycles", "the node's own account: cycles (TSC) per request, busy turns",
        (double)(after.cycles - before->cycles) / (double)(after.requests - before->requests));
}

static void measure(struct lean *lean, const struct raw_options *options, struct raw_report *report)
{
    const bool asks = options->target != NULL; /* our own server keeps no account */
    for (uint32_t i = 0; i < PACKS; i++) {
        uint32_t pack = options->pack > 0 ? options->pack : PACK[i];
        lean_drive(lean, pack, options->round_ns / WARM_UP_SHARE);
        lean_reset(lean);
        struct lean_account before = asks ? lean_account(lean) : lean->account;
        do /* what has no answer ends the program in time */
            lean_drive(lean, pack, options->round_ns);
        while (lean->counts.answers == 0);
        report_pack(report, lean, pack);
        if (asks)
            report_account(report, pack, &before, lean_account(lean));
        if (options->pack > 0)
            return;
    }
}

/* ---- main ------------------------------------------------------------------------------------ */

static struct port *open_port(const struct raw_options *options)
{
    char device[128];
    if (options->device != NULL)
        return virtual_port(options->device, VIRTUAL_CLIENT_HOST, VIRTUAL_CLIENT);
    if (options->target != NULL)
        return loopback_port();
    (void)snprintf(device, sizeof device, "net_virtio_user0,path=%s", own.path);
    return virtual_port(device, VIRTUAL_CLIENT_HOST, VIRTUAL_CLIENT);
}

int main(int argc, char **argv)
{
    static struct lean lean;
    static struct raw_report report = {.program = "lean_locks"};
    struct raw_options options;
    raw_parse(&options, "fktvnpx", "acquires and releases, as many as one core can ask for", argc,
              argv);
    if (options.in_flight > VIRTUAL_IN_FLIGHT_MAX)
        options.in_flight = VIRTUAL_IN_FLIGHT_MAX;
    enum lean_fault fault = lean_fault_of(options.fault);
    if (fault == LEAN_FAULT_COUNT)
        raw_die("--fault: there is no '%s'", options.fault);
    if (options.held + options.in_flight * LEAN_DEEPER > options.keys)
        raw_die("--keys %u: too few for %u that are held", options.keys, options.held);
    if (options.target == NULL) {
        start_server(&own, fault);
        (void)atexit(stop_server);
    }
    struct lean_options lean_options = {.port = open_port(&options),
                                        .names = options.keys,
                                        .held = options.held,
                                        .in_flight = options.in_flight,
                                        .sessions_per_shard = SESSIONS_PER_SHARD};
    const char *target = options.target != NULL ? options.target : "10.9.0.1:7400";
    if (port_address_parse(target, &lean_options.node) != 0)
        raw_die("--target: '%s' is no address", target);
    virtual_pin(0);
    lean_open(&lean, &lean_options);
    for (uint32_t round = 0; round < options.rounds; round++)
        measure(&lean, &options, &report);
    lean_close(&lean);
    raw_note(&report,
             "one session's window is 64 numbers; 256 requests under way at most, with 4 to a "
             "datagram 1024, with more 2048");
    raw_print(&report, options.json);
    return 0;
}
