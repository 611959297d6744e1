/* SPDX-License-Identifier: Apache-2.0
 *
 * The datagram as a whole: header, tiling, builder, keys, shards, tags, cookies, names.
 */
#include <criterion/criterion.h>

#include <stdalign.h>
#include <stdio.h>
#include <string.h>

#include "dataplane/wire/wire.h"

struct datagram {
    alignas(8) uint8_t bytes[2048];
    size_t length;
};

/* Two items of 24 and 16 bytes. */
static struct datagram make(enum wire_kind kind, uint16_t sender)
{
    struct datagram made = {.length = 0};
    struct wire_builder builder;

    wire_builder_start(&builder, made.bytes, WIRE_DATAGRAM_BYTES_MAX, kind, 77, sender);
    cr_assert_not_null(wire_builder_add(&builder, 200, 24));
    cr_assert_not_null(wire_builder_add(&builder, 201, 9));
    made.length = wire_builder_finish(&builder);
    return made;
}

static enum wire_reject decode(const struct datagram *datagram, enum wire_kind kind)
{
    const struct wire_header *header;
    const struct wire_item *items;
    enum wire_reject reject =
        wire_decode_datagram(datagram->bytes, datagram->length, kind, &header, &items);

    cr_assert_eq(items != NULL, reject == WIRE_ACCEPTED);
    return reject;
}

static struct wire_header *header_of(struct datagram *datagram)
{
    return (struct wire_header *)datagram->bytes;
}

Test(wire, round_trip)
{
    struct datagram made = make(WIRE_KIND_REPLY, 3);
    const struct wire_header *header;
    const struct wire_item *item;

    cr_assert_eq(made.length, 56 + 24 + 16);
    cr_assert_eq(wire_decode_datagram(made.bytes, made.length, WIRE_KIND_REPLY, &header, &item), 0);
    cr_assert_eq(header->item_count, 2);
    cr_assert_eq(header->cluster_id, 77);
    cr_assert_eq(header->sender_node, 3);
    cr_assert(item->op == 200 && item->bytes == 24);
    item = wire_item_next(item);
    cr_assert(item->op == 201 && item->bytes == 16);
    cr_assert_eq((const uint8_t *)wire_item_next(item), made.bytes + made.length);
}

Test(wire, every_cut_is_refused)
{
    struct datagram made = make(WIRE_KIND_REQUEST, 0);
    size_t whole = made.length;

    for (made.length = 0; made.length < whole; made.length++) {
        enum wire_reject want = made.length < 56 ? WIRE_REJECT_RUNT : WIRE_REJECT_ITEMS;
        cr_assert_eq(decode(&made, WIRE_KIND_REQUEST), want, "cut at %zu", made.length);
    }
    cr_assert_eq(decode(&made, WIRE_KIND_REQUEST), WIRE_ACCEPTED);
    made.length = whole + 8;
    cr_assert_eq(decode(&made, WIRE_KIND_REQUEST), WIRE_REJECT_ITEMS);
    made.length = WIRE_DATAGRAM_BYTES_MAX + 1;
    cr_assert_eq(decode(&made, WIRE_KIND_REQUEST), WIRE_REJECT_OVERSIZED);
}

Test(wire, header_fields)
{
    struct datagram made = make(WIRE_KIND_REQUEST, 0);
    struct datagram good = made;

    header_of(&made)->magic ^= 1;
    cr_assert_eq(decode(&made, WIRE_KIND_REQUEST), WIRE_REJECT_MAGIC);
    made = good;
    header_of(&made)->version = 2;
    cr_assert_eq(decode(&made, WIRE_KIND_REQUEST), WIRE_REJECT_VERSION);
    made = good;
    cr_assert_eq(decode(&made, WIRE_KIND_REPLY), WIRE_REJECT_KIND);
    header_of(&made)->zero = 1;
    cr_assert_eq(decode(&made, WIRE_KIND_REQUEST), WIRE_REJECT_FIELD);
    made = good;
    header_of(&made)->key_id = 1;
    cr_assert_eq(decode(&made, WIRE_KIND_REQUEST), WIRE_REJECT_TAG);
    for (size_t i = 0; i < WIRE_TAG_BYTES; i++) {
        made = good;
        header_of(&made)->tag[i] = 1;
        cr_assert_eq(decode(&made, WIRE_KIND_REQUEST), WIRE_REJECT_FIELD);
    }
    made = good;
    header_of(&made)->sender_node = 1;
    cr_assert_eq(decode(&made, WIRE_KIND_REQUEST), WIRE_REJECT_SENDER);
    /* Free for the sender. */
    made = good;
    header_of(&made)->cluster_id = UINT64_MAX;
    header_of(&made)->packet_number = UINT64_MAX;
    header_of(&made)->cookie = UINT64_MAX;
    cr_assert_eq(decode(&made, WIRE_KIND_REQUEST), WIRE_ACCEPTED);
    made = make(WIRE_KIND_PEER, 0);
    cr_assert_eq(decode(&made, WIRE_KIND_PEER), WIRE_REJECT_SENDER);
    made = make(WIRE_KIND_PEER, 1);
    header_of(&made)->tag[3] = 9;
    cr_assert_eq(decode(&made, WIRE_KIND_PEER), WIRE_ACCEPTED);
}

Test(wire, tiling)
{
    struct datagram made = make(WIRE_KIND_REQUEST, 0);
    struct datagram good = made;
    struct wire_item *first = (struct wire_item *)(made.bytes + sizeof(struct wire_header));
    static const uint16_t lengths[] = {0, 4, 7, 12, 25};

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        made = good;
        first->bytes = lengths[i];
        cr_assert_eq(decode(&made, WIRE_KIND_REQUEST), WIRE_REJECT_ITEM_LENGTH);
    }
    made = good;
    first->bytes = 40; /* swallows the second: the count no longer fits */
    cr_assert_eq(decode(&made, WIRE_KIND_REQUEST), WIRE_REJECT_ITEMS);
    first->bytes = 48; /* beyond the end */
    cr_assert_eq(decode(&made, WIRE_KIND_REQUEST), WIRE_REJECT_ITEMS);
    first->bytes = 0xfff8;
    cr_assert_eq(decode(&made, WIRE_KIND_REQUEST), WIRE_REJECT_ITEMS);
    made = good;
    static const uint16_t counts[] = {0, 1, 3, UINT16_MAX};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        header_of(&made)->item_count = counts[i];
        cr_assert_eq(decode(&made, WIRE_KIND_REQUEST), WIRE_REJECT_ITEMS);
    }
}

Test(wire, builder_fills_up_and_shrinks)
{
    struct datagram made;
    struct wire_builder builder;
    size_t added = 0;

    memset(made.bytes, 0xff, sizeof(made.bytes));
    wire_builder_start(&builder, made.bytes, 5000, WIRE_KIND_REPLY, 0, 1);
    while (wire_builder_add(&builder, 1, 100) != NULL)
        added++;
    cr_assert_eq(added, (WIRE_DATAGRAM_BYTES_MAX - 56) / 104);
    cr_assert_leq(builder.bytes, WIRE_DATAGRAM_BYTES_MAX);
    wire_builder_start(&builder, made.bytes, 56 + 64, WIRE_KIND_REPLY, 0, 1);
    uint8_t *item = wire_builder_add(&builder, 9, 64);
    cr_assert_not_null(item);
    for (size_t i = 4; i < 64; i++)
        cr_assert_eq(item[i], 0, "byte %zu of a new item", i);
    cr_assert_null(wire_builder_add(&builder, 9, 8));
    wire_builder_shrink_last(&builder, item, 33);
    cr_assert_eq(((struct wire_item *)item)->bytes, 40);
    cr_assert_not_null(wire_builder_add(&builder, 9, 24));
    cr_assert_null(wire_builder_add(&builder, 9, 8));
    made.length = wire_builder_finish(&builder);
    cr_assert_eq(decode(&made, WIRE_KIND_REPLY), WIRE_ACCEPTED);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static uint64_t hash(const char *ns, const char *name)
{
    return wire_key_hash((const uint8_t *)ns, strlen(ns), (const uint8_t *)name, strlen(name));
}

static unsigned shard(const char *ns, const char *name)
{
    return wire_shard_of((const uint8_t *)ns, strlen(ns), (const uint8_t *)name, strlen(name),
                         1024);
}

/* etcd#6278: names that are prefixes of each other are different locks. */
Test(wire, prefixes_are_different_keys)
{
    static const char *const pairs[][2] = {
        {"", "a"},   {"", "a/b"}, {"", "ab"},  {"", "a/"}, {"a", "b"}, {"a/", "b"}, {"ab", "c"},
        {"", "abc"}, {"a", "bc"}, {"a", "/b"}, {"", "aa"}, {"a", "a"}, {"", "/a"},
    };
    size_t count = sizeof(pairs) / sizeof(pairs[0]);

    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < i; j++)
            cr_assert_neq(hash(pairs[i][0], pairs[i][1]), hash(pairs[j][0], pairs[j][1]),
                          "(%s|%s) and (%s|%s)", pairs[i][0], pairs[i][1], pairs[j][0],
                          pairs[j][1]);
    }
    uint8_t longest[WIRE_NAME_BYTES_MAX];
    memset(longest, 'x', sizeof(longest));
    cr_assert_neq(wire_key_hash(longest, 63, longest, 255),
                  wire_key_hash(longest, 62, longest, 255));
    cr_assert_neq(wire_key_hash(longest, 63, longest, 255),
                  wire_key_hash(longest, 63, longest, 254));
    cr_assert_eq(wire_key_hash(NULL, 0, longest, 1), wire_key_hash(longest, 0, longest, 1));
}

/* The format: a later release must route alike. XXH3_64 of {0x00, "a"} and jump over 1024. */
Test(wire, keys_are_fixed)
{
    cr_assert_eq(hash("", "a"), UINT64_C(0x892b8dfd07cb7c54));
    cr_assert_eq(hash("ns", "orders/42"), UINT64_C(0x5baed16bb2d9c64e));
    cr_assert_eq(shard("", "a"), 235);
    cr_assert_eq(shard("ns", "orders/42"), 511);
}

Test(wire, braces)
{
    cr_assert_eq(shard("", "x{user7}y"), shard("", "user7"));
    cr_assert_eq(shard("", "{user7}"), shard("", "user7/{user7}"));
    cr_assert_eq(shard("n", "a{b}c{d}"), shard("n", "b")); /* the first braces only */
    cr_assert_eq(shard("", "a{{b}}"), shard("", "{b"));
    cr_assert_neq(shard("", "x{user7}"), shard("ns", "x{user7}")); /* the namespace counts */
    /* No braces in these: the whole name counts. */
    cr_assert_neq(shard("", "{}abc"), shard("", "{}abd"));
    cr_assert_neq(shard("", "a{}b{c}"), shard("", "c"));
    cr_assert_neq(shard("", "{abc"), shard("", "abc"));
    cr_assert_neq(shard("", "}abc{"), shard("", "abc"));
    /* Identity does not follow routing. */
    cr_assert_neq(hash("", "x{user7}y"), hash("", "user7"));
}

Test(wire, shards_are_even_and_growing_moves_little)
{
    enum { KEYS = 32000, SHARDS = 16 };
    unsigned counts[SHARDS] = {0}, moved = 0;
    char name[32];

    for (int i = 0; i < KEYS; i++) {
        int bytes = snprintf(name, sizeof(name), "lock-%d", i);
        unsigned now = wire_shard_of(NULL, 0, (uint8_t *)name, bytes, SHARDS);
        unsigned then = wire_shard_of(NULL, 0, (uint8_t *)name, bytes, SHARDS + 1);
        cr_assert_lt(now, SHARDS);
        cr_assert(then == now || then == SHARDS, "a key moved between old shards");
        counts[now]++;
        moved += then != now;
        cr_assert_eq(wire_shard_of(NULL, 0, (uint8_t *)name, bytes, 1), 0);
    }
    for (int i = 0; i < SHARDS; i++)
        cr_assert(counts[i] > 1750 && counts[i] < 2250, "shard %d: %u", i, counts[i]);
    cr_assert(moved > KEYS / 17 * 8 / 10 && moved < KEYS / 17 * 12 / 10, "%u moved", moved);
}

/* ---- authenticity ---------------------------------------------------------------------------- */

Test(wire, tag_covers_every_bit)
{
    static const uint8_t key[WIRE_MAC_KEY_BYTES] = {1, 2, 3};
    uint8_t other[WIRE_MAC_KEY_BYTES] = {1, 2, 3};
    struct datagram made = make(WIRE_KIND_PEER, 2);

    wire_tag_seal(made.bytes, made.length, key);
    cr_assert(wire_tag_check(made.bytes, made.length, key));
    for (size_t bit = 0; bit < made.length * 8; bit++) {
        made.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cr_assert_not(wire_tag_check(made.bytes, made.length, key), "bit %zu", bit);
        made.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    cr_assert(wire_tag_check(made.bytes, made.length, key));
    other[15] = 1;
    cr_assert_not(wire_tag_check(made.bytes, made.length, other));
    cr_assert_not(wire_tag_check(made.bytes, made.length - 1, key));
    cr_assert_not(wire_tag_check(made.bytes, 55, key));
    cr_assert_not(wire_tag_check(made.bytes, WIRE_DATAGRAM_BYTES_MAX + 1, key));
    /* Sealing again, over an old tag, gives the same one. */
    struct datagram again = made;
    wire_tag_seal(again.bytes, again.length, key);
    cr_assert_eq(memcmp(again.bytes, made.bytes, made.length), 0);
}

Test(wire, cookie_depends_on_everything)
{
    static const uint8_t secret[WIRE_MAC_KEY_BYTES] = {9};
    uint8_t other[WIRE_MAC_KEY_BYTES] = {8};
    struct wire_address a = {.port = 1000};
    uint64_t cookie = wire_cookie(&a, 5, secret);

    cr_assert_neq(cookie, 0);
    cr_assert_eq(cookie, wire_cookie(&a, 5, secret));
    cr_assert_neq(cookie, wire_cookie(&a, 6, secret));
    cr_assert_neq(cookie, wire_cookie(&a, 5, other));
    for (size_t i = 0; i < 16; i++) {
        struct wire_address b = a;
        b.ip[i] = 1;
        cr_assert_neq(cookie, wire_cookie(&b, 5, secret));
    }
    a.port = 1001;
    cr_assert_neq(cookie, wire_cookie(&a, 5, secret));
}

Test(wire, names)
{
    for (unsigned i = 0; i < WIRE_STATUS_COUNT; i++) {
        for (unsigned j = 0; j < i; j++)
            cr_assert_str_neq(wire_status_name(i), wire_status_name(j));
    }
    cr_assert_str_eq(wire_status_name(WIRE_OVER_LIMIT), "over_limit");
    cr_assert_str_eq(wire_status_name(WIRE_STATUS_COUNT), "unknown");
    cr_assert_str_eq(wire_status_name(UINT32_MAX), "unknown");
    for (unsigned i = 0; i < WIRE_WHAT_COUNT; i++)
        cr_assert_str_neq(wire_what_text(i), "unknown");
    cr_assert_str_eq(wire_what_text(WIRE_WHAT_COUNT), "unknown");
    for (unsigned i = 0; i < WIRE_REJECT_COUNT; i++)
        cr_assert_str_neq(wire_reject_name(i), "unknown");
    cr_assert_str_eq(wire_reject_name(WIRE_REJECT_COUNT), "unknown");
}
