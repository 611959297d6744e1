/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers and pushes as wire items. Everything here is a function of the records: the answer to a
 * retry is built from what was stored, by the same code as the first.
 */
#include "dataplane/machine/machine.h"

#include <string.h>

static_assert(sizeof(struct wire_busy) + WIRE_VALUE_BYTES_MAX + 7 <= REPLY_BYTES_MAX,
              "every answer fits");

/* ---- building -------------------------------------------------------------------------------- */

/* The items are written field by field where they are to be: a struct built elsewhere and copied
 * costs as much again. */
static inline void reply_begin(void *out, const struct reply_head *head, enum wire_status status,
                               size_t bytes)
{
    struct wire_reply *reply = out;
    reply->item.bytes = (uint16_t)bytes;
    reply->item.op = head->op;
    reply->item.flags = 0;
    reply->item.shard = head->shard;
    reply->item.status = (uint16_t)status;
    reply->session = head->session;
    reply->number = head->number;
}

void build_status(void *out, const struct reply_head *head, enum wire_status status)
{
    reply_begin(out, head, status, sizeof(struct wire_reply));
}

void build_problem(void *out, const struct reply_head *head, enum wire_status status,
                   enum wire_what what, uint64_t limit)
{
    struct wire_problem *problem = out;
    reply_begin(out, head, status, sizeof(*problem));
    problem->what = (uint16_t)what;
    memset(problem->zero, 0, sizeof(problem->zero));
    problem->limit = limit;
}

void build_opened(const struct lock_machine *machine, void *out, const struct reply_head *head,
                  const struct session_record *record)
{
    struct wire_opened *opened = out;
    reply_begin(out, head, WIRE_OK, sizeof(*opened));
    opened->reply.session = record->id;
    opened->nonce = record->nonce;
    opened->ttl_ms = record->ttl_ms;
    opened->window = machine->state.limits.window;
}

static inline void build_granted(void *out, const struct reply_head *head,
                                 const struct answer_record *answer)
{
    struct wire_granted *granted = out;
    reply_begin(out, head, WIRE_OK, sizeof(*granted));
    granted->lease.secret = answer->granted.secret;
    granted->lease.slot = answer->granted.lease;
    granted->lease.zero = 0;
    granted->token = answer->granted.token;
    granted->ttl_ms = answer->granted.ttl_ms;
    granted->mode = answer->mode;
    granted->waited = (answer->flags & ANSWER_WAITED) != 0;
    memset(granted->zero, 0, sizeof(granted->zero));
    granted->keepalive_number = answer->granted.keepalive_number;
    granted->since_keepalive_ns = answer->granted.since_keepalive_ns;
}

static void build_renewed(void *out, const struct reply_head *head,
                          const struct answer_record *answer)
{
    struct wire_renewed *renewed = out;
    size_t bytes = wire_pad8(sizeof(*renewed) + answer->renewed.count);
    memset(renewed, 0, bytes);
    reply_begin(out, head, WIRE_OK, bytes);
    renewed->count = (uint16_t)answer->renewed.count;
    for (uint32_t i = 0; i < answer->renewed.count; i++) {
        renewed->results[i] = (answer->renewed.lost >> i) & 1 ? WIRE_LOST : WIRE_OK;
    }
}

static void build_busy(const struct lock_machine *machine, void *out, const struct reply_head *head,
                       const struct answer_record *answer)
{
    struct wire_busy *busy = out;
    const struct extra_record *extra =
        answer->busy.extra == NONE ? NULL : extra_at(machine, answer->busy.extra);
    size_t value_bytes = extra == NULL ? 0 : extra->value_bytes;
    size_t bytes = wire_pad8(sizeof(*busy) + value_bytes);
    memset(busy, 0, bytes);
    reply_begin(out, head, WIRE_BUSY, bytes);
    busy->holders = answer->busy.holders;
    busy->first.session = answer->busy.session;
    busy->first.token = answer->busy.token;
    busy->first.remaining_ms = answer->busy.remaining_ms;
    busy->first.mode = answer->mode;
    busy->first.value_bytes = (uint8_t)value_bytes;
    if (extra != NULL) {
        memcpy(busy->value, extra->value, value_bytes);
    }
}

static void build_queued(const struct lock_machine *machine, void *out,
                         const struct reply_head *head, const struct answer_record *answer)
{
    struct wire_queued *queued = out;
    reply_begin(out, head, WIRE_QUEUED, sizeof(*queued));
    queued->position = waiter_position(machine, answer->queued.waiter);
    queued->zero = 0;
}

static inline void build_ok(void *out, const struct reply_head *head,
                            const struct answer_record *answer)
{
    switch (answer->op) {
    case WIRE_OP_ACQUIRE:
    case WIRE_OP_CONVERT:
        build_granted(out, head, answer);
        break;
    case WIRE_OP_KEEPALIVE:
    case WIRE_OP_RENEW:
        build_renewed(out, head, answer);
        break;
    default:
        build_status(out, head, WIRE_OK);
    }
}

static inline void answer_item(const struct lock_machine *machine, void *out,
                               const struct reply_head *head, const struct answer_record *answer)
{
    switch (answer->status) {
    case WIRE_OK:
        build_ok(out, head, answer);
        break;
    case WIRE_QUEUED:
        build_queued(machine, out, head, answer);
        break;
    case WIRE_BUSY:
        build_busy(machine, out, head, answer);
        break;
    case WIRE_DELAYED:
        reply_begin(out, head, WIRE_DELAYED, sizeof(struct wire_delayed));
        ((struct wire_delayed *)out)->remaining_ms = answer->delayed.remaining_ms;
        break;
    case WIRE_OVER_LIMIT:
    case WIRE_BAD_REQUEST:
        build_problem(out, head, (enum wire_status)answer->status,
                      (enum wire_what)answer->problem.what, answer->problem.limit);
        break;
    default:
        build_status(out, head, (enum wire_status)answer->status);
    }
}

void build_answer(const struct lock_machine *machine, void *out, const struct reply_head *head,
                  const struct answer_record *answer)
{
    answer_item(machine, out, head, answer);
}

/* ---- emitting -------------------------------------------------------------------------------- */

static void emit(struct lock_sink *sink, enum lock_output_kind kind,
                 const struct wire_address *address, const void *item, uint32_t command)
{
    struct lock_output output = {
        .kind = kind, .address = address, .item = item, .command = command};
    sink->emit(sink->context, &output);
}

static struct reply_head head_for(const struct wire_request *request)
{
    return (struct reply_head){
        .session = request->session,
        .number = request->number,
        .shard = request->item.shard,
        .op = request->item.op,
    };
}

void reply_status(struct lock_machine *machine, const struct wire_request *request,
                  const struct wire_address *address, enum wire_status status)
{
    struct wire_reply reply;
    struct reply_head head = head_for(request);
    history_add(machine, request->number, status);
    if (machine->now.sink != NULL) {
        build_status(&reply, &head, status);
        emit(machine->now.sink, LOCK_OUT_REPLY, address, &reply, machine->now.command);
    }
}

void reply_problem(struct lock_machine *machine, const struct wire_request *request,
                   const struct wire_address *address, enum wire_status status, enum wire_what what,
                   uint64_t limit)
{
    struct wire_problem problem;
    struct reply_head head = head_for(request);
    history_add(machine, request->number, (uint64_t)status << 32 | what);
    if (machine->now.sink != NULL) {
        build_problem(&problem, &head, status, what, limit);
        emit(machine->now.sink, LOCK_OUT_REPLY, address, &problem, machine->now.command);
    }
}

void reply_opened(struct lock_machine *machine, const struct wire_open *open, uint32_t session)
{
    struct wire_opened opened;
    struct reply_head head = head_for(&open->request);
    const struct session_record *record = session_at(machine, session);
    history_add(machine, record->id, session);
    if (machine->now.sink != NULL) {
        build_opened(machine, &opened, &head, record);
        emit(machine->now.sink, LOCK_OUT_REPLY, &record->address, &opened, machine->now.command);
    }
}

void reply_answer(struct lock_machine *machine, const struct wire_request *request,
                  uint32_t session, const struct answer_record *record)
{
    _Alignas(8) uint8_t item[REPLY_BYTES_MAX];
    struct reply_head head = head_for(request);
    history_add(machine, record->number << 8 | record->status, record->words[1]);
    if (machine->now.sink != NULL) {
        answer_item(machine, item, &head, record);
        emit(machine->now.sink, LOCK_OUT_REPLY, &session_at(machine, session)->address, item,
             machine->now.command);
    }
}

void push_grant(const struct lock_machine *machine, struct lock_sink *sink,
                const struct answer_record *answer)
{
    struct wire_granted granted;
    const struct session_record *session = session_at(machine, answer->session);
    struct reply_head head = {
        .session = session->id,
        .number = answer->number,
        .shard = session->shard,
        .op = WIRE_OP_PUSH_GRANT,
    };
    if (sink != NULL) {
        build_granted(&granted, &head, answer);
        emit(sink, LOCK_OUT_PUSH_GRANT, &session->address, &granted, 0);
    }
}

void push_lost(struct lock_machine *machine, uint32_t lease, enum wire_status reason, bool final)
{
    const struct lease_record *record = lease_at(machine, lease);
    if (machine->now.sink == NULL || record->session == NONE) {
        return;
    }
    const struct session_record *session = session_at(machine, record->session);
    struct reply_head head = {
        .session = session->id, .shard = session->shard, .op = WIRE_OP_PUSH_LOST};
    struct wire_lost lost = {
        .lease = {.secret = record->secret, .slot = lease},
        .token = record->token,
        .reason = (uint8_t)reason,
        .final = final,
    };
    reply_begin(&lost, &head, WIRE_OK, sizeof(lost));
    emit(machine->now.sink, LOCK_OUT_PUSH_LOST, &session->address, &lost, 0);
}
