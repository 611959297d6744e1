/* SPDX-License-Identifier: Apache-2.0
 *
 * Concurrency Kit's ck_ht with keys by address, as its users have them: the table points to records
 * that hold the text. Its interface gives no way to fetch ahead.
 */
#include <stdlib.h>
#include <string.h>

#include <ck_ht.h>

#include "bench/raw/raw.h"
#include "bench/raw/tables.h"
#include "dataplane/wire/wire.h"

struct ck_record { /* as large as a resource's, text first */
    struct tables_key key;
    uint32_t value;
    uint32_t rest[3];
};

struct ck_table {
    ck_ht_t table;
    struct ck_record *records;
    uint32_t *free_slots;
    uint32_t free_count;
};

static void *ck_take(size_t bytes)
{
    return malloc(bytes);
}

static void ck_give(void *memory, size_t bytes, bool deferred)
{
    (void)bytes;
    (void)deferred;
    free(memory);
}

static void hash_key(struct ck_ht_hash *hash, const void *key, size_t bytes, uint64_t seed)
{
    (void)seed;
    hash->value = wire_text_hash(key, 0, bytes);
}

static void *open_ck(uint32_t keys_max)
{
    static struct ck_malloc memory = {.malloc = ck_take, .free = ck_give};
    struct ck_table *table = calloc(1, sizeof *table);
    if (table == NULL)
        raw_die("no memory for ck_ht");
    table->records = calloc(keys_max, sizeof *table->records);
    table->free_slots = calloc(keys_max, sizeof *table->free_slots);
    /* It takes a capacity, and doubles when half of that is used: so it is given twice. */
    if (table->records == NULL || table->free_slots == NULL ||
        !ck_ht_init(&table->table, CK_HT_MODE_BYTESTRING | CK_HT_WORKLOAD_DELETE, hash_key, &memory,
                    (CK_HT_TYPE)keys_max * 2, 1))
        raw_die("no memory for ck_ht of %u keys", keys_max);
    for (uint32_t i = 0; i < keys_max; i++)
        table->free_slots[i] = keys_max - 1 - i;
    table->free_count = keys_max;
    return table;
}

static void close_ck(void *opened)
{
    struct ck_table *table = opened;
    ck_ht_destroy(&table->table);
    free(table->records);
    free(table->free_slots);
    free(table);
}

static bool insert(void *opened, const struct tables_key *key, uint32_t value)
{
    struct ck_table *table = opened;
    struct ck_record *record = &table->records[table->free_slots[--table->free_count]];
    ck_ht_hash_t hash;
    ck_ht_entry_t entry;
    record->key = *key;
    record->value = value;
    ck_ht_hash(&hash, &table->table, record->key.text, TABLES_KEY_BYTES);
    ck_ht_entry_set(&entry, hash, record->key.text, TABLES_KEY_BYTES, record);
    return ck_ht_put_spmc(&table->table, hash, &entry);
}

static bool take_out(void *opened, const struct tables_key *key)
{
    struct ck_table *table = opened;
    ck_ht_hash_t hash;
    ck_ht_entry_t entry;
    ck_ht_hash(&hash, &table->table, key->text, TABLES_KEY_BYTES);
    ck_ht_entry_key_set(&entry, key->text, TABLES_KEY_BYTES);
    if (!ck_ht_remove_spmc(&table->table, hash, &entry))
        return false;
    const struct ck_record *record = ck_ht_entry_value(&entry);
    table->free_slots[table->free_count++] = (uint32_t)(record - table->records);
    return true;
}

static bool find(void *opened, const struct tables_key *key, uint32_t *value)
{
    struct ck_table *table = opened;
    ck_ht_hash_t hash;
    ck_ht_entry_t entry;
    ck_ht_hash(&hash, &table->table, key->text, TABLES_KEY_BYTES);
    ck_ht_entry_key_set(&entry, key->text, TABLES_KEY_BYTES);
    if (!ck_ht_get_spmc(&table->table, hash, &entry))
        return false;
    *value = ((const struct ck_record *)ck_ht_entry_value(&entry))->value;
    return true;
}

const struct tables_class tables_ck_ht = {.name = "ck_ht",
                                          .open = open_ck,
                                          .close = close_ck,
                                          .insert = insert,
                                          .remove = take_out,
                                          .find = find};
