/* SPDX-License-Identifier: Apache-2.0
 *
 * See hw/clock.h.
 */
#include "hw/clock.h"

#include <time.h>

uint64_t clock_monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}
