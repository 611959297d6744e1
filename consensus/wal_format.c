/* SPDX-License-Identifier: Apache-2.0 */
#include "consensus/wal_format.h"

#include <xxhash.h>

uint64_t wal_identity(uint64_t nonce, uint64_t incarnation, uint32_t worker)
{
    uint64_t parts[3] = {nonce, incarnation, worker};
    uint64_t identity = XXH3_64bits(parts, sizeof parts);

    return identity != 0 ? identity : 1;
}

/* The seed makes a frame's checksum wrong for any other WAL, lap or turn, whatever its header says
 * after a bit flip in exactly these fields. */
static uint64_t wal_frame_seed(const struct wal_frame *header)
{
    uint64_t parts[3] = {header->identity, header->generation, header->sequence};

    return XXH3_64bits(parts, sizeof parts);
}

uint64_t wal_frame_checksum(const uint8_t *bytes, const struct wal_frame *header)
{
    struct wal_frame copy = *header;
    uint64_t seed;

    copy.checksum = 0;
    seed = XXH3_64bits_withSeed(&copy, sizeof copy, wal_frame_seed(header));
    return XXH3_64bits_withSeed(bytes + sizeof copy, header->bytes - sizeof copy, seed);
}

bool wal_entries_judge(const uint8_t *bytes, size_t length, uint64_t *first, uint64_t *last)
{
    size_t at = 0;
    uint64_t index = 0;

    while (at < length) {
        struct log_entry entry;

        if (length - at < sizeof entry) {
            return false;
        }
        memcpy(&entry, bytes + at, sizeof entry);
        if (entry.payload_bytes > RAFT_PAYLOAD_BYTES_MAX ||
            log_entry_bytes(entry.payload_bytes) > length - at || entry.index == 0 ||
            entry.index == UINT64_MAX || entry.term == 0) {
            return false;
        }
        if (at == 0) {
            *first = entry.index;
        } else if (entry.index != index + 1) {
            return false;
        }
        index = entry.index;
        at += log_entry_bytes(entry.payload_bytes);
    }
    *last = index;
    return at > 0;
}

const char *wal_damage_name(enum wal_damage damage)
{
    static const char *const names[WAL_DAMAGE_COUNT] = {
        "intact", "zeroed", "checksum", "stale", "misdirected", "garbage", "unreadable", "record",
    };

    return (unsigned)damage < WAL_DAMAGE_COUNT ? names[damage] : "unknown";
}

/* ---- options --------------------------------------------------------------------------------- */

uint32_t wal_frame_bytes_min(uint32_t replicas_max, uint32_t block_bytes)
{
    uint64_t bytes = sizeof(struct wal_frame) + (uint64_t)replicas_max * WAL_STATE_BYTES_MAX +
                     sizeof(struct wal_record) + WAL_ENTRY_BYTES_MAX;

    return (uint32_t)wal_pad_block(bytes, block_bytes);
}

const char *wal_options_check(const struct wal_options *options)
{
    uint32_t block = options->block_bytes;

    if (options->identity == 0) {
        return "identity must not be 0";
    }
    if (block < WAL_BLOCK_BYTES || block > 65536 || (block & (block - 1)) != 0) {
        return "block_bytes must be a power of two from 4096 to 65536";
    }
    if (options->replicas_max == 0 || options->replicas_max > WAL_REPLICAS_MAX) {
        return "replicas_max must be 1 to 2048";
    }
    if (options->segments_count < WAL_SEGMENTS_MIN || options->segments_count > WAL_SEGMENTS_MAX) {
        return "segments_count must be 3 to 256";
    }
    if (options->frame_bytes_max % block != 0 || options->frame_bytes_max > WAL_FRAME_BYTES_LIMIT ||
        options->frame_bytes_max < wal_frame_bytes_min(options->replicas_max, block)) {
        return "frame_bytes_max must be a multiple of block_bytes, at most 1 MiB, and hold every "
               "replica's state and the longest entry";
    }
    if (options->segment_bytes % block != 0 ||
        options->segment_bytes < 2 * (uint64_t)options->frame_bytes_max ||
        options->segment_bytes > UINT64_C(1) << 40) {
        return "segment_bytes must be a multiple of block_bytes, from two frames to 1 TiB";
    }
    return NULL;
}
