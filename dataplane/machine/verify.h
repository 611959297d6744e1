/* SPDX-License-Identifier: Apache-2.0
 *
 * Invariants of the records, checked one record at a time. They hold for nothing more than that
 * slots name slots: safe on whatever a damaged snapshot holds. Each returns NULL or a sentence.
 *
 * Links are checked from both ends. A doubly linked list whose links agree has no cycle that can be
 * reached from its head; so if the lists' lengths, walked from their heads, add up to the number of
 * live records, every record is in exactly one list (struct verify_sums).
 */
#ifndef BELAY_DATAPLANE_VERIFY_H
#define BELAY_DATAPLANE_VERIFY_H

#include "dataplane/machine/machine.h"

/* What is summed over all records and compared at the end. */
struct verify_sums {
    uint64_t held;           /* leases reached from resources */
    uint64_t owned;          /* leases reached from sessions */
    uint64_t detached;       /* leases that say they have no session */
    uint64_t queued;         /* waiters reached from queues */
    uint64_t session_queued; /* waiters reached from sessions */
    uint64_t promised;       /* waiters that are no upgraders */
    uint64_t answers;        /* counted by sessions */
    uint64_t extras;         /* references to extras */
    uint64_t long_names;     /* references to long names */
    uint64_t sessions_over;
    uint64_t timers; /* records that say they have a deadline */
};

/* Fields and links of one live record. */
const char *verify_record(const struct lock_machine *machine, enum slab_number number,
                          uint32_t slot);

/* Adds one live record to the sums, walking the lists it heads. Only after verify_record has passed
 * for every live record. */
const char *verify_lists(const struct lock_machine *machine, enum slab_number number, uint32_t slot,
                         struct verify_sums *sums);

const char *verify_totals(const struct lock_machine *machine, const struct verify_sums *sums);

#endif
