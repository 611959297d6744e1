/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands that are run at given times of a run (--at 5s 'kill -9 1234'), and what the clients saw
 * of each. A command runs in a shell beside the run, which does not wait for it.
 */
#ifndef BELAY_BENCH_HAPPENINGS_H
#define BELAY_BENCH_HAPPENINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bench/load/timeline.h"

enum { HAPPENINGS_MAX = 16 };

struct happening {
    uint64_t after_ns; /* since measuring began */
    const char *command;
    bool begun;
    pid_t pid;         /* 0 = not running */
    int exit_code;     /* -1 = unknown yet; 128 + number = by a signal */
    uint64_t at_ns;    /* begun */
    uint64_t first_ns; /* completion of the first grant that was asked for afterwards; 0 = none */
    struct timeline_gap longest; /* without a grant, that ended after it and before the next */
    uint64_t slowest_ns;         /* latency of a command that ended after it and before the next */
};

struct happenings {
    struct happening list[HAPPENINGS_MAX]; /* in the order of after_ns */
    unsigned count;
    unsigned next; /* not begun yet */
    unsigned running;
};

/* "5s", "250ms" or plain seconds. False: neither, or too many; `error` says so. */
bool happenings_add(struct happenings *happenings, const char *when, const char *command,
                    char *error, size_t error_bytes);
/* Begins what is due and collects what has ended. */
void happenings_turn(struct happenings *happenings, uint64_t begin_ns, uint64_t now_ns);
/* UINT64_MAX = nothing is to come. */
uint64_t happenings_next_ns(const struct happenings *happenings, uint64_t begin_ns);
void happenings_grant(struct happenings *happenings, uint64_t begun_ns, uint64_t now_ns,
                      struct timeline_gap gap);
void happenings_latency(struct happenings *happenings, uint64_t latency_ns);
/* Waits at most a second for those that still run. */
void happenings_end(struct happenings *happenings, struct timeline_gap gap);

#endif
