/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run does: a small text that a user can copy and change.
 *
 *     # a comment
 *     what     = how long one lock takes
 *     clients  = 64
 *     ttl-ms   = 10000
 *
 * Every key is also a flag of belay-bench (--clients 64). The reader is total: whatever the text,
 * it gives a scenario or one sentence that names file, line, key and what was expected.
 */
#ifndef BELAY_BENCH_SCENARIO_H
#define BELAY_BENCH_SCENARIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/load/names.h"

enum {
    SCENARIO_FILE_BYTES_MAX = 65536,
    SCENARIO_WHAT_BYTES = 160,
    SCENARIO_GROUP_BYTES = 17,
    SCENARIO_ERROR_BYTES = 512,
    SCENARIO_KEYS_MAX = 32,
};

enum scenario_work {
    WORK_PAIRS,    /* acquire, hold, release */
    WORK_RENEWALS, /* of locks held from the start */
    WORK_QUERIES,  /* of locks held from the start, or of `names` if none are */
};

enum scenario_pick {
    PICK_OWN,     /* every client its own names: never contended */
    PICK_UNIFORM, /* all of `names` alike */
    PICK_ZIPF,
};

enum scenario_spacing { SPACING_POISSON, SPACING_FIXED };

#define SCENARIO_WAIT_FOREVER UINT32_MAX

struct scenario {
    char what[SCENARIO_WHAT_BYTES];
    char group[SCENARIO_GROUP_BYTES]; /* all names begin with it */
    uint32_t work;                    /* enum scenario_work */
    uint32_t rate;    /* commands per second, an acquire and its release are two; 0 = closed loop */
    uint32_t spacing; /* enum scenario_spacing, of the arrivals of an open loop */
    uint32_t seconds; /* that are measured */
    uint32_t warm_up_ms;
    uint32_t clients;
    uint32_t in_flight; /* pairs or commands at once; 0 = as many as clients, at most 65,536 */
    uint64_t names;     /* 0 = as many as clients */
    uint32_t pick;      /* enum scenario_pick */
    double zipf_exponent;
    uint32_t braces; /* enum name_braces */
    uint32_t shared_percent;
    uint32_t wait_ms; /* 0 = try */
    uint32_t hold_ms;
    uint32_t ttl_ms;
    bool renew;    /* locks are kept alive by the client */
    uint64_t held; /* locks taken before the start, under names of their own */
    bool stale;    /* queries */
    uint32_t pack;
    bool timeline;    /* report grants per 10 ms */
    bool expect_lost; /* held locks are meant to run out */
    uint32_t given;   /* bit i: key i was given, by the file or a flag */
};

void scenario_init(struct scenario *scenario);

/* One key. False: `error` says what was expected. */
bool scenario_set(struct scenario *scenario, const char *key, const char *value, char *error,
                  size_t error_bytes);

/* A whole text, on top of what the scenario is. `file` is what errors call it. */
bool scenario_read(struct scenario *scenario, const char *file, const char *text, size_t bytes,
                   char *error, size_t error_bytes);

/* Fills in what follows from the rest, and judges what no single key can. To be called once, after
 * the last scenario_set(). */
bool scenario_settle(struct scenario *scenario, char *error, size_t error_bytes);

/* The key's name and what it takes, for --help and reports; NULL = there is no key i. */
const char *scenario_key(unsigned i, const char **expected);
/* Its value as text that scenario_set() takes. */
void scenario_value(const struct scenario *scenario, unsigned i, char *text, size_t bytes);

#endif
