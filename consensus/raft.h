/* SPDX-License-Identifier: Apache-2.0
 *
 * The Raft core (Ongaro, "Consensus: Bridging Theory and Practice", 2014; section numbers below are
 * the thesis'). One function takes an event and gives effects:
 *
 *     raft_step(raft, &event, &effects)
 *
 * It is pure: no clock (every event carries `now_ns`), no I/O, no allocation after raft_init, no
 * global state. The driver (dataplane/shard, or the simulator) performs the effects in order and
 * reports their completion as events. Nothing that promises durability is emitted before the event
 * that reports it: a SEND effect may always be sent at once.
 *
 * Shipping is not the core's business: it says SHIP up to a position, and hears SHIPPED (a
 * one-sided write completed: counts in memory durability) or ACKED (the follower says so). Write
 * access to a replica's ring is granted and revoked by effects; messages are the implementation in
 * which both complete at once.
 */
#ifndef BELAY_CONSENSUS_RAFT_H
#define BELAY_CONSENSUS_RAFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "consensus/log.h"

enum {
    RAFT_MEMBERS_MAX = 9,   /* 5 voters, learners and those in transit */
    RAFT_EFFECTS_MAX = 128, /* of one step; asserted */
    RAFT_READS_MAX = 64,    /* ReadIndex batches waiting at once; more are answered READ_FAILED */
    RAFT_PAYLOAD_BYTES_MAX = 64 * 1024, /* and at most a quarter of the ring */
};

enum raft_role { RAFT_FOLLOWER, RAFT_PRECANDIDATE, RAFT_CANDIDATE, RAFT_LEADER };
enum raft_member_role { RAFT_LEARNER = 0, RAFT_VOTER = 1 };
enum raft_durability { RAFT_DISK, RAFT_MEMORY };

struct raft_member {
    uint64_t replica_id; /* random, never reused */
    uint16_t node;
    uint8_t role; /* enum raft_member_role */
    uint8_t zero[5];
};

struct raft_configuration {
    uint64_t index; /* of the entry that holds it; 0 = bootstrap */
    uint32_t count;
    uint32_t zero;
    struct raft_member members[RAFT_MEMBERS_MAX];
};

struct raft_options {
    uint64_t replica_id;
    uint16_t node;
    enum raft_durability durability;
    uint64_t heartbeat_ns;
    uint64_t election_timeout_ns; /* the real one is drawn from [1, 2) of it each time */
    uint64_t rng_seed;
    bool lease_reads;           /* opt-in (6.4.1): reads without a round while the lease is valid */
    uint64_t lease_drift_ppm;   /* stated bound on clock rate difference for lease_reads */
    uint32_t ship_window_bytes; /* unacknowledged bytes per follower, <= a quarter of the ring */
};

/* What survives a restart. */
struct raft_hard_state {
    uint64_t term;
    uint64_t vote; /* replica id voted for in `term`, 0 = none */
};

/* ---- messages between cores ------------------------------------------------------------------ */

enum raft_message_kind {
    RAFT_MSG_PREVOTE = 1,
    RAFT_MSG_PREVOTE_REPLY = 2,
    RAFT_MSG_VOTE = 3,
    RAFT_MSG_VOTE_REPLY = 4,
    RAFT_MSG_ATTACH = 5,       /* leader: is (index, log_term) in your log? */
    RAFT_MSG_ATTACH_REPLY = 6, /* granted, or a hint to try next (log_term, index) */
    RAFT_MSG_ACK = 7,          /* follower: durable up to (index, log_term) under `grant` */
    RAFT_MSG_HEARTBEAT = 8,
    RAFT_MSG_HEARTBEAT_REPLY = 9,
    RAFT_MSG_TIMEOUT_NOW = 10,     /* 3.10 */
    RAFT_MSG_SNAPSHOT_NEEDED = 11, /* leader: your log is too far behind; fetch a snapshot */
    RAFT_MSG_SNAPSHOT_DONE = 12,   /* follower: installed up to (index, log_term) */
    RAFT_MSG_KIND_COUNT
};

struct raft_message {
    uint8_t kind;
    uint8_t flags; /* RAFT_MSG_GRANTED, RAFT_MSG_TRANSFER, ... */
    uint64_t from; /* replica ids */
    uint64_t to;
    uint64_t term;
    uint64_t index;
    uint64_t log_term;
    uint64_t grant;    /* number of the attach this belongs to */
    uint64_t commit;   /* leader's commit index, or the follower's */
    uint64_t round;    /* heartbeat round, echoed: ReadIndex, check-quorum, leader lease.
                          ATTACH: term of the leader's entry at index + 1, 0 = it has none */
    uint64_t position; /* ATTACH, granted ATTACH_REPLY: where shipping starts; ACK and
                          HEARTBEAT_REPLY: contiguous bytes received */
    uint64_t limit;    /* ATTACH_REPLY, ACK, HEARTBEAT_REPLY: the follower's log_limit().
                          ATTACH, HEARTBEAT, SNAPSHOT_NEEDED: the leader's node */
};

enum raft_message_flags {
    RAFT_MSG_GRANTED = 1,
    RAFT_MSG_TRANSFER = 2,
    RAFT_MSG_RETRANSMIT = 4,
    /* ATTACH: the leader could write the ring itself (set by its driver, which knows the device).
     * Granted ATTACH_REPLY: the ring is open to it that way. So both ends agree on a grant's mode,
     * and it never changes within a grant. */
    RAFT_MSG_ONE_SIDED = 8,
};

/* Fixed-size little-endian form. The decoder is total; false = not a message. */
enum { RAFT_MESSAGE_BYTES = 88 };
void raft_message_encode(const struct raft_message *message, uint8_t bytes[RAFT_MESSAGE_BYTES]);
bool raft_message_decode(struct raft_message *message, const uint8_t *bytes, size_t length);

/* Payload of a LOG_CONFIGURATION entry. encode returns the length. */
enum { RAFT_CONFIGURATION_BYTES_MAX = 8 + RAFT_MEMBERS_MAX * 16 };
size_t raft_configuration_encode(const struct raft_configuration *configuration,
                                 uint8_t bytes[RAFT_CONFIGURATION_BYTES_MAX]);
bool raft_configuration_decode(struct raft_configuration *configuration, const uint8_t *bytes,
                               size_t length);

/* ---- events ---------------------------------------------------------------------------------- */

enum raft_event_kind {
    RAFT_EV_TICK,         /* time passed; give it when raft_next_deadline() is due */
    RAFT_EV_MESSAGE,      /* .message */
    RAFT_EV_PROPOSE,      /* .propose: the payload lies in the space raft_reserve() gave */
    RAFT_EV_HARD_DURABLE, /* .hard */
    RAFT_EV_DURABLE,      /* .progress: own log is durable up to (index, term) */
    RAFT_EV_RECEIVED,     /* .progress.grant: shipped bytes were put in the ring */
    RAFT_EV_SHIPPED, /* .progress: one-sided write to .peer complete up to (index, term, grant) */
    RAFT_EV_SHIP_FAILED, /* .progress.peer/.grant: outcome unknown; stop counting it (re-attach) */
    RAFT_EV_GRANTED,     /* .progress.grant: own ring is open to that grant's leader */
    RAFT_EV_REVOKED,     /* .progress.grant: nothing lands any more */
    RAFT_EV_APPLIED,     /* .progress.index: the state machine is there */
    RAFT_EV_READ,        /* .read.context */
    RAFT_EV_CHANGE,      /* .change: one-at-a-time membership change (4.1, 4.2.1) */
    RAFT_EV_TRANSFER,    /* .progress.peer: leadership to it; 0 = whoever is best */
    RAFT_EV_SNAPSHOT_INSTALLED, /* .snapshot: the state machine now holds it (and, disk durability,
                                   so does the disk); the core resets the log. base.index 0: the
                                   fetch was given up, the state is what it was */
    RAFT_EV_SNAPSHOT_SAVED, /* .progress.index: a durable snapshot stands for the log up to it */
    RAFT_EV_STEP_DOWN,      /* disk full or shutting down: give up leadership, do not campaign */
};

enum raft_change_kind { RAFT_ADD_LEARNER = 1, RAFT_PROMOTE = 2, RAFT_REMOVE = 3 };

struct raft_event {
    enum raft_event_kind kind;
    uint64_t now_ns; /* the replica's own monotonic clock */
    union {
        struct raft_message message;
        struct {
            uint16_t kind; /* LOG_COMMANDS or LOG_LIMITS */
            size_t payload_bytes;
        } propose;
        struct raft_hard_state hard;
        struct {
            uint64_t peer; /* replica id */
            uint64_t index;
            uint64_t term;
            uint64_t grant;
            uint64_t
                commit; /* RECEIVED: the leader's commit index as shipped with the bytes, or 0 */
            bool one_sided; /* GRANTED: the leader writes the ring itself; false: messages */
        } progress;
        struct {
            uint64_t context;
        } read;
        struct {
            enum raft_change_kind kind;
            struct raft_member member;
        } change;
        struct {
            struct log_base base;
            struct raft_configuration configuration;
        } snapshot;
    };
};

/* ---- effects --------------------------------------------------------------------------------- */

enum raft_effect_kind {
    RAFT_FX_SEND,            /* .message */
    RAFT_FX_PERSIST_HARD,    /* .hard: term and vote in one write; answer with HARD_DURABLE */
    RAFT_FX_PERSIST_ENTRIES, /* .range: log entries first..last; answer with DURABLE */
    RAFT_FX_PERSIST_CUT,     /* .range.first: the log ends below it (before entries that follow) */
    RAFT_FX_SHIP,            /* .ship: the peer may be sent bytes [from, to) under grant */
    RAFT_FX_DETACH,          /* .ship.peer: stop shipping to it */
    RAFT_FX_GRANT,           /* .grant: open the own ring for the leader; answer GRANTED */
    RAFT_FX_REVOKE,          /* .grant: close it; answer REVOKED */
    RAFT_FX_COMMITTED,       /* .range.last: apply up to it (and its entries are final) */
    RAFT_FX_ROLE,            /* .role: role, term or known leader changed */
    RAFT_FX_CONFIGURATION,   /* .configuration: in force now (takes effect on append) */
    RAFT_FX_NEED_SNAPSHOT,   /* .snapshot.peer: leader: its log needs a snapshot to be sent */
    RAFT_FX_FETCH_SNAPSHOT,  /* .snapshot.peer: follower: get one from the leader; install; report.
                                Repeated when it takes long: harmless while one is under way */
    RAFT_FX_READ_READY,      /* .read: serve once applied >= index */
    RAFT_FX_READ_FAILED,     /* .read: not leader, or stepped down meanwhile */
    RAFT_FX_CHANGE_REFUSED,  /* .refused: why a change or a transfer is not begun */
    RAFT_FX_ENTRIES_LOST,    /* .range.first: own proposals from it on were cut */
};

enum raft_refusal {
    RAFT_REFUSED_NOT_LEADER = 1,
    RAFT_REFUSED_BUSY,      /* another change is not yet committed */
    RAFT_REFUSED_TOO_EARLY, /* this term's no-op is not committed yet */
    RAFT_REFUSED_INVALID,   /* already there, not there, not a learner, full, last voter */
    RAFT_REFUSED_BEHIND,    /* promotion of a learner that has not caught up */
};

struct raft_effect {
    enum raft_effect_kind kind;
    union {
        struct raft_message message;
        struct raft_hard_state hard;
        struct {
            uint64_t first;
            uint64_t last;
        } range;
        struct {
            uint64_t peer;
            uint64_t grant;
            uint64_t from; /* positions */
            uint64_t to;
            uint64_t last_index; /* whose end `to` is */
            uint64_t last_term;
            bool one_sided; /* the mode of this grant: write its ring; false: messages */
        } ship;
        struct {
            uint64_t leader;
            uint64_t number;
            uint64_t position; /* first byte that will be written */
            uint64_t term;     /* the leader's; (term, number) names a grant */
            bool one_sided;    /* GRANT: the leader offers to write the ring itself */
        } grant;
        struct {
            enum raft_role role;
            uint64_t term;
            uint64_t leader; /* replica id, 0 = not known */
            uint16_t leader_node;
        } role;
        struct raft_configuration configuration;
        struct {
            uint64_t peer;
            uint16_t node;
        } snapshot;
        struct {
            uint64_t context;
            uint64_t index;
        } read;
        struct {
            enum raft_refusal why;
        } refused;
    };
};

struct raft_effects {
    uint32_t count;
    struct raft_effect items[RAFT_EFFECTS_MAX];
};

/* ---- the core -------------------------------------------------------------------------------- */

struct raft; /* opaque; its size is raft_memory_bytes() */

size_t raft_memory_bytes(void);

/* `log` is initialised and holds what recovery found (base = snapshot). `configuration` is the
 * newest one at or below the log's base; newer ones in the log are found here. The caller owns
 * `memory` (64- byte aligned) and `log`; both outlive the core. `now_ns` starts the election timer.
 */
struct raft *raft_init(void *memory, const struct raft_options *options, struct log *log,
                       const struct raft_hard_state *hard,
                       const struct raft_configuration *configuration, uint64_t now_ns);

/* Takes one event; appends effects (effects->count is set to 0 first). */
void raft_step(struct raft *raft, const struct raft_event *event, struct raft_effects *effects);

/* When the next TICK is wanted (same clock as now_ns). */
uint64_t raft_next_deadline(const struct raft *raft);

/* Leader only: space in the ring for the next entry's payload, or NULL (not leader, transferring,
 * ring full: followers or the state machine lag). PROPOSE must be the very next step: a reservation
 * is void after any other. */
uint8_t *raft_reserve(struct raft *raft, size_t payload_bytes_max);

/* Shard time: what an entry proposed now would be stamped (section 6 of docs/design). Leaders only.
 */
uint64_t raft_shard_time(const struct raft *raft, uint64_t now_ns);

/* A reader's view; valid until the next step. */
struct raft_peer_view {
    struct raft_member member;
    uint64_t match_index;
    uint64_t grant;
    uint8_t state; /* 0 detached, 1 attaching, 2 attached, 3 snapshot */
    bool active;   /* heard from within the last election timeout */
};

struct raft_view {
    enum raft_role role;
    uint64_t term;
    uint64_t vote;
    uint64_t leader;
    uint16_t leader_node;
    uint64_t commit_index;
    uint64_t applied_index;
    uint64_t last_index;
    uint64_t durable_index;
    uint64_t ignored; /* events and messages that came too late or do not belong here */
    bool ready;       /* leader whose term's no-op is committed: may serve */
    uint64_t last_leader_contact_ns; /* follower: now_ns of the last valid leader message */
    const struct raft_configuration *configuration;
    uint32_t peers_count;
    struct raft_peer_view peers[RAFT_MEMBERS_MAX];
};
void raft_look(const struct raft *raft, struct raft_view *view);

/* Commit index of a quorum of match indexes, and the result of a vote: the pure quorum functions,
 * also tested alone. votes: 0 missing, 1 yes, 2 no. */
enum raft_vote_result { RAFT_VOTE_PENDING, RAFT_VOTE_WON, RAFT_VOTE_LOST };
uint64_t raft_quorum_commit(const uint64_t *match, size_t voters); /* no voters: UINT64_MAX */
enum raft_vote_result raft_quorum_vote(const uint8_t *votes, size_t voters);

#endif
