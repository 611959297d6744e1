/* SPDX-License-Identifier: Apache-2.0
 *
 * Which way to search. Depth first goes far with little where an order exists; but if there is none
 * it has to try every choice of optional operations. Then breadth first decides.
 */
#include "tests/lincheck/search.h"

#include <errno.h>
#include <string.h>

#include "tests/lincheck/plan.h"

enum { DEPTH_STEPS_FIRST = 1 << 20 };

/* As depth_run(). */
static int search_planned(struct model *model, struct plan *plan, size_t steps_max,
                          struct search_result *result, struct intern *visited)
{
    size_t first = steps_max / 4 < DEPTH_STEPS_FIRST ? steps_max / 4 : DEPTH_STEPS_FIRST;
    int outcome = depth_run(model, plan, first, result, visited);
    if (outcome != -ETIME && outcome != -ENOMEM)
        return outcome;
    memset(result, 0, sizeof *result);
    outcome = breadth_run(model, plan, steps_max, result, visited);
    if (outcome != -ENOMEM)
        return outcome;
    /* What is left is hope. */
    memset(result, 0, sizeof *result);
    return depth_run(model, plan, steps_max, result, visited);
}

int search_run(struct model *model, const struct search_input *input, struct search_result *result,
               struct intern *visited)
{
    struct plan plan;
    memset(result, 0, sizeof *result);
    int outcome = plan_make(&plan, model->history->budget, input);
    if (outcome == 0)
        outcome = search_planned(model, &plan, input->steps_max, result, visited);
    plan_free(&plan);
    result->verdict = outcome == 0   ? SEARCH_NOT_LINEARIZABLE
                      : outcome == 1 ? SEARCH_LINEARIZABLE
                                     : SEARCH_UNKNOWN;
    return outcome == -ENOMEM || outcome == -E2BIG ? outcome : 0;
}
