/* SPDX-License-Identifier: Apache-2.0
 *
 * The lock machine's index as the lock machine uses it: records in a slab of their own, found by
 * slot and compared by their text; the home bucket's sequence moves around every change.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/raw/raw.h"
#include "bench/raw/tables.h"
#include "dataplane/machine/index.h"
#include "dataplane/machine/records.h"
#include "dataplane/wire/wire.h"

struct index_table {
    struct index index;
    struct resource_record *records;
    uint32_t *free_slots; /* stack */
    uint32_t free_count;
};

static uint64_t hash_of(const struct tables_key *key)
{
    return wire_text_hash(key->text, 0, TABLES_KEY_BYTES);
}

static void *open_index(uint32_t keys_max)
{
    struct index_table *table = calloc(1, sizeof *table);
    size_t bytes = (index_memory_bytes(keys_max) + 63) / 64 * 64;
    void *memory = aligned_alloc(64, bytes);
    if (table == NULL || memory == NULL)
        raw_die("no memory for the index");
    memset(memory, 0, bytes);
    index_init(&table->index, memory, keys_max);
    table->records = calloc(keys_max, sizeof *table->records);
    table->free_slots = calloc(keys_max, sizeof *table->free_slots);
    if (table->records == NULL || table->free_slots == NULL)
        raw_die("no memory for %u records", keys_max);
    for (uint32_t i = 0; i < keys_max; i++)
        table->free_slots[i] = keys_max - 1 - i;
    table->free_count = keys_max;
    return table;
}

static void close_index(void *opened)
{
    struct index_table *table = opened;
    free(table->index.buckets);
    free(table->records);
    free(table->free_slots);
    free(table);
}

static bool has_key(const struct resource_record *record, uint64_t hash,
                    const struct tables_key *key)
{
    return record->key_tag == (uint32_t)hash && record->namespace_bytes == 0 &&
           record->name_bytes == TABLES_KEY_BYTES &&
           memcmp(record->text, key->text, TABLES_KEY_BYTES) == 0;
}

static uint32_t find_slot(const struct index_table *table, uint64_t hash,
                          const struct tables_key *key)
{
    struct index_search search = index_search(&table->index, hash);
    for (uint32_t slot; index_candidate(&search, &slot);)
        if (has_key(&table->records[slot], hash, key))
            return slot;
    return NONE;
}

static bool insert(void *opened, const struct tables_key *key, uint32_t value)
{
    struct index_table *table = opened;
    uint64_t hash = hash_of(key);
    uint32_t slot = table->free_slots[--table->free_count];
    struct resource_record *record = &table->records[slot];
    index_write_begin(&table->index, (uint32_t)hash);
    memcpy(record->text, key->text, TABLES_KEY_BYTES);
    record->namespace_bytes = 0;
    record->name_bytes = TABLES_KEY_BYTES;
    record->key_tag = (uint32_t)hash;
    record->holder = value;
    index_insert(&table->index, hash, slot);
    index_write_end(&table->index, (uint32_t)hash);
    return true;
}

static bool take_out(void *opened, const struct tables_key *key)
{
    struct index_table *table = opened;
    uint64_t hash = hash_of(key);
    uint32_t slot = find_slot(table, hash, key);
    if (slot == NONE)
        return false;
    index_write_begin(&table->index, (uint32_t)hash);
    index_remove(&table->index, (uint32_t)hash, slot);
    index_write_end(&table->index, (uint32_t)hash);
    table->free_slots[table->free_count++] = slot;
    return true;
}

static bool find(void *opened, const struct tables_key *key, uint32_t *value)
{
    const struct index_table *table = opened;
    uint32_t slot = find_slot(table, hash_of(key), key);
    if (slot != NONE)
        *value = table->records[slot].holder;
    return slot != NONE;
}

/* Three passes, as the lock machine makes them over an entry's commands: the bucket is fetched,
 * then the record that it names, then both are read. */
static uint32_t find_batch(void *opened, const struct tables_key *keys, uint64_t *sum)
{
    const struct index_table *table = opened;
    uint64_t hashes[TABLES_BATCH];
    uint32_t found = 0;
    for (uint32_t i = 0; i < TABLES_BATCH; i++) {
        hashes[i] = hash_of(&keys[i]);
        index_prefetch(&table->index, (uint32_t)hashes[i]);
    }
    for (uint32_t i = 0; i < TABLES_BATCH; i++) {
        uint32_t slot;
        if (index_at_home(&table->index, hashes[i], &slot))
            __builtin_prefetch(&table->records[slot]);
        index_prefetch_next(&table->index, (uint32_t)hashes[i]);
    }
    for (uint32_t i = 0; i < TABLES_BATCH; i++) {
        uint32_t slot = find_slot(table, hashes[i], &keys[i]);
        if (slot != NONE) {
            *sum += table->records[slot].holder;
            found++;
        }
    }
    return found;
}

const struct tables_class tables_index = {.name = "index",
                                          .open = open_index,
                                          .close = close_index,
                                          .insert = insert,
                                          .remove = take_out,
                                          .find = find,
                                          .find_batch = find_batch};
