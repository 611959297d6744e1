/* SPDX-License-Identifier: Apache-2.0
 *
 * What comes before DPDK's start: whose socket is in the way, where memory shall be, and what DPDK
 * is told.
 */
#include <criterion/criterion.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "hw/dpdk/start.h"

enum { PATH_BYTES = 100 };

static void new_directory(char path[PATH_BYTES])
{
    (void)snprintf(path, PATH_BYTES, "/tmp/belay-start-XXXXXX");
    cr_assert_not_null(mkdtemp(path));
    cr_assert_eq(chmod(path, 0777), 0); /* for the test of somebody who may not ask */
}

/* ---- a socket in the way --------------------------------------------------------------------- */

static int bind_socket(const char *path, int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int descriptor = socket(AF_UNIX, type, 0);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    cr_assert_eq(bind(descriptor, (struct sockaddr *)&address, sizeof address), 0, "%s", path);
    return descriptor;
}

static bool is_there(const char *path)
{
    struct stat found;
    return lstat(path, &found) == 0;
}

static void vhost_in(char path[PATH_BYTES], char device[2 * PATH_BYTES])
{
    char directory[PATH_BYTES];
    new_directory(directory);
    (void)snprintf(path, PATH_BYTES, "%.80s/vhost", directory);
    (void)snprintf(device, (size_t)2 * PATH_BYTES, "net_vhost0,iface=%s,queues=2", path);
}

static void remove_all(const char *path)
{
    char directory[PATH_BYTES];
    (void)snprintf(directory, sizeof directory, "%s", path);
    *strrchr(directory, '/') = '\0';
    (void)unlink(path);
    cr_assert_eq(rmdir(directory), 0);
}

/* Refused with this text after the path, and what is there stays. */
static void refused(const char *path, const char *device, const char *text)
{
    char error[DPDK_ERROR_BYTES] = "";
    cr_assert(!dpdk_make_way(device, error));
    cr_assert_not_null(strstr(error, path), "no %s in: %s", path, error);
    cr_assert_not_null(strstr(error, text), "not \"%s\" but: %s", text, error);
    cr_assert(is_there(path), "it has been removed");
}

Test(dpdk_start, nothing_in_the_way)
{
    char path[PATH_BYTES], device[2 * PATH_BYTES], error[DPDK_ERROR_BYTES] = "";
    vhost_in(path, device);
    cr_assert(dpdk_make_way(device, error), "%s", error);
    cr_assert(dpdk_make_way("net_null0", error) && dpdk_make_way("0000:3b:00.0", error));
    remove_all(path);
}

Test(dpdk_start, a_socket_that_was_left_is_removed)
{
    char path[PATH_BYTES], device[2 * PATH_BYTES], error[DPDK_ERROR_BYTES] = "";
    vhost_in(path, device);
    (void)close(bind_socket(path, SOCK_STREAM));
    cr_assert(dpdk_make_way(device, error), "%s", error);
    cr_assert(!is_there(path));
    remove_all(path);
}

Test(dpdk_start, a_socket_that_another_process_makes_is_not_ours_to_remove)
{
    char path[PATH_BYTES], device[2 * PATH_BYTES], error[DPDK_ERROR_BYTES] = "";
    vhost_in(path, device);
    (void)close(bind_socket(path, SOCK_STREAM));
    (void)snprintf(device, sizeof device, "net_vhost0,iface=%s,client=1", path);
    cr_assert(dpdk_make_way(device, error), "%s", error);
    cr_assert(is_there(path));
    remove_all(path);
}

Test(dpdk_start, a_socket_with_a_listener)
{
    char path[PATH_BYTES], device[2 * PATH_BYTES];
    vhost_in(path, device);
    int listener = bind_socket(path, SOCK_STREAM);
    cr_assert_eq(listen(listener, 0), 0);
    refused(path, device, "another process listens");
    /* And when its queue is full, without waiting for a place in it. */
    refused(path, device, "another process listens");
    refused(path, device, "another process listens");
    (void)close(listener);
    remove_all(path);
}

Test(dpdk_start, a_socket_of_another_kind)
{
    char path[PATH_BYTES], device[2 * PATH_BYTES];
    vhost_in(path, device);
    int other = bind_socket(path, SOCK_DGRAM);
    refused(path, device, "of another kind");
    (void)close(other);
    remove_all(path);
}

Test(dpdk_start, a_file_is_left_alone)
{
    char path[PATH_BYTES], device[2 * PATH_BYTES], text[8] = "";
    vhost_in(path, device);
    FILE *file = fopen(path, "w");
    cr_assert(file != NULL && fputs("kept", file) >= 0 && fclose(file) == 0);
    refused(path, device, "is none");
    file = fopen(path, "r");
    cr_assert(file != NULL && fgets(text, sizeof text, file) != NULL && fclose(file) == 0);
    cr_assert_str_eq(text, "kept");
    remove_all(path);
}

Test(dpdk_start, a_socket_that_may_not_be_asked)
{
    char path[PATH_BYTES], device[2 * PATH_BYTES];
    vhost_in(path, device);
    int listener = bind_socket(path, SOCK_STREAM);
    cr_assert(listen(listener, 1) == 0 && chmod(path, 0) == 0);
    uid_t user = geteuid();
    if (user == 0)
        cr_assert_eq(seteuid(65534), 0); /* root may do anything */
    refused(path, device, "not for this user to ask (Permission denied)");
    cr_assert_eq(seteuid(user), 0);
    (void)close(listener);
    remove_all(path);
}

Test(dpdk_start, a_path_through_a_file)
{
    char path[PATH_BYTES], device[2 * PATH_BYTES], error[DPDK_ERROR_BYTES] = "";
    vhost_in(path, device);
    (void)close(bind_socket(path, SOCK_STREAM));
    (void)snprintf(device, sizeof device, "net_vhost0,iface=%s/below", path);
    cr_assert(!dpdk_make_way(device, error));
    cr_assert_not_null(strstr(error, "Not a directory"), "%s", error);
    remove_all(path);
}

Test(dpdk_start, a_path_that_is_too_long)
{
    char device[200] = "net_vhost0,iface=/", error[DPDK_ERROR_BYTES] = "";
    memset(device + strlen(device), 'x', 120);
    cr_assert(!dpdk_make_way(device, error));
    cr_assert_not_null(strstr(error, "at most 107 bytes"), "%s", error);
}

/* ---- NUMA ------------------------------------------------------------------------------------ */

/* With all directories above it. */
static void make_directory(const char *root, const char *format, int number, int other)
{
    char path[2 * PATH_BYTES];
    int at = snprintf(path, sizeof path, "%s/", root);
    (void)snprintf(path + at, sizeof path - (size_t)at, format, number, other);
    for (char *slash = strchr(path + at, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    cr_assert(mkdir(path, 0700) == 0, "%s", path);
}

static void make_card(const char *root, const char *address, const char *node)
{
    char path[2 * PATH_BYTES];
    (void)snprintf(path, sizeof path, "bus/pci/devices/%s", address);
    make_directory(root, path, 0, 0);
    (void)snprintf(path, sizeof path, "%s/bus/pci/devices/%s/numa_node", root, address);
    FILE *file = fopen(path, "w");
    cr_assert(file != NULL && fputs(node, file) >= 0 && fclose(file) == 0, "%s", path);
}

/* A directory as the kernel's /sys: so many nodes of two cores each, and two cards. */
static void make_sysfs(char root[PATH_BYTES], int nodes)
{
    new_directory(root);
    make_card(root, "0000:3b:00.0", "1\n");
    make_card(root, "0001:02:00.1", "-1\n");
    for (int node = 0; node < nodes; node++)
        make_directory(root, "devices/system/node/node%d", node, 0);
    for (int core = 0; core < 2 * nodes; core++)
        make_directory(root, "devices/system/cpu/cpu%d/node%d", core, core / 2);
}

static int remove_one(const char *path, const struct stat *found, int kind, struct FTW *place)
{
    (void)found, (void)kind, (void)place;
    return remove(path);
}

static void remove_sysfs(const char *root)
{
    cr_assert_eq(nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static int node_for(const char *root, const char *device, int first_core, uint16_t queues)
{
    struct dpdk_options options = {.device = device,
                                   .queues = queues,
                                   .pinned = first_core >= 0,
                                   .first_core = first_core >= 0 ? (uint32_t)first_core : 0};
    return dpdk_numa_node(root, &options);
}

Test(dpdk_start, memory_is_near_the_device_or_the_cores)
{
    char root[PATH_BYTES];
    make_sysfs(root, 3);
    cr_assert_eq(node_for(root, "0000:3b:00.0", -1, 1), 1, "the device's");
    cr_assert_eq(node_for(root, "3b:00.0", -1, 1), 1, "without a domain");
    cr_assert_eq(node_for(root, "0000:3b:00.0", 4, 1), 1, "the device is more than the cores");
    cr_assert_eq(node_for(root, "0001:02:00.1", -1, 1), -1, "the firmware does not say");
    cr_assert_eq(node_for(root, "0001:02:00.1", 4, 2), 2, "then the cores do");
    cr_assert_eq(node_for(root, "net_vhost0,iface=/x", 2, 2), 1, "a device of no place");
    cr_assert_eq(node_for(root, "net_vhost0,iface=/x", 3, 2), -1, "cores of two nodes");
    cr_assert_eq(node_for(root, "net_vhost0,iface=/x", 5, 2), -1, "no such core");
    cr_assert_eq(node_for(root, "net_vhost0,iface=/x", -1, 2), -1, "not pinned");
    cr_assert_eq(node_for(root, "0000:99:00.0", -1, 1), -1, "no such device");
    remove_sysfs(root);
}

Test(dpdk_start, one_node_is_no_choice)
{
    char root[PATH_BYTES];
    make_sysfs(root, 1);
    cr_assert_eq(node_for(root, "0000:3b:00.0", 0, 1), -1);
    cr_assert_eq(node_for(root, "net_vhost0,iface=/x", 0, 1), -1);
    remove_sysfs(root);
}

/* ---- arguments ------------------------------------------------------------------------------- */

static void told(const struct dpdk_options *options, int numa_node, const char *expected)
{
    struct dpdk_arguments arguments;
    char text[512] = "";
    dpdk_arguments_make(&arguments, options, 100, 3, numa_node);
    for (int i = 0; i < arguments.count; i++) {
        size_t at = strlen(text);
        (void)snprintf(text + at, sizeof text - at, "%s%s", i > 0 ? " " : "", arguments.words[i]);
    }
    cr_assert_null(arguments.words[arguments.count]);
    cr_assert_str_eq(text, expected);
}

Test(dpdk_start, what_dpdk_is_told)
{
    struct dpdk_options options = {.device = "0000:3b:00.0", .hugepages = true};
    told(&options, -1,
         "belay --no-telemetry --log-level=*:error -l 3 -m 100 --single-file-segments --in-memory "
         "-a 0000:3b:00.0");
    told(&options, 0,
         "belay --no-telemetry --log-level=*:error -l 3 --socket-mem 100 --single-file-segments "
         "--in-memory -a 0000:3b:00.0");
    told(&options, 2,
         "belay --no-telemetry --log-level=*:error -l 3 --socket-mem 0,0,100 "
         "--single-file-segments --in-memory -a 0000:3b:00.0");
    options = (struct dpdk_options){.device = "net_null0"};
    told(&options, 2, /* ordinary memory cannot be asked for by node */
         "belay --no-telemetry --log-level=*:error -l 3 -m 100 --single-file-segments --no-huge "
         "--no-shconf --no-pci");
}

Test(dpdk_start, the_last_node_fits)
{
    struct dpdk_options options = {.device = "0000:3b:00.0", .hugepages = true};
    struct dpdk_arguments arguments;
    dpdk_arguments_make(&arguments, &options, UINT32_MAX, 3, DPDK_NUMA_NODES_MAX - 1);
    cr_assert_str_eq(strrchr(arguments.memory, ','), ",4294967295");
    cr_assert_eq(strlen(arguments.memory), 2 * (DPDK_NUMA_NODES_MAX - 1) + 10);
}
