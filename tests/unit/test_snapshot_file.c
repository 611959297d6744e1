/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshot files: round trip in any chunking, and every damage found.
 */
#include <criterion/criterion.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "consensus/snapshot.h"

enum { BLOCKS = 4, FILE_BYTES_MAX = 256 * 1024 };

static const size_t block_lengths[BLOCKS] = {1, 64 * 1024, 777, 4096};

struct file {
    uint8_t bytes[FILE_BYTES_MAX];
    size_t length;
    size_t parts[BLOCKS + 2]; /* where each part starts */
};

struct taken {
    uint8_t bytes[FILE_BYTES_MAX];
    size_t length;
    uint32_t headers;
    uint32_t blocks;
    int stop_at_block; /* -1 = never */
};

static struct snapshot_decoder decoder;
static struct file file;
static struct taken taken;

static struct snapshot_meta meta_of(void)
{
    return (struct snapshot_meta){.replica_id = 0xabcdef,
                                  .shard = 7,
                                  .configuration_bytes = 13,
                                  .token_epoch = 3,
                                  .base = {.index = 900,
                                           .term = 12,
                                           .position = 81920,
                                           .checksum = UINT64_C(0x1234567890),
                                           .stamp_ns = UINT64_MAX - 5},
                                  .configuration = "thirteenbytes"};
}

static uint8_t state_byte(size_t at)
{
    return (uint8_t)(at * 31 + at / 251);
}

static void make_file(void)
{
    struct snapshot_meta meta = meta_of();
    struct snapshot_encoder encoder;
    size_t at = 0;

    file.parts[0] = 0;
    file.length = snapshot_encode_header(&encoder, &meta, file.bytes);
    for (int b = 0; b < BLOCKS; b++) {
        uint8_t *out = file.bytes + file.length;

        for (size_t k = 0; k < block_lengths[b]; k++) {
            out[SNAPSHOT_BLOCK_PREFIX_BYTES + k] = state_byte(at++);
        }
        file.parts[b + 1] = file.length;
        file.length += snapshot_encode_block(&encoder, out, block_lengths[b]);
        cr_assert_eq(file.length % 8, 0);
    }
    file.parts[BLOCKS + 1] = file.length;
    file.length += snapshot_encode_footer(&encoder, UINT64_C(0xd16e57), file.bytes + file.length);
    cr_assert_eq(file.length - file.parts[BLOCKS + 1], SNAPSHOT_FOOTER_BYTES);
}

static int take_header(void *context, const struct snapshot_meta *meta)
{
    struct taken *into = context;
    struct snapshot_meta want = meta_of();

    into->headers++;
    cr_assert_eq(memcmp(&meta->base, &want.base, sizeof want.base), 0);
    cr_assert(meta->replica_id == want.replica_id && meta->shard == want.shard &&
              meta->token_epoch == want.token_epoch &&
              meta->configuration_bytes == want.configuration_bytes &&
              memcmp(meta->configuration, want.configuration, want.configuration_bytes) == 0);
    return 0;
}

static int take_block(void *context, const uint8_t *bytes, size_t length)
{
    struct taken *into = context;

    if ((int)into->blocks == into->stop_at_block) {
        return -ECANCELED;
    }
    cr_assert_leq(into->length + length, FILE_BYTES_MAX);
    memcpy(into->bytes + into->length, bytes, length);
    into->length += length;
    into->blocks++;
    return 0;
}

/* Feeds the file in chunks of `chunk` bytes; the decoder's last word. */
static int decode(const uint8_t *bytes, size_t length, size_t chunk)
{
    struct snapshot_sink sink = {take_header, take_block, &taken};
    int result = 0;

    memset(&taken, 0, offsetof(struct taken, stop_at_block));
    snapshot_decoder_init(&decoder);
    for (size_t at = 0; at < length && result >= 0; at += chunk) {
        result =
            snapshot_decode(&decoder, bytes + at, length - at < chunk ? length - at : chunk, &sink);
    }
    return result < 0 ? result : snapshot_decode_end(&decoder);
}

static void setup(void)
{
    make_file();
    taken.stop_at_block = -1;
}

TestSuite(snapshot_file, .init = setup);

Test(snapshot_file, round_trip_in_any_chunking)
{
    static const size_t chunks[] = {1, 7, 8, 16, 17, 100, 4096, 65536, 65553, FILE_BYTES_MAX};

    for (size_t c = 0; c < sizeof chunks / sizeof chunks[0]; c++) {
        cr_assert_eq(decode(file.bytes, file.length, chunks[c]), 0, "chunks of %zu", chunks[c]);
        cr_assert_eq(taken.headers, 1);
        cr_assert_eq(taken.blocks, BLOCKS);
        cr_assert_eq(taken.length, 1 + 65536 + 777 + 4096);
        for (size_t k = 0; k < taken.length; k++) {
            cr_assert_eq(taken.bytes[k], state_byte(k));
        }
        cr_assert_eq(decoder.digest, UINT64_C(0xd16e57));
    }
}

Test(snapshot_file, an_empty_state_is_a_snapshot)
{
    struct snapshot_meta meta = meta_of();
    struct snapshot_encoder encoder;
    uint8_t bytes[SNAPSHOT_HEADER_BYTES_MAX + SNAPSHOT_FOOTER_BYTES];
    size_t length = snapshot_encode_header(&encoder, &meta, bytes);

    length += snapshot_encode_footer(&encoder, 1, bytes + length);
    cr_assert_eq(decode(bytes, length, 5), 0);
    cr_assert_eq(taken.blocks, 0);
}

Test(snapshot_file, the_longest_membership_fits)
{
    struct snapshot_meta meta = meta_of();
    struct snapshot_encoder encoder;
    uint8_t bytes[SNAPSHOT_HEADER_BYTES_MAX];

    meta.configuration_bytes = RAFT_CONFIGURATION_BYTES_MAX;
    cr_assert_leq(snapshot_encode_header(&encoder, &meta, bytes), sizeof bytes);
}

Test(snapshot_file, every_flipped_byte_is_found)
{
    for (size_t k = 0; k < file.length; k += k < 300 || k > file.length - 200 ? 1 : 97) {
        file.bytes[k] ^= (uint8_t)(1u << (k % 8));
        cr_assert_eq(decode(file.bytes, file.length, 4096), -EBADMSG, "byte %zu", k);
        file.bytes[k] ^= (uint8_t)(1u << (k % 8));
    }
    cr_assert_eq(decode(file.bytes, file.length, 4096), 0);
}

Test(snapshot_file, every_cut_is_found)
{
    for (size_t k = 0; k < file.length; k += k < 300 || k > file.length - 200 ? 1 : 97) {
        cr_assert_eq(decode(file.bytes, k, 4096), -EBADMSG, "cut at %zu", k);
    }
    for (int part = 0; part < BLOCKS + 2; part++) {
        cr_assert_eq(decode(file.bytes, file.parts[part], 4096), -EBADMSG);
    }
}

Test(snapshot_file, bytes_behind_the_end_are_found)
{
    file.bytes[file.length] = 0;
    cr_assert_eq(decode(file.bytes, file.length + 1, 4096), -EBADMSG);
    cr_assert_eq(decode(file.bytes, file.length + 1, 1), -EBADMSG);
}

/* Blocks that are sound in themselves but missing, twice, or in another order. */
Test(snapshot_file, a_block_left_out_or_repeated_is_found)
{
    uint8_t *other = malloc(FILE_BYTES_MAX);
    size_t second = file.parts[2];
    size_t third = file.parts[3];

    memcpy(other, file.bytes, second); /* without the second block */
    memcpy(other + second, file.bytes + third, file.length - third);
    cr_assert_eq(decode(other, file.length - (third - second), 4096), -EBADMSG);
    memcpy(other, file.bytes, third); /* the second block twice */
    memcpy(other + third, file.bytes + second, file.length - second);
    cr_assert_eq(decode(other, file.length + (third - second), 4096), -EBADMSG);
    free(other);
}

/* Equal lengths, so that counts cannot tell: only the chain of checksums can. */
Test(snapshot_file, blocks_in_another_order_are_found)
{
    struct snapshot_meta meta = meta_of();
    struct snapshot_encoder encoder;
    uint8_t *bytes = calloc(1, FILE_BYTES_MAX);
    uint8_t first[128];
    size_t header = snapshot_encode_header(&encoder, &meta, bytes);
    size_t length = header;

    for (uint8_t b = 0; b < 2; b++) {
        memset(bytes + length + SNAPSHOT_BLOCK_PREFIX_BYTES, b + 1, 100);
        length += snapshot_encode_block(&encoder, bytes + length, 100);
    }
    length += snapshot_encode_footer(&encoder, 1, bytes + length);
    cr_assert_eq(decode(bytes, length, 64), 0);
    memcpy(first, bytes + header, 120);
    memmove(bytes + header, bytes + header + 120, 120);
    memcpy(bytes + header + 120, first, 120);
    cr_assert_eq(decode(bytes, length, 64), -EBADMSG);
    free(bytes);
}

/* A footer with right checksums that does not speak of these blocks. */
Test(snapshot_file, a_footer_that_miscounts_is_found)
{
    for (int what = 0; what < 4; what++) {
        struct snapshot_meta meta = meta_of();
        struct snapshot_encoder encoder;
        uint8_t bytes[SNAPSHOT_HEADER_BYTES_MAX + 64 + SNAPSHOT_FOOTER_BYTES] = {0};
        size_t length = snapshot_encode_header(&encoder, &meta, bytes);

        length += snapshot_encode_block(&encoder, bytes + length, 8);
        encoder.blocks += what == 1;
        encoder.bytes += what == 2;
        encoder.index += what == 3;
        length += snapshot_encode_footer(&encoder, 1, bytes + length);
        cr_assert_eq(decode(bytes, length, 64), what == 0 ? 0 : -EBADMSG, "%d", what);
    }
}

/* Another snapshot's footer does not end this one. */
Test(snapshot_file, a_foreign_footer_is_found)
{
    struct snapshot_meta meta = meta_of();
    struct snapshot_encoder encoder;
    uint8_t bytes[2 * SNAPSHOT_HEADER_BYTES_MAX];
    size_t length;

    meta.base.index++;
    length = snapshot_encode_header(&encoder, &meta, bytes);
    memcpy(bytes + length, file.bytes + file.parts[BLOCKS + 1], SNAPSHOT_FOOTER_BYTES);
    snapshot_decoder_init(&decoder);
    cr_assert_eq(snapshot_decode(&decoder, bytes, length + SNAPSHOT_FOOTER_BYTES,
                                 &(struct snapshot_sink){0}),
                 -EBADMSG);
    cr_assert_eq(decoder.stage, 1);
}

Test(snapshot_file, the_sinks_error_is_given_back_and_stays)
{
    struct snapshot_sink sink = {take_header, take_block, &taken};

    taken.stop_at_block = 2;
    cr_assert_eq(decode(file.bytes, file.length, 4096), -ECANCELED);
    cr_assert_eq(taken.blocks, 2);
    cr_assert_eq(snapshot_decode(&decoder, file.bytes, 1, &sink), -ECANCELED);
    cr_assert_eq(snapshot_decode_end(&decoder), -ECANCELED);
}

Test(snapshot_file, names)
{
    char name[SNAPSHOT_NAME_BYTES];
    uint64_t replica = 0;
    uint64_t index = 0;

    snapshot_name(name, UINT64_C(0xfedcba9876543210), 42);
    cr_assert_str_eq(name, "snap-fedcba9876543210-00000000000000000042.belay");
    cr_assert(snapshot_name_parse(name, &replica, &index));
    cr_assert(replica == UINT64_C(0xfedcba9876543210) && index == 42);
    snapshot_name(name, UINT64_MAX, UINT64_MAX);
    cr_assert(snapshot_name_parse(name, &replica, &index));
    cr_assert(replica == UINT64_MAX && index == UINT64_MAX);
    for (size_t k = 0; name[k] != 0; k++) {
        char was = name[k];

        name[k] = '%';
        cr_assert_not(snapshot_name_parse(name, &replica, &index), "character %zu", k);
        name[k] = was;
    }
    cr_assert_not(snapshot_name_parse("", &replica, &index));
    cr_assert_not(snapshot_name_parse("snap-", &replica, &index));
    cr_assert_not(
        snapshot_name_parse("snap-FEDCBA9876543210-00000000000000000042.belay", &replica, &index));
    cr_assert_not(
        snapshot_name_parse("snap-fedcba9876543210-99999999999999999999.belay", &replica, &index),
        "beyond 64 bits");
    cr_assert_not(snapshot_name_parse("snap-fedcba9876543210-00000000000000000042.belay.tmp",
                                      &replica, &index));
}

/* hashicorp/raft#395: the newest is the one with the highest index, whatever the terms say. */
Test(snapshot_file, the_higher_index_is_newer)
{
    cr_assert(snapshot_is_newer(10, 9));
    cr_assert_not(snapshot_is_newer(9, 9));
    cr_assert_not(snapshot_is_newer(9, UINT64_C(1) << 40));
}
