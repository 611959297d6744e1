/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocking file work, for start-up and for the management threads: never on a worker's loop.
 *
 * Atomic replacement is always the same four steps: write a temporary file in the same directory,
 * fsync it, rename it over the old one, fsync the directory. An error of an fsync is final: the
 * kernel may have dropped the pages it could not write, so a second try proves nothing. Callers end
 * the process on -EIO.
 *
 * Every function returns 0 or a count, or a negative errno. Any thread; a struct file_atomic has
 * one owner.
 */
#ifndef BELAY_HW_FILE_H
#define BELAY_HW_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FILE_PATH_BYTES_MAX = 4096 };

/* Reads a whole file. Its length; -EFBIG longer than capacity; -ENOENT, ... */
long file_read(const char *path, void *buffer, size_t capacity);

/* directory/name := bytes, atomically and durably. */
int file_replace(const char *directory, const char *name, const void *bytes, size_t length);

/* The same in pieces (snapshots). After an error only file_atomic_abort() may follow. */
struct file_atomic {
    int fd;           /* -1 = closed */
    int directory_fd; /* -1 = closed */
    uint64_t bytes;   /* written so far */
    char temporary[256];
    char name[256];
};
int file_atomic_begin(struct file_atomic *file, const char *directory, const char *name);
int file_atomic_append(struct file_atomic *file, const void *bytes, size_t length);
/* fsync, rename, fsync of the directory. On success and on error the file is closed. */
int file_atomic_commit(struct file_atomic *file);
/* Closes and removes the temporary file. Also good after a failed or finished commit. */
void file_atomic_abort(struct file_atomic *file);

/* True for names that file_atomic_begin() uses: leftovers of a crash, removed at start. */
bool file_is_temporary(const char *name);

/* Feeds a file in pieces of at most 64 KiB. Not 0 from `take` = stop; returned. */
int file_stream(const char *path, int (*take)(void *context, const uint8_t *bytes, size_t length),
                void *context);

/* Makes a directory (0700) and syncs its parent. -EEXIST is success if it is a directory. */
int file_make_directory(const char *path);
int file_sync_directory(const char *path);

/* Calls `each` per name (without "." and ".."), in no order. Not 0 = stop; returned. */
int file_list(const char *directory, int (*each)(void *context, const char *name), void *context);

/* Removes one file and syncs the directory. -ENOENT counts as done. */
int file_remove(const char *directory, const char *name);

/* Removes a directory of plain files (a WAL), then syncs its parent. -ENOENT counts as done. */
int file_remove_directory(const char *path);

/* Path joined into out (FILE_PATH_BYTES_MAX long); -ENAMETOOLONG. */
int file_join(char *out, const char *directory, const char *name);

/* Free bytes of the file system that holds path. */
int file_free_bytes(const char *path, uint64_t *free_bytes);

#endif
