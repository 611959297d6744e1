/* SPDX-License-Identifier: Apache-2.0
 *
 * What the virtual clients do: everything the API offers, on few names, all the time. What they ask
 * and hear is what the client-side checkers see.
 */
#include <assert.h>
#include <string.h>

#include "tests/sim/sim.h"

static uint64_t clock_of(const struct sim_core *core)
{
    return sim_clock_read(core->sim, &core->clock);
}

static const char *status_word(belay_status status)
{
    static const char *const words[BELAY_STATUS_COUNT] = {
        [BELAY_OK] = "ok",
        [BELAY_BUSY] = "busy",
        [BELAY_TIMED_OUT] = "timed out",
        [BELAY_LOST] = "lost",
        [BELAY_UNREACHABLE] = "unreachable",
        [BELAY_CANCELLED] = "cancelled",
        [BELAY_DEADLOCK] = "deadlock",
        [BELAY_OVER_LIMIT] = "over limit",
        [BELAY_DENIED] = "denied",
        [BELAY_BAD_REQUEST] = "bad request",
        [BELAY_SESSION_LOST] = "session lost",
        [BELAY_DELAYED] = "delayed",
        [BELAY_ALREADY_HELD] = "already held",
        [BELAY_STALE_REQUEST] = "stale request",
        [BELAY_WRONG_CLUSTER] = "wrong cluster",
        [BELAY_WRONG_VERSION] = "wrong version",
        [BELAY_CLOSED] = "closed",
    };

    return status < BELAY_STATUS_COUNT && words[status] ? words[status] : "?";
}

/* ---- asks and beliefs ------------------------------------------------------------------------ */

static struct sim_ask *new_ask(struct sim_core *core, enum sim_ask_kind kind, uint32_t agent,
                               uint32_t name)
{
    for (int i = 0; i < SIM_LOCKS_MAX; i++) {
        struct sim_ask *ask = &core->asks[i];

        if (ask->kind != SIM_ASK_NONE)
            continue;
        *ask = (struct sim_ask){.kind = kind,
                                .user = ++core->users,
                                .agent = agent,
                                .name = name,
                                .belief = -1,
                                .asked_ns = core->sim->now_ns,
                                .token_floor = check_locks_token_floor(core->sim, name),
                                .index_floor = check_reads_floor(core->sim, name)};
        return ask;
    }
    return NULL;
}

static struct sim_ask *ask_of(struct sim_core *core, uint64_t user)
{
    for (int i = 0; i < SIM_LOCKS_MAX; i++) {
        if (core->asks[i].kind != SIM_ASK_NONE && core->asks[i].user == user)
            return &core->asks[i];
    }
    return NULL;
}

static struct sim_belief *belief_of(struct sim_core *core, core_ref lock)
{
    for (int i = 0; i < SIM_LOCKS_MAX; i++) {
        if (core->beliefs[i].used && core->beliefs[i].lock == lock)
            return &core->beliefs[i];
    }
    return NULL;
}

static uint32_t count_asks(const struct sim_core *core, uint32_t agent)
{
    uint32_t count = 0;

    for (int i = 0; i < SIM_LOCKS_MAX; i++)
        count += core->asks[i].kind != SIM_ASK_NONE && core->asks[i].agent == agent;
    return count;
}

static uint32_t count_beliefs(const struct sim_core *core, uint32_t agent)
{
    uint32_t count = 0;

    for (int i = 0; i < SIM_LOCKS_MAX; i++)
        count += core->beliefs[i].used && core->beliefs[i].agent == agent;
    return count;
}

static struct core_name name_of(const struct sim *sim, uint32_t name)
{
    return (struct core_name){.name_space = (const uint8_t *)"",
                              .name = (const uint8_t *)sim->names[name],
                              .name_bytes = (uint8_t)strlen(sim->names[name])};
}

/* ---- doing ----------------------------------------------------------------------------------- */

static void refused(struct sim_core *core, struct sim_ask *ask, belay_status status)
{
    sim_trace(core->sim, "c%u.%u  not begun: %s", core->id, ask->agent, status_word(status));
    ask->kind = SIM_ASK_NONE;
}

static void do_acquire(struct sim_core *core, uint32_t agent)
{
    struct sim *sim = core->sim;
    uint32_t name = (uint32_t)sim_below(sim, SIM_NAMES);
    struct sim_ask *ask = new_ask(core, SIM_ASK_ACQUIRE, agent, name);
    struct core_acquire acquire = {.name = name_of(sim, name), .value = (const uint8_t *)"value"};
    belay_status status;

    if (!ask)
        return;
    acquire.mode = sim_chance(sim, 650) ? WIRE_EXCLUSIVE : WIRE_SHARED;
    acquire.ttl_ms = (uint32_t)(150 + sim_below(sim, sim_chance(sim, 700) ? 500 : 3000));
    acquire.wait_ms = sim_chance(sim, 500) ? UINT64_MAX : sim_below(sim, 1000);
    acquire.flags |= sim_chance(sim, 250) ? WIRE_TRY : 0;
    acquire.flags |= sim_chance(sim, 100) ? WIRE_BARGE : 0;
    acquire.flags |= sim_chance(sim, 100) ? WIRE_REENTRANT : 0;
    if (sim_chance(sim, 200)) {
        acquire.flags |= WIRE_SESSION_BOUND;
        acquire.ttl_ms = 0;
    }
    acquire.priority = sim_chance(sim, 200) ? (uint8_t)sim_below(sim, 3) : 0;
    acquire.lock_delay_ms = sim_chance(sim, 100) ? (uint32_t)sim_below(sim, 300) : 0;
    acquire.grace_ms = sim_chance(sim, 100) ? (uint32_t)sim_below(sim, 200) : 0;
    acquire.value_bytes = sim_chance(sim, 150) ? 5 : 0;
    acquire.no_renewal = sim_chance(sim, 250);
    ask->mode = acquire.mode;
    ask->ttl_ms = acquire.ttl_ms;
    ask->reentrant = acquire.flags & WIRE_REENTRANT;
    acquire.lock_user = ask->user;
    sim_trace(sim, "c%u.%u  #%llu acquire %s %s ttl=%u%s", core->id, agent,
              (unsigned long long)ask->user, sim->names[name],
              acquire.mode == WIRE_EXCLUSIVE ? "X" : "S", acquire.ttl_ms,
              acquire.flags & WIRE_TRY ? " try" : "");
    status = core_acquire(core->core, clock_of(core), agent, &acquire, ask->user, &ask->request);
    if (status != BELAY_OK)
        refused(core, ask, status);
}

static void do_release(struct sim_core *core, int at)
{
    struct sim_belief *belief = &core->beliefs[at];
    struct sim_ask *ask = new_ask(core, SIM_ASK_RELEASE, belief->agent, belief->name);
    belay_status status;

    if (!ask)
        return;
    ask->belief = at;
    ask->lock = belief->lock;
    ask->token = belief->token;
    sim_trace(core->sim, "c%u.%u  #%llu release %s", core->id, belief->agent,
              (unsigned long long)ask->user, core->sim->names[belief->name]);
    if (--belief->uses == 0) {
        belief->released = true;
        check_locks_released(core->sim, belief);
    }
    status = core_release(core->core, clock_of(core), belief->lock, ask->user, &ask->request);
    if (status != BELAY_OK)
        refused(core, ask, status);
    if (belief->uses == 0)
        belief->used = false;
}

static void do_convert(struct sim_core *core, int at)
{
    struct sim *sim = core->sim;
    struct sim_belief *belief = &core->beliefs[at];
    struct sim_ask *ask;
    belay_status status;

    if (belief->converting || belief->lost)
        return;
    ask = new_ask(core, SIM_ASK_CONVERT, belief->agent, belief->name);
    if (!ask)
        return;
    ask->belief = at;
    ask->lock = belief->lock;
    ask->token = belief->token;
    ask->mode = belief->mode == WIRE_EXCLUSIVE ? WIRE_SHARED : WIRE_EXCLUSIVE;
    sim_trace(sim, "c%u.%u  #%llu convert %s to %s", core->id, belief->agent,
              (unsigned long long)ask->user, sim->names[belief->name],
              ask->mode == WIRE_EXCLUSIVE ? "X" : "S");
    if (ask->mode == WIRE_SHARED)
        belief->mode = WIRE_SHARED; /* from now on it counts on no more */
    status = core_convert(core->core, clock_of(core), belief->lock, ask->mode,
                          sim_chance(sim, 500) ? UINT64_MAX : sim_below(sim, 800), ask->user,
                          &ask->request);
    belief->converting = status == BELAY_OK;
    if (status != BELAY_OK)
        refused(core, ask, status);
}

static void do_renew(struct sim_core *core, int at)
{
    struct sim_belief *belief = &core->beliefs[at];
    struct sim_ask *ask = new_ask(core, SIM_ASK_RENEW, belief->agent, belief->name);
    belay_status status;

    if (!ask)
        return;
    ask->belief = at;
    ask->lock = belief->lock;
    ask->token = belief->token;
    status = core_renew(core->core, clock_of(core), belief->lock, ask->user, &ask->request);
    if (status != BELAY_OK)
        refused(core, ask, status);
}

static void do_read(struct sim_core *core, uint32_t agent)
{
    struct sim *sim = core->sim;
    uint32_t name = (uint32_t)sim_below(sim, SIM_NAMES);
    struct sim_ask *ask = new_ask(core, SIM_ASK_QUERY, agent, name);
    struct core_read read = {.op = WIRE_OP_QUERY, .name = name_of(sim, name)};
    belay_status status;

    if (!ask)
        return;
    read.stale = ask->stale = sim_chance(sim, 250);
    status = core_read(core->core, clock_of(core), agent, &read, ask->user, &ask->request);
    if (status != BELAY_OK)
        refused(core, ask, status);
}

static void do_list(struct sim_core *core, uint32_t agent)
{
    struct sim *sim = core->sim;
    uint32_t name = (uint32_t)sim_below(sim, SIM_NAMES);
    struct sim_ask *ask = new_ask(core, SIM_ASK_LIST, agent, name);
    struct core_read read = {.op = WIRE_OP_LIST, .shard = sim->name_shard[name]};
    belay_status status;

    if (!ask)
        return;
    read.name.name_space = (const uint8_t *)"";
    read.name.name = (const uint8_t *)"";
    read.stale = ask->stale = sim_chance(sim, 250);
    status = core_read(core->core, clock_of(core), agent, &read, ask->user, &ask->request);
    if (status != BELAY_OK)
        refused(core, ask, status);
}

/* Any session may renew or release what it knows the lease id of. Whoever hands its lease to
 * another one to release has stopped using it. */
static void do_by_lease(struct sim_core *core, uint32_t agent)
{
    struct sim *sim = core->sim;
    struct sim_core *owner = &sim->cores[sim_below(sim, sim->cores_count)];
    struct sim_belief *belief = &owner->beliefs[sim_below(sim, SIM_LOCKS_MAX)];
    struct core_lease_command command = {.op = WIRE_OP_RENEW};
    struct sim_ask *ask;
    belay_status status;

    if (!belief->used || belief->converting || belief->uses != 1)
        return;
    if (sim_chance(sim, 400))
        command.op = WIRE_OP_RELEASE;
    ask = new_ask(core, command.op == WIRE_OP_RENEW ? SIM_ASK_RENEW : SIM_ASK_RELEASE, agent,
                  belief->name);
    if (!ask)
        return;
    command.name = name_of(sim, belief->name);
    command.lease = belief->lease;
    ask->token = belief->token;
    sim_trace(sim, "c%u.%u  #%llu %s of the lease of c%u.%u on %s", core->id, agent,
              (unsigned long long)ask->user, command.op == WIRE_OP_RENEW ? "renewal" : "release",
              owner->id, belief->agent, sim->names[belief->name]);
    if (command.op == WIRE_OP_RELEASE)
        belief->released = true;
    status = core_lease(core->core, clock_of(core), agent, &command, ask->user, &ask->request);
    if (status != BELAY_OK)
        refused(core, ask, status);
}

static void do_force(struct sim_core *core, uint32_t agent)
{
    struct sim *sim = core->sim;
    uint32_t name = (uint32_t)sim_below(sim, SIM_NAMES);
    struct sim_ask *ask = new_ask(core, SIM_ASK_FORCE, agent, name);
    struct core_name named = name_of(sim, name);
    bool at_once = sim->weather.ousting && sim_chance(sim, 300);
    belay_status status;

    if (!ask)
        return;
    sim_trace(sim, "c%u.%u  #%llu force-release %s%s", core->id, agent,
              (unsigned long long)ask->user, sim->names[name], at_once ? " now" : "");
    check_locks_forced(sim, name, at_once);
    status = core_force_release(core->core, clock_of(core), agent, &named, at_once, ask->user,
                                &ask->request);
    if (status != BELAY_OK)
        refused(core, ask, status);
}

static void do_cancel(struct sim_core *core, uint32_t agent)
{
    for (int i = 0; i < SIM_LOCKS_MAX; i++) {
        struct sim_ask *ask = &core->asks[i];

        if (ask->kind != SIM_ASK_ACQUIRE || ask->agent != agent || ask->cancelled)
            continue;
        ask->cancelled = true;
        sim_trace(core->sim, "c%u.%u  #%llu is cancelled", core->id, agent,
                  (unsigned long long)ask->user);
        (void)core_cancel(core->core, clock_of(core), ask->request);
        return;
    }
}

static void do_close(struct sim_core *core, uint32_t agent)
{
    sim_trace(core->sim, "c%u.%u  closes", core->id, agent);
    for (int i = 0; i < SIM_LOCKS_MAX; i++) {
        struct sim_belief *belief = &core->beliefs[i];

        if (!belief->used || belief->agent != agent)
            continue;
        belief->released = true;
        check_locks_released(core->sim, belief);
        belief->used = false;
    }
    core->closing[agent] = true;
    core_close(core->core, clock_of(core), agent);
}

static void use_lock(struct sim_core *core, struct sim_belief *belief)
{
    struct core_lock_info info;

    if (core_lock_info(core->core, belief->lock, &info) && info.deadline_ns > clock_of(core))
        check_locks_used(core->sim, belief);
}

static void with_lock(struct sim_core *core, int at)
{
    struct sim *sim = core->sim;
    struct sim_belief *belief = &core->beliefs[at];

    use_lock(core, belief);
    if (sim->draining || belief->lost || sim_chance(sim, 550))
        do_release(core, at);
    else if (sim_chance(sim, 250))
        do_convert(core, at);
    else if (sim_chance(sim, 100))
        do_renew(core, at);
}

void sim_agent_step(struct sim_core *core, uint32_t agent)
{
    struct sim *sim = core->sim;
    uint32_t beliefs = count_beliefs(core, agent);

    if (core->paused)
        return;
    if (core->closing[agent] && core_client_is_closed(core->core, agent))
        core->closing[agent] = false;
    if (beliefs && (sim->draining || sim_chance(sim, 600))) {
        uint32_t which = (uint32_t)sim_below(sim, beliefs);

        for (int i = 0; i < SIM_LOCKS_MAX; i++) {
            if (core->beliefs[i].used && core->beliefs[i].agent == agent && which-- == 0) {
                with_lock(core, i);
                break;
            }
        }
    } else if (sim->draining || count_asks(core, agent) >= 4 || core->closing[agent]) {
        if (!sim->draining && sim_chance(sim, 100))
            do_cancel(core, agent);
    } else if (sim_chance(sim, 30)) {
        do_cancel(core, agent);
    } else if (sim_chance(sim, 20)) {
        do_by_lease(core, agent);
    } else if (sim_chance(sim, sim->weather.reads_permille)) {
        if (sim_chance(sim, 100))
            do_list(core, agent);
        else
            do_read(core, agent);
    } else if (sim_chance(sim, 15)) {
        do_force(core, agent);
    } else if (sim_chance(sim, 10)) {
        do_close(core, agent);
    } else if (beliefs < 4) {
        do_acquire(core, agent);
    }
    sim_core_after(core);
}

/* ---- hearing --------------------------------------------------------------------------------- */

static void look_at_lock(struct sim_core *core, struct sim_belief *belief)
{
    struct core_lock_info info;

    if (belief->lost || !core_lock_info(core->core, belief->lock, &info))
        return;
    belief->lease = info.lease;
    belief->token = info.token;
    if (!belief->converting)
        belief->mode = info.mode;
    belief->deadline_ns = info.deadline_ns;
    belief->until_ns = info.deadline_ns ? sim_clock_true(core->sim, &core->clock, info.deadline_ns)
                                        : core->sim->now_ns;
}

static void granted(struct sim_core *core, struct sim_ask *ask, const struct sim_said *said)
{
    struct sim_belief *belief = belief_of(core, said->completion.lock);
    bool shared = belief != NULL;

    core->sim->grants++;
    for (int i = 0; i < SIM_LOCKS_MAX && !belief; i++) {
        if (!core->beliefs[i].used)
            belief = &core->beliefs[i];
    }
    assert(belief);
    if (!shared) {
        *belief = (struct sim_belief){.used = true,
                                      .user = ask->user,
                                      .lock = said->completion.lock,
                                      .agent = ask->agent,
                                      .name = ask->name,
                                      .since_ns = core->sim->now_ns};
    }
    belief->uses++;
    look_at_lock(core, belief);
    if (ask->mode == WIRE_EXCLUSIVE && belief->mode == WIRE_SHARED && !belief->converting &&
        !ask->reentrant)
        sim_fail(core->sim, "told", "c%u: asked for %s exclusively, and got it shared", core->id,
                 core->sim->names[ask->name]);
    sim_trace(core->sim, "c%u.%u  #%llu holds %s %s token=%llx for %.3f s", core->id, ask->agent,
              (unsigned long long)ask->user, core->sim->names[ask->name],
              belief->mode == WIRE_EXCLUSIVE ? "X" : "S", (unsigned long long)belief->token,
              (double)(int64_t)(belief->until_ns - core->sim->now_ns) / 1e9);
    if (!belief->deadline_ns) {
        belief->lost = true; /* over already: `lost` was or will be said */
        return;
    }
    check_locks_granted(core->sim, core, belief, ask, shared || said->completion.shared_lock);
}

static void converted(struct sim_core *core, struct sim_ask *ask, const struct sim_said *said)
{
    struct sim_belief *belief = &core->beliefs[ask->belief];

    if (!belief->used || belief->lock != ask->lock)
        return;
    belief->converting = false;
    belief->since_ns = core->sim->now_ns; /* under these terms */
    if (said->completion.status != BELAY_OK) {
        belief->unsure = true;
        return;
    }
    look_at_lock(core, belief);
    if (belief->deadline_ns && ask->mode == WIRE_EXCLUSIVE)
        check_locks_granted(core->sim, core, belief, ask, false);
}

static void completed(struct sim_core *core, const struct sim_said *said)
{
    struct sim *sim = core->sim;
    struct sim_ask *ask = ask_of(core, said->completion.user);
    const struct wire_item *item = said->has_item ? (const struct wire_item *)said->item : NULL;

    if (!ask) {
        sim_fail(sim, "once", "c%u: command #%llu completed twice, or was never begun", core->id,
                 (unsigned long long)said->completion.user);
        return;
    }
    sim->completions++;
    sim_trace(sim, "c%u.%u  #%llu %s", core->id, ask->agent, (unsigned long long)ask->user,
              status_word(said->completion.status));
    check_reads_done(sim, ask, said->completion.status, item);
    if (said->completion.status == BELAY_BAD_REQUEST ||
        said->completion.status == BELAY_WRONG_VERSION ||
        said->completion.status == BELAY_WRONG_CLUSTER)
        sim_fail(sim, "told", "c%u: a sound command ended with %s", core->id,
                 status_word(said->completion.status));
    if (ask->kind == SIM_ASK_ACQUIRE && said->completion.status == BELAY_OK)
        granted(core, ask, said);
    else if (ask->kind == SIM_ASK_CONVERT)
        converted(core, ask, said);
    ask->kind = SIM_ASK_NONE;
}

void sim_agents_said(struct sim_core *core, const struct sim_said *said)
{
    struct sim_belief *belief = belief_of(core, said->lock);

    switch (said->kind) {
    case SIM_SAID_COMPLETE:
        completed(core, said);
        break;
    case SIM_SAID_LOST:
        if (!belief)
            break;
        sim_trace(core->sim, "c%u.%u  lost %s, reason %d", core->id, belief->agent,
                  core->sim->names[belief->name], said->reason);
        check_locks_lost(core->sim, core, belief, said->reason);
        belief->lost = true;
        belief->deadline_ns = 0; /* but it may go on until `until_ns` before it has stopped */
        break;
    case SIM_SAID_RENEWED:
        if (!belief || belief->lost)
            break;
        belief->deadline_ns = said->deadline_ns;
        belief->until_ns = sim_clock_true(core->sim, &core->clock, said->deadline_ns);
        check_locks_extended(core->sim, core, belief);
        break;
    case SIM_SAID_REVOKE:
        sim_trace(core->sim, "c%u    is asked to let go", core->id);
        break;
    }
}

bool sim_agents_idle(const struct sim_core *core)
{
    for (int i = 0; i < SIM_LOCKS_MAX; i++) {
        if (core->asks[i].kind != SIM_ASK_NONE || core->beliefs[i].used)
            return false;
    }
    return true;
}
