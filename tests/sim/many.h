/* SPDX-License-Identifier: Apache-2.0
 *
 * What belay-sim and bench/sim share: one seed or many, counted.
 */
#ifndef BELAY_TESTS_SIM_MANY_H
#define BELAY_TESTS_SIM_MANY_H

#include "tests/sim/sim.h"

enum { MANY_JOBS_MAX = 16 };

struct many {
    uint64_t first, last; /* seeds, both included */
    uint64_t minutes;     /* 0 = as long as it takes */
    enum sim_profile profile;
    const char *plant;  /* chosen already; for what is printed */
    uint32_t jobs;      /* processes at a time */
    bool trace;         /* one seed only */
    bool quiet, report; /* only failures; a line of sums */
    bool keep_going;    /* beyond the first failure */
};

/* In this process. 0 every promise held, 1 one was broken. */
int many_run_one(const struct many *many, uint64_t seed);
/* In children. 0, 1, or 2: they could not be run. */
int many_run(const struct many *many);

#endif
