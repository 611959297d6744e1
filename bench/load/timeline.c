/* SPDX-License-Identifier: Apache-2.0
 *
 * See timeline.h.
 */
#include "bench/load/timeline.h"

#include <stdlib.h>

bool timeline_init(struct timeline *timeline, uint64_t length_ns)
{
    *timeline = (struct timeline){.spans_count = (size_t)(length_ns / TIMELINE_SPAN_NS) + 1};
    timeline->spans = calloc(timeline->spans_count, sizeof *timeline->spans);
    return timeline->spans != NULL;
}

void timeline_free(struct timeline *timeline)
{
    free(timeline->spans);
    timeline->spans = NULL;
}

void timeline_begin(struct timeline *timeline, uint64_t now_ns)
{
    timeline->begin_ns = now_ns;
    timeline->last_grant_ns = now_ns;
}

/* NULL: before the begin or behind the end. */
static struct timeline_span *span_at(struct timeline *timeline, uint64_t now_ns)
{
    uint64_t i = (now_ns - timeline->begin_ns) / TIMELINE_SPAN_NS;

    if (timeline->begin_ns == 0 || now_ns < timeline->begin_ns || i >= timeline->spans_count)
        return NULL;
    return &timeline->spans[i];
}

static struct timeline_gap gap_until(struct timeline *timeline, uint64_t now_ns)
{
    struct timeline_gap gap = {.from_ns = timeline->last_grant_ns};

    if (timeline->begin_ns == 0 || now_ns < timeline->last_grant_ns)
        return gap;
    gap.length_ns = now_ns - timeline->last_grant_ns;
    timeline->last_grant_ns = now_ns;
    if (gap.length_ns > timeline->longest.length_ns)
        timeline->longest = gap;
    return gap;
}

struct timeline_gap timeline_grant(struct timeline *timeline, uint64_t now_ns)
{
    struct timeline_span *span = span_at(timeline, now_ns);

    if (span)
        span->grants++;
    return gap_until(timeline, now_ns);
}

void timeline_latency(struct timeline *timeline, uint64_t now_ns, uint64_t latency_ns)
{
    struct timeline_span *span = span_at(timeline, now_ns);
    uint64_t us = latency_ns / 1000;

    if (span && us > span->slowest_us)
        span->slowest_us = us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

struct timeline_gap timeline_end(struct timeline *timeline, uint64_t now_ns)
{
    return gap_until(timeline, now_ns);
}
