/* SPDX-License-Identifier: Apache-2.0
 *
 * Real files: WAL directories through io_uring and its fallbacks, atomic replacement, the lock, a
 * full disk (a small tmpfs, when this test may mount one).
 */
#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hw/disk.h"
#include "hw/file.h"

enum { SEGMENTS = 3, SEGMENT_BYTES = 256 * 1024, WRITE_BYTES = 16384 };

static char root[256];
static char wal[512];

static void setup(void)
{
    snprintf(root, sizeof root, "%s/disk-test-XXXXXX", BELAY_TEST_DIRECTORY);
    cr_assert_not_null(mkdtemp(root), "%s", root);
    snprintf(wal, sizeof wal, "%s/wal", root);
}

static int remove_each(void *context, const char *name)
{
    char path[FILE_PATH_BYTES_MAX];

    cr_assert_eq(file_join(path, context, name), 0);
    if (unlink(path) != 0) {
        cr_assert_eq(file_remove_directory(path), 0, "%s", path);
    }
    return 0;
}

static void teardown(void)
{
    file_list(root, remove_each, root);
    cr_assert_eq(rmdir(root), 0);
}

TestSuite(disk, .init = setup, .fini = teardown);

struct progress_seen {
    uint64_t last;
    uint64_t total;
    uint32_t steps;
};

static void see_progress(void *context, uint64_t done, uint64_t total)
{
    struct progress_seen *seen = context;

    cr_assert_gt(done, seen->last);
    seen->last = done;
    seen->total = total;
    seen->steps++;
}

static uint8_t *block_memory(uint8_t fill)
{
    void *memory = NULL;

    cr_assert_eq(posix_memalign(&memory, DISK_BLOCK_BYTES, WRITE_BYTES), 0);
    memset(memory, fill, WRITE_BYTES);
    return memory;
}

/* Waits on the eventfd, as a worker would, for one completion. */
static struct disk_completion wait_for_one(struct disk *disk)
{
    struct disk_completion completion;
    struct pollfd readable = {.fd = disk_event_fd(disk), .events = POLLIN};

    while (disk_poll(disk, &completion, 1) == 0) {
        cr_assert_eq(poll(&readable, 1, 10000), 1, "no completion in ten seconds");
        disk_event_clear(disk);
    }
    return completion;
}

static void write_and_read_back(unsigned unwanted)
{
    struct disk *disk;
    struct disk_reader reader;
    uint8_t *buffer = block_memory(0x5a);
    uint8_t *back = block_memory(0);
    struct disk_completion completion;

    cr_assert_eq(disk_wal_create(wal, SEGMENTS, SEGMENT_BYTES, NULL), 0);
    cr_assert_eq(disk_open(&disk, wal, unwanted), 0);
    cr_assert_eq(disk_flags(disk) & unwanted, unwanted);
    cr_assert_eq(disk_segments_count(disk), SEGMENTS);
    cr_assert_eq(disk_segment_bytes(disk), SEGMENT_BYTES);

    cr_assert_eq(disk_submit_write(disk, 1, 8192, buffer, WRITE_BYTES, 77), 0);
    cr_assert_eq(disk_in_flight(disk), 1);
    completion = wait_for_one(disk);
    cr_assert(completion.user == 77 && completion.result == 0, "%d", completion.result);
    cr_assert_eq(disk_in_flight(disk), 0);
    cr_assert_eq(disk_poll(disk, &completion, 1), 0);
    disk_close(disk);

    cr_assert_eq(disk_reader_open(&reader, wal), 0);
    cr_assert(reader.segments_count == SEGMENTS && reader.segment_bytes == SEGMENT_BYTES);
    cr_assert_eq(disk_reader_read(&reader, 1, 8192, back, WRITE_BYTES), 0);
    cr_assert_eq(memcmp(back, buffer, WRITE_BYTES), 0);
    cr_assert_eq(disk_reader_read(&reader, 1, 8191, back, 1), 0);
    cr_assert_eq(back[0], 0, "nothing before it");
    cr_assert_eq(disk_reader_read(&reader, 1, 8192 + WRITE_BYTES, back, 1), 0);
    cr_assert_eq(back[0], 0, "nothing behind it");
    cr_assert_eq(disk_reader_read(&reader, 1, SEGMENT_BYTES - 4, back, 8), -ENODATA);
    cr_assert_eq(disk_reader_read(&reader, SEGMENTS, 0, back, 8), -EINVAL);
    disk_reader_close(&reader);
    free(buffer);
    free(back);
}

Test(disk, a_write_is_read_back)
{
    write_and_read_back(0);
}

Test(disk, a_write_is_read_back_through_the_page_cache)
{
    write_and_read_back(DISK_BUFFERED);
}

Test(disk, a_write_is_read_back_without_io_uring)
{
    write_and_read_back(DISK_SYNCHRONOUS);
}

Test(disk, a_write_is_read_back_with_neither)
{
    write_and_read_back(DISK_BUFFERED | DISK_SYNCHRONOUS);
}

/* What is forced away must be there otherwise, or the fallbacks are all that is ever tested. */
Test(disk, the_best_way_is_taken_where_it_works)
{
    struct disk *disk;

    cr_assert_eq(disk_wal_create(wal, SEGMENTS, SEGMENT_BYTES, NULL), 0);
    cr_assert_eq(disk_open(&disk, wal, 0), 0);
    cr_assert_eq((disk_flags(disk) & DISK_SYNCHRONOUS) == 0, disk_supported() == 0);
    disk_close(disk);
}

Test(disk, segments_are_made_of_zeroes)
{
    struct progress_seen seen = {0};
    struct disk_progress progress = {see_progress, &seen};
    struct disk_reader reader;
    struct stat status;
    uint8_t *back = malloc(SEGMENT_BYTES);
    char path[600];

    cr_assert_eq(disk_wal_create(wal, SEGMENTS, SEGMENT_BYTES, &progress), 0);
    cr_assert_geq(seen.steps, SEGMENTS);
    cr_assert_eq(seen.last, SEGMENTS * SEGMENT_BYTES);
    cr_assert_eq(seen.total, SEGMENTS * SEGMENT_BYTES);
    cr_assert_eq(disk_reader_open(&reader, wal), 0);
    for (uint32_t s = 0; s < SEGMENTS; s++) {
        cr_assert_eq(disk_reader_read(&reader, s, 0, back, SEGMENT_BYTES), 0);
        for (size_t k = 0; k < SEGMENT_BYTES; k++) {
            cr_assert_eq(back[k], 0);
        }
    }
    disk_reader_close(&reader);
    snprintf(path, sizeof path, "%s/segment-0002", wal);
    cr_assert_eq(stat(path, &status), 0);
    cr_assert_geq(status.st_blocks * 512, SEGMENT_BYTES, "really allocated");
    free(back);
}

Test(disk, creation_refuses_what_is_there)
{
    cr_assert_eq(disk_wal_create(wal, SEGMENTS, SEGMENT_BYTES, NULL), 0);
    cr_assert_eq(disk_wal_create(wal, SEGMENTS, SEGMENT_BYTES, NULL), -EEXIST);
    cr_assert_eq(access(wal, F_OK), 0, "and leaves it alone");
    cr_assert_eq(disk_wal_create(wal, 0, SEGMENT_BYTES, NULL), -EINVAL);
    cr_assert_eq(disk_wal_create(wal, SEGMENTS, 1000, NULL), -EINVAL);
    cr_assert_eq(disk_wal_create(wal, DISK_SEGMENTS_MAX + 1, 4096, NULL), -EINVAL);
}

Test(disk, submit_refuses_what_is_outside_or_unaligned)
{
    uint8_t *buffer = block_memory(1);
    struct disk *disk;

    cr_assert_eq(disk_wal_create(wal, SEGMENTS, SEGMENT_BYTES, NULL), 0);
    cr_assert_eq(disk_open(&disk, wal, 0), 0);
    cr_assert_eq(disk_submit_write(disk, SEGMENTS, 0, buffer, 4096, 0), -EINVAL);
    cr_assert_eq(disk_submit_write(disk, 0, SEGMENT_BYTES, buffer, 4096, 0), -EINVAL);
    cr_assert_eq(disk_submit_write(disk, 0, SEGMENT_BYTES - 4096, buffer, 8192, 0), -EINVAL);
    cr_assert_eq(disk_submit_write(disk, 0, UINT64_MAX - 4095, buffer, 4096, 0), -EINVAL);
    cr_assert_eq(disk_submit_write(disk, 0, 512, buffer, 4096, 0), -EINVAL);
    cr_assert_eq(disk_submit_write(disk, 0, 0, buffer, 512, 0), -EINVAL);
    cr_assert_eq(disk_submit_write(disk, 0, 0, buffer + 512, 4096, 0), -EINVAL);
    cr_assert_eq(disk_submit_write(disk, 0, 0, buffer, 0, 0), -EINVAL);
    cr_assert_eq(disk_in_flight(disk), 0);
    disk_close(disk);
    free(buffer);
}

static void fill_the_queue(unsigned unwanted)
{
    uint8_t *buffer = block_memory(2);
    struct disk *disk;
    uint64_t users = 0;

    cr_assert_eq(disk_wal_create(wal, SEGMENTS, SEGMENT_BYTES, NULL), 0);
    cr_assert_eq(disk_open(&disk, wal, unwanted), 0);
    for (uint64_t round = 0; round < 3; round++) {
        for (uint64_t k = 0; k < DISK_DEPTH_MAX; k++) {
            cr_assert_eq(disk_submit_write(disk, 0, k * 4096, buffer, 4096, k), 0);
        }
        cr_assert_eq(disk_submit_write(disk, 0, 0, buffer, 4096, 99), -EBUSY);
        users = 0;
        for (uint64_t k = 0; k < DISK_DEPTH_MAX; k++) {
            struct disk_completion completion = wait_for_one(disk);

            cr_assert_eq(completion.result, 0);
            users |= UINT64_C(1) << completion.user;
        }
        cr_assert_eq(users, (1u << DISK_DEPTH_MAX) - 1, "each exactly once");
    }
    disk_close(disk);
    free(buffer);
}

Test(disk, no_more_in_flight_than_the_depth)
{
    fill_the_queue(0);
}

Test(disk, no_more_in_flight_than_the_depth_without_io_uring)
{
    fill_the_queue(DISK_SYNCHRONOUS);
}

/* A limit on the length of files stands for a disk that takes only a part, or nothing. */
static void fail_a_write(unsigned unwanted)
{
    struct rlimit limit;
    struct rlimit no_limit;
    uint8_t *buffer = block_memory(3);
    struct disk_completion completion;
    struct disk *disk;

    cr_assert_eq(disk_wal_create(wal, SEGMENTS, SEGMENT_BYTES, NULL), 0);
    cr_assert_eq(disk_open(&disk, wal, unwanted), 0);
    cr_assert_neq(signal(SIGXFSZ, SIG_IGN), SIG_ERR);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &no_limit), 0);
    limit = no_limit;
    limit.rlim_cur = 8192;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(disk_submit_write(disk, 0, 16384, buffer, 4096, 5), 0);
    completion = wait_for_one(disk);
    cr_assert(completion.user == 5 && completion.result == -EFBIG, "%d", completion.result);
    cr_assert_eq(disk_submit_write(disk, 0, 0, buffer, WRITE_BYTES, 6), 0);
    completion = wait_for_one(disk);
    cr_assert_eq(completion.user, 6);
    cr_assert_lt(completion.result, 0, "a short write is no success");
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &no_limit), 0);
    cr_assert_eq(disk_submit_write(disk, 0, 0, buffer, WRITE_BYTES, 7), 0);
    cr_assert_eq(wait_for_one(disk).result, 0);
    disk_close(disk);
    free(buffer);
}

Test(disk, a_failed_or_short_write_is_an_error)
{
    fail_a_write(0);
}

Test(disk, a_failed_or_short_write_is_an_error_through_the_page_cache)
{
    fail_a_write(DISK_BUFFERED);
}

Test(disk, a_failed_or_short_write_is_an_error_without_io_uring)
{
    fail_a_write(DISK_SYNCHRONOUS);
}

Test(disk, a_segment_that_is_missing_or_none_is_refused)
{
    struct disk *disk;
    char path[600];

    cr_assert_eq(disk_wal_create(wal, SEGMENTS, SEGMENT_BYTES, NULL), 0);
    snprintf(path, sizeof path, "%s/segment-0001", wal);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(disk_open(&disk, wal, 0), -EINVAL, "one is missing in the middle");
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(disk_open(&disk, wal, 0), -EINVAL, "one is not a plain file");
    cr_assert_eq(rmdir(path), 0);
}

Test(disk, a_directory_that_is_no_wal_is_refused)
{
    struct disk *disk;

    cr_assert_eq(disk_open(&disk, wal, 0), -ENOENT);
    cr_assert_null(disk);
    cr_assert_eq(file_make_directory(wal), 0);
    cr_assert_eq(disk_open(&disk, wal, 0), -ENOENT);
}

Test(disk, the_second_opener_of_a_directory_is_refused)
{
    int first = disk_lock_directory(root);
    int again;

    cr_assert_geq(first, 0);
    cr_assert_eq(disk_lock_directory(root), -EWOULDBLOCK);
    close(first);
    again = disk_lock_directory(root);
    cr_assert_geq(again, 0);
    close(again);
    cr_assert_eq(disk_lock_directory("/nowhere/at/all"), -ENOENT);
}

/* ---- files ----------------------------------------------------------------------------------- */

static int count_each(void *context, const char *name)
{
    int *count = context;

    cr_assert_not(file_is_temporary(name), "%s is left over", name);
    (*count)++;
    return 0;
}

Test(disk, replacing_a_file_is_all_or_nothing)
{
    struct file_atomic file;
    char path[600];
    char text[16];
    int count = 0;

    snprintf(path, sizeof path, "%s/name", root);
    cr_assert_eq(file_read(path, text, sizeof text), -ENOENT);
    cr_assert_eq(file_replace(root, "name", "first", 5), 0);
    cr_assert_eq(file_read(path, text, sizeof text), 5);
    cr_assert_eq(memcmp(text, "first", 5), 0);
    cr_assert_eq(file_read(path, text, 5), 5);
    cr_assert_eq(file_read(path, text, 4), -EFBIG);

    cr_assert_eq(file_atomic_begin(&file, root, "name"), 0);
    cr_assert_eq(file_atomic_append(&file, "sec", 3), 0);
    cr_assert_eq(file_read(path, text, sizeof text), 5, "still the first");
    file_atomic_abort(&file);
    cr_assert_eq(file_atomic_append(&file, "x", 1), -EBADF);
    cr_assert_eq(file_atomic_commit(&file), -EBADF);
    cr_assert_eq(file_read(path, text, sizeof text), 5);

    cr_assert_eq(file_atomic_begin(&file, root, "name"), 0);
    cr_assert_eq(file_atomic_append(&file, "sec", 3), 0);
    cr_assert_eq(file_atomic_append(&file, "ond!", 4), 0);
    cr_assert_eq(file.bytes, 7);
    cr_assert_eq(file_atomic_commit(&file), 0);
    cr_assert_eq(file_read(path, text, sizeof text), 7);
    cr_assert_eq(memcmp(text, "second!", 7), 0);
    file_atomic_abort(&file); /* harmless */
    cr_assert_eq(file_read(path, text, sizeof text), 7);
    cr_assert_eq(file_list(root, count_each, &count), 0);
    cr_assert_eq(count, 1);
    cr_assert(file_is_temporary("name.tmp"));
}

static int sum_bytes(void *context, const uint8_t *bytes, size_t length)
{
    uint64_t *sum = context;

    for (size_t k = 0; k < length; k++) {
        *sum += bytes[k];
    }
    return 0;
}

static int stop_at_once(void *context, const uint8_t *bytes, size_t length)
{
    (void)context;
    (void)bytes;
    return length > 0 ? -ECANCELED : 0;
}

Test(disk, streaming_and_removing)
{
    uint8_t *bytes = malloc(200000);
    char path[600];
    uint64_t sum = 0;
    uint64_t free_bytes = 0;

    memset(bytes, 3, 200000);
    snprintf(path, sizeof path, "%s/big", root);
    cr_assert_eq(file_replace(root, "big", bytes, 200000), 0);
    cr_assert_eq(file_stream(path, sum_bytes, &sum), 0);
    cr_assert_eq(sum, 600000);
    cr_assert_eq(file_stream(path, stop_at_once, NULL), -ECANCELED);
    cr_assert_eq(file_remove(root, "big"), 0);
    cr_assert_eq(file_remove(root, "big"), 0, "already done");
    cr_assert_eq(file_stream(path, sum_bytes, &sum), -ENOENT);
    cr_assert_eq(file_make_directory(wal), 0);
    cr_assert_eq(file_make_directory(wal), 0, "there already");
    cr_assert_eq(file_remove_directory(wal), 0);
    cr_assert_eq(file_remove_directory(wal), 0, "already done");
    cr_assert_eq(file_free_bytes(root, &free_bytes), 0);
    cr_assert_gt(free_bytes, 0);
    free(bytes);
}

/* ---- a full disk ----------------------------------------------------------------------------- */

/* Mounts a tmpfs of 1 MiB in a mount namespace of this process's own. */
static bool mount_small(const char *path)
{
    return mkdir(path, 0700) == 0 && unshare(CLONE_NEWNS) == 0 &&
           mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", path, "tmpfs", 0, "size=1m") == 0;
}

Test(disk, a_full_disk_says_so)
{
    char small[600];
    char path[700];
    uint8_t *bytes = calloc(1, 2 << 20);
    struct disk *disk;
    int count = 0;

    snprintf(small, sizeof small, "%s/small", root);
    if (!mount_small(small)) {
        /* Not allowed to mount: the device that is always full stands for the disk. */
        int fd = open("/dev/full", O_WRONLY);
        struct file_atomic file = {.fd = fd, .directory_fd = -1};

        cr_assert_geq(fd, 0);
        cr_assert_eq(file_atomic_append(&file, bytes, 4096), -ENOSPC);
        file_atomic_abort(&file);
        (void)rmdir(small);
        free(bytes);
        return;
    }
    snprintf(path, sizeof path, "%s/wal", small);
    cr_assert_eq(disk_wal_create(path, SEGMENTS, 1 << 20, NULL), -ENOSPC);
    cr_assert_eq(access(path, F_OK), -1, "nothing is left behind");
    cr_assert_eq(file_replace(small, "kept", "old", 3), 0);
    cr_assert_eq(file_replace(small, "kept", bytes, 2 << 20), -ENOSPC);
    cr_assert_eq(file_list(small, count_each, &count), 0);
    cr_assert_eq(count, 1, "the old file and no temporary one");

    /* What was created fits for ever: overwriting needs no room. */
    cr_assert_eq(disk_wal_create(path, SEGMENTS, 128 * 1024, NULL), 0);
    cr_assert_eq(disk_open(&disk, path, 0), 0);
    for (uint64_t k = 0; file_replace(small, "kept", bytes, 64 * 1024 * (k + 1)) == 0; k++) {
    }
    for (uint32_t s = 0; s < SEGMENTS; s++) {
        uint8_t *buffer = block_memory((uint8_t)s);
        struct disk_completion completion;

        cr_assert_eq(disk_submit_write(disk, s, 4096, buffer, WRITE_BYTES, s), 0);
        completion = wait_for_one(disk);
        cr_assert_eq(completion.result, 0);
        free(buffer);
    }
    disk_close(disk);
    umount2(small, MNT_DETACH);
    rmdir(small);
    free(bytes);
}
