/* SPDX-License-Identifier: Apache-2.0
 *
 * Pinning, also to a core that the thread's mask does not have: as isolated ones are not in it.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>

#include "hw/cores.h"

static uint32_t first_core(const cpu_set_t *mask)
{
    uint32_t core = 0;
    while (!CPU_ISSET(core, mask))
        core++;
    return core;
}

Test(cores, pins_to_a_core_outside_the_mask)
{
    cpu_set_t whole, narrow;
    cr_assert_eq(sched_getaffinity(0, sizeof whole, &whole), 0);
    cr_assert_eq(cores_available(), (uint32_t)CPU_COUNT(&whole));
    uint32_t first = first_core(&whole);
    cr_assert_eq(cores_pin(first), 0);
    cr_assert_eq(cores_available(), 1);
    CPU_CLR(first, &whole);
    if (CPU_COUNT(&whole) == 0)
        return; /* a machine of one core has no other */
    uint32_t other = first_core(&whole);
    cr_assert_eq(cores_pin(other), 0);
    cr_assert_eq(sched_getaffinity(0, sizeof narrow, &narrow), 0);
    cr_assert(CPU_COUNT(&narrow) == 1 && CPU_ISSET(other, &narrow));
}

Test(cores, a_core_that_is_not_there)
{
    cr_assert_eq(cores_pin(CPU_SETSIZE), -EINVAL);
    cr_assert_eq(cores_pin(CPU_SETSIZE - 1), -EINVAL);
}
