/* SPDX-License-Identifier: Apache-2.0
 *
 * belay-bench whose only target is the service that misbehaves: what the whole program says and
 * how it ends when something is violated.
 */
#include "bench/load/targets.h"

#include "tests/unit/bench_fake.h"

const struct target_class *targets_find(const char *text, const char **endpoints, char *error,
                                        size_t error_bytes)
{
    (void)error;
    (void)error_bytes;
    *endpoints = text;
    return &bench_fake;
}

void targets_list(FILE *out)
{
    (void)out;
}
