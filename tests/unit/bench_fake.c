/* SPDX-License-Identifier: Apache-2.0
 *
 * See bench_fake.h.
 */
#include "tests/unit/bench_fake.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/load/names.h"

enum { NAMES_MAX = 4096, COMMANDS_MAX = 8192 };

struct fake_name {
    char text[NAME_TEXT_BYTES];
    uint32_t exclusive, shared;
};

struct fake_command {
    uint64_t tag;
    uint32_t name;
    enum target_op op;
    bool shared, wait, used;
    uint64_t lock;
};

struct target {
    struct target_options options;
    enum fault fault;
    struct fake_name names[NAMES_MAX];
    uint32_t names_count;
    struct fake_command commands[COMMANDS_MAX]; /* in the order they were begun */
    uint32_t count;
    uint64_t token, grants, locks;
    uint64_t opened_ns;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* The endpoints say what is wrong with it. */
static struct target *fake_open(const struct target_options *options, char *error, size_t bytes)
{
    struct target *target = calloc(1, sizeof *target);
    (void)error;
    (void)bytes;
    target->options = *options;
    target->fault = (enum fault)(options->endpoints[0] - 'A');
    target->opened_ns = now_ns();
    return target;
}

static void fake_close(struct target *target)
{
    free(target);
}

static uint32_t name_index(struct target *target, const char *text)
{
    for (uint32_t i = 0; i < target->names_count; i++)
        if (strcmp(target->names[i].text, text) == 0)
            return i;
    assert(target->names_count < NAMES_MAX);
    snprintf(target->names[target->names_count].text, NAME_TEXT_BYTES, "%s", text);
    return target->names_count++;
}

static bool add(struct target *target, const struct fake_command *command)
{
    if (target->count == target->options.commands_max || target->count == COMMANDS_MAX)
        return false;
    target->commands[target->count++] = *command;
    return true;
}

static bool fake_acquire(struct target *target, uint32_t client,
                         const struct target_acquire *acquire, uint64_t tag)
{
    assert(client < target->options.clients);
    struct fake_command command = {.tag = tag,
                                   .name = name_index(target, acquire->name),
                                   .op = TARGET_ACQUIRE,
                                   .shared = acquire->shared,
                                   .wait = acquire->wait};
    return add(target, &command);
}

/* A lock is {name, shared}. */
static bool fake_release(struct target *target, target_lock lock, uint64_t tag)
{
    struct fake_command command = {.tag = tag, .op = TARGET_RELEASE, .lock = lock};
    return add(target, &command);
}

static bool fake_renew(struct target *target, target_lock lock, uint64_t tag)
{
    struct fake_command command = {.tag = tag, .op = TARGET_RENEW, .lock = lock};
    return add(target, &command);
}

static bool fake_query(struct target *target, uint32_t client, const char *name, bool stale,
                       uint64_t tag)
{
    (void)client;
    (void)stale;
    struct fake_command command = {
        .tag = tag, .op = TARGET_QUERY, .name = name_index(target, name)};
    return add(target, &command);
}

static bool granted(struct target *target, const struct fake_command *command,
                    struct target_completion *completion)
{
    struct fake_name *name = &target->names[command->name];
    bool conflict = name->exclusive > 0 || (!command->shared && name->shared > 0);
    if (conflict && !(target->fault == FAULT_DOUBLE && target->grants % 50 == 49) &&
        !(target->fault == FAULT_SHARED && name->exclusive == 0 && target->grants % 50 == 49)) {
        completion->status = TARGET_BUSY;
        return !command->wait;
    }
    target->grants++;
    if (target->fault == FAULT_FULL && target->grants > 50) {
        completion->status = TARGET_REFUSED;
        return true;
    }
    if (command->shared)
        name->shared++;
    else
        name->exclusive++;
    target->token += target->fault == FAULT_TOKENS_BACK && target->grants % 50 == 0 ? 0 : 1;
    completion->token = target->token;
    completion->lock = (uint64_t)command->name << 1 | command->shared | UINT64_C(1) << 40;
    return true;
}

static bool answer(struct target *target, const struct fake_command *command)
{
    struct target_completion completion = {.tag = command->tag, .op = command->op};
    struct fake_name *name = &target->names[command->lock >> 1 & 0xffff];
    uint32_t *holders = command->lock & 1 ? &name->shared : &name->exclusive;
    bool is_loss = false;
    switch (command->op) {
    case TARGET_ACQUIRE:
        if (!granted(target, command, &completion))
            return false;
        is_loss = target->fault == FAULT_LOSES && completion.status == TARGET_OK &&
                  target->grants % 10 == 0;
        break;
    case TARGET_RELEASE:
        assert(*holders > 0);
        --*holders;
        if (target->fault == FAULT_FORGETS)
            completion.status = TARGET_LOST;
        break;
    case TARGET_QUERY:
        name = &target->names[command->name];
        completion.holders =
            target->fault == FAULT_EMPTY_READS ? 0 : name->exclusive + name->shared;
        break;
    default:
        break;
    }
    target->options.complete(target->options.context, &completion);
    if (is_loss)
        target->options.lost(target->options.context, completion.lock, command->tag);
    return true;
}

static bool is_silent(const struct target *target)
{
    uint64_t age_ns = now_ns() - target->opened_ns;
    return (target->fault == FAULT_STALLS && age_ns > 300000000 && age_ns < 700000000) ||
           (target->fault == FAULT_DEAF && age_ns > 100000000);
}

/* Answers what can be answered, in order; what waits stays. Never waits itself. */
static void fake_turn(struct target *target, uint64_t until_ns)
{
    static struct fake_command now[COMMANDS_MAX];
    uint32_t count = target->count;
    (void)until_ns;
    if (is_silent(target))
        return;
    memcpy(now, target->commands, count * sizeof *now);
    target->count = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!answer(target, &now[i]))
            target->commands[target->count++] = now[i];
}

const struct target_class bench_fake = {
    .name = "fake",
    .what = "none",
    .open = fake_open,
    .acquire = fake_acquire,
    .release = fake_release,
    .renew = fake_renew,
    .query = fake_query,
    .turn = fake_turn,
    .close = fake_close,
};
