/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine: drives one target as a scenario says, times every command and checks every grant.
 *
 * Latency is counted from the time at which a command was to begin. In an open loop that is its
 * place in the arrivals, whether or not the system kept the generator from sending by then; what
 * had not been begun or answered at the end counts with the time it had waited by then. So a system
 * that stalls pays for every command that it would have got meanwhile (no coordinated omission).
 *
 * One thread. Everything is allocated by load_open() and nothing grows during a run.
 */
#ifndef BELAY_BENCH_LOAD_H
#define BELAY_BENCH_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/load/checks.h"
#include "bench/load/happenings.h"
#include "bench/load/histogram.h"
#include "bench/load/scenario.h"
#include "bench/load/target.h"
#include "bench/load/timeline.h"

enum { LOAD_ERROR_BYTES = 512 };

struct load_options {
    const struct target_class *class;
    const char *endpoints;
    const char *port;                /* of --port; NULL = the kernel's */
    const struct scenario *scenario; /* settled; outlives the load */
    struct happenings *happenings;   /* of the caller; NULL = none */
    uint64_t seed;
    uint32_t drain_ms; /* how long to wait at the end for what is under way; 0 = 10 s */
    bool progress;     /* a live line on standard error */
};

/* What was to begin in the measured window. */
struct load_command {
    uint64_t statuses[TARGET_STATUS_COUNT];
    uint64_t unfinished; /* neither answered nor given up when the run had ended */
    uint64_t unsent;     /* open loop: could not be begun at all */
    uint64_t ended;      /* answered inside the window, whenever it began: the throughput */
    struct histogram latency_ns;
};

struct load_result {
    struct load_command commands[TARGET_OP_COUNT];
    uint64_t measured_ns;
    uint64_t cpu_ns; /* of this process, during measured_ns */
    uint64_t grants; /* inside the window */
    uint64_t held;
    uint64_t held_fill_ns; /* how long taking them lasted */
    uint64_t held_gone;    /* not lost by word, but their release said so; failover's "lost" */
    uint64_t held_unsure;  /* their release was not answered */
    uint64_t lost;         /* told by the client before a release */
    uint64_t lost_held;    /* of these, locks of `held` */
    struct checks checks;
    struct timeline timeline;
    /* Grants of the clients that had fewest and most, and Jain's index of all: (sum of x)^2 /
     * (n sum of x^2), 1 = all alike ("A quantitative measure of fairness", DEC TR-301, 1984). */
    uint32_t client_grants_least, client_grants_most;
    double fairness;
};

struct load;

/* Connects. NULL and a sentence in `error`. */
struct load *load_open(const struct load_options *options, char *error, size_t error_bytes);
/* Takes what is to be held, warms up, measures, and lets what is under way end. False: the run
 * could not be done; `error` says why and what to do. */
bool load_run(struct load *load, char *error, size_t error_bytes);
/* Valid until load_close(). */
const struct load_result *load_result(const struct load *load);
void load_close(struct load *load);

#endif
