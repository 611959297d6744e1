/* SPDX-License-Identifier: Apache-2.0 */
#include "dataplane/machine/slab.h"

#include <string.h>

#include "dataplane/machine/shared_words.h"

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

/* Words of each level, and how many levels: the last has one word. */
static uint32_t level_sizes(uint32_t capacity, uint32_t words[SLAB_LEVELS_MAX])
{
    uint32_t levels = 0;
    uint32_t bits = capacity;
    do {
        assert(levels < SLAB_LEVELS_MAX);
        words[levels] = bits / 64 + (bits % 64 != 0);
        bits = words[levels];
        levels++;
    } while (bits > 1);
    return levels;
}

static size_t records_bytes(uint32_t capacity, uint32_t record_bytes)
{
    return round_up((size_t)capacity * record_bytes, 64);
}

size_t slab_memory_bytes(uint32_t capacity, uint32_t record_bytes)
{
    uint32_t words[SLAB_LEVELS_MAX];
    uint32_t levels = level_sizes(capacity, words);
    size_t bits_words = words[0]; /* of `done` */
    for (uint32_t level = 0; level < levels; level++) {
        bits_words += words[level];
    }
    return records_bytes(capacity, record_bytes) + round_up(bits_words * sizeof(uint64_t), 64);
}

void slab_init(struct slab *slab, void *memory, uint32_t capacity, uint32_t record_bytes)
{
    assert(capacity > 0 && capacity < SLAB_NONE && record_bytes % 8 == 0);
    memset(slab, 0, sizeof(*slab));
    slab->records = memory;
    slab->record_bytes = record_bytes;
    slab->capacity = capacity;
    slab->levels = level_sizes(capacity, slab->level_words);
    uint64_t *words = (uint64_t *)(slab->records + records_bytes(capacity, record_bytes));
    for (uint32_t level = 0; level < slab->levels; level++) {
        slab->free_bits[level] = words;
        words += slab->level_words[level];
    }
    slab->free_words = slab->free_bits[0];
    slab->done = words;
    slab_clear(slab);
}

static void set_low_bits(uint64_t *words, uint32_t bits)
{
    memset(words, 0xff, bits / 64 * sizeof(*words));
    if (bits % 64 != 0) {
        words[bits / 64] = (UINT64_C(1) << (bits % 64)) - 1;
    }
}

void slab_clear(struct slab *slab)
{
    uint32_t bits = slab->capacity;
    for (uint32_t level = 0; level < slab->levels; level++) {
        set_low_bits(slab->free_bits[level], bits);
        bits = slab->level_words[level];
    }
    WORD_PUT(slab->live, 0u);
    slab->first_word = 0;
    slab->capturing = false;
}

void slab_word_opened(struct slab *slab, uint32_t word)
{
    uint32_t bit = word;
    for (uint32_t level = 1; level < slab->levels; level++) {
        uint64_t *above = &slab->free_bits[level][bit / 64];
        uint64_t before = *above;
        *above = before | UINT64_C(1) << (bit % 64);
        if (before != 0) {
            break; /* then the levels above know */
        }
        bit /= 64;
    }
}

void slab_advance(struct slab *slab)
{
    uint32_t level = 0;
    uint32_t word = slab->first_word;
    for (;;) {
        uint64_t bits = slab->free_bits[level][word];
        if (bits == 0) { /* nothing below: say so above, and look on from there */
            level++;
            assert(level < slab->levels);
            slab->free_bits[level][word / 64] &= ~(UINT64_C(1) << (word % 64));
            word /= 64;
        } else if (level == 0) {
            slab->first_word = word;
            return;
        } else {
            level--;
            word = word * 64 + (uint32_t)__builtin_ctzll(bits);
        }
    }
}

bool slab_claim(struct slab *slab, uint32_t slot)
{
    if (slot >= slab->capacity || slab_is_live(slab, slot)) {
        return false;
    }
    slab->free_words[slot / 64] &= ~(UINT64_C(1) << (slot % 64));
    WORD_PUT(slab->live, slab->live + 1);
    return true;
}

void slab_marks_clear(struct slab *slab)
{
    assert(!slab->capturing);
    memset(slab->done, 0, slab_words(slab) * sizeof(*slab->done));
}

bool slab_mark(struct slab *slab, uint32_t slot)
{
    uint64_t bit = UINT64_C(1) << (slot % 64);
    bool fresh = (slab->done[slot / 64] & bit) == 0;
    assert(!slab->capturing);
    slab->done[slot / 64] |= bit;
    return fresh;
}

void slab_capture_begin(struct slab *slab, slab_hook *hook, void *context)
{
    slab_marks_clear(slab);
    slab->hook = hook;
    slab->hook_context = context;
    slab->capturing = true;
}

void slab_capture_end(struct slab *slab)
{
    slab->capturing = false;
}

uint64_t slab_capture_word(struct slab *slab, uint32_t word)
{
    uint64_t emit = slab_live_word(slab, word) & ~slab->done[word];
    slab->done[word] = UINT64_MAX;
    return emit;
}

void slab_capture_touch(struct slab *slab, uint32_t slot)
{
    uint64_t bit = UINT64_C(1) << (slot % 64);
    if ((slab->done[slot / 64] & bit) != 0) {
        return;
    }
    slab->done[slot / 64] |= bit;
    if (slab_is_live(slab, slot)) {
        slab->hook(slab->hook_context, slab, slot);
    }
}
