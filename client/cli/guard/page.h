/* SPDX-License-Identifier: Apache-2.0
 *
 * What the processes of `belay lock` share: one page of plain words.
 *
 *   front     the process the shell knows: job control, signals, exit code
 *   keeper    holds the lease through libbelay and publishes its deadline here
 *   guardian  parent of CMD: ends CMD's whole tree in time, whatever happens to the other two
 *
 * Each word has one writer; the others only read. Nobody waits for anybody through this page, so a
 * process that is stopped or killed at any point leaves the others with the last deadline that was
 * really published, which is all they need.
 */
#ifndef BELAY_CLI_GUARD_PAGE_H
#define BELAY_CLI_GUARD_PAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { GUARD_LEASE_TEXT_BYTES = 25, GUARD_CGROUP_BYTES = 512 };

/* Why CMD's tree was ended before CMD ended by itself. */
enum guard_cause {
    GUARD_CAUSE_NONE = 0,
    GUARD_CAUSE_DEADLINE = 1, /* no renewal succeeded in time */
    GUARD_CAUSE_LOST = 2,     /* the lease is over: expired, forced, session ended */
    GUARD_CAUSE_REVOKED = 3,  /* an operator asked the holder to let go */
    GUARD_CAUSE_KEEPER = 4,   /* the keeper died: nobody renews */
    GUARD_CAUSE_FRONT = 5,    /* the front died */
    GUARD_CAUSE_GUARDIAN = 6, /* the guardian died: nobody watches the deadline */
};

struct guard_margins {
    uint64_t signal_ns; /* CMD gets its first signal this long before the deadline */
    uint64_t kill_ns;   /* SIGKILL goes out this long before the deadline; < signal_ns */
};

struct guard_page {
    /* Written by the keeper. */
    _Atomic uint64_t deadline_ns; /* CLOCK_BOOTTIME; never decreases; 0 = nothing held yet */
    _Atomic uint32_t ending;      /* enum guard_cause: LOST or REVOKED, then never changes */

    /* Written by the keeper before it reports the grant, constant afterwards. */
    struct guard_margins margins;
    uint64_t token;
    uint64_t ttl_ms;
    char lease[GUARD_LEASE_TEXT_BYTES];

    /* Written by the front. */
    _Atomic uint32_t front_suspended; /* it stopped itself for job control: that is no failure */

    /* Written by the guardian (by the front, if the guardian died). */
    _Atomic int32_t guardian_pid;
    _Atomic int32_t command_pid; /* also CMD's process group */
    _Atomic uint32_t cause;      /* enum guard_cause */
    _Atomic uint32_t exec_errno; /* why CMD could not be started; 0 = it was */
    _Atomic uint32_t has_status; /* `wait_status` is CMD's */
    _Atomic int32_t wait_status;
    _Atomic uint32_t gone;           /* nothing of the tree is left: the lock may go */
    char cgroup[GUARD_CGROUP_BYTES]; /* set before the guardian is forked; empty = none */
};

uint64_t guard_now_ns(void); /* CLOCK_BOOTTIME: it counts on while the machine is suspended */

/* The margins for a TTL, see docs/cli.md: signal = TTL/5 within 200 ms..5 s but at most TTL/2, kill
 * = TTL/10 within 50 ms..1 s but at most half of signal: a busy machine may take that long to run
 * the guardian. A renewal is due at TTL/3, that is with 2/3 of the TTL left, so a lease that is
 * renewed normally never comes near either. */
struct guard_margins guard_margins_of(uint64_t ttl_ms);

/* True while there is time to start something under this lease. */
bool guard_may_start(const struct guard_page *page);

/* When CMD's tree must get its SIGKILL at the latest; 0 = at once. */
uint64_t guard_kill_at_ns(const struct guard_page *page);

/* Midway from there to the deadline: whoever finds the tree alive now does not wait for the
 * guardian any longer. */
uint64_t guard_force_at_ns(const struct guard_page *page);

/* When it must get its first signal; 0 = at once. */
uint64_t guard_signal_at_ns(const struct guard_page *page);

#endif
