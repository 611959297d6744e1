/* SPDX-License-Identifier: Apache-2.0
 *
 * WAL directories as files: creation, reading back, the data directory's lock. Blocking.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hw/disk.h"
#include "hw/disk_internal.h"
#include "hw/file.h"

enum { DISK_FILL_BYTES = 1 << 20 };

int disk_segment_path(char out[DISK_PATH_BYTES_MAX], const char *directory, uint32_t segment)
{
    int length = snprintf(out, DISK_PATH_BYTES_MAX, "%s/segment-%04u", directory, segment);

    return length < 0 || length >= DISK_PATH_BYTES_MAX ? -ENAMETOOLONG : 0;
}

int disk_lock_directory(const char *path)
{
    char name[DISK_PATH_BYTES_MAX];
    int error = file_join(name, path, "lock");
    int fd;

    if (error != 0) {
        return error;
    }
    fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return -errno;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        error = -errno;
        close(fd);
        return error;
    }
    return fd;
}

/* ---- creation -------------------------------------------------------------------------------- */

struct disk_filling {
    const struct disk_progress *progress;
    uint8_t *zeroes;
    uint64_t done;
    uint64_t total;
};

/* Writes zeroes rather than allocating: the first write into a merely allocated range changes the
 * file's metadata, and with it every synced write would pay for the file system's journal. */
static int disk_fill(int fd, uint64_t bytes, struct disk_filling *filling)
{
    uint64_t at = 0;

    while (at < bytes) {
        size_t piece = bytes - at < DISK_FILL_BYTES ? (size_t)(bytes - at) : DISK_FILL_BYTES;
        ssize_t put = pwrite(fd, filling->zeroes, piece, (off_t)at);

        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put <= 0) {
            return put < 0 ? -errno : -EIO;
        }
        at += (uint64_t)put;
        filling->done += (uint64_t)put;
        if (filling->progress != NULL && filling->progress->step != NULL) {
            filling->progress->step(filling->progress->context, filling->done, filling->total);
        }
    }
    return fsync(fd) == 0 ? 0 : -errno;
}

static int disk_create_segment(const char *path, uint32_t segment, uint64_t bytes,
                               struct disk_filling *filling)
{
    char name[DISK_PATH_BYTES_MAX];
    int error = disk_segment_path(name, path, segment);
    int fd;

    if (error != 0) {
        return error;
    }
    fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return -errno;
    }
    /* Asks for all the room first, so that a full disk says so at once; not every file system can.
     */
    error = -posix_fallocate(fd, 0, (off_t)bytes);
    if (error != -ENOSPC && error != -EFBIG && error != -EDQUOT) {
        error = disk_fill(fd, bytes, filling);
    }
    if (close(fd) != 0 && error == 0) {
        error = -errno;
    }
    return error;
}

int disk_wal_create(const char *path, uint32_t segments_count, uint64_t segment_bytes,
                    const struct disk_progress *progress)
{
    struct disk_filling filling = {.progress = progress, .total = segments_count * segment_bytes};
    int error = 0;

    if (segments_count == 0 || segments_count > DISK_SEGMENTS_MAX || segment_bytes == 0 ||
        segment_bytes % DISK_BLOCK_BYTES != 0 || segment_bytes > UINT64_C(1) << 40) {
        return -EINVAL;
    }
    if (mkdir(path, 0700) != 0) {
        return -errno;
    }
    filling.zeroes = calloc(1, DISK_FILL_BYTES);
    if (filling.zeroes == NULL) {
        error = -ENOMEM;
    }
    for (uint32_t i = 0; i < segments_count && error == 0; i++) {
        error = disk_create_segment(path, i, segment_bytes, &filling);
    }
    free(filling.zeroes);
    if (error == 0) {
        error = file_sync_directory(path);
    }
    if (error == 0) {
        error = file_make_directory(path); /* there already: syncs the parent */
    }
    if (error != 0) {
        (void)file_remove_directory(path);
    }
    return error;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int disk_count_segment(void *context, const char *name)
{
    uint32_t *count = context;

    *count += strncmp(name, "segment-", 8) == 0 ? 1 : 0;
    return 0;
}

/* A segment that is missing in the middle would shift the place of every later one. */
static int disk_check_count(const char *path, uint32_t segments_count)
{
    uint32_t present = 0;
    int error = file_list(path, disk_count_segment, &present);

    return error != 0 ? error : present == segments_count ? 0 : -EINVAL;
}

int disk_reader_open(struct disk_reader *reader, const char *path)
{
    char name[DISK_PATH_BYTES_MAX];
    int error = 0;

    reader->segments_count = 0;
    reader->segment_bytes = 0;
    while (error == 0) {
        struct stat status;
        int fd;

        error = disk_segment_path(name, path, reader->segments_count);
        if (error != 0) {
            break;
        }
        fd = open(name, O_RDONLY | O_CLOEXEC);
        if (fd < 0) {
            error = -errno;
            break;
        }
        if (reader->segments_count == DISK_SEGMENTS_MAX || fstat(fd, &status) != 0 ||
            !S_ISREG(status.st_mode)) {
            close(fd);
            error = -EINVAL;
            break;
        }
        if ((uint64_t)status.st_size > reader->segment_bytes) {
            reader->segment_bytes = (uint64_t)status.st_size;
        }
        reader->fds[reader->segments_count++] = fd;
    }
    if (error == -ENOENT && reader->segments_count > 0) {
        error = disk_check_count(path, reader->segments_count); /* one past the last */
    }
    if (error == 0 &&
        (reader->segment_bytes == 0 || reader->segment_bytes % DISK_BLOCK_BYTES != 0)) {
        error = -EINVAL;
    }
    if (error != 0) {
        disk_reader_close(reader);
    }
    return error;
}

void disk_reader_close(struct disk_reader *reader)
{
    for (uint32_t i = 0; i < reader->segments_count; i++) {
        close(reader->fds[i]);
    }
    reader->segments_count = 0;
}

int disk_reader_read(void *context, uint32_t segment, uint64_t offset, void *buffer, size_t bytes)
{
    const struct disk_reader *reader = context;
    uint8_t *to = buffer;

    if (segment >= reader->segments_count) {
        return -EINVAL;
    }
    while (bytes > 0) {
        ssize_t got = pread(reader->fds[segment], to, bytes, (off_t)offset);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got < 0 ? -errno : -ENODATA;
        }
        to += got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return 0;
}
