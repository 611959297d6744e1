/* SPDX-License-Identifier: Apache-2.0
 *
 * What the drivers of the systems that Belay is compared to have in common: records that are named
 * by handles, timers, the completions on their way out, and endpoints. One thread.
 *
 * Memory comes at open; a driver that gets none ends the program: there is nothing to measure then.
 */
#ifndef BELAY_BENCH_PEERS_COMMON_H
#define BELAY_BENCH_PEERS_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/load/target.h"

enum { PEER_NAME_BYTES_MAX = 200, PEER_ENDPOINTS_MAX = 16, PEER_ADDRESS_BYTES = 16 };

#define PEER_NEVER_NS UINT64_MAX
#define PEER_MS_NS    UINT64_C(1000000)

uint64_t peer_now_ns(void); /* CLOCK_MONOTONIC, as turn()'s until_ns */
void *peer_alloc(size_t count, size_t bytes);

struct peer_endpoint {
    char address[PEER_ADDRESS_BYTES]; /* numeric IPv4 */
    uint16_t port;
};

/* The endpoints of "host:port,...": how many, or -1 and a sentence in `error`. */
int peer_endpoints(const char *text, struct peer_endpoint *endpoints, char *error,
                   size_t error_bytes);

/* Indices 0 .. capacity - 1 that are taken and given back. A handle names one taking of an index:
 * it is never 0, and no longer found once the index was given back. */
struct peer_pool {
    uint32_t *next_free;
    uint32_t *generation; /* odd while taken */
    uint32_t first_free;
    uint32_t capacity;
    uint32_t taken;
};

void peer_pool_init(struct peer_pool *pool, uint32_t capacity);
void peer_pool_free(struct peer_pool *pool);
bool peer_pool_take(struct peer_pool *pool, uint32_t *index);
void peer_pool_give(struct peer_pool *pool, uint32_t index);
uint64_t peer_pool_handle(const struct peer_pool *pool, uint32_t index);
bool peer_pool_find(const struct peer_pool *pool, uint64_t handle, uint32_t *index);

/* One timer per id 0 .. ids - 1: a binary heap that knows where each id is. */
struct peer_timers {
    uint64_t *due_ns; /* by id */
    uint32_t *place;  /* by id: position in the heap + 1; 0 = not set */
    uint32_t *heap;   /* ids */
    uint32_t count;
};

void peer_timers_init(struct peer_timers *timers, uint32_t ids);
void peer_timers_free(struct peer_timers *timers);
void peer_timer_set(struct peer_timers *timers, uint32_t id, uint64_t due_ns);
void peer_timer_clear(struct peer_timers *timers, uint32_t id);
uint64_t peer_timers_next_ns(const struct peer_timers *timers); /* PEER_NEVER_NS: none is set */
bool peer_timers_due(struct peer_timers *timers, uint64_t now_ns, uint32_t *id);

/* What a target owes its user: completions and losses wait here until turn() hands them out, so
 * that the user may begin the next command from inside his callback. */
struct peer_event {
    struct target_completion completion;
    bool is_loss; /* completion.lock is gone, completion.tag is the acquire's */
};

struct peer_base {
    struct target_options options;
    struct peer_event *events; /* ring */
    uint32_t events_capacity;  /* a power of two */
    uint32_t events_begin, events_end;
    uint32_t commands; /* begun and not handed out */
    uint64_t random_state;
};

void peer_base_init(struct peer_base *base, const struct target_options *options);
void peer_base_free(struct peer_base *base);
bool peer_may_begin(const struct peer_base *base);
void peer_begin(struct peer_base *base);
void peer_complete(struct peer_base *base, const struct target_completion *completion);
void peer_lost(struct peer_base *base, target_lock lock, uint64_t lock_tag);
bool peer_deliver(struct peer_base *base); /* whether there was anything */
uint64_t peer_random(struct peer_base *base);

#endif
