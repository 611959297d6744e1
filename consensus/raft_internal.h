/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the Raft core: its state, and which file does what.
 *
 *   raft_core.c        raft_init, raft_step, effects, terms and roles, the view
 *   raft_election.c    pre-vote, vote, revoking the leader's access before either counts
 *   raft_leader.c      peers: attach, ship, acknowledge, commit; heartbeats
 *   raft_follower.c    attach, received bytes, acknowledgements, cutting
 *   raft_read.c        ReadIndex and lease reads
 *   raft_membership.c  configurations
 *   raft_transfer.c    leadership transfer, stepping down
 *   raft_snapshot.c    replacing the log by a snapshot; releasing log space
 *
 * All functions run inside one raft_step; effects go to raft->effects.
 */
#ifndef BELAY_CONSENSUS_RAFT_INTERNAL_H
#define BELAY_CONSENSUS_RAFT_INTERNAL_H

#include "consensus/raft.h"

enum {
    RAFT_ROUNDS_KEPT = 64, /* send times of that many rounds are known; older ones earn no lease */
};

/* A commit that no shipped bytes announced is announced by a heartbeat after this time. */
#define RAFT_ANNOUNCE_NS UINT64_C(1000000)

enum raft_peer_state {
    RAFT_PEER_DETACHED,  /* not leader, or this replica itself */
    RAFT_PEER_ATTACHING, /* the highest common entry is being looked for */
    RAFT_PEER_ATTACHED,  /* bytes flow */
    RAFT_PEER_SNAPSHOT,  /* it needs entries that are gone */
};

/* A leader's knowledge of one member (thesis 3.5); `vote` is a candidate's. */
struct raft_peer {
    uint64_t id;
    uint64_t match_index;      /* durable there and equal to ours; never falls within a term */
    uint64_t grant;            /* of the present attach; unique in this replica's lifetime */
    uint64_t probe_index;      /* ATTACHING: what the last ATTACH asked for */
    uint64_t sent_index;       /* ATTACHED: last entry that SHIP covered */
    uint64_t sent_position;    /* its end */
    uint64_t acked_position;   /* contiguous bytes that are known to be there; <= sent_position */
    uint64_t limit;            /* its log_limit(), as last heard */
    uint64_t progress_ns;      /* when acked_position last moved or nothing was outstanding */
    uint64_t heard_ns;         /* when any message of this term last came from it */
    uint64_t round_acked;      /* highest heartbeat round it answered in this term */
    uint64_t attach_round;     /* rounds up to this were sent before it was attached */
    uint64_t commit_announced; /* commit index that it has been told of */
    uint8_t state;             /* enum raft_peer_state */
    uint8_t vote;              /* 0 missing, 1 yes, 2 no */
    bool one_sided;            /* this grant's bytes are written: they carry no commit index */
};

enum raft_grant_state {
    RAFT_GRANT_NONE,
    RAFT_GRANT_OPENING,  /* FX_GRANT is out */
    RAFT_GRANT_OPEN,     /* the leader may write our ring */
    RAFT_GRANT_REVOKING, /* FX_REVOKE is out; what waits for it is in `pending` */
};

/* A follower's side of an attach. */
struct raft_grant {
    enum raft_grant_state state;
    bool one_sided;
    uint64_t leader;
    uint64_t term;
    uint64_t number;        /* highest ever opened in `term`, also when the state is NONE */
    uint64_t position_sent; /* received position in the last acknowledgement */
    uint64_t limit_sent;    /* log limit the leader was last told */
};

/* What goes on when the ring is closed, or the disk has caught up. One place: what comes while it
 * is taken is dropped, its sender repeats it. */
enum raft_pending_kind {
    RAFT_PENDING_NONE,
    RAFT_PENDING_MESSAGE,  /* after REVOKED: take this message */
    RAFT_PENDING_CAMPAIGN, /* after REVOKED: stand as candidate */
    RAFT_PENDING_DURABLE,  /* after the whole log is durable: take this message */
    RAFT_PENDING_NOTHING,  /* after REVOKED: nothing */
};

struct raft_pending {
    enum raft_pending_kind kind;
    bool transfer; /* the campaign was ordered by the leader */
    struct raft_message message;
};

struct raft_pending_read {
    uint64_t context;
    uint64_t index; /* commit index when its round started */
    uint64_t round; /* 0 = no round has started since it came */
};

struct raft {
    struct raft_options options;
    struct log *log;
    struct raft_effects *effects; /* of the step that runs */
    uint64_t now_ns;
    uint64_t rng;

    struct raft_hard_state hard;
    struct raft_hard_state hard_durable; /* what HARD_DURABLE reported */
    bool hard_dirty;                     /* a PERSIST_HARD is due in this step */

    enum raft_role role;
    uint64_t leader; /* replica id, 0 = not known */
    uint16_t leader_node;
    bool campaigns; /* false after STEP_DOWN */
    struct {
        enum raft_role role;
        uint64_t term;
        uint64_t leader;
    } reported; /* by the last ROLE effect */

    uint64_t commit_index;
    uint64_t applied_index;
    uint64_t durable_index; /* our own log is durable up to here; memory durability: last_index */
    uint64_t saved_index;   /* a durable snapshot covers the log up to here */
    uint64_t matched_term;  /* term whose leader's log ours is a prefix of */

    struct raft_configuration configuration;      /* in force: the newest in the log, or base */
    struct raft_configuration base_configuration; /* newest at or below log->base.index */
    struct raft_peer peers[RAFT_MEMBERS_MAX];     /* same order as configuration.members */

    /* elections */
    uint64_t election_deadline_ns;
    uint64_t resend_ns;      /* candidates: when requests are repeated */
    uint64_t contact_ns;     /* last valid message of a leader */
    uint64_t quiet_until_ns; /* no vote before: an older life may have promised a lease */
    uint64_t vote_reply_to;  /* granted, but not durable yet: 0 = none */
    bool campaign_transfer;  /* this candidacy was ordered by the leader */
    struct raft_grant grant;
    struct raft_pending pending;

    /* leader */
    uint64_t term_start_index; /* of this term's no-op; 0 = there was no room for it yet */
    uint64_t grants;           /* numbers given so far; never reset, so a completion of an earlier
                                  leadership fits no later attach */
    uint64_t round;            /* last heartbeat round; never reset */
    uint64_t round_sent_ns[RAFT_ROUNDS_KEPT];
    uint64_t heartbeat_ns; /* next one */
    uint64_t announce_ns;  /* heartbeat that only announces a commit; UINT64_MAX = none due */
    uint64_t shard_time_base_ns;
    uint64_t leader_since_ns;
    uint64_t lease_until_ns;
    bool lease_forfeited; /* a TIMEOUT_NOW of this term may still be on its way */
    uint64_t transfer_target;
    uint64_t transfer_deadline_ns;
    uint64_t read_round; /* last round that was started for reads */
    uint32_t reads_count;
    struct raft_pending_read reads[RAFT_READS_MAX];

    /* snapshot install */
    bool fetching;
    uint64_t fetch_from;
    uint64_t fetch_asked_ns;

    uint64_t ignored;
};

/* raft_core.c */
struct raft_effect *raft_emit(struct raft *raft, enum raft_effect_kind kind);
struct raft_message *raft_send(struct raft *raft, enum raft_message_kind kind, uint64_t to);
void raft_become_follower(struct raft *raft, uint64_t term, uint64_t leader);
void raft_flush_hard(struct raft *raft);
void raft_message_step(struct raft *raft, const struct raft_message *message);
uint64_t raft_random_timeout(struct raft *raft);
void raft_ignore(struct raft *raft);

/* raft_election.c */
void raft_campaign(struct raft *raft, bool transfer, bool prevote);
void raft_revoke(struct raft *raft, enum raft_pending_kind kind,
                 const struct raft_message *message);
void raft_on_revoked(struct raft *raft, uint64_t number);
void raft_on_prevote(struct raft *raft, const struct raft_message *message);
void raft_on_prevote_reply(struct raft *raft, const struct raft_message *message);
void raft_on_vote(struct raft *raft, const struct raft_message *message);
void raft_on_vote_reply(struct raft *raft, const struct raft_message *message);
bool raft_refuses_election(const struct raft *raft, const struct raft_message *message);
void raft_hard_reached(struct raft *raft);
void raft_election_tick(struct raft *raft);

/* raft_leader.c */
void raft_become_leader(struct raft *raft);
void raft_leader_teardown(struct raft *raft);
void raft_leader_tick(struct raft *raft);
void raft_append(struct raft *raft, uint16_t kind, size_t payload_bytes);
void raft_advance_commit(struct raft *raft);
void raft_ship_all(struct raft *raft);
void raft_peer_attach(struct raft *raft, struct raft_peer *peer);
void raft_peer_needs_snapshot(struct raft *raft, struct raft_peer *peer);
void raft_round_start(struct raft *raft);
void raft_on_attach_reply(struct raft *raft, const struct raft_message *message);
void raft_on_ack(struct raft *raft, const struct raft_message *message);
void raft_on_heartbeat_reply(struct raft *raft, const struct raft_message *message);
void raft_on_shipped(struct raft *raft, const struct raft_event *event);
void raft_on_ship_failed(struct raft *raft, const struct raft_event *event);
uint64_t raft_last_not_after_term(const struct log *log, uint64_t bound, uint64_t term);

/* raft_follower.c */
void raft_on_attach(struct raft *raft, const struct raft_message *message);
void raft_on_heartbeat(struct raft *raft, const struct raft_message *message);
void raft_on_granted(struct raft *raft, const struct raft_event *event);
void raft_on_received(struct raft *raft, const struct raft_event *event);
void raft_accept_leader(struct raft *raft, const struct raft_message *message);
void raft_adopt_received(struct raft *raft);
void raft_follower_commit(struct raft *raft, uint64_t commit_index);
void raft_ack(struct raft *raft);
void raft_ack_limit(struct raft *raft);
void raft_answer_heartbeat(struct raft *raft, uint64_t to, uint64_t round);

/* raft_read.c */
void raft_on_read(struct raft *raft, uint64_t context);
void raft_reads_confirm(struct raft *raft);
void raft_reads_start(struct raft *raft);
void raft_reads_fail(struct raft *raft);

/* raft_membership.c */
void raft_on_change(struct raft *raft, const struct raft_event *event);
void raft_set_configuration(struct raft *raft, const struct raft_configuration *configuration);
void raft_configuration_from_log(struct raft *raft, uint64_t first);
void raft_configuration_after_cut(struct raft *raft);
void raft_configuration_release(struct raft *raft, uint64_t index);
struct raft_peer *raft_peer_of(struct raft *raft, uint64_t id);
const struct raft_member *raft_member_of(const struct raft *raft, uint64_t id);
bool raft_is_voter(const struct raft *raft);
bool raft_may_stand(const struct raft *raft);

/* raft_transfer.c */
void raft_on_transfer(struct raft *raft, uint64_t target);
void raft_on_timeout_now(struct raft *raft, const struct raft_message *message);
void raft_on_step_down(struct raft *raft);
void raft_transfer_progress(struct raft *raft);
void raft_transfer_tick(struct raft *raft);
void raft_hand_over(struct raft *raft);

/* raft_snapshot.c */
void raft_on_snapshot_needed(struct raft *raft, const struct raft_message *message);
void raft_on_snapshot_done(struct raft *raft, const struct raft_message *message);
void raft_on_snapshot_installed(struct raft *raft, const struct raft_event *event);
void raft_make_room(struct raft *raft);

static inline bool raft_is_leader(const struct raft *raft)
{
    return raft->role == RAFT_LEADER;
}

static inline bool raft_on_disk(const struct raft *raft)
{
    return raft->options.durability == RAFT_DISK;
}

/* Leader whose term has a committed entry: only then is its commit index the group's (6.4, 8). */
static inline bool raft_is_ready(const struct raft *raft)
{
    return raft_is_leader(raft) && raft->term_start_index != 0 &&
           raft->commit_index >= raft->term_start_index;
}

static inline uint64_t raft_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t raft_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

#endif
