/* SPDX-License-Identifier: Apache-2.0
 *
 * The systems that this program can drive.
 */
#ifndef BELAY_BENCH_TARGETS_H
#define BELAY_BENCH_TARGETS_H

#include <stdio.h>

#include "bench/load/target.h"

/* "belay:127.0.0.1:7400,...": the class, and what follows the colon in `endpoints`. NULL and a
 * sentence in `error`: no such system, or the package that its driver needs was not there when this
 * program was built. */
const struct target_class *targets_find(const char *text, const char **endpoints, char *error,
                                        size_t error_bytes);
void targets_list(FILE *out);

#endif
