/* SPDX-License-Identifier: Apache-2.0
 *
 * The checker against a twin that knows nothing but the definition: it tries every order of every
 * choice of unanswered operations, with models written again in the plainest way. Histories are
 * small, random, and good as well as bad. Both ways of searching are asked.
 */
#include <criterion/criterion.h>
#include <inttypes.h>

#include "tests/lincheck/plan.h"
#include "tests/unit/lincheck_rig.h"

enum { OPS_MAX = 8, OWNERS = 3, ROUNDS = 6000 };

struct random {
    uint64_t state;
};

static uint32_t draw(struct random *random, uint32_t below)
{
    random->state = random->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random->state >> 33) % below;
}

/* An operation as the twin knows it. */
struct plain_op {
    enum op_kind kind;
    int process, call_at, return_at; /* return_at: -1 if open */
    int value, value_to, permits;    /* value -1: nil */
    uint64_t token;
    bool exclusive, mismatch;
    char string[8]; /* key-value: what is appended, or was read */
};

struct plain_state {
    int value;
    char string[8 * OPS_MAX]; /* key-value: what was appended */
    int holds[OWNERS];
    bool exclusive, granted;
    uint64_t token;
};

struct plain_history {
    struct plain_op ops[OPS_MAX];
    int count;
    enum model_kind model;
};

static int holds_of_others(const struct plain_state *state, int process)
{
    int sum = 0;
    for (int i = 0; i < OWNERS; i++)
        sum += i == process ? 0 : state->holds[i];
    return sum;
}

static bool step_value(enum model_kind model, struct plain_state *state, const struct plain_op *op)
{
    switch (op->kind) {
    case OP_READ:
        return model == MODEL_KV ? strcmp(state->string, op->string) == 0
                                 : state->value == op->value;
    case OP_WRITE:
        state->value = op->value;
        return true;
    case OP_APPEND:
        memcpy(state->string + strlen(state->string), op->string, strlen(op->string) + 1);
        return true;
    default:
        if (op->mismatch)
            return state->value != op->value;
        if (state->value != op->value)
            return false;
        state->value = op->value_to;
        return true;
    }
}

static bool step_lock(enum model_kind model, struct plain_state *state, const struct plain_op *op)
{
    int *mine = &state->holds[op->process];
    int others = holds_of_others(state, op->process);
    bool acquire = op->kind == OP_ACQUIRE;
    int count = model == MODEL_SEMAPHORE ? op->permits : 1;
    if (!acquire) {
        *mine -= count;
        if (*mine + others == 0)
            state->exclusive = false;
        return *mine >= 0;
    }
    if (model == MODEL_SEMAPHORE) {
        *mine += count;
        return *mine + others <= 2;
    }
    if (model == MODEL_SHARED_LOCK) {
        if (state->exclusive || (op->exclusive && *mine + others > 0))
            return false;
        state->exclusive = op->exclusive;
        ++*mine;
        return true;
    }
    if (others > 0 || (*mine > 0 && model != MODEL_REENTRANT_MUTEX))
        return false;
    ++*mine;
    if (model != MODEL_FENCED_MUTEX)
        return true;
    /* An open acquire got some token nobody knows: the lowest possible is the kindest guess. */
    uint64_t lowest = state->granted ? state->token + 1 : 0;
    state->token = op->return_at < 0 ? lowest : op->token;
    state->granted = true;
    return state->token >= lowest;
}

/* True if what is left can be put behind what is placed. */
static bool twin_search(const struct plain_history *history, unsigned placed,
                        const struct plain_state *state)
{
    bool all = true;
    int first_return = 1 << 20;
    for (int i = 0; i < history->count; i++) {
        const struct plain_op *op = &history->ops[i];
        if ((placed >> i & 1) != 0 || op->return_at < 0)
            continue;
        all = false;
        if (op->return_at < first_return)
            first_return = op->return_at;
    }
    if (all)
        return true;
    for (int i = 0; i < history->count; i++) {
        const struct plain_op *op = &history->ops[i];
        struct plain_state after = *state;
        if ((placed >> i & 1) != 0 || op->call_at > first_return)
            continue;
        bool possible = model_is_lock(history->model) ? step_lock(history->model, &after, op)
                                                      : step_value(history->model, &after, op);
        if (possible && twin_search(history, placed | 1u << i, &after))
            return true;
    }
    return false;
}

static void make_op(struct random *random, enum model_kind model, struct plain_op *op)
{
    op->value = (int)draw(random, 3);
    op->value_to = (int)draw(random, 3);
    op->permits = 1 + (int)draw(random, 2);
    op->exclusive = draw(random, 2) == 0;
    if (model_is_lock(model)) {
        op->kind = draw(random, 2) == 0 ? OP_ACQUIRE : OP_RELEASE;
        op->token = 1 + draw(random, 6);
        return;
    }
    if (model == MODEL_KV) {
        op->kind = draw(random, 2) == 0 ? OP_READ : OP_APPEND;
        uint32_t length = op->kind == OP_READ ? draw(random, 3) : 1;
        for (uint32_t i = 0; i < length; i++)
            op->string[i] = (char)('a' + draw(random, 2));
    } else {
        op->kind = (enum op_kind[]){OP_READ, OP_WRITE, OP_CAS}[draw(random, 3)];
        op->mismatch = op->kind == OP_CAS && draw(random, 3) == 0;
    }
    if (op->kind == OP_READ && draw(random, 4) == 0)
        op->value = -1;
}

/* Gives every operation a call and most of them an answer, in one random interleaving in which a
 * process does one thing at a time. */
static void make_history(struct random *random, enum model_kind model,
                         struct plain_history *history)
{
    int open[OWNERS] = {-1, -1, -1}, at = 0;
    memset(history, 0, sizeof *history);
    history->model = model;
    int wanted = 2 + (int)draw(random, OPS_MAX - 1);
    while (history->count < wanted || open[0] >= 0 || open[1] >= 0 || open[2] >= 0) {
        int process = (int)draw(random, OWNERS);
        if (open[process] >= 0) {
            struct plain_op *op = &history->ops[open[process]];
            bool lost = draw(random, 5) == 0 && op->kind != OP_READ && !op->mismatch;
            op->return_at = lost ? -1 : at++;
            open[process] = -1;
        } else if (history->count < wanted) {
            open[process] = history->count;
            struct plain_op *op = &history->ops[history->count++];
            make_op(random, model, op);
            op->process = process;
            op->call_at = at++;
        }
    }
}

struct text {
    char bytes[8192];
    size_t used;
};

static void put(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    text->used += (size_t)vsnprintf(text->bytes + text->used, sizeof text->bytes - text->used,
                                    format, arguments);
    va_end(arguments);
}

static void put_value(struct text *text, const struct plain_history *history,
                      const struct plain_op *op)
{
    if (op->kind == OP_CAS)
        put(text, ",\"value\":[%d,%d]", op->value, op->value_to);
    else if (history->model == MODEL_KV)
        put(text, ",\"value\":\"%s\"", op->string);
    else if (op->value < 0)
        put(text, ",\"value\":null");
    else
        put(text, ",\"value\":%d", op->value);
}

static void put_event(struct text *text, const struct plain_history *history,
                      const struct plain_op *op, const char *type)
{
    static const char *const names[] = {
        [OP_READ] = "read", [OP_WRITE] = "write",     [OP_APPEND] = "append",
        [OP_CAS] = "cas",   [OP_ACQUIRE] = "acquire", [OP_RELEASE] = "release"};
    put(text, "{\"process\":%d,\"type\":\"%s\",\"f\":\"%s\",\"key\":1", op->process, type,
        names[op->kind]);
    if (!model_is_lock(history->model))
        put_value(text, history, op);
    if (op->kind == OP_ACQUIRE && history->model == MODEL_SHARED_LOCK)
        put(text, ",\"mode\":\"%s\"", op->exclusive ? "X" : "S");
    if (history->model == MODEL_SEMAPHORE)
        put(text, ",\"permits\":%d", op->permits);
    if (op->kind == OP_ACQUIRE && strcmp(type, "ok") == 0 && history->model == MODEL_FENCED_MUTEX)
        put(text, ",\"token\":\"%" PRIu64 "\"", op->token);
    put(text, "}\n");
}

static void spell_out(struct text *text, const struct plain_history *history)
{
    text->used = 0;
    for (int at = 0; at < 2 * OPS_MAX; at++) {
        for (int i = 0; i < history->count; i++) {
            const struct plain_op *op = &history->ops[i];
            if (op->call_at == at) {
                put_event(text, history, op, "invoke");
                /* A process may go on after an operation whose end it never learned. */
                if (op->return_at < 0)
                    put_event(text, history, op, "info");
            } else if (op->return_at == at) {
                put_event(text, history, op, op->mismatch ? "fail" : "ok");
            }
        }
    }
}

/* Both ways by themselves, each to its end: search_run() would choose. */
static void ask_both(struct rig *rig, bool good)
{
    uint8_t roles[OPS_MAX];
    struct search_result results[2] = {0};
    for (size_t i = 0; i < rig->history.ops_count; i++)
        roles[i] = rig->history.ops[i].return_at == POSITION_NEVER ? ROLE_OPTIONAL : ROLE_REQUIRED;
    struct search_input input = {.ops = rig->history.ops,
                                 .ops_count = rig->history.ops_count,
                                 .roles = roles,
                                 .initials = &rig->model.initial,
                                 .initials_count = 1};
    struct plan plan;
    cr_assert_eq(plan_make(&plan, &rig->budget, &input), 0);
    cr_assert_eq(depth_run(&rig->model, &plan, SIZE_MAX, &results[0], NULL), good);
    cr_assert_eq(breadth_run(&rig->model, &plan, SIZE_MAX, &results[1], NULL), good);
    plan_free(&plan);
    if (good)
        return;
    /* The first answer that no order reaches does not depend on how it was looked for. */
    cr_assert_eq(results[0].blocked_at, results[1].blocked_at);
    cr_assert_eq(results[0].blocked_op, results[1].blocked_op);
}

/* Returns how many histories of this model were good. */
static int compare(enum model_kind model, uint64_t seed)
{
    static struct rig rig;
    static struct text text;
    struct random random = {seed};
    struct history_options options = rig_options(model);
    int good = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct plain_history history;
        struct plain_state state = {.value = -1};
        make_history(&random, model, &history);
        bool expected = twin_search(&history, 0, &state);
        spell_out(&text, &history);
        rig_judge(&rig, &options, text.bytes, 2);
        cr_assert_eq(rig.read_result, 0, "%s in line %u of\n%s", rig.error.text, rig.error.line,
                     text.bytes);
        cr_assert_eq(rig.verdict.verdict, expected ? SEARCH_LINEARIZABLE : SEARCH_NOT_LINEARIZABLE,
                     "round %d, the twin says %s:\n%s", round, expected ? "good" : "bad",
                     text.bytes);
        ask_both(&rig, expected);
        rig_free(&rig);
        good += expected;
    }
    return good;
}

static void assert_twins_agree(enum model_kind model)
{
    int good = compare(model, 20240607 + (uint64_t)model);
    /* A comparison of nothing but one verdict would say little. */
    cr_assert(good > ROUNDS / 20 && good < ROUNDS * 19 / 20, "%d of %d are good", good, ROUNDS);
}

Test(lincheck_twin, register_)
{
    assert_twins_agree(MODEL_REGISTER);
}

Test(lincheck_twin, key_value)
{
    assert_twins_agree(MODEL_KV);
}

Test(lincheck_twin, mutex)
{
    assert_twins_agree(MODEL_MUTEX);
}

Test(lincheck_twin, reentrant_mutex)
{
    assert_twins_agree(MODEL_REENTRANT_MUTEX);
}

Test(lincheck_twin, fenced_mutex)
{
    assert_twins_agree(MODEL_FENCED_MUTEX);
}

Test(lincheck_twin, shared_lock)
{
    assert_twins_agree(MODEL_SHARED_LOCK);
}

Test(lincheck_twin, semaphore)
{
    assert_twins_agree(MODEL_SEMAPHORE);
}

#define EVENT(process, type, f, value)                                                             \
    "{\"process\":" #process ",\"type\":\"" type "\",\"f\":\"" f "\",\"value\":" value "}\n"
#define LOST(process, f, value) EVENT(process, "invoke", f, value) EVENT(process, "info", f, value)
#define DONE(process, f, value) EVENT(process, "invoke", f, value) EVENT(process, "ok", f, value)

/* Two unanswered operations that do the same here, but not later: neither may be forgotten because
 * of the other. Too rare among random histories. */
Test(lincheck_twin, equally_many_optional_operations_are_not_equal)
{
    static struct rig rig;
    static const char *const starts[] = {LOST(7, "write", "1") LOST(8, "cas", "[null,1]"),
                                         LOST(8, "cas", "[null,1]") LOST(7, "write", "1")};
    static const struct {
        const char *text;
        bool good;
    } ends[] = {{DONE(0, "read", "1") DONE(0, "write", "2") DONE(0, "read", "1"), true},
                {DONE(0, "read", "1") DONE(0, "write", "null") DONE(0, "read", "1"), true},
                {DONE(0, "read", "1") DONE(0, "write", "2") DONE(0, "read", "1")
                     DONE(0, "write", "2") DONE(0, "read", "1"),
                 false}};
    struct history_options options = rig_options(MODEL_REGISTER);
    for (int i = 0; i < 6; i++) {
        char text[4096];
        snprintf(text, sizeof text, "%s%s", starts[i % 2], ends[i / 2].text);
        rig_judge(&rig, &options, text, 1);
        cr_assert_eq(rig.read_result, 0, "%s", rig.error.text);
        cr_assert_eq(rig.verdict.verdict == SEARCH_LINEARIZABLE, ends[i / 2].good, "%s", text);
        ask_both(&rig, ends[i / 2].good);
        rig_free(&rig);
    }
}
