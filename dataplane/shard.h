/* SPDX-License-Identifier: Apache-2.0
 *
 * A shard's replica: one Raft core, its log ring, one lock machine, and what joins them: batches of
 * admitted commands, entries on their way to the WAL, byte ranges on their way to peers, reads that
 * wait for a round, pushes that wait for an acknowledgement, snapshots.
 *
 * Driven by its owner, a worker (dataplane/worker.c) or the simulator, through the functions below
 * and the callbacks of struct shard_host; it has no clock, no descriptor and no thread of its own.
 * One owner thread. All memory comes from one block given at init.
 */
#ifndef BELAY_DATAPLANE_SHARD_H
#define BELAY_DATAPLANE_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "consensus/log.h"
#include "consensus/raft.h"
#include "consensus/ship.h"
#include "consensus/wal.h"
#include "dataplane/board.h"
#include "dataplane/machine/lock_machine.h"
#include "dataplane/options.h"
#include "dataplane/push.h"
#include "dataplane/snapshot_mail.h"

enum {
    SHARD_BATCH_BYTES_MAX = 32 * 1024, /* one entry's payload */
    SHARD_APPLY_ENTRIES_MAX = 64,      /* applied in one turn; the rest in the next */
    SHARD_READS_MAX = 256,             /* linearizable reads waiting for their round */
    SHARD_IN_FLIGHT = 8192,            /* remembered (session, number); power of two */
    SHARD_READ_ITEM_BYTES = 376,       /* struct wire_named with the longest texts */
    SHARD_REPLY_BYTES_MAX = 1280,      /* one reply item */
    SHARD_UNCONFIRMED_SESSIONS = 256,  /* sessions walked per turn after an election */
    SHARD_WRITES_MAX = 16,             /* batches under way to one peer by one-sided writes; each is
                                          at most two writes: a completion queue for 2 of these per
                                          (shard, peer) never runs over */
};

/* Something an operator may want to know, with up to two named numbers. */
struct shard_note {
    const char *event;
    const char *first_name; /* NULL = no number */
    uint64_t first;
    const char *second_name; /* NULL = only one */
    uint64_t second;
    bool detail; /* only for those who look closely */
};

/* Whose writes may land in a ring. */
struct shard_writer {
    uint64_t replica; /* the leader */
    uint16_t node;
    uint64_t term, grant; /* (term, grant) is never given twice by one leader */
};

/* One RDMA write, from the leader's ring into the same offset of the peer's. */
struct shard_write {
    uint64_t to_replica;
    uint16_t to_node;
    uint64_t from_replica, term, grant; /* as in the peer's struct shard_writer */
    uint64_t position;                  /* of the log; offset = position % ring_bytes */
    const uint8_t *bytes; /* in the own ring: they stay as they are until the write is complete, or
                             the peer is detached */
    size_t length;
    uint64_t number; /* of its batch, to be given back by shard_shipped(); rises */
    bool last;       /* of its batch: a wrap makes two writes of one */
};

/* What a shard asks of its owner. No callback may call back into the shard. */
struct shard_host {
    /* One message to the worker of this shard at that node. */
    void (*send_raft)(void *context, uint16_t shard, uint16_t node,
                      const struct raft_message *message);
    /* One ship datagram: fixed part and log bytes (<= SHARD_SHIP_BYTES_MAX). */
    void (*send_ship)(void *context, uint16_t shard, uint16_t node, const struct wire_ship *ship,
                      const uint8_t *bytes, size_t length);
    void (*send_join)(void *context, uint16_t shard, uint16_t node, uint64_t new_replica);
    /* One reply or push item to a client. */
    void (*reply)(void *context, const struct wire_address *to, const struct wire_item *item);
    /* Mail to the snapshot thread: NULL = no room now, ask again next turn. */
    struct snapshot_mail *(*mail_claim)(void *context);
    void (*mail_publish)(void *context);
    /* 64 random bits. */
    uint64_t (*draw)(void *context);
    /* For the journal; a rare event. */
    void (*note)(void *context, uint16_t shard, const struct shard_note *note);
    /* From here on time goes to that stage; returns the one it went to. NULL = nobody measures. */
    enum wire_stage (*stage)(void *context, enum wire_stage stage);

    /* One-sided shipping (dataplane/shard_one_sided.c). All five or none; NULL = messages. Who has
     * them also looks at rings: while shard_polls() is true it must not sleep past a write. */

    /* Begins to open the own ring to one writer; shard_granted() follows. Negative errno: this
     * writer cannot be let in that way; the grant is for messages then. */
    int (*ring_open)(void *context, uint16_t shard, const struct shard_writer *writer);
    /* Begins to close it, whether it is open or being opened. shard_revoked() follows, exactly
     * once, when nothing lands any more and everything the writer saw complete is visible here. */
    void (*ring_close)(void *context, uint16_t shard, const struct shard_writer *writer);
    /* Posts a write; may wait for write_flush. Writes to one peer land in order. shard_shipped() or
     * shard_ship_failed() follows for a batch, or, after write_stop, nothing. Negative errno: it is
     * not posted, and the peer is taken for failed. */
    int (*write)(void *context, uint16_t shard, const struct shard_write *write);
    /* The doorbell, after the writes of a turn. */
    void (*write_flush)(void *context, uint16_t shard);
    /* The queue pair to the peer is reset: own memory is not read for it any more. */
    void (*write_stop)(void *context, uint16_t shard, uint16_t node, uint64_t replica);
};

/* The longest run of log bytes in one ship datagram. */
enum {
    SHARD_SHIP_BYTES_MAX =
        WIRE_DATAGRAM_BYTES_MAX - (int)sizeof(struct wire_header) - (int)sizeof(struct wire_ship)
};

/* What was handed to the WAL and is not durable yet. Two generations suffice: one write is in
 * flight while the next fills. */
struct shard_durable_mark {
    uint64_t sequence; /* WAL write that holds it; 0 = none */
    uint64_t index, term;
    struct raft_hard_state hard;
    bool has_entries, has_hard;
};

struct shard_persist {
    bool hard_pending;
    struct raft_hard_state hard;
    uint64_t cut_pending; /* first index removed; 0 = none */
    uint64_t next, to;    /* entries [next, to] wait to be copied into a frame */
    uint64_t written;     /* highest index copied into a frame (or recovered) */
    struct shard_durable_mark marks[2];
    uint64_t snapshot_sequence; /* WAL write that holds the snapshot record; 0 = none */
    uint64_t snapshot_index;
};

struct shard_read {
    uint64_t context;
    uint64_t index; /* serve once applied >= index; UINT64_MAX = round not confirmed */
    struct wire_address from;
    uint64_t item[SHARD_READ_ITEM_BYTES / 8];
};

struct shard_in_flight {
    uint64_t session, number, index;
};

/* A batch that was posted. */
struct shard_posted {
    uint64_t number, grant, index, term;
};

/* Leader: one-sided writes to a peer. */
struct shard_writes {
    uint64_t grant;     /* the peer's, if its mode is one-sided; 0 = messages or detached */
    uint64_t next, end; /* bytes [next, end) are to be posted */
    uint64_t end_index; /* whose end `end` is */
    uint64_t end_term;
    uint32_t count;       /* batches under way, of this grant; <= SHARD_WRITES_MAX */
    uint32_t posted_next; /* where the next one is noted */
    struct shard_posted posted[SHARD_WRITES_MAX]; /* ring; older grants' are overwritten in time */
    bool broken;          /* a post was refused in this turn: to be told to the core */
    uint32_t failures;    /* in a row, without a completion between */
    uint64_t offer_at_ns; /* after many failures: messages until then; 0 = offered */
};

struct shard_peer {
    uint64_t replica; /* 0 = free */
    uint16_t node;
    struct ship_sender sender;
    struct shard_writes writes;
};

/* Follower: the own ring under one-sided shipping. */
enum shard_ring_state {
    SHARD_RING_CLOSED = 0, /* or open for messages only */
    SHARD_RING_OPENING,
    SHARD_RING_OPEN,
    SHARD_RING_CLOSING, /* what lands still lands */
};

/* Shared by a worker's shards: one of them saves, and one fetches, at a time. */
struct shard_turnstile {
    struct shard *saving;
    struct shard *fetching;
};

enum shard_state {
    SHARD_RUNNING = 0,
    SHARD_INSTALLING = 1, /* the machine is being restored: nothing is applied or served */
};

enum shard_save {
    SHARD_SAVE_NONE = 0,
    SHARD_SAVE_BLOCKS,
    SHARD_SAVE_WAITING, /* for SAVED */
};

struct shard {
    uint16_t id;
    uint64_t replica; /* own id; never reused */
    const struct node_options *options;
    const struct shard_host *host;
    void *host_context;
    struct board *board;
    struct wal_writer *wal;       /* the worker's; NULL in memory durability */
    struct raft_effects *effects; /* scratch, shared by the worker's shards */
    struct shard_turnstile *turnstile;

    struct log log;
    struct raft *raft;
    struct raft_view view; /* refreshed after every step */
    struct lock_machine *machine;
    uint64_t applied;
    uint64_t due_ns; /* lock_machine_next_deadline() at `applied`: shard time, UINT64_MAX = none */
    uint64_t applied_stamp_ns;
    uint64_t configuration_index_applied;
    struct raft_configuration configuration; /* as of `applied`: what a snapshot carries */
    bool limits_set;                         /* the log holds (or the state has) LOG_LIMITS */
    uint16_t token_epoch;                    /* for the LOG_LIMITS of a first leader */
    enum shard_state state;
    bool joining; /* own id is not a voter yet: ask the leader to be taken in */

    /* the open batch; only inside one turn */
    uint8_t *batch;
    size_t batch_bytes;
    uint32_t batch_count;

    uint64_t proposed_stamp_ns; /* of the newest own entry */
    uint64_t proposed_at_ns;    /* own clock */
    uint64_t leader_since_ns;   /* 0 = not leader */
    uint64_t spread_at_ns;      /* when to look again whether leadership belongs elsewhere */
    uint64_t join_at_ns;
    uint64_t board_at_ns;
    uint64_t unconfirmed_cursor;
    bool unconfirmed_walk;

    struct shard_persist persist;

    struct shard_peer peers[RAFT_MEMBERS_MAX];
    uint64_t grant_leader, grant_number, grant_term; /* whose bytes are taken into the ring */
    enum shard_ring_state ring_state;
    struct shard_writer ring_writer; /* unless CLOSED */
    uint64_t write_number;           /* of the newest batch posted; never reset */
    bool received;                   /* bytes arrived in this turn */
    uint64_t received_commit;
    struct ship_receiver receiver;
    uint64_t received_gap; /* position of a hole seen in this turn; UINT64_MAX = none */

    struct shard_read *reads; /* ring of SHARD_READS_MAX */
    uint32_t reads_head, reads_count;
    uint64_t read_context; /* of the batch that is being collected */
    bool read_open;

    struct shard_in_flight *in_flight;
    struct push_table pushes;

    enum shard_save save;
    bool save_wanted;
    struct log_base save_base;
    struct raft_configuration save_configuration;
    uint64_t save_at_ns;  /* after a failure: not before */
    uint64_t saved_index; /* newest durable snapshot */
    uint64_t fetch_peer;  /* replica to fetch from; 0 = none wanted */
    uint16_t fetch_node;
    uint64_t fetch_at_ns; /* earliest next attempt */
    bool fetch_running;
    bool fetch_cancel; /* what runs is from a node that leads no more; the thread is to be told */
    bool install_pending;      /* restored; the WAL record is still to be written */
    uint64_t install_sequence; /* WAL write that holds it; 0 = none */
    int install_error;         /* of a block; reported with the end */
    struct log_base install_base;
    struct raft_configuration install_configuration;

    uint64_t *reply_scratch; /* SHARD_REPLY_BYTES_MAX */
};

/* ---- life ------------------------------------------------------------------------------------ */

size_t shard_memory_bytes(const struct node_options *options);

/* What recovery found for this replica. */
struct shard_start {
    uint16_t id;
    uint64_t replica;
    struct raft_hard_state hard;
    struct raft_configuration
        configuration; /* at or below the log's base; count 0 = none (joins) */
    uint16_t token_epoch;
    bool joining;
    bool limits_set;
};

/* Lays out memory (64-byte aligned, zero-filled, shard_memory_bytes()): log and machine are
 * initialised and blank. Recovery then fills shard->log and shard->machine. */
void shard_layout(struct shard *shard, void *memory, const struct node_options *options);

/* Starts the core on what is in log and machine now. */
void shard_begin(struct shard *shard, const struct shard_start *start, uint64_t now_ns);

/* ---- one turn, in this order (dataplane/worker.c) ---------------------------------------------
 */

/* WAL writes up to `sequence` are durable. */
void shard_durable(struct shard *shard, uint64_t sequence, uint64_t now_ns);

/* A peer's item; `node` is the authenticated sender. */
void shard_raft_message(struct shard *shard, uint16_t node, const struct raft_message *message,
                        uint64_t now_ns);
void shard_ship(struct shard *shard, const struct wire_ship *ship);
void shard_join_request(struct shard *shard, uint16_t node, uint64_t new_replica, uint64_t now_ns);
/* After the burst of peer datagrams: takes shipped bytes into the log. */
void shard_received(struct shard *shard, uint64_t now_ns);

/* Reports of the one-sided transport, in any order with the above but not from its callbacks. */
void shard_granted(struct shard *shard, const struct shard_writer *writer, uint64_t now_ns);
void shard_revoked(struct shard *shard, const struct shard_writer *writer, uint64_t now_ns);
/* The batch, and every batch before it to that replica, is in its memory. */
void shard_shipped(struct shard *shard, uint64_t replica, uint64_t number, uint64_t now_ns);
/* What became of the batch is unknown. */
void shard_ship_failed(struct shard *shard, uint64_t replica, uint64_t number, uint64_t now_ns);
/* A peer may write the ring at any moment: shard_received() is to be called in every turn. */
static inline bool shard_polls(const struct shard *shard)
{
    return shard->ring_state == SHARD_RING_OPEN;
}

/* Mail from the snapshot thread. */
void shard_mail(struct shard *shard, const struct snapshot_mail *mail, uint64_t now_ns);

/* A client's judged request item. Answers it, queues it into the open batch, or drops a duplicate
 * that is in flight. */
void shard_request(struct shard *shard, const struct wire_address *from,
                   const struct wire_item *item, uint64_t now_ns);

/* Ends the turn: timers, the batch, what is committed, shipping, persistence. True if there is more
 * to do at once. */
bool shard_turn(struct shard *shard, uint64_t now_ns);

/* When shard_turn must run next even if nothing arrives. */
uint64_t shard_deadline(const struct shard *shard, uint64_t now_ns);

/* Stops leading and campaigning (shutdown, disk full). */
void shard_step_down(struct shard *shard, uint64_t now_ns);

/* A snapshot soon, if there is anything new. */
void shard_want_snapshot(struct shard *shard);

/* Those whose entries hold up the oldest segment of the WAL (wal_pressure) save a snapshot, or, if
 * that would not help, have them written once more. */
void shards_relieve(struct shard shards[], size_t count, const struct wal_writer *wal);

/* ---- inside (shard_*.c) -----------------------------------------------------------------------
 */

void shard_step(struct shard *shard, const struct raft_event *event);
void shard_refuse(struct shard *shard, const struct wire_address *to,
                  const struct wire_item *request, uint16_t status);
void shard_persist_flush(struct shard *shard);
/* Adds the record of a snapshot of own state; its WAL sequence, or negative: no room, try again. */
int64_t shard_persist_snapshot(struct shard *shard, const struct log_base *base,
                               const uint8_t *configuration, size_t configuration_bytes);
void shard_persist_entries(struct shard *shard, uint64_t first, uint64_t last);
void shard_persist_cut(struct shard *shard, uint64_t first);
void shard_close_batch(struct shard *shard, uint64_t now_ns);
void shard_propose_due(struct shard *shard, uint64_t now_ns);
bool shard_apply(struct shard *shard, uint64_t now_ns);
void shard_reads_ready(struct shard *shard, uint64_t context, uint64_t index);
void shard_reads_failed(struct shard *shard, uint64_t context);
void shard_reads_serve(struct shard *shard);
void shard_reads_close(struct shard *shard, uint64_t now_ns);
void shard_ship_extend(struct shard *shard, const struct raft_effect *effect);
void shard_ship_detach(struct shard *shard, uint64_t replica);
void shard_ship_flush(struct shard *shard, uint64_t now_ns);
/* Whether a leader's ATTACH to it offers writes. */
bool shard_offers_writes(const struct shard *shard, const struct shard_peer *peer);
/* False: not this way; the driver answers at once. */
bool shard_ring_open(struct shard *shard, const struct raft_effect *effect);
bool shard_ring_close(struct shard *shard);
void shard_ring_poll(struct shard *shard, uint64_t now_ns);
void shard_writes_extend(struct shard *shard, struct shard_peer *peer,
                         const struct raft_effect *effect);
void shard_writes_stop(struct shard *shard, struct shard_peer *peer);
void shard_writes_flush(struct shard *shard, uint64_t now_ns);
uint8_t shard_ship_mode(const struct shard *shard);
void shard_configuration(struct shard *shard);
struct shard_peer *shard_peer_of(struct shard *shard, uint64_t replica);
void shard_fetch_from(struct shard *shard, uint64_t peer, uint16_t node);
bool shard_snapshot_turn(struct shard *shard, uint64_t now_ns);
void shard_spread(struct shard *shard, uint64_t now_ns);
void shard_publish(struct shard *shard, uint64_t now_ns);
bool shard_leads(const struct shard *shard);
void shard_note(struct shard *shard, const struct shard_note *note);

static inline enum wire_stage shard_stage(const struct shard *shard, enum wire_stage stage)
{
    return shard->host->stage ? shard->host->stage(shard->host_context, stage) : stage;
}

#endif
