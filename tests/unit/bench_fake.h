/* SPDX-License-Identifier: Apache-2.0
 *
 * A lock service in memory, behind the load generator's contract, that can be told to misbehave:
 * the first letter of its endpoints is 'A' + the fault.
 */
#ifndef BELAY_TESTS_BENCH_FAKE_H
#define BELAY_TESTS_BENCH_FAKE_H

#include "bench/load/target.h"

enum fault {
    FAULT_NONE,
    FAULT_DOUBLE,      /* every 50th waiting acquire is granted beside the holder */
    FAULT_SHARED,      /* writers are granted beside readers */
    FAULT_TOKENS_BACK, /* every 50th token is the one before */
    FAULT_EMPTY_READS, /* a query does not see the holder */
    FAULT_LOSES,       /* held locks are lost, and that is told */
    FAULT_FORGETS,     /* locks are gone, and nobody is told */
    FAULT_FULL,        /* only so many locks are granted */
    FAULT_STALLS,      /* no answers for a while */
    FAULT_DEAF,        /* no answers at all, once it runs */
};

extern const struct target_class bench_fake;

#endif
