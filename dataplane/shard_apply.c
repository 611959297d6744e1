/* SPDX-License-Identifier: Apache-2.0
 *
 * Applying what is committed, and telling clients.
 */
#include <assert.h>
#include <string.h>

#include "consensus/plant.h"
#include "dataplane/shard.h"

struct apply_context {
    struct shard *shard;
    uint64_t now_ns;
};

/* Only a leader's sink is connected: followers apply in silence. */
static void emit(void *context, const struct lock_output *output)
{
    struct apply_context *apply = context;
    struct shard *shard = apply->shard;
    struct board_worker *counters = &shard->board->workers[shard->id % shard->options->workers];

    if (!output->address)
        return; /* the session ended meanwhile; its next request is told so at admission */
    shard->host->reply(shard->host_context, output->address, output->item);
    if (output->kind == LOCK_OUT_REPLY)
        return;
    board_count(&counters->pushes);
    if (!push_add(&shard->pushes, output->address, output->item, apply->now_ns))
        board_count(&counters->pushes_dropped);
}

/* As the machine sees it. */
static struct lock_entry machine_entry(const struct log_entry *entry)
{
    struct lock_entry seen = {
        .index = entry->index,
        .stamp_ns = entry->stamp_ns,
        .kind = LOCK_ENTRY_EMPTY,
        .payload = log_entry_payload(entry),
        .payload_bytes = entry->payload_bytes,
    };
    if (entry->kind == LOG_COMMANDS)
        seen.kind = LOCK_ENTRY_COMMANDS;
    else if (entry->kind == LOG_LIMITS)
        seen.kind = LOCK_ENTRY_LIMITS;
    return seen;
}

/* `next`: the one that will be applied after it, or NULL. */
static void apply_entry(struct shard *shard, const struct log_entry *entry,
                        const struct log_entry *next, struct lock_sink *sink)
{
    struct lock_entry input = machine_entry(entry);
    struct lock_entry ahead;
    int result;

    if (entry->kind == LOG_CONFIGURATION) {
        (void)raft_configuration_decode(&shard->configuration, input.payload, input.payload_bytes);
        shard->configuration.index = entry->index;
    }
    if (next)
        ahead = machine_entry(next);
    result = lock_machine_apply_ahead(shard->machine, &input, next ? &ahead : NULL, sink);
    if (result < 0)
        shard_note(shard, &(struct shard_note){.event = "apply_failed",
                                               .first_name = "index",
                                               .first = entry->index,
                                               .second_name = "error",
                                               .second = (uint64_t)-result});
    else if (input.kind == LOCK_ENTRY_LIMITS)
        shard->limits_set = true;
    /* A node whose memory cannot hold the shard's limits must not pretend to follow. */
    assert(result == 0);
    shard->applied = entry->index;
    shard->applied_stamp_ns = entry->stamp_ns;
}

static void repeat_pushes(struct shard *shard, uint64_t now_ns)
{
    struct board_worker *counters = &shard->board->workers[shard->id % shard->options->workers];
    const struct push *push;

    while ((push = push_due(&shard->pushes, now_ns)) != NULL) {
        shard->host->reply(shard->host_context, &push->to, &push->item);
        board_count(&counters->pushes_repeated);
    }
}

bool shard_apply(struct shard *shard, uint64_t now_ns)
{
    struct apply_context context = {.shard = shard, .now_ns = now_ns};
    struct lock_sink sink = {.emit = emit, .context = &context};
    struct lock_sink *told = shard->view.role == RAFT_LEADER ? &sink : NULL;
    uint64_t before = shard->applied;
    uint64_t until = PLANTED(apply_uncommitted) ? shard->view.last_index : shard->view.commit_index;

    if (shard->state != SHARD_RUNNING)
        return false;
    if (until > before + SHARD_APPLY_ENTRIES_MAX)
        until = before + SHARD_APPLY_ENTRIES_MAX;
    enum wire_stage stage = WIRE_STAGE_OTHER;
    if (shard->applied < until)
        stage = shard_stage(shard, WIRE_STAGE_APPLY);
    while (shard->applied < until) {
        const struct log_entry *entry = log_at(&shard->log, shard->applied + 1);
        const struct log_entry *next =
            shard->applied + 2 <= until ? log_at(&shard->log, shard->applied + 2) : NULL;

        assert(entry); /* nothing is released before it is applied */
        apply_entry(shard, entry, next, told);
    }
    if (shard->applied > before)
        shard->due_ns = lock_machine_next_deadline(shard->machine);
    if (shard->applied > before) {
        shard_step(shard, &(struct raft_event){.kind = RAFT_EV_APPLIED,
                                               .now_ns = now_ns,
                                               .progress = {.index = shard->applied}});
        (void)shard_stage(shard, stage);
    }
    if (told) {
        repeat_pushes(shard, now_ns);
        if (shard->unconfirmed_walk && shard->view.ready)
            shard->unconfirmed_walk = lock_machine_unconfirmed(
                shard->machine, &shard->unconfirmed_cursor, SHARD_UNCONFIRMED_SESSIONS, &sink);
    }
    return shard->applied < shard->view.commit_index || shard->unconfirmed_walk;
}
