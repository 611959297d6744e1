/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker's WAL and its mail with the snapshot thread.
 */
#include <errno.h>
#include <string.h>

#include "dataplane/worker.h"
#include "hw/journal.h"

struct wal_options worker_wal_options(const struct node_options *options, uint64_t identity)
{
    uint32_t replicas = (uint32_t)((options->shards + options->workers - 1) / options->workers);
    /* Room for a replica that is being replaced beside its successor. */
    uint32_t replicas_max = replicas * 2;
    uint32_t frame_bytes = wal_frame_bytes_min(replicas_max, DISK_BLOCK_BYTES);
    uint32_t wanted = WAL_FRAME_BYTES_LIMIT;

    while (wanted > options->wal_segment_bytes / 4 && wanted / 2 >= frame_bytes)
        wanted /= 2;
    return (struct wal_options){
        .identity = identity,
        .segment_bytes = options->wal_segment_bytes,
        .segments_count = options->wal_segments,
        .frame_bytes_max = wanted,
        .block_bytes = DISK_BLOCK_BYTES,
        .replicas_max = replicas_max,
    };
}

size_t worker_memory_bytes(const struct node_options *options)
{
    struct wal_options wal = worker_wal_options(options, 1);
    size_t bytes = sizeof(struct worker) + sizeof(struct raft_effects);

    if (options->durability == NODE_DISK)
        bytes += wal_memory_bytes(&wal);
    bytes += 2 * mailbox_memory_bytes(SNAPSHOT_MAILS, sizeof(struct snapshot_mail));
    bytes += (size_t)(options->workers - 1) *
             mailbox_memory_bytes(WORKER_HANDOVERS, sizeof(struct worker_handover));
    return bytes;
}

/* ---- writes ---------------------------------------------------------------------------------- */

static void fail(struct worker *worker, int error, const char *what)
{
    if (worker->failed)
        return;
    worker->failed = true;
    journal_write(JOURNAL_ERROR, "failed", "worker=%u error=%d what=\"%s\"", worker->index, error,
                  what);
    worker->fail(worker->fail_context, error, what);
}

bool worker_take_writes(struct worker *worker, uint64_t now_ns)
{
    struct disk_completion completions[DISK_DEPTH_MAX];
    size_t count;

    if (!worker->disk)
        return false;
    if (disk_in_flight(worker->disk) == 0)
        return false;
    count = disk_poll(worker->disk, completions, DISK_DEPTH_MAX);
    if (!count)
        return false;
    for (size_t i = 0; i < count; i++) {
        wal_written(worker->wal, completions[i].user, completions[i].result);
        if (completions[i].result < 0)
            /* The kernel may have dropped the pages: a retry would prove nothing. */
            fail(worker, completions[i].result, "a write to the WAL failed");
    }
    if (worker->failed)
        return true;
    for (uint32_t i = 0; i < worker->shards_count; i++)
        shard_durable(&worker->shards[i], wal_durable_sequence(worker->wal), now_ns);
    return true;
}

static void submit(struct worker *worker)
{
    struct wal_write write;
    int result;

    if (!wal_next_write(worker->wal, &write))
        return;
    result = disk_submit_write(worker->disk, write.segment, write.offset, write.buffer, write.bytes,
                               write.sequence);
    if (result < 0)
        fail(worker, result, "a write to the WAL could not be submitted");
}

void worker_submit_writes(struct worker *worker)
{
    struct wal_usage usage;

    if (!worker->wal || worker->failed)
        return;
    submit(worker);
    shards_relieve(worker->shards, worker->shards_count, worker->wal);
    wal_usage(worker->wal, &usage);
    if (usage.segments_used == usage.segments_count && !worker->wal_full_said &&
        wal_error(worker->wal) == 0) {
        worker->wal_full_said = true;
        journal_write(
            JOURNAL_WARN, "wal_full",
            "worker=%u segments=%u what=\"snapshots do not keep up, or the disk is full\"",
            worker->index, usage.segments_count);
    } else if (usage.segments_used < usage.segments_count) {
        worker->wal_full_said = false;
    }
}

/* ---- mail ------------------------------------------------------------------------------------ */

/* A disk without room for a snapshot: others must lead. */
static void disk_is_full(struct worker *worker, uint64_t now_ns)
{
    if (BOARD_GET(worker->board->state) != 1)
        return;
    BOARD_SET(worker->board->state, 2);
    journal_write(JOURNAL_ERROR, "disk_full",
                  "worker=%u what=\"no room for a snapshot: this node gives up leadership; free "
                  "space and restart it\"",
                  worker->index);
    for (uint32_t i = 0; i < worker->shards_count; i++)
        shard_step_down(&worker->shards[i], now_ns);
}

bool worker_take_mail(struct worker *worker, uint64_t now_ns)
{
    const struct snapshot_mail *mail;
    bool worked = false;

    while ((mail = mailbox_peek(worker->from_snapshots)) != NULL) {
        struct shard *shard = worker_shard(worker, mail->shard);

        if (shard && shard->replica == mail->replica)
            shard_mail(shard, mail, now_ns);
        if (mail->kind == SNAPSHOT_SAVED && mail->result == -ENOSPC)
            disk_is_full(worker, now_ns);
        mailbox_drop(worker->from_snapshots);
        worked = true;
    }
    if (worked) /* the thread may have been waiting for room */
        worker->wake_snapshots(worker->wake_context);
    return worked;
}
