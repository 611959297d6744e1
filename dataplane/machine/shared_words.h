/* SPDX-License-Identifier: Apache-2.0
 *
 * Words that the owner thread writes and other threads read while it writes.
 *
 * Readers follow a sequence (index.h) and throw away what they read if it moved meanwhile. That is
 * only defined in C if both sides access the words atomically; relaxed is enough, the sequence does
 * the ordering. The owner reads its own words plainly.
 */
#ifndef BELAY_DATAPLANE_SHARED_WORDS_H
#define BELAY_DATAPLANE_SHARED_WORDS_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define WORD_PUT(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)
#define WORD_GET(field)        __atomic_load_n(&(field), __ATOMIC_RELAXED)

/* `bytes` is a multiple of 8, both sides are aligned to 8. Small sizes known when compiling unroll.
 */
static inline void words_put(void *to, const void *from, size_t bytes)
{
    uint64_t *target = to;
    const uint64_t *source = from;
    assert(bytes % sizeof(*target) == 0);
    for (size_t i = 0; i < bytes / sizeof(*target); i++) {
        __atomic_store_n(&target[i], source[i], __ATOMIC_RELAXED);
    }
}

static inline void words_get(void *to, const void *from, size_t bytes)
{
    uint64_t *target = to;
    const uint64_t *source = from;
    assert(bytes % sizeof(*target) == 0);
    for (size_t i = 0; i < bytes / sizeof(*target); i++) {
        target[i] = __atomic_load_n(&source[i], __ATOMIC_RELAXED);
    }
}

#endif
