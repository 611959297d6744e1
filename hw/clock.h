/* SPDX-License-Identifier: Apache-2.0
 *
 * Clocks. Servers measure with CLOCK_MONOTONIC; there is no wall clock in any decision.
 */
#ifndef BELAY_HW_CLOCK_H
#define BELAY_HW_CLOCK_H

#include <stdint.h>

uint64_t clock_monotonic_ns(void);

/* The processor's own counter, for measuring what clock_monotonic_ns() would disturb: TSC, or what
 * the architecture has. Its rate is constant and found by comparing it to the other clock. */
static inline uint64_t clock_cycles(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t count;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(count));
    return count;
#else
    return clock_monotonic_ns();
#endif
}

#endif
