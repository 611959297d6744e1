/* SPDX-License-Identifier: Apache-2.0
 *
 * Many seeds in child processes: one that stops at an assertion is reported like any other, and a
 * process that runs one seed after another finds its memory warm.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/sim/many.h"

/* Shared by parent and children. */
struct ledger {
    _Atomic uint64_t next;    /* seed */
    _Atomic uint64_t running; /* children fetch no more seeds once it is false */
    _Atomic uint64_t seeds, broken, events, operations, grants, crashes, faults, virtual_ns, hits;
    _Atomic uint64_t first_broken;
    _Atomic uint64_t at[MANY_JOBS_MAX]; /* the seed each child is at; 0 = none */
};

static uint64_t wall_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SIM_SECOND + (uint64_t)now.tv_nsec;
}

/* ---- one seed -------------------------------------------------------------------------------- */

static void print_reproduce(const struct many *many, uint64_t seed)
{
    printf("  reproduce: belay-sim --seed %" PRIu64 " --profile %s%s%s --trace\n", seed,
           sim_profile_name(many->profile), many->plant ? " --plant " : "",
           many->plant ? many->plant : "");
}

static void print_result(const struct many *many, const struct sim *sim)
{
    if (sim->failed) {
        printf("seed %" PRIu64 ": BROKEN %s at %.6f s, step %" PRIu64 ": %s\n", sim->seed,
               sim->promise, (double)sim->now_ns / 1e9, sim->steps, sim->failure);
        print_reproduce(many, sim->seed);
    } else if (!many->quiet) {
        printf("seed %" PRIu64 ": ok, %.1f s, %" PRIu64 " steps, %" PRIu64 " datagrams, %" PRIu64
               " commands, %" PRIu64 " grants, %" PRIu64 " faults, %" PRIu64 " crashes, %" PRIu64
               " snapshots, trail %016" PRIx64 "\n",
               sim->seed, (double)sim->now_ns / 1e9, sim->steps, sim->packets, sim->completions,
               sim->grants, sim->faults_done, sim->crashes, sim->snapshots_done, sim->random);
    }
    fflush(stdout);
}

int many_run_one(const struct many *many, uint64_t seed)
{
    struct sim *sim = sim_run(seed, many->profile, many->trace);
    int result = sim->failed;

    print_result(many, sim);
    if (many->plant && !many->quiet)
        printf("  the plant was met %" PRIu64 " times\n", sim_plant_hits());
    sim_free(sim);
    return result;
}

/* ---- a child --------------------------------------------------------------------------------- */

static void count(struct ledger *ledger, const struct sim *sim)
{
    ledger->seeds++;
    ledger->events += sim->steps;
    ledger->operations += sim->completions;
    ledger->grants += sim->grants;
    ledger->crashes += sim->crashes;
    ledger->faults += sim->faults_done;
    ledger->virtual_ns += sim->now_ns;
}

static void note_broken(const struct many *many, struct ledger *ledger, uint64_t seed)
{
    uint64_t lowest = ledger->first_broken;

    ledger->broken++;
    while ((!lowest || seed < lowest) &&
           !atomic_compare_exchange_weak(&ledger->first_broken, &lowest, seed))
        continue;
    if (!many->keep_going)
        ledger->running = false;
}

enum { PLANTED_SECONDS_MAX = 15 }; /* of real time for one seed; without a fault it is below one */

static void child(const struct many *many, struct ledger *ledger, uint32_t job, uint64_t until_ns)
{
    while (ledger->running && (!until_ns || wall_ns() < until_ns)) {
        uint64_t seed = ledger->next++;
        struct sim *sim;

        if (seed > many->last)
            break;
        ledger->at[job] = seed;
        if (many->plant) /* a fault may make the product loop for ever: that is found, too */
            (void)alarm(PLANTED_SECONDS_MAX);
        sim = sim_run(seed, many->profile, false);
        ledger->at[job] = 0;
        count(ledger, sim);
        print_result(many, sim);
        if (sim->failed)
            note_broken(many, ledger, seed);
        else if (many->quiet && ledger->seeds % 500 == 0)
            printf("%" PRIu64 " seeds\n", (uint64_t)ledger->seeds);
        fflush(stdout);
        sim_free(sim);
        ledger->hits += sim_plant_hits();
    }
    _exit(0);
}

static pid_t start_child(const struct many *many, struct ledger *ledger, uint32_t job,
                         uint64_t until_ns)
{
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        struct rlimit none = {0};

        (void)setrlimit(RLIMIT_CORE, &none);
        child(many, ledger, job, until_ns);
    }
    return pid;
}

/* ---- the parent ------------------------------------------------------------------------------ */

static void stopped(const struct many *many, struct ledger *ledger, uint32_t job, int status)
{
    uint64_t seed = ledger->at[job];

    ledger->at[job] = 0;
    ledger->seeds++;
    printf("seed %" PRIu64 ": BROKEN invariant: the process stopped by signal %d\n", seed,
           WTERMSIG(status));
    print_reproduce(many, seed);
    note_broken(many, ledger, seed);
}

static bool is_over(const struct many *many, const struct ledger *ledger, uint64_t until_ns)
{
    return !ledger->running || ledger->next > many->last || (until_ns && wall_ns() >= until_ns);
}

/* False: children could not be run. */
static bool run_children(const struct many *many, struct ledger *ledger, uint64_t until_ns)
{
    pid_t pids[MANY_JOBS_MAX] = {0};
    uint32_t alive = 0;

    for (uint32_t job = 0; job < many->jobs; job++, alive++) {
        pids[job] = start_child(many, ledger, job, until_ns);
        if (pids[job] < 0)
            return false;
    }
    while (alive) {
        uint32_t job = 0;
        int status;
        pid_t pid = wait(&status);

        if (pid < 0 && errno == EINTR)
            continue;
        while (job < many->jobs && pids[job] != pid)
            job++;
        if (pid < 0 || job == many->jobs)
            return false;
        alive--;
        pids[job] = 0;
        if (WIFEXITED(status))
            continue;
        stopped(many, ledger, job, status);
        if (is_over(many, ledger, until_ns))
            continue;
        pids[job] = start_child(many, ledger, job, until_ns);
        if (pids[job] < 0)
            return false;
        alive++;
    }
    return true;
}

static void print_report(const struct many *many, const struct ledger *ledger, double seconds)
{
    printf("%s: %" PRIu64 " seeds, %" PRIu64 " broken, %" PRIu64 " events, %" PRIu64
           " lock operations, %" PRIu64 " grants, %" PRIu64 " faults, %" PRIu64
           " crashes, %.0f s simulated in %.1f s: %.0f events/s, %.0f lock operations/s\n",
           sim_profile_name(many->profile), (uint64_t)ledger->seeds, (uint64_t)ledger->broken,
           (uint64_t)ledger->events, (uint64_t)ledger->operations, (uint64_t)ledger->grants,
           (uint64_t)ledger->faults, (uint64_t)ledger->crashes, (double)ledger->virtual_ns / 1e9,
           seconds, (double)ledger->events / seconds, (double)ledger->operations / seconds);
}

int many_run(const struct many *many)
{
    uint64_t start_ns = wall_ns();
    uint64_t until_ns = many->minutes ? start_ns + many->minutes * 60 * SIM_SECOND : 0;
    struct ledger *ledger =
        mmap(NULL, sizeof *ledger, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int result;

    assert(ledger != MAP_FAILED);
    /* Megabytes per node and start: kept, not given back to the kernel each time. */
    (void)mallopt(M_MMAP_MAX, 0);
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 30);
    (void)mallopt(M_TOP_PAD, 64 << 20);
    ledger->next = many->first;
    ledger->running = true;
    if (!run_children(many, ledger, until_ns)) {
        (void)munmap(ledger, sizeof *ledger);
        return 2;
    }
    if (many->report)
        print_report(many, ledger, (double)(wall_ns() - start_ns) / 1e9);
    if (many->plant && many->report)
        printf("%s: met %" PRIu64 " times\n", many->plant, (uint64_t)ledger->hits);
    if (ledger->broken)
        printf("%" PRIu64 " of %" PRIu64 " seeds broke a promise, the first is %" PRIu64 "\n",
               (uint64_t)ledger->broken, (uint64_t)ledger->seeds, (uint64_t)ledger->first_broken);
    else
        printf("%" PRIu64 " seeds of '%s' held every promise\n", (uint64_t)ledger->seeds,
               sim_profile_name(many->profile));
    result = ledger->broken != 0;
    (void)munmap(ledger, sizeof *ledger);
    return result;
}
