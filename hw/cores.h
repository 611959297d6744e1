/* SPDX-License-Identifier: Apache-2.0
 *
 * Cores: how many this process may use, and pinning a thread to one.
 */
#ifndef BELAY_HW_CORES_H
#define BELAY_HW_CORES_H

#include <stdint.h>

/* Cores in this process' affinity mask. */
uint32_t cores_available(void);
/* Pins the calling thread, be the core within its mask or isolated. 0 or negative errno (-EINVAL:
 * no such core, or not in this process' cpuset). */
int cores_pin(uint32_t core);

#endif
