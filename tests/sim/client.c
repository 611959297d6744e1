/* SPDX-License-Identifier: Apache-2.0
 *
 * A client process: one client core with several virtual clients, its clock, its datagrams, its
 * pauses and its death. What it does is workload.c's.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

static uint64_t clock_of(const struct sim_core *core)
{
    return sim_clock_read(core->sim, &core->clock);
}

/* ---- what the core says ---------------------------------------------------------------------- */

static void sink_send(void *context, const struct wire_address *to, const uint8_t *bytes,
                      size_t length)
{
    struct sim_core *core = context;

    sim_net_send(core->sim, &core->address, to, bytes, length);
}

static struct sim_said *say(struct sim_core *core, enum sim_said_kind kind)
{
    struct sim_said *said;

    assert(core->said_count < SIM_SAID_MAX);
    said = &core->said[core->said_count++];
    said->kind = kind;
    said->has_item = false;
    return said;
}

static void sink_complete(void *context, const struct core_completion *completion)
{
    struct sim_said *said = say(context, SIM_SAID_COMPLETE);

    said->completion = *completion;
    if (completion->item) {
        assert(completion->item->bytes <= sizeof said->item);
        memcpy(said->item, completion->item, completion->item->bytes);
        said->has_item = true;
    }
    said->completion.item = NULL;
}

static void sink_lost(void *context, core_ref lock, uint64_t user, belay_lost_reason reason)
{
    struct sim_said *said = say(context, SIM_SAID_LOST);

    said->lock = lock;
    said->user = user;
    said->reason = reason;
}

static void sink_revoke(void *context, core_ref lock, uint64_t user)
{
    struct sim_said *said = say(context, SIM_SAID_REVOKE);

    said->lock = lock;
    said->user = user;
}

static void sink_renewed(void *context, core_ref lock, uint64_t user, uint64_t deadline_ns)
{
    struct sim_said *said = say(context, SIM_SAID_RENEWED);

    said->lock = lock;
    said->user = user;
    said->deadline_ns = deadline_ns;
}

/* ---- life ------------------------------------------------------------------------------------ */

void sim_core_start(struct sim *sim, uint32_t id)
{
    struct sim_core *core = &sim->cores[id];
    int32_t rate_ppm = sim->weather.rate_ppm;
    struct core_options options;
    struct core_sink sink = {
        .send = sink_send,
        .complete = sink_complete,
        .lost = sink_lost,
        .revoke = sink_revoke,
        .renewed = sink_renewed,
        .context = core,
    };

    core->sim = sim;
    core->id = id;
    core->up = true;
    core->paused = false;
    core->epoch++;
    core->address = sim_core_address(id, core->epoch);
    core->clock = (struct sim_clock){
        .base_ns = SIM_SECOND + sim_below(sim, 1000 * SIM_SECOND),
        .base_true_ns = sim->now_ns,
        .rate_ppm = (int32_t)sim_below(sim, 2 * (uint64_t)rate_ppm + 1) - rate_ppm};
    core_options_init(&options);
    options.clients_count = sim->agents_count;
    options.sessions_max = 2 * sim->agents_count * sim->shards;
    options.locks_max = SIM_LOCKS_MAX;
    options.requests_max = SIM_LOCKS_MAX;
    options.session_ttl_ms = 1000 + sim_below(sim, 2000);
    options.request_timeout_ms = 4000;
    for (int i = 0; i < 16; i++)
        options.seed[i] = (uint8_t)sim_draw(sim);
    options.endpoints_count = sim->nodes_count;
    for (uint16_t i = 0; i < sim->nodes_count; i++)
        options.endpoints[i] = sim_node_address((uint16_t)(i + 1), false);
    core->memory = aligned_alloc(64, (core_memory_bytes(&options) + 63) & ~(size_t)63);
    assert(core->memory);
    memset(core->memory, 0, core_memory_bytes(&options));
    if (!core->said)
        core->said = calloc(SIM_SAID_MAX, sizeof *core->said);
    assert(core->said);
    core->said_count = 0;
    memset(core->asks, 0, sizeof core->asks);
    memset(core->beliefs, 0, sizeof core->beliefs);
    memset(core->closing, 0, sizeof core->closing);
    core->tick_at_ns = UINT64_MAX;
    core->core = core_init(core->memory, &options, &sink, clock_of(core));
    for (uint32_t agent = 0; agent < sim->agents_count; agent++)
        (void)sim_post(sim, sim->now_ns + SIM_MS + sim_below(sim, 100 * SIM_MS), SIM_EV_AGENT, id,
                       core->epoch, agent, NULL);
    sim_core_after(core);
}

static void drop_inbox(struct sim_core *core)
{
    for (uint32_t i = 0; i < core->inbox_count; i++)
        free(core->inbox[i]);
    core->inbox_count = 0;
}

void sim_core_free(struct sim_core *core)
{
    drop_inbox(core);
    free(core->memory);
    free(core->said);
    core->memory = NULL;
    core->said = NULL;
}

void sim_core_crash(struct sim_core *core)
{
    struct sim *sim = core->sim;

    if (!core->up)
        return;
    sim_trace(sim, "c%u    dies and is replaced", core->id);
    drop_inbox(core);
    free(core->memory);
    core->memory = NULL;
    core->up = false;
    sim_core_start(sim, core->id);
}

void sim_core_pause(struct sim_core *core, uint64_t for_ns)
{
    if (!core->up || core->paused)
        return;
    core->paused = true;
    sim_trace(core->sim, "c%u    stops for %.3f s", core->id, (double)for_ns / 1e9);
    (void)sim_post(core->sim, core->sim->now_ns + for_ns, SIM_EV_CORE_RESUME, core->id, core->epoch,
                   0, NULL);
}

static void take_packet(struct sim_core *core, struct sim_packet *packet)
{
    core_receive(core->core, clock_of(core), &packet->from, (const uint8_t *)packet->bytes,
                 packet->length);
    free(packet);
}

void sim_core_resume(struct sim_core *core)
{
    if (!core->paused)
        return;
    core->paused = false;
    sim_trace(core->sim, "c%u    goes on", core->id);
    for (uint32_t i = 0; i < core->inbox_count; i++) {
        take_packet(core, core->inbox[i]);
        sim_core_after(core);
    }
    core->inbox_count = 0;
    sim_core_tick(core);
}

void sim_core_packet(struct sim_core *core, struct sim_packet *packet)
{
    if (!core->up || (core->paused && core->inbox_count == SIM_INBOX_MAX)) {
        free(packet);
    } else if (core->paused) {
        core->inbox[core->inbox_count++] = packet;
    } else {
        take_packet(core, packet);
        sim_core_after(core);
    }
}

void sim_core_tick(struct sim_core *core)
{
    if (!core->up || core->paused)
        return;
    core_tick(core->core, clock_of(core));
    sim_core_after(core);
    check_locks_told(core->sim, core);
}

void sim_core_after(struct sim_core *core)
{
    uint64_t tick_ns;

    for (uint32_t i = 0; i < core->said_count; i++)
        sim_agents_said(core, &core->said[i]);
    core->said_count = 0;
    core_flush(core->core);
    assert(core->said_count == 0);
    tick_ns = sim_clock_true(core->sim, &core->clock, core_next_deadline(core->core));
    if (tick_ns == UINT64_MAX)
        return;
    tick_ns += 10 * SIM_US;
    if (core->tick_at_ns > tick_ns || core->tick_at_ns <= core->sim->now_ns) {
        core->tick_at_ns = tick_ns;
        core->tick_order =
            sim_post(core->sim, tick_ns, SIM_EV_CORE_TICK, core->id, core->epoch, 0, NULL);
    }
}
