/* SPDX-License-Identifier: Apache-2.0
 *
 * The log ring: one replica's Raft log as bytes, in the form in which it is shipped and stored.
 *
 * An entry is a struct log_entry followed by its payload, zero-filled to a multiple of 8. Its place
 * is a function of the log alone: positions are 64-bit byte offsets that only grow, the place in
 * memory is position % ring_bytes, and an entry never wraps: if it does not fit before the end of
 * the ring it starts at the next multiple of ring_bytes (the gap is filler, never read or shipped
 * for its content). So two replicas with the same ring size hold the same entry at the same offset,
 * which is what lets a leader write its followers' rings with one-sided writes.
 *
 * Validity is judged from the bytes alone: length, index, term, and a 64-bit checksum (XXH3) over
 * the entry seeded with the checksum of the entry before it. Stale bytes of an earlier lap never
 * pass because their index and chain do not fit.
 *
 * Pure: no clock, no I/O, no allocation (the caller gives the memory). One owner thread. With
 * one-sided shipping the bytes beyond `end` are written by a remote peer: they are only read in
 * log_adopt(), which copies the header before it judges it.
 */
#ifndef BELAY_CONSENSUS_LOG_H
#define BELAY_CONSENSUS_LOG_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_entry_kind {
    LOG_NOOP = 1,          /* Raft's own, at the start of a term (thesis 6.4) */
    LOG_CONFIGURATION = 2, /* payload: encoded struct raft_configuration */
    LOG_COMMANDS = 3,      /* payload: for the state machine */
    LOG_LIMITS = 4,        /* payload: for the state machine: replicated limits */
};

struct log_entry {
    uint32_t payload_bytes; /* without zero-fill */
    uint16_t kind;          /* enum log_entry_kind */
    uint16_t zero;
    uint64_t index;
    uint64_t term;
    uint64_t stamp_ns; /* shard time, never decreasing along the log */
    uint64_t checksum; /* XXH3_64 with seed = previous entry's checksum; this field taken as 0 */
};
static_assert(sizeof(struct log_entry) == 40, "log_entry is 40 bytes");

static inline const uint8_t *log_entry_payload(const struct log_entry *entry)
{
    return (const uint8_t *)(entry + 1);
}

/* Header + payload + zero-fill. */
static inline size_t log_entry_bytes(size_t payload_bytes)
{
    return sizeof(struct log_entry) + ((payload_bytes + 7u) & ~(size_t)7u);
}

/* Where the log begins: what the snapshot (or the blank state) stands for. */
struct log_base {
    uint64_t index;    /* last index included; 0 = blank */
    uint64_t term;     /* its term */
    uint64_t position; /* end position of that entry: where the next one may start */
    uint64_t checksum; /* its chain checksum; 0 = blank */
    uint64_t stamp_ns; /* its stamp */
};

struct log_slot { /* one per entry in the ring, by index % slots */
    uint64_t position;
    uint64_t term;
};

struct log {
    uint8_t *ring;
    uint64_t ring_bytes; /* power of two */
    struct log_slot *slots;
    uint64_t slots_count; /* power of two; entries the log can hold at once */
    struct log_base base; /* entries up to base.index are gone from the log */
    uint64_t last_index;
    uint64_t last_term;
    uint64_t last_checksum;
    uint64_t last_stamp_ns;
    uint64_t end;      /* position after the last entry */
    uint64_t received; /* end <= received: contiguous bytes written by log_write() beyond end */
    uint64_t reserved_position; /* where the open reservation's payload lies, less the header */
    uint64_t reserved_bytes;    /* its largest payload + 1; 0 = no reservation is open */
};

/* Bytes of memory that log_init needs. ring_bytes and slots_count: powers of two. */
size_t log_memory_bytes(uint64_t ring_bytes, uint64_t slots_count);

/* `memory`: 64-byte aligned, log_memory_bytes() long, owned by the caller, lives as long as the
 * log. The ring is its first ring_bytes (so that it can be registered with a device). */
void log_init(struct log *log, void *memory, uint64_t ring_bytes, uint64_t slots_count);

/* Empties the log onto `base` (start, snapshot install). */
void log_reset(struct log *log, const struct log_base *base);

/* Position at which an entry of `entry_bytes` would start if the log ended at `end`. */
uint64_t log_start_position(const struct log *log, uint64_t end, size_t entry_bytes);

/* Space for the payload of the next entry, inside the ring; NULL when the ring or the slots are
 * full (space is freed by log_release_to). At most one reservation is open; an append commits it.
 */
uint8_t *log_reserve(struct log *log, size_t payload_bytes_max);

/* Commits the reservation with its real payload length. Returns the entry. */
const struct log_entry *log_append(struct log *log, uint16_t kind, uint64_t term, uint64_t stamp_ns,
                                   size_t payload_bytes);

/* NULL if index is not in the log (base.index < index <= last_index). */
const struct log_entry *log_at(const struct log *log, uint64_t index);

/* Term at index; also for base.index. 0 = not known. */
uint64_t log_term(const struct log *log, uint64_t index);

/* End position of the entry at index; also for base.index. The caller knows that it exists. */
uint64_t log_end_of(const struct log *log, uint64_t index);

/* Removes the entries above index. index >= base.index. */
void log_cut_above(struct log *log, uint64_t index);

/* Entries up to index may be overwritten: moves the base to it. index <= last_index. */
void log_release_to(struct log *log, uint64_t index);

/* How far a writer may write without touching what this log still holds (a position). */
static inline uint64_t log_limit(const struct log *log)
{
    return log->base.position + log->ring_bytes;
}

/* Message shipping, follower: puts bytes of the peer's log at their place. Bytes before what is
 * already received are skipped; returns false (nothing written) if they would leave a gap or pass
 * log_limit(). Does not move `end`: log_adopt() does. */
bool log_write(struct log *log, uint64_t position, const uint8_t *bytes, size_t length);

/* Message shipping, leader: the bytes at [position, position+length) as one contiguous run;
 * shortens *length at the end of the ring. Filler is shipped as it lies. */
const uint8_t *log_read(const struct log *log, uint64_t position, size_t *length);

/* Forgets bytes received beyond end (a new grant begins), zeroing `received..` is the caller's
 * (one-sided) or not needed (messages). */
void log_forget_received(struct log *log);

/* Takes every valid entry that follows `end` in the ring into the log, up to position `until`
 * (one-sided: log_limit(); messages: log->received). Returns how many. Entries longer than
 * `payload_bytes_max` or of a kind not known are invalid. `keep_spare`: an entry that would use up
 * what log_keeps_spare() keeps is left lying, and taken by a later call when there is room. */
uint64_t log_adopt(struct log *log, uint64_t until, size_t payload_bytes_max, bool keep_spare);

/* Whether the header of the next entry lies behind `end`: a cheap look, for those who poll a ring
 * that a peer writes. It may be half an entry: log_adopt() judges. */
bool log_sees_next(const struct log *log);

/* Whether a sixteenth of bytes and slots is free beside one more entry that ends at position `end`.
 * It is kept for the no-ops that elections append: a log that is full of entries of which nobody
 * knows any more that they are committed could not commit them, for want of an entry of a new term.
 */
bool log_keeps_spare(const struct log *log, uint64_t end);

/* Recovery: appends an entry read from the WAL, checking its chain. False = does not fit. */
bool log_append_copy(struct log *log, const struct log_entry *entry);

#endif
