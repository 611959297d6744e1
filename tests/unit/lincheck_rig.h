/* SPDX-License-Identifier: Apache-2.0
 *
 * Histories in, verdicts out: what the checker's tests share.
 */
#ifndef TESTS_UNIT_LINCHECK_RIG_H
#define TESTS_UNIT_LINCHECK_RIG_H

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/lincheck/verdict.h"

struct rig {
    struct budget budget;
    struct history history;
    struct model model;
    struct verdict verdict;
    struct parse_error error;
    int read_result;
};

static inline struct history_options rig_options(enum model_kind model)
{
    return (struct history_options){.model = model};
}

/* Reads and, if that went well, judges. The text must outlive nothing. */
static inline void rig_judge(struct rig *rig, const struct history_options *options,
                             const char *text, uint32_t permits)
{
    memset(rig, 0, sizeof *rig);
    rig->budget.limit_bytes = (size_t)256 << 20;
    history_init(&rig->history, &rig->budget);
    rig->read_result = history_read(&rig->history, options, text, strlen(text), &rig->error);
    if (rig->read_result < 0)
        return;
    int result = model_init(&rig->model, options->model, &rig->history, NULL);
    if (result < 0) {
        rig->read_result = result;
        return;
    }
    rig->model.permits_max = permits;
    verdict_find(&rig->verdict, &rig->model);
}

static inline void rig_free(struct rig *rig)
{
    if (rig->model.history != NULL) {
        verdict_free(&rig->verdict, &rig->model);
        model_free(&rig->model);
    }
    history_free(&rig->history);
}

/* The report on a bad history, as text. */
static inline void rig_report(const struct rig *rig, char *text, size_t text_bytes)
{
    memset(text, 0, text_bytes);
    FILE *out = fmemopen(text, text_bytes - 1, "w");
    verdict_print(&rig->verdict, &rig->model, out);
    fclose(out);
}

#endif
