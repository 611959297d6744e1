/* SPDX-License-Identifier: Apache-2.0
 *
 * Pushes in flight: grants to waiters and notices of lost leases, repeated with doubling gaps until
 * the client acknowledges. Not replicated: a new leader pushes unconfirmed grants again, and
 * waiting clients poll besides, so a full table may drop.
 *
 * Pure. One list per attempt: within one attempt all gaps are equal, so each list is in due order.
 */
#ifndef BELAY_DATAPLANE_PUSH_H
#define BELAY_DATAPLANE_PUSH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dataplane/wire/wire.h"

enum {
    PUSH_SLOTS = 4096, /* power of two */
    PUSH_ATTEMPTS = 7,
};
#define PUSH_GAP_FIRST_NS UINT64_C(20000000) /* then 40, 80, ... ms */

struct push {
    uint64_t due_ns;
    struct wire_address to;
    union {
        struct wire_item item;
        struct wire_granted granted;
        struct wire_lost lost;
    };
    uint32_t next, previous; /* list of its attempt */
    uint32_t chain;          /* hash chain by lease secret */
    uint8_t attempt;
    bool used;
};

struct push_list {
    uint32_t head, tail;
};

struct push_table {
    struct push *slots;
    uint32_t *buckets; /* by lease secret; slot + 1, 0 = empty */
    uint32_t free;     /* list through `next`; slot + 1 */
    uint32_t count;
    struct push_list attempts[PUSH_ATTEMPTS];
};

size_t push_memory_bytes(void);
void push_init(struct push_table *table, void *memory);
/* Forgets everything (no longer leader). */
void push_clear(struct push_table *table);

/* Remembers a PUSH_GRANT or PUSH_LOST that was just sent. False: full, not remembered. The newest
 * push of a lease replaces an older one. */
bool push_add(struct push_table *table, const struct wire_address *to, const struct wire_item *item,
              uint64_t now_ns);

/* The client has seen it (or released, renewed: it knows). */
void push_acknowledge(struct push_table *table, uint64_t session,
                      const struct wire_lease_id *lease);

/* The next push that is due, re-armed for its next attempt (or forgotten after the last); NULL =
 * none. Valid until the next call. */
const struct push *push_due(struct push_table *table, uint64_t now_ns);

/* UINT64_MAX = nothing pending. */
uint64_t push_deadline(const struct push_table *table);

#endif
