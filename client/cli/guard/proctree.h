/* SPDX-License-Identifier: Apache-2.0
 *
 * Everything that descends from one process, found by walking /proc.
 *
 * Leaving a process group or a session does not leave the tree, and where the root is a child
 * subreaper an orphan comes back under it instead of going to init: so the walk from the root finds
 * all of it. (What another daemon starts on a descendant's request is not a descendant.)
 */
#ifndef BELAY_CLI_GUARD_PROCTREE_H
#define BELAY_CLI_GUARD_PROCTREE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct proctree_entry {
    pid_t pid;
    pid_t parent;
    uint64_t start_ticks; /* tells a process from a later one with the same number */
    char state;
};

struct proctree {
    struct proctree_entry *entries; /* reserved for every pid there can be, touched as needed */
    size_t entries_count;
    size_t entries_max;
    uint8_t *marks; /* one bit per pid: is in the tree */
};

/* Reserves all memory, so that nothing is allocated when it matters. 0 or -errno. */
int proctree_init(struct proctree *tree);

/* Sends a signal to every live descendant of `root` except `exclude` and what descends from it.
 * Returns how many were alive (zombies do not count), or -errno if /proc cannot be read. Signal 0
 * only counts. */
int proctree_signal(struct proctree *tree, pid_t root, pid_t exclude, int signal_number);

/* One round of ending them all: SIGKILL to everyone found. From `round` 1 on it stops them all
 * first, until no new ones appear, so that none can fork its way past the walk for ever. Repeat
 * until it returns 0. */
int proctree_kill(struct proctree *tree, pid_t root, pid_t exclude, unsigned round);

/* A process's state letter from /proc ('R', 'S', 'T', ...), 0 if there is no such process. */
char proctree_state_of(pid_t pid);

#endif
