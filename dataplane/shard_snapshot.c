/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots: taking one in steps while entries go on being applied, and installing a leader's.
 *
 * The worker only ever copies state into mails and out of mails; files and TCP are the snapshot
 * thread's. The order that makes a snapshot count: the file is durable (SAVED), then the WAL says
 * so (wal_add_snapshot), then the core may drop log entries (SNAPSHOT_SAVED).
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "dataplane/shard.h"

enum { SHARD_FETCH_GAP_NS = 200 * 1000 * 1000 };
#define SHARD_SAVE_GAP_NS UINT64_C(1000000000)

/* ---- taking one ------------------------------------------------------------------------------ */

static struct log_base base_at(const struct shard *shard, uint64_t index)
{
    const struct log_entry *entry = log_at(&shard->log, index);

    if (!entry)
        return shard->log.base; /* index == base.index */
    return (struct log_base){
        .index = index,
        .term = entry->term,
        .position = log_end_of(&shard->log, index),
        .checksum = entry->checksum,
        .stamp_ns = entry->stamp_ns,
    };
}

/* Half a ring since the last one: time to make room before the leader runs into it. What the core
 * keeps below a snapshot, for members that lag, does not count: it goes when room is needed. */
static bool log_is_long(const struct shard *shard)
{
    const struct log *log = &shard->log;
    uint64_t index = log->base.index;
    uint64_t position = log->base.position;

    if (shard->saved_index > index && log_at(log, shard->saved_index)) {
        index = shard->saved_index;
        position = log_end_of(log, index);
    }
    return log->end - position > shard->options->ring_bytes / 2 ||
           log->last_index - index > shard->options->entries_max / 2;
}

static struct snapshot_mail *mail_of_kind(struct shard *shard, enum snapshot_mail_kind kind)
{
    struct snapshot_mail *mail = shard->host->mail_claim(shard->host_context);

    if (!mail)
        return NULL;
    /* The block is left as it is: it may be 64 KiB of somebody else's old state. */
    memset(mail, 0, offsetof(struct snapshot_mail, block));
    mail->kind = kind;
    mail->shard = shard->id;
    mail->replica = shard->replica;
    return mail;
}

static void save_over(struct shard *shard)
{
    shard->save = SHARD_SAVE_NONE;
    if (shard->turnstile->saving == shard)
        shard->turnstile->saving = NULL;
}

static bool save_begin(struct shard *shard)
{
    struct snapshot_mail *mail;

    if (shard->turnstile->saving)
        return false;
    mail = mail_of_kind(shard, SNAPSHOT_SAVE_BEGIN);
    if (!mail)
        return false;
    shard->turnstile->saving = shard;
    shard->save_base = base_at(shard, shard->applied);
    shard->save_configuration = shard->configuration;
    lock_machine_snapshot_begin(shard->machine);
    mail->base = shard->save_base;
    mail->configuration = shard->save_configuration;
    mail->token_epoch = shard->token_epoch;
    shard->host->mail_publish(shard->host_context);
    shard->save = SHARD_SAVE_BLOCKS;
    shard->save_wanted = false;
    return true;
}

static bool save_block(struct shard *shard)
{
    struct snapshot_mail *mail = mail_of_kind(shard, SNAPSHOT_SAVE_BLOCK);
    long bytes;

    if (!mail)
        return false;
    bytes = lock_machine_snapshot_step(shard->machine, mail->block, SNAPSHOT_BLOCK_BYTES);
    if (bytes < 0) { /* steps came too slowly for the changes: begin again */
        mail->kind = SNAPSHOT_SAVE_ABORT;
        save_over(shard);
        shard->save_wanted = true;
    } else if (bytes == 0) {
        mail->kind = SNAPSHOT_SAVE_END;
        shard->save = SHARD_SAVE_WAITING;
    } else {
        mail->length = (uint32_t)bytes;
    }
    shard->host->mail_publish(shard->host_context);
    return bytes > 0;
}

/* Not while the WAL still has to take its word for the last one: saves that are faster than writes
 * would put that off for ever, and other shards of this worker would never get their turn. */
static bool save_turn(struct shard *shard, uint64_t now_ns)
{
    if (shard->save == SHARD_SAVE_NONE && shard->state == SHARD_RUNNING &&
        !shard->persist.snapshot_sequence && now_ns >= shard->save_at_ns &&
        shard->applied > shard->saved_index && (shard->save_wanted || log_is_long(shard)))
        return save_begin(shard);
    if (shard->save == SHARD_SAVE_BLOCKS)
        return save_block(shard);
    return false;
}

static void saved(struct shard *shard, const struct snapshot_mail *mail, uint64_t now_ns)
{
    uint8_t bytes[RAFT_CONFIGURATION_BYTES_MAX];
    size_t length = raft_configuration_encode(&shard->save_configuration, bytes);
    int64_t sequence;

    save_over(shard);
    if (mail->result < 0) {
        shard_note(shard, &(struct shard_note){.event = "snapshot_not_saved",
                                               .first_name = "error",
                                               .first = (uint64_t)-mail->result});
        shard->save_wanted = true;
        shard->save_at_ns = now_ns + SHARD_SAVE_GAP_NS;
        return;
    }
    if (!shard->wal) {
        shard->saved_index = mail->base.index;
        shard_step(shard, &(struct raft_event){.kind = RAFT_EV_SNAPSHOT_SAVED,
                                               .now_ns = now_ns,
                                               .progress = {.index = shard->saved_index}});
        return;
    }
    if (mail->base.index != shard->save_base.index || mail->base.index <= shard->log.base.index)
        return; /* a newer one was installed meanwhile */
    sequence = shard_persist_snapshot(shard, &shard->save_base, bytes, length);
    if (sequence < 0) {
        shard->save_wanted = true; /* no room in this frame: the file stays, the next one counts */
        return;
    }
    shard->persist.snapshot_sequence = (uint64_t)sequence;
    shard->persist.snapshot_index = shard->save_base.index;
}

/* ---- installing one -------------------------------------------------------------------------- */

/* The node may have changed while a fetch is under way: the old one may be gone for good, and all
 * other shards of this worker wait until that is noticed. */
void shard_fetch_from(struct shard *shard, uint64_t peer, uint16_t node)
{
    if (shard->fetch_running && shard->fetch_node != node)
        shard->fetch_cancel = true;
    shard->fetch_peer = peer;
    shard->fetch_node = node;
}

static bool fetch_turn(struct shard *shard, uint64_t now_ns)
{
    struct snapshot_mail *mail;

    if (shard->fetch_cancel && (mail = mail_of_kind(shard, SNAPSHOT_FETCH_CANCEL)) != NULL) {
        shard->fetch_cancel = false;
        shard->host->mail_publish(shard->host_context);
    }
    if (!shard->fetch_peer || shard->fetch_running || now_ns < shard->fetch_at_ns ||
        shard->turnstile->fetching)
        return false;
    mail = mail_of_kind(shard, SNAPSHOT_FETCH);
    if (!mail)
        return false;
    mail->peer_node = shard->fetch_node;
    mail->base.index = shard->applied + 1;
    shard->host->mail_publish(shard->host_context);
    shard->fetch_running = true;
    shard->turnstile->fetching = shard;
    return true;
}

static void fetch_over(struct shard *shard)
{
    shard->fetch_running = false;
    shard->fetch_cancel = false;
    if (shard->turnstile->fetching == shard)
        shard->turnstile->fetching = NULL;
}

static void fetch_failed(struct shard *shard, int result, uint64_t now_ns)
{
    if (result == -ECANCELED) { /* on our word: the next one is from the node that leads now */
        fetch_over(shard);
        return;
    }
    shard_note(shard, &(struct shard_note){.event = "snapshot_not_fetched",
                                           .first_name = "error",
                                           .first = (uint64_t)-result,
                                           .second_name = "node",
                                           .second = shard->fetch_node});
    fetch_over(shard);
    shard->fetch_at_ns = now_ns + SHARD_FETCH_GAP_NS;
    if (shard->state == SHARD_INSTALLING)
        return; /* the machine is blank now: the fetch must be tried until it succeeds */
    shard->fetch_peer = 0;
    shard_step(shard, &(struct raft_event){.kind = RAFT_EV_SNAPSHOT_INSTALLED, .now_ns = now_ns});
}

static void load_begin(struct shard *shard, const struct snapshot_mail *mail)
{
    if (shard->save == SHARD_SAVE_BLOCKS) {
        struct snapshot_mail *abort_mail = mail_of_kind(shard, SNAPSHOT_SAVE_ABORT);

        /* Without room for the abort the thread drops the save at its next BEGIN. */
        if (abort_mail)
            shard->host->mail_publish(shard->host_context);
        lock_machine_snapshot_abort(shard->machine);
        save_over(shard);
    }
    shard->state = SHARD_INSTALLING;
    shard->install_base = mail->base;
    shard->install_configuration = mail->configuration;
    lock_machine_restore_begin(shard->machine);
}

static void installed(struct shard *shard, uint64_t now_ns)
{
    bool keeps_log = log_term(&shard->log, shard->install_base.index) == shard->install_base.term;

    shard->state = SHARD_RUNNING;
    shard->applied = shard->install_base.index;
    shard->applied_stamp_ns = shard->install_base.stamp_ns;
    shard->due_ns = lock_machine_next_deadline(shard->machine);
    shard->configuration = shard->install_configuration;
    shard->limits_set = true;
    shard->saved_index = shard->install_base.index;
    shard->fetch_peer = 0;
    fetch_over(shard);
    if (!keeps_log) { /* else what the WAL has yet to take of it still waits */
        shard->persist.next = 1;
        shard->persist.to = 0;
        shard->persist.cut_pending = 0;
    }
    shard_step(shard,
               &(struct raft_event){.kind = RAFT_EV_SNAPSHOT_INSTALLED,
                                    .now_ns = now_ns,
                                    .snapshot = {.base = shard->install_base,
                                                 .configuration = shard->install_configuration}});
    if (!keeps_log)
        shard->persist.written = shard->log.last_index;
    shard_note(shard, &(struct shard_note){.event = "snapshot_installed",
                                           .first_name = "index",
                                           .first = shard->install_base.index,
                                           .second_name = "term",
                                           .second = shard->install_base.term});
}

static void load_end(struct shard *shard, int result, uint64_t now_ns)
{
    shard->install_error = 0;
    if (result == 0 && shard->state != SHARD_INSTALLING)
        result = -EPROTO; /* an end without a beginning */
    while (result == 0 && (result = lock_machine_restore_end(shard->machine)) == -EAGAIN)
        result = 0;
    if (result < 0) {
        fetch_failed(shard, result, now_ns);
        return;
    }
    if (shard->wal)
        shard->install_pending = true; /* counts once the WAL says so */
    else
        installed(shard, now_ns);
}

/* The WAL's word for it, and only then the core's. */
static void install_turn(struct shard *shard, uint64_t now_ns)
{
    const struct log_base *base = &shard->install_base;
    uint8_t bytes[RAFT_CONFIGURATION_BYTES_MAX];
    size_t length = raft_configuration_encode(&shard->install_configuration, bytes);
    bool keeps_log = log_term(&shard->log, base->index) == base->term;
    int64_t sequence;

    if (shard->install_pending) {
        sequence = keeps_log ? shard_persist_snapshot(shard, base, bytes, length)
                             : wal_add_install(shard->wal, shard->replica, base, bytes, length);
        if (sequence < 0)
            return; /* the frame is full; next turn */
        shard->install_pending = false;
        shard->install_sequence = (uint64_t)sequence;
    }
    if (shard->install_sequence && wal_durable_sequence(shard->wal) >= shard->install_sequence) {
        shard->install_sequence = 0;
        installed(shard, now_ns);
    }
}

/* ---- both ------------------------------------------------------------------------------------ */

void shard_mail(struct shard *shard, const struct snapshot_mail *mail, uint64_t now_ns)
{
    switch (mail->kind) {
    case SNAPSHOT_SAVED:
        saved(shard, mail, now_ns);
        break;
    case SNAPSHOT_LOAD_BEGIN:
        load_begin(shard, mail);
        break;
    case SNAPSHOT_LOAD_BLOCK:
        if (shard->state == SHARD_INSTALLING && !shard->install_error)
            shard->install_error =
                lock_machine_restore_step(shard->machine, mail->block, mail->length);
        break;
    case SNAPSHOT_LOAD_END:
        load_end(shard, mail->result ? mail->result : shard->install_error, now_ns);
        break;
    default:
        break;
    }
}

bool shard_snapshot_turn(struct shard *shard, uint64_t now_ns)
{
    bool more = save_turn(shard, now_ns);

    if (fetch_turn(shard, now_ns))
        more = true;
    if (shard->wal && shard->state == SHARD_INSTALLING)
        install_turn(shard, now_ns);
    return more;
}
