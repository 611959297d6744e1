/* SPDX-License-Identifier: Apache-2.0
 *
 * The models' common side, and those whose state is a value.
 */
#include "tests/lincheck/model.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/lincheck/lock_state.h"

static int intern_lock(struct model *model, const struct lock_state *lock, uint32_t *state)
{
    int result = intern_put(&model->history->texts, lock, lock_state_bytes(lock), state);
    return result < 0 ? result : 1;
}

static int intern_initial(struct model *model, const char *text)
{
    struct parse_error error;
    struct datum_pool pool;
    datum_pool_init(&pool, model->history->budget);
    struct cursor cursor = {text, text + strlen(text), 1, &pool, &error};
    uint32_t datum;
    size_t at, length;
    int result = edn_read(&cursor, &datum);
    if (result == 0)
        result = edn_skip(&cursor);
    if (result == 0 && cursor.at < cursor.end)
        result = -EBADMSG;
    if (result == 0)
        result = datum_print(&pool, datum, &at, &length);
    if (result == 0)
        result = intern_put(&model->history->texts, pool.text + at, length, &model->initial);
    datum_pool_free(&pool);
    return result == -EBADMSG ? -EINVAL : result < 0 ? result : 0;
}

int model_init(struct model *model, enum model_kind kind, struct history *history,
               const char *initial_text)
{
    memset(model, 0, sizeof *model);
    model->kind = kind;
    model->history = history;
    model->permits_max = 1;
    if (model_is_lock(kind)) {
        static const struct lock_state free_lock;
        int result = intern_lock(model, &free_lock, &model->initial);
        return result < 0 ? result : 0;
    }
    if (initial_text != NULL)
        return intern_initial(model, initial_text);
    model->initial = history->nil;
    return 0;
}

void model_free(struct model *model)
{
    budget_release(model->history->budget, model->scratch, model->scratch_capacity);
    model->scratch = NULL;
    model->scratch_capacity = 0;
}

/* Of a string's canonical text, all but the closing quote, and all but the opening one: joined they
 * are the canonical text of both strings together. */
static int step_append(struct model *model, uint32_t state, const struct history_op *op,
                       uint32_t *next)
{
    struct intern *texts = &model->history->texts;
    if (state == model->history->nil)
        state = model->history->empty;
    struct span head = intern_get(texts, state), tail = intern_get(texts, op->value);
    if (head.length_bytes < 2 || head.bytes[0] != '"')
        return 0; /* something that is no string was put there */
    size_t length = head.length_bytes - 1 + tail.length_bytes - 1;
    int result = budget_reserve(model->history->budget, (void **)&model->scratch,
                                &model->scratch_capacity, length, 1);
    if (result < 0)
        return result;
    memcpy(model->scratch, head.bytes, head.length_bytes - 1);
    memcpy(model->scratch + head.length_bytes - 1, tail.bytes + 1, tail.length_bytes - 1);
    result = intern_put(texts, model->scratch, length, next);
    return result < 0 ? result : 1;
}

/* A key that was never written reads as nil or, as some stores have it, as the empty string. */
static bool reads_as(const struct model *model, uint32_t state, uint32_t value)
{
    if (state == value)
        return true;
    return model->kind == MODEL_KV && state == model->history->nil &&
           value == model->history->empty;
}

static int step_value(struct model *model, uint32_t state, const struct history_op *op,
                      uint32_t *next)
{
    bool matches = reads_as(model, state, op->value);
    *next = state;
    switch (op->kind) {
    case OP_READ:
        return matches;
    case OP_WRITE:
        *next = op->value;
        return 1;
    case OP_APPEND:
        return step_append(model, state, op, next);
    case OP_CAS:
        if (op->mismatch)
            return !matches;
        *next = op->value_to;
        return matches;
    default:
        return 0;
    }
}

int model_step(struct model *model, uint32_t state, const struct history_op *op, uint32_t *next)
{
    if (!model_is_lock(model->kind))
        return step_value(model, state, op, next);
    struct lock_state lock;
    struct span span = intern_get(&model->history->texts, state);
    assert(span.length_bytes >= offsetof(struct lock_state, holders) &&
           span.length_bytes <= sizeof lock);
    memcpy(&lock, span.bytes, span.length_bytes);
    int result = lock_step(model, &lock, op);
    if (result == -E2BIG)
        model->too_many_holders = true;
    return result == 1 ? intern_lock(model, &lock, next) : result;
}

bool model_is_pure(const struct history_op *op)
{
    return op->kind == OP_READ || op->mismatch;
}

/* Appends to a text of limited size. */
struct writer {
    char *text;
    size_t used, capacity;
};

static void put(struct writer *writer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void put(struct writer *writer, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length =
        vsnprintf(writer->text + writer->used, writer->capacity - writer->used, format, arguments);
    va_end(arguments);
    size_t left = writer->capacity - writer->used;
    writer->used += (size_t)length < left ? (size_t)length : left - 1;
}

/* Long values are cut in the middle: their ends are what differs. */
static void put_text(struct writer *writer, const struct model *model, uint32_t reference)
{
    enum { SHOWN_MAX = 40, HEAD = 12, TAIL = 25 };
    struct span span = intern_get(&model->history->texts, reference);
    if (span.length_bytes <= SHOWN_MAX)
        put(writer, "%.*s", (int)span.length_bytes, (const char *)span.bytes);
    else
        put(writer, "%.*s...%.*s", HEAD, (const char *)span.bytes, TAIL,
            (const char *)span.bytes + span.length_bytes - TAIL);
}

static void put_holder(struct writer *writer, const struct model *model,
                       const struct holder *holder)
{
    if (holder->owner != 0)
        put_text(writer, model, holder->owner);
    else
        put(writer, "somebody");
    if (holder->count > 1)
        put(writer, " (%u times)", holder->count);
}

static void put_lock(struct writer *writer, const struct model *model, struct span span)
{
    struct lock_state lock;
    memcpy(&lock, span.bytes, span.length_bytes);
    if (lock.holders_count == 0)
        put(writer, "free");
    else
        put(writer, "held%s by ",
            model->kind != MODEL_SHARED_LOCK ? ""
            : lock.exclusive                 ? " exclusively"
                                             : " shared");
    for (uint32_t i = 0; i < lock.holders_count; i++) {
        if (i == 4) {
            put(writer, " and %u more", lock.holders_count - i);
            break;
        }
        put(writer, "%s", i > 0 ? ", " : "");
        put_holder(writer, model, &lock.holders[i]);
    }
    if (lock.granted)
        put(writer, ", last token %s%" PRIu64, lock.token_open ? "at least " : "", lock.token);
}

void model_print_state(const struct model *model, uint32_t state, char *text, size_t text_bytes)
{
    struct writer writer = {text, 0, text_bytes};
    text[0] = '\0';
    if (model_is_lock(model->kind))
        put_lock(&writer, model, intern_get(&model->history->texts, state));
    else
        put_text(&writer, model, state);
}

static void put_lock_op(struct writer *writer, const struct model *model,
                        const struct history_op *op)
{
    static const char *const verbs[] = {[OP_READ] = "query",
                                        [OP_ACQUIRE] = "acquire",
                                        [OP_RELEASE] = "release",
                                        [OP_CONVERT] = "convert to"};
    static const char *const modes[] = {
        [OP_MODE_NONE] = "", [OP_SHARED] = " shared", [OP_EXCLUSIVE] = " exclusive"};
    put(writer, "%s%s", verbs[op->kind], modes[op->mode]);
    if (model->kind == MODEL_SEMAPHORE)
        put(writer, " %u", op->permits);
    if (op->kind == OP_READ)
        put(writer, " = %u holders", op->holders);
    if (op->token_known)
        put(writer, " token %" PRIu64, op->token);
}

void model_print_op(const struct model *model, const struct history_op *op, char *text,
                    size_t text_bytes)
{
    struct writer writer = {text, 0, text_bytes};
    text[0] = '\0';
    if (model_is_lock(model->kind)) {
        put_lock_op(&writer, model, op);
        return;
    }
    switch (op->kind) {
    case OP_READ:
        put(&writer, "read = ");
        put_text(&writer, model, op->value);
        break;
    case OP_WRITE:
    case OP_APPEND:
        put(&writer, "%s ", op->kind == OP_WRITE ? "write" : "append");
        put_text(&writer, model, op->value);
        break;
    case OP_CAS:
        put(&writer, "cas ");
        put_text(&writer, model, op->value);
        put(&writer, " to ");
        put_text(&writer, model, op->value_to);
        put(&writer, "%s", op->mismatch ? ": no match" : "");
        break;
    default:
        break;
    }
}
