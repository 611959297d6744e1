/* SPDX-License-Identifier: Apache-2.0
 *
 * Three hash tables under the same load: the lock machine's index over its records, Concurrency
 * Kit's ck_ht, and DPDK's rte_hash; each in the mode in which one writer works beside readers that
 * take no lock. Keys are 24 bytes, the length a resource's record holds in itself; every operation
 * starts from those bytes, so hashing (XXH3 for all three) and comparing are part of it.
 */
#ifndef BELAY_BENCH_RAW_TABLES_H
#define BELAY_BENCH_RAW_TABLES_H

#include <stdbool.h>
#include <stdint.h>

enum { TABLES_KEY_BYTES = 24, TABLES_BATCH = 32 };

struct tables_key {
    _Alignas(8) uint8_t text[TABLES_KEY_BYTES];
};

/* One kind of table. Keys that are inserted are not there; keys that are removed are. */
struct tables_class {
    const char *name;
    void *(*open)(uint32_t keys_max);
    void (*close)(void *table);
    bool (*insert)(void *table, const struct tables_key *key, uint32_t value);
    bool (*remove)(void *table, const struct tables_key *key);
    bool (*find)(void *table, const struct tables_key *key, uint32_t *value);
    /* TABLES_BATCH of them, fetched ahead as far as the table allows; NULL = it does not. How many
     * were found. */
    uint32_t (*find_batch)(void *table, const struct tables_key *keys, uint64_t *sum);
};

extern const struct tables_class tables_index;
extern const struct tables_class tables_ck_ht; /* where libck was found: BELAY_BENCH_CK */
/* Where DPDK was found: BELAY_BENCH_DPDK. open() returns NULL when its EAL does not start. */
extern const struct tables_class tables_rte_hash;

#endif
