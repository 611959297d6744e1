/* SPDX-License-Identifier: Apache-2.0
 *
 * The example store: value and token change together or not at all.
 */
#include <criterion/criterion.h>

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "belay/belay.h"
#include "durable_faults.h"

static char directory[64];

static void setup(void)
{
    snprintf(directory, sizeof(directory), "/tmp/belay-store-XXXXXX");
    cr_assert_not_null(mkdtemp(directory));
    fault_reset(-1, false);
}

/* Calls `each` with the path of every value file (not the lock, not leftovers). */
static void each_file(void (*each)(const char *path))
{
    DIR *open_directory = opendir(directory);

    for (struct dirent *entry; (entry = readdir(open_directory)) != NULL;) {
        char path[512];
        snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
        if (strlen(entry->d_name) == 32)
            each(path);
    }
    closedir(open_directory);
}

static void teardown(void)
{
    DIR *open_directory = opendir(directory);

    fault_reset(-1, false);
    for (struct dirent *entry; (entry = readdir(open_directory)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            cr_assert_eq(unlinkat(dirfd(open_directory), entry->d_name, 0), 0);
    }
    closedir(open_directory);
    cr_assert_eq(rmdir(directory), 0);
}

static belay_store *open_store(void)
{
    belay_store *store;
    cr_assert_eq(belay_store_open(directory, &store), BELAY_OK, "%s", belay_error_text());
    return store;
}

static void expect(belay_store *store, const char *key, const char *value, uint64_t token)
{
    char found[64] = {0};
    size_t bytes = sizeof(found);
    uint64_t found_token;

    cr_assert_eq(belay_store_get(store, key, found, &bytes, &found_token), BELAY_OK);
    cr_assert(bytes == strlen(value) && memcmp(found, value, bytes) == 0, "%s: %.*s", key,
              (int)bytes, found);
    cr_assert_eq(found_token, token);
}

TestSuite(store, .init = setup, .fini = teardown);

Test(store, puts_and_gets)
{
    belay_store *store = open_store();

    expect(store, "k", "", 0);
    cr_assert_eq(belay_store_put(store, "k", "one", 3, 10), BELAY_OK);
    cr_assert_eq(belay_store_put(store, "k", "two", 3, 10), BELAY_OK, "the same holder again");
    cr_assert_eq(belay_store_put(store, "k", "late", 4, 9), BELAY_REFUSED);
    expect(store, "k", "two", 10);
    cr_assert_eq(belay_store_put(store, "k2", "", 0, 1), BELAY_OK);
    cr_assert_eq(belay_store_put(store, "k", "three", 5, UINT64_MAX), BELAY_OK);
    cr_assert_eq(belay_store_put(store, "k", "late", 4, UINT64_C(1) << 32), BELAY_REFUSED);
    belay_store_close(store);
    store = open_store();
    expect(store, "k", "three", UINT64_MAX);
    expect(store, "k2", "", 1);
    char small[2];
    size_t bytes = sizeof(small);
    cr_assert_eq(belay_store_get(store, "k", small, &bytes, NULL), BELAY_OVER_LIMIT);
    cr_assert_eq(bytes, 5, "what it would need");
    cr_assert_eq(belay_store_put(store, "", "x", 1, 1), BELAY_BAD_REQUEST);
    belay_store_close(store);
}

Test(store, crash_at_every_step)
{
    belay_store *store = open_store();

    for (int step = 0; step < 4; step++) {
        uint64_t token = 10u + 10u * (unsigned)step;
        cr_assert_eq(belay_store_put(store, "k", "old", 3, token), BELAY_OK);
        fault_reset(step, true);
        cr_assert_eq(belay_store_put(store, "k", "new", 3, token + 5), BELAY_SYSTEM);
        fault_reset(-1, false);
        belay_store_close(store);
        store = open_store();
        expect(store, "k", step == 3 ? "new" : "old", step == 3 ? token + 5 : token);
    }
    fault_reset(-1, false);
    cr_assert_eq(belay_store_put(store, "k", "v", 1, 100), BELAY_OK);
    cr_assert_str_eq(fault_steps, "wfrd");
    belay_store_close(store);
}

static uint8_t good[256];
static size_t good_bytes;
static char value_path[512];

static void keep(const char *path)
{
    snprintf(value_path, sizeof(value_path), "%s", path);
    FILE *file = fopen(path, "rb");
    good_bytes = fread(good, 1, sizeof(good), file);
    fclose(file);
}

static void replace(const uint8_t *bytes, size_t length)
{
    FILE *file = fopen(value_path, "wb");
    cr_assert_eq(fwrite(bytes, 1, length, file), length);
    fclose(file);
}

Test(store, damage)
{
    belay_store *store = open_store();
    uint8_t bad[256];

    cr_assert_eq(belay_store_put(store, "key", "value", 5, 3), BELAY_OK);
    each_file(keep);
    cr_assert_gt(good_bytes, 40);
    for (size_t at = 0; at < good_bytes; at++) {
        char value[16];
        size_t bytes = sizeof(value);
        replace(good, at);
        cr_assert_eq(belay_store_get(store, "key", value, &bytes, NULL), BELAY_SYSTEM, "cut %zu",
                     at);
        memcpy(bad, good, good_bytes);
        bad[at] ^= 1;
        replace(bad, good_bytes);
        bytes = sizeof(value);
        cr_assert_eq(belay_store_get(store, "key", value, &bytes, NULL), BELAY_SYSTEM, "byte %zu",
                     at);
        cr_assert_eq(belay_store_put(store, "key", "x", 1, 9), BELAY_SYSTEM,
                     "not overwritten: the token it held is not known");
    }
    replace(good, good_bytes);
    expect(store, "key", "value", 3);
    belay_store_close(store);
}
