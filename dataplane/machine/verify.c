/* SPDX-License-Identifier: Apache-2.0 */
#include "dataplane/machine/verify.h"

#include <string.h>

/* Returns the sentence unless the condition holds. */
#define REQUIRE(condition, sentence)                                                               \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return sentence;                                                                       \
        }                                                                                          \
    } while (0)

static bool is_live(const struct lock_machine *machine, enum slab_number number, uint32_t slot)
{
    return slab_is_live(&machine->slabs[number], slot);
}

static bool none_or_live(const struct lock_machine *machine, enum slab_number number, uint32_t slot)
{
    return slot == NONE || is_live(machine, number, slot);
}

/* ---- leases ---------------------------------------------------------------------------------- */

static const char *lease_fields(const struct lock_machine *machine,
                                const struct lease_record *record)
{
    const uint64_t known = LEASE_EXCLUSIVE | LEASE_BOUND | LEASE_FORCED;
    uint64_t tick = until_tick(record->until);
    bool bound = until_has(record->until, LEASE_BOUND);
    REQUIRE((record->until & 0xffff & ~known) == 0, "a lease has unknown flags");
    REQUIRE(tick == TICK_NEVER || tick < TIMERS_TICK_END, "a lease's deadline is out of range");
    REQUIRE(bound == (record->ttl_ms == 0), "a lease is bound and has a TTL, or neither");
    REQUIRE((tick == TICK_NEVER) == bound,
            "a lease lacks its deadline, or has one it should not have");
    REQUIRE(!bound || record->session != NONE, "a bound lease has no session");
    REQUIRE(is_live(machine, SLAB_RESOURCES, record->resource), "a lease's resource is not live");
    REQUIRE(none_or_live(machine, SLAB_SESSIONS, record->session), "a lease's session is not live");
    REQUIRE(none_or_live(machine, SLAB_EXTRAS, record->extra), "a lease's extra is not live");
    REQUIRE(record->token != 0 && record->token <= machine->state.token_last,
            "a lease's token was never given");
    return NULL;
}

static const char *lease_holder_links(const struct lock_machine *machine, uint32_t slot,
                                      const struct lease_record *record)
{
    const struct resource_record *resource = resource_at(machine, record->resource);
    bool alone = record->holder_next == NONE && resource->holder == slot;
    REQUIRE(!until_has(record->until, LEASE_EXCLUSIVE) || alone,
            "an exclusive holder is not alone");
    if (record->holder_next != NONE) {
        REQUIRE(is_live(machine, SLAB_LEASES, record->holder_next), "a next holder is not live");
        const struct lease_record *next = lease_at(machine, record->holder_next);
        REQUIRE(next->holder_prev == slot && next->resource == record->resource &&
                    resource->holder != record->holder_next,
                "a holder's next does not link back");
    }
    if (resource->holder != slot) {
        REQUIRE(is_live(machine, SLAB_LEASES, record->holder_prev),
                "a previous holder is not live");
        const struct lease_record *prev = lease_at(machine, record->holder_prev);
        REQUIRE(prev->holder_next == slot && prev->resource == record->resource,
                "a holder's previous does not link to it");
    }
    return NULL;
}

static const char *lease_session_links(const struct lock_machine *machine, uint32_t slot,
                                       const struct lease_record *record)
{
    if (record->session == NONE) {
        REQUIRE(record->session_next == NONE && record->session_prev == NONE,
                "a detached lease is linked to a session");
        return NULL;
    }
    if (record->session_next != NONE) {
        REQUIRE(is_live(machine, SLAB_LEASES, record->session_next), "a session's lease is gone");
        const struct lease_record *next = lease_at(machine, record->session_next);
        REQUIRE(next->session_prev == slot && next->session == record->session,
                "a session's next lease does not link back");
    }
    if (record->session_prev == NONE) {
        REQUIRE(session_at(machine, record->session)->lease == slot,
                "a session's first lease is not its head");
        return NULL;
    }
    REQUIRE(is_live(machine, SLAB_LEASES, record->session_prev), "a session's lease is gone");
    const struct lease_record *prev = lease_at(machine, record->session_prev);
    REQUIRE(prev->session_next == slot && prev->session == record->session,
            "a session's previous lease does not link to it");
    return NULL;
}

static const char *verify_lease(const struct lock_machine *machine, uint32_t slot)
{
    const struct lease_record *record = lease_at(machine, slot);
    const char *wrong = lease_fields(machine, record);
    if (wrong == NULL) {
        wrong = lease_holder_links(machine, slot, record);
    }
    return wrong != NULL ? wrong : lease_session_links(machine, slot, record);
}

/* ---- resources and queues -------------------------------------------------------------------- */

static bool is_zero(const uint8_t *bytes, size_t count)
{
    uint8_t any = 0;
    for (size_t i = 0; i < count; i++) {
        any |= bytes[i];
    }
    return any == 0;
}

static const char *resource_name(const struct lock_machine *machine,
                                 const struct resource_record *record)
{
    size_t bytes = (size_t)record->namespace_bytes + record->name_bytes;
    bool is_long = (record->flags & RESOURCE_LONG) != 0;
    REQUIRE(record->name_bytes > 0 && record->namespace_bytes <= WIRE_NAMESPACE_BYTES_MAX,
            "a resource's name is out of range");
    REQUIRE((record->flags & ~RESOURCE_LONG) == 0 && is_long == (bytes > RESOURCE_TEXT_BYTES),
            "a resource's flags do not fit its name");
    if (is_long) {
        uint32_t long_name;
        memcpy(&long_name, record->text, sizeof(long_name));
        REQUIRE(is_live(machine, SLAB_LONG_NAMES, long_name), "a long name is not live");
        REQUIRE(is_zero(record->text + 4, RESOURCE_TEXT_BYTES - 4),
                "a resource is not zero-filled");
    } else {
        REQUIRE(is_zero(record->text + bytes, RESOURCE_TEXT_BYTES - bytes),
                "a resource is not zero-filled");
    }
    struct key key =
        key_of(resource_text(machine, record), record->namespace_bytes, record->name_bytes);
    REQUIRE(record->key_tag == (uint32_t)key.hash, "a resource's tag is not its key's");
    return NULL;
}

static const char *verify_resource(const struct lock_machine *machine, uint32_t slot)
{
    const struct resource_record *record = resource_at(machine, slot);
    const char *wrong = resource_name(machine, record);
    REQUIRE(wrong == NULL, wrong);
    REQUIRE(record->holder != NONE || record->queue != NONE, "an idle resource was not dropped");
    if (record->holder != NONE) {
        REQUIRE(is_live(machine, SLAB_LEASES, record->holder) &&
                    lease_at(machine, record->holder)->resource == slot,
                "a resource's holder is not its own");
    }
    if (record->queue != NONE) {
        REQUIRE(is_live(machine, SLAB_QUEUES, record->queue) &&
                    queue_at(machine, record->queue)->resource == slot,
                "a resource's queue is not its own");
    }
    return NULL;
}

static const char *verify_queue(const struct lock_machine *machine, uint32_t slot)
{
    const struct queue_record *record = queue_at(machine, slot);
    bool closed = record->closed_until != TICK_NEVER;
    REQUIRE(is_live(machine, SLAB_RESOURCES, record->resource) &&
                resource_at(machine, record->resource)->queue == slot,
            "a queue's resource is not its own");
    REQUIRE(closed || record->head != NONE, "an empty queue was not dropped");
    REQUIRE(!closed || record->closed_until < TIMERS_TICK_END, "a lock delay is out of range");
    REQUIRE(closed == (record->extra != NONE), "a closed queue has no extra, or an open one has");
    REQUIRE(none_or_live(machine, SLAB_EXTRAS, record->extra), "a queue's extra is not live");
    if (record->head != NONE) {
        REQUIRE(is_live(machine, SLAB_WAITERS, record->head), "a queue's head is not live");
        const struct waiter_record *head = waiter_at(machine, record->head);
        REQUIRE(head->queue == slot && head->prev == NONE && head->class_above == NONE,
                "a queue's head is not first");
    }
    return NULL;
}

/* ---- waiters --------------------------------------------------------------------------------- */

static const char *waiter_fields(const struct lock_machine *machine, uint32_t slot,
                                 const struct waiter_record *record)
{
    uint64_t tick = until_tick(record->until);
    REQUIRE((record->until & 0xffff) == 0 && record->zero == 0, "a waiter has unknown flags");
    REQUIRE(tick == TICK_NEVER || tick < TIMERS_TICK_END, "a wait limit is out of range");
    REQUIRE(record->mode == WIRE_SHARED || record->mode == WIRE_EXCLUSIVE, "a waiter has no mode");
    REQUIRE(record->rank <= RANK_UPGRADER, "a waiter's rank is out of range");
    REQUIRE(is_live(machine, SLAB_SESSIONS, record->session), "a waiter's session is not live");
    REQUIRE(is_live(machine, SLAB_QUEUES, record->queue), "a waiter's queue is not live");
    REQUIRE(none_or_live(machine, SLAB_EXTRAS, record->extra), "a waiter's extra is not live");
    REQUIRE(is_live(machine, SLAB_ANSWERS, record->answer), "a waiter's answer is not live");
    const struct answer_record *answer = answer_at(machine, record->answer);
    REQUIRE(answer->status == WIRE_QUEUED && answer->queued.waiter == slot &&
                answer->session == record->session,
            "a waiter's answer is not its own");
    REQUIRE((record->rank == RANK_UPGRADER) == (record->lease != NONE),
            "an upgrader has no lease, or another waiter has one");
    if (record->lease != NONE) {
        REQUIRE(is_live(machine, SLAB_LEASES, record->lease), "an upgrader's lease is not live");
        const struct lease_record *lease = lease_at(machine, record->lease);
        REQUIRE(record->mode == WIRE_EXCLUSIVE && record->extra == NONE &&
                    lease->resource == queue_at(machine, record->queue)->resource,
                "an upgrader's lease holds another resource");
    }
    return NULL;
}

static bool same_class(const struct waiter_record *a, const struct waiter_record *b)
{
    return a->queue == b->queue && a->rank == b->rank;
}

static const char *waiter_class_links(const struct lock_machine *machine, uint32_t slot,
                                      const struct waiter_record *record)
{
    const struct waiter_record *other;
    if (record->next != NONE) {
        REQUIRE(is_live(machine, SLAB_WAITERS, record->next), "a next waiter is not live");
        other = waiter_at(machine, record->next);
        REQUIRE(other->prev == slot && same_class(other, record),
                "a waiter's next does not link back");
    }
    if (record->prev != NONE) {
        REQUIRE(is_live(machine, SLAB_WAITERS, record->prev), "a previous waiter is not live");
        other = waiter_at(machine, record->prev);
        REQUIRE(other->next == slot && same_class(other, record),
                "a waiter's previous does not link to it");
        return NULL;
    }
    REQUIRE(is_live(machine, SLAB_WAITERS, record->class_last), "a class's last is not live");
    other = waiter_at(machine, record->class_last);
    REQUIRE(other->next == NONE && same_class(other, record), "a class's last is not last");
    if (record->class_below != NONE) {
        REQUIRE(is_live(machine, SLAB_WAITERS, record->class_below), "a class below is not live");
        other = waiter_at(machine, record->class_below);
        REQUIRE(other->prev == NONE && other->class_above == slot &&
                    other->queue == record->queue && other->rank < record->rank,
                "a class below does not link back");
    }
    if (record->class_above != NONE) {
        REQUIRE(is_live(machine, SLAB_WAITERS, record->class_above), "a class above is not live");
        other = waiter_at(machine, record->class_above);
        REQUIRE(other->prev == NONE && other->class_below == slot &&
                    other->queue == record->queue && other->rank > record->rank,
                "a class above does not link to it");
        return NULL;
    }
    REQUIRE(queue_at(machine, record->queue)->head == slot,
            "a first class is not its queue's head");
    return NULL;
}

static const char *waiter_session_links(const struct lock_machine *machine, uint32_t slot,
                                        const struct waiter_record *record)
{
    if (record->session_next != NONE) {
        REQUIRE(is_live(machine, SLAB_WAITERS, record->session_next), "a session's waiter is gone");
        const struct waiter_record *next = waiter_at(machine, record->session_next);
        REQUIRE(next->session_prev == slot && next->session == record->session,
                "a session's next waiter does not link back");
    }
    if (record->session_prev == NONE) {
        REQUIRE(session_at(machine, record->session)->waiter == slot,
                "a session's first waiter is not its head");
        return NULL;
    }
    REQUIRE(is_live(machine, SLAB_WAITERS, record->session_prev), "a session's waiter is gone");
    const struct waiter_record *prev = waiter_at(machine, record->session_prev);
    REQUIRE(prev->session_next == slot && prev->session == record->session,
            "a session's previous waiter does not link to it");
    return NULL;
}

static const char *verify_waiter(const struct lock_machine *machine, uint32_t slot)
{
    const struct waiter_record *record = waiter_at(machine, slot);
    const char *wrong = waiter_fields(machine, slot, record);
    if (wrong == NULL) {
        wrong = waiter_class_links(machine, slot, record);
    }
    return wrong != NULL ? wrong : waiter_session_links(machine, slot, record);
}

/* ---- sessions and answers -------------------------------------------------------------------- */

static const char *verify_session(const struct lock_machine *machine, uint32_t slot)
{
    const struct session_record *record = session_at(machine, slot);
    uint64_t tick = until_tick(record->until);
    bool is_over = until_has(record->until, SESSION_OVER);
    REQUIRE((record->until & 0xffff & ~(uint64_t)(SESSION_OVER | SESSION_CLOSED)) == 0 &&
                record->zero == 0 && record->reserved[0] == 0 && record->reserved[1] == 0,
            "a session has unknown flags");
    REQUIRE(is_over || !until_has(record->until, SESSION_CLOSED), "a closed session is not over");
    REQUIRE(is_over == (tick == TICK_NEVER),
            "a session that is over has a deadline, or vice versa");
    REQUIRE(is_over || tick < TIMERS_TICK_END, "a session's deadline is out of range");
    REQUIRE(record->id != 0 && record->nonce != 0 && record->ttl_ms != 0, "a session has no id");
    REQUIRE(record->acked_below != 0, "a session's window starts at zero");
    REQUIRE(record->keepalive_stamp_ns <= machine->state.stamp_ns, "a keepalive is in the future");
    REQUIRE(record->over_next == NONE ||
                (is_over && is_live(machine, SLAB_SESSIONS, record->over_next)),
            "a session's successor in ending is not live");
    if (record->lease != NONE) {
        REQUIRE(is_live(machine, SLAB_LEASES, record->lease) &&
                    lease_at(machine, record->lease)->session == slot &&
                    lease_at(machine, record->lease)->session_prev == NONE,
                "a session's first lease is not its own");
    }
    if (record->waiter != NONE) {
        REQUIRE(is_live(machine, SLAB_WAITERS, record->waiter) &&
                    waiter_at(machine, record->waiter)->session == slot &&
                    waiter_at(machine, record->waiter)->session_prev == NONE,
                "a session's first waiter is not its own");
    }
    return NULL;
}

static const char *verify_answer(const struct lock_machine *machine, uint32_t slot)
{
    const struct answer_record *record = answer_at(machine, slot);
    REQUIRE(is_live(machine, SLAB_SESSIONS, record->session), "an answer's session is not live");
    uint64_t acked_below = session_at(machine, record->session)->acked_below;
    REQUIRE(record->number >= acked_below ? record->number - acked_below <= machine->window_mask
                                          : record->status == WIRE_QUEUED,
            "an answer is outside its session's window");
    REQUIRE(record->op >= WIRE_OP_OPEN && record->op <= WIRE_OP_LOGGED_LAST &&
                record->status < WIRE_STATUS_COUNT,
            "an answer's op or status is unknown");
    bool grants = record->op == WIRE_OP_ACQUIRE || record->op == WIRE_OP_CONVERT;
    bool renews = record->op == WIRE_OP_KEEPALIVE || record->op == WIRE_OP_RENEW;
    if (record->status == WIRE_QUEUED) {
        REQUIRE(is_live(machine, SLAB_WAITERS, record->queued.waiter) &&
                    waiter_at(machine, record->queued.waiter)->answer == slot,
                "a queued answer's waiter is not its own");
    } else if (record->status == WIRE_BUSY) {
        REQUIRE(none_or_live(machine, SLAB_EXTRAS, record->busy.extra),
                "an answer's value is gone");
    } else if (record->status == WIRE_OK && renews) {
        REQUIRE(record->renewed.count <= WIRE_RENEWALS_MAX, "an answer renews too much");
    }
    REQUIRE(!(record->status == WIRE_BUSY || (record->status == WIRE_OK && grants)) ||
                record->mode == WIRE_SHARED || record->mode == WIRE_EXCLUSIVE,
            "an answer has no mode");
    return NULL;
}

static const char *verify_extra(const struct lock_machine *machine, uint32_t slot)
{
    const struct extra_record *record = extra_at(machine, slot);
    REQUIRE(record->value_bytes <= WIRE_VALUE_BYTES_MAX && record->zero == 0,
            "a value is too long");
    REQUIRE(
        is_zero(record->value + record->value_bytes, sizeof(record->value) - record->value_bytes),
        "a value is not zero-filled");
    return NULL;
}

const char *verify_record(const struct lock_machine *machine, enum slab_number number,
                          uint32_t slot)
{
    switch (number) {
    case SLAB_LEASES:
        return verify_lease(machine, slot);
    case SLAB_RESOURCES:
        return verify_resource(machine, slot);
    case SLAB_SESSIONS:
        return verify_session(machine, slot);
    case SLAB_WAITERS:
        return verify_waiter(machine, slot);
    case SLAB_ANSWERS:
        return verify_answer(machine, slot);
    case SLAB_EXTRAS:
        return verify_extra(machine, slot);
    case SLAB_QUEUES:
        return verify_queue(machine, slot);
    default:
        return NULL;
    }
}

/* ---- lists from their heads ------------------------------------------------------------------ */

static const char *walk_resource(const struct lock_machine *machine, uint32_t slot,
                                 struct verify_sums *sums)
{
    const struct resource_record *record = resource_at(machine, slot);
    uint32_t holders = 0;
    for (uint32_t lease = record->holder; lease != NONE;
         lease = lease_at(machine, lease)->holder_next) {
        holders++;
    }
    REQUIRE(holders == holders_of(machine, record), "a resource's holder count is wrong");
    sums->held += holders;
    sums->long_names += (record->flags & RESOURCE_LONG) != 0;
    return NULL;
}

static const char *walk_session(const struct lock_machine *machine, uint32_t slot,
                                struct verify_sums *sums)
{
    const struct session_record *record = session_at(machine, slot);
    for (uint32_t lease = record->lease; lease != NONE;
         lease = lease_at(machine, lease)->session_next) {
        sums->owned++;
    }
    for (uint32_t waiter = record->waiter; waiter != NONE;
         waiter = waiter_at(machine, waiter)->session_next) {
        sums->session_queued++;
    }
    sums->answers += record->answers;
    sums->sessions_over += until_has(record->until, SESSION_OVER);
    sums->timers += until_tick(record->until) != TICK_NEVER;
    return NULL;
}

/* A resource that is free and open must not have a live waiter at its head, unless dead ones were
 * too many to be removed at once (then they still stand at the head). */
static const char *verify_nobody_forgotten(const struct lock_machine *machine,
                                           const struct queue_record *queue)
{
    if (queue->head == NONE || queue->closed_until != TICK_NEVER || !tokens_left(machine)) {
        return NULL;
    }
    const struct resource_record *resource = resource_at(machine, queue->resource);
    const struct waiter_record *head = waiter_at(machine, queue->head);
    bool lets_in = head->lease != NONE ? holders_of(machine, resource) == 1
                                       : holders_allow(machine, resource, head->mode);
    REQUIRE(!lets_in || waiter_is_over(machine, head), "a waiter could be granted and was not");
    return NULL;
}

static const char *walk_queue(const struct lock_machine *machine, uint32_t slot,
                              struct verify_sums *sums)
{
    const struct queue_record *record = queue_at(machine, slot);
    uint32_t waiters = 0;
    for (uint32_t first = record->head; first != NONE;
         first = waiter_at(machine, first)->class_below) {
        uint32_t count = 0;
        uint32_t last = NONE;
        for (uint32_t waiter = first; waiter != NONE; waiter = waiter_at(machine, waiter)->next) {
            REQUIRE(last == NONE ||
                        waiter_at(machine, waiter)->ordinal > waiter_at(machine, last)->ordinal,
                    "waiters of a class are out of order");
            count++;
            last = waiter;
        }
        REQUIRE(count == waiter_at(machine, first)->class_count, "a class's count is wrong");
        REQUIRE(last == waiter_at(machine, first)->class_last, "a class's last is not its own");
        waiters += count;
    }
    REQUIRE(waiters == record->waiters, "a queue's count is wrong");
    sums->queued += waiters;
    sums->extras += record->extra != NONE;
    sums->timers += record->closed_until != TICK_NEVER;
    return verify_nobody_forgotten(machine, record);
}

const char *verify_lists(const struct lock_machine *machine, enum slab_number number, uint32_t slot,
                         struct verify_sums *sums)
{
    switch (number) {
    case SLAB_LEASES:
        sums->detached += lease_at(machine, slot)->session == NONE;
        sums->extras += lease_at(machine, slot)->extra != NONE;
        sums->timers += until_tick(lease_at(machine, slot)->until) != TICK_NEVER;
        return NULL;
    case SLAB_RESOURCES:
        return walk_resource(machine, slot, sums);
    case SLAB_SESSIONS:
        return walk_session(machine, slot, sums);
    case SLAB_WAITERS:
        sums->promised += waiter_at(machine, slot)->lease == NONE;
        sums->extras += waiter_at(machine, slot)->extra != NONE;
        sums->timers += until_tick(waiter_at(machine, slot)->until) != TICK_NEVER;
        return NULL;
    case SLAB_ANSWERS:
        sums->extras += answer_at(machine, slot)->status == WIRE_BUSY &&
                        answer_at(machine, slot)->busy.extra != NONE;
        return NULL;
    case SLAB_QUEUES:
        return walk_queue(machine, slot, sums);
    default:
        return NULL;
    }
}

static const char *walk_over(const struct lock_machine *machine, uint64_t sessions_over)
{
    const struct lock_state *state = &machine->state;
    uint64_t seen = 0;
    uint32_t last = NONE;
    for (uint32_t slot = state->over_first; slot != NONE;
         slot = session_at(machine, slot)->over_next) {
        REQUIRE(seen++ < sessions_over, "the list of ending sessions has a cycle");
        REQUIRE(is_live(machine, SLAB_SESSIONS, slot) &&
                    until_has(session_at(machine, slot)->until, SESSION_OVER),
                "an ending session is not over");
        last = slot;
    }
    REQUIRE(seen == sessions_over && last == state->over_last, "an ending session is not listed");
    return NULL;
}

const char *verify_totals(const struct lock_machine *machine, const struct verify_sums *sums)
{
    REQUIRE(sums->held == live(machine, SLAB_LEASES), "a lease is not among its holders");
    REQUIRE(sums->owned + sums->detached == live(machine, SLAB_LEASES),
            "a lease is not among its session's");
    REQUIRE(sums->queued == live(machine, SLAB_WAITERS), "a waiter is in no queue");
    REQUIRE(sums->session_queued == live(machine, SLAB_WAITERS), "a waiter is in no session");
    REQUIRE(sums->promised == machine->state.promised, "the promised leases are miscounted");
    REQUIRE(sums->answers == live(machine, SLAB_ANSWERS), "answers are miscounted");
    REQUIRE(sums->extras == live(machine, SLAB_EXTRAS), "an extra is lost or shared");
    REQUIRE(sums->long_names == live(machine, SLAB_LONG_NAMES), "a long name is lost or shared");
    return walk_over(machine, sums->sessions_over);
}

/* ---- everything ------------------------------------------------------------------------------ */

/* Every record can be found through what is derived from it. */
static const char *verify_derived(const struct lock_machine *machine, enum slab_number number,
                                  uint32_t slot)
{
    if (number == SLAB_RESOURCES) {
        const struct resource_record *record = resource_at(machine, slot);
        struct key key =
            key_of(resource_text(machine, record), record->namespace_bytes, record->name_bytes);
        REQUIRE(resource_find(machine, &key) == slot, "a resource is not found by its name");
    } else if (number == SLAB_SESSIONS) {
        const struct session_record *record = session_at(machine, slot);
        if (!until_has(record->until, SESSION_OVER)) {
            REQUIRE(session_find(machine, record->id) == slot, "a session is not found by its id");
            REQUIRE(session_find_nonce(machine, record->nonce) == slot,
                    "a session is not found by its nonce");
        }
    } else if (number == SLAB_ANSWERS) {
        const struct answer_record *record = answer_at(machine, slot);
        REQUIRE(answer_is_passed(machine, record) ||
                    answer_find(machine, record->session, record->number) == slot,
                "an answer is not found by its number");
        REQUIRE(answer_is_passed(machine, record) || !answer_needs_look(record) ||
                    (*window_cell(machine, record->session, record->number) & CELL_LOOK) != 0,
                "an answer would be forgotten without a look");
    }
    return NULL;
}

typedef const char *record_check(const struct lock_machine *machine, enum slab_number number,
                                 uint32_t slot, struct verify_sums *sums);

static const char *check_record(const struct lock_machine *machine, enum slab_number number,
                                uint32_t slot, struct verify_sums *sums)
{
    (void)sums;
    const char *wrong = verify_record(machine, number, slot);
    return wrong != NULL ? wrong : verify_derived(machine, number, slot);
}

static const char *for_each_record(const struct lock_machine *machine, record_check *check,
                                   struct verify_sums *sums)
{
    for (int number = 0; number < SLAB_COUNT; number++) {
        for (uint32_t slot = 0; slot < machine->slabs[number].capacity; slot++) {
            if (slab_is_live(&machine->slabs[number], slot)) {
                const char *wrong = check(machine, (enum slab_number)number, slot, sums);
                REQUIRE(wrong == NULL, wrong);
            }
        }
    }
    return NULL;
}

const char *lock_machine_verify(const struct lock_machine *machine)
{
    struct verify_sums sums = {0};
    const char *wrong = for_each_record(machine, check_record, &sums);
    if (wrong == NULL) {
        wrong = for_each_record(machine, verify_lists, &sums);
    }
    if (wrong == NULL) {
        wrong = verify_totals(machine, &sums);
    }
    if (wrong == NULL) {
        wrong = index_verify(&machine->names);
    }
    if (wrong == NULL) {
        wrong = timers_verify(&machine->timers);
    }
    REQUIRE(wrong == NULL, wrong);
    REQUIRE(machine->names.entries == live(machine, SLAB_RESOURCES), "an index entry is lost");
    REQUIRE(machine->ids.entries == machine->nonces.entries &&
                machine->ids.entries + sums.sessions_over == live(machine, SLAB_SESSIONS),
            "a session's index entry is lost");
    REQUIRE(machine->timers.armed == sums.timers, "a deadline has no timer");
    return NULL;
}
