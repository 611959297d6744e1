/* SPDX-License-Identifier: Apache-2.0
 *
 * See timers.h.
 */
#include "client/timers.h"

#include <assert.h>

size_t client_timers_memory_bytes(uint32_t ids_max)
{
    size_t places = ((size_t)ids_max * sizeof(uint32_t) + 7) & ~(size_t)7;
    return (size_t)ids_max * sizeof(struct client_timer_entry) + places;
}

void client_timers_init(struct client_timers *timers, void *memory, uint32_t ids_max)
{
    timers->heap = memory;
    timers->places = (uint32_t *)(timers->heap + ids_max);
    timers->count = 0;
    timers->ids_max = ids_max;
}

static void put(struct client_timers *timers, uint32_t place, struct client_timer_entry entry)
{
    timers->heap[place] = entry;
    timers->places[entry.id] = place + 1;
}

static void sift_up(struct client_timers *timers, uint32_t place, struct client_timer_entry entry)
{
    while (place > 0) {
        uint32_t parent = (place - 1) / 2;
        if (timers->heap[parent].at_ns <= entry.at_ns)
            break;
        put(timers, place, timers->heap[parent]);
        place = parent;
    }
    put(timers, place, entry);
}

static void sift_down(struct client_timers *timers, uint32_t place, struct client_timer_entry entry)
{
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child >= timers->count)
            break;
        if (child + 1 < timers->count && timers->heap[child + 1].at_ns < timers->heap[child].at_ns)
            child++;
        if (entry.at_ns <= timers->heap[child].at_ns)
            break;
        put(timers, place, timers->heap[child]);
        place = child;
    }
    put(timers, place, entry);
}

/* The entry at `place` has a new deadline (or is a new one). */
static void settle(struct client_timers *timers, uint32_t place, struct client_timer_entry entry)
{
    if (place > 0 && timers->heap[(place - 1) / 2].at_ns > entry.at_ns)
        sift_up(timers, place, entry);
    else
        sift_down(timers, place, entry);
}

void client_timers_set(struct client_timers *timers, uint32_t id, uint64_t at_ns)
{
    assert(id < timers->ids_max);
    if (at_ns == UINT64_MAX) {
        client_timers_clear(timers, id);
        return;
    }
    uint32_t place = timers->places[id];
    if (place == 0)
        place = ++timers->count;
    settle(timers, place - 1, (struct client_timer_entry){.at_ns = at_ns, .id = id});
}

void client_timers_clear(struct client_timers *timers, uint32_t id)
{
    assert(id < timers->ids_max);
    uint32_t place = timers->places[id];
    if (place == 0)
        return;
    timers->places[id] = 0;
    struct client_timer_entry last = timers->heap[--timers->count];
    if (place - 1 < timers->count)
        settle(timers, place - 1, last);
}

bool client_timers_take(struct client_timers *timers, uint64_t now_ns, uint32_t *id)
{
    if (timers->count == 0 || timers->heap[0].at_ns > now_ns)
        return false;
    *id = timers->heap[0].id;
    client_timers_clear(timers, *id);
    return true;
}

uint64_t client_timers_next(const struct client_timers *timers)
{
    return timers->count > 0 ? timers->heap[0].at_ns : UINT64_MAX;
}
