/* SPDX-License-Identifier: Apache-2.0
 *
 * The snapshot file of one replica: {header, blocks of opaque state-machine bytes, footer}.
 *
 * Every part bears a checksum seeded with the one before it (the header's with a constant), so a
 * part that is damaged, missing, repeated or out of order is found, and so is a file cut at a
 * block's end: without the footer a snapshot is not complete. The footer repeats the counts and
 * carries the state digest, which replicas compare at equal indexes.
 *
 * Pure: encodes into and decodes from the caller's bytes. The decoder is total.
 */
#ifndef BELAY_CONSENSUS_SNAPSHOT_H
#define BELAY_CONSENSUS_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "consensus/log.h"
#include "consensus/raft.h"

enum {
    SNAPSHOT_BLOCK_BYTES_MAX = 64 * 1024, /* state-machine bytes in one block */
    SNAPSHOT_BLOCK_PREFIX_BYTES = 16,     /* in front of them */
    SNAPSHOT_HEADER_BYTES_MAX = 96 + RAFT_CONFIGURATION_BYTES_MAX,
    SNAPSHOT_FOOTER_BYTES = 48,
    SNAPSHOT_NAME_BYTES = 64, /* of a file name, final zero included */
};

struct snapshot_meta {
    uint64_t replica_id;
    uint16_t shard;
    uint16_t configuration_bytes;
    uint32_t token_epoch;
    struct log_base base;                                /* what the snapshot stands for */
    uint8_t configuration[RAFT_CONFIGURATION_BYTES_MAX]; /* newest at or below base */
};

/* ---- writing --------------------------------------------------------------------------------- */

struct snapshot_encoder {
    uint64_t chain; /* checksum of the part before */
    uint64_t blocks;
    uint64_t bytes;
    uint64_t index; /* of the base */
};

/* Writes the header; returns its length (a multiple of 8). */
size_t snapshot_encode_header(struct snapshot_encoder *encoder, const struct snapshot_meta *meta,
                              uint8_t out[SNAPSHOT_HEADER_BYTES_MAX]);

/* Completes a block in place: out[SNAPSHOT_BLOCK_PREFIX_BYTES..] already holds `length` state bytes
 * (1..SNAPSHOT_BLOCK_BYTES_MAX) and has room for 7 more. Returns the block's length in the file. */
size_t snapshot_encode_block(struct snapshot_encoder *encoder, uint8_t *out, size_t length);

size_t snapshot_encode_footer(struct snapshot_encoder *encoder, uint64_t digest,
                              uint8_t out[SNAPSHOT_FOOTER_BYTES]);

/* ---- reading --------------------------------------------------------------------------------- */

struct snapshot_sink {
    /* Not 0 = stop; the decoder returns it. Bytes are valid during the call. NULL = not wanted. */
    int (*header)(void *context, const struct snapshot_meta *meta);
    int (*block)(void *context, const uint8_t *bytes, size_t length);
    void *context;
};

struct snapshot_decoder {
    struct snapshot_meta meta; /* known once `stage` > 0 */
    uint64_t digest;           /* known when complete */
    uint64_t chain;
    uint64_t blocks;
    uint64_t bytes;
    int error;       /* the first one, sticky */
    uint32_t stage;  /* 0 header, 1 blocks, 2 complete */
    uint32_t filled; /* bytes in buffer */
    uint8_t buffer[SNAPSHOT_BLOCK_PREFIX_BYTES + SNAPSHOT_BLOCK_BYTES_MAX + 8];
};

void snapshot_decoder_init(struct snapshot_decoder *decoder);

/* Takes the next bytes of the file, cut anywhere. 0 = go on; 1 = complete (the footer was right; a
 * byte after it is damage); -EBADMSG = not a snapshot or damaged; or what the sink returned. What a
 * block callback received is known to be right up to there, not that the file goes on so. */
int snapshot_decode(struct snapshot_decoder *decoder, const uint8_t *bytes, size_t length,
                    const struct snapshot_sink *sink);

/* At the end of the file: 0, or -EBADMSG if it is not complete. */
int snapshot_decode_end(const struct snapshot_decoder *decoder);

/* ---- file names ------------------------------------------------------------------------------ */

/* "snap-<replica, 16 hex digits>-<index, 20 decimal digits>.belay" */
void snapshot_name(char out[SNAPSHOT_NAME_BYTES], uint64_t replica_id, uint64_t index);

/* False = not a snapshot's name (temporary files are not). */
bool snapshot_name_parse(const char *name, uint64_t *replica_id, uint64_t *index);

/* Of one replica's snapshots the newest is the one with the highest index: a higher index is a
 * later state of the same log, whatever the terms look like. */
static inline bool snapshot_is_newer(uint64_t index, uint64_t than_index)
{
    return index > than_index;
}

#endif
