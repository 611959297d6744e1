/* SPDX-License-Identifier: Apache-2.0
 *
 * A search laid out: which operations there are to place, and their ends in order. Both ways of
 * searching (depth.c, breadth.c) begin with it. Private to the search.
 *
 * Three rules keep both small without losing an answer:
 *
 *  - An operation that changes no state (a read, a comparison that failed) and is possible now is
 *    placed now, and nothing else is tried instead: any later place for it could be moved here.
 *  - An optional operation that would change nothing now is not placed now.
 *  - Of optional operations that are equal, the one called first is placed first.
 */
#ifndef TESTS_LINCHECK_PLAN_H
#define TESTS_LINCHECK_PLAN_H

#include "tests/lincheck/search.h"

/* One end of an operation, in a list ordered by place. Entry 0 is the list's head. */
struct plan_entry {
    uint32_t at;
    uint32_t node; /* index of its operation's node */
    uint32_t previous, next;
    bool is_return;
};

/* Nodes are in order of call. */
struct plan_node {
    const struct history_op *op;
    size_t op_index;       /* into the input */
    uint32_t call, answer; /* its entries; answer 0: optional */
    uint32_t bit;          /* among the required, or among the optional */
    uint32_t slot;         /* required: no two that overlap have the same */
    uint32_t twin;         /* optional: index + 1 of the equal one called before; 0: none */
    bool pure;
    bool placed; /* depth.c's */
};

struct plan {
    struct budget *budget;
    const struct search_input *input;
    struct plan_node *nodes;
    struct plan_entry *entries;
    size_t nodes_count, entries_count;
    size_t required_count, optional_count, slots_count;
};

/* 0 or -ENOMEM; plan_free() in either case. */
int plan_make(struct plan *plan, struct budget *budget, const struct search_input *input);
void plan_free(struct plan *plan);

/* Memory for count + 1 elements: never nothing. NULL: over budget. */
void *plan_take(struct budget *budget, size_t count, size_t element_bytes);
void plan_give_back(struct budget *budget, void *memory, size_t count, size_t element_bytes);

/* The state at a dead end: no order of what is before this answer has been found to get beyond. */
void plan_note_blocked(const struct plan *plan, struct search_result *result, uint32_t entry,
                       uint32_t state);

/* Both: 1: found, 0: there is none, -ETIME: steps_max tries were not enough, -ENOMEM, -E2BIG.
 * Depth first finds an order fast where there are many. */
int depth_run(struct model *model, struct plan *plan, size_t steps_max,
              struct search_result *result, struct intern *visited);
/* Breadth first tells that there is none, also where many operations are optional. */
int breadth_run(struct model *model, const struct plan *plan, size_t steps_max,
                struct search_result *result, struct intern *visited);

#endif
