/* SPDX-License-Identifier: Apache-2.0
 *
 * What acquiring, releasing and converting do to locks.
 */
#include "tests/lincheck/lock_state.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

size_t lock_state_bytes(const struct lock_state *lock)
{
    return offsetof(struct lock_state, holders) + lock->holders_count * sizeof(struct holder);
}

/* Where the owner is, or where it would have to be put. */
static uint32_t find(const struct lock_state *lock, uint32_t owner, bool *found)
{
    uint32_t at = 0;
    while (at < lock->holders_count && lock->holders[at].owner < owner)
        at++;
    *found = at < lock->holders_count && lock->holders[at].owner == owner;
    return at;
}

static int add(struct lock_state *lock, uint32_t owner, uint32_t count)
{
    bool found;
    uint32_t at = find(lock, owner, &found);
    if (!found) {
        if (lock->holders_count == HOLDERS_MAX)
            return -E2BIG;
        memmove(&lock->holders[at + 1], &lock->holders[at],
                (lock->holders_count - at) * sizeof lock->holders[0]);
        lock->holders[at] = (struct holder){owner, 0};
        lock->holders_count++;
    }
    if (__builtin_add_overflow(lock->holders[at].count, count, &lock->holders[at].count))
        return -E2BIG;
    lock->total += count;
    return 1;
}

static int take_away(struct lock_state *lock, uint32_t owner, uint32_t count)
{
    bool found;
    uint32_t at = find(lock, owner, &found);
    if (!found || lock->holders[at].count < count)
        return 0;
    lock->holders[at].count -= count;
    lock->total -= count;
    if (lock->holders[at].count == 0) {
        lock->holders_count--;
        memmove(&lock->holders[at], &lock->holders[at + 1],
                (lock->holders_count - at) * sizeof lock->holders[0]);
    }
    if (lock->holders_count == 0)
        lock->exclusive = 0;
    return 1;
}

/* A grant's token is higher than every one before. One that nobody was told of used up at least the
 * next number; assuming the least excludes nothing that could have been. */
static int grant_token(struct lock_state *lock, const struct history_op *op)
{
    if (op->token_known ? lock->granted && op->token <= lock->token : lock->token == UINT64_MAX)
        return 0;
    lock->token = op->token_known ? op->token : lock->token + lock->granted;
    lock->token_open = !op->token_known;
    lock->granted = 1;
    return 1;
}

static int acquire_fenced(struct lock_state *lock, const struct history_op *op)
{
    if (lock->total > 0 || grant_token(lock, op) == 0)
        return 0;
    lock->exclusive = 1;
    return add(lock, op->owner, 1);
}

/* A release that names a token is of the grant that had it. */
static int release_fenced(struct lock_state *lock, const struct history_op *op)
{
    if (op->token_known && lock->total > 0) {
        if (op->token < lock->token || (op->token > lock->token && !lock->token_open))
            return 0;
        lock->token = op->token;
        lock->token_open = 0;
    }
    return take_away(lock, op->owner, 1);
}

static int step_reentrant(const struct model *model, struct lock_state *lock,
                          const struct history_op *op)
{
    bool held_by_owner;
    uint32_t at = find(lock, op->owner, &held_by_owner);
    if (lock->total > 0 && !held_by_owner)
        return 0;
    if (op->kind == OP_RELEASE)
        return take_away(lock, op->owner, 1);
    if (held_by_owner && model->holds_max > 0 && lock->holders[at].count >= model->holds_max)
        return 0;
    return add(lock, op->owner, 1);
}

static int convert_shared(struct lock_state *lock, const struct history_op *op)
{
    bool found;
    uint32_t at = find(lock, op->owner, &found);
    bool up = op->mode == OP_EXCLUSIVE;
    if (!found || lock->exclusive == (up ? 1u : 0u))
        return 0;
    if (up && (lock->holders_count > 1 || lock->holders[at].count > 1))
        return 0;
    if (op->token_known && grant_token(lock, op) == 0)
        return 0;
    lock->exclusive = up;
    return 1;
}

/* Tokens of shared locks are optional: grants that name one name a higher one than those before. */
static int step_shared(struct lock_state *lock, const struct history_op *op)
{
    if (op->kind == OP_RELEASE)
        return take_away(lock, op->owner, 1);
    if (op->kind == OP_CONVERT)
        return convert_shared(lock, op);
    if (lock->exclusive || (op->mode == OP_EXCLUSIVE && lock->total > 0))
        return 0;
    if (op->token_known && grant_token(lock, op) == 0)
        return 0;
    lock->exclusive = op->mode == OP_EXCLUSIVE;
    return add(lock, op->owner, 1);
}

static int step_semaphore(const struct model *model, struct lock_state *lock,
                          const struct history_op *op)
{
    if (op->kind == OP_RELEASE)
        return take_away(lock, op->owner, op->permits);
    if (lock->total + op->permits > model->permits_max)
        return 0;
    return add(lock, op->owner, op->permits);
}

/* Whether a query's answer describes this state: how many hold it, in which mode, and, where only
 * one can and its token is said, under which. A query changes nothing, so it does not settle a
 * token that nobody was told of. */
static int step_query(const struct model *model, const struct lock_state *lock,
                      const struct history_op *op)
{
    if (op->holders != lock->holders_count)
        return 0;
    if (model->kind == MODEL_SHARED_LOCK && op->mode != OP_MODE_NONE && op->holders > 0 &&
        lock->exclusive != (op->mode == OP_EXCLUSIVE ? 1u : 0u))
        return 0;
    if (model->kind != MODEL_FENCED_MUTEX || !op->token_known || op->holders == 0)
        return 1;
    return lock->token_open ? op->token >= lock->token : op->token == lock->token;
}

int lock_step(const struct model *model, struct lock_state *lock, const struct history_op *op)
{
    if (op->kind == OP_READ)
        return step_query(model, lock, op);
    bool acquire = op->kind == OP_ACQUIRE;
    switch (model->kind) {
    case MODEL_MUTEX:
        if (!acquire)
            return take_away(lock, op->owner, 1);
        return lock->total > 0 ? 0 : add(lock, op->owner, 1);
    case MODEL_REENTRANT_MUTEX:
        return step_reentrant(model, lock, op);
    case MODEL_FENCED_MUTEX:
        return acquire ? acquire_fenced(lock, op) : release_fenced(lock, op);
    case MODEL_SHARED_LOCK:
        return step_shared(lock, op);
    case MODEL_SEMAPHORE:
        return step_semaphore(model, lock, op);
    default:
        return 0;
    }
}
