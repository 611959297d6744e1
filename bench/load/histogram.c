/* SPDX-License-Identifier: Apache-2.0
 *
 * See histogram.h.
 */
#include "bench/load/histogram.h"

#include <assert.h>
#include <string.h>

/* Values below 2 * PARTS are their own index; above, the leading PART_BITS + 1 bits choose. The
 * leading one adds PARTS to the index, which is why each shift moves on by PARTS only. */
static unsigned index_of(uint64_t value)
{
    const uint64_t last = (UINT64_C(1) << HISTOGRAM_VALUE_BITS) - 1;
    unsigned shift;

    if (value > last)
        value = last;
    if (value < 2 * HISTOGRAM_PARTS)
        return (unsigned)value;
    shift = 63 - HISTOGRAM_PART_BITS - (unsigned)__builtin_clzll(value);
    return (shift << HISTOGRAM_PART_BITS) + (unsigned)(value >> shift);
}

static uint64_t middle_of(unsigned index)
{
    unsigned shift = index < 2 * HISTOGRAM_PARTS ? 0 : (index >> HISTOGRAM_PART_BITS) - 1;
    uint64_t first = (uint64_t)(index - (shift << HISTOGRAM_PART_BITS)) << shift;

    return first + ((UINT64_C(1) << shift) >> 1);
}

void histogram_reset(struct histogram *histogram)
{
    memset(histogram, 0, sizeof *histogram);
    histogram->least = UINT64_MAX;
}

static void add_to_sum(struct histogram *histogram, uint64_t value)
{
    if (__builtin_add_overflow(histogram->sum, value, &histogram->sum))
        histogram->sum = UINT64_MAX;
}

void histogram_record(struct histogram *histogram, uint64_t value)
{
    histogram->count++;
    add_to_sum(histogram, value);
    if (value < histogram->least)
        histogram->least = value;
    if (value > histogram->greatest)
        histogram->greatest = value;
    histogram->counters[index_of(value)]++;
}

void histogram_merge(struct histogram *histogram, const struct histogram *other)
{
    histogram->count += other->count;
    add_to_sum(histogram, other->sum);
    if (other->least < histogram->least)
        histogram->least = other->least;
    if (other->greatest > histogram->greatest)
        histogram->greatest = other->greatest;
    for (unsigned i = 0; i < HISTOGRAM_COUNTERS; i++)
        histogram->counters[i] += other->counters[i];
}

uint64_t histogram_quantile(const struct histogram *histogram, uint32_t millionths)
{
    uint64_t rank;
    uint64_t seen = 0;

    assert(millionths <= HISTOGRAM_PARTS_PER);
    if (histogram->count == 0)
        return 0;
    /* ceil(count * millionths / PARTS_PER), in parts that cannot overflow */
    rank = histogram->count / HISTOGRAM_PARTS_PER * millionths +
           (histogram->count % HISTOGRAM_PARTS_PER * millionths + HISTOGRAM_PARTS_PER - 1) /
               HISTOGRAM_PARTS_PER;
    if (rank <= 1)
        return histogram->least;
    if (rank == histogram->count)
        return histogram->greatest;
    for (unsigned i = 0; i < HISTOGRAM_COUNTERS; i++) {
        uint64_t value;

        seen += histogram->counters[i];
        if (seen < rank)
            continue;
        value = middle_of(i);
        value = value < histogram->least ? histogram->least : value;
        return value > histogram->greatest ? histogram->greatest : value;
    }
    assert(!"counters and count agree");
    return 0;
}

uint64_t histogram_mean(const struct histogram *histogram)
{
    return histogram->count ? histogram->sum / histogram->count : 0;
}
