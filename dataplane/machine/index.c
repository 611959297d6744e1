/* SPDX-License-Identifier: Apache-2.0 */
#include "dataplane/machine/index.h"

#include <string.h>

static uint32_t buckets_for(uint32_t entries_max)
{
    /* 12 entries at a load of 0.8 are 9.6: five buckets hold 48. */
    uint64_t buckets = ((uint64_t)entries_max * 5 + 47) / 48;
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

void index_insert(struct index *index, uint64_t hash, uint32_t ref)
{
    uint32_t at = index_home(index, (uint32_t)hash);
    for (uint32_t tried = 0; tried < index->bucket_count; tried++) {
        struct index_bucket *bucket = &index->buckets[at];
        uint32_t empty = index_matches(bucket->words, 0);
        if (empty != 0) {
            uint32_t entry = (uint32_t)__builtin_ctz(empty);
            WORD_PUT(bucket->refs[entry], ref);
            tag_put(bucket, entry, index_tag(hash));
            index->entries++;
            return;
        }
        passed_add(bucket);
        at = next_bucket(index, at);
    }
    assert(false && "the index holds more entries than it was made for");
}

void index_remove(struct index *index, uint32_t hash_low, uint32_t ref)
{
    uint32_t at = index_home(index, hash_low);
    for (uint32_t tried = 0; tried < index->bucket_count; tried++) {
        struct index_bucket *bucket = &index->buckets[at];
        uint32_t found = index_ref_matches(bucket->refs, ref) & ~index_matches(bucket->words, 0);
        if (found != 0) {
            tag_put(bucket, (uint32_t)__builtin_ctz(found), 0);
            index->entries--;
            return;
        }
        passed_subtract(bucket);
        at = next_bucket(index, at);
    }
    assert(false && "the index does not hold what is removed from it");
}

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
        uint32_t tags[INDEX_TAG_WORDS + 1];
        words_get(tags, bucket->words, sizeof(tags));
        uint32_t matches = index_matches(tags, index_tag(hash));
        for (; matches != 0; matches &= matches - 1) {
            if (*count == refs_max) {
                return false;
            }
            refs[(*count)++] = WORD_GET(bucket->refs[__builtin_ctz(matches)]);
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
