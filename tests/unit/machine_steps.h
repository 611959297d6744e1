/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps that the tests of the lock machine have in common, for Criterion: on one machine, `rig`,
 * which every test starts and stops.
 */
#ifndef BELAY_TESTS_MACHINE_STEPS_H
#define BELAY_TESTS_MACHINE_STEPS_H

#include <criterion/criterion.h>

#include "tests/unit/machine_rig.h"

static struct machine_rig rig; /* each file's own: Criterion runs each test in a process */

static inline void start_with(const struct lock_limits *limits)
{
    rig_init(&rig, limits, true);
}

static inline void start(void)
{
    struct lock_limits limits = rig_limits();
    start_with(&limits);
}

static inline void stop(void)
{
    const char *wrong = lock_machine_verify(rig.machine);
    cr_expect_null(wrong, "%s", wrong);
    rig_free(&rig);
}

static inline struct lock_counts counts(void)
{
    struct lock_counts result;
    lock_machine_counts(rig.machine, &result);
    return result;
}

static inline const struct wire_granted *granted(uint32_t command)
{
    cr_assert_eq(rig_status(&rig, command), WIRE_OK);
    return rig_reply(&rig, command);
}

/* Several sessions' worth of numbers: everything before `number` is acknowledged. */
static inline struct wire_acquire *add_acked(uint64_t session, uint64_t number, uint8_t mode,
                                             const char *name, uint32_t ttl_ms)
{
    struct wire_acquire *item = rig_acquire(&rig, session, number, mode, name, ttl_ms);
    item->request.acked_below = number;
    return item;
}

#endif
