/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a lock of any kind. Private to the models.
 */
#ifndef TESTS_LINCHECK_LOCK_STATE_H
#define TESTS_LINCHECK_LOCK_STATE_H

#include "tests/lincheck/model.h"

enum { HOLDERS_MAX = 1024 };

struct holder {
    uint32_t owner;
    uint32_t count; /* at least 1; entries of a mutex, shared holds, permits */
};

struct lock_state {
    uint64_t token;      /* of the last grant that told or must have had one; 0: none yet */
    uint32_t token_open; /* 1: the last grant's token is not known, it is at least `token` */
    uint32_t exclusive;  /* 1: the one holder is exclusive */
    uint64_t total;      /* sum of the holders' counts */
    uint32_t holders_count;
    uint32_t granted; /* 1: `token` is meaningful. No padding: states are compared as bytes */
    struct holder holders[HOLDERS_MAX]; /* sorted by owner, no owner twice */
};

/* 1: done, 0: impossible, -E2BIG. */
int lock_step(const struct model *model, struct lock_state *lock, const struct history_op *op);

size_t lock_state_bytes(const struct lock_state *lock);

#endif
