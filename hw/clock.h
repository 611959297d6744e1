/* SPDX-License-Identifier: Apache-2.0
 *
 * Clocks. Servers measure with CLOCK_MONOTONIC; there is no wall clock in any decision.
 */
#ifndef BELAY_HW_CLOCK_H
#define BELAY_HW_CLOCK_H

#include <stdint.h>

uint64_t clock_monotonic_ns(void);

#endif
