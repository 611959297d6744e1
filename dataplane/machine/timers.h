/* SPDX-License-Identifier: Apache-2.0
 *
 * Timers of one shard, over ticks. Timers end in the order (deadline tick, arming sequence): among
 * those due at one tick, the one armed first ends first. That is what "ties break by id" means
 * here: the arming sequence is an id that the log alone determines, and first-in-first-out lists
 * keep its order for nothing.
 *
 * Three levels of lists:
 *   level 0: one list per tick of the current block and the next (a block is 4,096 ticks, 4.3 s)
 *   level 1: one list per block, for the current span and the next (a span is 1,024 blocks, 73 min)
 *   level 2: one list per span, for the next 2,000 spans (100 days); what is beyond waits in one
 * list When the cursor enters block b, block b+1 is opened: from then on timers of that block are
 * armed directly at their tick, and those in its level 1 list are moved over step by step, paced so
 * that it is done when the cursor gets there. What was moved was armed before anything armed
 * directly, so each list is really two, `older` and `direct`, and the order of endings does not
 * depend on how far the move has got. Levels 2 and 1 work the same way. Nothing scans.
 *
 * A timer's tick and arming sequence are kept in its owner's record (they are replicated state);
 * here are only links, rebuilt when a snapshot is restored. Owner thread only.
 */
#ifndef BELAY_DATAPLANE_TIMERS_H
#define BELAY_DATAPLANE_TIMERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TIMERS_BLOCK_BITS = 12, /* ticks in a block */
    TIMERS_SPAN_BITS = 10,  /* blocks in a span */
    TIMERS_NEAR_SLOTS = 2 << TIMERS_BLOCK_BITS,
    TIMERS_FAR_SLOTS = 2 << TIMERS_SPAN_BITS,
    TIMERS_MOVES_MIN = 64, /* moves per timers_pace at least, if there is something to move */
    TIMERS_MOVES = 4096,   /* as many more, about, if it is called when timers_next() says so */
};

#define TIMERS_NONE  UINT32_MAX
#define TIMERS_NEVER UINT64_MAX /* no deadline */
/* Ticks are below 2^45: stamps are 64-bit nanoseconds, a tick is 2^20 of them. */
#define TIMERS_TICK_END (UINT64_C(1) << 45)

struct timer_node {
    uint32_t next, prev; /* another timer, or a list's head */
};

/* One of the two coarser levels: which slot is being moved to the finer one. */
struct timers_far {
    uint32_t first_head;                  /* node number of slot 0's lists */
    uint64_t opened;                      /* highest slot number already opened for direct arming */
    uint64_t bits[TIMERS_FAR_SLOTS / 64]; /* slot has timers */
    uint32_t words;                       /* which words of bits are not zero */
    uint32_t counts[TIMERS_FAR_SLOTS];    /* timers in the slot; an estimate, it only paces */
};

/* Deadline tick of an armed timer, from its owner's record. */
typedef uint64_t timers_tick_of(const void *context, uint32_t id);

struct timers {
    struct timer_node *nodes; /* the timers, then the list heads */
    timers_tick_of *tick_of;
    const void *tick_context;
    uint32_t timers_max;
    uint32_t armed;
    uint64_t cursor; /* every armed tick is >= cursor */
    uint64_t paced;  /* tick of the last timers_pace */
    uint64_t near_bits[TIMERS_NEAR_SLOTS / 64];
    uint64_t near_words[2];   /* per block: which words of near_bits are not zero */
    struct timers_far far[2]; /* blocks, spans */
    uint32_t beyond;          /* head node of the list beyond the last span */
};

size_t timers_memory_bytes(uint32_t timers_max);

/* Timers are numbered 0..timers_max-1. `memory` is 8-byte aligned, timers_memory_bytes() long. */
void timers_init(struct timers *timers, void *memory, uint32_t timers_max, timers_tick_of *tick_of,
                 const void *tick_context);

/* Disarms everything; the cursor starts at `tick`. */
void timers_clear(struct timers *timers, uint64_t tick);

/* `id` is not armed. tick >= cursor (asserted), < TIMERS_TICK_END. */
void timers_arm(struct timers *timers, uint32_t id, uint64_t tick);

/* `tick`: what it was armed with. */
void timers_disarm(struct timers *timers, uint32_t id, uint64_t tick);

/* The first timer in order that is due at `tick` (its tick <= tick), still armed: the caller
 * disarms it. Else TIMERS_NONE, and then the cursor is above `tick`. tick never decreases from call
 * to call. */
uint32_t timers_first(struct timers *timers, uint64_t tick);

/* Once per log entry: keeps the moves between levels in step with time. */
void timers_pace(struct timers *timers, uint64_t tick);

/* A lower bound of the earliest deadline, exact within the current block and the next, at most one
 * block (span) early beyond; TIMERS_NEVER if nothing is armed. While more than TIMERS_MOVES are to
 * be moved, no later than the tick at which that many should have been: a million timers of one
 * instant then cost every entry a little and none of them much. */
uint64_t timers_next(const struct timers *timers);

/* Links are sound and no list holds a timer twice: NULL or a sentence. O(n). */
const char *timers_verify(const struct timers *timers);

static inline void timers_prefetch(const struct timers *timers, uint32_t id)
{
    __builtin_prefetch(&timers->nodes[id], 1);
}

static inline void timers_prefetch_neighbours(const struct timers *timers, uint32_t id)
{
    __builtin_prefetch(&timers->nodes[timers->nodes[id].next], 1);
    __builtin_prefetch(&timers->nodes[timers->nodes[id].prev], 1);
}

#endif
