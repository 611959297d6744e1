/* SPDX-License-Identifier: Apache-2.0
 *
 * The bare chain's client and its measurements: one request in flight, many in flight with one and
 * with many per datagram, and one token handed to and fro. See bare.h for what the chain is.
 */
#include <assert.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/raw/bare.h"
#include "bench/raw/loopback.h"
#include "bench/raw/raw.h"
#include "hw/clock.h"
#include "hw/disk.h"
#include "hw/file.h"

enum { NODES = 1 + BARE_FOLLOWERS, SAMPLES_MAX = 1 << 20, SILENCE_MS = 2000 };
#define WARM_UP_DIVISOR 10 /* this part of a round comes before it, unmeasured */

struct chain {
    struct bare_setup setup;
    pid_t nodes[NODES];
    uint64_t number; /* of the last request; odd ones acquire, even ones release */
};

/* ---- starting and stopping ------------------------------------------------------------------- */

static pid_t start(const struct bare_setup *setup, uint32_t node)
{
    pid_t child = loopback_fork();
    if (child > 0)
        return child;
    if (node == 0)
        bare_leader(setup);
    bare_follower(setup, node - 1);
}

static void chain_start(struct chain *chain)
{
    struct bare_setup *setup = &chain->setup;
    for (uint32_t i = 0; i < BARE_CLIENTS; i++)
        setup->clients[i] = loopback_port();
    setup->leader = loopback_port();
    for (uint32_t i = 0; i < BARE_FOLLOWERS; i++)
        setup->followers[i] = loopback_port();
    chain->number = 0;
    for (uint32_t node = 0; node < NODES; node++)
        chain->nodes[node] = start(setup, node);
}

static void chain_stop(struct chain *chain)
{
    for (uint32_t node = 0; node < NODES; node++)
        kill(chain->nodes[node], SIGKILL);
    for (uint32_t node = 0; node < NODES; node++)
        waitpid(chain->nodes[node], NULL, 0);
    for (uint32_t i = 0; i < BARE_CLIENTS; i++)
        port_close(chain->setup.clients[i]);
    port_close(chain->setup.leader);
    for (uint32_t i = 0; i < BARE_FOLLOWERS; i++)
        port_close(chain->setup.followers[i]);
}

/* ---- the client ------------------------------------------------------------------------------ */

static bool add_request(struct wire_builder *builder, uint8_t op, uint64_t number)
{
    struct wire_request *request = wire_builder_add(
        builder, op,
        op == WIRE_OP_ACQUIRE ? (size_t)BARE_ACQUIRE_BYTES : sizeof(struct wire_release));
    if (request != NULL)
        request->number = number;
    return request != NULL;
}

static void push(struct chain *chain, uint32_t client, struct wire_builder *builder)
{
    struct port_address leader;
    port_local_address(chain->setup.leader, &leader);
    port_tx_push(chain->setup.clients[client], (uint32_t)wire_builder_finish(builder), &leader);
}

/* One datagram more of `requests` requests, at most `pack` of them; how many went in. */
static uint32_t send_some(struct chain *chain, uint32_t requests, uint32_t pack)
{
    struct wire_builder builder;
    uint8_t *buffer = port_tx_buffer(chain->setup.clients[0]);
    if (buffer == NULL) {
        port_tx_flush(chain->setup.clients[0]);
        buffer = port_tx_buffer(chain->setup.clients[0]);
    }
    wire_builder_start(&builder, buffer, WIRE_DATAGRAM_BYTES_MAX, WIRE_KIND_REQUEST, 1, 0);
    uint32_t count = 0;
    for (; count < requests && count < pack; count++) {
        bool acquire = chain->number % 2 == 0;
        if (!add_request(&builder, acquire ? WIRE_OP_ACQUIRE : WIRE_OP_RELEASE, chain->number + 1))
            break;
        chain->number++;
    }
    push(chain, 0, &builder);
    return count;
}

static volatile sig_atomic_t interrupted; /* seen where the client waits: files are removed then */

static void interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

/* Waits for either client's socket; a chain that is silent has lost a datagram or a node. */
static void wait_readable(const struct chain *chain)
{
    struct pollfd sockets[BARE_CLIENTS];
    for (uint32_t i = 0; i < BARE_CLIENTS; i++)
        sockets[i] = (struct pollfd){port_descriptor(chain->setup.clients[i]), POLLIN, 0};
    int ready = poll(sockets, BARE_CLIENTS, SILENCE_MS);
    if (interrupted)
        exit(130);
    if (ready <= 0)
        raw_die("no answer in %d ms: a node ended, or a datagram was lost", SILENCE_MS);
}

/* How many answers came (0: none now). */
static uint32_t take_answers(struct chain *chain)
{
    struct port_packet packets[PORT_BURST_MAX];
    uint32_t count = port_rx_burst(chain->setup.clients[0], packets, PORT_BURST_MAX);
    uint32_t answers = 0;
    for (uint32_t i = 0; i < count; i++)
        answers += ((const struct wire_header *)packets[i].bytes)->item_count;
    return answers;
}

static void one_in_flight(struct chain *chain, uint64_t until_ns, struct raw_samples *samples)
{
    for (uint64_t now_ns = clock_monotonic_ns(); now_ns < until_ns;) {
        uint64_t sent_ns = now_ns;
        send_some(chain, 1, 1);
        port_tx_flush(chain->setup.clients[0]);
        do
            wait_readable(chain);
        while (take_answers(chain) == 0);
        now_ns = clock_monotonic_ns();
        raw_sample(samples, now_ns - sent_ns);
    }
}

/* Keeps `in_flight` requests under way; returns how many were answered per second. */
static double pipelined(struct chain *chain, uint64_t from_ns, uint64_t until_ns,
                        uint32_t in_flight, uint32_t pack)
{
    uint64_t answered = 0, first_ns = 0, now_ns = clock_monotonic_ns();
    for (uint32_t room = in_flight; now_ns < until_ns || answered == 0;) {
        while (room > 0)
            room -= send_some(chain, room, pack);
        port_tx_flush(chain->setup.clients[0]);
        wait_readable(chain);
        room = take_answers(chain);
        now_ns = clock_monotonic_ns();
        if (first_ns != 0)
            answered += room;
        else if (now_ns >= from_ns)
            first_ns = now_ns;
    }
    return (double)answered * 1e9 / (double)(now_ns - first_ns);
}

static void pass_on(struct chain *chain, uint32_t client)
{
    struct wire_builder builder;
    wire_builder_start(&builder, port_tx_buffer(chain->setup.clients[client]),
                       WIRE_DATAGRAM_BYTES_MAX, WIRE_KIND_REQUEST, 1, 0);
    add_request(&builder, WIRE_OP_RELEASE, ++chain->number);
    add_request(&builder, WIRE_OP_ACQUIRE, ++chain->number);
    push(chain, client, &builder);
    port_tx_flush(chain->setup.clients[client]);
}

static bool granted(const struct port_packet *packet)
{
    const struct wire_header *header = (const void *)packet->bytes;
    const struct wire_item *item = (const void *)(header + 1);
    for (uint32_t i = 0; i < header->item_count; i++, item = wire_item_next(item))
        if (item->op == WIRE_OP_PUSH_GRANT)
            return true;
    return false;
}

static double hand_over(struct chain *chain, uint64_t from_ns, uint64_t until_ns)
{
    uint64_t grants = 0, first_ns = 0, now_ns = clock_monotonic_ns();
    pass_on(chain, 0);
    for (uint32_t holder = 1; now_ns < until_ns || grants == 0;) { /* who will get it */
        struct port_packet packets[PORT_BURST_MAX];
        bool got = false;
        wait_readable(chain);
        uint32_t count = port_rx_burst(chain->setup.clients[holder], packets, PORT_BURST_MAX);
        for (uint32_t i = 0; i < count; i++)
            got = granted(&packets[i]) || got;
        port_rx_burst(chain->setup.clients[holder ^ 1], packets, PORT_BURST_MAX); /* "released" */
        if (!got)
            continue;
        pass_on(chain, holder);
        holder ^= 1;
        now_ns = clock_monotonic_ns();
        if (first_ns != 0)
            grants++;
        else if (now_ns >= from_ns)
            first_ns = now_ns;
    }
    return (double)grants * 1e9 / (double)(now_ns - first_ns);
}

/* ---- a round --------------------------------------------------------------------------------- */

struct keys {
    const char *p50, *p99, *single, *packed, *hand_overs;
};

static const struct keys MEMORY_KEYS = {"memory.one.p50_us", "memory.one.p99_us",
                                        "memory.single.requests_s", "memory.packed.requests_s",
                                        "memory.hand_overs_s"};
static const struct keys DISK_KEYS = {"disk.one.p50_us", "disk.one.p99_us",
                                      "disk.single.requests_s", "disk.packed.requests_s",
                                      "disk.hand_overs_s"};

static void measure(struct chain *chain, const struct raw_options *options,
                    struct raw_samples *samples, struct raw_report *report)
{
    const struct keys *keys = chain->setup.disk ? &DISK_KEYS : &MEMORY_KEYS;
    const uint64_t warm_ns = options->round_ns / WARM_UP_DIVISOR;
    chain->setup.work = BARE_REQUESTS;
    chain_start(chain);
    one_in_flight(chain, clock_monotonic_ns() + warm_ns, samples);
    samples->count = 0;
    one_in_flight(chain, clock_monotonic_ns() + options->round_ns, samples);
    raw_add(report, keys->p50, "one request in flight, p50, us", raw_quantile_us(samples, 0.5));
    raw_add(report, keys->p99, "one request in flight, p99, us", raw_quantile_us(samples, 0.99));
    chain_stop(chain);
    for (uint32_t packed = 0; packed < 2; packed++) {
        chain_start(chain);
        uint64_t from_ns = clock_monotonic_ns() + warm_ns;
        double rate = pipelined(chain, from_ns, from_ns + options->round_ns, options->in_flight,
                                packed ? UINT32_MAX : 1);
        raw_add(report, packed ? keys->packed : keys->single,
                packed ? "pipelined, many requests per datagram, requests/s"
                       : "pipelined, one request per datagram, requests/s",
                rate);
        chain_stop(chain);
    }
    chain->setup.work = BARE_HAND_OVER;
    chain_start(chain);
    uint64_t from_ns = clock_monotonic_ns() + warm_ns;
    raw_add(report, keys->hand_overs, "one token between two clients, hand-overs/s",
            hand_over(chain, from_ns, from_ns + options->round_ns));
    chain_stop(chain);
}

static char directories[NODES][FILE_PATH_BYTES_MAX];

static void remove_directories(void)
{
    for (uint32_t node = 0; node < NODES; node++)
        (void)file_remove_directory(directories[node]);
}

static void make_directories(struct chain *chain, const char *parent)
{
    for (uint32_t node = 0; node < NODES; node++) {
        int length = snprintf(directories[node], sizeof directories[node], "%s/bare-%ld-%u", parent,
                              (long)getpid(), node);
        if (length >= (int)sizeof directories[node])
            raw_die("--directory is too long");
        int error = disk_wal_create(directories[node], 1, BARE_SEGMENT_BYTES, NULL);
        if (error != 0)
            raw_die("%s: %s", directories[node], strerror(-error));
        chain->setup.directories[node] = directories[node];
    }
}

int main(int argc, char **argv)
{
    struct raw_options options;
    struct raw_report report = {.program = "bare_chain"};
    struct raw_samples samples;
    static struct chain chain;
    raw_parse(&options, "mdf",
              "client, leader and two followers without locks: the least that a request can cost",
              argc, argv);
    raw_samples_open(&samples, SAMPLES_MAX);
    if (options.disk)
        make_directories(&chain, options.directory);
    atexit(remove_directories);
    struct sigaction action = {.sa_handler = interrupt};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    for (uint32_t round = 0; round < options.rounds; round++)
        for (uint32_t disk = 0; disk < 2; disk++)
            if (disk ? options.disk : options.memory) {
                chain.setup.disk = disk;
                measure(&chain, &options, &samples, &report);
            }
    raw_note(&report, "four processes, not pinned, that sleep when there is nothing to do");
    raw_note(&report, "an answer leaves when two of three nodes have the bytes (disk: synced)");
    raw_print(&report, options.json);
    raw_samples_close(&samples);
    return 0;
}
