/* SPDX-License-Identifier: Apache-2.0
 *
 * ns per operation of three hash tables on the same keys: lookups that hit and that miss, one by
 * one and in batches, and a removal with an insertion while the table stays full. See tables.h.
 */
#include "bench/raw/tables.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/raw/raw.h"

enum { CLASSES_MAX = 3, FIGURES = 6 };
enum { OPERATIONS_MAX = 2000000 /* of each kind, in large tables: a sample of the keys */ };
static_assert(OPERATIONS_MAX % TABLES_BATCH == 0, "whole batches");

static const struct tables_class *const CLASSES[CLASSES_MAX] = {
    &tables_index,
#ifdef BELAY_BENCH_CK
    &tables_ck_ht,
#endif
    &tables_rte_hash,
};

static const char *const FIGURE_KEYS[FIGURES] = {"insert",    "hit",        "miss",
                                                 "hit_batch", "miss_batch", "remove_insert"};
static const char *const FIGURE_TEXTS[FIGURES] = {
    "an insertion into an empty table, to full", "a lookup that finds, one by one",
    "a lookup that does not, one by one",        "a lookup that finds, 32 fetched ahead",
    "a lookup that does not, 32 fetched ahead",  "a removal or an insertion, in turn, full table"};

struct keys {
    struct tables_key *present, *absent; /* each `count`, in random order */
    uint32_t count;                      /* a multiple of TABLES_BATCH */
    uint32_t asked;                      /* so many of them are looked up, and changed: the same */
};

/* This thread's own time: whoever shares the core with it is not counted. */
static uint64_t cpu_ns(void)
{
    struct timespec spent;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return (uint64_t)spent.tv_sec * UINT64_C(1000000000) + (uint64_t)spent.tv_nsec;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static uint64_t next_random(uint64_t *state) /* splitmix64 (Steele, Lea, Flood 2014) */
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void shuffle(struct tables_key *keys, uint32_t count, uint64_t *state)
{
    for (uint32_t i = count - 1; i > 0; i--) {
        uint32_t j = (uint32_t)(next_random(state) % (i + 1));
        struct tables_key kept = keys[i];
        keys[i] = keys[j];
        keys[j] = kept;
    }
}

static struct tables_key *make_keys(uint32_t first, uint32_t count)
{
    struct tables_key *keys = calloc(count, sizeof *keys);
    if (keys == NULL)
        raw_die("no memory for %u keys", count);
    for (uint32_t i = 0; i < count; i++) {
        char text[TABLES_KEY_BYTES + 1];
        snprintf(text, sizeof text, "orders/customer-%08u", first + i);
        memcpy(keys[i].text, text, TABLES_KEY_BYTES);
    }
    return keys;
}

/* ---- one table, one round -------------------------------------------------------------------- */

static double fill(const struct tables_class *class, void *table, const struct keys *keys)
{
    uint64_t began_ns = cpu_ns();
    for (uint32_t i = 0; i < keys->count; i++)
        if (!class->insert(table, &keys->present[i], i))
            raw_die("%s did not take a key", class->name);
    return (double)(cpu_ns() - began_ns) / keys->count;
}

/* `hit`: every key must be found, and the values must be the right ones; else none may be. */
static void judge(const struct tables_class *class, const struct keys *keys, bool hit,
                  uint32_t found, uint64_t sum)
{
    uint64_t expected = hit ? (uint64_t)keys->asked * (keys->asked - 1) / 2 : 0;
    if (found != (hit ? keys->asked : 0) || sum != expected)
        raw_die("%s found %u of %u keys%s", class->name, found, keys->asked,
                sum != expected ? ", or wrong values" : "");
}

static double look_up(const struct tables_class *class, void *table, const struct keys *keys,
                      bool hit)
{
    const struct tables_key *asked = hit ? keys->present : keys->absent;
    uint64_t sum = 0, began_ns = cpu_ns();
    uint32_t found = 0;
    for (uint32_t i = 0; i < keys->asked; i++) {
        uint32_t value;
        if (class->find(table, &asked[i], &value)) {
            sum += value;
            found++;
        }
    }
    uint64_t spent_ns = cpu_ns() - began_ns;
    judge(class, keys, hit, found, sum);
    return (double)spent_ns / keys->asked;
}

static double look_up_batches(const struct tables_class *class, void *table,
                              const struct keys *keys, bool hit)
{
    const struct tables_key *asked = hit ? keys->present : keys->absent;
    uint64_t sum = 0, began_ns = cpu_ns();
    uint32_t found = 0;
    for (uint32_t i = 0; i < keys->asked; i += TABLES_BATCH)
        found += class->find_batch(table, &asked[i], &sum);
    uint64_t spent_ns = cpu_ns() - began_ns;
    judge(class, keys, hit, found, sum);
    return (double)spent_ns / keys->asked;
}

/* The present keys leave, the absent ones come. */
static double turn_over(const struct tables_class *class, void *table, const struct keys *keys)
{
    uint64_t began_ns = cpu_ns();
    for (uint32_t i = 0; i < keys->asked; i++)
        if (!class->remove(table, &keys->present[i]) || !class->insert(table, &keys->absent[i], i))
            raw_die("%s lost a key, or had no room for one", class->name);
    return (double)(cpu_ns() - began_ns) / keys->asked / 2;
}

static void add(struct raw_report *report, uint32_t class, uint32_t figure, double ns)
{
    static char keys[CLASSES_MAX][FIGURES][40], texts[CLASSES_MAX][FIGURES][80];
    snprintf(keys[class][figure], sizeof keys[class][figure], "%s.%s_ns", CLASSES[class]->name,
             FIGURE_KEYS[figure]);
    snprintf(texts[class][figure], sizeof texts[class][figure], "%s, ns", FIGURE_TEXTS[figure]);
    raw_add(report, keys[class][figure], texts[class][figure], ns);
}

static void measure(struct raw_report *report, uint32_t number, const struct keys *keys)
{
    const struct tables_class *class = CLASSES[number];
    void *table = class->open(keys->count + TABLES_BATCH);
    if (table == NULL) {
        raw_note(report, "rte_hash was not measured: DPDK's EAL did not start");
        return;
    }
    add(report, number, 0, fill(class, table, keys));
    add(report, number, 1, look_up(class, table, keys, true));
    add(report, number, 2, look_up(class, table, keys, false));
    if (class->find_batch != NULL) {
        add(report, number, 3, look_up_batches(class, table, keys, true));
        add(report, number, 4, look_up_batches(class, table, keys, false));
    }
    add(report, number, 5, turn_over(class, table, keys));
    class->close(table);
}

int main(int argc, char **argv)
{
    struct raw_options options;
    struct raw_report report = {.program = "tables"};
    raw_parse(&options, "k", "hash tables for one writer and many readers, on the same keys", argc,
              argv);
    struct keys keys = {.count = options.keys / TABLES_BATCH * TABLES_BATCH};
    keys.asked = keys.count < OPERATIONS_MAX ? keys.count : OPERATIONS_MAX;
    uint64_t state = 1;
    keys.present = make_keys(0, keys.count);
    keys.absent = make_keys(keys.count, keys.count);
    shuffle(keys.absent, keys.count, &state);
    for (uint32_t round = 0; round < options.rounds; round++) {
        shuffle(keys.present, keys.count, &state);
        for (uint32_t i = 0; i < CLASSES_MAX && CLASSES[i] != NULL; i++)
            measure(&report, i, &keys);
    }
    raw_note(&report, "processor time of the thread, hashing (XXH3) and comparing included");
#ifndef BELAY_BENCH_CK
    raw_note(&report, "ck_ht was not measured: libck-dev was not there when this was built");
#endif
    raw_print(&report, options.json);
    free(keys.present);
    free(keys.absent);
    return 0;
}
