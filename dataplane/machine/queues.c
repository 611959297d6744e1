/* SPDX-License-Identifier: Apache-2.0
 *
 * Wait queues: classes of equal rank, highest first; first come, first served within a class.
 *
 * Nothing here walks waiters: joining, leaving and asking for a position look at classes, of which
 * there are at most 257.
 */
#include "dataplane/machine/machine.h"

/* ---- the queue as a whole -------------------------------------------------------------------- */

uint32_t queue_of(struct lock_machine *machine, uint32_t resource)
{
    struct resource_record *record = resource_change(machine, resource);
    if (record->queue != NONE) {
        return record->queue;
    }
    uint32_t queue = slab_take(&machine->slabs[SLAB_QUEUES]);
    assert(queue != NONE);
    struct queue_record fresh = {
        .closed_until = TICK_NEVER, .resource = resource, .head = NONE, .extra = NONE};
    words_put(queue_change(machine, queue), &fresh, sizeof(fresh));
    resource_write_begin(machine, resource);
    WORD_PUT(record->queue, queue);
    resource_write_end(machine, resource);
    return queue;
}

void queue_drop_if_empty(struct lock_machine *machine, uint32_t queue)
{
    const struct queue_record *record = queue_at(machine, queue);
    if (record->head != NONE || record->closed_until != TICK_NEVER) {
        return;
    }
    resource_write_begin(machine, record->resource);
    WORD_PUT(resource_change(machine, record->resource)->queue, NONE);
    resource_write_end(machine, record->resource);
    slab_free(&machine->slabs[SLAB_QUEUES], queue);
}

void queue_open(struct lock_machine *machine, uint32_t queue)
{
    struct queue_record *record = queue_change(machine, queue);
    timers_disarm(&machine->timers, timer_id(machine, TIMER_QUEUE, queue), record->closed_until);
    record->closed_until = TICK_NEVER;
    extra_free(machine, record->extra);
    record->extra = NONE;
}

void queue_close(struct lock_machine *machine, uint32_t queue, uint64_t tick, uint32_t extra)
{
    struct queue_record *record = queue_change(machine, queue);
    if (record->closed_until != TICK_NEVER) {
        if (record->closed_until >= tick) {
            extra_free(machine, extra);
            return;
        }
        queue_open(machine, queue);
    }
    record->closed_until = tick;
    record->extra = extra;
    record->armed = next_arming(machine);
    timers_arm(&machine->timers, timer_id(machine, TIMER_QUEUE, queue), tick);
}

int queue_first_rank(const struct lock_machine *machine, const struct resource_record *record)
{
    if (record->queue == NONE || queue_at(machine, record->queue)->head == NONE) {
        return -1;
    }
    return waiter_at(machine, queue_at(machine, record->queue)->head)->rank;
}

uint32_t queue_upgrader(const struct lock_machine *machine, const struct resource_record *record)
{
    return queue_first_rank(machine, record) == RANK_UPGRADER
               ? queue_at(machine, record->queue)->head
               : NONE;
}

/* ---- classes --------------------------------------------------------------------------------- */

/* The first waiter of the class with this rank, or NONE; *above: of the class before its place. */
static uint32_t class_find(const struct lock_machine *machine, uint32_t queue, uint16_t rank,
                           uint32_t *above)
{
    uint32_t first = queue_at(machine, queue)->head;
    *above = NONE;
    while (first != NONE && waiter_at(machine, first)->rank > rank) {
        *above = first;
        first = waiter_at(machine, first)->class_below;
    }
    return first != NONE && waiter_at(machine, first)->rank == rank ? first : NONE;
}

/* What stands below `above` (NONE: at the top of the queue) is now `first`. */
static void class_link_below(struct lock_machine *machine, uint32_t queue, uint32_t above,
                             uint32_t first)
{
    if (above == NONE) {
        queue_change(machine, queue)->head = first;
    } else {
        waiter_change(machine, above)->class_below = first;
    }
}

static void class_join(struct lock_machine *machine, uint32_t queue, uint32_t waiter)
{
    struct waiter_record *record = waiter_change(machine, waiter);
    uint32_t above;
    uint32_t first = class_find(machine, queue, record->rank, &above);
    if (first != NONE) {
        struct waiter_record *class_record = waiter_change(machine, first);
        struct waiter_record *last = waiter_change(machine, class_record->class_last);
        record->prev = class_record->class_last;
        record->ordinal = last->ordinal + 1;
        last->next = waiter;
        class_record->class_last = waiter;
        class_record->class_count++;
        return;
    }
    record->class_above = above;
    record->class_below =
        above == NONE ? queue_at(machine, queue)->head : waiter_at(machine, above)->class_below;
    record->class_last = waiter;
    record->class_count = 1;
    class_link_below(machine, queue, above, waiter);
    if (record->class_below != NONE) {
        waiter_change(machine, record->class_below)->class_above = waiter;
    }
}

/* The first of a class leaves: the next one stands for it, or the class is gone. */
static void class_leave_first(struct lock_machine *machine, const struct waiter_record *record)
{
    uint32_t heir = record->next;
    if (heir != NONE) {
        struct waiter_record *heir_record = waiter_change(machine, heir);
        heir_record->prev = NONE;
        heir_record->class_above = record->class_above;
        heir_record->class_below = record->class_below;
        heir_record->class_last = record->class_last;
        heir_record->class_count = record->class_count - 1;
    } else {
        heir = record->class_below;
    }
    class_link_below(machine, record->queue, record->class_above, heir);
    if (record->class_below != NONE) {
        waiter_change(machine, record->class_below)->class_above =
            record->next != NONE ? heir : record->class_above;
    }
}

static void class_leave(struct lock_machine *machine, const struct waiter_record *record)
{
    if (record->prev == NONE) {
        class_leave_first(machine, record);
        return;
    }
    uint32_t above;
    uint32_t first = class_find(machine, record->queue, record->rank, &above);
    struct waiter_record *class_record = waiter_change(machine, first);
    class_record->class_count--;
    waiter_change(machine, record->prev)->next = record->next;
    if (record->next != NONE) {
        waiter_change(machine, record->next)->prev = record->prev;
    } else {
        class_record->class_last = record->prev;
    }
}

uint32_t waiter_position(const struct lock_machine *machine, uint32_t waiter)
{
    const struct waiter_record *record = waiter_at(machine, waiter);
    uint32_t ahead = 0;
    uint32_t first = queue_at(machine, record->queue)->head;
    while (waiter_at(machine, first)->rank > record->rank) {
        ahead += waiter_at(machine, first)->class_count;
        first = waiter_at(machine, first)->class_below;
    }
    return ahead + (record->ordinal - waiter_at(machine, first)->ordinal);
}

/* ---- waiters --------------------------------------------------------------------------------- */

static void session_add_waiter(struct lock_machine *machine, uint32_t session, uint32_t waiter)
{
    struct session_record *owner = session_change(machine, session);
    waiter_change(machine, waiter)->session_next = owner->waiter;
    if (owner->waiter != NONE) {
        waiter_change(machine, owner->waiter)->session_prev = waiter;
    }
    owner->waiter = waiter;
}

static void session_remove_waiter(struct lock_machine *machine, const struct waiter_record *record)
{
    if (record->session_prev == NONE) {
        session_change(machine, record->session)->waiter = record->session_next;
    } else {
        waiter_change(machine, record->session_prev)->session_next = record->session_next;
    }
    if (record->session_next != NONE) {
        waiter_change(machine, record->session_next)->session_prev = record->session_prev;
    }
}

uint32_t waiter_join(struct lock_machine *machine, uint32_t resource,
                     const struct wait_terms *terms)
{
    uint32_t queue = queue_of(machine, resource);
    uint32_t waiter = slab_take(&machine->slabs[SLAB_WAITERS]);
    assert(waiter != NONE);
    uint64_t tick = terms->wait_ms == WIRE_WAIT_FOREVER
                        ? TICK_NEVER
                        : tick_after(machine->now.stamp_ns, terms->wait_ms);
    struct waiter_record *record = waiter_change(machine, waiter);
    *record = (struct waiter_record){
        .until = until_make(tick, 0),
        .secret = terms->grant.secret,
        .session = terms->grant.session,
        .answer = terms->answer,
        .queue = queue,
        .lease = terms->lease,
        .ttl_ms = terms->grant.ttl_ms,
        .extra = terms->grant.extra,
        .next = NONE,
        .prev = NONE,
        .class_above = NONE,
        .class_below = NONE,
        .class_last = NONE,
        .session_next = NONE,
        .session_prev = NONE,
        .rank = terms->rank,
        .mode = terms->grant.mode,
    };
    class_join(machine, queue, waiter);
    session_add_waiter(machine, record->session, waiter);
    struct queue_record *queue_record = queue_change(machine, queue);
    WORD_PUT(queue_record->waiters, queue_record->waiters + 1);
    machine->state.promised += terms->lease == NONE;
    if (tick != TICK_NEVER) {
        record->armed = next_arming(machine);
        timers_arm(&machine->timers, timer_id(machine, TIMER_WAITER, waiter), tick);
    }
    struct answer_record *answer = answer_change(machine, terms->answer);
    answer->status = WIRE_QUEUED;
    answer->queued.waiter = waiter;
    answer_mark_look(machine, answer);
    return waiter;
}

bool waiter_is_over(const struct lock_machine *machine, const struct waiter_record *record)
{
    return is_due(machine, record->until) ||
           session_is_over(machine, session_at(machine, record->session));
}

void waiter_remove(struct lock_machine *machine, uint32_t waiter)
{
    const struct waiter_record *record = waiter_at(machine, waiter);
    struct queue_record *queue = queue_change(machine, record->queue);
    class_leave(machine, record);
    session_remove_waiter(machine, record);
    WORD_PUT(queue->waiters, queue->waiters - 1);
    machine->state.promised -= record->lease == NONE;
    if (until_tick(record->until) != TICK_NEVER) {
        timers_disarm(&machine->timers, timer_id(machine, TIMER_WAITER, waiter),
                      until_tick(record->until));
    }
    slab_free(&machine->slabs[SLAB_WAITERS], waiter);
}

void waiter_end(struct lock_machine *machine, uint32_t waiter, enum wire_status status)
{
    const struct waiter_record *record = waiter_at(machine, waiter);
    uint32_t ended = record->answer;
    struct answer_record *answer = answer_change(machine, ended);
    answer->status = (uint8_t)status;
    answer->queued.waiter = 0;
    extra_free(machine, record->extra);
    history_add(machine, answer->number, status);
    waiter_remove(machine, waiter);
    answer_ended(machine, ended);
}
