/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys, routing and authenticity: the three places where bytes become numbers.
 */
#include "dataplane/wire/wire.h"

#include <string.h>

#include <sodium.h>
#define XXH_INLINE_ALL /* keys are short: the call costs as much as the hash */
#include <xxhash.h>

static_assert(WIRE_TAG_BYTES == crypto_shorthash_siphashx24_BYTES, "the tag is one SipHash-128");
static_assert(WIRE_MAC_KEY_BYTES == crypto_shorthash_siphashx24_KEYBYTES,
              "one key for both widths");

/* ---- keys ------------------------------------------------------------------------------------ */

uint64_t wire_key_hash(const uint8_t *ns, size_t ns_bytes, const uint8_t *name, size_t name_bytes)
{
    uint8_t key[1 + WIRE_NAMESPACE_BYTES_MAX + WIRE_NAME_BYTES_MAX];

    assert(ns_bytes <= WIRE_NAMESPACE_BYTES_MAX && name_bytes <= WIRE_NAME_BYTES_MAX);
    /* The namespace's length in front keeps "a" + "b" and "" + "ab" apart. */
    key[0] = (uint8_t)ns_bytes;
    if (ns_bytes > 0)
        memcpy(key + 1, ns, ns_bytes);
    if (name_bytes > 0)
        memcpy(key + 1 + ns_bytes, name, name_bytes);
    return XXH3_64bits(key, 1 + ns_bytes + name_bytes);
}

uint64_t wire_text_hash(const uint8_t *text, size_t ns_bytes, size_t name_bytes)
{
    uint8_t key[1 + WIRE_NAMESPACE_BYTES_MAX + WIRE_NAME_BYTES_MAX + 7];
    size_t bytes = ns_bytes + name_bytes;

    assert(ns_bytes <= WIRE_NAMESPACE_BYTES_MAX && name_bytes <= WIRE_NAME_BYTES_MAX);
    key[0] = (uint8_t)ns_bytes;
    for (size_t at = 0; at < bytes; at += 8)
        memcpy(key + 1 + at, text + at, 8);
    return XXH3_64bits(key, 1 + bytes);
}

/* Jump consistent hash (Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm",
 * 2014): growing from n to n + 1 buckets moves 1/(n + 1) of the keys, all of them to the new one.
 */
static uint32_t jump_hash(uint64_t key, uint32_t buckets)
{
    int64_t bucket = 0;
    int64_t next = 0;

    while (next < (int64_t)buckets) {
        bucket = next;
        key = key * UINT64_C(2862933555777941757) + 1;
        next = (int64_t)((double)(bucket + 1) *
                         ((double)(INT64_C(1) << 31) / (double)((key >> 33) + 1)));
    }
    return (uint32_t)bucket;
}

uint16_t wire_shard_of(const uint8_t *ns, size_t ns_bytes, const uint8_t *name, size_t name_bytes,
                       uint32_t shards)
{
    assert(shards >= 1 && shards <= WIRE_SHARDS_MAX);
    const uint8_t *open = name_bytes > 0 ? memchr(name, '{', name_bytes) : NULL;
    if (open != NULL) {
        const uint8_t *inner = open + 1;
        const uint8_t *close = memchr(inner, '}', (size_t)(name + name_bytes - inner));
        if (close != NULL && close > inner) {
            name = inner;
            name_bytes = (size_t)(close - inner);
        }
    }
    return (uint16_t)jump_hash(wire_key_hash(ns, ns_bytes, name, name_bytes), shards);
}

/* ---- authenticity ---------------------------------------------------------------------------- */

/* SipHash is one-shot in libsodium, so "the tag taken as zero" needs the datagram in one piece. */
static void tag_of(const uint8_t *datagram, size_t bytes, const uint8_t key[WIRE_MAC_KEY_BYTES],
                   uint8_t tag[WIRE_TAG_BYTES])
{
    uint8_t copy[WIRE_DATAGRAM_BYTES_MAX];

    memcpy(copy, datagram, bytes);
    memset(copy + offsetof(struct wire_header, tag), 0, WIRE_TAG_BYTES);
    crypto_shorthash_siphashx24(tag, copy, bytes, key);
}

void wire_tag_seal(uint8_t *datagram, size_t bytes, const uint8_t key[WIRE_MAC_KEY_BYTES])
{
    assert(bytes >= sizeof(struct wire_header) && bytes <= WIRE_DATAGRAM_BYTES_MAX);
    uint8_t *tag = datagram + offsetof(struct wire_header, tag);
    memset(tag, 0, WIRE_TAG_BYTES);
    crypto_shorthash_siphashx24(tag, datagram, bytes, key);
}

bool wire_tag_check(const uint8_t *datagram, size_t bytes, const uint8_t key[WIRE_MAC_KEY_BYTES])
{
    uint8_t tag[WIRE_TAG_BYTES];

    if (bytes < sizeof(struct wire_header) || bytes > WIRE_DATAGRAM_BYTES_MAX)
        return false;
    tag_of(datagram, bytes, key, tag);
    return sodium_memcmp(tag, datagram + offsetof(struct wire_header, tag), WIRE_TAG_BYTES) == 0;
}

uint64_t wire_cookie(const struct wire_address *address, uint64_t period,
                     const uint8_t secret[WIRE_MAC_KEY_BYTES])
{
    struct {
        struct wire_address address;
        uint64_t period;
    } input = {.address = *address, .period = period};
    static_assert(sizeof(input) == 32, "no padding is hashed");
    uint64_t cookie;

    crypto_shorthash_siphash24((uint8_t *)&cookie, (const uint8_t *)&input, sizeof(input), secret);
    return cookie != 0 ? cookie : 1; /* 0 means "none yet" on the wire */
}
