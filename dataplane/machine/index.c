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
        uint32_t control = bucket->control;
        WORD_PUT(bucket->control, index_control_step(control));
        __atomic_thread_fence(__ATOMIC_RELEASE);
        for (uint32_t word = 0; word < INDEX_BUCKET_ENTRIES / 4; word++) {
            WORD_PUT(bucket->tags[word], 0u);
        }
        __atomic_store_n(&bucket->control, (control + 2) & 0x00ffffffu, __ATOMIC_RELEASE);
    }
    index->entries = 0;
}

static void tag_put(struct index_bucket *bucket, uint32_t entry, uint8_t tag)
{
    uint32_t shift = entry % 4 * 8;
    uint32_t *word = &bucket->tags[entry / 4];
    WORD_PUT(*word, (*word & ~(0xffu << shift)) | (uint32_t)tag << shift);
}

static void passed_add(struct index_bucket *bucket)
{
    uint32_t control = bucket->control;
    if (control >> 24 < INDEX_PASSED_MAX) {
        WORD_PUT(bucket->control, control + (1u << 24));
    }
}

static void passed_subtract(struct index_bucket *bucket)
{
    uint32_t control = bucket->control;
    assert(control >> 24 > 0);
    if (control >> 24 < INDEX_PASSED_MAX) {
        WORD_PUT(bucket->control, control - (1u << 24));
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
        uint32_t empty = index_matches(bucket->tags, 0);
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
    assert(!"the index holds more entries than it was made for");
}

/* Entries of the bucket that are taken and hold this ref. */
static uint32_t ref_matches(const struct index_bucket *bucket, uint32_t ref)
{
    uint32_t found = 0;
    for (uint32_t entry = 0; entry < INDEX_BUCKET_ENTRIES; entry++) {
        found |= (uint32_t)(bucket->refs[entry] == ref) << entry;
    }
    return found & ~index_matches(bucket->tags, 0);
}

void index_remove(struct index *index, uint32_t hash_low, uint32_t ref)
{
    uint32_t at = index_home(index, hash_low);
    for (uint32_t tried = 0; tried < index->bucket_count; tried++) {
        struct index_bucket *bucket = &index->buckets[at];
        uint32_t found = ref_matches(bucket, ref);
        if (found != 0) {
            tag_put(bucket, (uint32_t)__builtin_ctz(found), 0);
            index->entries--;
            return;
        }
        passed_subtract(bucket);
        at = next_bucket(index, at);
    }
    assert(!"the index does not hold what is removed from it");
}

bool index_read(const struct index *index, uint64_t hash, uint32_t *refs, uint32_t refs_max,
                uint32_t *count, uint32_t *sequence)
{
    uint32_t at = index_home(index, (uint32_t)hash);
    uint32_t control = __atomic_load_n(&index->buckets[at].control, __ATOMIC_ACQUIRE);
    if (control & 1) {
        return false;
    }
    *sequence = control;
    *count = 0;
    for (uint32_t seen = 0; seen < INDEX_READER_BUCKETS_MAX; seen++) {
        const struct index_bucket *bucket = &index->buckets[at];
        uint32_t tags[INDEX_BUCKET_ENTRIES / 4];
        words_get(tags, bucket->tags, sizeof(tags));
        uint32_t matches = index_matches(tags, index_tag(hash));
        for (; matches != 0; matches &= matches - 1) {
            if (*count == refs_max) {
                return false;
            }
            refs[(*count)++] = WORD_GET(bucket->refs[__builtin_ctz(matches)]);
        }
        if (WORD_GET(bucket->control) >> 24 == 0) {
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
        if (bucket->control & 1) {
            return "an index bucket is left in change";
        }
        entries +=
            INDEX_BUCKET_ENTRIES - (uint32_t)__builtin_popcount(index_matches(bucket->tags, 0));
    }
    return entries == index->entries ? NULL : "the index's entry count is wrong";
}
