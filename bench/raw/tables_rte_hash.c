/* SPDX-License-Identifier: Apache-2.0
 *
 * DPDK's rte_hash with lock-free readers. It keeps keys itself, and hands out positions; a removed
 * key's position is given back at once (there are no readers here). The one place outside hw/ with
 * a header of DPDK: a hash table is no hardware, and this is only a comparison.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_hash.h>

#include "bench/raw/raw.h"
#include "bench/raw/tables.h"
#include "dataplane/wire/wire.h"

static_assert((int)TABLES_BATCH <= RTE_HASH_LOOKUP_BULK_MAX, "one call looks a batch up");

static uint32_t hash_key(const void *key, uint32_t bytes, uint32_t seed)
{
    (void)seed;
    return (uint32_t)wire_text_hash(key, 0, bytes);
}

/* Every key takes an entry of 40 bytes, a place in a ring, and a share of two tables of buckets. */
static uint32_t memory_mib(uint32_t keys_max)
{
    return 256 + keys_max / 8192;
}

static bool start_eal(uint32_t keys_max)
{
    static bool started; /* EAL starts once per process: all tables of it have the same keys */
    char memory[16];
    /* No NIC, no hugepages: works for everybody, and the other tables have ordinary pages too. */
    char *arguments[] = {"tables", "--no-huge",      "--no-shconf", "--no-pci", "-m",
                         memory,   "--no-telemetry", "--log-level", "error",    NULL};
    (void)snprintf(memory, sizeof memory, "%u", memory_mib(keys_max));
    if (!started)
        started = rte_eal_init((int)(sizeof arguments / sizeof arguments[0]) - 1, arguments) >= 0;
    return started;
}

static void *open_rte(uint32_t keys_max)
{
    if (!start_eal(keys_max))
        return NULL;
    struct rte_hash_parameters parameters = {.name = "tables",
                                             .entries = keys_max,
                                             .key_len = TABLES_KEY_BYTES,
                                             .hash_func = hash_key,
                                             .socket_id = SOCKET_ID_ANY,
                                             .extra_flag = RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF |
                                                           RTE_HASH_EXTRA_FLAGS_EXT_TABLE};
    struct rte_hash *table = rte_hash_create(&parameters);
    if (table == NULL)
        raw_die("rte_hash_create: %s", rte_strerror(rte_errno));
    return table;
}

static void close_rte(void *table)
{
    rte_hash_free(table);
}

static bool insert(void *table, const struct tables_key *key, uint32_t value)
{
    return rte_hash_add_key_data(table, key->text, (void *)(uintptr_t)value) == 0;
}

static bool take_out(void *table, const struct tables_key *key)
{
    int32_t position = rte_hash_del_key(table, key->text);
    return position >= 0 && rte_hash_free_key_with_position(table, position) == 0;
}

static bool find(void *table, const struct tables_key *key, uint32_t *value)
{
    void *data;
    if (rte_hash_lookup_data(table, key->text, &data) < 0)
        return false;
    *value = (uint32_t)(uintptr_t)data;
    return true;
}

static uint32_t find_batch(void *table, const struct tables_key *keys, uint64_t *sum)
{
    const void *pointers[TABLES_BATCH];
    void *data[TABLES_BATCH];
    uint64_t hits;
    for (uint32_t i = 0; i < TABLES_BATCH; i++)
        pointers[i] = keys[i].text;
    int found = rte_hash_lookup_bulk_data(table, pointers, TABLES_BATCH, &hits, data);
    for (; hits != 0; hits &= hits - 1)
        *sum += (uintptr_t)data[__builtin_ctzll(hits)];
    return found > 0 ? (uint32_t)found : 0;
}

const struct tables_class tables_rte_hash = {.name = "rte_hash",
                                             .open = open_rte,
                                             .close = close_rte,
                                             .insert = insert,
                                             .remove = take_out,
                                             .find = find,
                                             .find_batch = find_batch};
