/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/peers/common.h"

#include <arpa/inet.h>
#include <assert.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>

enum { HOST_BYTES = 256, EVENTS_INITIAL = 64 };

uint64_t peer_now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

void *peer_alloc(size_t count, size_t bytes)
{
    void *memory = calloc(count ? count : 1, bytes);

    if (!memory) {
        fprintf(stderr, "out of memory: %zu records of %zu bytes\n", count, bytes);
        abort();
    }
    return memory;
}

/* ---- endpoints ----------------------------------------------------------------------------- */

static bool resolve(const char *host, const char *port, struct peer_endpoint *endpoint)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
    char *end;
    unsigned long number = strtoul(port, &end, 10);

    if (*port == '\0' || *end != '\0' || number == 0 || number > UINT16_MAX)
        return false;
    if (getaddrinfo(host, NULL, &hints, &found) != 0)
        return false;
    endpoint->port = (uint16_t)number;
    bool ok = inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)found->ai_addr)->sin_addr,
                        endpoint->address, sizeof(endpoint->address)) != NULL;
    freeaddrinfo(found);
    return ok;
}

int peer_endpoints(const char *text, struct peer_endpoint *endpoints, char *error,
                   size_t error_bytes)
{
    int count = 0;

    for (const char *at = text;; at++) {
        size_t bytes = strcspn(at, ",");
        char one[HOST_BYTES];
        int written = snprintf(one, sizeof(one), "%.*s", (int)bytes, at);
        char *colon = strrchr(one, ':');

        if (count == PEER_ENDPOINTS_MAX || written >= HOST_BYTES || !colon) {
            snprintf(error, error_bytes, "'%s' is not host:port,... (at most %d of them)", text,
                     PEER_ENDPOINTS_MAX);
            return -1;
        }
        *colon = '\0';
        if (!resolve(one, colon + 1, &endpoints[count])) {
            snprintf(error, error_bytes, "no IPv4 address and port in '%.*s'", (int)bytes, at);
            return -1;
        }
        count++;
        at += bytes;
        if (*at == '\0')
            return count;
    }
}

/* ---- pools --------------------------------------------------------------------------------- */

void peer_pool_init(struct peer_pool *pool, uint32_t capacity)
{
    pool->next_free = peer_alloc(capacity, sizeof(uint32_t));
    pool->generation = peer_alloc(capacity, sizeof(uint32_t));
    pool->capacity = capacity;
    pool->first_free = 0;
    pool->taken = 0;
    for (uint32_t i = 0; i < capacity; i++)
        pool->next_free[i] = i + 1;
}

void peer_pool_free(struct peer_pool *pool)
{
    free(pool->next_free);
    free(pool->generation);
}

bool peer_pool_take(struct peer_pool *pool, uint32_t *index)
{
    if (pool->first_free == pool->capacity)
        return false;
    *index = pool->first_free;
    pool->first_free = pool->next_free[*index];
    pool->generation[*index]++;
    pool->taken++;
    return true;
}

void peer_pool_give(struct peer_pool *pool, uint32_t index)
{
    assert(index < pool->capacity && pool->generation[index] % 2 == 1);
    pool->generation[index]++;
    pool->next_free[index] = pool->first_free;
    pool->first_free = index;
    pool->taken--;
}

uint64_t peer_pool_handle(const struct peer_pool *pool, uint32_t index)
{
    /* The top bit stays free: etcd takes handles as signed watch ids. */
    return (uint64_t)(pool->generation[index] & 0x7fffffffU) << 32 | index;
}

bool peer_pool_find(const struct peer_pool *pool, uint64_t handle, uint32_t *index)
{
    *index = (uint32_t)handle;
    return *index < pool->capacity && pool->generation[*index] % 2 == 1 &&
           peer_pool_handle(pool, *index) == handle;
}

/* ---- timers -------------------------------------------------------------------------------- */

void peer_timers_init(struct peer_timers *timers, uint32_t ids)
{
    timers->due_ns = peer_alloc(ids, sizeof(uint64_t));
    timers->place = peer_alloc(ids, sizeof(uint32_t));
    timers->heap = peer_alloc(ids, sizeof(uint32_t));
    timers->count = 0;
}

void peer_timers_free(struct peer_timers *timers)
{
    free(timers->due_ns);
    free(timers->place);
    free(timers->heap);
}

static void put(struct peer_timers *timers, uint32_t at, uint32_t id)
{
    timers->heap[at] = id;
    timers->place[id] = at + 1;
}

/* Moves the id at `at` to where it belongs, up or down. */
static void settle(struct peer_timers *timers, uint32_t at)
{
    uint32_t id = timers->heap[at];
    uint64_t due_ns = timers->due_ns[id];

    while (at > 0 && timers->due_ns[timers->heap[(at - 1) / 2]] > due_ns) {
        put(timers, at, timers->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child + 1 < timers->count &&
            timers->due_ns[timers->heap[child + 1]] < timers->due_ns[timers->heap[child]])
            child++;
        if (child >= timers->count || timers->due_ns[timers->heap[child]] >= due_ns)
            break;
        put(timers, at, timers->heap[child]);
        at = child;
    }
    put(timers, at, id);
}

void peer_timer_set(struct peer_timers *timers, uint32_t id, uint64_t due_ns)
{
    timers->due_ns[id] = due_ns;
    if (timers->place[id] == 0)
        put(timers, timers->count++, id);
    settle(timers, timers->place[id] - 1);
}

void peer_timer_clear(struct peer_timers *timers, uint32_t id)
{
    uint32_t at = timers->place[id];

    if (at == 0)
        return;
    timers->place[id] = 0;
    uint32_t last = timers->heap[--timers->count];
    if (last == id)
        return;
    put(timers, at - 1, last);
    settle(timers, at - 1);
}

uint64_t peer_timers_next_ns(const struct peer_timers *timers)
{
    return timers->count ? timers->due_ns[timers->heap[0]] : PEER_NEVER_NS;
}

bool peer_timers_due(struct peer_timers *timers, uint64_t now_ns, uint32_t *id)
{
    if (peer_timers_next_ns(timers) > now_ns || timers->count == 0)
        return false;
    *id = timers->heap[0];
    peer_timer_clear(timers, *id);
    return true;
}

/* ---- completions --------------------------------------------------------------------------- */

void peer_base_init(struct peer_base *base, const struct target_options *options)
{
    base->options = *options;
    base->options.endpoints = NULL; /* the caller's text may go */
    base->events_capacity = EVENTS_INITIAL;
    base->events = peer_alloc(EVENTS_INITIAL, sizeof(*base->events));
    base->random_state = 1;
    if (getrandom(&base->random_state, sizeof(base->random_state), 0) < 0)
        base->random_state = peer_now_ns();
    base->random_state |= 1;
}

void peer_base_free(struct peer_base *base)
{
    free(base->events);
}

bool peer_may_begin(const struct peer_base *base)
{
    return base->commands < base->options.commands_max;
}

void peer_begin(struct peer_base *base)
{
    base->commands++;
}

static void push(struct peer_base *base, const struct peer_event *event)
{
    uint32_t count = base->events_end - base->events_begin;

    if (count == base->events_capacity) { /* rare: never more than commands and locks */
        struct peer_event *more = peer_alloc((size_t)count * 2, sizeof(*more));

        for (uint32_t i = 0; i < count; i++)
            more[i] = base->events[(base->events_begin + i) & (count - 1)];
        free(base->events);
        base->events = more;
        base->events_capacity = count * 2;
        base->events_begin = 0;
        base->events_end = count;
    }
    base->events[base->events_end++ & (base->events_capacity - 1)] = *event;
}

void peer_complete(struct peer_base *base, const struct target_completion *completion)
{
    push(base, &(struct peer_event){.completion = *completion});
}

void peer_lost(struct peer_base *base, target_lock lock, uint64_t lock_tag)
{
    push(base,
         &(struct peer_event){.completion = {.tag = lock_tag, .lock = lock}, .is_loss = true});
}

bool peer_deliver(struct peer_base *base)
{
    uint32_t count = base->events_end - base->events_begin;

    /* Not those that the callbacks add: else a user who begins again at once never gets out. */
    for (uint32_t i = 0; i < count; i++) {
        struct peer_event event = base->events[base->events_begin++ & (base->events_capacity - 1)];

        if (event.is_loss) {
            if (base->options.lost)
                base->options.lost(base->options.context, event.completion.lock,
                                   event.completion.tag);
            continue;
        }
        assert(base->commands > 0);
        base->commands--;
        base->options.complete(base->options.context, &event.completion);
    }
    return count != 0;
}

uint64_t peer_random(struct peer_base *base)
{
    /* xorshift64* (Marsaglia 2003, Vigna 2016): jitter and unique values, no secrets. */
    uint64_t x = base->random_state;

    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    base->random_state = x;
    return x * UINT64_C(0x2545F4914F6CDD1D);
}
