/* SPDX-License-Identifier: Apache-2.0
 *
 * Single rules of the Raft core: elections, votes, leases, reads. Rows of tests/REGRESSIONS.md are
 * named where a test reproduces one.
 */
#include "tests/unit/raft_solo.h"

static struct solo solo;

static void start(enum raft_durability durability, uint32_t voters)
{
    struct raft_options options = solo_options(durability);

    solo_memory(&solo, &options);
    solo_boot(&solo, 0, 0, voters);
}

static void start_lease(enum raft_durability durability)
{
    struct raft_options options = solo_options(durability);

    options.lease_reads = true;
    solo_memory(&solo, &options);
    solo_boot(&solo, 0, 0, 3);
}

static void finish(void)
{
    solo_free(&solo);
}

static void heartbeat_from(uint64_t from, uint64_t term)
{
    solo_message(
        &solo,
        (struct raft_message){
            .kind = RAFT_MSG_HEARTBEAT, .from = from, .term = term, .round = 1, .limit = from});
}

static void vote_from(uint64_t from, uint64_t term, uint8_t flags)
{
    solo_message(&solo, (struct raft_message){.kind = RAFT_MSG_VOTE,
                                              .flags = flags,
                                              .from = from,
                                              .term = term,
                                              .index = 100,
                                              .log_term = term - 1});
}

static void answer_round(uint64_t from, uint64_t round)
{
    struct raft_view view = solo_view(&solo);

    solo_message(&solo, (struct raft_message){.kind = RAFT_MSG_HEARTBEAT_REPLY,
                                              .from = from,
                                              .term = view.term,
                                              .round = round,
                                              .grant = solo_peer(&view, from)->grant,
                                              .limit = SOLO_RING});
}

static void read_now(uint64_t context)
{
    struct raft_event event = {.kind = RAFT_EV_READ};

    event.read.context = context;
    solo_event(&solo, event);
}

TestSuite(raft_rules, .fini = finish);

/* ---- votes ----------------------------------------------------------------------------------- */

/* seaweedfs/raft#9, hashicorp/raft#661: term and vote are one durable write, and nothing is
 * answered before it. */
Test(raft_rules, vote_waits_for_the_disk)
{
    start(RAFT_DISK, 3);
    vote_from(2, 5, 0);
    const struct raft_effect *write = solo_effect(&solo, RAFT_FX_PERSIST_HARD);
    cr_assert_not_null(write);
    cr_assert_eq(write->hard.term, 5);
    cr_assert_eq(write->hard.vote, 2);
    cr_assert_null(solo_sent(&solo, RAFT_MSG_VOTE_REPLY, 2));
    /* A second candidate in the same term gets a refusal whatever the disk does. */
    vote_from(3, 5, 0);
    cr_assert_not_null(solo_sent(&solo, RAFT_MSG_VOTE_REPLY, 3));
    cr_assert_eq(solo_sent(&solo, RAFT_MSG_VOTE_REPLY, 3)->flags, 0);
    solo_hard_durable(&solo);
    cr_assert_eq(solo_sent(&solo, RAFT_MSG_VOTE_REPLY, 2)->flags, RAFT_MSG_GRANTED);
    /* Asked again, answered again, written once. */
    vote_from(2, 5, 0);
    cr_assert_eq(solo_sent(&solo, RAFT_MSG_VOTE_REPLY, 2)->flags, RAFT_MSG_GRANTED);
    cr_assert_null(solo_effect(&solo, RAFT_FX_PERSIST_HARD));
}

/* A report about an older write does not vouch for a newer vote. */
Test(raft_rules, older_hard_state_is_no_vote)
{
    struct raft_event older = {.kind = RAFT_EV_HARD_DURABLE};

    start(RAFT_DISK, 3);
    vote_from(2, 5, 0);
    older.hard = (struct raft_hard_state){.term = 5, .vote = 0};
    solo_event(&solo, older);
    cr_assert_null(solo_sent(&solo, RAFT_MSG_VOTE_REPLY, 2));
    older.hard = (struct raft_hard_state){.term = 4, .vote = 2};
    solo_event(&solo, older);
    cr_assert_null(solo_sent(&solo, RAFT_MSG_VOTE_REPLY, 2));
}

/* The restarted voter remembers (seaweedfs/raft#9). */
Test(raft_rules, restart_keeps_the_vote)
{
    struct raft_options options = solo_options(RAFT_DISK);

    solo_memory(&solo, &options);
    solo_boot(&solo, 5, 2, 3);
    vote_from(3, 5, 0);
    cr_assert_eq(solo_sent(&solo, RAFT_MSG_VOTE_REPLY, 3)->flags, 0);
    cr_assert_eq(solo_view(&solo).vote, 2);
}

/* Entries of a term that the hard state does not know (it was not durable yet): the replica must
 * not go back behind it. */
Test(raft_rules, term_is_at_least_the_last_entrys)
{
    struct raft_options options = solo_options(RAFT_DISK);

    solo_memory(&solo, &options);
    solo_fill(&solo, 7, 2);
    solo_boot(&solo, 5, 2, 3);
    cr_assert_eq(solo_view(&solo).term, 7);
    cr_assert_eq(solo_view(&solo).vote, 0);
}

Test(raft_rules, votes_of_another_term_do_not_count)
{
    start(RAFT_DISK, 3);
    solo_tick(&solo);
    solo_message(&solo, (struct raft_message){.kind = RAFT_MSG_PREVOTE_REPLY,
                                              .flags = RAFT_MSG_GRANTED,
                                              .from = 2,
                                              .term = 3});
    cr_assert_eq(solo_view(&solo).role, RAFT_PRECANDIDATE, "a pre-vote for another term");
    solo_message(&solo, (struct raft_message){.kind = RAFT_MSG_PREVOTE_REPLY,
                                              .flags = RAFT_MSG_GRANTED,
                                              .from = 2,
                                              .term = 1});
    cr_assert_eq(solo_view(&solo).role, RAFT_CANDIDATE);
    solo_message(&solo,
                 (struct raft_message){
                     .kind = RAFT_MSG_VOTE_REPLY, .flags = RAFT_MSG_GRANTED, .from = 2, .term = 0});
    solo_hard_durable(&solo);
    cr_assert_eq(solo_view(&solo).role, RAFT_CANDIDATE, "a vote of an older term counted");
    solo_message(&solo,
                 (struct raft_message){
                     .kind = RAFT_MSG_VOTE_REPLY, .flags = RAFT_MSG_GRANTED, .from = 2, .term = 1});
    cr_assert_eq(solo_view(&solo).role, RAFT_LEADER);
}

/* A candidate that asked before its own vote is durable could stand twice in a term. */
Test(raft_rules, candidate_asks_only_when_durable)
{
    start(RAFT_DISK, 3);
    solo_tick(&solo);
    solo_message(&solo, (struct raft_message){.kind = RAFT_MSG_PREVOTE_REPLY,
                                              .flags = RAFT_MSG_GRANTED,
                                              .from = 2,
                                              .term = 1});
    cr_assert_null(solo_sent(&solo, RAFT_MSG_VOTE, 2));
    solo.now_ns += 15 * MS; /* past the time of repetition, before the next election */
    solo_event(&solo, (struct raft_event){.kind = RAFT_EV_TICK});
    cr_assert_null(solo_sent(&solo, RAFT_MSG_VOTE, 2));
    solo_hard_durable(&solo);
    cr_assert_not_null(solo_sent(&solo, RAFT_MSG_VOTE, 2));
    solo.now_ns += 15 * MS;
    solo_event(&solo, (struct raft_event){.kind = RAFT_EV_TICK});
    cr_assert_not_null(solo_sent(&solo, RAFT_MSG_VOTE, 2), "lost requests are repeated");
}

/* CCF pre_vote_double_leader. */
Test(raft_rules, same_term_step_down_keeps_the_vote)
{
    start(RAFT_DISK, 3);
    solo_tick(&solo);
    solo_message(&solo, (struct raft_message){.kind = RAFT_MSG_PREVOTE_REPLY,
                                              .flags = RAFT_MSG_GRANTED,
                                              .from = 2,
                                              .term = 1});
    solo_hard_durable(&solo);
    heartbeat_from(2, 1);
    cr_assert_eq(solo_view(&solo).role, RAFT_FOLLOWER);
    cr_assert_eq(solo_view(&solo).vote, ME);
    vote_from(3, 1, RAFT_MSG_TRANSFER);
    cr_assert_eq(solo_sent(&solo, RAFT_MSG_VOTE_REPLY, 3)->flags, 0);
}

/* 3.6.1: term of the last entry first, then length. */
Test(raft_rules, only_an_up_to_date_log_gets_votes)
{
    struct raft_options options = solo_options(RAFT_DISK);
    static const struct {
        uint64_t index, log_term;
        bool granted;
    } cases[] = {{4, 3, true}, {3, 3, false}, {9, 2, false}, {1, 4, true}, {5, 3, true}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        solo_memory(&solo, &options);
        solo_fill(&solo, 3, 4);
        solo_boot(&solo, 3, 0, 3);
        solo_message(&solo, (struct raft_message){.kind = RAFT_MSG_VOTE,
                                                  .from = 2,
                                                  .term = 4,
                                                  .index = cases[i].index,
                                                  .log_term = cases[i].log_term});
        cr_assert_eq(solo_view(&solo).vote == 2, cases[i].granted, "case %zu", i);
        if (i + 1 < sizeof(cases) / sizeof(cases[0]))
            solo_free(&solo);
    }
}

/* 4.2.3: who hears a leader elects no other, unless the leader wants it (3.10). */
Test(raft_rules, a_heard_leader_is_not_deposed)
{
    start(RAFT_MEMORY, 3);
    heartbeat_from(2, 1);
    solo.now_ns += 99 * MS;
    vote_from(3, 2, 0);
    cr_assert_eq(solo_view(&solo).term, 1);
    solo_message(&solo,
                 (struct raft_message){
                     .kind = RAFT_MSG_PREVOTE, .from = 3, .term = 2, .index = 9, .log_term = 1});
    cr_assert_null(solo_sent(&solo, RAFT_MSG_PREVOTE_REPLY, 3));
    vote_from(3, 2, RAFT_MSG_TRANSFER);
    cr_assert_eq(solo_view(&solo).vote, 3);
}

Test(raft_rules, an_unheard_leader_is)
{
    start(RAFT_MEMORY, 3);
    heartbeat_from(2, 1);
    solo.now_ns += 100 * MS;
    vote_from(3, 2, 0);
    cr_assert_eq(solo_view(&solo).vote, 3);
}

/* daos-raft#70: a leader grants no pre-vote, nor a vote. */
Test(raft_rules, leader_grants_nothing)
{
    start(RAFT_MEMORY, 3);
    solo_ready(&solo);
    solo.now_ns += 95 * MS;
    solo_message(&solo,
                 (struct raft_message){
                     .kind = RAFT_MSG_PREVOTE, .from = 3, .term = 9, .index = 9, .log_term = 8});
    cr_assert_null(solo_sent(&solo, RAFT_MSG_PREVOTE_REPLY, 3));
    vote_from(3, 9, 0);
    cr_assert_eq(solo_view(&solo).role, RAFT_LEADER);
}

/* etcd#8501: a stale leader hears of the higher term. */
Test(raft_rules, stale_leader_hears_of_the_term)
{
    struct raft_options options = solo_options(RAFT_DISK);

    solo_memory(&solo, &options);
    solo_boot(&solo, 10, 1, 3);
    heartbeat_from(2, 5);
    const struct raft_message *reply = solo_sent(&solo, RAFT_MSG_HEARTBEAT_REPLY, 2);
    cr_assert_not_null(reply);
    cr_assert_eq(reply->term, 10);
    cr_assert_eq(reply->round, 0, "it must not confirm a round");
}

Test(raft_rules, strangers_are_ignored)
{
    start(RAFT_MEMORY, 3);
    vote_from(77, 5, RAFT_MSG_TRANSFER);
    cr_assert_eq(solo_view(&solo).term, 0);
    solo_event(
        &solo,
        (struct raft_event){
            .kind = RAFT_EV_MESSAGE,
            .message = {
                .kind = RAFT_MSG_VOTE, .flags = RAFT_MSG_TRANSFER, .from = 2, .to = 3, .term = 5}});
    cr_assert_eq(solo_view(&solo).term, 0, "a message to somebody else");
    cr_assert_eq(solo_view(&solo).ignored, 2);
    heartbeat_from(77, 5); /* a leader that joined while we lagged */
    cr_assert_eq(solo_view(&solo).leader, 77);
}

/* A learner by its own knowledge may long be a voter by everybody else's: it votes. */
Test(raft_rules, learners_vote)
{
    struct raft_options options = solo_options(RAFT_MEMORY);
    struct raft_configuration configuration = solo_configuration(3);
    struct raft_hard_state hard = {0};

    solo_memory(&solo, &options);
    configuration.members[0].role = RAFT_LEARNER;
    solo.raft =
        raft_init(solo.raft_memory, &options, &solo.log, &hard, &configuration, solo.now_ns);
    solo_tick(&solo);
    cr_assert_eq(solo_view(&solo).role, RAFT_FOLLOWER, "it does not stand");
    vote_from(2, 5, 0);
    cr_assert_eq(solo_sent(&solo, RAFT_MSG_VOTE_REPLY, 2)->flags, RAFT_MSG_GRANTED);
}

Test(raft_rules, terms_at_the_edges)
{
    struct raft_options options = solo_options(RAFT_MEMORY);
    static const uint64_t terms[] = {UINT32_MAX, (uint64_t)UINT32_MAX + 1, UINT64_MAX - 1};

    for (size_t i = 0; i < 3; i++) {
        solo_memory(&solo, &options);
        solo_boot(&solo, terms[i], 0, 3);
        solo_lead(&solo);
        cr_assert_eq(solo_view(&solo).term, terms[i] + 1);
        cr_assert_eq(solo.log.last_term, terms[i] + 1);
        solo_free(&solo);
    }
    solo_memory(&solo, &options);
    solo_boot(&solo, UINT64_MAX, 0, 3);
    solo_tick(&solo);
    cr_assert_eq(solo_view(&solo).role, RAFT_FOLLOWER, "no term is left to stand in");
}

Test(raft_rules, single_voter_commits_alone)
{
    start(RAFT_DISK, 1);
    solo_tick(&solo);
    solo_hard_durable(&solo);
    cr_assert_eq(solo_view(&solo).role, RAFT_LEADER);
    cr_assert_eq(solo_view(&solo).commit_index, 0, "not durable yet");
    read_now(3);
    cr_assert_null(solo_effect(&solo, RAFT_FX_READ_READY));
    solo_progress(&solo, RAFT_EV_DURABLE, 0, 1, 1, 0);
    cr_assert_eq(solo_view(&solo).commit_index, 1);
    cr_assert_eq(solo_effect(&solo, RAFT_FX_READ_READY)->read.context, 3);
    read_now(4);
    cr_assert_eq(solo_effect(&solo, RAFT_FX_READ_READY)->read.context, 4);
}

/* ---- reads and leases ------------------------------------------------------------------------ */

/* A round that started before a read proves nothing about what was committed since. */
Test(raft_rules, round_before_the_read_does_not_confirm_it)
{
    start(RAFT_MEMORY, 3);
    solo_ready(&solo);
    solo.now_ns += 10 * MS;
    solo_event(&solo, (struct raft_event){.kind = RAFT_EV_TICK}); /* round 1, no read waits */
    cr_assert_eq(solo_sent(&solo, RAFT_MSG_HEARTBEAT, 2)->round, 1);
    read_now(5);
    cr_assert_eq(solo_sent(&solo, RAFT_MSG_HEARTBEAT, 2)->round, 2);
    answer_round(2, 1);
    cr_assert_null(solo_effect(&solo, RAFT_FX_READ_READY));
    answer_round(2, 2);
    cr_assert_eq(solo_effect(&solo, RAFT_FX_READ_READY)->read.context, 5);
}

Test(raft_rules, reads_fail_when_leadership_ends)
{
    start(RAFT_MEMORY, 3);
    read_now(1);
    cr_assert_not_null(solo_effect(&solo, RAFT_FX_READ_FAILED));
    solo_ready(&solo);
    read_now(2);
    heartbeat_from(3, 9);
    cr_assert_eq(solo_effect(&solo, RAFT_FX_READ_FAILED)->read.context, 2);
    cr_assert_eq(solo_view(&solo).role, RAFT_FOLLOWER);
}

Test(raft_rules, more_reads_than_places_fail)
{
    start(RAFT_MEMORY, 3);
    solo_ready(&solo);
    for (uint64_t i = 0; i < RAFT_READS_MAX; i++) {
        read_now(i);
        cr_assert_null(solo_effect(&solo, RAFT_FX_READ_FAILED));
    }
    read_now(99);
    cr_assert_eq(solo_effect(&solo, RAFT_FX_READ_FAILED)->read.context, 99);
}

/* 6.4.1: the lease counts from the send time of the round, less drift. */
Test(raft_rules, lease_counts_from_the_send_time)
{
    start_lease(RAFT_MEMORY);
    solo_ready(&solo);
    solo.now_ns += 10 * MS;
    solo_event(&solo, (struct raft_event){.kind = RAFT_EV_TICK});
    uint64_t sent_ns = solo.now_ns;
    solo.now_ns += 60 * MS; /* the answer is slow */
    answer_round(2, 1);
    solo.now_ns = sent_ns + 99 * MS;
    read_now(1);
    cr_assert_not_null(solo_effect(&solo, RAFT_FX_READ_READY), "within the lease");
    solo.now_ns = sent_ns + 100 * MS - 100000 + 1; /* 1000 ppm of 100 ms */
    read_now(2);
    cr_assert_null(solo_effect(&solo, RAFT_FX_READ_READY), "after the lease");
}

Test(raft_rules, no_lease_unless_asked_for)
{
    start(RAFT_MEMORY, 3);
    solo_ready(&solo);
    solo.now_ns += 10 * MS;
    solo_event(&solo, (struct raft_event){.kind = RAFT_EV_TICK});
    answer_round(2, 1);
    read_now(1);
    cr_assert_null(solo_effect(&solo, RAFT_FX_READ_READY));
}

/* An order to stand may be delivered after the transfer was given up: no lease in this term. */
Test(raft_rules, transfer_forfeits_the_lease)
{
    struct raft_event transfer = {.kind = RAFT_EV_TRANSFER};

    start_lease(RAFT_MEMORY);
    solo_ready(&solo);
    solo.now_ns += 10 * MS;
    solo_event(&solo, (struct raft_event){.kind = RAFT_EV_TICK});
    answer_round(2, 1);
    read_now(1);
    cr_assert_not_null(solo_effect(&solo, RAFT_FX_READ_READY));
    transfer.progress.peer = 2;
    solo_event(&solo, transfer);
    cr_assert_not_null(solo_sent(&solo, RAFT_MSG_TIMEOUT_NOW, 2));
    read_now(2);
    cr_assert_null(solo_effect(&solo, RAFT_FX_READ_READY), "the lease is dropped first");
    for (uint64_t i = 0; i < 12; i++) { /* the target never stands; heartbeats go on */
        solo.now_ns += 10 * MS;
        solo_event(&solo, (struct raft_event){.kind = RAFT_EV_TICK});
        const struct raft_message *heartbeat = solo_sent(&solo, RAFT_MSG_HEARTBEAT, 2);
        if (heartbeat != NULL)
            answer_round(2, heartbeat->round);
    }
    cr_assert(solo_propose(&solo, 8), "the transfer was given up");
    read_now(3);
    cr_assert_null(solo_effect(&solo, RAFT_FX_READ_READY), "no lease any more in this term");
}

/* Its former life may have promised a lease. */
Test(raft_rules, restarted_voter_waits)
{
    start_lease(RAFT_DISK);
    solo.now_ns += 99 * MS;
    vote_from(2, 5, 0);
    cr_assert_eq(solo_view(&solo).vote, 0);
    solo.now_ns += 1 * MS;
    vote_from(2, 5, 0);
    cr_assert_eq(solo_view(&solo).vote, 2);
}

/* ---- leadership ------------------------------------------------------------------------------ */

/* 6.2: without a majority of answers for an election timeout it steps down, in its term. */
Test(raft_rules, check_quorum)
{
    start(RAFT_MEMORY, 5);
    solo_lead(&solo);
    for (int i = 0; i < 30; i++) { /* one of four answers: not enough */
        solo.now_ns += 10 * MS;
        solo_event(&solo, (struct raft_event){.kind = RAFT_EV_TICK});
        if (solo_view(&solo).role != RAFT_LEADER)
            break;
        answer_round(2, solo_sent(&solo, RAFT_MSG_HEARTBEAT, 2)->round);
    }
    cr_assert_eq(solo_view(&solo).role, RAFT_FOLLOWER);
    cr_assert_eq(solo_view(&solo).term, 1);
    cr_assert_eq(solo_view(&solo).vote, ME);
    cr_assert_null(raft_reserve(solo.raft, 8));
}

Test(raft_rules, step_down_hands_over_and_never_stands)
{
    start(RAFT_MEMORY, 3);
    solo_ready(&solo);
    solo_event(&solo, (struct raft_event){.kind = RAFT_EV_STEP_DOWN});
    cr_assert_not_null(solo_sent(&solo, RAFT_MSG_TIMEOUT_NOW, 2));
    for (int i = 0; i < 50; i++)
        solo_tick(&solo);
    cr_assert_eq(solo_view(&solo).role, RAFT_FOLLOWER);
    cr_assert_eq(solo_view(&solo).term, 1);
    vote_from(2, 2, 0);
    cr_assert_eq(solo_view(&solo).vote, 2, "it still votes");
}

Test(raft_rules, transfer_waits_for_the_whole_log)
{
    struct raft_event transfer = {.kind = RAFT_EV_TRANSFER};

    start(RAFT_MEMORY, 3);
    solo_ready(&solo);
    cr_assert(solo_propose(&solo, 8));
    transfer.progress.peer = 2;
    solo_event(&solo, transfer);
    cr_assert_null(solo_sent(&solo, RAFT_MSG_TIMEOUT_NOW, 2));
    cr_assert_null(raft_reserve(solo.raft, 8), "nothing is proposed meanwhile");
    solo_ack(&solo, 2, 2);
    cr_assert_not_null(solo_sent(&solo, RAFT_MSG_TIMEOUT_NOW, 2));
}

/* The order counts only from the leader of the term, and is followed without a pre-vote. */
Test(raft_rules, timeout_now)
{
    start(RAFT_MEMORY, 3);
    heartbeat_from(2, 4);
    solo_message(&solo, (struct raft_message){.kind = RAFT_MSG_TIMEOUT_NOW, .from = 3, .term = 4});
    cr_assert_eq(solo_view(&solo).role, RAFT_FOLLOWER);
    solo_message(&solo, (struct raft_message){.kind = RAFT_MSG_TIMEOUT_NOW, .from = 2, .term = 3});
    cr_assert_eq(solo_view(&solo).role, RAFT_FOLLOWER);
    solo_message(&solo, (struct raft_message){.kind = RAFT_MSG_TIMEOUT_NOW, .from = 2, .term = 4});
    cr_assert_eq(solo_view(&solo).role, RAFT_CANDIDATE);
    cr_assert_eq(solo_sent(&solo, RAFT_MSG_VOTE, 3)->flags, RAFT_MSG_TRANSFER);
}

/* etcd#9395, #15247: shard time stands still while there is no leader, goes on from the last stamp
 * with the new leader's own clock, and never goes back. */
Test(raft_rules, stamps)
{
    struct raft_options options = solo_options(RAFT_MEMORY);

    solo_memory(&solo, &options);
    cr_assert_not_null(log_reserve(&solo.log, 8));
    log_append(&solo.log, LOG_COMMANDS, 1, 5000 * MS, 8);
    solo.now_ns = 3 * MS; /* this machine was just started */
    solo_boot(&solo, 1, 0, 3);
    solo_ready(&solo);
    cr_assert_eq(log_at(&solo.log, 2)->stamp_ns, 5000 * MS);
    solo.now_ns += 7 * MS;
    cr_assert(solo_propose(&solo, 8));
    cr_assert_eq(log_at(&solo.log, 3)->stamp_ns, 5007 * MS);
    cr_assert_eq(raft_shard_time(solo.raft, solo.now_ns + 5), 5007 * MS + 5);
    cr_assert_eq(raft_shard_time(solo.raft, 0), 5007 * MS);
}
