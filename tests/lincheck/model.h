/* SPDX-License-Identifier: Apache-2.0
 *
 * Sequential specifications: what each operation does to a state, and when it cannot have been.
 * A state is a reference into the history's table of texts, so that equal states are equal numbers.
 */
#ifndef TESTS_LINCHECK_MODEL_H
#define TESTS_LINCHECK_MODEL_H

#include "tests/lincheck/history.h"

struct model {
    enum model_kind kind;
    uint32_t permits_max; /* semaphore */
    uint32_t holds_max;   /* reentrant mutex: how often one owner may hold it; 0: any number */
    struct history *history;
    uint32_t initial;      /* the state before the first operation */
    bool too_many_holders; /* met a state that is not representable; steps returned -E2BIG */
    uint8_t *scratch;      /* a state being made */
    size_t scratch_capacity;
};

/* initial_text: a register's first value in EDN, or NULL for nil. 0, -EINVAL, -ENOMEM. */
int model_init(struct model *model, enum model_kind kind, struct history *history,
               const char *initial_text);
void model_free(struct model *model);

/* 1: possible, *next is the state afterwards; 0: impossible in this state; -ENOMEM, -E2BIG.
 * An operation without an answer steps as if it had succeeded. */
int model_step(struct model *model, uint32_t state, const struct history_op *op, uint32_t *next);

/* True if the operation changes no state, whichever it is possible in. */
bool model_is_pure(const struct history_op *op);

/* A state and an operation in words; cut to what fits. */
void model_print_state(const struct model *model, uint32_t state, char *text, size_t text_bytes);
void model_print_op(const struct model *model, const struct history_op *op, char *text,
                    size_t text_bytes);

#endif
