/* SPDX-License-Identifier: Apache-2.0
 *
 * The snapshot decoder over hostile bytes. First byte: chunk size; second: whether the input is
 * raw, or becomes the parts of a file with right checksums, so that what lies behind them is
 * reached.
 */
#include <assert.h>
#include <string.h>

#include "consensus/snapshot.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct snapshot_decoder fuzz_decoder;

static int fuzz_header(void *context, const struct snapshot_meta *meta)
{
    assert(meta->configuration_bytes <= RAFT_CONFIGURATION_BYTES_MAX);
    (void)context;
    return 0;
}

static int fuzz_block(void *context, const uint8_t *bytes, size_t length)
{
    uint64_t *sum = context;

    assert(length > 0 && length <= SNAPSHOT_BLOCK_BYTES_MAX);
    for (size_t k = 0; k < length; k++) {
        *sum += bytes[k];
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t file[128 * 1024];
    uint64_t sum = 0;
    struct snapshot_sink sink = {fuzz_header, fuzz_block, &sum};
    struct snapshot_meta meta = {.replica_id = 1};
    struct snapshot_encoder encoder;
    size_t length = 0;
    size_t chunk;

    if (size < 2 || size > 64 * 1024) {
        return 0;
    }
    chunk = data[0] + 1u;
    if (data[1] % 2 == 0) {
        memcpy(file, data + 2, size - 2);
        length = size - 2;
    } else {
        memcpy(&meta.base, data + 2, size - 2 < sizeof meta.base ? size - 2 : sizeof meta.base);
        length = snapshot_encode_header(&encoder, &meta, file);
        if (size > 2) {
            memcpy(file + length + SNAPSHOT_BLOCK_PREFIX_BYTES, data + 2, size - 2);
            length += snapshot_encode_block(&encoder, file + length, size - 2);
        }
        length += snapshot_encode_footer(&encoder, sum, file + length);
    }
    snapshot_decoder_init(&fuzz_decoder);
    for (size_t at = 0; at < length; at += chunk) {
        if (snapshot_decode(&fuzz_decoder, file + at, length - at < chunk ? length - at : chunk,
                            &sink) < 0) {
            break;
        }
    }
    /* A file made by the encoder is right unless its base cannot be. */
    assert(data[1] % 2 == 0 || snapshot_decode_end(&fuzz_decoder) == 0 ||
           meta.base.position % 8 != 0 || meta.base.index == UINT64_MAX);
    return 0;
}
