/* SPDX-License-Identifier: Apache-2.0
 *
 * See names.h.
 */
#include "bench/load/names.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- random numbers -------------------------------------------------------------------------- */

uint64_t draw_word(struct draws *draws)
{
    uint64_t word = draws->state += UINT64_C(0x9e3779b97f4a7c15);

    word = (word ^ (word >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ (word >> 27)) * UINT64_C(0x94d049bb133111eb);
    return word ^ (word >> 31);
}

__extension__ typedef unsigned __int128 wide;

uint64_t draw_below(struct draws *draws, uint64_t below)
{
    assert(below > 0);
    return (uint64_t)(((wide)draw_word(draws) * below) >> 64);
}

double draw_unit(struct draws *draws)
{
    return ((double)(draw_word(draws) >> 11) + 1.0) * 0x1.0p-53;
}

double draw_interval(struct draws *draws, double mean)
{
    return -log(draw_unit(draws)) * mean;
}

/* ---- Zipf ------------------------------------------------------------------------------------ */

/* The paper's h(x) = x^-s, its integral H and the inverse of that, in forms that go over into the
 * logarithm at s = 1 without losing digits near it: (x^(1-s) - 1) / (1 - s). */
static double hat(const struct zipf *zipf, double x)
{
    return exp(-zipf->exponent * log(x));
}

static double hat_integral(const struct zipf *zipf, double x)
{
    double log_x = log(x);
    double t = (1.0 - zipf->exponent) * log_x;

    return fabs(t) > 1e-8 ? expm1(t) / t * log_x : log_x * (1.0 + t / 2.0);
}

static double hat_integral_inverse(const struct zipf *zipf, double area)
{
    double t = area * (1.0 - zipf->exponent);

    if (t < -1.0)
        t = -1.0; /* by rounding only */
    return exp(fabs(t) > 1e-8 ? log1p(t) / t * area : area * (1.0 - t / 2.0));
}

void zipf_init(struct zipf *zipf, uint64_t count, double exponent)
{
    assert(count >= 1 && exponent > 0);
    *zipf = (struct zipf){.exponent = exponent, .count = (double)count};
    zipf->area_first = hat_integral(zipf, 1.5) - 1.0;
    zipf->area_last = hat_integral(zipf, zipf->count + 0.5);
    zipf->shortcut = 2.0 - hat_integral_inverse(zipf, hat_integral(zipf, 2.5) - hat(zipf, 2.0));
}

uint64_t zipf_draw(const struct zipf *zipf, struct draws *draws)
{
    for (;;) {
        double area = zipf->area_last + draw_unit(draws) * (zipf->area_first - zipf->area_last);
        double x = hat_integral_inverse(zipf, area);
        double rank = floor(x + 0.5);

        if (rank < 1.0)
            rank = 1.0;
        else if (rank > zipf->count)
            rank = zipf->count;
        if (rank - x <= zipf->shortcut || area >= hat_integral(zipf, rank + 0.5) - hat(zipf, rank))
            return (uint64_t)rank - 1;
    }
}

/* ---- text ------------------------------------------------------------------------------------ */

static char *put_number(char *at, uint64_t number)
{
    char digits[20];
    unsigned count = 0;

    do
        digits[count++] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    while (count > 0)
        *at++ = digits[--count];
    return at;
}

size_t name_write(char text[NAME_TEXT_BYTES], const char *group, enum name_braces braces,
                  uint32_t client, uint64_t number)
{
    size_t length = strlen(group);
    char *at = text;

    assert(length < NAME_GROUP_BYTES);
    memcpy(at, group, length);
    at += length;
    *at++ = '/';
    if (braces == BRACES_CLIENT) {
        *at++ = '{';
        at = put_number(at, client);
        *at++ = '}';
        *at++ = '/';
    } else if (braces == BRACES_ALL) {
        memcpy(at, "{all}/", 6);
        at += 6;
    }
    at = put_number(at, number);
    *at = 0;
    return (size_t)(at - text);
}
