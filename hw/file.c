/* SPDX-License-Identifier: Apache-2.0 */
#include "hw/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define FILE_TEMPORARY_SUFFIX ".tmp"

int file_join(char *out, const char *directory, const char *name)
{
    int length = snprintf(out, FILE_PATH_BYTES_MAX, "%s/%s", directory, name);

    return length < 0 || length >= FILE_PATH_BYTES_MAX ? -ENAMETOOLONG : 0;
}

static int file_fsync(int fd)
{
    return fsync(fd) == 0 ? 0 : -errno;
}

static int file_open_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd >= 0 ? fd : -errno;
}

int file_sync_directory(const char *path)
{
    int fd = file_open_directory(path);
    int error;

    if (fd < 0) {
        return fd;
    }
    error = file_fsync(fd);
    close(fd);
    return error;
}

static int file_sync_parent(const char *path)
{
    char parent[FILE_PATH_BYTES_MAX];
    size_t length = strnlen(path, sizeof parent);

    if (length == sizeof parent) {
        return -ENAMETOOLONG;
    }
    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    while (length > 0 && path[length - 1] != '/') {
        length--;
    }
    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    if (length == 0) {
        return file_sync_directory(".");
    }
    memcpy(parent, path, length);
    parent[length] = 0;
    return file_sync_directory(parent);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Up to `capacity` bytes, fewer only at the end of the file. */
static long file_read_fd(int fd, uint8_t *buffer, size_t capacity)
{
    size_t done = 0;

    while (done < capacity) {
        ssize_t got = read(fd, buffer + done, capacity - done);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return -errno;
        }
        if (got == 0) {
            break;
        }
        done += (size_t)got;
    }
    return (long)done;
}

long file_read(const char *path, void *buffer, size_t capacity)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint8_t beyond;
    long length;

    if (fd < 0) {
        return -errno;
    }
    length = file_read_fd(fd, buffer, capacity);
    if (length == (long)capacity) {
        long more = file_read_fd(fd, &beyond, 1);

        if (more != 0) {
            length = more < 0 ? more : -EFBIG;
        }
    }
    close(fd);
    return length;
}

int file_stream(const char *path, int (*take)(void *context, const uint8_t *bytes, size_t length),
                void *context)
{
    uint8_t buffer[64 * 1024];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int result = 0;

    if (fd < 0) {
        return -errno;
    }
    while (result == 0) {
        long got = file_read_fd(fd, buffer, sizeof buffer);

        if (got <= 0) {
            result = (int)got;
            break;
        }
        result = take(context, buffer, (size_t)got);
    }
    close(fd);
    return result;
}

/* ---- atomic replacement ---------------------------------------------------------------------- */

bool file_is_temporary(const char *name)
{
    size_t length = strnlen(name, FILE_PATH_BYTES_MAX);
    size_t suffix = sizeof FILE_TEMPORARY_SUFFIX - 1;

    return length > suffix && memcmp(name + length - suffix, FILE_TEMPORARY_SUFFIX, suffix) == 0;
}

static void file_atomic_close(struct file_atomic *file)
{
    if (file->fd >= 0) {
        close(file->fd);
    }
    if (file->directory_fd >= 0) {
        close(file->directory_fd);
    }
    file->fd = -1;
    file->directory_fd = -1;
}

int file_atomic_begin(struct file_atomic *file, const char *directory, const char *name)
{
    int error;

    *file = (struct file_atomic){.fd = -1, .directory_fd = -1};
    if (strnlen(name, sizeof file->name) + sizeof FILE_TEMPORARY_SUFFIX > sizeof file->temporary) {
        return -ENAMETOOLONG;
    }
    snprintf(file->name, sizeof file->name, "%s", name);
    snprintf(file->temporary, sizeof file->temporary, "%.*s%s",
             (int)(sizeof file->temporary - sizeof FILE_TEMPORARY_SUFFIX), name,
             FILE_TEMPORARY_SUFFIX);
    file->directory_fd = file_open_directory(directory);
    if (file->directory_fd < 0) {
        error = file->directory_fd;
        file->directory_fd = -1;
        return error;
    }
    file->fd =
        openat(file->directory_fd, file->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file->fd < 0) {
        error = -errno;
        file_atomic_close(file);
        return error;
    }
    return 0;
}

int file_atomic_append(struct file_atomic *file, const void *bytes, size_t length)
{
    const uint8_t *from = bytes;

    if (file->fd < 0) {
        return -EBADF;
    }
    while (length > 0) {
        ssize_t put = write(file->fd, from, length);

        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put < 0) {
            return -errno;
        }
        from += put;
        length -= (size_t)put;
        file->bytes += (uint64_t)put;
    }
    return 0;
}

int file_atomic_commit(struct file_atomic *file)
{
    int error;

    if (file->fd < 0) {
        return -EBADF;
    }
    error = file_fsync(file->fd);
    if (error == 0 &&
        renameat(file->directory_fd, file->temporary, file->directory_fd, file->name) != 0) {
        error = -errno;
    }
    if (error != 0) {
        file_atomic_abort(file);
        return error;
    }
    /* Renamed: from here on an error leaves the new file in place, perhaps not durably. */
    error = file_fsync(file->directory_fd);
    file_atomic_close(file);
    return error;
}

void file_atomic_abort(struct file_atomic *file)
{
    if (file->directory_fd >= 0) {
        (void)unlinkat(file->directory_fd, file->temporary, 0);
    }
    file_atomic_close(file);
}

int file_replace(const char *directory, const char *name, const void *bytes, size_t length)
{
    struct file_atomic file;
    int error = file_atomic_begin(&file, directory, name);

    if (error != 0) {
        return error;
    }
    error = file_atomic_append(&file, bytes, length);
    if (error != 0) {
        file_atomic_abort(&file);
        return error;
    }
    return file_atomic_commit(&file);
}

/* ---- directories ----------------------------------------------------------------------------- */

int file_make_directory(const char *path)
{
    struct stat status;

    if (mkdir(path, 0700) != 0) {
        if (errno != EEXIST) {
            return -errno;
        }
        if (stat(path, &status) != 0) {
            return -errno;
        }
        if (!S_ISDIR(status.st_mode)) {
            return -ENOTDIR;
        }
    }
    return file_sync_parent(path);
}

int file_list(const char *directory, int (*each)(void *context, const char *name), void *context)
{
    DIR *handle = opendir(directory);
    int result = 0;

    if (handle == NULL) {
        return -errno;
    }
    while (result == 0) {
        struct dirent *entry;

        errno = 0;
        entry = readdir(handle);
        if (entry == NULL) {
            result = -errno;
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            result = each(context, entry->d_name);
        }
    }
    closedir(handle);
    return result;
}

int file_remove(const char *directory, const char *name)
{
    int fd = file_open_directory(directory);
    int error = 0;

    if (fd < 0) {
        return fd;
    }
    if (unlinkat(fd, name, 0) != 0 && errno != ENOENT) {
        error = -errno;
    }
    if (error == 0) {
        error = file_fsync(fd);
    }
    close(fd);
    return error;
}

struct file_removal {
    int directory_fd;
    unsigned removed;
};

static int file_remove_each(void *context, const char *name)
{
    struct file_removal *removal = context;

    if (unlinkat(removal->directory_fd, name, 0) != 0) {
        return -errno;
    }
    removal->removed++;
    return 0;
}

int file_remove_directory(const char *path)
{
    struct file_removal removal = {.directory_fd = file_open_directory(path)};
    int error;

    if (removal.directory_fd == -ENOENT) {
        return 0;
    }
    if (removal.directory_fd < 0) {
        return removal.directory_fd;
    }
    do { /* names removed while listing may hide others: until a pass finds none */
        removal.removed = 0;
        error = file_list(path, file_remove_each, &removal);
    } while (error == 0 && removal.removed > 0);
    close(removal.directory_fd);
    if (error == 0 && rmdir(path) != 0) {
        error = -errno;
    }
    return error == 0 ? file_sync_parent(path) : error;
}

int file_free_bytes(const char *path, uint64_t *free_bytes)
{
    struct statvfs status;

    if (statvfs(path, &status) != 0) {
        return -errno;
    }
    *free_bytes = (uint64_t)status.f_bavail * status.f_frsize;
    return 0;
}
