/* SPDX-License-Identifier: Apache-2.0
 *
 * Hash index: from a 64-bit hash to slots of a slab. It stores no keys: whoever looks something up
 * compares the candidate's record. One writer; readers of other threads take no lock.
 *
 * A bucket is one cache line of 12 references with an 8-bit tag each. What does not fit in its home
 * bucket goes to the next ones; every bucket counts the entries that passed over it, so a search
 * ends at the first bucket that none passed over. A reference bears how far from home it is (its
 * upper four bits): removal pulls an entry that passed over the hole back into it. So chains do not
 * grow with time, and nothing is left behind.
 *
 * Readers: a writer changes what belongs to a key (its index entry, and the records reached from
 * it) between index_write_begin and index_write_end, which move the sequence of the key's home
 * bucket. A reader samples the sequence, copies, and starts over if it has moved. It must also
 * check that the record it found names this very key hash: then whoever reused that record
 * meanwhile for this key, or took it from this key, has moved this key's sequence.
 *
 * The bucket count is any number (multiply-shift instead of a mask), so memory fits the capacity.
 * The layout is no part of the replicated state.
 */
#ifndef BELAY_DATAPLANE_INDEX_H
#define BELAY_DATAPLANE_INDEX_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "dataplane/machine/shared_words.h"

enum {
    INDEX_BUCKET_ENTRIES = 12,
    INDEX_REF_BITS = 28,
    INDEX_DISTANCE_FAR = 15, /* this far or farther: not pulled back */
    INDEX_PULL_BUCKETS = 6,  /* how far behind a hole removal looks for one to pull back */
    INDEX_PASSED_MAX = 255,  /* sticks there: a bucket that 255 entries passed stays passed over */
    INDEX_READER_BUCKETS_MAX = 256, /* a reader gives up after so many */
};

enum { INDEX_TAG_WORDS = INDEX_BUCKET_ENTRIES / 4, INDEX_CONTROL = INDEX_TAG_WORDS };

struct index_bucket {
    uint32_t refs[INDEX_BUCKET_ENTRIES]; /* slot in the lower 28 bits, distance above */
    /* Tags, a byte each, 0 = empty; then the control word: bits 0..23 sequence (odd: in change),
     * bits 24..31 how many entries passed over this bucket. */
    uint32_t words[INDEX_TAG_WORDS + 1];
};
static_assert(sizeof(struct index_bucket) == 64, "a bucket is one cache line");

struct index {
    struct index_bucket *buckets;
    uint32_t bucket_count;
    uint32_t entries;
};

#define INDEX_REF_MASK ((UINT32_C(1) << INDEX_REF_BITS) - 1)

/* Memory for `entries_max` entries at a load of at most 0.75, a multiple of 64. */
size_t index_memory_bytes(uint32_t entries_max);

/* `memory` is 64-byte aligned and zero-filled. */
void index_init(struct index *index, void *memory, uint32_t entries_max);

/* Forgets every entry. Readers of that moment find nothing, or start over. */
void index_clear(struct index *index);

/* ref < 2^28. */
void index_insert(struct index *index, uint64_t hash, uint32_t ref);

/* The entry exists: its absence is a bug. Needs only the low 32 bits of the hash. */
void index_remove(struct index *index, uint32_t hash_low, uint32_t ref);

/* Every count and tag is as the entries imply: NULL or a sentence. */
const char *index_verify(const struct index *index);

static inline uint32_t index_home(const struct index *index, uint32_t hash_low)
{
    return (uint32_t)(((uint64_t)hash_low * index->bucket_count) >> 32);
}

static inline uint8_t index_tag(uint64_t hash)
{
    uint8_t tag = (uint8_t)(hash >> 32);
    return tag == 0 ? 1 : tag;
}

static inline void index_prefetch(const struct index *index, uint32_t hash_low)
{
    __builtin_prefetch(&index->buckets[index_home(index, hash_low)], 1);
}

/* The bucket after a key's home, if entries passed over the home. */
static inline void index_prefetch_next(const struct index *index, uint32_t hash_low)
{
    const struct index_bucket *home = &index->buckets[index_home(index, hash_low)];
    if (home->words[INDEX_CONTROL] >> 24 != 0) {
        __builtin_prefetch(home + 1, 1); /* past the last: harmless */
    }
}

/* One bit per entry of the bucket whose tag is this. The control word is not read along: a load
 * over a word that was stored just before waits until that store is out. */
static inline uint32_t index_matches(const uint32_t words[INDEX_TAG_WORDS], uint8_t tag)
{
    const uint32_t entries = (1u << INDEX_BUCKET_ENTRIES) - 1;
#if defined(__SSE2__)
    __m128i tags = _mm_unpacklo_epi64(_mm_loadl_epi64((const __m128i *)(const void *)words),
                                      _mm_cvtsi32_si128((int)words[2]));
    return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(tags, _mm_set1_epi8((char)tag))) & entries;
#else
    uint32_t matches = 0;
    for (uint32_t entry = 0; entry < INDEX_BUCKET_ENTRIES; entry++) {
        matches |= (uint32_t)((uint8_t)(words[entry / 4] >> (entry % 4 * 8)) == tag) << entry;
    }
    return matches & entries;
#endif
}

/* One bit per entry that holds this word, empty entries included. */
static inline uint32_t index_ref_matches(const uint32_t refs[INDEX_BUCKET_ENTRIES], uint32_t ref)
{
    uint32_t matches = 0;
#if defined(__SSE2__)
    __m128i wanted = _mm_set1_epi32((int)ref);
    for (uint32_t entry = 0; entry < INDEX_BUCKET_ENTRIES; entry += 4) {
        __m128i four = _mm_loadu_si128((const __m128i *)(const void *)(refs + entry));
        int equal = _mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(four, wanted)));
        matches |= (uint32_t)equal << entry;
    }
#else
    for (uint32_t entry = 0; entry < INDEX_BUCKET_ENTRIES; entry++) {
        matches |= (uint32_t)(refs[entry] == ref) << entry;
    }
#endif
    return matches;
}

/* One bit per entry whose distance from home is at least this and below FAR; empty ones included.
 */
static inline uint32_t index_distance_matches(const uint32_t refs[INDEX_BUCKET_ENTRIES],
                                              uint32_t distance)
{
    uint32_t matches = 0;
#if defined(__SSE2__)
    __m128i below = _mm_set1_epi32((int)distance - 1);
    __m128i far = _mm_set1_epi32(INDEX_DISTANCE_FAR);
    for (uint32_t entry = 0; entry < INDEX_BUCKET_ENTRIES; entry += 4) {
        __m128i four = _mm_loadu_si128((const __m128i *)(const void *)(refs + entry));
        __m128i its = _mm_srli_epi32(four, INDEX_REF_BITS);
        __m128i fits = _mm_and_si128(_mm_cmpgt_epi32(its, below), _mm_cmplt_epi32(its, far));
        matches |= (uint32_t)_mm_movemask_ps(_mm_castsi128_ps(fits)) << entry;
    }
#else
    for (uint32_t entry = 0; entry < INDEX_BUCKET_ENTRIES; entry++) {
        uint32_t its = refs[entry] >> INDEX_REF_BITS;
        matches |= (uint32_t)(its >= distance && its < INDEX_DISTANCE_FAR) << entry;
    }
#endif
    return matches;
}

/* ---- searching, owner thread ------------------------------------------------------------------
 *
 *     struct index_search search = index_search(index, hash);
 *     for (uint32_t ref; index_candidate(&search, &ref);) ...
 */
struct index_search {
    const struct index *index;
    uint32_t bucket;
    uint32_t matches; /* of the current bucket, not yet given out */
    uint32_t seen;    /* buckets left behind; all of them may have been passed over */
    uint8_t tag;
};

static inline struct index_search index_search(const struct index *index, uint64_t hash)
{
    struct index_search search = {
        .index = index, .bucket = index_home(index, (uint32_t)hash), .tag = index_tag(hash)};
    search.matches = index_matches(index->buckets[search.bucket].words, search.tag);
    return search;
}

static inline bool index_candidate(struct index_search *search, uint32_t *ref)
{
    const struct index *index = search->index;
    while (search->matches == 0) {
        if (__builtin_expect(index->buckets[search->bucket].words[INDEX_CONTROL] >> 24 == 0, 1) ||
            ++search->seen == index->bucket_count) {
            return false;
        }
        search->bucket = search->bucket + 1 == index->bucket_count ? 0 : search->bucket + 1;
        search->matches = index_matches(index->buckets[search->bucket].words, search->tag);
    }
    *ref = index->buckets[search->bucket].refs[__builtin_ctz(search->matches)] & INDEX_REF_MASK;
    search->matches &= search->matches - 1;
    return true;
}

/* The first candidate, if it lies in the home bucket: a guess that touches no other. */
static inline bool index_at_home(const struct index *index, uint64_t hash, uint32_t *ref)
{
    const struct index_bucket *home = &index->buckets[index_home(index, (uint32_t)hash)];
    uint32_t matches = index_matches(home->words, index_tag(hash));
    if (matches == 0) {
        return false;
    }
    *ref = home->refs[__builtin_ctz(matches)] & INDEX_REF_MASK;
    return true;
}

/* ---- the sequence of a key's home bucket ----------------------------------------------------- */

static inline uint32_t index_control_step(uint32_t control)
{
    return (control & 0xff000000u) | ((control + 1) & 0x00ffffffu);
}

static inline void index_write_begin(struct index *index, uint32_t hash_low)
{
    uint32_t *control = &index->buckets[index_home(index, hash_low)].words[INDEX_CONTROL];
    assert((*control & 1) == 0);
    WORD_PUT(*control, index_control_step(*control));
    /* What follows must not be seen before the odd sequence. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

static inline void index_write_end(struct index *index, uint32_t hash_low)
{
    uint32_t *control = &index->buckets[index_home(index, hash_low)].words[INDEX_CONTROL];
    assert((*control & 1) == 1);
    __atomic_store_n(control, index_control_step(*control), __ATOMIC_RELEASE);
}

/* ---- searching, any thread ------------------------------------------------------------------- */

/* Collects up to `refs_max` candidates. False: the writer is at it, or too many; start over. */
bool index_read(const struct index *index, uint64_t hash, uint32_t *refs, uint32_t refs_max,
                uint32_t *count, uint32_t *sequence);

/* True if nothing that belongs to keys of this home bucket has changed since index_read. */
static inline bool index_read_holds(const struct index *index, uint64_t hash, uint32_t sequence)
{
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    const uint32_t *control =
        &index->buckets[index_home(index, (uint32_t)hash)].words[INDEX_CONTROL];
    return ((WORD_GET(*control) ^ sequence) & 0x00ffffffu) == 0;
}

#endif
