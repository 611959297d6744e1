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

static const struct plant {
    const char *name;
    const char *what;
    enum sim_profile profile; /* the world in which it shows soonest */
} plants[] = {
    {"none", "nothing is planted", SIM_ALL},
    {"read_without_round",
     "a leader answers reads without asking a majority whether it still leads", SIM_ALL},
    {"read_before_noop", "a leader serves before its term's no-op is committed", SIM_ELECTIONS},
    {"count_unsynced", "a leader counts its own entries before they are durable", SIM_ALL},
    {"count_older_term", "entries of an older term are committed by counting replicas",
     SIM_ELECTIONS},
    {"ack_unsynced", "a follower acknowledges entries before they are durable", SIM_ALL},
    {"vote_unsynced", "a vote is given before it is durable", SIM_ELECTIONS},
    {"vote_cleared", "a step-down within a term clears the vote", SIM_ELECTIONS},
    {"vote_for_shorter_log", "votes do not look at the candidate's log", SIM_ALL},
    {"stamps_from_uptime", "shard time is the leader's uptime", SIM_ALL},
    {"apply_uncommitted", "entries are applied before they are committed", SIM_ALL},
    {"vote_not_written", "the WAL holds terms without votes", SIM_ELECTIONS},
    {"corruption_cut", "damage in the middle of a WAL is cut like a torn tail", SIM_ALL},
    {"early_expiry", "leases end after three quarters of their TTL", SIM_ALL},
    {"token_reuse", "some grants get the token of the one before", SIM_ALL},
    {"grant_to_dead", "a waiter is granted after its session or wait is over", SIM_ALL},
    {"barging", "every acquire may pass waiters", SIM_ALL},
    {"retry_applied_twice", "a repeated acquire is executed again", SIM_ALL},
    {"lease_by_name", "an old acquire is told of whatever its session holds", SIM_ALL},
    {"deadline_from_reply", "the client's deadline counts from the answer", SIM_ALL},
    {"deadline_from_retry", "the client's deadline counts from the last repetition", SIM_ALL},
    {"no_drift", "the client's deadline leaves nothing for clocks that differ", SIM_ALL},
    {"lost_untold", "a deadline passes and nobody is told", SIM_ALL},
    {"cancel_untold", "an acquire that timed out is not cancelled at the server", SIM_ALL},
    {"token_not_restored", "a restored snapshot begins tokens anew", SIM_ALL},
    {"session_not_extended", "keepalives do not move a session's deadline", SIM_ALL},
    {"opened_twice", "a repeated open makes a second session", SIM_ALL},
    {"queue_left", "a session that ends leaves its waiters in their queues", SIM_ALL},
    {"lock_delay_ignored", "a resource is open again at once after an expiry", SIM_ALL},
    {"wakeup_missed", "whoever waits is not looked at when a lease ends", SIM_ALL},
    {"forced_at_once", "a force-release ends leases, whatever their holders believe", SIM_ALL},
    {"shared_past_exclusive", "shared acquires pass waiters", SIM_ALL},
    {"priority_ignored", "waiters queue in the order of the log only", SIM_ALL},
    {"upgrade_keeps_token", "an upgrade gets no new token", SIM_ALL},
    {"cancel_forgotten", "a cancel that overtook its acquire is forgotten", SIM_ELECTIONS},
    {"window_moved", "an answer is forgotten before it is acknowledged", SIM_ALL},
    {"install_keeps_members", "an installed snapshot leaves the members as they were",
     SIM_MEMBERSHIP},
    {"half_is_enough", "half of the voters count as a majority", SIM_ELECTIONS},
    {"agreeing_cut", "a late probe cuts entries that agree", SIM_ELECTIONS},
    {"segment_without_states", "WAL segments do not begin with the replicas' states", SIM_ALL},
    {"cut_not_written", "the WAL does not hear that entries were cut", SIM_ALL},
    {"nothing_stamped", "nothing is proposed for what is due", SIM_ALL},
    {"renewal_from_reply", "the client's deadline counts from the answer to its renewal", SIM_ALL},
    {"push_of_another", "a notice of a grant is taken for another acquire's", SIM_ALL},
    {"returned_early", "a lost lock is given back while its holder may still be stopping", SIM_ALL},
    {"reentrant_trusted", "a reentrant grant is taken at its word while a release is under way",
     SIM_ALL},
    {"fence_not_awaited", "a replica goes on before its ring is closed to the old leader",
     SIM_RDMA},
    {"ring_not_searched", "what landed before the ring was closed is not taken over", SIM_RDMA},
    {"window_not_zeroed", "a ring is opened with what was cut still in it", SIM_RDMA},
    {"error_counted", "a write that ended with an error counts like any other", SIM_RDMA},
    {"posted_counted", "a write counts when it is posted", SIM_RDMA},
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

bool sim_plant_choose(const char *name, enum sim_profile *profile)
{
    for (size_t i = 0; i < sizeof plants / sizeof plants[0]; i++) {
        if (strcmp(plants[i].name, name) == 0) {
            plant_active = plants[i].name;
            *profile = plants[i].profile;
            return true;
        }
    }
    return false;
}

void sim_plants_list(void)
{
    for (size_t i = 1; i < sizeof plants / sizeof plants[0]; i++)
        printf("%-24s %-10s %s\n", plants[i].name, sim_profile_name(plants[i].profile),
               plants[i].what);
}

uint64_t sim_plant_hits(void)
{
    return plant_hits;
}
