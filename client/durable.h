/* SPDX-License-Identifier: Apache-2.0
 *
 * Replacing a small file so that after a crash at any moment it holds the old bytes or the new
 * ones: write a temporary file, fsync it, rename it over the old one, fsync the directory.
 */
#ifndef BELAY_CLIENT_DURABLE_H
#define BELAY_CLIENT_DURABLE_H

#include <stddef.h>
#include <stdint.h>

/* Every file begins with this; the checksum (XXH3, 64 bits) is over all bytes after itself. */
struct durable_head {
    uint64_t checksum;
    uint64_t magic;
    uint64_t generation; /* counts replacements: a reader sees that there is something new */
    uint64_t bytes;      /* of the whole file */
};

/* Fills in checksum and bytes, replaces directory/name. 0, or a negative errno: then it is unknown
 * only if it came from the last step (-EIO after the rename), else the old file is there. */
int durable_replace(int directory, const char *name, uint8_t *bytes, size_t length);

/* Reads and checks a whole file into *bytes (malloc, the caller's). 0, -ENOENT, -EBADMSG damaged,
 * or another negative errno. */
int durable_read(int directory, const char *name, uint64_t magic, uint8_t **bytes, size_t *length);

/* Opens the directory; and takes the lock file in it, which is held during each change. */
int durable_open_directory(const char *path);
int durable_open_lock(int directory, const char *name);
int durable_lock(int lock_file);
void durable_unlock(int lock_file);

#endif
