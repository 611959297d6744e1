/* SPDX-License-Identifier: Apache-2.0
 *
 * belay-sim: seeds in, broken promises out.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/many.h"

struct arguments {
    struct many many;
    bool several, profile_given;
    enum sim_profile plant_profile;
};

static void usage(FILE *to)
{
    fprintf(to,
            "usage: belay-sim [--seed N | --seeds A..B | --minutes M] [options]\n"
            "  --seed N         one seed, in this process\n"
            "  --seeds A..B     many\n"
            "  --minutes M      seeds from 1 (or from --seed N) on until the time is over\n"
            "  --jobs J         so many processes at a time (1)\n"
            "  --profile NAME   calm, faults, storage, membership, elections, memory, rdma, all\n"
            "                   (default; with a plant: the one that finds it soonest)\n"
            "  --trace          a transcript of what happens (one seed)\n"
            "  --plant NAME     with a fault planted into the product\n"
            "  --list-plants    which there are\n"
            "  --keep-going     all seeds, also after one that broke a promise\n"
            "  --quiet          only failures\n"
            "  --report         sums and rates at the end\n"
            "Exit code: 0 every promise held, 1 one was broken, 2 bad usage.\n");
}

/* ---- arguments ------------------------------------------------------------------------------- */

static bool number(const char *text, uint64_t *value, const char **end)
{
    char *stop;

    if (!text || *text < '0' || *text > '9')
        return false;
    errno = 0;
    *value = strtoull(text, &stop, 10);
    *end = stop;
    return errno == 0;
}

static bool take_value(struct arguments *arguments, const char *option, const char *value)
{
    struct many *many = &arguments->many;
    const char *end = "";
    uint64_t jobs;

    if (strcmp(option, "--seed") == 0)
        return number(value, &many->first, &end) && !*end;
    if (strcmp(option, "--seeds") == 0) {
        arguments->several = true;
        return number(value, &many->first, &end) && strncmp(end, "..", 2) == 0 &&
               number(end + 2, &many->last, &end) && !*end;
    }
    if (strcmp(option, "--minutes") == 0) {
        arguments->several = true;
        return number(value, &many->minutes, &end) && !*end && many->minutes;
    }
    if (strcmp(option, "--jobs") == 0) {
        if (!number(value, &jobs, &end) || *end || !jobs || jobs > MANY_JOBS_MAX)
            return false;
        many->jobs = (uint32_t)jobs;
        return true;
    }
    if (strcmp(option, "--profile") == 0)
        return value && (arguments->profile_given = sim_profile_choose(value, &many->profile));
    if (strcmp(option, "--plant") == 0) {
        many->plant = value;
        return value && sim_plant_choose(value, &arguments->plant_profile);
    }
    return false;
}

static bool take_switch(struct many *many, const char *word)
{
    if (strcmp(word, "--trace") == 0)
        many->trace = true;
    else if (strcmp(word, "--quiet") == 0)
        many->quiet = true;
    else if (strcmp(word, "--report") == 0)
        many->report = true;
    else if (strcmp(word, "--keep-going") == 0)
        many->keep_going = true;
    else
        return false;
    return true;
}

/* 0 go on, 1 all is done, 2 bad usage. */
static int take_arguments(struct arguments *arguments, int count, char **words)
{
    for (int i = 1; i < count; i++) {
        if (take_switch(&arguments->many, words[i]))
            continue;
        if (strcmp(words[i], "--list-plants") == 0) {
            sim_plants_list();
            return 1;
        }
        if (strcmp(words[i], "--help") == 0) {
            usage(stdout);
            return 1;
        }
        if (i + 1 < count && take_value(arguments, words[i], words[i + 1])) {
            i++;
            continue;
        }
        fprintf(stderr, "belay-sim: what is '%s'?\n", words[i]);
        usage(stderr);
        return 2;
    }
    return 0;
}

int main(int count, char **words)
{
    struct arguments arguments = {
        .many = {.first = 1, .last = UINT64_MAX, .profile = SIM_ALL, .jobs = 1}};
    int result = take_arguments(&arguments, count, words);

    if (result)
        return result == 1 ? 0 : 2;
    if (arguments.many.plant && !arguments.profile_given)
        arguments.many.profile = arguments.plant_profile;
    if (!arguments.several)
        return many_run_one(&arguments.many, arguments.many.first);
    return many_run(&arguments.many);
}
