/* SPDX-License-Identifier: Apache-2.0
 *
 * A run's figures for people (a table) and for programs (JSON; docs/benchmark.md lists its fields).
 */
#ifndef BELAY_BENCH_REPORT_H
#define BELAY_BENCH_REPORT_H

#include <stdio.h>

#include "bench/load/load.h"

struct report {
    const char *target; /* class */
    const char *endpoints;
    const char *port; /* NULL = the kernel's */
    const char *scenario_name;
    const struct scenario *scenario;
    const struct happenings *happenings;
    const struct load_result *result;
    uint64_t seed;
};

void report_table(FILE *out, const struct report *report);
/* False: no memory, or it could not be written. */
bool report_json(FILE *out, const struct report *report);

/* Commands answered per second, of one kind. */
double report_rate(const struct load_result *result, enum target_op op);
const char *report_op(enum target_op op);
const char *report_status(enum target_status status);

#endif
