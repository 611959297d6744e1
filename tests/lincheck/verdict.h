/* SPDX-License-Identifier: Apache-2.0
 *
 * The verdict on a history, key by key (linearizability is local: Herlihy & Wing,
 * "Linearizability", 1990, theorem 1), and, if it is bad, the shortest stretch of it that is seen
 * to be.
 */
#ifndef TESTS_LINCHECK_VERDICT_H
#define TESTS_LINCHECK_VERDICT_H

#include <stdio.h>

#include "tests/lincheck/search.h"

/* Part of one key's operations that cannot be put into any order. */
struct window {
    size_t first_op, ops_count; /* the key's operations in the history */
    uint8_t *roles;             /* enum search_role for each of them */
    size_t shown_count;         /* operations that are not ROLE_ABSENT */
    size_t blocked_op;          /* relative to first_op: the one whose answer cannot be reached */
    size_t initials_count;      /* states that were tried before the window */
    bool is_tail; /* nothing short could be shown: these are the last operations before the end */
};

struct verdict {
    enum search_verdict verdict;
    int problem; /* SEARCH_UNKNOWN: -ENOMEM or -E2BIG */
    size_t keys_count, steps_count;
    struct window window;        /* SEARCH_NOT_LINEARIZABLE */
    struct search_result result; /* of the search through the whole of the key */
};

/* Judges the history. A bad key outweighs one whose verdict could not be found. */
void verdict_find(struct verdict *verdict, struct model *model);
void verdict_free(struct verdict *verdict, struct model *model);

/* The window as a table, for people. */
void verdict_print(const struct verdict *verdict, const struct model *model, FILE *out);

#endif
