/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/guard/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/guard/page.h"

enum { CGROUP_CHANGE_MS = 100, CGROUP_NESTING_MAX = 8 };

static bool write_file(const char *directory, const char *file, const char *text)
{
    char path[GUARD_CGROUP_BYTES + 32];
    int length = snprintf(path, sizeof path, "%s/%s", directory, file);
    if (length < 0 || (size_t)length >= sizeof path)
        return false;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t written = write(fd, text, strlen(text));
    close(fd);
    return written == (ssize_t)strlen(text);
}

/* Where the cgroup2 hierarchy is mounted: mountinfo's fifth field, in lines with " - cgroup2 ". */
static bool find_mount(char *mount, size_t mount_bytes)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    if (!file)
        return false;
    char line[4096];
    bool found = false;
    while (!found && fgets(line, sizeof line, file)) {
        char point[1024], root[1024];
        if (!strstr(line, " - cgroup2 ") ||
            sscanf(line, "%*s %*s %*s %1023s %1023s", root, point) != 2)
            continue;
        int length = snprintf(mount, mount_bytes, "%s", point);
        found = length > 0 && (size_t)length < mount_bytes && strcmp(root, "/") == 0;
    }
    fclose(file);
    return found;
}

/* This process's group in that hierarchy: the line "0::PATH". */
static bool find_own(char *own, size_t own_bytes)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (!file)
        return false;
    char line[4096];
    bool found = false;
    while (!found && fgets(line, sizeof line, file)) {
        if (strncmp(line, "0::", 3) != 0)
            continue;
        line[strcspn(line, "\n")] = '\0';
        const char *path = strcmp(line + 3, "/") == 0 ? "" : line + 3;
        int length = snprintf(own, own_bytes, "%s", path);
        found = length >= 0 && (size_t)length < own_bytes;
    }
    fclose(file);
    return found;
}

/* Removes what belays left behind that were killed with all their processes. A group with members
 * cannot be removed, so the worst that happens to one in use elsewhere is nothing. */
static void sweep(const char *parent)
{
    DIR *directory = opendir(parent);
    struct dirent *item;
    while (directory && (item = readdir(directory)) != NULL) {
        char stale[GUARD_CGROUP_BYTES + 256], rest;
        int pid;
        unsigned long long made_ns;
        if (sscanf(item->d_name, "belay-%d-%llu%c", &pid, &made_ns, &rest) != 2 || pid <= 0 ||
            kill(pid, 0) == 0 || errno != ESRCH)
            continue;
        int length = snprintf(stale, sizeof stale, "%s/%s", parent, item->d_name);
        if (length > 0 && (size_t)length < sizeof stale)
            (void)rmdir(stale);
    }
    if (directory)
        closedir(directory);
}

bool cgroup_make(char *path, size_t path_bytes)
{
    char mount[256], own[256];
    path[0] = '\0';
    if (!find_mount(mount, sizeof mount) || !find_own(own, sizeof own))
        return false;
    char parent[GUARD_CGROUP_BYTES];
    snprintf(parent, sizeof parent, "%s%s", mount, own);
    sweep(parent);
    int length = snprintf(path, path_bytes, "%s/belay-%d-%llu", parent, (int)getpid(),
                          (unsigned long long)guard_now_ns());
    char kill_file[GUARD_CGROUP_BYTES + 32];
    snprintf(kill_file, sizeof kill_file, "%s/cgroup.kill", path);
    if (length < 0 || (size_t)length >= path_bytes || mkdir(path, 0755) != 0) {
        path[0] = '\0';
        return false;
    }
    if (access(kill_file, W_OK) != 0) { /* before Linux 5.14 */
        rmdir(path);
        path[0] = '\0';
        return false;
    }
    return true;
}

bool cgroup_add(const char *path, pid_t pid)
{
    char text[16];
    snprintf(text, sizeof text, "%d", (int)pid);
    return path[0] == '\0' || write_file(path, "cgroup.procs", text);
}

void cgroup_kill(const char *path)
{
    if (path[0] != '\0')
        (void)write_file(path, "cgroup.kill", "1");
}

/* Where a process that was reaped a moment ago still counts as a member, "populated" in
 * cgroup.events is about to change, and the kernel tells those who poll it. */
static void await_change(const char *path)
{
    char events[GUARD_CGROUP_BYTES + 32], text[128];
    snprintf(events, sizeof events, "%s/cgroup.events", path);
    int fd = open(events, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t bytes = read(fd, text, sizeof text - 1);
    text[bytes > 0 ? bytes : 0] = '\0';
    struct pollfd change = {.fd = fd, .events = POLLPRI};
    if (strstr(text, "populated 1"))
        (void)poll(&change, 1, CGROUP_CHANGE_MS);
    close(fd);
}

/* What a belay below CMD left behind when it was killed with the rest. */
static void remove_nested(const char *path, int depth)
{
    DIR *directory = depth > 0 ? opendir(path) : NULL;
    struct dirent *item;
    while (directory && (item = readdir(directory)) != NULL) {
        char nested[GUARD_CGROUP_BYTES + 256];
        if (item->d_type != DT_DIR || item->d_name[0] == '.')
            continue;
        int length = snprintf(nested, sizeof nested, "%s/%s", path, item->d_name);
        if (length > 0 && (size_t)length < sizeof nested && rmdir(nested) != 0)
            remove_nested(nested, depth - 1);
        if (length > 0 && (size_t)length < sizeof nested)
            (void)rmdir(nested);
    }
    if (directory)
        closedir(directory);
}

bool cgroup_remove(const char *path)
{
    if (path[0] == '\0' || rmdir(path) == 0 || errno == ENOENT)
        return true;
    await_change(path);
    if (rmdir(path) == 0)
        return true;
    remove_nested(path, CGROUP_NESTING_MAX);
    return rmdir(path) == 0 || errno == ENOENT;
}
