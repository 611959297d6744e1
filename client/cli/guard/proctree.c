/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/guard/proctree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <unistd.h>

enum {
    PROCTREE_PIDS_MAX = 4194304, /* PID_MAX_LIMIT of 64-bit Linux */
    PROCTREE_FREEZE_ROUNDS_MAX = 16,
};

int proctree_init(struct proctree *tree)
{
    *tree = (struct proctree){.entries_max = PROCTREE_PIDS_MAX};
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *entries =
        mmap(NULL, tree->entries_max * sizeof *tree->entries, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (entries == MAP_FAILED)
        return -errno;
    void *marks = mmap(NULL, PROCTREE_PIDS_MAX / 8, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (marks == MAP_FAILED) {
        int error = errno;
        munmap(entries, tree->entries_max * sizeof *tree->entries);
        return -error;
    }
    tree->entries = entries;
    tree->marks = marks;
    return 0;
}

/* Reads /proc/PID/stat. The command's name stands in parentheses and may hold anything, further
 * parentheses included: the fields after it are counted from the last one. */
static bool read_stat(pid_t pid, struct proctree_entry *entry)
{
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t bytes = read(fd, text, sizeof text - 1);
    close(fd);
    if (bytes <= 0)
        return false;
    text[bytes] = '\0';
    const char *field = strrchr(text, ')');
    if (!field || field[1] != ' ' || field[2] == '\0')
        return false;
    entry->pid = pid;
    entry->state = field[2];
    /* proc(5): state is field 3, ppid 4, starttime 22. */
    const char *cursor = field + 2;
    for (int number = 3; number < 22; number++) {
        cursor = strchr(cursor, ' ');
        if (!cursor)
            return false;
        cursor++;
        if (number == 3)
            entry->parent = (pid_t)strtol(cursor, NULL, 10);
    }
    entry->start_ticks = strtoull(cursor, NULL, 10);
    return true;
}

char proctree_state_of(pid_t pid)
{
    struct proctree_entry entry;
    return read_stat(pid, &entry) ? entry.state : '\0';
}

static bool is_marked(const struct proctree *tree, pid_t pid)
{
    return pid > 0 && pid < PROCTREE_PIDS_MAX && (tree->marks[pid / 8] >> (pid % 8) & 1);
}

static void set_mark(struct proctree *tree, pid_t pid, bool mark)
{
    if (pid <= 0 || pid >= PROCTREE_PIDS_MAX)
        return;
    uint8_t bit = (uint8_t)(1u << (pid % 8));
    if (mark)
        tree->marks[pid / 8] |= bit;
    else
        tree->marks[pid / 8] &= (uint8_t)~bit;
}

static int read_processes(struct proctree *tree)
{
    tree->entries_count = 0;
    DIR *proc = opendir("/proc");
    if (!proc)
        return -errno;
    struct dirent *item;
    while ((item = readdir(proc)) != NULL && tree->entries_count < tree->entries_max) {
        if (item->d_name[0] < '1' || item->d_name[0] > '9')
            continue;
        pid_t pid = (pid_t)strtol(item->d_name, NULL, 10);
        if (read_stat(pid, &tree->entries[tree->entries_count]))
            tree->entries_count++;
    }
    closedir(proc);
    return 0;
}

/* Marks the descendants of root (root itself too, as the seed). */
static void mark_descendants(struct proctree *tree, pid_t root, pid_t exclude)
{
    set_mark(tree, root, true);
    bool changed = true;
    while (changed) {
        changed = false;
        for (size_t i = 0; i < tree->entries_count; i++) {
            const struct proctree_entry *entry = &tree->entries[i];
            if (entry->pid == exclude || is_marked(tree, entry->pid) ||
                !is_marked(tree, entry->parent))
                continue;
            set_mark(tree, entry->pid, true);
            changed = true;
        }
    }
}

/* Signals exactly the process that was seen: its number may be another's by now. */
static void signal_entry(const struct proctree_entry *entry, int signal_number)
{
    int pidfd = pidfd_open(entry->pid, 0);
    if (pidfd < 0)
        return;
    struct proctree_entry now;
    if (read_stat(entry->pid, &now) && now.start_ticks == entry->start_ticks)
        (void)pidfd_send_signal(pidfd, signal_number, NULL, 0);
    close(pidfd);
}

static bool is_alive(char state)
{
    return state != 'Z' && state != 'X' && state != 'x';
}

/* As proctree_signal(); *running counts those that were neither stopped nor dead. */
static int walk(struct proctree *tree, pid_t root, pid_t exclude, int signal_number, int *running)
{
    int result = read_processes(tree);
    if (result < 0)
        return result;
    mark_descendants(tree, root, exclude);
    int alive = 0;
    *running = 0;
    for (size_t i = 0; i < tree->entries_count; i++) {
        const struct proctree_entry *entry = &tree->entries[i];
        if (entry->pid == root || !is_marked(tree, entry->pid) || !is_alive(entry->state))
            continue;
        alive++;
        if (entry->state != 'T')
            *running += 1;
        if (signal_number > 0)
            signal_entry(entry, signal_number);
    }
    set_mark(tree, root, false);
    for (size_t i = 0; i < tree->entries_count; i++)
        set_mark(tree, tree->entries[i].pid, false);
    return alive;
}

int proctree_signal(struct proctree *tree, pid_t root, pid_t exclude, int signal_number)
{
    int running;
    return walk(tree, root, exclude, signal_number, &running);
}

int proctree_kill(struct proctree *tree, pid_t root, pid_t exclude, unsigned round)
{
    int alive_before = -1;
    for (int freeze = 0; round > 0 && freeze < PROCTREE_FREEZE_ROUNDS_MAX; freeze++) {
        int running;
        int alive = walk(tree, root, exclude, SIGSTOP, &running);
        if (alive <= 0)
            return alive;
        if (running == 0 && alive == alive_before)
            break;
        alive_before = alive;
    }
    return proctree_signal(tree, root, exclude, SIGKILL);
}
