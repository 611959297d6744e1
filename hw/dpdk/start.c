/* SPDX-License-Identifier: Apache-2.0
 *
 * See hw/dpdk/start.h.
 */
#include "hw/dpdk/start.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

bool dpdk_fails(char error[DPDK_ERROR_BYTES], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(error, DPDK_ERROR_BYTES, format, arguments);
    va_end(arguments);
    return false;
}

bool dpdk_is_pci(const char *device)
{
    return strspn(device, "0123456789abcdefABCDEF:.") == strlen(device) &&
           strchr(device, ':') != NULL;
}

/* ---- a socket in the way --------------------------------------------------------------------- */

/* 0: somebody listens there. Does not wait, as it would for one whose queue is full. */
static int ask_socket(const struct sockaddr_un *address)
{
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0)
        return errno;
    int result =
        connect(descriptor, (const struct sockaddr *)address, sizeof *address) == 0 ? 0 : errno;
    (void)close(descriptor);
    return result == EAGAIN ? 0 : result; /* so many are in its queue */
}

static bool remove_left_over(const char *path, char *error)
{
    return unlink(path) == 0 || errno == ENOENT ||
           dpdk_fails(error, "%s is left over and cannot be removed: %s", path, strerror(errno));
}

static bool judge_socket(const struct sockaddr_un *address, char *error)
{
    const char *path = address->sun_path;
    int result = ask_socket(address);
    switch (result) {
    case 0:
        return dpdk_fails(error, "another process listens on %s", path);
    case ECONNREFUSED:
        return remove_left_over(path, error);
    case ENOENT:
        return true; /* it was removed just now */
    case EACCES:
    case EPERM:
        return dpdk_fails(error,
                          "%s is there, and whether a process listens on it is not for this user "
                          "to ask (%s): remove it, or give this user leave to write to it",
                          path, strerror(result));
    case EPROTOTYPE:
        return dpdk_fails(error, "%s is a socket of another kind, not one of net_vhost's", path);
    default:
        return dpdk_fails(error, "%s is there, and whether a process listens on it is unknown: %s",
                          path, strerror(result));
    }
}

bool dpdk_make_way(const char *device, char error[DPDK_ERROR_BYTES])
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat found;
    const char *path = strstr(device, ",iface=");
    if (strncmp(device, "net_vhost", strlen("net_vhost")) != 0 || path == NULL ||
        strstr(device, ",client=1") != NULL)
        return true;
    path += strlen(",iface=");
    size_t length = strcspn(path, ",");
    if (length >= sizeof address.sun_path)
        return dpdk_fails(error, "%s: a socket's path has at most %zu bytes", device,
                          sizeof address.sun_path - 1);
    memcpy(address.sun_path, path, length);
    if (lstat(address.sun_path, &found) != 0)
        return errno == ENOENT || dpdk_fails(error, "no socket can be made at %s: %s",
                                             address.sun_path, strerror(errno));
    if (!S_ISSOCK(found.st_mode))
        return dpdk_fails(error, "%s is in the way of a socket, and is none: choose another path",
                          address.sun_path);
    return judge_socket(&address, error);
}
