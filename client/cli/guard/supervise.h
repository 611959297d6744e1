/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a command for as long as a lease is held, and not a moment longer.
 *
 * Three processes (see page.h). The guardian is CMD's parent and a child subreaper, so all that CMD
 * starts stays below it; it reads the deadline from shared memory and ends the tree by its own
 * timer, whether the keeper or the front is killed, stopped or merely slow. The front is a
 * subreaper above the guardian: if the guardian is killed, the tree comes to the front, which ends
 * it. The keeper releases the lock only after it was told that nothing of the tree is left.
 *
 * The guardian stays in the front's session, in a process group of its own with every signal
 * blocked: a parent in another session would make CMD's group an orphaned one, in which Ctrl-Z does
 * nothing (POSIX.1-2017, 3.264).
 *
 * Nothing here knows libbelay: where the lease comes from is the feed's business.
 */
#ifndef BELAY_CLI_GUARD_SUPERVISE_H
#define BELAY_CLI_GUARD_SUPERVISE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/cli/guard/page.h"

struct supervise_grant {
    uint64_t token;
    uint64_t ttl_ms;
    uint64_t deadline_ns; /* CLOCK_BOOTTIME, conservative */
    char lease[GUARD_LEASE_TEXT_BYTES];
};

/* All of it runs in the keeper, which may start threads: it is forked first. */
struct supervise_feed {
    void *context;

    /* Waits for the lock. 0: *grant is filled in. Else belay's exit code (> 0), already explained
     * on stderr. Must give up soon after cancel_fd becomes readable or hung up. */
    int (*acquire)(void *context, int cancel_fd, struct supervise_grant *grant);

    /* The deadline as it is now (renewals move it); 0 = lost. */
    uint64_t (*valid_until_ns)(void *context);

    /* NONE, LOST or REVOKED; event_fd becomes readable when that changes. */
    enum guard_cause (*event)(void *context);
    int (*event_fd)(void *context);

    /* The last call. release: nothing of the tree is left; else leave the lease to its end. */
    void (*finish)(void *context, bool release);
};

struct supervise_options {
    char **command; /* NULL-terminated */
    const char *lock_name;
    const char *name_space; /* NULL = none */
    int on_lost_signal;     /* sent first; SIGKILL = no grace */
    bool leftovers_wait;    /* what CMD left running: wait for it; else end it */
    bool without_cgroup;
    bool verbose;
};

/* Returns the exit code for the shell. Single-threaded callers only; leaves signals as they were.
 */
int supervise_run(const struct supervise_options *options, const struct supervise_feed *feed);

#endif
