/* SPDX-License-Identifier: Apache-2.0
 *
 * A load that bypasses the kernel: virtual clients of one protocol core on a DPDK port, each of
 * which acquires a lock of its own and releases it, again and again. Another process has other
 * locks.
 *
 *     system_asker DEVICE CLIENTS SECONDS
 *
 * It has the address 10.78.0.2 and asks 10.78.0.1:7400. Prints "started" after the first release,
 * "warm" after a good many, from when on SECONDS count, and at the end how many pairs there were
 * and how many commands failed; exit code 0 if none did.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "client/core.h"
#include "hw/dpdk/dpdk.h"

enum { SERVICE = 7400, OWN_PORT = 5000, CLIENTS_MAX = 256, PATIENCE_S = 20 };
enum { WARM_PAIRS = 200000 /* by then every buffer of either side has been used */ };
static const uint64_t second_ns = 1000000000;

struct asker {
    struct core *core;
    struct port *port;
    uint32_t clients;
    uint32_t ready[CLIENTS_MAX]; /* clients that have a next step to take */
    uint32_t ready_count;
    core_ref held[CLIENTS_MAX]; /* 0: acquire next */
    uint64_t pairs, failed;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * second_ns + (uint64_t)now.tv_nsec;
}

static struct wire_address wire_address_of(const struct port_address *address)
{
    struct wire_address wire = {.port = address->port};
    memcpy(wire.ip, address->ip, sizeof wire.ip);
    return wire;
}

/* ---- what the core says ---------------------------------------------------------------------- */

static void on_send(void *context, const struct wire_address *to, const uint8_t *bytes,
                    size_t length)
{
    struct asker *asker = context;
    struct port_address address = {.port = to->port};
    uint8_t *buffer = port_tx_buffer(asker->port);
    if (buffer == NULL) {
        port_tx_flush(asker->port);
        buffer = port_tx_buffer(asker->port);
    }
    if (buffer == NULL)
        return; /* lost like any other: the core repeats it */
    memcpy(address.ip, to->ip, sizeof address.ip);
    memcpy(buffer, bytes, length);
    port_tx_push(asker->port, (uint32_t)length, &address);
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
    struct port_packet packets[PORT_BURST_MAX];
    uint32_t count = port_rx_burst(asker->port, packets, PORT_BURST_MAX);
    uint64_t time_ns = now_ns();
    for (uint32_t i = 0; i < count; i++) {
        struct wire_address from = wire_address_of(&packets[i].from);
        core_receive(asker->core, time_ns, &from, packets[i].bytes, packets[i].length);
    }
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
    core_tick(asker->core, time_ns);
    core_flush(asker->core);
    port_tx_flush(asker->port);
}

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "system_asker: %s%s\n", what, why);
    exit(1);
}

static void open_port(struct asker *asker, const char *device_name)
{
    char error[DPDK_ERROR_BYTES] = "";
    struct dpdk_options options = {
        .device = device_name,
        .net = {.ipv4 = {10, 78, 0, 2}, .ipv4_prefix = 24, .mtu = 1500},
        .queues = 1,
    };
    struct port_address bind = {.port = OWN_PORT};
    struct dpdk_device *device = dpdk_open(&options, error);
    if (device == NULL || port_dpdk_open(device, 0, &bind, &asker->port) != 0)
        fail("no port: ", error);
    (void)dpdk_steer(device);
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
    asker->core = core_init(memory, &options, &sink, now_ns());
}

int main(int argc, char **argv)
{
    static struct asker asker;
    if (argc != 4)
        fail("usage: system_asker DEVICE CLIENTS SECONDS", "");
    asker.clients = (uint32_t)strtoul(argv[2], NULL, 10);
    if (asker.clients == 0 || asker.clients > CLIENTS_MAX)
        fail("CLIENTS must be from 1 to 256", "");
    open_port(&asker, argv[1]);
    open_core(&asker);
    for (uint32_t client = 0; client < asker.clients; client++)
        asker.ready[asker.ready_count++] = client;
    uint64_t end_ns = now_ns() + PATIENCE_S * second_ns;
    while (asker.pairs == 0 && now_ns() < end_ns)
        turn(&asker);
    if (asker.pairs == 0)
        fail("no answers", "");
    printf("started\n");
    fflush(stdout);
    end_ns = now_ns() + PATIENCE_S * second_ns;
    while (asker.pairs < WARM_PAIRS && now_ns() < end_ns)
        turn(&asker);
    printf("warm\n");
    fflush(stdout);
    end_ns = now_ns() + strtoul(argv[3], NULL, 10) * second_ns;
    while (now_ns() < end_ns)
        turn(&asker);
    printf("pairs: %" PRIu64 "\nfailed: %" PRIu64 "\n", asker.pairs, asker.failed);
    return asker.failed == 0 ? 0 : 1;
}
