/* SPDX-License-Identifier: Apache-2.0
 *
 * What clients believe, in true time: two of them never hold what excludes each other, tokens rise
 * along what they know of each other, nothing they may count on ends early, and whoever lost a lock
 * is told before its own deadline.
 */
#include <assert.h>
#include <stdlib.h>

#include "tests/sim/sim.h"

#define SLACK_NS (20 * SIM_US) /* of converting between clocks */

struct check_locks {
    uint64_t token_known[SIM_NAMES]; /* highest one that a client has heard of */
    uint64_t token_used[SIM_NAMES];  /* what the fenced store remembers */
    uint64_t forced_ns[SIM_NAMES];   /* last force-release asked for */
    uint64_t ousted_ns[SIM_NAMES];   /* the same, of one that does not wait for the holder */
};

struct check_locks *check_locks_new(struct sim *sim)
{
    struct check_locks *check = calloc(1, sizeof *check);

    (void)sim;
    assert(check);
    return check;
}

void check_locks_free(struct check_locks *check)
{
    free(check);
}

/* A forced release `now` ends leases that their holders still count on: a documented exception. It
 * may take as long as a command is tried. */
static bool ousted(const struct sim *sim, const struct sim_belief *belief)
{
    uint64_t ousted_ns = sim->locks->ousted_ns[belief->name];

    return ousted_ns && sim->now_ns - ousted_ns < 12 * SIM_SECOND;
}

bool check_locks_live(const struct sim *sim, const struct sim_belief *belief)
{
    return !ousted(sim, belief) && belief->used && !belief->lost && !belief->released &&
           sim->now_ns + SLACK_NS < belief->until_ns;
}

/* Whoever is told of a loss has until its deadline to stop: `lost` comes as soon as it is known. */
static bool may_act(const struct sim *sim, const struct sim_belief *belief)
{
    return !ousted(sim, belief) && belief->used && !belief->released &&
           sim->now_ns + SLACK_NS < belief->until_ns;
}

static void judge_exclusion(struct sim *sim, const struct sim_core *core,
                            const struct sim_belief *belief)
{
    for (uint32_t c = 0; c < sim->cores_count; c++) {
        for (int i = 0; i < SIM_LOCKS_MAX; i++) {
            const struct sim_belief *other = &sim->cores[c].beliefs[i];

            if (other == belief || other->name != belief->name || !may_act(sim, other) ||
                other->lease.secret == belief->lease.secret || /* found again by a reentrant one */
                (other->mode == WIRE_SHARED && belief->mode == WIRE_SHARED))
                continue;
            sim_fail(sim, "exclusion",
                     "c%u.%u takes %s for held (%s, token %llx, %.6f s left) while c%u.%u does too "
                     "(%s, token %llx, %.6f s left)",
                     core->id, belief->agent, sim->names[belief->name],
                     belief->mode == WIRE_EXCLUSIVE ? "X" : "S", (unsigned long long)belief->token,
                     (double)(int64_t)(belief->until_ns - sim->now_ns) / 1e9, c, other->agent,
                     other->mode == WIRE_EXCLUSIVE ? "X" : "S", (unsigned long long)other->token,
                     (double)(int64_t)(other->until_ns - sim->now_ns) / 1e9);
        }
    }
}

void check_locks_granted(struct sim *sim, struct sim_core *core, struct sim_belief *belief,
                         const struct sim_ask *ask, bool shared)
{
    struct check_locks *check = sim->locks;

    if (!check_locks_live(sim, belief))
        return;
    judge_exclusion(sim, core, belief);
    /* Whoever is not sure that it was weakened may hear that it is exclusive still. */
    if (ask->kind == SIM_ASK_CONVERT && belief->unsure && belief->token == ask->token)
        return;
    /* A reentrant acquire may find a lease of its own session again that was given up for lost. */
    if (!shared && !ask->reentrant && belief->token <= ask->token_floor)
        sim_fail(sim, "fencing",
                 "c%u.%u gets %s with token %llx; token %llx was known before it asked", core->id,
                 belief->agent, sim->names[belief->name], (unsigned long long)belief->token,
                 (unsigned long long)ask->token_floor);
    if (belief->token > check->token_known[belief->name])
        check->token_known[belief->name] = belief->token;
}

void check_locks_extended(struct sim *sim, struct sim_core *core, struct sim_belief *belief)
{
    if (check_locks_live(sim, belief))
        judge_exclusion(sim, core, belief);
}

void check_locks_released(struct sim *sim, const struct sim_belief *belief)
{
    (void)sim;
    (void)belief;
}

void check_locks_lost(struct sim *sim, const struct sim_core *core, const struct sim_belief *belief,
                      belay_lost_reason reason)
{
    uint64_t shown_ns = sim_clock_read(sim, &core->clock);

    if (reason == BELAY_LOST_DEADLINE || reason == BELAY_LOST_FORCED || belief->lost ||
        belief->released || sim->locks->forced_ns[belief->name])
        return;
    if (shown_ns < belief->deadline_ns)
        sim_fail(sim, "never early",
                 "c%u.%u is told that %s is lost (reason %d) %.6f s before its deadline", core->id,
                 belief->agent, sim->names[belief->name], reason,
                 (double)(belief->deadline_ns - shown_ns) / 1e9);
}

void check_locks_ended(struct sim *sim, const struct wire_lost *lost)
{
    if (!lost->final || lost->reason == WIRE_DENIED)
        return;
    for (uint32_t c = 0; c < sim->cores_count; c++) {
        for (int i = 0; i < SIM_LOCKS_MAX; i++) {
            const struct sim_belief *belief = &sim->cores[c].beliefs[i];

            if (!check_locks_live(sim, belief) || belief->lease.secret != lost->lease.secret ||
                belief->token != lost->token)
                continue;
            sim_fail(sim, "never early",
                     "a node says that %s of c%u.%u is over, %.6f s before the deadline that the "
                     "client counts on",
                     sim->names[belief->name], c, belief->agent,
                     (double)(belief->until_ns - sim->now_ns) / 1e9);
        }
    }
}

void check_locks_told(struct sim *sim, const struct sim_core *core)
{
    uint64_t shown_ns = sim_clock_read(sim, &core->clock);

    for (int i = 0; i < SIM_LOCKS_MAX; i++) {
        const struct sim_belief *belief = &core->beliefs[i];
        struct core_lock_info info;

        if (!belief->used || belief->released || !core_lock_info(core->core, belief->lock, &info))
            continue;
        if (info.deadline_ns && info.deadline_ns <= shown_ns)
            sim_fail(sim, "told", "c%u.%u: the deadline of %s passed and nothing was said",
                     core->id, belief->agent, sim->names[belief->name]);
        if (!belief->lost && info.deadline_ns > belief->deadline_ns)
            sim_fail(sim, "told", "c%u.%u: the deadline of %s moved and nothing was said", core->id,
                     belief->agent, sim->names[belief->name]);
    }
}

void check_locks_forced(struct sim *sim, uint32_t name, bool at_once)
{
    if (at_once)
        sim->locks->ousted_ns[name] = sim->now_ns;
    sim->locks->forced_ns[name] = sim->now_ns;
}

uint64_t check_locks_token_floor(const struct sim *sim, uint32_t name)
{
    return sim->locks->token_known[name];
}

/* A resource that checks tokens: it never turns a rightful holder away. */
void check_locks_used(struct sim *sim, const struct sim_belief *belief)
{
    uint64_t *used = &sim->locks->token_used[belief->name];

    if (!check_locks_live(sim, belief))
        return;
    if (belief->token < *used)
        sim_fail(sim, "fencing", "a rightful holder of %s has token %llx, token %llx was used",
                 sim->names[belief->name], (unsigned long long)belief->token,
                 (unsigned long long)*used);
    if (belief->mode == WIRE_EXCLUSIVE)
        *used = belief->token;
}
