/* SPDX-License-Identifier: Apache-2.0
 *
 * From the core's PERSIST effects to WAL records and back to DURABLE events.
 *
 * Effects only note what is wanted; shard_persist_flush() copies as much as the frame being filled
 * takes, in the order hard state, cut, entries. What does not fit waits for the next frame. Each
 * record's WAL sequence is remembered in one of two marks (one write in flight, one filling).
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "consensus/plant.h"
#include "dataplane/shard.h"

void shard_persist_entries(struct shard *shard, uint64_t first, uint64_t last)
{
    struct shard_persist *persist = &shard->persist;

    if (persist->next > persist->to) /* nothing waits */
        persist->next = first;
    assert(first <= persist->to + 1 || persist->next == first);
    persist->to = last;
}

void shard_persist_cut(struct shard *shard, uint64_t first)
{
    struct shard_persist *persist = &shard->persist;

    if (persist->to >= first)
        persist->to = first - 1;
    if (persist->next > first)
        persist->next = first;
    if (persist->written >= first) {
        if (!persist->cut_pending || persist->cut_pending > first)
            persist->cut_pending = first;
        persist->written = first - 1;
    }
}

/* The mark for WAL write `sequence`; the older of the two is only replaced once it is durable. */
static struct shard_durable_mark *mark_for(struct shard_persist *persist, uint64_t sequence)
{
    struct shard_durable_mark *marks = persist->marks;
    int free = -1;

    for (int i = 0; i < 2; i++) {
        if (marks[i].sequence == sequence)
            return &marks[i];
        if (!marks[i].sequence)
            free = i;
    }
    assert(free >= 0); /* at most one write in flight and one filling */
    marks[free] = (struct shard_durable_mark){.sequence = sequence};
    return &marks[free];
}

/* Only lack of room is a reason to wait; anything else would be a broken invariant (or a disk that
 * failed, and then the process is ending). */
static bool no_room(const struct shard *shard, int64_t sequence)
{
    assert(sequence > 0 || sequence == -ENOBUFS || sequence == -ENOSPC ||
           wal_error(shard->wal) < 0);
    return sequence < 0;
}

static bool flush_hard(struct shard *shard)
{
    struct shard_persist *persist = &shard->persist;
    struct shard_durable_mark *mark;
    uint64_t vote = PLANTED(vote_not_written) ? 0 : persist->hard.vote;
    int64_t sequence = wal_add_hard(shard->wal, shard->replica, persist->hard.term, vote);

    if (no_room(shard, sequence))
        return false;
    mark = mark_for(persist, (uint64_t)sequence);
    mark->has_hard = true;
    mark->hard = persist->hard;
    persist->hard_pending = false;
    return true;
}

static bool flush_cut(struct shard *shard)
{
    struct shard_persist *persist = &shard->persist;

    if (!PLANTED(cut_not_written) &&
        no_room(shard, wal_add_cut(shard->wal, shard->replica, persist->cut_pending)))
        return false;
    persist->cut_pending = 0;
    return true;
}

static bool flush_entries(struct shard *shard)
{
    struct shard_persist *persist = &shard->persist;
    struct shard_durable_mark *mark;
    uint64_t added = 0;
    int64_t sequence =
        wal_add_log(shard->wal, shard->replica, &shard->log, persist->next, persist->to, &added);

    if (no_room(shard, sequence))
        return false;
    mark = mark_for(persist, (uint64_t)sequence);
    mark->has_entries = true;
    mark->index = added;
    mark->term = log_term(&shard->log, added);
    persist->written = added;
    persist->next = added + 1;
    return persist->next > persist->to;
}

/* Committed entries may be applied, and in a snapshot, before a WAL that is full has taken them:
 * the record then stands for them, and frees the room they wait for. A cut comes first, or entries
 * of another history would follow the snapshot. */
int64_t shard_persist_snapshot(struct shard *shard, const struct log_base *base,
                               const uint8_t *configuration, size_t configuration_bytes)
{
    struct shard_persist *persist = &shard->persist;
    struct shard_durable_mark *mark;
    int64_t sequence;

    if (persist->cut_pending && !flush_cut(shard))
        return -ENOBUFS;
    sequence =
        wal_add_snapshot(shard->wal, shard->replica, base, configuration, configuration_bytes);
    if (sequence < 0 || persist->next > persist->to || persist->next > base->index)
        return sequence;
    persist->next = base->index + 1;
    persist->written = base->index;
    mark = mark_for(persist, (uint64_t)sequence);
    mark->has_entries = true;
    mark->index = base->index;
    mark->term = base->term;
    return sequence;
}

void shard_persist_flush(struct shard *shard)
{
    struct shard_persist *persist = &shard->persist;

    if (!shard->wal)
        return;
    if (persist->hard_pending && !flush_hard(shard))
        return;
    /* Between the WAL's word for an installed snapshot and the core's, the log in memory is still
     * the old one: none of it may follow that record. */
    if (shard->install_sequence)
        return;
    if (persist->cut_pending && !flush_cut(shard))
        return;
    if (persist->next <= persist->to) {
        enum wire_stage before = shard_stage(shard, WIRE_STAGE_LOG);
        (void)flush_entries(shard);
        (void)shard_stage(shard, before);
    }
}

void shard_durable(struct shard *shard, uint64_t sequence, uint64_t now_ns)
{
    struct shard_persist *persist = &shard->persist;
    struct shard_durable_mark due[2];
    int count = 0;

    for (int i = 0; i < 2; i++) {
        if (persist->marks[i].sequence && persist->marks[i].sequence <= sequence) {
            due[count++] = persist->marks[i];
            persist->marks[i].sequence = 0;
        }
    }
    if (count == 2 && due[0].sequence > due[1].sequence) {
        struct shard_durable_mark later = due[0];

        due[0] = due[1];
        due[1] = later;
    }
    for (int i = 0; i < count; i++) {
        if (due[i].has_hard)
            shard_step(shard, &(struct raft_event){.kind = RAFT_EV_HARD_DURABLE,
                                                   .now_ns = now_ns,
                                                   .hard = due[i].hard});
        if (due[i].has_entries)
            shard_step(shard, &(struct raft_event){
                                  .kind = RAFT_EV_DURABLE,
                                  .now_ns = now_ns,
                                  .progress = {.index = due[i].index, .term = due[i].term}});
    }
    if (persist->snapshot_sequence && persist->snapshot_sequence <= sequence) {
        persist->snapshot_sequence = 0;
        shard->saved_index = persist->snapshot_index;
        shard_step(shard, &(struct raft_event){.kind = RAFT_EV_SNAPSHOT_SAVED,
                                               .now_ns = now_ns,
                                               .progress = {.index = shard->saved_index}});
    }
}
