/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast simulated time goes: events and lock operations per second of one core, over the first
 * seeds of every profile. More of them find more.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/sim/many.h"

enum { SEEDS = 40 };

int main(int count, char **words)
{
    struct many many = {.first = 1, .last = SEEDS, .jobs = 1, .quiet = true, .report = true};
    int result = 0;

    if (count > 1)
        many.last = strtoull(words[1], NULL, 10);
    if (count > 2 || !many.last) {
        fprintf(stderr, "usage: sim [SEEDS]\n");
        return 2;
    }
    for (int profile = 0; profile < SIM_PROFILES && !result; profile++) {
        many.profile = (enum sim_profile)profile;
        result = many_run(&many);
    }
    return result;
}
