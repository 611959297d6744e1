/* SPDX-License-Identifier: Apache-2.0
 *
 * What a worker can have done for it, one job at a time: its newest own snapshot loaded (LOAD), or
 * one fetched from a peer, kept as its own file, and then loaded (FETCH). See
 * mgmt/snapshots_internal.h.
 *
 * The worker hears nothing of a snapshot before the whole file was found sound: LOAD_BEGIN empties
 * its tables. A fetch that fails is tried again, more and more seldom, until it has made no
 * progress for `fetch_give_up_ns`; an error of the own disk ends it at once.
 */
#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hw/journal.h"
#include "hw/port_socket.h"
#include "mgmt/snapshots_internal.h"

#define POLL_NS UINT64_C(1000000) /* a full mailbox is looked at again after this */

/* ---- beginning and end ----------------------------------------------------------------------- */

static void disconnect(struct job *job)
{
    if (job->fd >= 0)
        close(job->fd);
    job->fd = -1;
    store_abort(&job->writer);
}

static void end(struct snapshots *snapshots, struct worker_side *worker, int result)
{
    struct job *job = &worker->job;
    struct pending last = {
        .kind = SNAPSHOT_LOAD_END, .shard = job->shard, .replica = job->replica, .result = result};
    if (result == 0) {
        last.digest = job->reader.decoder.digest;
        last.base = job->reader.decoder.meta.base;
    }
    disconnect(job);
    store_reader_close(&job->reader);
    job->stage = JOB_IDLE;
    snapshots_answer(snapshots, worker, &last);
}

void job_cancel(struct snapshots *snapshots, struct worker_side *worker, int result)
{
    if (worker->job.stage != JOB_IDLE)
        end(snapshots, worker, result);
}

void job_cancel_fetch(struct snapshots *snapshots, struct worker_side *worker, uint64_t replica)
{
    const struct job *job = &worker->job;
    if (job->fetch && job->replica == replica && job->stage < JOB_VERIFY)
        job_cancel(snapshots, worker, -ECANCELED);
}

static void start_load(struct snapshots *snapshots, struct worker_side *worker, uint64_t below)
{
    struct job *job = &worker->job;
    int result = -ENOENT;
    if (store_newest(&snapshots->store, job->replica, below, &job->file))
        result = store_reader_open(&snapshots->store, job->file.name, &job->reader);
    else if (job->damaged)
        result = -EBADMSG;
    if (result < 0)
        end(snapshots, worker, result);
    else
        job->stage = JOB_VERIFY;
}

void job_start(struct snapshots *snapshots, struct worker_side *worker,
               const struct snapshot_mail *mail)
{
    struct job *job = &worker->job;
    if (job->stage != JOB_IDLE) {
        snapshots_answer(snapshots, worker,
                         &(struct pending){.kind = SNAPSHOT_LOAD_END,
                                           .shard = mail->shard,
                                           .replica = mail->replica,
                                           .result = -EBUSY});
        return;
    }
    job->fetch = mail->kind == SNAPSHOT_FETCH;
    job->shard = mail->shard;
    job->peer_node = mail->peer_node;
    job->replica = mail->replica;
    job->index_least = mail->base.index;
    job->damaged = false;
    job->complete = false;
    job->staged_bytes = 0;
    if (job->fetch) {
        job->stage = JOB_PAUSE;
        job->retry_at_ns = snapshots->now_ns;
        job->retry_ns = snapshots->tuning->fetch_retry_ns_min;
        job->give_up_at_ns = snapshots->now_ns + snapshots->tuning->fetch_give_up_ns;
    } else {
        start_load(snapshots, worker, UINT64_MAX);
    }
}

/* ---- fetching -------------------------------------------------------------------------------- */

static void try_again_later(struct snapshots *snapshots, struct worker_side *worker,
                            const char *reason)
{
    struct job *job = &worker->job;
    disconnect(job);
    journal_write(JOURNAL_DEBUG, "snapshot_fetch_retry", "shard=%u from_node=%u reason=\"%s\"",
                  (unsigned)job->shard, (unsigned)job->peer_node, reason);
    job->stage = JOB_PAUSE;
    job->retry_at_ns = snapshots->now_ns + job->retry_ns;
    job->retry_ns *= 2;
    if (job->retry_ns > snapshots->tuning->fetch_retry_ns_max)
        job->retry_ns = snapshots->tuning->fetch_retry_ns_max;
}

static const struct port_address *peer_address(const struct snapshots *snapshots, uint16_t node)
{
    for (uint16_t i = 0; i < snapshots->members_count; i++)
        if (snapshots->members[i].node == node && node != snapshots->node)
            return &snapshots->members[i].management;
    return NULL;
}

static void connect_to_peer(struct snapshots *snapshots, struct worker_side *worker)
{
    struct job *job = &worker->job;
    const struct port_address *address = peer_address(snapshots, job->peer_node);
    if (address == NULL) {
        end(snapshots, worker, -EINVAL);
        return;
    }
    bool ipv4 = port_address_is_ipv4(address);
    struct sockaddr_storage storage = {0};
    socklen_t length = port_address_to_socket(address, ipv4, &storage);
    job->fd = socket(ipv4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct epoll_event event = {
        .events = EPOLLOUT, .data.u64 = tag_of(TAG_JOB, (uint32_t)(worker - snapshots->workers))};
    job->stage = JOB_CONNECT;
    job->readable = false;
    job->received_bytes = 0;
    job->sequence = 0;
    job->timeout_at_ns = snapshots->now_ns + snapshots->tuning->request_timeout_ns;
    if (job->fd < 0 ||
        (connect(job->fd, (struct sockaddr *)&storage, length) < 0 && errno != EINPROGRESS) ||
        epoll_ctl(snapshots->epoll_fd, EPOLL_CTL_ADD, job->fd, &event) < 0)
        try_again_later(snapshots, worker, strerrordesc_np(errno));
}

void job_event(struct worker_side *worker, uint32_t events)
{
    (void)events; /* in, out, error: the next call on the socket says which */
    worker->job.readable = true;
}

static void connected(struct snapshots *snapshots, struct worker_side *worker)
{
    struct job *job = &worker->job;
    int error = 0;
    socklen_t length = sizeof error;
    struct epoll_event event = {
        .events = EPOLLIN, .data.u64 = tag_of(TAG_JOB, (uint32_t)(worker - snapshots->workers))};
    if (getsockopt(job->fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0 || error != 0 ||
        epoll_ctl(snapshots->epoll_fd, EPOLL_CTL_MOD, job->fd, &event) < 0) {
        try_again_later(snapshots, worker, strerrordesc_np(error != 0 ? error : errno));
        return;
    }
    job->readable = false;
    job->stage = JOB_GREETING;
}

static void greeted(struct snapshots *snapshots, struct worker_side *worker)
{
    struct job *job = &worker->job;
    struct link_greeting greeting;
    struct link_request request = {.cluster_id = snapshots->cluster_id,
                                   .from_node = snapshots->node,
                                   .to_node = job->peer_node,
                                   .shard = job->shard,
                                   .index_least = job->index_least};
    memcpy(&greeting, job->received, sizeof greeting);
    if (!link_greeting_sound(&greeting)) {
        try_again_later(snapshots, worker, "not a snapshot server");
        return;
    }
    job->received_bytes = 0;
    randombytes_buf(request.nonce, sizeof request.nonce);
    link_derive(&job->keys, snapshots->cluster_key, greeting.nonce, request.nonce);
    link_request_seal(&request, &job->keys);
    /* 64 bytes into an empty send buffer: whole, or the connection is broken. */
    if (send(job->fd, &request, sizeof request, MSG_NOSIGNAL) != (ssize_t)sizeof request)
        try_again_later(snapshots, worker, "the request was not sent");
    else
        job->stage = JOB_ANSWER;
}

static void answered(struct snapshots *snapshots, struct worker_side *worker)
{
    struct job *job = &worker->job;
    struct link_frame frame;
    struct link_answer answer;
    memcpy(&frame, job->received, sizeof frame);
    memcpy(&answer, job->received + sizeof frame, sizeof answer);
    if (frame.kind != LINK_ANSWER || answer.result != 0 || answer.file_bytes == 0 ||
        answer.index < job->index_least) {
        try_again_later(snapshots, worker, "the peer has none that is new enough");
        return;
    }
    job->file_bytes = answer.file_bytes;
    job->sink_error = 0;
    snapshot_decoder_init(&job->reader.decoder);
    job->stage = JOB_DATA;
}

/* Sink of what arrives: the same state under the own replica's name. An error is our disk's. */
static int keep_header(void *context, const struct snapshot_meta *meta)
{
    struct worker_side *worker = context;
    struct job *job = &worker->job;
    if (meta->shard != job->shard || meta->base.index < job->index_least)
        return -EBADMSG;
    return 0;
}

static int keep_block(void *context, const uint8_t *bytes, size_t length)
{
    struct job *job = &((struct worker_side *)context)->job;
    job->sink_error = store_append(&job->writer, bytes, length);
    return job->sink_error;
}

/* The peer's header was complete: ours can be written. */
static int begin_own_file(struct snapshots *snapshots, struct job *job)
{
    struct snapshot_meta meta = job->reader.decoder.meta;
    meta.replica_id = job->replica;
    return store_begin(&snapshots->store, &job->writer, &meta);
}

static int feed(struct snapshots *snapshots, struct worker_side *worker, const uint8_t *bytes,
                size_t length)
{
    struct job *job = &worker->job;
    struct snapshot_decoder *decoder = &job->reader.decoder;
    const struct snapshot_sink sink = {keep_header, keep_block, worker};
    int result = 0;
    /* Byte by byte up to the header's end, so that its file is there before the first block. */
    while (decoder->stage == 0 && length > 0 && result == 0) {
        result = snapshot_decode(decoder, bytes, 1, &sink);
        bytes++;
        length--;
    }
    if (result == 0 && decoder->stage == 1 && !job->writer.open)
        result = job->sink_error = begin_own_file(snapshots, job);
    if (result == 0 && length > 0)
        result = snapshot_decode(decoder, bytes, length, &sink);
    return result;
}

static void fetched(struct snapshots *snapshots, struct worker_side *worker)
{
    struct job *job = &worker->job;
    int result = store_commit(&snapshots->store, &job->writer, job->reader.decoder.digest);
    disconnect(job);
    if (result < 0) {
        end(snapshots, worker, result);
        return;
    }
    journal_write(JOURNAL_INFO, "snapshot_fetched", "shard=%u from_node=%u index=%llu",
                  (unsigned)job->shard, (unsigned)job->peer_node,
                  (unsigned long long)job->reader.decoder.meta.base.index);
    snapshot_name(job->file.name, job->replica, job->reader.decoder.meta.base.index);
    job->file.replica = job->replica;
    job->file.index = job->reader.decoder.meta.base.index;
    result = store_reader_open(&snapshots->store, job->file.name, &job->reader);
    if (result < 0)
        end(snapshots, worker, result);
    else
        job->stage = JOB_VERIFY; /* what was written, as it lies on the disk */
}

static void take_data(struct snapshots *snapshots, struct worker_side *worker)
{
    struct job *job = &worker->job;
    struct link_frame frame;
    memcpy(&frame, job->received, sizeof frame);
    if (frame.kind != LINK_DATA || frame.length > job->file_bytes) {
        try_again_later(snapshots, worker, "more than was announced");
        return;
    }
    job->file_bytes -= frame.length;
    job->give_up_at_ns = snapshots->now_ns + snapshots->tuning->fetch_give_up_ns;
    int result = feed(snapshots, worker, job->received + sizeof frame, frame.length);
    if (job->sink_error < 0)
        end(snapshots, worker, job->sink_error);
    else if (result < 0)
        try_again_later(snapshots, worker, "damaged");
    else if (job->file_bytes == 0 && result == 1)
        fetched(snapshots, worker);
    else if (job->file_bytes == 0)
        try_again_later(snapshots, worker, "incomplete");
}

/* Takes what has come for this stage. True: it may go on at once. */
static bool receive(struct snapshots *snapshots, struct worker_side *worker)
{
    struct job *job = &worker->job;
    bool greeting = job->stage == JOB_GREETING;
    size_t wanted = greeting ? sizeof(struct link_greeting) : sizeof job->received;
    if (!job->readable)
        return false;
    if (job->received_bytes < wanted) {
        ssize_t got =
            recv(job->fd, job->received + job->received_bytes, wanted - job->received_bytes, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            job->readable = false;
            return false;
        }
        if (got <= 0) {
            try_again_later(snapshots, worker, got == 0 ? "closed" : strerrordesc_np(errno));
            return true;
        }
        job->received_bytes += (size_t)got;
        job->timeout_at_ns =
            snapshots->now_ns + (greeting ? snapshots->tuning->request_timeout_ns
                                          : snapshots->tuning->progress_timeout_ns);
    }
    if (greeting) {
        if (job->received_bytes == wanted)
            greeted(snapshots, worker);
        return true;
    }
    long whole;
    while ((job->stage == JOB_ANSWER || job->stage == JOB_DATA) &&
           (whole = link_frame_check(job->received, job->received_bytes, job->sequence,
                                     &job->keys)) != 0) {
        if (whole < 0) {
            try_again_later(snapshots, worker, "not authentic");
            break;
        }
        job->sequence++;
        if (job->stage == JOB_ANSWER)
            answered(snapshots, worker);
        else
            take_data(snapshots, worker);
        if (job->fd < 0)
            break; /* ended one way or the other */
        job->received_bytes -= (size_t)whole;
        memmove(job->received, job->received + whole, job->received_bytes);
    }
    return true;
}

static bool fetch_step(struct snapshots *snapshots, struct worker_side *worker)
{
    struct job *job = &worker->job;
    if (snapshots->now_ns >= job->give_up_at_ns) {
        end(snapshots, worker, -ETIMEDOUT);
        return true;
    }
    wake_by(snapshots, job->give_up_at_ns);
    if (job->stage == JOB_PAUSE) {
        wake_by(snapshots, job->retry_at_ns);
        if (snapshots->now_ns < job->retry_at_ns)
            return false;
        connect_to_peer(snapshots, worker);
        return true;
    }
    if (snapshots->now_ns >= job->timeout_at_ns) {
        try_again_later(snapshots, worker, "too slow");
        return true;
    }
    wake_by(snapshots, job->timeout_at_ns);
    if (job->stage == JOB_CONNECT) {
        if (!job->readable)
            return false;
        connected(snapshots, worker);
        return true; /* also if it failed: the pause that follows has its own wake-up */
    }
    return receive(snapshots, worker);
}

/* ---- loading --------------------------------------------------------------------------------- */

static bool verify_step(struct snapshots *snapshots, struct worker_side *worker)
{
    struct job *job = &worker->job;
    int result = store_reader_step(&job->reader, job->piece, PIECE_BYTES, NULL);
    if (result == 0)
        return true;
    if (result == 1 && job->reader.decoder.meta.replica_id != job->replica)
        result = -EBADMSG; /* somebody renamed it */
    if (result == 1)
        result = store_reader_rewind(&job->reader);
    if (result == 0) {
        job->stage = JOB_BEGIN;
        return true;
    }
    journal_write(JOURNAL_ERROR, "snapshot_damaged", "file=%s error=\"%s\"", job->file.name,
                  strerrordesc_np(-result));
    store_reader_close(&job->reader);
    job->damaged = true;
    if (job->fetch) /* an older one of our own would take the shard back */
        end(snapshots, worker, result);
    else
        start_load(snapshots, worker, job->file.index);
    return true;
}

/* A mail to the worker; NULL = no room, look again soon. */
static struct snapshot_mail *claim(struct snapshots *snapshots, struct worker_side *worker,
                                   enum snapshot_mail_kind kind)
{
    struct snapshot_mail *mail = mailbox_claim(worker->mail.from_thread);
    if (mail == NULL) {
        wake_by(snapshots, snapshots->now_ns + POLL_NS);
        return NULL;
    }
    memset(mail, 0, offsetof(struct snapshot_mail, block));
    mail->kind = kind;
    mail->shard = worker->job.shard;
    mail->replica = worker->job.replica;
    return mail;
}

static void publish(struct worker_side *worker)
{
    mailbox_publish(worker->mail.from_thread);
    poller_wake(worker->mail.poller);
}

static int stage_block(void *context, const uint8_t *bytes, size_t length)
{
    struct job *job = context;
    assert(job->staged_bytes + length <= sizeof job->staged);
    memcpy(job->staged + job->staged_bytes, bytes, length);
    job->staged_bytes += length;
    return 0;
}

/* meta is known after the first piece, before anything is sent. */
static bool begin_step(struct snapshots *snapshots, struct worker_side *worker)
{
    struct job *job = &worker->job;
    const struct snapshot_meta *meta = &job->reader.decoder.meta;
    const struct snapshot_sink sink = {NULL, stage_block, job};
    if (job->reader.decoder.stage == 0) {
        int result = store_reader_step(&job->reader, job->piece, LOAD_PIECE_BYTES, &sink);
        if (result < 0) {
            end(snapshots, worker, result);
            return true;
        }
    }
    struct snapshot_mail *mail = claim(snapshots, worker, SNAPSHOT_LOAD_BEGIN);
    if (mail == NULL)
        return false;
    mail->base = meta->base;
    mail->token_epoch = meta->token_epoch;
    if (!raft_configuration_decode(&mail->configuration, meta->configuration,
                                   meta->configuration_bytes)) {
        end(snapshots, worker, -EBADMSG); /* the claimed mail is simply not published */
        return true;
    }
    publish(worker);
    job->stage = JOB_SEND;
    return true;
}

/* Blocks are passed on as bytes: how the file cuts them does not matter to the machine. */
static bool send_step(struct snapshots *snapshots, struct worker_side *worker)
{
    struct job *job = &worker->job;
    const struct snapshot_sink sink = {NULL, stage_block, job};
    if (!job->complete && job->staged_bytes < SNAPSHOT_BLOCK_BYTES) {
        int result = store_reader_step(&job->reader, job->piece, LOAD_PIECE_BYTES, &sink);
        job->complete = result == 1;
        if (result < 0)
            end(snapshots, worker, result);
        return true;
    }
    if (job->staged_bytes == 0) {
        end(snapshots, worker, 0);
        return true;
    }
    struct snapshot_mail *mail = claim(snapshots, worker, SNAPSHOT_LOAD_BLOCK);
    if (mail == NULL)
        return false;
    size_t length =
        job->staged_bytes < SNAPSHOT_BLOCK_BYTES ? job->staged_bytes : SNAPSHOT_BLOCK_BYTES;
    mail->length = (uint32_t)length;
    memcpy(mail->block, job->staged, length);
    publish(worker);
    job->staged_bytes -= length;
    memmove(job->staged, job->staged + length, job->staged_bytes);
    return true;
}

bool job_step(struct snapshots *snapshots, struct worker_side *worker)
{
    switch (worker->job.stage) {
    case JOB_IDLE:
        return false;
    case JOB_PAUSE:
    case JOB_CONNECT:
    case JOB_GREETING:
    case JOB_ANSWER:
    case JOB_DATA:
        return fetch_step(snapshots, worker);
    case JOB_VERIFY:
        return verify_step(snapshots, worker);
    case JOB_BEGIN:
        return begin_step(snapshots, worker);
    case JOB_SEND:
        return send_step(snapshots, worker);
    }
    return false;
}
