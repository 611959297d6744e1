/* SPDX-License-Identifier: Apache-2.0
 *
 * Deadlines of things that are numbered: one deadline per id, the earliest first. A binary heap
 * with a back reference per id, so that setting, moving and clearing are O(log n). Pure.
 */
#ifndef BELAY_CLIENT_TIMERS_H
#define BELAY_CLIENT_TIMERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct client_timer_entry {
    uint64_t at_ns;
    uint32_t id;
    uint32_t zero;
};

struct client_timers {
    struct client_timer_entry *heap; /* heap[0] is the earliest; capacity ids_max */
    uint32_t *places;                /* by id: place in the heap + 1; 0 = not set */
    uint32_t count;
    uint32_t ids_max;
};

size_t client_timers_memory_bytes(uint32_t ids_max);
/* `memory`: zero-filled, 8-byte aligned. */
void client_timers_init(struct client_timers *timers, void *memory, uint32_t ids_max);

/* Sets or moves. UINT64_MAX clears. */
void client_timers_set(struct client_timers *timers, uint32_t id, uint64_t at_ns);
void client_timers_clear(struct client_timers *timers, uint32_t id);

/* Takes one id that is due at `now`; false = none. */
bool client_timers_take(struct client_timers *timers, uint64_t now_ns, uint32_t *id);

/* UINT64_MAX = nothing set. */
uint64_t client_timers_next(const struct client_timers *timers);

#endif
