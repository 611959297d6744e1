/* SPDX-License-Identifier: Apache-2.0
 *
 * The first half of lock_twin.c, and included only there: who holds what, who is next, how things
 * end.
 */
#ifndef BELAY_TESTS_LOCK_TWIN_RULES_H
#define BELAY_TESTS_LOCK_TWIN_RULES_H

#include "tests/unit/lock_twin.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The rules' bounds, written down a second time. */
enum { HOLDERS_LOOKED_AT = 32, DEAD_WAITERS_MAX = 256, UPGRADER = 256 };
#define NEVER UINT64_MAX

/* Visits what is in use. */
#define foreach(i, max, array)                                                                     \
    for (int i = 0; i < (int)(max); i++)                                                           \
        if ((array)[i].used)

/* ---- small things ---------------------------------------------------------------------------- */

static uint64_t hash_on(uint64_t value)
{
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

static uint64_t tick_in(const struct lock_twin *twin, uint64_t ms)
{
    uint64_t ns = twin->stamp_ns + ms * 1000000;
    return ns / LOCK_TICK_NS + (ns % LOCK_TICK_NS != 0);
}

static uint64_t ms_to(const struct lock_twin *twin, uint64_t tick)
{
    if (tick == NEVER) {
        return NEVER;
    }
    uint64_t end = tick * LOCK_TICK_NS;
    return end <= twin->stamp_ns ? 0 : (end - twin->stamp_ns + 999999) / 1000000;
}

static void arm(struct lock_twin *twin, struct twin_timer *timer, uint64_t tick)
{
    timer->tick = tick;
    if (tick != NEVER) {
        timer->armed = ++twin->armings;
    }
}

static bool due(const struct lock_twin *twin, const struct twin_timer *timer)
{
    return timer->tick <= twin->tick;
}

static bool session_gone(const struct lock_twin *twin, int session)
{
    return twin->sessions[session].over || due(twin, &twin->sessions[session].timer);
}

static bool lease_gone(const struct lock_twin *twin, const struct twin_lease *lease)
{
    if (due(twin, &lease->timer)) {
        return true;
    }
    if (lease->session < 0) {
        return false;
    }
    return lease->terms.ttl_ms == 0 ? session_gone(twin, lease->session)
                                    : twin->sessions[lease->session].closed;
}

static bool has_extra(const struct twin_terms *terms)
{
    return terms->lock_delay_ms != 0 || terms->grace_ms != 0 || terms->value_bytes != 0;
}

/* ---- counting -------------------------------------------------------------------------------- */

static uint32_t count_leases(const struct lock_twin *twin)
{
    uint32_t count = 0;
    foreach (i, TWIN_LEASES_MAX, twin->leases) {
        count++;
    }
    return count;
}

static uint32_t count_promised(const struct lock_twin *twin)
{
    uint32_t count = 0;
    foreach (i, TWIN_WAITERS_MAX, twin->waiters) {
        count += twin->waiters[i].lease < 0;
    }
    return count;
}

static uint32_t count_waiters(const struct lock_twin *twin, int resource)
{
    uint32_t count = 0;
    foreach (i, TWIN_WAITERS_MAX, twin->waiters) {
        count += resource < 0 || twin->waiters[i].resource == resource;
    }
    return count;
}

static uint32_t count_answers(const struct lock_twin *twin)
{
    uint32_t count = 0;
    foreach (i, TWIN_SESSIONS_MAX, twin->sessions) {
        foreach (j, TWIN_WINDOW_MAX, twin->sessions[i].answers) {
            count++;
        }
    }
    return count;
}

static uint32_t count_extras(const struct lock_twin *twin)
{
    uint32_t count = 0;
    foreach (i, TWIN_LEASES_MAX, twin->leases) {
        count += has_extra(&twin->leases[i].terms);
    }
    foreach (i, TWIN_WAITERS_MAX, twin->waiters) {
        count += has_extra(&twin->waiters[i].terms);
    }
    foreach (i, TWIN_RESOURCES_MAX, twin->resources) {
        count += twin->resources[i].closed.tick != NEVER;
    }
    foreach (i, TWIN_SESSIONS_MAX, twin->sessions) {
        foreach (j, TWIN_WINDOW_MAX, twin->sessions[i].answers) {
            count += twin->sessions[i].answers[j].holds_value;
        }
    }
    return count;
}

static uint32_t count_resources(const struct lock_twin *twin, bool long_only)
{
    uint32_t count = 0;
    foreach (i, TWIN_RESOURCES_MAX, twin->resources) {
        const struct twin_key *key = &twin->resources[i].key;
        count += !long_only || key->ns_bytes + key->name_bytes > 24;
    }
    return count;
}

/* ---- putting out ----------------------------------------------------------------------------- */

static void put_out(struct lock_twin *twin, enum lock_output_kind kind, int session,
                    const void *item)
{
    struct rig_output *output = &twin->outputs[twin->outputs_count++];
    const struct wire_item *from = item;
    assert(twin->outputs_count <= RIG_OUTPUTS_MAX);
    memset(output, 0, sizeof(*output));
    output->kind = kind;
    output->command = kind == LOCK_OUT_REPLY ? twin->command : 0;
    output->addressed = session >= 0;
    output->port = session >= 0 ? twin->sessions[session].address.port : 0;
    memcpy(output->item, item, from->bytes);
}

static struct wire_reply reply_to(const struct wire_request *request, uint16_t status, size_t bytes)
{
    return (struct wire_reply){.item = {.bytes = (uint16_t)bytes,
                                        .op = request->item.op,
                                        .shard = request->item.shard,
                                        .status = status},
                               .session = request->session,
                               .number = request->number};
}

static void answer_plain(void *item, const struct wire_request *request, uint16_t status)
{
    struct wire_reply reply = reply_to(request, status, sizeof(reply));
    memcpy(item, &reply, sizeof(reply));
}

static void answer_limit(void *item, const struct wire_request *request, uint16_t status,
                         uint16_t what, uint64_t limit)
{
    struct wire_problem problem = {
        .reply = reply_to(request, status, sizeof(problem)), .what = what, .limit = limit};
    memcpy(item, &problem, sizeof(problem));
}

static void push_lost(struct lock_twin *twin, int at, uint8_t reason, uint8_t final)
{
    const struct twin_lease *lease = &twin->leases[at];
    if (lease->session < 0) {
        return;
    }
    const struct twin_session *session = &twin->sessions[lease->session];
    struct wire_lost lost = {
        .reply = {.item = {.bytes = sizeof(lost), .op = WIRE_OP_PUSH_LOST, .shard = session->shard},
                  .session = session->id},
        .lease = {.secret = lease->terms.secret, .slot = (uint32_t)at},
        .token = lease->token,
        .reason = reason,
        .final = final};
    put_out(twin, LOCK_OUT_PUSH_LOST, lease->session, &lost);
}

/* ---- resources, holders, waiters ------------------------------------------------------------- */

static bool same_key(const struct twin_key *a, const struct twin_key *b)
{
    return a->ns_bytes == b->ns_bytes && a->name_bytes == b->name_bytes &&
           memcmp(a->text, b->text, (size_t)a->ns_bytes + a->name_bytes) == 0;
}

static int find_resource(const struct lock_twin *twin, const struct twin_key *key)
{
    foreach (i, TWIN_RESOURCES_MAX, twin->resources) {
        if (same_key(&twin->resources[i].key, key)) {
            return i;
        }
    }
    return -1;
}

/* Newest holder granted before `order`. */
static int holder_before(const struct lock_twin *twin, int resource, uint64_t order)
{
    int found = -1;
    foreach (i, TWIN_LEASES_MAX, twin->leases) {
        const struct twin_lease *lease = &twin->leases[i];
        if (lease->resource == resource && lease->order < order &&
            (found < 0 || lease->order > twin->leases[found].order)) {
            found = i;
        }
    }
    return found;
}

static uint32_t count_holders(const struct lock_twin *twin, int resource)
{
    uint32_t count = 0;
    foreach (i, TWIN_LEASES_MAX, twin->leases) {
        count += twin->leases[i].resource == resource;
    }
    return count;
}

static bool lets_in(const struct lock_twin *twin, int resource, uint8_t mode)
{
    int holder = holder_before(twin, resource, NEVER);
    return holder < 0 || (mode == WIRE_SHARED && twin->leases[holder].terms.mode == WIRE_SHARED);
}

/* First of the queue: highest rank, then earliest. */
static int first_waiter(const struct lock_twin *twin, int resource)
{
    int found = -1;
    foreach (i, TWIN_WAITERS_MAX, twin->waiters) {
        const struct twin_waiter *waiter = &twin->waiters[i];
        if (waiter->resource != resource) {
            continue;
        }
        if (found < 0 || waiter->rank > twin->waiters[found].rank ||
            (waiter->rank == twin->waiters[found].rank &&
             waiter->order < twin->waiters[found].order)) {
            found = i;
        }
    }
    return found;
}

static uint32_t position_of(const struct lock_twin *twin, const struct twin_waiter *waiter)
{
    uint32_t above = 0;
    uint32_t first = waiter->ordinal;
    foreach (i, TWIN_WAITERS_MAX, twin->waiters) {
        const struct twin_waiter *other = &twin->waiters[i];
        if (other->resource != waiter->resource) {
            continue;
        }
        above += other->rank > waiter->rank;
        if (other->rank == waiter->rank && other->ordinal < first) {
            first = other->ordinal;
        }
    }
    return above + waiter->ordinal - first;
}

static struct twin_answer *answer_of(struct lock_twin *twin, int session, uint64_t number)
{
    foreach (i, TWIN_WINDOW_MAX, twin->sessions[session].answers) {
        if (twin->sessions[session].answers[i].number == number) {
            return &twin->sessions[session].answers[i];
        }
    }
    return NULL;
}

static void drop_if_idle(struct lock_twin *twin, int resource)
{
    if (count_holders(twin, resource) == 0 && count_waiters(twin, resource) == 0 &&
        twin->resources[resource].closed.tick == NEVER) {
        twin->resources[resource].used = false;
    }
}

/* ---- granting -------------------------------------------------------------------------------- */

static void give_token(struct lock_twin *twin, int lease)
{
    twin->leases[lease].token = ++twin->token_last;
}

static void arm_lease(struct lock_twin *twin, int at)
{
    struct twin_lease *lease = &twin->leases[at];
    arm(twin, &lease->timer,
        lease->terms.ttl_ms == 0
            ? NEVER
            : tick_in(twin, (uint64_t)lease->terms.ttl_ms + lease->terms.grace_ms));
}

static int new_lease(struct lock_twin *twin, int resource, int session,
                     const struct twin_terms *terms)
{
    int at = 0;
    while (twin->leases[at].used) {
        at++;
        assert(at < TWIN_LEASES_MAX);
    }
    twin->leases[at] = (struct twin_lease){.used = true,
                                           .order = ++twin->orders,
                                           .session = session,
                                           .resource = resource,
                                           .terms = *terms,
                                           .timer = {.tick = NEVER}};
    give_token(twin, at);
    arm_lease(twin, at);
    return at;
}

/* Fills a granted answer for this lease. */
static void answer_granted(struct lock_twin *twin, struct twin_answer *answer, int session, int at,
                           bool waited)
{
    const struct twin_lease *lease = &twin->leases[at];
    const struct twin_session *owner = &twin->sessions[session];
    struct wire_granted granted = {
        .reply = {.item = {.bytes = sizeof(granted), .op = answer->op, .shard = twin->shard},
                  .session = owner->id,
                  .number = answer->number},
        .lease = {.secret = lease->terms.secret, .slot = (uint32_t)at},
        .token = lease->token,
        .ttl_ms = lease->terms.ttl_ms,
        .mode = lease->terms.mode,
        .waited = waited};
    if (waited) {
        granted.keepalive_number = owner->keepalive_number;
        granted.since_keepalive_ns = twin->stamp_ns - owner->keepalive_stamp_ns;
    }
    answer->waits = false;
    answer->waited = waited;
    answer->lease = granted.lease;
    memset(answer->item, 0, sizeof(answer->item));
    memcpy(answer->item, &granted, sizeof(granted));
}

static void end_wait(struct lock_twin *twin, int at, uint16_t status)
{
    struct twin_waiter *waiter = &twin->waiters[at];
    struct twin_answer *answer = answer_of(twin, waiter->session, waiter->number);
    struct wire_request request = {.item = {.op = answer->op, .shard = twin->shard},
                                   .session = twin->sessions[waiter->session].id,
                                   .number = waiter->number};
    answer->waits = false;
    answer_plain(answer->item, &request, status);
    waiter->used = false;
    answer->used = answer->number >= twin->sessions[waiter->session].acked_below;
}

static void grant_waiter(struct lock_twin *twin, int at)
{
    struct twin_waiter waiter = twin->waiters[at];
    int lease = waiter.lease;
    twin->waiters[at].used = false;
    if (lease < 0) {
        lease = new_lease(twin, waiter.resource, waiter.session, &waiter.terms);
    } else {
        twin->leases[lease].terms.mode = WIRE_EXCLUSIVE;
        give_token(twin, lease);
        arm_lease(twin, lease);
    }
    struct twin_answer *answer = answer_of(twin, waiter.session, waiter.number);
    answer_granted(twin, answer, waiter.session, lease, true);
    struct wire_granted push;
    memcpy(&push, answer->item, sizeof(push));
    push.reply.item.op = WIRE_OP_PUSH_GRANT;
    push.reply.item.shard = twin->sessions[waiter.session].shard;
    put_out(twin, LOCK_OUT_PUSH_GRANT, waiter.session, &push);
    answer->used = answer->number >= twin->sessions[waiter.session].acked_below;
}

static void look_who_is_next(struct lock_twin *twin, int resource)
{
    struct twin_resource *record = &twin->resources[resource];
    if (record->closed.tick != NEVER && due(twin, &record->closed)) {
        record->closed.tick = NEVER;
    }
    for (int dead = 0;;) {
        int at = first_waiter(twin, resource);
        if (at < 0) {
            break;
        }
        const struct twin_waiter *waiter = &twin->waiters[at];
        bool session_over = session_gone(twin, waiter->session);
        if (session_over || due(twin, &waiter->timer)) {
            if (++dead > DEAD_WAITERS_MAX) {
                break;
            }
            end_wait(twin, at, session_over ? WIRE_SESSION_LOST : WIRE_TIMED_OUT);
            continue;
        }
        bool fits = waiter->lease >= 0 ? count_holders(twin, resource) == 1
                                       : lets_in(twin, resource, waiter->terms.mode);
        if (record->closed.tick != NEVER || !fits) {
            break;
        }
        grant_waiter(twin, at);
    }
    drop_if_idle(twin, resource);
}

/* ---- endings --------------------------------------------------------------------------------- */

enum how { RELEASED, EXPIRED, FORCED };

static void remove_lease(struct lock_twin *twin, int at, enum how how, bool told)
{
    struct twin_lease lease = twin->leases[at];
    bool bound = lease.terms.ttl_ms == 0;
    if (told) {
        push_lost(twin, at,
                  how == FORCED             ? WIRE_DENIED
                  : how == EXPIRED && bound ? WIRE_SESSION_LOST
                                            : WIRE_LOST,
                  1);
    }
    foreach (i, TWIN_WAITERS_MAX, twin->waiters) {
        if (twin->waiters[i].lease == at) {
            end_wait(twin, i, WIRE_LOST);
        }
    }
    twin->leases[at].used = false;
    if (how == EXPIRED && lease.terms.lock_delay_ms > 0) {
        struct twin_timer *closed = &twin->resources[lease.resource].closed;
        uint64_t tick = tick_in(twin, lease.terms.lock_delay_ms);
        if (closed->tick == NEVER || closed->tick < tick) {
            arm(twin, closed, tick);
        }
    }
}

static void end_lease(struct lock_twin *twin, int at, enum how how, bool told)
{
    int resource = twin->leases[at].resource;
    remove_lease(twin, at, how, told);
    look_who_is_next(twin, resource);
}

static void end_gone(struct lock_twin *twin, int at)
{
    int session = twin->leases[at].session;
    bool closed = session >= 0 && twin->sessions[session].closed;
    end_lease(twin, at, closed ? RELEASED : EXPIRED, !closed);
}

static void end_session(struct lock_twin *twin, int at, bool closed)
{
    struct twin_session *session = &twin->sessions[at];
    session->over = true;
    session->closed = closed;
    session->over_order = ++twin->orders;
    session->timer.tick = NEVER;
}

static bool step_session(struct lock_twin *twin)
{
    int at = -1;
    foreach (i, TWIN_SESSIONS_MAX, twin->sessions) {
        if (twin->sessions[i].over &&
            (at < 0 || twin->sessions[i].over_order < twin->sessions[at].over_order)) {
            at = i;
        }
    }
    if (at < 0) {
        return false;
    }
    int waiter = -1;
    foreach (i, TWIN_WAITERS_MAX, twin->waiters) {
        if (twin->waiters[i].session == at &&
            (waiter < 0 || twin->waiters[i].order > twin->waiters[waiter].order)) {
            waiter = i;
        }
    }
    if (waiter >= 0) {
        int resource = twin->waiters[waiter].resource;
        end_wait(twin, waiter, WIRE_SESSION_LOST);
        look_who_is_next(twin, resource);
        return true;
    }
    int lease = -1;
    foreach (i, TWIN_LEASES_MAX, twin->leases) {
        if (twin->leases[i].session == at &&
            (lease < 0 || twin->leases[i].order > twin->leases[lease].order)) {
            lease = i;
        }
    }
    if (lease < 0) {
        twin->sessions[at].used = false;
    } else if (twin->sessions[at].closed) {
        end_lease(twin, lease, RELEASED, false);
    } else if (twin->leases[lease].terms.ttl_ms == 0) {
        end_lease(twin, lease, EXPIRED, true);
    } else {
        twin->leases[lease].session = -1;
    }
    return true;
}

/* ---- settling -------------------------------------------------------------------------------- */

struct earliest {
    uint64_t tick, armed;
    int kind, at;
};

static void consider(struct earliest *best, const struct twin_timer *timer, int kind, int at)
{
    if (timer->tick < best->tick || (timer->tick == best->tick && timer->armed < best->armed)) {
        *best = (struct earliest){timer->tick, timer->armed, kind, at};
    }
}

static bool step_timer(struct lock_twin *twin)
{
    struct earliest best = {.tick = NEVER, .armed = NEVER};
    foreach (i, TWIN_LEASES_MAX, twin->leases) {
        consider(&best, &twin->leases[i].timer, 0, i);
    }
    foreach (i, TWIN_SESSIONS_MAX, twin->sessions) {
        consider(&best, &twin->sessions[i].timer, 1, i);
    }
    foreach (i, TWIN_WAITERS_MAX, twin->waiters) {
        consider(&best, &twin->waiters[i].timer, 2, i);
    }
    foreach (i, TWIN_RESOURCES_MAX, twin->resources) {
        consider(&best, &twin->resources[i].closed, 3, i);
    }
    if (best.tick == NEVER || best.tick > twin->tick) {
        return false;
    }
    if (best.kind == 0) {
        end_gone(twin, best.at);
    } else if (best.kind == 1) {
        end_session(twin, best.at, false);
    } else if (best.kind == 2) {
        int resource = twin->waiters[best.at].resource;
        end_wait(twin, best.at, WIRE_TIMED_OUT);
        look_who_is_next(twin, resource);
    } else {
        look_who_is_next(twin, best.at);
    }
    return true;
}

static void settle(struct lock_twin *twin, uint32_t endings_max)
{
    bool timers = true;
    bool sessions = true;
    while (endings_max > 0 && (timers || sessions)) {
        timers = step_timer(twin);
        endings_max -= timers;
        if (endings_max > 0) {
            sessions = step_session(twin);
            endings_max -= sessions;
        }
    }
}

/* The resource as a command finds it; -1 if there is none (any more). */
static int touch(struct lock_twin *twin, int resource)
{
    for (int ended = 0; ended < HOLDERS_LOOKED_AT && twin->resources[resource].used; ended++) {
        int gone = -1;
        int at = holder_before(twin, resource, NEVER);
        for (int seen = 0; seen < HOLDERS_LOOKED_AT && at >= 0; seen++) {
            if (lease_gone(twin, &twin->leases[at])) {
                gone = at;
                break;
            }
            at = holder_before(twin, resource, twin->leases[at].order);
        }
        if (gone < 0) {
            break;
        }
        end_gone(twin, gone);
    }
    if (twin->resources[resource].used) {
        look_who_is_next(twin, resource);
    }
    return twin->resources[resource].used ? resource : -1;
}

#endif
