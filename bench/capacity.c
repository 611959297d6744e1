/* SPDX-License-Identifier: Apache-2.0
 *
 * Capacity: many clients of one process, each with a session of its own and a few locks that are
 * kept renewed. Acquires everything, then holds it for a while and counts what was lost.
 *
 *     capacity --endpoints 127.0.0.1:7400 --clients 100000 --locks 5 --ttl-ms 10000 --seconds 60
 *
 * Exit code 0: every lock was acquired and none was lost.
 */
#include <arpa/inet.h>
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>

#include "bench/core_socket.h"

enum { OUTSTANDING_MAX = 4096 };

struct options {
    uint32_t clients;
    uint32_t locks;
    uint32_t ttl_ms;
    uint32_t session_ttl_ms;
    uint32_t seconds;
};

struct load {
    struct options options;
    struct core *core;
    struct core_socket socket;
    uint64_t started; /* acquires */
    uint64_t outstanding;
    uint64_t held;
    uint64_t lost;
    uint64_t failed[BELAY_STATUS_COUNT];
};

__attribute__((noreturn)) static void die(const char *what)
{
    fprintf(stderr, "capacity: %s\n", what);
    exit(2);
}

/* ---- what the core says ---------------------------------------------------------------------- */

static void on_send(void *context, const struct wire_address *to, const uint8_t *bytes,
                    size_t length)
{
    core_socket_push(&((struct load *)context)->socket, to, bytes, length);
}

static void on_complete(void *context, const struct core_completion *completion)
{
    struct load *load = context;

    load->outstanding--;
    if (completion->status == BELAY_OK)
        load->held++;
    else
        load->failed[completion->status]++;
}

static void on_lost(void *context, core_ref lock, uint64_t user, belay_lost_reason reason)
{
    struct load *load = context;

    (void)lock;
    if (load->lost++ < 5)
        fprintf(stderr, "\ncapacity: lock %llu lost, reason %d\n", (unsigned long long)user,
                (int)reason);
}

static void on_revoke(void *context, core_ref lock, uint64_t user)
{
    (void)context;
    (void)lock;
    (void)user;
}

static void on_renewed(void *context, core_ref lock, uint64_t user, uint64_t deadline_ns)
{
    (void)context;
    (void)lock;
    (void)user;
    (void)deadline_ns;
}

/* ---- load ------------------------------------------------------------------------------------ */

/* All locks of one client carry its number in braces, so that they lie in one shard. */
static void start_some(struct load *load)
{
    uint64_t total = (uint64_t)load->options.clients * load->options.locks;

    while (load->started < total && load->outstanding < OUTSTANDING_MAX) {
        uint32_t client = (uint32_t)(load->started / load->options.locks);
        char name[64];
        int length = snprintf(name, sizeof name, "cap/{%u}/%u", client,
                              (unsigned)(load->started % load->options.locks));
        struct core_acquire acquire = {
            .name = {.name = (const uint8_t *)name, .name_bytes = (uint8_t)length},
            .mode = WIRE_EXCLUSIVE,
            .ttl_ms = load->options.ttl_ms,
            .wait_ms = UINT64_MAX,
            .lock_user = load->started,
        };
        belay_status status =
            core_acquire(load->core, core_socket_now_ns(), client, &acquire, load->started, NULL);

        if (status == BELAY_OVER_LIMIT)
            return; /* a session's window is full: a little later */
        if (status != BELAY_OK) {
            fprintf(stderr, "capacity: acquire: %d\n", (int)status);
            exit(2);
        }
        load->started++;
        load->outstanding++;
    }
}

static void turn(struct load *load)
{
    struct pollfd descriptor = {.fd = load->socket.descriptor, .events = POLLIN};
    uint64_t time_ns = core_socket_now_ns();
    uint64_t deadline_ns = core_next_deadline(load->core);

    if (deadline_ns > time_ns) {
        uint64_t wait_ns = deadline_ns - time_ns;
        struct timespec limit = {.tv_nsec = wait_ns > 50000000 ? 50000000 : (long)wait_ns};

        (void)ppoll(&descriptor, 1, &limit, NULL);
    }
    core_socket_turn(&load->socket, load->core);
}

static void show(const struct load *load, const char *phase, double seconds)
{
    struct core_counts counts;

    core_counts(load->core, &counts);
    fprintf(stderr,
            "\r%-8s %6.1f s  sessions %u  held %llu  renewals %llu  retries %llu  redirects %llu  "
            "unavailable %llu  lost %llu   ",
            phase, seconds, counts.sessions, (unsigned long long)load->held,
            (unsigned long long)counts.renewals, (unsigned long long)counts.retries,
            (unsigned long long)counts.redirects, (unsigned long long)counts.unavailable,
            (unsigned long long)load->lost);
}

static double run(struct load *load)
{
    uint64_t total = (uint64_t)load->options.clients * load->options.locks;
    uint64_t begun_ns = core_socket_now_ns();
    uint64_t shown_ns = begun_ns;
    double acquired_s;
    struct core_counts before;
    struct core_counts after;

    while (load->started < total || load->outstanding) {
        start_some(load);
        core_flush(load->core);
        turn(load);
        if (core_socket_now_ns() - shown_ns > 500000000) {
            shown_ns = core_socket_now_ns();
            show(load, "acquire", (double)(shown_ns - begun_ns) / 1e9);
        }
    }
    acquired_s = (double)(core_socket_now_ns() - begun_ns) / 1e9;
    core_counts(load->core, &before);
    begun_ns = core_socket_now_ns();
    while (core_socket_now_ns() - begun_ns < load->options.seconds * UINT64_C(1000000000)) {
        turn(load);
        if (core_socket_now_ns() - shown_ns > 500000000) {
            shown_ns = core_socket_now_ns();
            show(load, "hold", (double)(shown_ns - begun_ns) / 1e9);
        }
    }
    core_counts(load->core, &after);
    fprintf(stderr, "\n");
    printf("sessions            %u\n", after.sessions);
    printf("locks held          %llu of %llu\n", (unsigned long long)load->held,
           (unsigned long long)total);
    printf("acquired in         %.1f s, %.0f /s\n", acquired_s, (double)total / acquired_s);
    printf("held for            %u s, %.0f renewals/s\n", load->options.seconds,
           (double)(after.renewals - before.renewals) / load->options.seconds);
    printf("retries             %llu\n", (unsigned long long)after.retries);
    printf("sessions lost       %llu\n", (unsigned long long)after.sessions_lost);
    printf("locks lost          %llu\n", (unsigned long long)load->lost);
    for (int i = 1; i < BELAY_STATUS_COUNT; i++) {
        if (load->failed[i])
            printf("acquires failed     %llu with status %d\n", (unsigned long long)load->failed[i],
                   i);
    }
    return acquired_s;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static void parse_endpoints(const char *text, struct core_options *core)
{
    char copy[512];
    char *rest = copy;
    char *one;

    (void)snprintf(copy, sizeof copy, "%s", text);
    while ((one = strsep(&rest, ",")) != NULL) {
        char *colon = strrchr(one, ':');
        struct wire_address *address = &core->endpoints[core->endpoints_count];
        struct in_addr ip;

        if (!colon || core->endpoints_count == CORE_ENDPOINTS_MAX)
            die("--endpoints takes IPv4 addresses: 127.0.0.1:7400,...");
        *colon = 0;
        if (inet_pton(AF_INET, one, &ip) != 1)
            die("--endpoints takes IPv4 addresses: 127.0.0.1:7400,...");
        *address = (struct wire_address){.ip = {[10] = 0xff, [11] = 0xff},
                                         .port = (uint16_t)strtoul(colon + 1, NULL, 10)};
        memcpy(address->ip + 12, &ip, 4);
        core->endpoints_count++;
    }
}

static uint32_t number(const char *text)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    if (*end || end == text || value > UINT32_MAX)
        die("a number was expected");
    return (uint32_t)value;
}

static const char *parse(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {
        {"endpoints", required_argument, NULL, 'e'},
        {"clients", required_argument, NULL, 'c'},
        {"locks", required_argument, NULL, 'l'},
        {"ttl-ms", required_argument, NULL, 't'},
        {"session-ttl-ms", required_argument, NULL, 'S'},
        {"seconds", required_argument, NULL, 's'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    const char *endpoints = getenv("BELAY_ENDPOINTS");
    int option;

    *options = (struct options){
        .clients = 100000, .locks = 5, .ttl_ms = 10000, .session_ttl_ms = 10000, .seconds = 60};
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (option) {
        case 'e':
            endpoints = optarg;
            break;
        case 'c':
            options->clients = number(optarg);
            break;
        case 'l':
            options->locks = number(optarg);
            break;
        case 't':
            options->ttl_ms = number(optarg);
            break;
        case 'S':
            options->session_ttl_ms = number(optarg);
            break;
        case 's':
            options->seconds = number(optarg);
            break;
        default:
            printf("usage: capacity [--endpoints H:P,...] [--clients N] [--locks N] [--ttl-ms N]\n"
                   "                [--session-ttl-ms N] [--seconds N]\n");
            exit(option == 'h' ? 0 : 2);
        }
    }
    if (!options->clients || !options->locks || !options->seconds)
        die("clients, locks and seconds are at least 1");
    return endpoints ? endpoints : "127.0.0.1:7400";
}

int main(int argc, char **argv)
{
    static struct load load;
    struct core_options core_options;
    struct core_sink sink = {.send = on_send,
                             .complete = on_complete,
                             .lost = on_lost,
                             .revoke = on_revoke,
                             .renewed = on_renewed,
                             .context = &load};
    const char *endpoints = parse(argc, argv, &load.options);
    void *memory;

    core_options_init(&core_options);
    core_options.clients_count = load.options.clients;
    core_options.sessions_max = load.options.clients + load.options.clients / 8 + 64;
    core_options.locks_max = load.options.clients * load.options.locks;
    core_options.requests_max = OUTSTANDING_MAX * 2;
    core_options.text_bytes_max = 64;
    core_options.session_ttl_ms = load.options.session_ttl_ms;
    core_options.request_timeout_ms = 60000;
    if (getrandom(core_options.seed, sizeof core_options.seed, 0) < 0)
        die("no random bytes");
    parse_endpoints(endpoints, &core_options);
    if (!core_socket_open(&load.socket))
        die("no socket");
    memory = mmap(NULL, core_memory_bytes(&core_options), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        die("no memory");
    load.core = core_init(memory, &core_options, &sink, core_socket_now_ns());
    (void)run(&load);
    return load.lost == 0 && load.held == (uint64_t)load.options.clients * load.options.locks ? 0
                                                                                              : 1;
}
