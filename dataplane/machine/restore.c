/* SPDX-License-Identifier: Apache-2.0
 *
 * Restoring a snapshot: parse, then check everything, then rebuild what is derived (indexes, answer
 * windows, timers).
 *
 * A snapshot is a stranger's bytes. Nothing in it is followed before it has been checked, and it is
 * not taken over unless every invariant of verify.h holds. Parsing and rebuilding work in bounded
 * steps, so that a worker can do them beside its other shards.
 */
#include "consensus/plant.h"
#include "dataplane/machine/snapshot.h"
#include "dataplane/machine/verify.h"

#include <errno.h>
#include <string.h>

enum {
    STEP_RECORDS = 16384, /* looked at by one call of lock_machine_restore_end */
    DIGIT_BITS = 11,      /* of an arming sequence, per pass of the sort */
    DIGITS = 1 << DIGIT_BITS,
};

/* What the next bytes are. */
enum parse_stage { PARSE_HEAD, PARSE_GROUP, PARSE_RECORD, PARSE_TAIL, PARSE_DONE, PARSE_FAILED };

enum build_stage {
    BUILD_CHECK,   /* fields and links of every record */
    BUILD_LISTS,   /* lists add up */
    BUILD_DERIVED, /* indexes, windows, and the list of timers to sort */
    BUILD_SORT,    /* by arming sequence */
    BUILD_ARM,
    BUILD_DONE,
};

/* A list of timers, linked through the wheel's own nodes, which are free until they are armed. */
struct chain {
    uint32_t first, last;
};

struct restore {
    enum parse_stage stage;
    int error;   /* once PARSE_FAILED */
    size_t have; /* bytes of the next piece in `piece` */
    _Alignas(8) uint8_t piece[512];
    struct snapshot_head head;
    struct snapshot_group group; /* mask: records still to come */
    uint64_t digest;

    enum build_stage build;
    int slab;
    uint32_t slot;
    struct verify_sums sums;
    uint64_t tick_min;  /* earliest deadline */
    uint64_t armed_max; /* highest arming sequence */
    uint32_t shift;     /* of the digit that is sorted by */
    struct chain timers;
    struct chain digits[DIGITS];
};
static_assert(sizeof(struct snapshot_head) <= 512 && SNAPSHOT_RECORD_BYTES_MAX <= 512,
              "a piece holds whatever comes");

size_t restore_memory_bytes(void)
{
    return sizeof(struct restore);
}

struct restore *restore_init(void *memory)
{
    struct restore *restore = memory;
    memset(restore, 0, sizeof(*restore));
    return restore;
}

static int fail(struct lock_machine *machine, int error)
{
    machine_blank(machine);
    machine->restore->stage = PARSE_FAILED;
    machine->restore->error = error;
    machine->restoring = false;
    return error;
}

void lock_machine_restore_begin(struct lock_machine *machine)
{
    machine_blank(machine);
    memset(machine->restore, 0, sizeof(*machine->restore));
    slab_marks_clear(&machine->slabs[SLAB_EXTRAS]);
    slab_marks_clear(&machine->slabs[SLAB_LONG_NAMES]);
    machine->restore->tick_min = TIMERS_TICK_END;
    machine->restore->timers = (struct chain){TIMERS_NONE, TIMERS_NONE};
    machine->restoring = true;
}

/* ---- parsing --------------------------------------------------------------------------------- */

static size_t piece_bytes(const struct lock_machine *machine)
{
    const struct restore *restore = machine->restore;
    switch (restore->stage) {
    case PARSE_HEAD:
        return sizeof(struct snapshot_head);
    case PARSE_GROUP:
        return sizeof(struct snapshot_group);
    case PARSE_RECORD:
        return machine->slabs[restore->group.slab].record_bytes;
    case PARSE_TAIL:
        return sizeof(struct snapshot_tail);
    default:
        return 0;
    }
}

static int parse_head(struct lock_machine *machine)
{
    struct restore *restore = machine->restore;
    struct snapshot_head *head = &restore->head;
    uint64_t records = 0;
    memcpy(head, restore->piece, sizeof(*head));
    if (head->magic != SNAPSHOT_MAGIC || head->layout != SNAPSHOT_LAYOUT || head->zero != 0) {
        return -EBADMSG;
    }
    for (int i = 0; i < SLAB_COUNT; i++) {
        records += head->live[i];
        if (head->live[i] > machine->slabs[i].capacity) {
            return -ENOSPC;
        }
    }
    bool limited = head->state.limits.leases_max != 0;
    if (limited ? lock_limits_check(&head->state.limits) != NULL : records > 0) {
        return -EBADMSG;
    }
    if (limited && !lock_limits_fit(&head->state.limits, &machine->capacity)) {
        return -ENOSPC;
    }
    words_put(&machine->state, &head->state, sizeof(head->state));
    if (PLANTED(token_not_restored))
        WORD_PUT(machine->state.token_last, machine->state.token_last & ~UINT64_C(0xffffffffff));
    machine->now = (struct entry_now){.stamp_ns = head->state.stamp_ns,
                                      .tick = head->state.stamp_ns / LOCK_TICK_NS};
    restore->stage = PARSE_GROUP;
    return 0;
}

static int parse_group(struct lock_machine *machine)
{
    struct restore *restore = machine->restore;
    memcpy(&restore->group, restore->piece, sizeof(restore->group));
    const struct snapshot_group *group = &restore->group;
    if (group->zero[0] != 0 || group->zero[1] != 0 || group->zero[2] != 0) {
        return -EBADMSG;
    }
    if (group->slab == SNAPSHOT_END) {
        restore->stage = PARSE_TAIL;
        return group->word == 0 && group->mask == 0 ? 0 : -EBADMSG;
    }
    if (group->slab >= SLAB_COUNT || group->mask == 0) {
        return -EBADMSG;
    }
    if (group->word >= slab_words(&machine->slabs[group->slab])) {
        return -ENOSPC;
    }
    restore->stage = PARSE_RECORD;
    return 0;
}

static int parse_record(struct lock_machine *machine)
{
    struct restore *restore = machine->restore;
    struct snapshot_group *group = &restore->group;
    struct slab *slab = &machine->slabs[group->slab];
    uint32_t slot = group->word * 64 + (uint32_t)__builtin_ctzll(group->mask);
    if (slot >= slab->capacity) {
        return -ENOSPC;
    }
    if (!slab_claim(slab, slot)) {
        return -EBADMSG; /* twice */
    }
    words_put(slab->records + (size_t)slot * slab->record_bytes, restore->piece,
              slab->record_bytes);
    restore->digest += digest_of_record(group->slab, slot, restore->piece, slab->record_bytes);
    group->mask &= group->mask - 1;
    if (group->mask == 0) {
        restore->stage = PARSE_GROUP;
    }
    return 0;
}

static int parse_tail(struct lock_machine *machine)
{
    struct restore *restore = machine->restore;
    struct snapshot_tail tail;
    memcpy(&tail, restore->piece, sizeof(tail));
    for (int i = 0; i < SLAB_COUNT; i++) {
        if (machine->slabs[i].live != restore->head.live[i]) {
            return -EBADMSG;
        }
    }
    restore->stage = PARSE_DONE;
    return tail.digest == restore->digest + digest_of_state(&restore->head.state) ? 0 : -EBADMSG;
}

static int parse_piece(struct lock_machine *machine)
{
    switch (machine->restore->stage) {
    case PARSE_HEAD:
        return parse_head(machine);
    case PARSE_GROUP:
        return parse_group(machine);
    case PARSE_RECORD:
        return parse_record(machine);
    default:
        return parse_tail(machine);
    }
}

int lock_machine_restore_step(struct lock_machine *machine, const uint8_t *bytes, size_t length)
{
    struct restore *restore = machine->restore;
    if (restore->stage == PARSE_FAILED) {
        return restore->error;
    }
    while (length > 0) {
        if (restore->stage == PARSE_DONE) {
            return fail(machine, -EBADMSG); /* more than a snapshot */
        }
        size_t want = piece_bytes(machine);
        size_t take = want - restore->have < length ? want - restore->have : length;
        memcpy(restore->piece + restore->have, bytes, take);
        restore->have += take;
        bytes += take;
        length -= take;
        if (restore->have == want) {
            restore->have = 0;
            int error = parse_piece(machine);
            if (error != 0) {
                return fail(machine, error);
            }
        }
    }
    return 0;
}

/* ---- rebuilding ------------------------------------------------------------------------------ */

static void chain_append(struct lock_machine *machine, struct chain *chain, uint32_t id)
{
    struct timer_node *nodes = machine->timers.nodes;
    nodes[id].next = TIMERS_NONE;
    if (chain->first == TIMERS_NONE) {
        chain->first = id;
    } else {
        nodes[chain->last].next = id;
    }
    chain->last = id;
}

static uint32_t chain_take(struct lock_machine *machine, struct chain *chain)
{
    uint32_t id = chain->first;
    if (id != TIMERS_NONE) {
        chain->first = machine->timers.nodes[id].next;
    }
    return id;
}

static void note_timer(struct lock_machine *machine, enum timer_kind kind, uint32_t slot,
                       uint64_t tick, uint64_t armed)
{
    struct restore *restore = machine->restore;
    if (tick == TICK_NEVER) {
        return;
    }
    chain_append(machine, &restore->timers, timer_id(machine, kind, slot));
    restore->tick_min = tick < restore->tick_min ? tick : restore->tick_min;
    restore->armed_max = armed > restore->armed_max ? armed : restore->armed_max;
}

/* An extra or a long name has one owner, which frees it. */
static bool own_alone(struct lock_machine *machine, enum slab_number number, uint32_t slot)
{
    return slot == NONE || slab_mark(&machine->slabs[number], slot);
}

static bool derive_resource(struct lock_machine *machine, uint32_t slot)
{
    const struct resource_record *record = resource_at(machine, slot);
    if (record->flags & RESOURCE_LONG) {
        uint32_t long_name;
        memcpy(&long_name, record->text, sizeof(long_name));
        if (!own_alone(machine, SLAB_LONG_NAMES, long_name)) {
            return false;
        }
    }
    struct key key =
        key_of(resource_text(machine, record), record->namespace_bytes, record->name_bytes);
    if (resource_find(machine, &key) != NONE) {
        return false;
    }
    index_insert(&machine->names, key.hash, slot);
    return true;
}

static bool derive_session(struct lock_machine *machine, uint32_t slot)
{
    const struct session_record *record = session_at(machine, slot);
    note_timer(machine, TIMER_SESSION, slot, until_tick(record->until), record->armed);
    if (until_has(record->until, SESSION_OVER)) {
        return true;
    }
    if (session_find(machine, record->id) != NONE ||
        session_find_nonce(machine, record->nonce) != NONE) {
        return false;
    }
    index_insert(&machine->ids, record->id, slot);
    index_insert(&machine->nonces, mix64(record->nonce), slot);
    return true;
}

static bool derive_answer(struct lock_machine *machine, uint32_t slot)
{
    const struct answer_record *record = answer_at(machine, slot);
    uint32_t *cell = window_cell(machine, record->session, record->number);
    if (answer_is_passed(machine, record)) { /* it waits: verify_answer has seen to that */
        return true;
    }
    if (*cell != NONE) {
        return false;
    }
    *cell = answer_needs_look(record) ? slot | CELL_LOOK : slot;
    return record->status != WIRE_BUSY || own_alone(machine, SLAB_EXTRAS, record->busy.extra);
}

static bool derive(struct lock_machine *machine, int number, uint32_t slot)
{
    switch (number) {
    case SLAB_LEASES:
        note_timer(machine, TIMER_LEASE, slot, until_tick(lease_at(machine, slot)->until),
                   lease_at(machine, slot)->armed);
        return own_alone(machine, SLAB_EXTRAS, lease_at(machine, slot)->extra);
    case SLAB_RESOURCES:
        return derive_resource(machine, slot);
    case SLAB_SESSIONS:
        return derive_session(machine, slot);
    case SLAB_WAITERS:
        note_timer(machine, TIMER_WAITER, slot, until_tick(waiter_at(machine, slot)->until),
                   waiter_at(machine, slot)->armed);
        return own_alone(machine, SLAB_EXTRAS, waiter_at(machine, slot)->extra);
    case SLAB_ANSWERS:
        return derive_answer(machine, slot);
    case SLAB_QUEUES:
        note_timer(machine, TIMER_QUEUE, slot, queue_at(machine, slot)->closed_until,
                   queue_at(machine, slot)->armed);
        return own_alone(machine, SLAB_EXTRAS, queue_at(machine, slot)->extra);
    default:
        return true;
    }
}

/* One visit of a live record in the current stage; false = the snapshot is unsound. */
static bool visit(struct lock_machine *machine, int number, uint32_t slot)
{
    struct restore *restore = machine->restore;
    switch (restore->build) {
    case BUILD_CHECK:
        if (number == SLAB_SESSIONS) { /* answers come later */
            memset(window_cell(machine, slot, 0), 0xff,
                   ((size_t)machine->window_mask + 1) * sizeof(uint32_t));
        }
        return verify_record(machine, (enum slab_number)number, slot) == NULL;
    case BUILD_LISTS:
        return verify_lists(machine, (enum slab_number)number, slot, &restore->sums) == NULL;
    default:
        return derive(machine, number, slot);
    }
}

/* Visits up to STEP_RECORDS slots. 1 = all visited, 0 = more to come, -1 = unsound. */
static int visit_some(struct lock_machine *machine)
{
    struct restore *restore = machine->restore;
    for (uint32_t left = STEP_RECORDS; left > 0; left--) {
        while (restore->slab < SLAB_COUNT &&
               restore->slot == machine->slabs[restore->slab].capacity) {
            restore->slab++;
            restore->slot = 0;
        }
        if (restore->slab == SLAB_COUNT) {
            restore->slab = 0;
            restore->slot = 0;
            return 1;
        }
        if (slab_is_live(&machine->slabs[restore->slab], restore->slot) &&
            !visit(machine, restore->slab, restore->slot)) {
            return -1;
        }
        restore->slot++;
    }
    return 0;
}

/* ---- timers in the order they were armed ----------------------------------------------------- */

static uint64_t armed_of(const struct lock_machine *machine, uint32_t id)
{
    uint32_t slot;
    switch (timer_of(machine, id, &slot)) {
    case TIMER_LEASE:
        return lease_at(machine, slot)->armed;
    case TIMER_SESSION:
        return session_at(machine, slot)->armed;
    case TIMER_WAITER:
        return waiter_at(machine, slot)->armed;
    default:
        return queue_at(machine, slot)->armed;
    }
}

static void sort_begin_pass(struct lock_machine *machine)
{
    for (int i = 0; i < DIGITS; i++) {
        machine->restore->digits[i] = (struct chain){TIMERS_NONE, TIMERS_NONE};
    }
}

static void sort_end_pass(struct lock_machine *machine)
{
    struct restore *restore = machine->restore;
    restore->timers = (struct chain){TIMERS_NONE, TIMERS_NONE};
    for (int i = 0; i < DIGITS; i++) {
        struct chain *digit = &restore->digits[i];
        if (digit->first == TIMERS_NONE) {
            continue;
        }
        if (restore->timers.first == TIMERS_NONE) {
            restore->timers.first = digit->first;
        } else {
            machine->timers.nodes[restore->timers.last].next = digit->first;
        }
        restore->timers.last = digit->last;
    }
    restore->shift += DIGIT_BITS;
}

/* Radix sort from the lowest digit up, some timers per call. True when sorted. */
static bool sort_some(struct lock_machine *machine)
{
    struct restore *restore = machine->restore;
    for (uint32_t left = STEP_RECORDS; left > 0; left--) {
        if (restore->shift >= 64 || restore->armed_max >> restore->shift == 0) {
            return true;
        }
        uint32_t id = chain_take(machine, &restore->timers);
        if (id == TIMERS_NONE) {
            sort_end_pass(machine);
            sort_begin_pass(machine);
            continue;
        }
        uint64_t digit = armed_of(machine, id) >> restore->shift & (DIGITS - 1);
        chain_append(machine, &restore->digits[digit], id);
    }
    return false;
}

static bool arm_some(struct lock_machine *machine)
{
    struct restore *restore = machine->restore;
    struct timers *timers = &machine->timers;
    for (uint32_t left = STEP_RECORDS; left > 0; left--) {
        uint32_t id = chain_take(machine, &restore->timers);
        if (id == TIMERS_NONE) {
            return true;
        }
        timers_arm(timers, id, timers->tick_of(timers->tick_context, id));
    }
    return false;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* After the last visit of a stage. False = unsound. */
static bool build_next(struct lock_machine *machine)
{
    struct restore *restore = machine->restore;
    uint64_t next_tick = machine->now.tick + 1;
    switch (restore->build) {
    case BUILD_LISTS:
        if (verify_totals(machine, &restore->sums) != NULL) {
            return false;
        }
        break;
    case BUILD_DERIVED:
        if (restore->armed_max > machine->state.armings) {
            return false;
        }
        timers_clear(&machine->timers,
                     restore->tick_min < next_tick ? restore->tick_min : next_tick);
        sort_begin_pass(machine);
        break;
    default:
        break;
    }
    restore->build++;
    return true;
}

int lock_machine_restore_end(struct lock_machine *machine)
{
    struct restore *restore = machine->restore;
    bool done = false;
    if (restore->stage == PARSE_FAILED) {
        return restore->error;
    }
    if (restore->stage != PARSE_DONE) {
        return fail(machine, -EBADMSG); /* cut short */
    }
    if (restore->build == BUILD_SORT) {
        done = sort_some(machine);
    } else if (restore->build == BUILD_ARM) {
        done = arm_some(machine);
    } else if (restore->build < BUILD_SORT) {
        int visited = visit_some(machine);
        if (visited < 0) {
            return fail(machine, -EBADMSG);
        }
        done = visited > 0;
    }
    if (done && !build_next(machine)) {
        return fail(machine, -EBADMSG);
    }
    if (restore->build == BUILD_DONE) {
        machine->restoring = false;
        return 0;
    }
    return -EAGAIN;
}
