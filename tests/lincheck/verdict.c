/* SPDX-License-Identifier: Apache-2.0
 *
 * Judging key by key, and narrowing down what is wrong.
 */
#include "tests/lincheck/verdict.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum {
    WINDOW_STEPS_MAX = 2000000,     /* one try at a window; a longer window is tried instead */
    NARROWING_STEPS_MAX = 20000000, /* all tries together */
    WINDOW_INITIALS_MAX = 20000,
    WINDOW_ONE_BY_ONE_MAX = 64, /* beyond so many operations the window grows by doubling */
    TAIL_SHOWN = 24, /* of a history that is bad only as a whole, its last operations are shown */
};

/* One key. */
struct narrowing {
    struct model *model;
    const struct history_op *ops;
    size_t ops_count;
    uint32_t *initials; /* every state that the search through the whole was in */
    size_t initials_count;
    size_t steps_left; /* for trying windows */
    uint32_t end_at;   /* the answer that no order reaches */
    uint8_t *roles;
};

/* Roles for the stretch of events from one place to another: what was answered before is no part of
 * it, what was under way before may have happened before, what is not answered within may not have
 * happened at all. */
static void set_roles(struct narrowing *narrowing, uint32_t first_at, uint32_t last_at)
{
    for (size_t i = 0; i < narrowing->ops_count; i++) {
        const struct history_op *op = &narrowing->ops[i];
        enum search_role role = ROLE_OPTIONAL;
        if (op->return_at < first_at || op->call_at > last_at)
            role = ROLE_ABSENT;
        else if (op->call_at >= first_at && op->return_at <= last_at)
            role = ROLE_REQUIRED;
        narrowing->roles[i] = (uint8_t)role;
    }
}

/* True if no order of these operations is possible, whatever came before. */
static bool is_bad(struct narrowing *narrowing)
{
    struct search_result result;
    struct search_input input = {.ops = narrowing->ops,
                                 .ops_count = narrowing->ops_count,
                                 .roles = narrowing->roles,
                                 .initials = narrowing->initials,
                                 .initials_count = narrowing->initials_count,
                                 .steps_max = narrowing->steps_left < WINDOW_STEPS_MAX
                                                  ? narrowing->steps_left
                                                  : WINDOW_STEPS_MAX};
    int problem = search_run(narrowing->model, &input, &result, NULL);
    narrowing->steps_left -=
        result.steps_count < narrowing->steps_left ? result.steps_count : narrowing->steps_left;
    return problem == 0 && result.verdict == SEARCH_NOT_LINEARIZABLE;
}

/* Moves the beginning of the window back from the operation that cannot be placed until the window
 * is bad by itself. False: not even nearly the whole is. */
static bool find_start(struct narrowing *narrowing, size_t blocked)
{
    size_t back = 0, stride = 1;
    for (;;) {
        set_roles(narrowing, narrowing->ops[blocked - back].call_at, narrowing->end_at);
        if (is_bad(narrowing))
            return true;
        if (back == blocked)
            return false;
        back = blocked - back > stride ? back + stride : blocked;
        if (back >= WINDOW_ONE_BY_ONE_MAX)
            stride *= 2;
    }
}

/* Operations of which the window is bad without, too, are left out: first those that need not have
 * happened, then those that did. */
static void thin_out(struct narrowing *narrowing, size_t blocked)
{
    size_t count = 0;
    for (size_t i = 0; i < narrowing->ops_count; i++)
        count += narrowing->roles[i] != ROLE_ABSENT;
    if (count > WINDOW_ONE_BY_ONE_MAX * 2)
        return;
    for (size_t i = 0; i < narrowing->ops_count; i++) {
        if (i == blocked || narrowing->roles[i] != ROLE_REQUIRED)
            continue;
        /* Less is demanded: if that is bad still, the operation's being done is not to the point.
         */
        narrowing->roles[i] = ROLE_OPTIONAL;
        if (!is_bad(narrowing))
            narrowing->roles[i] = ROLE_REQUIRED;
    }
    /* What need not be placed and changes nothing explains nothing. */
    for (size_t i = 0; i < narrowing->ops_count; i++)
        if (narrowing->roles[i] == ROLE_OPTIONAL && model_is_pure(&narrowing->ops[i]))
            narrowing->roles[i] = ROLE_ABSENT;
}

static void show_tail(struct narrowing *narrowing, size_t blocked)
{
    set_roles(narrowing, 0, narrowing->end_at);
    for (size_t i = narrowing->ops_count, seen = 0; i-- > 0;)
        if (narrowing->roles[i] != ROLE_ABSENT && seen++ >= TAIL_SHOWN && i != blocked)
            narrowing->roles[i] = ROLE_ABSENT;
}

static int gather_state(void *context, struct span entry)
{
    struct narrowing *narrowing = context;
    memcpy(&narrowing->initials[narrowing->initials_count++], entry.bytes, sizeof(uint32_t));
    return 0;
}

static void narrow(struct narrowing *narrowing, struct window *window, const struct intern *visited,
                   size_t blocked)
{
    struct budget *budget = narrowing->model->history->budget;
    size_t states = visited->entries_count;
    if (states > 0 && states <= WINDOW_INITIALS_MAX)
        narrowing->initials = budget_resize(budget, NULL, 0, states * sizeof(uint32_t));
    bool found = false;
    if (narrowing->initials != NULL) {
        intern_each(visited, gather_state, narrowing);
        found = find_start(narrowing, blocked);
    }
    if (found)
        thin_out(narrowing, blocked);
    else
        show_tail(narrowing, blocked);
    window->is_tail = !found;
    window->initials_count = narrowing->initials_count;
    window->blocked_op = blocked;
    for (size_t i = 0; i < narrowing->ops_count; i++)
        window->shown_count += narrowing->roles[i] != ROLE_ABSENT;
    budget_release(budget, narrowing->initials, states * sizeof(uint32_t));
}

/* One key's operations. Fills the window if they are bad. */
static void judge_key(struct verdict *verdict, struct model *model, size_t first, size_t count)
{
    struct budget *budget = model->history->budget;
    const struct history_op *ops = model->history->ops + first;
    struct intern visited;
    uint8_t *roles = budget_resize(budget, NULL, 0, count);
    if (roles == NULL) {
        verdict->verdict = SEARCH_UNKNOWN;
        verdict->problem = -ENOMEM;
        return;
    }
    for (size_t i = 0; i < count; i++)
        roles[i] = ops[i].return_at == POSITION_NEVER ? ROLE_OPTIONAL : ROLE_REQUIRED;
    intern_init(&visited, budget);
    struct search_result result;
    struct search_input input = {.ops = ops,
                                 .ops_count = count,
                                 .roles = roles,
                                 .initials = &model->initial,
                                 .initials_count = 1,
                                 .steps_max = SIZE_MAX};
    int problem = search_run(model, &input, &result, &visited);
    verdict->steps_count += result.steps_count;
    if (result.verdict == SEARCH_UNKNOWN) {
        verdict->verdict = SEARCH_UNKNOWN;
        verdict->problem = problem;
    } else if (result.verdict == SEARCH_NOT_LINEARIZABLE) {
        struct narrowing narrowing = {.model = model,
                                      .ops = ops,
                                      .ops_count = count,
                                      .end_at = result.blocked_at,
                                      .steps_left = NARROWING_STEPS_MAX,
                                      .roles = roles};
        verdict->verdict = SEARCH_NOT_LINEARIZABLE;
        verdict->result = result;
        verdict->window = (struct window){.first_op = first, .ops_count = count, .roles = roles};
        narrow(&narrowing, &verdict->window, &visited, result.blocked_op);
        roles = NULL; /* the window's now */
    }
    intern_free(&visited);
    budget_release(budget, roles, count);
}

void verdict_find(struct verdict *verdict, struct model *model)
{
    const struct history *history = model->history;
    memset(verdict, 0, sizeof *verdict);
    verdict->verdict = SEARCH_LINEARIZABLE;
    for (size_t first = 0, end; first < history->ops_count; first = end) {
        end = first + 1;
        while (end < history->ops_count && history->ops[end].key == history->ops[first].key)
            end++;
        verdict->keys_count++;
        judge_key(verdict, model, first, end - first);
        if (verdict->verdict == SEARCH_NOT_LINEARIZABLE)
            return;
    }
}

void verdict_free(struct verdict *verdict, struct model *model)
{
    budget_release(model->history->budget, verdict->window.roles, verdict->window.ops_count);
    verdict->window.roles = NULL;
}
