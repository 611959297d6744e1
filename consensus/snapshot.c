/* SPDX-License-Identifier: Apache-2.0 */
#include "consensus/snapshot.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#define SNAPSHOT_MAGIC       UINT64_C(0x31504e5359414c42) /* "BLAYSNP1" */
#define SNAPSHOT_BLOCK_MARK  UINT32_C(0x4b4f4c42)         /* "BLOK" */
#define SNAPSHOT_FOOTER_MARK UINT32_C(0x544f4f46)         /* "FOOT" */

enum { SNAPSHOT_VERSION = 1 };

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little-endian, as is");

/* The checksum comes first in each part and covers everything behind it in that part, zero-fill
 * included; its seed is the checksum of the part before. */
struct snapshot_header {
    uint64_t checksum;
    uint64_t magic;
    uint16_t version;
    uint16_t shard;
    uint16_t configuration_bytes;
    uint16_t zero;
    uint32_t token_epoch;
    uint32_t header_bytes; /* this struct and the configuration, zero-filled to 8 */
    uint64_t replica_id;
    struct log_base base;
    uint64_t zero2;
};
static_assert(sizeof(struct snapshot_header) == 88, "snapshot_header is 88 bytes");
static_assert(sizeof(struct snapshot_header) + ((RAFT_CONFIGURATION_BYTES_MAX + 7) & ~7) <=
                  SNAPSHOT_HEADER_BYTES_MAX,
              "the longest header fits");

struct snapshot_block {
    uint64_t checksum;
    uint32_t mark;
    uint32_t length; /* of the bytes behind, without zero-fill */
};
static_assert(sizeof(struct snapshot_block) == SNAPSHOT_BLOCK_PREFIX_BYTES, "prefix is 16 bytes");

struct snapshot_footer {
    uint64_t checksum;
    uint32_t mark;
    uint32_t zero;
    uint64_t blocks;
    uint64_t bytes;
    uint64_t digest;
    uint64_t index; /* the base's: ties the end to the beginning for a reader of the end alone */
};
static_assert(sizeof(struct snapshot_footer) == SNAPSHOT_FOOTER_BYTES, "footer is 48 bytes");

static size_t snapshot_pad8(size_t bytes)
{
    return (bytes + 7u) & ~(size_t)7u;
}

static uint64_t snapshot_checksum(const uint8_t *part, size_t bytes, uint64_t chain)
{
    return XXH3_64bits_withSeed(part + sizeof(uint64_t), bytes - sizeof(uint64_t), chain);
}

static void snapshot_seal(uint8_t *part, size_t bytes, uint64_t *chain)
{
    *chain = snapshot_checksum(part, bytes, *chain);
    memcpy(part, chain, sizeof *chain);
}

/* ---- writing --------------------------------------------------------------------------------- */

size_t snapshot_encode_header(struct snapshot_encoder *encoder, const struct snapshot_meta *meta,
                              uint8_t out[SNAPSHOT_HEADER_BYTES_MAX])
{
    size_t bytes = sizeof(struct snapshot_header) + snapshot_pad8(meta->configuration_bytes);
    struct snapshot_header header = {.magic = SNAPSHOT_MAGIC,
                                     .version = SNAPSHOT_VERSION,
                                     .shard = meta->shard,
                                     .configuration_bytes = meta->configuration_bytes,
                                     .token_epoch = meta->token_epoch,
                                     .header_bytes = (uint32_t)bytes,
                                     .replica_id = meta->replica_id,
                                     .base = meta->base};

    assert(meta->configuration_bytes <= RAFT_CONFIGURATION_BYTES_MAX);
    *encoder = (struct snapshot_encoder){.chain = SNAPSHOT_MAGIC, .index = meta->base.index};
    memset(out, 0, bytes);
    memcpy(out, &header, sizeof header);
    memcpy(out + sizeof header, meta->configuration, meta->configuration_bytes);
    snapshot_seal(out, bytes, &encoder->chain);
    return bytes;
}

size_t snapshot_encode_block(struct snapshot_encoder *encoder, uint8_t *out, size_t length)
{
    size_t bytes = sizeof(struct snapshot_block) + snapshot_pad8(length);
    struct snapshot_block block = {.mark = SNAPSHOT_BLOCK_MARK, .length = (uint32_t)length};

    assert(length > 0 && length <= SNAPSHOT_BLOCK_BYTES_MAX);
    memcpy(out, &block, sizeof block);
    memset(out + sizeof block + length, 0, bytes - sizeof block - length);
    snapshot_seal(out, bytes, &encoder->chain);
    encoder->blocks++;
    encoder->bytes += length;
    return bytes;
}

size_t snapshot_encode_footer(struct snapshot_encoder *encoder, uint64_t digest,
                              uint8_t out[SNAPSHOT_FOOTER_BYTES])
{
    struct snapshot_footer footer = {.mark = SNAPSHOT_FOOTER_MARK,
                                     .blocks = encoder->blocks,
                                     .bytes = encoder->bytes,
                                     .digest = digest,
                                     .index = encoder->index};

    memcpy(out, &footer, sizeof footer);
    snapshot_seal(out, sizeof footer, &encoder->chain);
    return sizeof footer;
}

/* ---- reading --------------------------------------------------------------------------------- */

void snapshot_decoder_init(struct snapshot_decoder *decoder)
{
    memset(decoder, 0, offsetof(struct snapshot_decoder, buffer));
    decoder->chain = SNAPSHOT_MAGIC;
}

/* How many bytes the part being read has, as far as its first bytes tell; 0 = it cannot be right.
 */
static size_t snapshot_part_bytes(const struct snapshot_decoder *decoder)
{
    struct snapshot_header header;
    struct snapshot_block block;

    if (decoder->stage == 0) {
        if (decoder->filled < sizeof header) {
            return sizeof header;
        }
        memcpy(&header, decoder->buffer, sizeof header);
        if (header.magic != SNAPSHOT_MAGIC || header.version != SNAPSHOT_VERSION ||
            header.configuration_bytes > RAFT_CONFIGURATION_BYTES_MAX ||
            header.header_bytes != sizeof header + snapshot_pad8(header.configuration_bytes)) {
            return 0;
        }
        return header.header_bytes;
    }
    if (decoder->filled < sizeof block) {
        return sizeof block;
    }
    memcpy(&block, decoder->buffer, sizeof block);
    if (block.mark == SNAPSHOT_FOOTER_MARK) {
        return SNAPSHOT_FOOTER_BYTES;
    }
    if (block.mark != SNAPSHOT_BLOCK_MARK || block.length == 0 ||
        block.length > SNAPSHOT_BLOCK_BYTES_MAX) {
        return 0;
    }
    return sizeof block + snapshot_pad8(block.length);
}

static int snapshot_take_header(struct snapshot_decoder *decoder, const struct snapshot_sink *sink)
{
    struct snapshot_header header;

    memcpy(&header, decoder->buffer, sizeof header);
    if (header.replica_id == 0 || header.base.index == UINT64_MAX ||
        header.base.position % 8 != 0 || header.zero != 0 || header.zero2 != 0) {
        return -EBADMSG;
    }
    decoder->meta.replica_id = header.replica_id;
    decoder->meta.shard = header.shard;
    decoder->meta.token_epoch = header.token_epoch;
    decoder->meta.base = header.base;
    decoder->meta.configuration_bytes = header.configuration_bytes;
    memcpy(decoder->meta.configuration, decoder->buffer + sizeof header,
           header.configuration_bytes);
    decoder->stage = 1;
    return sink->header != NULL ? sink->header(sink->context, &decoder->meta) : 0;
}

static int snapshot_take_footer(struct snapshot_decoder *decoder)
{
    struct snapshot_footer footer;

    memcpy(&footer, decoder->buffer, sizeof footer);
    if (footer.blocks != decoder->blocks || footer.bytes != decoder->bytes ||
        footer.index != decoder->meta.base.index || footer.zero != 0) {
        return -EBADMSG;
    }
    decoder->digest = footer.digest;
    decoder->stage = 2;
    return 0;
}

/* A whole part lies in the buffer. */
static int snapshot_take_part(struct snapshot_decoder *decoder, size_t bytes,
                              const struct snapshot_sink *sink)
{
    struct snapshot_block block;
    uint64_t checksum = snapshot_checksum(decoder->buffer, bytes, decoder->chain);

    if (memcmp(decoder->buffer, &checksum, sizeof checksum) != 0) {
        return -EBADMSG;
    }
    decoder->chain = checksum;
    decoder->filled = 0;
    if (decoder->stage == 0) {
        return snapshot_take_header(decoder, sink);
    }
    memcpy(&block, decoder->buffer, sizeof block);
    if (block.mark == SNAPSHOT_FOOTER_MARK) {
        return snapshot_take_footer(decoder);
    }
    decoder->blocks++;
    decoder->bytes += block.length;
    return sink->block != NULL
               ? sink->block(sink->context, decoder->buffer + sizeof block, block.length)
               : 0;
}

int snapshot_decode(struct snapshot_decoder *decoder, const uint8_t *bytes, size_t length,
                    const struct snapshot_sink *sink)
{
    while (decoder->error == 0 && length > 0) {
        size_t wanted = snapshot_part_bytes(decoder);
        size_t taken;

        if (decoder->stage == 2 || wanted == 0) {
            decoder->error = -EBADMSG;
            break;
        }
        taken = wanted - decoder->filled < length ? wanted - decoder->filled : length;
        memcpy(decoder->buffer + decoder->filled, bytes, taken);
        decoder->filled += (uint32_t)taken;
        bytes += taken;
        length -= taken;
        /* The first bytes may have told that the part is longer. */
        wanted = snapshot_part_bytes(decoder);
        if (wanted == 0) {
            decoder->error = -EBADMSG;
        } else if (decoder->filled == wanted) {
            decoder->error = snapshot_take_part(decoder, wanted, sink);
        }
    }
    if (decoder->error != 0) {
        return decoder->error;
    }
    return decoder->stage == 2 ? 1 : 0;
}

int snapshot_decode_end(const struct snapshot_decoder *decoder)
{
    if (decoder->error != 0) {
        return decoder->error;
    }
    return decoder->stage == 2 ? 0 : -EBADMSG;
}

/* ---- file names ------------------------------------------------------------------------------ */

void snapshot_name(char out[SNAPSHOT_NAME_BYTES], uint64_t replica_id, uint64_t index)
{
    snprintf(out, SNAPSHOT_NAME_BYTES, "snap-%016" PRIx64 "-%020" PRIu64 ".belay", replica_id,
             index);
}

bool snapshot_name_parse(const char *name, uint64_t *replica_id, uint64_t *index)
{
    char again[SNAPSHOT_NAME_BYTES];
    uint64_t numbers[2] = {0, 0};
    size_t at = 5;

    if (strnlen(name, SNAPSHOT_NAME_BYTES) != 5 + 16 + 1 + 20 + 6) {
        return false;
    }
    for (; at < 21; at++) {
        char c = name[at];
        unsigned digit = c >= 'a' ? (unsigned)(c - 'a') + 10 : (unsigned)(c - '0');

        numbers[0] = numbers[0] << 4 | (digit & 15);
    }
    for (at = 22; at < 42; at++) {
        numbers[1] = numbers[1] * 10 + (unsigned char)(name[at] - '0');
    }
    /* Whatever was wrong with it, the number's own name differs from it then. */
    snapshot_name(again, numbers[0], numbers[1]);
    if (memcmp(again, name, 5 + 16 + 1 + 20 + 6) != 0) {
        return false;
    }
    *replica_id = numbers[0];
    *index = numbers[1];
    return true;
}
