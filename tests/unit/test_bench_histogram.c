/* SPDX-License-Identifier: Apache-2.0
 *
 * The histogram against a sorted list of the same values.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "bench/load/histogram.h"
#include "bench/load/names.h"

enum { VALUES = 200000 };

static int by_value(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return one < other ? -1 : one > other;
}

/* Ten decades, and a heap in the middle as latencies have one. */
static uint64_t some_value(struct draws *draws)
{
    if (draw_below(draws, 3) == 0)
        return (uint64_t)pow(10.0, 10.0 * draw_unit(draws));
    return 200000 + (uint64_t)draw_interval(draws, 300000);
}

/* The definition: the smallest value that at least so many of all do not exceed. */
static uint64_t exact(const uint64_t *sorted, uint64_t count, uint32_t millionths)
{
    uint64_t rank = 0;
    while (rank < count && rank * 1000000 < count * millionths)
        rank++;
    return sorted[rank > 0 ? rank - 1 : 0];
}

static void check_quantiles(const struct histogram *histogram, uint64_t *values, uint64_t count)
{
    static const uint32_t asked[] = {0,      1,      1000,   10000,  250000, 500000,
                                     900000, 990000, 999000, 999900, 999999, 1000000};
    qsort(values, count, sizeof *values, by_value);
    cr_assert_eq(histogram->count, count);
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        double found = (double)histogram_quantile(histogram, asked[i]);
        double expected = (double)exact(values, count, asked[i]);
        cr_assert(fabs(found - expected) <= 0.01 * expected,
                  "quantile %u of %lu: %.0f, exactly %.0f", asked[i], (unsigned long)count, found,
                  expected);
    }
    cr_assert_eq(histogram_quantile(histogram, 1000000), values[count - 1], "max is exact");
    cr_assert_eq(histogram_quantile(histogram, 0), values[0], "least is exact");
}

Test(bench_histogram, quantiles_are_within_one_percent)
{
    static struct histogram histogram;
    static uint64_t values[VALUES];
    struct draws draws = {.state = 7};
    uint64_t sum = 0;
    histogram_reset(&histogram);
    for (int i = 0; i < VALUES; i++) {
        values[i] = some_value(&draws);
        sum += values[i];
        histogram_record(&histogram, values[i]);
    }
    cr_assert_eq(histogram_mean(&histogram), sum / VALUES);
    check_quantiles(&histogram, values, VALUES);
}

Test(bench_histogram, few_values)
{
    static struct histogram histogram;
    struct draws draws = {.state = 9};
    for (uint64_t count = 1; count <= 40; count++) {
        uint64_t values[40];
        histogram_reset(&histogram);
        for (uint64_t i = 0; i < count; i++) {
            values[i] = some_value(&draws);
            histogram_record(&histogram, values[i]);
        }
        check_quantiles(&histogram, values, count);
    }
}

/* Every value alone must come back within the bound: a fault at any border of counters shows. */
Test(bench_histogram, each_magnitude_and_its_neighbours)
{
    static struct histogram histogram;
    for (unsigned bit = 0; bit < HISTOGRAM_VALUE_BITS; bit++) {
        for (int off = -3; off <= 3; off++) {
            for (uint64_t part = 0; part < 8; part++) {
                uint64_t value = (UINT64_C(1) << bit) + (part << bit) / 8 + (uint64_t)off;
                if (value >= UINT64_C(1) << HISTOGRAM_VALUE_BITS)
                    continue;
                /* Between two others, so that least and greatest do not help. */
                histogram_reset(&histogram);
                histogram_record(&histogram, 0);
                histogram_record(&histogram, value);
                histogram_record(&histogram, UINT64_MAX);
                double found = (double)histogram_quantile(&histogram, 500000);
                cr_assert(fabs(found - (double)value) <= 0.005 * (double)value,
                          "%lu came back as %.0f", (unsigned long)value, found);
            }
        }
    }
}

Test(bench_histogram, merged_is_as_recorded_together)
{
    static struct histogram parts[3], together;
    static uint64_t values[VALUES];
    struct draws draws = {.state = 11};
    histogram_reset(&together);
    for (int i = 0; i < 3; i++)
        histogram_reset(&parts[i]);
    for (int i = 0; i < VALUES; i++) {
        values[i] = some_value(&draws);
        histogram_record(&together, values[i]);
        histogram_record(&parts[i % 7 == 0 ? 0 : 1], values[i]); /* the third stays empty */
    }
    histogram_merge(&parts[2], &parts[0]);
    histogram_merge(&parts[2], &parts[1]);
    cr_assert_eq(memcmp(&parts[2], &together, sizeof together), 0);
    check_quantiles(&parts[2], values, VALUES);
}

Test(bench_histogram, nothing_and_too_much)
{
    static struct histogram histogram, empty;
    histogram_reset(&histogram);
    histogram_reset(&empty);
    cr_assert_eq(histogram_quantile(&histogram, 500000), 0);
    cr_assert_eq(histogram_mean(&histogram), 0);
    histogram_record(&histogram, UINT64_MAX);
    histogram_record(&histogram, UINT64_MAX);
    histogram_merge(&histogram, &empty);
    cr_assert_eq(histogram.count, 2);
    cr_assert_eq(histogram.sum, UINT64_MAX, "saturates");
    cr_assert_eq(histogram_quantile(&histogram, 500000), UINT64_MAX);
}
