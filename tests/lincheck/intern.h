/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of the linearizability checker: one budget that everything is taken from, and tables that
 * keep each distinct string of bytes once and name it by a number.
 */
#ifndef TESTS_LINCHECK_INTERN_H
#define TESTS_LINCHECK_INTERN_H

#include <stddef.h>
#include <stdint.h>

struct budget {
    size_t limit_bytes;
    size_t used_bytes; /* <= limit_bytes */
};

/* As realloc(), but NULL also when the budget does not allow it; `old` is then still valid. The
 * bytes beyond old_bytes are zero. */
void *budget_resize(struct budget *budget, void *old, size_t old_bytes, size_t new_bytes);
void budget_release(struct budget *budget, void *memory, size_t bytes);

/* Makes room for at least `needed` elements by doubling. 0 or -ENOMEM; *array is valid either way.
 */
int budget_reserve(struct budget *budget, void **array, size_t *capacity, size_t needed,
                   size_t element_bytes);

struct span {
    const uint8_t *bytes;
    size_t length_bytes;
};

struct intern_chunk {
    uint32_t *words;
    size_t words_count;
};

/* References rise in the order of first appearance; 0 names nothing. */
struct intern {
    struct budget *budget;
    struct intern_chunk *chunks;
    size_t chunks_count, chunks_capacity;
    size_t tail_words;  /* used in the last chunk */
    uint32_t *slots;    /* pairs (hash, reference); reference 0: free */
    size_t slots_count; /* 0 or a power of two, more than entries_count */
    size_t entries_count;
};

void intern_init(struct intern *intern, struct budget *budget);
void intern_free(struct intern *intern);

/* 1: new, 0: known before, -ENOMEM. The bytes are copied. */
int intern_put(struct intern *intern, const void *bytes, size_t length_bytes, uint32_t *reference);

/* The bytes stay where they are until intern_free(), aligned to four. */
struct span intern_get(const struct intern *intern, uint32_t reference);

/* Calls visit() for each entry, in no particular order, until it returns other than 0. */
int intern_each(const struct intern *intern, int (*visit)(void *context, struct span entry),
                void *context);

#endif
