/* SPDX-License-Identifier: Apache-2.0
 *
 * The manifest decoder over hostile bytes, with the checksum made right so that what lies behind it
 * is reached. What it accepts is sound and encodes to the same bytes.
 */
#include <assert.h>
#include <string.h>

#include <xxhash.h>

#include "consensus/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* As in manifest.c: magic, version, length, checksum over what is behind it. */
enum { FUZZ_LENGTH_AT = 12, FUZZ_CHECKSUM_AT = 16, FUZZ_CHECKED_FROM = 24 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct manifest manifest;
    static uint8_t bytes[MANIFEST_BYTES_MAX];
    static uint8_t again[MANIFEST_BYTES_MAX];
    uint64_t magic = UINT64_C(0x314e414d59414c42);
    uint32_t version = MANIFEST_VERSION;
    uint32_t length = (uint32_t)size;
    uint64_t checksum;

    (void)manifest_decode(&manifest, data, size);
    if (size < FUZZ_CHECKED_FROM || size > sizeof bytes) {
        return 0;
    }
    memcpy(bytes, data, size);
    memcpy(bytes, &magic, sizeof magic);
    memcpy(bytes + 8, &version, sizeof version);
    memcpy(bytes + FUZZ_LENGTH_AT, &length, sizeof length);
    checksum =
        XXH3_64bits_withSeed(bytes + FUZZ_CHECKED_FROM, size - FUZZ_CHECKED_FROM, magic ^ size);
    memcpy(bytes + FUZZ_CHECKSUM_AT, &checksum, sizeof checksum);
    if (manifest_decode(&manifest, bytes, size) == 0) {
        assert(manifest_check(&manifest) == NULL);
        assert(manifest_encode(&manifest, again) == size);
        assert(manifest_decode(&manifest, again, size) == 0);
    }
    return 0;
}
