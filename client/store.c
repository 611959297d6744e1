/* SPDX-License-Identifier: Apache-2.0
 *
 * The example store: a file per key that holds its value and the token it was written under, so
 * that token and value change together or not at all. What a real storage server would do in one
 * transaction, a rename does here.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "client/driver.h"
#include "client/durable.h"

#define STORE_MAGIC UINT64_C(0x31726f7473594c42) /* "BLYstor1" */

enum {
    STORE_KEY_BYTES_MAX = 1024,
    STORE_VALUE_BYTES_MAX = 64 << 20,
    STORE_NAME_BYTES = 33, /* 128 bits in hexadecimal */
};

struct store_file {
    struct durable_head head;
    uint64_t token;
    uint32_t key_bytes;
    uint32_t value_bytes;
    uint8_t text[]; /* key, value */
};

struct belay_store {
    pthread_mutex_t mutex;
    int directory, lock_file;
};

belay_status belay_store_open(const char *directory, belay_store **result)
{
    *result = NULL;
    if (mkdir(directory, 0777) < 0 && errno != EEXIST)
        return fail_system(directory);
    struct belay_store *store = calloc(1, sizeof(*store));
    if (store == NULL)
        return fail(BELAY_NO_MEMORY, "no memory for a store");
    pthread_mutex_init(&store->mutex, NULL);
    store->lock_file = -1;
    store->directory = durable_open_directory(directory);
    if (store->directory >= 0)
        store->lock_file = durable_open_lock(store->directory, ".lock");
    if (store->directory < 0 || store->lock_file < 0) {
        errno = store->directory < 0 ? -store->directory : -store->lock_file;
        belay_store_close(store);
        return fail_system(directory);
    }
    *result = store;
    return BELAY_OK;
}

void belay_store_close(belay_store *store)
{
    if (store == NULL)
        return;
    if (store->directory >= 0)
        close(store->directory);
    if (store->lock_file >= 0)
        close(store->lock_file);
    pthread_mutex_destroy(&store->mutex);
    free(store);
}

static void name_of(const char *key, char name[STORE_NAME_BYTES])
{
    XXH128_hash_t hash = XXH3_128bits(key, strlen(key));

    snprintf(name, STORE_NAME_BYTES, "%016llx%016llx", (unsigned long long)hash.high64,
             (unsigned long long)hash.low64);
}

/* The key's file, checked; *file is NULL (and 0 returned) if there is none. */
static int load(const struct belay_store *store, const char *name, const char *key,
                struct store_file **file)
{
    uint8_t *bytes;
    size_t length;
    int error = durable_read(store->directory, name, STORE_MAGIC, &bytes, &length);

    *file = NULL;
    if (error != 0)
        return error == -ENOENT ? 0 : error;
    struct store_file *read = (struct store_file *)bytes;
    if (length < sizeof(*read) || read->key_bytes != strlen(key) ||
        length != sizeof(*read) + (size_t)read->key_bytes + read->value_bytes ||
        memcmp(read->text, key, read->key_bytes) != 0) {
        free(bytes);
        return -EBADMSG;
    }
    *file = read;
    return 0;
}

static int save(const struct belay_store *store, const char *name, const char *key,
                const void *value, size_t value_bytes, uint64_t token, uint64_t generation)
{
    size_t key_bytes = strlen(key);
    size_t length = sizeof(struct store_file) + key_bytes + value_bytes;
    struct store_file *file = calloc(1, length);

    if (file == NULL)
        return -ENOMEM;
    file->head.magic = STORE_MAGIC;
    file->head.generation = generation;
    file->token = token;
    file->key_bytes = (uint32_t)key_bytes;
    file->value_bytes = (uint32_t)value_bytes;
    memcpy(file->text, key, key_bytes);
    if (value_bytes > 0)
        memcpy(file->text + key_bytes, value, value_bytes);
    int error = durable_replace(store->directory, name, (uint8_t *)file, length);
    free(file);
    return error;
}

static belay_status fail_store(const char *key, int error)
{
    if (error == -EBADMSG)
        return fail(BELAY_SYSTEM, "the file of key '%.100s' is damaged", key);
    errno = -error;
    return fail_system("store");
}

static belay_status check_key(const char *key)
{
    if (key == NULL || key[0] == '\0' || strlen(key) > STORE_KEY_BYTES_MAX)
        return fail(BELAY_BAD_REQUEST, "key is not 1 to %d bytes long", STORE_KEY_BYTES_MAX);
    return BELAY_OK;
}

/* With the locks held. */
static belay_status put(struct belay_store *store, const char *key, const void *value,
                        size_t value_bytes, uint64_t token)
{
    char name[STORE_NAME_BYTES];
    struct store_file *old;
    uint64_t highest = 0, generation = 0;

    name_of(key, name);
    int error = load(store, name, key, &old);
    if (error != 0)
        return fail_store(key, error);
    if (old != NULL) {
        highest = old->token;
        generation = old->head.generation;
        free(old);
    }
    if (!belay_fence_accept(&highest, token))
        return fail(BELAY_REFUSED, "token %llu is lower than %llu, the highest seen",
                    (unsigned long long)token, (unsigned long long)highest);
    error = save(store, name, key, value, value_bytes, token, generation + 1);
    return error == 0 ? BELAY_OK : fail_store(key, error);
}

belay_status belay_store_put(belay_store *store, const char *key, const void *value,
                             size_t value_bytes, uint64_t token)
{
    belay_status status = check_key(key);

    if (status != BELAY_OK)
        return status;
    if (value_bytes > STORE_VALUE_BYTES_MAX)
        return fail(BELAY_OVER_LIMIT, "value is longer than %d bytes", STORE_VALUE_BYTES_MAX);
    pthread_mutex_lock(&store->mutex);
    int error = durable_lock(store->lock_file);
    status = error == 0 ? put(store, key, value, value_bytes, token) : fail_store(key, error);
    durable_unlock(store->lock_file);
    pthread_mutex_unlock(&store->mutex);
    return status;
}

belay_status belay_store_get(belay_store *store, const char *key, void *value, size_t *value_bytes,
                             uint64_t *token)
{
    char name[STORE_NAME_BYTES];
    struct store_file *file;
    belay_status status = check_key(key);

    if (status != BELAY_OK)
        return status;
    name_of(key, name);
    int error = load(store, name, key, &file);
    if (error != 0)
        return fail_store(key, error);
    size_t capacity = *value_bytes;
    *value_bytes = file != NULL ? file->value_bytes : 0;
    if (token != NULL)
        *token = file != NULL ? file->token : 0;
    if (*value_bytes > capacity)
        status = fail(BELAY_OVER_LIMIT, "the value has %zu bytes, the buffer %zu", *value_bytes,
                      capacity);
    else if (*value_bytes > 0)
        memcpy(value, file->text + file->key_bytes, *value_bytes);
    free(file);
    return status;
}
