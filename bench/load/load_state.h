/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's records, shared by its files: load.c (phases and time), load_pairs.c (commands that
 * come and go) and load_held.c (locks held from the start).
 */
#ifndef BELAY_BENCH_LOAD_STATE_H
#define BELAY_BENCH_LOAD_STATE_H

#include <assert.h>
#include <time.h>

#include "bench/load/load.h"

#define SECOND_NS UINT64_C(1000000000)
#define MS_NS     UINT64_C(1000000)

/* Indices in the order they came; each index is in at most one ring, so none is ever full. */
struct ring {
    uint32_t *at;
    uint32_t mask;
    uint32_t head, tail; /* put, taken */
};

enum op_state {
    OP_FREE,
    OP_ACQUIRE_READY, /* in `ready`: to be begun as soon as the target takes it */
    OP_ACQUIRING,
    OP_HOLDING, /* in `holding` */
    OP_RELEASE_READY,
    OP_RELEASING,
    OP_RENEW_READY,
    OP_RENEWING,
    OP_QUERY_READY,
    OP_QUERYING,
};

/* A pair, renewal or query under way. */
struct op {
    uint64_t intended_ns; /* of its present command */
    uint64_t begun_ns;    /* of its acquire */
    uint64_t hold_end_ns;
    uint64_t name; /* renewals and queries of held locks: index of the lock */
    target_lock lock;
    uint32_t lane; /* lanes are dealt out to ops: a client has one command at a time */
    uint32_t generation;
    uint8_t state;
    bool shared;
    bool lost; /* while it held */
    bool of_held;
};

enum held_state { HELD_NONE, HELD_ACQUIRING, HELD_YES, HELD_LOST, HELD_RELEASING };

struct held {
    target_lock lock;
    uint8_t state;
};

enum phase { PHASE_FILL, PHASE_RUN, PHASE_DRAIN, PHASE_GIVE_BACK };

struct load {
    struct load_options options;
    const struct scenario *scenario;
    const struct target_class *class;
    struct target *target;
    struct draws draws;
    struct zipf zipf;
    enum phase phase;
    uint64_t begin_ns, end_ns; /* of the measured window */

    struct op *ops;
    uint32_t ops_count;
    struct ring free, ready, holding;
    uint32_t lanes;
    uint64_t names_per_lane; /* PICK_OWN */
    double arrival_ns;       /* open loop: the next one, since arrivals_ns */
    double interval_ns;      /* mean */
    uint64_t arrivals_ns;

    struct held *held;
    char held_group[NAME_GROUP_BYTES]; /* what their names begin with */
    uint64_t held_next;                /* to be acquired, renewed or released next */
    uint64_t held_under_way;
    uint64_t held_ended;    /* of the present phase */
    uint64_t held_failures; /* while filling */
    enum target_status held_failure;

    uint32_t *client_grants;
    uint64_t ended_all; /* commands, for the progress line */
    uint64_t failed_all;
    uint64_t progress_ns; /* next line */
    uint64_t progress_before_ns;
    struct histogram progress_latency;
    uint64_t cpu_begin_ns;
    struct load_result result;
};

/* Tags: bit 63 = a held lock, its index below; else {generation 31, op 32}. */
#define TAG_HELD (UINT64_C(1) << 63)

static inline uint64_t load_now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static inline bool ring_is_empty(const struct ring *ring)
{
    return ring->head == ring->tail;
}

static inline void ring_put(struct ring *ring, uint32_t index)
{
    assert(ring->head - ring->tail <= ring->mask);
    ring->at[ring->head++ & ring->mask] = index;
}

static inline uint32_t ring_first(const struct ring *ring)
{
    return ring->at[ring->tail & ring->mask];
}

static inline uint32_t ring_take(struct ring *ring)
{
    assert(!ring_is_empty(ring));
    return ring->at[ring->tail++ & ring->mask];
}

/* ---- load.c ---------------------------------------------------------------------------------- */

/* A command has ended. */
void load_record(struct load *load, enum target_op op, enum target_status status,
                 uint64_t intended_ns, uint64_t now_ns);
bool load_measures(const struct load *load, uint64_t intended_ns);

/* ---- load_pairs.c ---------------------------------------------------------------------------- */

void pairs_fill_loop(struct load *load, uint64_t now_ns); /* closed loop: all ops begin */
void pairs_arrive(struct load *load, uint64_t now_ns);
void pairs_end_holds(struct load *load, uint64_t now_ns);
/* Begins what is ready, until the target takes no more. */
void pairs_begin(struct load *load);
void pairs_complete(struct load *load, const struct target_completion *completion, uint64_t now_ns);
void pairs_lost(struct load *load, uint64_t tag);
uint32_t pairs_under_way(const struct load *load);
/* When something is to be done without an answer; UINT64_MAX = never. */
uint64_t pairs_next_ns(const struct load *load);
/* What never ended counts with the time that it had waited. */
void pairs_count_unfinished(struct load *load, uint64_t now_ns);

/* ---- load_held.c ----------------------------------------------------------------------------- */

void held_begin_some(struct load *load);
void held_complete(struct load *load, const struct target_completion *completion);
void held_lost(struct load *load, uint64_t tag);
/* A held lock to renew or to ask about; false: none is held any more. */
bool held_choose(struct load *load, uint64_t *index);
size_t held_name(const struct load *load, uint64_t index, char text[NAME_TEXT_BYTES]);

#endif
