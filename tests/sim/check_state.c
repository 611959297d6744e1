/* SPDX-License-Identifier: Apache-2.0
 *
 * The replicated state: equal on every replica at equal indexes, equal to what a second machine,
 * written naively (tests/unit/lock_twin.h), makes of the committed log, and answers that say no
 * more than that. The twin's state is looked at after every entry: one exclusive holder or shared
 * ones only, tokens that rise, leases that do not end before their time.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"
#include "tests/unit/lock_twin.h"

struct model {
    struct lock_twin *twin;            /* NULL before LOG_LIMITS */
    uint64_t index;                    /* it stands for the log up to here */
    uint64_t committed_ns;             /* true time at which that was seen committed */
    struct sim_map histories, digests; /* by index */
    struct sim_map granted;            /* (session, number) -> lease secret, by the twin */
    struct sim_map said;               /* the same, by nodes */
    struct sim_map tokens;             /* (resource, token) -> lease secret */
    struct sim_map token_max;          /* resource -> highest token granted */
    uint64_t judged[SIM_NODES_MAX];    /* applied index at the last look */
};

struct check_state {
    struct model shards[SIM_SHARDS_MAX];
};

struct check_state *check_state_new(struct sim *sim)
{
    struct check_state *check = calloc(1, sizeof *check);

    (void)sim;
    assert(check);
    return check;
}

void check_state_free(struct check_state *check)
{
    for (int s = 0; s < SIM_SHARDS_MAX; s++) {
        struct model *model = &check->shards[s];

        if (model->twin) {
            twin_free(model->twin);
            free(model->twin);
        }
        sim_map_free(&model->histories);
        sim_map_free(&model->digests);
        sim_map_free(&model->granted);
        sim_map_free(&model->said);
        sim_map_free(&model->tokens);
        sim_map_free(&model->token_max);
    }
    free(check);
}

/* ---- the model goes on ----------------------------------------------------------------------- */

static uint64_t resource_of(const struct lock_twin *twin, int resource)
{
    const struct twin_key *key = &twin->resources[resource].key;

    return wire_key_hash(key->text, key->ns_bytes, key->text + key->ns_bytes, key->name_bytes);
}

static void judge_token(struct sim *sim, uint16_t shard, const struct twin_lease *lease)
{
    struct model *model = &sim->state->shards[shard];
    uint64_t resource = resource_of(model->twin, lease->resource);
    uint64_t *owner = sim_map_at(&model->tokens, sim_mix(resource, lease->token));
    uint64_t *highest = sim_map_at(&model->token_max, resource);

    if (*owner == lease->terms.secret)
        return;
    if (*owner || lease->token <= *highest) {
        sim_fail(sim, "fencing",
                 "s%u index %llu: %s is granted with token %llx after token %llx was", shard,
                 (unsigned long long)model->index, sim_name_of(sim, resource),
                 (unsigned long long)lease->token, (unsigned long long)*highest);
        return;
    }
    *owner = lease->terms.secret;
    *highest = lease->token;
}

static void judge_holders(struct sim *sim, uint16_t shard)
{
    const struct model *model = &sim->state->shards[shard];
    const struct lock_twin *twin = model->twin;

    for (int i = 0; i < TWIN_LEASES_MAX; i++) {
        if (!twin->leases[i].used || twin->leases[i].terms.mode != WIRE_EXCLUSIVE)
            continue;
        for (int k = 0; k < TWIN_LEASES_MAX; k++) {
            if (k != i && twin->leases[k].used &&
                twin->leases[k].resource == twin->leases[i].resource)
                sim_fail(sim, "exclusion", "s%u index %llu: %s has an exclusive and another holder",
                         shard, (unsigned long long)model->index,
                         sim_name_of(sim, resource_of(twin, twin->leases[i].resource)));
        }
    }
}

/* Grants of one entry come in token order, whatever slots they lie in. */
static void judge_tokens(struct sim *sim, uint16_t shard)
{
    const struct lock_twin *twin = sim->state->shards[shard].twin;
    const struct twin_lease *order[TWIN_LEASES_MAX];
    int count = 0;

    for (int i = 0; i < TWIN_LEASES_MAX; i++) {
        const struct twin_lease *lease = &twin->leases[i];
        int at = count;

        if (!lease->used)
            continue;
        count++;
        for (; at && order[at - 1]->token > lease->token; at--)
            order[at] = order[at - 1];
        order[at] = lease;
    }
    for (int i = 0; i < count; i++)
        judge_token(sim, shard, order[i]);
}

static void note_granted(struct model *model)
{
    for (uint32_t i = 0; i < model->twin->outputs_count; i++) {
        const struct wire_granted *granted =
            (const struct wire_granted *)model->twin->outputs[i].item;
        uint8_t op = granted->reply.item.op;

        if (granted->reply.item.status == WIRE_OK &&
            (op == WIRE_OP_ACQUIRE || op == WIRE_OP_CONVERT || op == WIRE_OP_PUSH_GRANT))
            *sim_map_at(&model->granted, sim_mix(granted->reply.session, granted->reply.number)) =
                granted->lease.secret;
    }
}

static uint64_t earliest(uint64_t a, const struct twin_timer *timer)
{
    return timer->tick < a ? timer->tick : a;
}

static uint64_t first_due_tick(const struct lock_twin *twin)
{
    uint64_t tick = UINT64_MAX;

    for (int i = 0; i < TWIN_LEASES_MAX; i++) {
        if (twin->leases[i].used)
            tick = earliest(tick, &twin->leases[i].timer);
    }
    for (int i = 0; i < TWIN_WAITERS_MAX; i++) {
        if (twin->waiters[i].used)
            tick = earliest(tick, &twin->waiters[i].timer);
    }
    for (int i = 0; i < TWIN_SESSIONS_MAX; i++) {
        if (twin->sessions[i].used && !twin->sessions[i].over)
            tick = earliest(tick, &twin->sessions[i].timer);
    }
    return tick;
}

/* Where nothing fails and entries are committed at once, what is due ends at once: nobody else's
 * command is needed for it. A leader that cannot commit, for want of a majority that has its log,
 * cannot end anything either. */
static void judge_lateness(struct sim *sim, uint16_t shard, uint64_t stamp_ns)
{
    struct model *model = &sim->state->shards[shard];
    uint64_t bound_ns = 120 * SIM_MS;
    uint64_t idle_ns = sim->now_ns - model->committed_ns;
    uint64_t tick;

    model->committed_ns = sim->now_ns;
    if (!sim->healed || sim->now_ns < sim->healed_ns + SIM_SECOND || idle_ns < 2 * bound_ns)
        return;
    tick = first_due_tick(model->twin);
    if (tick < UINT64_MAX / LOCK_TICK_NS && stamp_ns > tick * LOCK_TICK_NS + bound_ns)
        sim_fail(sim, "not late", "s%u index %llu: what was due ends %.3f s later", shard,
                 (unsigned long long)model->index, (double)(stamp_ns - tick * LOCK_TICK_NS) / 1e9);
}

void check_state_committed(struct sim *sim, uint16_t shard, const struct log_entry *entry)
{
    struct model *model = &sim->state->shards[shard];
    struct lock_batch empty = {.endings_max = LOCK_ENDINGS_DEFAULT};
    struct lock_limits limits;

    model->index = entry->index;
    if (entry->kind == LOG_LIMITS &&
        lock_limits_decode(&limits, log_entry_payload(entry), entry->payload_bytes)) {
        if (model->twin) {
            sim_fail(sim, "one history", "s%u index %llu: the limits are set a second time", shard,
                     (unsigned long long)entry->index);
            return;
        }
        model->twin = calloc(1, sizeof *model->twin);
        assert(model->twin);
        twin_init(model->twin, &limits);
        model->twin->stamp_ns = entry->stamp_ns;
        model->twin->tick = entry->stamp_ns / LOCK_TICK_NS;
        return;
    }
    if (!model->twin)
        return;
    if (entry->stamp_ns < model->twin->stamp_ns)
        sim_fail(sim, "never early", "s%u index %llu: the stamp is older than the one before it",
                 shard, (unsigned long long)entry->index);
    judge_lateness(sim, shard, entry->stamp_ns);
    twin_apply(model->twin, entry->stamp_ns,
               entry->kind == LOG_COMMANDS ? log_entry_payload(entry) : (const uint8_t *)&empty);
    note_granted(model);
    judge_holders(sim, shard);
    judge_tokens(sim, shard);
}

void check_state_dump(struct sim *sim)
{
    for (uint16_t s = 0; s < sim->shards; s++) {
        const struct lock_twin *twin = sim->state->shards[s].twin;

        for (int i = 0; twin && i < TWIN_LEASES_MAX; i++) {
            const struct twin_lease *lease = &twin->leases[i];

            if (lease->used)
                sim_trace(sim, "s%u lease: %s %s token %llx, session %04llx, ttl %u", s,
                          sim_name_of(sim, resource_of(twin, lease->resource)),
                          lease->terms.mode == WIRE_EXCLUSIVE ? "X" : "S",
                          (unsigned long long)lease->token,
                          lease->session < 0
                              ? 0ull
                              : (unsigned long long)twin->sessions[lease->session].id & 0xffff,
                          lease->terms.ttl_ms);
        }
        for (int i = 0; twin && i < TWIN_WAITERS_MAX; i++) {
            const struct twin_waiter *waiter = &twin->waiters[i];

            if (waiter->used)
                sim_trace(sim, "s%u waiter: %s %s number %llu of session %04llx%s", s,
                          sim_name_of(sim, resource_of(twin, waiter->resource)),
                          waiter->terms.mode == WIRE_EXCLUSIVE ? "X" : "S",
                          (unsigned long long)waiter->number,
                          (unsigned long long)twin->sessions[waiter->session].id & 0xffff,
                          waiter->lease >= 0 ? ", converts" : "");
        }
    }
}

/* ---- replicas against each other and the model ----------------------------------------------- */

static void judge_equal(struct sim *sim, const struct sim_node *node, uint16_t s,
                        struct sim_map *map, uint64_t found, const char *what)
{
    uint64_t index = node->shards[s].applied;
    uint64_t *known = sim_map_at(map, index + 1);

    found = found ? found : 1;
    if (!*known)
        *known = found;
    if (*known != found)
        sim_fail(sim, "equal states", "n%u s%u: another %s at index %llu than elsewhere", node->id,
                 s, what, (unsigned long long)index);
}

static void judge_counts(struct sim *sim, const struct sim_node *node, uint16_t s)
{
    const struct model *model = &sim->state->shards[s];
    struct lock_counts machine = {0};
    struct lock_counts twin = {0};

    lock_machine_counts(node->shards[s].machine, &machine);
    twin_counts(model->twin, &twin);
    if (machine.leases != twin.leases || machine.sessions != twin.sessions ||
        machine.waiters != twin.waiters || machine.token_last != twin.token_last)
        sim_fail(sim, "equal to the model",
                 "n%u s%u index %llu: leases %u sessions %u waiters %u token %llx, the model has "
                 "%u %u %u %llx",
                 node->id, s, (unsigned long long)model->index, machine.leases, machine.sessions,
                 machine.waiters, (unsigned long long)machine.token_last, twin.leases,
                 twin.sessions, twin.waiters, (unsigned long long)twin.token_last);
}

/* One resource's holders, as a reader sees them and as the model has them. */
static void judge_resource(struct sim *sim, const struct sim_node *node, uint16_t s, uint32_t name)
{
    const struct lock_twin *twin = sim->state->shards[s].twin;
    uint64_t space[SHARD_READ_ITEM_BYTES / 8] = {0};
    uint64_t out[SHARD_REPLY_BYTES_MAX / 8];
    struct wire_named *named = (struct wire_named *)space;
    const struct wire_state *state = (const struct wire_state *)out;
    const uint8_t *at = (const uint8_t *)(state + 1);
    uint64_t balance = 0;
    size_t length = strlen(sim->names[name]);

    named->request.item = (struct wire_item){
        .bytes = (uint16_t)(sizeof *named + wire_pad8(length)), .op = WIRE_OP_QUERY, .shard = s};
    named->name_bytes = (uint8_t)length;
    memcpy(named->text, sim->names[name], length);
    if (!lock_machine_read(node->shards[s].machine, named, 0, out, sizeof out) || state->cursor)
        return;
    for (uint32_t i = 0; i < state->parties; i++) {
        const struct wire_party *party = (const struct wire_party *)at;

        balance += party->waiting == 0 ? sim_mix(party->token, party->mode) : 0;
        at += sizeof *party + wire_pad8(party->value_bytes);
    }
    for (int i = 0; i < TWIN_LEASES_MAX; i++) {
        if (twin->leases[i].used &&
            resource_of(twin, twin->leases[i].resource) == sim->name_hash[name])
            balance -= sim_mix(twin->leases[i].token, twin->leases[i].terms.mode);
    }
    if (balance)
        sim_fail(sim, "equal to the model", "n%u s%u index %llu: other holders of %s", node->id, s,
                 (unsigned long long)node->shards[s].applied, sim->names[name]);
}

static void judge_replica(struct sim *sim, const struct sim_node *node, uint16_t s)
{
    const struct shard *shard = &node->shards[s];
    struct model *model = &sim->state->shards[s];
    const char *wrong = NULL;

    judge_equal(sim, node, s, &model->histories, lock_machine_history(shard->machine), "history");
    if ((shard->applied & 3) == 0 || sim->healed)
        judge_equal(sim, node, s, &model->digests, lock_machine_digest(shard->machine), "digest");
    if ((shard->applied & 63) == 0)
        wrong = lock_machine_verify(shard->machine);
    if (wrong)
        sim_fail(sim, "sound tables", "n%u s%u index %llu: %s", node->id, s,
                 (unsigned long long)shard->applied, wrong);
    if (!model->twin || shard->applied != model->index)
        return;
    judge_counts(sim, node, s);
    for (uint32_t name = 0; name < SIM_NAMES; name++) {
        if (sim->name_shard[name] == s)
            judge_resource(sim, node, s, name);
    }
}

void check_state_turn(struct sim *sim, struct sim_node *node)
{
    for (uint16_t s = 0; s < sim->shards && !sim->failed; s++) {
        const struct shard *shard = &node->shards[s];
        uint64_t *judged = &sim->state->shards[s].judged[node->id - 1];

        if (shard->state != SHARD_RUNNING || shard->applied == *judged)
            continue;
        *judged = shard->applied;
        judge_replica(sim, node, s);
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

static void judge_grant(struct sim *sim, const struct sim_node *node, uint16_t shard,
                        const struct wire_granted *granted)
{
    struct model *model = &sim->state->shards[shard];
    uint64_t key = sim_mix(granted->reply.session, granted->reply.number);
    uint64_t is = granted->lease.secret; /* a later convert may have changed the token */
    uint64_t *said = sim_map_at(&model->said, key);

    if (*said && *said != is) {
        sim_fail(sim, "once", "n%u s%u: request %llu was granted two leases", node->id, shard,
                 (unsigned long long)granted->reply.number);
        return;
    }
    *said = is;
}

/* Said during a turn, when what it rests on may not have been seen here yet: only what one answer
 * says of another is judged at once. */
void check_state_reply(struct sim *sim, const struct sim_node *node, uint16_t shard,
                       const struct wire_item *item)
{
    uint8_t op = item->op;

    if (item->status == WIRE_OK &&
        (op == WIRE_OP_ACQUIRE || op == WIRE_OP_CONVERT || op == WIRE_OP_PUSH_GRANT))
        judge_grant(sim, node, shard, (const struct wire_granted *)item);
    else if (op == WIRE_OP_PUSH_LOST)
        check_locks_ended(sim, (const struct wire_lost *)item);
}
