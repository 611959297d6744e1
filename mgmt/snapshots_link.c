/* SPDX-License-Identifier: Apache-2.0
 *
 * See mgmt/snapshots_link.h.
 */
#include "mgmt/snapshots_link.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

#define LINK_MAGIC UINT64_C(0x31504e5359414c42) /* "BLAYSNP1" */

static_assert((int)LINK_TAG_BYTES == (int)crypto_shorthash_siphashx24_BYTES, "128-bit tags");
static_assert((int)LINK_KEY_BYTES == (int)crypto_shorthash_siphashx24_KEYBYTES, "128-bit keys");
static_assert((int)LINK_KEY_BYTES >= (int)crypto_generichash_KEYBYTES_MIN, "enough for BLAKE2b");

void link_greet(struct link_greeting *greeting, const uint8_t nonce[LINK_NONCE_BYTES])
{
    greeting->magic = LINK_MAGIC;
    memcpy(greeting->nonce, nonce, LINK_NONCE_BYTES);
}

bool link_greeting_sound(const struct link_greeting *greeting)
{
    return greeting->magic == LINK_MAGIC;
}

void link_derive(struct link_keys *keys, const uint8_t cluster_key[LINK_KEY_BYTES],
                 const uint8_t server_nonce[LINK_NONCE_BYTES],
                 const uint8_t client_nonce[LINK_NONCE_BYTES])
{
    static const char purpose[] = "belay snapshot transfer";
    uint8_t both[2 * LINK_KEY_BYTES];
    crypto_generichash_state state;
    crypto_generichash_init(&state, cluster_key, LINK_KEY_BYTES, sizeof both);
    crypto_generichash_update(&state, (const uint8_t *)purpose, sizeof purpose);
    crypto_generichash_update(&state, server_nonce, LINK_NONCE_BYTES);
    crypto_generichash_update(&state, client_nonce, LINK_NONCE_BYTES);
    crypto_generichash_final(&state, both, sizeof both);
    memcpy(keys->to_server, both, LINK_KEY_BYTES);
    memcpy(keys->to_client, both + LINK_KEY_BYTES, LINK_KEY_BYTES);
    sodium_memzero(both, sizeof both);
}

void link_request_seal(struct link_request *request, const struct link_keys *keys)
{
    request->magic = LINK_MAGIC;
    request->zero = 0;
    crypto_shorthash_siphashx24(request->tag, (const uint8_t *)request,
                                offsetof(struct link_request, tag), keys->to_server);
}

bool link_request_check(const struct link_request *request, const struct link_keys *keys)
{
    uint8_t tag[LINK_TAG_BYTES];
    crypto_shorthash_siphashx24(tag, (const uint8_t *)request, offsetof(struct link_request, tag),
                                keys->to_server);
    return request->magic == LINK_MAGIC && request->zero == 0 &&
           sodium_memcmp(tag, request->tag, sizeof tag) == 0;
}

size_t link_frame_seal(uint8_t *out, enum link_frame_kind kind, size_t length, uint64_t sequence,
                       const struct link_keys *keys)
{
    assert(length <= LINK_PAYLOAD_BYTES_MAX);
    const struct link_frame frame = {
        .kind = (uint32_t)kind, .length = (uint32_t)length, .sequence = sequence};
    size_t covered = sizeof frame + length;
    memcpy(out, &frame, sizeof frame);
    crypto_shorthash_siphashx24(out + covered, out, covered, keys->to_client);
    return covered + LINK_TAG_BYTES;
}

long link_frame_check(const uint8_t *bytes, size_t length, uint64_t sequence,
                      const struct link_keys *keys)
{
    struct link_frame frame;
    if (length < sizeof frame)
        return 0;
    memcpy(&frame, bytes, sizeof frame);
    /* Before the tag: a length that cannot be must not make us wait for its end. */
    if ((frame.kind != LINK_ANSWER && frame.kind != LINK_DATA) ||
        frame.length > LINK_PAYLOAD_BYTES_MAX || frame.sequence != sequence ||
        (frame.kind == LINK_ANSWER && frame.length != sizeof(struct link_answer)) ||
        (frame.kind == LINK_DATA && frame.length == 0))
        return -EBADMSG;
    size_t covered = sizeof frame + frame.length;
    if (length < covered + LINK_TAG_BYTES)
        return 0;
    uint8_t tag[LINK_TAG_BYTES];
    crypto_shorthash_siphashx24(tag, bytes, covered, keys->to_client);
    if (sodium_memcmp(tag, bytes + covered, sizeof tag) != 0)
        return -EBADMSG;
    return (long)(covered + LINK_TAG_BYTES);
}
