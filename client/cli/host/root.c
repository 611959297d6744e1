/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of this machine, or of a copy of its /proc and /sys. A copy may come from anybody: links
 * cannot lead out of it, and only regular files are read, up to a bound.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/cli/host/source.h"

enum {
    FILE_BYTES_MAX = 16 << 20, /* /proc/interrupts of a thousand CPUs is the longest there is */
    READ_BYTES = 64 << 10,     /* at once: /proc/sys refuses large ones (ENOMEM) */
    ENTRIES_MAX = 1 << 20,     /* of one directory */
};

struct host_root {
    int fd;
    bool confined; /* not "/": links are followed within */
    char *bytes;
};

static enum host_state state_of(int error)
{
    return error == ENOENT || error == ENOTDIR ? HOST_MISSING
           : error == EACCES || error == EPERM ? HOST_DENIED
                                               : HOST_FAILED;
}

static int open_below(const struct host_root *root, const char *path, int flags)
{
    flags |= flags & O_PATH ? O_CLOEXEC : O_CLOEXEC | O_NOCTTY; /* O_PATH takes few others */
    if (!root->confined)
        return openat(root->fd, path, flags);
    struct open_how how = {.flags = (unsigned)flags, .resolve = RESOLVE_IN_ROOT};
    return (int)syscall(SYS_openat2, root->fd, path, &how, sizeof how);
}

static enum host_state read_file(void *context, const char *path, struct host_text *text)
{
    struct host_root *root = context;
    struct stat about;
    /* Without waiting: of what is no regular file nothing else is done than closing it. */
    int fd = open_below(root, path, O_RDONLY | O_NONBLOCK);
    if (fd < 0)
        return state_of(errno);
    enum host_state state = HOST_KNOWN;
    size_t used = 0;
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode))
        state = HOST_FAILED;
    while (state == HOST_KNOWN) {
        ssize_t count = read(fd, root->bytes + used, READ_BYTES);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            state = state_of(errno);
        else if (count == 0)
            break;
        else if ((used += (size_t)count) == FILE_BYTES_MAX)
            state = HOST_GARBLED;
    }
    (void)close(fd);
    *text = (struct host_text){root->bytes, used};
    return state;
}

static enum host_state read_link(void *context, const char *path, char name[HOST_WORD_BYTES])
{
    struct host_root *root = context;
    char target[HOST_PATH_BYTES];
    int fd = open_below(root, path, O_PATH | O_NOFOLLOW);
    if (fd < 0)
        return state_of(errno);
    ssize_t count = readlinkat(fd, "", target, sizeof target);
    int error = errno;
    (void)close(fd);
    if (count < 0)
        return error == ENOENT || error == EINVAL ? HOST_GARBLED : state_of(error);
    if (count == (ssize_t)sizeof target)
        return HOST_GARBLED;
    target[count] = '\0';
    const char *slash = strrchr(target, '/');
    struct host_word word = host_parse_word(host_text_of(slash ? slash + 1 : target));
    if (word.state == HOST_KNOWN)
        memcpy(name, word.text, sizeof word.text);
    return (enum host_state)word.state;
}

static enum host_state list_directory(void *context, const char *path,
                                      void (*each)(void *taker, const char *name), void *taker)
{
    struct host_root *root = context;
    int fd = open_below(root, path, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
    if (fd < 0)
        return state_of(errno);
    DIR *directory = fdopendir(fd);
    if (!directory) {
        (void)close(fd);
        return HOST_FAILED;
    }
    enum host_state state = HOST_KNOWN;
    struct dirent *entry;
    size_t entries = 0;
    while ((entry = readdir(directory)) != NULL && state == HOST_KNOWN) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            each(taker, entry->d_name);
        if (++entries > ENTRIES_MAX)
            state = HOST_GARBLED;
    }
    (void)closedir(directory);
    return state;
}

struct host_root *host_root_open(const char *path, struct host_source *source)
{
    struct host_root *root = calloc(1, sizeof *root);
    char *bytes = malloc(FILE_BYTES_MAX);
    int fd = root && bytes ? open(path, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd < 0) {
        int error = root && bytes ? errno : ENOMEM;
        free(root);
        free(bytes);
        errno = error;
        return NULL;
    }
    *root = (struct host_root){fd, strcmp(path, "/") != 0, bytes};
    *source = (struct host_source){root, read_file, read_link, list_directory};
    return root;
}

void host_root_close(struct host_root *root)
{
    (void)close(root->fd);
    free(root->bytes);
    free(root);
}
