/* SPDX-License-Identifier: Apache-2.0
 *
 * belay-sim: seeds in, broken promises out. Several seeds run in child processes, so that one that
 * stops at an assertion is reported like any other.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/sim/sim.h"

static const char *const profiles[] = {"calm", "faults", "storage", "membership", "all"};

struct arguments {
    uint64_t first, last;
    uint64_t minutes;
    enum sim_profile profile;
    const char *plant;
    bool trace, several, quiet;
};

static void usage(FILE *to)
{
    fprintf(to, "usage: belay-sim [--seed N | --seeds A..B | --minutes M] [options]\n"
                "  --seed N         one seed, in this process\n"
                "  --seeds A..B     many\n"
                "  --minutes M      seeds from 1 (or from --seed N) on until the time is over\n"
                "  --profile NAME   calm, faults, storage, membership, all (default)\n"
                "  --trace          a transcript of what happens\n"
                "  --plant NAME     with a fault planted into the product\n"
                "  --list-plants    which there are\n"
                "  --quiet          only failures\n"
                "Exit code: 0 every promise held, 1 one was broken, 2 bad usage.\n");
}

/* ---- one seed -------------------------------------------------------------------------------- */

static void print_reproduce(const struct arguments *arguments, uint64_t seed)
{
    printf("  reproduce: belay-sim --seed %" PRIu64 " --profile %s%s%s --trace\n", seed,
           profiles[arguments->profile], arguments->plant ? " --plant " : "",
           arguments->plant ? arguments->plant : "");
}

static int run_one(const struct arguments *arguments, uint64_t seed)
{
    struct sim *sim = sim_run(seed, arguments->profile, arguments->trace);
    int result = sim->failed;

    if (sim->failed) {
        printf("seed %" PRIu64 ": BROKEN %s at %.6f s: %s\n", seed, sim->promise,
               (double)sim->now_ns / 1e9, sim->failure);
        print_reproduce(arguments, seed);
    } else if (!arguments->quiet) {
        printf("seed %" PRIu64 ": ok, %.1f s, %" PRIu64 " steps, %" PRIu64 " datagrams, %" PRIu64
               " commands, %" PRIu64 " grants, %" PRIu64 " faults, %" PRIu64 " crashes, %" PRIu64
               " snapshots\n",
               seed, (double)sim->now_ns / 1e9, sim->steps, sim->packets, sim->completions,
               sim->grants, sim->faults_done, sim->crashes, sim->snapshots_done);
    }
    fflush(stdout);
    sim_free(sim);
    return result;
}

/* ---- many ------------------------------------------------------------------------------------ */

/* 0 held, 1 broken, 2 could not be run. */
static int run_child(const struct arguments *arguments, uint64_t seed)
{
    int status;
    pid_t child;

    fflush(stdout);
    child = fork();
    if (child < 0)
        return 2;
    if (child == 0)
        _exit(run_one(arguments, seed));
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR)
            return 2;
    }
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    printf("seed %" PRIu64 ": BROKEN invariant: the process stopped by signal %d\n", seed,
           WTERMSIG(status));
    print_reproduce(arguments, seed);
    return 1;
}

static int run_many(const struct arguments *arguments)
{
    time_t start = time(NULL);
    uint64_t seeds = 0;

    for (uint64_t seed = arguments->first; seed <= arguments->last; seed++) {
        int result = run_child(arguments, seed);

        if (result)
            return result;
        seeds++;
        if (arguments->minutes && time(NULL) - start >= (time_t)(arguments->minutes * 60))
            break;
        if (arguments->quiet && seeds % 100 == 0) {
            printf("%" PRIu64 " seeds held\n", seeds);
            fflush(stdout);
        }
    }
    printf("%" PRIu64 " seeds of '%s' held every promise\n", seeds, profiles[arguments->profile]);
    return 0;
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

static bool take_profile(struct arguments *arguments, const char *name)
{
    for (int i = 0; name && i <= SIM_ALL; i++) {
        if (strcmp(profiles[i], name) == 0) {
            arguments->profile = (enum sim_profile)i;
            return true;
        }
    }
    return false;
}

static bool take_value(struct arguments *arguments, const char *option, const char *value)
{
    const char *end = "";

    if (strcmp(option, "--seed") == 0) {
        arguments->last = 0;
        return number(value, &arguments->first, &end) && !*end;
    }
    if (strcmp(option, "--seeds") == 0) {
        arguments->several = true;
        return number(value, &arguments->first, &end) && strncmp(end, "..", 2) == 0 &&
               number(end + 2, &arguments->last, &end) && !*end;
    }
    if (strcmp(option, "--minutes") == 0) {
        arguments->several = true;
        return number(value, &arguments->minutes, &end) && !*end && arguments->minutes;
    }
    if (strcmp(option, "--profile") == 0)
        return take_profile(arguments, value);
    if (strcmp(option, "--plant") == 0) {
        arguments->plant = value;
        return value && sim_plant_choose(value);
    }
    return false;
}

/* 0 go on, 1 all is done, 2 bad usage. */
static int take_arguments(struct arguments *arguments, int count, char **words)
{
    for (int i = 1; i < count; i++) {
        if (strcmp(words[i], "--trace") == 0) {
            arguments->trace = true;
        } else if (strcmp(words[i], "--quiet") == 0) {
            arguments->quiet = true;
        } else if (strcmp(words[i], "--list-plants") == 0) {
            sim_plants_list();
            return 1;
        } else if (strcmp(words[i], "--help") == 0) {
            usage(stdout);
            return 1;
        } else if (i + 1 < count && take_value(arguments, words[i], words[i + 1])) {
            i++;
        } else {
            fprintf(stderr, "belay-sim: what is '%s'?\n", words[i]);
            usage(stderr);
            return 2;
        }
    }
    return 0;
}

int main(int count, char **words)
{
    struct arguments arguments = {.first = 1, .profile = SIM_ALL};
    int result = take_arguments(&arguments, count, words);

    if (result)
        return result == 1 ? 0 : 2;
    if (!arguments.several)
        return run_one(&arguments, arguments.first);
    if (arguments.minutes || !arguments.last)
        arguments.last = UINT64_MAX;
    return run_many(&arguments);
}
