/* SPDX-License-Identifier: Apache-2.0
 *
 * Random words, clocks, the queue of events, the transcript.
 */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

/* ---- random words ---------------------------------------------------------------------------- */

/* splitmix64 (Steele, Lea and Flood, 2014). */
uint64_t sim_draw(struct sim *sim)
{
    uint64_t z = sim->random += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t sim_below(struct sim *sim, uint64_t bound)
{
    return bound ? sim_draw(sim) % bound : 0;
}

bool sim_chance(struct sim *sim, uint32_t permille)
{
    return permille && sim_below(sim, 1000) < permille;
}

/* ---- clocks ---------------------------------------------------------------------------------- */

uint64_t sim_clock_read(const struct sim *sim, const struct sim_clock *clock)
{
    int64_t passed_ns = (int64_t)(sim->now_ns - clock->base_true_ns);

    return clock->base_ns + (uint64_t)(passed_ns + passed_ns / 1000000 * clock->rate_ppm);
}

uint64_t sim_clock_true(const struct sim *sim, const struct sim_clock *clock, uint64_t at_ns)
{
    uint64_t shown_ns = sim_clock_read(sim, clock);
    uint64_t ahead_ns;
    int64_t correction_ns;

    if (at_ns == UINT64_MAX || at_ns <= shown_ns)
        return at_ns == UINT64_MAX ? UINT64_MAX : sim->now_ns;
    ahead_ns = at_ns - shown_ns;
    if (ahead_ns > 3600 * SIM_SECOND)
        return UINT64_MAX;
    correction_ns = (int64_t)ahead_ns / 1000 * clock->rate_ppm / 1000;
    return sim->now_ns + (uint64_t)((int64_t)ahead_ns - correction_ns);
}

/* ---- events ---------------------------------------------------------------------------------- */

static bool before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

uint64_t sim_post(struct sim *sim, uint64_t at_ns, enum sim_event_kind kind, uint32_t who,
                  uint64_t epoch, uint64_t detail, struct sim_packet *packet)
{
    uint32_t at = sim->events_count++;
    struct sim_event event = {.at_ns = at_ns < sim->now_ns ? sim->now_ns : at_ns,
                              .order = ++sim->order,
                              .kind = kind,
                              .who = who,
                              .epoch = epoch,
                              .detail = detail,
                              .packet = packet};

    if (sim->events_count > sim->events_max) {
        sim->events_max = sim->events_max ? sim->events_max * 2 : 1024;
        sim->events = realloc(sim->events, sim->events_max * sizeof *sim->events);
        assert(sim->events);
    }
    while (at && before(&event, &sim->events[(at - 1) / 2])) {
        sim->events[at] = sim->events[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    sim->events[at] = event;
    return event.order;
}

bool sim_next(struct sim *sim, struct sim_event *event)
{
    struct sim_event last;
    uint32_t at = 0;

    if (!sim->events_count)
        return false;
    *event = sim->events[0];
    last = sim->events[--sim->events_count];
    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child >= sim->events_count)
            break;
        if (child + 1 < sim->events_count && before(&sim->events[child + 1], &sim->events[child]))
            child++;
        if (!before(&sim->events[child], &last))
            break;
        sim->events[at] = sim->events[child];
        at = child;
    }
    sim->events[at] = last;
    return true;
}

/* ---- maps ------------------------------------------------------------------------------------ */

uint64_t sim_mix(uint64_t a, uint64_t b)
{
    uint64_t z = a * UINT64_C(0x9e3779b97f4a7c15) ^ (b + UINT64_C(0x632be59bd9b4e019));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return z ? z : 1;
}

static size_t slot_of(const struct sim_map *map, uint64_t key)
{
    size_t at = sim_mix(key, 0) & (map->slots - 1);

    while (map->keys[at] && map->keys[at] != key)
        at = (at + 1) & (map->slots - 1);
    return at;
}

static void map_grow(struct sim_map *map)
{
    struct sim_map old = *map;

    map->slots = old.slots ? old.slots * 2 : 256;
    map->keys = calloc(map->slots, sizeof *map->keys);
    map->values = calloc(map->slots, sizeof *map->values);
    assert(map->keys && map->values);
    for (size_t i = 0; i < old.slots; i++) {
        if (old.keys[i]) {
            size_t at = slot_of(map, old.keys[i]);

            map->keys[at] = old.keys[i];
            map->values[at] = old.values[i];
        }
    }
    free(old.keys);
    free(old.values);
}

uint64_t *sim_map_at(struct sim_map *map, uint64_t key)
{
    size_t at;

    if (map->count * 2 >= map->slots)
        map_grow(map);
    at = slot_of(map, key);
    if (!map->keys[at]) {
        map->keys[at] = key;
        map->count++;
    }
    return &map->values[at];
}

uint64_t sim_map_get(const struct sim_map *map, uint64_t key)
{
    size_t at;

    if (!map->slots)
        return 0;
    at = slot_of(map, key);
    return map->keys[at] ? map->values[at] : 0;
}

void sim_map_free(struct sim_map *map)
{
    free(map->keys);
    free(map->values);
    *map = (struct sim_map){0};
}

/* ---- transcript ------------------------------------------------------------------------------ */

void sim_trace(struct sim *sim, const char *format, ...)
{
    va_list arguments;

    if (!sim->trace)
        return;
    printf("%12.6f  ", (double)sim->now_ns / 1e9);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
}

static void dump(struct sim *sim)
{
    static const char *const roles[] = {"follower", "precandidate", "candidate", "leader"};

    for (uint16_t i = 0; i < sim->nodes_count; i++) {
        const struct sim_node *node = &sim->nodes[i];

        for (uint16_t w = 0; node->up && w < node->workers; w++) {
            if (node->wals[w])
                sim_trace(sim,
                          "n%u WAL %u durable %llu, in flight %d, pending %d, segment %u of it",
                          node->id, w, (unsigned long long)wal_durable_sequence(node->wals[w]),
                          node->disk.devices[w].in_flight, wal_pending(node->wals[w]),
                          node->disk.devices[w].segment);
        }
        for (uint16_t s = 0; s < sim->shards; s++) {
            const struct shard *shard = &sim->nodes[i].shards[s];
            const struct raft_view *view = &shard->view;

            if (!sim->nodes[i].up)
                continue;
            sim_trace(sim,
                      "n%u s%u %s%s term %llu log %llu..%llu durable %llu commit %llu applied %llu "
                      "saved %llu members %u",
                      i + 1u, s, shard->state == SHARD_RUNNING ? "" : "installing ",
                      roles[view->role], (unsigned long long)view->term,
                      (unsigned long long)shard->log.base.index + 1,
                      (unsigned long long)view->last_index, (unsigned long long)view->durable_index,
                      (unsigned long long)view->commit_index, (unsigned long long)shard->applied,
                      (unsigned long long)shard->saved_index, view->configuration->count);
        }
    }
}

void sim_fail(struct sim *sim, const char *promise, const char *format, ...)
{
    va_list arguments;

    if (sim->failed)
        return;
    sim->failed = true;
    sim->promise = promise;
    va_start(arguments, format);
    (void)vsnprintf(sim->failure, sizeof sim->failure, format, arguments);
    va_end(arguments);
    sim_trace(sim, "BROKEN %s: %s", promise, sim->failure);
    dump(sim);
    if (sim->trace)
        check_state_dump(sim);
}

const char *sim_name_of(const struct sim *sim, uint64_t key_hash)
{
    for (uint32_t i = 0; i < SIM_NAMES; i++) {
        if (sim->name_hash[i] == key_hash)
            return sim->names[i];
    }
    return "?";
}
