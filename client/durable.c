/* SPDX-License-Identifier: Apache-2.0
 *
 * See durable.h.
 */
#include "client/durable.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

static uint64_t checksum_of(const uint8_t *bytes, size_t length)
{
    return XXH3_64bits(bytes + sizeof(uint64_t), length - sizeof(uint64_t));
}

static int write_all(int file, const uint8_t *bytes, size_t length)
{
    while (length > 0) {
        ssize_t written = write(file, bytes, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return written < 0 ? -errno : -EIO;
        bytes += written;
        length -= (size_t)written;
    }
    return 0;
}

static int write_temporary(int directory, const char *name, const uint8_t *bytes, size_t length)
{
    int file = openat(directory, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

    if (file < 0)
        return -errno;
    int error = write_all(file, bytes, length);
    if (error == 0 && fsync(file) < 0)
        error = -errno;
    if (close(file) < 0 && error == 0)
        error = -errno;
    return error;
}

int durable_replace(int directory, const char *name, uint8_t *bytes, size_t length)
{
    struct durable_head *head = (struct durable_head *)bytes;
    char temporary[NAME_MAX + 1];

    int printed = snprintf(temporary, sizeof(temporary), "%s.new", name);
    if (printed < 0 || (size_t)printed >= sizeof(temporary))
        return -ENAMETOOLONG;
    head->bytes = length;
    head->checksum = checksum_of(bytes, length);
    int error = write_temporary(directory, temporary, bytes, length);
    if (error == 0 && renameat(directory, temporary, directory, name) < 0)
        error = -errno;
    if (error != 0) {
        unlinkat(directory, temporary, 0);
        return error;
    }
    return fsync(directory) < 0 ? -EIO : 0;
}

static int read_all(int file, uint8_t *bytes, size_t length)
{
    while (length > 0) {
        ssize_t got = read(file, bytes, length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EBADMSG;
        bytes += got;
        length -= (size_t)got;
    }
    return 0;
}

static int check(const uint8_t *bytes, size_t length, uint64_t magic)
{
    const struct durable_head *head = (const struct durable_head *)bytes;
    bool sound = head->magic == magic && head->bytes == length &&
                 head->checksum == checksum_of(bytes, length);

    return sound ? 0 : -EBADMSG;
}

int durable_read(int directory, const char *name, uint64_t magic, uint8_t **bytes, size_t *length)
{
    struct stat status;
    int file = openat(directory, name, O_RDONLY | O_CLOEXEC);

    *bytes = NULL;
    if (file < 0)
        return -errno;
    int error = fstat(file, &status) < 0 ? -errno : 0;
    if (error == 0 && status.st_size < (off_t)sizeof(struct durable_head))
        error = -EBADMSG;
    if (error == 0) {
        *length = (size_t)status.st_size;
        *bytes = malloc(*length);
        error = *bytes == NULL ? -ENOMEM : read_all(file, *bytes, *length);
    }
    if (error == 0)
        error = check(*bytes, *length, magic);
    if (error != 0) {
        free(*bytes);
        *bytes = NULL;
    }
    close(file);
    return error;
}

int durable_open_directory(const char *path)
{
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return directory < 0 ? -errno : directory;
}

int durable_open_lock(int directory, const char *name)
{
    int file = openat(directory, name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);

    return file < 0 ? -errno : file;
}

int durable_lock(int lock_file)
{
    while (flock(lock_file, LOCK_EX) < 0) {
        if (errno != EINTR)
            return -errno;
    }
    return 0;
}

void durable_unlock(int lock_file)
{
    flock(lock_file, LOCK_UN);
}
