/* SPDX-License-Identifier: Apache-2.0
 *
 * From what lies on a simulated disk to shards that may start: the order of mgmt/recovery.c (see
 * consensus/wal.h), on memory instead of files. A start may be interrupted between any two steps.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

/* ---- reading --------------------------------------------------------------------------------- */

struct loading {
    struct shard *shard;
    struct snapshot_decoder decoder;
};

static int load_block(void *context, const uint8_t *bytes, size_t length)
{
    return lock_machine_restore_step(((struct loading *)context)->shard->machine, bytes, length);
}

static int load_file(const struct sim_file *file, struct loading *loading)
{
    struct snapshot_sink sink = {.block = load_block, .context = loading};
    int result;

    snapshot_decoder_init(&loading->decoder);
    lock_machine_restore_begin(loading->shard->machine);
    result = snapshot_decode(&loading->decoder, file->bytes, file->length, &sink);
    if (result >= 0)
        result = snapshot_decode_end(&loading->decoder);
    while (result == 0 && (result = lock_machine_restore_end(loading->shard->machine)) == -EAGAIN)
        result = 0;
    if (result < 0) {
        lock_machine_restore_begin(loading->shard->machine);
        (void)lock_machine_restore_end(loading->shard->machine);
    }
    return result;
}

static int load_newest(struct sim_node *node, struct shard *shard, uint64_t replica,
                       struct shard_start *start)
{
    struct loading *loading = malloc(sizeof *loading);
    uint64_t below = UINT64_MAX;
    int result = -ENOENT;

    assert(loading);
    loading->shard = shard;
    for (;;) {
        const struct sim_file *file = sim_file_newest(&node->disk, replica, below);
        const struct log_base *base = &loading->decoder.meta.base;

        if (!file || file->index < shard->log.base.index)
            break;
        below = file->index;
        if (load_file(file, loading) < 0)
            continue;
        result = 0;
        if (log_term(&shard->log, base->index) == base->term && base->term)
            log_release_to(&shard->log, base->index);
        else
            log_reset(&shard->log, base);
        if (!raft_configuration_decode(&start->configuration, loading->decoder.meta.configuration,
                                       loading->decoder.meta.configuration_bytes))
            result = -EBADMSG;
        break;
    }
    free(loading);
    return result;
}

static int recover_replica(struct sim_node *node, const struct wal_rebuild *rebuild,
                           const struct manifest_replica *named, struct shard_start *start)
{
    const struct wal_rebuilt *found = wal_rebuild_find(rebuild, named->replica_id);
    struct shard *shard = &node->shards[named->shard];

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
    if (shard->log.base.index || sim_file_newest(&node->disk, named->replica_id, UINT64_MAX)) {
        int result = load_newest(node, shard, named->replica_id, start);

        if (result < 0 && (shard->log.base.index || result != -ENOENT))
            return result;
        start->limits_set = result == 0;
    }
    return 0;
}

static void replace_replica(struct sim_node *node, struct manifest_replica *named,
                            struct shard_start *start)
{
    struct log_base blank = {0};

    sim_trace(node->sim, "n%u s%u replica %04llx is lost", node->id, named->shard,
              (unsigned long long)named->replica_id & 0xffff);
    named->replica_id = sim_node_draw(node);
    named->state = MANIFEST_REBUILDING;
    node->rebuilding = true;
    log_reset(&node->shards[named->shard].log, &blank);
    *start =
        (struct shard_start){.id = named->shard, .replica = named->replica_id, .joining = true};
}

/* One WAL of the last process, whichever worker had it. */
struct old_wal {
    struct wal_reader reader;
    struct wal_recovered scanned;
    bool usable;
};

static void read_wal(struct sim_node *node, uint16_t w, struct old_wal *old,
                     struct wal_rebuild *rebuild)
{
    const struct manifest *manifest = node->manifest;
    struct sim_wal *wal = sim_wal_of(&node->disk.devices[w], manifest->wal_incarnation);
    struct wal_options options = sim_wal_options(node->sim, 1);
    int result = -ENOENT;

    old->reader = (struct wal_reader){
        .read = sim_disk_read,
        .context = wal,
        .identity = wal_identity(manifest->nonce, manifest->wal_incarnation, w),
        .segment_bytes = options.segment_bytes,
        .segments_count = options.segments_count,
        .block_bytes = options.block_bytes,
        .scratch = malloc(WAL_FRAME_BYTES_LIMIT),
    };
    assert(old->reader.scratch);
    if (wal)
        result = wal_scan(&old->reader, &old->scanned);
    if (result == 0)
        result = wal_rebuild_states(rebuild, w, &old->reader, &old->scanned);
    old->usable = result == 0;
    if (result < 0)
        sim_trace(node->sim, "n%u    WAL %u is corrupt: %s, segment %u offset %llu", node->id, w,
                  wal_damage_name(old->scanned.damage), old->scanned.damage_segment,
                  (unsigned long long)old->scanned.damage_offset);
    else
        sim_trace(node->sim, "n%u    WAL %u is whole: %llu frames%s", node->id, w,
                  (unsigned long long)old->scanned.frames,
                  old->scanned.cut ? ", an unfinished one cut" : "");
}

static void read_logs(struct sim_node *node, struct old_wal olds[], struct wal_rebuild *rebuild)
{
    for (uint32_t i = 0; i < node->manifest->replicas_count; i++) {
        struct wal_rebuilt *found =
            wal_rebuild_find(rebuild, node->manifest->replicas[i].replica_id);

        if (found)
            found->log = &node->shards[node->manifest->replicas[i].shard].log;
    }
    for (uint16_t w = 0; w < node->manifest->wal_count; w++) {
        if (olds[w].usable)
            (void)wal_rebuild_logs(rebuild, w, &olds[w].reader, &olds[w].scanned);
    }
}

void sim_node_recover(struct sim_node *node, struct shard_start starts[])
{
    struct wal_rebuilt *replicas = calloc(2 * SIM_SHARDS_MAX, sizeof *replicas);
    struct wal_rebuild rebuild = {.replicas = replicas, .max = 2 * SIM_SHARDS_MAX};
    struct old_wal olds[SIM_WORKERS_MAX] = {0};

    assert(replicas && node->manifest->wal_count <= SIM_WORKERS_MAX);
    for (uint16_t w = 0; w < node->manifest->wal_count; w++)
        read_wal(node, w, &olds[w], &rebuild);
    read_logs(node, olds, &rebuild);
    for (uint32_t i = 0; i < node->manifest->replicas_count; i++) {
        struct manifest_replica *named = &node->manifest->replicas[i];
        struct shard_start *start = &starts[named->shard];

        if (recover_replica(node, &rebuild, named, start) < 0)
            replace_replica(node, named, start);
        start->token_epoch = (uint16_t)node->manifest->token_epoch;
    }
    for (int w = 0; w < SIM_WORKERS_MAX; w++)
        free(olds[w].reader.scratch);
    free(replicas);
}

/* A blank directory in a formed cluster: new replicas under new ids. */
void sim_node_join(struct sim_node *node, struct shard_start starts[])
{
    struct manifest *manifest = node->manifest;

    node->rebuilding = true;
    for (uint16_t s = 0; s < node->sim->shards; s++) {
        uint64_t replica = sim_node_draw(node);

        starts[s] = (struct shard_start){.id = s,
                                         .replica = replica,
                                         .token_epoch = (uint16_t)manifest->token_epoch,
                                         .joining = true};
        (void)manifest_add(manifest, replica, s);
        manifest_find(manifest, replica)->state = MANIFEST_REBUILDING;
    }
}

/* ---- fresh WALs ------------------------------------------------------------------------------ */

/* The WAL that is being written anew. */
struct fresh_wal {
    struct sim_device *device;
    struct sim_wal *files;
    struct wal_writer *writer;
};

static void write_out(const struct fresh_wal *fresh)
{
    struct wal_write write;

    if (!wal_next_write(fresh->writer, &write))
        return;
    sim_disk_write_now(fresh->device, fresh->files, &write);
    wal_written(fresh->writer, write.sequence, 0);
}

static void add_replica(const struct fresh_wal *fresh, const struct shard *shard,
                        const struct shard_start *start)
{
    struct wal_replica state = {
        .replica_id = start->replica,
        .shard = start->id,
        .hard = start->hard,
        .base = shard->log.base,
    };
    uint64_t next = shard->log.base.index + 1;
    int64_t sequence;

    if (start->configuration.count)
        state.configuration_bytes =
            (uint16_t)raft_configuration_encode(&start->configuration, state.configuration);
    while ((sequence = wal_add_state(fresh->writer, &state)) == -ENOBUFS)
        write_out(fresh);
    assert(sequence > 0);
    while (next <= shard->log.last_index) {
        uint64_t added = next - 1;

        sequence = wal_add_log(fresh->writer, start->replica, &shard->log, next,
                               shard->log.last_index, &added);
        assert(sequence > 0 || sequence == -ENOBUFS);
        if (sequence < 0)
            write_out(fresh);
        next = added + 1;
    }
}

static bool interrupted(struct sim_node *node, const char *where)
{
    struct sim *sim = node->sim;

    if (sim->healed || !sim->weather.storage || !sim_chance(sim, 40))
        return false;
    sim_trace(sim, "n%u    the start is interrupted %s", node->id, where);
    return true;
}

static struct fresh_wal begin_wal(struct sim_node *node, uint16_t w, uint64_t incarnation)
{
    struct wal_options options =
        sim_wal_options(node->sim, wal_identity(node->manifest->nonce, incarnation, w));
    size_t bytes = (wal_memory_bytes(&options) + 4095) & ~(size_t)4095;

    node->wal_memory[w] = aligned_alloc(WAL_BLOCK_BYTES, bytes);
    assert(node->wal_memory[w]);
    memset(node->wal_memory[w], 0, bytes);
    node->wals[w] = wal_writer_init(node->wal_memory[w], &options);
    return (struct fresh_wal){.device = &node->disk.devices[w],
                              .files = sim_wal_create(&node->disk.devices[w], incarnation),
                              .writer = node->wals[w]};
}

/* False: the process died in the middle, the disk is as it was left. */
bool sim_node_renew(struct sim_node *node, struct shard_start starts[])
{
    struct sim *sim = node->sim;
    struct manifest *manifest = node->manifest;
    uint64_t incarnation = manifest->next_incarnation++;

    if (sim->weather.memory)
        return true;
    for (uint16_t w = 0; w < node->workers; w++) {
        struct fresh_wal fresh = begin_wal(node, w, incarnation);

        for (uint16_t s = w; s < sim->shards; s = (uint16_t)(s + node->workers)) {
            if (interrupted(node, "while its WAL is written"))
                return false;
            add_replica(&fresh, &node->shards[s], &starts[s]);
        }
        while (wal_pending(fresh.writer))
            write_out(&fresh);
    }
    if (interrupted(node, "before the manifest names its WAL"))
        return false;
    manifest->wal_incarnation = incarnation;
    manifest->wal_count = node->workers;
    sim_manifest_save(node);
    if (interrupted(node, "before the old WAL is deleted"))
        return false;
    sim_wal_remove_others(&node->disk, incarnation);
    sim_file_sweep(&node->disk, manifest);
    return true;
}
