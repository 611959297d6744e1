/* SPDX-License-Identifier: Apache-2.0
 *
 * A cluster of Raft cores in one process, for tests: a network of packets that the test delivers,
 * drops or repeats; disks that keep what was written in order and lose the rest at a crash; message
 * and one-sided shipping. The rig performs effects and checks, on every commit, that no two
 * replicas ever commit different entries at one index. It shares no code with the core but the log
 * ring.
 */
#ifndef BELAY_TESTS_RAFT_RIG_H
#define BELAY_TESTS_RAFT_RIG_H

#include <stdio.h>

#include "consensus/log.h"
#include "consensus/raft.h"
#include "consensus/ship.h"

enum { RIG_NODES_MAX = 24, RIG_INDEX_MAX = 65536, RIG_DATAGRAM_BYTES = 256 };

struct rig_options {
    enum raft_durability durability;
    bool one_sided;
    uint64_t ring_bytes;
    uint64_t slots_count;
    uint32_t window_bytes;
    uint64_t heartbeat_ns;
    uint64_t election_timeout_ns;
    bool lease_reads;
    uint64_t lease_drift_ppm;
    uint64_t seed;
    bool apply_by_hand;  /* committed entries wait for rig_apply() */
    bool revoke_by_hand; /* REVOKED waits for rig_revoked() */
    bool grant_by_hand;  /* GRANTED waits for rig_granted() */
};

enum rig_packet_kind {
    RIG_MESSAGE,  /* between cores */
    RIG_SHIP,     /* log bytes in a datagram */
    RIG_WRITE,    /* one-sided write under way */
    RIG_SHIPPED,  /* its completion, on the way to the writer */
    RIG_FAILED,   /* its failure */
    RIG_POLL,     /* the follower looks at its ring */
    RIG_SNAPSHOT, /* a snapshot on its way to its reader */
};

struct rig_packet {
    uint64_t id;
    enum rig_packet_kind kind;
    uint64_t from, to;  /* replica ids */
    uint64_t from_life; /* completions and polls belong to one life of a process */
    uint64_t due_ns;    /* timed runs */
    struct raft_message message;
    uint64_t term, grant, position, commit, last_index, last_term;
    bool refused; /* RIG_WRITE: the network gave up */
    size_t length;
    uint8_t *bytes;
    struct log_base base;
    struct raft_configuration configuration;
};

enum rig_disk_kind {
    RIG_DISK_HARD,
    RIG_DISK_ENTRIES,
    RIG_DISK_CUT,
    RIG_DISK_SAVE,
    RIG_DISK_INSTALL
};

struct rig_disk_op {
    enum rig_disk_kind kind;
    struct raft_hard_state hard;
    uint64_t first, last, last_term;
    struct log_base base;
    struct raft_configuration configuration;
    struct log_entry **entries;
    uint64_t due_ns;
};

struct rig_disk {
    struct raft_hard_state hard;
    struct log_base base;
    struct raft_configuration configuration;
    struct log_entry **entries; /* by index; NULL = not there */
    uint64_t last;
    struct rig_disk_op *ops; /* on the way */
    uint32_t ops_count;
};

struct rig_node {
    uint64_t id;
    uint64_t life; /* counts starts */
    bool alive;
    bool disk_held; /* completions wait for rig_disk_step() */
    void *raft_memory;
    void *log_memory;
    struct raft *raft;
    struct log log;
    struct rig_disk disk;
    struct {
        bool open;
        uint64_t leader, number, term;
    } access;                    /* who may write this node's ring */
    uint64_t granting, revoking; /* completions that wait */
    struct ship_sender senders[RIG_NODES_MAX];
    struct ship_receiver receiver;
    uint64_t broken[RIG_NODES_MAX]; /* one-sided: grant under which a write to that node failed;
                                       like a queue pair in error, all later ones fail too */
    uint64_t applied, committed;
    struct raft_configuration applied_configuration;
    enum raft_role role;
    int64_t clock_ppm;         /* how wrong its clock's rate is */
    struct raft_event *events; /* to be stepped */
    uint32_t events_count;
    uint64_t ready_context, ready_index; /* last READ_READY */
    uint64_t ready_count, failed_count;
    uint64_t refused; /* last CHANGE_REFUSED */
    uint64_t fetches, installs;
};

struct rig {
    struct rig_options options;
    uint64_t now_ns;
    uint64_t rng;
    struct rig_node nodes[RIG_NODES_MAX];
    uint32_t nodes_count;
    struct rig_packet *packets;
    uint32_t packets_count, packets_room;
    uint64_t packet_next;
    uint64_t *committed; /* chain checksum of the entry committed at index; 0 = none yet */
    uint64_t committed_max;
    uint64_t leader_of_term[4096]; /* election safety */
    void (*on_effect)(struct rig *rig, struct rig_node *node, const struct raft_effect *effect);
    void (*on_packet)(struct rig *rig, struct rig_packet *packet); /* gives it its due time */
    void (*on_disk)(struct rig *rig, struct rig_node *node, struct rig_disk_op *op);
    void *context;
};

void rig_init(struct rig *rig, const struct rig_options *options);
void rig_free(struct rig *rig);
uint64_t rig_random(struct rig *rig, uint64_t below);

/* A new blank replica under this configuration (its bootstrap, or none for one that joins). */
struct rig_node *rig_start(struct rig *rig, uint64_t id,
                           const struct raft_configuration *configuration);
struct rig_node *rig_node(struct rig *rig, uint64_t id);
void rig_crash(struct rig *rig, struct rig_node *node); /* what was not durable is gone */
void rig_restart(struct rig *rig, struct rig_node *node);
struct raft_configuration rig_configuration(const uint64_t *voters, uint32_t count);

/* Steps an event and everything that follows from it at once. */
void rig_event(struct rig *rig, struct rig_node *node, const struct raft_event *event);
void rig_tick(struct rig *rig, struct rig_node *node);
bool rig_propose(struct rig *rig, struct rig_node *node, size_t payload_bytes);
void rig_read(struct rig *rig, struct rig_node *node, uint64_t context);
void rig_change(struct rig *rig, struct rig_node *node, enum raft_change_kind kind, uint64_t id);
void rig_transfer(struct rig *rig, struct rig_node *node, uint64_t target);
void rig_save(struct rig *rig, struct rig_node *node); /* snapshot at the applied index */
void rig_apply(struct rig *rig, struct rig_node *node);
void rig_granted(struct rig *rig, struct rig_node *node);
void rig_revoked(struct rig *rig, struct rig_node *node);
void rig_pump(struct rig *rig, struct rig_node *node); /* datagrams that are due go out */

uint64_t rig_clock(const struct rig *rig, const struct rig_node *node);
struct raft_view rig_look(const struct rig_node *node);

/* Packets. Delivering or dropping removes it. */
void rig_deliver(struct rig *rig, uint32_t packet);
void rig_drop(struct rig *rig, uint32_t packet);
void rig_duplicate(struct rig *rig, uint32_t packet);

bool rig_disk_step(struct rig *rig, struct rig_node *node); /* completes the oldest write */

/* What is due first, of all packets, writes and timers (of the core and of what it ships); of
 * equals a packet, then the first node's write, its timer, the next node's, and so on. Nothing
 * happens. */
struct rig_due {
    enum { RIG_DUE_NOTHING, RIG_DUE_PACKET, RIG_DUE_DISK, RIG_DUE_TIMER } kind;
    uint64_t at_ns;        /* UINT64_MAX: nothing */
    uint32_t packet;       /* its index in rig->packets */
    struct rig_node *node; /* of the write or the timer */
};
struct rig_due rig_due(struct rig *rig);

/* Delivers and completes everything, in order, until nothing is left; time stands still. */
void rig_settle(struct rig *rig);
/* Moves time on to the next deadline of any core (at most to until_ns), ticks, settles. */
void rig_run_until(struct rig *rig, uint64_t until_ns);
/* Ticks one node until it leads, settling in between; asserts that it does. */
void rig_elect(struct rig *rig, struct rig_node *node);

/* Between the rig's files. */
void rig_queue(struct rig_node *node, const struct raft_event *event);
void rig_run_events(struct rig *rig, struct rig_node *node);
struct rig_disk_op *rig_disk_op(struct rig_node *node, enum rig_disk_kind kind);
void rig_disk_queued(struct rig *rig, struct rig_node *node);
void rig_persist_entries(struct rig *rig, struct rig_node *node, uint64_t first, uint64_t last);
void rig_disk_report(struct rig_node *node, const struct rig_disk_op *op);

/* Asserts log matching over all pairs and that leaders hold everything committed. */
void rig_check(struct rig *rig);

#endif
