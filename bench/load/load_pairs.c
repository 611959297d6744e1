/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands that come and go: pairs of acquire and release, renewals, queries. Completions only put
 * ops into rings; what follows from them is begun by pairs_begin(), outside the target.
 */
#include <string.h>

#include "bench/load/load_state.h"

/* ---- choosing -------------------------------------------------------------------------------- */

static uint32_t client_of(const struct load *load, const struct op *op)
{
    return op->lane % load->scenario->clients;
}

/* An op goes through its lanes in turn, so that all clients have work however few commands are
 * under way. */
static void next_lane(struct load *load, struct op *op)
{
    uint32_t lane = op->lane + load->ops_count;

    op->lane = lane < load->lanes ? lane : (uint32_t)(op - load->ops);
}

static uint64_t choose_name(struct load *load, const struct op *op)
{
    switch (load->scenario->pick) {
    case PICK_OWN:
        return op->lane + load->lanes * draw_below(&load->draws, load->names_per_lane);
    case PICK_ZIPF:
        return zipf_draw(&load->zipf, &load->draws);
    default:
        return draw_below(&load->draws, load->scenario->names);
    }
}

/* A new pair or command, intended for that time. */
static void start(struct load *load, uint32_t index, uint64_t intended_ns)
{
    const struct scenario *scenario = load->scenario;
    struct op *op = &load->ops[index];

    next_lane(load, op);
    op->generation = (op->generation + 1) & INT32_MAX;
    op->intended_ns = intended_ns;
    op->lost = false;
    op->of_held = scenario->work != WORK_PAIRS && held_choose(load, &op->name);
    if (scenario->work == WORK_RENEWALS && !op->of_held) {
        op->state = OP_FREE; /* nothing is left to renew */
        ring_put(&load->free, index);
        return;
    }
    if (!op->of_held)
        op->name = choose_name(load, op);
    op->shared =
        scenario->shared_percent > 0 && draw_below(&load->draws, 100) < scenario->shared_percent;
    op->state = scenario->work == WORK_PAIRS      ? OP_ACQUIRE_READY
                : scenario->work == WORK_RENEWALS ? OP_RENEW_READY
                                                  : OP_QUERY_READY;
    ring_put(&load->ready, index);
}

static void end(struct load *load, uint32_t index, uint64_t now_ns)
{
    load->ops[index].state = OP_FREE;
    if (load->phase == PHASE_RUN && load->scenario->rate == 0)
        start(load, index, now_ns);
    else
        ring_put(&load->free, index);
}

/* ---- arrivals -------------------------------------------------------------------------------- */

void pairs_fill_loop(struct load *load, uint64_t now_ns)
{
    for (uint32_t left = load->ops_count; left > 0 && !ring_is_empty(&load->free); left--)
        start(load, ring_take(&load->free), now_ns);
}

static uint64_t arrival_ns(const struct load *load)
{
    return load->arrivals_ns + (uint64_t)load->arrival_ns;
}

static void next_arrival(struct load *load)
{
    load->arrival_ns += load->scenario->spacing == SPACING_FIXED
                            ? load->interval_ns
                            : draw_interval(&load->draws, load->interval_ns);
}

/* With no op free the schedule stands still, not the time: the arrival is intended for when it was
 * due, however late it begins. */
void pairs_arrive(struct load *load, uint64_t now_ns)
{
    uint64_t until_ns = now_ns < load->end_ns ? now_ns : load->end_ns - 1;

    while (arrival_ns(load) <= until_ns && !ring_is_empty(&load->free)) {
        start(load, ring_take(&load->free), arrival_ns(load));
        next_arrival(load);
        if (load->scenario->work == WORK_RENEWALS && load->result.lost_held == load->result.held)
            return; /* each start gives its op back at once */
    }
}

void pairs_end_holds(struct load *load, uint64_t now_ns)
{
    while (!ring_is_empty(&load->holding)) {
        struct op *op = &load->ops[ring_first(&load->holding)];

        if (op->hold_end_ns > now_ns && load->phase == PHASE_RUN)
            return;
        op->state = OP_RELEASE_READY;
        op->intended_ns = op->hold_end_ns < now_ns ? op->hold_end_ns : now_ns;
        ring_put(&load->ready, ring_take(&load->holding));
    }
}

/* ---- beginning ------------------------------------------------------------------------------- */

static uint64_t tag_of(const struct load *load, const struct op *op)
{
    return (uint64_t)op->generation << 32 | (uint64_t)(op - load->ops);
}

static size_t name_of(const struct load *load, const struct op *op, char text[NAME_TEXT_BYTES])
{
    if (op->of_held)
        return held_name(load, op->name, text);
    return name_write(text, load->scenario->group, (enum name_braces)load->scenario->braces,
                      client_of(load, op), op->name);
}

static bool begin_acquire(struct load *load, struct op *op)
{
    const struct scenario *scenario = load->scenario;
    char text[NAME_TEXT_BYTES];
    struct target_acquire acquire = {.name = text,
                                     .shared = op->shared,
                                     .wait = scenario->wait_ms > 0,
                                     .wait_ms = scenario->wait_ms};

    (void)name_of(load, op, text);
    op->begun_ns = load_now_ns();
    if (!load->class->acquire(load->target, client_of(load, op), &acquire, tag_of(load, op)))
        return false;
    op->state = OP_ACQUIRING;
    return true;
}

static bool begin_release(struct load *load, struct op *op)
{
    if (!load->class->release(load->target, op->lock, tag_of(load, op)))
        return false;
    if (!op->lost)
        checks_given_up(&load->result.checks, op->name, op->shared);
    op->state = OP_RELEASING;
    return true;
}

static bool begin_other(struct load *load, struct op *op)
{
    char text[NAME_TEXT_BYTES];

    if (op->state == OP_RENEW_READY) {
        if (!load->class->renew(load->target, load->held[op->name].lock, tag_of(load, op)))
            return false;
        op->state = OP_RENEWING;
        return true;
    }
    (void)name_of(load, op, text);
    if (!load->class->query(load->target, client_of(load, op), text, load->scenario->stale,
                            tag_of(load, op)))
        return false;
    op->state = OP_QUERYING;
    return true;
}

static bool begin(struct load *load, struct op *op)
{
    switch (op->state) {
    case OP_ACQUIRE_READY:
        return begin_acquire(load, op);
    case OP_RELEASE_READY:
        return begin_release(load, op);
    default:
        return begin_other(load, op);
    }
}

void pairs_begin(struct load *load)
{
    while (!ring_is_empty(&load->ready)) {
        if (!begin(load, &load->ops[ring_first(&load->ready)]))
            return;
        (void)ring_take(&load->ready);
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

/* A holder that nobody renewed, and whose TTL has passed here, is none: not every client library
 * tells that on its own. Its next command will. */
static void drop_expired(struct load *load, uint64_t name, uint64_t now_ns)
{
    uint64_t ttl_ns = load->scenario->ttl_ms * MS_NS;

    if (load->scenario->renew || load->result.checks.names[name].exclusive == 0)
        return;
    for (uint32_t i = 0; i < load->ops_count; i++) {
        struct op *op = &load->ops[i];

        if ((op->state == OP_HOLDING || op->state == OP_RELEASE_READY) && !op->lost &&
            op->name == name && now_ns >= op->begun_ns + ttl_ns) {
            op->lost = true;
            load->result.lost++;
            checks_given_up(&load->result.checks, name, op->shared);
        }
    }
}

static void count_grant(struct load *load, const struct op *op, uint64_t now_ns)
{
    struct timeline_gap gap = timeline_grant(&load->result.timeline, now_ns);

    if (load->options.happenings)
        happenings_grant(load->options.happenings, op->begun_ns, now_ns, gap);
    load->result.grants++;
    load->client_grants[client_of(load, op)]++;
}

static void acquired(struct load *load, struct op *op, const struct target_completion *completion,
                     uint64_t now_ns)
{
    uint32_t index = (uint32_t)(op - load->ops);

    if (completion->status != TARGET_OK) {
        end(load, index, now_ns);
        return;
    }
    drop_expired(load, op->name, now_ns);
    checks_granted(&load->result.checks, op->name, op->shared, completion->token);
    if (now_ns >= load->begin_ns && now_ns < load->end_ns)
        count_grant(load, op, now_ns);
    op->lock = completion->lock;
    op->hold_end_ns = now_ns + load->scenario->hold_ms * MS_NS;
    if (load->scenario->hold_ms > 0) {
        op->state = OP_HOLDING;
        ring_put(&load->holding, index);
        return;
    }
    op->state = OP_RELEASE_READY;
    op->intended_ns = now_ns;
    ring_put(&load->ready, index);
}

static void queried(struct load *load, const struct op *op,
                    const struct target_completion *completion)
{
    if (op->of_held && !load->scenario->stale && completion->status == TARGET_OK &&
        load->held[op->name].state == HELD_YES)
        checks_read(&load->result.checks, load->scenario->names + op->name, completion->holders);
}

void pairs_complete(struct load *load, const struct target_completion *completion, uint64_t now_ns)
{
    uint32_t index = (uint32_t)completion->tag;
    struct op *op = &load->ops[index];

    assert(index < load->ops_count && completion->tag == tag_of(load, op));
    load_record(load, completion->op, completion->status, op->intended_ns, now_ns);
    switch (op->state) {
    case OP_ACQUIRING:
        assert(completion->op == TARGET_ACQUIRE);
        acquired(load, op, completion, now_ns);
        return;
    case OP_QUERYING:
        queried(load, op, completion);
        break;
    default:
        assert(op->state == OP_RELEASING || op->state == OP_RENEWING);
        break;
    }
    end(load, index, now_ns);
}

void pairs_lost(struct load *load, uint64_t tag)
{
    uint32_t index = (uint32_t)tag;
    struct op *op = &load->ops[index];

    assert(index < load->ops_count);
    if (tag != tag_of(load, op) || op->lost ||
        (op->state != OP_HOLDING && op->state != OP_RELEASE_READY))
        return; /* given up meanwhile */
    op->lost = true;
    load->result.lost++;
    checks_given_up(&load->result.checks, op->name, op->shared);
}

/* ---- time and the end ------------------------------------------------------------------------ */

uint32_t pairs_under_way(const struct load *load)
{
    return load->ops_count - (load->free.head - load->free.tail);
}

uint64_t pairs_next_ns(const struct load *load)
{
    uint64_t next_ns = UINT64_MAX;

    if (!ring_is_empty(&load->holding))
        next_ns = load->ops[ring_first(&load->holding)].hold_end_ns;
    if (load->phase == PHASE_RUN && load->scenario->rate > 0 && !ring_is_empty(&load->free) &&
        arrival_ns(load) < next_ns)
        next_ns = arrival_ns(load);
    return next_ns;
}

static enum target_op command_of(const struct op *op)
{
    switch (op->state) {
    case OP_ACQUIRE_READY:
    case OP_ACQUIRING:
        return TARGET_ACQUIRE;
    case OP_HOLDING:
    case OP_RELEASE_READY:
    case OP_RELEASING:
        return TARGET_RELEASE;
    case OP_RENEW_READY:
    case OP_RENEWING:
        return TARGET_RENEW;
    default:
        return TARGET_QUERY;
    }
}

static enum target_op first_command(const struct scenario *scenario)
{
    return scenario->work == WORK_PAIRS      ? TARGET_ACQUIRE
           : scenario->work == WORK_RENEWALS ? TARGET_RENEW
                                             : TARGET_QUERY;
}

void pairs_count_unfinished(struct load *load, uint64_t now_ns)
{
    struct load_command *first = &load->result.commands[first_command(load->scenario)];

    for (uint32_t i = 0; i < load->ops_count; i++) {
        const struct op *op = &load->ops[i];
        struct load_command *command = &load->result.commands[command_of(op)];

        if (op->state == OP_FREE || !load_measures(load, op->intended_ns))
            continue;
        command->unfinished++;
        histogram_record(&command->latency_ns, now_ns - op->intended_ns);
    }
    for (; load->scenario->rate > 0 && arrival_ns(load) < load->end_ns; next_arrival(load)) {
        if (!load_measures(load, arrival_ns(load)))
            continue;
        first->unsent++;
        histogram_record(&first->latency_ns, load->end_ns - arrival_ns(load));
    }
}
