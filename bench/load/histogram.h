/* SPDX-License-Identifier: Apache-2.0
 *
 * A log-linear histogram of durations: values up to 255 each have a counter, and every power of
 * two above is cut into 128 equal parts. A counter's middle is within 0.4 % of every value that it
 * stands for, so quantiles are, too; least, greatest and mean are exact. Fixed size, no allocation.
 */
#ifndef BELAY_BENCH_HISTOGRAM_H
#define BELAY_BENCH_HISTOGRAM_H

#include <stdint.h>

enum {
    HISTOGRAM_PART_BITS = 7,
    HISTOGRAM_PARTS = 1 << HISTOGRAM_PART_BITS,
    HISTOGRAM_VALUE_BITS = 44, /* 4.8 hours in ns; longer ones count in the last counter */
    HISTOGRAM_COUNTERS = (HISTOGRAM_VALUE_BITS - HISTOGRAM_PART_BITS + 1) * HISTOGRAM_PARTS,
    HISTOGRAM_PARTS_PER = 1000000, /* quantiles are asked for in millionths */
};

struct histogram {
    uint64_t count;
    uint64_t sum; /* saturates */
    uint64_t least;
    uint64_t greatest;
    uint64_t counters[HISTOGRAM_COUNTERS];
};

void histogram_reset(struct histogram *histogram);
void histogram_record(struct histogram *histogram, uint64_t value);
/* Adds what `other` counted. */
void histogram_merge(struct histogram *histogram, const struct histogram *other);
/* The smallest value that at least `millionths` of all values do not exceed; 0 of none. */
uint64_t histogram_quantile(const struct histogram *histogram, uint32_t millionths);
uint64_t histogram_mean(const struct histogram *histogram);

#endif
