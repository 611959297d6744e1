/* SPDX-License-Identifier: Apache-2.0
 *
 * The snapshot thread of a simulated node: saves to memory files that become durable later, fetches
 * from peers, loads. What mgmt/snapshots*.c promises a worker, from the worker's side.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

enum { STEP_NS = 40 * 1000, FETCH_RETRY_NS = 50 * 1000 * 1000 };

static void wake(struct sim_node *node, uint64_t after_ns)
{
    (void)sim_post(node->sim, node->sim->now_ns + after_ns, SIM_EV_NODE_SNAPSHOTS, node->id - 1u,
                   node->epoch, 0, NULL);
}

void sim_snapshots_init(struct sim_node *node)
{
    struct sim_snapshots *snapshots = &node->snapshots;

    memset(snapshots, 0, sizeof *snapshots);
    snapshots->mails = calloc(SNAPSHOT_MAILS, sizeof *snapshots->mails);
    snapshots->mail = calloc(1, sizeof *snapshots->mail);
    snapshots->decoder = calloc(1, sizeof *snapshots->decoder);
    assert(snapshots->mails && snapshots->mail && snapshots->decoder);
}

void sim_snapshots_free(struct sim_node *node)
{
    struct sim_snapshots *snapshots = &node->snapshots;

    free(snapshots->mails);
    free(snapshots->mail);
    free(snapshots->decoder);
    free(snapshots->loads);
    free(snapshots->save.bytes);
    free(snapshots->job.bytes);
    memset(snapshots, 0, sizeof *snapshots);
}

/* ---- mails ----------------------------------------------------------------------------------- */

struct snapshot_mail *sim_mail_claim(struct sim_node *node)
{
    struct sim_snapshots *snapshots = &node->snapshots;

    if (snapshots->count == SNAPSHOT_MAILS)
        return NULL;
    return &snapshots->mails[(snapshots->head + snapshots->count) % SNAPSHOT_MAILS];
}

void sim_mail_publish(struct sim_node *node)
{
    if (node->snapshots.count++ == 0)
        wake(node, STEP_NS);
}

static void answer(struct sim_node *node, const struct snapshot_mail *mail)
{
    struct shard *shard = &node->shards[mail->shard];

    if (shard->replica == mail->replica)
        shard_mail(shard, mail, sim_clock_read(node->sim, &node->clock));
    if (mail->kind == SNAPSHOT_SAVED && mail->result == -ENOSPC && !node->stepped_down) {
        sim_trace(node->sim, "n%u    its disk is full: it gives up leadership", node->id);
        node->stepped_down = true;
        for (uint16_t s = 0; s < node->sim->shards; s++)
            shard_step_down(&node->shards[s], sim_clock_read(node->sim, &node->clock));
    }
    sim_node_wake(node, node->sim->now_ns + 5 * SIM_US);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void append(struct sim_file *file, const uint8_t *bytes, size_t length)
{
    file->bytes = realloc(file->bytes, file->length + length);
    assert(file->bytes);
    memcpy(file->bytes + file->length, bytes, length);
    file->length += length;
}

static void file_begin(struct sim_file *file, struct snapshot_encoder *encoder,
                       const struct snapshot_meta *meta)
{
    uint8_t header[SNAPSHOT_HEADER_BYTES_MAX];

    free(file->bytes);
    *file = (struct sim_file){
        .replica = meta->replica_id, .index = meta->base.index, .shard = meta->shard};
    append(file, header, snapshot_encode_header(encoder, meta, header));
}

static void file_block(struct sim_file *file, struct snapshot_encoder *encoder,
                       const uint8_t *bytes, size_t length)
{
    uint8_t *block = calloc(1, SNAPSHOT_BLOCK_PREFIX_BYTES + length + 8);

    assert(block);
    memcpy(block + SNAPSHOT_BLOCK_PREFIX_BYTES, bytes, length);
    append(file, block, snapshot_encode_block(encoder, block, length));
    free(block);
}

static void file_end(struct sim_file *file, struct snapshot_encoder *encoder, uint64_t digest)
{
    uint8_t footer[SNAPSHOT_FOOTER_BYTES];

    append(file, footer, snapshot_encode_footer(encoder, digest, footer));
}

/* ---- saving ---------------------------------------------------------------------------------- */

static void save_mail(struct sim_node *node, const struct snapshot_mail *mail)
{
    struct sim_snapshots *snapshots = &node->snapshots;
    struct snapshot_meta *meta = &snapshots->save_meta;

    switch (mail->kind) {
    case SNAPSHOT_SAVE_BEGIN:
        *meta = (struct snapshot_meta){.replica_id = mail->replica,
                                       .shard = mail->shard,
                                       .token_epoch = mail->token_epoch,
                                       .base = mail->base};
        meta->configuration_bytes =
            (uint16_t)raft_configuration_encode(&mail->configuration, meta->configuration);
        file_begin(&snapshots->save, &snapshots->encoder, meta);
        break;
    case SNAPSHOT_SAVE_BLOCK:
        file_block(&snapshots->save, &snapshots->encoder, mail->block, mail->length);
        break;
    case SNAPSHOT_SAVE_END:
        file_end(&snapshots->save, &snapshots->encoder, mail->digest);
        snapshots->save_digest = mail->digest;
        snapshots->save_due_ns = node->sim->now_ns + SIM_MS + sim_below(node->sim, 20 * SIM_MS);
        wake(node, snapshots->save_due_ns - node->sim->now_ns);
        break;
    default: /* abort */
        snapshots->save_due_ns = 0;
        break;
    }
}

static void save_done(struct sim_node *node)
{
    struct sim_snapshots *snapshots = &node->snapshots;
    struct snapshot_mail *mail = snapshots->mail;

    memset(mail, 0, offsetof(struct snapshot_mail, block));
    mail->kind = SNAPSHOT_SAVED;
    mail->shard = snapshots->save.shard;
    mail->replica = snapshots->save.replica;
    mail->base = snapshots->save_meta.base;
    mail->digest = snapshots->save_digest;
    snapshots->save_due_ns = 0;
    if (node->disk.full) {
        mail->result = -ENOSPC;
    } else {
        sim_trace(node->sim, "n%u s%u snapshot at %llu is durable, %zu bytes", node->id,
                  mail->shard, (unsigned long long)mail->base.index, snapshots->save.length);
        node->sim->snapshots_done++;
        sim_file_keep(&node->disk, &snapshots->save);
    }
    answer(node, mail);
}

/* ---- fetching and loading -------------------------------------------------------------------- */

static void job_end(struct sim_node *node, int result)
{
    struct sim_snapshots *snapshots = &node->snapshots;
    struct snapshot_mail *mail = snapshots->mail;

    memset(mail, 0, offsetof(struct snapshot_mail, block));
    mail->kind = SNAPSHOT_LOAD_END;
    mail->shard = snapshots->shard;
    mail->replica = snapshots->replica;
    mail->result = result;
    mail->base = snapshots->decoder->meta.base;
    mail->digest = snapshots->decoder->digest;
    snapshots->stage = SIM_JOB_IDLE;
    answer(node, mail);
}

static int keep_block(void *context, const uint8_t *bytes, size_t length)
{
    struct sim_snapshots *snapshots = context;
    struct snapshot_mail *mail;

    snapshots->loads =
        realloc(snapshots->loads, (snapshots->loads_count + 1) * sizeof *snapshots->loads);
    assert(snapshots->loads);
    mail = &snapshots->loads[snapshots->loads_count++];
    memset(mail, 0, offsetof(struct snapshot_mail, block));
    mail->kind = SNAPSHOT_LOAD_BLOCK;
    mail->length = (uint32_t)length;
    memcpy(mail->block, bytes, length);
    return 0;
}

/* The peer's newest, verified, kept as an own file. */
static bool try_fetch(struct sim_node *node)
{
    struct sim *sim = node->sim;
    struct sim_snapshots *snapshots = &node->snapshots;
    struct sim_node *peer = &sim->nodes[snapshots->peer_node - 1];
    struct snapshot_sink sink = {.block = keep_block, .context = snapshots};
    struct snapshot_encoder encoder;
    const struct sim_file *file;
    struct snapshot_meta meta;

    if (!peer->up || peer->paused || !sim_net_open(sim, node->id, peer->id) ||
        (!sim->healed && sim_chance(sim, 100)))
        return false;
    file = sim_file_newest(&peer->disk, peer->shards[snapshots->shard].replica, UINT64_MAX);
    if (!file || file->index < snapshots->index_least)
        return false;
    snapshot_decoder_init(snapshots->decoder);
    snapshots->loads_count = snapshots->loads_next = 0;
    if (snapshot_decode(snapshots->decoder, file->bytes, file->length, &sink) != 1)
        return false; /* damaged there */
    meta = snapshots->decoder->meta;
    meta.replica_id = snapshots->replica;
    file_begin(&snapshots->job, &encoder, &meta);
    for (uint32_t i = 0; i < snapshots->loads_count; i++)
        file_block(&snapshots->job, &encoder, snapshots->loads[i].block,
                   snapshots->loads[i].length);
    file_end(&snapshots->job, &encoder, snapshots->decoder->digest);
    sim_trace(sim, "n%u s%u fetched a snapshot at %llu from n%u", node->id, snapshots->shard,
              (unsigned long long)meta.base.index, peer->id);
    sim_file_keep(&node->disk, &snapshots->job);
    return true;
}

static void job_wake(struct sim_node *node, uint64_t after_ns)
{
    node->snapshots.job_due_ns = node->sim->now_ns + after_ns;
    wake(node, after_ns);
}

static void load_step(struct sim_node *node)
{
    struct sim_snapshots *snapshots = &node->snapshots;
    struct snapshot_mail *mail = snapshots->mail;

    if (snapshots->stage == SIM_JOB_BEGIN) {
        memset(mail, 0, offsetof(struct snapshot_mail, block));
        mail->kind = SNAPSHOT_LOAD_BEGIN;
        mail->shard = snapshots->shard;
        mail->replica = snapshots->replica;
        mail->base = snapshots->decoder->meta.base;
        (void)raft_configuration_decode(&mail->configuration,
                                        snapshots->decoder->meta.configuration,
                                        snapshots->decoder->meta.configuration_bytes);
        snapshots->stage = SIM_JOB_BLOCKS;
        answer(node, mail);
    } else if (snapshots->loads_next < snapshots->loads_count) {
        struct snapshot_mail *block = &snapshots->loads[snapshots->loads_next++];

        block->shard = snapshots->shard;
        block->replica = snapshots->replica;
        answer(node, block);
    } else {
        job_end(node, 0);
    }
}

static void job_step(struct sim_node *node)
{
    struct sim_snapshots *snapshots = &node->snapshots;

    if (snapshots->stage == SIM_JOB_IDLE || node->sim->now_ns < snapshots->job_due_ns)
        return;
    if (snapshots->stage != SIM_JOB_FETCH) {
        load_step(node);
        job_wake(node, STEP_NS + sim_below(node->sim, SIM_MS));
    } else if (try_fetch(node)) {
        snapshots->stage = SIM_JOB_BEGIN;
        job_wake(node, STEP_NS);
    } else if (node->sim->now_ns >= snapshots->give_up_at_ns) {
        job_end(node, -ETIMEDOUT);
    } else {
        job_wake(node, FETCH_RETRY_NS);
    }
}

static void fetch_mail(struct sim_node *node, const struct snapshot_mail *mail)
{
    struct sim_snapshots *snapshots = &node->snapshots;

    if (mail->kind == SNAPSHOT_FETCH_CANCEL) {
        if (snapshots->stage == SIM_JOB_FETCH && snapshots->replica == mail->replica)
            job_end(node, -ECANCELED);
        return;
    }
    assert(snapshots->stage == SIM_JOB_IDLE); /* the shards' turnstile sees to it */
    snapshots->stage = SIM_JOB_FETCH;
    snapshots->shard = mail->shard;
    snapshots->replica = mail->replica;
    snapshots->peer_node = mail->peer_node;
    snapshots->index_least = mail->base.index;
    snapshots->give_up_at_ns = node->sim->now_ns + 5 * SIM_SECOND;
    job_wake(node, SIM_MS + sim_below(node->sim, 5 * SIM_MS));
}

/* ---- the thread ------------------------------------------------------------------------------ */

void sim_snapshots_turn(struct sim_node *node)
{
    struct sim_snapshots *snapshots = &node->snapshots;

    if (!node->up)
        return;
    if (node->paused) {
        wake(node, 10 * SIM_MS);
        return;
    }
    if (snapshots->save_due_ns && snapshots->save_due_ns <= node->sim->now_ns)
        save_done(node);
    if (snapshots->count) {
        const struct snapshot_mail *mail = &snapshots->mails[snapshots->head];
        uint32_t kind = mail->kind;

        /* Its slot is free only after this, as in a mailbox. */
        if (kind == SNAPSHOT_FETCH || kind == SNAPSHOT_FETCH_CANCEL)
            fetch_mail(node, mail);
        else
            save_mail(node, mail);
        snapshots->head = (snapshots->head + 1) % SNAPSHOT_MAILS;
        if (--snapshots->count)
            wake(node, STEP_NS);
        return;
    }
    job_step(node);
}
