/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes of a WAL, shared by its writer and its recovery; nobody else includes this.
 */
#ifndef BELAY_CONSENSUS_WAL_FORMAT_H
#define BELAY_CONSENSUS_WAL_FORMAT_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "consensus/wal.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little-endian, as is");

#define WAL_FRAME_MAGIC UINT32_C(0x4c415742) /* "BWAL" */
enum { WAL_FORMAT_VERSION = 1 };

struct wal_frame {
    uint32_t magic;
    uint16_t version;
    uint16_t zero;
    uint64_t identity;
    uint64_t generation;
    uint64_t sequence;
    uint64_t live_generation; /* oldest generation needed, this frame's records counted in */
    uint64_t offset;          /* own place: a misdirected write is recognised by it */
    uint32_t segment;
    uint32_t bytes; /* header and records, without the zero-fill up to the block */
    uint32_t records;
    uint32_t zero2;
    uint64_t checksum; /* XXH3_64 over `bytes`, this field taken as 0, seed: wal_frame_seed() */
};
static_assert(sizeof(struct wal_frame) == 72, "wal_frame is 72 bytes");

struct wal_record {
    uint16_t kind; /* enum wal_record_kind */
    uint16_t flags;
    uint32_t bytes; /* this header included; a multiple of 8 */
    uint64_t replica_id;
};
static_assert(sizeof(struct wal_record) == 16, "wal_record is 16 bytes");

enum {
    WAL_FLAG_HEAD = 1,    /* STATE: repeats what is known */
    WAL_FLAG_CARRIED = 2, /* ENTRIES: entries that are in the log already, once more */
};

struct wal_body_base { /* SNAPSHOT, INSTALL; the configuration follows, zero-filled to 8 */
    uint16_t configuration_bytes;
    uint16_t zero[3];
    struct log_base base;
};
static_assert(sizeof(struct wal_body_base) == 48, "wal_body_base is 48 bytes");

struct wal_body_state { /* STATE; the configuration follows, zero-filled to 8 */
    uint16_t shard;
    uint16_t configuration_bytes;
    uint32_t zero;
    struct raft_hard_state hard;
    struct log_base base;
};
static_assert(sizeof(struct wal_body_state) == 64, "wal_body_state is 64 bytes");

static inline size_t wal_pad8(size_t bytes)
{
    return (bytes + 7u) & ~(size_t)7u;
}

static inline uint64_t wal_pad_block(uint64_t bytes, uint32_t block_bytes)
{
    return (bytes + block_bytes - 1) & ~(uint64_t)(block_bytes - 1);
}

static inline uint32_t wal_segment_of(uint64_t generation, uint32_t segments_count)
{
    return (uint32_t)((generation - 1) % segments_count);
}

enum {
    WAL_STATE_BYTES_MAX = sizeof(struct wal_record) + sizeof(struct wal_body_state) +
                          ((RAFT_CONFIGURATION_BYTES_MAX + 7) & ~7),
    WAL_ENTRY_BYTES_MAX = sizeof(struct log_entry) + RAFT_PAYLOAD_BYTES_MAX,
};

/* Checksum of a frame whose header and records lie at `bytes`. */
uint64_t wal_frame_checksum(const uint8_t *bytes, const struct wal_frame *header);

/* Walks whole, consecutive entries. False = they are not. */
bool wal_entries_judge(const uint8_t *bytes, size_t length, uint64_t *first, uint64_t *last);

#endif
