/* SPDX-License-Identifier: Apache-2.0
 *
 * See mgmt/snapshots_store.h.
 */
#include "mgmt/snapshots_store.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hw/journal.h"

/* Dirty pages are sent on their way so often: a single flush of everything at the end would hold up
 * the WAL's small writes to the same disk. */
enum { PUSH_BYTES = 1024 * 1024 };

static int no_space(int result)
{
    return result == -EDQUOT ? -ENOSPC : result;
}

/* ---- the directory --------------------------------------------------------------------------- */

struct sweep {
    const struct store *store;
    uint64_t replica; /* 0 = any */
    bool temporary;   /* only those */
    bool removed;
};

static int sweep_one(void *context, const char *name)
{
    struct sweep *sweep = context;
    uint64_t replica, index;
    if (sweep->temporary ? !file_is_temporary(name)
                         : !snapshot_name_parse(name, &replica, &index) ||
                               (sweep->replica != 0 && replica != sweep->replica))
        return 0;
    int result = file_remove(sweep->store->directory, name);
    sweep->removed = result == 0;
    return result < 0 ? result : 1; /* the listing changed under us: begin again */
}

static int sweep_all(struct sweep *sweep)
{
    int result;
    do {
        sweep->removed = false;
        result = file_list(sweep->store->directory, sweep_one, sweep);
    } while (sweep->removed);
    return result < 0 ? result : 0;
}

int store_open(struct store *store, const char *data_directory, bool wipe)
{
    int result = file_join(store->directory, data_directory, STORE_DIRECTORY_NAME);
    if (result == 0)
        result = file_make_directory(store->directory);
    if (result == 0)
        result = sweep_all(&(struct sweep){.store = store, .temporary = true});
    if (result == 0 && wipe)
        result = sweep_all(&(struct sweep){.store = store});
    return result;
}

void store_drop(const struct store *store, uint64_t replica)
{
    int result = sweep_all(&(struct sweep){.store = store, .replica = replica});
    if (result < 0)
        journal_write(JOURNAL_WARN, "snapshot_drop_failed", "replica=%016llx error=\"%s\"",
                      (unsigned long long)replica, strerrordesc_np(-result));
}

/* ---- finding --------------------------------------------------------------------------------- */

struct search {
    const struct store *store;
    uint64_t replica; /* 0 = by shard */
    uint16_t shard;
    uint64_t least;
    uint64_t below;
    struct store_found *found;
    bool any;
};

/* Reads the header only. */
static bool file_is_of_shard(const struct store *store, const char *name, uint16_t shard)
{
    char path[FILE_PATH_BYTES_MAX];
    uint8_t header[SNAPSHOT_HEADER_BYTES_MAX];
    if (file_join(path, store->directory, name) < 0)
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t got = read(fd, header, sizeof header);
    close(fd);
    if (got <= 0)
        return false;
    struct snapshot_decoder decoder;
    const struct snapshot_sink sink = {NULL, NULL, NULL};
    snapshot_decoder_init(&decoder);
    /* What stands behind the header is judged when the file is opened for reading. */
    (void)snapshot_decode(&decoder, header, (size_t)got, &sink);
    return decoder.stage > 0 && decoder.meta.shard == shard;
}

static int search_one(void *context, const char *name)
{
    struct search *search = context;
    uint64_t replica, index;
    if (!snapshot_name_parse(name, &replica, &index) || index < search->least ||
        index >= search->below || (search->any && !snapshot_is_newer(index, search->found->index)))
        return 0;
    if (search->replica != 0 ? replica != search->replica
                             : !file_is_of_shard(search->store, name, search->shard))
        return 0;
    search->any = true;
    search->found->replica = replica;
    search->found->index = index;
    snapshot_name(search->found->name, replica, index);
    return 0;
}

bool store_newest(const struct store *store, uint64_t replica, uint64_t below,
                  struct store_found *found)
{
    struct search search = {.store = store, .replica = replica, .below = below, .found = found};
    (void)file_list(store->directory, search_one, &search);
    return search.any;
}

bool store_newest_of_shard(const struct store *store, uint16_t shard, uint64_t least,
                           uint64_t below, struct store_found *found)
{
    struct search search = {
        .store = store, .shard = shard, .least = least, .below = below, .found = found};
    (void)file_list(store->directory, search_one, &search);
    return search.any;
}

/* ---- writing --------------------------------------------------------------------------------- */

static int fail(struct store_writer *writer, int result)
{
    store_abort(writer);
    return no_space(result);
}

int store_begin(const struct store *store, struct store_writer *writer,
                const struct snapshot_meta *meta)
{
    assert(!writer->open);
    char name[SNAPSHOT_NAME_BYTES];
    uint8_t header[SNAPSHOT_HEADER_BYTES_MAX];
    writer->replica = meta->replica_id;
    writer->index = meta->base.index;
    writer->pushed_bytes = 0;
    snapshot_name(name, meta->replica_id, meta->base.index);
    int result = file_atomic_begin(&writer->file, store->directory, name);
    if (result < 0)
        return no_space(result);
    writer->open = true;
    size_t length = snapshot_encode_header(&writer->encoder, meta, header);
    result = file_atomic_append(&writer->file, header, length);
    return result < 0 ? fail(writer, result) : 0;
}

int store_append(struct store_writer *writer, const uint8_t *bytes, size_t length)
{
    assert(writer->open && length > 0 && length <= SNAPSHOT_BLOCK_BYTES_MAX);
    memcpy(writer->buffer + SNAPSHOT_BLOCK_PREFIX_BYTES, bytes, length);
    size_t block_bytes = snapshot_encode_block(&writer->encoder, writer->buffer, length);
    int result = file_atomic_append(&writer->file, writer->buffer, block_bytes);
    if (result < 0)
        return fail(writer, result);
    if (writer->file.bytes - writer->pushed_bytes >= PUSH_BYTES) {
        /* Starts writing and waits for nothing; what fails here fails again in the fsync. */
        (void)sync_file_range(writer->file.fd, (off_t)writer->pushed_bytes,
                              (off_t)(writer->file.bytes - writer->pushed_bytes),
                              SYNC_FILE_RANGE_WRITE);
        writer->pushed_bytes = writer->file.bytes;
    }
    return 0;
}

/* The newest is ever the one to load; the one before it is for the case that it is damaged. */
static void prune(const struct store *store, uint64_t replica)
{
    struct store_found found;
    uint64_t below = UINT64_MAX;
    for (uint32_t kept = 0; store_newest(store, replica, below, &found); kept++) {
        if (kept >= STORE_KEPT_PER_REPLICA && file_remove(store->directory, found.name) < 0)
            return;
        below = found.index;
    }
}

int store_commit(const struct store *store, struct store_writer *writer, uint64_t digest)
{
    assert(writer->open);
    uint8_t footer[SNAPSHOT_FOOTER_BYTES];
    size_t length = snapshot_encode_footer(&writer->encoder, digest, footer);
    int result = file_atomic_append(&writer->file, footer, length);
    if (result == 0)
        result = file_atomic_commit(&writer->file);
    if (result < 0)
        return fail(writer, result);
    writer->open = false;
    prune(store, writer->replica);
    return 0;
}

void store_abort(struct store_writer *writer)
{
    if (writer->open)
        file_atomic_abort(&writer->file);
    writer->open = false;
}

/* ---- reading --------------------------------------------------------------------------------- */

int store_reader_open(const struct store *store, const char *name, struct store_reader *reader)
{
    char path[FILE_PATH_BYTES_MAX];
    struct stat status;
    reader->fd = -1;
    int result = file_join(path, store->directory, name);
    if (result < 0)
        return result;
    reader->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (reader->fd < 0 || fstat(reader->fd, &status) < 0) {
        result = -errno;
        store_reader_close(reader);
        return result;
    }
    reader->file_bytes = (uint64_t)status.st_size;
    snapshot_decoder_init(&reader->decoder);
    return 0;
}

void store_reader_close(struct store_reader *reader)
{
    if (reader->fd >= 0)
        close(reader->fd);
    reader->fd = -1;
}

int store_reader_step(struct store_reader *reader, uint8_t *buffer, size_t capacity,
                      const struct snapshot_sink *sink)
{
    static const struct snapshot_sink nobody = {NULL, NULL, NULL};
    ssize_t got = read(reader->fd, buffer, capacity);
    if (got < 0)
        return errno == EINTR ? 0 : -EIO;
    if (got == 0)
        return snapshot_decode_end(&reader->decoder) == 0 ? 1 : -EBADMSG;
    int result =
        snapshot_decode(&reader->decoder, buffer, (size_t)got, sink != NULL ? sink : &nobody);
    return result < 0 ? result : 0; /* complete only at the end of the file */
}

int store_reader_rewind(struct store_reader *reader)
{
    snapshot_decoder_init(&reader->decoder);
    return lseek(reader->fd, 0, SEEK_SET) < 0 ? -errno : 0;
}
