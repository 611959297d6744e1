/* SPDX-License-Identifier: Apache-2.0
 *
 * What a synced write has to pass: io_uring, the file system, the disk.
 */
#include <string.h>

#include "client/cli/host/judge_internal.h"

static const char SECTION[] = "Disk";

static void judge_io_uring(const struct host_facts *facts, struct host_findings *findings)
{
    static const struct host_check check = {"io_uring", SECTION};
    const struct host_number *disabled = &facts->io_uring_disabled;
    bool absent = disabled->state == HOST_MISSING;
    /* A filter of system calls cannot be seen here: belayd's log says what it got. */
    if (absent && facts->release.state != HOST_KNOWN) {
        finding_unknown(findings, &check, facts->release.state, "/proc/sys/kernel/osrelease");
    } else if (absent && facts->release.value < HOST_RELEASE(6, 6)) {
        (void)finding_add(findings, &check, HOST_OK,
                          "allowed: this kernel has no switch against it");
    } else if (disabled->state != HOST_KNOWN) {
        finding_unknown(findings, &check, disabled->state, "/proc/sys/kernel/io_uring_disabled");
    } else if (disabled->value == 0) {
        (void)finding_add(findings, &check, HOST_OK, "allowed");
    } else {
        struct host_finding *finding = finding_add(
            findings, &check, HOST_WARNING,
            disabled->value == 1 ? "forbidden to users without rights" : "forbidden to everybody");
        finding_should(finding, "allowed to belayd");
        finding_set(finding, "sysctl kernel.io_uring_disabled=0; or 1, and its group as "
                             "kernel.io_uring_group");
        finding_costs(finding,
                      "a worker with durability: disk waits for each write instead of going "
                      "on with other requests");
    }
}

/* Where a write is on a disk of this machine once it is synced, and direct I/O works. */
static bool is_local(const char *filesystem)
{
    static const char *const names[] = {"ext4", "xfs", "btrfs", "ext3", "ext2", "f2fs"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(filesystem, names[i]) == 0)
            return true;
    return false;
}

static bool is_memory(const char *filesystem)
{
    return strcmp(filesystem, "tmpfs") == 0 || strcmp(filesystem, "ramfs") == 0 ||
           strcmp(filesystem, "rootfs") == 0;
}

static bool is_network(const char *filesystem)
{
    return strncmp(filesystem, "nfs", 3) == 0 || strcmp(filesystem, "cifs") == 0 ||
           strcmp(filesystem, "smb3") == 0 || strcmp(filesystem, "9p") == 0 ||
           strcmp(filesystem, "ceph") == 0 || strncmp(filesystem, "fuse", 4) == 0;
}

static void judge_filesystem(const struct host_disk *disk, struct host_findings *findings)
{
    static const struct host_check check = {"filesystem", SECTION};
    const struct host_word *filesystem = &disk->filesystem;
    if (filesystem->state != HOST_KNOWN) {
        finding_unknown(findings, &check, filesystem->state, "/proc/self/mountinfo");
    } else if (is_memory(filesystem->text)) {
        struct host_finding *finding =
            finding_add(findings, &check, HOST_ERROR, "%s: it is memory", filesystem->text);
        finding_should(finding, "a file system on a disk, unless durability is memory");
        finding_set(finding, "data_directory on ext4 or xfs; or durability: memory");
        finding_costs(finding, "durability: disk keeps nothing when the power goes");
    } else if (is_network(filesystem->text)) {
        struct host_finding *finding =
            finding_add(findings, &check, HOST_WARNING, "%s: not a disk of this machine, perhaps",
                        filesystem->text);
        finding_should(finding, "a file system on a disk of the machine");
        finding_set(finding, "data_directory on ext4 or xfs");
        finding_costs(finding, "each grant waits for another machine's disk, or for a promise that "
                               "depends on that machine's settings");
    } else if (is_local(filesystem->text)) {
        (void)finding_add(findings, &check, HOST_OK, "%s, which has direct I/O", filesystem->text);
    } else {
        (void)finding_add(findings, &check, HOST_NOT_KNOWN,
                          "%s: whether it has direct I/O is not known; if not, belayd's log says "
                          "event=disk_fallback",
                          filesystem->text);
    }
}

static void judge_cache(const struct host_disk *disk, struct host_findings *findings)
{
    static const struct host_check check = {"write_cache", SECTION};
    if (disk->write_cache.state != HOST_KNOWN) {
        finding_unknown(findings, &check, disk->write_cache.state, "queue/write_cache of its disk");
    } else if (strcmp(disk->write_cache.text, "through") == 0) {
        (void)finding_add(findings, &check, HOST_OK,
                          "write through: a write that is done needs no flush");
    } else {
        struct host_finding *finding = finding_add(findings, &check, HOST_ADVICE,
                                                   "write back: the disk has a cache that a power "
                                                   "failure may empty");
        finding_should(finding, "a disk whose cache survives that, and says write through");
        finding_set(finding, "another disk; never by hand where the cache does not survive: that "
                             "loses what was acknowledged");
        finding_costs(finding, "each durable write waits until the disk has flushed");
    }
}

static void judge_scheduler(const struct host_disk *disk, struct host_findings *findings)
{
    static const struct host_check check = {"io_scheduler", SECTION};
    if (disk->scheduler.state != HOST_KNOWN) {
        finding_unknown(findings, &check, disk->scheduler.state, "queue/scheduler of its disk");
    } else if (disk->rotational.state != HOST_KNOWN) {
        finding_unknown(findings, &check, disk->rotational.state, "queue/rotational of its disk");
    } else if (disk->rotational.value != 0) {
        /* What a virtual disk says of itself is not true of what lies behind it. */
        bool is_virtual = strncmp(disk->source.text, "/dev/vd", 7) == 0;
        struct host_finding *finding =
            finding_add(findings, &check, is_virtual ? HOST_ADVICE : HOST_WARNING,
                        "the disk says that it turns%s", is_virtual ? "; it is a virtual one" : "");
        finding_should(finding, "a disk without moving parts");
        finding_set(finding, "another disk");
        finding_costs(finding, "each durable write waits until the disk has turned to its place");
    } else if (strcmp(disk->scheduler.text, "none") == 0) {
        (void)finding_add(findings, &check, HOST_OK, "none");
    } else {
        struct host_finding *finding =
            finding_add(findings, &check, HOST_ADVICE, "%s", disk->scheduler.text);
        finding_should(finding, "none, where belayd has the disk to itself");
        finding_set(finding, "echo none > /sys/block/DISK/queue/scheduler, by a udev rule");
        finding_costs(finding, "the kernel orders writes once more before the disk does: processor "
                               "time in each");
    }
}

void judge_disk(const struct host_facts *facts, struct host_findings *findings)
{
    judge_io_uring(facts, findings);
    if (!facts->disk.asked)
        return;
    judge_filesystem(&facts->disk, findings);
    judge_cache(&facts->disk, findings);
    judge_scheduler(&facts->disk, findings);
}
