/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing a WAL's segments through io_uring; see disk.h.
 */
#include "hw/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "hw/disk_internal.h"

struct disk_request {
    uint64_t user;
    uint32_t bytes;
    bool busy;
};

struct disk {
    struct io_uring ring;
    bool ring_open;
    int event_fd;
    unsigned flags; /* enum disk_flags in force */
    uint32_t segments_count;
    uint64_t segment_bytes;
    uint32_t in_flight;  /* submitted and not yet polled */
    uint32_t done_count; /* DISK_SYNCHRONOUS: completions not yet polled */
    struct disk_completion done[DISK_DEPTH_MAX];
    struct disk_request requests[DISK_DEPTH_MAX];
    int fds[DISK_SEGMENTS_MAX]; /* -1 = not open */
};

int disk_supported(void)
{
    struct io_uring ring;
    int error = io_uring_queue_init(1, &ring, 0);

    if (error == 0) {
        io_uring_queue_exit(&ring);
    }
    return error;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int disk_open_segments(struct disk *disk, const char *path, int open_flags)
{
    char name[DISK_PATH_BYTES_MAX];

    for (uint32_t i = 0; i < disk->segments_count; i++) {
        int error = disk_segment_path(name, path, i);

        if (error != 0) {
            return error;
        }
        disk->fds[i] = open(name, O_RDWR | O_CLOEXEC | open_flags);
        if (disk->fds[i] < 0) {
            return -errno;
        }
    }
    return 0;
}

static void disk_close_segments(struct disk *disk)
{
    for (uint32_t i = 0; i < disk->segments_count; i++) {
        if (disk->fds[i] >= 0) {
            close(disk->fds[i]);
            disk->fds[i] = -1;
        }
    }
}

/* O_DIRECT is refused at open (older tmpfs), or with the first transfer (file systems on odd block
 * sizes): a read of one block tells. */
static int disk_try_direct(struct disk *disk, const char *path)
{
    void *block = NULL;
    ssize_t got;
    int error = disk_open_segments(disk, path, O_DIRECT);

    if (error == 0) {
        if (posix_memalign(&block, DISK_BLOCK_BYTES, DISK_BLOCK_BYTES) != 0) {
            return -ENOMEM;
        }
        got = pread(disk->fds[0], block, DISK_BLOCK_BYTES, 0);
        error = got == DISK_BLOCK_BYTES ? 0 : got < 0 ? -errno : -EINVAL;
        free(block);
    }
    return error;
}

static int disk_open_files(struct disk *disk, const char *path, unsigned unwanted)
{
    struct disk_reader reader;
    int error = disk_reader_open(&reader, path);

    if (error != 0) {
        return error;
    }
    disk->segments_count = reader.segments_count;
    disk->segment_bytes = reader.segment_bytes;
    disk_reader_close(&reader);
    if ((unwanted & DISK_BUFFERED) == 0) {
        error = disk_try_direct(disk, path);
        if (error != -EINVAL && error != -EOPNOTSUPP) {
            return error;
        }
        disk_close_segments(disk);
    }
    disk->flags |= DISK_BUFFERED;
    return disk_open_segments(disk, path, 0);
}

static int disk_open_ring(struct disk *disk, unsigned unwanted)
{
    int error = -ENOSYS;

    disk->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (disk->event_fd < 0) {
        return -errno;
    }
    if ((unwanted & DISK_SYNCHRONOUS) == 0) {
        error = io_uring_queue_init(2 * DISK_DEPTH_MAX, &disk->ring, 0);
    }
    if (error == 0) {
        disk->ring_open = true;
        return io_uring_register_eventfd(&disk->ring, disk->event_fd);
    }
    /* Refused altogether (old kernel, seccomp, sysctl) is weather; anything else is an error. */
    if (error != -ENOSYS && error != -EPERM && error != -EACCES) {
        return error;
    }
    disk->flags |= DISK_SYNCHRONOUS;
    return 0;
}

int disk_open(struct disk **out, const char *path, unsigned unwanted)
{
    struct disk *disk = calloc(1, sizeof *disk);
    int error;

    *out = NULL;
    if (disk == NULL) {
        return -ENOMEM;
    }
    disk->event_fd = -1;
    for (size_t i = 0; i < DISK_SEGMENTS_MAX; i++) {
        disk->fds[i] = -1;
    }
    error = disk_open_files(disk, path, unwanted);
    if (error == 0) {
        error = disk_open_ring(disk, unwanted);
    }
    if (error != 0) {
        disk_close(disk);
        return error;
    }
    *out = disk;
    return 0;
}

void disk_close(struct disk *disk)
{
    if (disk == NULL) {
        return;
    }
    if (disk->ring_open) {
        io_uring_queue_exit(&disk->ring);
    }
    if (disk->event_fd >= 0) {
        close(disk->event_fd);
    }
    disk_close_segments(disk);
    free(disk);
}

unsigned disk_flags(const struct disk *disk)
{
    return disk->flags;
}

uint32_t disk_segments_count(const struct disk *disk)
{
    return disk->segments_count;
}

uint64_t disk_segment_bytes(const struct disk *disk)
{
    return disk->segment_bytes;
}

/* ---- writing --------------------------------------------------------------------------------- */

static int disk_result(long transferred, uint32_t wanted)
{
    if (transferred < 0) {
        return (int)transferred;
    }
    return transferred == (long)wanted ? 0 : -EIO;
}

static void disk_write_now(struct disk *disk, uint32_t segment, uint64_t offset, const void *buffer,
                           uint32_t bytes, uint64_t user)
{
    struct iovec vector = {.iov_base = (void *)(uintptr_t)buffer, .iov_len = bytes};
    uint64_t one = 1;
    ssize_t put;

    do {
        put = pwritev2(disk->fds[segment], &vector, 1, (off_t)offset, RWF_DSYNC);
    } while (put < 0 && errno == EINTR);
    disk->done[disk->done_count++] = (struct disk_completion){
        .user = user, .result = disk_result(put < 0 ? -errno : put, bytes)};
    (void)!write(disk->event_fd, &one, sizeof one);
}

static struct disk_request *disk_request_take(struct disk *disk)
{
    for (size_t i = 0; i < DISK_DEPTH_MAX; i++) {
        if (!disk->requests[i].busy) {
            disk->requests[i].busy = true;
            return &disk->requests[i];
        }
    }
    return NULL;
}

static int disk_write_ring(struct disk *disk, uint32_t segment, uint64_t offset, const void *buffer,
                           uint32_t bytes, uint64_t user)
{
    struct disk_request *request = disk_request_take(disk);
    struct io_uring_sqe *entry = io_uring_get_sqe(&disk->ring);
    int submitted;

    if (request == NULL || entry == NULL) {
        return -EBUSY; /* cannot be: in_flight is checked, and both are larger */
    }
    request->user = user;
    request->bytes = bytes;
    io_uring_prep_write(entry, disk->fds[segment], buffer, bytes, offset);
    entry->rw_flags = RWF_DSYNC;
    io_uring_sqe_set_data(entry, request);
    do {
        submitted = io_uring_submit(&disk->ring);
    } while (submitted == -EINTR);
    if (submitted == 1) {
        return 0;
    }
    /* The entry stays queued and would go out with the next submission, on a buffer that may not be
     * the caller's any more: turn it into nothing. */
    io_uring_prep_nop(entry);
    io_uring_sqe_set_data(entry, NULL);
    request->busy = false;
    return submitted < 0 ? submitted : -EAGAIN;
}

int disk_submit_write(struct disk *disk, uint32_t segment, uint64_t offset, const void *buffer,
                      size_t bytes, uint64_t user)
{
    int error = 0;

    if (segment >= disk->segments_count || bytes == 0 || bytes > 1u << 30 ||
        offset > disk->segment_bytes || bytes > disk->segment_bytes - offset ||
        (offset | bytes | (uintptr_t)buffer) % DISK_BLOCK_BYTES != 0) {
        return -EINVAL;
    }
    if (disk->in_flight == DISK_DEPTH_MAX) {
        return -EBUSY;
    }
    if ((disk->flags & DISK_SYNCHRONOUS) != 0) {
        disk_write_now(disk, segment, offset, buffer, (uint32_t)bytes, user);
    } else {
        error = disk_write_ring(disk, segment, offset, buffer, (uint32_t)bytes, user);
    }
    disk->in_flight += error == 0 ? 1 : 0;
    return error;
}

size_t disk_poll(struct disk *disk, struct disk_completion out[], size_t max)
{
    size_t count = 0;

    while (count < max && disk->done_count > 0) {
        out[count++] = disk->done[0];
        disk->done_count--;
        memmove(&disk->done[0], &disk->done[1], disk->done_count * sizeof disk->done[0]);
        disk->in_flight--;
    }
    while (count < max && disk->ring_open) {
        struct io_uring_cqe *entry;
        struct disk_request *request;

        /* Looks at shared memory only: the kernel puts completions there by itself. */
        if (io_uring_peek_cqe(&disk->ring, &entry) != 0) {
            break;
        }
        request = io_uring_cqe_get_data(entry);
        if (request != NULL) {
            out[count++] = (struct disk_completion){
                .user = request->user, .result = disk_result(entry->res, request->bytes)};
            request->busy = false;
            disk->in_flight--;
        }
        io_uring_cqe_seen(&disk->ring, entry);
    }
    return count;
}

int disk_event_fd(const struct disk *disk)
{
    return disk->event_fd;
}

void disk_event_clear(struct disk *disk)
{
    uint64_t count;

    (void)!read(disk->event_fd, &count, sizeof count);
}

size_t disk_in_flight(const struct disk *disk)
{
    return disk->in_flight;
}
