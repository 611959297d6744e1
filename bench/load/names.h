/* SPDX-License-Identifier: Apache-2.0
 *
 * Which lock a command is about: random numbers, the distributions of names, and names as text.
 */
#ifndef BELAY_BENCH_NAMES_H
#define BELAY_BENCH_NAMES_H

#include <stddef.h>
#include <stdint.h>

/* SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA
 * 2014): one addition and a finaliser per word; every seed is a good one. */
struct draws {
    uint64_t state;
};

uint64_t draw_word(struct draws *draws);
/* 0 .. below - 1 (Lemire's multiplication; the bias is below 2^-32 for any count of names). */
uint64_t draw_below(struct draws *draws, uint64_t below);
/* Uniform in (0, 1]. */
double draw_unit(struct draws *draws);
/* Of a Poisson process: the time to the next event, in the unit of the mean. */
double draw_interval(struct draws *draws, double mean);

/* Zipf: rank k of 0 .. count - 1 is drawn with a probability in proportion to 1 / (k + 1)^exponent,
 * by rejection-inversion (Hoermann and Derflinger, "Rejection-inversion to generate variates from
 * monotone discrete distributions", ACM TOMACS 6(3), 1996): no table, and hardly ever a second
 * try, whatever the count. */
struct zipf {
    double exponent;
    double count;
    double area_first; /* integral of the hat up to 1.5, less the first rank's own weight */
    double area_last;  /* up to count + 0.5 */
    double shortcut;   /* that near to a rank no test is needed */
};

/* count >= 1, exponent > 0 (1 included). */
void zipf_init(struct zipf *zipf, uint64_t count, double exponent);
uint64_t zipf_draw(const struct zipf *zipf, struct draws *draws);

enum { NAME_TEXT_BYTES = 80, NAME_GROUP_BYTES = 24 };

/* What is in braces decides which locks lie in one shard. */
enum name_braces {
    BRACES_NONE,   /* "bench/17" */
    BRACES_CLIENT, /* "bench/{3}/17": all locks of a client together */
    BRACES_ALL,    /* "bench/{all}/17" */
};

/* Writes "group/..." and a zero byte; returns the length. `group` is shorter than
 * NAME_GROUP_BYTES. */
size_t name_write(char text[NAME_TEXT_BYTES], const char *group, enum name_braces braces,
                  uint32_t client, uint64_t number);

#endif
