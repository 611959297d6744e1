/* SPDX-License-Identifier: Apache-2.0
 *
 * belay-differential [--seeds FIRST..LAST] [--show]: both implementations under the schedules of
 * these seeds; exit code 1 and both transcripts at the first difference.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/differential/group.h"

/* For say_seed, which gets nothing else. */
static struct schedule running;
static char ours[TRANSCRIPT_BYTES], theirs[TRANSCRIPT_BYTES];

/* Cores and rigs have asserts of their own; how far the schedule was must not be lost with them. */
static void say_seed(int signal_number)
{
    char line[96];
    const char *transcript = theirs[0] != '\0' ? theirs : ours;
    int length = snprintf(line, sizeof(line), "\nan assert failed in seed %llu, %s, after:\n",
                          (unsigned long long)running.options.seed,
                          theirs[0] != '\0' ? group_theirs.name : group_ours.name);

    (void)!write(STDERR_FILENO, line, (size_t)length);
    (void)!write(STDERR_FILENO, transcript, strlen(transcript));
    raise(signal_number);
}

static void show(const char *name, const char *transcript)
{
    printf("---- %s\n%s", name, transcript);
    fflush(stdout);
}

/* Judges one seed; true if both did the same, and nothing that may not be. */
static bool judge(uint64_t seed, bool shown)
{
    schedule_draw(&running, seed);
    theirs[0] = '\0';
    if (shown)
        schedule_show(&running, stdout);
    bool ours_good = schedule_run(&running, &group_ours, ours);
    if (shown)
        show(group_ours.name, ours);
    bool theirs_good = schedule_run(&running, &group_theirs, theirs);
    if (shown)
        show(group_theirs.name, theirs);
    bool same = strcmp(ours, theirs) == 0;
    if (same && ours_good && theirs_good)
        return true;
    printf("seed %llu: %s\n", (unsigned long long)seed,
           same ? "both do what may not be" : "they differ");
    if (!shown) {
        schedule_show(&running, stdout);
        show(group_ours.name, ours);
        show(group_theirs.name, theirs);
    }
    return false;
}

int main(int argc, char **argv)
{
    unsigned long long first = 1, last = 200;
    bool shown = false;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--show") == 0) {
            shown = true;
        } else if (strcmp(argv[i], "--seeds") == 0 && i + 1 < argc &&
                   sscanf(argv[i + 1], "%llu..%llu", &first, &last) == 2 && first <= last) {
            i++;
        } else {
            fprintf(stderr, "usage: belay-differential [--seeds FIRST..LAST] [--show]\n");
            return 2;
        }
    }
    struct sigaction action = {.sa_handler = say_seed, .sa_flags = SA_RESETHAND};
    sigaction(SIGABRT, &action, NULL);
    for (unsigned long long seed = first; seed <= last; seed++)
        if (!judge(seed, shown))
            return 1;
    printf("%llu schedules, no difference\n", last - first + 1);
    return 0;
}
