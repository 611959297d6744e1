/* SPDX-License-Identifier: Apache-2.0
 *
 * See hw/cores.h.
 */
#include "hw/cores.h"

#include <errno.h>
#include <sched.h>
#include <unistd.h>

uint32_t cores_available(void)
{
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) == 0)
        return (uint32_t)CPU_COUNT(&mask);
    /* A machine with more cores than the fixed mask holds: the count is all we need. */
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (uint32_t)online : 1;
}

/* Not asked first whether the core is in the mask: those that the kernel was told to isolate, which
 * are the ones to pin to, are in nobody's. A cpuset's bounds hold all the same. */
int cores_pin(uint32_t core)
{
    cpu_set_t mask;
    if (core >= CPU_SETSIZE)
        return -EINVAL;
    CPU_ZERO(&mask);
    CPU_SET(core, &mask);
    return sched_setaffinity(0, sizeof mask, &mask) < 0 ? -errno : 0;
}
