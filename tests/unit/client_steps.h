/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps that the tests of the client's core have in common, for Criterion.
 */
#ifndef BELAY_TESTS_CLIENT_STEPS_H
#define BELAY_TESTS_CLIENT_STEPS_H

#include <criterion/criterion.h>

#include "client_fake.h"

/* The completion of `user`, which must come within `ms` and end with `expected`. */
#define ended_with(f, user, ms, expected) client_ended_with(f, user, ms, expected, __LINE__)

static inline const struct fake_completion *
client_ended_with(struct fake *f, uint64_t user, uint64_t ms, belay_status expected, int line)
{
    const struct fake_completion *done = fake_wait(f, user, ms);

    cr_assert_not_null(done, "line %d: #%d has not ended", line, (int)user);
    cr_assert_eq(done->status, expected, "line %d: #%d ended with %d", line, (int)user,
                 (int)done->status);
    return done;
}

/* Asks and sends; does not wait for the answer. Gives the request. */
static inline core_ref ask_as(struct fake *f, uint32_t client, struct core_acquire acquire,
                              uint64_t user)
{
    core_ref request;

    cr_assert_eq(core_acquire(f->core, f->now_ns, client, &acquire, user, &request), BELAY_OK);
    core_flush(f->core);
    return request;
}

static inline core_ref ask(struct fake *f, const char *name, uint32_t ttl_ms, uint64_t wait_ms,
                           uint64_t user)
{
    return ask_as(f, 0, fake_lock(name, ttl_ms, wait_ms), user);
}

/* Releases and sends; does not wait for the answer. */
static inline void let_go(struct fake *f, core_ref lock, uint64_t user)
{
    cr_assert_eq(core_release(f->core, f->now_ns, lock, user, NULL), BELAY_OK);
    core_flush(f->core);
}

static inline void release(struct fake *f, core_ref lock, uint64_t user)
{
    let_go(f, lock, user);
    ended_with(f, user, 4000, BELAY_OK);
}

static inline struct core_counts counts_of(const struct fake *f)
{
    struct core_counts counts;

    core_counts(f->core, &counts);
    return counts;
}

static inline struct core_lock_info info_of(const struct fake *f, core_ref lock)
{
    struct core_lock_info info = {.token = 0};

    cr_assert(core_lock_info(f->core, lock, &info));
    return info;
}

/* From now on no node answers. */
static inline void silence(struct fake *f)
{
    for (int node = 0; node < FAKE_NODES; node++)
        f->up[node] = false;
}

#endif
