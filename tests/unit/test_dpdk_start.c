/* SPDX-License-Identifier: Apache-2.0
 *
 * What comes before DPDK's start: whose socket is in the way.
 */
#include <criterion/criterion.h>
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
