/* SPDX-License-Identifier: Apache-2.0
 *
 * Laying out a search.
 */
#include "tests/lincheck/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void *plan_take(struct budget *budget, size_t count, size_t element_bytes)
{
    return budget_resize(budget, NULL, 0, (count + 1) * element_bytes);
}

void plan_give_back(struct budget *budget, void *memory, size_t count, size_t element_bytes)
{
    budget_release(budget, memory, (count + 1) * element_bytes);
}

static int by_place(const void *a, const void *b)
{
    const struct plan_entry *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static void make_nodes(struct plan *plan)
{
    const struct search_input *input = plan->input;
    for (size_t i = 0; i < input->ops_count; i++) {
        const struct history_op *op = &input->ops[i];
        bool needed = input->roles[i] == ROLE_REQUIRED;
        /* What need not be placed and changes nothing is nothing. */
        if (input->roles[i] == ROLE_ABSENT || (!needed && model_is_pure(op)))
            continue;
        uint32_t index = (uint32_t)plan->nodes_count++;
        size_t bit = needed ? plan->required_count++ : plan->optional_count++;
        plan->nodes[index] = (struct plan_node){
            .op = op, .op_index = i, .pure = model_is_pure(op), .bit = (uint32_t)bit};
        plan->entries[++plan->entries_count] =
            (struct plan_entry){.at = op->call_at, .node = index};
        if (needed)
            plan->entries[++plan->entries_count] =
                (struct plan_entry){.at = op->return_at, .node = index, .is_return = true};
    }
}

static void link_entries(struct plan *plan)
{
    struct plan_entry *entries = plan->entries;
    qsort(entries + 1, plan->entries_count, sizeof *entries, by_place);
    for (uint32_t i = 0; i <= plan->entries_count; i++) {
        entries[i].previous = i == 0 ? 0 : i - 1;
        entries[i].next = i == plan->entries_count ? 0 : i + 1;
        if (i == 0)
            continue;
        struct plan_node *node = &plan->nodes[entries[i].node];
        *(entries[i].is_return ? &node->answer : &node->call) = i;
    }
}

/* The slots given back by operations that have ended are used again. */
static int assign_slots(struct plan *plan)
{
    size_t free_count = 0;
    uint32_t *free_slots = plan_take(plan->budget, plan->required_count, sizeof *free_slots);
    if (free_slots == NULL)
        return -ENOMEM;
    for (size_t i = 1; i <= plan->entries_count; i++) {
        struct plan_node *node = &plan->nodes[plan->entries[i].node];
        if (plan->entries[i].is_return)
            free_slots[free_count++] = node->slot;
        else if (node->answer != 0)
            node->slot = free_count > 0 ? free_slots[--free_count] : (uint32_t)plan->slots_count++;
    }
    plan_give_back(plan->budget, free_slots, plan->required_count, sizeof *free_slots);
    return 0;
}

struct twin {
    const struct history_op *op;
    uint32_t node;
};

/* Equal in all that a model looks at. */
static int compare_ops(const struct history_op *x, const struct history_op *y)
{
    const uint64_t pairs[][2] = {{x->kind, y->kind},
                                 {x->mode, y->mode},
                                 {x->owner, y->owner},
                                 {x->value, y->value},
                                 {x->value_to, y->value_to},
                                 {x->permits, y->permits},
                                 {x->token_known, y->token_known},
                                 {x->token, y->token}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (pairs[i][0] != pairs[i][1])
            return pairs[i][0] > pairs[i][1] ? 1 : -1;
    return 0;
}

static int by_likeness(const void *a, const void *b)
{
    const struct twin *x = a, *y = b;
    int order = compare_ops(x->op, y->op);
    return order != 0 ? order : (x->node > y->node) - (x->node < y->node);
}

static int find_twins(struct plan *plan)
{
    size_t count = 0;
    struct twin *twins = plan_take(plan->budget, plan->optional_count, sizeof *twins);
    if (twins == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < plan->nodes_count; i++)
        if (plan->nodes[i].answer == 0)
            twins[count++] = (struct twin){plan->nodes[i].op, i};
    qsort(twins, count, sizeof *twins, by_likeness);
    for (size_t i = 1; i < count; i++)
        if (compare_ops(twins[i - 1].op, twins[i].op) == 0)
            plan->nodes[twins[i].node].twin = twins[i - 1].node + 1;
    plan_give_back(plan->budget, twins, plan->optional_count, sizeof *twins);
    return 0;
}

int plan_make(struct plan *plan, struct budget *budget, const struct search_input *input)
{
    memset(plan, 0, sizeof *plan);
    plan->budget = budget;
    plan->input = input;
    if (input->ops_count >= UINT32_MAX / 4)
        return -ENOMEM;
    plan->nodes = plan_take(budget, input->ops_count, sizeof *plan->nodes);
    plan->entries = plan_take(budget, 2 * input->ops_count, sizeof *plan->entries);
    if (plan->nodes == NULL || plan->entries == NULL)
        return -ENOMEM;
    make_nodes(plan);
    link_entries(plan);
    int result = assign_slots(plan);
    return result < 0 ? result : find_twins(plan);
}

void plan_free(struct plan *plan)
{
    size_t count = plan->input->ops_count;
    plan_give_back(plan->budget, plan->nodes, count, sizeof *plan->nodes);
    plan_give_back(plan->budget, plan->entries, 2 * count, sizeof *plan->entries);
    plan->nodes = NULL;
    plan->entries = NULL;
}

void plan_note_blocked(const struct plan *plan, struct search_result *result, uint32_t entry,
                       uint32_t state)
{
    const struct plan_entry *answer = &plan->entries[entry];
    if (result->blocked_states_count > 0 && answer->at < result->blocked_at)
        return;
    if (answer->at != result->blocked_at)
        result->blocked_states_count = 0;
    result->blocked_at = answer->at;
    result->blocked_op = plan->nodes[answer->node].op_index;
    size_t kept = result->blocked_states_count;
    if (kept > SEARCH_STATES_MAX)
        return;
    for (size_t i = 0; i < kept && i < SEARCH_STATES_MAX; i++)
        if (result->blocked_states[i] == state)
            return;
    if (kept < SEARCH_STATES_MAX)
        result->blocked_states[kept] = state;
    result->blocked_states_count++;
}
