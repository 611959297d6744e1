/* SPDX-License-Identifier: Apache-2.0
 *
 * What the owner thread asks without an entry: admission, QUERY, LIST, unconfirmed grants.
 *
 * Nothing here changes anything. "Due" is judged at the last applied stamp.
 */
#include "consensus/plant.h"
#include "dataplane/machine/machine.h"

#include <string.h>

/* ---- admission ------------------------------------------------------------------------------- */

static enum lock_admission admit_open(const struct lock_machine *machine,
                                      const struct wire_open *open, const struct reply_head *head,
                                      void *out)
{
    uint32_t session = session_find_nonce(machine, open->nonce);
    if (session == NONE || session_is_over(machine, session_at(machine, session))) {
        return LOCK_ADMIT;
    }
    build_opened(machine, out, head, session_at(machine, session));
    return LOCK_ANSWERED;
}

enum lock_admission lock_machine_admit(const struct lock_machine *machine,
                                       const struct wire_request *request, void *out)
{
    struct reply_head head = {
        .session = request->session,
        .number = request->number,
        .shard = request->item.shard,
        .op = request->item.op,
    };
    if (machine->state.limits.leases_max == 0) {
        return LOCK_ADMIT; /* apply answers UNAVAILABLE, if limits do not come first */
    }
    if (request->item.op == WIRE_OP_OPEN) {
        return admit_open(machine, (const struct wire_open *)request, &head, out);
    }
    uint32_t session = session_find(machine, request->session);
    if (session == NONE) {
        build_status(out, &head, WIRE_SESSION_LOST);
        return LOCK_REFUSED;
    }
    /* This request's own acknowledgement may move the window, but only apply may do so. */
    struct session_record record = *session_at(machine, session);
    enum wire_status placed = window_check(machine, &record, request->number);
    if (placed == WIRE_WINDOW_FULL && request->acked_below > record.acked_below) {
        return LOCK_ADMIT;
    }
    if (placed == WIRE_STALE_REQUEST) { /* passed over, perhaps */
        uint32_t passed = answer_find_passed(machine, session, request->number);
        if (passed != NONE && answer_at(machine, passed)->op == request->item.op) {
            build_answer(machine, out, &head, answer_at(machine, passed));
            return LOCK_ANSWERED;
        }
        if (request->item.op == WIRE_OP_ACQUIRE) {
            return LOCK_ADMIT; /* it may hold what it waited for: apply looks */
        }
    }
    if (placed != WIRE_OK) {
        build_status(out, &head, placed);
        return LOCK_REFUSED;
    }
    uint32_t answer = answer_find(machine, session, request->number);
    if (answer == NONE || !answer_fits(answer_at(machine, answer), request->item.op) ||
        PLANTED(retry_applied_twice)) {
        return LOCK_ADMIT;
    }
    build_answer(machine, out, &head, answer_at(machine, answer));
    return LOCK_ANSWERED;
}

const struct wire_address *lock_machine_session_address(const struct lock_machine *machine,
                                                        uint64_t session)
{
    uint32_t slot = session_find(machine, session);
    return slot == NONE ? NULL : &session_at(machine, slot)->address;
}

bool lock_machine_unconfirmed(const struct lock_machine *machine, uint64_t *cursor,
                              uint32_t sessions_max, struct lock_sink *sink)
{
    const struct slab *sessions = &machine->slabs[SLAB_SESSIONS];
    uint64_t session = *cursor;
    for (; session < sessions->capacity && sessions_max > 0; session++, sessions_max--) {
        if (!slab_is_live(sessions, (uint32_t)session) ||
            until_has(session_at(machine, (uint32_t)session)->until, SESSION_OVER)) {
            continue;
        }
        for (uint32_t i = 0; i <= machine->window_mask; i++) {
            uint32_t answer = cell_answer(*window_cell(machine, (uint32_t)session, i));
            if (answer != NONE && answer_at(machine, answer)->status == WIRE_OK &&
                (answer_at(machine, answer)->flags & ANSWER_WAITED) != 0) {
                push_grant(machine, sink, answer_at(machine, answer));
            }
        }
    }
    *cursor = session;
    return session < sessions->capacity;
}

/* ---- pages ----------------------------------------------------------------------------------- */

struct page {
    uint8_t *out;
    size_t capacity;
    size_t bytes;
};

/* Zeroed room for `bytes` more, rounded up to 8; NULL = full. */
static void *page_add(struct page *page, size_t bytes)
{
    bytes = wire_pad8(bytes);
    if (bytes > page->capacity - page->bytes) {
        return NULL;
    }
    void *room = page->out + page->bytes;
    memset(room, 0, bytes);
    page->bytes += bytes;
    return room;
}

static struct wire_reply page_reply(const struct wire_named *request, enum wire_status status,
                                    size_t bytes)
{
    return (struct wire_reply){
        .item = {.bytes = (uint16_t)bytes,
                 .op = request->request.item.op,
                 .shard = request->request.item.shard,
                 .status = (uint16_t)status},
        .session = request->request.session,
        .number = request->request.number,
    };
}

/* ---- QUERY ----------------------------------------------------------------------------------- */

/* A QUERY's cursor: which list, and the slot the page starts at, plus one. The party may be gone
 * when the next page is asked for: then the page starts with what comes after its list. */
enum { CURSOR_HOLDERS = 0, CURSOR_WAITERS = 1 };

static uint64_t cursor_make(uint64_t list, uint32_t slot)
{
    return list << 32 | ((uint64_t)slot + 1);
}

static bool page_add_party(const struct lock_machine *machine, struct page *page,
                           const struct wire_party *party, uint32_t extra)
{
    const struct extra_record *record = extra == NONE ? NULL : extra_at(machine, extra);
    size_t value_bytes = record == NULL ? 0 : record->value_bytes;
    struct wire_party *room = page_add(page, sizeof(*room) + value_bytes);
    if (room == NULL) {
        return false;
    }
    *room = *party;
    room->value_bytes = (uint8_t)value_bytes;
    if (record != NULL) {
        memcpy(room + 1, record->value, value_bytes);
    }
    return true;
}

static bool page_add_holder(const struct lock_machine *machine, struct page *page, uint32_t lease)
{
    const struct lease_record *record = lease_at(machine, lease);
    uint64_t tick = until_tick(record->until);
    struct wire_party party = {
        .token = record->token,
        .mode = until_has(record->until, LEASE_EXCLUSIVE) ? WIRE_EXCLUSIVE : WIRE_SHARED,
    };
    if (record->session != NONE) {
        const struct session_record *session = session_at(machine, record->session);
        party.session = session->id;
        if (tick == TICK_NEVER) {
            tick = until_tick(session->until); /* it lives with its session */
        }
    }
    party.remaining_ms = remaining_ms(machine->state.stamp_ns, tick);
    return page_add_party(machine, page, &party, record->extra);
}

static bool page_add_waiter(const struct lock_machine *machine, struct page *page, uint32_t waiter,
                            uint32_t position)
{
    const struct waiter_record *record = waiter_at(machine, waiter);
    struct wire_party party = {
        .session = session_at(machine, record->session)->id,
        .remaining_ms = remaining_ms(machine->state.stamp_ns, until_tick(record->until)),
        .mode = record->mode,
        .waiting = record->lease == NONE ? 1 : 2,
        .priority = (uint8_t)(record->rank == RANK_UPGRADER ? 255 : record->rank),
        .position = position,
    };
    return page_add_party(machine, page, &party, record->extra);
}

/* Next waiter of the whole queue. */
static uint32_t waiter_after(const struct lock_machine *machine, uint32_t waiter)
{
    const struct waiter_record *record = waiter_at(machine, waiter);
    if (record->next != NONE) {
        return record->next;
    }
    /* The first of its class knows the next class. */
    uint32_t first = queue_at(machine, record->queue)->head;
    while (waiter_at(machine, first)->rank > record->rank) {
        first = waiter_at(machine, first)->class_below;
    }
    return waiter_at(machine, first)->class_below;
}

static uint32_t holders_from(const struct lock_machine *machine, uint32_t resource, uint64_t cursor)
{
    uint32_t slot = (uint32_t)cursor - 1;
    if (cursor == 0) {
        return resource_at(machine, resource)->holder;
    }
    return cursor >> 32 == CURSOR_HOLDERS && slab_is_live(&machine->slabs[SLAB_LEASES], slot) &&
                   lease_at(machine, slot)->resource == resource
               ? slot
               : NONE;
}

static uint32_t waiters_from(const struct lock_machine *machine, uint32_t resource, uint64_t cursor)
{
    uint32_t queue = resource_at(machine, resource)->queue;
    uint32_t slot = (uint32_t)cursor - 1;
    if (queue == NONE) {
        return NONE;
    }
    if (cursor >> 32 != CURSOR_WAITERS) {
        return queue_at(machine, queue)->head;
    }
    return slab_is_live(&machine->slabs[SLAB_WAITERS], slot) &&
                   waiter_at(machine, slot)->queue == queue
               ? slot
               : NONE;
}

static void query_parties(const struct lock_machine *machine, uint32_t resource, uint64_t cursor,
                          struct page *page, struct wire_state *state)
{
    for (uint32_t lease = holders_from(machine, resource, cursor); lease != NONE;
         lease = lease_at(machine, lease)->holder_next, state->parties++) {
        if (!page_add_holder(machine, page, lease)) {
            state->cursor = cursor_make(CURSOR_HOLDERS, lease);
            return;
        }
    }
    uint32_t waiter = waiters_from(machine, resource, cursor);
    uint32_t position = waiter == NONE ? 0 : waiter_position(machine, waiter);
    for (; waiter != NONE; waiter = waiter_after(machine, waiter), state->parties++, position++) {
        if (!page_add_waiter(machine, page, waiter, position)) {
            state->cursor = cursor_make(CURSOR_WAITERS, waiter);
            return;
        }
    }
}

static size_t read_query(const struct lock_machine *machine, const struct wire_named *request,
                         uint64_t age_ns, struct page *page)
{
    struct key key = key_of(request->text, request->namespace_bytes, request->name_bytes);
    uint32_t resource = resource_find(machine, &key);
    struct wire_state *state = page_add(page, sizeof(*state));
    state->index = machine->state.applied_index;
    state->age_ns = age_ns;
    if (resource != NONE) {
        const struct resource_record *record = resource_at(machine, resource);
        uint64_t closed_until = resource_closed_until(machine, record);
        state->holders = holders_of(machine, record);
        state->waiters = waiters_of(machine, record);
        if (closed_until != 0) {
            state->delay_remaining_ms = remaining_ms(machine->state.stamp_ns, closed_until);
        }
        query_parties(machine, resource, request->cursor, page, state);
    }
    state->reply = page_reply(request, WIRE_OK, page->bytes);
    return page->bytes;
}

/* ---- LIST ------------------------------------------------------------------------------------ */

static bool has_prefix(const struct lock_machine *machine, const struct resource_record *record,
                       const struct wire_named *request)
{
    return record->namespace_bytes == request->namespace_bytes &&
           record->name_bytes >= request->name_bytes &&
           memcmp(resource_text(machine, record), request->text,
                  (size_t)request->namespace_bytes + request->name_bytes) == 0;
}

static bool page_add_listed(const struct lock_machine *machine, struct page *page,
                            const struct resource_record *record)
{
    size_t text_bytes = (size_t)record->namespace_bytes + record->name_bytes;
    struct wire_listed *listed = page_add(page, sizeof(*listed) + text_bytes);
    if (listed == NULL) {
        return false;
    }
    listed->holders = holders_of(machine, record);
    listed->waiters = waiters_of(machine, record);
    listed->namespace_bytes = record->namespace_bytes;
    listed->name_bytes = record->name_bytes;
    if (record->holder != NONE) {
        listed->token = lease_at(machine, record->holder)->token;
        listed->mode = holders_exclusive(machine, record) ? WIRE_EXCLUSIVE : WIRE_SHARED;
    }
    memcpy(listed + 1, resource_text(machine, record), text_bytes);
    return true;
}

static size_t read_list(const struct lock_machine *machine, const struct wire_named *request,
                        uint64_t age_ns, struct page *page)
{
    const struct slab *resources = &machine->slabs[SLAB_RESOURCES];
    struct wire_list *list = page_add(page, sizeof(*list));
    list->index = machine->state.applied_index;
    list->age_ns = age_ns;
    /* The cursor is the slot to go on from; 0 both starts and ends a walk. */
    uint64_t slot = request->cursor;
    for (uint32_t seen = 0; slot < resources->capacity; slot++, seen++) {
        bool matches = slab_is_live(resources, (uint32_t)slot) &&
                       has_prefix(machine, resource_at(machine, (uint32_t)slot), request);
        if (seen == LIST_SLOTS_MAX ||
            (matches && !page_add_listed(machine, page, resource_at(machine, (uint32_t)slot)))) {
            list->cursor = slot;
            break;
        }
        list->count += matches;
    }
    list->reply = page_reply(request, WIRE_OK, page->bytes);
    return page->bytes;
}

size_t lock_machine_read(const struct lock_machine *machine, const struct wire_named *request,
                         uint64_t age_ns, void *out, size_t capacity)
{
    struct page page = {.out = out, .capacity = capacity};
    assert(capacity >= REPLY_BYTES_MAX);
    return request->request.item.op == WIRE_OP_LIST ? read_list(machine, request, age_ns, &page)
                                                    : read_query(machine, request, age_ns, &page);
}
