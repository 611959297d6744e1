/* SPDX-License-Identifier: Apache-2.0
 *
 * The search for a linearization of the operations on one key: Wing & Gong, "Testing and Verifying
 * Concurrent Objects" (1993), made fit for use by Lowe, "Testing for linearizability" (2017): the
 * operations in a linked list, an operation placed just when the next answer needs it, and a memory
 * of every (set of placed operations, state) that has been tried.
 */
#ifndef TESTS_LINCHECK_SEARCH_H
#define TESTS_LINCHECK_SEARCH_H

#include "tests/lincheck/model.h"

enum search_role {
    ROLE_ABSENT,   /* not part of this search */
    ROLE_OPTIONAL, /* may be placed anywhere after its call, or nowhere */
    ROLE_REQUIRED, /* must be placed between its call and its answer */
};

enum search_verdict { SEARCH_LINEARIZABLE, SEARCH_NOT_LINEARIZABLE, SEARCH_UNKNOWN };

enum { SEARCH_STATES_MAX = 8 };

struct search_input {
    const struct history_op *ops; /* in order of call_at */
    size_t ops_count;
    const uint8_t *roles;     /* enum search_role, one for each */
    const uint32_t *initials; /* states to begin with; any of them will do */
    size_t initials_count;
    size_t steps_max; /* gives up with SEARCH_UNKNOWN after that many tries */
};

struct search_result {
    enum search_verdict verdict;
    /* Of a search that found none: the answer that no order got beyond, and states that were tried
     * when it was due. */
    uint32_t blocked_at; /* its place in the order of events */
    size_t blocked_op;   /* its operation */
    uint32_t blocked_states[SEARCH_STATES_MAX];
    size_t blocked_states_count; /* may be more than are kept */
    size_t steps_count;
};

/* 0, or -ENOMEM / -E2BIG (the model's) with verdict SEARCH_UNKNOWN. If `visited` is not NULL, every
 * state that the search was in is put there, as four bytes. */
int search_run(struct model *model, const struct search_input *input, struct search_result *result,
               struct intern *visited);

#endif
