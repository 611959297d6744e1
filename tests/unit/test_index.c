/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/machine/index.h"

static uint64_t random_state;

static uint64_t draw(void)
{
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static struct index make(uint32_t entries_max)
{
    struct index index;
    size_t bytes = index_memory_bytes(entries_max);
    void *memory = aligned_alloc(64, bytes);
    memset(memory, 0, bytes);
    index_init(&index, memory, entries_max);
    return index;
}

/* Hashes of the references, as the records would tell. */
static bool finds(const struct index *index, const uint64_t *hashes, uint64_t hash, uint32_t ref)
{
    struct index_search search = index_search(index, hash);
    for (uint32_t candidate; index_candidate(&search, &candidate);) {
        if (hashes[candidate] == hash) {
            return candidate == ref;
        }
    }
    return ref == UINT32_MAX;
}

static bool reads(const struct index *index, const uint64_t *hashes, uint64_t hash, uint32_t ref)
{
    uint32_t refs[16];
    uint32_t count;
    uint32_t sequence;
    if (!index_read(index, hash, refs, 16, &count, &sequence)) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (hashes[refs[i]] == hash) {
            return refs[i] == ref && index_read_holds(index, hash, sequence);
        }
    }
    return ref == UINT32_MAX && index_read_holds(index, hash, sequence);
}

/* A plain array is the twin: which reference has which hash. `spread` bounds the hashes' homes, so
 * that small values make buckets overflow again and again. */
static void churn(uint32_t entries_max, uint64_t spread, int steps)
{
    struct index index = make(entries_max);
    uint64_t *hashes = calloc(entries_max, sizeof(*hashes));
    bool *live = calloc(entries_max, sizeof(*live));
    for (int step = 0; step < steps; step++) {
        uint32_t ref = (uint32_t)(draw() % entries_max);
        /* Unique by its high half; its home by the low half. */
        uint64_t hash = (uint64_t)(step + 1) << 32 | draw() % spread * (UINT32_MAX / spread);
        if (!live[ref]) {
            hashes[ref] = hash;
            index_insert(&index, hash, ref);
        } else {
            index_remove(&index, (uint32_t)hashes[ref], ref);
        }
        live[ref] = !live[ref];
        uint32_t probe = (uint32_t)(draw() % entries_max);
        if (hashes[probe] != 0) {
            uint32_t expected = live[probe] ? probe : UINT32_MAX;
            cr_assert(finds(&index, hashes, hashes[probe], expected), "step %d", step);
            cr_assert(spread < 100 || reads(&index, hashes, hashes[probe], expected));
        }
        if (step % 1000 == 0) {
            cr_assert_null(index_verify(&index));
        }
    }
    for (uint32_t ref = 0; ref < entries_max; ref++) {
        if (live[ref]) {
            cr_assert(finds(&index, hashes, hashes[ref], ref));
            index_remove(&index, (uint32_t)hashes[ref], ref);
        }
    }
    cr_assert_eq(index.entries, 0);
    cr_assert_null(index_verify(&index));
    free(hashes);
    free(live);
    free(index.buckets);
}

Test(index, agrees_with_a_plain_map)
{
    random_state = 1;
    churn(1, UINT32_MAX, 2000);
    churn(13, UINT32_MAX, 5000);
    churn(1000, 4095, 50000);
    churn(20000, UINT32_MAX, 200000);
}

/* All keys at home in a few buckets: runs wrap around the end, counts stick at their maximum. */
Test(index, survives_crowded_buckets)
{
    random_state = 2;
    churn(30, 1, 5000);
    churn(1000, 1, 20000);
    churn(1000, 7, 20000);
}

Test(index, holds_what_it_was_made_for)
{
    static const uint32_t sizes[] = {1, 12, 100, 4096, 100000};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct index index = make(sizes[i]);
        random_state = sizes[i];
        for (uint32_t ref = 0; ref < sizes[i]; ref++) {
            index_insert(&index, draw(), ref);
        }
        cr_assert_eq(index.entries, sizes[i]);
        cr_assert_null(index_verify(&index));
        /* 12 entries in 64 bytes at a load of 0.75. */
        cr_assert_leq(index_memory_bytes(sizes[i]), sizes[i] * 64.0 / 9 + 64);
        index_clear(&index);
        cr_assert_eq(index.entries, 0);
        cr_assert_null(index_verify(&index));
        free(index.buckets);
    }
}

Test(index, passed_counts_go_back_to_zero)
{
    struct index index = make(40); /* five buckets */
    for (uint32_t ref = 0; ref < 20; ref++) {
        index_insert(&index, UINT64_C(1) << 40, ref); /* all at home in bucket 0 */
    }
    cr_assert_eq(index.buckets[0].words[INDEX_CONTROL] >> 24, 8);
    for (uint32_t ref = 20; ref-- > 0;) {
        index_remove(&index, 0, ref);
    }
    cr_assert_eq(index.buckets[0].words[INDEX_CONTROL] >> 24, 0);
    free(index.buckets);
}

/* Low halves of hashes that are at home in each of five buckets. */
static uint64_t hash_at_home(uint32_t bucket, uint64_t unique)
{
    return unique << 32 | (UINT64_C(0x100000000) / 5 * bucket + 1000);
}

/* Removing one key moves another, of another home: whoever reads that one must be told. */
Test(index, removal_pulls_back_and_tells_readers)
{
    struct index index = make(40);
    uint64_t hashes[25];
    uint32_t refs[16];
    uint32_t count;
    uint32_t sequence;
    cr_assert_eq(index.bucket_count, 5);
    for (uint32_t ref = 0; ref < 25; ref++) { /* 12 at home in each of 0 and 1, one more of 0 */
        hashes[ref] = hash_at_home(ref < 12 || ref == 24 ? 0 : 1, 1 + ref);
        index_insert(&index, hashes[ref], ref);
    }
    cr_assert_eq(index_ref_matches(index.buckets[2].refs, 2u << INDEX_REF_BITS | 24), 1);
    cr_assert(index_read(&index, hashes[24], refs, 16, &count, &sequence));
    index_write_begin(&index, (uint32_t)hashes[12]);
    index_remove(&index, (uint32_t)hashes[12], 12);
    index_write_end(&index, (uint32_t)hashes[12]);
    cr_assert_not(index_read_holds(&index, hashes[24], sequence));
    cr_assert_neq(index_ref_matches(index.buckets[1].refs, 1u << INDEX_REF_BITS | 24), 0);
    cr_assert(finds(&index, hashes, hashes[24], 24));
    cr_assert_eq(index.buckets[1].words[INDEX_CONTROL] >> 24, 0);
    cr_assert_eq(index.buckets[0].words[INDEX_CONTROL] >> 24, 1);
    cr_assert_null(index_verify(&index));
    free(index.buckets);
}

Test(index, sequence_tells_readers)
{
    struct index index = make(100);
    uint32_t refs[4];
    uint32_t count;
    uint32_t sequence;
    index_insert(&index, 5, 1);
    cr_assert(index_read(&index, 5, refs, 4, &count, &sequence));
    cr_assert_eq(count, 1);
    cr_assert(index_read_holds(&index, 5, sequence));
    index_write_begin(&index, 5);
    uint32_t other;
    cr_assert_not(index_read(&index, 5, refs, 4, &count, &other));
    cr_assert_not(index_read_holds(&index, 5, sequence));
    index_write_end(&index, 5);
    cr_assert_not(index_read_holds(&index, 5, sequence));
    /* The sequence wraps within its 24 bits and leaves the count alone. */
    index.buckets[0].words[INDEX_CONTROL] = 0x07fffffe;
    index_write_begin(&index, 0);
    index_write_end(&index, 0);
    cr_assert_eq(index.buckets[0].words[INDEX_CONTROL], 0x07000000);
    free(index.buckets);
}
