/* SPDX-License-Identifier: Apache-2.0
 *
 * Synced writes per second into a zero-filled file, one after the other and three at once (three
 * nodes on one machine share its disk): write and fdatasync through the page cache, and io_uring
 * with O_DIRECT and RWF_DSYNC, 4 KiB and 64 KiB.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/raw/raw.h"
#include "hw/clock.h"
#include "hw/disk.h"
#include "hw/file.h"

enum { SMALL_BYTES = 4 << 10, LARGE_BYTES = 64 << 10, SAMPLES_MAX = 1 << 20, THREE = 3 };
enum { SEGMENT_BYTES = 16 << 20 };

static char directory[FILE_PATH_BYTES_MAX];
static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

static void stop_if_interrupted(void)
{
    if (interrupted)
        exit(130); /* files are removed on the way */
}

static uint64_t next_offset(uint64_t *offset, uint32_t bytes)
{
    uint64_t at = *offset + bytes > SEGMENT_BYTES ? 0 : *offset;
    *offset = at + bytes;
    return at;
}

/* A zero-filled, synced file that is gone when it is closed. */
static int plain_file(const void *zeros)
{
    char path[FILE_PATH_BYTES_MAX + 32];
    snprintf(path, sizeof path, "%s.plain", directory);
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0 || unlink(path) < 0)
        raw_die("%s: %s", path, strerror(errno));
    for (uint32_t written = 0; written < SEGMENT_BYTES; written += LARGE_BYTES)
        if (pwrite(file, zeros, LARGE_BYTES, written) != LARGE_BYTES)
            raw_die("%s: %s", path, strerror(errno));
    if (fsync(file) < 0)
        raw_die("%s: %s", path, strerror(errno));
    return file;
}

/* Writes per second. */
static double fdatasync_rate(int file, const void *buffer, uint32_t bytes, uint64_t round_ns,
                             struct raw_samples *samples)
{
    uint64_t offset = 0, began_ns = clock_monotonic_ns(), now_ns = began_ns;
    for (samples->count = 0; now_ns - began_ns < round_ns;) {
        uint64_t before_ns = now_ns;
        stop_if_interrupted();
        if (pwrite(file, buffer, bytes, (off_t)next_offset(&offset, bytes)) != (ssize_t)bytes ||
            fdatasync(file) < 0)
            raw_die("write: %s", strerror(errno));
        now_ns = clock_monotonic_ns();
        raw_sample(samples, now_ns - before_ns);
    }
    return (double)samples->count * 1e9 / (double)(now_ns - began_ns);
}

static uint32_t completions(struct disk *disk)
{
    struct disk_completion done[THREE];
    struct pollfd event = {disk_event_fd(disk), POLLIN, 0};
    uint32_t count = 0;
    while (count == 0) {
        stop_if_interrupted();
        if (poll(&event, 1, -1) < 0)
            continue;
        disk_event_clear(disk);
        count = (uint32_t)disk_poll(disk, done, THREE);
    }
    for (uint32_t i = 0; i < count; i++)
        if (done[i].result != 0)
            raw_die("write: %s", strerror(-done[i].result));
    return count;
}

static double ring_rate(const void *buffer, uint32_t bytes, uint32_t depth, uint64_t round_ns,
                        struct raw_samples *samples)
{
    struct disk *disk;
    int error = disk_open(&disk, directory, 0);
    if (error != 0)
        raw_die("%s: %s", directory, strerror(-error));
    uint64_t offset = 0, done = 0, began_ns = clock_monotonic_ns(), now_ns = began_ns;
    for (samples->count = 0; now_ns - began_ns < round_ns;) {
        uint64_t before_ns = now_ns;
        while (disk_in_flight(disk) < depth) {
            error = disk_submit_write(disk, 0, next_offset(&offset, bytes), buffer, bytes, 0);
            if (error != 0)
                raw_die("write: %s", strerror(-error));
        }
        done += completions(disk);
        now_ns = clock_monotonic_ns();
        raw_sample(samples, now_ns - before_ns);
    }
    while (disk_in_flight(disk) > 0)
        completions(disk);
    disk_close(disk);
    return (double)done * 1e9 / (double)(now_ns - began_ns);
}

static void measure(const struct raw_options *options, int file, const void *buffer,
                    struct raw_samples *samples, struct raw_report *report)
{
    uint64_t round_ns = options->round_ns;
    raw_add(report, "fdatasync.4k.writes_s", "4 KiB, write and fdatasync, writes/s",
            fdatasync_rate(file, buffer, SMALL_BYTES, round_ns, samples));
    raw_add(report, "fdatasync.4k.p50_us", "the same, p50, us", raw_quantile_us(samples, 0.5));
    raw_add(report, "fdatasync.64k.writes_s", "64 KiB, write and fdatasync, writes/s",
            fdatasync_rate(file, buffer, LARGE_BYTES, round_ns, samples));
    raw_add(report, "ring.4k.writes_s", "4 KiB, io_uring O_DIRECT RWF_DSYNC, writes/s",
            ring_rate(buffer, SMALL_BYTES, 1, round_ns, samples));
    raw_add(report, "ring.4k.p50_us", "the same, p50, us", raw_quantile_us(samples, 0.5));
    raw_add(report, "ring.4k.three.writes_s", "4 KiB, the same, three at once, writes/s",
            ring_rate(buffer, SMALL_BYTES, THREE, round_ns, samples));
    raw_add(report, "ring.64k.writes_s", "64 KiB, the same, one at a time, writes/s",
            ring_rate(buffer, LARGE_BYTES, 1, round_ns, samples));
}

static void remove_directory(void)
{
    (void)file_remove_directory(directory);
}

int main(int argc, char **argv)
{
    struct raw_options options;
    struct raw_report report = {.program = "disk_rates"};
    struct raw_samples samples;
    raw_parse(&options, "d", "synced writes of this disk", argc, argv);
    if (snprintf(directory, sizeof directory, "%s/disk-%ld", options.directory, (long)getpid()) >=
        (int)sizeof directory)
        raw_die("--directory is too long");
    struct sigaction action = {.sa_handler = interrupt};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    raw_samples_open(&samples, SAMPLES_MAX);
    void *buffer = aligned_alloc(DISK_BLOCK_BYTES, LARGE_BYTES);
    if (buffer == NULL)
        raw_die("no memory");
    memset(buffer, 0, LARGE_BYTES);
    int error = disk_wal_create(directory, 1, SEGMENT_BYTES, NULL);
    if (error != 0)
        raw_die("%s: %s", directory, strerror(-error));
    atexit(remove_directory);
    int file = plain_file(buffer);
    for (uint32_t round = 0; round < options.rounds; round++)
        measure(&options, file, buffer, &samples, &report);
    raw_print(&report, options.json);
    close(file);
    free(buffer);
    raw_samples_close(&samples);
    return 0;
}
