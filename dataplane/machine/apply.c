/* SPDX-License-Identifier: Apache-2.0
 *
 * One log entry: judge all of it, settle time, then the commands in order.
 *
 * The cost of a command is the cache lines it touches. So each is announced in three stages some
 * commands ahead of its turn: what it names directly, what that names, and the neighbours. The
 * stages only fetch; when its turn comes, a command finds everything anew, because those before it
 * may have changed anything.
 */
#include "consensus/plant.h"
#include "dataplane/machine/machine.h"

#include <errno.h>
#include <string.h>

enum { STAGE_COMMANDS = 6 /* between a stage and the next: more than one memory latency */ };

/* ---- announcing ------------------------------------------------------------------------------ */

/* Macros and forced inlining: gcc takes a function that only prefetches for one without effect and
 * drops calls of it. */
#define ANNOUNCE __attribute__((always_inline)) static inline

ANNOUNCE struct announced *ahead_at(struct ahead *ahead, uint32_t turn)
{
    return &ahead->commands[(ahead->ring + turn) % AHEAD_COMMANDS];
}

ANNOUNCE void prefetch_lease(const struct lock_machine *machine, uint32_t lease)
{
    if (lease != NONE) { /* an address that is not mapped costs a page walk */
        __builtin_prefetch(lease_at(machine, lease), 1);
    }
}

/* A resource may lie across two lines, anywhere. What a release touches is at its end. */
ANNOUNCE void prefetch_resource_end(const struct lock_machine *machine, uint32_t resource)
{
    __builtin_prefetch(&resource_at(machine, resource)->key_tag, 1);
    __builtin_prefetch(&resource_at(machine, resource)->queue, 1);
}

static const struct wire_lease_id *lease_id_of(const struct wire_request *request)
{
    return request->item.op == WIRE_OP_RELEASE ? &((const struct wire_release *)request)->lease
                                               : &((const struct wire_convert *)request)->lease;
}

static bool names_lease(const struct wire_request *request)
{
    return request->item.op == WIRE_OP_RELEASE || request->item.op == WIRE_OP_CONVERT;
}

/* What the request names. */
ANNOUNCE void announce_named(struct lock_machine *machine, struct announced *command)
{
    const struct wire_request *request = command->request;
    index_prefetch(&machine->ids, (uint32_t)request->session);
    if (request->item.op == WIRE_OP_ACQUIRE) {
        const struct wire_acquire *acquire = (const struct wire_acquire *)request;
        command->key_hash =
            key_of(acquire->text, acquire->namespace_bytes, acquire->name_bytes).hash;
        index_prefetch(&machine->names, (uint32_t)command->key_hash);
    } else if (names_lease(request)) {
        uint32_t lease = lease_id_of(request)->slot;
        if (lease < machine->slabs[SLAB_LEASES].capacity) {
            prefetch_lease(machine, lease);
            timers_prefetch(&machine->timers, timer_id(machine, TIMER_LEASE, lease));
            slab_prefetch_live(&machine->slabs[SLAB_LEASES], lease);
        }
        index_prefetch(&machine->names, ((const struct wire_release *)request)->key_tag);
    }
}

/* What that names. `before`: the command before it, of which it is often a neighbour in the same
 * datagram; or NULL. */
ANNOUNCE void announce_found(struct lock_machine *machine, struct announced *command,
                             const struct announced *before)
{
    const struct wire_request *request = command->request;
    command->session = NONE;
    if (before != NULL && before->request->session == request->session) {
        command->session = before->session;
    } else {
        struct index_search search = index_search(&machine->ids, request->session);
        if (index_candidate(&search, &command->session)) {
            __builtin_prefetch(session_at(machine, command->session), 1); /* its first line */
        }
    }
    if (command->session != NONE) {
        __builtin_prefetch(window_cell(machine, command->session, request->number), 1);
        __builtin_prefetch(window_cell(machine, command->session, request->acked_below - 1), 1);
    }
    if (request->item.op == WIRE_OP_ACQUIRE) {
        uint32_t resource;
        index_prefetch_next(&machine->names, (uint32_t)command->key_hash);
        if (index_at_home(&machine->names, command->key_hash, &resource)) {
            __builtin_prefetch(resource_at(machine, resource), 1);
            prefetch_resource_end(machine, resource);
        }
    } else if (names_lease(request)) {
        uint32_t lease = lease_id_of(request)->slot;
        index_prefetch_next(&machine->names, ((const struct wire_release *)request)->key_tag);
        if (slab_is_live(&machine->slabs[SLAB_LEASES], lease)) {
            const struct lease_record *record = lease_at(machine, lease);
            prefetch_resource_end(machine, record->resource);
            slab_prefetch_live(&machine->slabs[SLAB_RESOURCES], record->resource);
            prefetch_lease(machine, record->session_next);
            prefetch_lease(machine, record->session_prev);
            timers_prefetch_neighbours(&machine->timers, timer_id(machine, TIMER_LEASE, lease));
        }
    }
}

/* The answer that its acknowledgement frees, and the lease that a new one is linked to. */
ANNOUNCE void announce_neighbours(struct lock_machine *machine, const struct announced *command)
{
    if (command->session == NONE) {
        return;
    }
    const struct session_record *record = session_at(machine, command->session);
    uint32_t cell = *window_cell(machine, command->session, record->acked_below);
    if (cell != NONE) { /* the slot that this frees is likely the next one taken */
        __builtin_prefetch(answer_at(machine, cell_answer(cell)), 1);
    }
    if (command->request->item.op == WIRE_OP_ACQUIRE) {
        prefetch_lease(machine, record->lease);
    }
}

/* ---- one command ----------------------------------------------------------------------------- */

/* What is recorded under its number: fills the answer. */
static void execute(struct lock_machine *machine, const struct wire_request *request,
                    uint32_t session, uint32_t answer)
{
    switch (request->item.op) {
    case WIRE_OP_KEEPALIVE:
        apply_keepalive(machine, (const struct wire_renew *)request, session, answer);
        break;
    case WIRE_OP_ACQUIRE:
        apply_acquire(machine, (const struct wire_acquire *)request, session, answer);
        break;
    case WIRE_OP_RELEASE:
        apply_release(machine, (const struct wire_release *)request, session, answer);
        break;
    case WIRE_OP_RENEW:
        apply_renew(machine, (const struct wire_renew *)request, answer);
        break;
    case WIRE_OP_CANCEL:
        apply_cancel(machine, (const struct wire_cancel *)request, session, answer);
        break;
    case WIRE_OP_CONVERT:
        apply_convert(machine, (const struct wire_convert *)request, session, answer);
        break;
    case WIRE_OP_FORCE_RELEASE:
        apply_force_release(machine, (const struct wire_named *)request, answer);
        break;
    default:
        assert(false && "judged before");
    }
}

/* The session, if it is live at this entry. */
static uint32_t live_session(struct lock_machine *machine, uint64_t id, uint32_t guess)
{
    uint32_t session = session_is(machine, guess, id) ? guess : session_find(machine, id);
    if (session != NONE && session_is_over(machine, session_at(machine, session))) {
        session_end(machine, session, false);
        return NONE;
    }
    return session;
}

/* What the session got by an old acquire. Another lease of the same session on the same resource is
 * not an answer to it: two acquires may have waited side by side, and whoever gave the one up would
 * give back the other. */
static uint32_t held_by_name(struct lock_machine *machine, const struct wire_acquire *acquire,
                             uint32_t session)
{
    struct key key = key_of(acquire->text, acquire->namespace_bytes, acquire->name_bytes);
    uint32_t resource = resource_find(machine, &key);
    uint32_t lease = resource == NONE
                         ? NONE
                         : lease_of_number(machine, resource, session, acquire->request.number);
    if (PLANTED(lease_by_name) && resource != NONE)
        lease = lease_of_session(machine, resource, session);
    return lease;
}

/* The lease that an old convert names, if it is in the mode that was asked for. */
static uint32_t held_converted(struct lock_machine *machine, const struct wire_convert *convert)
{
    uint32_t lease = lease_find(machine, &convert->lease, convert->key_tag);
    bool exclusive = lease != NONE && until_has(lease_at(machine, lease)->until, LEASE_EXCLUSIVE);
    return exclusive == (convert->mode == WIRE_EXCLUSIVE) ? lease : NONE;
}

/* As if granted now, with what is left of the TTL. */
static bool answer_held(struct lock_machine *machine, const struct wire_request *request,
                        uint32_t session, uint32_t lease, struct answer_record *answer)
{
    if (lease == NONE || lease_is_over(machine, lease_at(machine, lease))) {
        return false;
    }
    *answer = (struct answer_record){
        .number = request->number, .session = session, .op = request->item.op};
    answer_granted(machine, answer, lease, ANSWER_WAITED);
    const struct lease_record *record = lease_at(machine, lease);
    if (!until_has(record->until, LEASE_BOUND)) {
        uint64_t left_ns = until_tick(record->until) * LOCK_TICK_NS - machine->now.stamp_ns;
        uint64_t left_ms = left_ns / 1000000;
        uint64_t grace_ms = record->extra == NONE ? 0 : extra_at(machine, record->extra)->grace_ms;
        left_ms = left_ms > grace_ms ? left_ms - grace_ms : 0;
        if (left_ms == 0) {
            return false;
        }
        answer->granted.ttl_ms = left_ms < record->ttl_ms ? (uint32_t)left_ms : record->ttl_ms;
    }
    return true;
}

/* A retry of an acquire or convert whose number was passed over. False: nothing is left of it. */
static bool reply_passed(struct lock_machine *machine, const struct wire_request *request,
                         uint32_t session)
{
    uint32_t answer = answer_find_passed(machine, session, request->number);
    struct answer_record held;
    uint32_t lease = NONE;
    if (answer != NONE && answer_at(machine, answer)->op == request->item.op) {
        reply_answer(machine, request, session, answer_at(machine, answer));
        return true;
    }
    if (request->item.op == WIRE_OP_ACQUIRE) {
        lease = held_by_name(machine, (const struct wire_acquire *)request, session);
    } else if (request->item.op == WIRE_OP_CONVERT) {
        lease = held_converted(machine, (const struct wire_convert *)request);
    }
    if (!answer_held(machine, request, session, lease, &held)) {
        return false;
    }
    reply_answer(machine, request, session, &held);
    return true;
}

static void apply_numbered(struct lock_machine *machine, const struct wire_request *request,
                           uint32_t session_guess)
{
    uint32_t session = live_session(machine, request->session, session_guess);
    if (session == NONE) {
        reply_status(machine, request, NULL, WIRE_SESSION_LOST);
        return;
    }
    const struct session_record *record = session_at(machine, session);
    answers_trim(machine, session, request->acked_below + PLANTED(window_moved));
    enum wire_status placed = window_check(machine, record, request->number);
    if (placed == WIRE_STALE_REQUEST && reply_passed(machine, request, session)) {
        return;
    }
    if (placed != WIRE_OK) {
        reply_status(machine, request, &record->address, placed);
        return;
    }
    uint32_t answer = answer_find(machine, session, request->number);
    if (answer != NONE && PLANTED(retry_applied_twice) && request->item.op == WIRE_OP_ACQUIRE) {
        execute(machine, request, session, answer);
        reply_answer(machine, request, session, answer_at(machine, answer));
        return;
    }
    if (answer != NONE) { /* the deciding duplicate check */
        if (answer_fits(answer_at(machine, answer), request->item.op)) {
            reply_answer(machine, request, session, answer_at(machine, answer));
        } else { /* two requests with one number */
            reply_problem(machine, request, &record->address, WIRE_BAD_REQUEST, WIRE_WHAT_NUMBER,
                          request->number);
        }
        return;
    }
    if (request->item.op == WIRE_OP_CLOSE) {
        reply_status(machine, request, &record->address, WIRE_OK);
        session_end(machine, session, true);
        return;
    }
    if (live(machine, SLAB_ANSWERS) >= machine->state.limits.answers_max) {
        reply_problem(machine, request, &record->address, WIRE_OVER_LIMIT, WIRE_WHAT_ANSWERS,
                      machine->state.limits.answers_max);
        return;
    }
    answer = answer_create(machine, session, request->number, request->item.op);
    execute(machine, request, session, answer);
    reply_answer(machine, request, session, answer_at(machine, answer));
}

static void apply_command(struct lock_machine *machine, const struct announced *command)
{
    const struct wire_request *request = command->request;
    machine->now.shard = request->item.shard;
    machine->now.key_hash = command->key_hash;
    if (machine->state.limits.leases_max == 0) {
        reply_status(machine, request, NULL, WIRE_UNAVAILABLE); /* the first entry sets limits */
    } else if (request->item.op == WIRE_OP_OPEN) {
        apply_open(machine, (const struct wire_open *)request);
    } else {
        apply_numbered(machine, request, command->session);
    }
}

/* ---- one entry ------------------------------------------------------------------------------- */

/* Every item is inside the payload and well-formed, and they fill it. */
static bool commands_sound(const struct lock_entry *entry, struct lock_batch *batch)
{
    size_t at = sizeof(*batch);
    if (entry->payload_bytes < at) {
        return false;
    }
    memcpy(batch, entry->payload, sizeof(*batch));
    for (uint32_t i = 0; i < batch->count; i++) {
        const struct wire_item *item = (const struct wire_item *)(entry->payload + at);
        size_t left = entry->payload_bytes - at;
        if (left < sizeof(*item) || item->bytes < sizeof(*item) || item->bytes > left ||
            item->bytes % 8 != 0 || wire_judge_request(item, true).status != WIRE_OK) {
            return false;
        }
        at += item->bytes;
    }
    return at == entry->payload_bytes;
}

/* ---- the stream of commands ------------------------------------------------------------------ */

/* Whether this is the entry that was named as the next one: entries of one index are the same. */
static bool is_announced(const struct lock_machine *machine, const struct lock_entry *entry)
{
    return machine->ahead.payload == entry->payload && machine->ahead.index == entry->index;
}

/* Begins a stream: nothing was announced. */
static void ahead_start(struct ahead *ahead, const struct lock_entry *entry)
{
    *ahead = (struct ahead){
        .payload = entry->payload,
        .index = entry->index,
        .item = (const struct wire_item *)(entry->payload + sizeof(struct lock_batch)),
    };
}

/* What was announced beyond this entry are the first commands of the next one. */
static void ahead_shift(struct ahead *ahead, const struct lock_entry *entry, uint32_t applied)
{
    if (ahead->item == ahead->end) {
        ahead->item = ahead->next_item;
    }
    ahead->payload = entry->payload;
    ahead->index = entry->index;
    ahead->ring += applied;
    ahead->named -= applied;
    ahead->found -= applied;
    ahead->neighbours -= applied;
}

/* Lets the stages go on to where they should be when command `turn` of the stream is applied. */
ANNOUNCE void ahead_advance(struct lock_machine *machine, struct ahead *ahead, uint32_t turn,
                            uint32_t count)
{
    static_assert(3 * STAGE_COMMANDS < AHEAD_COMMANDS,
                  "every command in a stage has its own place");
    for (; ahead->named < count && ahead->named <= turn + 3 * STAGE_COMMANDS; ahead->named++) {
        struct announced *command = ahead_at(ahead, ahead->named);
        if (ahead->item == ahead->end) {
            ahead->item = ahead->next_item;
        }
        command->request = (const struct wire_request *)ahead->item;
        ahead->item = wire_item_next(ahead->item);
        announce_named(machine, command);
    }
    for (; ahead->found < ahead->named && ahead->found <= turn + 2 * STAGE_COMMANDS;
         ahead->found++) {
        announce_found(machine, ahead_at(ahead, ahead->found),
                       ahead->found == 0 ? NULL : ahead_at(ahead, ahead->found - 1));
    }
    for (; ahead->neighbours < ahead->found && ahead->neighbours <= turn + STAGE_COMMANDS;
         ahead->neighbours++) {
        announce_neighbours(machine, ahead_at(ahead, ahead->neighbours));
    }
}

/* The stages run on into the first commands of the entry that comes next, if it is known: what they
 * fetch arrives while commands of this one are applied. */
static void apply_commands(struct lock_machine *machine, const struct lock_entry *entry,
                           const struct lock_batch *batch, const struct lock_entry *next,
                           const struct lock_batch *next_batch)
{
    struct ahead *ahead = &machine->ahead;
    uint32_t count = batch->count;
    if (!is_announced(machine, entry)) {
        ahead_start(ahead, entry);
    }
    ahead->end = (const struct wire_item *)(entry->payload + entry->payload_bytes);
    if (next != NULL) {
        count += next_batch->count;
        ahead->next_item = (const struct wire_item *)(next->payload + sizeof(*next_batch));
    }
    for (uint32_t turn = 0; turn < batch->count; turn++) {
        ahead_advance(machine, ahead, turn, count);
        machine->now.command = turn;
        apply_command(machine, ahead_at(ahead, turn));
    }
    if (next != NULL) {
        ahead_shift(ahead, next, batch->count);
    } else {
        ahead->payload = NULL;
    }
}

static void apply_limits(struct lock_machine *machine, const struct lock_limits *limits)
{
    uint64_t epoch_start = (uint64_t)limits->token_epoch << 48;
    machine->state.limits = *limits;
    if (epoch_start > machine->state.token_last) {
        WORD_PUT(machine->state.token_last, epoch_start);
    }
    history_add(machine, machine->state.token_last, limits->leases_max);
}

/* Starts an entry: from here on nothing fails. */
static void entry_begin(struct lock_machine *machine, const struct lock_entry *entry,
                        struct lock_sink *sink)
{
    /* Stamps never decrease along a correct log; if one does, time stands still. */
    uint64_t stamp_ns =
        entry->stamp_ns > machine->state.stamp_ns ? entry->stamp_ns : machine->state.stamp_ns;
    WORD_PUT(machine->state.stamp_ns, stamp_ns);
    WORD_PUT(machine->state.applied_index, entry->index);
    machine->now =
        (struct entry_now){.stamp_ns = stamp_ns, .tick = stamp_ns / LOCK_TICK_NS, .sink = sink};
}

/* An entry that was announced has been judged. */
static bool commands_judged(const struct lock_machine *machine, const struct lock_entry *entry,
                            struct lock_batch *batch)
{
    if (!is_announced(machine, entry)) {
        return commands_sound(entry, batch);
    }
    memcpy(batch, entry->payload, sizeof(*batch));
    return true;
}

int lock_machine_apply(struct lock_machine *machine, const struct lock_entry *entry,
                       struct lock_sink *sink)
{
    return lock_machine_apply_ahead(machine, entry, NULL, sink);
}

int lock_machine_apply_ahead(struct lock_machine *machine, const struct lock_entry *entry,
                             const struct lock_entry *next, struct lock_sink *sink)
{
    struct lock_batch batch = {.endings_max = LOCK_ENDINGS_DEFAULT};
    struct lock_batch next_batch;
    struct lock_limits limits;
    assert(!machine->restoring);
    switch (entry->kind) {
    case LOCK_ENTRY_COMMANDS:
        if (!commands_judged(machine, entry, &batch)) {
            return -EBADMSG;
        }
        if (next != NULL &&
            (next->kind != LOCK_ENTRY_COMMANDS || !commands_sound(next, &next_batch))) {
            next = NULL; /* its own turn will tell */
        }
        entry_begin(machine, entry, sink);
        settle(machine, batch.endings_max);
        apply_commands(machine, entry, &batch, next, &next_batch);
        return 0;
    case LOCK_ENTRY_LIMITS:
        if (!lock_limits_decode(&limits, entry->payload, entry->payload_bytes) ||
            lock_limits_check(&limits) != NULL) {
            return -EBADMSG;
        }
        if (!lock_limits_fit(&limits, &machine->capacity)) {
            return -ENOSPC;
        }
        entry_begin(machine, entry, sink);
        apply_limits(machine, &limits);
        return 0;
    case LOCK_ENTRY_EMPTY:
        entry_begin(machine, entry, sink);
        settle(machine, LOCK_ENDINGS_DEFAULT);
        return 0;
    }
    return -EBADMSG;
}
