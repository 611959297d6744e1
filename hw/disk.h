/* SPDX-License-Identifier: Apache-2.0
 *
 * The disk of one worker's WAL: a directory of equal, zero-filled segment files, written through
 * io_uring with O_DIRECT and RWF_DSYNC, one ring per worker. A zero-filled and synced segment is
 * overwritten without any change of metadata, which is what makes a synced write cheap.
 *
 * Where O_DIRECT is refused, writes go through the page cache with RWF_DSYNC (write + fdatasync);
 * where io_uring is refused (seccomp), they are done synchronously in disk_submit_write(). Both are
 * said in disk_flags() so that the caller can log them.
 *
 * Creation and opening block and allocate (start only). Submit and poll do neither (but see
 * DISK_SYNCHRONOUS). One owner thread per struct disk. Errors: negative errno.
 */
#ifndef BELAY_HW_DISK_H
#define BELAY_HW_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum disk_flags {
    DISK_BUFFERED = 1,    /* O_DIRECT refused (or not wanted): page cache + RWF_DSYNC */
    DISK_SYNCHRONOUS = 2, /* io_uring refused (or not wanted): submit blocks until durable */
};

enum {
    DISK_BLOCK_BYTES = 4096,
    DISK_SEGMENTS_MAX = 256,
    DISK_DEPTH_MAX = 8, /* writes in flight; the WAL uses one */
};

/* 0 if io_uring works here, else why not. */
int disk_supported(void);

/* Exclusive lock on a data directory (a lock file in it). Returns a file descriptor that holds the
 * lock until it is closed or the process ends; -EWOULDBLOCK: another process (or opener) has it. */
int disk_lock_directory(const char *path);

struct disk_progress {
    void (*step)(void *context, uint64_t bytes_done, uint64_t bytes_total);
    void *context;
};

/* Makes directory `path` with `segments_count` segments of `segment_bytes`, zero-filled; files,
 * directory and its parent are synced. progress may be NULL. On an error (-ENOSPC: no room,
 * -EEXIST) nothing is left behind. */
int disk_wal_create(const char *path, uint32_t segments_count, uint64_t segment_bytes,
                    const struct disk_progress *progress);

struct disk; /* opaque */

/* `unwanted`: enum disk_flags to force (tests, options), 0 = the best there is. */
int disk_open(struct disk **disk, const char *path, unsigned unwanted);

/* No write may be in flight. */
void disk_close(struct disk *disk);

unsigned disk_flags(const struct disk *disk);
uint32_t disk_segments_count(const struct disk *disk);
uint64_t disk_segment_bytes(const struct disk *disk);

/* Starts one durable write. offset, bytes and buffer: multiples of DISK_BLOCK_BYTES; the buffer
 * stays untouched until its completion. -EBUSY: DISK_DEPTH_MAX in flight; -EINVAL: outside. */
int disk_submit_write(struct disk *disk, uint32_t segment, uint64_t offset, const void *buffer,
                      size_t bytes, uint64_t user);

struct disk_completion {
    uint64_t user;
    int result; /* 0 = every byte is durable; -EIO also for a short write */
};

/* Completions so far; no system call. Returns how many were stored. */
size_t disk_poll(struct disk *disk, struct disk_completion out[], size_t max);

/* Readable when completions may be there: for epoll. disk_event_clear() before disk_poll(). */
int disk_event_fd(const struct disk *disk);
void disk_event_clear(struct disk *disk);

size_t disk_in_flight(const struct disk *disk);

/* ---- reading a WAL directory (start only, blocking) -------------------------------------------
 */

struct disk_reader {
    int fds[DISK_SEGMENTS_MAX];
    uint32_t segments_count;
    uint64_t
        segment_bytes; /* of the longest; reads beyond a shorter file's end fail with -ENODATA */
};

/* Finds the segments of a WAL directory. -ENOENT; -EINVAL: not one (a hole in the numbering...). */
int disk_reader_open(struct disk_reader *reader, const char *path);
void disk_reader_close(struct disk_reader *reader);

/* Exactly `bytes`. Fits struct wal_reader.read; context = the struct disk_reader. */
int disk_reader_read(void *context, uint32_t segment, uint64_t offset, void *buffer, size_t bytes);

#endif
