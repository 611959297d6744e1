/* SPDX-License-Identifier: Apache-2.0
 *
 * What the Raft core itself costs: three replicas in one thread, memory durability, no network:
 * effects of one core become events of the next at once. Prints entries and commands committed per
 * second.
 *
 *     raft_step [milliseconds per line]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "consensus/raft.h"

enum { REPLICAS = 3, RING_BYTES = 4 << 20, SLOTS = 65536, COMMAND_BYTES = 64, QUEUE = 4096 };

struct replica {
    struct raft *raft;
    struct log log;
    struct raft_effects effects;
    uint64_t committed;
    uint64_t applied;
};

struct queued {
    uint32_t to;
    struct raft_event event;
};

struct bench {
    struct replica replicas[REPLICAS];
    struct queued queue[QUEUE];
    uint32_t head, tail;
    uint64_t now_ns;
};

static uint64_t clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct raft_event *enqueue(struct bench *bench, uint32_t to, enum raft_event_kind kind)
{
    struct queued *queued = &bench->queue[bench->tail++ % QUEUE];

    assert(bench->tail - bench->head <= QUEUE);
    memset(queued, 0, sizeof(*queued));
    queued->to = to;
    queued->event.kind = kind;
    return &queued->event;
}

/* Bytes go from ring to ring, as datagrams or one-sided writes would bring them. */
static void ship(struct bench *bench, uint32_t from, const struct raft_effect *effect)
{
    uint32_t to = (uint32_t)effect->ship.peer - 1;
    uint64_t position = effect->ship.from;

    while (position < effect->ship.to) {
        size_t length = effect->ship.to - position;
        const uint8_t *bytes = log_read(&bench->replicas[from].log, position, &length);
        bool taken = log_write(&bench->replicas[to].log, position, bytes, length);
        assert(taken);
        position += length;
    }
    struct raft_event *event = enqueue(bench, to, RAFT_EV_RECEIVED);
    event->progress.grant = effect->ship.grant;
    event->progress.commit = bench->replicas[from].committed;
}

static void perform(struct bench *bench, uint32_t from, const struct raft_effect *effect)
{
    switch (effect->kind) {
    case RAFT_FX_SEND:
        enqueue(bench, (uint32_t)effect->message.to - 1, RAFT_EV_MESSAGE)->message =
            effect->message;
        break;
    case RAFT_FX_SHIP:
        ship(bench, from, effect);
        break;
    case RAFT_FX_GRANT:
        enqueue(bench, from, RAFT_EV_GRANTED)->progress.grant = effect->grant.number;
        break;
    case RAFT_FX_REVOKE:
        enqueue(bench, from, RAFT_EV_REVOKED)->progress.grant = effect->grant.number;
        break;
    case RAFT_FX_COMMITTED:
        bench->replicas[from].committed = effect->range.last;
        break;
    default:
        break;
    }
}

static void step(struct bench *bench, uint32_t at, struct raft_event *event)
{
    struct replica *replica = &bench->replicas[at];

    event->now_ns = bench->now_ns;
    raft_step(replica->raft, event, &replica->effects);
    for (uint32_t i = 0; i < replica->effects.count; i++)
        perform(bench, at, &replica->effects.items[i]);
}

static void drain(struct bench *bench)
{
    while (bench->head != bench->tail) {
        struct queued queued = bench->queue[bench->head++ % QUEUE];
        step(bench, queued.to, &queued.event);
    }
}

/* The state machine applies in batches, as a worker does. */
static void apply(struct bench *bench)
{
    for (uint32_t i = 0; i < REPLICAS; i++) {
        struct replica *replica = &bench->replicas[i];
        if (replica->applied == replica->committed)
            continue;
        replica->applied = replica->committed;
        enqueue(bench, i, RAFT_EV_APPLIED)->progress.index = replica->applied;
    }
    drain(bench);
}

static void *memory(size_t bytes)
{
    void *block = aligned_alloc(64, (bytes + 63) & ~(size_t)63);

    if (block == NULL)
        abort();
    memset(block, 0, bytes);
    return block;
}

static void start(struct bench *bench)
{
    struct raft_configuration configuration = {.count = REPLICAS};
    struct raft_hard_state hard = {0};

    memset(bench, 0, sizeof(*bench));
    bench->now_ns = 1;
    for (uint32_t i = 0; i < REPLICAS; i++)
        configuration.members[i] = (struct raft_member){
            .replica_id = i + 1, .node = (uint16_t)(i + 1), .role = RAFT_VOTER};
    for (uint32_t i = 0; i < REPLICAS; i++) {
        struct replica *replica = &bench->replicas[i];
        struct raft_options options = {
            .replica_id = i + 1,
            .node = (uint16_t)(i + 1),
            .durability = RAFT_MEMORY,
            .heartbeat_ns = 10000000,
            .election_timeout_ns = 100000000,
            .rng_seed = i,
            .ship_window_bytes = RING_BYTES / 4,
        };
        log_init(&replica->log, memory(log_memory_bytes(RING_BYTES, SLOTS)), RING_BYTES, SLOTS);
        replica->raft = raft_init(memory(raft_memory_bytes()), &options, &replica->log, &hard,
                                  &configuration, bench->now_ns);
    }
    bench->now_ns = raft_next_deadline(bench->replicas[0].raft);
    step(bench, 0, &(struct raft_event){.kind = RAFT_EV_TICK});
    drain(bench);
    apply(bench);
}

static void finish(struct bench *bench)
{
    for (uint32_t i = 0; i < REPLICAS; i++) {
        free(bench->replicas[i].log.ring);
        free(bench->replicas[i].raft);
    }
}

static void run(uint64_t duration_ns, uint32_t commands, uint32_t in_flight)
{
    static struct bench bench;
    uint8_t command[COMMAND_BYTES];

    memset(command, 0x5a, sizeof(command));
    start(&bench);
    struct replica *leader = &bench.replicas[0];
    uint64_t first = leader->committed, begin_ns = clock_ns(), end_ns = begin_ns + duration_ns;
    while (clock_ns() < end_ns) {
        for (uint32_t i = 0; i < in_flight; i++) {
            uint8_t *payload = raft_reserve(leader->raft, commands * sizeof(command));
            if (payload == NULL)
                break;
            for (uint32_t j = 0; j < commands; j++)
                memcpy(payload + j * sizeof(command), command, sizeof(command));
            struct raft_event event = {.kind = RAFT_EV_PROPOSE};
            event.propose.kind = LOG_COMMANDS;
            event.propose.payload_bytes = commands * sizeof(command);
            step(&bench, 0, &event);
        }
        drain(&bench);
        apply(&bench);
    }
    uint64_t entries = leader->committed - first;
    double seconds = (double)(clock_ns() - begin_ns) / 1e9;
    printf("%12u %10u %14.0f %14.0f %12.0f\n", commands, in_flight, (double)entries / seconds,
           (double)entries * commands / seconds, seconds * 1e9 / (double)entries);
    finish(&bench);
}

int main(int argc, char **argv)
{
    uint64_t duration_ns = (argc > 1 ? strtoull(argv[1], NULL, 10) : 1000) * 1000000u;

    printf("three replicas, one thread, memory durability, %d-byte commands\n", COMMAND_BYTES);
    printf("%12s %10s %14s %14s %12s\n", "cmds/entry", "in flight", "entries/s", "commands/s",
           "ns/entry");
    run(duration_ns, 1, 1);
    run(duration_ns, 1, 32);
    run(duration_ns, 32, 1);
    run(duration_ns, 32, 32);
    return 0;
}
