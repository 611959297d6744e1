/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools of fixed-size records, addressed by slot.
 *
 * Allocation takes the lowest free slot. Slots are therefore a function of the history of takes and
 * frees alone, not of this machine's capacity: replicas that apply the same log use the same slots,
 * and a record may name another by its slot, in memory, on the wire and in a snapshot alike.
 *
 * A slab is also where a snapshot in progress is kept consistent. While a capture is open, whoever
 * is about to change a record says so (slab_change, slab_take, slab_free), and a record that was
 * live when the capture began and that it has not emitted yet is handed to the hook once, as it
 * was, before its first change.
 *
 * Owner thread only.
 */
#ifndef BELAY_DATAPLANE_SLAB_H
#define BELAY_DATAPLANE_SLAB_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dataplane/machine/shared_words.h"

enum { SLAB_LEVELS_MAX = 6 /* 64^6 > 2^32 */ };
#define SLAB_NONE UINT32_MAX

struct slab;
typedef void slab_hook(void *context, const struct slab *slab, uint32_t slot);

struct slab {
    uint8_t *records;
    uint64_t *free_words; /* one bit per slot, set = free */
    uint32_t capacity;
    uint32_t live;
    uint32_t first_word; /* no slot in a word below this one is free */
    uint32_t record_bytes;
    bool capturing;

    uint32_t levels;
    uint32_t level_words[SLAB_LEVELS_MAX];
    /* [0] = free_words; above: clear = no free slot is below; set = there may be one. Bits are set
     * when a slot is freed and cleared by the search that finds nothing below them, so a slot that
     * comes and goes costs no climbing. */
    uint64_t *free_bits[SLAB_LEVELS_MAX];

    uint64_t
        *done; /* one bit per slot: emitted, handed to the hook, or not live at the beginning */
    slab_hook *hook;
    void *hook_context;
};

/* Memory for `capacity` records, a multiple of 64. */
size_t slab_memory_bytes(uint32_t capacity, uint32_t record_bytes);

/* `memory` is 64-byte aligned. record_bytes is a multiple of 8. All slots are free. */
void slab_init(struct slab *slab, void *memory, uint32_t capacity, uint32_t record_bytes);

/* All slots are free again. */
void slab_clear(struct slab *slab);

/* Restore: marks a given slot live. False if it is already, or lies beyond the capacity. */
bool slab_claim(struct slab *slab, uint32_t slot);

/* Restore: a mark per slot. slab_mark: false if it was marked already. Not during a capture. */
void slab_marks_clear(struct slab *slab);
bool slab_mark(struct slab *slab, uint32_t slot);

void slab_capture_begin(struct slab *slab, slab_hook *hook, void *context);
void slab_capture_end(struct slab *slab);

/* Slots are captured 64 at a time: which of those from 64 * word on are to be emitted now. They all
 * count as emitted then. */
uint64_t slab_capture_word(struct slab *slab, uint32_t word);

void slab_capture_touch(struct slab *slab, uint32_t slot);

static inline bool slab_is_live(const struct slab *slab, uint32_t slot)
{
    return slot < slab->capacity && ((slab->free_words[slot / 64] >> (slot % 64)) & 1) == 0;
}

static inline uint32_t slab_words(const struct slab *slab)
{
    return slab->level_words[0];
}

/* Bit i: slot 64 * word + i is live. */
static inline uint64_t slab_live_word(const struct slab *slab, uint32_t word)
{
    uint32_t slots = slab->capacity - word * 64;
    uint64_t within = slots >= 64 ? UINT64_MAX : (UINT64_C(1) << slots) - 1;
    return ~slab->free_words[word] & within;
}

static inline const void *slab_at(const struct slab *slab, uint32_t slot)
{
    return slab->records + (size_t)slot * slab->record_bytes;
}

/* To be called before a live record changes. */
static inline void slab_touch(struct slab *slab, uint32_t slot)
{
    if (__builtin_expect(slab->capturing, 0)) {
        slab_capture_touch(slab, slot);
    }
}

/* A word of level 0 has a free slot again, and no bit above says so. */
void slab_word_opened(struct slab *slab, uint32_t word);
/* The first word has no free slot any more: moves it to the next that has; there is one. */
void slab_advance(struct slab *slab);

/* Lowest free slot; SLAB_NONE when full. The record's content is whatever was there before. */
static inline uint32_t slab_take(struct slab *slab)
{
    if (slab->live == slab->capacity) {
        return SLAB_NONE;
    }
    if (slab->free_words[slab->first_word] == 0) {
        slab_advance(slab);
    }
    uint64_t *word = &slab->free_words[slab->first_word];
    uint32_t slot = slab->first_word * 64 + (uint32_t)__builtin_ctzll(*word);
    slab_touch(slab, slot);
    *word &= *word - 1;
    WORD_PUT(slab->live, slab->live + 1);
    return slot;
}

static inline void slab_free(struct slab *slab, uint32_t slot)
{
    uint32_t word = slot / 64;
    uint64_t bit = UINT64_C(1) << (slot % 64);
    uint64_t bits = slab->free_words[word];
    assert(slot < slab->capacity && (bits & bit) == 0);
    slab_touch(slab, slot);
    slab->free_words[word] = bits | bit;
    if (bits == 0 && slab->levels > 1 && (slab->free_bits[1][word / 64] >> (word % 64) & 1) == 0) {
        slab_word_opened(slab, word);
    }
    /* In a full slab it is the lowest free slot wherever it lies. */
    if (word < slab->first_word || slab->live == slab->capacity) {
        slab->first_word = word;
    }
    WORD_PUT(slab->live, slab->live - 1);
}

static inline void slab_prefetch_live(const struct slab *slab, uint32_t slot)
{
    __builtin_prefetch(&slab->free_words[slot / 64], 1);
}

#endif
