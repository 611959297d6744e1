/* SPDX-License-Identifier: Apache-2.0
 *
 * A load that bypasses the kernel: virtual clients of one protocol core on a DPDK port, each of
 * which acquires a lock of its own and releases it, again and again. Another process has other
 * locks.
 *
 *     system_asker DEVICE CLIENTS WARM SECONDS
 *
 * It has the address 10.78.0.2 and asks 10.78.0.1:7400. Prints "started" after the first release
 * and "warm" after WARM of them; from then on it counts for SECONDS, and prints at the end how many
 * pairs there were and how many commands failed. Exit code 0 if none did; 1, too, if it does not
 * get that far.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "bench/core_socket.h"
#include "belay/dpdk.h"
#include "client/core.h"

enum { SERVICE = 7400, OWN_PORT = 5000, CLIENTS_MAX = 256, PATIENCE_S = 50 };
static const uint64_t second_ns = 1000000000;

struct asker {
    struct core_socket socket;
    struct core *core;
    uint32_t clients;
    uint32_t ready[CLIENTS_MAX]; /* clients that have a next step to take */
    uint32_t ready_count;
    core_ref held[CLIENTS_MAX]; /* 0: acquire next */
    uint64_t pairs, failed;
};

/* ---- what the core says ---------------------------------------------------------------------- */

static void on_send(void *context, const struct wire_address *to, const uint8_t *bytes,
                    size_t length)
{
    core_socket_push(&((struct asker *)context)->socket, to, bytes, length);
}

static void on_complete(void *context, const struct core_completion *completion)
{
    struct asker *asker = context;
    uint32_t client = (uint32_t)completion->user;
    bool acquired = completion->op == WIRE_OP_ACQUIRE && completion->status == BELAY_OK;
    asker->held[client] = acquired ? completion->lock : 0;
    asker->pairs += completion->op == WIRE_OP_RELEASE && completion->status == BELAY_OK;
    asker->failed += completion->status != BELAY_OK;
    asker->ready[asker->ready_count++] = client;
}

static void on_lost(void *context, core_ref lock, uint64_t user, belay_lost_reason reason)
{
    (void)lock, (void)user, (void)reason;
    ((struct asker *)context)->failed++;
}

static void on_revoke(void *context, core_ref lock, uint64_t user)
{
    (void)context, (void)lock, (void)user;
}

static void on_renewed(void *context, core_ref lock, uint64_t user, uint64_t deadline_ns)
{
    (void)context, (void)lock, (void)user, (void)deadline_ns;
}

/* ---- load ------------------------------------------------------------------------------------ */

static belay_status step(struct asker *asker, uint32_t client, uint64_t time_ns)
{
    char name[32];
    if (asker->held[client] != 0)
        return core_release(asker->core, time_ns, asker->held[client], client, NULL);
    struct core_acquire acquire = {
        .name = {.name = (const uint8_t *)name,
                 .name_bytes =
                     (uint8_t)snprintf(name, sizeof name, "asked/%d/%u", getpid(), client)},
        .mode = WIRE_EXCLUSIVE,
        .ttl_ms = 60000,
        .wait_ms = UINT64_MAX,
    };
    return core_acquire(asker->core, time_ns, client, &acquire, client, NULL);
}

static void turn(struct asker *asker)
{
    uint64_t time_ns = core_socket_now_ns();
    uint32_t steps = asker->ready_count, kept = 0;
    uint32_t ready[CLIENTS_MAX];
    memcpy(ready, asker->ready, sizeof ready);
    asker->ready_count = 0;
    for (uint32_t i = 0; i < steps; i++) {
        belay_status status = step(asker, ready[i], time_ns);
        if (status == BELAY_OVER_LIMIT) /* its session's window is full: a little later */
            ready[kept++] = ready[i];
        else
            asker->failed += status != BELAY_OK;
    }
    for (uint32_t i = 0; i < kept; i++)
        asker->ready[asker->ready_count++] = ready[i];
    core_socket_turn(&asker->socket, asker->core);
}

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "system_asker: %s%s\n", what, why);
    exit(1);
}

static void open_port(struct asker *asker, const char *device)
{
    char error[BELAY_DPDK_ERROR_BYTES] = "";
    belay_dpdk_options options;
    belay_dpdk_port *port;
    belay_transport transport;
    belay_dpdk_options_init(&options);
    options.device = device;
    options.address = "10.78.0.2/24";
    options.udp_port = OWN_PORT;
    options.no_hugepages = true;
    if (belay_dpdk_port_open(&options, &port, error) != BELAY_OK)
        fail("no port: ", error);
    belay_dpdk_port_transport(port, &transport);
    core_socket_open_transport(&asker->socket, &transport);
}

static void open_core(struct asker *asker)
{
    struct core_options options;
    struct core_sink sink = {.send = on_send,
                             .complete = on_complete,
                             .lost = on_lost,
                             .revoke = on_revoke,
                             .renewed = on_renewed,
                             .context = asker};
    core_options_init(&options);
    options.clients_count = asker->clients;
    options.sessions_max = asker->clients * 2 + 64;
    options.locks_max = options.requests_max = asker->clients * 2;
    options.text_bytes_max = 64;
    options.session_ttl_ms = 60000;
    options.request_timeout_ms = 10000;
    options.endpoints_count = 1;
    options.endpoints[0] =
        (struct wire_address){.ip = {[10] = 0xff, 0xff, 10, 78, 0, 1}, .port = SERVICE};
    void *memory = mmap(NULL, core_memory_bytes(&options), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || getrandom(options.seed, sizeof options.seed, 0) < 0)
        fail("no memory or no random bytes", "");
    asker->core = core_init(memory, &options, &sink, core_socket_now_ns());
}

/* Turns until there are so many pairs. */
static void go_on_to(struct asker *asker, uint64_t pairs)
{
    uint64_t end_ns = core_socket_now_ns() + PATIENCE_S * second_ns;
    while (asker->pairs < pairs) {
        turn(asker);
        if (asker->pairs < pairs && core_socket_now_ns() > end_ns) {
            fprintf(stderr, "%" PRIu64 " of %" PRIu64 " pairs, %" PRIu64 " commands failed\n",
                    asker->pairs, pairs, asker->failed);
            fail("too slow", "");
        }
    }
}

static void say(const char *word)
{
    puts(word);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static struct asker asker;
    if (argc != 5)
        fail("usage: system_asker DEVICE CLIENTS WARM SECONDS", "");
    asker.clients = (uint32_t)strtoul(argv[2], NULL, 10);
    if (asker.clients == 0 || asker.clients > CLIENTS_MAX)
        fail("CLIENTS must be from 1 to 256", "");
    open_port(&asker, argv[1]);
    open_core(&asker);
    for (uint32_t client = 0; client < asker.clients; client++)
        asker.ready[asker.ready_count++] = client;
    go_on_to(&asker, 1);
    say("started");
    go_on_to(&asker, strtoull(argv[3], NULL, 10));
    say("warm");
    uint64_t before = asker.pairs;
    uint64_t end_ns = core_socket_now_ns() + strtoul(argv[4], NULL, 10) * second_ns;
    while (core_socket_now_ns() < end_ns)
        turn(&asker);
    printf("pairs: %" PRIu64 "\nfailed: %" PRIu64 "\n", asker.pairs - before, asker.failed);
    return asker.failed == 0 ? 0 : 1;
}
