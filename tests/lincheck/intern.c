/* SPDX-License-Identifier: Apache-2.0
 *
 * Interned strings of bytes in chunks that never move, found through open addressing.
 */
#include "tests/lincheck/intern.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A reference is {16 bits chunk, 16 bits word in the chunk}. */
enum { CHUNK_WORDS = 1 << 16, CHUNK_WORDS_FIRST = 1 << 9, CHUNKS_MAX = 1 << 16, SLOTS_FIRST = 64 };

void *budget_resize(struct budget *budget, void *old, size_t old_bytes, size_t new_bytes)
{
    /* While memory moves, the old and the new block exist both. */
    if (new_bytes > budget->limit_bytes - budget->used_bytes)
        return NULL;
    uint8_t *grown = realloc(old, new_bytes);
    if (grown == NULL)
        return NULL;
    if (new_bytes > old_bytes)
        memset(grown + old_bytes, 0, new_bytes - old_bytes);
    budget->used_bytes = budget->used_bytes - old_bytes + new_bytes;
    return grown;
}

void budget_release(struct budget *budget, void *memory, size_t bytes)
{
    if (memory == NULL)
        return;
    assert(budget->used_bytes >= bytes);
    budget->used_bytes -= bytes;
    free(memory);
}

int budget_reserve(struct budget *budget, void **array, size_t *capacity, size_t needed,
                   size_t element_bytes)
{
    if (needed <= *capacity)
        return 0;
    size_t wanted = *capacity < 16 ? 16 : *capacity;
    while (wanted < needed) {
        if (wanted > SIZE_MAX / 2)
            return -ENOMEM;
        wanted *= 2;
    }
    if (wanted > SIZE_MAX / element_bytes)
        return -ENOMEM;
    void *grown = budget_resize(budget, *array, *capacity * element_bytes, wanted * element_bytes);
    if (grown == NULL)
        return -ENOMEM;
    *array = grown;
    *capacity = wanted;
    return 0;
}

void intern_init(struct intern *intern, struct budget *budget)
{
    memset(intern, 0, sizeof *intern);
    intern->budget = budget;
}

void intern_free(struct intern *intern)
{
    struct budget *budget = intern->budget;
    for (size_t i = 0; i < intern->chunks_count; i++) {
        struct intern_chunk *chunk = &intern->chunks[i];
        budget_release(budget, chunk->words, chunk->words_count * sizeof(uint32_t));
    }
    budget_release(budget, intern->chunks, intern->chunks_capacity * sizeof *intern->chunks);
    budget_release(budget, intern->slots, intern->slots_count * 2 * sizeof(uint32_t));
    intern_init(intern, budget);
}

static uint32_t hash_bytes(const uint8_t *bytes, size_t length)
{
    uint64_t hash = 0x9e3779b97f4a7c15u ^ length;
    while (length > 0) {
        uint64_t word = 0;
        size_t taken = length < 8 ? length : 8;
        memcpy(&word, bytes, taken);
        hash = (hash ^ word) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
        bytes += taken;
        length -= taken;
    }
    hash *= 0xc4ceb9fe1a85ec53u;
    return (uint32_t)(hash >> 32);
}

struct span intern_get(const struct intern *intern, uint32_t reference)
{
    assert(reference != 0 && reference >> 16 < intern->chunks_count);
    const uint32_t *record = intern->chunks[reference >> 16].words + (reference & 0xffff);
    return (struct span){(const uint8_t *)(record + 1), record[0]};
}

/* The slot that holds these bytes, or the free one where they belong. */
static size_t find_slot(const struct intern *intern, uint32_t hash, const void *bytes,
                        size_t length)
{
    size_t mask = intern->slots_count - 1;
    for (size_t at = hash & mask;; at = (at + 1) & mask) {
        uint32_t reference = intern->slots[2 * at + 1];
        if (reference == 0)
            return at;
        if (intern->slots[2 * at] != hash)
            continue;
        struct span found = intern_get(intern, reference);
        if (found.length_bytes == length && (length == 0 || !memcmp(found.bytes, bytes, length)))
            return at;
    }
}

static int grow_slots(struct intern *intern)
{
    size_t count = intern->slots_count == 0 ? SLOTS_FIRST : intern->slots_count * 2;
    uint32_t *grown = budget_resize(intern->budget, NULL, 0, count * 2 * sizeof(uint32_t));
    if (grown == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < intern->slots_count; i++) {
        uint32_t hash = intern->slots[2 * i], reference = intern->slots[2 * i + 1];
        if (reference == 0)
            continue;
        size_t at = hash & (count - 1);
        while (grown[2 * at + 1] != 0)
            at = (at + 1) & (count - 1);
        grown[2 * at] = hash;
        grown[2 * at + 1] = reference;
    }
    budget_release(intern->budget, intern->slots, intern->slots_count * 2 * sizeof(uint32_t));
    intern->slots = grown;
    intern->slots_count = count;
    return 0;
}

/* A record longer than a chunk gets a chunk of its own length. */
static int new_chunk(struct intern *intern, size_t record_words)
{
    /* Reference 0 names nothing: the first chunk begins with a word that is no record. */
    size_t skipped = intern->chunks_count == 0 ? 1 : 0;
    /* Many tables stay small (one per key), some become large. */
    size_t words = CHUNK_WORDS;
    if (intern->chunks_count < 7)
        words = (size_t)CHUNK_WORDS_FIRST << intern->chunks_count;
    if (words < record_words + skipped)
        words = record_words + skipped;
    if (intern->chunks_count == CHUNKS_MAX)
        return -ENOMEM;
    int result = budget_reserve(intern->budget, (void **)&intern->chunks, &intern->chunks_capacity,
                                intern->chunks_count + 1, sizeof *intern->chunks);
    if (result < 0)
        return result;
    uint32_t *memory = budget_resize(intern->budget, NULL, 0, words * sizeof(uint32_t));
    if (memory == NULL)
        return -ENOMEM;
    intern->chunks[intern->chunks_count++] = (struct intern_chunk){memory, words};
    intern->tail_words = skipped;
    return 0;
}

static int store(struct intern *intern, const void *bytes, size_t length, uint32_t *reference)
{
    size_t words = 1 + (length + 3) / 4;
    const struct intern_chunk *tail =
        intern->chunks_count == 0 ? NULL : &intern->chunks[intern->chunks_count - 1];
    if (tail == NULL || words > tail->words_count - intern->tail_words) {
        int result = new_chunk(intern, words);
        if (result < 0)
            return result;
        tail = &intern->chunks[intern->chunks_count - 1];
    }
    uint32_t *record = tail->words + intern->tail_words;
    record[0] = (uint32_t)length;
    if (length > 0)
        memcpy(record + 1, bytes, length);
    *reference = (uint32_t)((intern->chunks_count - 1) << 16 | intern->tail_words);
    intern->tail_words += words;
    return 0;
}

int intern_put(struct intern *intern, const void *bytes, size_t length_bytes, uint32_t *reference)
{
    if (length_bytes > UINT32_MAX)
        return -ENOMEM;
    if ((intern->entries_count + 1) * 4 > intern->slots_count * 3) {
        int result = grow_slots(intern);
        if (result < 0)
            return result;
    }
    uint32_t hash = hash_bytes(bytes, length_bytes);
    size_t at = find_slot(intern, hash, bytes, length_bytes);
    *reference = intern->slots[2 * at + 1];
    if (*reference != 0)
        return 0;
    int result = store(intern, bytes, length_bytes, reference);
    if (result < 0)
        return result;
    intern->slots[2 * at] = hash;
    intern->slots[2 * at + 1] = *reference;
    intern->entries_count++;
    return 1;
}

int intern_each(const struct intern *intern, int (*visit)(void *context, struct span entry),
                void *context)
{
    for (size_t i = 0; i < intern->slots_count; i++) {
        if (intern->slots[2 * i + 1] == 0)
            continue;
        int result = visit(context, intern_get(intern, intern->slots[2 * i + 1]));
        if (result != 0)
            return result;
    }
    return 0;
}
