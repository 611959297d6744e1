/* SPDX-License-Identifier: Apache-2.0
 *
 * A control group (cgroup v2) of its own for CMD's tree, where this process may make one: as root,
 * or in a delegated subtree. cgroup.kill then ends the whole tree in one write that no fork can
 * outrun. Without one, proctree.h does the work alone.
 */
#ifndef BELAY_CLI_GUARD_CGROUP_H
#define BELAY_CLI_GUARD_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Makes a group below this process's own; its directory goes into path. False: there is none. */
bool cgroup_make(char *path, size_t path_bytes);

/* All of these do nothing if path is empty. */
bool cgroup_add(const char *path, pid_t pid);
void cgroup_kill(const char *path);
/* False while processes are left in it. */
bool cgroup_remove(const char *path);

#endif
