/* SPDX-License-Identifier: Apache-2.0
 *
 * A run along time: grants and the slowest command per 10 ms, and the longest time without a grant.
 * As many spans as the run will have, made beforehand.
 */
#ifndef BELAY_BENCH_TIMELINE_H
#define BELAY_BENCH_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TIMELINE_SPAN_NS UINT64_C(10000000)

struct timeline_span {
    uint32_t grants;
    uint32_t slowest_us; /* of the commands that ended in it; saturates */
};

struct timeline_gap {
    uint64_t from_ns;
    uint64_t length_ns; /* 0 = there was none */
};

struct timeline {
    uint64_t begin_ns;
    uint64_t last_grant_ns; /* or the begin */
    struct timeline_gap longest;
    struct timeline_span *spans;
    size_t spans_count;
};

bool timeline_init(struct timeline *timeline, uint64_t length_ns);
void timeline_free(struct timeline *timeline);
void timeline_begin(struct timeline *timeline, uint64_t now_ns);
/* Returns the time since the grant before. */
struct timeline_gap timeline_grant(struct timeline *timeline, uint64_t now_ns);
void timeline_latency(struct timeline *timeline, uint64_t now_ns, uint64_t latency_ns);
/* The run is over: the time since the last grant counts, too. */
struct timeline_gap timeline_end(struct timeline *timeline, uint64_t now_ns);

#endif
