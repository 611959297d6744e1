/* SPDX-License-Identifier: Apache-2.0
 *
 * Invocations and their answers become operations.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lincheck/events.h"

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int by_time(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    int order = compare(x->time_ns, y->time_ns);
    return order != 0 ? order : compare(x->place, y->place);
}

static int by_process(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    int order = (x->said.process > y->said.process) - (x->said.process < y->said.process);
    return order != 0 ? order : compare(x->place, y->place);
}

static int by_key_and_call(const void *a, const void *b)
{
    const struct history_op *x = a, *y = b;
    int order = compare(x->key, y->key);
    return order != 0 ? order : compare(x->call_at, y->call_at);
}

/* Two events of one instant have no order between them: beginnings go before ends, which makes
 * their operations overlap. Of one process' events the order in the file is known. */
static void place_instants(struct event *events, size_t count, uint32_t *places)
{
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && events[end].time_ns == events[first].time_ns; end++)
            ;
        uint32_t place = (uint32_t)first;
        for (size_t i = first; i < end; i++)
            if (events[i].type == EVENT_INVOKE)
                places[i] = place++;
        for (size_t i = first; i < end; i++)
            if (events[i].type != EVENT_INVOKE)
                places[i] = place++;
    }
}

/* Settles the order of events: that of the file, except where JSON lines bear times. */
static int order_events(struct loading *loading, uint32_t *places)
{
    struct event *events = loading->events;
    size_t count = loading->events_count, timed = 0;
    for (size_t i = 0; i < count; i++) {
        events[i].place = places[i] = (uint32_t)i;
        timed += events[i].timed;
    }
    if (loading->history->format != FORMAT_JSON || timed == 0)
        return 0;
    for (size_t i = 0; i < count && timed < count; i++)
        if (!events[i].timed)
            return parse_fail(loading->cursor.error, events[i].line,
                              "no time, though other events have one");
    qsort(events, count, sizeof *events, by_time);
    for (size_t i = 0; i < count; i++)
        events[i].place = (uint32_t)i;
    place_instants(events, count, places);
    return 0;
}

/* The pairing of one file. */
struct pairing {
    struct loading *loading;
    const uint32_t *places; /* by event.place */
    bool any_owner, observe_cas;
    struct parse_error first; /* of all errors, the one on the lowest line; line 0: none */
};

static void complain(struct pairing *pairing, uint32_t line, const char *what)
{
    if (pairing->first.line == 0 || line < pairing->first.line)
        parse_fail(&pairing->first, line, "%s", what);
}

/* What the answer says goes over what the invocation said. */
static void merge_answer(struct history_op *op, const struct event *answer)
{
    const struct history_op *said = &answer->said;
    if (said->token_known) {
        op->token = said->token;
        op->token_known = true;
    }
    if (said->mode != OP_MODE_NONE)
        op->mode = said->mode;
    if (said->permits != 0)
        op->permits = said->permits;
    if (said->owner != 0)
        op->owner = said->owner;
    if (said->key != 0)
        op->key = said->key;
    if (op->kind == OP_READ) {
        op->value = said->value;
        op->holders = said->holders;
    }
    op->return_line = answer->line;
}

static void judge_op(struct pairing *pairing, const struct history_op *op)
{
    enum model_kind model = pairing->loading->options->model;
    bool answered = op->return_at != POSITION_NEVER;
    uint32_t line = answered ? op->return_line : op->call_line;
    if (model == MODEL_FENCED_MUTEX && op->kind == OP_ACQUIRE && answered && !op->token_known)
        complain(pairing, line, "an acquire that was granted bears no token");
    if (model == MODEL_SHARED_LOCK && op->mode == OP_MODE_NONE &&
        (op->kind == OP_ACQUIRE || op->kind == OP_CONVERT))
        complain(pairing, line, "a shared lock's acquire says whether it is shared or exclusive");
    if (model == MODEL_KV && op->key == 0)
        complain(pairing, op->call_line, "a key-value operation names no key");
}

static int add_op(struct pairing *pairing, struct history_op op)
{
    struct history *history = pairing->loading->history;
    if (op.permits == 0)
        op.permits = 1;
    int result = 0;
    if (op.owner == 0 && !pairing->any_owner && model_is_lock(pairing->loading->options->model))
        result = event_process_owner(history, op.process, &op.owner);
    if (result == 0)
        result = budget_reserve(history->budget, (void **)&history->ops, &history->ops_capacity,
                                history->ops_count + 1, sizeof *history->ops);
    if (result < 0)
        return result;
    judge_op(pairing, &op);
    history->ops[history->ops_count++] = op;
    return 0;
}

/* An operation of which nobody knows how it ended: it may take effect at any time from its call on.
 * If it is a read, it says nothing. */
static int leave_open(struct pairing *pairing, const struct event *call)
{
    struct history_op op = call->said;
    op.call_at = pairing->places[call->place];
    op.call_line = call->line;
    op.return_at = POSITION_NEVER;
    return op.kind == OP_READ ? 0 : add_op(pairing, op);
}

static int answer_op(struct pairing *pairing, const struct event *call, const struct event *answer)
{
    struct history_op op = call->said;
    if (op.kind != answer->said.kind) {
        complain(pairing, answer->line,
                 "the answer is to another operation than its process began");
        return 0;
    }
    if (answer->said.key != 0 && op.key != 0 && answer->said.key != op.key) {
        complain(pairing, answer->line, "the answer is for another key than was asked for");
        return 0;
    }
    op.call_at = pairing->places[call->place];
    op.call_line = call->line;
    op.return_at = pairing->places[answer->place];
    merge_answer(&op, answer);
    if (answer->type == EVENT_OK)
        return add_op(pairing, op);
    if (op.kind == OP_CAS && pairing->observe_cas && !answer->has_error) {
        op.mismatch = true;
        return add_op(pairing, op);
    }
    pairing->loading->history->failed_count++;
    return 0;
}

/* All events of one process, in order. */
static int pair_process(struct pairing *pairing, const struct event *events, size_t count)
{
    const struct event *call = NULL;
    int result = 0;
    for (size_t i = 0; i < count && result == 0; i++) {
        const struct event *event = &events[i];
        if (event->type == EVENT_INVOKE) {
            if (call != NULL)
                complain(pairing, event->line, "its process has not ended its operation before");
            call = event;
        } else if (call == NULL) {
            complain(pairing, event->line, "an answer to nothing: its process has begun nothing");
        } else {
            result = event->type == EVENT_INFO ? leave_open(pairing, call)
                                               : answer_op(pairing, call, event);
            call = NULL;
        }
    }
    return result == 0 && call != NULL ? leave_open(pairing, call) : result;
}

static int pair_all(struct pairing *pairing)
{
    struct loading *loading = pairing->loading;
    struct event *events = loading->events;
    qsort(events, loading->events_count, sizeof *events, by_process);
    for (size_t first = 0, end; first < loading->events_count; first = end) {
        int64_t process = events[first].said.process;
        for (end = first + 1; end < loading->events_count && events[end].said.process == process;
             end++)
            ;
        int result = pair_process(pairing, &events[first], end - first);
        if (result < 0)
            return result;
    }
    if (pairing->first.line != 0) {
        *loading->cursor.error = pairing->first;
        return -EBADMSG;
    }
    struct history *history = loading->history;
    if (history->ops_count > 0)
        qsort(history->ops, history->ops_count, sizeof *history->ops, by_key_and_call);
    return 0;
}

int events_pair(struct loading *loading)
{
    const struct history_options *options = loading->options;
    enum history_format format = loading->history->format;
    struct pairing pairing = {.loading = loading};
    pairing.any_owner =
        options->owners == OWNER_ANY ||
        (options->owners == OWNER_AUTO && options->model == MODEL_MUTEX && format != FORMAT_JSON);
    /* Without owners nobody could enter again. */
    if (options->model == MODEL_REENTRANT_MUTEX)
        pairing.any_owner = false;
    pairing.observe_cas = options->failed_cas == FAILED_CAS_OBSERVE ||
                          (options->failed_cas == FAILED_CAS_AUTO && format != FORMAT_EDN);
    size_t bytes = loading->events_count * sizeof(uint32_t);
    uint32_t *places = budget_resize(loading->history->budget, NULL, 0, bytes);
    if (places == NULL)
        return -ENOMEM;
    pairing.places = places;
    int result = order_events(loading, places);
    if (result == 0)
        result = pair_all(&pairing);
    budget_release(loading->history->budget, places, bytes);
    return result;
}
