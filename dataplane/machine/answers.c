/* SPDX-License-Identifier: Apache-2.0
 *
 * The window of answers: for each session, what was answered to the numbers it has not
 * acknowledged.
 *
 * It is what makes a retried request one request, also at another leader: the deciding duplicate
 * check is here, at apply, from replicated state alone. It moves only by acknowledgements inside
 * log entries, so every replica agrees on which numbers are new.
 *
 * A waiting acquire must not hold the window back for as long as it waits, or its session would run
 * out of numbers, keepalives first. So an acknowledgement may pass over it: its answer then leaves
 * the window and lives on with the waiter, found by number through it. When the wait ends the
 * answer goes; from then on a retry is told what the session holds (reply_passed).
 */
#include "dataplane/machine/machine.h"

enum wire_status window_check(const struct lock_machine *machine,
                              const struct session_record *record, uint64_t number)
{
    if (number < record->acked_below) {
        return WIRE_STALE_REQUEST;
    }
    if (number - record->acked_below >= machine->state.limits.window) {
        return WIRE_WINDOW_FULL;
    }
    return WIRE_OK;
}

uint32_t answer_create(struct lock_machine *machine, uint32_t session, uint64_t number, uint8_t op)
{
    uint32_t answer = slab_take(&machine->slabs[SLAB_ANSWERS]);
    assert(answer != NONE);
    struct answer_record *record = answer_change(machine, answer);
    *record = (struct answer_record){.number = number, .session = session, .op = op};
    uint32_t *cell = window_cell(machine, session, number);
    assert(*cell == NONE);
    *cell = answer;
    session_change(machine, session)->answers++;
    return answer;
}

void answer_free(struct lock_machine *machine, uint32_t answer)
{
    const struct answer_record *record = answer_at(machine, answer);
    assert(record->status != WIRE_QUEUED);
    if (record->status == WIRE_BUSY) {
        extra_free(machine, record->busy.extra);
    }
    uint32_t *cell = window_cell(machine, record->session, record->number);
    if (cell_answer(*cell) ==
        answer) { /* one that was passed over has left its cell to another number */
        *cell = NONE;
    }
    session_change(machine, record->session)->answers--;
    slab_free(&machine->slabs[SLAB_ANSWERS], answer);
}

void answers_forget(struct lock_machine *machine, uint32_t session, uint64_t below)
{
    struct session_record *record = session_change(machine, session);
    /* Numbers further on than the window is wide have no answers. */
    uint64_t cells = (uint64_t)machine->window_mask + 1;
    uint64_t span = below - record->acked_below;
    uint64_t number = record->acked_below;
    for (uint64_t left = span < cells ? span : cells; left > 0; left--, number++) {
        uint32_t *cell = window_cell(machine, session, number);
        if (*cell == NONE) {
            continue;
        }
        if ((*cell & CELL_LOOK) == 0) {
            slab_free(&machine->slabs[SLAB_ANSWERS], *cell);
            record->answers--;
            *cell = NONE;
        } else if (answer_at(machine, cell_answer(*cell))->status == WIRE_QUEUED) {
            *cell = NONE; /* passed over */
        } else {
            answer_free(machine, cell_answer(*cell));
        }
    }
    record->acked_below = below;
}

void answer_ended(struct lock_machine *machine, uint32_t answer)
{
    if (answer_is_passed(machine, answer_at(machine, answer))) {
        answer_free(machine, answer);
    }
}

uint32_t answer_find_passed(const struct lock_machine *machine, uint32_t session, uint64_t number)
{
    uint32_t waiter = session_at(machine, session)->waiter;
    for (uint32_t steps = 0; steps < HELD_SEARCH_MAX && waiter != NONE; steps++) {
        const struct waiter_record *record = waiter_at(machine, waiter);
        if (answer_at(machine, record->answer)->number == number) {
            return record->answer;
        }
        waiter = record->session_next;
    }
    return NONE;
}

void answer_problem(struct answer_record *answer, enum wire_status status, enum wire_what what,
                    uint64_t limit)
{
    answer->status = (uint8_t)status;
    answer->problem.what = what;
    answer->problem.limit = limit;
}

void answer_granted(const struct lock_machine *machine, struct answer_record *answer,
                    uint32_t lease, uint8_t flags)
{
    const struct lease_record *record = lease_at(machine, lease);
    answer->status = WIRE_OK;
    answer->flags = flags;
    answer->mode = until_has(record->until, LEASE_EXCLUSIVE) ? WIRE_EXCLUSIVE : WIRE_SHARED;
    answer->granted.secret = record->secret;
    answer->granted.token = record->token;
    answer->granted.lease = lease;
    answer->granted.ttl_ms = record->ttl_ms;
    if (flags & ANSWER_WAITED) {
        const struct session_record *session = session_at(machine, answer->session);
        answer->granted.keepalive_number = session->keepalive_number;
        answer->granted.since_keepalive_ns = machine->now.stamp_ns - session->keepalive_stamp_ns;
    }
}
