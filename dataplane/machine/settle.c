/* SPDX-License-Identifier: Apache-2.0
 *
 * Settling: what is due at the entry's stamp ends, in the order of timers.h, at most so many of it.
 *
 * One ending is one timer that ran out, or one step of the ending of a session. The two alternate,
 * so neither a million leases due at once nor a session with 50,000 locks holds up the other.
 */
#include "dataplane/machine/machine.h"

/* How late the lease ends, of which shard time alone is the measure. */
static void note_lateness(struct lock_machine *machine, uint64_t tick)
{
    uint64_t late_ns = machine->now.stamp_ns - tick * LOCK_TICK_NS;
    if (late_ns > machine->lateness_ns_max) {
        WORD_PUT(machine->lateness_ns_max, late_ns);
    }
}

static void end_lease(struct lock_machine *machine, uint32_t lease)
{
    note_lateness(machine, until_tick(lease_at(machine, lease)->until));
    (void)lease_end_over(machine, lease);
}

static void end_wait(struct lock_machine *machine, uint32_t waiter)
{
    uint32_t resource = queue_at(machine, waiter_at(machine, waiter)->queue)->resource;
    waiter_end(machine, waiter, WIRE_TIMED_OUT);
    (void)grant_next(machine, resource);
}

/* Each of these disarms the timer, or arms it later. */
static void end_timer(struct lock_machine *machine, uint32_t id)
{
    uint32_t slot;
    enum timer_kind kind = timer_of(machine, id, &slot);
    switch (kind) {
    case TIMER_LEASE:
        end_lease(machine, slot);
        break;
    case TIMER_SESSION:
        session_end(machine, slot, false);
        break;
    case TIMER_WAITER:
        end_wait(machine, slot);
        break;
    case TIMER_QUEUE:
        /* grant_next opens what is due. */
        (void)grant_next(machine, queue_at(machine, slot)->resource);
        break;
    }
}

void settle(struct lock_machine *machine, uint32_t endings_max)
{
    bool timers_left = true;
    bool sessions_left = true;
    timers_pace(&machine->timers, machine->now.tick);
    while (endings_max > 0 && (timers_left || sessions_left)) {
        uint32_t id = timers_first(&machine->timers, machine->now.tick);
        timers_left = id != TIMERS_NONE;
        if (timers_left) {
            end_timer(machine, id);
            endings_max--;
        }
        if (endings_max > 0) {
            sessions_left = session_end_step(machine);
            endings_max -= sessions_left;
        }
    }
}
