/* SPDX-License-Identifier: Apache-2.0
 *
 * The write-ahead log of one worker, shared by the replicas it hosts: format, writer, recovery.
 *
 * A WAL is `segments_count` files of equal size, zero-filled before use. Each physical write is one
 * frame: a header {identity, generation, sequence, live generation, place, length, checksum seeded
 * with identity, generation and sequence}, records, zero-fill up to the block. Frames follow each
 * other without gaps and their sequence counts up by one across segments. Generation g lives in
 * segment (g - 1) % segments_count, so segments are recycled strictly in order, and what an older
 * lap left in a file never passes for this one's.
 *
 * The first frame of a segment begins with the full state of every hosted replica (term, vote,
 * base, membership), so dropping older segments loses none of it. A segment may be overwritten when
 * a DURABLE frame states a live generation above its own; recovery requires every generation from
 * the one stated by the last valid frame on to be whole. That is what tells a torn first frame of a
 * recycled segment from damage to a segment that is still needed.
 *
 * At most one write is in flight, so only the last frame can be torn, anywhere in it: it is cut. (A
 * last frame damaged after it was acknowledged looks the same; nothing inside one disk can tell.)
 * An invalid frame before a valid later one is corruption: the replicas of this WAL must not vote.
 *
 * Order between WALs, and a changed number of workers: at every start the node recovers the WALs of
 * the manifest's current incarnation (any number of them; within an incarnation a replica lives in
 * exactly one), then writes new ones under a new incarnation:
 *
 *     1. raise the manifest's next_incarnation, durably
 *     2. create the new WAL directories; wal_hand_over() for each replica; write; all durable
 *     3. manifest: wal_incarnation, wal_count = the new ones: one atomic rename, the commit point
 *     4. delete the directories of every other incarnation; only now start to vote and answer
 *
 * A crash before 3 leaves the old WALs in force and whole, one after 3 the new ones; directories of
 * an incarnation that is not the manifest's are never read, only deleted. A replica is named by the
 * manifest after its wal_add_replica() is durable, and no longer named before wal_drop_replica().
 *
 * Pure: no clock, no I/O, no allocation (the caller gives the memory). One owner thread.
 */
#ifndef BELAY_CONSENSUS_WAL_H
#define BELAY_CONSENSUS_WAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "consensus/log.h"
#include "consensus/raft.h"

enum {
    WAL_BLOCK_BYTES = 4096,          /* smallest block, what O_DIRECT wants nearly everywhere */
    WAL_FRAME_BYTES_LIMIT = 1 << 20, /* no frame is longer, in any WAL ever written */
    WAL_SEGMENTS_MIN = 3,            /* one being filled, one ahead, one in reserve */
    WAL_SEGMENTS_MAX = 256,
    WAL_REPLICAS_MAX = 2048,
};

/* What a WAL knows of a replica beside its entries. */
struct wal_replica {
    uint64_t replica_id; /* not 0 */
    uint16_t shard;
    uint16_t configuration_bytes; /* <= RAFT_CONFIGURATION_BYTES_MAX; 0 = none given yet */
    uint32_t zero;
    struct raft_hard_state hard;
    struct log_base base;                                /* of the last snapshot; index 0 = blank */
    uint8_t configuration[RAFT_CONFIGURATION_BYTES_MAX]; /* newest at or below base; opaque here */
};

/* ---- writer ---------------------------------------------------------------------------------- */

struct wal_options {
    uint64_t identity;        /* unlike any other WAL's, and not to be guessed: wal_identity() */
    uint64_t segment_bytes;   /* multiple of block_bytes, >= 2 * frame_bytes_max */
    uint32_t segments_count;  /* WAL_SEGMENTS_MIN..WAL_SEGMENTS_MAX */
    uint32_t frame_bytes_max; /* multiple of block_bytes, <= WAL_FRAME_BYTES_LIMIT */
    uint32_t block_bytes;     /* power of two >= WAL_BLOCK_BYTES; writes are multiples of it */
    uint32_t replicas_max;    /* hosted at once, 1..WAL_REPLICAS_MAX */
};

/* NULL if sound, else a sentence. The least frame_bytes_max is what holds every replica's state and
 * the longest entry. */
const char *wal_options_check(const struct wal_options *options);

/* Smallest frame_bytes_max for that many replicas (a multiple of block_bytes). */
uint32_t wal_frame_bytes_min(uint32_t replicas_max, uint32_t block_bytes);

/* Identity of the WAL of `worker` in the `incarnation` of a data directory with `nonce`. Never 0.
 */
uint64_t wal_identity(uint64_t nonce, uint64_t incarnation, uint32_t worker);

struct wal_writer; /* opaque */

/* Memory for wal_writer_init; options are sound. */
size_t wal_memory_bytes(const struct wal_options *options);

/* `memory`: aligned to block_bytes (frames are written from it by O_DIRECT), owned by the caller.
 * The WAL is blank: all segments zero-filled, or of other identities. Options must be sound. */
struct wal_writer *wal_writer_init(void *memory, const struct wal_options *options);

/* wal_add_*: copies a record into the frame being filled. Returns the write sequence (> 0) of the
 * frame that will hold it: it is durable when wal_durable_sequence() has reached that. Errors
 * (nothing was added):
 *
 * -ENOBUFS: does not fit now: take wal_next_write() and/or wait for wal_written(), then repeat.
 *
 * -ENOSPC: the WAL is full: the replicas in wal_pressure() must save snapshots first. Entries are
 * refused one segment early and votes half a segment early, so that what frees segments (snapshot,
 * install, cut, drop) still finds room.
 *
 * -EMSGSIZE: would not fit into an empty frame either: split (wal_entries_bytes_max).
 *
 * -ENOENT replica not hosted; -EEXIST already hosted; -E2BIG more than replicas_max.
 *
 * -EINVAL: not whole, consecutive entries that follow the last one added; a base or term that goes
 * back; another vote in the same term; configuration too long.
 *
 * Or the error that a write ended with: the writer is dead after it (never a retry). */

/* A replica with nothing yet: term 0, base 0, no configuration. */
int64_t wal_add_replica(struct wal_writer *writer, uint64_t replica_id, uint16_t shard);

/* A replica as recovery (or an earlier WAL) left it; its entries follow by wal_add_log(). */
int64_t wal_add_state(struct wal_writer *writer, const struct wal_replica *state);

/* Term and vote, in one record: a vote is never durable without its term. */
int64_t wal_add_hard(struct wal_writer *writer, uint64_t replica_id, uint64_t term, uint64_t vote);

/* `bytes` of whole log entries, consecutive indexes, as they lie in the ring. All or nothing. */
int64_t wal_add_entries(struct wal_writer *writer, uint64_t replica_id,
                        const struct log_entry *entries, size_t bytes);

/* As many of the log's entries first..last as fit into this frame, over the ring's end if need be;
 * *added_last = the last one taken. Fails with -ENOBUFS only if not even the first fits. first <=
 * last, all in the log. */
int64_t wal_add_log(struct wal_writer *writer, uint64_t replica_id, const struct log *log,
                    uint64_t first, uint64_t last, uint64_t *added_last);

/* The log now ends below first_index_removed. Before the entries that take their place. */
int64_t wal_add_cut(struct wal_writer *writer, uint64_t replica_id, uint64_t first_index_removed);

/* For a replica that wal_pressure() names and that no snapshot helps, because its entries are not
 * known to be committed: writes them once more, so that the segments where they lie can be dropped.
 * Without it one shard that has lost its majority would in the end stop all shards of its WAL.
 * `log` holds what was added, up to the last entry added at least. One call adds what fits into a
 * frame; 0 = everything was repeated (or there is nothing), else as the others: call it again at
 * the next turn while there is pressure. Entries may be added and cut in between. -EAGAIN: not what
 * was added lies in the log (a cut is still to be added). */
int64_t wal_carry(struct wal_writer *writer, uint64_t replica_id, const struct log *log);

/* A snapshot file that stands for the log up to `base` is durable (file and directory synced); the
 * entries above it stay. `configuration`: the newest at or below base. Also sets a new replica's
 * bootstrap configuration (base of index 0). */
int64_t wal_add_snapshot(struct wal_writer *writer, uint64_t replica_id,
                         const struct log_base *base, const uint8_t *configuration,
                         size_t configuration_bytes);

/* The same for a snapshot installed from a leader: the log is emptied onto `base` (log_reset). */
int64_t wal_add_install(struct wal_writer *writer, uint64_t replica_id, const struct log_base *base,
                        const uint8_t *configuration, size_t configuration_bytes);

int64_t wal_drop_replica(struct wal_writer *writer, uint64_t replica_id);

/* Longest `bytes` of one wal_add_entries(). */
size_t wal_entries_bytes_max(const struct wal_writer *writer);

struct wal_write {
    uint32_t segment;
    uint32_t bytes;        /* multiple of block_bytes */
    uint64_t offset;       /* in the segment, multiple of block_bytes */
    const uint8_t *buffer; /* aligned to block_bytes; the writer's, untouched until wal_written */
    uint64_t sequence;
};

/* Seals the frame being filled and hands it out, if it holds anything and no write is in flight. */
bool wal_next_write(struct wal_writer *writer, struct wal_write *write);

/* The write with `sequence` ended: 0 = all its bytes are durable, or a negative errno. */
void wal_written(struct wal_writer *writer, uint64_t sequence, int result);

uint64_t wal_durable_sequence(const struct wal_writer *writer);

/* Something waits for wal_next_write(). */
bool wal_pending(const struct wal_writer *writer);
bool wal_in_flight(const struct wal_writer *writer);

/* 0, or the error that killed the writer. */
int wal_error(const struct wal_writer *writer);

/* When at least half of the segments are in use: the replicas whose entries hold up the oldest one;
 * each should save a snapshot. Returns how many were stored. 0 = no pressure. */
size_t wal_pressure(const struct wal_writer *writer, uint64_t replica_ids[], size_t max);

struct wal_usage {
    uint32_t segments_used; /* the one being filled included */
    uint32_t segments_count;
    uint32_t replicas;
    uint64_t generation; /* of the segment being filled */
    uint64_t frames;
    uint64_t bytes; /* written, zero-fill included */
};
void wal_usage(const struct wal_writer *writer, struct wal_usage *usage);

/* The hosted replica's state as the writer will put it in the next head; NULL = not hosted. */
const struct wal_replica *wal_hosted(const struct wal_writer *writer, uint64_t replica_id);

/* ---- recovery -------------------------------------------------------------------------------- */

struct wal_reader {
    /* Reads exactly `bytes` at `offset` of a segment. 0, or a negative errno (unreadable). */
    int (*read)(void *context, uint32_t segment, uint64_t offset, void *buffer, size_t bytes);
    void *context;
    uint64_t identity;
    uint64_t segment_bytes;
    uint32_t segments_count;
    uint32_t block_bytes;
    uint8_t *scratch; /* WAL_FRAME_BYTES_LIMIT bytes, 8-byte aligned, the caller's */
};

enum wal_damage {
    WAL_INTACT = 0,
    WAL_DAMAGE_ZEROED,      /* the block where a frame must start is all zero */
    WAL_DAMAGE_CHECKSUM,    /* a frame of the right place and sequence whose bytes do not fit */
    WAL_DAMAGE_STALE,       /* an older, sound frame stands there: a write that never arrived */
    WAL_DAMAGE_MISDIRECTED, /* a sound frame meant for another place */
    WAL_DAMAGE_GARBAGE,     /* nothing like a frame of this WAL */
    WAL_DAMAGE_UNREADABLE,  /* read error */
    WAL_DAMAGE_RECORD,      /* a sound frame whose records make no sense */
    WAL_DAMAGE_COUNT
};
const char *wal_damage_name(enum wal_damage damage);

/* What wal_scan() found. `damage` other than WAL_INTACT goes with -EBADMSG. */
struct wal_recovered {
    enum wal_damage damage;
    uint32_t damage_segment; /* where the frame that should be there is not */
    uint64_t damage_offset;
    uint64_t generation_first; /* oldest one still needed; 0 = the WAL was never written */
    uint64_t generation_last;
    uint64_t sequence_first;
    uint64_t sequence_last; /* 0 = the WAL was never written */
    uint64_t frames;        /* in the generations needed */
    bool cut;               /* something unfinished stood behind the last frame and was cut */
    uint32_t end_segment;   /* where the last frame ends */
    uint64_t end_offset;
};

/* Judges a whole WAL without looking into frames' records. Total over any bytes. 0, -EBADMSG
 * (corruption, see `out`), -EINVAL (reader makes no sense). */
int wal_scan(const struct wal_reader *reader, struct wal_recovered *out);

enum wal_record_kind {
    WAL_RECORD_STATE = 1,
    WAL_RECORD_HARD = 2,
    WAL_RECORD_ENTRIES = 3,
    WAL_RECORD_CUT = 4,
    WAL_RECORD_SNAPSHOT = 5,
    WAL_RECORD_INSTALL = 6,
    WAL_RECORD_DROP = 7,
};

struct wal_record_view {
    enum wal_record_kind kind;
    bool head;    /* STATE: repeats, at a segment's start, what earlier records said */
    bool carried; /* ENTRIES: repeats entries that the log holds, see wal_carry() */
    uint64_t replica_id;
    uint64_t sequence; /* of its frame */
    union {
        struct wal_replica state; /* STATE; SNAPSHOT and INSTALL: base and configuration only */
        struct raft_hard_state hard;
        uint64_t first_index_removed;
        struct {
            const uint8_t *bytes; /* whole entries, 8-byte aligned; in the reader's scratch */
            size_t length;
            uint64_t first_index;
            uint64_t last_index;
        } entries;
    };
};

struct wal_sink {
    /* Called per record, in write order. Not 0 = stop; wal_replay() returns it. */
    int (*record)(void *context, const struct wal_record_view *record);
    void *context;
};

/* Gives every record of the generations that `scanned` (from wal_scan) found needed. 0, what the
 * sink returned, or -EBADMSG: then scanned->damage says what. */
int wal_replay(const struct wal_reader *reader, const struct wal_sink *sink,
               struct wal_recovered *scanned);

/* wal_scan and, if intact, wal_replay. */
int wal_recover(const struct wal_reader *reader, const struct wal_sink *sink,
                struct wal_recovered *out);

/* ---- rebuilding replicas --------------------------------------------------------------------- */

/* Two passes: the first learns each replica's hard state and final base, so that the caller can
 * make its log; the second fills the log with what lies above the base. */
struct wal_rebuilt {
    struct wal_replica replica;
    uint32_t wal;    /* the caller's number of the WAL it lives in */
    bool incomplete; /* second pass: entries are missing or contradict each other */
    struct log *log; /* set by the caller between the passes, initialised; NULL = not wanted */
};

struct wal_rebuild {
    struct wal_rebuilt *replicas; /* the caller's */
    uint32_t max;
    uint32_t count; /* start with 0; grows over all WALs */
};

/* Adds the replicas of one scanned WAL. 0; -EBADMSG (records make no sense, or a replica that
 * another WAL holds too: then none of this WAL's replicas are added), -E2BIG more than `max`. */
int wal_rebuild_states(struct wal_rebuild *rebuild, uint32_t wal, const struct wal_reader *reader,
                       struct wal_recovered *scanned);

/* Fills the logs of that WAL's replicas: log_reset() to the base, then the entries above it. 0 or
 * -EBADMSG: the replicas marked incomplete must be rebuilt under new ids. */
int wal_rebuild_logs(struct wal_rebuild *rebuild, uint32_t wal, const struct wal_reader *reader,
                     struct wal_recovered *scanned);

/* Hand-over: puts a recovered replica, state and entries, into a new WAL. *next_index: 0 at first,
 * then the caller keeps it. 1 = all of it was added; 0 = as much as fits now: write, then call
 * again; or a negative errno as wal_add_*, -ENOSPC: the new WAL is too small for what must survive.
 */
int wal_hand_over(struct wal_writer *writer, const struct wal_rebuilt *rebuilt,
                  uint64_t *next_index);

/* NULL = not found. */
struct wal_rebuilt *wal_rebuild_find(const struct wal_rebuild *rebuild, uint64_t replica_id);

#endif
