/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults compiled into the product for this program only (consensus/plant.h). At most one is in
 * force; the product asks at the place of the fault.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "consensus/plant.h"
#include "tests/sim/sim.h"

/* Rare ones take thousands of seeds: they are listed, but not looked for in every test run. */
static const struct plant {
    const char *name;
    const char *what;
} plants[] = {
    {"none", "nothing is planted"},
    {"read_without_round",
     "a leader answers reads without asking a majority whether it still leads"},
    {"read_before_noop", "(rare) a leader serves before its term's no-op is committed"},
    {"count_unsynced", "a leader counts its own entries before they are durable"},
    {"count_older_term", "(rare) entries of an older term are committed by counting replicas"},
    {"ack_unsynced", "a follower acknowledges entries before they are durable"},
    {"vote_unsynced", "a vote is given before it is durable"},
    {"vote_cleared", "(rare) a step-down within a term clears the vote"},
    {"vote_for_shorter_log", "votes do not look at the candidate's log"},
    {"stamps_from_uptime", "shard time is the leader's uptime"},
    {"apply_uncommitted", "entries are applied before they are committed"},
    {"vote_not_written", "(rare) the WAL holds terms without votes"},
    {"corruption_cut", "damage in the middle of a WAL is cut like a torn tail"},
    {"early_expiry", "leases end after three quarters of their TTL"},
    {"token_reuse", "some grants get the token of the one before"},
    {"grant_to_dead", "a waiter is granted after its session or wait is over"},
    {"barging", "every acquire may pass waiters"},
    {"retry_applied_twice", "a repeated acquire is executed again"},
    {"lease_by_name", "an old acquire is told of whatever its session holds"},
    {"deadline_from_reply", "the client's deadline counts from the answer"},
    {"deadline_from_retry", "the client's deadline counts from the last repetition"},
    {"no_drift", "the client's deadline leaves nothing for clocks that differ"},
    {"lost_untold", "a deadline passes and nobody is told"},
    {"cancel_untold", "an acquire that timed out is not cancelled at the server"},
    {"reentrant_trusted", "a reentrant grant is taken at its word while a release is under way"},
};

const char *plant_active;
static uint64_t plant_hits;

bool plant_is(const char *name)
{
    if (strcmp(plant_active, name) != 0)
        return false;
    plant_hits++;
    return true;
}

bool sim_plant_choose(const char *name)
{
    for (size_t i = 0; i < sizeof plants / sizeof plants[0]; i++) {
        if (strcmp(plants[i].name, name) == 0) {
            plant_active = plants[i].name;
            return true;
        }
    }
    return false;
}

void sim_plants_list(void)
{
    for (size_t i = 1; i < sizeof plants / sizeof plants[0]; i++)
        printf("%-28s %s\n", plants[i].name, plants[i].what);
}

uint64_t sim_plant_hits(void)
{
    return plant_hits;
}
