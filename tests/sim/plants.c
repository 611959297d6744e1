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
    {"token_not_restored", "a restored snapshot begins tokens anew"},
    {"session_not_extended", "keepalives do not move a session's deadline"},
    {"opened_twice", "a repeated open makes a second session"},
    {"queue_left", "a session that ends leaves its waiters in their queues"},
    {"lock_delay_ignored", "a resource is open again at once after an expiry"},
    {"wakeup_missed", "whoever waits is not looked at when a lease ends"},
    {"forced_at_once", "a force-release ends leases, whatever their holders believe"},
    {"renewed_after_its_end", "a lease that is over may still be renewed or released"},
    {"shared_past_exclusive", "shared acquires pass waiters"},
    {"priority_ignored", "waiters queue in the order of the log only"},
    {"upgrade_keeps_token", "an upgrade gets no new token"},
    {"cancel_forgotten", "a cancel that overtook its acquire is forgotten"},
    {"window_moved", "an answer is forgotten before it is acknowledged"},
    {"install_keeps_members", "an installed snapshot leaves the members as they were"},
    {"members_not_rolled_back", "members stay as an entry said that was cut"},
    {"match_from_hint", "what a refusal hints at counts as replicated"},
    {"half_is_enough", "half of the voters count as a majority"},
    {"agreeing_cut", "a late probe cuts entries that agree"},
    {"segment_without_states", "WAL segments do not begin with the replicas' states"},
    {"cut_not_written", "the WAL does not hear that entries were cut"},
    {"nothing_stamped", "nothing is proposed for what is due"},
    {"stale_is_done", "a client forgets an acquire whose outcome the server has forgotten"},
    {"renewal_from_reply", "the client's deadline counts from the answer to its renewal"},
    {"push_of_another", "a notice of a grant is taken for another acquire's"},
    {"returned_early", "a lost lock is given back while its holder may still be stopping"},
    {"spare_not_kept",
     "a follower fills its log to the brim, no room for the no-op of an election"},
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
