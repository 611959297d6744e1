/* SPDX-License-Identifier: Apache-2.0
 *
 * See happenings.h.
 */
#include "bench/load/happenings.h"

#include <errno.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

static bool read_when(const char *text, uint64_t *after_ns)
{
    char *unit;
    double number = strtod(text, &unit);
    double scale;

    if (text[0] < '0' || text[0] > '9' || text[1] == 'x' || text[1] == 'X')
        return false;
    if (strcmp(unit, "ms") == 0)
        scale = 1e6;
    else if (strcmp(unit, "s") == 0 || *unit == 0)
        scale = 1e9;
    else
        return false;
    if (!(number * scale <= 86400e9))
        return false;
    *after_ns = (uint64_t)(number * scale);
    return true;
}

bool happenings_add(struct happenings *happenings, const char *when, const char *command,
                    char *error, size_t error_bytes)
{
    uint64_t after_ns;
    unsigned at = happenings->count;

    if (!read_when(when, &after_ns)) {
        (void)snprintf(error, error_bytes,
                       "--at: expected a time such as 5s or 250ms, found \"%s\"", when);
        return false;
    }
    if (happenings->count == HAPPENINGS_MAX) {
        (void)snprintf(error, error_bytes, "--at: at most %d commands", HAPPENINGS_MAX);
        return false;
    }
    for (; at > 0 && happenings->list[at - 1].after_ns > after_ns; at--)
        happenings->list[at] = happenings->list[at - 1];
    happenings->list[at] =
        (struct happening){.after_ns = after_ns, .command = command, .exit_code = -1};
    happenings->count++;
    return true;
}

static void begin(struct happenings *happenings, struct happening *one, uint64_t now_ns)
{
    char shell[] = "sh", option[] = "-c";
    char *words[] = {shell, option, (char *)(uintptr_t)one->command, NULL};

    one->begun = true;
    one->at_ns = now_ns;
    if (posix_spawn(&one->pid, "/bin/sh", NULL, NULL, words, environ) != 0) {
        one->pid = 0;
        one->exit_code = 127; /* what a shell says of a command that it cannot run */
        return;
    }
    happenings->running++;
}

static void collect(struct happenings *happenings)
{
    for (unsigned i = 0; i < happenings->next; i++) {
        struct happening *one = &happenings->list[i];
        int status;

        if (one->pid == 0 || waitpid(one->pid, &status, WNOHANG) != one->pid)
            continue;
        one->pid = 0;
        one->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        happenings->running--;
    }
}

void happenings_turn(struct happenings *happenings, uint64_t begin_ns, uint64_t now_ns)
{
    while (happenings_next_ns(happenings, begin_ns) <= now_ns)
        begin(happenings, &happenings->list[happenings->next++], now_ns);
    if (happenings->running > 0)
        collect(happenings);
}

uint64_t happenings_next_ns(const struct happenings *happenings, uint64_t begin_ns)
{
    if (happenings->next == happenings->count)
        return UINT64_MAX;
    return begin_ns + happenings->list[happenings->next].after_ns;
}

static struct happening *latest(struct happenings *happenings)
{
    return happenings->next > 0 ? &happenings->list[happenings->next - 1] : NULL;
}

static void see_gap(struct happening *one, struct timeline_gap gap)
{
    if (gap.length_ns > one->longest.length_ns)
        one->longest = gap;
}

void happenings_grant(struct happenings *happenings, uint64_t begun_ns, uint64_t now_ns,
                      struct timeline_gap gap)
{
    struct happening *one = latest(happenings);

    if (!one)
        return;
    see_gap(one, gap);
    if (one->first_ns == 0 && begun_ns >= one->at_ns)
        one->first_ns = now_ns;
}

void happenings_latency(struct happenings *happenings, uint64_t latency_ns)
{
    struct happening *one = latest(happenings);

    if (one && latency_ns > one->slowest_ns)
        one->slowest_ns = latency_ns;
}

void happenings_end(struct happenings *happenings, struct timeline_gap gap)
{
    struct happening *one = latest(happenings);

    if (one)
        see_gap(one, gap);
    for (int i = 0; i < 100 && happenings->running > 0; i++) {
        collect(happenings);
        if (happenings->running > 0)
            (void)poll(NULL, 0, 10);
    }
}
