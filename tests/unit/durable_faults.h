/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for the system calls of client/durable.c: records their order, and fails the one that
 * the test says. A failed step stands for a crash at that step: what is on disk then is what a
 * restart would find.
 */
#ifndef BELAY_TESTS_DURABLE_FAULTS_H
#define BELAY_TESTS_DURABLE_FAULTS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char fault_steps[256]; /* w write, f fsync of a file, r rename, d fsync of a directory */
static int fault_at = -1;     /* index in fault_steps of the call that fails; -1 = none */
static bool fault_crash;      /* after it, nothing else reaches the disk either */
static bool fault_down;

static bool fault_next(char step)
{
    size_t at = strlen(fault_steps);

    if (at + 1 < sizeof(fault_steps))
        fault_steps[at] = step;
    if (fault_down || (int)at == fault_at) {
        fault_down = fault_crash;
        errno = EIO;
        return true;
    }
    return false;
}

static void fault_reset(int at, bool crash)
{
    memset(fault_steps, 0, sizeof(fault_steps));
    fault_at = at;
    fault_crash = crash;
    fault_down = false;
}

int fsync(int file);
int fsync(int file)
{
    struct stat status;
    char step = fstat(file, &status) == 0 && S_ISDIR(status.st_mode) ? 'd' : 'f';
    return fault_next(step) ? -1 : (int)syscall(SYS_fsync, file);
}

int renameat(int from_directory, const char *from, int to_directory, const char *to);
int renameat(int from_directory, const char *from, int to_directory, const char *to)
{
    return fault_next('r') ? -1
                           : (int)syscall(SYS_renameat, from_directory, from, to_directory, to);
}

int unlinkat(int directory, const char *name, int flags);
int unlinkat(int directory, const char *name, int flags)
{
    if (fault_down) /* a crashed process cleans up nothing */
        return -1;
    return (int)syscall(SYS_unlinkat, directory, name, flags);
}

/* Half of what is written arrives before the crash. Descriptors of the test's own output pass. */
ssize_t write(int file, const void *bytes, size_t length);
ssize_t write(int file, const void *bytes, size_t length)
{
    struct stat status;
    if (file > 2 && fstat(file, &status) == 0 && S_ISREG(status.st_mode) && fault_next('w')) {
        if (length > 1)
            syscall(SYS_write, file, bytes, length / 2);
        return -1;
    }
    return syscall(SYS_write, file, bytes, length);
}

#endif
