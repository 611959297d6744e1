/* SPDX-License-Identifier: Apache-2.0
 *
 * Single rules of the Raft core: attach, shipping, commit, membership, snapshots, log space. Rows
 * of tests/REGRESSIONS.md are named where a test reproduces one.
 */
#include "tests/unit/raft_solo.h"

static struct solo solo;

static void start(enum raft_durability durability, uint32_t voters)
{
    struct raft_options options = solo_options(durability);

    solo_memory(&solo, &options);
    solo_boot(&solo, 0, 0, voters);
}

static void finish(void)
{
    solo_free(&solo);
}

static void attach_from(uint64_t from, uint64_t term, uint64_t grant, uint64_t index,
                        uint64_t log_term_at, uint64_t next_term)
{
    solo_message(&solo, (struct raft_message){.kind = RAFT_MSG_ATTACH,
                                              .from = from,
                                              .term = term,
                                              .grant = grant,
                                              .index = index,
                                              .log_term = log_term_at,
                                              .round = next_term,
                                              .limit = from});
}

static void change(enum raft_change_kind kind, uint64_t id)
{
    struct raft_event event = {.kind = RAFT_EV_CHANGE};

    event.change.kind = kind;
    event.change.member.replica_id = id;
    event.change.member.node = (uint16_t)id;
    solo_event(&solo, event);
}

static enum raft_refusal refused(void)
{
    const struct raft_effect *effect = solo_effect(&solo, RAFT_FX_CHANGE_REFUSED);

    return effect == NULL ? 0 : effect->refused.why;
}

static bool is_member(uint64_t id)
{
    struct raft_view view = solo_view(&solo);

    return solo_peer(&view, id) != NULL;
}

static void installed(uint64_t index, uint64_t term, uint64_t position, uint32_t voters)
{
    struct raft_event event = {.kind = RAFT_EV_SNAPSHOT_INSTALLED};

    event.snapshot.base = (struct log_base){.index = index, .term = term, .position = position};
    event.snapshot.configuration = solo_configuration(voters);
    solo_event(&solo, event);
}

TestSuite(raft_log_rules, .fini = finish);

/* ---- attach, follower ------------------------------------------------------------------------ */

/* Hints skip whole terms on the follower's side. */
Test(raft_log_rules, attach_hints)
{
    struct raft_options options = solo_options(RAFT_DISK);

    solo_memory(&solo, &options);
    solo_fill(&solo, 2, 3); /* 1..3 */
    solo_fill(&solo, 5, 4); /* 4..7 */
    solo_boot(&solo, 5, 0, 3);
    attach_from(2, 6, 1, 20, 4, 0);
    const struct raft_message *hint = solo_sent(&solo, RAFT_MSG_ATTACH_REPLY, 2);
    cr_assert_eq(hint->flags, 0);
    cr_assert_eq(hint->index, 3, "all of term 5 is skipped: the leader's last is of term 4");
    cr_assert_eq(hint->log_term, 2);
    attach_from(2, 6, 1, 20, 6, 0);
    cr_assert_eq(solo_sent(&solo, RAFT_MSG_ATTACH_REPLY, 2)->index, 7);
    cr_assert_eq(solo.log.last_index, 7, "nothing is cut before the common entry is found");
}

/* raftos#26: nothing that agrees is ever cut, by no probe, early or late. */
Test(raft_log_rules, agreeing_entries_are_never_cut)
{
    struct raft_options options = solo_options(RAFT_DISK);

    solo_memory(&solo, &options);
    solo_fill(&solo, 2, 5);
    solo_boot(&solo, 3, 0, 3);
    attach_from(2, 3, 1, 3, 2, 2); /* the leader's entry 4 is of term 2, like ours */
    cr_assert_eq(solo.log.last_index, 5);
    cr_assert_eq(solo_sent(&solo, RAFT_MSG_ATTACH_REPLY, 2)->index, 5);
    cr_assert_null(solo_effect(&solo, RAFT_FX_GRANT));
    attach_from(2, 3, 1, 3, 2, 3); /* of term 3, unlike ours */
    cr_assert_eq(solo.log.last_index, 3);
    cr_assert_eq(solo_effect(&solo, RAFT_FX_PERSIST_CUT)->range.first, 4);
    cr_assert_eq(solo_effect(&solo, RAFT_FX_ENTRIES_LOST)->range.first, 4);
    cr_assert_not_null(solo_effect(&solo, RAFT_FX_GRANT));
}

/* A leader whose log ended at the probe has appended only entries of its own term since. */
Test(raft_log_rules, late_probe_of_a_leader_that_had_no_more)
{
    struct raft_options options = solo_options(RAFT_DISK);

    solo_memory(&solo, &options);
    solo_fill(&solo, 2, 3);
    solo_fill(&solo, 3, 2);
    solo_boot(&solo, 3, 0, 3);
    attach_from(2, 3, 1, 3, 2, 0);
    cr_assert_eq(solo.log.last_index, 5);
}

Test(raft_log_rules, attach_is_answered_once_per_grant)
{
    start(RAFT_DISK, 3);
    solo_follow(&solo, 1, 5);
    solo_ship(&solo, 1, 4, 5, 0);
    cr_assert_eq(solo.log.last_index, 4);
    attach_from(2, 1, 5, 0, 0, 1); /* again */
    cr_assert_eq(solo.log.last_index, 4);
    cr_assert_null(solo_effect(&solo, RAFT_FX_GRANT));
    cr_assert_eq(solo_sent(&solo, RAFT_MSG_ATTACH_REPLY, 2)->flags, RAFT_MSG_GRANTED);
    attach_from(2, 1, 4, 0, 0, 1); /* an older one */
    cr_assert_null(solo_effect(&solo, RAFT_FX_REVOKE));
    cr_assert_null(solo_sent(&solo, RAFT_MSG_ATTACH_REPLY, 2));
    attach_from(2, 1, 6, 0, 0, 1); /* a newer one: the ring is closed first */
    cr_assert_eq(solo_effect(&solo, RAFT_FX_REVOKE)->grant.number, 5);
    solo_progress(&solo, RAFT_EV_REVOKED, 0, 0, 0, 5);
    cr_assert_eq(solo.log.last_index, 4);
    attach_from(2, 1, 5, 4, 1, 1); /* the old one is over for good */
    cr_assert_null(solo_effect(&solo, RAFT_FX_GRANT));
    attach_from(2, 1, 6, 4, 1, 1);
    cr_assert_eq(solo_effect(&solo, RAFT_FX_GRANT)->grant.number, 6);
}

/* etcd#14370: nothing is acknowledged before it is on disk, nor before its term is. */
Test(raft_log_rules, acknowledgements_follow_the_disk)
{
    start(RAFT_DISK, 3);
    attach_from(2, 1, 1, 0, 0, 1);
    solo_progress(&solo, RAFT_EV_GRANTED, 0, 0, 0, 1);
    solo_ship(&solo, 1, 3, 1, 0);
    cr_assert_not_null(solo_effect(&solo, RAFT_FX_PERSIST_ENTRIES));
    cr_assert_null(solo_sent(&solo, RAFT_MSG_ACK, 2));
    solo_progress(&solo, RAFT_EV_DURABLE, 0, 2, 1, 0);
    cr_assert_null(solo_sent(&solo, RAFT_MSG_ACK, 2), "term 1 is not durable");
    solo_hard_durable(&solo);
    cr_assert_eq(solo_sent(&solo, RAFT_MSG_ACK, 2)->index, 2);
    solo_progress(&solo, RAFT_EV_DURABLE, 0, 3, 1, 0);
    cr_assert_eq(solo_sent(&solo, RAFT_MSG_ACK, 2)->index, 3);
}

/* Term and vote go to disk before entries taken under them. */
Test(raft_log_rules, term_is_written_before_entries_and_cuts)
{
    struct raft_options options = solo_options(RAFT_DISK);

    solo_memory(&solo, &options);
    solo_fill(&solo, 2, 5);
    solo_boot(&solo, 2, 0, 3);
    attach_from(2, 3, 1, 3, 2, 3);
    cr_assert_eq(solo.effects.items[0].kind, RAFT_FX_PERSIST_HARD);
    cr_assert_eq(solo.effects.items[1].kind, RAFT_FX_PERSIST_CUT);
}

/* The follower's commit index never runs ahead of what it knows to share with this leader. */
Test(raft_log_rules, follower_commits_only_what_matches)
{
    struct raft_options options = solo_options(RAFT_DISK);

    solo_memory(&solo, &options);
    solo_fill(&solo, 2, 5);
    solo_boot(&solo, 2, 0, 3);
    solo_message(&solo,
                 (struct raft_message){
                     .kind = RAFT_MSG_HEARTBEAT, .from = 2, .term = 3, .round = 1, .commit = 4});
    cr_assert_eq(solo_view(&solo).commit_index, 0, "its log may be of another history");
    attach_from(2, 3, 1, 3, 2, 3);
    solo_progress(&solo, RAFT_EV_GRANTED, 0, 0, 0, 1);
    solo_message(&solo,
                 (struct raft_message){
                     .kind = RAFT_MSG_HEARTBEAT, .from = 2, .term = 3, .round = 2, .commit = 9});
    cr_assert_eq(solo_view(&solo).commit_index, 3, "only as far as the log goes (etcd#3591)");
}

/* Lost acknowledgements: bytes that are not new are acknowledged again. */
Test(raft_log_rules, repeated_bytes_are_acknowledged_again)
{
    start(RAFT_MEMORY, 3);
    solo_follow(&solo, 1, 1);
    solo_ship(&solo, 1, 3, 1, 0);
    cr_assert_eq(solo_sent(&solo, RAFT_MSG_ACK, 2)->index, 3);
    solo_progress(&solo, RAFT_EV_RECEIVED, 0, 0, 0, 1);
    cr_assert_eq(solo_sent(&solo, RAFT_MSG_ACK, 2)->index, 3);
    solo_progress(&solo, RAFT_EV_RECEIVED, 0, 0, 0, 9);
    cr_assert_null(solo_sent(&solo, RAFT_MSG_ACK, 2), "bytes of another grant");
}

/* ---- revoking -------------------------------------------------------------------------------- */

/* Mu, DARE: a higher term is accepted, and a vote answered, only when the ring is closed; what the
 * old leader wrote until then counts in the comparison. */
Test(raft_log_rules, revoke_before_a_higher_term)
{
    start(RAFT_MEMORY, 3);
    solo_follow(&solo, 1, 1);
    struct raft_message vote = {.kind = RAFT_MSG_VOTE,
                                .flags = RAFT_MSG_TRANSFER,
                                .from = 3,
                                .term = 2,
                                .index = 0,
                                .log_term = 0};
    solo_message(&solo, vote);
    cr_assert_eq(solo_effect(&solo, RAFT_FX_REVOKE)->grant.number, 1);
    cr_assert_eq(solo_view(&solo).term, 1);
    cr_assert_null(solo_sent(&solo, RAFT_MSG_VOTE_REPLY, 3));
    uint64_t before = solo_view(&solo).ignored;
    solo_message(&solo, vote); /* one waits; later ones are dropped */
    cr_assert_eq(solo_view(&solo).ignored, before + 1);
    solo_ship(&solo, 1, 2, 1, 0); /* it lands meanwhile */
    cr_assert_eq(solo.log.last_index, 0);
    solo_progress(&solo, RAFT_EV_REVOKED, 0, 0, 0, 7);
    cr_assert_eq(solo_view(&solo).term, 1, "another grant's completion");
    solo_progress(&solo, RAFT_EV_REVOKED, 0, 0, 0, 1);
    cr_assert_eq(solo.log.last_index, 2);
    cr_assert_eq(solo_view(&solo).term, 2);
    cr_assert_eq(solo_sent(&solo, RAFT_MSG_VOTE_REPLY, 3)->flags, 0, "its log is longer now");
}

/* Not for a pre-vote, but before standing oneself. */
Test(raft_log_rules, revoke_before_standing)
{
    start(RAFT_MEMORY, 3);
    solo_follow(&solo, 1, 1);
    solo_tick(&solo);
    cr_assert_eq(solo_view(&solo).role, RAFT_PRECANDIDATE);
    cr_assert_null(solo_effect(&solo, RAFT_FX_REVOKE));
    solo_message(&solo, (struct raft_message){.kind = RAFT_MSG_PREVOTE_REPLY,
                                              .flags = RAFT_MSG_GRANTED,
                                              .from = 3,
                                              .term = 2});
    cr_assert_not_null(solo_effect(&solo, RAFT_FX_REVOKE));
    cr_assert_eq(solo_view(&solo).term, 1);
    solo_progress(&solo, RAFT_EV_REVOKED, 0, 0, 0, 1);
    cr_assert_eq(solo_view(&solo).role, RAFT_CANDIDATE);
    cr_assert_eq(solo_view(&solo).term, 2);
}

/* ---- one-sided --------------------------------------------------------------------------------
 */

static void ring_is_open(bool one_sided)
{
    struct raft_event event = {.kind = RAFT_EV_GRANTED};

    event.progress.grant = 1;
    event.progress.one_sided = one_sided;
    solo_event(&solo, event);
}

/* A dead leader's device may have left half an entry in the ring: looking at it again and again
 * must not keep the follower from standing. */
Test(raft_log_rules, half_an_entry_is_no_sign_of_life)
{
    start(RAFT_MEMORY, 3);
    solo_message(&solo,
                 (struct raft_message){.kind = RAFT_MSG_ATTACH, .from = 2, .term = 1, .grant = 1});
    ring_is_open(true);
    uint64_t deadline_ns = raft_next_deadline(solo.raft);
    solo.now_ns += 50 * MS;
    solo_progress(&solo, RAFT_EV_RECEIVED, 0, 0, 0, 1);
    cr_assert_eq(raft_next_deadline(solo.raft), deadline_ns);
    solo_ship(&solo, 1, 1, 1, 0);
    cr_assert_eq(solo.log.last_index, 1);
    cr_assert_geq(raft_next_deadline(solo.raft), solo.now_ns + 100 * MS);
}

/* Both ends agree in the attach on who writes. */
Test(raft_log_rules, an_attach_agrees_on_the_mode)
{
    start(RAFT_MEMORY, 3);
    solo_message(&solo, (struct raft_message){.kind = RAFT_MSG_ATTACH,
                                              .flags = RAFT_MSG_ONE_SIDED,
                                              .from = 2,
                                              .term = 1,
                                              .grant = 1});
    cr_assert(solo_effect(&solo, RAFT_FX_GRANT)->grant.one_sided);
    ring_is_open(true);
    cr_assert_eq(solo_sent(&solo, RAFT_MSG_ATTACH_REPLY, 2)->flags,
                 RAFT_MSG_GRANTED | RAFT_MSG_ONE_SIDED);
    solo_free(&solo);
    start(RAFT_MEMORY, 3);
    solo_message(&solo, (struct raft_message){.kind = RAFT_MSG_ATTACH,
                                              .flags = RAFT_MSG_ONE_SIDED,
                                              .from = 2,
                                              .term = 1,
                                              .grant = 1});
    ring_is_open(false); /* offered, but this replica cannot */
    cr_assert_eq(solo_sent(&solo, RAFT_MSG_ATTACH_REPLY, 2)->flags, RAFT_MSG_GRANTED);
    solo_free(&solo);
    start(RAFT_MEMORY, 3);
    solo_lead(&solo);
    struct raft_view view = solo_view(&solo);
    for (uint64_t id = 2; id <= 3; id++) {
        uint8_t flags = id == 2 ? RAFT_MSG_GRANTED | RAFT_MSG_ONE_SIDED : RAFT_MSG_GRANTED;

        solo_message(&solo, (struct raft_message){.kind = RAFT_MSG_ATTACH_REPLY,
                                                  .flags = flags,
                                                  .from = id,
                                                  .term = view.term,
                                                  .grant = solo_peer(&view, id)->grant,
                                                  .limit = log_limit(&solo.log)});
        cr_assert_eq(solo_effect(&solo, RAFT_FX_SHIP)->ship.one_sided, id == 2);
    }
}

/* ---- leader ---------------------------------------------------------------------------------- */

/* CCF#5325: a hint about where to probe is no match index. */
Test(raft_log_rules, hint_is_no_match)
{
    struct raft_options options = solo_options(RAFT_MEMORY);

    solo_memory(&solo, &options);
    solo_fill(&solo, 1, 5);
    solo_boot(&solo, 1, 0, 5);
    solo_lead(&solo);
    struct raft_view view = solo_view(&solo);
    /* It names the entry of this term that would be committed if it counted. */
    solo_message(&solo, (struct raft_message){.kind = RAFT_MSG_ATTACH_REPLY,
                                              .from = 4,
                                              .term = 2,
                                              .index = 6,
                                              .log_term = 2,
                                              .grant = solo_peer(&view, 4)->grant});
    cr_assert_eq(solo_sent(&solo, RAFT_MSG_ATTACH, 4)->index, 6, "it is asked there");
    solo_attach(&solo, 2, 5);
    solo_ack(&solo, 2, 6);
    view = solo_view(&solo);
    cr_assert_eq(solo_peer(&view, 4)->match_index, 0);
    cr_assert_eq(view.commit_index, 0, "two of five");
    solo_attach(&solo, 3, 5);
    solo_ack(&solo, 3, 6);
    cr_assert_eq(solo_view(&solo).commit_index, 6);
}

/* PySyncObj#169, figure 8. */
Test(raft_log_rules, older_terms_are_not_committed_by_counting)
{
    struct raft_options options = solo_options(RAFT_MEMORY);

    solo_memory(&solo, &options);
    solo_fill(&solo, 1, 5);
    solo_boot(&solo, 3, 0, 3);
    solo_lead(&solo);
    solo_attach(&solo, 2, 4);
    solo_ack(&solo, 2, 5);
    cr_assert_eq(solo_view(&solo).commit_index, 0);
    solo_ack(&solo, 2, 6);
    cr_assert_eq(solo_view(&solo).commit_index, 6);
}

/* etcd#14370 on the leader: its own copy counts when it is durable, and for what it is. */
Test(raft_log_rules, leader_counts_its_own_disk)
{
    start(RAFT_DISK, 3);
    solo_lead(&solo);
    solo_attach(&solo, 2, 0);
    solo_ack(&solo, 2, 1);
    cr_assert_eq(solo_view(&solo).commit_index, 0);
    solo_progress(&solo, RAFT_EV_DURABLE, 0, 1, 9, 0);
    cr_assert_eq(solo_view(&solo).commit_index, 0, "a report about another term's entry");
    solo_progress(&solo, RAFT_EV_DURABLE, 0, 1, 1, 0);
    cr_assert_eq(solo_view(&solo).commit_index, 1);
}

/* Two followers' copies make a majority without the leader's own (10.2.1). */
Test(raft_log_rules, followers_alone_can_commit)
{
    start(RAFT_DISK, 3);
    solo_lead(&solo);
    solo_attach(&solo, 2, 0);
    solo_attach(&solo, 3, 0);
    solo_ack(&solo, 2, 1);
    solo_ack(&solo, 3, 1);
    cr_assert_eq(solo_view(&solo).commit_index, 1);
    cr_assert_eq(solo_view(&solo).durable_index, 0);
}

static struct raft_message ack_of(uint64_t from, uint64_t index, uint64_t log_term_at,
                                  uint64_t grant)
{
    return (struct raft_message){.kind = RAFT_MSG_ACK,
                                 .from = from,
                                 .term = solo_view(&solo).term,
                                 .index = index,
                                 .log_term = log_term_at,
                                 .grant = grant,
                                 .limit = SOLO_RING};
}

Test(raft_log_rules, acknowledgements_that_do_not_fit)
{
    start(RAFT_MEMORY, 3);
    solo_lead(&solo);
    solo_attach(&solo, 2, 0);
    struct raft_view view = solo_view(&solo);
    uint64_t grant = solo_peer(&view, 2)->grant;
    solo_message(&solo, ack_of(2, 1, 7, grant));
    cr_assert_eq(solo_view(&solo).commit_index, 0, "another term at that index");
    solo_message(&solo, ack_of(2, 1, 1, grant + 9));
    cr_assert_eq(solo_view(&solo).commit_index, 0, "another grant");
    solo_message(&solo, ack_of(2, 2, 1, grant));
    cr_assert_eq(solo_view(&solo).commit_index, 0, "beyond what was shipped");
    solo_message(&solo, ack_of(2, 1, 1, grant));
    cr_assert_eq(solo_view(&solo).commit_index, 1);
}

/* A completed write of an earlier leadership fits no grant of a later one. */
Test(raft_log_rules, completions_of_an_earlier_leadership)
{
    start(RAFT_MEMORY, 3);
    solo_lead(&solo);
    solo_attach(&solo, 2, 0);
    struct raft_view view = solo_view(&solo);
    uint64_t old_grant = solo_peer(&view, 2)->grant;
    solo_message(
        &solo, (struct raft_message){.kind = RAFT_MSG_HEARTBEAT, .from = 3, .term = 2, .round = 1});
    solo.now_ns += 300 * MS;
    solo_lead(&solo);
    cr_assert_eq(solo_view(&solo).term, 3);
    solo_attach(&solo, 2, 0);
    view = solo_view(&solo);
    cr_assert_neq(solo_peer(&view, 2)->grant, old_grant);
    solo_progress(&solo, RAFT_EV_SHIPPED, 2, 1, 1, old_grant);
    view = solo_view(&solo);
    cr_assert_eq(solo_peer(&view, 2)->match_index, 0);
}

/* A completed one-sided write is a copy in memory durability, on disk it is not. */
Test(raft_log_rules, shipped_counts_in_memory_only)
{
    for (int memory = 0; memory <= 1; memory++) {
        start(memory ? RAFT_MEMORY : RAFT_DISK, 3);
        solo_lead(&solo);
        solo_attach(&solo, 2, 0);
        struct raft_view view = solo_view(&solo);
        solo_progress(&solo, RAFT_EV_SHIPPED, 2, 1, 1, solo_peer(&view, 2)->grant);
        view = solo_view(&solo);
        cr_assert_eq(solo_peer(&view, 2)->match_index, memory ? 1u : 0u);
        solo_progress(&solo, RAFT_EV_SHIP_FAILED, 2, 0, 0, solo_peer(&view, 2)->grant);
        cr_assert_not_null(solo_effect(&solo, RAFT_FX_DETACH));
        cr_assert_not_null(solo_sent(&solo, RAFT_MSG_ATTACH, 2), "under a new grant");
        if (memory == 0)
            solo_free(&solo);
    }
}

/* Never more than the window unacknowledged, never past the follower's limit, all of it in the end.
 */
Test(raft_log_rules, shipping_is_bounded)
{
    uint64_t shipped, acked;

    start(RAFT_MEMORY, 3);
    solo_lead(&solo);
    struct raft_view view = solo_view(&solo);
    solo_message(&solo, (struct raft_message){.kind = RAFT_MSG_ATTACH_REPLY,
                                              .flags = RAFT_MSG_GRANTED,
                                              .from = 2,
                                              .term = 1,
                                              .grant = solo_peer(&view, 2)->grant,
                                              .limit = 20000});
    shipped = solo_effect(&solo, RAFT_FX_SHIP)->ship.to;
    for (int i = 0; i < 24; i++) {
        cr_assert(solo_propose(&solo, 1000));
        const struct raft_effect *ship = solo_effect(&solo, RAFT_FX_SHIP);
        shipped = ship != NULL && ship->ship.peer == 2 ? ship->ship.to : shipped;
        cr_assert_leq(shipped, 8192);
    }
    cr_assert_eq(shipped, 40 + 7 * 1040);
    for (uint64_t index = 1; index <= 25; index++) {
        acked = log_end_of(&solo.log, index);
        if (acked > shipped)
            break;
        solo_ack(&solo, 2, index);
        const struct raft_effect *ship = solo_effect(&solo, RAFT_FX_SHIP);
        shipped = ship != NULL ? ship->ship.to : shipped;
        cr_assert_leq(shipped - acked, 8192);
    }
    cr_assert_eq(shipped, log_end_of(&solo.log, 25), "the limit grew with the acknowledgements");
}

/* An entry longer than the window goes when nothing else is under way. */
Test(raft_log_rules, long_entry_goes_alone)
{
    start(RAFT_MEMORY, 3);
    solo_ready(&solo);
    cr_assert(solo_propose(&solo, 8));
    cr_assert_not_null(solo_effect(&solo, RAFT_FX_SHIP));
    cr_assert(solo_propose(&solo, 16000));
    cr_assert_null(solo_effect(&solo, RAFT_FX_SHIP));
    solo_ack(&solo, 2, 2);
    cr_assert_eq(solo_effect(&solo, RAFT_FX_SHIP)->ship.last_index, 3);
    cr_assert_null(raft_reserve(solo.raft, SOLO_RING / 4 + 1));
}

/* A follower that makes no progress is attached anew; one that says its ring is closed, at once. */
Test(raft_log_rules, attach_anew)
{
    start(RAFT_MEMORY, 3);
    solo_ready(&solo);
    cr_assert(solo_propose(&solo, 8));
    struct raft_view view = solo_view(&solo);
    uint64_t grant = solo_peer(&view, 2)->grant;
    for (int i = 0; i < 11; i++) {
        solo.now_ns += 10 * MS;
        solo_event(&solo, (struct raft_event){.kind = RAFT_EV_TICK});
        uint64_t round = solo_sent(&solo, RAFT_MSG_HEARTBEAT, 2)->round;
        solo_message(&solo, (struct raft_message){.kind = RAFT_MSG_HEARTBEAT_REPLY,
                                                  .from = 2,
                                                  .term = 1,
                                                  .round = round,
                                                  .grant = grant});
        view = solo_view(&solo);
        if (solo_peer(&view, 2)->grant != grant)
            break;
        cr_assert_lt(i, 10);
    }
    cr_assert_neq(solo_peer(&view, 2)->grant, grant);
    solo_attach(&solo, 2, 2);
    view = solo_view(&solo);
    grant = solo_peer(&view, 2)->grant;
    solo.now_ns += 10 * MS;
    solo_event(&solo, (struct raft_event){.kind = RAFT_EV_TICK});
    uint64_t round = solo_sent(&solo, RAFT_MSG_HEARTBEAT, 2)->round;
    solo_message(&solo,
                 (struct raft_message){
                     .kind = RAFT_MSG_HEARTBEAT_REPLY, .from = 2, .term = 1, .round = round - 1});
    view = solo_view(&solo);
    cr_assert_eq(solo_peer(&view, 2)->grant, grant, "that answer was given before the attach");
    solo_message(&solo,
                 (struct raft_message){
                     .kind = RAFT_MSG_HEARTBEAT_REPLY, .from = 2, .term = 1, .round = round});
    view = solo_view(&solo);
    cr_assert_neq(solo_peer(&view, 2)->grant, grant);
}

/* Followers hear of a commit within a millisecond, in a heartbeat if no bytes carry it. */
Test(raft_log_rules, commits_are_announced)
{
    start(RAFT_MEMORY, 3);
    solo_ready(&solo);
    cr_assert_leq(raft_next_deadline(solo.raft), solo.now_ns + MS);
    solo.now_ns += MS;
    solo_event(&solo, (struct raft_event){.kind = RAFT_EV_TICK});
    cr_assert_eq(solo_sent(&solo, RAFT_MSG_HEARTBEAT, 2)->commit, 1);
    cr_assert_null(solo_sent(&solo, RAFT_MSG_HEARTBEAT, 3), "it is not attached");
    cr_assert(solo_propose(&solo, 8));
    solo_ack(&solo, 2, 2);
    cr_assert(solo_propose(&solo, 8)); /* these bytes carry commit 2 */
    solo.now_ns += MS;
    solo_event(&solo, (struct raft_event){.kind = RAFT_EV_TICK});
    cr_assert_null(solo_sent(&solo, RAFT_MSG_HEARTBEAT, 2));
}

/* ---- membership ------------------------------------------------------------------------------ */

Test(raft_log_rules, no_change_before_the_no_op)
{
    start(RAFT_MEMORY, 3);
    change(RAFT_ADD_LEARNER, 9);
    cr_assert_eq(refused(), RAFT_REFUSED_NOT_LEADER);
    solo_lead(&solo);
    change(RAFT_ADD_LEARNER, 9);
    cr_assert_eq(refused(), RAFT_REFUSED_TOO_EARLY);
    cr_assert(!is_member(9));
    solo_attach(&solo, 2, 0);
    solo_ack(&solo, 2, 1);
    change(RAFT_ADD_LEARNER, 9);
    cr_assert(is_member(9));
    cr_assert_not_null(solo_effect(&solo, RAFT_FX_CONFIGURATION));
    change(RAFT_REMOVE, 3);
    cr_assert_eq(refused(), RAFT_REFUSED_BUSY);
}

Test(raft_log_rules, changes_that_make_no_sense)
{
    start(RAFT_MEMORY, 3);
    solo_ready(&solo);
    change(RAFT_ADD_LEARNER, 2);
    cr_assert_eq(refused(), RAFT_REFUSED_INVALID);
    change(RAFT_ADD_LEARNER, 0);
    cr_assert_eq(refused(), RAFT_REFUSED_INVALID);
    change(RAFT_PROMOTE, 2);
    cr_assert_eq(refused(), RAFT_REFUSED_INVALID);
    change(RAFT_PROMOTE, 8);
    cr_assert_eq(refused(), RAFT_REFUSED_INVALID);
    change(RAFT_REMOVE, 8);
    cr_assert_eq(refused(), RAFT_REFUSED_INVALID);
    cr_assert_eq(solo_view(&solo).peers_count, 3);
}

Test(raft_log_rules, only_a_learner_that_caught_up_is_promoted)
{
    start(RAFT_MEMORY, 3);
    solo_ready(&solo);
    change(RAFT_ADD_LEARNER, 9);
    solo_ack(&solo, 2, 2);
    change(RAFT_PROMOTE, 9);
    cr_assert_eq(refused(), RAFT_REFUSED_BEHIND, "it never answered");
    solo_attach(&solo, 9, 0);
    change(RAFT_PROMOTE, 9);
    cr_assert_eq(refused(), RAFT_REFUSED_BEHIND, "it has nothing");
    solo_ack(&solo, 9, 2);
    change(RAFT_PROMOTE, 9);
    cr_assert_eq(refused(), 0);
    cr_assert_eq(solo_view(&solo).configuration->members[3].role, RAFT_VOTER);
}

/* A learner's copies and answers count for nothing. */
Test(raft_log_rules, learners_do_not_count)
{
    start(RAFT_MEMORY, 3);
    solo_ready(&solo);
    change(RAFT_ADD_LEARNER, 9);
    solo_ack(&solo, 2, 2);
    cr_assert(solo_propose(&solo, 8));
    solo_attach(&solo, 9, 0);
    solo_ack(&solo, 9, 3);
    cr_assert_eq(solo_view(&solo).commit_index, 2);
}

/* "Session isolation": removed and added again in one term; a late acknowledgement of its former
 * time must not count. */
Test(raft_log_rules, readded_member_starts_from_nothing)
{
    start(RAFT_MEMORY, 3);
    solo_ready(&solo);
    solo_attach(&solo, 3, 0);
    struct raft_view view = solo_view(&solo);
    struct raft_message late = ack_of(3, 1, 1, solo_peer(&view, 3)->grant);
    change(RAFT_REMOVE, 3);
    solo_ack(&solo, 2, 2);
    change(RAFT_ADD_LEARNER, 3);
    solo_ack(&solo, 2, 3);
    solo_message(&solo, late);
    view = solo_view(&solo);
    cr_assert_eq(solo_peer(&view, 3)->match_index, 0);
    solo_attach(&solo, 3, 0);
    solo_message(&solo, late);
    view = solo_view(&solo);
    cr_assert_eq(solo_peer(&view, 3)->match_index, 0);
}

/* Rolled back with the log, whether the one before is in the log or below it. */
Test(raft_log_rules, configuration_is_cut_with_its_entry)
{
    struct raft_options options = solo_options(RAFT_MEMORY);

    for (int below = 0; below <= 1; below++) {
        solo_memory(&solo, &options);
        solo_boot(&solo, 0, 0, 3);
        solo_ready(&solo);
        change(RAFT_ADD_LEARNER, 8); /* entry 2 */
        solo_ack(&solo, 2, 2);
        if (below) { /* ... goes below the base */
            while (solo_propose(&solo, 3000))
                solo_ack(&solo, 2, solo.log.last_index);
            solo_progress(&solo, RAFT_EV_APPLIED, 0, solo_view(&solo).commit_index, 0, 0);
            cr_assert_gt(solo.log.base.index, 2);
        }
        uint64_t common = solo.log.last_index;
        change(RAFT_ADD_LEARNER, 9);
        cr_assert(is_member(9));
        solo_message(&solo, (struct raft_message){.kind = RAFT_MSG_ATTACH,
                                                  .from = 3,
                                                  .term = 7,
                                                  .index = common,
                                                  .log_term = 1,
                                                  .round = 7,
                                                  .grant = 1});
        cr_assert_eq(solo.log.last_index, common);
        cr_assert(!is_member(9));
        cr_assert(is_member(8));
        cr_assert_eq(solo_view(&solo).configuration->index, 2);
        if (!below)
            solo_free(&solo);
    }
}

/* ---- snapshots and space --------------------------------------------------------------------- */

/* scylladb#9551, openraft#1808. */
Test(raft_log_rules, snapshot_over_a_longer_divergent_log)
{
    struct raft_options options = solo_options(RAFT_DISK);

    solo_memory(&solo, &options);
    solo_fill(&solo, 1, 9);
    solo_boot(&solo, 3, 0, 3);
    solo_message(&solo, (struct raft_message){.kind = RAFT_MSG_SNAPSHOT_NEEDED,
                                              .from = 2,
                                              .term = 3,
                                              .index = 5,
                                              .log_term = 3,
                                              .limit = 2});
    cr_assert_eq(solo_effect(&solo, RAFT_FX_FETCH_SNAPSHOT)->snapshot.node, 2);
    attach_from(2, 3, 4, 9, 1, 0);
    cr_assert_null(solo_effect(&solo, RAFT_FX_GRANT), "the ring stays closed during the install");
    installed(5, 3, 4000, 2);
    cr_assert_eq(solo.log.last_index, 5);
    cr_assert_eq(solo.log.end, 4000);
    cr_assert_eq(solo_effect(&solo, RAFT_FX_PERSIST_CUT)->range.first, 6);
    cr_assert_not_null(solo_effect(&solo, RAFT_FX_ENTRIES_LOST));
    cr_assert_eq(solo_view(&solo).peers_count, 2);
    cr_assert_eq(solo_view(&solo).commit_index, 5);
    cr_assert_eq(solo_sent(&solo, RAFT_MSG_SNAPSHOT_DONE, 2)->index, 5);
    attach_from(2, 3, 4, 5, 3, 0);
    cr_assert_not_null(solo_effect(&solo, RAFT_FX_GRANT));
}

/* A snapshot whose last entry the log holds takes nothing away. */
Test(raft_log_rules, snapshot_within_the_log)
{
    struct raft_options options = solo_options(RAFT_DISK);

    solo_memory(&solo, &options);
    solo_fill(&solo, 3, 9);
    solo_boot(&solo, 3, 0, 3);
    uint64_t position = log_end_of(&solo.log, 5);
    installed(5, 3, position, 3);
    cr_assert_eq(solo.log.last_index, 9);
    cr_assert_eq(solo.log.base.index, 5);
    cr_assert_eq(solo.log.base.position, position);
    cr_assert_null(solo_effect(&solo, RAFT_FX_PERSIST_CUT));
}

Test(raft_log_rules, snapshot_given_up)
{
    start(RAFT_DISK, 3);
    solo_message(
        &solo, (struct raft_message){
                   .kind = RAFT_MSG_SNAPSHOT_NEEDED, .from = 2, .term = 1, .index = 5, .grant = 1});
    solo_message(
        &solo, (struct raft_message){
                   .kind = RAFT_MSG_SNAPSHOT_NEEDED, .from = 2, .term = 1, .index = 5, .grant = 1});
    cr_assert_null(solo_effect(&solo, RAFT_FX_FETCH_SNAPSHOT), "one is under way");
    installed(0, 0, 0, 0);
    cr_assert_eq(solo_view(&solo).peers_count, 3);
    attach_from(2, 1, 4, 0, 0, 0);
    cr_assert_not_null(solo_effect(&solo, RAFT_FX_GRANT));
}

/* Disk: only what a durable snapshot covers is released, however much is applied. */
Test(raft_log_rules, disk_releases_what_a_snapshot_covers)
{
    start(RAFT_DISK, 1);
    solo_tick(&solo);
    solo_hard_durable(&solo);
    while (solo_propose(&solo, 2000))
        ;
    uint64_t last = solo.log.last_index;
    solo_progress(&solo, RAFT_EV_DURABLE, 0, last, 1, 0);
    solo_progress(&solo, RAFT_EV_APPLIED, 0, last, 0, 0);
    cr_assert_eq(solo.log.base.index, 0);
    cr_assert_null(raft_reserve(solo.raft, 2000));
    solo_progress(&solo, RAFT_EV_SNAPSHOT_SAVED, 0, last / 2, 0, 0);
    cr_assert_gt(solo.log.base.index, 0);
    cr_assert_leq(solo.log.base.index, last / 2);
    cr_assert_not_null(raft_reserve(solo.raft, 2000));
}

/* Nothing is released that the disk has yet to read from the ring. */
Test(raft_log_rules, undurable_entries_stay_in_the_ring)
{
    start(RAFT_DISK, 3);
    solo_lead(&solo);
    solo_attach(&solo, 2, 0);
    solo_attach(&solo, 3, 0);
    while (solo_propose(&solo, 2000)) {
        solo_ack(&solo, 2, solo.log.last_index);
        solo_ack(&solo, 3, solo.log.last_index);
    }
    uint64_t commit = solo_view(&solo).commit_index;
    cr_assert_gt(commit, 10);
    solo_progress(&solo, RAFT_EV_DURABLE, 0, 3, 1, 0);
    solo_progress(&solo, RAFT_EV_APPLIED, 0, commit, 0, 0);
    solo_progress(&solo, RAFT_EV_SNAPSHOT_SAVED, 0, commit, 0, 0);
    cr_assert_eq(solo.log.base.index, 3);
}

/* Bytes may come while no slot of the log is free. They count as received, so nobody sends them
 * again: they are taken when there is room. */
Test(raft_log_rules, bytes_behind_a_full_log_are_taken_later)
{
    struct raft_options options = solo_options(RAFT_DISK);

    solo_memory(&solo, &options);
    solo_fill(&solo, 1, SOLO_SLOTS);
    solo_boot(&solo, 1, 0, 3);
    solo_follow(&solo, 2, 1);
    solo_ship(&solo, 2, 3, 1, SOLO_SLOTS);
    cr_assert_eq(solo.log.last_index, SOLO_SLOTS);
    cr_assert_gt(solo.log.received, solo.log.end);
    solo_progress(&solo, RAFT_EV_APPLIED, 0, SOLO_SLOTS, 0, 0);
    solo_progress(&solo, RAFT_EV_SNAPSHOT_SAVED, 0, SOLO_SLOTS - 10, 0, 0);
    cr_assert_eq(solo.log.last_index, SOLO_SLOTS + 3);
    const struct raft_effect *persist = solo_effect(&solo, RAFT_FX_PERSIST_ENTRIES);
    cr_assert(persist != NULL && persist->range.first == SOLO_SLOTS + 1);
    solo_progress(&solo, RAFT_EV_DURABLE, 0, SOLO_SLOTS + 3, 2, 0);
    cr_assert_eq(solo_sent(&solo, RAFT_MSG_ACK, 2)->index, SOLO_SLOTS + 3);
}

/* A follower does not fill its log to the brim either. When all are restarted at once, nobody knows
 * what was committed: who leads then must find room for the no-op that commits it. */
Test(raft_log_rules, a_follower_keeps_room_for_a_no_op)
{
    struct raft_options options = solo_options(RAFT_DISK);

    solo_memory(&solo, &options);
    solo_fill(&solo, 1, SOLO_SLOTS - 30);
    solo_boot(&solo, 1, 0, 3);
    solo_follow(&solo, 2, 1);
    solo_ship(&solo, 2, 30, 1, 1);
    cr_assert_eq(solo.log.last_index, SOLO_SLOTS - SOLO_SLOTS / 16);
    solo_boot(&solo, 2, 0, 3); /* restarted */
    solo_lead(&solo);
    cr_assert_eq(solo.log.last_index, SOLO_SLOTS - SOLO_SLOTS / 16 + 1);
    cr_assert_eq(log_at(&solo.log, solo.log.last_index)->kind, LOG_NOOP);
}

/* Memory: what is applied goes when room is short, and a member that still needs it gets a
 * snapshot. */
Test(raft_log_rules, laggard_gets_a_snapshot)
{
    bool needed = false;

    start(RAFT_MEMORY, 3);
    solo_ready(&solo);
    solo_attach(&solo, 3, 0); /* and then silence */
    for (int i = 0; i < 100; i++) {
        cr_assert(solo_propose(&solo, 2000));
        solo_ack(&solo, 2, solo.log.last_index);
        solo_progress(&solo, RAFT_EV_APPLIED, 0, solo_view(&solo).commit_index, 0, 0);
    }
    struct raft_view view = solo_view(&solo);
    cr_assert_eq(solo_peer(&view, 2)->state, 2);
    cr_assert_eq(solo_peer(&view, 3)->state, 1, "detached, being attached anew");
    solo_message(&solo, (struct raft_message){.kind = RAFT_MSG_ATTACH_REPLY,
                                              .from = 3,
                                              .term = 1,
                                              .index = 1,
                                              .log_term = 1,
                                              .grant = solo_peer(&view, 3)->grant});
    needed = solo_effect(&solo, RAFT_FX_NEED_SNAPSHOT) != NULL;
    cr_assert(needed);
    cr_assert_eq(solo_sent(&solo, RAFT_MSG_SNAPSHOT_NEEDED, 3)->index, solo.log.base.index);
    solo_message(&solo, (struct raft_message){
                            .kind = RAFT_MSG_SNAPSHOT_DONE, .from = 3, .term = 1, .index = 90});
    cr_assert_not_null(solo_sent(&solo, RAFT_MSG_ATTACH, 3));
}

/* A log full of uncommitted entries leaves room for the no-ops of later leaders. */
Test(raft_log_rules, full_log_leaves_room_for_elections)
{
    start(RAFT_MEMORY, 3);
    solo_ready(&solo);
    while (solo_propose(&solo, 500))
        ;
    uint64_t last = solo.log.last_index;
    for (int i = 0; i < 10; i++) {
        solo_message(&solo, (struct raft_message){.kind = RAFT_MSG_HEARTBEAT,
                                                  .from = 3,
                                                  .term = solo_view(&solo).term + 1,
                                                  .round = 1});
        solo.now_ns += 300 * MS;
        solo_lead(&solo);
        cr_assert_eq(solo.log.last_index, last + (uint64_t)i + 1);
    }
}
