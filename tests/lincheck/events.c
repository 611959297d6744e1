/* SPDX-License-Identifier: Apache-2.0
 *
 * From the parts of an event to what it says of its operation.
 */
#include "tests/lincheck/events.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define KINDS_DATA (1u << MODEL_REGISTER | 1u << MODEL_KV)
#define KINDS_LOCK                                                                                 \
    (1u << MODEL_MUTEX | 1u << MODEL_REENTRANT_MUTEX | 1u << MODEL_FENCED_MUTEX |                  \
     1u << MODEL_SHARED_LOCK | 1u << MODEL_SEMAPHORE)

static const struct {
    const char *name;
    uint8_t kind, mode;
    uint32_t models; /* bits: where it means something */
} op_names[] = {
    {"read", OP_READ, 0, KINDS_DATA},
    {"get", OP_READ, 0, KINDS_DATA},
    {"write", OP_WRITE, 0, KINDS_DATA},
    {"put", OP_WRITE, 0, KINDS_DATA},
    {"append", OP_APPEND, 0, 1u << MODEL_KV},
    {"cas", OP_CAS, 0, KINDS_DATA},
    {"acquire", OP_ACQUIRE, 0, KINDS_LOCK},
    {"release", OP_RELEASE, 0, KINDS_LOCK},
    {"lock", OP_ACQUIRE, 0, KINDS_LOCK},
    {"unlock", OP_RELEASE, 0, KINDS_LOCK},
    {"acquire-shared", OP_ACQUIRE, OP_SHARED, 1u << MODEL_SHARED_LOCK},
    {"acquire-exclusive", OP_ACQUIRE, OP_EXCLUSIVE, 1u << MODEL_SHARED_LOCK},
    {"convert", OP_CONVERT, 0, 1u << MODEL_SHARED_LOCK},
    {"query", OP_READ, 0, KINDS_LOCK & ~(1u << MODEL_SEMAPHORE)},
};

/* One event on its way in. */
struct reading {
    struct loading *loading;
    struct event_parts parts;
    struct event event;
};

static int fail(struct reading *reading, const char *what)
{
    return parse_fail(reading->loading->cursor.error, reading->parts.line, "%s", what);
}

static const struct datum *at(struct reading *reading, uint32_t datum)
{
    return datum_at(&reading->loading->pool, datum);
}

static bool is_nil(struct reading *reading, uint32_t datum)
{
    return datum == 0 || at(reading, datum)->kind == DATUM_NIL;
}

/* The reference to the value's canonical text. */
static int intern_datum(struct reading *reading, uint32_t datum, uint32_t *reference)
{
    size_t first, length;
    struct datum_pool *pool = &reading->loading->pool;
    int result = datum_print(pool, datum, &first, &length);
    if (result < 0)
        return result;
    result = intern_put(&reading->loading->history->texts, pool->text + first, length, reference);
    return result < 0 ? result : 0;
}

int event_process_owner(struct history *history, int64_t process, uint32_t *owner)
{
    char text[40];
    int length = snprintf(text, sizeof text, "process %" PRId64, process);
    int result = intern_put(&history->texts, text, (size_t)length, owner);
    return result < 0 ? result : 0;
}

static int take_type(struct reading *reading)
{
    static const char *const types[] = {
        [EVENT_INVOKE] = "invoke", [EVENT_OK] = "ok", [EVENT_FAIL] = "fail", [EVENT_INFO] = "info"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (!datum_names(&reading->loading->pool, reading->parts.type, types[i]))
            continue;
        reading->event.type = (uint8_t)i;
        return 0;
    }
    return fail(reading, "the type is none of invoke, ok, fail, info");
}

static int take_name(struct reading *reading)
{
    const struct datum_pool *pool = &reading->loading->pool;
    enum model_kind model = reading->loading->options->model;
    for (size_t i = 0; i < sizeof op_names / sizeof op_names[0]; i++) {
        if (!datum_names(pool, reading->parts.f, op_names[i].name))
            continue;
        if ((op_names[i].models >> model & 1) == 0)
            break;
        reading->event.said.kind = op_names[i].kind;
        reading->event.said.mode = op_names[i].mode;
        return 0;
    }
    const struct datum *name = at(reading, reading->parts.f);
    bool word = name->kind == DATUM_STRING || name->kind == DATUM_KEYWORD;
    return parse_fail(reading->loading->cursor.error, reading->parts.line,
                      "the model %s has no operation%s%.*s", model_name(model), word ? " " : "",
                      word ? (int)(name->text_bytes < 40 ? name->text_bytes : 40) : 0,
                      pool->text + name->text_at);
}

/* Digits only, up to 2^64 - 1. */
static bool parse_u64(const char *text, size_t length, uint64_t *value)
{
    *value = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || __builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, (uint64_t)(text[i] - '0'), value))
            return false;
    }
    return length > 0;
}

static int take_u64(struct reading *reading, uint32_t datum, const char *what, uint64_t *value)
{
    const struct datum *node = at(reading, datum);
    if (node->kind == DATUM_INTEGER && node->integer >= 0) {
        *value = (uint64_t)node->integer;
        return 0;
    }
    if ((node->kind == DATUM_STRING || node->kind == DATUM_NUMBER) &&
        parse_u64(reading->loading->pool.text + node->text_at, node->text_bytes, value))
        return 0;
    return parse_fail(reading->loading->cursor.error, reading->parts.line,
                      "%s is a whole number from 0 to 18446744073709551615", what);
}

static int take_mode(struct reading *reading, uint32_t datum)
{
    static const struct {
        const char *name;
        uint8_t mode;
    } modes[] = {{"shared", OP_SHARED},       {"S", OP_SHARED},    {"read", OP_SHARED},
                 {"exclusive", OP_EXCLUSIVE}, {"X", OP_EXCLUSIVE}, {"write", OP_EXCLUSIVE}};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        if (!datum_names(&reading->loading->pool, datum, modes[i].name))
            continue;
        reading->event.said.mode = modes[i].mode;
        return 0;
    }
    return fail(reading, "a mode is one of shared, S, read, exclusive, X, write");
}

static int take_permits(struct reading *reading, uint32_t datum)
{
    const struct datum *node = at(reading, datum);
    if (node->kind != DATUM_INTEGER || node->integer < 1 || node->integer > UINT32_MAX)
        return fail(reading, "permits are a whole number, at least 1");
    reading->event.said.permits = (uint32_t)node->integer;
    return 0;
}

/* A query says something when it ends: how many hold the lock. */
static int take_holders(struct reading *reading)
{
    if (reading->event.said.kind != OP_READ || reading->event.type != EVENT_OK)
        return 0;
    uint64_t holders;
    if (is_nil(reading, reading->parts.holders) ||
        take_u64(reading, reading->parts.holders, "a query's holders", &holders) < 0 ||
        holders > UINT32_MAX)
        return fail(reading, "a query's answer bears holders, a whole number");
    reading->event.said.holders = (uint32_t)holders;
    return 0;
}

/* Details may stand in a map as the value; what stands in the event itself goes first. */
static void spread_value(struct reading *reading)
{
    const struct datum_pool *pool = &reading->loading->pool;
    struct event_parts *parts = &reading->parts;
    const struct {
        const char *name;
        uint32_t *part;
    } known[] = {{"token", &parts->token},    {"fence", &parts->token},
                 {"owner", &parts->owner},    {"client", &parts->owner},
                 {"mode", &parts->mode},      {"permits", &parts->permits},
                 {"holders", &parts->holders}};
    uint32_t name = at(reading, parts->value)->first_child;
    while (name != 0) {
        uint32_t value = at(reading, name)->next;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            if (*known[i].part == 0 && datum_names(pool, name, known[i].name))
                *known[i].part = value;
        name = at(reading, value)->next;
    }
}

/* A lock's value may be nothing, details in a map, or the one detail that the model has. */
static void place_lock_value(struct reading *reading)
{
    struct event_parts *parts = &reading->parts;
    if (is_nil(reading, parts->value))
        return;
    enum datum_kind kind = at(reading, parts->value)->kind;
    enum model_kind model = reading->loading->options->model;
    bool acquire = reading->event.said.kind == OP_ACQUIRE;
    if (kind == DATUM_MAP)
        spread_value(reading);
    else if (model == MODEL_SEMAPHORE && kind == DATUM_INTEGER && parts->permits == 0)
        parts->permits = parts->value;
    else if (model == MODEL_SHARED_LOCK && parts->mode == 0 &&
             (kind == DATUM_STRING || kind == DATUM_KEYWORD || kind == DATUM_SYMBOL))
        parts->mode = parts->value;
    else if (model == MODEL_FENCED_MUTEX && acquire && parts->token == 0 &&
             (kind == DATUM_INTEGER || kind == DATUM_STRING))
        parts->token = parts->value;
}

/* A number names a process, as whose doing this counts; anything else is a name. */
static int take_owner(struct reading *reading)
{
    uint32_t *owner = &reading->event.said.owner;
    const struct datum *node = at(reading, reading->parts.owner);
    if (node->kind == DATUM_INTEGER)
        return event_process_owner(reading->loading->history, node->integer, owner);
    return intern_datum(reading, reading->parts.owner, owner);
}

static int take_lock(struct reading *reading)
{
    struct history_op *said = &reading->event.said;
    enum model_kind model = reading->loading->options->model;
    int result = 0;
    /* What comes with a failure (a keyword, a message) is no detail of the operation. */
    if (reading->event.type == EVENT_INVOKE || reading->event.type == EVENT_OK)
        place_lock_value(reading);
    const struct event_parts *parts = &reading->parts;
    if (!is_nil(reading, parts->token) && reading->event.type != EVENT_FAIL) {
        said->token_known = true;
        result = take_u64(reading, parts->token, "a token", &said->token);
    }
    if (result == 0 && model == MODEL_SHARED_LOCK && !is_nil(reading, parts->mode))
        result = take_mode(reading, parts->mode);
    if (result == 0 && model == MODEL_SEMAPHORE && !is_nil(reading, parts->permits))
        result = take_permits(reading, parts->permits);
    if (result == 0 && !is_nil(reading, parts->owner))
        result = take_owner(reading);
    return result < 0 ? result : take_holders(reading);
}

static int take_cas(struct reading *reading)
{
    if (reading->event.type != EVENT_INVOKE)
        return 0;
    uint32_t value = reading->parts.value;
    if (value == 0 || at(reading, value)->kind != DATUM_SEQUENCE ||
        at(reading, value)->children_count != 2)
        return fail(reading, "a cas wants a value of two: what must be there, what shall be");
    uint32_t from = at(reading, value)->first_child;
    uint32_t to = at(reading, from)->next;
    int result = intern_datum(reading, from, &reading->event.said.value);
    return result < 0 ? result : intern_datum(reading, to, &reading->event.said.value_to);
}

static int take_data(struct reading *reading)
{
    struct event *event = &reading->event;
    uint32_t value = reading->parts.value;
    if (event->said.kind == OP_CAS)
        return take_cas(reading);
    /* A read says something when it ends, the others when they begin. */
    if (event->type != (event->said.kind == OP_READ ? EVENT_OK : EVENT_INVOKE))
        return 0;
    if (value == 0)
        return fail(reading, "a value is missing");
    if (event->said.kind == OP_APPEND && at(reading, value)->kind != DATUM_STRING)
        return fail(reading, "an append wants a string");
    return intern_datum(reading, value, &event->said.value);
}

static int split_independent(struct reading *reading)
{
    uint32_t value = reading->parts.value;
    if (value == 0 || at(reading, value)->kind != DATUM_SEQUENCE ||
        at(reading, value)->children_count != 2) {
        /* How an operation went wrong may stand there instead. */
        if (reading->event.type == EVENT_FAIL || reading->event.type == EVENT_INFO)
            return 0;
        return fail(reading, "with --independent every value is [key value]");
    }
    reading->parts.key = at(reading, value)->first_child;
    reading->parts.value = at(reading, reading->parts.key)->next;
    return 0;
}

static int take_parts(struct reading *reading)
{
    struct event_parts *parts = &reading->parts;
    struct event *event = &reading->event;
    int result = take_type(reading);
    if (result == 0)
        result = take_name(reading);
    if (result == 0 && reading->loading->options->independent)
        result = split_independent(reading);
    if (result == 0 && !is_nil(reading, parts->key))
        result = intern_datum(reading, parts->key, &event->said.key);
    /* Jepsen's files are in order, whatever their times are. */
    if (result == 0 && parts->time != 0 && reading->loading->history->format == FORMAT_JSON) {
        event->timed = true;
        result = take_u64(reading, parts->time, "a time", &event->time_ns);
    }
    if (result < 0)
        return result;
    /* Jepsen's text puts an error such as :timed-out where the value would be. */
    event->has_error = !is_nil(reading, parts->error) ||
                       (parts->value != 0 && at(reading, parts->value)->kind == DATUM_KEYWORD);
    return model_is_lock(reading->loading->options->model) ? take_lock(reading)
                                                           : take_data(reading);
}

int event_add(struct loading *loading, struct event_parts parts)
{
    struct reading reading = {.loading = loading, .parts = parts};
    if (parts.process == 0 || parts.type == 0 || parts.f == 0)
        return fail(&reading, "an event wants process, type and f");
    const struct datum *process = datum_at(&loading->pool, parts.process);
    if (process->kind != DATUM_INTEGER) {
        /* :nemesis and the like act on the system, they are no clients of it. */
        loading->history->skipped_count++;
        return process->kind == DATUM_KEYWORD || process->kind == DATUM_STRING
                   ? 0
                   : fail(&reading, "a process is a whole number, or a word for one to pass over");
    }
    reading.event.said.process = process->integer;
    reading.event.line = parts.line;
    int result = take_parts(&reading);
    if (result < 0)
        return result;
    if (loading->events_count >= POSITION_NEVER / 2)
        return fail(&reading, "too many events");
    result = budget_reserve(loading->history->budget, (void **)&loading->events,
                            &loading->events_capacity, loading->events_count + 1,
                            sizeof *loading->events);
    if (result < 0)
        return result;
    loading->events[loading->events_count++] = reading.event;
    return 0;
}
