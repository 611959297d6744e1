/* SPDX-License-Identifier: Apache-2.0
 *
 * Distributions against what they should be, by counting.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/load/names.h"

enum { DRAWS = 2000000 };

/* Five standard deviations of a binomial count: one such test in a million fails by chance, and the
 * seed is fixed. */
static void check_count(uint64_t rank, double probability, uint64_t counted)
{
    double expected = probability * DRAWS;
    double bound = 5.0 * sqrt(expected * (1.0 - probability)) + 1.0;
    cr_assert(fabs((double)counted - expected) <= bound,
              "rank %lu was drawn %lu times, expected %.0f +- %.0f", (unsigned long)rank,
              (unsigned long)counted, expected, bound);
}

/* Single ranks at the head, then ever larger spans of ranks up to the last: every rank counts. */
static void check_zipf(uint64_t count, double exponent, uint64_t seed)
{
    struct draws draws = {.state = seed};
    struct zipf zipf;
    uint32_t *counted = calloc(count, sizeof *counted);
    double sum = 0;
    zipf_init(&zipf, count, exponent);
    for (uint64_t k = 1; k <= count; k++)
        sum += pow((double)k, -exponent);
    for (int i = 0; i < DRAWS; i++) {
        uint64_t rank = zipf_draw(&zipf, &draws);
        cr_assert_lt(rank, count);
        counted[rank]++;
    }
    for (uint64_t first = 0, span = 1; first < count; first += span) {
        double probability = 0;
        uint64_t found = 0;
        span = first < 10 ? 1 : first / 4;
        for (uint64_t k = first; k < first + span && k < count; k++) {
            probability += pow((double)k + 1, -exponent) / sum;
            found += counted[k];
        }
        check_count(first, probability, found);
    }
    free(counted);
}

Test(bench_names, zipf_as_the_scenario_asks)
{
    check_zipf(10000000, 0.99, 1);
}

Test(bench_names, zipf_of_other_shapes)
{
    check_zipf(1, 0.99, 2);
    check_zipf(2, 1.0, 3);
    check_zipf(10, 0.5, 4);
    check_zipf(1000, 1.0, 5);
    check_zipf(1000, 0.01, 6);
    check_zipf(100000, 2.5, 7);
    check_zipf(100000, 10.0, 8);
}

Test(bench_names, uniform)
{
    struct draws draws = {.state = 21};
    uint64_t counted[7] = {0};
    for (int i = 0; i < DRAWS; i++)
        counted[draw_below(&draws, 7)]++;
    for (uint64_t i = 0; i < 7; i++)
        check_count(i, 1.0 / 7, counted[i]);
}

/* An exponential distribution has the mean it was asked for, and a spread that equals it. */
Test(bench_names, intervals_are_exponential)
{
    struct draws draws = {.state = 31};
    double sum = 0, squares = 0;
    uint64_t above = 0;
    for (int i = 0; i < DRAWS; i++) {
        double interval = draw_interval(&draws, 250.0);
        cr_assert_geq(interval, 0.0);
        sum += interval;
        squares += interval * interval;
        above += interval > 500.0;
    }
    double mean = sum / DRAWS;
    cr_assert_float_eq(mean, 250.0, 1.0);
    cr_assert_float_eq(sqrt(squares / DRAWS - mean * mean), 250.0, 2.0);
    check_count(0, exp(-2.0), above);
}

Test(bench_names, a_seed_repeats)
{
    struct draws one = {.state = 5}, same = {.state = 5}, other = {.state = 6};
    cr_assert_eq(draw_word(&one), draw_word(&same));
    cr_assert_neq(draw_word(&one), draw_word(&other));
}

static void check_text(const char *expected, enum name_braces braces, uint32_t client,
                       uint64_t number)
{
    char text[NAME_TEXT_BYTES];
    cr_assert_eq(name_write(text, "bench", braces, client, number), strlen(expected));
    cr_assert_str_eq(text, expected);
}

Test(bench_names, text)
{
    check_text("bench/0", BRACES_NONE, 9, 0);
    check_text("bench/9999999", BRACES_NONE, 9, 9999999);
    check_text("bench/{0}/10", BRACES_CLIENT, 0, 10);
    check_text("bench/{4294967295}/18446744073709551615", BRACES_CLIENT, UINT32_MAX, UINT64_MAX);
    check_text("bench/{all}/7", BRACES_ALL, 9, 7);
}
