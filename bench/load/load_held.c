/* SPDX-License-Identifier: Apache-2.0
 *
 * Locks that are held from the start: taken before the warm-up, then renewed by the client, renewed
 * by commands, asked about, or left to run out; given back one by one at the end, which shows
 * whether they were held indeed.
 */
#include "bench/load/load_state.h"

static uint32_t held_client(const struct load *load, uint64_t index)
{
    return (uint32_t)(index % load->scenario->clients);
}

size_t held_name(const struct load *load, uint64_t index, char text[NAME_TEXT_BYTES])
{
    return name_write(text, load->held_group, (enum name_braces)load->scenario->braces,
                      held_client(load, index), index);
}

static bool begin_acquire(struct load *load, uint64_t index)
{
    char text[NAME_TEXT_BYTES];
    struct target_acquire acquire = {.name = text, .wait = true, .wait_ms = UINT32_MAX};

    (void)held_name(load, index, text);
    if (!load->class->acquire(load->target, held_client(load, index), &acquire, TAG_HELD | index))
        return false;
    load->held[index].state = HELD_ACQUIRING;
    load->held_under_way++;
    return true;
}

/* Also of a lock that was lost: only its release lets the target forget it. */
static bool begin_release(struct load *load, uint64_t index)
{
    struct held *held = &load->held[index];

    if (held->state == HELD_NONE) {
        load->held_ended++;
        return true;
    }
    if (!load->class->release(load->target, held->lock, TAG_HELD | index))
        return false;
    if (held->state == HELD_YES) {
        checks_given_up(&load->result.checks, load->scenario->names + index, false);
        held->state = HELD_RELEASING;
    }
    load->held_under_way++;
    return true;
}

void held_begin_some(struct load *load)
{
    for (; load->held_next < load->scenario->held; load->held_next++) {
        bool begun = load->phase == PHASE_FILL ? begin_acquire(load, load->held_next)
                                               : begin_release(load, load->held_next);

        if (!begun)
            return;
    }
}

static void filled(struct load *load, uint64_t index, const struct target_completion *completion)
{
    if (completion->status != TARGET_OK) {
        load->held_failures++;
        load->held_failure = completion->status;
        load->held[index].state = HELD_NONE;
        return;
    }
    load->held[index] = (struct held){.lock = completion->lock, .state = HELD_YES};
    load->result.held++;
    checks_granted(&load->result.checks, load->scenario->names + index, false, completion->token);
}

static void given_back(struct load *load, uint64_t index, enum target_status status)
{
    if (load->held[index].state == HELD_RELEASING) {
        if (status == TARGET_LOST)
            load->result.held_gone++;
        else if (status != TARGET_OK)
            load->result.held_unsure++;
    }
    load->held[index].state = HELD_NONE;
}

void held_complete(struct load *load, const struct target_completion *completion)
{
    uint64_t index = completion->tag & ~TAG_HELD;

    assert(index < load->scenario->held);
    load->held_under_way--;
    load->held_ended++;
    if (completion->op == TARGET_ACQUIRE)
        filled(load, index, completion);
    else
        given_back(load, index, completion->status);
}

void held_lost(struct load *load, uint64_t tag)
{
    uint64_t index = tag & ~TAG_HELD;

    assert(index < load->scenario->held);
    if (load->held[index].state != HELD_YES)
        return;
    load->held[index].state = HELD_LOST;
    load->result.lost++;
    load->result.lost_held++;
    checks_given_up(&load->result.checks, load->scenario->names + index, false);
}

/* In turn: with fewer commands under way than locks, none is chosen twice at once. */
bool held_choose(struct load *load, uint64_t *index)
{
    for (uint64_t tries = 0; tries < 64; tries++) {
        uint64_t at = load->held_next;

        if (load->scenario->held == 0)
            return false;
        load->held_next = at + 1 < load->scenario->held ? at + 1 : 0;
        if (load->held[at].state == HELD_YES) {
            *index = at;
            return true;
        }
    }
    return false;
}
