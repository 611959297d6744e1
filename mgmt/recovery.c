/* SPDX-License-Identifier: Apache-2.0 */
#include "mgmt/recovery.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "consensus/snapshot.h"
#include "hw/file.h"
#include "hw/journal.h"

enum { RECOVERY_WALS_MAX = NODE_WORKERS_MAX };

__attribute__((format(printf, 3, 4))) static int fail(struct recovery *recovery, int result,
                                                      const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(recovery->error, recovery->error_bytes, format, arguments);
    va_end(arguments);
    return result;
}

int recovery_save_manifest(struct recovery *recovery)
{
    uint8_t *bytes = malloc(MANIFEST_BYTES_MAX);
    int result;

    if (!bytes)
        return fail(recovery, -ENOMEM, "no memory for the manifest");
    result = file_replace(recovery->options->data_directory, MANIFEST_FILE_NAME, bytes,
                          manifest_encode(recovery->manifest, bytes));
    free(bytes);
    if (result < 0)
        return fail(recovery, result, "cannot write %s/%s: %s", recovery->options->data_directory,
                    MANIFEST_FILE_NAME, strerror(-result));
    return 0;
}

/* ---- reading the WALs ------------------------------------------------------------------------ */

struct old_wal {
    struct disk_reader disk;
    struct wal_reader reader;
    struct wal_recovered scanned;
    bool open, usable;
};

struct old_wals {
    struct old_wal wals[RECOVERY_WALS_MAX];
    struct wal_rebuilt replicas[WAL_REPLICAS_MAX];
    struct wal_rebuild rebuild;
    uint8_t *scratch;
};

static void open_wal(struct recovery *recovery, struct old_wals *old, uint32_t index)
{
    const struct manifest *manifest = recovery->manifest;
    struct old_wal *wal = &old->wals[index];
    char name[MANIFEST_WAL_NAME_BYTES];
    char path[FILE_PATH_BYTES_MAX];
    int result;

    manifest_wal_name(name, manifest->wal_incarnation, index);
    result = file_join(path, recovery->options->data_directory, name);
    if (result == 0)
        result = disk_reader_open(&wal->disk, path);
    if (result < 0) {
        journal_write(JOURNAL_ERROR, "wal_missing", "wal=%s error=%d", name, result);
        return;
    }
    wal->open = true;
    wal->reader = (struct wal_reader){
        .read = disk_reader_read,
        .context = &wal->disk,
        .identity = wal_identity(manifest->nonce, manifest->wal_incarnation, index),
        .segment_bytes = wal->disk.segment_bytes,
        .segments_count = wal->disk.segments_count,
        .block_bytes = DISK_BLOCK_BYTES,
        .scratch = old->scratch,
    };
    result = wal_scan(&wal->reader, &wal->scanned);
    if (result == 0)
        result = wal_rebuild_states(&old->rebuild, index, &wal->reader, &wal->scanned);
    wal->usable = result == 0;
    if (result < 0)
        journal_write(JOURNAL_ERROR, "wal_corrupt",
                      "wal=%s damage=%s segment=%u offset=%llu what=\"its replicas do not vote and "
                      "are rebuilt under new ids\"",
                      name, wal_damage_name(wal->scanned.damage), wal->scanned.damage_segment,
                      (unsigned long long)wal->scanned.damage_offset);
    else if (wal->scanned.cut)
        journal_write(JOURNAL_INFO, "wal_cut",
                      "wal=%s segment=%u offset=%llu what=\"an unfinished last write\"", name,
                      wal->scanned.end_segment, (unsigned long long)wal->scanned.end_offset);
}

static uint32_t wals_count(const struct recovery *recovery)
{
    uint32_t count = recovery->manifest->wal_count;

    return count < RECOVERY_WALS_MAX ? count : RECOVERY_WALS_MAX;
}

static void read_logs(struct recovery *recovery, struct old_wals *old)
{
    for (uint32_t i = 0; i < recovery->manifest->replicas_count; i++) {
        const struct manifest_replica *named = &recovery->manifest->replicas[i];
        struct wal_rebuilt *found = wal_rebuild_find(&old->rebuild, named->replica_id);

        if (found && named->shard < recovery->options->shards &&
            found->replica.shard == named->shard)
            found->log = &recovery->shards[named->shard]->log;
    }
    for (uint32_t i = 0; i < wals_count(recovery); i++) {
        if (old->wals[i].usable)
            (void)wal_rebuild_logs(&old->rebuild, i, &old->wals[i].reader, &old->wals[i].scanned);
    }
}

/* ---- snapshots ------------------------------------------------------------------------------- */

struct newest {
    uint64_t replica;
    uint64_t below; /* only files with a lower index; UINT64_MAX = any */
    uint64_t index;
    char name[SNAPSHOT_NAME_BYTES];
};

static int look_at_name(void *context, const char *name)
{
    struct newest *newest = context;
    uint64_t replica;
    uint64_t index;

    if (!snapshot_name_parse(name, &replica, &index) || replica != newest->replica ||
        index >= newest->below)
        return 0;
    if (!newest->name[0] || snapshot_is_newer(index, newest->index)) {
        newest->index = index;
        (void)snprintf(newest->name, sizeof newest->name, "%s", name);
    }
    return 0;
}

struct loading {
    struct shard *shard;
    struct snapshot_decoder decoder;
    struct snapshot_sink sink;
};

static int load_block(void *context, const uint8_t *bytes, size_t length)
{
    struct loading *loading = context;

    return lock_machine_restore_step(loading->shard->machine, bytes, length);
}

static int load_piece(void *context, const uint8_t *bytes, size_t length)
{
    struct loading *loading = context;
    int result = snapshot_decode(&loading->decoder, bytes, length, &loading->sink);

    return result < 0 ? result : 0;
}

/* Restores the shard's machine from one file. */
static int load_file(const char *path, struct loading *loading)
{
    int result;

    snapshot_decoder_init(&loading->decoder);
    loading->sink = (struct snapshot_sink){.block = load_block, .context = loading};
    lock_machine_restore_begin(loading->shard->machine);
    result = file_stream(path, load_piece, loading);
    if (result == 0)
        result = snapshot_decode_end(&loading->decoder);
    while (result == 0 && (result = lock_machine_restore_end(loading->shard->machine)) == -EAGAIN)
        result = 0;
    if (result < 0) { /* leave it blank, and able to apply a log from its beginning */
        lock_machine_restore_begin(loading->shard->machine);
        (void)lock_machine_restore_end(loading->shard->machine);
    }
    return result;
}

/* The newest sound snapshot at or above the log's base. -ENOENT if there is none. */
static int load_newest(struct recovery *recovery, struct shard *shard, uint64_t replica,
                       struct shard_start *start)
{
    struct newest newest = {.replica = replica, .below = UINT64_MAX};
    struct loading *loading = malloc(sizeof *loading);
    char directory[FILE_PATH_BYTES_MAX];
    char path[FILE_PATH_BYTES_MAX];
    const struct log_base *base;
    int result;

    if (!loading)
        return -ENOMEM;
    loading->shard = shard;
    result = file_join(directory, recovery->options->data_directory, RECOVERY_SNAPSHOT_DIRECTORY);
    while (result == 0) {
        newest.name[0] = 0;
        (void)file_list(directory, look_at_name, &newest);
        if (!newest.name[0] || newest.index < shard->log.base.index) {
            result = -ENOENT;
            break;
        }
        result = file_join(path, directory, newest.name);
        if (result == 0)
            result = load_file(path, loading);
        if (result == 0 || result == -ENOSPC)
            break;
        journal_write(JOURNAL_ERROR, "snapshot_damaged", "file=%s error=%d", newest.name, result);
        newest.below = newest.index;
        result = 0;
    }
    if (result == 0) {
        base = &loading->decoder.meta.base;
        if (log_term(&shard->log, base->index) == base->term && base->term)
            log_release_to(&shard->log, base->index);
        else
            log_reset(&shard->log, base); /* installed, and the WAL had not said so yet */
        if (!raft_configuration_decode(&start->configuration, loading->decoder.meta.configuration,
                                       loading->decoder.meta.configuration_bytes))
            result = -EBADMSG;
    }
    free(loading);
    return result;
}

static bool has_snapshot(struct recovery *recovery, uint64_t replica)
{
    struct newest newest = {.replica = replica, .below = UINT64_MAX};
    char directory[FILE_PATH_BYTES_MAX];

    if (file_join(directory, recovery->options->data_directory, RECOVERY_SNAPSHOT_DIRECTORY) == 0)
        (void)file_list(directory, look_at_name, &newest);
    return newest.name[0] != 0;
}

/* ---- replicas -------------------------------------------------------------------------------- */

/* Limits that the log sets and no snapshot has yet. */
static bool logged_limits_fit(const struct recovery *recovery, const struct log *log)
{
    for (uint64_t index = log->base.index + 1; index <= log->last_index; index++) {
        const struct log_entry *entry = log_at(log, index);
        struct lock_limits limits;

        if (entry->kind == LOG_LIMITS &&
            lock_limits_decode(&limits, log_entry_payload(entry), entry->payload_bytes) &&
            !lock_limits_fit(&limits, &recovery->options->limits))
            return false;
    }
    return true;
}

/* -ENOSPC: the shard is whole, but larger than what this configuration makes room for. */
static int recover_replica(struct recovery *recovery, const struct old_wals *old,
                           const struct manifest_replica *named)
{
    const struct wal_rebuilt *found = wal_rebuild_find(&old->rebuild, named->replica_id);
    struct shard *shard = recovery->shards[named->shard];
    struct shard_start *start = &recovery->starts[named->shard];

    if (!found || found->incomplete || !found->log)
        return -EBADMSG;
    *start = (struct shard_start){
        .id = named->shard,
        .replica = named->replica_id,
        .hard = found->replica.hard,
        .joining = named->state == MANIFEST_REBUILDING,
    };
    if (found->replica.configuration_bytes &&
        !raft_configuration_decode(&start->configuration, found->replica.configuration,
                                   found->replica.configuration_bytes))
        return -EBADMSG;
    if (shard->log.base.index || has_snapshot(recovery, named->replica_id)) {
        int result = load_newest(recovery, shard, named->replica_id, start);

        if (result < 0 && (shard->log.base.index || result != -ENOENT))
            return result;
        start->limits_set = result == 0;
    }
    return logged_limits_fit(recovery, &shard->log) ? 0 : -ENOSPC;
}

/* Its log is lost. It comes back under an id that nobody has ever voted with. */
static int replace_replica(struct recovery *recovery, struct manifest_replica *named)
{
    struct log_base blank = {0};
    uint64_t lost = named->replica_id;

    do
        randombytes_buf(&named->replica_id, sizeof named->replica_id);
    while (!named->replica_id);
    named->state = MANIFEST_REBUILDING;
    log_reset(&recovery->shards[named->shard]->log, &blank);
    recovery->starts[named->shard] = (struct shard_start){
        .id = named->shard,
        .replica = named->replica_id,
        .joining = true,
    };
    journal_write(JOURNAL_WARN, "replica_rebuilt", "shard=%u lost=%016llx new=%016llx",
                  named->shard, (unsigned long long)lost, (unsigned long long)named->replica_id);
    if (recovery->options->members_count == 1)
        return fail(recovery, -EBADMSG,
                    "shard %u: its log or snapshot in %s is damaged and there is no other node to "
                    "rebuild it from; restore a backup",
                    named->shard, recovery->options->data_directory);
    return 0;
}

int recovery_read(struct recovery *recovery)
{
    struct old_wals *old = calloc(1, sizeof *old);
    int result = 0;

    if (!old)
        return fail(recovery, -ENOMEM, "no memory to read the WALs");
    old->rebuild = (struct wal_rebuild){.replicas = old->replicas, .max = WAL_REPLICAS_MAX};
    old->scratch = malloc(WAL_FRAME_BYTES_LIMIT);
    for (uint32_t i = 0; old->scratch && i < wals_count(recovery); i++)
        open_wal(recovery, old, i);
    read_logs(recovery, old);
    for (uint32_t i = 0; i < recovery->manifest->replicas_count && result == 0; i++) {
        struct manifest_replica *named = &recovery->manifest->replicas[i];

        if (named->shard >= recovery->options->shards)
            result = fail(recovery, -EINVAL, "the manifest names shard %u of %u", named->shard,
                          recovery->options->shards);
        else
            result = recover_replica(recovery, old, named);
        if (result == -ENOSPC)
            (void)fail(recovery, result,
                       "shard %u was formed with larger limits than this configuration has; limits "
                       "can be raised later but never lowered: restore them",
                       named->shard);
        else if (result < 0 && result != -EINVAL)
            result = replace_replica(recovery, named);
        if (result == 0)
            recovery->starts[named->shard].token_epoch = (uint16_t)recovery->manifest->token_epoch;
    }
    for (uint32_t i = 0; i < wals_count(recovery); i++) {
        if (old->wals[i].open)
            disk_reader_close(&old->wals[i].disk);
    }
    free(old->scratch);
    free(old);
    return result;
}

/* ---- fresh WALs ------------------------------------------------------------------------------ */

/* One write, waited for: start-up only. */
static int write_out(struct worker *worker)
{
    struct wal_write write;
    struct disk_completion completion;
    int result;

    if (!wal_next_write(worker->wal, &write))
        return -ENOSPC; /* asked for because a frame is full, so there is one */
    result = disk_submit_write(worker->disk, write.segment, write.offset, write.buffer, write.bytes,
                               write.sequence);
    if (result < 0)
        return result;
    while (disk_poll(worker->disk, &completion, 1) == 0) {
        struct pollfd descriptor = {.fd = disk_event_fd(worker->disk), .events = POLLIN};

        (void)poll(&descriptor, 1, -1);
        disk_event_clear(worker->disk);
    }
    wal_written(worker->wal, completion.user, completion.result);
    return completion.result;
}

static int add_state(struct worker *worker, const struct shard *shard,
                     const struct shard_start *start)
{
    struct wal_replica state = {
        .replica_id = start->replica,
        .shard = start->id,
        .hard = start->hard,
        .base = shard->log.base,
    };
    int64_t sequence;

    if (start->configuration.count)
        state.configuration_bytes =
            (uint16_t)raft_configuration_encode(&start->configuration, state.configuration);
    while ((sequence = wal_add_state(worker->wal, &state)) == -ENOBUFS) {
        int result = write_out(worker);

        if (result < 0)
            return result;
    }
    return sequence < 0 ? (int)sequence : 0;
}

static int add_log(struct worker *worker, const struct shard *shard,
                   const struct shard_start *start)
{
    uint64_t next = shard->log.base.index + 1;

    while (next <= shard->log.last_index) {
        uint64_t added;
        int64_t sequence = wal_add_log(worker->wal, start->replica, &shard->log, next,
                                       shard->log.last_index, &added);

        if (sequence == -ENOBUFS) {
            int result = write_out(worker);

            if (result < 0)
                return result;
            continue;
        }
        if (sequence < 0)
            return (int)sequence;
        next = added + 1;
    }
    return 0;
}

static void say_progress(void *context, uint64_t bytes_done, uint64_t bytes_total)
{
    const struct worker *worker = context;

    journal_write(JOURNAL_DEBUG, "wal_fill", "worker=%u done=%llu of=%llu", worker->index,
                  (unsigned long long)bytes_done, (unsigned long long)bytes_total);
}

static int renew_worker(struct recovery *recovery, struct worker *worker, uint64_t incarnation)
{
    const struct node_options *options = recovery->options;
    struct disk_progress progress = {.step = say_progress, .context = worker};
    uint64_t identity = wal_identity(recovery->manifest->nonce, incarnation, worker->index);
    struct wal_options wal_options = worker_wal_options(options, identity);
    char name[MANIFEST_WAL_NAME_BYTES];
    char path[FILE_PATH_BYTES_MAX];
    int result;

    manifest_wal_name(name, incarnation, worker->index);
    result = file_join(path, options->data_directory, name);
    if (result == 0)
        result =
            disk_wal_create(path, options->wal_segments, options->wal_segment_bytes, &progress);
    if (result == 0)
        result = disk_open(&worker->disk, path, 0);
    if (result < 0)
        return result;
    if (disk_flags(worker->disk))
        journal_write(JOURNAL_WARN, "disk_fallback", "wal=%s buffered=%d synchronous=%d", name,
                      (disk_flags(worker->disk) & DISK_BUFFERED) != 0,
                      (disk_flags(worker->disk) & DISK_SYNCHRONOUS) != 0);
    worker->wal = wal_writer_init(worker->wal, &wal_options);
    for (uint16_t s = worker->index; s < options->shards && result == 0;
         s = (uint16_t)(s + options->workers)) {
        result = add_state(worker, recovery->shards[s], &recovery->starts[s]);
        if (result == 0)
            result = add_log(worker, recovery->shards[s], &recovery->starts[s]);
    }
    while (result == 0 && wal_pending(worker->wal))
        result = write_out(worker);
    return result;
}

struct cleaning {
    const struct recovery *recovery;
    uint64_t keep;
};

static int remove_old(void *context, const char *name)
{
    const struct cleaning *cleaning = context;
    char path[FILE_PATH_BYTES_MAX];
    uint64_t incarnation;
    uint32_t worker;

    if (!manifest_wal_name_parse(name, &incarnation, &worker) || incarnation == cleaning->keep)
        return 0;
    if (file_join(path, cleaning->recovery->options->data_directory, name) == 0)
        (void)file_remove_directory(path);
    return 0;
}

int recovery_reserve(struct recovery *recovery)
{
    struct cleaning cleaning = {.recovery = recovery, .keep = recovery->manifest->wal_incarnation};

    /* What an interrupted start left behind would be in the way. */
    (void)file_list(recovery->options->data_directory, remove_old, &cleaning);
    recovery->incarnation = recovery->manifest->next_incarnation;
    recovery->manifest->next_incarnation = recovery->incarnation + 1;
    return recovery_save_manifest(recovery);
}

int recovery_renew(struct recovery *recovery)
{
    struct manifest *manifest = recovery->manifest;
    struct cleaning cleaning = {.recovery = recovery, .keep = recovery->incarnation};
    int result;

    for (uint16_t i = 0; i < recovery->options->workers; i++) {
        result = renew_worker(recovery, recovery->workers[i], recovery->incarnation);
        if (result < 0)
            return fail(recovery, result, "cannot make a WAL of %u x %llu bytes in %s: %s",
                        recovery->options->wal_segments,
                        (unsigned long long)recovery->options->wal_segment_bytes,
                        recovery->options->data_directory, strerror(-result));
    }
    manifest->wal_incarnation = recovery->incarnation;
    manifest->wal_count = recovery->options->workers;
    result = recovery_save_manifest(recovery);
    if (result == 0)
        (void)file_list(recovery->options->data_directory, remove_old, &cleaning);
    return result;
}
