/* SPDX-License-Identifier: Apache-2.0
 *
 * Fencing at the resource: the highest token seen per key, in memory or in a file.
 *
 * The file is replaced whole at every raise: one fsync of a few bytes per key, and no state in
 * which it is half written. Several processes may share one file: each change is made under a lock
 * file, after reading what others have written (the head's generation tells).
 */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "client/driver.h"
#include "client/durable.h"

#define FENCE_MAGIC UINT64_C(0x31636e6566594c42) /* "BLYfenc1" */

enum { FENCE_KEY_BYTES_MAX = 1024 };

struct fence_key {
    char *key; /* NULL = free */
    uint64_t token;
};

/* In the file, after the head: key_bytes, token, key without its zero byte. */
struct fence_record {
    uint64_t token;
    uint32_t key_bytes;
    uint32_t zero;
};

struct belay_fence {
    pthread_mutex_t mutex;
    size_t keys_max, keys_count;
    struct fence_key *table; /* open addressing, at most half full */
    size_t table_mask;
    size_t file_bytes; /* of the next file */

    bool durable;
    bool broken; /* a change may or may not be on disk: nothing more is promised */
    int directory, lock_file;
    char *name;
    uint64_t generation; /* of what is in memory */
};

/* ---- the table ------------------------------------------------------------------------------- */

static struct fence_key *find(const struct belay_fence *fence, const char *key, size_t key_bytes)
{
    size_t at = XXH3_64bits(key, key_bytes) & fence->table_mask;

    while (fence->table[at].key != NULL && (strlen(fence->table[at].key) != key_bytes ||
                                            memcmp(fence->table[at].key, key, key_bytes) != 0))
        at = (at + 1) & fence->table_mask;
    return &fence->table[at];
}

/* 0, -ENOSPC too many keys, -ENOMEM. Never lowers. */
static int raise_to(struct belay_fence *fence, const char *key, size_t key_bytes, uint64_t token)
{
    struct fence_key *entry = find(fence, key, key_bytes);

    if (entry->key == NULL) {
        if (fence->keys_count >= fence->keys_max)
            return -ENOSPC;
        entry->key = strndup(key, key_bytes);
        if (entry->key == NULL)
            return -ENOMEM;
        fence->keys_count++;
        fence->file_bytes += sizeof(struct fence_record) + key_bytes;
    }
    if (token > entry->token)
        entry->token = token;
    return 0;
}

/* ---- the file -------------------------------------------------------------------------------- */

static int parse(struct belay_fence *fence, const uint8_t *bytes, size_t length)
{
    size_t at = sizeof(struct durable_head);

    while (at < length) {
        struct fence_record record;
        if (length - at < sizeof(record))
            return -EBADMSG;
        memcpy(&record, bytes + at, sizeof(record));
        at += sizeof(record);
        if (record.key_bytes == 0 || record.key_bytes > FENCE_KEY_BYTES_MAX ||
            record.key_bytes > length - at)
            return -EBADMSG;
        int error = raise_to(fence, (const char *)bytes + at, record.key_bytes, record.token);
        if (error != 0)
            return error;
        at += record.key_bytes;
    }
    fence->generation = ((const struct durable_head *)bytes)->generation;
    return 0;
}

/* Takes over what another process has written. Tokens only rise, so merging is enough. */
static int refresh(struct belay_fence *fence)
{
    uint8_t *bytes;
    size_t length;
    int error = durable_read(fence->directory, fence->name, FENCE_MAGIC, &bytes, &length);

    if (error == -ENOENT)
        return fence->generation == 0 ? 0 : -EBADMSG; /* it was there before */
    if (error != 0)
        return error;
    uint64_t generation = ((const struct durable_head *)bytes)->generation;
    if (generation < fence->generation)
        error = -EBADMSG; /* an older file was put back: its tokens are too low */
    else if (generation > fence->generation)
        error = parse(fence, bytes, length);
    free(bytes);
    return error;
}

static int save(struct belay_fence *fence)
{
    size_t length = sizeof(struct durable_head) + fence->file_bytes;
    uint8_t *bytes = malloc(length);
    size_t at = sizeof(struct durable_head);

    if (bytes == NULL)
        return -ENOMEM;
    *(struct durable_head *)bytes =
        (struct durable_head){.magic = FENCE_MAGIC, .generation = fence->generation + 1};
    for (size_t i = 0; i <= fence->table_mask; i++) {
        const struct fence_key *entry = &fence->table[i];
        if (entry->key == NULL)
            continue;
        struct fence_record record = {.token = entry->token,
                                      .key_bytes = (uint32_t)strlen(entry->key)};
        memcpy(bytes + at, &record, sizeof(record));
        memcpy(bytes + at + sizeof(record), entry->key, record.key_bytes);
        at += sizeof(record) + record.key_bytes;
    }
    assert(at == length);
    int error = durable_replace(fence->directory, fence->name, bytes, length);
    free(bytes);
    if (error == 0)
        fence->generation++;
    return error;
}

/* ---- open, close ----------------------------------------------------------------------------- */

static belay_status fail_fence(const char *path, int error)
{
    if (error == -EBADMSG)
        return fail(BELAY_SYSTEM, "fence file %.150s is damaged", path);
    if (error == -ENOSPC)
        return fail(BELAY_OVER_LIMIT, "over_limit: as many keys as the fence may hold");
    if (error == -ENOMEM)
        return fail(BELAY_NO_MEMORY, "no memory for the fence");
    errno = -error;
    return fail_system(path);
}

static int open_file(struct belay_fence *fence, const char *path)
{
    char *for_directory = strdup(path);
    char *for_name = strdup(path);
    char lock_name[NAME_MAX + 1];
    int error = for_directory == NULL || for_name == NULL ? -ENOMEM : 0;

    if (error == 0) {
        fence->name = strdup(basename(for_name));
        fence->directory = durable_open_directory(dirname(for_directory));
        error = fence->name == NULL ? -ENOMEM : fence->directory < 0 ? fence->directory : 0;
    }
    if (error == 0) {
        int printed = snprintf(lock_name, sizeof(lock_name), "%s.lock", fence->name);
        if (printed < 0 || (size_t)printed >= sizeof(lock_name))
            error = -ENAMETOOLONG;
    }
    if (error == 0) {
        fence->lock_file = durable_open_lock(fence->directory, lock_name);
        error = fence->lock_file < 0 ? fence->lock_file : durable_lock(fence->lock_file);
    }
    if (error == 0) {
        error = refresh(fence);
        durable_unlock(fence->lock_file);
    }
    free(for_directory);
    free(for_name);
    return error;
}

belay_status belay_fence_open(const char *path, size_t keys_max, belay_fence **result)
{
    *result = NULL;
    if (keys_max == 0 || keys_max > (size_t)1 << 24)
        return fail(BELAY_BAD_REQUEST, "keys_max is not 1 to %d", 1 << 24);
    struct belay_fence *fence = calloc(1, sizeof(*fence));
    if (fence == NULL)
        return fail(BELAY_NO_MEMORY, "no memory for the fence");
    fence->directory = fence->lock_file = -1;
    fence->keys_max = keys_max;
    fence->table_mask = 15;
    while (fence->table_mask + 1 < 2 * keys_max)
        fence->table_mask = 2 * fence->table_mask + 1;
    fence->table = calloc(fence->table_mask + 1, sizeof(*fence->table));
    pthread_mutex_init(&fence->mutex, NULL);
    int error = fence->table == NULL ? -ENOMEM : 0;
    if (error == 0 && path != NULL) {
        fence->durable = true;
        error = open_file(fence, path);
    }
    if (error != 0) {
        belay_fence_close(fence);
        return fail_fence(path != NULL ? path : "", error);
    }
    *result = fence;
    return BELAY_OK;
}

void belay_fence_close(belay_fence *fence)
{
    if (fence == NULL)
        return;
    for (size_t i = 0; fence->table != NULL && i <= fence->table_mask; i++)
        free(fence->table[i].key);
    free(fence->table);
    free(fence->name);
    if (fence->directory >= 0)
        close(fence->directory);
    if (fence->lock_file >= 0)
        close(fence->lock_file);
    pthread_mutex_destroy(&fence->mutex);
    free(fence);
}

/* ---- checking -------------------------------------------------------------------------------- */

/* The raise is in memory only once it is on disk: a failed save must leave the old token, or a
 * later check would accept what a restart would refuse. */
static belay_status check(struct belay_fence *fence, const char *key, uint64_t token)
{
    size_t key_bytes = strlen(key);
    const struct fence_key *entry = find(fence, key, key_bytes);
    bool is_new = entry->key == NULL;
    uint64_t before = is_new ? 0 : entry->token;

    if (!is_new && token < before)
        return fail(BELAY_REFUSED, "token %llu is lower than %llu, the highest seen",
                    (unsigned long long)token, (unsigned long long)before);
    if (!is_new && token == before)
        return BELAY_OK;
    int error = raise_to(fence, key, key_bytes, token);
    if (error == 0 && fence->durable)
        error = save(fence);
    if (error == 0)
        return BELAY_OK;
    if (error != -ENOSPC) {
        struct fence_key *raised = find(fence, key, key_bytes);
        if (raised->key != NULL)
            raised->token = before;
        fence->broken = fence->durable;
    }
    return fail_fence(fence->name != NULL ? fence->name : "", error);
}

belay_status belay_fence_check(belay_fence *fence, const char *key, uint64_t token)
{
    belay_status status = BELAY_OK;

    if (key == NULL || key[0] == '\0' || strlen(key) > FENCE_KEY_BYTES_MAX)
        return fail(BELAY_BAD_REQUEST, "key is not 1 to %d bytes long", FENCE_KEY_BYTES_MAX);
    pthread_mutex_lock(&fence->mutex);
    int error = fence->durable ? durable_lock(fence->lock_file) : 0;
    if (error == 0 && fence->broken)
        error = -EIO;
    if (error == 0 && fence->durable)
        error = refresh(fence);
    status = error == 0 ? check(fence, key, token)
                        : fail_fence(fence->name != NULL ? fence->name : "", error);
    if (fence->durable)
        durable_unlock(fence->lock_file);
    pthread_mutex_unlock(&fence->mutex);
    return status;
}

uint64_t belay_fence_highest(belay_fence *fence, const char *key)
{
    uint64_t token = 0;

    pthread_mutex_lock(&fence->mutex);
    if (fence->durable && durable_lock(fence->lock_file) == 0) {
        (void)refresh(fence); /* what is in memory is a lower bound at worst */
        durable_unlock(fence->lock_file);
    }
    const struct fence_key *entry = find(fence, key, strlen(key));
    if (entry->key != NULL)
        token = entry->token;
    pthread_mutex_unlock(&fence->mutex);
    return token;
}
