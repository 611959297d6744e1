/* SPDX-License-Identifier: Apache-2.0
 *
 * Majorities (thesis 3.3, 3.5). No state: tested against a dumb twin.
 */
#include "consensus/plant.h"
#include "consensus/raft.h"

/* The highest index that a majority has reached. Counting needs no scratch memory, and groups have
 * at most nine members. */
uint64_t raft_quorum_commit(const uint64_t *match, size_t voters)
{
    uint64_t commit = 0;

    if (voters == 0)
        return UINT64_MAX;
    for (size_t i = 0; i < voters; i++) {
        size_t reached = 0;
        if (match[i] <= commit)
            continue;
        for (size_t j = 0; j < voters; j++)
            reached += match[j] >= match[i];
        if (reached + PLANTED(half_is_enough) > voters / 2)
            commit = match[i];
    }
    return commit;
}

enum raft_vote_result raft_quorum_vote(const uint8_t *votes, size_t voters)
{
    size_t yes = 0, no = 0;

    for (size_t i = 0; i < voters; i++) {
        yes += votes[i] == 1;
        no += votes[i] == 2;
    }
    if (yes > voters / 2 || voters == 0)
        return RAFT_VOTE_WON;
    return voters - no > voters / 2 ? RAFT_VOTE_PENDING : RAFT_VOTE_LOST;
}
