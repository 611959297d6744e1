/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and refusals, as clients see them, against what was known when they were asked: an answer
 * is never older than what some client had heard before the question (linearizability's real-time
 * order, Herlihy and Wing, 1990), and it names whoever certainly held the lock all along.
 */
#include <assert.h>
#include <stdlib.h>

#include "tests/sim/sim.h"

enum { RELEASED_MAX = 64 };

struct released {
    uint64_t token, known_ns;
};

struct check_reads {
    uint64_t acked[SIM_SHARDS_MAX]; /* highest index that a client knows to be applied */
    struct released released[SIM_NAMES][RELEASED_MAX];
    uint32_t released_next[SIM_NAMES];
};

struct check_reads *check_reads_new(struct sim *sim)
{
    struct check_reads *check = calloc(1, sizeof *check);

    (void)sim;
    assert(check);
    return check;
}

void check_reads_free(struct check_reads *check)
{
    free(check);
}

uint64_t check_reads_floor(const struct sim *sim, uint32_t name)
{
    return sim->reads->acked[sim->name_shard[name]];
}

static void raise_acked(struct sim *sim, uint16_t shard, uint64_t index)
{
    if (index > sim->reads->acked[shard])
        sim->reads->acked[shard] = index;
}

/* ---- answers to commands --------------------------------------------------------------------- */

static bool is_applied_answer(uint16_t status)
{
    return status == WIRE_OK || status == WIRE_BUSY || status == WIRE_DELAYED ||
           status == WIRE_TIMED_OUT || status == WIRE_CANCELLED || status == WIRE_DEADLOCK ||
           status == WIRE_ALREADY_HELD;
}

static void judge_command(struct sim *sim, const struct sim_ask *ask,
                          const struct wire_reply *reply)
{
    uint16_t shard = sim->name_shard[ask->name];
    uint64_t index = check_raft_index_of(sim, shard, reply->session, reply->number);

    if (!index)
        sim_fail(sim, "durable",
                 "s%u: request %llu of session %llx was answered (%s) but is in no committed entry",
                 shard, (unsigned long long)reply->number, (unsigned long long)reply->session,
                 wire_status_name(reply->item.status));
    raise_acked(sim, shard, index);
}

static void judge_party(struct sim *sim, const struct sim_ask *ask, const struct wire_party *party,
                        const char *what)
{
    for (int i = 0; i < RELEASED_MAX; i++) {
        const struct released *released = &sim->reads->released[ask->name][i];

        if (released->token && released->token == party->token &&
            released->known_ns < ask->asked_ns)
            sim_fail(sim, "linearizable",
                     "%s of %s names the holder of token %llx, whose release was confirmed %.6f s "
                     "before the question",
                     what, sim->names[ask->name], (unsigned long long)party->token,
                     (double)(ask->asked_ns - released->known_ns) / 1e9);
    }
}

/* ---- queries --------------------------------------------------------------------------------- */

static const struct wire_party *holder_of(const struct wire_state *state, uint64_t token)
{
    const uint8_t *at = (const uint8_t *)(state + 1);

    for (uint32_t i = 0; i < state->parties; i++) {
        const struct wire_party *party = (const struct wire_party *)at;

        if (party->waiting == 0 && party->token == token)
            return party;
        at += sizeof *party + wire_pad8(party->value_bytes);
    }
    return NULL;
}

/* Whoever held it from before the question until after the answer must be in the answer. */
static void judge_believers(struct sim *sim, const struct sim_ask *ask,
                            const struct wire_state *state)
{
    for (uint32_t c = 0; c < sim->cores_count; c++) {
        for (int i = 0; i < SIM_LOCKS_MAX; i++) {
            const struct sim_belief *belief = &sim->cores[c].beliefs[i];

            if (!check_locks_live(sim, belief) || belief->converting || belief->unsure ||
                belief->name != ask->name || belief->since_ns > ask->asked_ns ||
                sim->now_ns + SIM_MS > belief->until_ns || state->cursor)
                continue;
            if (!holder_of(state, belief->token))
                sim_fail(sim, "linearizable",
                         "a query of %s does not name c%u.%u (token %llx), which held it all along",
                         sim->names[ask->name], c, belief->agent,
                         (unsigned long long)belief->token);
        }
    }
}

/* False: of a stale answer no more is promised. */
static bool judge_index(struct sim *sim, const struct sim_ask *ask, uint64_t index)
{
    uint16_t shard = sim->name_shard[ask->name];

    if (index > check_raft_committed(sim, shard))
        sim_fail(sim, "linearizable", "s%u: read at index %llu, which nobody has committed", shard,
                 (unsigned long long)index);
    if (ask->stale)
        return false;
    if (index < ask->index_floor)
        sim_fail(sim, "linearizable",
                 "s%u: read at index %llu; index %llu was known before the question", shard,
                 (unsigned long long)index, (unsigned long long)ask->index_floor);
    raise_acked(sim, shard, index);
    return true;
}

static void judge_query(struct sim *sim, const struct sim_ask *ask, const struct wire_state *state)
{
    const uint8_t *at = (const uint8_t *)(state + 1);

    if (!judge_index(sim, ask, state->index))
        return;
    for (uint32_t i = 0; i < state->parties; i++) {
        const struct wire_party *party = (const struct wire_party *)at;

        if (party->waiting == 0)
            judge_party(sim, ask, party, "a query");
        at += sizeof *party + wire_pad8(party->value_bytes);
    }
    judge_believers(sim, ask, state);
}

static void judge_list(struct sim *sim, const struct sim_ask *ask, const struct wire_list *list)
{
    uint16_t shard = sim->name_shard[ask->name];
    const uint8_t *at = (const uint8_t *)(list + 1);

    (void)judge_index(sim, ask, list->index);
    for (uint32_t i = 0; i < list->count && !ask->stale; i++) {
        const struct wire_listed *listed = (const struct wire_listed *)at;
        const uint8_t *text = (const uint8_t *)(listed + 1);
        uint64_t hash = wire_key_hash(text, listed->namespace_bytes, text + listed->namespace_bytes,
                                      listed->name_bytes);
        struct wire_party party = {.token = listed->token};

        for (uint32_t name = 0; name < SIM_NAMES && listed->token; name++) {
            struct sim_ask named = *ask;

            named.name = name;
            if (sim->name_hash[name] != hash)
                continue;
            if (sim->name_shard[name] != shard)
                sim_fail(sim, "linearizable", "s%u: a list names %s", shard, sim->names[name]);
            judge_party(sim, &named, &party, "a list");
        }
        at += sizeof *listed + wire_pad8(listed->namespace_bytes + listed->name_bytes);
    }
}

void check_reads_done(struct sim *sim, const struct sim_ask *ask, belay_status status,
                      const struct wire_item *item)
{
    const struct wire_reply *reply = (const struct wire_reply *)item;

    if (ask->kind == SIM_ASK_RELEASE && status == BELAY_OK && item) {
        uint32_t slot = sim->reads->released_next[ask->name]++ % RELEASED_MAX;

        sim->reads->released[ask->name][slot] =
            (struct released){.token = ask->token, .known_ns = sim->now_ns};
    }
    if (!item)
        return;
    if (item->op == WIRE_OP_QUERY) {
        if (item->status == WIRE_OK)
            judge_query(sim, ask, (const struct wire_state *)item);
        return;
    }
    if (item->op == WIRE_OP_LIST) {
        if (item->status == WIRE_OK)
            judge_list(sim, ask, (const struct wire_list *)item);
        return;
    }
    if (item->op <= WIRE_OP_LOGGED_LAST && reply->number && is_applied_answer(item->status))
        judge_command(sim, ask, reply);
    if (item->op == WIRE_OP_ACQUIRE && item->status == WIRE_BUSY)
        judge_party(sim, ask, &((const struct wire_busy *)item)->first, "a refusal");
}
