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
