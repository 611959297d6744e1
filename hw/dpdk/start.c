/* SPDX-License-Identifier: Apache-2.0
 *
 * See hw/dpdk/start.h.
 */
#include "hw/dpdk/start.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
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

const char *dpdk_pci_domain(const char *device)
{
    return strchr(device, ':') == strrchr(device, ':') ? "0000:" : "";
}

/* ---- arguments ------------------------------------------------------------------------------- */

static void add(struct dpdk_arguments *arguments, const char *word)
{
    arguments->words[arguments->count++] = (char *)(uintptr_t)word;
}

/* All on one node, which "-m" would not do: it goes by the node of the calling thread's core. Only
 * hugepages can be asked for by node. */
static void add_memory(struct dpdk_arguments *arguments, uint32_t mib, int numa_node)
{
    size_t at = 0;
    add(arguments, numa_node >= 0 ? "--socket-mem" : "-m");
    for (int node = 0; node < numa_node; node++) {
        memcpy(arguments->memory + at, "0,", 2);
        at += 2;
    }
    (void)snprintf(arguments->memory + at, sizeof arguments->memory - at, "%u", mib);
    add(arguments, arguments->memory);
}

/* The environment layer as it is wanted here: no files of its own anywhere, no other processes, no
 * thread but ours and its own for interrupts. */
void dpdk_arguments_make(struct dpdk_arguments *arguments, const struct dpdk_options *options,
                         uint32_t memory_mib, int core, int numa_node)
{
    arguments->count = 0;
    add(arguments, "belay");
    add(arguments, "--no-telemetry");
    add(arguments, "--log-level=*:error");
    (void)snprintf(arguments->core, sizeof arguments->core, "%d", core);
    add(arguments, "-l"); /* no threads of DPDK's on other cores */
    add(arguments, arguments->core);
    add_memory(arguments, memory_mib, options->hugepages ? numa_node : -1);
    add(arguments, "--single-file-segments"); /* few descriptors to share with virtio-user */
    if (options->hugepages) {
        add(arguments, "--in-memory");
    } else {
        add(arguments, "--no-huge");
        add(arguments, "--no-shconf");
    }
    if (dpdk_is_pci(options->device)) {
        add(arguments, "-a");
        add(arguments, options->device);
    } else {
        add(arguments, "--no-pci");
    }
    arguments->words[arguments->count] = NULL;
}

/* ---- NUMA ------------------------------------------------------------------------------------ */

__attribute__((format(printf, 1, 2))) static bool there_is(const char *format, ...)
{
    char path[PATH_MAX];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(path, sizeof path, format, arguments);
    va_end(arguments);
    return length < (int)sizeof path && access(path, F_OK) == 0;
}

static bool has_several_nodes(const char *sysfs)
{
    int count = 0;
    for (int node = 0; node < DPDK_NUMA_NODES_MAX; node++)
        count += there_is("%s/devices/system/node/node%d", sysfs, node);
    return count > 1;
}

/* -1: the firmware does not say. */
static int node_of_device(const char *sysfs, const char *device)
{
    char path[PATH_MAX];
    int node = -1;
    int length = snprintf(path, sizeof path, "%s/bus/pci/devices/%s%s/numa_node", sysfs,
                          dpdk_pci_domain(device), device);
    FILE *file = length < (int)sizeof path ? fopen(path, "re") : NULL;
    char text[16] = "";
    if (file == NULL)
        return -1;
    if (fgets(text, sizeof text, file) != NULL)
        node = (int)strtol(text, NULL, 10);
    (void)fclose(file);
    return node < DPDK_NUMA_NODES_MAX ? node : -1;
}

static int node_of_core(const char *sysfs, uint32_t core)
{
    for (int node = 0; node < DPDK_NUMA_NODES_MAX; node++) {
        if (there_is("%s/devices/system/cpu/cpu%u/node%d", sysfs, core, node))
            return node;
    }
    return -1;
}

int dpdk_numa_node(const char *sysfs, const struct dpdk_options *options)
{
    int node = -1;
    if (!has_several_nodes(sysfs))
        return -1;
    if (dpdk_is_pci(options->device))
        node = node_of_device(sysfs, options->device);
    if (node >= 0 || !options->pinned)
        return node;
    node = node_of_core(sysfs, options->first_core);
    for (uint32_t i = 1; i < options->queues; i++) {
        if (node_of_core(sysfs, options->first_core + i) != node)
            return -1;
    }
    return node;
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
