/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/raw/bare_store.h"

#include <stdlib.h>
#include <string.h>

#include "bench/raw/bare.h"
#include "bench/raw/raw.h"

void bare_store_open(struct bare_store *store, const char *directory)
{
    *store = (struct bare_store){.ring = calloc(1, BARE_RING_BYTES),
                                 .frame = aligned_alloc(DISK_BLOCK_BYTES, BARE_FRAME_BYTES_MAX)};
    if (store->ring == NULL || store->frame == NULL)
        raw_die("no memory for a log ring");
    memset(store->frame, 0, BARE_FRAME_BYTES_MAX);
    if (directory == NULL)
        return;
    int error = disk_open(&store->disk, directory, 0);
    if (error != 0)
        raw_die("%s: %s", directory, strerror(-error));
}

/* The first part of a range that lies in one piece. */
static size_t piece(uint64_t position, size_t length)
{
    size_t room = BARE_RING_BYTES - position % BARE_RING_BYTES;
    return length < room ? length : room;
}

void bare_store_put(struct bare_store *store, const void *bytes, size_t length)
{
    size_t first = piece(store->end, length);
    memcpy(store->ring + store->end % BARE_RING_BYTES, bytes, first);
    memcpy(store->ring, (const uint8_t *)bytes + first, length - first);
    store->end += length;
}

void bare_store_read(const struct bare_store *store, uint64_t position, void *bytes, size_t length)
{
    size_t first = piece(position, length);
    memcpy(bytes, store->ring + position % BARE_RING_BYTES, first);
    memcpy((uint8_t *)bytes + first, store->ring, length - first);
}

static void submit(struct bare_store *store)
{
    uint64_t bytes = store->end - store->submitted;
    if (bytes > BARE_FRAME_BYTES_MAX)
        bytes = BARE_FRAME_BYTES_MAX;
    bare_store_read(store, store->submitted, store->frame, bytes);
    uint64_t blocks = (bytes + DISK_BLOCK_BYTES - 1) / DISK_BLOCK_BYTES * DISK_BLOCK_BYTES;
    if (store->offset + blocks > BARE_SEGMENT_BYTES)
        store->offset = 0;
    int error = disk_submit_write(store->disk, 0, store->offset, store->frame, blocks, 0);
    if (error != 0)
        raw_die("write: %s", strerror(-error));
    store->offset += blocks;
    store->submitted += bytes;
}

void bare_store_turn(struct bare_store *store)
{
    if (store->disk == NULL) {
        store->submitted = store->durable = store->end;
        return;
    }
    struct disk_completion done;
    if (store->durable < store->submitted && disk_poll(store->disk, &done, 1) == 1) {
        if (done.result != 0)
            raw_die("write: %s", strerror(-done.result));
        store->durable = store->submitted;
    }
    if (store->durable == store->submitted && store->submitted < store->end)
        submit(store);
}
