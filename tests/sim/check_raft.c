/* SPDX-License-Identifier: Apache-2.0
 *
 * Raft's own promises, judged from log bytes and views: one leader per term, one history, leaders
 * that have all of it, nothing committed is ever replaced. What any replica has committed first is
 * the truth from then on.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

struct truth_entry {
    uint64_t checksum; /* covers everything before it */
    uint64_t term;     /* in which it was committed, at the latest: of whom it was seen at first */
};

struct truth {
    struct truth_entry *entries; /* [index - 1] */
    uint64_t count, max;
    struct sim_map leaders;            /* term -> replica */
    struct sim_map votes;              /* (replica, term) -> for whom */
    struct sim_map commands;           /* (session, number) -> index */
    uint64_t *members_index, *members; /* committed configurations: where, and a hash of each */
    uint32_t members_count;
};

/* What a replica had durably when it was last looked at. */
struct durable {
    uint64_t replica, index, checksum;
};

struct check_raft {
    struct durable durable[SIM_NODES_MAX][SIM_SHARDS_MAX];
    struct truth shards[SIM_SHARDS_MAX];
};

struct check_raft *check_raft_new(struct sim *sim)
{
    struct check_raft *check = calloc(1, sizeof *check);

    (void)sim;
    assert(check);
    return check;
}

void check_raft_free(struct check_raft *check)
{
    for (int s = 0; s < SIM_SHARDS_MAX; s++) {
        free(check->shards[s].entries);
        free(check->shards[s].members_index);
        free(check->shards[s].members);
        sim_map_free(&check->shards[s].leaders);
        sim_map_free(&check->shards[s].votes);
        sim_map_free(&check->shards[s].commands);
    }
    free(check);
}

/* ---- the truth grows ------------------------------------------------------------------------- */

static void note_commands(struct truth *truth, const struct log_entry *entry)
{
    const uint8_t *at = log_entry_payload(entry);
    struct lock_batch batch;

    memcpy(&batch, at, sizeof batch);
    at += sizeof batch;
    for (uint32_t i = 0; i < batch.count; i++) {
        const struct wire_request *request = (const struct wire_request *)at;
        uint64_t *index = sim_map_at(&truth->commands, sim_mix(request->session, request->number));

        if (!*index)
            *index = entry->index;
        at += request->item.bytes;
    }
}

static uint64_t members_hash(const struct raft_configuration *configuration)
{
    uint64_t hash = 1;

    for (uint32_t i = 0; i < configuration->count; i++)
        hash += sim_mix(configuration->members[i].replica_id, configuration->members[i].role);
    return hash;
}

static void note_members(struct truth *truth, uint64_t index,
                         const struct raft_configuration *configuration)
{
    uint32_t at = truth->members_count++;

    truth->members_index = realloc(truth->members_index, (at + 1) * sizeof(uint64_t));
    truth->members = realloc(truth->members, (at + 1) * sizeof(uint64_t));
    assert(truth->members_index && truth->members);
    truth->members_index[at] = index;
    truth->members[at] = members_hash(configuration);
}

static void append(struct sim *sim, uint16_t shard, const struct log_entry *entry, uint64_t term)
{
    struct raft_configuration configuration;

    struct truth *truth = &sim->raft->shards[shard];

    if (truth->count == truth->max) {
        truth->max = truth->max ? truth->max * 2 : 1024;
        truth->entries = realloc(truth->entries, truth->max * sizeof *truth->entries);
        assert(truth->entries);
    }
    truth->entries[truth->count++] =
        (struct truth_entry){.checksum = entry->checksum, .term = term};
    if (entry->kind == LOG_COMMANDS)
        note_commands(truth, entry);
    if (entry->kind == LOG_CONFIGURATION &&
        raft_configuration_decode(&configuration, log_entry_payload(entry), entry->payload_bytes))
        note_members(truth, entry->index, &configuration);
    check_state_committed(sim, shard, entry);
}

/* ---- judging --------------------------------------------------------------------------------- */

static void judge_at(struct sim *sim, const struct sim_node *node, uint16_t shard, uint64_t index,
                     uint64_t checksum, const char *what)
{
    const struct truth *truth = &sim->raft->shards[shard];

    if (index && index <= truth->count && truth->entries[index - 1].checksum != checksum)
        sim_fail(sim, "log matching",
                 "n%u s%u: %s at index %llu is not what was committed there first", node->id, shard,
                 what, (unsigned long long)index);
}

static void judge_commit(struct sim *sim, const struct sim_node *node, uint16_t s)
{
    const struct shard *shard = &node->shards[s];
    struct truth *truth = &sim->raft->shards[s];
    uint64_t commit = shard->view.commit_index;
    const struct log_entry *entry;

    judge_at(sim, node, s, shard->log.base.index, shard->log.base.checksum, "the log's base");
    entry = log_at(&shard->log, commit < truth->count ? commit : truth->count);
    if (entry)
        judge_at(sim, node, s, entry->index, entry->checksum, "the entry");
    while (truth->count < commit && !sim->failed) {
        entry = log_at(&shard->log, truth->count + 1);
        if (!entry) {
            sim_fail(sim, "committed entries stay",
                     "n%u s%u: commit index %llu, but entry %llu was never seen committed",
                     node->id, s, (unsigned long long)commit, (unsigned long long)truth->count + 1);
            return;
        }
        append(sim, s, entry, shard->view.term);
    }
    if (shard->applied > commit && shard->state == SHARD_RUNNING)
        sim_fail(sim, "durable", "n%u s%u: applied %llu beyond commit index %llu", node->id, s,
                 (unsigned long long)shard->applied, (unsigned long long)commit);
}

/* What was committed in earlier terms must be there, and nothing else: a candidate may learn late
 * that it won a term, when another leads since and has committed more. The last such entry says it
 * for all before. */
static void judge_completeness(struct sim *sim, const struct sim_node *node, uint16_t s)
{
    const struct shard *shard = &node->shards[s];
    const struct truth *truth = &sim->raft->shards[s];
    uint64_t index = truth->count;
    const struct log_entry *entry;
    uint64_t checksum;

    while (index && truth->entries[index - 1].term >= shard->view.term)
        index--;
    if (!index || index < shard->log.base.index)
        return;
    entry = log_at(&shard->log, index);
    checksum = entry ? entry->checksum : shard->log.base.checksum;
    if ((!entry && shard->log.base.index != index) ||
        checksum != truth->entries[index - 1].checksum)
        sim_fail(sim, "leader completeness",
                 "n%u s%u: elected in term %llu without the committed entry %llu (its log: "
                 "%llu..%llu)",
                 node->id, s, (unsigned long long)shard->view.term, (unsigned long long)index,
                 (unsigned long long)shard->log.base.index + 1,
                 (unsigned long long)shard->log.last_index);
}

static void judge_leader(struct sim *sim, const struct sim_node *node, uint16_t s)
{
    const struct shard *shard = &node->shards[s];
    uint64_t *leader = sim_map_at(&sim->raft->shards[s].leaders, shard->view.term);

    if (*leader == shard->replica)
        return;
    if (*leader) {
        sim_fail(sim, "election safety", "n%u s%u: a second leader in term %llu", node->id, s,
                 (unsigned long long)shard->view.term);
        return;
    }
    *leader = shard->replica;
    judge_completeness(sim, node, s);
}

static void note_durable(struct sim *sim, const struct sim_node *node, uint16_t s)
{
    const struct shard *shard = &node->shards[s];
    const struct log_entry *entry = log_at(&shard->log, shard->view.durable_index);

    if (!entry) /* what was durable above the base was cut */
        sim->raft->durable[node->id - 1][s] =
            (struct durable){.replica = shard->replica,
                             .index = shard->log.base.index,
                             .checksum = shard->log.base.checksum};
    else
        sim->raft->durable[node->id - 1][s] = (struct durable){
            .replica = shard->replica, .index = entry->index, .checksum = entry->checksum};
}

void check_raft_sent(struct sim *sim, uint16_t shard, const struct raft_message *message)
{
    bool asks = message->kind == RAFT_MSG_VOTE;
    uint64_t *vote;

    if (!asks && (message->kind != RAFT_MSG_VOTE_REPLY || !(message->flags & RAFT_MSG_GRANTED)))
        return;
    vote = sim_map_at(&sim->raft->shards[shard].votes, sim_mix(message->from, message->term));
    if (*vote && *vote != (asks ? message->from : message->to))
        sim_fail(sim, "election safety", "s%u: replica %04llx votes twice in term %llu", shard,
                 (unsigned long long)message->from & 0xffff, (unsigned long long)message->term);
    *vote = asks ? message->from : message->to;
}

/* Another entry at the place of the durable one: it was cut, or a snapshot was installed over it,
 * and the node died before its next turn could be noted. */
static bool is_superseded(const struct sim *sim, uint16_t s, const struct durable *durable)
{
    for (uint16_t n = 0; n < sim->nodes_count; n++) {
        const struct log_entry *entry = log_at(&sim->nodes[n].shards[s].log, durable->index);

        if (entry && entry->checksum != durable->checksum)
            return true;
    }
    return false;
}

void check_raft_started(struct sim *sim, struct sim_node *node)
{
    for (uint16_t s = 0; s < sim->shards; s++) {
        const struct durable *durable = &sim->raft->durable[node->id - 1][s];
        const struct shard *shard = &node->shards[s];
        const struct log_entry *entry = log_at(&shard->log, durable->index);

        if (durable->replica != shard->replica || shard->log.base.index >= durable->index ||
            (entry && entry->checksum == durable->checksum) || is_superseded(sim, s, durable))
            continue;
        sim_fail(sim, "durable",
                 "n%u s%u: entry %llu was durable before the restart, the log is %llu..%llu now",
                 node->id, s, (unsigned long long)durable->index,
                 (unsigned long long)shard->log.base.index + 1,
                 (unsigned long long)shard->log.last_index);
    }
}

/* The members in force are those of the newest committed configuration, unless the log has one that
 * is not committed. */
static void judge_members(struct sim *sim, const struct sim_node *node, uint16_t s)
{
    const struct shard *shard = &node->shards[s];
    struct truth *truth = &sim->raft->shards[s];
    const struct raft_configuration *configuration = shard->view.configuration;
    uint32_t at = truth->members_count;

    if (!truth->members_count) /* as formed */
        note_members(truth, 0, configuration);
    if (!configuration->count || configuration->index > shard->view.commit_index)
        return;
    while (at && truth->members_index[at - 1] > shard->view.commit_index)
        at--;
    if (at && truth->members[at - 1] != members_hash(configuration))
        sim_fail(sim, "one membership",
                 "n%u s%u: at commit index %llu its members are not those of entry %llu", node->id,
                 s, (unsigned long long)shard->view.commit_index,
                 (unsigned long long)truth->members_index[at - 1]);
}

void check_raft_turn(struct sim *sim, struct sim_node *node)
{
    for (uint16_t s = 0; s < sim->shards && !sim->failed; s++) {
        note_durable(sim, node, s);
        if (node->shards[s].view.role == RAFT_LEADER)
            judge_leader(sim, node, s);
        judge_commit(sim, node, s);
        judge_members(sim, node, s);
    }
}

uint64_t check_raft_index_of(const struct sim *sim, uint16_t shard, uint64_t session,
                             uint64_t number)
{
    return sim_map_get(&sim->raft->shards[shard].commands, sim_mix(session, number));
}

uint64_t check_raft_committed(const struct sim *sim, uint16_t shard)
{
    return sim->raft->shards[shard].count;
}
