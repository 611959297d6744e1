/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine as an object: its memory, its blank state, counts and deadlines.
 */
#include "dataplane/machine/machine.h"

#include <string.h>

#include "dataplane/machine/snapshot.h"

/* ---- memory ---------------------------------------------------------------------------------- */

static const uint32_t record_bytes[SLAB_COUNT] = {
    [SLAB_LEASES] = sizeof(struct lease_record),
    [SLAB_RESOURCES] = sizeof(struct resource_record),
    [SLAB_SESSIONS] = sizeof(struct session_record),
    [SLAB_WAITERS] = sizeof(struct waiter_record),
    [SLAB_ANSWERS] = sizeof(struct answer_record),
    [SLAB_LONG_NAMES] = sizeof(struct long_record),
    [SLAB_EXTRAS] = sizeof(struct extra_record),
    [SLAB_QUEUES] = sizeof(struct queue_record),
};

static void slab_capacities(const struct lock_limits *limits, uint32_t capacities[SLAB_COUNT])
{
    /* A queue has a waiter or an extra (records.h). */
    uint64_t queues = (uint64_t)limits->waiters_max + limits->extras_max;
    capacities[SLAB_LEASES] = limits->leases_max;
    capacities[SLAB_RESOURCES] = limits->resources_max;
    capacities[SLAB_SESSIONS] = limits->sessions_max;
    capacities[SLAB_WAITERS] = limits->waiters_max;
    capacities[SLAB_ANSWERS] = limits->answers_max;
    capacities[SLAB_LONG_NAMES] = limits->long_names_max;
    capacities[SLAB_EXTRAS] = limits->extras_max;
    capacities[SLAB_QUEUES] =
        queues < limits->resources_max ? (uint32_t)queues : limits->resources_max;
}

static uint32_t timers_count(const uint32_t capacities[SLAB_COUNT])
{
    return capacities[SLAB_LEASES] + capacities[SLAB_SESSIONS] + capacities[SLAB_WAITERS] +
           capacities[SLAB_QUEUES];
}

static uint32_t window_cells(const struct lock_limits *limits)
{
    uint32_t cells = 1;
    while (cells < limits->window) {
        cells *= 2;
    }
    return cells;
}

/* Where everything lies; offsets from the start of the memory. */
struct layout {
    size_t slabs[SLAB_COUNT];
    size_t names, ids, nonces, windows, timers, capture, restore;
    size_t capture_bytes;
    size_t total;
};

static size_t place(struct layout *layout, size_t bytes)
{
    size_t offset = layout->total;
    layout->total += (bytes + 63) / 64 * 64;
    return offset;
}

static struct layout lay_out(const struct lock_limits *limits)
{
    uint32_t capacities[SLAB_COUNT];
    struct layout layout = {0};
    slab_capacities(limits, capacities);
    (void)place(&layout, sizeof(struct lock_machine));
    for (int i = 0; i < SLAB_COUNT; i++) {
        layout.slabs[i] = place(&layout, slab_memory_bytes(capacities[i], record_bytes[i]));
    }
    layout.names = place(&layout, index_memory_bytes(limits->resources_max));
    layout.ids = place(&layout, index_memory_bytes(limits->sessions_max));
    layout.nonces = place(&layout, index_memory_bytes(limits->sessions_max));
    layout.windows = place(&layout, (size_t)limits->sessions_max * window_cells(limits) * 4);
    layout.timers = place(&layout, timers_memory_bytes(timers_count(capacities)));
    layout.capture_bytes = capture_memory_bytes(layout.total);
    layout.capture = place(&layout, layout.capture_bytes);
    layout.restore = place(&layout, restore_memory_bytes());
    return layout;
}

struct lock_memory lock_machine_memory(const struct lock_limits *limits)
{
    uint32_t capacities[SLAB_COUNT];
    size_t slabs[SLAB_COUNT];
    slab_capacities(limits, capacities);
    for (int i = 0; i < SLAB_COUNT; i++) {
        slabs[i] = slab_memory_bytes(capacities[i], record_bytes[i]);
    }
    struct lock_memory memory = {
        .total = lay_out(limits).total,
        .leases = slabs[SLAB_LEASES],
        .resources = slabs[SLAB_RESOURCES] + index_memory_bytes(limits->resources_max),
        .sessions = slabs[SLAB_SESSIONS] + 2 * index_memory_bytes(limits->sessions_max) +
                    (size_t)limits->sessions_max * window_cells(limits) * 4,
        .waiters = slabs[SLAB_WAITERS] + slabs[SLAB_QUEUES],
        .answers = slabs[SLAB_ANSWERS],
        .long_names = slabs[SLAB_LONG_NAMES],
        .extras = slabs[SLAB_EXTRAS],
        .timers = timers_memory_bytes(timers_count(capacities)),
    };
    memory.other = memory.total - memory.leases - memory.resources - memory.sessions -
                   memory.waiters - memory.answers - memory.long_names - memory.extras -
                   memory.timers;
    return memory;
}

static uint64_t tick_of_timer(const void *context, uint32_t id)
{
    const struct lock_machine *machine = context;
    uint32_t slot;
    switch (timer_of(machine, id, &slot)) {
    case TIMER_LEASE:
        return until_tick(lease_at(machine, slot)->until);
    case TIMER_SESSION:
        return until_tick(session_at(machine, slot)->until);
    case TIMER_WAITER:
        return until_tick(waiter_at(machine, slot)->until);
    default:
        return queue_at(machine, slot)->closed_until;
    }
}

static const enum slab_number timer_slabs[] = {
    [TIMER_LEASE] = SLAB_LEASES,
    [TIMER_SESSION] = SLAB_SESSIONS,
    [TIMER_WAITER] = SLAB_WAITERS,
    [TIMER_QUEUE] = SLAB_QUEUES,
};

static void timers_number(struct lock_machine *machine)
{
    uint32_t before = 0;
    for (int kind = TIMER_LEASE; kind < TIMER_KINDS; kind++) {
        machine->timers_before[kind] = before;
        before += machine->slabs[timer_slabs[kind]].capacity;
    }
}

struct lock_machine *lock_machine_init(void *memory, const struct lock_limits *limits)
{
    assert(lock_limits_check(limits) == NULL && (uintptr_t)memory % 64 == 0);
    uint32_t capacities[SLAB_COUNT];
    struct layout layout = lay_out(limits);
    struct lock_machine *machine = memory;
    uint8_t *base = memory;
    slab_capacities(limits, capacities);
    memset(machine, 0, sizeof(*machine));
    for (int i = 0; i < SLAB_COUNT; i++) {
        slab_init(&machine->slabs[i], base + layout.slabs[i], capacities[i], record_bytes[i]);
    }
    index_init(&machine->names, base + layout.names, limits->resources_max);
    index_init(&machine->ids, base + layout.ids, limits->sessions_max);
    index_init(&machine->nonces, base + layout.nonces, limits->sessions_max);
    machine->windows = (uint32_t *)(base + layout.windows);
    machine->window_mask = window_cells(limits) - 1;
    timers_number(machine);
    timers_init(&machine->timers, base + layout.timers, timers_count(capacities), tick_of_timer,
                machine);
    machine->capture = capture_init(base + layout.capture, layout.capture_bytes);
    machine->restore = restore_init(base + layout.restore);
    machine->capacity = *limits;
    machine->state.over_first = NONE;
    machine->state.over_last = NONE;
    return machine;
}

void machine_blank(struct lock_machine *machine)
{
    struct lock_state blank = {.over_first = NONE, .over_last = NONE};
    lock_machine_snapshot_abort(machine);
    words_put(&machine->state, &blank, sizeof(blank));
    machine->now = (struct entry_now){0};
    machine->ahead.payload = NULL;
    for (int i = 0; i < SLAB_COUNT; i++) {
        slab_clear(&machine->slabs[i]);
    }
    index_clear(&machine->names);
    index_clear(&machine->ids);
    index_clear(&machine->nonces);
    timers_clear(&machine->timers, 0);
    machine->lateness_ns_max = 0;
}

/* ---- timers ---------------------------------------------------------------------------------- */

enum timer_kind timer_of(const struct lock_machine *machine, uint32_t id, uint32_t *slot)
{
    int kind = TIMER_LEASE;
    while (id >= machine->slabs[timer_slabs[kind]].capacity) {
        id -= machine->slabs[timer_slabs[kind]].capacity;
        kind++;
        assert(kind <= TIMER_QUEUE);
    }
    *slot = id;
    return (enum timer_kind)kind;
}

uint64_t remaining_ms(uint64_t stamp_ns, uint64_t tick)
{
    if (tick == TICK_NEVER) {
        return UINT64_MAX;
    }
    uint64_t end_ns;
    if (__builtin_mul_overflow(tick, LOCK_TICK_NS, &end_ns)) {
        end_ns = UINT64_MAX;
    }
    uint64_t left_ns = end_ns > stamp_ns ? end_ns - stamp_ns : 0;
    return left_ns / 1000000 + (left_ns % 1000000 != 0);
}

uint64_t lock_machine_next_deadline(const struct lock_machine *machine)
{
    uint64_t end_ns;
    if (machine->state.over_first != NONE) {
        return machine->state.stamp_ns; /* a session's ending goes on at the next entry */
    }
    uint64_t tick = timers_next(&machine->timers);
    if (tick == TIMERS_NEVER || __builtin_mul_overflow(tick, LOCK_TICK_NS, &end_ns)) {
        return UINT64_MAX;
    }
    return end_ns;
}

/* ---- counts ---------------------------------------------------------------------------------- */

void lock_machine_counts(const struct lock_machine *machine, struct lock_counts *counts)
{
    const struct lock_state *state = &machine->state;
    *counts = (struct lock_counts){
        .applied_index = WORD_GET(state->applied_index),
        .stamp_ns = WORD_GET(state->stamp_ns),
        .leases = WORD_GET(machine->slabs[SLAB_LEASES].live),
        .resources = WORD_GET(machine->slabs[SLAB_RESOURCES].live),
        .sessions = WORD_GET(machine->slabs[SLAB_SESSIONS].live),
        .waiters = WORD_GET(machine->slabs[SLAB_WAITERS].live),
        .answers = WORD_GET(machine->slabs[SLAB_ANSWERS].live),
        .granted = WORD_GET(state->granted),
        .released = WORD_GET(state->released),
        .expired = WORD_GET(state->expired),
        .sessions_expired = WORD_GET(state->sessions_expired),
        .lost_renewals = WORD_GET(state->lost_renewals),
        .deadlocks = WORD_GET(state->deadlocks),
        .lateness_ns_max = WORD_GET(machine->lateness_ns_max),
        .token_last = WORD_GET(state->token_last),
    };
}

uint64_t lock_machine_history(const struct lock_machine *machine)
{
    return machine->state.history;
}
