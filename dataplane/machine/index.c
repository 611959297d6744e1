/* SPDX-License-Identifier: Apache-2.0 */
#include "dataplane/machine/index.h"

#include <string.h>

static uint32_t buckets_for(uint32_t entries_max)
{
    uint64_t buckets = ((uint64_t)entries_max + 8) / 9; /* 12 entries at a load of 0.75 */
    return (uint32_t)(buckets < 1 ? 1 : buckets);
}

size_t index_memory_bytes(uint32_t entries_max)
{
    return (size_t)buckets_for(entries_max) * sizeof(struct index_bucket);
}

void index_init(struct index *index, void *memory, uint32_t entries_max)
{
    index->buckets = memory;
    index->bucket_count = buckets_for(entries_max);
    index->entries = 0;
}

void index_clear(struct index *index)
{
    for (uint32_t i = 0; i < index->bucket_count; i++) {
        struct index_bucket *bucket = &index->buckets[i];
        uint32_t control = bucket->words[INDEX_CONTROL];
        WORD_PUT(bucket->words[INDEX_CONTROL], index_control_step(control));
        __atomic_thread_fence(__ATOMIC_RELEASE);
        for (uint32_t word = 0; word < INDEX_TAG_WORDS; word++) {
            WORD_PUT(bucket->words[word], 0u);
        }
        __atomic_store_n(&bucket->words[INDEX_CONTROL], (control + 2) & 0x00ffffffu,
                         __ATOMIC_RELEASE);
    }
    index->entries = 0;
}

static void tag_put(struct index_bucket *bucket, uint32_t entry, uint8_t tag)
{
    uint32_t shift = entry % 4 * 8;
    uint32_t *word = &bucket->words[entry / 4];
    WORD_PUT(*word, (*word & ~(0xffu << shift)) | (uint32_t)tag << shift);
}

static void passed_add(struct index_bucket *bucket)
{
    uint32_t control = bucket->words[INDEX_CONTROL];
    if (control >> 24 < INDEX_PASSED_MAX) {
        WORD_PUT(bucket->words[INDEX_CONTROL], control + (1u << 24));
    }
}

static void passed_subtract(struct index_bucket *bucket)
{
    uint32_t control = bucket->words[INDEX_CONTROL];
    assert(control >> 24 > 0);
    if (control >> 24 < INDEX_PASSED_MAX) {
        WORD_PUT(bucket->words[INDEX_CONTROL], control - (1u << 24));
    }
}

static uint32_t next_bucket(const struct index *index, uint32_t bucket)
{
    return bucket + 1 == index->bucket_count ? 0 : bucket + 1;
}

static uint32_t ref_word(uint32_t ref, uint32_t distance)
{
    uint32_t capped = distance < INDEX_DISTANCE_FAR ? distance : INDEX_DISTANCE_FAR;
    return capped << INDEX_REF_BITS | ref;
}

void index_insert(struct index *index, uint64_t hash, uint32_t ref)
{
    uint32_t at = index_home(index, (uint32_t)hash);
    assert(ref <= INDEX_REF_MASK);
    for (uint32_t distance = 0; distance < index->bucket_count; distance++) {
        struct index_bucket *bucket = &index->buckets[at];
        uint32_t empty = index_matches(bucket->words, 0);
        if (empty != 0) {
            uint32_t entry = (uint32_t)__builtin_ctz(empty);
            WORD_PUT(bucket->refs[entry], ref_word(ref, distance));
            tag_put(bucket, entry, index_tag(hash));
            index->entries++;
            return;
        }
        passed_add(bucket);
        at = next_bucket(index, at);
    }
    assert(false && "the index holds more entries than it was made for");
}

/* ---- removal --------------------------------------------------------------------------------- */

static uint32_t bucket_minus(const struct index *index, uint32_t bucket, uint32_t distance)
{
    while (distance > index->bucket_count) { /* only in tables of a few buckets */
        distance -= index->bucket_count;
    }
    return bucket >= distance ? bucket - distance : bucket + index->bucket_count - distance;
}

/* An entry of the bucket that is at least `distance` from home, and not too far to know; or 12. */
static uint32_t displaced_entry(const struct index_bucket *bucket, uint32_t distance)
{
    uint32_t displaced = index_distance_matches(bucket->refs, distance);
    displaced &= ~index_matches(bucket->words, 0);
    return displaced != 0 ? (uint32_t)__builtin_ctz(displaced) : INDEX_BUCKET_ENTRIES;
}

static uint8_t tag_at(const struct index_bucket *bucket, uint32_t entry)
{
    return (uint8_t)(bucket->words[entry / 4] >> (entry % 4 * 8));
}

/* Moves the entry `back` buckets towards its home. Readers of its key must not miss it in between:
 * its home's sequence moves, unless the caller has that very bucket open. */
static void pull_back(struct index *index, uint32_t from, uint32_t from_entry, uint32_t back,
                      uint32_t hole, uint32_t hole_entry)
{
    struct index_bucket *source = &index->buckets[from];
    struct index_bucket *target = &index->buckets[hole];
    uint32_t word = source->refs[from_entry];
    uint32_t distance = word >> INDEX_REF_BITS;
    uint32_t *home = &index->buckets[bucket_minus(index, from, distance)].words[INDEX_CONTROL];
    bool opened = (*home & 1) == 0;
    if (opened) {
        WORD_PUT(*home, index_control_step(*home));
        __atomic_thread_fence(__ATOMIC_RELEASE);
    }
    WORD_PUT(target->refs[hole_entry], ref_word(word & INDEX_REF_MASK, distance - back));
    tag_put(target, hole_entry, tag_at(source, from_entry));
    tag_put(source, from_entry, 0);
    for (uint32_t at = hole; at != from; at = next_bucket(index, at)) {
        passed_subtract(&index->buckets[at]);
    }
    if (opened) {
        __atomic_store_n(home, index_control_step(*home), __ATOMIC_RELEASE);
    }
}

/* Fills the hole with an entry that passed over it, and the hole that this leaves. */
static void fill_hole(struct index *index, uint32_t hole, uint32_t hole_entry)
{
    uint32_t from = hole;
    for (uint32_t back = 1; back <= INDEX_PULL_BUCKETS && back < index->bucket_count; back++) {
        if (index->buckets[from].words[INDEX_CONTROL] >> 24 == 0) {
            return; /* nobody passed here, so nobody passed over the hole and came farther */
        }
        from = next_bucket(index, from);
        uint32_t entry = displaced_entry(&index->buckets[from], back);
        if (entry < INDEX_BUCKET_ENTRIES) {
            pull_back(index, from, entry, back, hole, hole_entry);
            hole = from;
            hole_entry = entry;
            back = 0;
        }
    }
}

void index_remove(struct index *index, uint32_t hash_low, uint32_t ref)
{
    uint32_t at = index_home(index, hash_low);
    for (uint32_t distance = 0; distance < index->bucket_count; distance++) {
        struct index_bucket *bucket = &index->buckets[at];
        uint32_t found = index_ref_matches(bucket->refs, ref_word(ref, distance)) &
                         ~index_matches(bucket->words, 0);
        if (found != 0) {
            uint32_t entry = (uint32_t)__builtin_ctz(found);
            tag_put(bucket, entry, 0);
            index->entries--;
            if (__builtin_expect(bucket->words[INDEX_CONTROL] >> 24 != 0, 0)) {
                fill_hole(index, at, entry);
            }
            return;
        }
        passed_subtract(bucket);
        at = next_bucket(index, at);
    }
    assert(false && "the index does not hold what is removed from it");
}

/* ---- reading --------------------------------------------------------------------------------- */

bool index_read(const struct index *index, uint64_t hash, uint32_t *refs, uint32_t refs_max,
                uint32_t *count, uint32_t *sequence)
{
    uint32_t at = index_home(index, (uint32_t)hash);
    uint32_t control = __atomic_load_n(&index->buckets[at].words[INDEX_CONTROL], __ATOMIC_ACQUIRE);
    if (control & 1) {
        return false;
    }
    *sequence = control;
    *count = 0;
    for (uint32_t seen = 0; seen < INDEX_READER_BUCKETS_MAX; seen++) {
        const struct index_bucket *bucket = &index->buckets[at];
        _Alignas(8) uint32_t tags[INDEX_TAG_WORDS + 1];
        words_get(tags, bucket->words, sizeof(tags));
        uint32_t matches = index_matches(tags, index_tag(hash));
        for (; matches != 0; matches &= matches - 1) {
            if (*count == refs_max) {
                return false;
            }
            refs[(*count)++] = WORD_GET(bucket->refs[__builtin_ctz(matches)]) & INDEX_REF_MASK;
        }
        if (WORD_GET(bucket->words[INDEX_CONTROL]) >> 24 == 0) {
            return true;
        }
        at = next_bucket(index, at);
        if (seen + 1 == index->bucket_count) {
            return true;
        }
    }
    return false;
}

const char *index_verify(const struct index *index)
{
    uint32_t entries = 0;
    for (uint32_t at = 0; at < index->bucket_count; at++) {
        const struct index_bucket *bucket = &index->buckets[at];
        if (bucket->words[INDEX_CONTROL] & 1) {
            return "an index bucket is left in change";
        }
        entries +=
            INDEX_BUCKET_ENTRIES - (uint32_t)__builtin_popcount(index_matches(bucket->words, 0));
    }
    return entries == index->entries ? NULL : "the index's entry count is wrong";
}
